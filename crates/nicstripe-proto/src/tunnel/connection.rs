//! Tunnelled connection at one end: send queue, receive queue and windows.

use super::{
    limits::{
        FIRST_WINDOW, LEAST_WINDOW, MOST_CONNECTIONS, MOST_RECEIVED, MOST_UNSENT, MOST_WINDOW,
    },
    queue::ByteQueue,
    record::TargetRefusal,
};

/// State of a tunnelled connection at one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Client: the request is queued. Next state: `Asking`.
    Opening { target: String },
    /// Client: the request was sent. Next state: `Open`.
    Asking,
    /// Daemon: the request was received, and the driver connects to the target. Next states:
    /// `Accepting`, `Refusing`.
    Asked,
    /// Daemon: the target is connected, and the answer is queued. Next state: `Open`.
    Accepting,
    /// Daemon: the request is rejected, and the answer is queued. Final state.
    Refusing { code: TargetRefusal, why: String },
    /// Either end: data may flow in both directions. Final state.
    Open,
}

/// State, queues and windows of a tunnelled connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stage: Stage,
    /// Number of bytes that the peer's window permits, beyond the bytes in `unsent`.
    pub(super) credit: u64,
    pub(super) unsent: ByteQueue,
    /// True if the local program has ended its stream. Queued bytes are still sent.
    pub(super) is_finishing: bool,
    pub(super) end_sent: bool,
    pub(super) wants_room: bool,
    pub(super) inbound: Inbound,
    pub(super) unread: ByteQueue,
    /// True if the peer has ended its sending direction.
    pub(super) has_ended: bool,
    pub(super) wants_bytes: bool,
    /// True if the local program has closed the connection.
    pub(super) is_let_go: bool,
    pub(super) reset_due: bool,
    /// True if the connection has failed: the peer reset it, or the multiplexer has ended.
    pub(super) is_broken: bool,
    pub(super) is_queued: bool,
}

impl Connection {
    pub(super) fn new(stage: Stage, credit: u64, pool: &mut Pool) -> Self {
        Self {
            stage,
            credit,
            unsent: ByteQueue::default(),
            is_finishing: false,
            end_sent: false,
            wants_room: false,
            inbound: Inbound::first(pool),
            unread: ByteQueue::default(),
            has_ended: false,
            wants_bytes: false,
            is_let_go: false,
            reset_due: false,
            is_broken: false,
            is_queued: false,
        }
    }

    pub(super) fn is_due(&self) -> bool {
        match self.stage {
            _ if self.is_broken => false,
            Stage::Opening { .. } | Stage::Accepting | Stage::Refusing { .. } => true,
            Stage::Asking | Stage::Asked => self.reset_due,
            Stage::Open => {
                let end_due = self.is_finishing && !self.end_sent;
                self.inbound.due > 0 || !self.unsent.is_empty() || end_due || self.reset_due
            }
        }
    }

    /// Returns the number of bytes that the local program may write now. The send queue and the
    /// peer's window limit the number.
    pub(super) fn room(&self, pool: &Pool) -> usize {
        let queue = pool.queue_limit().saturating_sub(self.unsent.len());
        if self.stage == Stage::Open {
            queue.min(usize::try_from(self.credit).unwrap_or(usize::MAX))
        } else {
            0
        }
    }

    /// Returns true if a waiting writer should be woken, and records the wake-up. To save wake-ups,
    /// the queue must be at most half full.
    pub(super) fn take_room_wish(&mut self, pool: &Pool) -> bool {
        let worth = self.room(pool) > 0 && self.unsent.len() <= pool.queue_limit() / 2;
        worth && std::mem::take(&mut self.wants_room)
    }

    /// Discards received bytes that the local program will not read, and releases their share of
    /// the window.
    pub(super) fn discard_unread(&mut self, pool: &mut Pool) {
        self.inbound.release(self.unread.len() as u64, pool);
        self.unread.clear();
    }

    pub(super) fn discard_unsent(&mut self, pool: &mut Pool) {
        pool.unsent -= self.unsent.len() as u64;
        self.unsent.clear();
    }
}

/// Receive window of a connection, in bytes.
///
/// Invariant: consumed ≤ received ≤ announced = granted - due.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Size of the window in bytes: bytes in flight plus unread bytes.
    target: u32,
    granted: u64,
    received: u64,
    consumed: u64,
    /// Part of `granted` that has not been announced to the peer, in bytes.
    pub(super) due: u32,
    /// True if the window has limited the sender's rate since its last enlargement.
    pub(super) is_used_up: bool,
}

