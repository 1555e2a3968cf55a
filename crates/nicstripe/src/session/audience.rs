//! Subscribers to a session's link events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::event::Event;

/// Senders to the owner's running transfers, which receive the session's link events. Clones share
/// one list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audience(Arc<Mutex<Vec<mpsc::Sender<Event>>>>);

impl Audience {
    /// Subscribes a sender; repeated calls have no effect.
    pub(crate) fn join(&self, events: &mpsc::Sender<Event>) {
        let mut listeners = self.listeners();
        if !listeners
            .iter()
            .any(|listener| listener.same_channel(events))
        {
            listeners.push(events.clone());
        }
    }

    /// Unsubscribes a sender.
    pub(crate) fn leave(&self, events: &mpsc::Sender<Event>) {
        self.listeners()
            .retain(|listener| !listener.same_channel(events));
    }

    /// Sends an event to all subscribers. One with a full channel misses it.
    pub(crate) fn tell(&self, event: &Event) {
        for listener in &*self.listeners() {
            let _ = listener.try_send(event.clone());
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Event>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
