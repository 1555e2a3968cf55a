//! Owners of a session's transfers, who wait for the results and follow its link events.

use std::sync::Arc;

use nicstripe_proto::{Digest, ETag};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::tally::Tally;
use crate::{
    report::{
        error::Error,
        event::{Event, Progress},
    },
    tree::TreeReport,
};

/// Result of a successful transfer: its digest, size and entries.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// BLAKE3 hash of the file; `None` for a tree.
    pub(crate) digest: Option<Digest>,
    pub(crate) etag: Option<ETag>,
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

/// Who starts a transfer, and what of it they wait for.
#[derive(Debug)]
pub(crate) enum Starter {
    /// Nobody waits: a part of the session, such as its tunnels.
    Session,
    /// Program that waits for the end and follows the progress.
    Program(Waiter),
    /// Program that waits for the end of a stream, which may be silent for any time.
    Stream(Reply),
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

    pub(super) fn set(&self, progress: &Progress) {
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
