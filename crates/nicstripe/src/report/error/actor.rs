//! Table of all errors: who must act, and the exit code of the command `nicstripe`.

use nicstripe_proto::{FailCode, message::VERSION, tunnel::TargetRefusal};

use super::Error;

/// Who must act before a failed call can succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Actor {
    /// Whoever made the call: an argument or the state of the program is wrong.
    Caller,
    /// The owner of this machine: its files, its trusted keys, or its system.
    Machine,
    /// The owner of the other machine, or its daemon.
    Peer,
    /// Whoever looks after the cables and what is between the machines.
    Network,
    /// An author of nicstripe: one of the two programs broke the protocol.
    Defect,
}

impl Actor {
    /// Returns the identifier of the actor in machine-readable output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Machine => "machine",
            Self::Peer => "peer",
            Self::Network => "network",
            Self::Defect => "defect",
        }
    }
}

impl Error {
    /// Returns the stable identifier of the kind of error, for programs in other languages and for
    /// logs. [`fail_code`](Self::fail_code) has more about `file`, `peer` and `digest`. A [`Pipe`]
    /// and a [`Reconnect`] have that of their cause.
    ///
    /// ```
    /// let error = nicstripe::Error::Cancelled { resumable: true };
    /// assert_eq!((error.word(), error.number()), ("cancelled", 21));
    /// ```
    ///
    /// [`Pipe`]: Self::Pipe
    /// [`Reconnect`]: Self::Reconnect
    pub fn word(&self) -> &'static str {
        self.identifier().1
    }

    /// Returns the stable number of the kind of error, from 1 on; see [`word`](Self::word).
    pub fn number(&self) -> u8 {
        self.identifier().0
    }

    /// Returns number and word. A number is never given again.
    fn identifier(&self) -> (u8, &'static str) {
        match self {
            Self::Resolve { .. } => (1, "resolve"),
            Self::Link { .. } => (2, "link"),
            Self::NoInterface { .. } => (3, "no_interface"),
            Self::NoRuntime => (4, "no_runtime"),
            Self::RuntimeEnded => (5, "runtime_ended"),
            Self::Forked => (6, "forked"),
            Self::Closed => (7, "closed"),
            Self::Crowded { .. } => (8, "crowded"),
            Self::Connect { .. } => (9, "connect"),
            Self::Unreachable(_) => (10, "unreachable"),
            Self::Abandoned { .. } => (11, "abandoned"),
            Self::Stalled { .. } => (12, "stalled"),
            Self::UntrustedPeer { .. } => (13, "untrusted_peer"),
            Self::Untrusted { .. } => (14, "untrusted"),
            Self::Protocol { .. } => (15, "protocol"),
            Self::Version { .. } => (16, "version"),
            Self::Unsupported { .. } => (17, "unsupported"),
            Self::Refused { .. } => (18, "refused"),
            Self::Full { .. } => (19, "full"),
            Self::Peer { .. } => (20, "peer"),
            Self::Cancelled { .. } => (21, "cancelled"),
            Self::Target { .. } => (22, "target"),
            Self::Listen { .. } => (23, "listen"),
            Self::File(_) => (24, "file"),
            Self::Name(_) => (25, "name"),
            Self::Digest { .. } => (26, "digest"),
            Self::System { .. } => (27, "system"),
            Self::Ended { .. } => (28, "ended"),
            Self::TimedOut { .. } => (29, "timed_out"),
            Self::Damaged { .. } => (30, "damaged"),
            Self::Pipe(error) | Self::Reconnect { source: error, .. } => error.identifier(),
        }
    }

    /// Returns who must act before the same call can succeed.
    ///
    /// ```
    /// let why = "in another session".to_owned();
    /// let error = nicstripe::Error::Refused { host: "nas".into(), why };
    /// assert_eq!(error.actor(), nicstripe::Actor::Peer);
    /// ```
    pub fn actor(&self) -> Actor {
        self.row().0
    }

    /// Returns the exit code with which the command `nicstripe` ends for this error, as DESIGN 7
    /// and the manual list them.
    ///
    /// ```
    /// let error = nicstripe::Error::Cancelled { resumable: true };
    /// assert_eq!(error.exit_code(), 130);
    /// ```
    pub fn exit_code(&self) -> u8 {
        self.row().1
    }

    /// Returns the error's row of the table. Its match names every error, so that none is forgotten.
    fn row(&self) -> (Actor, u8) {
        use Actor::{Caller, Machine, Network, Peer};
        match self {
            Self::Name(_) => (Caller, 2),
            Self::NoRuntime
            | Self::RuntimeEnded
            | Self::Forked
            | Self::Closed
            | Self::Crowded { .. } => (Caller, 1),
            Self::Resolve { .. } | Self::Link { .. } => (Caller, 10),
            Self::Cancelled { .. } => (Caller, 130),

            Self::File(error) => at_file(error.code, Machine),
            Self::System { .. } => (Machine, 1),
            Self::UntrustedPeer { .. } => (Machine, 5),
            Self::NoInterface { .. } => (Machine, 10),
            Self::Version { theirs, .. } if *theirs > VERSION => (Machine, 12),
            Self::Digest { .. } => at_file(FailCode::Digest, Machine),

            Self::Peer { code, .. } => at_file(*code, Peer),
            Self::Damaged { .. } => at_file(FailCode::Digest, Peer),
            Self::Target { code, .. } | Self::Listen { code, .. } => match code {
                TargetRefusal::NotAllowed => (Peer, 5),
                _ => (Peer, 1),
            },
            Self::Ended { .. } => (Peer, 1),
            Self::Untrusted { .. } | Self::Refused { .. } | Self::Full { .. } => (Peer, 5),
            Self::Protocol { .. } | Self::Version { .. } | Self::Unsupported { .. } => (Peer, 12),
            Self::Stalled { .. } => (Peer, 30),

            Self::Connect { .. } | Self::Unreachable(_) => (Network, 10),
            Self::Abandoned { .. } | Self::TimedOut { .. } => (Network, 30),

            Self::Pipe(error) | Self::Reconnect { source: error, .. } => error.row(),
        }
    }
}

