//! What a connection begins with, and why a session ends.

use minicbor::{Decode, Encode};

use super::PeerInterface;
use crate::session::SessionId;

/// Most padding of a greeting, in bytes: a packet of 9000 and a little.
pub const MAX_PADDING: usize = 9216;

/// Body of [`crate::Frame::Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// [`VERSION`](super::VERSION) of the client.
    #[n(0)]
    pub version: u32,
    /// The session to join; the client draws a random one for a new session.
    #[n(1)]
    pub session: SessionId,
    /// Whether the session is to be made. A join of an unknown session is refused.
    #[n(2)]
    pub new: bool,
    /// The path that this connection carries, numbered by the client; one connection a path at a time.
    #[n(3)]
    pub path: u16,
    /// Name of the client's interface, for the daemon's log.
    #[n(4)]
    pub interface: Option<String>,
    /// The client's interfaces; with a new session only.
    #[n(5)]
    pub interfaces: Option<Vec<PeerInterface>>,
    /// Most that the daemon may send on this path, in bit/s.
    #[n(6)]
    pub cap_bps: Option<u64>,
    /// Bytes that mean nothing, at most [`MAX_PADDING`]: they fill a packet of the interface's MTU, to see whether it gets through. The daemon
    /// answers with as many.
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
    /// Name of the interface on which the connection arrived, if the daemon knows it.
    #[n(1)]
    pub arrival: Option<String>,
    /// The daemon's interfaces; with a new session only.
    #[n(2)]
    pub interfaces: Option<Vec<PeerInterface>>,
    /// As many bytes of padding as the hello had.
    #[cbor(n(3), with = "minicbor::bytes")]
    pub padding: Option<Vec<u8>>,
}

/// Body of [`crate::Frame::Refuse`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Refusal {
    /// What stands against it.
    #[n(0)]
    pub code: RefusalCode,
    /// The daemon's version, for [`RefusalCode::Version`].
    #[n(1)]
    pub version: u32,
    /// Sessions that the daemon has at once for this peer, for [`RefusalCode::TooManySessions`] of a session.
    #[n(2)]
    pub most: Option<u32>,
}

/// Why a daemon refuses a connection of a trusted peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum RefusalCode {
    /// The versions differ.
    #[n(0)]
    Version,
    /// A join of a session that the daemon does not have, or that belongs to another key.
    #[n(1)]
    UnknownSession,
    /// The daemon has as many sessions, or connections, as it may. A session that there is goes on without this connection.
    #[n(2)]
    TooManySessions,
    /// The daemon is shutting down.
    #[n(3)]
    ShuttingDown,
    /// A path number above [`LAST_PATH`](crate::LAST_PATH).
    #[n(4)]
    Path,
    /// The directory that the peer is to see cannot be opened.
    #[n(5)]
    Storage,
}

/// Why a session was closed in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum CloseCode {
    /// All that was asked for is done.
    Done = 0,
    /// The user or the embedding program interrupted it.
    Cancelled = 1,
    /// The process is shutting down.
    ShuttingDown = 2,
    /// The daemon trusts the client's key no longer, or lets it do less than before.
    RightsChanged = 3,
}

impl CloseCode {
    /// The code of a number; numbers of later versions read as [`CloseCode::Cancelled`].
    pub fn from_u32(code: u32) -> Self {
        match code {
            0 => Self::Done,
            2 => Self::ShuttingDown,
            3 => Self::RightsChanged,
            _ => Self::Cancelled,
        }
    }
}
