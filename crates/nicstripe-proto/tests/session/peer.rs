//! One end of a test: a session, and the state of a simulated driver like that of `nicstripe`.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use nicstripe_proto::{
    ChunkId, DataHeader, Digest, FailCode, Frame, Grid, PathId, PathLoss, Role, Session,
    SessionConfig, Subtree, TransferId, Zeros,
    message::{CloseCode, Complete},
};
use nicstripe_sim::{End, Message};
use std::time::Instant;

use crate::disk::{Disk, Version};

/// Unit of data on a simulated connection. `session` identifies the sender's process, as a real
/// connection's hello does.
#[derive(Debug, Clone)]
pub(crate) enum Packet {
    /// Bytes of a chunk that precede its `Chunk` packet; `wire_len` is their number.
    Piece { wire_len: u64 },
    Frame {
        session: u64,
        frame: Frame,
        wire_len: u64,
    },
    /// Last packet of a chunk, which stands for its whole content.
    Chunk {
        session: u64,
        header: DataHeader,
        content: Version,
        wire_len: u64,
    },
}

impl Message for Packet {
    fn wire_len(&self) -> u64 {
        match self {
            Self::Piece { wire_len }
            | Self::Frame { wire_len, .. }
            | Self::Chunk { wire_len, .. } => *wire_len,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Work {
    OpenTarget(TransferId),
    OpenSource(TransferId),
    Read {
        path: PathId,
        transfer: TransferId,
        chunk: ChunkId,
    },
    Hash {
        transfer: TransferId,
        chunk: ChunkId,
    },
    Write {
        path: PathId,
        header: DataHeader,
        grid: Grid,
        content: Version,
    },
    Sync {
        transfer: TransferId,
        subtrees: Vec<Subtree>,
    },
    Zeros {
        transfer: TransferId,
        grid: Grid,
        zeros: Zeros,
    },
    MakeHoles(TransferId),
    Compare {
        transfer: TransferId,
        chunk: ChunkId,
    },
    Check(TransferId),
    /// The source produces its next chunk.
    Give(TransferId),
    /// The sink consumes its next chunk.
    Take(TransferId),
    Commit {
        transfer: TransferId,
        digest: Digest,
    },
    ConnectTimeout {
        path: PathId,
        attempt: u64,
    },
    CarrierUp(PathId),
}

impl Work {
    pub(crate) fn is_disk(&self) -> bool {
        !matches!(self, Self::ConnectTimeout { .. } | Self::CarrierUp(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed(Digest),
    FailedHere(FailCode),
    FailedThere(FailCode),
}

#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// Packets of a connection that the network has not accepted yet. A chunk consists of several.
    pub(crate) outbox: VecDeque<Packet>,
}

impl Connection {
    pub(crate) fn chunks_waiting(&self) -> usize {
        self.outbox
            .iter()
            .filter(|packet| matches!(packet, Packet::Chunk { .. }))
            .count()
    }
}

pub(crate) struct Peer {
    pub(crate) end: End,
    pub(crate) session: Session,
    pub(crate) connections: BTreeMap<PathId, Connection>,
    /// Identifier of the connection attempt in progress on each path; only at the client.
    pub(crate) connecting: BTreeMap<PathId, u64>,
    pub(crate) disk: Disk,
    /// Content version of the source file, at the sender.
    pub(crate) source: Version,
    pub(crate) open: BTreeSet<TransferId>,
    pub(crate) hashing: u32,
    pub(crate) outcomes: BTreeMap<TransferId, Outcome>,
    pub(crate) abandoned: bool,
    pub(crate) closed: Option<CloseCode>,
    pub(crate) completed: Option<Complete>,
    /// Identifier of this process. Scheduled work and packets of an earlier process are ignored.
    pub(crate) process: u64,
    pub(crate) writing: BTreeMap<PathId, u64>,
    pub(crate) sent_chunks: u64,
    pub(crate) superseded: u64,
    pub(crate) losses: Vec<(Duration, PathId, PathLoss)>,
    pub(crate) suspicions: u64,
    pub(crate) damages: u64,
    pub(crate) control_sent: Vec<(Duration, PathId)>,
}

impl Peer {
    pub(crate) fn new(end: End, config: SessionConfig, now: Instant) -> Self {
        let role = if end == End::A {
            Role::Client
        } else {
            Role::Daemon
        };
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
            sent_chunks: 0,
            superseded: 0,
            losses: Vec::new(),
            suspicions: 0,
            damages: 0,
            control_sent: Vec::new(),
        }
    }

    /// Records the outcome of a transfer at this end.
    ///
    /// # Panics
    ///
    /// Panics if the transfer already has an outcome.
    pub(crate) fn finish(&mut self, transfer: TransferId, outcome: Outcome) {
        self.open.remove(&transfer);
        let before = self.outcomes.insert(transfer, outcome);
        assert_eq!(
            before, None,
            "{:?}: transfer {} ended twice",
            self.end, transfer.0
        );
    }
}
