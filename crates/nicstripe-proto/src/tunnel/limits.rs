//! Limits of the tunnel multiplexer.

/// Maximum number of concurrent tunnelled connections in a session.
pub const MOST_CONNECTIONS: usize = 4096;

/// Maximum receive window of a connection in bytes: 8 MiB, which two gigabit links transfer in 36
/// ms.
pub(crate) const MOST_WINDOW: u32 = 8 << 20;

/// Initial receive window of a connection in bytes: 64 KiB, as in TCP without window scaling. Lower
/// if memory is short.
pub(crate) const FIRST_WINDOW: u32 = 64 << 10;

/// Guaranteed receive window of each connection in bytes, for any number of connections: 4 KiB.
pub(crate) const LEAST_WINDOW: u32 = 4 << 10;

/// Maximum sum of all receive windows at one end in bytes: 48 MiB. Counts bytes that the peer may
/// still send, and received bytes that are unread.
pub(crate) const MOST_RECEIVED: u64 = 48 << 20;

/// Maximum number of written but unsent bytes at one end: 16 MiB over all connections, plus one
/// write.
pub(crate) const MOST_UNSENT: u64 = 16 << 20;
