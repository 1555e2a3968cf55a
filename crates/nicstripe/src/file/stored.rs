//! Identity of a file's content, and interface to the files of an embedding program's storage.

use std::{fmt, io, time::SystemTime};

use nicstripe_proto::{ETag, ObjectAttributes, SourceIdentity, journal::Timestamp};

use super::attributes::mtime_of;

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

    /// Returns the attributes of the file; empty if it has none.
    fn attributes(&self) -> ObjectAttributes {
        ObjectAttributes::new()
    }

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
    /// has no versions. Entity tags are then as good as `modified`.
    pub version: u64,
}

impl FileIdentity {
    /// Returns the entity tag of a file with this identity.
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use nicstripe::storage::FileIdentity;
    ///
    /// let file = FileIdentity { size: 3, modified: SystemTime::UNIX_EPOCH, version: 1 };
    /// assert_ne!(file.etag(), FileIdentity { version: 2, ..file }.etag());
    /// ```
    pub fn etag(&self) -> ETag {
        ETag::of(&self.as_source())
    }

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
    let nanoseconds = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(error) => -(error.duration().as_nanos() as i128),
    };
    let seconds = nanoseconds.div_euclid(NANOSECONDS);
    Timestamp {
        seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        nanoseconds: nanoseconds.rem_euclid(NANOSECONDS) as u32,
    }
}

const NANOSECONDS: i128 = 1_000_000_000;

/// Returns the entity tag of a file in the file system.
pub(crate) fn etag_of(stat: &rustix::fs::Stat) -> ETag {
    ETag::of(&identity_of(stat))
}

/// Returns the identity of a file's content: size, times, inode and device from stat(2).
pub(crate) fn identity_of(stat: &rustix::fs::Stat) -> SourceIdentity {
    SourceIdentity {
        size: stat.st_size as u64,
        mtime: mtime_of(stat),
        ctime: Timestamp {
            seconds: stat.st_ctime,
            nanoseconds: stat.st_ctime_nsec as u32,
        },
        inode: stat.st_ino,
        device: stat.st_dev,
    }
}
