//! Striping: assignment of chunks to paths.
//!
//! Paths pull from a shared queue. A path that can send gets an **assignment**: a run of chunks
//! that keeps the path busy for 75 ms. An idle path **hedges** once the queue is empty: it sends a
//! second copy of the newest chunk in flight on another path. The first acknowledgement wins.
//! Measured with 1 Gbit/s + 10 Mbit/s, hedging reduces the tail from 1.55 × to 1.01 × of the ideal
//! time. Hedging also provides failover from a path that dies silently.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    file::extent::{ChunkId, ChunkRange, ChunkSet},
    id::PathId,
    units::BitRate,
};

/// Target duration of an assignment at the path's rate.
///
/// Values from 50 to 100 ms gave equal results on two gigabit links (`benches/stripe.rs` measures
/// the cost of a decision). Longer assignments leave more chunks to reassign at the end.
pub(crate) const ASSIGNMENT_TIME: Duration = Duration::from_millis(75);

/// Number of chunks in an assignment to a path of unknown rate: 1 MiB in chunks of 256 KiB, or 9 ms
/// at 1 Gbit/s.
pub(crate) const FIRST_ASSIGNMENT: u64 = 4;

/// Maximum number of chunks in one assignment. Equals the in-flight limit of a path (8 MiB in
/// chunks of 256 KiB).
pub const LARGEST_ASSIGNMENT: u64 = 32;

/// Returns the number of chunks that a path of the given rate sends in [`ASSIGNMENT_TIME`].
pub(crate) fn assignment_chunks(rate: Option<BitRate>, chunk_bytes: u64) -> u64 {
    let Some(rate) = rate else {
        return FIRST_ASSIGNMENT;
    };
    (rate.bytes_in(ASSIGNMENT_TIME) / chunk_bytes.max(1)).clamp(1, LARGEST_ASSIGNMENT)
}

/// Load and state of a path, from which the striper selects a hedge.
#[derive(Debug, Clone, Copy)]
pub struct PathLoad {
    /// Number of bytes that are assigned to the path and not acknowledged.
    pub in_flight: u64,
    /// Measured rate of the path; `None` if unknown.
    pub rate: Option<BitRate>,
    /// True if the path is suspect: connected, but silent for too long.
    pub suspect: bool,
}

impl PathLoad {
    /// Returns the time that the path needs to deliver its bytes in flight and `more` bytes; `None`
    /// if the path's rate is unknown.
    fn finish_time(&self, more: u64) -> Option<Duration> {
        self.rate
            .map(|rate| rate.time_for(self.in_flight.saturating_add(more)))
    }
}

/// Scheduler of the undelivered chunks of one transfer.
#[derive(Debug, Default)]
pub struct Striper {
    queue: ChunkSet,
    in_flight: BTreeMap<ChunkId, Owners>,
    stamp: u64,
}

#[derive(Debug, Clone, Copy)]
struct Owners {
    first: PathId,
    hedge: Option<PathId>,
    /// Sequence number of the chunk's assignment. The newest chunk is hedged first, because its
    /// owner would send it last.
    stamp: u64,
    /// Time of the chunk's latest assignment or hedge.
    since: Instant,
}

impl Owners {
    fn has(&self, path: PathId) -> bool {
        self.first == path || self.hedge == Some(path)
    }

    fn may_be_hedged_by(&self, path: PathId) -> bool {
        self.hedge.is_none() && self.first != path
    }

    /// Returns the time after which the chunk's acknowledgement is late, for the load of the
    /// chunk's owner.
    fn late_at(&self, owner: &PathLoad) -> Instant {
        let expected = owner.finish_time(0).map_or(LATE_FIRST, |finish| {
            finish.saturating_mul(2).saturating_add(LATE_MARGIN)
        });
        self.since + expected.min(LATE_AT_MOST)
    }

    fn without(self, path: PathId) -> Option<Self> {
        match self.hedge {
            Some(hedge) if self.first == path => Some(Self {
                first: hedge,
                hedge: None,
                ..self
            }),
            Some(hedge) if hedge == path => Some(Self {
                hedge: None,
                ..self
            }),
            None if self.first == path => None,
            _ => Some(self),
        }
    }
}

impl Striper {
    /// Returns a scheduler with `chunks` in its queue.
    pub fn new(chunks: ChunkSet) -> Self {
        Self {
            queue: chunks,
            ..Self::default()
        }
    }

