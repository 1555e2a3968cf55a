//! Simulated sources that produce chunks over time, and sinks that consume them in order: pipes,
//! windows and batches.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use nicstripe_proto::{
    ChunkId, Digest, Event as Wanted, Grid, PathId, TransferId,
    hash_tree::piece_value,
    message::{OfferKind, TreeBody},
    tree::{EntryId, TreeMessage, Verdict},
};
use nicstripe_sim::{End, Rng};

use crate::{disk::Version, harness::Lab, peer::Work};

/// Parameters of a transfer with a streaming source or an in-order sink.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) kind: OfferKind,
    /// Size of the sink's reorder buffer in chunks; `None` if chunks are written to a file as they
    /// arrive.
    pub(crate) room: Option<u64>,
    /// Size of the source's retransmit buffer in chunks.
    pub(crate) ahead: usize,
    /// Maximum pause before the source produces a chunk.
    pub(crate) give_every: Duration,
    /// Maximum pause before the sink consumes a chunk.
    pub(crate) take_every: Duration,
    /// True if the source knows, when it sends a last chunk of full size, that it is the last.
    pub(crate) knows_last: bool,
    /// Maximum number of batches that the source sends before the sink's verdicts arrive; unlimited
    /// if `None`.
    pub(crate) untold: Option<u64>,
}

impl Plan {
    /// Creates a plan without pauses. Batches get a reorder buffer of 64 chunks.
    pub(crate) fn new(kind: OfferKind) -> Self {
        let room = (kind == OfferKind::Batches).then_some(64);
        Self {
            kind,
            room,
            ahead: 64,
            give_every: Duration::ZERO,
            take_every: Duration::ZERO,
            knows_last: true,
            untold: None,
        }
    }

    fn has_source(&self) -> bool {
        self.kind != OfferKind::File
    }
}

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) plan: Plan,
    rng: Rng,
    given: u64,
    /// Retransmit buffer of the source: chunks that are not acknowledged yet.
    unacknowledged: BTreeSet<ChunkId>,
    /// True if the source waits for an acknowledgement or a verdict.
    is_waiting: bool,
    /// Number of verdicts received from the sink.
    told: u64,
    /// Reorder buffer of the sink: chunks that have arrived and are not consumed yet.
    kept: BTreeMap<ChunkId, Version>,
    pub(crate) most_kept: usize,
    /// Number of verified chunks, without duplicates.
    pub(crate) news: u64,
    taken: u64,
    is_taking: bool,
    /// Commit that waits until the sink has consumed all chunks.
    commit: Option<(TransferId, Digest)>,
}

impl Live {
    pub(crate) fn new(plan: Plan, seed: u64) -> Self {
        Self {
            plan,
            rng: Rng::new(seed),
            given: 0,
            unacknowledged: BTreeSet::new(),
            is_waiting: false,
            told: 0,
            kept: BTreeMap::new(),
            most_kept: 0,
            news: 0,
            taken: 0,
            is_taking: false,
            commit: None,
        }
    }

    fn pause(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.rng.below(most.as_micros() as u64 + 1))
    }
}

impl Lab {
    /// Replaces the file transfer of this lab by a transfer with this plan.
    pub(crate) fn plan(mut self, plan: Plan) -> Self {
        self.live = Some(Live::new(plan, self.net_seed));
        self
    }

    pub(crate) fn kind(&self) -> OfferKind {
        self.live
            .as_ref()
            .map_or(OfferKind::File, |live| live.plan.kind)
    }

    pub(crate) fn has_room(&self) -> Option<u64> {
        self.live.as_ref()?.plan.room
    }

    /// Starts the streaming source, if any, after the receiver has accepted the transfer.
    pub(crate) fn start_source(&mut self, end: End, transfer: TransferId) {
        if self
            .live
            .as_ref()
            .is_some_and(|live| live.plan.has_source())
        {
            self.work(end, Work::Give(transfer));
        }
    }

    /// Reads a chunk from the retransmit buffer of a streaming source. Returns false if there is no
    /// such source.
    ///
    /// # Panics
    ///
    /// Panics if the chunk is not in the retransmit buffer.
    pub(crate) fn read_given(
        &mut self,
        end: End,
        path: PathId,
        transfer: TransferId,
        chunk: ChunkId,
    ) -> bool {
        let Some(live) = self.live.as_ref().filter(|live| live.plan.has_source()) else {
            return false;
        };
        assert!(
            live.unacknowledged.contains(&chunk),
            "{chunk:?} is to be sent but is not buffered"
        );
        self.on_read(end, path, transfer, chunk);
        true
    }

    pub(crate) fn give(&mut self, end: End, transfer: TransferId) {
        let (count, version) = (self.contents.chunks().count, self.peer(end).source);
        let Some(live) = &mut self.live else { return };
        let is_far_ahead = live
            .plan
            .untold
            .is_some_and(|untold| live.given >= live.told + untold);
        live.is_waiting = live.unacknowledged.len() >= live.plan.ahead || is_far_ahead;
        if live.given == count {
            return self.peer_mut(end).session.close_source(transfer);
        }
        if live.is_waiting {
            return;
        }
        let chunk = ChunkId(live.given);
        live.given += 1;
        live.unacknowledged.insert(chunk);
        let (plan, pause) = (live.plan, live.pause(live.plan.give_every));
        let (len, value) = (
            self.contents.len(chunk),
            self.contents.value(version, chunk),
        );
        let full = self.contents.grid.chunk_size.bytes() as u32;
        let last = plan.kind == OfferKind::Pipe
            && chunk.0 + 1 == count
            && (count == 1 || len < full || plan.knows_last);
        if self.contents.real {
            let open = Grid::open(self.contents.grid.chunk_size);
            assert_eq!(
                piece_value(open, chunk, &self.contents.bytes(version, chunk), last),
                Ok(value)
            );
        }
        assert_eq!(
            self.peer_mut(end).session.give(transfer, len, value, last),
            Some(chunk)
        );
        self.schedule_work(end, self.net.now() + pause, Work::Give(transfer));
    }

