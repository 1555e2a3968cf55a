//! The sending half of a transfer: what is read, hashed, assigned and acknowledged. Mirror image of [`crate::receiver`].

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use minicbor::{Decode, Encode};

use crate::{
    comparison::Comparison,
    extent::{ChunkId, ChunkRange, ChunkSet},
    grid::{Grid, Shape},
    hash_tree::{ChainingValue, Digest, HashTree, Subtree},
    hole::Zeros,
    path::PathId,
    stripe::{GAIN_IN_MIDDLE, PathLoad, Striper, assignment_chunks},
    units::BitRate,
};

/// The sending half of one transfer.
#[derive(Debug)]
pub struct Sender {
    shape: Shape,
    /// Of the shape; closed once the length is known.
    grid: Grid,
    striper: Striper,
    /// Chunks that the receiver has no room for yet, all from `window` on.
    held: ChunkSet,
    /// First chunk that the receiver has no room for.
    window: ChunkId,
    /// How long the chunks are that the source gave as it had them, until they are acknowledged.
    lens: BTreeMap<ChunkId, u32>,
    /// Chunks that the source gave.
    given: u64,
    tree: HashTree,
    /// Chunks whose value is in the tree; a chunk that is read again, to be sent again, must not be inserted twice.
    hashed: ChunkSet,
    /// Chunks that the receiver has: read and hashed here, but not sent.
    to_hash: ChunkSet,
    lanes: BTreeMap<PathId, Lane>,
    resumed_bytes: u64,
    acknowledged_bytes: u64,
    resent_bytes: u64,
    started: ChunkSet,
    /// Chunks that lie in holes: hashed as zeros, not sent.
    to_zero: ChunkSet,
    /// Chunks of which the receiver's file may have the same.
    comparison: Comparison,
    unsent_bytes: u64,
    /// Where the source may change: the first value of each chunk that was read and is not acknowledged.
    first_values: Option<BTreeMap<ChunkId, ChainingValue>>,
    is_changing: bool,
}

/// What one path carries of this transfer.
#[derive(Debug, Default)]
struct Lane {
    /// Assigned, not handed out yet.
    waiting: VecDeque<ChunkId>,
    in_flight_bytes: u64,
    delivered_bytes: u64,
}

/// What an acknowledgement has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Bytes delivered by each path. A hedged chunk counts for the path on which its acknowledgement came.
    pub delivered: Vec<(PathId, u64)>,
    /// Chunks that other paths need not carry any more.
    pub superseded: Vec<(PathId, ChunkId)>,
    /// Chunks that the source gave and need not keep any more.
    pub released: Vec<ChunkId>,
}

impl Sender {
    /// Returns the sending half of a transfer of which the receiver has `have`.
    ///
    /// What lies outside the file is ignored: it only makes the receiver get more than it needs.
    ///
    /// `window` is the number of chunks that the receiver has room for so far; without it, for all.
    pub fn new(shape: Shape, have: &[Subtree], window: Option<u64>) -> Self {
        let grid = shape.grid();
        let (mut to_send, mut to_hash, mut held) = (ChunkSet::default(), ChunkSet::default(), ChunkSet::default());
        if let Shape::File(grid) = shape {
            to_send.insert(grid.all_chunks());
        }
        // What has no length yet cannot be read again either, so nobody can have it.
        for range in have.iter().filter(|_| !grid.is_open()).filter_map(|subtree| subtree.chunks(grid).ok()) {
            to_send.remove(range);
            to_hash.insert(range);
        }
        let window = ChunkId(window.unwrap_or(u64::MAX));
        let beyond: Vec<ChunkRange> =
            to_send.ranges().filter_map(|range| range.intersection(ChunkRange { first: window, count: u64::MAX - window.0 })).collect();
        for range in beyond {
            to_send.remove(range);
            held.insert(range);
        }
        let resumed_bytes = to_hash.ranges().map(|range| range_bytes(grid, range)).sum();
        Self {
            shape,
            grid,
            striper: Striper::new(to_send),
            held,
            window,
            lens: BTreeMap::new(),
            given: 0,
            tree: HashTree::new(grid),
            hashed: ChunkSet::default(),
            to_hash,
            lanes: BTreeMap::new(),
            resumed_bytes,
            acknowledged_bytes: 0,
            resent_bytes: 0,
            started: ChunkSet::default(),
            to_zero: ChunkSet::default(),
            comparison: Comparison::default(),
            unsent_bytes: 0,
            first_values: None,
            is_changing: false,
        }
    }

