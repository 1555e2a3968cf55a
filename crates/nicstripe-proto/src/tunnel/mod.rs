//! Tunnels: connections of other programs over one session. Each connection is a byte stream in
//! both directions.
//!
//! A session has one tunnel multiplexer (mux): two endless transfers, one per direction, whose
//! chunks are consumed in order. Each chunk is a batch of records of all connections. [`Tunnels`]
//! is one end of the mux. It packs written bytes into batches, round-robin over the connections,
//! and queues received bytes for their readers.
//!
//! Each receiver grants a window per connection and direction, so that a slow reader stops only its
//! own writer. `MOST_RECEIVED` and `MOST_UNSENT` bound the memory of an end.

mod connection;
mod limits;
mod machine;
mod queue;
mod record;
mod target;

pub use self::{
    limits::MOST_CONNECTIONS,
    machine::{Broken, OpenError, TunnelError, TunnelEvent, Tunnels},
    record::{ConnId, MAX_TARGET, RecordError, TargetRefusal},
    target::Target,
};

#[cfg(any(test, fuzzing))]
pub(crate) use self::{
    limits::{MOST_RECEIVED, MOST_UNSENT, MOST_WINDOW},
    record::{Record, RecordReader, RecordWriter},
};

#[cfg(any(test, fuzzing))]
mod testing;
#[cfg(test)]
mod tests;
