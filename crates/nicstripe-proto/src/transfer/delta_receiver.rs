//! Receiving half of a delta transfer (`--delta`): hashes the chunks of the existing file and
//! tracks which of them remain. Counterpart of [`crate::transfer::delta_sender`].

use std::collections::BTreeMap;

use crate::{
    file::{
        extent::{ChunkId, ChunkSet},
        hash_tree::ChainingValue,
    },
    wire::message::MAX_VALUES,
};

/// Maximum number of chunks that are being hashed or await the sender's decision: 1 GiB of a file
/// in 256 KiB chunks, and 300 KiB of memory.
pub(crate) const MOST_UNDECIDED: usize = 4096;

/// Number of chunk hashes per message to the sender: 16 MiB of a file, which a disk at 1 GB/s reads
/// in 16 ms.
const TELL_EVERY: usize = 64;

/// Comparison state of the chunks of the existing file.
///
/// A chunk moves from `unread` to `reading`, `unsent` and `sent`. It leaves `sent` when the sender
/// confirms it or sends a new version. The new version must not arrive before the chunk is in
/// `sent`, because copying the old chunk might overwrite the new version.
#[derive(Debug, Default)]
pub(crate) struct DeltaReceiver {
    pub(super) unread: ChunkSet,
    reading: ChunkSet,
    /// Chunk hashes to send to the sender; `None` for a chunk that could not be read.
    unsent: BTreeMap<ChunkId, Option<ChainingValue>>,
    /// Chunk hashes that the receiver has sent and that await the sender's decision.
    sent: BTreeMap<ChunkId, ChainingValue>,
}

/// Chunks and their BLAKE3 chaining values (`None` if unreadable), in ascending order.
pub(crate) type AnnouncedChunks = Vec<(ChunkId, Option<ChainingValue>)>;

impl DeltaReceiver {
    /// Returns true if the sender may send this chunk: the chunk is not compared, or its hash was
    /// sent.
    pub(crate) fn may_come(&self, chunk: ChunkId) -> bool {
        !(self.unread.contains(chunk)
            || self.reading.contains(chunk)
            || self.unsent.contains_key(&chunk))
    }

    pub(crate) fn next(&mut self) -> Option<ChunkId> {
        if self.reading.len() as usize + self.unsent.len() + self.sent.len() >= MOST_UNDECIDED {
            return None;
        }
        let chunk = self.unread.take_first(1)?.first;
        self.reading.insert(chunk);
        Some(chunk)
    }

    /// Records the chaining value of a chunk that was read; `None` if the read failed.
    pub(crate) fn on_read(&mut self, chunk: ChunkId, value: Option<ChainingValue>) {
        if self.reading.remove(chunk) > 0 {
            self.unsent.insert(chunk, value);
        }
    }

    /// Returns the chunk hashes to send to the sender; `None` until `TELL_EVERY` are ready or no
    /// read is pending.
    pub(crate) fn poll_values(&mut self) -> Option<AnnouncedChunks> {
        if self.unsent.is_empty() || !(self.reading.is_empty() || self.unsent.len() >= TELL_EVERY) {
            return None;
        }
        let values: AnnouncedChunks = std::iter::from_fn(|| self.unsent.pop_first())
            .take(MAX_VALUES)
            .collect();
        self.sent.extend(
            values
                .iter()
                .filter_map(|(chunk, value)| Some((*chunk, (*value)?))),
        );
        Some(values)
    }

    /// Removes a chunk that the sender has confirmed as equal, or whose new version it has sent.
    /// Returns the chunk's chaining value; `None` if no value was sent.
    pub(crate) fn on_decided(&mut self, chunk: ChunkId) -> Option<ChainingValue> {
        self.sent.remove(&chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::extent::ChunkRange;

    fn basis(count: u64) -> DeltaReceiver {
        let mut basis = DeltaReceiver::default();
        basis.unread.insert(ChunkRange::new(ChunkId(0), count));
        basis
    }

    #[test]
    fn reading_waits_for_decisions() {
        let mut basis = basis(10_000);
        let read = std::iter::from_fn(|| basis.next()).count();
        assert_eq!(read, MOST_UNDECIDED);
        (0..MOST_UNDECIDED as u64)
            .for_each(|chunk| basis.on_read(ChunkId(chunk), Some(ChainingValue([0; 32]))));
        let count: usize = std::iter::from_fn(|| basis.poll_values())
            .map(|values| values.len())
            .sum();
        assert_eq!((count, basis.next()), (MOST_UNDECIDED, None));
        basis.on_decided(ChunkId(7));
        assert_eq!(basis.next(), Some(ChunkId(4096)));
    }

    #[test]
    fn a_chunk_that_cannot_be_read_has_no_value_and_cannot_be_kept() {
        let mut basis = basis(1);
        let chunk = basis.next().unwrap();
        basis.on_read(chunk, None);
        assert_eq!(basis.poll_values(), Some(vec![(chunk, None)]));
        assert_eq!(basis.on_decided(chunk), None);
    }
}