    /// These chunks lie in holes: they are hashed as zeros and not sent. Has to be called before anything is sent.
    pub fn leave_out_holes(&mut self, holes: &ChunkSet) {
        for range in holes.ranges() {
            self.unsent_bytes += self.to_hash.gaps(range).map(|gap| range_bytes(self.grid, gap)).sum::<u64>();
            self.to_hash.remove(range);
            self.to_zero.insert(range);
            self.striper.withdraw(range);
        }
    }

    /// The first `count` chunks are compared with the receiver's, but for those that it has and those in holes: none of them is sent before
    /// its value has come. Has to be called before anything is sent, and after [`Sender::leave_out_holes`]. Does nothing where the source is
    /// no file.
    pub fn compare_first(&mut self, count: u64) {
        if self.grid.is_open() {
            return;
        }
        let mut left_out = self.to_zero.clone();
        left_out.extend(self.to_hash.ranges());
        let range = ChunkRange::new(ChunkId(0), count.min(self.grid.chunk_count()));
        self.striper.withdraw(range);
        self.comparison = Comparison::new(left_out.gaps(range).collect());
    }

    /// The source may change while it is read: a chunk that is read twice need not be the same.
    pub fn allow_changing(&mut self) {
        self.first_values.get_or_insert_default();
    }

    /// The receiver's file has `value` for `chunk`. Says whether it was asked for.
    pub fn on_value(&mut self, chunk: ChunkId, value: ChainingValue) -> bool {
        self.comparison.on_value(chunk, value)
    }

    /// Returns chunks that the receiver is to keep, if it is time to say so.
    pub fn poll_kept(&mut self) -> Option<Vec<ChunkRange>> {
        self.comparison.poll_kept()
    }

    /// Returns zeros to hash.
    pub fn next_zeros(&mut self) -> Option<Zeros> {
        Zeros::take(&mut self.to_zero, self.grid)
    }

    /// Zeros were hashed.
    pub fn on_zeros(&mut self, subtree: Subtree) {
        if let Ok(range) = subtree.chunks(self.grid)
            && self.tree.insert(subtree).is_ok()
        {
            self.hashed.insert(range);
        }
    }

    /// The grid; open while the length is not known.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Whether all chunks together have a digest.
    pub fn has_digest(&self) -> bool {
        self.shape.has_digest()
    }

    /// The receiver has room for the chunks before `window`. Less than it had said before does not count.
    pub fn on_window(&mut self, window: u64) {
        self.window = self.window.max(ChunkId(window));
        while self.held.first().is_some_and(|first| first < self.window) {
            let Some(range) = self.held.take_first(u64::MAX) else { break };
            let within = ChunkRange { first: ChunkId(0), count: self.window.0 };
            if let Some(sendable) = range.intersection(within) {
                self.striper.push(sendable);
            }
            if range.end() > self.window {
                let first = range.first.max(self.window);
                self.held.insert(ChunkRange { first, count: range.end().0 - first.0 });
            }
        }
    }

