//! Sending half of a transfer: reads, hashes, assignment to paths and acknowledgements. Counterpart
//! of [`crate::transfer::receiver`].

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use super::{delta_sender::DeltaSender, stats::TransferStats};
use crate::{
    file::{
        extent::{ChunkId, ChunkRange, ChunkSet},
        grid::{Grid, Shape},
        hash_tree::{ChainingValue, Digest, HashTree, Subtree},
        hole::Zeros,
    },
    id::PathId,
    path::stripe::{GAIN_IN_MIDDLE, PathLoad, Striper, assignment_chunks},
    units::BitRate,
    wire::message::End,
};

#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) shape: Shape,
    /// Chunk grid of the transfer. The grid is open while the length is unknown.
    pub(crate) grid: Grid,
    striper: Striper,
    /// Chunks that wait until the send window includes them. All have an index of at least
    /// `window`.
    held: ChunkSet,
    /// Index of the first chunk outside the send window.
    window: ChunkId,
    /// Length in bytes of each unacknowledged chunk of a stream.
    lens: BTreeMap<ChunkId, u32>,
    /// Number of chunks that the source of a stream has produced.
    given: u64,
    tree: HashTree,
    /// Chunks whose hashes are in the tree. The hash of a chunk that is read again for a
    /// retransmission must not be inserted twice.
    hashed: ChunkSet,
    /// Chunks that the receiver has. They must be read and hashed, but not sent.
    to_hash: ChunkSet,
    queues: BTreeMap<PathId, PathQueue>,
    /// Byte counters of the transfer. `size` and `by_path` are set only in the result of
    /// [`Sender::stats`].
    stats: TransferStats,
    started: ChunkSet,
    /// Chunks in holes. They must be hashed as zeros, but not sent.
    to_zero: ChunkSet,
    /// Comparison with the receiver's existing file (`--delta`).
    pub(crate) comparison: DeltaSender,
    /// Hash of each unacknowledged chunk from its first read; `None` unless the source may change.
    first_values: Option<BTreeMap<ChunkId, ChainingValue>>,
    /// True if the source changed, so that repeated reads of a chunk differed.
    pub(crate) is_changing: bool,
}

/// Chunks of this transfer that are assigned to one path, with byte counters.
#[derive(Debug, Default)]
struct PathQueue {
    /// Chunks that are assigned to the path and not yet being read.
    waiting: VecDeque<ChunkId>,
    in_flight_bytes: u64,
    delivered_bytes: u64,
}

/// Result of [`Sender::on_acknowledged`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// Number of bytes that each path delivered. A hedged chunk counts for the path that received
    /// its acknowledgement.
    pub(crate) delivered: Vec<(PathId, u64)>,
    /// Chunks of a stream that may leave the source's retransmit buffer.
    pub(crate) released: Vec<ChunkId>,
}

impl Sender {
    /// Returns the sending half of a transfer whose receiver already has the subtrees `have`.
    ///
    /// Ignores subtrees outside the file; the receiver then gets more than it needs.
    ///
    /// `window` is the initial send window in chunks; `None` for no limit.
    pub(crate) fn new(shape: Shape, have: &[Subtree], window: Option<u64>) -> Self {
        let grid = shape.grid();
        let (mut to_send, mut to_hash) = (ChunkSet::default(), ChunkSet::default());
        if let Shape::File(grid) = shape {
            to_send.insert(grid.all_chunks());
        }
        // The source of a transfer of unknown length cannot be reread, so the transfer cannot be
        // resumed.
        for range in have
            .iter()
            .filter(|_| !grid.is_open())
            .filter_map(|subtree| subtree.chunks(grid).ok())
        {
            to_send.remove(range);
            to_hash.insert(range);
        }
        let resumed_bytes = to_hash.ranges().map(|range| grid.range_bytes(range)).sum();
        let mut sender = Self {
            shape,
            grid,
            striper: Striper::default(),
            held: to_send,
            window: ChunkId(0),
            lens: BTreeMap::new(),
            given: 0,
            tree: HashTree::new(grid),
            hashed: ChunkSet::default(),
            to_hash,
            queues: BTreeMap::new(),
            stats: TransferStats {
                resumed_bytes,
                ..TransferStats::default()
            },
            started: ChunkSet::default(),
            to_zero: ChunkSet::default(),
            comparison: DeltaSender::default(),
            first_values: None,
            is_changing: false,
        };
        sender.on_window(window.unwrap_or(u64::MAX));
        sender
    }

