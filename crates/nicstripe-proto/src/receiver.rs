//! The receiving half of a transfer: what arrived, was verified, written and made durable. Mirror image of [`crate::sender`].

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::{Duration, Instant},
};

use crate::{
    basis::{Basis, Told},
    extent::{ChunkId, ChunkRange, ChunkSet, Extent},
    frame::{DataHeader, MAX_ACK_RANGES},
    grid::{Grid, MOST_SIZE, Shape},
    hash_tree::{ChainingValue, Digest, HashTree, Subtree},
    hole::{HoleError, HoleMap, Zeros},
    path::PathId,
    sender::{End, NO_DIGEST, range_bytes},
};

/// Chunks after which an acknowledgement is sent at once: 9 ms at 1 Gbit/s. Parcels are acknowledged one by one.
///
/// One for each chunk cost the sender a wake-up per 256 KiB.
pub const ACK_EVERY: u64 = 4;

/// Longest that an acknowledgement waits for company.
pub const ACK_DELAY: Duration = Duration::from_millis(10);

/// Parts of a window after which the sender is told of room: an eighth, so that it seldom waits for the message.
const WINDOW_STEPS: u64 = 8;

/// The receiving half of one transfer.
///
/// Invariant: durable ⊆ written ⊆ the grid.
#[derive(Debug)]
pub struct Receiver {
    shape: Shape,
    /// Of the shape; closed once the length is known.
    grid: Grid,
    /// Chunks that there are, once known.
    chunks: Option<u64>,
    /// The chunk that the sender called the last, and its length.
    last: Option<(ChunkId, u32)>,
    /// Set where what arrives is kept in memory until somebody takes it.
    room: Option<Room>,
    written: ChunkSet,
    /// How many copies of a chunk are being verified and written.
    ///
    /// A second copy is written as well while the first is not certain: were it dropped and the first one damaged, nobody would send the
    /// chunk again, as the sender believes that the second is on its way.
    writing: BTreeMap<ChunkId, Writing>,
    tree: HashTree,
    /// Written since the last sync began.
    fresh: Vec<Subtree>,
    fresh_bytes: u64,
    fresh_since: Option<Instant>,
    syncing: bool,
    resumed_bytes: u64,
    written_bytes: u64,
    duplicate_bytes: u64,
    /// By the path on which they are to be told; under `None`, on whichever has a connection first.
    acks: BTreeMap<Option<PathId>, PendingAck>,
    written_by: BTreeMap<PathId, u64>,
    expected: Option<Digest>,
    /// Whether the source may change while it is read.
    may_change: bool,
    /// Whether this end's digest stands although the sender's differs.
    is_changing: bool,
    closing: bool,
    holes: Holes,
    /// Chunks of the file that the name has here.
    basis: Basis,
    unsent_bytes: u64,
}

/// What is known of the file's holes.
#[derive(Debug, Default)]
enum Holes {
    /// It has none.
    #[default]
    None,
    /// They are being told. Chunks are not compared before they are known: what is copied must not lie in one.
    Announced(HoleMap),
    /// All were told, and the driver makes them in the file.
    Told(HoleMap),
    /// They are in the file.
    Made { chunks: ChunkSet, to_zero: ChunkSet },
}

#[derive(Debug)]
struct PendingAck {
    chunks: ChunkSet,
    since: Instant,
}

/// How much the sender may send of what is kept in memory.
#[derive(Debug)]
struct Room {
    /// Chunks that may be kept.
    size: u64,
    /// Chunks that the sender may send, in all.
    granted: u64,
    /// Chunks that were taken.
    taken: u64,
}

/// Copies of a chunk that are being verified and written.
#[derive(Debug, Clone, Copy)]
struct Writing {
    copies: u32,
    /// The value of all of them.
    value: ChainingValue,
}

/// What is to be done with a chunk that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Verify it and write it there.
    Write(Extent),
    /// It is there: drop it.
    Duplicate,
    /// Another copy is being written and is not the same, as the source has changed in between: ask again when that is done. Were both written
    /// at once, nobody knew which one stands there.
    Later,
}

