//! Outputs of a session to its driver.

use std::time::Duration;

use crate::{
    extent::ChunkId,
    frame::Frame,
    hash_tree::Digest,
    hash_tree::Subtree,
    hole::HoleMap,
    load::LoadOrder,
    message::{
        Answer, Ask, BenchBody, CloseCode, Complete, Expected, Fail, Get, GetTree, Offer,
        OpenTunnels, PeerInterface, Put, PutTree,
    },
    path::{PathId, PathLoss, PathState},
    session::TransferId,
    tree::TreeMessage,
};

/// One item to send on a path's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transmit {
    /// A frame, ready to be encoded.
    Frame(Frame),
    /// A chunk: read it, then call [`crate::Session::handle_chunk_read`] for its data frame.
    Chunk {
        /// The transfer.
        transfer: TransferId,
        /// The chunk.
        chunk: ChunkId,
    },
    /// Load to send whenever the connection is otherwise idle; `None` stops it.
    Load(Option<LoadOrder>),
}

/// A request or notification to the driver of a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Client only: connect or reconnect this path, then call [`crate::Session::handle_path_open`]
    /// or [`crate::Session::handle_path_lost`].
    Connect(PathId),
    /// Close the connection of this path, which was given up.
    Disconnect(PathId),
    /// A path's state changed.
    PathChanged {
        /// The path.
        path: PathId,
        /// Its new state.
        state: PathState,
        /// Reason, if it lost its connection.
        loss: Option<PathLoss>,
    },
    /// A path delivered damaged data. It is reconnected, but carries no data for `pause` while
    /// another path can.
    Damaged {
        /// The path.
        path: PathId,
        /// Number of damages on this path in the session.
        times: u32,
        /// Time without data; 0 for the first damage.
        pause: Duration,
    },
    /// Incoming file: open the target, then call [`crate::Session::accept`] or
    /// [`crate::Session::fail`].
    PutRequested(Put),
    /// Requested file: open the source, then call [`crate::Session::offer`] or
    /// [`crate::Session::fail`].
    GetRequested(Get),
    /// Incoming tree: call [`crate::Session::accept`] with room, or [`crate::Session::fail`].
    TreePutRequested(PutTree),
    /// Requested trees: call [`crate::Session::offer`] or [`crate::Session::fail`].
    TreeRequested(GetTree),
    /// Requested tunnels: call [`crate::Session::accept`] with room for one transfer and
    /// [`crate::Session::offer`] batches for the other, or [`crate::Session::fail`] for both.
    TunnelsRequested(OpenTunnels),
    /// Message from the receiver of a tree to its sender.
    TreeMessageReceived {
        /// The tree's transfer.
        transfer: TransferId,
        /// The message.
        message: TreeMessage,
    },
    /// Offer of the requested file: open the target, then call [`crate::Session::accept`] or
    /// [`crate::Session::fail`].
    Offered(Offer),
    /// The receiver has accepted the transfer.
    Accepted {
        /// The transfer.
        transfer: TransferId,
        /// Bytes that are durable at the receiver and need not be sent.
        resumed_bytes: u64,
        /// For a tree: the receiver's memory for entries in bytes, if reported.
        memory: Option<u64>,
    },
    /// A path need not send this chunk; it may be dropped unless its frame has begun.
    Superseded {
        /// The path.
        path: PathId,
        /// The transfer.
        transfer: TransferId,
        /// The chunk.
        chunk: ChunkId,
    },
    /// A chunk of [`crate::Session::give`] was acknowledged and may leave the retransmit buffer.
    Released {
        /// The transfer.
        transfer: TransferId,
        /// The chunk.
        chunk: ChunkId,
    },
    /// Make the written data durable and append these subtrees to the journal. Then call
    /// [`crate::Session::handle_synced`].
    Sync {
        /// The transfer.
        transfer: TransferId,
        /// The subtrees that are durable afterwards.
        subtrees: Vec<Subtree>,
    },
    /// Punch these holes or fill them with zeros, then call [`crate::Session::handle_holes_made`].
    Holes {
        /// The transfer.
        transfer: TransferId,
        /// All holes of the file.
        holes: HoleMap,
    },
    /// The source was read: if it did not change call [`crate::Session::complete`], otherwise
    /// [`crate::Session::fail`].
    SourceRead {
        /// The transfer.
        transfer: TransferId,
        /// Its digest.
        digest: Digest,
    },
    /// The sender's digest, and its kernel's statistics of the paths.
    Completed(Complete),
    /// Everything is written and the digests match: make the file durable under its name, then call
    /// [`crate::Session::committed`].
    Commit {
        /// The transfer.
        transfer: TransferId,
        /// The digest of both ends.
        digest: Digest,
    },
    /// The digests differ: discard the file, then call [`crate::Session::fail`].
    Mismatch {
        /// The transfer.
        transfer: TransferId,
        /// Digest of the received data.
        received: Digest,
        /// Digest reported by the sender.
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
    /// Bench message of the peer. On [`BenchBody::Stop`]: take the last sample, call
    /// [`crate::Session::end_run`] and send [`BenchBody::Stopped`].
    Bench(BenchBody),
    /// Daemon only: a request of the client; call [`crate::Session::answer`].
    Asked(Ask),
    /// Client only: the daemon's answer to a request.
    Answered(Answer),
    /// Client only: the daemon's interfaces have changed.
    PeerInterfaces(Vec<PeerInterface>),
    /// Daemon only: addresses from which the client will connect.
    Expected(Vec<Expected>),
    /// No path was connected for [`crate::SessionConfig::patience`].
    Abandoned,
    /// The peer has closed the session.
    Closed(CloseCode),
}
