//! What a daemon has done and holds, in numbers.
//!
//! Sessions report once a second and when something ends, so that no chunk costs more for being counted.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use nicstripe_proto::PathLoss;

use crate::event::LinkState;

/// What a daemon has done since it started, and what it holds now.
///
/// Nothing in it is worded by a peer. Counters only grow; bytes of sessions that run are at most a second old.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Sessions that there are, those without a connection included.
    pub sessions: u64,
    /// Sessions that have begun.
    pub sessions_begun: u64,
    /// Paths of all sessions by their state.
    pub paths: PathCounts,
    /// Times that a connected path was lost while its session went on, by reason: `carrier`, `silent`, `reset`, `protocol`,
    /// `wrong_interface`, `unreachable`, `other`.
    pub paths_lost: BTreeMap<&'static str, u64>,
    /// Transfers that run; a tree counts once, and each of its large files once more.
    pub transfers: u64,
    /// Transfers that have ended, by direction and result: `done`, or the word of the [`FailCode`](crate::FailCode).
    pub transfers_ended: BTreeMap<(Direction, &'static str), u64>,
    /// Payload by our interface.
    pub interfaces: BTreeMap<String, InterfaceBytes>,
    /// Bytes of chunks that were sent, or came, once more.
    pub resent_bytes: u64,
    /// Files whose digests at the two ends differed when all had arrived.
    pub digest_mismatches: u64,
    /// Chunks that were not what their sender had hashed.
    pub corrupt_chunks: u64,
    /// Connections that have not proved their keys.
    pub greetings: u64,
    /// Connections that were turned away, by reason.
    pub greetings_refused: BTreeMap<&'static str, u64>,
    /// How long it took to make received data durable, from the wish until it was done; of files, not of the small ones in trees.
    pub syncs: Histogram,
    /// Memory of the chunks that are in use.
    pub buffer_bytes: u64,
}

/// How many paths are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathCounts {
    /// Carry data.
    pub up: u64,
    /// Were not heard of for too long.
    pub suspect: u64,
    /// Have no connection.
    pub down: u64,
}

impl PathCounts {
    /// Counts a path; one that is not used any more does not count.
    pub(crate) fn count(&mut self, state: &LinkState) {
        match state {
            LinkState::Up => self.up += 1,
            LinkState::Suspect => self.suspect += 1,
            LinkState::Connecting | LinkState::Down(_) => self.down += 1,
            LinkState::LeftOut(_) => {}
        }
    }

    fn add(&mut self, other: Self) {
        self.up += other.up;
        self.suspect += other.suspect;
        self.down += other.down;
    }
}

/// Payload that went over an interface, compressed as it was on the wire, without headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceBytes {
    /// From peers.
    pub received: u64,
    /// To peers.
    pub sent: u64,
}

/// Which way a transfer goes, as the daemon sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the daemon.
    Receive,
    /// From the daemon.
    Send,
}

impl Direction {
    /// The word for it in logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Send => "send",
        }
    }
}

/// How often something took how long.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// How often it took at most as long as the bound of the same place in [`Histogram::BOUNDS`], and longer than the bound before; what
    /// took longer than all comes last.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// Time of all together.
    pub sum: Duration,
}

impl Histogram {
    /// Upper bounds in seconds: a fast disk syncs in a millisecond, a stalled one in half a minute.
    pub const BOUNDS: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

    /// How often it was measured.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn observe(&mut self, took: Duration) {
        let place = Self::BOUNDS.iter().position(|bound| took.as_secs_f64() <= *bound).unwrap_or(Self::BOUNDS.len());
        self.counts[place] += 1;
        self.sum += took;
    }
}

/// The numbers of one daemon. What ends, ends here; what runs is said by each session.
#[derive(Debug, Default)]
pub(crate) struct Meters(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    totals: Metrics,
    live: BTreeMap<MeterId, Live>,
    next: MeterId,
    jobs: JobCounts,
}

/// How many transfers have begun and how many have ended, to the moment; a tree counts once, its large files do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

impl JobCounts {
    /// Returns how many run.
    pub(crate) fn running(self) -> u64 {
        self.begun.saturating_sub(self.ended)
    }

    /// Returns how many have run at any time since there were those of `before`.
    pub(crate) fn since(self, before: Self) -> u64 {
        self.begun.saturating_sub(before.ended)
    }
}

/// Number of a session that reports.
pub(crate) type MeterId = u64;

/// What one session has now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Live {
    pub(crate) paths: PathCounts,
    pub(crate) transfers: u64,
}