/// The receiver got what cannot be of this transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrivalError {
    /// A chunk beyond the file's end.
    #[error("peer sent chunk {chunk}, but the file has {count}")]
    OutOfRange {
        /// The chunk's number.
        chunk: u64,
        /// Chunks that the file has.
        count: u64,
    },
    /// A chunk that is not as long as its place in the file.
    #[error("peer sent {len} bytes for chunk {chunk}, expected {expected}")]
    WrongLength {
        /// The chunk's number.
        chunk: u64,
        /// Bytes that came.
        len: u32,
        /// Bytes that belong there.
        expected: u64,
    },
    /// A chunk that lies in a hole.
    #[error("peer sent chunk {chunk}, which it said is a hole")]
    Hole {
        /// The chunk's number.
        chunk: u64,
    },
    /// A chunk that is compared and whose value was not told.
    #[error("peer sent chunk {chunk} before it could know whether it differs")]
    Undecided {
        /// The chunk's number.
        chunk: u64,
    },
    /// A chunk that the receiver has no room for.
    #[error("peer sent chunk {chunk} while there is room for {granted}")]
    NoRoom {
        /// The chunk's number.
        chunk: u64,
        /// Chunks that it was permitted, in all.
        granted: u64,
    },
    /// An end that does not fit what arrived.
    #[error("peer ended a transfer after {chunks} chunks, which is not what it sent")]
    End {
        /// How many it says there are.
        chunks: u64,
    },
}

impl Receiver {
    /// Returns the receiving half of a transfer of which `have` is durable already.
    ///
    /// Subtrees that do not fit together are left out: they are received again.
    ///
    /// With `room` what arrives is kept in memory, at most so many chunks that were not [taken](Receiver::on_taken), and is never durable.
    pub fn new(shape: Shape, have: &[Subtree], room: Option<u64>) -> Self {
        let grid = shape.grid();
        let mut tree = HashTree::new(grid);
        for subtree in have {
            let _ = tree.absorb(*subtree);
        }
        let written: ChunkSet = tree.subtrees().filter_map(|subtree| subtree.chunks(grid).ok()).collect();
        let resumed_bytes = written.ranges().map(|range| range_bytes(grid, range)).sum();
        Self {
            shape,
            grid,
            chunks: (!grid.is_open()).then(|| grid.chunk_count()),
            last: None,
            room: room.map(|size| Room { size, granted: size, taken: 0 }),
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
            basis: Basis::default(),
            unsent_bytes: 0,
        }
    }

    /// Holes will be told: nothing is compared before.
    pub fn announce_holes(&mut self) {
        self.holes = Holes::Announced(HoleMap::default());
    }

    /// The first `count` chunks are compared with those of the file that is there, but for those that are written.
    pub fn compare_first(&mut self, count: u64) {
        let range = ChunkRange::new(ChunkId(0), count.min(self.grid.chunk_count()));
        self.basis = Basis::new(self.written.gaps(range).collect());
    }

    /// The sender told holes; returns all of them once it has told the last.
    pub fn on_holes(&mut self, extents: impl Iterator<Item = Extent>, last: bool) -> Result<Option<HoleMap>, HoleError> {
        let Holes::Announced(map) = &mut self.holes else { return Err(HoleError::NotAnnounced) };
        for extent in extents {
            map.push(extent, self.grid.size)?;
        }
        if !last {
            return Ok(None);
        }
        let map = std::mem::take(map);
        self.holes = Holes::Told(map.clone());
        Ok(Some(map))
    }

    /// The holes are in the file: their zeros can be hashed, and other chunks compared.
    pub fn on_holes_made(&mut self) {
        let Holes::Told(map) = &self.holes else { return };
        let (mut chunks, mut to_zero) = (ChunkSet::new(), ChunkSet::new());
        for range in map.chunks(self.grid).ranges() {
            // An honest sender has sent none of them.
            for gap in self.written.gaps(range) {
                to_zero.insert(gap);
            }
            chunks.insert(range);
            self.basis.leave_out(range);
        }
        self.writing.keys().for_each(|chunk| _ = to_zero.remove(*chunk));
        self.holes = Holes::Made { chunks, to_zero };
    }

