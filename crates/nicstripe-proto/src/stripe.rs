//! Striping: which path carries which chunk.
//!
//! A shared queue from which paths pull. A path that can send gets an **assignment**: a run of chunks that keeps it busy for
//! [`ASSIGNMENT_TIME`]. When the queue is empty, an idle path sends the newest chunk that is unacknowledged elsewhere once more (a
//! **hedge**); the first acknowledgement wins. Measured with 1 Gbit/s + 10 Mbit/s this takes the tail from 1.55 × to 1.01 × ideal, and
//! the same rule is the fail-over of a path that died without a word.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    extent::{ChunkId, ChunkRange, ChunkSet},
    path::PathId,
    units::BitRate,
};

/// How long an assignment keeps its path busy.
///
/// From 50 to 100 ms all sizes measured alike (two gigabit links, `benches/stripe.rs` has the cost of a decision); longer ones leave more to
/// take back at the end.
pub const ASSIGNMENT_TIME: Duration = Duration::from_millis(75);

/// Chunks of an assignment while the path's rate is unknown: 1 MiB of 256 KiB chunks, 9 ms at 1 Gbit/s.
pub const FIRST_ASSIGNMENT: u64 = 4;

/// Most chunks in one assignment, whatever the rate: what a path may have in flight (8 MiB of 256 KiB chunks).
pub const LARGEST_ASSIGNMENT: u64 = 32;

/// Returns how many chunks the next assignment of a path of `rate` has.
pub fn assignment_chunks(rate: Option<BitRate>, chunk_bytes: u64) -> u64 {
    let Some(rate) = rate else { return FIRST_ASSIGNMENT };
    (rate.bytes_in(ASSIGNMENT_TIME) / chunk_bytes.max(1)).clamp(1, LARGEST_ASSIGNMENT)
}

/// How a path is doing, for the choice of a hedge.
#[derive(Debug, Clone, Copy)]
pub struct PathLoad {
    /// Bytes assigned to it and not acknowledged.
    pub in_flight: u64,
    /// Its measured rate, once known.
    pub rate: Option<BitRate>,
    /// Whether it is suspect.
    pub suspect: bool,
}

impl PathLoad {
    /// When the last byte of what it carries, and `more` bytes, would be delivered.
    fn finish_time(&self, more: u64) -> Option<Duration> {
        self.rate.map(|rate| rate.time_for(self.in_flight.saturating_add(more)))
    }
}

/// The chunks of one transfer that are still to be delivered.
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
    /// Order of assignment: the newest chunk is hedged first, as its owner would reach it last.
    stamp: u64,
    /// When its last owner got it.
    since: Instant,
}

impl Owners {
    fn has(&self, path: PathId) -> bool {
        self.first == path || self.hedge == Some(path)
    }

    fn may_be_hedged_by(&self, path: PathId) -> bool {
        self.hedge.is_none() && self.first != path
    }

    /// When the chunk is later than what its owner carries allows.
    fn late_at(&self, owner: &PathLoad) -> Instant {
        let expected = owner.finish_time(0).map_or(LATE_FIRST, |finish| finish.saturating_mul(2).saturating_add(LATE_MARGIN));
        self.since + expected.min(LATE_AT_MOST)
    }

    fn without(self, path: PathId) -> Option<Self> {
        match self.hedge {
            Some(hedge) if self.first == path => Some(Self { first: hedge, hedge: None, ..self }),
            Some(hedge) if hedge == path => Some(Self { hedge: None, ..self }),
            None if self.first == path => None,
            _ => Some(self),
        }
    }
}

impl Striper {
    /// Returns a striper with `chunks` in its queue.
    pub fn new(chunks: ChunkSet) -> Self {
        Self { queue: chunks, ..Self::default() }
    }

    /// Takes chunks out of the queue; returns how many of them were in it.
    pub fn withdraw(&mut self, range: ChunkRange) -> u64 {
        self.queue.remove(range)
    }

    /// Adds chunks to the queue that were never in it.
    pub fn push(&mut self, chunks: impl Into<ChunkRange>) {
        self.queue.insert(chunks);
    }

    /// Gives `path` the next run of at most `most` chunks from the queue.
    pub fn assign(&mut self, path: PathId, most: u64, now: Instant) -> Option<ChunkRange> {
        let range = self.queue.take_first(most)?;
        for index in 0..range.count {
            self.own(ChunkId(range.first.0 + index), path, now);
        }
        Some(range)
    }

