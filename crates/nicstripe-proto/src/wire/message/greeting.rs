//! Handshake messages of a connection (hello, welcome and refusal), and the close codes of a
//! session.

use minicbor::{Decode, Encode};

use super::{features::Features, interface::PeerInterface};
use crate::id::SessionId;

/// Maximum padding of a handshake message in bytes. Suffices to fill a packet of 9000 bytes.
pub const MAX_PADDING: usize = 9216;

/// Maximum length in bytes of the root in a [`Welcome`]: the kernel's limit of a path.
pub const MAX_ROOT: usize = 4096;

/// First message of a client on a connection. Body of [`crate::Frame::Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// Protocol [`VERSION`](super::VERSION) of the client.
    #[n(0)]
    pub version: u32,
    /// ID of the session to create or join. The client chooses a random ID for a new session.
    #[n(1)]
    pub session: SessionId,
    /// True to create the session, false to join it. The daemon rejects the connection if the
    /// session to join is unknown.
    #[n(2)]
    pub new: bool,
    /// ID of the connection's path, chosen by the client. A path has one connection at a time.
    #[n(3)]
    pub path: u16,
    /// Name of the client's interface, for the daemon's log; `None` if unknown.
    #[n(4)]
    pub interface: Option<String>,
    /// The client's interfaces; `None` when joining a session.
    #[n(5)]
    pub interfaces: Option<Vec<PeerInterface>>,
    /// Maximum rate at which the daemon may send on this path, in bit/s; `None` for no limit.
    #[n(6)]
    pub cap_bps: Option<u64>,
    /// Padding without meaning, at most [`MAX_PADDING`] bytes. The padding fills a packet of the
    /// interface's MTU, to test whether such a packet arrives. The daemon answers with the same
    /// number of bytes. `None` for no test.
    #[cbor(n(7), with = "minicbor::bytes")]
    pub padding: Option<Vec<u8>>,
    /// Features that the client supports; `None` when joining a session, and from older clients.
    #[n(8)]
    pub features: Option<Features>,
    /// Version of the client's program, for messages; `None` as for `features`.
    #[n(9)]
    pub program: Option<String>,
    /// Maximum rate at which the daemon may send over all paths of a new session, in bit/s; `None`
    /// for no limit, and when joining a session.
    #[n(10)]
    pub limit_bps: Option<u64>,
}

/// Daemon's acceptance of a connection. Body of [`crate::Frame::Welcome`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Welcome {
    /// Protocol [`VERSION`](super::VERSION) of the daemon.
    #[n(0)]
    pub version: u32,
    /// Name of the daemon's interface on which the connection arrived; `None` if unknown.
    #[n(1)]
    pub arrival: Option<String>,
    /// The daemon's interfaces; `None` when the client joins a session.
    #[n(2)]
    pub interfaces: Option<Vec<PeerInterface>>,
    /// Padding without meaning, with as many bytes as the padding of the [`Hello`]; `None` if that
    /// has none.
    #[cbor(n(3), with = "minicbor::bytes")]
    pub padding: Option<Vec<u8>>,
    /// Absolute path of the directory that the daemon serves to this key, at most [`MAX_ROOT`]
    /// bytes. `None` when the client joins a session, and for storage without a path.
    #[cbor(n(4), with = "minicbor::bytes")]
    pub root: Option<Vec<u8>>,
    /// Features that the daemon supports; `None` when the client joins a session, and from older
    /// daemons.
    #[n(5)]
    pub features: Option<Features>,
    /// Version of the daemon's program, for messages; `None` as for `features`.
    #[n(6)]
    pub program: Option<String>,
}

/// Daemon's rejection of a connection. Body of [`crate::Frame::Refuse`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Refusal {
    /// Reason for the rejection.
    #[n(0)]
    pub code: RefusalCode,
    /// Protocol version of the daemon, for [`RefusalCode::Version`].
    #[n(1)]
    pub version: u32,
    /// Maximum number of concurrent sessions that the daemon permits this peer; `None` if the
    /// rejection has another reason.
    #[n(2)]
    pub most: Option<u32>,
}

/// Reason why a daemon rejects a connection from a trusted peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum RefusalCode {
    /// The protocol versions of client and daemon differ.
    #[n(0)]
    Version,
    /// The session to join does not exist or belongs to another key.
    #[n(1)]
    UnknownSession,
    /// The limit of sessions or connections is reached. An existing session continues, without the
    /// rejected connection.
    #[n(2)]
    TooManySessions,
    /// The daemon is shutting down.
    #[n(3)]
    ShuttingDown,
    /// The path ID exceeds [`LAST_PATH`](crate::LAST_PATH).
    #[n(4)]
    Path,
    /// The daemon cannot open the peer's root directory.
    #[n(5)]
    Storage,
}

/// Reason for the orderly close of a session by one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum CloseCode {
    /// All requested transfers are complete.
    Done = 0,
    /// The user or the embedding program interrupted the session.
    Cancelled = 1,
    /// The process of this end is shutting down.
    ShuttingDown = 2,
    /// The daemon no longer trusts the client's key, or has reduced the client's rights.
    RightsChanged = 3,
}

impl CloseCode {
    /// Returns the close code with the number `code`; [`CloseCode::Cancelled`] if the number is
    /// unknown.
    pub fn from_u32(code: u32) -> Self {
        match code {
            0 => Self::Done,
            2 => Self::ShuttingDown,
            3 => Self::RightsChanged,
            _ => Self::Cancelled,
        }
    }
}
