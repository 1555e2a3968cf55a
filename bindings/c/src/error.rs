//! Errors and their codes.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use library::{Error, NameError, chain};

use crate::raw::{ErrorOut, OwnedText};

/// Return value of a function. Positive codes are the kinds of errors of nicstripe and never change
/// their meaning; further ones may come. Negative codes are those of this interface.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum nicstripe_code {
    /// Success.
    NICSTRIPE_OK = 0,
    /// The host's name or address cannot be resolved.
    NICSTRIPE_RESOLVE = 1,
    /// A named link cannot be used.
    NICSTRIPE_LINK = 2,
    /// No interface can be used to search for daemons.
    NICSTRIPE_NO_INTERFACE = 3,
    /// Not returned by this interface.
    NICSTRIPE_NO_RUNTIME = 4,
    /// The threads of the client have ended.
    NICSTRIPE_RUNTIME_ENDED = 5,
    /// The handle was made by the parent of this process. Connect after `fork`.
    NICSTRIPE_FORKED = 6,
    /// The client is closed.
    NICSTRIPE_CLOSED = 7,
    /// All transfers that a client may have (64) are running, and none moves.
    NICSTRIPE_CROWDED = 8,
    /// No link could connect to the daemon.
    NICSTRIPE_CONNECT = 9,
    /// No address of the host answered.
    NICSTRIPE_UNREACHABLE = 10,
    /// Every link was lost and none came back within the patience.
    NICSTRIPE_ABANDONED = 11,
    /// The daemon is connected and made no progress within the patience.
    NICSTRIPE_STALLED = 12,
    /// The daemon's key is not trusted here.
    NICSTRIPE_UNTRUSTED_PEER = 13,
    /// The daemon does not trust the client's key.
    NICSTRIPE_UNTRUSTED = 14,
    /// The other end does not speak the protocol.
    NICSTRIPE_PROTOCOL = 15,
    /// The daemon speaks another version of the protocol.
    NICSTRIPE_VERSION = 16,
    /// The daemon does not support the request.
    NICSTRIPE_UNSUPPORTED = 17,
    /// The daemon refused the session.
    NICSTRIPE_REFUSED = 18,
    /// The daemon has reached its session limit.
    NICSTRIPE_FULL = 19,
    /// The request failed at the daemon, for the reason in `fail`.
    NICSTRIPE_PEER = 20,
    /// The call was interrupted, or the transfer cancelled.
    NICSTRIPE_CANCELLED = 21,
    /// The daemon could not connect to the target of a tunnel.
    NICSTRIPE_TARGET = 22,
    /// The daemon could not listen.
    NICSTRIPE_LISTEN = 23,
    /// An operation on a local file failed, for the reason in `fail`.
    NICSTRIPE_FILE = 24,
    /// A name is not valid: absolute, with `..`, empty or too long.
    NICSTRIPE_NAME = 25,
    /// The received bytes differed from the sent ones, twice.
    NICSTRIPE_DIGEST = 26,
    /// The operating system refused an operation.
    NICSTRIPE_SYSTEM = 27,
    /// The session ended before the call was complete.
    NICSTRIPE_ENDED = 28,
    /// The call was not done within its time.
    NICSTRIPE_TIMED_OUT = 29,
    /// The content of a file is not what the daemon received.
    NICSTRIPE_DAMAGED = 30,
    /// A required pointer is NULL.
    NICSTRIPE_NULL = -1,
    /// Another thread is in a call with the same reader, writer, listing or transfer.
    NICSTRIPE_IN_USE = -2,
    /// A function of the library panicked: a defect of nicstripe.
    NICSTRIPE_PANIC = -3,
    /// An argument is not valid.
    NICSTRIPE_ARGUMENT = -4,
    /// The files of this machine's key or of its peers cannot be read.
    NICSTRIPE_HOME = -5,
    /// The writer or transfer has ended, by a call before: it was finished, or that call failed.
    NICSTRIPE_FINISHED = -6,
}

