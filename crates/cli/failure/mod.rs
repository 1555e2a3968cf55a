//! Errors of all commands, with their exit codes and hints.

pub(crate) mod exit;
pub(crate) mod hint;
pub(crate) mod panics;

use std::{
    error, io,
    path::{Path, PathBuf},
};

use nicstripe::{
    NameError,
    trust::{FileError, HomeError, IdentityError, PeersError},
};
use tokio::task::JoinError;

use self::exit::{Exit, Stop};
use crate::text::invocation::{Invocation, quoted};

/// Error that ends a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A command failed with an error type of its module.
    #[error(transparent)]
    Command(Box<dyn CommandError>),
    /// The `nicstripe` library returned an error.
    #[error(transparent)]
    Library(Box<nicstripe::Error>),
    /// A setting of `serve` or an argument of `restic` is invalid, or contradicts another one.
    #[error("{key}: {why}")]
    Setting {
        key: &'static str,
        /// Problem with the setting, and its allowed values.
        why: String,
    },
    /// The address or socket file given on the command line cannot be listened at.
    #[error("cannot listen on {address}")]
    Listen { address: String, source: io::Error },
    /// A local file, or standard input, cannot be opened or read.
    #[error("cannot open {path:?}")]
    Source { path: PathBuf, source: io::Error },
    /// SIGINT, SIGTERM or SIGHUP ended the command.
    #[error("interrupted")]
    Interrupted {
        stop: Stop,
        /// True if rerunning the command resumes from the received data.
        resumable: bool,
    },
    /// A signal shut the daemon down in order.
    #[error("ended")]
    Stopped(Stop),
    /// A command at a peer ended with this exit code, which is not 0.
    #[error("exit code {0}")]
    Exited(u8),
    /// A job failed with an error that a rerun may cure.
    #[error(transparent)]
    Temporary(Box<Self>),
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// A local file or directory cannot be written.
    #[error("cannot write {path:?}")]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot start threads")]
    Runtime(#[source] io::Error),
}

/// Error of one command, with its exit code and its hint.
pub(crate) trait CommandError: error::Error + Send + Sync + 'static {
    fn exit(&self) -> Exit {
        Exit::Failed
    }

    /// Returns one line of advice to the user; `None` if the error message suffices.
    fn hint(&self, _: &Invocation) -> Option<String> {
        None
    }

    /// Returns true if rerunning the same command resumes from the received data.
    fn is_resumable(&self) -> bool {
        false
    }

    /// Returns the lines to print below the error line.
    fn details(&self) -> &[String] {
        &[]
    }
}

impl error::Error for Box<dyn CommandError> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        (**self).source()
    }
}

impl<E: CommandError> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Command(Box::new(error))
    }
}

/// Error of a command without a type.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Fault {
    text: String,
    source: Option<Box<dyn error::Error + Send + Sync>>,
    exit: Exit,
    hint: Option<String>,
    details: Vec<String>,
}

impl Fault {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            source: None,
            exit,
            hint: None,
            details: Vec::new(),
        }
    }

    pub(crate) fn because(self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        Self {
            source: Some(source.into()),
            ..self
        }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        self.hinted(Some(hint.into()))
    }

    pub(crate) fn hinted(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    /// Sets the lines to print below the error line.
    pub(crate) fn with_details(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }

    /// Returns the wrapper of errors of reading `path`.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::new(Exit::Files, format!("cannot read {path:?}")).because(source)
    }
}

/// Returns the error of a command line that makes no sense.
pub(crate) fn usage(text: impl Into<String>) -> Fault {
    Fault::new(Exit::Usage, text)
}

impl CommandError for Fault {
    fn exit(&self) -> Exit {
        self.exit
    }

    fn hint(&self, _: &Invocation) -> Option<String> {
        self.hint.clone()
    }

    fn details(&self) -> &[String] {
        &self.details
    }
}

impl From<nicstripe::Error> for Failure {
    fn from(error: nicstripe::Error) -> Self {
        Self::Library(Box::new(error))
    }
}

/// A task was lost, with its thread.
impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        Self::Runtime(io::Error::other(error))
    }
}

impl Failure {
    /// Returns the wrapper of errors of opening `path`.
    pub(crate) fn opening(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Source {
            path: path.to_owned(),
            source,
        }
    }

