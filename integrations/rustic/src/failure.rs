//! Errors of calls to the daemon, and their conversion to errors of rustic_core.

use nicstripe::{Error, FailCode, NameError};
use rustic_core::{ErrorKind, RusticError, Status};

#[derive(Debug)]
pub(crate) enum Failure {
    /// Error that the `nicstripe` library returned.
    Client(Error),
    /// The file at the daemon does not have the expected size.
    Len {
        /// Size of the file at the daemon in bytes.
        found: u64,
        /// Size that the file was expected to have, in bytes.
        expected: u64,
    },
    /// The file is larger than a repository file may be.
    TooLong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    MakeDirectory,
    List,
    Read,
    Write,
    Remove,
}

impl Action {
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::MakeDirectory => "create the directory",
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Remove => "remove",
        }
    }
}

impl Failure {
    /// Returns the error code that the daemon sent for a file, if there is one.
    pub(crate) fn code(&self) -> Option<FailCode> {
        match self {
            Self::Client(error) => error.fail_code(),
            _ => None,
        }
    }

    /// Converts the failure to an error of rustic_core that names the action, the file, the
    /// repository and the cause, and gives advice.
    pub(crate) fn told(self, action: Action, path: &str, location: &str) -> Box<RusticError> {
        let mut guidance =
            "Cannot {action} `{path}` of the repository `{location}`: {why}.".to_owned();
        if let Some(advice) = self.advice(action) {
            guidance = format!("{guidance}\n{advice}");
        }
        let error = RusticError::new(self.kind(action), guidance)
            .attach_context("action", action.verb())
            .attach_context("path", path)
            .attach_context("location", location)
            .attach_context("why", self.to_string())
            .attach_status(self.status());
        match self {
            Self::Client(source) => error.attach_source(source),
            _ => error,
        }
    }

    fn kind(&self, action: Action) -> ErrorKind {
        match self.code() {
            Some(FailCode::NotPermitted) if matches!(action, Action::Write | Action::Remove) => {
                ErrorKind::AppendOnly
            }
            Some(FailCode::NoSpace | FailCode::Io) => ErrorKind::InputOutput,
            Some(FailCode::Digest) => ErrorKind::Verification,
            None if !matches!(self, Self::Client(_)) => ErrorKind::Verification,
            _ => ErrorKind::Backend,
        }
    }

    fn status(&self) -> Status {
        match self {
            Self::Client(error) if error.is_retryable() => Status::Temporary,
            Self::Client(_) => Status::Persistent,
            Self::Len { .. } | Self::TooLong => Status::Permanent,
        }
    }

    fn advice(&self, action: Action) -> Option<&'static str> {
        match (self.code(), action) {
            (Some(FailCode::NotPermitted), Action::Write | Action::Remove) => Some(
                "The daemon's peers file sets the rights of this machine: append-only or read-only forbid it.",
            ),
            (Some(FailCode::NotPermitted), Action::MakeDirectory) => {
                Some("The daemon's peers file sets the rights of this machine.")
            }
            (Some(FailCode::NoSpace), _) => Some("Please free space at the daemon, and try again."),
            (Some(FailCode::Digest), _) => {
                Some("Please check the memory and disks of both machines.")
            }
            _ => match self {
                Self::Client(error) if error.is_retryable() => Some(
                    "Please check that the daemon runs and its cables are plugged in, and try again.",
                ),
                _ => None,
            },
        }
    }
}

/// Prints the error with its whole source chain, because rustic_core prints at most two causes.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Client(error) => f.write_str(&nicstripe::chain(error)),
            Self::Len { found, expected } => write!(f, "it has {found} bytes, expected {expected}"),
            Self::TooLong => f.write_str("it exceeds the limit of 4294967295 bytes"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::Client(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(code: FailCode) -> Failure {
        Failure::Client(Error::Peer {
            host: "nas".into(),
            code,
            text: "no\u{1b}[31m".into(),
            resumable: false,
        })
    }

    #[test]
    fn an_error_says_what_where_and_why() {
        let error = peer(FailCode::NotPermitted).told(
            Action::Remove,
            "backup/keys/00",
            "nicstripe:nas:backup",
        );
        let log = error.display_log();
        assert!(
            log.contains(
                "Cannot remove `backup/keys/00` of the repository `nicstripe:nas:backup`: nas: no"
            ),
            "{log}"
        );
        assert!(
            log.contains("append-only mode")
                && log.contains("peers file")
                && !log.contains('\u{1b}'),
            "{log}"
        );
        let source =
            std::error::Error::source(&*error).and_then(|source| source.downcast_ref::<Error>());
        assert_eq!(
            source.and_then(Error::fail_code),
            Some(FailCode::NotPermitted)
        );
    }

    #[test]
    fn kinds_are_by_who_must_act() {
        assert_eq!(
            peer(FailCode::NotPermitted).kind(Action::Read),
            ErrorKind::Backend
        );
        assert_eq!(
            peer(FailCode::NotPermitted).kind(Action::Write),
            ErrorKind::AppendOnly
        );
        assert_eq!(
            peer(FailCode::NoSpace).kind(Action::Write),
            ErrorKind::InputOutput
        );
        assert_eq!(
            Failure::Len {
                found: 1,
                expected: 2
            }
            .kind(Action::Read),
            ErrorKind::Verification
        );
        assert_eq!(
            (
                peer(FailCode::Busy).status(),
                peer(FailCode::NotFound).status()
            ),
            (Status::Temporary, Status::Persistent)
        );
    }
}
