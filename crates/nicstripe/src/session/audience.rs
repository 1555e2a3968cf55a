//! Subscribers to the link events of a session.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::report::event::Event;

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
