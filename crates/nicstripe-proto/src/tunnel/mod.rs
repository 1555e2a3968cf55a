//! Tunnels: many connections of other programs over one session, each a stream of bytes either way.
//!
//! A session that has tunnels has one **trunk**: two transfers that do not end, one each way, whose chunks are taken in order. Each chunk is a
//! parcel of [`Record`]s, and the connections share them. [`Tunnels`] is one end of a trunk: bytes that are written go into parcels,
//! connection by connection in turn; what parcels bring waits for whoever reads it.
//!
//! Each connection has a window of its own each way, which its receiver gives: one whose reader is slow stops its own writer and no other.
//! What an end holds for all of them together is bounded by [`MOST_RECEIVED`] and [`MOST_UNSENT`].

mod connection;
mod machine;
mod queue;
mod record;

pub use self::{
    machine::{Broken, LEAST_PARCEL, OpenError, TunnelError, TunnelEvent, Tunnels},
    record::{ConnId, MAX_TARGET, MAX_WHY, Record, RecordError, RecordReader, TargetRefusal},
};

#[cfg(any(test, fuzzing))]
pub(crate) use self::record::RecordWriter;

/// Most connections of a session at once.
pub const MOST_CONNECTIONS: usize = 4096;

/// Most bytes that a connection's sender may have under way: 8 MiB, what two gigabit links carry in 36 ms.
pub const MOST_WINDOW: u32 = 8 << 20;

/// The window that a connection begins with, while there is room for it: 64 KiB, as TCP's without scaling.
pub const FIRST_WINDOW: u32 = 64 << 10;

/// The window that every connection can have, however many there are: 4 KiB.
pub const LEAST_WINDOW: u32 = 4 << 10;

/// Most bytes that an end has received, or permitted the other to send, and that were not read: 48 MiB for all connections.
pub const MOST_RECEIVED: u64 = 48 << 20;

/// Most bytes that an end has taken and not sent: 16 MiB for all connections, and what one write adds to that.
pub const MOST_UNSENT: u64 = 16 << 20;

#[cfg(test)]
mod tests;
