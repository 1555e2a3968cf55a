//! How many data frames one connection may carry, carries and has carried.
//!
//! A receiver grants credit for as many frames as it will hold in memory; a sender keeps only so many before the socket as keep it busy,
//! so that what is committed to a slow path stays small.

use std::{collections::BTreeSet, time::Duration};

use crate::{extent::ChunkId, session::TransferId, units::BitRate};

/// How far ahead of the socket chunks are read: the time of a wake-up and a read on a busy machine, with room (picked by eye).
const AHEAD: Duration = Duration::from_millis(10);

/// Fewest and most chunks ahead of the socket. One is being sent while the next is read; 16 × 256 KiB = 4 MiB of memory a path at most.
const AHEAD_BOUNDS: (u64, u64) = (2, 16);

/// Chunks ahead of the socket while the path's rate is unknown: as many as its first assignment has.
///
/// With 16, a path of 10 Mbit/s held 3.4 s of data before anybody knew how slow it is.
const FIRST_AHEAD: u64 = crate::stripe::FIRST_ASSIGNMENT;

/// Counters of one connection; a new connection starts with [`Flow::next_connection`].
///
/// Invariants: sent + reading ≤ credit; what the peer may still send and what is held are together at most the window.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Chunks handed out to be read for this connection, not begun.
    reading: BTreeSet<(TransferId, ChunkId)>,
    /// Frames begun, not yet wholly taken by the kernel.
    unflushed: u64,
    /// Frames begun.
    sent: u64,
    /// Frames that the peer permits, in all.
    credit: u64,
    /// Frames that arrived.
    arrived: u64,
    /// Frames that arrived, on this connection of the path or one before, and still take memory.
    held: u64,
    /// Frames that we permitted, in all.
    granted: u64,
}

impl Flow {
    /// Returns the counters of the path's next connection: only the memory that is taken outlives a connection.
    pub(crate) fn next_connection(&self) -> Self {
        Self { held: self.held, ..Self::default() }
    }

    /// Whether one more chunk may be handed out, for a path of `rate` that may have `window` chunks in memory.
    pub(crate) fn may_hand_out(&self, rate: Option<BitRate>, chunk_bytes: u64, window: u64) -> bool {
        let (fewest, most) = AHEAD_BOUNDS;
        let ahead = rate.map_or(FIRST_AHEAD, |rate| (rate.bytes_in(AHEAD) / chunk_bytes.max(1)).clamp(fewest, most)).min(window);
        let reading = self.reading.len() as u64;
        reading + self.unflushed < ahead && self.sent + reading < self.credit
    }

    /// Whether only the peer's credit stands against another chunk, after some were permitted.
    pub(crate) fn is_out_of_credit(&self) -> bool {
        self.credit > 0 && self.sent + self.reading.len() as u64 >= self.credit
    }

    /// A chunk was handed out to be read.
    pub(crate) fn on_handed_out(&mut self, transfer: TransferId, chunk: ChunkId) {
        self.reading.insert((transfer, chunk));
    }

    /// A chunk was read. Says whether it was handed out for this connection; else it was for one before, and must not be sent.
    pub(crate) fn on_read(&mut self, transfer: TransferId, chunk: ChunkId) -> bool {
        self.reading.remove(&(transfer, chunk))
    }

    /// The frame of a chunk that was read is begun.
    pub(crate) fn on_begun(&mut self) {
        self.sent += 1;
        self.unflushed += 1;
    }

    /// Nothing of this transfer is read any more.
    pub(crate) fn on_transfer_ended(&mut self, transfer: TransferId) {
        self.reading.retain(|(its, _)| *its != transfer);
    }

    /// The kernel took a frame wholly.
    pub(crate) fn on_flushed(&mut self) {
        self.unflushed = self.unflushed.saturating_sub(1);
    }

    /// Frames begun, not yet wholly taken by the kernel: what a frame that is sent next has to wait for.
    pub(crate) fn unflushed(&self) -> u64 {
        self.unflushed
    }

    /// The peer permits `frames` in all.
    pub(crate) fn on_credit(&mut self, frames: u64) {
        self.credit = self.credit.max(frames);
    }

    /// A frame arrived; says whether it was permitted.
    pub(crate) fn on_arrived(&mut self) -> bool {
        self.arrived += 1;
        self.arrived <= self.granted
    }

    /// Frames that arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// A frame that arrived takes memory until [`Flow::on_released`].
    pub(crate) fn on_held(&mut self) {
        self.held += 1;
    }