/// Kind of failure at a file, of either machine: the field `fail` of an error.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum nicstripe_fail {
    /// The error is not about a file.
    NICSTRIPE_FAIL_NONE = -1,
    /// The name, a permission or a limit does not allow it.
    NICSTRIPE_FAIL_REFUSED = 0,
    /// The file or directory does not exist.
    NICSTRIPE_FAIL_NOT_FOUND = 1,
    /// The name exists, and NICSTRIPE_REPLACE was not set.
    NICSTRIPE_FAIL_EXISTS = 2,
    /// A read, write or sync failed.
    NICSTRIPE_FAIL_IO = 3,
    /// The disk is full.
    NICSTRIPE_FAIL_NO_SPACE = 4,
    /// The source changed during the read.
    NICSTRIPE_FAIL_SOURCE_CHANGED = 5,
    /// The received data is wrong.
    NICSTRIPE_FAIL_DIGEST = 6,
    /// Another transfer is writing the same name.
    NICSTRIPE_FAIL_BUSY = 7,
    /// The other end cancelled the transfer.
    NICSTRIPE_FAIL_CANCELLED = 8,
    /// The other end violated the protocol.
    NICSTRIPE_FAIL_PROTOCOL = 9,
    /// Not a regular file.
    NICSTRIPE_FAIL_NOT_A_FILE = 10,
    /// The rights that the daemon grants do not permit it.
    NICSTRIPE_FAIL_NOT_PERMITTED = 11,
    /// Something that is no regular file has the name, and is not replaced.
    NICSTRIPE_FAIL_OCCUPIED = 12,
    /// The range begins past the end of the file.
    NICSTRIPE_FAIL_RANGE = 13,
    /// The file has not the entity tag `only_if`.
    NICSTRIPE_FAIL_PRECONDITION = 14,
    /// A file has the name where a directory is needed.
    NICSTRIPE_FAIL_NOT_A_DIRECTORY = 15,
}

/// Error of a call. Free with nicstripe_error_free. Texts are UTF-8, live as long as the error, and
/// are never NULL.
#[repr(C)]
pub struct nicstripe_error {
    /// The nicstripe_code that the function returned.
    pub code: i32,
    /// A nicstripe_fail; NICSTRIPE_FAIL_NONE (-1) if the error is not about a file.
    pub fail: i32,
    /// Exit code of the command `nicstripe` for this error.
    pub exit_code: i32,
    /// True if the same call may succeed later without any change.
    pub is_retryable: bool,
    /// True if repeating the transfer resumes.
    pub is_resumable: bool,
    /// Stable identifier of `code`, such as "timed_out".
    pub word: OwnedText,
    /// Who must act: "caller", "machine", "peer", "network" or "defect".
    pub actor: OwnedText,
    /// Message with its causes, in English, for people.
    pub text: OwnedText,
}

/// Frees an error; NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_error_free(error: Option<Box<nicstripe_error>>) {
    drop(error);
}

/// Failure of a call.
pub(crate) enum Failure {
    Library(Error),
    Own(nicstripe_code, String),
}

impl Failure {
    pub(crate) fn null(argument: &str) -> Self {
        Self::Own(
            nicstripe_code::NICSTRIPE_NULL,
            format!("{argument} is NULL"),
        )
    }

    pub(crate) fn argument(text: String) -> Self {
        Self::Own(nicstripe_code::NICSTRIPE_ARGUMENT, text)
    }

    pub(crate) fn home(error: impl std::error::Error) -> Self {
        Self::Own(nicstripe_code::NICSTRIPE_HOME, chain(&error))
    }

    pub(crate) fn in_use() -> Self {
        let text = "another thread is in a call with this handle".to_owned();
        Self::Own(nicstripe_code::NICSTRIPE_IN_USE, text)
    }

    pub(crate) fn ended() -> Self {
        let text = "the handle was finished, or a call with it failed".to_owned();
        Self::Own(nicstripe_code::NICSTRIPE_FINISHED, text)
    }

    fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = format!("panicked: {}", text.unwrap_or("no message"));
        Self::Own(nicstripe_code::NICSTRIPE_PANIC, text)
    }

    fn code(&self) -> i32 {
        match self {
            Self::Library(error) => error.number().into(),
            Self::Own(code, _) => *code as i32,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::Library(error.into())
    }
}

/// Errors of streams wrap those of the library.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let error = error.downcast::<Error>();
        Self::Library(error.unwrap_or_else(|source| Error::System {
            what: "read or write",
            source,
        }))
    }
}

impl From<Failure> for nicstripe_error {
    fn from(failure: Failure) -> Self {
        let code = failure.code();
        match failure {
            Failure::Library(error) => Self {
                code,
                fail: error.fail_code().map_or(-1, |fail| fail.number().into()),
                exit_code: error.exit_code().into(),
                is_retryable: error.is_retryable(),
                is_resumable: error.is_resumable(),
                word: OwnedText::new(error.word()),
                actor: OwnedText::new(error.actor().word()),
                text: OwnedText::new(chain(&error)),
            },
            Failure::Own(own, text) => {
                let (word, actor, exit_code) = match own {
                    nicstripe_code::NICSTRIPE_NULL => ("null", "caller", 2),
                    nicstripe_code::NICSTRIPE_IN_USE => ("in_use", "caller", 1),
                    nicstripe_code::NICSTRIPE_ARGUMENT => ("argument", "caller", 2),
                    nicstripe_code::NICSTRIPE_HOME => ("home", "machine", 1),
                    nicstripe_code::NICSTRIPE_FINISHED => ("finished", "caller", 1),
                    _ => ("panic", "defect", 1),
                };
                Self {
                    code,
                    fail: -1,
                    exit_code,
                    is_retryable: false,
                    is_resumable: false,
                    word: OwnedText::new(word),
                    actor: OwnedText::new(actor),
                    text: OwnedText::new(text),
                }
            }
        }
    }
}

/// Runs a call of C: catches panics, leaves the error, and returns the code.
pub(crate) fn call(error: ErrorOut<'_>, run: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let ran = catch_unwind(AssertUnwindSafe(run));
    let failure = match ran {
        Ok(ran) => ran.err(),
        Err(panic) => Some(Failure::panicked(&*panic)),
    };
    let code = failure.as_ref().map_or(0, Failure::code);
    if let Some(error) = error {
        error.write(failure.map(|failure| Box::new(failure.into())));
    }
    code
}

/// Runs a call that cannot fail, such as the release of a handle.
pub(crate) fn quietly(run: impl FnOnce()) {
    // The panic hook has printed it; a release has no way to report.
    let _ = catch_unwind(AssertUnwindSafe(run));
}

/// Returns a required argument.
pub(crate) fn required<T>(argument: Option<T>, name: &str) -> Result<T, Failure> {
    argument.ok_or_else(|| Failure::null(name))
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use library::{Error, FailCode};

    use super::*;

    #[test]
    fn codes_are_those_of_the_library() {
        let cancelled = Error::Cancelled { resumable: true };
        let named = Error::Name(library::Name::parse(b"..").unwrap_err());
        for (error, code) in [
            (Error::Forked, nicstripe_code::NICSTRIPE_FORKED),
            (Error::Closed, nicstripe_code::NICSTRIPE_CLOSED),
            (cancelled, nicstripe_code::NICSTRIPE_CANCELLED),
            (named, nicstripe_code::NICSTRIPE_NAME),
        ] {
            assert_eq!(i32::from(error.number()), code as i32, "{error}");
        }
        let last = FailCode::NotADirectory.number();
        let ours = nicstripe_fail::NICSTRIPE_FAIL_NOT_A_DIRECTORY as i32;
        assert_eq!(i32::from(last), ours);
    }

    #[test]
    fn a_panic_becomes_a_code() {
        let mut error = MaybeUninit::new(None);
        let code = call(Some(&mut error), || panic!("a {}", "defect"));
        assert_eq!(code, nicstripe_code::NICSTRIPE_PANIC as i32);
    }
}
