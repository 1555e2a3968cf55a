//! Receiving half of a transfer: arrival of chunks, verification, writes and durability.
//! Counterpart of [`crate::transfer::sender`].

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::{Duration, Instant},
};

use super::{delta_receiver::DeltaReceiver, stats::TransferStats};
use crate::{
    file::{
        extent::{ChunkId, ChunkRange, ChunkSet, Extent},
        grid::{Grid, MOST_SIZE, Shape},
        hash_tree::{ChainingValue, Digest, HashTree, Subtree},
        hole::{HoleError, HoleMap, Zeros},
    },
    id::PathId,
    wire::{
        frame::{DataHeader, MAX_ACK_RANGES},
        message::End,
    },
};

/// Number of received chunks after which the receiver acknowledges immediately: 9 ms at 1 Gbit/s.
/// The receiver acknowledges each batch of a tree separately.
///
/// One acknowledgement per chunk woke the sender for every 256 KiB.
pub(crate) const ACK_EVERY: u64 = 4;

/// Maximum delay of an acknowledgement.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(10);

/// Number of window updates per window. The sender seldom waits for an update if each is an eighth
/// of the window.
const WINDOW_STEPS: u64 = 8;

/// Receiving half of one transfer.
///
/// Invariant: durable ⊆ written ⊆ the grid's chunks.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) shape: Shape,
    /// Chunk grid of the transfer. The grid is open while the length is unknown.
    pub(crate) grid: Grid,
    /// Total number of chunks of a stream; `None` until its end is known.
    chunks: Option<u64>,
    /// Index and length in bytes of the chunk that the sender marked as the last of a stream;
    /// `None` before.
    last: Option<(ChunkId, u32)>,
    /// Flow control of a transfer whose chunks a sink consumes; `None` if the chunks are written to
    /// a file.
    room: Option<Room>,
    written: ChunkSet,
    /// Chunks that are being verified and written, possibly in several copies.
    ///
    /// A second copy is also written while the first one is unverified. Otherwise, a damaged first
    /// copy could stall the transfer: the sender would consider the dropped second copy in flight
    /// and not retransmit the chunk.
    writing: BTreeMap<ChunkId, Writing>,
    pub(crate) tree: HashTree,
    /// Subtrees that were written since the latest sync began and are not durable.
    fresh: Vec<Subtree>,
    fresh_bytes: u64,
    fresh_since: Option<Instant>,
    pub(crate) syncing: bool,
    /// Byte counters of the transfer. `size` is set only in the result of [`Receiver::stats`].
    stats: TransferStats,
    /// Pending acknowledgements by path. Those under `None` may be sent on any connected path.
    acks: BTreeMap<Option<PathId>, PendingAck>,
    expected: Option<Digest>,
    /// True if the user permits the source to change while the sender reads it.
    pub(crate) may_change: bool,
    /// True if the source changed while the sender read it. The receiver's digest is then
    /// authoritative.
    is_changing: bool,
    closing: bool,
    holes: Holes,
    /// Comparison state of the existing file's chunks (`--delta`).
    pub(crate) basis: DeltaReceiver,
}

/// Holes of the received file, and the progress of creating them.
#[derive(Debug, Default)]
enum Holes {
    /// The sender has announced no holes.
    #[default]
    None,
    /// Incomplete list of holes. No chunk is compared before the list is complete, because a copied
    /// chunk must not lie in a hole.
    Announced(HoleMap),
    /// Complete list of holes, which the driver is punching into the file.
    Punching(HoleMap),
    /// The holes are in the file. Contains their chunks, and the chunks whose zeros are not hashed
    /// yet.
    Made { chunks: ChunkSet, to_zero: ChunkSet },
}

#[derive(Debug)]
struct PendingAck {
    chunks: ChunkSet,
    since: Instant,
}

/// Flow control of a transfer whose chunks a sink consumes.
#[derive(Debug)]
struct Room {
    /// Size of the reorder buffer in chunks.
    size: u64,
    /// Total number of chunks that the sender may send.
    granted: u64,
    /// Total number of chunks that the sink has consumed.
    taken: u64,
}

