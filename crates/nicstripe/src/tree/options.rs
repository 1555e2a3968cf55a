//! Options and report of a tree copy.

use nicstripe_proto::{
    FailCode, Name,
    tree::{TreeRules, Verdict},
};

use crate::options::CopyOptions;

/// Options of a tree copy. The default copies files and symbolic links with their modification
/// times and replaces nothing.
///
/// Files with the same size and modification time at the target are not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Copy directories recursively; without it a directory is a failure.
    pub recursive: bool,
    /// Replace only files that are older than the source's. Takes precedence over
    /// [`CopyOptions::replace`].
    pub update: bool,
    /// Compare files of equal size by BLAKE3 instead of their times: both ends read all of them.
    pub checksum: bool,
    /// Preserve owners and groups, by name or by `numeric_ids`, if the receiver has the rights.
    pub owners: bool,
    /// Preserve owners, groups and those in ACLs by number.
    ///
    /// Without it the receiver maps names to its own numbers, and keeps the number of an unknown
    /// name; root stays root.
    pub numeric_ids: bool,
    /// Preserve extended attributes and ACLs.
    pub xattrs: bool,
    /// Preserve FIFOs, socket files and devices. Devices require that the receiver is root and lets
    /// this peer set set-user-ID.
    pub nodes: bool,
    /// Preserve hard links. Memory grows with the number of files that have several names.
    pub hard_links: bool,
    /// Delete files at the target that the source does not have, in directories of the source.
    /// Skips excluded files and directories that could not be read completely.
    pub delete: bool,
    /// Report what would be done, without changing anything.
    pub dry_run: bool,
    /// Stay on the file system of each source.
    pub one_file_system: bool,
    /// Exclude filters in the syntax of gitignore(5), in order; a leading `!` re-includes. A
    /// pattern with a slash is anchored at each source.
    pub filters: Vec<String>,
    /// Copy only these paths, relative to the source, and their parent directories. Directories are
    /// copied with their contents if `recursive`.
    pub files_from: Option<Vec<Name>>,
    /// Emit an [`Event::Entry`](crate::Event::Entry) for each entry that is copied, deleted or
    /// fails. The transfer waits for the reader of these events.
    pub list: bool,
    /// Options of each file. [`CopyOptions::preserve`] preserves modes.
    pub files: CopyOptions,
}

/// Outcome of one entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryOutcome {
    /// Copied, or in a dry run: would be copied.
    Copied {
        /// [`Verdict::Create`] or [`Verdict::Replace`].
        verdict: Verdict,
        /// Size of the file in bytes, 0 for other types.
        bytes: u64,
    },
    /// Unchanged at the target, or newer there.
    Skipped(Verdict),
    /// Skipped: a socket, a FIFO or a device.
    Special,
    /// Deleted at the target, or in a dry run: would be deleted.
    Deleted,
    /// Failed.
    Failed {
        /// Kind of failure.
        code: FailCode,
        /// Message in one line, escaped.
        text: String,
    },
}

/// A failed entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedEntry {
    /// Path relative to the source or target, escaped.
    pub name: String,
    /// Kind of failure.
    pub code: FailCode,
    /// Message in one line, escaped.
    pub text: String,
}

/// Result of a tree copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// Regular files copied.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Directories created.
    pub directories: u64,
    /// Symbolic links created.
    pub symlinks: u64,
    /// FIFOs, socket files and devices created.
    pub nodes: u64,
    /// Further names of files that were copied or already present.
    pub hard_links: u64,
    /// Files and links unchanged at the target.
    pub unchanged: u64,
    /// Files skipped because the target's is newer.
    pub newer: u64,
    /// Files and directories deleted at the target.
    pub deleted: u64,
    /// Sockets, FIFOs and devices of the source that were skipped.
    pub special: u64,
    /// Files, directories and links stored without set-user-ID and set-group-ID bits or root-only
    /// attributes. The receiver's peer may not set them
    /// ([`PeerOptions::special_modes`](crate::trust::PeerOptions::special_modes)).
    pub stripped: u64,
    /// Number of failures.
    pub failed: u64,
    /// Failures because a source changed or vanished while it was read; included in `failed`.
    pub changed: u64,
    /// The first 1000 failures.
    pub failures: Vec<FailedEntry>,
}

/// Most failures kept in a report; further ones are only counted.
pub(crate) const MOST_FAILURES: usize = 1000;

impl TreeOptions {
    pub(crate) fn rules(&self) -> TreeRules {
        TreeRules {
            // A delta or in-place copy replaces the target.
            replace: self.files.replace || self.files.delta || self.files.in_place,
            update: self.update,
            checksum: self.checksum,
            modes: self.files.preserve,
            owners: self.owners,
            numeric_ids: self.numeric_ids,
            xattrs: self.xattrs,
            nodes: self.nodes,
            delete: self.delete,
            dry_run: self.dry_run,
            filters: self.filters.clone(),
        }
    }
}

impl TreeReport {
    /// Counts a failure, and keeps its text if there is room.
    pub(crate) fn fail(&mut self, failure: FailedEntry) {
        self.failed += 1;
        self.changed += u64::from(failure.code == FailCode::SourceChanged);
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        }
    }

    /// Returns true if every failure is a source that changed or vanished while it was read.
    pub fn only_sources_changed(&self) -> bool {
        self.failed > 0 && self.failed == self.changed
    }
}