    /// Gives `path` one chunk that another path carries, and names that path: the newest for which sending it again promises something.
    ///
    /// It does when the owner is suspect, when the chunk is late ([`Striper::hedge_at`] tells when one will be), or when this path would
    /// deliver it sooner, by more than `gain`.
    pub fn hedge(
        &mut self,
        path: PathId,
        chunk_bytes: u64,
        gain: Duration,
        load: impl Fn(PathId) -> PathLoad,
        now: Instant,
    ) -> Option<(ChunkId, PathId)> {
        let own_finish = load(path).finish_time(chunk_bytes).map(|finish| finish.saturating_add(gain));
        let promising = |owners: &Owners| {
            let owner = load(owners.first);
            let sooner = own_finish.zip(owner.finish_time(0)).is_some_and(|(own, owners_finish)| own < owners_finish);
            owner.suspect || sooner || now >= owners.late_at(&owner)
        };
        let candidates = self.in_flight.iter_mut().filter(|(_, owners)| owners.may_be_hedged_by(path) && promising(owners));
        let (chunk, owners) = candidates.max_by_key(|(_, owners)| owners.stamp)?;
        (owners.hedge, owners.since) = (Some(path), now);
        Some((*chunk, owners.first))
    }

    /// When the first of the chunks that other paths carry will be late, so that `path` may hedge it.
    pub fn hedge_at(&self, path: PathId, load: impl Fn(PathId) -> PathLoad) -> Option<Instant> {
        let candidates = self.in_flight.values().filter(|owners| owners.may_be_hedged_by(path));
        candidates.map(|owners| owners.late_at(&load(owners.first))).min()
    }

    /// Takes chunks off the list; returns those that were on it, each with the owners it had.
    pub fn acknowledge(&mut self, range: ChunkRange) -> Vec<(ChunkId, [Option<PathId>; 2])> {
        // A chunk that was put back into the queue may still arrive over the connection that was given up.
        if range.count == 0 {
            return Vec::new();
        }
        self.queue.remove(range);
        let last = ChunkId(range.first.0.saturating_add(range.count - 1));
        let known: Vec<ChunkId> = self.in_flight.range(range.first..=last).map(|(chunk, _)| *chunk).collect();
        let removed = known.into_iter().filter_map(|chunk| self.in_flight.remove(&chunk).map(|owners| (chunk, owners)));
        removed.map(|(chunk, owners)| (chunk, [Some(owners.first), owners.hedge])).collect()
    }

    /// Puts back what only `path` carries.
    pub fn release(&mut self, path: PathId) {
        let carried: Vec<ChunkId> = self.in_flight.iter().filter(|(_, owners)| owners.has(path)).map(|(chunk, _)| *chunk).collect();
        for chunk in carried {
            self.release_chunk(chunk, path);
        }
    }

    /// Puts back one chunk that `path` does not carry after all; says whether it was thought to.
    pub fn release_chunk(&mut self, chunk: ChunkId, path: PathId) -> bool {
        if !self.is_carried_by(chunk, path) {
            return false;
        }
        let rest = self.in_flight.remove(&chunk).and_then(|owners| owners.without(path));
        match rest {
            Some(owners) => drop(self.in_flight.insert(chunk, owners)),
            None => drop(self.queue.insert(chunk)),
        }
        true
    }

    /// Whether `path` carries `chunk` and it is not acknowledged.
    pub fn is_carried_by(&self, chunk: ChunkId, path: PathId) -> bool {
        self.in_flight.get(&chunk).is_some_and(|owners| owners.has(path))
    }

    /// The chunks that were assigned to `path` and are not acknowledged, hedges left out.
    pub fn first_owned_by(&self, path: PathId) -> Vec<ChunkId> {
        self.in_flight.iter().filter(|(_, owners)| owners.first == path).map(|(chunk, _)| *chunk).collect()
    }

    /// The chunk that is assigned next.
    pub fn first_queued(&self) -> Option<ChunkId> {
        self.queue.first()
    }

    /// Chunks in the queue.
    pub fn queued(&self) -> u64 {
        self.queue.len()
    }

    /// Chunks assigned and not acknowledged.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.len() as u64
    }

    /// Whether every chunk was acknowledged.
    pub fn is_done(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    fn own(&mut self, chunk: ChunkId, path: PathId, now: Instant) {
        self.stamp += 1;
        self.in_flight.insert(chunk, Owners { first: path, hedge: None, stamp: self.stamp, since: now });
    }
}

/// What has to be gained by sending a chunk again while its source goes on: twice the longest that an acknowledgement waits for company. A
/// source that is slower than the cables leaves each path idle time and again, and with something that only seems to be under way.
pub const GAIN_IN_MIDDLE: Duration = Duration::from_millis(20);