    /// Returns zeros to hash.
    pub fn next_zeros(&mut self) -> Option<Zeros> {
        match &mut self.holes {
            Holes::Made { to_zero, .. } => Zeros::take(to_zero, self.grid),
            _ => None,
        }
    }

    /// Zeros that are in the file were hashed.
    pub fn on_zeros(&mut self, subtree: Subtree, now: Instant) {
        if let Some(bytes) = self.join(subtree) {
            self.unsent_bytes += bytes;
            // Nothing was written that a sync would take long for: one a second is enough, however fast zeros are hashed.
            self.fresh_since.get_or_insert(now);
        }
    }

    /// Returns a chunk of the file that is there to read, for its value.
    pub fn next_to_compare(&mut self) -> Option<ChunkId> {
        match self.holes {
            Holes::Announced(_) | Holes::Told(_) => None,
            _ => self.basis.next(),
        }
    }

    /// A chunk of the file that is there was read, or could not be, and is where the new file has it.
    pub fn on_compared(&mut self, chunk: ChunkId, value: Option<ChainingValue>) {
        self.basis.on_read(chunk, value);
    }

    /// Returns values to tell the sender.
    pub(crate) fn poll_values(&mut self) -> Option<Told> {
        self.basis.poll_values()
    }

    /// The sender has the same chunk. Says whether its value was told to it, and the chunk did not come as well: then what stands in the file
    /// would be other bytes than those that this value is of.
    pub fn on_kept(&mut self, chunk: ChunkId, now: Instant) -> bool {
        if self.writing.contains_key(&chunk) {
            return false;
        }
        let Some(value) = self.basis.on_kept(chunk) else { return false };
        if let Some(bytes) = self.join(Subtree::of_chunk(chunk, value)) {
            self.unsent_bytes += bytes;
            self.fresh_bytes += bytes;
            self.fresh_since.get_or_insert(now);
        }
        true
    }

    /// Adds chunks that are in the file without having come; returns their bytes, unless some are there already.
    fn join(&mut self, subtree: Subtree) -> Option<u64> {
        let range = subtree.chunks(self.grid).ok()?;
        self.tree.insert(subtree).ok()?;
        self.written.insert(range);
        self.fresh.push(subtree);
        Some(range_bytes(self.grid, range))
    }

    /// The grid; open while the length is not known.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// A chunk arrived.
    pub fn on_arrival(&mut self, path: PathId, arrived: &DataHeader, now: Instant) -> Result<Arrival, ArrivalError> {
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
        if self.writing.get(&chunk).is_some_and(|writing| writing.value != value) {
            return Ok(Arrival::Later);
        }
        self.writing.entry(chunk).or_insert(Writing { copies: 0, value }).copies += 1;
        Ok(Arrival::Write(extent))
    }

    /// Where a chunk belongs, if it can be of this transfer.
    fn checked_extent(&mut self, chunk: ChunkId, len: u32, last: bool) -> Result<Extent, ArrivalError> {
        let count = self.chunks.unwrap_or_else(|| self.grid.chunk_count());
        let whole = Some(chunk).filter(|chunk| chunk.0 < count).and_then(|chunk| self.extent_within(chunk));
        let extent = whole.ok_or(ArrivalError::OutOfRange { chunk: chunk.0, count })?;
        let wrong = ArrivalError::WrongLength { chunk: chunk.0, len, expected: extent.len };
        match self.shape {
            Shape::Parcels(_) if u64::from(len) <= extent.len => {}
            Shape::Pipe(_) if last && self.grid.is_open() && u64::from(len) <= extent.len => {
                let end = *self.last.get_or_insert((chunk, len));
                if end != (chunk, len) || self.written.last().is_some_and(|written| written > chunk) {
                    return Err(ArrivalError::End { chunks: chunk.0 + 1 });
                }
            }
            _ if extent.len != u64::from(len) => return Err(wrong),
            _ => {}
        }
        if self.last.is_some_and(|(last, _)| chunk > last) {
            return Err(ArrivalError::OutOfRange { chunk: chunk.0, count });
        }
        if let Some(room) = self.room.as_ref().filter(|room| chunk.0 >= room.granted) {
            return Err(ArrivalError::NoRoom { chunk: chunk.0, granted: room.granted });
        }
        Ok(Extent { len: len.into(), ..extent })
    }

