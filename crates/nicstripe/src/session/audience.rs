//! Who is told what happens to a session's links.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::event::Event;

/// Those who are told what happens to a session's links: its owner's transfers that run. A clone is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audience(Arc<Mutex<Vec<mpsc::Sender<Event>>>>);

impl Audience {
    /// From now on this one is told, once, however often it joins.
    pub(crate) fn join(&self, events: &mpsc::Sender<Event>) {
        let mut listeners = self.listeners();
        if !listeners.iter().any(|listener| listener.same_channel(events)) {
            listeners.push(events.clone());
        }
    }

    /// This one is told no more.
    pub(crate) fn leave(&self, events: &mpsc::Sender<Event>) {
        self.listeners().retain(|listener| !listener.same_channel(events));
    }

    /// Tells all. One that does not keep up misses it.
    pub(crate) fn tell(&self, event: &Event) {
        for listener in &*self.listeners() {
            let _ = listener.try_send(event.clone());
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Event>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