/// Copies of one chunk that are being verified and written.
#[derive(Debug, Clone, Copy)]
struct Writing {
    copies: u32,
    /// Chaining value common to all copies.
    value: ChainingValue,
}

/// Action required for a chunk that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Verify the chunk, then write it to this extent of the file.
    Write(Extent),
    /// Drop the chunk, because it is already written.
    Duplicate,
    /// Retry after the write in progress. The source has changed, and a copy with another value is
    /// being written. Concurrent writes of both copies would leave undefined content.
    Later,
}

/// Reason why a received chunk, or the end of a transfer, is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrivalError {
    /// The chunk's index is beyond the end of the file.
    #[error("peer sent chunk {chunk}, but the file has {count}")]
    OutOfRange {
        /// Index of the chunk.
        chunk: u64,
        /// Number of chunks in the file.
        count: u64,
    },
    /// The chunk's length differs from the length at its position in the file.
    #[error("peer sent {len} bytes for chunk {chunk}, expected {expected}")]
    WrongLength {
        /// Index of the chunk.
        chunk: u64,
        /// Received length of the chunk in bytes.
        len: u32,
        /// Expected length of the chunk in bytes.
        expected: u64,
    },
    /// The chunk lies in an announced hole.
    #[error("peer sent chunk {chunk}, which it announced as a hole")]
    Hole {
        /// Index of the chunk.
        chunk: u64,
    },
    /// The chunk is compared with the existing file, and its hash was not sent to the sender before
    /// it arrived.
    #[error("peer sent chunk {chunk} before the comparison")]
    Undecided {
        /// Index of the chunk.
        chunk: u64,
    },
    /// The chunk is beyond the send window.
    #[error("peer sent chunk {chunk} beyond its credit of {granted}")]
    NoRoom {
        /// Index of the chunk.
        chunk: u64,
        /// Total number of chunks that the sender may send.
        granted: u64,
    },
    /// The end of the stream contradicts the received chunks.
    #[error("peer ended a transfer after {chunks} chunks, but sent another number")]
    End {
        /// Total number of chunks according to the sender.
        chunks: u64,
    },
}

impl Receiver {
    /// Returns the receiving half of a transfer whose chunks in `have` are already durable.
    ///
    /// Skips subtrees that contradict each other; their chunks are received again.
    ///
    /// Chunks stay in memory until a sink [consumes](Receiver::on_taken) them if `room` is set. At
    /// most `room` chunks are in memory then, and none becomes durable.
    pub(crate) fn new(shape: Shape, have: &[Subtree], room: Option<u64>) -> Self {
        let grid = shape.grid();
        let mut tree = HashTree::new(grid);
        for subtree in have {
            let _ = tree.absorb(*subtree);
        }
        let written: ChunkSet = tree
            .subtrees()
            .filter_map(|subtree| subtree.chunks(grid).ok())
            .collect();
        let resumed_bytes = written.ranges().map(|range| grid.range_bytes(range)).sum();
        Self {
            shape,
            grid,
            chunks: (!grid.is_open()).then(|| grid.chunk_count()),
            last: None,
            room: room.map(|size| Room {
                size,
                granted: size,
                taken: 0,
            }),
            written,
            writing: BTreeMap::new(),
            tree,
            fresh: Vec::new(),
            fresh_bytes: 0,
            fresh_since: None,
            syncing: false,
            stats: TransferStats {
                resumed_bytes,
                ..TransferStats::default()
            },
            acks: BTreeMap::new(),
            expected: None,
            may_change: false,
            is_changing: false,
            closing: false,
            holes: Holes::None,
            basis: DeltaReceiver::default(),
        }
    }

    /// Records that the sender will send its list of holes. No chunk is compared before the list is
    /// complete.
    pub(crate) fn announce_holes(&mut self) {
        self.holes = Holes::Announced(HoleMap::default());
    }

