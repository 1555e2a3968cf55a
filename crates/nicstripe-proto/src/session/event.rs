//! What a session asks of, and tells, whoever drives it.

use std::time::Duration;

use crate::{
    extent::ChunkId,
    frame::Frame,
    hash_tree::Digest,
    hash_tree::Subtree,
    hole::HoleMap,
    load::LoadOrder,
    message::{Answer, Ask, BenchBody, CloseCode, Complete, Expected, Fail, Get, GetTree, Offer, PeerInterface, Put, PutTree, Trunk},
    path::{PathId, PathLoss, PathState},
    session::TransferId,
    tree::TreeMessage,
};

/// One thing to put on a path's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transmit {
    /// A frame, ready to be encoded.
    Frame(Frame),
    /// A chunk: read it, then ask [`crate::Session::handle_chunk_read`] for the frame that carries it.
    Chunk {
        /// The transfer.
        transfer: TransferId,
        /// The chunk.
        chunk: ChunkId,
    },
    /// From here on the connection sends this by itself, whenever it has nothing else to send; `None`: nothing any more.
    Load(Option<LoadOrder>),
}

/// What a session asks of, or tells, its driver.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Client only: connect this path (again), then call [`crate::Session::handle_path_open`] or [`crate::Session::handle_path_lost`].
    Connect(PathId),
    /// Close this path's connection; it was given up.
    Disconnect(PathId),
    /// A path's state changed.
    PathChanged {
        /// The path.
        path: PathId,
        /// Its new state.
        state: PathState,
        /// Why, where it lost its connection.
        loss: Option<PathLoss>,
    },
    /// What a path brought was damaged, so that it was given up. It is connected again, and carries no data for `pause` as long as another
    /// path can.
    Damaged {
        /// The path.
        path: PathId,
        /// How often this has happened in the session.
        times: u32,
        /// How long it carries no data; 0 at the first time.
        pause: Duration,
    },
    /// The peer wants to put a file here: open the target, then call [`crate::Session::accept`] or [`crate::Session::fail`].
    PutRequested(Put),
    /// The peer wants a file: open the source, then call [`crate::Session::offer`] or [`crate::Session::fail`].
    GetRequested(Get),
    /// The peer wants to put a tree here: call [`crate::Session::accept`] with room, or [`crate::Session::fail`].
    TreePutRequested(PutTree),
    /// The peer wants trees: call [`crate::Session::offer`], or [`crate::Session::fail`].
    TreeRequested(GetTree),
    /// The peer wants tunnels: call [`crate::Session::accept`] with room for the one transfer and [`crate::Session::offer`] parcels for the
    /// other, or [`crate::Session::fail`] for both.
    TrunkRequested(Trunk),
    /// The receiver of a tree tells its sender something.
    TreeTold {
        /// The tree's transfer.
        transfer: TransferId,
        /// What it tells.
        message: TreeMessage,
    },
    /// The file that was asked for can be had: open the target, then call [`crate::Session::accept`] or [`crate::Session::fail`].
    Offered(Offer),
    /// The receiver is ready; so many bytes of the file are durable there already.
    Accepted {
        /// The transfer.
        transfer: TransferId,
        /// Bytes that need not be sent.
        resumed_bytes: u64,
        /// Of a tree: bytes of memory that the receiver has for entries, where it says so.
        memory: Option<u64>,
    },
    /// A path need not send this chunk any more; what was not begun may be dropped.
    Superseded {
        /// The path.
        path: PathId,
        /// The transfer.
        transfer: TransferId,
        /// The chunk.
        chunk: ChunkId,
    },
    /// A chunk that was given by [`crate::Session::give`] has arrived and need not be kept.
    Released {
        /// The transfer.
        transfer: TransferId,
        /// The chunk.
        chunk: ChunkId,
    },
    /// Make the data written so far durable, then append these to the journal, then call [`crate::Session::handle_synced`].
    Sync {
        /// The transfer.
        transfer: TransferId,
        /// What is durable afterwards.
        subtrees: Vec<Subtree>,
    },
    /// These parts of the file are holes: see to it that nothing is there but zeros, then call [`crate::Session::handle_holes_made`].
    Holes {
        /// The transfer.
        transfer: TransferId,
        /// All of its holes.
        holes: HoleMap,
    },
    /// All of the source was read: check that it did not change, then call [`crate::Session::complete`] or [`crate::Session::fail`].
    SourceRead {
        /// The transfer.
        transfer: TransferId,
        /// Its digest.
        digest: Digest,
    },
    /// The sender told its digest and what its kernel said of the paths.
    Completed(Complete),
    /// All is written and both ends have the same digest: make it durable under its name, then call [`crate::Session::committed`].
    Commit {
        /// The transfer.
        transfer: TransferId,
        /// The digest of both ends.
        digest: Digest,
    },
    /// All is written, but it is not what was sent: discard it, then call [`crate::Session::fail`].
    Mismatch {
        /// The transfer.
        transfer: TransferId,
        /// What the receiver has.
        received: Digest,
        /// What the sender read.
        sent: Digest,
    },
    /// The receiver has made the whole file durable.
    Committed {
        /// The transfer.
        transfer: TransferId,
        /// Its digest.
        digest: Digest,
    },
    /// The transfer failed at the peer.
    Failed(Fail),
    /// The peer says something of a bench. On [`BenchBody::Stop`]: take the last sample, call [`crate::Session::end_run`] and tell that it
    /// is stopped.
    Bench(BenchBody),
    /// Daemon only: the client asks this; call [`crate::Session::answer`].
    Asked(Ask),
    /// Client only: the daemon answers what was asked.
    Answered(Answer),
    /// Client only: the daemon's interfaces have changed.
    PeerInterfaces(Vec<PeerInterface>),
    /// Daemon only: connections will come from these addresses.
    Expected(Vec<Expected>),
    /// No path has had a connection for as long as the session may wait.
    Abandoned,
    /// The peer has closed the session.
    Closed(CloseCode),
}
