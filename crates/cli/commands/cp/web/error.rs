//! Errors of copies from web servers.

use std::{ffi::OsStr, fmt::Display};

use nicstripe::FailCode;
use nicstripe_web::{S3PlaceError, WebError, WebUrlError};

use crate::{
    failure::{CommandError, Fault, exit::Exit, usage},
    text::shown,
};

pub(in crate::commands::cp) fn mixed() -> Fault {
    usage("sources at web servers and others cannot be copied by one command")
}

pub(in crate::commands::cp) fn folder(place: &impl Display) -> Fault {
    usage(format!(
        "{place} is no object: expected -r for all objects below it"
    ))
}

pub(in crate::commands::cp) fn not_utf8(name: &OsStr) -> Fault {
    usage(format!(
        "the name {} is not UTF-8, which keys are",
        shown(name)
    ))
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
