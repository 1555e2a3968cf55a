//! Output of a session to its driver: frames to send and events to handle.

use std::time::Duration;

use crate::{
    file::{
        extent::ChunkId,
        grid::Grid,
        hash_tree::{Digest, Subtree},
        hole::HoleMap,
    },
    id::{PathId, TransferId},
    path::machine::{PathLoss, PathState},
    wire::{
        frame::Frame,
        load::LoadOrder,
        message::{
            Answer, Ask, BenchBody, CloseCode, Committed, Complete, Expected, Fail, Get, GetTree,
            Offer, OpenTunnels, PeerInterface, Put, PutTree, TreeBody,
        },
    },
};

/// Item to send next on a path's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transmit {
    /// Frame other than data, to be encoded and sent.
    Frame(Frame),
    /// Chunk to read. Then call [`crate::Session::handle_chunk_read`] for its data frame.
    Chunk {
        /// ID of the chunk's transfer.
        transfer: TransferId,
        /// Index of the chunk.
        chunk: ChunkId,
    },
    /// Benchmark load to send whenever the connection is otherwise idle; `None` stops it.
    Load(Option<LoadOrder>),
}

/// Request or notification to the driver of a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Client only: connect or reconnect this path, then call [`crate::Session::handle_path_open`]
    /// or [`crate::Session::handle_path_lost`].
    Connect(PathId),
    /// Close the connection of this path, which was silent for too long.
    Disconnect(PathId),
    /// The state of a path has changed.
    PathChanged {
        /// ID of the path.
        path: PathId,
        /// New state of the path.
        state: PathState,
        /// Reason for the loss of the path's connection, if it was lost.
        loss: Option<PathLoss>,
    },
    /// Damaged data arrived on a path. The path reconnects, but carries no data for `pause` if
    /// another path can.
    Damaged {
        /// ID of the path.
        path: PathId,
        /// Number of times that this path has damaged data in the session.
        times: u32,
        /// Duration of the quarantine; zero after the first damage.
        pause: Duration,
    },
    /// The client wants to upload a file: open the target, then call [`crate::Session::accept`] or
    /// [`crate::Session::fail`].
    PutRequested(Put),
    /// The client wants to download a file: open the source, then call [`crate::Session::offer`] or
    /// [`crate::Session::fail`].
    GetRequested(Get),
    /// The client wants to upload a tree: call [`crate::Session::accept`] with a window (`room`),
    /// or [`crate::Session::fail`].
    TreePutRequested(PutTree),
    /// The client wants to download trees: call [`crate::Session::offer`] or
    /// [`crate::Session::fail`].
    TreeRequested(GetTree),
    /// The client wants to open tunnels: call [`crate::Session::accept`] with a window (`room`) for
    /// one transfer and [`crate::Session::offer`] batches for the other, or
    /// [`crate::Session::fail`] for both.
    TunnelsRequested(OpenTunnels),
    /// The receiver of a tree has sent a message to this end, the sender.
    TreeMessage(TreeBody),
    /// The daemon has offered the requested file: open the target, then call
    /// [`crate::Session::accept`] or [`crate::Session::fail`].
    Offered(Offer),
    /// The receiver has accepted the transfer.
    Accepted {
        /// ID of the accepted transfer.
        transfer: TransferId,
        /// Number of bytes that are durable at the receiver and need not be sent.
        resumed_bytes: u64,
        /// Maximum memory in bytes for entries of a tree at the receiver, if it reports one.
        memory: Option<u64>,
    },
    /// A chunk from [`crate::Session::give`] was acknowledged and may leave the retransmit buffer.
    Released {
        /// ID of the chunk's transfer.
        transfer: TransferId,
        /// Index of the chunk.
        chunk: ChunkId,
    },
    /// A sync is due: make the written data durable and append these subtrees to the journal. Then
    /// call [`crate::Session::handle_synced`].
    Sync {
        /// ID of the transfer to sync.
        transfer: TransferId,
        /// Subtrees of the file that the sync makes durable.
        subtrees: Vec<Subtree>,
    },
    /// The list of holes is complete: punch them into the file or fill them with zeros, then call
    /// [`crate::Session::handle_holes_made`].
    Holes {
        /// ID of the file's transfer.
        transfer: TransferId,
        /// All holes of the file.
        holes: HoleMap,
    },
    /// The whole source was read. Call [`crate::Session::complete`] if it did not change, otherwise
    /// [`crate::Session::fail`].
    SourceRead {
        /// ID of the source's transfer.
        transfer: TransferId,
        /// BLAKE3 digest of the source.
        digest: Digest,
    },
    /// The sender has read the whole source. Carries its digest and its kernel's statistics of the
    /// paths.
    Completed(Complete),
    /// All data is written and the digests match: make the file durable under its name, then call
    /// [`crate::Session::committed`].
    Commit {
        /// ID of the file's transfer.
        transfer: TransferId,
        /// BLAKE3 digest of the file, equal at both ends.
        digest: Digest,
    },
    /// The digests of the two ends differ: discard the file, then call [`crate::Session::fail`].
    Mismatch {
        /// ID of the file's transfer.
        transfer: TransferId,
        /// BLAKE3 digest of the received data.
        received: Digest,
        /// BLAKE3 digest reported by the sender.
        sent: Digest,
    },
    /// The receiver has made the whole file durable, which completes the transfer.
    Committed(Committed),
    /// The transfer failed at the peer.
    Failed(Fail),
    /// A benchmark message of the peer arrived. On [`BenchBody::Stop`]: take the last sample, call
    /// [`crate::Session::end_run`] and send [`BenchBody::Stopped`].
    Bench(BenchBody),
    /// Daemon only: the client has sent a request. Call [`crate::Session::answer`].
    Asked(Ask),
    /// Client only: the daemon has answered a request.
    Answered(Answer),
    /// Client only: the daemon's interfaces have changed.
    PeerInterfaces(Vec<PeerInterface>),
    /// Daemon only: the client has announced connections that it is about to make.
    Expected(Vec<Expected>),
    /// The session has timed out: no path was connected for [`crate::SessionConfig::patience`].
    Abandoned,
    /// The peer has closed the session for this reason.
    Closed(CloseCode),
}

/// Action required for a chunk that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// Verify the chunk against its header and write it at `offset`. Then call
    /// [`crate::Session::handle_chunk_written`] or, if the chunk was damaged or the write failed,
    /// [`crate::Session::handle_chunk_unwritten`].
    Write {
        /// Chunk grid of the file.
        grid: Grid,
        /// Offset of the chunk in the file, in bytes.
        offset: u64,
    },
    /// Drop the chunk: it is a duplicate, or its transfer or connection has ended.
    Drop,
    /// Keep the chunk while another copy of it is being written. Call
    /// [`crate::Session::handle_chunk_again`] when that write has succeeded or failed, or
    /// [`crate::Session::handle_chunk_unwritten`] if the transfer ends first.
    Later,
}
