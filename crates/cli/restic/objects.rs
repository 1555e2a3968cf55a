//! Storage interface of a repository: named objects, read and written as streams.

use std::io;

use hyper::body::Bytes;
use nicstripe::Name;
use tokio::sync::mpsc;

/// Storage of a repository's files.
///
/// Names are absolute: they start at the root of the storage.
pub(super) trait Objects: Send + Sync + 'static {
    /// Writer of a new object.
    type Upload: Upload;

    /// Returns the entries of a directory, in any order.
    fn list(
        &self,
        directory: &Name,
    ) -> impl Future<Output = Result<Vec<Entry>, ObjectError>> + Send;

    /// Returns the size of a file in bytes. Errors: missing, or not a file.
    fn size(&self, name: &Name) -> impl Future<Output = Result<u64, ObjectError>> + Send;

    /// Starts reading `len` bytes of a file at `offset`; the range lies within the file.
    fn read(
        &self,
        name: &Name,
        offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<Pieces, ObjectError>> + Send;

    /// Starts a new file. Creates missing directories.
    fn create(&self, name: &Name) -> Self::Upload;

    fn remove(&self, name: &Name) -> impl Future<Output = Result<(), ObjectError>> + Send;

    /// Creates a directory and its missing parents; succeeds if it exists.
    fn make_dir(&self, name: &Name) -> impl Future<Output = Result<(), ObjectError>> + Send;
}

/// Writer of a file. Leaves nothing if dropped before [`Upload::finish`].
pub(super) trait Upload: Send {
    /// Writes the next bytes, waiting for space in the buffer.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), ObjectError>> + Send;

    /// Makes the file durable and gives it its name. Errors: a file of that name exists.
    fn finish(self) -> impl Future<Output = Result<(), ObjectError>> + Send;
}

/// Bytes of an object in order. The channel closes after the last piece, or after an error.
pub(super) type Pieces = mpsc::Receiver<io::Result<Bytes>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Name, one path component.
    pub(super) name: Vec<u8>,
    /// Size of a file in bytes.
    pub(super) size: u64,
    pub(super) is_file: bool,
}

/// Error of a storage operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct ObjectError {
    /// Kind of error reported to the client.
    pub(super) kind: Obstacle,
    /// Text for the log.
    pub(super) why: String,
}

/// Kind of a storage error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The name does not exist.
    Missing,
    /// The name exists already.
    Exists,
    /// The client lacks the right.
    Refused,
    NoSpace,
    /// A retry may succeed later: no link, or another client writes the same file.
    Unavailable,
    Failed,
}

impl ObjectError {
    pub(super) fn new(kind: Obstacle, why: impl Into<String>) -> Self {
        Self {
            kind,
            why: why.into(),
        }
    }
}
