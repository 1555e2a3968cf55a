//! Failures of file operations, with the code that the peer receives.

use std::io;

use nicstripe_proto::{FailCode, tree::Reason};

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Failure of an operation at this machine that a transfer or a request needs: on a file, a
/// directory or an object of a storage, on a tree, or of a command. The code shows who must act.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} \"{name}\"")]
pub struct FileError {
    /// Verb that names the failed operation, such as "open".
    pub operation: &'static str,
    /// Name of the file, escaped for display.
    pub name: String,
    /// Kind of failure, which the peer receives and the exit code reflects.
    pub code: FailCode,
    /// True if repeating the transfer resumes from the durable data.
    pub resumable: bool,
    /// Error of the operating system or the storage.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Creates an error from the failed operation (a verb) and the file's name. The code follows
    /// from the kind of `source`: not found, exists, not a directory, no space, or I/O.
    pub fn new(operation: &'static str, name: impl ToString, source: io::Error) -> Self {
        let code = Barred::code_of(&source).unwrap_or_else(|| match source.kind() {
            io::ErrorKind::NotFound => FailCode::NotFound,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailCode::NoSpace,
            io::ErrorKind::AlreadyExists => FailCode::Exists,
            io::ErrorKind::NotADirectory => FailCode::NotADirectory,
            _ => FailCode::Io,
        });
        Self {
            operation,
            name: name.to_string(),
            code,
            resumable: false,
            source,
        }
    }

    /// Creates the error of an operation that the peer's rights do not permit.
    pub(crate) fn not_permitted(operation: &'static str, name: impl ToString, why: &str) -> Self {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, why);
        Self::new(operation, name, source).with_code(FailCode::NotPermitted)
    }

    /// Creates the error of an operation that this machine refuses for another reason.
    pub(crate) fn refused(
        operation: &'static str,
        name: impl ToString,
        why: impl Into<Cause>,
    ) -> Self {
        Self::new(operation, name, io::Error::other(why)).with_code(FailCode::Refused)
    }

    /// Creates the error of an operation that contradicts the protocol.
    pub(crate) fn violated(
        operation: &'static str,
        name: impl ToString,
        why: impl Into<Cause>,
    ) -> Self {
        Self::new(operation, name, io::Error::other(why)).with_code(FailCode::Protocol)
    }

    /// Returns the error with its code replaced by `code`.
    pub fn with_code(self, code: FailCode) -> Self {
        Self { code, ..self }
    }

    pub(crate) fn resumable(self) -> Self {
        self.resumable_if(true)
    }

    pub(crate) fn resumable_if(self, resumable: bool) -> Self {
        Self { resumable, ..self }
    }

    /// Returns the error and its cause in one line, for the peer.
    pub(crate) fn one_line(&self) -> String {
        format!("{self}: {}", self.source)
    }

    /// Returns the code and [`FileError::one_line`], as the reason for the failure of an entry.
    pub(crate) fn reason(&self) -> Reason {
        Reason {
            code: self.code,
            text: self.one_line(),
        }
    }
}

/// Rule by which the daemon denies a peer access to a name, regardless of the file system's
/// permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Barred {
    #[error("names like this are reserved for partial files")]
    Hidden,
    #[error("leads out of the served directory")]
    Outside,
    #[error("path contains a symbolic link")]
    Link,
    #[error("path contains a symbolic link, which an append-only peer may not follow")]
    LinkOfAppender,
    #[error(
        "it is in an account's home and decides who may log in there, or what runs then: serve a directory below the home"
    )]
    Login,
}

impl Barred {
    /// Returns true if an I/O error wraps a [`Barred`].
    pub(crate) fn is_why(error: &io::Error) -> bool {
        Self::code_of(error).is_some()
    }

    /// Returns the code of an I/O error that wraps a [`Barred`]; `None` for any other.
    pub(crate) fn code_of(error: &io::Error) -> Option<FailCode> {
        Some(match error.get_ref()?.downcast_ref()? {
            Self::LinkOfAppender => FailCode::NotPermitted,
            Self::Hidden | Self::Outside | Self::Link | Self::Login => FailCode::Refused,
        })
    }
}

impl From<Barred> for io::Error {
    fn from(barred: Barred) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, barred)
    }
}
