//! Errors of invitations.

use std::{fmt, io, net::SocketAddr, time::Duration};

use nicstripe_proto::{invitation::Number, name::printable};

use super::{super::bootstrap::BootstrapError, channel::ChannelError};
use crate::{
    report::error::{Error, seconds},
    trust::PublicKey,
    wire::tls::TlsError,
};

/// Failure of an invitation, at either end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvitationError {
    /// The code was not proved: one of the users mistyped it, or a third party tried it. The
    /// invitation has ended. Remedy: open a new one.
    #[error("the code is wrong or someone else tried it: start again with a new one")]
    WrongCode,
    /// No machine on the cables answered for the number. Remedy: check that the other machine still
    /// waits and that a cable joins both, or name its host.
    #[error(
        "no machine answers for invitation {number} on {}{}",
        listed(interfaces),
        left_out(excluded)
    )]
    Nobody {
        /// Number of the code.
        number: Number,
        /// Names of the interfaces that were asked on.
        interfaces: Vec<String>,
        /// Names of the interfaces that were excluded by option.
        excluded: Vec<String>,
    },
    /// Two keys answered for the number. No guess was spent. Remedy: open a new invitation, or
    /// name the host.
    #[error(
        "two machines answer for invitation {number}: {first} and {second}: start again with a new code"
    )]
    TwoMachines {
        /// Number of the code.
        number: Number,
        /// First machine that answered.
        first: Box<FoundInviter>,
        /// Other machine that answered.
        second: Box<FoundInviter>,
    },
    /// No code was proved in the lifetime of the invitation. Remedy: open a new one.
    #[error("the code was not used within {} s: start again with a new one", seconds(*lifetime))]
    Expired {
        /// Lifetime of the invitation.
        lifetime: Duration,
    },
    /// Too many connections ended without a proof of the code. Remedy: find out who connects, and
    /// open a new invitation.
    #[error(
        "{most} connections ended without a proof of the code, the last from {last}: start again with a new code"
    )]
    TooManyConnections {
        /// Maximum number of connections of one invitation.
        most: usize,
        /// Address of the last of them.
        last: SocketAddr,
    },
    /// The invitation at the address has another number. No guess was spent. Remedy: check number
    /// and host.
    #[error("the invitation at {address} has another number than the code")]
    OtherNumber {
        /// Address of the peer.
        address: SocketAddr,
    },
    /// The code is the one of this machine and user. Remedy: type it at the other machine.
    #[error("the invitation at {address} is our own: use the code on the other machine")]
    Own {
        /// Address of the invitation.
        address: SocketAddr,
    },
    /// One end wants to pair, the other to copy once. Remedy: use matching commands.
    #[error(
        "{address} uses the code for another purpose than this machine: start again with matching commands"
    )]
    OtherPurpose {
        /// Address of the peer.
        address: SocketAddr,
    },
    /// The peer ended the exchange on purpose. Remedy: see its message, and open a new invitation.
    #[error(
        "{address} stopped the exchange: see its message there, and start again with a new code"
    )]
    Stopped {
        /// Address of the peer.
        address: SocketAddr,
    },
    /// The user of the other machine does not want the files. Remedy: ask there.
    #[error("{address} declined the files")]
    Declined {
        /// Address of the peer.
        address: SocketAddr,
    },
    /// The other machine has files of all offered names. Remedy: move them away there.
    #[error("{address} has files of all these names already, and replaces none")]
    Exists {
        /// Address of the peer.
        address: SocketAddr,
    },
    /// The offered files have too many or too long names. Remedy: send their directory.
    #[error(
        "{items} files and directories are too many for one offer: send a directory that has them"
    )]
    TooMany {
        /// Number of files and directories.
        items: usize,
    },
    /// The other machine cannot serve the copy.
    #[error("the other machine cannot receive: {0}")]
    Bootstrap(#[from] BootstrapError),
    /// The code was proved and this machine's part is done, but the peer has not reported its own.
    /// Remedy: check whether the peer has stored the key.
    #[error(
        "{} did not confirm that it stored our key: check there, or start again with a new code",
        named(host)
    )]
    Unfinished {
        /// Host name of the peer, escaped.
        host: String,
    },
    /// No connection to the other machine. Remedy: check host, port and cables.
    #[error("cannot connect to {address}: is the other machine still waiting?")]
    Connect {
        /// Address of the last attempt.
        address: SocketAddr,
        /// Error of the operating system for that attempt.
        #[source]
        source: io::Error,
    },
    /// The address accepts connections, but shows no invitation: a daemon or another program. No
    /// guess was spent. Remedy: check host and port.
    #[error("no invitation waits at {address}: check host and port, and the other machine")]
    NotWaiting {
        /// Address of the peer.
        address: SocketAddr,
    },
    /// The connection ended before the exchange was complete. Remedy: start again.
    #[error("connection to {address} ended during the exchange: start again with a new code")]
    Lost {
        /// Address of the peer.
        address: SocketAddr,
    },
    /// The peer did not complete the exchange in time. Remedy: start again with a new code.
    #[error("{address} did not complete the exchange in {} s: start again with a new code", seconds(*waited))]
    TimedOut {
        /// Address of the peer.
        address: SocketAddr,
        /// Time that the exchange was given.
        waited: Duration,
    },
    /// The peer does not speak this protocol. Remedy: check port and versions.
    #[error("{address} does not speak the protocol of invitations: {}", printable(why.as_bytes()))]
    Protocol {
        /// Address of the peer.
        address: SocketAddr,
        /// Violation of the protocol.
        why: String,
    },
    /// The invitation cannot be opened, or the search not be started.
    #[error(transparent)]
    System(#[from] Error),
}

