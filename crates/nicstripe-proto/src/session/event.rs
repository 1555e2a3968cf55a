//! Output of a session to its driver: frames to send and events to handle.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use super::request::Request;
use crate::{
    file::{
        extent::ChunkId,
        grid::Grid,
        hash_tree::{Digest, Subtree},
        hole::HoleMap,
    },
    id::{PathId, TransferId},
    pairing::Candidate,
    path::machine::{PathLoss, PathStatus},
    wire::{
        frame::Frame,
        load::LoadOrder,
        message::{
            Answer, Ask, BenchBody, CloseCode, Committed, Complete, Expected, Fail, Offer,
            PeerInterface, TreeBody,
        },
    },
};

/// Item to send next on a path's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transmit {
    /// Frame other than a data frame, to encode and send.
    Frame(Frame),
    /// Chunk to read. Call [`crate::Session::handle_chunk_read`] afterwards to get its data frame.
    Chunk {
        /// ID of the chunk's transfer.
        transfer: TransferId,
        /// Index of the chunk.
        chunk: ChunkId,
    },
    /// Benchmark load to send while the connection is otherwise idle; `None` stops the load.
    Load(Option<LoadOrder>),
}

/// Request or notification from a session to its driver.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Client only: connect or reconnect this path. Call [`crate::Session::handle_connected`] or
    /// [`crate::Session::handle_not_connected`] afterwards.
    Connect(PathId),
    /// Close the connection of this path at once, because it is lost.
    Disconnect(PathId),
    /// Close the connection of this path after sending what is queued for it. The path is retired.
    Retire(PathId),
    /// Client only: find out if the remote address answers over the local interface. Call
    /// [`crate::Session::handle_probed`] afterwards.
    Probe(Candidate),
    /// Client only: install the host routes that these paths may need, one path of each link. Call
    /// [`crate::Session::handle_routed`] afterwards.
    HoldRoutes(Vec<PathId>),
    /// Client only: prepare to receive tokens for these connections (local address, the peer's
    /// interface index), and call [`crate::Session::expect_connections`].
    Announce(BTreeSet<(IpAddr, u32)>),
    /// Client only: the session cannot continue without this path, which the user named and which did
    /// not connect, or whose interface the user excluded.
    GivenUp(PathId),
    /// The status of a path has changed.
    PathChanged {
        /// ID of the path.
        path: PathId,
        /// New status of the path.
        status: PathStatus,
        /// Reason for the loss of the path's connection; `None` if no connection was lost.
        loss: Option<PathLoss>,
    },
    /// Damaged data arrived on a path. The path reconnects. It then carries no data for `pause`,
    /// unless no other path can.
    Damaged {
        /// ID of the path.
        path: PathId,
        /// Number of times that damaged data arrived on this path in the session.
        times: u32,
        /// Duration of the quarantine; zero after the first damage.
        pause: Duration,
    },
    /// Client's request for a transfer. Open the local end, then call [`crate::Session::accept`]
    /// for a transfer to this end, or [`crate::Session::offer`] for one to the client. To reject the
    /// request, call [`crate::Session::fail`].
    Requested(Request),
    /// Message from the receiver of a tree to this end, which is the sender.
    TreeMessage(TreeBody),
    /// Daemon's offer of the requested file. Open the target, then call [`crate::Session::accept`]
    /// or [`crate::Session::fail`].
    Offered(Offer),
    /// The receiver accepted the transfer.
    Accepted {
        /// ID of the accepted transfer.
        transfer: TransferId,
        /// Bytes that are durable at the receiver and need not be sent.
        resumed_bytes: u64,
        /// Maximum memory in bytes for entries of a tree at the receiver; `None` if the receiver
        /// does not report it.
        memory: Option<u64>,
    },
    /// The receiver acknowledged a chunk from [`crate::Session::give`]. The chunk may leave the
    /// retransmit buffer.
    Released {
        /// ID of the chunk's transfer.
        transfer: TransferId,
        /// Index of the chunk.
        chunk: ChunkId,
    },
    /// A sync is due. Make the written data durable, append these subtrees to the journal, and call
    /// [`crate::Session::handle_synced`].
    Sync {
        /// ID of the transfer to sync.
        transfer: TransferId,
        /// Subtrees of the file that the sync makes durable.
        subtrees: Vec<Subtree>,
    },
    /// The list of holes is complete. Punch the holes into the file or fill them with zeros, then
    /// call [`crate::Session::handle_holes_made`].
    Holes {
        /// ID of the file's transfer.
        transfer: TransferId,
        /// All holes of the file.
        holes: HoleMap,
    },
    /// The sender has read the whole source. Call [`crate::Session::complete`] if the source did
    /// not change, otherwise [`crate::Session::fail`].
    SourceRead {
        /// ID of the source's transfer.
        transfer: TransferId,
        /// BLAKE3 digest of the source.
        digest: Digest,
    },
    /// The peer, which is the sender, has read the whole source. Contains the source's digest and
    /// the kernel's statistics of the sender's connections.
    Completed(Complete),
    /// All data is written and the digests match. Make the file durable under its final name, then
    /// call [`crate::Session::committed`].
    Commit {
        /// ID of the file's transfer.
        transfer: TransferId,
        /// BLAKE3 digest of the file, equal at both ends.
        digest: Digest,
    },
    /// The digests of the two ends differ. Discard the file, then call [`crate::Session::fail`].
    Mismatch {
        /// ID of the file's transfer.
        transfer: TransferId,
        /// BLAKE3 digest of the received data.
        received: Digest,
        /// BLAKE3 digest reported by the sender.
        sent: Digest,
    },
    /// The receiver has made the whole file durable. The transfer is complete.
    Committed(Committed),
    /// The transfer failed at the peer.
    Failed(Fail),
    /// Benchmark message from the peer. On [`BenchBody::Stop`], take the last sample, call
    /// [`crate::Session::end_run`] and send [`BenchBody::Stopped`].
    Bench(BenchBody),
    /// Daemon only: request of the client. Call [`crate::Session::answer`].
    Asked(Ask),
    /// Client only: the daemon's answer to a request.
    Answered(Answer),
    /// Client only: the daemon's interfaces after a change. Call
    /// [`crate::Session::handle_peer_interfaces`] with them once their names may be shown.
    PeerInterfaces(Vec<PeerInterface>),
    /// Daemon only: connections that the client is about to make.
    Expected(Vec<Expected>),
    /// The session timed out, because no path was connected for [`crate::SessionConfig::patience`].
    Abandoned,
    /// The peer closed the session, for this reason.
    Closed(CloseCode),
}

/// Action that the driver must take for a chunk that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// Verify the chunk against its header and write it at `offset`. Call
    /// [`crate::Session::handle_chunk_written`] afterwards, or
    /// [`crate::Session::handle_chunk_unwritten`] if the chunk was damaged or the write failed.
    Write {
        /// Chunk grid of the file.
        grid: Grid,
        /// Offset of the chunk in the file, in bytes.
        offset: u64,
    },
    /// Drop the chunk. It is a duplicate, or its transfer or connection has ended.
    Drop,
    /// Keep the chunk, because another copy of it is being written. Call
    /// [`crate::Session::handle_chunk_again`] once that write has succeeded or failed. Call
    /// [`crate::Session::handle_chunk_unwritten`] if the transfer ends first.
    Later,
}