    /// The source has the next chunk, of `len` bytes and this value; `last` says that it knows of nothing behind it.
    ///
    /// Returns its number; nothing where the source is a file, has ended, or the chunk is empty or longer than a chunk.
    pub fn give(&mut self, len: u32, value: ChainingValue, last: bool) -> Option<ChunkId> {
        let most = self.grid.chunk_size.bytes();
        if !self.grid.is_open() || len == 0 || u64::from(len) > most {
            return None;
        }
        let chunk = ChunkId(self.given);
        self.given += 1;
        self.lens.insert(chunk, len);
        if chunk < self.window {
            self.striper.push(chunk);
        } else {
            self.held.insert(chunk);
        }
        if self.shape.has_digest() {
            self.on_read(chunk, value);
        }
        if last {
            self.close();
        }
        Some(chunk)
    }

    /// The source has given all it has.
    pub fn close(&mut self) {
        if !self.grid.is_open() {
            return;
        }
        let before_last = self.given.saturating_sub(1) * self.grid.chunk_size.bytes();
        let last = self.given.checked_sub(1).map_or(0, |last| self.chunk_bytes(ChunkId(last)));
        self.grid = Grid::new(before_last + last, self.grid.chunk_size);
        // Cannot fail: all chunks but the last were full.
        let closed = self.tree.close(self.grid);
        debug_assert!(closed.is_ok() || !self.shape.has_digest(), "{closed:?}");
    }

    /// What the receiver has to be told of the length that it did not know; nothing while the source goes on, or where the receiver knew.
    pub fn end(&self) -> Option<End> {
        match self.shape {
            Shape::File(_) => None,
            _ if self.grid.is_open() => None,
            Shape::Pipe(_) => Some(End { chunks: self.given, size: self.grid.size }),
            Shape::Parcels(_) => Some(End { chunks: self.given, size: 0 }),
        }
    }

    /// Whether `chunk` is known to be the last of a length that the receiver does not know.
    pub fn is_last(&self, chunk: ChunkId) -> bool {
        matches!(self.shape, Shape::Pipe(_)) && !self.grid.is_open() && chunk.0 + 1 == self.given
    }

    /// Returns the next chunk that `path` should carry: of its assignment, or of a new one for a path of `rate`.
    ///
    /// An assignment is at most an equal share of what is left for `paths` paths, so that a small file takes all of them; one chunk where the
    /// source goes on, as more will come.
    pub fn next_chunk(&mut self, path: PathId, rate: Option<BitRate>, paths: u64, now: Instant) -> Option<ChunkId> {
        let lane = self.lanes.entry(path).or_default();
        while let Some(chunk) = lane.waiting.pop_front() {
            if self.striper.is_carried_by(chunk, path) {
                return Some(chunk);
            }
        }
        let share = if self.grid.is_open() { 1 } else { self.striper.queued().div_ceil(paths.max(1)) };
        let range = self.striper.assign(path, assignment_chunks(rate, self.grid.chunk_size.bytes()).min(share), now)?;
        lane.waiting.extend(range.chunks().skip(1));
        // Of what the source gives as it has it, a chunk is as long as it was given: else what is acknowledged would never be all.
        let given: u64 = self.lens.range(range.first..range.end()).map(|(_, len)| u64::from(*len)).sum();
        lane.in_flight_bytes += if given > 0 { given } else { range_bytes(self.grid, range) };
        Some(range.first)
    }

    /// Returns a chunk of another path that an idle `path` should carry as well; one that the other has not begun to read it takes over.
    pub fn next_hedge(&mut self, path: PathId, rates: impl Fn(PathId) -> (Option<BitRate>, bool), now: Instant) -> Option<ChunkId> {
        let lanes = &self.lanes;
        let gain = if self.grid.is_open() { GAIN_IN_MIDDLE } else { Duration::ZERO };
        let (chunk, owner) = self.striper.hedge(path, self.grid.chunk_size.bytes(), gain, |path| load(lanes, &rates, path), now)?;
        self.lanes.entry(path).or_default().in_flight_bytes += self.chunk_bytes(chunk);
        if self.lanes.get(&owner).is_some_and(|lane| lane.waiting.contains(&chunk)) {
            self.on_not_sent(owner, chunk);
        }
        Some(chunk)
    }

