//! Control messages between two peers, encoded as extensible CBOR maps.
//!
//! Map keys are small integers. A peer ignores unknown keys and reads absent ones as `None`, so a
//! new field needs no new version. A new *variant* needs a new [`VERSION`], because an older peer
//! cannot decode it.

mod bench;
mod greeting;
mod interface;
mod object;
mod open_tunnels;
mod transfer;
mod tree;
mod unsent;

use minicbor::{Decode, Encode};

pub use self::{
    bench::*, greeting::*, interface::*, object::*, open_tunnels::*, transfer::*, tree::*,
    unsent::*,
};
pub use crate::failure::FailCode;

/// Protocol version, which must be equal on both ends.
pub const VERSION: u32 = 1;

/// Control message, which travels in a frame with a sequence number.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Message {
    /// Client: requests to upload a file.
    #[n(0)]
    Put(#[n(0)] Put),
    /// Client: requests to download a file.
    #[n(1)]
    Get(#[n(0)] Get),
    /// Sender: describes the file, in answer to a [`Get`].
    #[n(2)]
    Offer(#[n(0)] Offer),
    /// Receiver: accepts the transfer and lists the chunks it already has.
    #[n(3)]
    Accept(#[n(0)] Accept),
    /// Sender: reports the digest after reading the whole source.
    #[n(4)]
    Complete(#[n(0)] Complete),
    /// Receiver: the whole file is durable under its name.
    #[n(5)]
    Committed(#[n(0)] Committed),
    /// Either side: reports that the transfer failed.
    #[n(6)]
    Fail(#[n(0)] Fail),
    /// Daemon: sends the new list of its interfaces after a change.
    #[n(7)]
    Interfaces(#[n(0)] Interfaces),
    /// Client: announces the connections it is about to make.
    #[n(8)]
    Expect(#[n(0)] Expect),
    /// Client: requests to upload a directory tree.
    #[n(9)]
    PutTree(#[n(0)] PutTree),
    /// Client: requests to download directory trees.
    #[n(10)]
    GetTree(#[n(0)] GetTree),
    /// Receiver of a tree: sends verdicts on entries, and their results.
    #[n(11)]
    Tree(#[n(0)] TreeBody),
    /// Receiver: extends the send window of a transfer.
    #[n(12)]
    Window(#[n(0)] Window),
    /// Sender: lists holes of a sparse file.
    #[n(13)]
    Holes(#[n(0)] Holes),
    /// Receiver: sends the hashes of chunks in its existing file, for a delta transfer.
    #[n(14)]
    Values(#[n(0)] Values),
    /// Sender: lists chunks that are equal on both ends, which the receiver keeps.
    #[n(15)]
    Keep(#[n(0)] Keep),
    /// Either side: message of a benchmark.
    #[n(16)]
    Bench(#[n(0)] BenchBody),
    /// Client: request to list, stat, remove, rename or create a name.
    #[n(17)]
    Ask(#[n(0)] Ask),
    /// Daemon: response to an [`Ask`].
    #[n(18)]
    Answer(#[n(0)] Answer),
    /// Client: opens the tunnel multiplexer.
    #[n(19)]
    OpenTunnels(#[n(0)] OpenTunnels),
}

#[cfg(test)]
mod tests;