    /// Compares the first `count` chunks with the existing file (`--delta`), except for chunks that
    /// are already written.
    pub(crate) fn compare_first(&mut self, count: u64) {
        let range = ChunkRange::new(ChunkId(0), count.min(self.grid.chunk_count()));
        self.basis.unread = self.written.gaps(range).collect();
    }

    /// Adds holes from the sender's list. Returns all holes after the last message; `None` before.
    ///
    /// # Errors
    ///
    /// Returns [`HoleError`] if the holes are invalid or were not expected.
    pub(crate) fn on_holes(
        &mut self,
        extents: Vec<Extent>,
        last: bool,
    ) -> Result<Option<HoleMap>, HoleError> {
        let Holes::Announced(map) = &mut self.holes else {
            return Err(HoleError::NotAnnounced);
        };
        for extent in extents {
            map.push(extent, self.grid.size)?;
        }
        if !last {
            return Ok(None);
        }
        let map = std::mem::take(map);
        self.holes = Holes::Punching(map.clone());
        Ok(Some(map))
    }

    /// Records that the holes are in the file. Their zeros can then be hashed and other chunks
    /// compared.
    pub(crate) fn on_holes_made(&mut self) {
        let Holes::Punching(map) = &self.holes else {
            return;
        };
        let (mut chunks, mut to_zero) = (ChunkSet::new(), ChunkSet::new());
        for range in map.chunks(self.grid).ranges() {
            // An honest sender sends no chunk of a hole.
            for gap in self.written.gaps(range) {
                to_zero.insert(gap);
            }
            chunks.insert(range);
            self.basis.unread.remove(range);
        }
        self.writing
            .keys()
            .for_each(|chunk| _ = to_zero.remove(*chunk));
        self.holes = Holes::Made { chunks, to_zero };
    }

    /// Returns the next subtree of zeros to hash; `None` if none is ready.
    pub(crate) fn next_zeros(&mut self) -> Option<Zeros> {
        match &mut self.holes {
            Holes::Made { to_zero, .. } => Zeros::take(to_zero, self.grid),
            _ => None,
        }
    }

    /// Records the hash of a subtree from [`Receiver::next_zeros`].
    pub(crate) fn on_zeros(&mut self, subtree: Subtree, now: Instant) {
        if let Some(bytes) = self.join(subtree) {
            self.stats.unsent_bytes += bytes;
            // Zeros do not count as bytes to sync. One sync per second suffices at any hash rate.
            self.fresh_since.get_or_insert(now);
        }
    }

    /// Returns the next chunk of the existing file to read, hash and copy to the new file; `None`
    /// if none is ready.
    pub(crate) fn next_to_compare(&mut self) -> Option<ChunkId> {
        match self.holes {
            Holes::Announced(_) | Holes::Punching(_) => None,
            _ => self.basis.next(),
        }
    }

    /// Keeps a chunk of the existing file that the sender confirmed as equal. Returns false if the
    /// chunk's hash was not sent or if the chunk is also being written.
    ///
    /// The file may hold other bytes than the hash covers while the chunk is being written.
    pub(crate) fn on_kept(&mut self, chunk: ChunkId, now: Instant) -> bool {
        if self.writing.contains_key(&chunk) {
            return false;
        }
        let Some(value) = self.basis.on_decided(chunk) else {
            return false;
        };
        if let Some(bytes) = self.join(Subtree::of_chunk(chunk, value)) {
            self.stats.unsent_bytes += bytes;
            self.fresh_bytes += bytes;
            self.fresh_since.get_or_insert(now);
        }
        true
    }

    /// Marks the chunks of a subtree as written. Returns their size in bytes; `None` if some of
    /// them were already written.
    fn join(&mut self, subtree: Subtree) -> Option<u64> {
        let range = subtree.chunks(self.grid).ok()?;
        self.tree.insert(subtree).ok()?;
        self.written.insert(range);
        self.fresh.push(subtree);
        Some(self.grid.range_bytes(range))
    }

