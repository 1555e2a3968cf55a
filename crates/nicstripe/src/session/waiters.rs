//! Owners of a session's transfers, who wait for the results and follow its link events.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{DataHeader, Digest, PathId, Session, TransferId, TransferStats};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::{last_progress::Mark, path_connection::PathConnection, tally::Tally};
use crate::{
    report::{
        error::Error,
        event::{Event, Progress},
    },
    tree::TreeReport,
    wire::clock,
};

/// Result of a successful transfer: its digest, size and entries.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// BLAKE3 hash of the file; `None` for a tree.
    pub(crate) digest: Option<Digest>,
    pub(crate) size: u64,
    pub(crate) tree: Option<TreeReport>,
}

/// Sender of a transfer's result and statistics to its owner.
pub(crate) type Reply = oneshot::Sender<Result<(Outcome, Tally), Error>>;

/// Owner of a transfer, who waits for its end.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) reply: Reply,
    /// Channel for events of the transfer; `None` if the owner wants none.
    pub(crate) events: Option<mpsc::Sender<Event>>,
    /// Current progress, which the owner may read at any time.
    pub(crate) progress: SharedProgress,
    /// True if the transfer moves an object for the owner of requests.
    pub(crate) is_object: bool,
}

/// Progress of a transfer: written by its session, read by its owner.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedProgress(Arc<Mutex<Progress>>);

impl SharedProgress {
    pub(crate) fn get(&self) -> Progress {
        self.0.lock().clone()
    }

    /// Sets the progress to complete, with a final size of `size` bytes.
    pub(crate) fn close(&self, size: u64) {
        let mut progress = self.0.lock();
        (progress.bytes, progress.size, progress.open) = (size, size, false);
    }

    fn set(&self, progress: &Progress) {
        self.0.lock().clone_from(progress);
    }
}

impl Waiter {
    /// Sends an event to the owner, unless the channel is full.
    pub(super) fn tell(&self, event: Event) {
        if let Some(events) = &self.events {
            let _ = events.try_send(event);
        }
    }
}

/// Subscribers to the link events of a session: one sender per running transfer of its owner.
/// Clones share one list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audience(Arc<Mutex<Vec<mpsc::Sender<Event>>>>);

impl Audience {
    /// Adds a subscriber. Has no effect if it is already subscribed.
    pub(crate) fn join(&self, events: &mpsc::Sender<Event>) {
        let mut listeners = self.0.lock();
        if !listeners
            .iter()
            .any(|listener| listener.same_channel(events))
        {
            listeners.push(events.clone());
        }
    }

    /// Removes a subscriber.
    pub(crate) fn leave(&self, events: &mpsc::Sender<Event>) {
        self.0
            .lock()
            .retain(|listener| !listener.same_channel(events));
    }

    /// Sends an event to all subscribers, except those whose channel is full.
    pub(crate) fn tell(&self, event: &Event) {
        for listener in &*self.0.lock() {
            let _ = listener.try_send(event.clone());
        }
    }
}

/// Waiting owners by transfer. Empty in a daemon.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Files, pipes and trees. The statistics of a tree include its standalone files.
    whole: BTreeMap<TransferId, (Waiter, Tally)>,
    /// Standalone files, with the transfer identifier of their tree.
    entries: BTreeMap<TransferId, (TransferId, Reply)>,
}

impl Waiters {
    /// Registers the owner of a transfer, or of a standalone file if `tree` is given.
    pub(super) fn insert(
        &mut self,
        transfer: TransferId,
        tree: Option<TransferId>,
        waiter: Waiter,
        now: Instant,
    ) {
        match tree {
            Some(tree) => _ = self.entries.insert(transfer, (tree, waiter.reply)),
            None => _ = self.whole.insert(transfer, (waiter, Tally::new(now))),
        }
    }

