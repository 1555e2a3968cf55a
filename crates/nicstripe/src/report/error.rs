//! Errors of transfers and their setup.

pub(crate) mod actor;
pub(crate) mod unreachable;

use std::{io, net::SocketAddr, time::Duration};

use nicstripe_proto::{
    Digest, FailCode, Name, NameError, name::printable, pairing::Obstacle, tunnel::TargetRefusal,
};

use self::unreachable::Unreachable;
use super::event::Awaited;
use crate::{file::FileError, trust::PublicKey};

/// Failure of a transfer or of its setup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host's name or address cannot be resolved. To be corrected by the user who typed it.
    #[error("cannot resolve \"{host}\"")]
    Resolve {
        /// Host name or address as the user gave it.
        host: String,
        /// Error of the name resolver.
        #[source]
        source: io::Error,
    },
    /// A named link cannot be used. To be corrected by the user who named it.
    #[error("link {link} cannot be used: {why}")]
    Link {
        /// Link as the user typed it.
        link: String,
        /// Reason why the link cannot be used, with the links that could be used.
        why: String,
    },
    /// No interface can be used to search for daemons. Remedy: plug in a cable, or let the system
    /// assign IPv6 link-local addresses.
    #[error("no interface to search on: {why}")]
    NoInterface {
        /// Requirement that no local interface meets, as text.
        why: &'static str,
    },
    /// The call was not made within a tokio runtime. To be corrected by the author of the program:
    /// use [`blocking`](crate::blocking), or a runtime with its I/O and time drivers enabled.
    #[error("not called within a tokio runtime")]
    NoRuntime,
    /// The tokio runtime of [`connect`](crate::ClientBuilder::connect) has ended, and with it all work
    /// of the client. To be corrected by the author of the program.
    #[error("the tokio runtime on which the client was connected has ended")]
    RuntimeEnded,
    /// The client was connected before this process was forked, and its threads are in the parent.
    /// To be corrected by the author of the program: connect after `fork`.
    #[error("the client was connected by the parent of this process, before it was forked")]
    Forked,
    /// The client, or a clone of it, was closed. To be corrected by the author of the program.
    #[error("the client is closed")]
    Closed,
    /// All transfers that a client may have at once are running, and none of them moved for the
    /// client's patience: their readers and writers are in the program. To be corrected by its
    /// author: read on, or drop some.
    #[error("{running} transfers of this client run, and none moved for {} s", seconds(*waited))]
    Crowded {
        /// Number of running transfers, the most that a client may have.
        running: usize,
        /// Time without progress of any of them.
        waited: Duration,
    },
    /// No link could connect to the daemon. Remedy: check the host, its daemon and the cables.
    #[error("cannot connect to {address}")]
    Connect {
        /// Remote address and port of the last attempt.
        address: SocketAddr,
        /// Error of the operating system for that attempt.
        #[source]
        source: io::Error,
    },
    /// No address of the host answered. Remedy: see the attempts in [`Unreachable`].
    #[error(transparent)]
    Unreachable(Box<Unreachable>),
    /// A client that had been connected cannot reconnect. Remedy: as for `source`, which may be
    /// temporary.
    #[error("cannot reconnect to {host}")]
    Reconnect {
        /// Host name or address as the user gave it.
        host: String,
        /// Error of the last attempt to reconnect.
        #[source]
        source: Box<Error>,
    },
    /// Every link was lost and none came back. Remedy: as for [`Error::Connect`]; a rerun resumes.
    #[error("no link to {host} for {} s", seconds(*waited))]
    Abandoned {
        /// Host name or address as the user gave it.
        host: String,
        /// Time without any connected link.
        waited: Duration,
    },
    /// The peer was connected, but made no progress for the client's patience. Remedy: look at the
    /// daemon's machine and its disk; a rerun resumes.
    #[error("no progress for {} s: {host} did not {awaited}", seconds(*waited))]
    Stalled {
        /// Host name or address as the user gave it.
        host: String,
        /// Step of the peer that did not come.
        awaited: Awaited,
        /// Time without progress.
        waited: Duration,
    },
    /// The peer's key is not trusted locally. Remedy: add the key after checking it.
    #[error("{host} has a key that is not trusted here: {key}")]
    UntrustedPeer {
        /// Host name or address as the user gave it.
        host: String,
        /// Public key that the peer presented.
        key: PublicKey,
    },
    /// The peer does not trust the local key. Remedy: add the local key to the peer's trusted keys.
    #[error("{host} does not trust our key {ours}")]
    Untrusted {
        /// Host name or address as the user gave it.
        host: String,
        /// Public key of this machine, to be added at the peer.
        ours: PublicKey,
    },
    /// The remote end does not speak this protocol or version. Remedy: check port and versions.
    #[error(
        "{address} does not speak nicstripe version {version}: {}",
        printable(why.as_bytes()),
        version = nicstripe_proto::message::VERSION
    )]
    Protocol {
        /// Remote address and port of the connection.
        address: SocketAddr,
        /// Reason, such as another version of the protocol.
        why: String,
    },
    /// The daemon speaks another version of the protocol. Remedy: update the older program.
    #[error(
        "{host} speaks protocol {theirs}, this program protocol {ours}",
        ours = nicstripe_proto::message::VERSION
    )]
    Version {
        /// Host name or address as the user gave it.
        host: String,
        /// Version of the daemon's protocol.
        theirs: u32,
    },
    /// The daemon does not support what was requested. Nothing was sent. Remedy: update the
    /// daemon's program.
    #[error("{host}{} does not support {feature}", of_version(version.as_deref()))]
    Unsupported {
        /// Host name or address as the user gave it.
        host: String,
        /// Feature that the daemon does not support, in a few words.
        feature: String,
        /// Version of the daemon's program, if known.
        version: Option<String>,
    },
    /// The daemon refused the session. Remedy: try again later, or restart the daemon.
    #[error("{host} refused the session: {why}")]
    Refused {
        /// Host name or address as the user gave it.
        host: String,
        /// Reason that the daemon reported.
        why: String,
    },
    /// The daemon was at its session limit for the whole wait. Remedy: try again later, or raise
    /// its limits.
    #[error("{host} has reached its session limit{}", at_once(*.most))]
    Full {
        /// Host name or address as the user gave it.
        host: String,
        /// The daemon's limit of concurrent sessions for this key, if it reported one.
        most: Option<u32>,
    },
    /// The transfer failed at the peer. The remedy depends on `code`.
    #[error("{host}: {}", printable(text.as_bytes()))]
    Peer {
        /// Host name or address as the user gave it.
        host: String,
        /// Kind of failure at the peer.
        code: FailCode,
        /// Error message from the peer, not yet escaped.
        text: String,
        /// True if repeating the transfer resumes from data that is durable at the receiver.
        resumable: bool,
    },
    /// The daemon could not connect to a target of [`Client::dial`](crate::Client::dial). The
    /// remedy depends on `code`.
    #[error("{host} cannot connect to {}: {}", printable(target.as_bytes()), printable(why.as_bytes()))]
    Target {
        /// Host name or address as the user gave it.
        host: String,
        /// Target as passed to `dial`.
        target: String,
        /// Kind of failure: not permitted, or not reachable.
        code: TargetRefusal,
        /// Error message from the daemon, not yet escaped.
        why: String,
    },
    /// The daemon could not listen for [`Client::listen`](crate::Client::listen). The remedy depends
    /// on `code`.
    #[error("{host} cannot listen on {}: {}", printable(address.as_bytes()), printable(why.as_bytes()))]
    Listen {
        /// Host name or address as the user gave it.
        host: String,
        /// Address as passed to `listen`.
        address: String,
        /// Kind of failure: not permitted, or not possible.
        code: TargetRefusal,
        /// Error message from the daemon, not yet escaped.
        why: String,
    },
    /// Operation on a local file failed. To be corrected by the owner of this machine.
    #[error(transparent)]
    File(#[from] FileError),
    /// A name is not valid on the wire. To be corrected by the user who typed it.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The received bytes differed from the sent ones in two consecutive attempts. Remedy: check
    /// memory and disk.
    #[error("digest mismatch: sent {sent}, received {received}")]
    Digest {
        /// BLAKE3 hash of the bytes read from the source.
        sent: Digest,
        /// BLAKE3 hash of the bytes that the receiver has.
        received: Digest,
    },
    /// The content of a file that no one has changed since the daemon received it is another one.
    /// Remedy: restore the file; check the disk of that machine.
    #[error(
        "{host}: \"{name}\" is damaged: its content has BLAKE3 {found}, and had {kept} when it was received"
    )]
    Damaged {
        /// Host name or address of the daemon, as the user gave it.
        host: String,
        /// Name of the file.
        name: Name,
        /// BLAKE3 hash of what the daemon read.
        found: Digest,
        /// BLAKE3 hash that the daemon kept.
        kept: Digest,
    },
    /// The embedding program or the user interrupted the transfer.
    #[error("interrupted")]
    Cancelled {
        /// True if repeating the transfer resumes from data that is durable at the receiver.
        resumable: bool,
    },
    /// A call of [`blocking`](crate::blocking) was not done within the time that the program gives
    /// it, and was dropped.
    #[error("not done within {} s", seconds(*after))]
    TimedOut {
        /// Time that the program gives each call.
        after: Duration,
    },
    /// The operating system refused an operation that normally succeeds. Remedy: see `source`.
    #[error("cannot {what}")]
    System {
        /// Operation that failed, as the rest of a sentence that begins with "cannot".
        what: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A transfer from or to a pipe failed. Its bytes cannot be read again, so it cannot be
    /// resumed. Remedy: as for the inner error, then start over.
    #[error(transparent)]
    Pipe(Box<Error>),
    /// The session ended before the transfer was complete. Remedy: repeat the transfer.
    #[error("{host} ended the session: {why}")]
    Ended {
        /// Host name or address as the user gave it.
        host: String,
        /// Reason that the peer reported, or the step that was interrupted.
        why: String,
    },
}