    /// Handles the header of a chunk that arrived. Returns the action that the chunk requires.
    ///
    /// # Errors
    ///
    /// Returns [`ArrivalError`] if the chunk is invalid for this transfer.
    pub(crate) fn on_arrival(
        &mut self,
        path: PathId,
        arrived: &DataHeader,
        now: Instant,
    ) -> Result<Arrival, ArrivalError> {
        let (chunk, len, value) = (arrived.chunk, arrived.chunk_len(), arrived.value);
        let extent = self.checked_extent(chunk, len, arrived.last)?;
        if let Holes::Made { chunks, .. } = &self.holes
            && chunks.contains(chunk)
        {
            return Err(ArrivalError::Hole { chunk: chunk.0 });
        }
        if !self.basis.may_come(chunk) {
            return Err(ArrivalError::Undecided { chunk: chunk.0 });
        }
        if self.written.contains(chunk) {
            self.stats.repeated_bytes += u64::from(len);
            self.acknowledge(Some(path), chunk, now);
            return Ok(Arrival::Duplicate);
        }
        if self
            .writing
            .get(&chunk)
            .is_some_and(|writing| writing.value != value)
        {
            return Ok(Arrival::Later);
        }
        self.writing
            .entry(chunk)
            .or_insert(Writing { copies: 0, value })
            .copies += 1;
        Ok(Arrival::Write(extent))
    }

    /// Returns the extent of a chunk with `len` bytes.
    ///
    /// # Errors
    ///
    /// Returns [`ArrivalError`] if the chunk is invalid for this transfer.
    fn checked_extent(
        &mut self,
        chunk: ChunkId,
        len: u32,
        last: bool,
    ) -> Result<Extent, ArrivalError> {
        let count = self.chunks.unwrap_or_else(|| self.grid.chunk_count());
        let whole = Some(chunk)
            .filter(|chunk| chunk.0 < count)
            .and_then(|chunk| self.extent_within(chunk));
        let extent = whole.ok_or(ArrivalError::OutOfRange {
            chunk: chunk.0,
            count,
        })?;
        let wrong = ArrivalError::WrongLength {
            chunk: chunk.0,
            len,
            expected: extent.len,
        };
        match self.shape {
            Shape::Batches(_) if u64::from(len) <= extent.len => {}
            Shape::Pipe(_) if last && self.grid.is_open() && u64::from(len) <= extent.len => {
                let end = *self.last.get_or_insert((chunk, len));
                if end != (chunk, len) || self.written.last().is_some_and(|written| written > chunk)
                {
                    return Err(ArrivalError::End {
                        chunks: chunk.0 + 1,
                    });
                }
            }
            _ if extent.len != u64::from(len) => return Err(wrong),
            _ => {}
        }
        if self.last.is_some_and(|(last, _)| chunk > last) {
            return Err(ArrivalError::OutOfRange {
                chunk: chunk.0,
                count,
            });
        }
        if let Some(room) = self.room.as_ref().filter(|room| chunk.0 >= room.granted) {
            return Err(ArrivalError::NoRoom {
                chunk: chunk.0,
                granted: room.granted,
            });
        }
        Ok(Extent {
            len: len.into(),
            ..extent
        })
    }

    /// Returns the extent of a chunk; `None` if the transfer has no such chunk. Assumes the full
    /// chunk size if the length is unknown.
    fn extent_within(&self, chunk: ChunkId) -> Option<Extent> {
        match self.shape {
            Shape::Batches(_) => self.shape.grid().extent_of(chunk),
            _ => self.grid.extent_of(chunk),
        }
    }

