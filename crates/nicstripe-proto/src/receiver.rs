//! Receiving half of a transfer: arrival, verification, writes and durability. Mirror image of
//! [`crate::sender`].

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::{Duration, Instant},
};

use crate::{
    delta_receiver::{AnnouncedChunks, DeltaReceiver},
    extent::{ChunkId, ChunkRange, ChunkSet, Extent},
    frame::{DataHeader, MAX_ACK_RANGES},
    grid::{Grid, MOST_SIZE, Shape},
    hash_tree::{ChainingValue, Digest, HashTree, Subtree},
    hole::{HoleError, HoleMap, Zeros},
    path::PathId,
    sender::{End, NO_DIGEST, range_bytes},
};

/// Chunks after which an acknowledgement is sent at once: 9 ms at 1 Gbit/s. Batches are
/// acknowledged one by one.
///
/// One acknowledgement per chunk cost the sender a wake-up per 256 KiB.
pub const ACK_EVERY: u64 = 4;

/// Longest delay of an acknowledgement.
pub const ACK_DELAY: Duration = Duration::from_millis(10);

/// Window updates per window. With updates of an eighth, the sender seldom waits for one.
const WINDOW_STEPS: u64 = 8;

/// Receiving half of one transfer.
///
/// Invariant: durable ⊆ written ⊆ the grid.
#[derive(Debug)]
pub struct Receiver {
    shape: Shape,
    /// Grid of the shape; closed once the length is known.
    grid: Grid,
    /// Total number of chunks, once known.
    chunks: Option<u64>,
    /// Chunk that the sender marked as the last, and its length.
    last: Option<(ChunkId, u32)>,
    /// Window of the reorder buffer; set only if a sink consumes the chunks.
    room: Option<Room>,
    written: ChunkSet,
    /// Copies of each chunk that are being verified and written.
    ///
    /// A second copy is written too while the first is not verified. If it were dropped and the
    /// first turned out damaged, nobody would resend the chunk: the sender believes the second is
    /// in flight.
    writing: BTreeMap<ChunkId, Writing>,
    tree: HashTree,
    /// Subtrees written since the last sync began.
    fresh: Vec<Subtree>,
    fresh_bytes: u64,
    fresh_since: Option<Instant>,
    syncing: bool,
    resumed_bytes: u64,
    written_bytes: u64,
    duplicate_bytes: u64,
    /// Pending acknowledgements by path; those under `None` go out on the first connected path.
    acks: BTreeMap<Option<PathId>, PendingAck>,
    written_by: BTreeMap<PathId, u64>,
    expected: Option<Digest>,
    /// True if the source may change during the read.
    may_change: bool,
    /// True if the receiver's digest is authoritative, because the source changed.
    is_changing: bool,
    closing: bool,
    holes: Holes,
    /// Chunks of the existing file of the name (`--delta`).
    basis: DeltaReceiver,
    unsent_bytes: u64,
}

/// Holes of the file, as known so far.
#[derive(Debug, Default)]
enum Holes {
    /// The file has no holes.
    #[default]
    None,
    /// The list is incomplete. Chunks are not compared before it is complete: a copied chunk must
    /// not lie in a hole.
    Announced(HoleMap),
    /// The list is complete, and the driver punches the holes.
    AnnouncedChunks(HoleMap),
    /// The holes are in the file.
    Made { chunks: ChunkSet, to_zero: ChunkSet },
}

#[derive(Debug)]
struct PendingAck {
    chunks: ChunkSet,
    since: Instant,
}

/// Send window of a transfer that is consumed by a sink.
#[derive(Debug)]
struct Room {
    /// Size of the window in chunks.
    size: u64,
    /// Chunks granted to the sender in total.
    granted: u64,
    /// Chunks consumed by the sink.
    taken: u64,
}

/// Copies of a chunk that are being verified and written.
#[derive(Debug, Clone, Copy)]
struct Writing {
    copies: u32,
    /// Chaining value common to all copies.
    value: ChainingValue,
}

/// Action for a chunk that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Verify the chunk and write it at this extent.
    Write(Extent),
    /// The chunk is already written; drop it.
    Duplicate,
    /// A copy with another value is being written, because the source has changed; retry after that
    /// write. With both written at once, the content on disk would be undefined.
    Later,
}

