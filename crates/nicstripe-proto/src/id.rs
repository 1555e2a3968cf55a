//! Identities of sessions, paths and transfers, and the roles of the two ends.

use minicbor::{Decode, Encode};

/// Identity of a session: 128 random bits. The identity is not secret; keys determine who may join
/// a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct SessionId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

/// ID of a transfer within its session. The client assigns IDs in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct TransferId(#[n(0)] pub u32);

/// Role of an end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// End that connects, assigns IDs to paths and transfers, and retries failed paths.
    Client,
    /// End that accepts connections.
    Daemon,
}

/// ID of a path within a session, chosen by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct PathId(#[n(0)] pub u16);

/// Highest path ID. With 64 paths of 8 MiB each, a peer can occupy at most 512 MiB of memory.
pub const LAST_PATH: PathId = PathId(63);