    /// When [`Sender::next_hedge`] may have one for `path` that it does not have yet.
    pub fn hedge_at(&self, path: PathId, rates: impl Fn(PathId) -> (Option<BitRate>, bool)) -> Option<Instant> {
        self.striper.hedge_at(path, |path| load(&self.lanes, &rates, path))
    }

    /// Returns the next chunk to read and hash without sending it, or before it is sent.
    pub fn next_to_hash(&mut self) -> Option<ChunkId> {
        self.to_hash.take_first(1).map(|range| range.first).or_else(|| self.comparison.next())
    }

    /// A chunk was read; its value joins the tree, the first time.
    pub fn on_read(&mut self, chunk: ChunkId, value: ChainingValue) {
        if self.hashed.insert(chunk) == 1 {
            // Cannot overlap or lie outside: the chunk is of this grid and was not in the tree.
            let inserted = self.tree.insert(Subtree::of_chunk(chunk, value));
            debug_assert!(inserted.is_ok(), "{inserted:?}");
            if let Some(values) = &mut self.first_values {
                values.insert(chunk, value);
            }
        } else if let Some(first) = self.first_values.as_ref().and_then(|values| values.get(&chunk)) {
            self.is_changing |= *first != value;
        }
    }

    /// A chunk that was polled by [`Sender::next_to_hash`] was read: one that differs from the receiver's is queued.
    pub fn on_hashed(&mut self, chunk: ChunkId, value: ChainingValue) {
        self.on_read(chunk, value);
        match self.comparison.on_read(chunk, value) {
            Some(false) => self.striper.push(chunk),
            Some(true) => {
                self.unsent_bytes += self.chunk_bytes(chunk);
                self.forget_value(chunk);
            }
            // The receiver has it.
            None => self.forget_value(chunk),
        }
    }

    fn forget_value(&mut self, chunk: ChunkId) {
        if let Some(values) = &mut self.first_values {
            values.remove(&chunk);
        }
    }

    /// Whether `path` should still send `chunk`, which it is about to.
    pub fn on_send(&mut self, path: PathId, chunk: ChunkId) -> bool {
        if !self.striper.is_carried_by(chunk, path) {
            return false;
        }
        if self.started.insert(chunk) == 0 {
            self.resent_bytes += self.chunk_bytes(chunk);
        }
        true
    }

    /// Returns a chunk of `range` whose sending was never begun, if there is one.
    pub fn never_sent(&self, range: ChunkRange) -> Option<ChunkId> {
        self.started.gaps(range).next().map(|gap| gap.first)
    }

    /// The receiver wrote `range`, and said so on `path`.
    pub fn on_acknowledged(&mut self, path: PathId, range: ChunkRange) -> Acknowledged {
        let mut result = Acknowledged::default();
        for (chunk, owners) in self.striper.acknowledge(range) {
            let bytes = self.chunk_bytes(chunk);
            self.acknowledged_bytes += bytes;
            self.forget_value(chunk);
            let winner = owners.into_iter().flatten().find(|owner| *owner == path).or(owners[0]);
            for owner in owners.into_iter().flatten() {
                let Some(lane) = self.lanes.get_mut(&owner) else { continue };
                lane.in_flight_bytes = lane.in_flight_bytes.saturating_sub(bytes);
                if Some(owner) == winner {
                    lane.delivered_bytes += bytes;
                    result.delivered.push((owner, bytes));
                } else {
                    result.superseded.push((owner, chunk));
                }
            }
        }
        // Also those that were to be sent again, as their path was lost.
        result.released = self.lens.range(range.first..range.end()).map(|(chunk, _)| *chunk).collect();
        for chunk in &result.released {
            self.lens.remove(chunk);
        }
        result
    }

    /// `path` has lost its connection: what only it carried is assigned anew.
    pub fn on_path_lost(&mut self, path: PathId) {
        self.striper.release(path);
        if let Some(lane) = self.lanes.get_mut(&path) {
            lane.waiting.clear();
            lane.in_flight_bytes = 0;
        }
    }

