//! Interface to the files of an embedding program's storage.

use std::{fmt, io};

use super::identity::FileIdentity;

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