    /// Removes the chunks in `range` from the queue. Returns the number of removed chunks.
    pub(crate) fn withdraw(&mut self, range: ChunkRange) -> u64 {
        self.queue.remove(range)
    }

    pub(crate) fn push(&mut self, chunks: impl Into<ChunkRange>) {
        self.queue.insert(chunks);
    }

    /// Assigns the next contiguous chunks in the queue to `path`, at most `most`; `None` if the
    /// queue is empty.
    pub fn assign(&mut self, path: PathId, most: u64, now: Instant) -> Option<ChunkRange> {
        let range = self.queue.take_first(most)?;
        for index in 0..range.count {
            self.own(ChunkId(range.first.0 + index), path, now);
        }
        Some(range)
    }

    /// Assigns a chunk that is in flight on another path to `path` as well. Returns the chunk and
    /// its owner; `None` if no chunk is eligible.
    ///
    /// Selects the newest eligible chunk. A chunk is eligible if its owner is suspect or the chunk
    /// is late (see [`Striper::hedge_at`]). A chunk is also eligible if `path` would deliver it
    /// more than `gain` earlier.
    pub fn hedge(
        &mut self,
        path: PathId,
        chunk_bytes: u64,
        gain: Duration,
        load: impl Fn(PathId) -> PathLoad,
        now: Instant,
    ) -> Option<(ChunkId, PathId)> {
        let own_finish = load(path)
            .finish_time(chunk_bytes)
            .map(|finish| finish.saturating_add(gain));
        let promising = |owners: &Owners| {
            let owner = load(owners.first);
            let sooner = own_finish
                .zip(owner.finish_time(0))
                .is_some_and(|(own, owners_finish)| own < owners_finish);
            owner.suspect || sooner || now >= owners.late_at(&owner)
        };
        let candidates = self
            .in_flight
            .iter_mut()
            .filter(|(_, owners)| owners.may_be_hedged_by(path) && promising(owners));
        let (chunk, owners) = candidates.max_by_key(|(_, owners)| owners.stamp)?;
        (owners.hedge, owners.since) = (Some(path), now);
        Some((*chunk, owners.first))
    }

    /// Returns the earliest time at which a chunk of another path is late and `path` may hedge it;
    /// `None` without such a chunk.
    pub fn hedge_at(&self, path: PathId, load: impl Fn(PathId) -> PathLoad) -> Option<Instant> {
        let candidates = self
            .in_flight
            .values()
            .filter(|owners| owners.may_be_hedged_by(path));
        candidates
            .map(|owners| owners.late_at(&load(owners.first)))
            .min()
    }

    /// Removes acknowledged chunks. Returns those that were in flight, each with its owner and the
    /// path that hedged it.
    pub fn acknowledge(&mut self, range: ChunkRange) -> Vec<(ChunkId, [Option<PathId>; 2])> {
        if range.count == 0 {
            return Vec::new();
        }
        // A requeued chunk may still arrive over the abandoned connection.
        self.queue.remove(range);
        let last = ChunkId(range.first.0.saturating_add(range.count - 1));
        let known: Vec<ChunkId> = self
            .in_flight
            .range(range.first..=last)
            .map(|(chunk, _)| *chunk)
            .collect();
        let removed = known
            .into_iter()
            .filter_map(|chunk| self.in_flight.remove(&chunk).map(|owners| (chunk, owners)));
        removed
            .map(|(chunk, owners)| (chunk, [Some(owners.first), owners.hedge]))
            .collect()
    }

    /// Returns the chunks of `path` to the queue, except for chunks that are also in flight on
    /// another path.
    pub fn release(&mut self, path: PathId) {
        let carried: Vec<ChunkId> = self
            .in_flight
            .iter()
            .filter(|(_, owners)| owners.has(path))
            .map(|(chunk, _)| *chunk)
            .collect();
        for chunk in carried {
            self.release_chunk(chunk, path);
        }
    }

    /// Withdraws a chunk from `path`. Returns the chunk to the queue unless it is also in flight on
    /// another path. Returns false if the chunk was not in flight on `path`.
    pub fn release_chunk(&mut self, chunk: ChunkId, path: PathId) -> bool {
        if !self.is_carried_by(chunk, path) {
            return false;
        }
        let rest = self
            .in_flight
            .remove(&chunk)
            .and_then(|owners| owners.without(path));
        match rest {
            Some(owners) => drop(self.in_flight.insert(chunk, owners)),
            None => drop(self.queue.insert(chunk)),
        }
        true
    }