impl Error {
    pub(crate) fn link(link: impl ToString, why: impl ToString) -> Self {
        Self::Link {
            link: link.to_string(),
            why: why.to_string(),
        }
    }

    pub(crate) fn connect(address: SocketAddr, source: impl Into<io::Error>) -> Self {
        Self::Connect {
            address,
            source: source.into(),
        }
    }

    pub(crate) fn system(what: &'static str, source: io::Error) -> Self {
        Self::System { what, source }
    }

    /// Creates a [`System`](Self::System) error from an error of another kind.
    pub(crate) fn failed(
        what: &'static str,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::system(what, io::Error::other(error))
    }

    pub(crate) fn ended(host: &str, why: impl Into<String>) -> Self {
        Self::Ended {
            host: host.to_owned(),
            why: why.into(),
        }
    }

    /// Creates the error of a request that the peer has rejected and that cannot be resumed.
    pub(crate) fn peer(host: &str, code: FailCode, text: String) -> Self {
        Self::Peer {
            host: host.to_owned(),
            code,
            text,
            resumable: false,
        }
    }

    /// Returns an error unless the caller runs within a tokio runtime, which can start tasks.
    pub(crate) fn require_runtime() -> Result<(), Self> {
        match tokio::runtime::Handle::try_current() {
            Ok(_) => Ok(()),
            Err(_) => Err(Self::NoRuntime),
        }
    }