    /// Excludes chunks in holes from the transfer. They are hashed as zeros. Must be called before
    /// the first chunk is sent.
    pub(crate) fn leave_out_holes(&mut self, holes: &ChunkSet) {
        for range in holes.ranges() {
            self.stats.unsent_bytes += self
                .to_hash
                .gaps(range)
                .map(|gap| self.grid.range_bytes(gap))
                .sum::<u64>();
            self.to_hash.remove(range);
            self.to_zero.insert(range);
            self.striper.withdraw(range);
        }
    }

    /// Compares the first `count` chunks with the receiver's file (`--delta`), except for chunks in
    /// `have` and in holes. None of the compared chunks is sent before the receiver's hash arrives.
    ///
    /// Must be called before the first chunk is sent, and after [`Sender::leave_out_holes`]. Has no
    /// effect unless the source is a file.
    pub(crate) fn compare_first(&mut self, count: u64) {
        if self.grid.is_open() {
            return;
        }
        let mut left_out = self.to_zero.clone();
        left_out.extend(self.to_hash.ranges());
        let range = ChunkRange::new(ChunkId(0), count.min(self.grid.chunk_count()));
        self.striper.withdraw(range);
        self.comparison.awaited = left_out.gaps(range).collect();
    }

    /// Permits the source to change during the transfer: repeated reads of a chunk may differ.
    pub(crate) fn allow_changing(&mut self) {
        self.first_values.get_or_insert_default();
    }

    /// Returns the next subtree of zeros to hash; `None` if there is none.
    pub(crate) fn next_zeros(&mut self) -> Option<Zeros> {
        Zeros::take(&mut self.to_zero, self.grid)
    }

    /// Records the hash of a subtree from [`Sender::next_zeros`].
    pub(crate) fn on_zeros(&mut self, subtree: Subtree) {
        if let Ok(range) = subtree.chunks(self.grid)
            && self.tree.insert(subtree).is_ok()
        {
            self.hashed.insert(range);
        }
    }

    /// Extends the send window to all chunks with an index below `window`. A lower value than
    /// before has no effect.
    pub(crate) fn on_window(&mut self, window: u64) {
        self.window = self.window.max(ChunkId(window));
        while let Some(first) = self.held.first().filter(|first| *first < self.window)
            && let Some(sendable) = self.held.take_first(self.window.0 - first.0)
        {
            self.striper.push(sendable);
        }
    }

