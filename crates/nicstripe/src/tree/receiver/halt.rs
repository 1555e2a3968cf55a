//! Early end of a tree's receiver.

use std::io;

use nicstripe_proto::FailCode;

use crate::file::FileError;

/// Early end of a tree's receiver: stopped by the session, or failed.
#[derive(Debug)]
pub(super) enum Halt {
    Stopped,
    Failed(FileError),
}

impl Halt {
    /// Creates the error for a protocol violation by the peer.
    pub(super) fn protocol(what: impl Into<String>) -> Self {
        Self::Failed(
            FileError::new("receive", "the tree", io::Error::other(what.into()))
                .with_code(FailCode::Protocol),
        )
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
