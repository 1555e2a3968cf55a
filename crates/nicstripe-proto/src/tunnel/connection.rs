//! One connection of a trunk: what is to be sent, what has come, and its windows.

use super::{FIRST_WINDOW, LEAST_WINDOW, MOST_CONNECTIONS, MOST_RECEIVED, MOST_UNSENT, MOST_WINDOW, TargetRefusal, queue::ByteQueue};

/// How far a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Client: wanted, not asked for. To: `Asking`.
    Opening { target: String },
    /// Client: asked for. To: `Open`.
    Asking,
    /// Daemon: asked for. To: `Accepting`, `Refusing`.
    Asked,
    /// Daemon: there is one, which was not said. To: `Open`.
    Accepting,
    /// Daemon: there will be none, which was not said.
    Refusing { code: TargetRefusal, why: String },
    /// Bytes may go both ways.
    Open,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stage: Stage,
    /// Bytes that the peer permits besides those in `unsent`.
    pub(super) credit: u64,
    pub(super) unsent: ByteQueue,
    /// Nothing will be written any more.
    pub(super) is_finishing: bool,
    pub(super) end_sent: bool,
    /// The writer found no room.
    pub(super) wants_room: bool,
    pub(super) inbound: Inbound,
    pub(super) unread: ByteQueue,
    /// The peer sends no more.
    pub(super) has_ended: bool,
    /// The reader found nothing.
    pub(super) wants_bytes: bool,
    /// Nobody here reads or writes any more.
    pub(super) is_let_go: bool,
    /// The peer is to be told that it is gone.
    pub(super) reset_due: bool,
    /// It is gone: the peer, or the whole trunk, has said so.
    pub(super) is_broken: bool,
    /// Whether it stands among those that have something to send.
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

    /// Whether there is something to send.
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

    /// Bytes that may be written.
    pub(super) fn room(&self, pool: &Pool) -> usize {
        let queue = pool.queue_limit().saturating_sub(self.unsent.len());
        if self.stage == Stage::Open { queue.min(usize::try_from(self.credit).unwrap_or(usize::MAX)) } else { 0 }
    }

    /// Says once that there is room again, when it is worth a wake-up.
    pub(super) fn take_room_wish(&mut self, pool: &Pool) -> bool {
        let worth = self.room(pool) > 0 && self.unsent.len() <= pool.queue_limit() / 2;
        worth && std::mem::take(&mut self.wants_room)
    }

    /// Bytes for a reader that is not there are as good as read.
    pub(super) fn discard_unread(&mut self, pool: &mut Pool) {
        self.inbound.release(self.unread.len() as u64, pool);
        self.unread.clear();
    }

    pub(super) fn discard_unsent(&mut self, pool: &mut Pool) {
        pool.unsent -= self.unsent.len() as u64;
        self.unsent.clear();
    }
}

/// What the peer may send, and has.
///
/// Invariant: consumed ≤ received ≤ told = granted - due.
#[derive(Debug)]
pub(super) struct Inbound {
    /// How much may be under way and unread together.
    target: u32,
    granted: u64,
    received: u64,
    consumed: u64,
    /// What of `granted` the peer was not told.
    pub(super) due: u32,
    /// Whether the peer would have sent more, since the window was made larger.
    is_used_up: bool,
}

impl Inbound {
    fn first(pool: &mut Pool) -> Self {
        // A sixty-fourth of what is left: the first few hundred have the whole of it, and none of them takes all.
        let share = u32::try_from(pool.free() / 64).unwrap_or(u32::MAX);
        let target = share.clamp(LEAST_WINDOW, FIRST_WINDOW);
        pool.extra += u64::from(target - LEAST_WINDOW);
        Self { target, granted: target.into(), received: 0, consumed: 0, due: target, is_used_up: false }
    }

    /// Bytes that are under way, or may be, and those that were not read.
    pub(super) fn held(&self) -> u64 {
        self.granted - self.consumed
    }

    /// Takes what the peer is to be told.
    pub(super) fn take_due(&mut self) -> u32 {
        std::mem::take(&mut self.due)
    }

    /// Bytes came; says whether they were permitted.
    pub(super) fn on_received(&mut self, bytes: u64) -> bool {
        let told = self.granted - u64::from(self.due);
        self.received += bytes;
        self.received <= told
    }

    /// The peer would send more, were the window larger.
    pub(super) fn on_used_up(&mut self) {
        self.is_used_up = true;
    }

    /// Bytes were read, and `unread` are left. Grants more where that is worth a record.
    pub(super) fn on_read(&mut self, bytes: u64, unread: usize, pool: &mut Pool) {
        self.release(bytes, pool);
        let is_tight = pool.free() < Pool::EXTRA / 8;
        if is_tight && self.target > FIRST_WINDOW {
            self.target = (self.target / 2).max(FIRST_WINDOW);
        } else if unread == 0 && self.is_used_up && !is_tight {
            // The reader was faster than the window let the writer be.
            self.target = self.target.saturating_mul(2).min(MOST_WINDOW);
            self.is_used_up = false;
        }
        self.grant(pool);
    }

    /// Bytes were read of a connection on which no more will come.
    pub(super) fn on_read_at_end(&mut self, bytes: u64, pool: &mut Pool) {
        self.release(bytes, pool);
    }

    fn release(&mut self, bytes: u64, pool: &mut Pool) {
        let before = extra(self.held());
        self.consumed += bytes;
        pool.extra -= before - extra(self.held());
    }

    fn grant(&mut self, pool: &mut Pool) {
        let held = self.held();
        let wanted = u64::from(self.target).saturating_sub(held);
        let most = held.max(LEAST_WINDOW.into()) + pool.free() - held;
        let grant = wanted.min(most);
        // Where memory is short a little is told as well, before the peer has nothing left.
        let is_worth_it = grant >= u64::from(self.target / GRANTS) || held <= u64::from(LEAST_WINDOW / 2);
        if grant == 0 || !is_worth_it {
            return;
        }
        pool.extra += extra(held + grant) - extra(held);
        self.granted += grant;
        // At most the greatest window.
        self.due += grant as u32;
    }

    /// The connection is no more.
    pub(super) fn forget(&mut self, pool: &mut Pool) {
        self.release(self.held(), pool);
    }
}

/// What of a window is beyond what every connection can have.
pub(super) fn extra(held: u64) -> u64 {
    held.saturating_sub(LEAST_WINDOW.into())
}

/// What all connections of an end share.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// What windows have beyond the least.
    pub(super) extra: u64,
    /// Bytes that were taken and not sent.
    pub(super) unsent: u64,
}

impl Pool {
    /// Most that windows may have beyond the least.
    pub(super) const EXTRA: u64 = MOST_RECEIVED - MOST_CONNECTIONS as u64 * LEAST_WINDOW as u64;

    fn free(&self) -> u64 {
        Self::EXTRA.saturating_sub(self.extra)
    }

    /// Most bytes of one connection that wait to be sent.
    fn queue_limit(&self) -> usize {
        if self.unsent < MOST_UNSENT / 2 { QUEUE } else { SHORT_QUEUE }
    }
}

/// Parts of a window after which the peer is told of room: a quarter, so that it seldom waits for the record.
const GRANTS: u32 = 4;

/// Bytes of a connection that may wait to be sent: a parcel, which is full as soon as the trunk is the bottleneck.
const QUEUE: usize = crate::frame::MAX_PAYLOAD;

/// The same where half of [`MOST_UNSENT`] waits: all connections together have the other half.
const SHORT_QUEUE: usize = (MOST_UNSENT / 2) as usize / MOST_CONNECTIONS;
