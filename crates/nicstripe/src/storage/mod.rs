//! What a daemon keeps its peers' files in.
//!
//! A [`Daemon`](crate::Daemon) serves a directory of the file system unless it is given another [`Storage`]: [`MemoryStorage`], for tests and
//! for programs that embed a daemon, or one of the program's own. Whoever writes one implements three traits: [`Storage`] finds, lists and
//! names; [`StoredFile`] is a file that is read; [`StoredPart`] one that is received, which nobody sees before it is whole.
//!
//! All calls may block: they come from the daemon's I/O threads, several at once, and never from an async task. None may panic.
//!
//! Another storage than a directory has single files only: peers that want to copy trees, or to measure its disk, are refused.

mod memory;
mod served;
mod target;
#[cfg(test)]
mod tests;

pub use self::memory::MemoryStorage;
pub(crate) use self::{
    served::{Served, Stored},
    target::{Target, TargetOpened},
};
pub use nicstripe_proto::{ChainingValue, ChunkId, Subtree};

use std::{
    fmt, io,
    time::{Duration, SystemTime},
};

use nicstripe_proto::{
    Name, SourceIdentity,
    journal::Timestamp,
    message::{ObjectKind, ObjectStat},
};

use crate::{file::FileError, trust::PublicKey};

/// A place for files, each with a [`Name`] beneath one root.
///
/// Errors are told to peers by [`FileError::code`]: [`NotFound`](nicstripe_proto::FailCode::NotFound) where there is nothing of that name,
/// [`Exists`](nicstripe_proto::FailCode::Exists) where there is something that must not be replaced,
/// [`NotAFile`](nicstripe_proto::FailCode::NotAFile) where a directory is no file or a file no directory. What a peer may do at all is decided
/// before a storage is asked.
///
/// ```
/// use nicstripe::{Name, storage::{MemoryStorage, Storage}};
///
/// let storage = MemoryStorage::new();
/// storage.insert(&Name::parse(b"greeting")?, b"hello")?;
/// let file = storage.open(&Name::parse(b"greeting")?)?;
/// let mut bytes = [0; 5];
/// file.read_exact_at(&mut bytes, 0)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Opens a file to be read.
    ///
    /// # Errors
    ///
    /// There is none of that name, it is a directory, or it cannot be read.
    fn open(&self, name: &Name) -> Result<Box<dyn StoredFile>, FileError>;

    /// Begins to receive a file, or goes on with what an earlier attempt at it has left durable: the part, and all that was told to
    /// [`StoredPart::sync`] of it.
    ///
    /// What an earlier attempt has left counts only where [`PartRequest::origin`] is the same and [`PartRequest::restart`] not set; else it
    /// goes.
    ///
    /// # Errors
    ///
    /// [`Busy`](nicstripe_proto::FailCode::Busy) while the same peer's part of that name is open: it is asked again for a few seconds. Else
    /// that the name is taken and must not be replaced, is a directory's, is in no directory, or that there is no room.
    fn begin(&self, request: &PartRequest<'_>) -> Result<(Box<dyn StoredPart>, Vec<Subtree>), FileError>;

    /// Lists a directory, the root for `None`, in the order of the names' bytes: at most `most` entries behind the name `after`, and whether
    /// there are more. Parts are not listed.
    ///
    /// # Errors
    ///
    /// There is no such directory.
    fn list(&self, dir: Option<&Name>, after: Option<&[u8]>, most: usize) -> Result<Listed, FileError>;

    /// What has this name.
    ///
    /// # Errors
    ///
    /// There is nothing of that name.
    fn stat(&self, name: &Name) -> Result<Stat, FileError>;

    /// Removes a file or an empty directory, durably.
    ///
    /// # Errors
    ///
    /// There is nothing of that name, or it is a directory with something in it.
    fn remove(&self, name: &Name) -> Result<(), FileError>;

    /// Gives a file or directory another name, durably and at once: nobody sees both names, or none. With `replace` it takes the place of a
    /// file of that name.
    ///
    /// # Errors
    ///
    /// There is nothing named `from`; `to` is taken, is in no directory, or is beneath `from`.
    fn rename(&self, from: &Name, to: &Name, replace: bool) -> Result<(), FileError>;

    /// Makes a directory, and those that lead to it where they are missing, durably. One that is there is fine.
    ///
    /// # Errors
    ///
    /// One of the names is a file's.
    fn make_dir(&self, name: &Name) -> Result<(), FileError>;
}

/// Entries of a directory with their names in it, and whether there are more.
pub type Listed = (Vec<(Vec<u8>, Stat)>, bool);

/// What something that has a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file; of anything else they mean nothing.
    pub size: u64,
    /// When its content changed last.
    pub modified: SystemTime,
}