impl Inbound {
    fn first(pool: &mut Pool) -> Self {
        // A sixty-fourth of the free memory: a few hundred connections get the full window, and no
        // connection takes all the memory.
        let share = u32::try_from(pool.free() / 64).unwrap_or(u32::MAX);
        let target = share.clamp(LEAST_WINDOW, FIRST_WINDOW);
        pool.extra += u64::from(target - LEAST_WINDOW);
        Self {
            target,
            granted: target.into(),
            received: 0,
            consumed: 0,
            due: target,
            is_used_up: false,
        }
    }

    /// Returns the memory in bytes that the window occupies: bytes that the peer may still send,
    /// plus received bytes that are unread.
    pub(super) fn held(&self) -> u64 {
        self.granted - self.consumed
    }

    /// Counts received bytes. Returns false if they exceed the window that was announced to the
    /// peer.
    pub(super) fn on_received(&mut self, bytes: u64) -> bool {
        let announced = self.granted - u64::from(self.due);
        self.received += bytes;
        self.received <= announced
    }

    /// Counts bytes that the local program has read; `unread` bytes remain. Grants more window to
    /// the peer if the window update is worth a record.
    pub(super) fn on_read(&mut self, bytes: u64, unread: usize, pool: &mut Pool) {
        self.release(bytes, pool);
        let is_tight = pool.free() < Pool::EXTRA / 8;
        if is_tight && self.target > FIRST_WINDOW {
            self.target = (self.target / 2).max(FIRST_WINDOW);
        } else if unread == 0 && self.is_used_up && !is_tight {
            // The reader is faster than the window permits the writer to be.
            self.target = self.target.saturating_mul(2).min(MOST_WINDOW);
            self.is_used_up = false;
        }
        self.grant(pool);
    }

    /// Counts bytes that the local program has read or will not read. Grants no window.
    pub(super) fn release(&mut self, bytes: u64, pool: &mut Pool) {
        let before = extra(self.held());
        self.consumed += bytes;
        pool.extra -= before - extra(self.held());
    }

    fn grant(&mut self, pool: &mut Pool) {
        let held = self.held();
        let missing = u64::from(self.target).saturating_sub(held);
        let most = held.max(LEAST_WINDOW.into()) + pool.free() - held;
        let grant = missing.min(most);
        // Even if memory is short, a small update is sent before the peer's window is empty.
        let is_worth_it =
            grant >= u64::from(self.target / GRANTS) || held <= u64::from(LEAST_WINDOW / 2);
        if grant == 0 || !is_worth_it {
            return;
        }
        pool.extra += extra(held + grant) - extra(held);
        self.granted += grant;
        // At most `MOST_WINDOW`.
        self.due += grant as u32;
    }
}

/// Returns the part of a window above the guaranteed minimum, in bytes.
pub(super) fn extra(held: u64) -> u64 {
    held.saturating_sub(LEAST_WINDOW.into())
}

/// Memory accounting for all connections of one end.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Sum of all receive windows above their guaranteed minimum, in bytes.
    pub(super) extra: u64,
    pub(super) unsent: u64,
}

impl Pool {
    pub(super) const EXTRA: u64 = MOST_RECEIVED - MOST_CONNECTIONS as u64 * LEAST_WINDOW as u64;

    fn free(&self) -> u64 {
        Self::EXTRA.saturating_sub(self.extra)
    }

    /// Returns the maximum length of a connection's send queue in bytes. The limit is lower if
    /// memory is short.
    fn queue_limit(&self) -> usize {
        if self.unsent < MOST_UNSENT / 2 {
            QUEUE
        } else {
            SHORT_QUEUE
        }
    }
}

/// Divisor of the window. An update is sent after a quarter of the window, so that the peer seldom
/// stalls.
const GRANTS: u32 = 4;

/// Maximum length of a connection's send queue in bytes: one batch. The queue is full as soon as
/// the multiplexer is the bottleneck.
const QUEUE: usize = crate::wire::frame::MAX_PAYLOAD;

/// Maximum length in bytes of a send queue while half of [`MOST_UNSENT`] is queued. All connections
/// share the other half.
const SHORT_QUEUE: usize = (MOST_UNSENT / 2) as usize / MOST_CONNECTIONS;