impl Meters {
    /// A session begins.
    pub(crate) fn session_begun(&self) -> MeterId {
        let mut state = self.state();
        state.totals.sessions_begun += 1;
        let id = state.next;
        state.next += 1;
        state.live.insert(id, Live::default());
        id
    }

    /// A session has ended.
    pub(crate) fn session_ended(&self, id: MeterId) {
        self.state().live.remove(&id);
    }

    /// A session says what it has, and what it has moved since it said so last.
    pub(crate) fn report(&self, id: MeterId, live: Live, moved: &[(String, InterfaceBytes)], resent_bytes: u64) {
        let mut state = self.state();
        state.live.insert(id, live);
        state.totals.resent_bytes += resent_bytes;
        for (interface, bytes) in moved {
            let total = state.totals.interfaces.entry(interface.clone()).or_default();
            total.received += bytes.received;
            total.sent += bytes.sent;
        }
    }

    /// A transfer begins that counts by itself.
    pub(crate) fn job_begun(&self) {
        self.state().jobs.begun += 1;
    }

    /// It has ended, in whatever way.
    pub(crate) fn job_ended(&self) {
        self.state().jobs.ended += 1;
    }

    pub(crate) fn jobs(&self) -> JobCounts {
        self.state().jobs
    }

    pub(crate) fn transfer_ended(&self, direction: Direction, result: &'static str) {
        *self.state().totals.transfers_ended.entry((direction, result)).or_default() += 1;
    }

    pub(crate) fn path_lost(&self, loss: PathLoss) {
        *self.state().totals.paths_lost.entry(loss_word(loss)).or_default() += 1;
    }

    pub(crate) fn digest_mismatch(&self) {
        self.state().totals.digest_mismatches += 1;
    }

    pub(crate) fn corrupt_chunk(&self) {
        self.state().totals.corrupt_chunks += 1;
    }

    pub(crate) fn synced(&self, took: Duration) {
        self.state().totals.syncs.observe(took);
    }

    /// A connection was turned away.
    pub(crate) fn greeting_refused(&self, reason: &'static str) {
        *self.state().totals.greetings_refused.entry(reason).or_default() += 1;
    }

    /// Returns the numbers; those that only the daemon knows are left at zero.
    pub(crate) fn read(&self) -> Metrics {
        let state = self.state();
        let mut metrics = state.totals.clone();
        for live in state.live.values() {
            metrics.paths.add(live.paths);
            metrics.transfers += live.transfers;
        }
        metrics
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn loss_word(loss: PathLoss) -> &'static str {
    match loss {
        PathLoss::Unreachable => "unreachable",
        PathLoss::CarrierLost => "carrier",
        PathLoss::Silent => "silent",
        PathLoss::Reset => "reset",
        PathLoss::Damaged => "damaged",
        PathLoss::Protocol => "protocol",
        PathLoss::WrongInterface => "wrong_interface",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_in_a_session_is_gone_with_it_and_what_it_did_stays() {
        let meters = Meters::default();
        let (one, other) = (meters.session_begun(), meters.session_begun());
        let paths = PathCounts { up: 2, ..PathCounts::default() };
        let moved = [("eth1".to_owned(), InterfaceBytes { received: 10, sent: 1 })];
        meters.report(one, Live { paths, transfers: 1 }, &moved, 3);
        meters.report(other, Live { paths, transfers: 1 }, &moved, 0);
        assert_eq!((meters.read().paths.up, meters.read().transfers), (4, 2));
        meters.session_ended(one);
        let read = meters.read();
        assert_eq!((read.paths.up, read.transfers, read.sessions_begun, read.resent_bytes), (2, 1, 2, 3));
        assert_eq!(read.interfaces["eth1"], InterfaceBytes { received: 20, sent: 2 });
    }

    #[test]
    fn what_ran_since_a_moment_is_what_ran_then_and_what_has_begun() {
        let meters = Meters::default();
        (0..3).for_each(|_| meters.job_begun());
        meters.job_ended();
        let before = meters.jobs();
        assert_eq!((before.running(), before.since(before)), (2, 2));
        meters.job_ended();
        meters.job_begun();
        meters.job_ended();
        assert_eq!((meters.jobs().running(), meters.jobs().since(before)), (1, 3));
    }

    #[test]
    fn times_fall_into_the_bucket_that_holds_them() {
        let mut histogram = Histogram::default();
        for millis in [0, 1, 2, 100, 61_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        assert_eq!(histogram.counts, [2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((histogram.count(), histogram.sum), (5, Duration::from_millis(61_103)));
    }
}