    fn wake_source(&mut self, end: End, transfer: TransferId) {
        if self
            .live
            .as_mut()
            .is_some_and(|live| std::mem::take(&mut live.is_waiting))
        {
            self.work(end, Work::Give(transfer));
        }
    }

    /// Passes a verified chunk to the sink; `news` is false for a duplicate.
    pub(crate) fn on_verified(
        &mut self,
        end: End,
        transfer: TransferId,
        chunk: ChunkId,
        content: Version,
        news: bool,
    ) {
        let Some(live) = self.live.as_mut().filter(|_| news) else {
            return;
        };
        live.news += 1;
        if live.plan.room.is_none() {
            return;
        }
        assert_eq!(
            live.kept.insert(chunk, content),
            None,
            "{chunk:?} is kept twice"
        );
        live.most_kept = live.most_kept.max(live.kept.len());
        self.take_more(end, transfer);
    }

    fn take_more(&mut self, end: End, transfer: TransferId) {
        let Some(live) = &mut self.live else { return };
        if !live.is_taking && live.kept.contains_key(&ChunkId(live.taken)) {
            live.is_taking = true;
            let pause = live.pause(live.plan.take_every);
            self.schedule_work(end, self.net.now() + pause, Work::Take(transfer));
        }
    }

    pub(crate) fn take(&mut self, end: End, transfer: TransferId) {
        let Some(live) = &mut self.live else { return };
        live.is_taking = false;
        let chunk = ChunkId(live.taken);
        let Some(content) = live.kept.remove(&chunk) else {
            return;
        };
        live.taken += 1;
        let (kind, whole) = (live.plan.kind, live.taken == self.contents.chunks().count);
        let commit = live.commit.take_if(|_| whole);
        let peer = self.peer_mut(end);
        assert_eq!(
            peer.disk.written.insert(chunk, content),
            None,
            "{chunk:?} is taken twice"
        );
        if kind == OfferKind::Batches {
            let message = TreeMessage::Verdicts {
                first: EntryId(chunk.0),
                verdicts: vec![Verdict::Create; 3],
            };
            peer.session.send_tree(TreeBody { transfer, message });
        }
        peer.session.taken(transfer, 1);
        self.take_more(end, transfer);
        if let Some((transfer, digest)) = commit {
            self.on_commit(end, transfer, digest);
        }
    }

    /// Returns true if the transfer can be committed now. Otherwise the commit waits until the sink
    /// has consumed all chunks.
    pub(crate) fn is_taken(&mut self, transfer: TransferId, digest: Digest) -> bool {
        let count = self.contents.chunks().count;
        let Some(live) = self
            .live
            .as_mut()
            .filter(|live| live.plan.room.is_some() && live.taken < count)
        else {
            return true;
        };
        live.commit = Some((transfer, digest));
        false
    }

    pub(crate) fn on_live(&mut self, end: End, wanted: Wanted) {
        match wanted {
            Wanted::Accepted { transfer, .. } => self.start_source(end, transfer),
            Wanted::Released { transfer, chunk } => {
                let live = self.live.as_mut().unwrap();
                assert!(
                    live.unacknowledged.remove(&chunk),
                    "{chunk:?} is released twice"
                );
                self.wake_source(end, transfer);
            }
            Wanted::TreeMessageReceived {
                transfer,
                message: TreeMessage::Verdicts { first, .. },
            } => {
                let live = self.live.as_mut().unwrap();
                assert_eq!(first.0, live.told, "reported out of order");
                live.told += 1;
                self.wake_source(end, transfer);
            }
            Wanted::TreePutRequested(put) => self.work(end, Work::OpenTarget(put.transfer)),
            Wanted::TreeRequested(get) => self.work(end, Work::OpenSource(get.transfer)),
            other => panic!("{other:?} is not expected"),
        }
    }

    pub(crate) fn check_live(&self) {
        let Some(live) = &self.live else { return };
        assert!(live.unacknowledged.len() <= live.plan.ahead);
        let Some(room) = live.plan.room else { return };
        assert!(
            live.kept.len() as u64 <= room,
            "{} chunks are kept",
            live.kept.len()
        );
        let last = live
            .kept
            .last_key_value()
            .map_or(0, |(chunk, _)| chunk.0 + 1);
        assert!(
            last <= live.taken + room,
            "chunk {last} received, {} consumed",
            live.taken
        );
    }

    pub(crate) fn assert_all_given_and_taken(&self) {
        let Some(live) = &self.live else { return };
        let chunks = self.contents.chunks();
        let bytes: u64 = chunks
            .chunks()
            .map(|chunk| u64::from(self.contents.len(chunk)))
            .sum();
        assert_eq!(live.news, chunks.count);
        assert_eq!(self.receiver_stats().delivered_bytes, bytes);
        if live.plan.room.is_some() {
            assert_eq!((live.taken, live.kept.len()), (chunks.count, 0));
        }
        if live.plan.kind == OfferKind::Batches {
            assert_eq!(live.told, chunks.count);
        }
        let told = self.receiver().completed.as_ref().unwrap().end;
        let end = |size| nicstripe_proto::message::End {
            chunks: chunks.count,
            size,
        };
        let expected = match live.plan.kind {
            OfferKind::File => None,
            OfferKind::Pipe => Some(end(bytes)),
            OfferKind::Batches => Some(end(0)),
        };
        assert_eq!(told, expected);
    }
}
