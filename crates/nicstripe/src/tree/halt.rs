//! Early end of a tree's sender or receiver.

use std::io;

use nicstripe_proto::FailCode;

use crate::file::FileError;

/// Early end of a tree's sender or receiver: stopped by the session, or failed.
#[derive(Debug)]
pub(super) enum Halt {
    Stopped,
    Failed(FileError),
}

/// Returns the error for a protocol violation by the peer, a sender, from the function.
macro_rules! breach {
    ($($what:tt)*) => {
        return Err($crate::tree::halt::Halt::protocol(format!($($what)*)))
    };
}
pub(super) use breach;

impl Halt {
    /// Creates the error for a protocol violation by the peer, a sender.
    pub(super) fn protocol(what: impl Into<String>) -> Self {
        Self::Failed(FileError::violated("receive", "the tree", what.into()))
    }

    /// Returns [`Halt::Stopped`] if a call found the channel closed (`is_open` is false).
    pub(super) fn unless(is_open: bool) -> Result<(), Self> {
        if is_open { Ok(()) } else { Err(Self::Stopped) }
    }

    pub(super) fn into_error(self) -> FileError {
        match self {
            Self::Stopped => FileError::new(
                "receive",
                "the tree",
                io::Error::other("the transfer was stopped"),
            )
            .with_code(FailCode::Cancelled),
            Self::Failed(error) => error,
        }
    }
}

impl From<FileError> for Halt {
    fn from(error: FileError) -> Self {
        Self::Failed(error)
    }
}
