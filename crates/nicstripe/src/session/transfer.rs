//! Running transfers of a session: one value each, from the request to the end.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    ChunkId, DataHeader, Digest, PathId, Session, TransferId, TransferStats, message::EntryRef,
    tree::Reason,
};

use super::{
    jobs::{Jobs, TargetLease},
    kind::{Kind, Scope, retransmit::RetransmitBuffer, tree::TreeThread},
    last_progress::Mark,
    path_connection::PathConnection,
    record::Record,
    tally::Tally,
    waiters::{Outcome, Reply, Starter, Waiter},
};
use crate::{
    file::{Arrived, ChunkBuffer},
    report::{
        error::Error,
        event::{Event, Progress},
        metrics::TransferDirection,
    },
    storage::Target,
    wire::{clock, tasks::TaskTracker},
};

/// One transfer. Dropping it ends everything that it has.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) kind: Box<dyn Kind>,
    owner: Owner,
    /// Daemon: what the log says about it; `None` for tunnels.
    pub(super) record: Option<Record>,
    part: Option<Part>,
    /// Retransmit buffer of a stream that this session sends and that has started.
    buffer: Option<RetransmitBuffer>,
    pub(super) reordered: Reordered,
    /// Received chunks that wait while another copy of the same chunk is being written.
    pub(super) later: Vec<Arrived>,
    /// Tracker of the I/O jobs that use the target.
    jobs: TaskTracker,
}

/// Who waits for the end of a transfer.
#[derive(Debug)]
pub(super) enum Owner {
    /// In a daemon, and for tunnels.
    Nobody,
    Program(Waiter, Box<Tally>),
    /// Program that waits for a standalone file, whose bytes count for its tree.
    OfPart(Reply),
    /// Program that waits for the end of a stream.
    OfStream(Reply),
}

impl Owner {
    /// Returns the owner who waits for a transfer, or for a standalone file of a tree.
    pub(super) fn of(starter: Starter, is_part: bool, now: Instant) -> Self {
        match starter {
            Starter::Session => Self::Nobody,
            Starter::Stream(reply) => Self::OfStream(reply),
            Starter::Program(waiter) if is_part => Self::OfPart(waiter.reply),
            Starter::Program(waiter) => Self::Program(waiter, Box::new(Tally::new(now))),
        }
    }
}

/// Place of a standalone file in its tree.
#[derive(Debug)]
pub(super) struct Part {
    entry: EntryRef,
    /// Thread of the tree; `None` if the tree is not in progress.
    thread: Option<TreeThread>,
}

/// Received chunks of a stream, put in order.
#[derive(Debug, Default)]
pub(super) struct Reordered {
    waiting: BTreeMap<ChunkId, ChunkBuffer>,
    /// Number of chunks that the kind has taken.
    taken: u64,
    /// Number of chunks that its thread or task has consumed.
    pub(super) consumed: u64,
    /// Digest that both ends agreed on; `None` until all data has arrived.
    pub(super) digest: Option<Digest>,
}

impl Reordered {
    pub(super) fn insert(&mut self, chunk: ChunkId, buffer: ChunkBuffer) {
        self.waiting.insert(chunk, buffer);
    }

    /// Removes the next chunk in order, if it has arrived.
    pub(super) fn next(&mut self) -> Option<ChunkBuffer> {
        let chunk = self.waiting.remove(&ChunkId(self.taken))?;
        self.taken += 1;
        Some(chunk)
    }
}

