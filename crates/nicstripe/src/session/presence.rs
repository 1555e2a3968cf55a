//! Connection state of a session, shared with other tasks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Connection state of a session.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// True if any path of the session is connected.
    pub(crate) is_connected: AtomicBool,
    arriving: AtomicUsize,
}

/// Guard that counts a new connection until its session has received it. The peer may already use
/// this connection and have closed all others.
#[derive(Debug)]
pub(crate) struct Arriving(Arc<Presence>);

impl Drop for Arriving {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Presence {
    /// Returns true if the session has no connection and none is being passed to it.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_connected.load(Ordering::Acquire) && !self.is_awaiting()
    }

    /// Returns true if a new connection is being passed to the session.
    pub(super) fn is_awaiting(&self) -> bool {
        self.arriving.load(Ordering::Acquire) > 0
    }

    /// Counts a new connection that will be passed to the session.
    pub(super) fn await_connection(self: &Arc<Self>) -> Arriving {
        self.arriving.fetch_add(1, Ordering::AcqRel);
        Arriving(self.clone())
    }
}
