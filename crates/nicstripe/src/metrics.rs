//! Metrics of a daemon.
//!
//! Sessions report once per second and when something ends, so counting costs nothing per chunk.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use nicstripe_proto::PathLoss;

use crate::event::LinkState;

/// Totals of a daemon since its start, and current values.
///
/// Contains no text of a peer. Counters only grow; bytes of running sessions are at most one second
/// old.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Existing sessions, including those without a connection.
    pub sessions: u64,
    /// Sessions started.
    pub sessions_begun: u64,
    /// Paths of all sessions, by state.
    pub paths: PathCounts,
    /// Losses of connected paths that their session survived, by reason: `carrier`, `silent`,
    /// `reset`, `damaged`, `protocol`, `wrong_interface`, `unreachable`, `other`.
    pub paths_lost: BTreeMap<&'static str, u64>,
    /// Running transfers. A tree counts as one, and each of its standalone files as another.
    pub transfers: u64,
    /// Ended transfers by direction and result: `done`, or the word of the
    /// [`FailCode`](crate::FailCode).
    pub transfers_ended: BTreeMap<(Direction, &'static str), u64>,
    /// Payload by local interface.
    pub interfaces: BTreeMap<String, InterfaceBytes>,
    /// Bytes of chunks retransmitted or received twice.
    pub resent_bytes: u64,
    /// Files whose digests differed between sender and receiver.
    pub digest_mismatches: u64,
    /// Received chunks that did not match the sender's hash.
    pub corrupt_chunks: u64,
    /// Unauthenticated connections.
    pub greetings: u64,
    /// Rejected connections, by reason.
    pub greetings_refused: BTreeMap<&'static str, u64>,
    /// Durations of syncs of received data, from request to completion. Excludes batched small
    /// files of trees.
    pub syncs: Histogram,
    /// Memory of chunk buffers in use, in bytes.
    pub buffer_bytes: u64,
}

/// Paths by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathCounts {
    /// Connected.
    pub up: u64,
    /// Silent for too long.
    pub suspect: u64,
    /// Without a connection.
    pub down: u64,
}

impl PathCounts {
    /// Counts a path, unless it is excluded.
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

/// Payload bytes of an interface, as on the wire (compressed), without headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceBytes {
    /// Received from peers.
    pub received: u64,
    /// Sent to peers.
    pub sent: u64,
}

/// Direction of a transfer, seen from the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the daemon.
    Receive,
    /// From the daemon.
    Send,
}

impl Direction {
    /// Returns the word for logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Send => "send",
        }
    }
}

/// Histogram of durations.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// Count per bucket: durations up to the bound at the same index of [`Histogram::BOUNDS`] and
    /// above the previous bound. The last bucket has the longer ones.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// Sum of all durations.
    pub sum: Duration,
}

impl Histogram {
    /// Upper bounds in seconds. A fast disk syncs in a millisecond, a stalled one in half a minute.
    pub const BOUNDS: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

    /// Returns the number of measurements.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn observe(&mut self, took: Duration) {
        let place = Self::BOUNDS
            .iter()
            .position(|bound| took.as_secs_f64() <= *bound)
            .unwrap_or(Self::BOUNDS.len());
        self.counts[place] += 1;
        self.sum += took;
    }
}

/// Metrics of one daemon: totals, and the current values that each session reports.
#[derive(Debug, Default)]
pub(crate) struct Meters(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    totals: Metrics,
    live: BTreeMap<MeterId, Live>,
    next: MeterId,
    jobs: JobCounts,
}

/// Transfers begun and ended, without delay. A tree counts once, without its standalone files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

impl JobCounts {
    pub(crate) fn running(self) -> u64 {
        self.begun.saturating_sub(self.ended)
    }

    /// Returns the number of transfers that have run at any time since `before`.
    pub(crate) fn since(self, before: Self) -> u64 {
        self.begun.saturating_sub(before.ended)
    }
}

/// Number of a reporting session.
pub(crate) type MeterId = u64;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Live {
    pub(crate) paths: PathCounts,
    pub(crate) transfers: u64,
}

impl Meters {
    pub(crate) fn session_begun(&self) -> MeterId {
        let mut state = self.state();
        state.totals.sessions_begun += 1;
        let id = state.next;
        state.next += 1;
        state.live.insert(id, Live::default());
        id
    }

    pub(crate) fn session_ended(&self, id: MeterId) {
        self.state().live.remove(&id);
    }

    /// Stores a session's current values and adds what it has moved since its last report.
    pub(crate) fn report(
        &self,
        id: MeterId,
        live: Live,
        moved: &[(String, InterfaceBytes)],
        resent_bytes: u64,
    ) {
        let mut state = self.state();
        state.live.insert(id, live);
        state.totals.resent_bytes += resent_bytes;
        for (interface, bytes) in moved {
            let total = state
                .totals
                .interfaces
                .entry(interface.clone())
                .or_default();
            total.received += bytes.received;
            total.sent += bytes.sent;
        }
    }

    /// Counts the start of a transfer, except standalone files of a tree.
    pub(crate) fn job_begun(&self) {
        self.state().jobs.begun += 1;
    }

    /// Counts the end of a transfer, whatever its result.
    pub(crate) fn job_ended(&self) {
        self.state().jobs.ended += 1;
    }

    pub(crate) fn jobs(&self) -> JobCounts {
        self.state().jobs
    }

    pub(crate) fn transfer_ended(&self, direction: Direction, result: &'static str) {
        *self
            .state()
            .totals
            .transfers_ended
            .entry((direction, result))
            .or_default() += 1;
    }

    pub(crate) fn path_lost(&self, loss: PathLoss) {
        *self
            .state()
            .totals
            .paths_lost
            .entry(loss_word(loss))
            .or_default() += 1;
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

    pub(crate) fn greeting_refused(&self, reason: &'static str) {
        *self
            .state()
            .totals
            .greetings_refused
            .entry(reason)
            .or_default() += 1;
    }

    /// Returns the metrics. Values that only the daemon knows are zero.
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
        let paths = PathCounts {
            up: 2,
            ..PathCounts::default()
        };
        let moved = [(
            "eth1".to_owned(),
            InterfaceBytes {
                received: 10,
                sent: 1,
            },
        )];
        meters.report(
            one,
            Live {
                paths,
                transfers: 1,
            },
            &moved,
            3,
        );
        meters.report(
            other,
            Live {
                paths,
                transfers: 1,
            },
            &moved,
            0,
        );
        assert_eq!((meters.read().paths.up, meters.read().transfers), (4, 2));
        meters.session_ended(one);
        let read = meters.read();
        assert_eq!(
            (
                read.paths.up,
                read.transfers,
                read.sessions_begun,
                read.resent_bytes
            ),
            (2, 1, 2, 3)
        );
        assert_eq!(
            read.interfaces["eth1"],
            InterfaceBytes {
                received: 20,
                sent: 2
            }
        );
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
        assert_eq!(
            (meters.jobs().running(), meters.jobs().since(before)),
            (1, 3)
        );
    }

    #[test]
    fn times_fall_into_the_bucket_that_holds_them() {
        let mut histogram = Histogram::default();
        for millis in [0, 1, 2, 100, 61_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        assert_eq!(histogram.counts, [2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(
            (histogram.count(), histogram.sum),
            (5, Duration::from_millis(61_103))
        );
    }
}
