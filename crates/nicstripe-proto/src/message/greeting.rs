//! Handshake messages of a connection, and close codes of a session.

use minicbor::{Decode, Encode};

use super::PeerInterface;
use crate::session::SessionId;

/// Most padding of a handshake message, in bytes; fills a packet of 9000 bytes.
pub const MAX_PADDING: usize = 9216;

/// Body of [`crate::Frame::Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// [`VERSION`](super::VERSION) of the client.
    #[n(0)]
    pub version: u32,
    /// Session to join; the client draws a random ID for a new session.
    #[n(1)]
    pub session: SessionId,
    /// True to create the session. The daemon rejects a join of an unknown session.
    #[n(2)]
    pub new: bool,
    /// Path that this connection carries, numbered by the client; one connection per path at a
    /// time.
    #[n(3)]
    pub path: u16,
    /// Name of the client's interface, for the daemon's log.
    #[n(4)]
    pub interface: Option<String>,
    /// The client's interfaces; only with a new session.
    #[n(5)]
    pub interfaces: Option<Vec<PeerInterface>>,
    /// Highest rate at which the daemon may send on this path, in bit/s.
    #[n(6)]
    pub cap_bps: Option<u64>,
    /// Padding without meaning, at most [`MAX_PADDING`] bytes. It fills a packet of the interface's
    /// MTU to test whether that size gets through. The daemon answers with the same number of
    /// bytes.
    #[cbor(n(7), with = "minicbor::bytes")]
    pub padding: Option<Vec<u8>>,
}

/// Body of [`crate::Frame::Welcome`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Welcome {
    /// [`VERSION`](super::VERSION) of the daemon.
    #[n(0)]
    pub version: u32,
    /// Name of the interface on which the connection arrived, if known.
    #[n(1)]
    pub arrival: Option<String>,
    /// The daemon's interfaces; only with a new session.
    #[n(2)]
    pub interfaces: Option<Vec<PeerInterface>>,
    /// Padding, as many bytes as in the [`Hello`].
    #[cbor(n(3), with = "minicbor::bytes")]
    pub padding: Option<Vec<u8>>,
}

/// Body of [`crate::Frame::Refuse`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Refusal {
    /// Reason for the rejection.
    #[n(0)]
    pub code: RefusalCode,
    /// The daemon's version, for [`RefusalCode::Version`].
    #[n(1)]
    pub version: u32,
    /// The daemon's limit of concurrent sessions for this peer, if [`RefusalCode::TooManySessions`]
    /// rejects a session.
    #[n(2)]
    pub most: Option<u32>,
}

/// Reason why a daemon rejects a connection of a trusted peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum RefusalCode {
    /// The versions differ.
    #[n(0)]
    Version,
    /// The session does not exist or belongs to another key.
    #[n(1)]
    UnknownSession,
    /// The limit of sessions or connections is reached. An existing session continues without this
    /// connection.
    #[n(2)]
    TooManySessions,
    /// The daemon is shutting down.
    #[n(3)]
    ShuttingDown,
    /// The path number exceeds [`LAST_PATH`](crate::LAST_PATH).
    #[n(4)]
    Path,
    /// The peer's root directory cannot be opened.
    #[n(5)]
    Storage,
}

/// Reason for an orderly close of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum CloseCode {
    /// All requested work is done.
    Done = 0,
    /// The user or the embedding program interrupted the session.
    Cancelled = 1,
    /// The process is shutting down.
    ShuttingDown = 2,
    /// The daemon no longer trusts the client's key, or has reduced its rights.
    RightsChanged = 3,
}

impl CloseCode {
    /// Returns the code with this number; unknown numbers read as [`CloseCode::Cancelled`].
    pub fn from_u32(code: u32) -> Self {
        match code {
            0 => Self::Done,
            2 => Self::ShuttingDown,
            3 => Self::RightsChanged,
            _ => Self::Cancelled,
        }
    }
}
