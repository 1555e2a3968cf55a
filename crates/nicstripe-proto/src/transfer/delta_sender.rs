//! Sending half of a delta transfer (`--delta`): finds the chunks that are equal in the receiver's
//! file. Counterpart of [`crate::transfer::delta_receiver`].

use std::collections::BTreeMap;

use super::delta_receiver::MOST_UNDECIDED;
use crate::{
    file::{
        extent::{ChunkId, ChunkRange, ChunkSet},
        hash_tree::ChainingValue,
    },
    wire::message::MAX_KEEP,
};

/// Number of equal chunks per `Keep` message: 16 MiB of a file. This lets the receiver make the
/// chunks durable during the transfer.
const KEEP_EVERY: u64 = 64;

/// Comparison state of the chunks of a file.
///
/// A chunk moves from `awaited` to `announced` and `reading`. It then moves to `equal` if both ends
/// have equal chunks, otherwise to the send queue.
#[derive(Debug, Default)]
pub(crate) struct DeltaSender {
    /// Chunks whose hashes the receiver has not sent.
    pub(super) awaited: ChunkSet,
    /// Receiver's hashes of chunks that have not been read at the sender. Together with `reading`,
    /// at most [`MOST_UNDECIDED`].
    announced: BTreeMap<ChunkId, ChainingValue>,
    /// Receiver's hashes of chunks that the sender is reading.
    reading: BTreeMap<ChunkId, ChainingValue>,
    /// Equal chunks that the sender has not reported to the receiver.
    equal: ChunkSet,
}

impl DeltaSender {
    /// Records the receiver's hash of a chunk. Returns false if no hash of this chunk is expected,
    /// or if [`MOST_UNDECIDED`] is reached.
    pub(crate) fn on_value(&mut self, chunk: ChunkId, value: ChainingValue) -> bool {
        if self.announced.len() + self.reading.len() >= MOST_UNDECIDED
            || self.awaited.remove(chunk) == 0
        {
            return false;
        }
        self.announced.insert(chunk, value);
        true
    }

    pub(crate) fn next(&mut self) -> Option<ChunkId> {
        let (chunk, value) = self.announced.pop_first()?;
        self.reading.insert(chunk, value);
        Some(chunk)
    }

    /// Compares the local hash of a chunk with the receiver's hash. Returns true if they are equal;
    /// `None` if the chunk was not being read.
    pub(crate) fn on_read(&mut self, chunk: ChunkId, value: ChainingValue) -> Option<bool> {
        let same = self.reading.remove(&chunk)? == value;
        if same {
            self.equal.insert(chunk);
        }
        Some(same)
    }

    /// Returns the chunks that the receiver should keep; `None` until `KEEP_EVERY` are ready or no
    /// comparison is pending.
    pub(crate) fn poll_kept(&mut self) -> Option<Vec<ChunkRange>> {
        let idle = self.announced.is_empty() && self.reading.is_empty();
        if self.equal.is_empty() || !(idle || self.equal.len() >= KEEP_EVERY) {
            return None;
        }
        Some(
            std::iter::from_fn(|| self.equal.take_first(u64::MAX))
                .take(MAX_KEEP)
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(byte: u8) -> ChainingValue {
        ChainingValue([byte; 32])
    }

    fn comparison(count: u64) -> DeltaSender {
        let mut comparison = DeltaSender::default();
        comparison
            .awaited
            .insert(ChunkRange::new(ChunkId(0), count));
        comparison
    }

    #[test]
    fn a_chunk_that_is_the_same_is_kept_and_another_is_not() {
        let mut comparison = comparison(2);
        assert!(
            comparison.on_value(ChunkId(0), value(1)) && comparison.on_value(ChunkId(1), value(2))
        );
        assert_eq!(
            (comparison.next(), comparison.next(), comparison.next()),
            (Some(ChunkId(0)), Some(ChunkId(1)), None)
        );
        assert_eq!(comparison.on_read(ChunkId(0), value(1)), Some(true));
        assert_eq!(comparison.poll_kept(), None, "a read is in progress");
        assert_eq!(comparison.on_read(ChunkId(1), value(3)), Some(false));
        assert_eq!(comparison.on_read(ChunkId(1), value(3)), None);
        assert_eq!(comparison.poll_kept(), Some(vec![ChunkId(0).into()]));
        assert_eq!(comparison.poll_kept(), None);
    }

    #[test]
    fn values_without_end_are_refused() {
        let mut comparison = comparison(u64::MAX);
        let taken = (0..)
            .take_while(|chunk| comparison.on_value(ChunkId(*chunk), value(0)))
            .count();
        assert_eq!(taken, MOST_UNDECIDED);
    }
}
