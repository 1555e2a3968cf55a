//! Tunnels: TCP connections of other programs over one session, each a byte stream in both
//! directions.
//!
//! A session has one tunnel multiplexer (mux): two endless transfers, one per direction, whose
//! chunks are consumed in order. Each chunk is a batch of [`Record`]s of all connections.
//! [`Tunnels`] is one end of the mux: it packs written bytes into batches, round-robin over the
//! connections, and queues received bytes for their readers.
//!
//! Each receiver grants a window per connection and direction, so that a slow reader stops only its
//! own writer. [`MOST_RECEIVED`] and [`MOST_UNSENT`] bound the memory of an end.

mod connection;
mod machine;
mod queue;
mod record;

pub use self::{
    machine::{Broken, LEAST_BATCH, OpenError, TunnelError, TunnelEvent, Tunnels},
    record::{ConnId, MAX_TARGET, MAX_WHY, Record, RecordError, RecordReader, TargetRefusal},
};

#[cfg(any(test, fuzzing))]
pub(crate) use self::record::RecordWriter;

/// Maximum number of concurrent tunnelled connections in a session.
pub const MOST_CONNECTIONS: usize = 4096;

/// Maximum receive window of a connection in bytes: 8 MiB, which two gigabit links carry in 36 ms.
pub const MOST_WINDOW: u32 = 8 << 20;

/// Initial receive window of a connection in bytes, unless memory is short: 64 KiB, as in TCP
/// without window scaling.
pub const FIRST_WINDOW: u32 = 64 << 10;

/// Guaranteed receive window of every connection in bytes, whatever their number: 4 KiB.
pub const LEAST_WINDOW: u32 = 4 << 10;

/// Maximum sum of receive windows at one end in bytes: 48 MiB over all connections, unread or still
/// permitted.
pub const MOST_RECEIVED: u64 = 48 << 20;

/// Maximum number of bytes that are written and not sent at one end: 16 MiB over all connections,
/// plus one write.
pub const MOST_UNSENT: u64 = 16 << 20;

#[cfg(test)]
mod tests;
