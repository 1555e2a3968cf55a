//! Storage interface of a repository: named objects that are read and written as streams.

use std::io;

use hyper::{StatusCode, body::Bytes};
use nicstripe::Name;
use tokio::sync::mpsc;

/// Storage that holds the files of a repository.
///
/// Names are absolute: they start at the root of the storage.
pub(super) trait Objects: Send + Sync + 'static {
    /// Writer that creates one object.
    type Upload: Upload;

    /// Starts to list the entries of a directory, in any order.
    fn list(&self, directory: &Name) -> Entries;

    /// Returns the size of a file in bytes.
    ///
    /// # Errors
    ///
    /// The name is missing, or is not a file.
    fn size(&self, name: &Name) -> impl Future<Output = Result<u64, ObjectError>> + Send;

    /// Starts to read `len` bytes of a file at `offset`. The range must lie within the file.
    fn read(
        &self,
        name: &Name,
        offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<Pieces, ObjectError>> + Send;

    /// Starts to write a new file. Creates missing directories.
    fn create(&self, name: &Name) -> Self::Upload;

    fn remove(&self, name: &Name) -> impl Future<Output = Result<(), ObjectError>> + Send;

    /// Creates a directory and its missing parents. Succeeds if the directory exists.
    fn make_dir(&self, name: &Name) -> impl Future<Output = Result<(), ObjectError>> + Send;
}

/// Writer of a new file. Leaves no file if dropped before [`Upload::finish`].
pub(super) trait Upload: Send {
    /// Appends bytes to the file. Waits while the buffer is full.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), ObjectError>> + Send;

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    ///
    /// A file of that name exists, or the file cannot be written.
    fn finish(self) -> impl Future<Output = Result<(), ObjectError>> + Send;
}

/// Entries of a directory. The channel closes after the last entry, or after an error.
pub(super) type Entries = mpsc::Receiver<Result<Entry, ObjectError>>;

/// Content of an object, in order. The channel closes after the last bytes, or after an error.
pub(super) type Pieces = mpsc::Receiver<io::Result<Bytes>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Name of the entry, one path component.
    pub(super) name: Vec<u8>,
    /// Size of a file in bytes.
    pub(super) size: u64,
    pub(super) is_file: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct ObjectError {
    /// HTTP status that shows clients what failed. 503 means that a later attempt may succeed: no
    /// link is connected, or another client writes the same file.
    pub(super) status: StatusCode,
    /// Description of the error, for the log.
    pub(super) why: String,
}

impl ObjectError {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self {
            status,
            why: why.into(),
        }
    }
}
