//! Exit codes of all commands. They are fixed and documented (`docs/DESIGN.md`, section 7), and
//! equal rsync's where rsync has the same case.

use std::process::ExitCode;

use nicstripe::{Error, FailCode, TargetRefusal};

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
    /// The received data failed verification twice.
    Digest = 40,
    /// A bench was slower than its baseline or its minimum rate.
    Slower = 41,
    /// `doctor` found a fault.
    Found = 42,
    /// SIGINT: 128 + 2, as shells report it.
    Interrupted = 130,
    /// SIGTERM or SIGHUP: 128 + 15 for both.
    Terminated = 143,
}

impl Exit {
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn of_error(error: &Error) -> Self {
        if let Some(code) = error.fail_code() {
            return Self::of_fail_code(code);
        }
        match error {
            Error::Name(_) => Self::Usage,
            Error::Pipe(error) | Error::Reconnect { source: error, .. } => Self::of_error(error),
            Error::UntrustedPeer { .. }
            | Error::Untrusted { .. }
            | Error::Refused { .. }
            | Error::Full { .. } => Self::Refused,
            Error::Resolve { .. } | Error::Connect { .. } | Error::Unreachable(_) => Self::NoLink,
            Error::Link { .. } | Error::NoInterface { .. } => Self::NoLink,
            Error::Target {
                code: TargetRefusal::NotAllowed,
                ..
            }
            | Error::Listen {
                code: TargetRefusal::NotAllowed,
                ..
            } => Self::Refused,
            Error::Protocol { .. } | Error::Version { .. } | Error::Unsupported { .. } => {
                Self::Protocol
            }
            Error::Abandoned { .. } | Error::Stalled { .. } => Self::TimedOut,
            Error::Cancelled { .. } => Self::Interrupted,
            _ => Self::Failed,
        }
    }

    fn of_fail_code(code: FailCode) -> Self {
        match code {
            FailCode::Refused | FailCode::NotPermitted | FailCode::Busy => Self::Refused,
            FailCode::NotFound
            | FailCode::Exists
            | FailCode::Io
            | FailCode::NoSpace
            | FailCode::NotAFile => Self::Files,
            FailCode::SourceChanged => Self::SourceChanged,
            FailCode::Digest => Self::Digest,
            FailCode::Protocol => Self::Protocol,
            // The peer cancelled it, not the local caller, or the code is unknown.
            _ => Self::Failed,
        }
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
    use std::{io, time::Duration};

    use nicstripe::{
        Digest, Name,
        trust::{PeersError, PublicKey},
    };

    use super::*;
    use crate::{
        commands::cp::tests::{ListError, PlanError, shortfall},
        failure::{Failure, tests::file_error},
    };

    fn io_error() -> io::Error {
        io::Error::from(io::ErrorKind::Other)
    }

    fn code(error: Error) -> u8 {
        Failure::from(error).exit().code()
    }

    #[test]
    fn every_error_of_the_library_has_its_code() {
        let host = || "nas".to_owned();
        let why = || "because".to_owned();
        let key = PublicKey::from_bytes([7; 32]).unwrap();
        let address = "10.0.0.1:7747".parse().unwrap();
        let digest = Digest([1; 32]);
        let link = || Error::Link {
            link: "eth1".into(),
            why: why(),
        };
        let abandoned = || Error::Abandoned {
            host: host(),
            waited: Duration::from_secs(600),
        };
        let target = |code| Error::Target {
            host: host(),
            target: why(),
            code,
            why: why(),
        };
        let no_link = vec![
            Error::Resolve {
                host: host(),
                source: io_error(),
            },
            link(),
            Error::NoInterface { why: "because" },
            Error::Connect {
                address,
                source: io_error(),
            },
            Error::Reconnect {
                host: host(),
                source: Box::new(link()),
            },
        ];
        let refused = vec![
            Error::UntrustedPeer { host: host(), key },
            Error::Untrusted {
                host: host(),
                ours: key,
            },
            target(TargetRefusal::NotAllowed),
            Error::Refused {
                host: host(),
                why: why(),
            },
            Error::Full {
                host: host(),
                most: Some(64),
            },
        ];
        let others = vec![
            target(TargetRefusal::Unreachable),
            Error::System {
                what: "open a socket",
                source: io_error(),
            },
            Error::Ended {
                host: host(),
                why: why(),
            },
        ];
        let protocol = Error::Protocol {
            address,
            why: why(),
        };
        let damaged = Error::Digest {
            sent: digest,
            received: digest,
        };
        for (expected, errors) in [
            (1, others),
            (2, vec![Error::Name(Name::parse(b"..").unwrap_err())]),
            (5, refused),
            (10, no_link),
            (12, vec![protocol]),
            (30, vec![abandoned(), Error::Pipe(Box::new(abandoned()))]),
            (40, vec![damaged]),
            (130, vec![Error::Cancelled { resumable: true }]),
        ] {
            for error in errors {
                let text = error.to_string();
                assert_eq!(code(error), expected, "{text}");
            }
        }
    }

    #[test]
    fn a_failure_at_a_file_has_the_same_code_at_either_end() {
        for (fail_code, expected) in [
            (FailCode::Refused, 5),
            (FailCode::NotPermitted, 5),
            (FailCode::Busy, 5),
            (FailCode::NotFound, 11),
            (FailCode::Exists, 11),
            (FailCode::Io, 11),
            (FailCode::NoSpace, 11),
            (FailCode::NotAFile, 11),
            (FailCode::SourceChanged, 24),
            (FailCode::Digest, 40),
            (FailCode::Protocol, 12),
            (FailCode::Cancelled, 1),
        ] {
            assert_eq!(
                code(file_error(fail_code, io::ErrorKind::Other)),
                expected,
                "{fail_code:?} here"
            );
            let there = Error::Peer {
                host: "nas".into(),
                code: fail_code,
                text: "no".into(),
                resumable: false,
            };
            assert_eq!(code(there), expected, "{fail_code:?} there");
        }
    }

    #[test]
    fn failures_before_the_library_have_theirs() {
        let path = || "/x".into();
        let interrupted = |stop| Failure::Interrupted {
            stop,
            resumable: true,
        };
        let unread = ListError::Read {
            path: path(),
            source: io_error(),
        };
        for (failure, expected) in [
            (Failure::opening("/x".as_ref())(io_error()), 11),
            (PlanError::Directory(path()).into(), 11),
            (PlanError::NotADirectory(path()).into(), 11),
            (interrupted(Stop::Interrupt), 130),
            (interrupted(Stop::Terminate), 143),
            (PeersError::Unknown { text: "x".into() }.into(), 1),
            (PlanError::BothLocal.into(), 2),
            (PlanError::RemoteDirectory("nas:".into()).into(), 11),
            (unread.into(), 11),
            (ListError::NotText { path: path() }.into(), 2),
            (
                shortfall(&[FailCode::Io, FailCode::SourceChanged], &["-r"]).into(),
                23,
            ),
            (shortfall(&[FailCode::SourceChanged], &["-r"]).into(), 24),
            (Failure::Runtime(io_error()), 1),
        ] {
            assert_eq!(failure.exit().code(), expected, "{failure}");
        }
        assert_eq!(Exit::Done.code(), 0);
    }
}