    /// Returns true if repeating the transfer resumes from data that is durable at the receiver.
    ///
    /// ```
    /// let error = nicstripe::Error::Cancelled { resumable: true };
    /// assert!(error.is_resumable());
    /// ```
    pub fn is_resumable(&self) -> bool {
        match self {
            Self::Peer { resumable, .. } | Self::Cancelled { resumable } => *resumable,
            Self::Abandoned { .. } | Self::Stalled { .. } | Self::Ended { .. } => true,
            Self::File(error) => error.resumable,
            _ => false,
        }
    }

    /// Returns true if the same call may succeed later without any intervention: the daemon or its
    /// cables were unavailable, it was overloaded, or the source changed while it was read. A
    /// failed call may still have taken effect: for example, the daemon may have removed the file.
    ///
    /// ```
    /// let error = nicstripe::Error::Cancelled { resumable: true };
    /// assert!(error.is_resumable() && !error.is_retryable(), "whoever interrupted it knows why");
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Unreachable(_)
            | Self::Reconnect { .. }
            | Self::Abandoned { .. }
            | Self::Stalled { .. }
            | Self::Ended { .. }
            | Self::Refused { .. }
            | Self::Full { .. }
            | Self::TimedOut { .. } => true,
            Self::Digest { .. } => true,
            Self::Damaged { .. } => false,
            Self::Pipe(error) => error.is_retryable(),
            _ => matches!(
                self.fail_code(),
                Some(FailCode::Busy | FailCode::SourceChanged | FailCode::Digest)
            ),
        }
    }

    /// Returns true if the requested name does not exist.
    ///
    /// ```
    /// let text = "cannot look at \"x\": entity not found".to_owned();
    /// let error = nicstripe::Error::Peer {
    ///     host: "nas".into(),
    ///     code: nicstripe::FailCode::NotFound,
    ///     text,
    ///     resumable: false,
    /// };
    /// assert!(error.is_not_found() && !error.is_retryable());
    /// ```
    pub fn is_not_found(&self) -> bool {
        self.fail_code() == Some(FailCode::NotFound)
    }

    /// Returns the kind of failure of a file operation at either end; `None` for other errors.
    ///
    /// ```
    /// let text = "the disk is full".to_owned();
    /// let error = nicstripe::Error::Peer {
    ///     host: "nas".into(),
    ///     code: nicstripe::FailCode::NoSpace,
    ///     text,
    ///     resumable: true,
    /// };
    /// assert_eq!(error.fail_code(), Some(nicstripe::FailCode::NoSpace));
    /// ```
    pub fn fail_code(&self) -> Option<FailCode> {
        match self {
            Self::Peer { code, .. } => Some(*code),
            Self::File(error) => Some(error.code),
            Self::Digest { .. } | Self::Damaged { .. } => Some(FailCode::Digest),
            Self::Pipe(error) => error.fail_code(),
            _ => None,
        }
    }
}