    /// Where a chunk is, were it whole.
    fn extent_within(&self, chunk: ChunkId) -> Option<Extent> {
        match self.shape {
            Shape::Parcels(_) => self.shape.grid().extent_of(chunk),
            _ => self.grid.extent_of(chunk),
        }
    }

    /// The sender has told how much there is, which was not known.
    pub fn on_end(&mut self, end: End) -> Result<(), ArrivalError> {
        let refused = ArrivalError::End { chunks: end.chunks };
        // Also what is still verified: it would be written beyond the end.
        let greatest = self.written.last().max(self.writing.last_key_value().map(|(chunk, _)| *chunk));
        if self.chunks.is_some() || greatest.is_some_and(|chunk| chunk.0 >= end.chunks) {
            return Err(refused);
        }
        if let Shape::Pipe(chunk_size) = self.shape {
            let grid = Grid::new(end.size, chunk_size);
            // The value of an only chunk is the digest, which it has if it was called the last.
            let is_value_of_part = end.chunks == 1 && greatest.is_some() && self.last.is_none();
            let fits = self.last.is_none_or(|(last, len)| {
                last.0 + 1 == end.chunks && grid.extent_of(last).is_some_and(|extent| extent.len == u64::from(len))
            });
            if grid.is_open() || end.size > MOST_SIZE || grid.chunk_count() != end.chunks || !fits || is_value_of_part {
                return Err(refused);
            }
            self.tree.close(grid).map_err(|_| refused)?;
            self.grid = grid;
        }
        self.chunks = Some(end.chunks);
        Ok(())
    }

    /// `chunks` more of what is kept in memory were taken. Returns how many the sender may send in all, where it is worth to tell.
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

    /// A chunk that came by `path` was verified to have `value` and written; its acknowledgement goes out on `ack_on`, or on any path.
    ///
    /// Says whether it is the first of its kind; where what arrives is kept in memory, only then is it to be kept.
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

    /// A chunk that arrived is not written: it was damaged, or writing failed. It has to come again.
    pub fn on_not_written(&mut self, chunk: ChunkId) {
        if let Entry::Occupied(mut copies) = self.writing.entry(chunk) {
            copies.get_mut().copies -= 1;
            if copies.get().copies == 0 {
                copies.remove();
            }
        }
    }

    /// The sender has read everything and got `digest`. Says whether that is news; what it says later does not count.
    pub fn on_complete(&mut self, digest: Digest) -> bool {
        let news = self.expected.is_none();
        self.expected.get_or_insert(digest);
        news
    }

    /// Sets whether the source may change while it is read; it may not by default.
    pub fn allow_changing(&mut self, may_change: bool) {
        self.may_change = may_change;
    }

    /// The sender says that the source changed while it was read. This end's digest stands if it may: each chunk is one that was read so.
    pub fn on_changing(&mut self) {
        self.is_changing = self.may_change;
    }