impl Stat {
    /// Says this of something.
    pub const fn new(kind: Kind, size: u64, modified: SystemTime) -> Self {
        Self { kind, size, modified }
    }
}

impl From<Stat> for ObjectStat {
    fn from(stat: Stat) -> Self {
        let kind = match stat.kind {
            Kind::File => ObjectKind::File,
            Kind::Dir => ObjectKind::Dir,
            Kind::Other => ObjectKind::Other,
        };
        Self { kind, size: stat.size, mtime: timestamp_of(stat.modified) }
    }
}

/// What may have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Dir,
    /// Something else, such as a socket of a file system.
    Other,
}

/// A file that is open to be read. Dropped when nobody reads it any more.
pub trait StoredFile: fmt::Debug + Send + Sync {
    /// What it is now. It is asked when the file has been opened, and again when all of it was read: a file that has changed meanwhile is not
    /// passed off as one.
    ///
    /// # Errors
    ///
    /// It cannot be found out; the transfer fails.
    fn identity(&self) -> io::Result<FileIdentity>;

    /// Fills `bytes` with what is in the file from `offset` on.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] where the file ends before.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Its permission bits, for whoever wants to keep them.
    fn mode(&self) -> u32 {
        0o644
    }
}

/// What tells one content of a name from another. An interrupted transfer goes on only where it is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// Bytes.
    pub size: u64,
    /// When the content changed last.
    pub modified: SystemTime,
    /// A number that no other content of this name has or had, as far as the storage knows one; else 0.
    pub version: u64,
}

impl FileIdentity {
    pub(crate) fn as_source(&self) -> SourceIdentity {
        let time = timestamp_of(self.modified);
        SourceIdentity { size: self.size, mtime: time, ctime: time, inode: self.version, device: 0 }
    }
}

/// A file that is to be received.
#[derive(Debug)]
#[non_exhaustive]
pub struct PartRequest<'a> {
    /// The name that it is to have.
    pub name: &'a Name,
    /// Who sends it. Parts of different peers have nothing to do with each other.
    pub peer: PublicKey,
    /// Bytes that it will have; `None` where that is not known before its end. Such a part is never gone on with.
    pub size: Option<u64>,
    /// Stands for the source, as it is now, and for how it is cut into chunks: only a part of the same origin can be gone on with.
    pub origin: [u8; 32],
    /// Whether it may take the place of a file that has the name when it is whole.
    pub replace: bool,
    /// Whether what an earlier attempt has left is to go.
    pub restart: bool,
    /// Permission bits that it is to have, where the storage has such.
    pub mode: u32,
    /// The modification time that it is to have; that of its commit for `None`.
    pub modified: Option<SystemTime>,
}

/// A file that is being received, under a name that nobody sees.
///
/// Dropped without [`commit`](Self::commit) or [`discard`](Self::discard), what was told to [`sync`](Self::sync) has to be there for the
/// next [`Storage::begin`] of the same origin, and everything else may be.
pub trait StoredPart: fmt::Debug + Send + Sync {
    /// Writes bytes at `offset`; several threads do so at once, at different places and in any order. What was never written reads as zeros.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::StorageFull`] is told to the peer as such.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reads back what was written, for those who want to be sure of it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] where there is less.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Makes all durable that was written before the call; then makes `durable` so, to be given back by [`Storage::begin`]. It comes on top
    /// of what was told before. Chunks may be written meanwhile, but no other call of this, nor of [`commit`](Self::commit), comes before
    /// it has returned.
    ///
    /// # Errors
    ///
    /// After one, nothing of the part is believed any more: it is discarded, and not tried again.
    fn sync(&self, durable: &[Subtree]) -> io::Result<()>;

    /// Everything was written: makes the file durable with its name, of `size` bytes. Nobody may see anything else under the name than what was
    /// there before, or the whole file.
    ///
    /// # Errors
    ///
    /// The name has been taken meanwhile and must not be replaced, or the storage failed. The file must then not have the name.
    fn commit(&self, size: u64) -> Result<(), FileError>;

    /// Removes it. Errors mean nothing: nobody can do anything about them.
    fn discard(&self);
}

fn timestamp_of(time: SystemTime) -> Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanoseconds: since.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timestamp { seconds: -seconds, nanoseconds: 0 },
                nanoseconds => Timestamp { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
            }
        }
    }
}

/// `None` for a time that the system cannot express.
fn time_of(timestamp: Timestamp) -> Option<SystemTime> {
    let seconds = Duration::from_secs(timestamp.seconds.unsigned_abs());
    let whole = match timestamp.seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(seconds),
        _ => SystemTime::UNIX_EPOCH.checked_sub(seconds),
    };
    whole?.checked_add(Duration::from_nanos(timestamp.nanoseconds.min(999_999_999).into()))
}