/// Invalid chunk or end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrivalError {
    /// Chunk beyond the end of the file.
    #[error("peer sent chunk {chunk}, but the file has {count}")]
    OutOfRange {
        /// Number of the chunk.
        chunk: u64,
        /// Number of chunks in the file.
        count: u64,
    },
    /// Chunk whose length does not match its position.
    #[error("peer sent {len} bytes for chunk {chunk}, expected {expected}")]
    WrongLength {
        /// Number of the chunk.
        chunk: u64,
        /// Length received, in bytes.
        len: u32,
        /// Length expected, in bytes.
        expected: u64,
    },
    /// Chunk that lies in an announced hole.
    #[error("peer sent chunk {chunk}, which it announced as a hole")]
    Hole {
        /// Number of the chunk.
        chunk: u64,
    },
    /// Chunk under comparison whose value was not sent yet.
    #[error("peer sent chunk {chunk} before the comparison")]
    Undecided {
        /// Number of the chunk.
        chunk: u64,
    },
    /// Chunk outside the send window.
    #[error("peer sent chunk {chunk} beyond its credit of {granted}")]
    NoRoom {
        /// Number of the chunk.
        chunk: u64,
        /// Chunks granted in total.
        granted: u64,
    },
    /// End that contradicts the chunks received.
    #[error("peer ended a transfer after {chunks} chunks, but sent another number")]
    End {
        /// Number of chunks that the sender claims.
        chunks: u64,
    },
}