    /// Once all is written, no sync is under way and the sender has told its digest: the receiver's digest and the sender's. Only once.
    ///
    /// Two syncs at once of one file share an error that the kernel tells only once: the one of the commit could be told that all is well.
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
        (self.is_whole() && self.writing.is_empty() && !std::mem::replace(&mut self.closing, true)).then_some(finished)
    }

    /// Whether everything has arrived.
    fn is_whole(&self) -> bool {
        self.chunks.is_some_and(|chunks| self.written.len() == chunks)
    }

    /// Starts a sync if `bytes` were written since the last one began, or anything `interval` ago: returns the subtrees that are durable
    /// when it has ended.
    pub fn poll_sync(&mut self, bytes: u64, interval: Duration, now: Instant) -> Option<Vec<Subtree>> {
        let since = self.fresh_since?;
        let due = self.fresh_bytes >= bytes || now.saturating_duration_since(since) >= interval;
        if !due || self.syncing || self.closing {
            return None;
        }
        self.syncing = true;
        Some(self.take_fresh())
    }

    /// Takes what was written since the last sync began, for whoever makes it durable without a word to this.
    pub(crate) fn take_fresh(&mut self) -> Vec<Subtree> {
        self.fresh_bytes = 0;
        self.fresh_since = None;
        std::mem::take(&mut self.fresh)
    }

    /// The sync that was started last has ended.
    pub fn on_synced(&mut self) {
        self.syncing = false;
    }

    /// When a sync is due at the latest.
    pub fn sync_deadline(&self, interval: Duration) -> Option<Instant> {
        self.fresh_since.filter(|_| !self.syncing && !self.closing).map(|since| since + interval)
    }

    /// Returns an acknowledgement to send on `path`, which has a connection, if one is due.
    pub fn poll_ack(&mut self, path: PathId, now: Instant) -> Option<Vec<ChunkRange>> {
        self.poll_ack_of(Some(path), now).or_else(|| self.poll_ack_of(None, now))
    }

    fn poll_ack_of(&mut self, key: Option<PathId>, now: Instant) -> Option<Vec<ChunkRange>> {
        // A source of parcels may wait for their places, and the next one goes where the least seems to be under way.
        let urgent = self.is_whole() || matches!(self.shape, Shape::Parcels(_));
        let pending = self.acks.get_mut(&key)?;
        let due = pending.chunks.len() >= ACK_EVERY || urgent || now.saturating_duration_since(pending.since) >= ACK_DELAY;
        if !due {
            return None;
        }
        let ranges = std::iter::from_fn(|| pending.chunks.take_first(u64::MAX)).take(MAX_ACK_RANGES).collect();
        if pending.chunks.is_empty() {
            self.acks.remove(&key);
        }
        Some(ranges)
    }

    /// When an acknowledgement is due at the latest; never for those that wait for any connection, as they go out with the first.
    pub fn ack_deadline(&self) -> Option<Instant> {
        self.acks.iter().filter(|(path, _)| path.is_some()).map(|(_, pending)| pending.since + ACK_DELAY).min()
    }

    /// `path` has lost its connection: what is owed there is told on any other.
    pub fn on_path_lost(&mut self, path: PathId) {
        let Some(owed) = self.acks.remove(&Some(path)) else { return };
        let pending = self.acks.entry(None).or_insert(PendingAck { chunks: ChunkSet::new(), since: owed.since });
        pending.chunks.extend(owed.chunks.ranges());
        pending.since = pending.since.min(owed.since);
    }

    /// The fewest subtrees that cover what is written.
    pub fn subtrees(&self) -> impl ExactSizeIterator<Item = Subtree> + '_ {
        self.tree.subtrees()
    }

    /// Bytes that were durable before this session.
    pub fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes
    }

    /// Bytes that did not have to come: of holes, and of chunks that were there.
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Bytes written in this session.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Bytes that arrived and were there already.
    pub fn duplicate_bytes(&self) -> u64 {
        self.duplicate_bytes
    }

    /// Bytes that arrived first by each path.
    pub fn delivered_by_path(&self) -> impl Iterator<Item = (PathId, u64)> {
        self.written_by.iter().map(|(path, bytes)| (*path, *bytes))
    }

    fn acknowledge(&mut self, path: Option<PathId>, chunk: ChunkId, now: Instant) {
        let pending = self.acks.entry(path).or_insert(PendingAck { chunks: ChunkSet::new(), since: now });
        pending.chunks.insert(chunk);
    }
}

#[cfg(test)]
mod tests;