/// Returns the row of a failure at a file of the machine whose owner is `owner`.
fn at_file(code: FailCode, owner: Actor) -> (Actor, u8) {
    match code {
        FailCode::NotFound
        | FailCode::Exists
        | FailCode::NotAFile
        | FailCode::NotADirectory
        | FailCode::Occupied
        | FailCode::Range
        | FailCode::Precondition => (Actor::Caller, 11),
        FailCode::Io | FailCode::NoSpace => (owner, 11),
        FailCode::Refused | FailCode::NotPermitted | FailCode::Busy => (owner, 5),
        FailCode::SourceChanged => (owner, 24),
        FailCode::Digest => (owner, 40),
        FailCode::Protocol => (Actor::Defect, 12),
        // The other end cancelled it, not the local caller, or the code is unknown.
        _ => (owner, 1),
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use nicstripe_proto::Name;

    use super::*;
    use crate::{file::FileError, report::event::Awaited, trust::PublicKey};

    #[test]
    fn each_error_names_who_must_act_and_its_exit_code() {
        let (host, why) = (|| "nas".to_owned(), || "because".to_owned());
        let io = || io::Error::from(io::ErrorKind::Other);
        let key = PublicKey::from_bytes([7; 32]).unwrap();
        let address = "10.0.0.1:7747".parse().unwrap();
        let waited = Duration::from_secs(600);
        let link = || Error::link("eth1", "because");
        let abandoned = || Error::Abandoned {
            host: host(),
            waited,
        };
        let target = |code| Error::Target {
            host: host(),
            target: why(),
            code,
            why: why(),
        };
        let version = |theirs| Error::Version {
            host: host(),
            theirs,
        };
        let file = |code| Error::from(FileError::new("write", "a", io()).with_code(code));
        let there = |code| Error::peer("nas", code, why());
        use Actor::{Caller, Defect, Machine, Network, Peer};
        let resolve = Error::Resolve {
            host: host(),
            source: io(),
        };
        let reconnect = Error::Reconnect {
            host: host(),
            source: Box::new(link()),
        };
        let untrusted = Error::Untrusted {
            host: host(),
            ours: key,
        };
        let refused = Error::Refused {
            host: host(),
            why: why(),
        };
        let full = Error::Full {
            host: host(),
            most: Some(64),
        };
        let protocol = Error::Protocol {
            address,
            why: why(),
        };
        let stalled = Error::Stalled {
            host: host(),
            awaited: Awaited::Answer,
            waited,
        };
        let rows = [
            (Caller, 2, Error::Name(Name::parse(b"..").unwrap_err())),
            (Caller, 1, Error::NoRuntime),
            (Caller, 1, Error::Closed),
            (Caller, 10, resolve),
            (Caller, 10, link()),
            (Caller, 10, reconnect),
            (Caller, 130, Error::Cancelled { resumable: true }),
            (Machine, 1, Error::system("open a socket", io())),
            (Machine, 5, Error::UntrustedPeer { host: host(), key }),
            (Machine, 10, Error::NoInterface { why: "because" }),
            (Machine, 12, version(VERSION + 1)),
            (Peer, 12, version(0)),
            (Peer, 1, target(TargetRefusal::Unreachable)),
            (Peer, 5, target(TargetRefusal::NotAllowed)),
            (Peer, 1, Error::ended("nas", "because")),
            (Peer, 5, untrusted),
            (Peer, 5, refused),
            (Peer, 5, full),
            (Peer, 12, protocol),
            (Peer, 30, stalled),
            (Network, 10, Error::connect(address, io())),
            (Network, 30, abandoned()),
            (Network, 30, Error::Pipe(Box::new(abandoned()))),
            (Caller, 11, file(FailCode::NotFound)),
            (Caller, 11, there(FailCode::Occupied)),
            (Machine, 11, file(FailCode::NoSpace)),
            (Peer, 11, there(FailCode::Io)),
            (Machine, 5, file(FailCode::Busy)),
            (Peer, 5, there(FailCode::NotPermitted)),
            (Peer, 24, there(FailCode::SourceChanged)),
            (Machine, 40, file(FailCode::Digest)),
            (Defect, 12, there(FailCode::Protocol)),
            (Peer, 1, there(FailCode::Cancelled)),
        ];
        let mut words = std::collections::BTreeMap::new();
        for (actor, exit, error) in rows {
            assert_eq!((error.actor(), error.exit_code()), (actor, exit), "{error}");
            let word = *words.entry(error.number()).or_insert(error.word());
            assert_eq!(word, error.word(), "{error}");
        }
        let distinct: std::collections::BTreeSet<_> = words.values().collect();
        assert_eq!(distinct.len(), words.len(), "{words:?}");
    }
}