    /// Appends the next chunk of a stream, with `len` bytes. Ends the stream if `last` is set.
    ///
    /// Returns the chunk's index; `None` if the source is a file, if the stream has ended, or if
    /// `len` is 0 or exceeds the chunk size.
    pub(crate) fn give(&mut self, len: u32, value: ChainingValue, last: bool) -> Option<ChunkId> {
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

    /// Marks the end of a stream. Has no effect on a file.
    pub(crate) fn close(&mut self) {
        if !self.grid.is_open() {
            return;
        }
        let before_last = self.given.saturating_sub(1) * self.grid.chunk_size.bytes();
        let last = self
            .given
            .checked_sub(1)
            .map_or(0, |last| self.chunk_bytes(ChunkId(last)));
        self.grid = Grid::new(before_last + last, self.grid.chunk_size);
        // Cannot fail, because all chunks but the last were full.
        let closed = self.tree.close(self.grid);
        debug_assert!(closed.is_ok() || !self.shape.has_digest(), "{closed:?}");
    }

    /// Returns the final length to report to the receiver; `None` if the source has not ended or
    /// the receiver knows the length.
    pub(crate) fn end(&self) -> Option<End> {
        let size = match self.shape {
            Shape::File(_) => return None,
            Shape::Pipe(_) => self.grid.size,
            Shape::Batches(_) => 0,
        };
        (!self.grid.is_open()).then_some(End {
            chunks: self.given,
            size,
        })
    }

    /// Returns true if `chunk` is the last chunk of a pipe that has ended.
    pub(crate) fn is_last(&self, chunk: ChunkId) -> bool {
        matches!(self.shape, Shape::Pipe(_)) && !self.grid.is_open() && chunk.0 + 1 == self.given
    }

    /// Returns the next chunk to send on `path`; `None` if the queue is empty. The chunk is from
    /// the path's assignment, or from a new assignment sized for `rate`.
    ///
    /// An assignment is at most an equal share of the queue among `paths` paths, so that a small
    /// file uses all paths. An assignment is one chunk while the source still produces data.
    pub(crate) fn next_chunk(
        &mut self,
        path: PathId,
        rate: Option<BitRate>,
        paths: u64,
        now: Instant,
    ) -> Option<ChunkId> {
        let queue = self.queues.entry(path).or_default();
        while let Some(chunk) = queue.waiting.pop_front() {
            if self.striper.is_carried_by(chunk, path) {
                return Some(chunk);
            }
        }
        let share = if self.grid.is_open() {
            1
        } else {
            self.striper.queued().div_ceil(paths.max(1))
        };
        let range = self.striper.assign(
            path,
            assignment_chunks(rate, self.grid.chunk_size.bytes()).min(share),
            now,
        )?;
        queue.waiting.extend(range.chunks().skip(1));
        // Chunks of a stream count with their actual length. Otherwise, assignments and
        // acknowledgements would not balance.
        let given: u64 = self
            .lens
            .range(range.first..range.end())
            .map(|(_, len)| u64::from(*len))
            .sum();
        queue.in_flight_bytes += if given > 0 {
            given
        } else {
            self.grid.range_bytes(range)
        };
        Some(range.first)
    }

    /// Returns a chunk in flight on another path for an idle `path` to send too (a hedge); `None`
    /// without one. The idle path takes over the chunk if the other path has not begun to read it.
    pub(crate) fn next_hedge(
        &mut self,
        path: PathId,
        rates: impl Fn(PathId) -> (Option<BitRate>, bool),
        now: Instant,
    ) -> Option<ChunkId> {
        let queues = &self.queues;
        let gain = if self.grid.is_open() {
            GAIN_IN_MIDDLE
        } else {
            Duration::ZERO
        };
        let (chunk, owner) = self.striper.hedge(
            path,
            self.grid.chunk_size.bytes(),
            gain,
            |path| load(queues, &rates, path),
            now,
        )?;
        self.queues.entry(path).or_default().in_flight_bytes += self.chunk_bytes(chunk);
        if self
            .queues
            .get(&owner)
            .is_some_and(|queue| queue.waiting.contains(&chunk))
        {
            self.on_not_sent(owner, chunk);
        }
        Some(chunk)
    }

    /// Returns the earliest time at which [`Sender::next_hedge`] can return a chunk for `path`;
    /// `None` without one.
    pub(crate) fn hedge_at(
        &self,
        path: PathId,
        rates: impl Fn(PathId) -> (Option<BitRate>, bool),
    ) -> Option<Instant> {
        self.striper
            .hedge_at(path, |path| load(&self.queues, &rates, path))
    }

    /// Returns the next chunk to read and hash without sending it; `None` if there is none. The
    /// receiver either has the chunk or compares it with its own.
    pub(crate) fn next_to_hash(&mut self) -> Option<ChunkId> {
        self.to_hash
            .take_first(1)
            .map(|range| range.first)
            .or_else(|| self.comparison.next())
    }

    /// Adds the hash of a chunk to the tree after the chunk's first read. A later read with another
    /// hash marks the source as changing.
    pub(crate) fn on_read(&mut self, chunk: ChunkId, value: ChainingValue) {
        if self.hashed.insert(chunk) == 1 {
            // Cannot overlap or be out of range: the chunk is in the grid and was not in the tree.
            let inserted = self.tree.insert(Subtree::of_chunk(chunk, value));
            debug_assert!(inserted.is_ok(), "{inserted:?}");
            if let Some(values) = &mut self.first_values {
                values.insert(chunk, value);
            }
        } else if let Some(first) = self
            .first_values
            .as_ref()
            .and_then(|values| values.get(&chunk))
        {
            self.is_changing |= *first != value;
        }
    }

    /// Records the hash of a chunk from [`Sender::next_to_hash`]. Queues the chunk if its hash
    /// differs from the receiver's.
    pub(crate) fn on_hashed(&mut self, chunk: ChunkId, value: ChainingValue) {
        self.on_read(chunk, value);
        match self.comparison.on_read(chunk, value) {
            Some(false) => self.striper.push(chunk),
            Some(true) => {
                self.stats.unsent_bytes += self.chunk_bytes(chunk);
                self.forget_value(chunk);
            }
            // The receiver has the chunk.
            None => self.forget_value(chunk),
        }
    }

    fn forget_value(&mut self, chunk: ChunkId) {
        if let Some(values) = &mut self.first_values {
            values.remove(&chunk);
        }
    }

    /// Records that `chunk` is about to be sent on `path`. Returns false if the chunk is no longer
    /// assigned to that path.
    pub(crate) fn on_send(&mut self, path: PathId, chunk: ChunkId) -> bool {
        if !self.striper.is_carried_by(chunk, path) {
            return false;
        }
        if self.started.insert(chunk) == 0 {
            self.stats.repeated_bytes += self.chunk_bytes(chunk);
        }
        true
    }

    /// Returns the first chunk of `range` that was never sent; `None` if all were sent.
    pub(crate) fn never_sent(&self, range: ChunkRange) -> Option<ChunkId> {
        self.started.gaps(range).next().map(|gap| gap.first)
    }

    /// Removes the chunks of `range` after their acknowledgement, which arrived on `path`.
    pub(crate) fn on_acknowledged(&mut self, path: PathId, range: ChunkRange) -> Acknowledged {
        let mut result = Acknowledged::default();
        for (chunk, owners) in self.striper.acknowledge(range) {
            let bytes = self.chunk_bytes(chunk);
            self.stats.delivered_bytes += bytes;
            self.forget_value(chunk);
            let winner = owners
                .into_iter()
                .flatten()
                .find(|owner| *owner == path)
                .or(owners[0]);
            for owner in owners.into_iter().flatten() {
                let Some(queue) = self.queues.get_mut(&owner) else {
                    continue;
                };
                queue.in_flight_bytes = queue.in_flight_bytes.saturating_sub(bytes);
                if Some(owner) == winner {
                    queue.delivered_bytes += bytes;
                    result.delivered.push((owner, bytes));
                }
            }
        }
        // Includes chunks that were requeued after the loss of their path.
        result.released = self
            .lens
            .range(range.first..range.end())
            .map(|(chunk, _)| *chunk)
            .collect();
        for chunk in &result.released {
            self.lens.remove(chunk);
        }
        result
    }

    /// Requeues the chunks of the lost `path`, except for chunks that are also in flight on another
    /// path.
    pub(crate) fn on_path_lost(&mut self, path: PathId) {
        self.striper.release(path);
        if let Some(queue) = self.queues.get_mut(&path) {
            queue.waiting.clear();
            queue.in_flight_bytes = 0;
        }
    }

    /// Requeues a chunk that was assigned to `path` but could not be read or sent.
    pub(crate) fn on_not_sent(&mut self, path: PathId, chunk: ChunkId) {
        let bytes = self.chunk_bytes(chunk);
        if self.striper.release_chunk(chunk, path)
            && let Some(queue) = self.queues.get_mut(&path)
        {
            queue.in_flight_bytes = queue.in_flight_bytes.saturating_sub(bytes);
        }
    }

    pub(crate) fn in_flight_bytes(&self, path: PathId) -> u64 {
        self.queues
            .get(&path)
            .map_or(0, |queue| queue.in_flight_bytes)
    }

    /// Records that the receiver has committed the file. Chunks in flight count as delivered by the
    /// path of their first assignment.
    pub(crate) fn on_committed(&mut self) {
        let paths: Vec<PathId> = self.queues.keys().copied().collect();
        for path in paths {
            for chunk in self.striper.first_owned_by(path) {
                self.on_acknowledged(path, chunk.into());
            }
        }
    }

    pub(crate) fn stats(&self) -> TransferStats {
        let queues = self.queues.iter();
        TransferStats {
            size: self.grid.known_size(),
            by_path: queues
                .map(|(path, queue)| (*path, queue.delivered_bytes))
                .collect(),
            ..self.stats.clone()
        }
    }

    /// Returns the length in bytes of the next chunk in the queue; `None` if the queue is empty.
    pub(crate) fn next_bytes(&self) -> Option<u64> {
        self.striper
            .first_queued()
            .map(|chunk| self.chunk_bytes(chunk))
    }

    pub(crate) fn queued_chunks(&self) -> u64 {
        self.striper.queued()
    }

    /// Returns true if the digest is final: every byte has been read, and no chunk of a source that
    /// may change will be read again.
    pub(crate) fn is_read(&self) -> bool {
        self.digest().is_some() && (self.first_values.is_none() || self.striper.is_done())
    }

    /// Returns the digest of the file; `None` until every byte has been read. Returns
    /// [`Digest::NONE`] for a transfer without a digest.
    pub(crate) fn digest(&self) -> Option<Digest> {
        match self.shape.has_digest() {
            true => self.tree.root(),
            false => (!self.grid.is_open()).then_some(Digest::NONE),
        }
    }

    /// Returns the length in bytes of an unacknowledged chunk.
    pub(crate) fn chunk_bytes(&self, chunk: ChunkId) -> u64 {
        let given = self.lens.get(&chunk).map(|len| u64::from(*len));
        given.unwrap_or_else(|| self.grid.extent_of(chunk).map_or(0, |extent| extent.len))
    }
}

fn load(
    queues: &BTreeMap<PathId, PathQueue>,
    rates: impl Fn(PathId) -> (Option<BitRate>, bool),
    path: PathId,
) -> PathLoad {
    let (rate, suspect) = rates(path);
    PathLoad {
        in_flight: queues.get(&path).map_or(0, |queue| queue.in_flight_bytes),
        rate,
        suspect,
    }
}

#[cfg(test)]
mod tests;