    /// Returns true if `chunk` is in flight on `path`.
    pub fn is_carried_by(&self, chunk: ChunkId, path: PathId) -> bool {
        self.in_flight
            .get(&chunk)
            .is_some_and(|owners| owners.has(path))
    }

    /// Returns the chunks in flight that were first assigned to `path`. Excludes the chunks that
    /// `path` hedged.
    pub(crate) fn first_owned_by(&self, path: PathId) -> Vec<ChunkId> {
        self.in_flight
            .iter()
            .filter(|(_, owners)| owners.first == path)
            .map(|(chunk, _)| *chunk)
            .collect()
    }

    /// Returns the first chunk in the queue, which is assigned next; `None` if the queue is empty.
    pub fn first_queued(&self) -> Option<ChunkId> {
        self.queue.first()
    }

    /// Returns the number of chunks in the queue.
    pub fn queued(&self) -> u64 {
        self.queue.len()
    }

    /// Returns true if no chunk is queued or in flight.
    pub fn is_done(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    fn own(&mut self, chunk: ChunkId, path: PathId, now: Instant) {
        self.stamp += 1;
        self.in_flight.insert(
            chunk,
            Owners {
                first: path,
                hedge: None,
                stamp: self.stamp,
                since: now,
            },
        );
    }
}

/// Minimum time that a hedge must save while the source still produces data: twice the
/// acknowledgement delay.
///
/// A source that is slower than the links often leaves a path idle, while acknowledgements of
/// delivered chunks are merely delayed.
pub(crate) const GAIN_IN_MIDDLE: Duration = Duration::from_millis(20);

/// Margin that is added to twice a chunk's expected delivery time, after which the chunk is late.
/// An acknowledgement may be delayed by 10 ms, and a busy machine adds another 10 ms (picked by
/// eye).
const LATE_MARGIN: Duration = Duration::from_millis(50);

/// Time after which a chunk on a path of unknown rate is late. A first assignment takes 8.4 ms at 1
/// Gbit/s, and its acknowledgement up to 10 ms more.
///
/// With 0 ms, each small file was sent over every link. With 50 ms, a slow link delayed each small
/// file by 50 ms.
const LATE_FIRST: Duration = Duration::from_millis(25);

/// Maximum time after which a chunk is late, also on a path with rate zero. Silence fails a path
/// long before.
const LATE_AT_MOST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);
    const CHUNK: u64 = 256 * 1024;

    #[allow(clippy::disallowed_methods)]
    fn origin() -> Instant {
        Instant::now()
    }

    fn range(first: u64, count: u64) -> ChunkRange {
        ChunkRange {
            first: ChunkId(first),
            count,
        }
    }

    fn striper(chunks: u64) -> Striper {
        let mut set = ChunkSet::default();
        set.insert(range(0, chunks));
        Striper::new(set)
    }

    fn load(in_flight: u64, mbit: u64) -> PathLoad {
        PathLoad {
            in_flight,
            rate: Some(BitRate(mbit * 1_000_000)),
            suspect: false,
        }
    }

    #[test]
    fn assignments_are_sized_by_rate() {
        assert_eq!(assignment_chunks(None, CHUNK), FIRST_ASSIGNMENT);
        assert_eq!(assignment_chunks(Some(BitRate(10_000_000)), CHUNK), 1); // 94 kB in 75 ms
        assert_eq!(assignment_chunks(Some(BitRate(1_000_000_000)), CHUNK), 32); // 9.4 MB, cut to 8 MiB
        assert_eq!(assignment_chunks(Some(BitRate(100_000_000)), CHUNK), 3); // 0.94 MB
    }

    #[test]
    fn each_chunk_is_assigned_once_and_in_order() {
        let (mut striper, now) = (striper(10), origin());
        assert_eq!(striper.assign(A, 4, now), Some(range(0, 4)));
        assert_eq!(striper.assign(B, 4, now), Some(range(4, 4)));
        assert_eq!(striper.assign(A, 4, now), Some(range(8, 2)));
        assert_eq!(striper.assign(A, 4, now), None);
        assert_eq!((striper.queued(), striper.in_flight.len()), (0, 10));
    }

    #[test]
    fn an_idle_fast_path_hedges_the_newest_chunk_of_a_slow_one() {
        let (mut striper, now) = (striper(3), origin());
        striper.assign(B, 3, now);
        let loads = |path| {
            if path == A {
                load(0, 1000)
            } else {
                load(3 * CHUNK, 10)
            }
        };
        assert_eq!(
            striper.hedge(A, CHUNK, Duration::ZERO, loads, now),
            Some((ChunkId(2), B))
        );
        assert_eq!(
            striper.hedge(A, CHUNK, Duration::ZERO, loads, now),
            Some((ChunkId(1), B))
        );
        assert_eq!(
            striper.acknowledge(range(2, 1)),
            [(ChunkId(2), [Some(B), Some(A)])]
        );
        assert!(!striper.is_carried_by(ChunkId(2), B));
    }

    #[test]
    fn a_slow_path_does_not_repeat_what_a_fast_one_delivers_sooner() {
        let (mut striper, now) = (striper(3), origin());
        striper.assign(A, 3, now);
        let loads = |path| {
            if path == A {
                load(3 * CHUNK, 1000)
            } else {
                load(0, 10)
            }
        };
        assert_eq!(striper.hedge(B, CHUNK, Duration::ZERO, loads, now), None);
        let late = now + Duration::from_secs(1);
        assert_eq!(
            striper.hedge(B, CHUNK, Duration::ZERO, loads, late),
            Some((ChunkId(2), A))
        );
    }

    #[test]
    fn a_suspect_paths_chunks_are_hedged_at_once() {
        let (mut striper, now) = (striper(1), origin());
        striper.assign(A, 1, now);
        let loads = |path| PathLoad {
            suspect: path == A,
            ..load(0, 1000)
        };
        assert_eq!(
            striper.hedge(B, CHUNK, Duration::ZERO, loads, now),
            Some((ChunkId(0), A))
        );
    }

    #[test]
    fn where_no_rate_is_known_a_chunk_is_hedged_when_it_is_late_and_not_before() {
        let (mut striper, now) = (striper(1), origin());
        striper.assign(A, 1, now);
        let loads = |_| PathLoad {
            in_flight: 0,
            rate: None,
            suspect: false,
        };
        assert_eq!(striper.hedge(B, CHUNK, Duration::ZERO, loads, now), None);
        let late = striper.hedge_at(B, loads).unwrap();
        assert_eq!(late, now + LATE_FIRST);
        assert_eq!(
            striper.hedge(B, CHUNK, Duration::ZERO, loads, late),
            Some((ChunkId(0), A))
        );
        assert_eq!(striper.hedge_at(B, loads), None);
    }

    #[test]
    fn a_chunk_has_at_most_two_owners() {
        let (mut striper, now) = (striper(1), origin());
        striper.assign(A, 1, now);
        let loads = |_| PathLoad {
            in_flight: 0,
            rate: None,
            suspect: true,
        };
        assert_eq!(
            striper.hedge(B, CHUNK, Duration::ZERO, loads, now),
            Some((ChunkId(0), A))
        );
        assert_eq!(
            striper.hedge(PathId(2), CHUNK, Duration::ZERO, loads, now),
            None
        );
    }

    #[test]
    fn a_lost_paths_chunks_return_to_the_queue_unless_hedged() {
        let (mut striper, now) = (striper(3), origin());
        striper.assign(A, 3, now);
        striper.hedge(
            B,
            CHUNK,
            Duration::ZERO,
            |_| PathLoad {
                in_flight: 0,
                rate: None,
                suspect: true,
            },
            now,
        );
        striper.release(A);
        assert_eq!((striper.queued(), striper.in_flight.len()), (2, 1));
        assert!(striper.is_carried_by(ChunkId(2), B));
        assert_eq!(striper.assign(B, 9, now), Some(range(0, 2)));
    }

    #[test]
    fn a_late_acknowledgement_of_a_released_chunk_counts() {
        let (mut striper, now) = (striper(1), origin());
        striper.assign(A, 1, now);
        striper.release(A);
        striper.acknowledge(range(0, 1));
        assert!(striper.is_done());
    }

    #[test]
    fn an_absurd_acknowledgement_is_harmless() {
        let mut striper = striper(3);
        assert!(striper.acknowledge(range(u64::MAX, u64::MAX)).is_empty());
        assert!(striper.acknowledge(range(0, 0)).is_empty());
        assert_eq!(striper.queued(), 3);
    }
}
