//! Files: reading the source, writing the target, and making it last. Blocking work, done on the threads of [`pool`].

mod arrived;
mod attributes;
mod buffer;
mod compress;
mod device;
mod hidden;
mod holes;
mod journal;
mod ours;
mod pool;
mod quota;
mod root;
mod source;
mod target;

pub(crate) use self::{
    arrived::{Arrived, WriteError},
    attributes::{Attributes, SET_ID_BITS, mtime_of, umask},
    buffer::{BufferPool, ChunkBuffer},
    hidden::{check_given, check_sought, hidden_name, is_hidden_name},
    pool::{IoPool, Owner},
    quota::{Lease, OF_SOURCE, OF_TARGET, OF_TREE, Quota, most_directories},
    root::Root,
    source::{Opened, ReadOptions, Source, tells_no_sizes, too_much_made},
    target::{TMPFS_MAGIC, Target, TargetRequest, grid_of, make_parents, open_parent, remove_earlier},
};

#[cfg(any(test, fuzzing))]
pub(crate) use self::compress::{Packer, unpack};

use std::io;

use nicstripe_proto::{FailCode, SourceIdentity};

/// An operation on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} \"{name}\"")]
pub struct FileError {
    /// What was tried, as a verb.
    pub operation: &'static str,
    /// The file, escaped for people.
    pub name: String,
    /// What kind of failure the peer and the exit code tell.
    pub code: FailCode,
    /// Whether running the same transfer again goes on from what is durable.
    pub resumable: bool,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Says what was tried, as a verb, and with which file. The code follows from the kind of `source`: not found, exists, no space, or a
    /// failure of input or output.
    pub fn new(operation: &'static str, name: impl ToString, source: io::Error) -> Self {
        let code = match source.kind() {
            _ if Barred::is_why(&source) => FailCode::Refused,
            io::ErrorKind::NotFound => FailCode::NotFound,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailCode::NoSpace,
            io::ErrorKind::AlreadyExists => FailCode::Exists,
            _ => FailCode::Io,
        };
        Self { operation, name: name.to_string(), code, resumable: false, source }
    }

    /// The same, of another kind.
    pub fn with_code(self, code: FailCode) -> Self {
        Self { code, ..self }
    }

    pub(crate) fn resumable(self) -> Self {
        Self { resumable: true, ..self }
    }

    /// The failure and its cause in one line, for the peer.
    pub(crate) fn one_line(&self) -> String {
        format!("{self}: {}", self.source)
    }
}

/// Why a name is barred from a peer, whatever the file system would allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Barred {
    #[error("names like this are kept for copies that are not whole")]
    Hidden,
    #[error("leads out of the served directory")]
    Outside,
    #[error("a symbolic link is in the way")]
    Link,
    #[error("a symbolic link is in the way, and a peer that may only add files follows none")]
    LinkOfAppender,
}

impl Barred {
    /// Whether this is why something failed.
    pub(crate) fn is_why(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl From<Barred> for io::Error {
    fn from(barred: Barred) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, barred)
    }
}

/// What makes a file the same file in the same state.
pub(crate) fn identity_of(stat: &rustix::fs::Stat) -> SourceIdentity {
    use nicstripe_proto::journal::Timestamp;
    SourceIdentity {
        size: stat.st_size as u64,
        mtime: Timestamp { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
        ctime: Timestamp { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 },
        inode: stat.st_ino,
        device: stat.st_dev,
    }
}
