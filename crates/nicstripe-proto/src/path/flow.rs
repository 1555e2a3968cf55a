//! Flow control of data frames on one connection.
//!
//! A receiver grants credit for the frames that it can buffer. A sender reads chunks ahead of the
//! socket, but only as many as keep the path busy. A slow path therefore has few assigned chunks.

use std::{collections::BTreeSet, time::Duration};

use crate::{file::extent::ChunkId, id::TransferId, units::BitRate};

/// Transmit time of the chunks that are read ahead of the socket. Covers a wake-up and a read on a
/// busy machine, with a margin (picked by eye).
const AHEAD: Duration = Duration::from_millis(10);

/// Minimum and maximum number of chunks to read ahead. With two chunks, one is sent while the next
/// one is read. 16 chunks of 256 KiB are 4 MiB of memory per path.
const AHEAD_BOUNDS: (u64, u64) = (2, 16);

/// Number of chunks to read ahead for a path of unknown rate. Equals the path's first assignment.
///
/// With 16 chunks, a path of 10 Mbit/s buffered 3.4 s of data before its rate was known.
const FIRST_AHEAD: u64 = crate::path::stripe::FIRST_ASSIGNMENT;

/// Counters of data frames on one connection, for flow control in both directions.
///
/// Invariants: `sent + reading ≤ credit`; granted frames that have not arrived plus held frames ≤
/// window.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Chunks that are being read for this connection. Their data frames have not begun.
    reading: BTreeSet<(TransferId, ChunkId)>,
    /// Number of frames that have begun but are not completely written to the socket. The next
    /// frame waits for them.
    pub(crate) unflushed: u64,
    sent: u64,
    /// Total number of frames that the peer permits on this connection.
    credit: u64,
    pub(crate) arrived: u64,
    /// Number of frames, from this connection and earlier ones of the path, that still occupy
    /// receive memory.
    pub(crate) held: u64,
    /// Total number of frames that the peer may send on this connection.
    granted: u64,
}

impl Flow {
    /// Returns the counters for the path's next connection. Keeps only the number of frames that
    /// occupy memory.
    pub(crate) fn next_connection(&self) -> Self {
        Self {
            held: self.held,
            ..Self::default()
        }
    }

    /// Returns true if another chunk may be read for a path of the given rate. Requires that the
    /// peer's credit suffices, and that fewer chunks than the read-ahead (at most `window`) are
    /// being read or sent.
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

    /// Returns true if the peer has granted credit and all of the credit is used.
    pub(crate) fn is_out_of_credit(&self) -> bool {
        self.credit > 0 && self.sent + self.reading.len() as u64 >= self.credit
    }

    /// Records the start of a chunk's read.
    pub(crate) fn on_handed_out(&mut self, transfer: TransferId, chunk: ChunkId) {
        self.reading.insert((transfer, chunk));
    }

    /// Records the end of a chunk's read. Returns false if the read began for an earlier
    /// connection; the chunk must then not be sent.
    pub(crate) fn on_read(&mut self, transfer: TransferId, chunk: ChunkId) -> bool {
        self.reading.remove(&(transfer, chunk))
    }

    pub(crate) fn on_begun(&mut self) {
        self.sent += 1;
        self.unflushed += 1;
    }

    /// Removes the reads in progress of a transfer that has ended.
    pub(crate) fn on_transfer_ended(&mut self, transfer: TransferId) {
        self.reading.retain(|(its, _)| *its != transfer);
    }

    /// Records that a frame was completely written to the socket.
    pub(crate) fn on_flushed(&mut self) {
        self.unflushed = self.unflushed.saturating_sub(1);
    }

    /// Raises the total credit to `frames`. A lower value has no effect.
    pub(crate) fn on_credit(&mut self, frames: u64) {
        self.credit = self.credit.max(frames);
    }

    /// Counts a frame that arrived. Returns false if the frame exceeds the credit granted to the
    /// peer.
    pub(crate) fn on_arrived(&mut self) -> bool {
        self.arrived += 1;
        self.arrived <= self.granted
    }

    /// Counts a received frame that occupies memory until [`Flow::on_released`].
    pub(crate) fn on_held(&mut self) {
        self.held += 1;
    }

    /// Counts the release of a received frame's memory. The frame may be from any connection of the
    /// path.
    pub(crate) fn on_released(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// Returns the number of chunks that are or may soon be in memory: held frames, frames that the
    /// peer may still send, and chunks that are being read or written to the socket.
    pub(crate) fn committed(&self) -> u64 {
        self.held
            + self.granted.saturating_sub(self.arrived)
            + self.reading.len() as u64
            + self.unflushed
    }

    /// Returns the new total credit for the peer; `None` unless it exceeds the old credit by at
    /// least a quarter of `window`.
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
        // A window of one chunk grants one frame at a time.
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