    pub(super) fn contains(&self, transfer: TransferId) -> bool {
        self.whole.contains_key(&transfer) || self.entries.contains_key(&transfer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.entries.is_empty()
    }

    pub(super) fn have_object(&self) -> bool {
        self.whole.values().any(|(waiter, _)| waiter.is_object)
    }

    pub(super) fn events(&self, transfer: TransferId) -> Option<mpsc::Sender<Event>> {
        self.whole.get(&transfer)?.0.events.clone()
    }

    /// Returns the statistics to which a transfer is added: its own, or those of its tree.
    pub(super) fn tally(&mut self, transfer: TransferId) -> Option<&mut Tally> {
        let entry = self.entries.get(&transfer);
        let whole = entry.map_or(transfer, |(tree, _)| *tree);
        self.whole.get_mut(&whole).map(|(_, tally)| tally)
    }

    /// Records the start of a transfer and tells its owner. `size` is `None` for a pipe or tree.
    /// Ignores standalone files, whose tree has already started.
    pub(super) fn started(
        &mut self,
        transfer: TransferId,
        size: Option<u64>,
        resumed: u64,
        now: Instant,
    ) {
        if let Some((waiter, tally)) = self.whole.get_mut(&transfer) {
            tally.on_started(now, size, resumed);
            let size = size.unwrap_or(0);
            waiter.tell(Event::Started { size, resumed });
        }
    }

    pub(super) fn on_wire(&mut self, path: PathId, header: &DataHeader) {
        if let Some(tally) = self.tally(header.transfer) {
            tally.on_wire(path, header);
        }
    }

    /// Counts a lost path connection for each running transfer.
    pub(super) fn failed_over(&mut self) {
        for (_, tally) in self.whole.values_mut() {
            tally.failovers += 1;
        }
    }

    /// Returns true if the transfer is a file, pipe or tree that has moved data for at least
    /// `time`.
    pub(super) fn has_moved_for(&self, transfer: TransferId, time: Duration) -> bool {
        let whole = self.whole.get(&transfer);
        whole
            .and_then(|(_, tally)| tally.moving_since)
            .is_some_and(|since| clock::now() - since >= time)
    }

    /// Returns the progress of each file, pipe and tree, whose first two counters are the found and
    /// the finished files of a tree.
    pub(super) fn marks(&self, session: &Session) -> Vec<(TransferId, Mark)> {
        let marks = self.whole.iter().map(|(transfer, (_, tally))| {
            let running = self.running(*transfer, session);
            (*transfer, tally.mark(&running))
        });
        marks.collect()
    }

    pub(super) fn whole_mut(&mut self, transfer: TransferId) -> Option<&mut (Waiter, Tally)> {
        self.whole.get_mut(&transfer)
    }

    /// Returns true if both ends of a file, pipe or tree are open.
    pub(super) fn has_started(&self, transfer: TransferId) -> bool {
        let whole = self.whole.get(&transfer);
        whole.is_some_and(|(_, tally)| tally.moving_since.is_some())
    }

    /// Returns the statistics of a transfer and of the standalone files of its tree that have not
    /// ended.
    fn running(&self, transfer: TransferId, session: &Session) -> Vec<TransferStats> {
        let entries = self.entries.iter();
        entries
            .filter_map(|(entry, (tree, _))| (*tree == transfer).then_some(*entry))
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
        for transfer in self.whole.keys().copied().collect::<Vec<_>>() {
            let running = self.running(transfer, session);
            let Some((waiter, tally)) = self.whole.get_mut(&transfer) else {
                continue;
            };
            if let Some(progress) = tally.progress(now, &running, connections) {
                waiter.progress.set(&progress);
                waiter.tell(Event::Progress(progress));
            }
        }
    }

    /// Sends the result of a transfer to its owner. The end of a tree drops the waiting owners of
    /// its standalone files.
    pub(super) fn end(
        &mut self,
        transfer: TransferId,
        result: Result<Outcome, Error>,
        stats: &TransferStats,
        close: impl FnOnce(Tally) -> Tally,
    ) {
        if let Some(tally) = self.tally(transfer) {
            tally.stats.add(stats);
        }
        if let Some((waiter, tally)) = self.whole.remove(&transfer) {
            self.entries.retain(|_, (tree, _)| *tree != transfer);
            let result = result.map(|outcome| (outcome, close(tally)));
            let _ = waiter.reply.send(result);
        } else if let Some((_, reply)) = self.entries.remove(&transfer) {
            // An entry's bytes count for its tree.
            let _ = reply.send(result.map(|outcome| (outcome, Tally::new(clock::now()))));
        }
    }

    /// Sends an error to all waiting owners at the end of the session.
    pub(super) fn end_all(&mut self, mut why: impl FnMut() -> Error) {
        for (waiter, _) in std::mem::take(self).whole.into_values() {
            let _ = waiter.reply.send(Err(why()));
        }
    }
}
