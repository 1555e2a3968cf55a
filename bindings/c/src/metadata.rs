//! Metadata of names, and reports of what was written.

use std::{ffi::c_char, fmt::Display, time::UNIX_EPOCH};

use library::{Kind, Report, Stat};

/// Kind of a name at the daemon.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum nicstripe_kind {
    /// Regular file.
    NICSTRIPE_KIND_FILE = 1,
    /// Directory.
    NICSTRIPE_KIND_DIRECTORY = 2,
    /// Symbolic link, device or another kind.
    NICSTRIPE_KIND_OTHER = 3,
}

/// Metadata of a name at the daemon.
#[repr(C)]
pub struct nicstripe_metadata {
    /// Size of a file in bytes; meaningless for other kinds.
    pub size: u64,
    /// Modification time in ns since 1970; negative before.
    pub modified_ns: i64,
    /// A nicstripe_kind.
    pub kind: i32,
    /// Entity tag, 32 hexadecimal digits; "" if unknown. It changes with the content.
    pub etag: [c_char; 33],
    /// BLAKE3 hash of the content, 64 hexadecimal digits; "" if the daemon does not know it.
    pub digest: [c_char; 65],
}

impl nicstripe_metadata {
    pub(crate) fn of(stat: &Stat) -> Self {
        let modified = match stat.modified.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
        };
        Self {
            size: stat.size,
            modified_ns: modified,
            kind: match stat.kind {
                Kind::File => nicstripe_kind::NICSTRIPE_KIND_FILE,
                Kind::Dir => nicstripe_kind::NICSTRIPE_KIND_DIRECTORY,
                _ => nicstripe_kind::NICSTRIPE_KIND_OTHER,
            } as i32,
            etag: text(stat.etag),
            digest: text(stat.digest),
        }
    }

    pub(crate) const fn unset() -> Self {
        Self {
            size: 0,
            modified_ns: 0,
            kind: 0,
            etag: [0; 33],
            digest: [0; 65],
        }
    }
}

/// Result of a file or a tree that was copied or written. It is durable.
#[repr(C)]
pub struct nicstripe_report {
    /// Size of the file, or of all files of a tree, in bytes.
    pub size: u64,
    /// Payload bytes sent.
    pub wire_bytes: u64,
    /// Bytes of earlier attempts.
    pub resumed_bytes: u64,
    /// Bytes of chunks that were retransmitted.
    pub resent_bytes: u64,
    /// Time from the call until the end in ns.
    pub elapsed_ns: u64,
    /// Tree: files copied.
    pub files: u64,
    /// Tree: files, symbolic links and hard links that were unchanged at the target.
    pub unchanged: u64,
    /// Tree: files and directories deleted at the target.
    pub deleted: u64,
    /// Tree: entries that failed. They do not fail the transfer; see nicstripe_transfer_failure.
    pub failed: u64,
    /// Number of times a connected link was lost.
    pub failovers: u32,
    /// Entity tag of the written file, 32 hexadecimal digits; "" for a tree or if unknown.
    pub etag: [c_char; 33],
    /// BLAKE3 hash of the file, 64 hexadecimal digits; "" for a tree.
    pub digest: [c_char; 65],
}

impl nicstripe_report {
    pub(crate) fn of(report: &Report) -> Self {
        let tree = report.tree.as_ref();
        Self {
            size: report.size,
            wire_bytes: report.wire_bytes,
            resumed_bytes: report.resumed_bytes,
            resent_bytes: report.resent_bytes,
            elapsed_ns: u64::try_from(report.elapsed.as_nanos()).unwrap_or(u64::MAX),
            files: tree.map_or(0, |tree| tree.files),
            unchanged: tree.map_or(0, |tree| tree.unchanged),
            deleted: tree.map_or(0, |tree| tree.deleted),
            failed: tree.map_or(0, |tree| tree.failed),
            failovers: report.failovers,
            etag: text(report.etag),
            digest: text(report.digest),
        }
    }
}

/// Returns a text that fits, NUL-terminated; "" for `None`.
fn text<const LEN: usize>(value: Option<impl Display>) -> [c_char; LEN] {
    let mut chars = [0; LEN];
    let text = value.map(|value| value.to_string()).unwrap_or_default();
    for (char, byte) in chars[..LEN - 1].iter_mut().zip(text.bytes()) {
        *char = byte as c_char;
    }
    chars
}
