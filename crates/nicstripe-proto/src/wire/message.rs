//! Control messages between two peers, encoded as extensible CBOR maps.
//!
//! Map keys are small integers. A peer ignores unknown keys and decodes absent keys as `None`, so a
//! new field needs no new version. A new *variant* needs a new [`VERSION`], because an older peer
//! cannot decode it.

mod bench;
mod exec;
mod features;
mod fetch;
mod greeting;
mod interface;
mod object;
mod open_tunnels;
mod transfer;
mod tree;
mod unsent;

use minicbor::{Decode, Encode};

pub use self::{
    bench::*, exec::*, features::*, fetch::*, greeting::*, interface::*, object::*,
    open_tunnels::*, transfer::*, tree::*, unsent::*,
};
pub use crate::failure::FailCode;

/// Protocol version. Both ends must have the same one.
pub const VERSION: u32 = 1;

/// Control message. Travels in a frame with a sequence number.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Message {
    /// Client's request to upload a file.
    #[n(0)]
    Put(#[n(0)] Put),
    /// Client's request to download a file.
    #[n(1)]
    Get(#[n(0)] Get),
    /// Sender's description of the file, in answer to a [`Get`].
    #[n(2)]
    Offer(#[n(0)] Offer),
    /// Receiver's acceptance of the transfer, with the chunks that it already has.
    #[n(3)]
    Accept(#[n(0)] Accept),
    /// Sender's report of the digest, after it has read the whole source.
    #[n(4)]
    Complete(#[n(0)] Complete),
    /// Receiver's report that the whole file is durable under its final name.
    #[n(5)]
    Committed(#[n(0)] Committed),
    /// Report of either end that the transfer failed.
    #[n(6)]
    Fail(#[n(0)] Fail),
    /// Daemon's new list of interfaces, after a change.
    #[n(7)]
    Interfaces(#[n(0)] Interfaces),
    /// Client's announcement of connections that it is about to make.
    #[n(8)]
    Expect(#[n(0)] Expect),
    /// Client's request to upload a directory tree.
    #[n(9)]
    PutTree(#[n(0)] PutTree),
    /// Client's request to download directory trees.
    #[n(10)]
    GetTree(#[n(0)] GetTree),
    /// Tree receiver's verdicts on entries, and the results of the entries.
    #[n(11)]
    Tree(#[n(0)] TreeBody),
    /// Receiver's extension of a transfer's send window.
    #[n(12)]
    Window(#[n(0)] Window),
    /// Sender's list of holes in a sparse file.
    #[n(13)]
    Holes(#[n(0)] Holes),
    /// Receiver's hashes of chunks in its existing file, for a delta transfer.
    #[n(14)]
    Values(#[n(0)] Values),
    /// Sender's list of chunks that are equal at both ends. The receiver keeps these chunks.
    #[n(15)]
    Keep(#[n(0)] Keep),
    /// Benchmark message of either end.
    #[n(16)]
    Bench(#[n(0)] BenchBody),
    /// Client's request to list, stat, remove, rename or create a name.
    #[n(17)]
    Ask(#[n(0)] Ask),
    /// Daemon's answer to an [`Ask`].
    #[n(18)]
    Answer(#[n(0)] Answer),
    /// Client's request to open the tunnel multiplexer.
    #[n(19)]
    OpenTunnels(#[n(0)] OpenTunnels),
    /// Client's request to run a command.
    #[n(20)]
    Exec(#[n(0)] Exec),
}

#[cfg(test)]
mod tests;
