//! What a repository is kept in: objects under names, read and written as streams.

use std::io;

use hyper::body::Bytes;
use nicstripe::Name;
use tokio::sync::mpsc;

/// Where the files of a repository are.
///
/// Names are whole: they begin at the root of the storage.
pub(super) trait Objects: Send + Sync + 'static {
    /// Takes the bytes of a new object.
    type Upload: Upload;

    /// Returns what is in a directory, in any order.
    fn list(&self, directory: &Name) -> impl Future<Output = Result<Vec<Entry>, ObjectError>> + Send;

    /// Returns the size of a file in bytes. Errors: missing, or no file.
    fn size(&self, name: &Name) -> impl Future<Output = Result<u64, ObjectError>> + Send;

    /// Begins to read `len` bytes of a file from `offset` on, which are all within it.
    fn read(&self, name: &Name, offset: u64, len: u64) -> impl Future<Output = Result<Pieces, ObjectError>> + Send;

    /// Begins a file that is not there yet. Directories that it lacks are made.
    fn create(&self, name: &Name) -> Self::Upload;

    /// Removes a file.
    fn remove(&self, name: &Name) -> impl Future<Output = Result<(), ObjectError>> + Send;

    /// Makes a directory, with those that it lacks; fine where it is there.
    fn make_dir(&self, name: &Name) -> impl Future<Output = Result<(), ObjectError>> + Send;
}

/// A file that is being written. Dropped before its end, it leaves nothing.
pub(super) trait Upload: Send {
    /// Takes the next bytes, when there is room for them.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), ObjectError>> + Send;

    /// Makes it durable and gives it its name. Errors: there is a file of that name.
    fn finish(self) -> impl Future<Output = Result<(), ObjectError>> + Send;
}

/// The bytes of an object in order, piece by piece. The channel ends after the last piece, or after an error.
pub(super) type Pieces = mpsc::Receiver<io::Result<Bytes>>;

/// Something in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// One component.
    pub(super) name: Vec<u8>,
    /// Bytes of a file.
    pub(super) size: u64,
    /// Whether it is one.
    pub(super) is_file: bool,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct ObjectError {
    /// What that means to a client.
    pub(super) kind: Obstacle,
    /// What is logged.
    pub(super) why: String,
}

/// What stands against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// There is nothing of that name.
    Missing,
    /// There is something of that name already.
    Exists,
    /// Whoever asks may not.
    Refused,
    /// The disk is full.
    NoSpace,
    /// The same may work later: no link, or another writes the same.
    Unavailable,
    /// Anything else.
    Failed,
}

impl ObjectError {
    /// Words an obstacle.
    pub(super) fn new(kind: Obstacle, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }
}