/// Inviter that answered for a number.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundInviter {
    /// Public key of the inviter.
    pub key: PublicKey,
    /// Host name claimed by the inviter, escaped; may be empty. Not proved.
    pub host: String,
    /// Name of the local interface on which the answer arrived.
    pub interface: String,
}

impl fmt::Display for FoundInviter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, interface) = (named(&self.host), &self.interface);
        write!(f, "{host} on {interface} (key {})", self.key.fingerprint())
    }
}

impl InvitationError {
    /// Converts an error of an open connection.
    pub(super) fn from_channel(address: SocketAddr, error: ChannelError) -> Self {
        match error {
            ChannelError::Tls(error) => Self::from_tls(address, error),
            ChannelError::Closed => Self::Lost { address },
            error => Self::Protocol {
                address,
                why: crate::text::chain(&error),
            },
        }
    }

    /// Converts an error of the joiner's TLS handshake, which had `limit`. A peer that is no inviter
    /// closes without a byte.
    pub(super) fn from_handshake(address: SocketAddr, error: TlsError, limit: Duration) -> Self {
        match error {
            TlsError::Io { .. }
            | TlsError::Truncated
            | TlsError::OtherProtocol
            | TlsError::NotTls(_)
            | TlsError::Alert(_) => Self::NotWaiting { address },
            TlsError::TimedOut => Self::TimedOut {
                address,
                waited: limit,
            },
            error => Self::from_tls(address, error),
        }
    }

    pub(super) fn from_tls(address: SocketAddr, error: TlsError) -> Self {
        match error {
            TlsError::Io { .. } | TlsError::ClosedAtKey(_) | TlsError::Truncated => {
                Self::Lost { address }
            }
            error => Self::Protocol {
                address,
                why: crate::text::chain(&error),
            },
        }
    }
}

fn listed(interfaces: &[String]) -> String {
    match interfaces {
        [] => "any interface".to_owned(),
        names => names.join(", "),
    }
}

fn left_out(excluded: &[String]) -> String {
    match excluded {
        [] => String::new(),
        names => format!(" (excluded: {})", names.join(", ")),
    }
}

fn named(host: &str) -> &str {
    if host.is_empty() {
        "a machine without a name"
    } else {
        host
    }
}
