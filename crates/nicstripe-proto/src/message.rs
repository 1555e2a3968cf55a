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
    bench::{
        BenchAdmitted, BenchAsk, BenchBody, BenchFacts, BenchInterface, BenchQueued, BenchRefusal,
        BenchRefused, BenchSample, CpuSample, DiskDone, DiskOrder, MAX_CORES, MAX_FACTS,
        MAX_SOCKET_BUFFER, PathSample, RunNumber, RunOrder, RunReady, SAMPLE_INTERVALS, TcpSample,
    },
    greeting::{CloseCode, Hello, MAX_PADDING, Refusal, RefusalCode, Welcome},
    interface::{
        Expect, Expected, Interfaces, Ipv4Settings, MAX_EXPECTED, PeerAddress, PeerInterface, Token,
    },
    object::{
        Answer, AnswerKind, Ask, AskKind, GetRange, MOST_ANSWER, MOST_ASKS, MOST_ENTRIES,
        ObjectEntry, ObjectKind, ObjectStat,
    },
    open_tunnels::OpenTunnels,
    transfer::{
        Accept, Committed, Complete, Fail, FailCode, Get, Have, MAX_HAVE, Offer, OfferKind, Put,
        PutOptions, StreamReport, Window,
    },
    tree::{EntryRef, GetTree, MOST_SOURCES, PutTree, TreeBody, TreeSource, WalkRules},
    unsent::{Holes, Keep, MAX_KEEP, MAX_VALUES, Values},
};

/// Protocol version; must be equal on both ends.
pub const VERSION: u32 = 1;

/// A numbered control message.
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
    /// Sender: the source is read completely; carries its digest.
    #[n(4)]
    Complete(#[n(0)] Complete),
    /// Receiver: the whole file is durable under its name.
    #[n(5)]
    Committed(#[n(0)] Committed),
    /// Either side: the transfer failed locally.
    #[n(6)]
    Fail(#[n(0)] Fail),
    /// Daemon: its interfaces have changed; carries the new list.
    #[n(7)]
    Interfaces(#[n(0)] Interfaces),
    /// Client: announces the connections it is about to make.
    #[n(8)]
    Expect(#[n(0)] Expect),
    /// Client: requests to upload a tree.
    #[n(9)]
    PutTree(#[n(0)] PutTree),
    /// Client: requests to download trees.
    #[n(10)]
    GetTree(#[n(0)] GetTree),
    /// Receiver of a tree: verdicts and results of entries.
    #[n(11)]
    Tree(#[n(0)] TreeBody),
    /// Receiver: extends the send window.
    #[n(12)]
    Window(#[n(0)] Window),
    /// Sender: lists the holes of a file.
    #[n(13)]
    Holes(#[n(0)] Holes),
    /// Receiver: hashes of the chunks in its existing file.
    #[n(14)]
    Values(#[n(0)] Values),
    /// Sender: lists chunks that are equal on both ends and are not sent.
    #[n(15)]
    Keep(#[n(0)] Keep),
    /// Either side: part of a benchmark.
    #[n(16)]
    Bench(#[n(0)] BenchBody),
    /// Client: a request about names.
    #[n(17)]
    Ask(#[n(0)] Ask),
    /// Daemon: the response to an [`Ask`].
    #[n(18)]
    Answer(#[n(0)] Answer),
    /// Client: opens the tunnel multiplexer.
    #[n(19)]
    OpenTunnels(#[n(0)] OpenTunnels),
}

/// Returns true if the option is encoded by its absence.
pub(crate) fn is_unset(option: &bool) -> bool {
    !option
}

#[cfg(test)]
mod tests;