    /// Handles the end of a stream, which determines the stream's length.
    ///
    /// # Errors
    ///
    /// Returns [`ArrivalError::End`] if the end contradicts the received chunks.
    pub(crate) fn on_end(&mut self, end: End) -> Result<(), ArrivalError> {
        let refused = ArrivalError::End { chunks: end.chunks };
        // Includes chunks that are being verified. They would be written beyond the end.
        let greatest = self
            .written
            .last()
            .max(self.writing.last_key_value().map(|(chunk, _)| *chunk));
        if self.chunks.is_some() || greatest.is_some_and(|chunk| chunk.0 >= end.chunks) {
            return Err(refused);
        }
        if let Shape::Pipe(chunk_size) = self.shape {
            let grid = Grid::new(end.size, chunk_size);
            // The value of a stream's only chunk is the digest only if the chunk was marked as the
            // last.
            let is_value_of_part = end.chunks == 1 && greatest.is_some() && self.last.is_none();
            let fits = self.last.is_none_or(|(last, len)| {
                last.0 + 1 == end.chunks
                    && grid
                        .extent_of(last)
                        .is_some_and(|extent| extent.len == u64::from(len))
            });
            if grid.is_open()
                || end.size > MOST_SIZE
                || grid.chunk_count() != end.chunks
                || !fits
                || is_value_of_part
            {
                return Err(refused);
            }
            self.tree.close(grid).map_err(|_| refused)?;
            self.grid = grid;
        }
        self.chunks = Some(end.chunks);
        Ok(())
    }

    /// Records that the sink consumed `chunks` more chunks. Returns the total number of chunks to
    /// grant to the sender; `None` if no window update is due.
    pub(crate) fn on_taken(&mut self, chunks: u64) -> Option<u64> {
        let room = self.room.as_mut()?;
        room.taken += chunks;
        let granted = room.taken + room.size;
        if granted < room.granted + (room.size / WINDOW_STEPS).max(1) {
            return None;
        }
        room.granted = granted;
        Some(granted)
    }

    /// Records that a chunk from `path` was verified and written. Sends the acknowledgement on
    /// `ack_on`; `None` permits any path.
    ///
    /// Returns true for the first copy. A sink must consume only that copy.
    pub(crate) fn on_written(
        &mut self,
        path: PathId,
        ack_on: Option<PathId>,
        chunk: ChunkId,
        len: u64,
        value: ChainingValue,
        now: Instant,
    ) -> bool {
        self.on_not_written(chunk);
        self.acknowledge(ack_on, chunk, now);
        if self.written.insert(chunk) == 0 {
            self.stats.repeated_bytes += len;
            return false;
        }
        self.stats.delivered_bytes += len;
        *self.stats.by_path.entry(path).or_default() += len;
        if !self.shape.has_digest() {
            return true;
        }
        self.basis.on_decided(chunk);
        let subtree = Subtree::of_chunk(chunk, value);
        // Cannot overlap, because the chunk was not in `written`.
        let inserted = self.tree.insert(subtree);
        debug_assert!(inserted.is_ok(), "{inserted:?}");
        if self.room.is_none() {
            self.fresh.push(subtree);
            self.fresh_bytes += len;
            self.fresh_since.get_or_insert(now);
        }
        true
    }

    /// Records that a copy of a chunk was damaged or could not be written. The sender must
    /// retransmit it.
    pub(crate) fn on_not_written(&mut self, chunk: ChunkId) {
        if let Entry::Occupied(mut copies) = self.writing.entry(chunk) {
            copies.get_mut().copies -= 1;
            if copies.get().copies == 0 {
                copies.remove();
            }
        }
    }

    /// Records the sender's digest. Returns true for the first digest and ignores later ones.
    pub(crate) fn on_complete(&mut self, digest: Digest) -> bool {
        let news = self.expected.is_none();
        self.expected.get_or_insert(digest);
        news
    }

    /// Records that the source changed while the sender read it. The receiver's digest becomes
    /// authoritative if the user permits changes, because it covers the chunks as received.
    pub(crate) fn on_changing(&mut self) {
        self.is_changing = self.may_change;
    }

    /// Returns the receiver's and the sender's digest; `None` until the transfer can be committed.
    /// All chunks must be written, no sync may be active, and the sender's digest must be known.
    ///
    /// Two concurrent syncs of a file share an error, and the kernel reports it to only one of
    /// them. The sync of the commit could then succeed wrongly.
    pub(crate) fn poll_finished(&mut self) -> Option<(Digest, Digest)> {
        if self.syncing {
            return None;
        }
        let received = match self.shape.has_digest() {
            true => self.tree.root()?,
            false => Digest::NONE,
        };
        let expected = self.expected?;
        let finished = (received, if self.is_changing { received } else { expected });
        (self.is_whole() && self.writing.is_empty() && !std::mem::replace(&mut self.closing, true))
            .then_some(finished)
    }