    /// A frame that was held, whichever connection brought it, takes no memory any more.
    pub(crate) fn on_released(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// Frames that arrived and still take memory.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Chunks that take memory, or may at any moment: those that arrived and are held, those that the peer may send, those that are on
    /// their way to the socket.
    pub(crate) fn committed(&self) -> u64 {
        self.held + self.granted.saturating_sub(self.arrived) + self.reading.len() as u64 + self.unflushed
    }

    /// The credit to announce: what of `window` frames is not held, where a quarter of the window is gained by saying so.
    pub(crate) fn credit_due(&self, window: u64) -> Option<u64> {
        let fresh = self.arrived + window.saturating_sub(self.held);
        (fresh >= self.granted + (window / 4).max(1)).then_some(fresh)
    }

    /// `frames` were announced.
    pub(crate) fn on_granted(&mut self, frames: u64) {
        self.granted = frames;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 256 * 1024;
    const T: TransferId = TransferId(1);

    #[test]
    fn nothing_is_sent_without_credit() {
        let mut flow = Flow::default();
        assert!(!flow.may_hand_out(None, CHUNK, 32));
        flow.on_credit(1);
        assert!(flow.may_hand_out(None, CHUNK, 32));
        flow.on_handed_out(T, ChunkId(0));
        assert!(!flow.may_hand_out(None, CHUNK, 32));
    }

    #[test]
    fn a_chunk_that_was_not_sent_after_all_costs_no_credit() {
        let mut flow = Flow::default();
        flow.on_credit(1);
        flow.on_handed_out(T, ChunkId(0));
        assert!(flow.on_read(T, ChunkId(0)));
        assert!(flow.may_hand_out(None, CHUNK, 32));
    }

    #[test]
    fn a_read_for_an_earlier_connection_does_not_count_on_this_one() {
        let mut flow = Flow::default();
        flow.on_credit(2);
        flow.on_handed_out(T, ChunkId(0));
        let mut flow = flow.next_connection();
        flow.on_credit(1);
        flow.on_handed_out(T, ChunkId(1));
        assert!(!flow.on_read(T, ChunkId(0)));
        assert!(!flow.may_hand_out(None, CHUNK, 32));
    }

    #[test]
    fn a_slow_path_keeps_two_chunks_ahead_of_its_socket_and_a_fast_one_sixteen() {
        for (rate, expected) in [(None, 4), (Some(10), 2), (Some(1_000), 4), (Some(100_000), 16)] {
            let mut flow = Flow::default();
            flow.on_credit(100);
            let rate = rate.map(BitRate::from_mbit);
            let handed = (0..100).take_while(|chunk| {
                let may = flow.may_hand_out(rate, CHUNK, 32);
                flow.on_handed_out(T, ChunkId(*chunk));
                may
            });
            assert_eq!(handed.count(), expected, "{rate:?}");
        }
    }

    #[test]
    fn credit_is_announced_when_a_quarter_of_the_window_is_gained() {
        let mut flow = Flow::default();
        assert_eq!(flow.credit_due(32), Some(32));
        flow.on_granted(32);
        (0..32).for_each(|_| {
            flow.on_arrived();
            flow.on_held();
        });
        (0..7).for_each(|_| flow.on_released());
        assert_eq!(flow.credit_due(32), None);
        flow.on_released();
        assert_eq!(flow.credit_due(32), Some(40));
    }

    #[test]
    fn a_window_that_shrinks_takes_no_credit_back_and_grants_none_until_it_fits() {
        let mut flow = Flow::default();
        flow.on_granted(32);
        assert_eq!((flow.credit_due(4), flow.committed()), (None, 32));
        (0..28).for_each(|_| assert!(flow.on_arrived()));
        assert_eq!((flow.credit_due(4), flow.committed()), (None, 4));
        flow.on_arrived();
        assert_eq!(flow.credit_due(4), Some(33));
        flow.on_granted(33);
        assert_eq!(flow.committed(), 4);
        // One chunk at a time, if there is no more.
        (0..4).for_each(|_| _ = flow.on_arrived());
        assert_eq!(flow.credit_due(1), Some(34));
    }

    #[test]
    fn a_small_window_holds_back_what_is_read_ahead() {
        let mut flow = Flow::default();
        flow.on_credit(32);
        assert!(flow.may_hand_out(None, CHUNK, 1));
        flow.on_handed_out(T, ChunkId(0));
        assert!(!flow.may_hand_out(None, CHUNK, 1) && flow.may_hand_out(None, CHUNK, 2));
        assert_eq!(flow.committed(), 1);
    }

    #[test]
    fn what_an_earlier_connection_brought_takes_room_in_the_window() {
        let mut flow = Flow::default();
        (0..30).for_each(|_| flow.on_held());
        let mut flow = flow.next_connection();
        assert_eq!(flow.credit_due(32), None); // 2 of 32
        (0..6).for_each(|_| flow.on_released());
        assert_eq!(flow.credit_due(32), Some(8));
    }

    #[test]
    fn more_frames_than_granted_are_noticed() {
        let mut flow = Flow::default();
        flow.on_granted(1);
        assert!(flow.on_arrived());
        assert!(!flow.on_arrived());
    }
}