    /// `path` could not read or send `chunk`; it is assigned anew.
    pub fn on_not_sent(&mut self, path: PathId, chunk: ChunkId) {
        let bytes = self.chunk_bytes(chunk);
        if self.striper.release_chunk(chunk, path)
            && let Some(lane) = self.lanes.get_mut(&path)
        {
            lane.in_flight_bytes = lane.in_flight_bytes.saturating_sub(bytes);
        }
    }

    /// Bytes that `path` carries and that are not acknowledged.
    pub fn in_flight_bytes(&self, path: PathId) -> u64 {
        self.lanes.get(&path).map_or(0, |lane| lane.in_flight_bytes)
    }

    /// The receiver has everything: what is unacknowledged counts for the path that carried it first.
    pub fn on_committed(&mut self) {
        let paths: Vec<PathId> = self.lanes.keys().copied().collect();
        for path in paths {
            for chunk in self.striper.first_owned_by(path) {
                self.on_acknowledged(path, chunk.into());
            }
        }
    }

    /// Bytes delivered by each path.
    pub fn delivered_by_path(&self) -> impl Iterator<Item = (PathId, u64)> {
        self.lanes.iter().map(|(path, lane)| (*path, lane.delivered_bytes))
    }

    /// Bytes of the next chunk that is not assigned to any path yet.
    pub fn next_bytes(&self) -> Option<u64> {
        self.striper.first_queued().map(|chunk| self.chunk_bytes(chunk))
    }

    /// Chunks that are not assigned to any path yet.
    pub fn queued_chunks(&self) -> u64 {
        self.striper.queued()
    }

    /// Bytes that the receiver had before.
    pub fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes
    }

    /// Bytes acknowledged in this session.
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes
    }

    /// Bytes whose sending was begun more than once.
    pub fn resent_bytes(&self) -> u64 {
        self.resent_bytes
    }

    /// Bytes that need not be sent: of holes, and of chunks that the receiver's file has.
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Whether a chunk of a source that may change was read more than once and not the same each time.
    pub fn is_changing(&self) -> bool {
        self.is_changing
    }

    /// Whether the digest can be told: nothing will be read again that might have changed meanwhile.
    pub fn is_read(&self) -> bool {
        self.digest().is_some() && (self.first_values.is_none() || self.striper.is_done())
    }

    /// The digest of all, once every byte of it was read; of what has none, zeros.
    pub fn digest(&self) -> Option<Digest> {
        match self.shape.has_digest() {
            true => self.tree.root(),
            false => (!self.grid.is_open()).then_some(NO_DIGEST),
        }
    }

    /// Bytes of a chunk that is not acknowledged.
    pub fn chunk_bytes(&self, chunk: ChunkId) -> u64 {
        let given = self.lens.get(&chunk).map(|len| u64::from(*len));
        given.unwrap_or_else(|| self.grid.extent_of(chunk).map_or(0, |extent| extent.len))
    }
}

/// What is told in place of a digest where there is none.
pub const NO_DIGEST: Digest = Digest([0; 32]);

/// How much there was of what had no known length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct End {
    /// Chunks.
    #[n(0)]
    pub chunks: u64,
    /// Bytes; 0 for parcels.
    #[n(1)]
    pub size: u64,
}

fn load(lanes: &BTreeMap<PathId, Lane>, rates: impl Fn(PathId) -> (Option<BitRate>, bool), path: PathId) -> PathLoad {
    let (rate, suspect) = rates(path);
    PathLoad { in_flight: lanes.get(&path).map_or(0, |lane| lane.in_flight_bytes), rate, suspect }
}

/// Returns the bytes of `range`, which lies in `grid`.
pub(crate) fn range_bytes(grid: Grid, range: ChunkRange) -> u64 {
    grid.extent_of_range(range).map_or(0, |extent| extent.len)
}

#[cfg(test)]
mod tests;
