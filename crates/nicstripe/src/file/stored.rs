//! Interface to files of an embedding program's storage, which are not files of the operating
//! system.

use std::{fmt, io, time::SystemTime};

use nicstripe_proto::{SourceIdentity, journal::Timestamp};

/// File of a storage, open for reading. Dropped when the last reader has finished.
pub trait StoredFile: fmt::Debug + Send + Sync {
    /// Returns the current identity of the file. Called when the file is opened, and after the last
    /// read. A transfer whose source has changed in between fails.
    ///
    /// # Errors
    ///
    /// The identity cannot be determined; the transfer fails.
    fn identity(&self) -> io::Result<FileIdentity>;

    /// Fills `bytes` with the content of the file from `offset` on.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the file is too short.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Returns the permission bits of the file, for receivers that preserve them.
    fn mode(&self) -> u32 {
        0o644
    }
}

/// Identity of a file's content. A transfer resumes only if it is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// Size of the file in bytes.
    pub size: u64,
    /// Time of the last change of the content.
    pub modified: SystemTime,
    /// Version of the content, unique among all contents that this name has had; 0 if the storage
    /// has no versions.
    pub version: u64,
}

impl FileIdentity {
    pub(crate) fn as_source(&self) -> SourceIdentity {
        let time = timestamp_of(self.modified);
        SourceIdentity {
            size: self.size,
            mtime: time,
            ctime: time,
            inode: self.version,
            device: 0,
        }
    }
}

pub(crate) fn timestamp_of(time: SystemTime) -> Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        },
        Err(error) => {
            let before = error.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timestamp {
                    seconds: -seconds,
                    nanoseconds: 0,
                },
                nanoseconds => Timestamp {
                    seconds: -seconds - 1,
                    nanoseconds: 1_000_000_000 - nanoseconds,
                },
            }
        }
    }
}