/// Returns a duration in seconds, rounded down to milliseconds, for display.
pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1000.0
}

fn of_version(version: Option<&str>) -> String {
    version.map_or_else(String::new, |version| format!(" (nicstripe {version})"))
}

fn at_once(most: Option<u32>) -> String {
    most.map(|most| format!(" of {most}")).unwrap_or_default()
}

/// Wraps the error in an [`io::Error`] whose kind follows from its [`fail_code`](Error::fail_code).
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.fail_code() {
            _ if matches!(error, Error::TimedOut { .. }) => io::ErrorKind::TimedOut,
            Some(FailCode::NotFound) => io::ErrorKind::NotFound,
            Some(FailCode::Exists | FailCode::Occupied) => io::ErrorKind::AlreadyExists,
            Some(FailCode::Refused | FailCode::NotPermitted) => io::ErrorKind::PermissionDenied,
            Some(FailCode::NoSpace) => io::ErrorKind::StorageFull,
            Some(FailCode::Busy) => io::ErrorKind::ResourceBusy,
            Some(FailCode::Range) => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
/// Returns what stood against a TCP connection that failed by this error.
pub(crate) fn obstacle_to(error: &io::Error) -> Obstacle {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Obstacle::Refused,
        io::ErrorKind::ConnectionReset => Obstacle::Reset,
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => Obstacle::FilteredHere,
        io::ErrorKind::PermissionDenied => Obstacle::Filtered,
        _ => Obstacle::Silence,
    }
}
