//! Errors of copies from web servers.

use nicstripe::FailCode;
use nicstripe_web::{S3PlaceError, WebError, WebUrlError};

use crate::failure::{CommandError, exit::Exit};

/// Why a command line makes no copy from a web server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebPlanError {
    #[error("cannot copy to {0}: a web server takes no files")]
    Target(String),
    #[error("{0} is for files at web servers: expected SRC as https://HOST/PATH")]
    Without(&'static str),
    #[error("{0} cannot be used with a file at a web server")]
    With(&'static str),
    #[error("{0} is for a daemon: expected DST as HOST:PATH")]
    ForDaemon(&'static str),
    #[error("{0} is for a single URL")]
    Single(&'static str),
    #[error("sources at web servers and others cannot be copied by one command")]
    Mixed,
    #[error(
        "several files need a directory: expected DST with a slash at its end, or one that exists"
    )]
    Several,
    #[error("{0} names no file: expected DST as the file to write")]
    NoName(String),
    #[error("a URL has only ASCII characters: expected others as % and two hexadecimal digits")]
    Text,
    #[error(
        "--mirror needs the digest of the file: expected --sha256, --digest or --sha256sums, too"
    )]
    Mirrors,
    #[error("--files-from lists no file")]
    NoNames,
    #[error("{0} cannot be used with an S3 store")]
    WithStore(&'static str),
    #[error("{0} is for S3 stores: expected s3://BUCKET/KEY as SRC or DST")]
    WithoutStore(&'static str),
    #[error(
        "objects of one store cannot be copied to another: expected a local path or HOST:PATH as the other end"
    )]
    BothStores,
    #[error("{0} is no object: expected -r for all objects below it")]
    Folder(String),
    #[error("{0} is a directory: expected -r")]
    Directory(String),
    #[error("the name {0} is not UTF-8, which keys are")]
    NotUtf8(String),
    #[error("a file at another machine cannot be copied to an S3 store: expected a local SRC")]
    RemoteToStore,
}

impl CommandError for WebPlanError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

impl CommandError for S3PlaceError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

impl CommandError for WebUrlError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

impl CommandError for WebError {
    fn exit(&self) -> Exit {
        match self {
            Self::NoLink { .. } => Exit::NoLink,
            Self::NoAnswer { .. } if self.is_missing() => Exit::Files,
            Self::NoAnswer { .. } if self.is_refused() => Exit::Refused,
            Self::NoAnswer { .. } if self.is_breach() => Exit::Protocol,
            Self::NoAnswer { .. } => Exit::NoLink,
            Self::Changed { .. } | Self::SourceChanged { .. } => Exit::SourceChanged,
            Self::Exists { .. } | Self::TooLong { .. } | Self::Nothing { .. } => Exit::Files,
            Self::Endpoint { .. } => Exit::Usage,
            Self::Nonsense { .. } => Exit::Protocol,
            Self::Digest { .. } | Self::NoSum { .. } => Exit::Digest,
            Self::NoDigest => Exit::Usage,
            Self::File(error) if error.code == FailCode::Busy => Exit::Refused,
            Self::File(_) | Self::Output(_) => Exit::Files,
            Self::TimedOut { .. } => Exit::TimedOut,
            _ => Exit::Failed,
        }
    }

    fn is_resumable(&self) -> bool {
        Self::is_resumable(self)
    }
}
