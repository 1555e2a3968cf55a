//! Those who wait for transfers, each with the numbers of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nicstripe_proto::{DataHeader, PathId, Session, TransferId, TransferStats, message::StreamReport};
use tokio::sync::{mpsc, oneshot};

use super::{slot::Slot, tally::Tally, work::Outcome};
use crate::{
    error::Error,
    event::{Event, Progress},
    tree::port::WalkProgress,
};

/// Where the end of a transfer is told, with its numbers.
pub(crate) type Reply = oneshot::Sender<Result<(Outcome, Tally), Error>>;

/// One who waits for the end of a transfer.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) reply: Reply,
    /// Where it is told how far the transfer is, if that matters to it.
    pub(crate) events: Option<mpsc::Sender<Event>>,
    /// How far it is, for whoever looks.
    pub(crate) progress: SharedProgress,
}

/// How far a transfer is: written by its session, read by its owner.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedProgress(Arc<Mutex<Progress>>);

impl SharedProgress {
    pub(crate) fn get(&self) -> Progress {
        self.lock().clone()
    }

    /// All of it is done, of a size that may not have been known.
    pub(crate) fn close(&self, size: u64) {
        let mut progress = self.lock();
        (progress.bytes, progress.size, progress.open) = (size, size, false);
    }

    fn set(&self, progress: &Progress) {
        self.lock().clone_from(progress);
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// Tells how far the transfer is. One that does not keep up misses it.
    fn tell(&self, event: Event) {
        if let Some(events) = &self.events {
            let _ = events.try_send(event);
        }
    }
}

/// All who wait for transfers of a session. A daemon's has none.
#[derive(Debug, Default)]
pub(super) struct Waiters(BTreeMap<TransferId, Awaited>);

#[derive(Debug)]
enum Awaited {
    /// Something by itself. A tree's numbers include those of its entries.
    Whole { waiter: Waiter, tally: Box<Tally> },
    /// An entry of this tree, which is a transfer of its own.
    Entry { tree: TransferId, reply: Reply },
}

impl Waiters {
    /// Somebody waits for a transfer, or, with the tree that it belongs to, for an entry.
    pub(super) fn insert(&mut self, transfer: TransferId, tree: Option<TransferId>, waiter: Waiter, now: Instant) {
        let awaited = match tree {
            Some(tree) => Awaited::Entry { tree, reply: waiter.reply },
            None => Awaited::Whole { waiter, tally: Box::new(Tally::new(now)) },
        };
        self.0.insert(transfer, awaited);
    }

    pub(super) fn contains(&self, transfer: TransferId) -> bool {
        self.0.contains_key(&transfer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the events of a transfer go.
    pub(super) fn events(&self, transfer: TransferId) -> Option<mpsc::Sender<Event>> {
        match self.0.get(&transfer) {
            Some(Awaited::Whole { waiter, .. }) => waiter.events.clone(),
            _ => None,
        }
    }

    /// The numbers that a transfer counts for: its own, or its tree's.
    fn tally(&mut self, transfer: TransferId) -> Option<&mut Tally> {
        let whole = match self.0.get(&transfer)? {
            Awaited::Whole { .. } => transfer,
            Awaited::Entry { tree, .. } => *tree,
        };
        match self.0.get_mut(&whole) {
            Some(Awaited::Whole { tally, .. }) => Some(tally),
            _ => None,
        }
    }

    /// Bytes begin to move, of a size that is not known of a pipe and of a tree. Of an entry, its tree has been told.
    pub(super) fn started(&mut self, transfer: TransferId, size: u64, is_sized: bool, resumed: u64, now: Instant) {
        if let Some(Awaited::Whole { waiter, tally }) = self.0.get_mut(&transfer) {
            tally.on_started(now, is_sized.then_some(size), resumed);
            waiter.tell(Event::Started { size, resumed });
        }
    }

    /// A chunk goes over a path.
    pub(super) fn on_wire(&mut self, path: PathId, header: &DataHeader) {
        if let Some(tally) = self.tally(header.transfer) {
            tally.on_wire(path, header);
        }
    }

    /// The walk of a tree is so far.
    pub(super) fn walked(&mut self, tree: TransferId, progress: WalkProgress) {
        if let Some(tally) = self.tally(tree) {
            tally.on_walked(progress);
        }
    }

    /// The sender's kernel knows more of the paths than ours.
    pub(super) fn told_streams(&mut self, transfer: TransferId, streams: &[StreamReport]) {
        if let Some(tally) = self.tally(transfer) {
            tally.on_peer_streams(streams);
        }
    }

    /// A path was lost: all that run go on over the others.
    pub(super) fn failed_over(&mut self) {
        for awaited in self.0.values_mut() {
            if let Awaited::Whole { tally, .. } = awaited {
                tally.failovers += 1;
            }
        }
    }

    /// Whether something that has moved for so long ends with this transfer.
    pub(super) fn has_moved_for(&self, transfer: TransferId, time: Duration) -> bool {
        match self.0.get(&transfer) {
            Some(Awaited::Whole { tally, .. }) => tally.moving_since.is_some_and(|since| since.elapsed() >= time),
            _ => false,
        }
    }

    /// Tells each how far its transfer is.
    pub(super) fn tell_progress(&mut self, now: Instant, session: &Session, slots: &BTreeMap<PathId, Slot>) {
        let mut running: BTreeMap<TransferId, Vec<TransferStats>> = BTreeMap::new();
        for (transfer, awaited) in &self.0 {
            let whole = match awaited {
                Awaited::Whole { .. } => *transfer,
                Awaited::Entry { tree, .. } => *tree,
            };
            running.entry(whole).or_default().push(session.stats(*transfer));
        }
        for (transfer, awaited) in &mut self.0 {
            if let Awaited::Whole { waiter, tally } = awaited
                && let Some(progress) = tally.progress(now, running.get(transfer).map_or(&[], Vec::as_slice), slots)
            {
                waiter.progress.set(&progress);
                waiter.tell(Event::Progress(progress));
            }
        }
    }

    /// A transfer has ended, and has moved this: tells who waits for it, once. Who waits for entries of a tree that has ended hears no more.
    pub(super) fn end(
        &mut self,
        transfer: TransferId,
        result: Result<Outcome, Error>,
        stats: &TransferStats,
        close: impl FnOnce(Tally) -> Tally,
    ) {
        if let Some(tally) = self.tally(transfer) {
            tally.add(stats);
        }
        match self.0.remove(&transfer) {
            Some(Awaited::Whole { waiter, tally }) => {
                self.0.retain(|_, awaited| !matches!(awaited, Awaited::Entry { tree, .. } if *tree == transfer));
                let _ = waiter.reply.send(result.map(|outcome| (outcome, close(*tally))));
            }
            // Its numbers are its tree's.
            Some(Awaited::Entry { reply, .. }) => {
                let _ = reply.send(result.map(|outcome| (outcome, Tally::new(Instant::now()))));
            }
            None => {}
        }
    }

    /// The session ends: tells all.
    pub(super) fn end_all(&mut self, mut why: impl FnMut() -> Error) {
        for awaited in std::mem::take(&mut self.0).into_values() {
            if let Awaited::Whole { waiter, .. } = awaited {
                let _ = waiter.reply.send(Err(why()));
            }
        }
    }
}
