//! What two peers tell each other besides data: CBOR maps that can grow.
//!
//! A map's keys are small numbers; a peer ignores keys it does not know and takes absent ones as `None`, so a field can be added without
//! a new version. A new *variant* needs a new [`VERSION`], as an older peer cannot read it.

mod bench;
mod greeting;
mod interface;
mod object;
mod transfer;
mod tree;
mod trunk;
mod unsent;

use minicbor::{Decode, Encode};

pub use self::{
    bench::{
        BenchAdmitted, BenchAsk, BenchBody, BenchFacts, BenchInterface, BenchQueued, BenchRefusal, BenchRefused, BenchSample, CpuSample,
        DiskDone, DiskOrder, MAX_CORES, MAX_FACTS, MAX_SOCKET_BUFFER, PathSample, RunNumber, RunOrder, RunReady, SAMPLE_INTERVALS,
        TcpSample,
    },
    greeting::{CloseCode, Hello, MAX_PADDING, Refusal, RefusalCode, Welcome},
    interface::{Expect, Expected, Interfaces, Ipv4Settings, MAX_EXPECTED, PeerAddress, PeerInterface, Token},
    object::{Answer, AnswerKind, Ask, AskKind, GetRange, MOST_ANSWER, MOST_ASKS, MOST_ENTRIES, ObjectEntry, ObjectKind, ObjectStat},
    transfer::{Accept, Committed, Complete, Fail, FailCode, Get, Have, MAX_HAVE, Offer, OfferKind, Put, PutOptions, StreamReport, Window},
    tree::{EntryRef, GetTree, MOST_SOURCES, PutTree, TreeBody, TreeSource, WalkRules},
    trunk::Trunk,
    unsent::{Holes, Keep, MAX_KEEP, MAX_VALUES, Values},
};

/// Version of the protocol; both ends must have the same.
pub const VERSION: u32 = 1;

/// A numbered control message.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Message {
    /// Client: take this file.
    #[n(0)]
    Put(#[n(0)] Put),
    /// Client: give me this file.
    #[n(1)]
    Get(#[n(0)] Get),
    /// Sender, in answer to a [`Get`]: this is what I have.
    #[n(2)]
    Offer(#[n(0)] Offer),
    /// Receiver: send it, all but what I have.
    #[n(3)]
    Accept(#[n(0)] Accept),
    /// Sender: all was read, and this is its digest.
    #[n(4)]
    Complete(#[n(0)] Complete),
    /// Receiver: the whole file is durable under its name.
    #[n(5)]
    Committed(#[n(0)] Committed),
    /// Either side: the transfer failed here.
    #[n(6)]
    Fail(#[n(0)] Fail),
    /// Daemon: my interfaces have changed, and are these now.
    #[n(7)]
    Interfaces(#[n(0)] Interfaces),
    /// Client: connections will come like this; let them in.
    #[n(8)]
    Expect(#[n(0)] Expect),
    /// Client: take this tree.
    #[n(9)]
    PutTree(#[n(0)] PutTree),
    /// Client: give me these trees.
    #[n(10)]
    GetTree(#[n(0)] GetTree),
    /// Receiver of a tree: this is what becomes of it.
    #[n(11)]
    Tree(#[n(0)] TreeBody),
    /// Receiver: I have room for more.
    #[n(12)]
    Window(#[n(0)] Window),
    /// Sender: these parts of the file are holes.
    #[n(13)]
    Holes(#[n(0)] Holes),
    /// Receiver: these are the values of chunks of the file that the name has here.
    #[n(14)]
    Values(#[n(0)] Values),
    /// Sender: these chunks are the same here; keep them.
    #[n(15)]
    Keep(#[n(0)] Keep),
    /// Either side: something of a bench.
    #[n(16)]
    Bench(#[n(0)] BenchBody),
    /// Client: something about names.
    #[n(17)]
    Ask(#[n(0)] Ask),
    /// Daemon: what became of an [`Ask`].
    #[n(18)]
    Answer(#[n(0)] Answer),
    /// Client: let us have tunnels.
    #[n(19)]
    Trunk(#[n(0)] Trunk),
}

/// Whether an option is left out of a message.
pub(crate) fn is_unset(option: &bool) -> bool {
    !option
}

#[cfg(test)]
mod tests;