impl Running {
    /// Lets the kind act. Returns true with the result if the kind has accepted the peer's data.
    pub(super) fn act<T>(
        &mut self,
        transfer: TransferId,
        session: &mut Session,
        jobs: &Jobs,
        act: impl FnOnce(&mut dyn Kind, &mut Scope<'_>) -> T,
    ) -> (T, bool) {
        let mut scope = Scope {
            transfer,
            session,
            jobs,
            events: match &self.owner {
                Owner::Program(waiter, _) => waiter.events.as_ref(),
                _ => None,
            },
            tree: self.part.as_ref().and_then(|part| part.thread.as_ref()),
            have: Vec::new(),
            buffer: &mut self.buffer,
            has_accepted: false,
        };
        let result = act(&mut *self.kind, &mut scope);
        (result, scope.has_accepted)
    }

    pub(super) fn buffer_mut(&mut self) -> Option<&mut RetransmitBuffer> {
        self.buffer.as_mut()
    }

    /// Returns the target for an I/O job, for whose end an ending session waits.
    pub(super) fn target(&self) -> Option<TargetLease> {
        Some(TargetLease::new(self.kind.target()?.clone(), &self.jobs))
    }

    pub(super) fn is_received_stream(&self) -> bool {
        self.kind.direction() == TransferDirection::Receive && self.kind.target().is_none()
    }

    /// Returns false if the transfer waits for a local stream: for data of its source, or for its
    /// sink to take data. `mark` counts the files of a tree in the first two places.
    pub(super) fn is_peers_turn(&self, mark: &Mark) -> bool {
        if let Some(buffer) = &self.buffer {
            let [found, done, ..] = mark;
            return !buffer.chunks.is_empty() || buffer.has_ended || found > done;
        }
        let Reordered {
            taken,
            consumed,
            digest,
            ..
        } = &self.reordered;
        consumed >= taken && digest.is_none()
    }

    pub(super) fn program_mut(&mut self) -> Option<(&mut Waiter, &mut Tally)> {
        match &mut self.owner {
            Owner::Program(waiter, tally) => Some((waiter, tally)),
            _ => None,
        }
    }

    fn tally(&self) -> Option<&Tally> {
        match &self.owner {
            Owner::Program(_, tally) => Some(tally),
            _ => None,
        }
    }

    /// Returns true if both ends are open.
    pub(super) fn has_started(&self) -> bool {
        let tally = self.tally();
        tally.is_some_and(|tally| tally.moving_since.is_some())
    }

    /// Returns true if the program's transfer has moved data for at least `time`.
    pub(super) fn has_moved_for(&self, time: Duration) -> bool {
        let since = self.tally().and_then(|tally| tally.moving_since);
        since.is_some_and(|since| clock::now() - since >= time)
    }

    /// Stops to produce data and closes files that are read, at the end of the session.
    fn stop(&mut self) {
        if self.kind.direction() == TransferDirection::Send || self.kind.tree().is_some() {
            self.kind = Box::new(super::kind::Opening(self.kind.direction()));
            self.buffer = None;
        }
    }

    /// Reports the end to the tree and to the owner, and returns what is left to drop. `tally` is
    /// the one of the program, complete.
    pub(super) fn end(
        self,
        result: Result<Outcome, Error>,
        complete: impl FnOnce(Tally) -> Tally,
    ) -> impl Send + 'static {
        let Self {
            owner,
            part,
            kind,
            buffer,
            reordered,
            ..
        } = self;
        // Of a transfer that is being sent, the end of the kind ends its threads.
        if let Some(Part {
            entry,
            thread: Some(thread),
        }) = part
        {
            thread.standalone_ended(entry.id, result.as_ref().map(drop).map_err(reason));
        }
        match owner {
            Owner::Nobody => {}
            Owner::Program(waiter, tally) => {
                let _ = waiter
                    .reply
                    .send(result.map(|outcome| (outcome, complete(*tally))));
            }
            Owner::OfPart(reply) | Owner::OfStream(reply) => {
                let _ = reply.send(result.map(|outcome| (outcome, Tally::new(clock::now()))));
            }
        }
        (kind, buffer, reordered)
    }
}

fn reason(error: &Error) -> Reason {
    Reason {
        code: error.fail_code().unwrap_or(nicstripe_proto::FailCode::Io),
        text: crate::text::chain(error),
    }
}

#[derive(Debug, Default)]
pub(super) struct Transfers(BTreeMap<TransferId, Running>);

impl Transfers {
    /// Adds a transfer. A kind that is a standalone file finds its tree among the running ones.
    pub(super) fn insert(
        &mut self,
        transfer: TransferId,
        kind: Box<dyn Kind>,
        entry: Option<EntryRef>,
        owner: Owner,
        record: Option<Record>,
    ) {
        let part = entry.map(|entry| Part {
            entry,
            thread: self.tree(entry.tree).cloned(),
        });
        let running = Running {
            kind,
            owner,
            record,
            part,
            buffer: None,
            reordered: Reordered::default(),
            later: Vec::new(),
            jobs: TaskTracker::default(),
        };
        self.0.insert(transfer, running);
    }

    pub(super) fn get(&self, transfer: TransferId) -> Option<&Running> {
        self.0.get(&transfer)
    }

    pub(super) fn get_mut(&mut self, transfer: TransferId) -> Option<&mut Running> {
        self.0.get_mut(&transfer)
    }

    pub(super) fn contains(&self, transfer: TransferId) -> bool {
        self.0.contains_key(&transfer)
    }

    pub(super) fn remove(&mut self, transfer: TransferId) -> Option<Running> {
        self.0.remove(&transfer)
    }

    pub(super) fn tree(&self, transfer: TransferId) -> Option<&TreeThread> {
        self.get(transfer)?.kind.tree()
    }

    /// Returns the running standalone files of a tree.
    pub(super) fn parts_of(&self, tree: TransferId) -> Vec<TransferId> {
        let parts = self.0.iter().filter_map(|(transfer, running)| {
            (running.part.as_ref()?.entry.tree == tree).then_some(*transfer)
        });
        parts.collect()
    }

    /// Returns the transfers that must not outlast the peer's process.
    pub(super) fn that_end_with_peer(&self) -> Vec<TransferId> {
        let running = self.0.iter();
        running
            .filter(|(_, running)| running.kind.ends_with_peer())
            .map(|(transfer, _)| *transfer)
            .collect()
    }

