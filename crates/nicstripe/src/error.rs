//! Errors, by who must act.

use std::{io, net::SocketAddr, time::Duration};

use nicstripe_proto::{Digest, FailCode, NameError, name::printable, tunnel::TargetRefusal};

use crate::{file::FileError, trust::PublicKey, unreached::Unreached};

/// Why a transfer, or setting it up, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host's name or address means nothing here. Act: whoever typed it.
    #[error("cannot resolve \"{host}\"")]
    Resolve {
        /// What was asked for.
        host: String,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// A link that was named cannot be used. Act: whoever named it.
    #[error("link {link} cannot be used: {why}")]
    Link {
        /// The link as it was named.
        link: String,
        /// What stands against it, with the choices.
        why: String,
    },
    /// Packets for one interface of the peer arrive at another. Act: whoever administers the peer; the remedy is in the text of the link.
    #[error("its packets arrive at the peer's {arrived} instead of {aimed_at}: the peer answers ARP for one cable on the other")]
    Astray {
        /// The peer's interface that the connection was meant for.
        aimed_at: String,
        /// The one that it came to.
        arrived: String,
    },
    /// There is nowhere to search for daemons. Act: plug in a cable, or let the system give its interfaces IPv6 link-local addresses.
    #[error("no interface can be searched on: {why}")]
    NoInterface {
        /// What they lack.
        why: &'static str,
    },
    /// No link could connect. Act: check the host, its daemon, the cables.
    #[error("cannot connect to {address}")]
    Connect {
        /// The address tried last.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A host was looked for in several places, and nothing answered. Act: as [`Unreached`] says what was tried.
    #[error(transparent)]
    Unreached(Box<Unreached>),
    /// A client that had been connected cannot connect again for now. Act: as for what stands against it; later it may be gone.
    #[error("cannot connect to {host} again")]
    Reconnect {
        /// The host.
        host: String,
        /// What stands against it.
        #[source]
        source: Box<Error>,
    },
    /// Every link was lost and none came back. Act: as for [`Error::Connect`]; a rerun resumes.
    #[error("no link to {host} for {} s", seconds(*waited))]
    Abandoned {
        /// The host.
        host: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Whoever answers is not trusted here. Act: add its key, if it is the right one.
    #[error("{host} has a key that is not trusted here: {key}")]
    UntrustedPeer {
        /// The host.
        host: String,
        /// The key it has.
        key: PublicKey,
    },
    /// The peer does not trust our key. Act: add our key there.
    #[error("{host} does not trust our key {ours}")]
    Untrusted {
        /// The host.
        host: String,
        /// Our key.
        ours: PublicKey,
    },
    /// Whoever answers does not speak this protocol or version. Act: check port and versions.
    #[error(
        "{address} does not speak nicstripe version {version}: {}",
        printable(why.as_bytes()),
        version = nicstripe_proto::message::VERSION
    )]
    Protocol {
        /// Who answered.
        address: SocketAddr,
        /// What was wrong.
        why: String,
    },
    /// The daemon refused the session. Act: try again later, or restart it.
    #[error("{host} refused the session: {why}")]
    Refused {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// The daemon has as many sessions as it may, and kept them for as long as was waited. Act: try again later, or raise its limits.
    #[error("{host} has no place for another session{}", at_once(*.most))]
    Full {
        /// The host.
        host: String,
        /// Sessions that it has at once for us, where it said so.
        most: Option<u32>,
    },
    /// The transfer failed at the peer. Act: by the code.
    #[error("{host}: {}", printable(text.as_bytes()))]
    Peer {
        /// The host.
        host: String,
        /// What kind of failure.
        code: FailCode,
        /// What the peer said.
        text: String,
        /// Whether a rerun goes on from what is durable.
        resumable: bool,
    },
    /// There is no connection to a target of [`Client::dial`](crate::Client::dial). Act: by the code.
    #[error("{host} does not connect to {}: {}", printable(target.as_bytes()), printable(why.as_bytes()))]
    Target {
        /// The host.
        host: String,
        /// The target, as it was asked for.
        target: String,
        /// What kind of refusal.
        code: TargetRefusal,
        /// What the peer said.
        why: String,
    },
    /// A file of ours. Act: whoever owns this machine.
    #[error(transparent)]
    File(#[from] FileError),
    /// A name that may not travel. Act: whoever typed it.
    #[error(transparent)]
    Name(#[from] NameError),
    /// What was received is not what was sent, twice. Act: suspect memory or disk.
    #[error("digest mismatch: sent {sent}, received {received}")]
    Digest {
        /// BLAKE3 of what was read.
        sent: Digest,
        /// BLAKE3 of what arrived.
        received: Digest,
    },
    /// The embedding program or the user interrupted it.
    #[error("interrupted")]
    Cancelled {
        /// Whether a rerun goes on from what is durable.
        resumable: bool,
    },
    /// The operating system refused something that is always possible. Act: see the source.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What ended a pipe: what went through it cannot be had again, so that nothing goes on where it ended. Act: as for what it says, then start
    /// over.
    #[error(transparent)]
    Pipe(Box<Error>),
    /// The session ended before the transfer did. Act: rerun.
    #[error("{host} ended the session: {why}")]
    Ended {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
}

impl Error {
    /// Whether running the same transfer again goes on from what is durable.
    ///
    /// ```
    /// let error = nicstripe::Error::Cancelled { resumable: true };
    /// assert!(error.is_resumable());
    /// ```
    pub fn is_resumable(&self) -> bool {
        match self {
            Self::Peer { resumable, .. } | Self::Cancelled { resumable } => *resumable,
            Self::Abandoned { .. } | Self::Ended { .. } => true,
            Self::File(error) => error.resumable,
            _ => false,
        }
    }

    /// Whether the same call may do what it did not if it is made again later, without anybody changing anything: the daemon or its cables were
    /// away, it had too much to do, or what was read changed meanwhile. What a call has changed before it failed it may have changed for
    /// good: a file that was to be removed may be gone.
    ///
    /// ```
    /// let error = nicstripe::Error::Cancelled { resumable: true };
    /// assert!(error.is_resumable() && !error.is_retryable(), "whoever interrupted it knows why");
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Unreached(_)
            | Self::Reconnect { .. }
            | Self::Abandoned { .. }
            | Self::Ended { .. }
            | Self::Refused { .. }
            | Self::Full { .. } => true,
            Self::Digest { .. } => true,
            Self::Pipe(error) => error.is_retryable(),
            _ => matches!(self.fail_code(), Some(FailCode::Busy | FailCode::SourceChanged | FailCode::Digest)),
        }
    }

    /// Whether nothing has the name that was asked for.
    ///
    /// ```
    /// let text = "cannot look at \"x\": entity not found".to_owned();
    /// let error = nicstripe::Error::Peer { host: "nas".into(), code: nicstripe::FailCode::NotFound, text, resumable: false };
    /// assert!(error.is_not_found() && !error.is_retryable());
    /// ```
    pub fn is_not_found(&self) -> bool {
        self.fail_code() == Some(FailCode::NotFound)
    }

    /// What kind of failure it is at either end's files, where it is one.
    ///
    /// ```
    /// let text = "the disk is full".to_owned();
    /// let error = nicstripe::Error::Peer { host: "nas".into(), code: nicstripe::FailCode::NoSpace, text, resumable: true };
    /// assert_eq!(error.fail_code(), Some(nicstripe::FailCode::NoSpace));
    /// ```
    pub fn fail_code(&self) -> Option<FailCode> {
        match self {
            Self::Peer { code, .. } => Some(*code),
            Self::File(error) => Some(error.code),
            Self::Digest { .. } => Some(FailCode::Digest),
            Self::Pipe(error) => error.fail_code(),
            _ => None,
        }
    }
}

/// Seconds as people write them, to a thousandth.
pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1000.0
}

fn at_once(most: Option<u32>) -> String {
    most.map(|most| format!(": it has {most} at once")).unwrap_or_default()
}

/// With the error in it, and of the kind of its [`fail_code`](Error::fail_code).
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.fail_code() {
            Some(FailCode::NotFound) => io::ErrorKind::NotFound,
            Some(FailCode::Exists) => io::ErrorKind::AlreadyExists,
            Some(FailCode::Refused) => io::ErrorKind::PermissionDenied,
            Some(FailCode::NoSpace) => io::ErrorKind::StorageFull,
            Some(FailCode::Busy) => io::ErrorKind::ResourceBusy,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
