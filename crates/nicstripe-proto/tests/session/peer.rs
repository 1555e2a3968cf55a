//! One end: a session and what its driver does for it, as `nicstripe`'s driver does.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use nicstripe_proto::{
    ChunkId, DataHeader, Digest, FailCode, Frame, PathId, PathLoss, Role, Session, SessionConfig, Subtree, TransferId,
    message::{CloseCode, Complete},
};
use nicstripe_sim::{End, Message};
use std::time::Instant;

use crate::disk::{Disk, Version};

/// What goes over a connection.
#[derive(Debug, Clone)]
pub enum Packet {
    /// Part of a chunk.
    Piece { wire_len: u64 },
    Frame { frame: Frame, wire_len: u64 },
    /// The rest of a chunk, with what its bytes are.
    Chunk { header: DataHeader, content: Version, wire_len: u64 },
}

impl Message for Packet {
    fn wire_len(&self) -> u64 {
        match self {
            Self::Piece { wire_len } | Self::Frame { wire_len, .. } | Self::Chunk { wire_len, .. } => *wire_len,
        }
    }
}

/// What the I/O threads do.
#[derive(Debug, Clone)]
pub enum Work {
    OpenTarget(TransferId),
    OpenSource(TransferId),
    Read { path: PathId, transfer: TransferId, chunk: ChunkId },
    Hash { transfer: TransferId, chunk: ChunkId },
    Write { path: PathId, header: DataHeader, content: Version },
    Sync { transfer: TransferId, subtrees: Vec<Subtree> },
    Check(TransferId),
    Commit { transfer: TransferId, digest: Digest },
    ConnectTimeout { path: PathId, attempt: u64 },
    CarrierUp(PathId),
}

impl Work {
    /// Whether it waits for a disk.
    pub fn is_disk(&self) -> bool {
        !matches!(self, Self::ConnectTimeout { .. } | Self::CarrierUp(_))
    }
}

/// How a transfer ended at one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Committed(Digest),
    FailedHere(FailCode),
    FailedThere(FailCode),
}

/// An established connection.
#[derive(Debug, Default)]
pub struct Connection {
    /// Not yet taken by the network; a chunk is several packets.
    pub outbox: VecDeque<Packet>,
    pub opened: Duration,
}

impl Connection {
    pub fn chunks_waiting(&self) -> usize {
        self.outbox.iter().filter(|packet| matches!(packet, Packet::Chunk { .. })).count()
    }
}

/// One end.
pub struct Peer {
    pub end: End,
    pub session: Session,
    pub connections: BTreeMap<PathId, Connection>,
    /// Client: number of the attempt under way.
    pub connecting: BTreeMap<PathId, u64>,
    pub disk: Disk,
    /// The version of the source, where this end is the sender.
    pub source: Version,
    /// Transfers whose file is open.
    pub open: BTreeSet<TransferId>,
    pub hashing: u32,
    pub outcomes: BTreeMap<TransferId, Outcome>,
    pub abandoned: bool,
    pub closed: Option<CloseCode>,
    pub completed: Option<Complete>,
    /// Work of an earlier process is forgotten.
    pub process: u64,
    /// Writes under way by path.
    pub writing: BTreeMap<PathId, u64>,
    pub most_writing: u64,
    pub sent_chunks: u64,
    pub superseded: u64,
    pub losses: Vec<(Duration, PathId, PathLoss)>,
    pub suspicions: u64,
    pub control_sent: Vec<(Duration, PathId)>,
}

impl Peer {
    pub fn new(end: End, config: SessionConfig, now: Instant) -> Self {
        let role = if end == End::A { Role::Client } else { Role::Daemon };
        Self {
            end,
            session: Session::new(role, config, now),
            connections: BTreeMap::new(),
            connecting: BTreeMap::new(),
            disk: Disk::default(),
            source: 0,
            open: BTreeSet::new(),
            hashing: 0,
            outcomes: BTreeMap::new(),
            abandoned: false,
            closed: None,
            completed: None,
            process: 0,
            writing: BTreeMap::new(),
            most_writing: 0,
            sent_chunks: 0,
            superseded: 0,
            losses: Vec::new(),
            suspicions: 0,
            control_sent: Vec::new(),
        }
    }

    /// A transfer has ended here. It must not have ended before.
    pub fn finish(&mut self, transfer: TransferId, outcome: Outcome) {
        self.open.remove(&transfer);
        let before = self.outcomes.insert(transfer, outcome);
        assert_eq!(before, None, "{:?}: transfer {} ended twice", self.end, transfer.0);
    }
}
