//! Flow control of data frames on one connection.
//!
//! A receiver grants credit for the frames that it can buffer. A sender reads only as many chunks
//! ahead of the socket as keep the path busy, so little is committed to a slow path.

use std::{collections::BTreeSet, time::Duration};

use crate::{extent::ChunkId, session::TransferId, units::BitRate};

/// Read-ahead time: covers a wake-up and a read on a busy machine, with a margin (picked by eye).
const AHEAD: Duration = Duration::from_millis(10);

/// Fewest and most chunks of read-ahead. With two, one is sent while the next is read; 16 × 256 KiB
/// is 4 MiB of memory per path.
const AHEAD_BOUNDS: (u64, u64) = (2, 16);

/// Read-ahead in chunks for a path of unknown rate; equals its first assignment.
///
/// With 16, a path of 10 Mbit/s buffered 3.4 s of data before its rate was known.
const FIRST_AHEAD: u64 = crate::stripe::FIRST_ASSIGNMENT;

/// Frame counters of one connection; [`Flow::next_connection`] returns those of the next.
///
/// Invariants: sent + reading ≤ credit; frames granted but not arrived plus frames held ≤ window.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Chunks handed out to be read for this connection, frame not begun.
    reading: BTreeSet<(TransferId, ChunkId)>,
    /// Frames begun and not fully written to the kernel.
    unflushed: u64,
    sent: u64,
    /// Total frames permitted by the peer.
    credit: u64,
    arrived: u64,
    /// Frames that arrived on this or an earlier connection of the path and still occupy memory.
    held: u64,
    /// Total frames permitted to the peer.
    granted: u64,
}

impl Flow {
    /// Returns the counters of the path's next connection; only the memory in use carries over.
    pub(crate) fn next_connection(&self) -> Self {
        Self {
            held: self.held,
            ..Self::default()
        }
    }

    /// Returns true if one more chunk may be handed out, for a path of `rate` and `window` chunks
    /// of memory.
    pub(crate) fn may_hand_out(
        &self,
        rate: Option<BitRate>,
        chunk_bytes: u64,
        window: u64,
    ) -> bool {
        let (fewest, most) = AHEAD_BOUNDS;
        let ahead = rate
            .map_or(FIRST_AHEAD, |rate| {
                (rate.bytes_in(AHEAD) / chunk_bytes.max(1)).clamp(fewest, most)
            })
            .min(window);
        let reading = self.reading.len() as u64;
        reading + self.unflushed < ahead && self.sent + reading < self.credit
    }

    /// Returns true if credit is used up, after the peer has granted some.
    pub(crate) fn is_out_of_credit(&self) -> bool {
        self.credit > 0 && self.sent + self.reading.len() as u64 >= self.credit
    }

    /// Counts a chunk handed out to be read.
    pub(crate) fn on_handed_out(&mut self, transfer: TransferId, chunk: ChunkId) {
        self.reading.insert((transfer, chunk));
    }

    /// Removes a chunk that was read. Returns false if it belongs to an earlier connection and must
    /// not be sent.
    pub(crate) fn on_read(&mut self, transfer: TransferId, chunk: ChunkId) -> bool {
        self.reading.remove(&(transfer, chunk))
    }

    pub(crate) fn on_begun(&mut self) {
        self.sent += 1;
        self.unflushed += 1;
    }

    /// Forgets the pending reads of a transfer.
    pub(crate) fn on_transfer_ended(&mut self, transfer: TransferId) {
        self.reading.retain(|(its, _)| *its != transfer);
    }

    /// Counts a frame fully written to the kernel.
    pub(crate) fn on_flushed(&mut self) {
        self.unflushed = self.unflushed.saturating_sub(1);
    }

    /// Returns the frames begun and not fully written to the kernel; the next frame waits for them.
    pub(crate) fn unflushed(&self) -> u64 {
        self.unflushed
    }

    /// Raises the credit to `frames` in total.
    pub(crate) fn on_credit(&mut self, frames: u64) {
        self.credit = self.credit.max(frames);
    }

    /// Counts a frame that arrived; returns true if it was within the credit.
    pub(crate) fn on_arrived(&mut self) -> bool {
        self.arrived += 1;
        self.arrived <= self.granted
    }

    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Counts a frame that occupies memory until [`Flow::on_released`].
    pub(crate) fn on_held(&mut self) {
        self.held += 1;
    }

    /// Releases the memory of a frame, from any connection of the path.
    pub(crate) fn on_released(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// Returns the frames that occupy memory.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Returns the chunks that occupy memory or may do so: frames held, frames the peer may send,
    /// and chunks on their way to the socket.
    pub(crate) fn committed(&self) -> u64 {
        self.held
            + self.granted.saturating_sub(self.arrived)
            + self.reading.len() as u64
            + self.unflushed
    }

    /// Returns the credit to grant, if it gains at least a quarter of `window` frames.
    pub(crate) fn credit_due(&self, window: u64) -> Option<u64> {
        let fresh = self.arrived + window.saturating_sub(self.held);
        (fresh >= self.granted + (window / 4).max(1)).then_some(fresh)
    }

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
        for (rate, expected) in [
            (None, 4),
            (Some(10), 2),
            (Some(1_000), 4),
            (Some(100_000), 16),
        ] {
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
        // A window of one chunk grants one at a time.
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