    fn is_whole(&self) -> bool {
        self.chunks
            .is_some_and(|chunks| self.written.len() == chunks)
    }

    /// Starts a sync if no sync is active and one is due: `bytes` bytes were written since the
    /// latest sync began, or unsynced data is older than `interval`. Returns the subtrees that the
    /// sync makes durable; `None` if no sync starts.
    pub(crate) fn poll_sync(
        &mut self,
        bytes: u64,
        interval: Duration,
        now: Instant,
    ) -> Option<Vec<Subtree>> {
        let since = self.fresh_since?;
        let due = self.fresh_bytes >= bytes || now.saturating_duration_since(since) >= interval;
        if !due || self.syncing || self.closing {
            return None;
        }
        self.syncing = true;
        Some(self.take_fresh())
    }

    /// Returns and clears the subtrees that are not durable. The caller must sync them.
    pub(crate) fn take_fresh(&mut self) -> Vec<Subtree> {
        self.fresh_bytes = 0;
        self.fresh_since = None;
        std::mem::take(&mut self.fresh)
    }

    /// Returns the latest time at which the next sync must start; `None` if no sync is needed.
    pub(crate) fn sync_deadline(&self, interval: Duration) -> Option<Instant> {
        self.fresh_since
            .filter(|_| !self.syncing && !self.closing)
            .map(|since| since + interval)
    }

    /// Returns the chunks to acknowledge now on the connected `path`; `None` if no acknowledgement
    /// is due.
    pub(crate) fn poll_ack(&mut self, path: PathId, now: Instant) -> Option<Vec<ChunkRange>> {
        self.poll_ack_of(Some(path), now)
            .or_else(|| self.poll_ack_of(None, now))
    }

    fn poll_ack_of(&mut self, key: Option<PathId>, now: Instant) -> Option<Vec<ChunkRange>> {
        // The sender of a tree may wait for permits, and selects the path with the fewest bytes in
        // flight.
        let urgent = self.is_whole() || matches!(self.shape, Shape::Batches(_));
        let pending = self.acks.get_mut(&key)?;
        let due = pending.chunks.len() >= ACK_EVERY
            || urgent
            || now.saturating_duration_since(pending.since) >= ACK_DELAY;
        if !due {
            return None;
        }
        let ranges = std::iter::from_fn(|| pending.chunks.take_first(u64::MAX))
            .take(MAX_ACK_RANGES)
            .collect();
        if pending.chunks.is_empty() {
            self.acks.remove(&key);
        }
        Some(ranges)
    }

    /// Returns the time at which the next delayed acknowledgement is due; `None` without one.
    /// Excludes acknowledgements that may use any path, because they are sent on the next
    /// connection.
    pub(crate) fn ack_deadline(&self) -> Option<Instant> {
        self.acks
            .iter()
            .filter(|(path, _)| path.is_some())
            .map(|(_, pending)| pending.since + ACK_DELAY)
            .min()
    }

    /// Moves the pending acknowledgements of a lost `path`, so that any other path may send them.
    pub(crate) fn on_path_lost(&mut self, path: PathId) {
        let Some(owed) = self.acks.remove(&Some(path)) else {
            return;
        };
        let pending = self.acks.entry(None).or_insert(PendingAck {
            chunks: ChunkSet::new(),
            since: owed.since,
        });
        pending.chunks.extend(owed.chunks.ranges());
        pending.since = pending.since.min(owed.since);
    }

    pub(crate) fn stats(&self) -> TransferStats {
        TransferStats {
            size: self.grid.known_size(),
            ..self.stats.clone()
        }
    }

    fn acknowledge(&mut self, path: Option<PathId>, chunk: ChunkId, now: Instant) {
        let pending = self.acks.entry(path).or_insert(PendingAck {
            chunks: ChunkSet::new(),
            since: now,
        });
        pending.chunks.insert(chunk);
    }
}

#[cfg(test)]
mod tests;