/// Grace before a chunk counts as late: an acknowledgement may wait 10 ms for company, and a busy machine adds as much (picked by eye).
const LATE_MARGIN: Duration = Duration::from_millis(50);

/// When a chunk counts as late on a path whose rate is unknown: a first assignment takes 8.4 ms at 1 Gbit/s, and its acknowledgement waits
/// up to 10 ms.
///
/// At once, each small file was sent over every link; at 50 ms, a slow link in the set cost each as much.
const LATE_FIRST: Duration = Duration::from_millis(25);

/// When a chunk counts as late at any rate, also one of nothing at all: silence ends a path before.
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
        ChunkRange { first: ChunkId(first), count }
    }

    fn striper(chunks: u64) -> Striper {
        let mut set = ChunkSet::default();
        set.insert(range(0, chunks));
        Striper::new(set)
    }

    fn load(in_flight: u64, mbit: u64) -> PathLoad {
        PathLoad { in_flight, rate: Some(BitRate(mbit * 1_000_000)), suspect: false }
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
        assert_eq!((striper.queued(), striper.in_flight()), (0, 10));
    }

    #[test]
    fn an_idle_fast_path_hedges_the_newest_chunk_of_a_slow_one() {
        let (mut striper, now) = (striper(3), origin());
        striper.assign(B, 3, now);
        let loads = |path| if path == A { load(0, 1000) } else { load(3 * CHUNK, 10) };
        assert_eq!(striper.hedge(A, CHUNK, Duration::ZERO, loads, now), Some((ChunkId(2), B)));
        assert_eq!(striper.hedge(A, CHUNK, Duration::ZERO, loads, now), Some((ChunkId(1), B)));
        assert_eq!(striper.acknowledge(range(2, 1)), [(ChunkId(2), [Some(B), Some(A)])]);
        assert!(!striper.is_carried_by(ChunkId(2), B));
    }

    #[test]
    fn a_slow_path_does_not_repeat_what_a_fast_one_delivers_sooner() {
        let (mut striper, now) = (striper(3), origin());
        striper.assign(A, 3, now);
        let loads = |path| if path == A { load(3 * CHUNK, 1000) } else { load(0, 10) };
        assert_eq!(striper.hedge(B, CHUNK, Duration::ZERO, loads, now), None);
        let late = now + Duration::from_secs(1);
        assert_eq!(striper.hedge(B, CHUNK, Duration::ZERO, loads, late), Some((ChunkId(2), A)));
    }

    #[test]
    fn a_suspect_paths_chunks_are_hedged_at_once() {
        let (mut striper, now) = (striper(1), origin());
        striper.assign(A, 1, now);
        let loads = |path| PathLoad { suspect: path == A, ..load(0, 1000) };
        assert_eq!(striper.hedge(B, CHUNK, Duration::ZERO, loads, now), Some((ChunkId(0), A)));
    }

    #[test]
    fn where_no_rate_is_known_a_chunk_is_hedged_when_it_is_late_and_not_before() {
        let (mut striper, now) = (striper(1), origin());
        striper.assign(A, 1, now);
        let loads = |_| PathLoad { in_flight: 0, rate: None, suspect: false };
        assert_eq!(striper.hedge(B, CHUNK, Duration::ZERO, loads, now), None);
        let late = striper.hedge_at(B, loads).unwrap();
        assert_eq!(late, now + LATE_FIRST);
        assert_eq!(striper.hedge(B, CHUNK, Duration::ZERO, loads, late), Some((ChunkId(0), A)));
        assert_eq!(striper.hedge_at(B, loads), None);
    }

    #[test]
    fn a_chunk_has_at_most_two_owners() {
        let (mut striper, now) = (striper(1), origin());
        striper.assign(A, 1, now);
        let loads = |_| PathLoad { in_flight: 0, rate: None, suspect: true };
        assert_eq!(striper.hedge(B, CHUNK, Duration::ZERO, loads, now), Some((ChunkId(0), A)));
        assert_eq!(striper.hedge(PathId(2), CHUNK, Duration::ZERO, loads, now), None);
    }

    #[test]
    fn a_lost_paths_chunks_return_to_the_queue_unless_hedged() {
        let (mut striper, now) = (striper(3), origin());
        striper.assign(A, 3, now);
        striper.hedge(B, CHUNK, Duration::ZERO, |_| PathLoad { in_flight: 0, rate: None, suspect: true }, now);
        striper.release(A);
        assert_eq!((striper.queued(), striper.in_flight()), (2, 1));
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