    /// Returns the transfers that write to a target, with the tracker of its jobs.
    pub(super) fn targets(&self) -> Vec<(TransferId, Arc<Target>, TaskTracker)> {
        let running = self.0.iter();
        running
            .filter_map(|(transfer, running)| {
                let target = running.kind.target()?.clone();
                Some((*transfer, target, running.jobs.clone()))
            })
            .collect()
    }

    /// Returns the log records of a daemon's transfers.
    pub(super) fn records(&self) -> impl Iterator<Item = (TransferId, &Record)> {
        let running = self.0.iter();
        running.filter_map(|(transfer, running)| Some((*transfer, running.record.as_ref()?)))
    }

    pub(super) fn records_mut(
        &mut self,
    ) -> impl Iterator<Item = (TransferId, &mut Option<Record>)> {
        self.0
            .iter_mut()
            .map(|(transfer, running)| (*transfer, &mut running.record))
    }

    /// Stops threads and drops the transfers that are sent, at the end of the session. Threads that
    /// wait for a send window fail.
    pub(super) fn stop(&mut self) {
        self.0.values_mut().for_each(Running::stop);
    }

    /// Returns true if a program follows the progress of any transfer.
    pub(super) fn have_owner(&self) -> bool {
        let mut running = self.0.values();
        running.any(|running| matches!(running.owner, Owner::Program(..) | Owner::OfPart(_)))
    }

    pub(super) fn have_object(&self) -> bool {
        let mut running = self.0.values();
        running
            .any(|running| matches!(&running.owner, Owner::Program(waiter, _) if waiter.is_object))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the statistics to which a transfer is added: its own, or those of its tree.
    pub(super) fn tally(&mut self, transfer: TransferId) -> Option<&mut Tally> {
        let part = self.get(transfer)?.part.as_ref();
        let whole = part.map_or(transfer, |part| part.entry.tree);
        let (_, tally) = self.get_mut(whole)?.program_mut()?;
        Some(tally)
    }

    pub(super) fn on_wire(&mut self, path: PathId, header: &DataHeader) {
        if let Some(tally) = self.tally(header.transfer) {
            tally.on_wire(path, header);
        }
    }

    /// Counts a lost path connection for each running transfer of a program.
    pub(super) fn failed_over(&mut self) {
        for running in self.0.values_mut() {
            if let Some((_, tally)) = running.program_mut() {
                tally.failovers += 1;
            }
        }
    }

    /// Records the start of a transfer and reports it to its owner. `size` is `None` for a pipe or tree.
    /// Ignores standalone files, whose tree has already started.
    pub(super) fn started(
        &mut self,
        transfer: TransferId,
        size: Option<u64>,
        resumed: u64,
        now: Instant,
    ) {
        let program = self.get_mut(transfer).and_then(Running::program_mut);
        if let Some((waiter, tally)) = program {
            tally.on_started(now, size, resumed);
            let size = size.unwrap_or(0);
            waiter.tell(Event::Started { size, resumed });
        }
    }

    /// Returns the progress of each file, pipe and tree of a program. Its first two counters are
    /// the found and the finished files of a tree.
    pub(super) fn marks(&self, session: &Session) -> Vec<(TransferId, Mark)> {
        let running = self.0.iter();
        let marks = running.filter_map(|(transfer, running)| {
            let stats = self.stats(*transfer, session);
            Some((*transfer, running.tally()?.mark(&stats)))
        });
        marks.collect()
    }

    /// Returns the statistics of a transfer and of the standalone files of its tree that have not
    /// ended.
    fn stats(&self, transfer: TransferId, session: &Session) -> Vec<TransferStats> {
        let parts = match self.tree(transfer) {
            Some(_) => self.parts_of(transfer),
            None => Vec::new(),
        };
        parts
            .into_iter()
            .chain([transfer])
            .map(|running| session.stats(running))
            .collect()
    }

    pub(super) fn report_progress(
        &mut self,
        now: Instant,
        session: &Session,
        connections: &BTreeMap<PathId, PathConnection>,
    ) {
        for transfer in self.0.keys().copied().collect::<Vec<_>>() {
            let stats = self.stats(transfer, session);
            let program = self.get_mut(transfer).and_then(Running::program_mut);
            let progress: Option<(&mut Waiter, Progress)> = program.and_then(|(waiter, tally)| {
                Some((waiter, tally.progress(now, &stats, session, connections)?))
            });
            if let Some((waiter, progress)) = progress {
                waiter.progress.set(&progress);
                waiter.tell(Event::Progress(progress));
            }
        }
    }

    /// Sends an error to all waiting owners at the end of the session.
    pub(super) fn end_waiting(&mut self, mut why: impl FnMut() -> Error) {
        for running in self.0.values_mut() {
            match std::mem::replace(&mut running.owner, Owner::Nobody) {
                Owner::Program(waiter, _) => _ = waiter.reply.send(Err(why())),
                Owner::OfStream(reply) => _ = reply.send(Err(why())),
                Owner::OfPart(_) | Owner::Nobody => {}
            }
        }
    }
}
