//! Handles to a running session, and the signals between the session and its handles.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    inbox::{Command, Input},
    path_connection::Arriving,
};
use crate::wire::tasks::TaskTracker;

/// Handle to a session, which ends when no handle, connection or job is left.
#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(super) signals: SessionSignals,
}

impl Deref for SessionHandle {
    type Target = SessionSignals;

    fn deref(&self) -> &SessionSignals {
        &self.signals
    }
}

impl SessionHandle {
    pub(crate) fn new(inputs: mpsc::Sender<Input>, signals: SessionSignals) -> Self {
        Self { inputs, signals }
    }

    pub(crate) async fn command(&self, command: Command) -> bool {
        self.inputs.send(Input::Command(command)).await.is_ok()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inputs.same_channel(&other.inputs)
    }

    /// Asks the session to end if it has no connection. Does nothing if the session's input queue
    /// is full, because such a busy session has a connection.
    pub(crate) fn end_if_idle(&self) {
        let _ = self.inputs.try_send(Input::Command(Command::EndIfIdle));
    }
}

/// Signals between a session and its handles. They do not keep it from ending.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionSignals {
    is_connected: Arc<AtomicBool>,
    /// True if anything has arrived since [`forget_heard`](Self::forget_heard).
    is_heard: Arc<AtomicBool>,
    /// Tracker of new connections that the session has not received yet.
    arriving: TaskTracker,
    /// Cancelled when the session has ended and released its files.
    pub(crate) ended: CancellationToken,
    /// Cancelled by [`stop`](Self::stop).
    pub(super) stopped: CancellationToken,
    /// True once the session ends: its long jobs stop after their turn.
    pub(super) is_stopped: Arc<AtomicBool>,
}

impl SessionSignals {
    /// Ends the session before its next input, and its jobs after their turn. Does not wait, so
    /// that a destructor may call it.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.stopped.cancel();
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Acquire)
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Release);
    }

    pub(super) fn set_heard(&self) {
        // Read first: a write takes the cache line from other processors.
        if !self.is_heard() {
            self.is_heard.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if anything has arrived since [`forget_heard`](Self::forget_heard).
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_heard(&self) {
        self.is_heard.store(false, Ordering::Relaxed);
    }

    /// Returns true if the session has no connection and none is being passed to it.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_connected() && !self.is_awaiting()
    }

    /// Returns true if a new connection is being passed to the session.
    pub(crate) fn is_awaiting(&self) -> bool {
        !self.arriving.is_empty()
    }

    /// Counts a new connection that will be passed to the session. The caller drops the guard once
    /// the session has received the connection.
    pub(crate) fn await_connection(&self) -> Arriving {
        self.arriving.token()
    }
}
