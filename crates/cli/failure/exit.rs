//! Exit codes of all commands. They are fixed and documented (`docs/DESIGN.md`, section 7), and
//! equal rsync's where rsync has the same case.

use std::process::ExitCode;

use nicstripe::Error;

use crate::output::screen;

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Success. For `cp`, all received data is verified and durable.
    Done = 0,
    /// Any failure without a specific code.
    Failed = 1,
    /// Usage error, for which clap exits with 2 as well.
    Usage = 2,
    /// Refused by the peer or by a local check: key, permission, policy, or a target that another
    /// transfer holds.
    Refused = 5,
    NoLink = 10,
    /// A local or remote file error: missing, exists already, not a file, unreadable, disk full.
    Files = 11,
    /// The peer speaks another protocol or another version, or violated the protocol.
    Protocol = 12,
    /// Some files of a tree copy failed; the others arrived.
    Partial = 23,
    /// A source file changed or vanished while it was read.
    SourceChanged = 24,
    /// All links were lost, and none reconnected within `--timeout`.
    TimedOut = 30,
    /// The received data failed verification twice, or `verify` found a difference.
    Digest = 40,
    /// A bench was slower than its baseline or its minimum rate.
    Slower = 41,
    /// `doctor` found a fault.
    Found = 42,
    /// A failure of one of several jobs that a rerun may cure, as `EX_TEMPFAIL` of sysexits.h.
    Temporary = 75,
    /// SIGINT: 128 + 2, as shells report it.
    Interrupted = 130,
    /// SIGTERM or SIGHUP: 128 + 15 for both.
    Terminated = 143,
}

impl Exit {
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// Every exit code of an error of the library.
    const OF_LIBRARY: [Self; 10] = [
        Self::Failed,
        Self::Usage,
        Self::Refused,
        Self::NoLink,
        Self::Files,
        Self::Protocol,
        Self::SourceChanged,
        Self::TimedOut,
        Self::Digest,
        Self::Interrupted,
    ];

    pub(super) fn of_error(error: &Error) -> Self {
        let is_its = |exit: &Self| exit.code() == error.exit_code();
        let found = Self::OF_LIBRARY.into_iter().find(is_its);
        found.unwrap_or(Self::Failed)
    }

    /// Returns the exit code of a configuration error: a file error for a file that cannot be read,
    /// a refusal for one with wrong content or that other users can write.
    pub(crate) fn of_config(is_io: bool) -> Self {
        if is_io { Self::Files } else { Self::Refused }
    }
}

/// Signal that asked the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT, which Ctrl-C sends.
    Interrupt,
    /// SIGTERM from a service manager, or SIGHUP from a closed terminal.
    Terminate,
}

impl Stop {
    pub(crate) const fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
        }
    }

    /// Exits immediately and without cleanup, as the second signal requests.
    pub(crate) fn at_once(self) -> ! {
        screen::leave();
        std::process::exit(self.exit().code().into())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use nicstripe::{FailCode, Name, trust::PeersError};

    use super::*;
    use crate::{
        commands::cp::tests::{both_local, directory, not_a_directory, shortfall},
        failure::{Failure, tests::file_error},
    };

    fn io_error() -> io::Error {
        io::Error::from(io::ErrorKind::Other)
    }

    #[test]
    fn errors_of_the_library_keep_the_exit_code_of_its_table() {
        for code in [
            FailCode::Refused,
            FailCode::Io,
            FailCode::SourceChanged,
            FailCode::Digest,
            FailCode::Protocol,
            FailCode::Cancelled,
        ] {
            let error = file_error(code, io::ErrorKind::Other);
            let expected = error.exit_code();
            assert_eq!(Failure::from(error).exit().code(), expected, "{code:?}");
        }
        for (expected, error) in [
            (2, Error::Name(Name::parse(b"..").unwrap_err())),
            (10, Error::NoInterface { why: "because" }),
            (130, Error::Cancelled { resumable: true }),
        ] {
            assert_eq!(Failure::from(error).exit().code(), expected);
        }
    }

    #[test]
    fn failures_before_the_library_have_theirs() {
        let interrupted = |stop| Failure::Interrupted {
            stop,
            resumable: true,
        };
        for (failure, expected) in [
            (Failure::opening("/x".as_ref())(io_error()), 11),
            (directory("nas:").into(), 11),
            (not_a_directory("/x".as_ref()).into(), 11),
            (interrupted(Stop::Interrupt), 130),
            (interrupted(Stop::Terminate), 143),
            (PeersError::Unknown { text: "x".into() }.into(), 1),
            (both_local().into(), 2),
            (
                shortfall(&[FailCode::Io, FailCode::SourceChanged], "-r").into(),
                23,
            ),
            (shortfall(&[FailCode::SourceChanged], "-r").into(), 24),
            (Failure::Runtime(io_error()), 1),
        ] {
            assert_eq!(failure.exit().code(), expected, "{failure}");
        }
        assert_eq!(Exit::Done.code(), 0);
    }
}