impl Receiver {
    /// Returns the receiving half of a transfer whose chunks in `have` are already durable.
    ///
    /// Subtrees that contradict each other are skipped and received again.
    ///
    /// With `room`, chunks stay in memory until [consumed](Receiver::on_taken), at most `room` of
    /// them, and are never durable.
    pub fn new(shape: Shape, have: &[Subtree], room: Option<u64>) -> Self {
        let grid = shape.grid();
        let mut tree = HashTree::new(grid);
        for subtree in have {
            let _ = tree.absorb(*subtree);
        }
        let written: ChunkSet = tree
            .subtrees()
            .filter_map(|subtree| subtree.chunks(grid).ok())
            .collect();
        let resumed_bytes = written.ranges().map(|range| range_bytes(grid, range)).sum();
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
            resumed_bytes,
            written_bytes: 0,
            duplicate_bytes: 0,
            acks: BTreeMap::new(),
            written_by: BTreeMap::new(),
            expected: None,
            may_change: false,
            is_changing: false,
            closing: false,
            holes: Holes::None,
            basis: DeltaReceiver::default(),
            unsent_bytes: 0,
        }
    }

    /// Expects a list of holes; comparisons wait for it.
    pub fn announce_holes(&mut self) {
        self.holes = Holes::Announced(HoleMap::default());
    }

    /// Compares the first `count` chunks with the existing file, except for those already written.
    pub fn compare_first(&mut self, count: u64) {
        let range = ChunkRange::new(ChunkId(0), count.min(self.grid.chunk_count()));
        self.basis = DeltaReceiver::new(self.written.gaps(range).collect());
    }

    /// Adds holes announced by the sender. Returns all of them with the last message.
    pub fn on_holes(
        &mut self,
        extents: impl Iterator<Item = Extent>,
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
        self.holes = Holes::AnnouncedChunks(map.clone());
        Ok(Some(map))
    }

    /// Records that the holes are in the file: their zeros can be hashed, and other chunks
    /// compared.
    pub fn on_holes_made(&mut self) {
        let Holes::AnnouncedChunks(map) = &self.holes else {
            return;
        };
        let (mut chunks, mut to_zero) = (ChunkSet::new(), ChunkSet::new());
        for range in map.chunks(self.grid).ranges() {
            // An honest sender has sent none of them.
            for gap in self.written.gaps(range) {
                to_zero.insert(gap);
            }
            chunks.insert(range);
            self.basis.leave_out(range);
        }
        self.writing
            .keys()
            .for_each(|chunk| _ = to_zero.remove(*chunk));
        self.holes = Holes::Made { chunks, to_zero };
    }

    /// Returns the next zeros to hash.
    pub fn next_zeros(&mut self) -> Option<Zeros> {
        match &mut self.holes {
            Holes::Made { to_zero, .. } => Zeros::take(to_zero, self.grid),
            _ => None,
        }
    }

    /// Adds a hashed subtree of zeros.
    pub fn on_zeros(&mut self, subtree: Subtree, now: Instant) {
        if let Some(bytes) = self.join(subtree) {
            self.unsent_bytes += bytes;
            // Zeros do not count as bytes to sync: one sync per second suffices at any hash rate.
            self.fresh_since.get_or_insert(now);
        }
    }

    /// Returns the next chunk of the existing file to read and compare.
    pub fn next_to_compare(&mut self) -> Option<ChunkId> {
        match self.holes {
            Holes::Announced(_) | Holes::AnnouncedChunks(_) => None,
            _ => self.basis.next(),
        }
    }

    /// Records the value of a chunk of the existing file, copied to its place in the new file. The
    /// value is `None` if the read failed.
    pub fn on_compared(&mut self, chunk: ChunkId, value: Option<ChainingValue>) {
        self.basis.on_read(chunk, value);
    }

    /// Returns values to send to the sender.
    pub(crate) fn poll_values(&mut self) -> Option<AnnouncedChunks> {
        self.basis.poll_values()
    }

    /// Keeps a chunk that is equal at the sender. Returns false if its value was not sent, or if
    /// the chunk arrives as well.
    ///
    /// In the second case the file would hold other bytes than the value covers.
    pub fn on_kept(&mut self, chunk: ChunkId, now: Instant) -> bool {
        if self.writing.contains_key(&chunk) {
            return false;
        }
        let Some(value) = self.basis.on_kept(chunk) else {
            return false;
        };
        if let Some(bytes) = self.join(Subtree::of_chunk(chunk, value)) {
            self.unsent_bytes += bytes;
            self.fresh_bytes += bytes;
            self.fresh_since.get_or_insert(now);
        }
        true
    }

    /// Adds chunks that were not received; returns their bytes, or `None` if some are present
    /// already.
    fn join(&mut self, subtree: Subtree) -> Option<u64> {
        let range = subtree.chunks(self.grid).ok()?;
        self.tree.insert(subtree).ok()?;
        self.written.insert(range);
        self.fresh.push(subtree);
        Some(range_bytes(self.grid, range))
    }

    /// Returns the grid; open while the length is unknown.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Handles the header of a chunk that arrived and returns the action.
    pub fn on_arrival(
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
            self.duplicate_bytes += u64::from(len);
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

    /// Returns the extent of a chunk, if it is valid for this transfer.
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

    /// Returns the extent of a chunk of full size.
    fn extent_within(&self, chunk: ChunkId) -> Option<Extent> {
        match self.shape {
            Shape::Batches(_) => self.shape.grid().extent_of(chunk),
            _ => self.grid.extent_of(chunk),
        }
    }

    /// Handles the final length of a transfer whose length was unknown.
    pub fn on_end(&mut self, end: End) -> Result<(), ArrivalError> {
        let refused = ArrivalError::End { chunks: end.chunks };
        // Includes chunks under verification, which would be written beyond the end.
        let greatest = self
            .written
            .last()
            .max(self.writing.last_key_value().map(|(chunk, _)| *chunk));
        if self.chunks.is_some() || greatest.is_some_and(|chunk| chunk.0 >= end.chunks) {
            return Err(refused);
        }
        if let Shape::Pipe(chunk_size) = self.shape {
            let grid = Grid::new(end.size, chunk_size);
            // The value of an only chunk is the digest, provided it was marked as the last.
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

    /// Records `chunks` more as consumed. Returns the new total to grant, if an update is due.
    pub fn on_taken(&mut self, chunks: u64) -> Option<u64> {
        let room = self.room.as_mut()?;
        room.taken += chunks;
        let granted = room.taken + room.size;
        if granted < room.granted + (room.size / WINDOW_STEPS).max(1) {
            return None;
        }
        room.granted = granted;
        Some(granted)
    }

    /// Records a chunk from `path` as verified and written. The acknowledgement goes out on
    /// `ack_on`, or on any path if `None`.
    ///
    /// Returns true for the first copy; a sink must consume only that one.
    pub fn on_written(
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
            self.duplicate_bytes += len;
            return false;
        }
        self.written_bytes += len;
        *self.written_by.entry(path).or_default() += len;
        if !self.shape.has_digest() {
            return true;
        }
        self.basis.on_written(chunk);
        let subtree = Subtree::of_chunk(chunk, value);
        // Cannot overlap: the chunk was not in `written`.
        let inserted = self.tree.insert(subtree);
        debug_assert!(inserted.is_ok(), "{inserted:?}");
        if self.room.is_none() {
            self.fresh.push(subtree);
            self.fresh_bytes += len;
            self.fresh_since.get_or_insert(now);
        }
        true
    }

    /// Records that a copy was not written: it was damaged, or the write failed. The chunk must be
    /// resent.
    pub fn on_not_written(&mut self, chunk: ChunkId) {
        if let Entry::Occupied(mut copies) = self.writing.entry(chunk) {
            copies.get_mut().copies -= 1;
            if copies.get().copies == 0 {
                copies.remove();
            }
        }
    }

    /// Records the sender's digest; returns true the first time. Later digests are ignored.
    pub fn on_complete(&mut self, digest: Digest) -> bool {
        let news = self.expected.is_none();
        self.expected.get_or_insert(digest);
        news
    }

    /// Sets whether the source may change during the read; false by default.
    pub fn allow_changing(&mut self, may_change: bool) {
        self.may_change = may_change;
    }

    /// Records that the source changed during the read. If that is allowed, the receiver's digest
    /// is authoritative: each chunk is a state that was read.
    pub fn on_changing(&mut self) {
        self.is_changing = self.may_change;
    }

    /// Returns the receiver's and the sender's digest, once, when all is written, no sync is active
    /// and the sender's digest is known.
    ///
    /// Two concurrent syncs of a file share an error that the kernel reports only once. The
    /// commit's sync could then succeed wrongly.
    pub fn poll_finished(&mut self) -> Option<(Digest, Digest)> {
        if self.syncing {
            return None;
        }
        let received = match self.shape.has_digest() {
            true => self.tree.root()?,
            false => NO_DIGEST,
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

    /// Starts a sync if `bytes` were written since the last one began, or any data `interval` ago.
    /// Returns the subtrees that the sync makes durable.
    pub fn poll_sync(
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

    /// Takes the subtrees written since the last sync began, for a caller that makes them durable
    /// itself.
    pub(crate) fn take_fresh(&mut self) -> Vec<Subtree> {
        self.fresh_bytes = 0;
        self.fresh_since = None;
        std::mem::take(&mut self.fresh)
    }

    /// Records the end of the active sync.
    pub fn on_synced(&mut self) {
        self.syncing = false;
    }

    /// Returns the latest time of the next sync.
    pub fn sync_deadline(&self, interval: Duration) -> Option<Instant> {
        self.fresh_since
            .filter(|_| !self.syncing && !self.closing)
            .map(|since| since + interval)
    }

    /// Returns an acknowledgement due on `path`, which is connected.
    pub fn poll_ack(&mut self, path: PathId, now: Instant) -> Option<Vec<ChunkRange>> {
        self.poll_ack_of(Some(path), now)
            .or_else(|| self.poll_ack_of(None, now))
    }

    fn poll_ack_of(&mut self, key: Option<PathId>, now: Instant) -> Option<Vec<ChunkRange>> {
        // A tree's sender may wait for permits, and picks the path with the least in flight.
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

    /// Returns the latest time of the next acknowledgement. Excludes those for any path, which go
    /// out on the next connection.
    pub fn ack_deadline(&self) -> Option<Instant> {
        self.acks
            .iter()
            .filter(|(path, _)| path.is_some())
            .map(|(_, pending)| pending.since + ACK_DELAY)
            .min()
    }

    /// Moves the pending acknowledgements of a lost `path` to any other.
    pub fn on_path_lost(&mut self, path: PathId) {
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

    /// Returns the minimal subtrees that cover the written chunks.
    pub fn subtrees(&self) -> impl ExactSizeIterator<Item = Subtree> + '_ {
        self.tree.subtrees()
    }

    /// Returns the bytes that were durable before this session.
    pub fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes
    }

    /// Returns the bytes that did not need to be sent: holes, and chunks present in the existing
    /// file.
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Returns the bytes written in this session.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Returns the bytes that arrived more than once.
    pub fn duplicate_bytes(&self) -> u64 {
        self.duplicate_bytes
    }

    /// Returns the bytes that arrived first on each path.
    pub fn delivered_by_path(&self) -> impl Iterator<Item = (PathId, u64)> {
        self.written_by.iter().map(|(path, bytes)| (*path, *bytes))
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