    /// Returns the wrapper of errors of writing to `path`.
    pub(crate) fn writing(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Write {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Command(error) => error.exit(),
            Self::Library(error) => Exit::of_error(error),
            Self::Setting { .. } => Exit::Usage,
            Self::Source { .. } | Self::Write { .. } | Self::Output(_) => Exit::Files,
            Self::Listen { .. } | Self::Runtime(_) | Self::Exited(_) => Exit::Failed,
            Self::Interrupted { stop, .. } | Self::Stopped(stop) => stop.exit(),
            Self::Temporary(_) => Exit::Temporary,
        }
    }

    /// Returns the failure of one of several jobs, whose exit code shows a scheduler if a rerun may cure it.
    pub(crate) fn of_job(self) -> Self {
        let is_busy = match &self {
            Self::Library(error) => {
                matches!(**error, nicstripe::Error::Full { .. })
                    || error.fail_code() == Some(nicstripe::FailCode::Busy)
            }
            _ => false,
        };
        match self.exit() {
            Exit::NoLink | Exit::TimedOut | Exit::SourceChanged | Exit::Digest => {
                Self::Temporary(Box::new(self))
            }
            _ if is_busy => Self::Temporary(Box::new(self)),
            _ => self,
        }
    }

    /// Returns one line of advice on the failure of the command `invocation`; `None` if the error
    /// message suffices.
    pub(crate) fn hint(&self, invocation: &Invocation) -> Option<String> {
        if let Some(hint) = hint::of_limit(self) {
            return Some(hint.to_owned());
        }
        match self {
            Self::Command(error) => error.hint(invocation),
            Self::Library(error) => hint::of_error(error, invocation),
            Self::Interrupted { resumable, .. } => resumable.then(|| hint::again(invocation)),
            Self::Runtime(error) => hint::of_thread(error),
            Self::Temporary(failure) => failure.hint(invocation),
            _ => None,
        }
    }

    /// Returns the error and its source chain, joined by `: `.
    pub(crate) fn one_line(&self) -> String {
        nicstripe::chain(self)
    }

    /// Returns true if rerunning the same command resumes from the received data.
    pub(crate) fn is_resumable(&self) -> bool {
        match self {
            Self::Command(error) => error.is_resumable(),
            Self::Library(error) => error.is_resumable(),
            Self::Interrupted { resumable, .. } => *resumable,
            Self::Temporary(failure) => failure.is_resumable(),
            _ => false,
        }
    }

    /// Returns the lines to print below the error line.
    pub(crate) fn details(&self) -> &[String] {
        match self {
            Self::Command(error) => error.details(),
            Self::Temporary(failure) => failure.details(),
            _ => &[],
        }
    }
}

/// Error of finding the configuration directory: `NICSTRIPE_HOME` and `HOME` are unset, or one
/// holds a relative path.
impl CommandError for HomeError {}

/// Error of a name at a daemon that was typed, or made of typed ones.
impl CommandError for NameError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

/// Error of reading or creating the private key of this machine.
impl CommandError for IdentityError {
    fn exit(&self) -> Exit {
        Exit::of_config(self.io().is_some())
    }

    fn hint(&self, invocation: &Invocation) -> Option<String> {
        let Self::Malformed { path } = self else {
            return None;
        };
        let program = invocation.program();
        Some(format!(
            "restore it, or make a new key, which the other machines must then trust: rm {}; {program} key",
            quoted(path)
        ))
    }
}

/// Error of reading a file that no other user may change.
impl CommandError for FileError {
    fn exit(&self) -> Exit {
        Exit::of_config(self.io().is_some())
    }
}

/// Error of reading or changing the peers file.
impl CommandError for PeersError {
    fn exit(&self) -> Exit {
        match self {
            Self::File(error) => error.exit(),
            Self::Line { .. } => Exit::Refused,
            Self::Value(_) => Exit::Usage,
            _ => Exit::Failed,
        }
    }

    fn hint(&self, invocation: &Invocation) -> Option<String> {
        let program = invocation.program();
        matches!(self, Self::Unknown { .. })
            .then(|| format!("list the trusted peers: {program} trust list"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use nicstripe::{FailCode, FileError};

    use super::*;

    /// Returns the library's error for a failed write to the file `a.bin`.
    pub(crate) fn file_error(code: FailCode, kind: io::ErrorKind) -> nicstripe::Error {
        FileError {
            operation: "write",
            name: "a.bin".into(),
            code,
            resumable: code == FailCode::NoSpace,
            source: kind.into(),
        }
        .into()
    }

    #[test]
    fn the_causes_follow_in_one_line() {
        let failure = Failure::from(file_error(FailCode::NoSpace, io::ErrorKind::StorageFull));
        assert_eq!(
            failure.one_line(),
            "cannot write \"a.bin\": no storage space"
        );
        assert!(failure.is_resumable());
    }
}
