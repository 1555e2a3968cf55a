//! Metrics of a daemon.
//!
//! Sessions report once per second and when something ends, so counting costs nothing per chunk.

use std::{collections::BTreeMap, time::Duration};

use nicstripe_proto::{BitRate, PathLoss};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::event::{LinkName, LinkState};

/// Metrics of a daemon: totals since its start, and current values.
///
/// Contains no text from a peer. Totals never decrease; bytes of running sessions are at most one
/// second old.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Number of existing sessions, including those without a connection.
    pub sessions: u64,
    /// Total number of sessions started.
    pub sessions_begun: u64,
    /// Current number of paths of all sessions, by state.
    pub paths: PathCounts,
    /// Total number of lost path connections that the session survived, by reason: `carrier`,
    /// `silent`, `reset`, `damaged`, `protocol`, `wrong_interface`, `unreachable`, `other`.
    pub paths_lost: BTreeMap<&'static str, u64>,
    /// Number of running transfers. A tree counts as one, and each of its standalone files as
    /// another.
    pub transfers: u64,
    /// Total number of ended transfers, by direction and result: `done`, or the name of the
    /// [`FailCode`](crate::FailCode).
    pub transfers_ended: BTreeMap<(TransferDirection, &'static str), u64>,
    /// Total payload bytes, by name of the local interface.
    pub interfaces: BTreeMap<String, InterfaceBytes>,
    /// Total bytes of chunks that were retransmitted or received twice.
    pub resent_bytes: u64,
    /// Total number of files whose digests differed between sender and receiver.
    pub digest_mismatches: u64,
    /// Total number of received chunks that did not match the sender's hash.
    pub corrupt_chunks: u64,
    /// Number of connections that are not authenticated yet.
    pub greetings: u64,
    /// Total number of connections rejected before a session accepted them, by reason.
    pub greetings_refused: BTreeMap<&'static str, u64>,
    /// Durations of fsyncs of received data, from request to completion. Excludes the batched
    /// fsyncs of a tree's small files.
    pub syncs: Histogram,
    /// Memory used by chunk buffers, in bytes.
    pub buffer_bytes: u64,
}

/// Number of paths of all sessions, by connection state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathCounts {
    /// Number of connected paths that are not suspect.
    pub up: u64,
    /// Number of connected paths from which nothing has arrived for too long.
    pub suspect: u64,
    /// Number of paths without a connection.
    pub down: u64,
}

impl PathCounts {
    /// Adds one path in the given state; excluded paths do not count.
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

/// Payload bytes carried by an interface, after compression and without headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceBytes {
    /// Bytes received from peers.
    pub received: u64,
    /// Bytes sent to peers.
    pub sent: u64,
}

/// Direction of a transfer, seen from the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TransferDirection {
    /// Upload: a client sends to the daemon.
    Receive,
    /// Download: the daemon sends to a client.
    Send,
}

impl TransferDirection {
    /// Returns the word for the direction in logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Send => "send",
        }
    }
}

/// Histogram of durations, such as those of fsyncs, with fixed buckets.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// Number of durations per bucket. Bucket `i` holds those above bound `i - 1` and at most bound
    /// `i` of [`Histogram::BOUNDS`]; the last bucket holds those above all bounds.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// Sum of all recorded durations.
    pub sum: Duration,
}

impl Histogram {
    /// Upper bounds of the buckets, in seconds. A fast disk syncs in a millisecond, a stalled one
    /// in half a minute.
    pub const BOUNDS: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn observe(&mut self, took: Duration) {
        let bucket = Self::BOUNDS
            .iter()
            .position(|bound| took.as_secs_f64() <= *bound)
            .unwrap_or(Self::BOUNDS.len());
        self.counts[bucket] += 1;
        self.sum += took;
    }
}

/// Metrics of one daemon, shared by its sessions.
#[derive(Debug, Default)]
pub(crate) struct Meters(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    totals: Metrics,
    live: BTreeMap<MeterId, Live>,
    next: MeterId,
    jobs: JobCounts,
}

/// Number of transfers started and ended since the daemon's start, updated immediately. A tree
/// counts once, without its standalone files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    pub(crate) started: u64,
    pub(crate) ended: u64,
}

impl JobCounts {
    pub(crate) fn running(self) -> u64 {
        self.started.saturating_sub(self.ended)
    }

    /// Returns the number of transfers that were running at `before` or have started since.
    pub(crate) fn since(self, before: Self) -> u64 {
        self.started.saturating_sub(before.ended)
    }
}

pub(crate) type MeterId = u64;

/// Session of a daemon, as of the last second.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningSession {
    /// Name of the peer in the list of peers, or the fingerprint of its key.
    pub peer: String,
    /// Time since the session began.
    pub since: Duration,
    /// Links of the session.
    pub links: Vec<RunningLink>,
    /// Running transfers. A tree is one, without its standalone files.
    pub transfers: Vec<RunningTransfer>,
}

/// Link of a [`RunningSession`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningLink {
    /// Interfaces and addresses of the link.
    pub link: LinkName,
    /// State of the link.
    pub state: LinkState,
    /// Payload received in the last second or so.
    pub received: BitRate,
    /// Payload sent in the last second or so.
    pub sent: BitRate,
}

/// Transfer of a [`RunningSession`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningTransfer {
    /// Name of the file or tree, escaped.
    pub name: String,
    /// Direction, as seen by the daemon.
    pub direction: TransferDirection,
    /// Time since its start.
    pub since: Duration,
    /// Bytes that have arrived, or were there before.
    pub bytes: u64,
    /// Size in bytes; `None` if unknown.
    pub size: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    pub(crate) paths: PathCounts,
    pub(crate) transfers: u64,
    /// `None` until the first report.
    pub(crate) session: Option<RunningSession>,
}

impl Meters {
    pub(crate) fn session_begun(&self) -> MeterId {
        let mut state = self.0.lock();
        state.totals.sessions_begun += 1;
        let id = state.next;
        state.next += 1;
        state.live.insert(id, Live::default());
        id
    }

    pub(crate) fn session_ended(&self, id: MeterId) {
        self.0.lock().live.remove(&id);
    }

    /// Replaces a session's current values, and adds the bytes since its last report to the totals.
    pub(crate) fn report(
        &self,
        id: MeterId,
        live: Live,
        moved: &[(String, InterfaceBytes)],
        resent_bytes: u64,
    ) {
        let mut state = self.0.lock();
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
        self.0.lock().jobs.started += 1;
    }

    pub(crate) fn job_ended(&self) {
        self.0.lock().jobs.ended += 1;
    }

    pub(crate) fn jobs(&self) -> JobCounts {
        self.0.lock().jobs
    }

    /// Returns the totals, locked, to count into them.
    pub(crate) fn totals(&self) -> MappedMutexGuard<'_, Metrics> {
        MutexGuard::map(self.0.lock(), |state| &mut state.totals)
    }

    /// Returns the sessions, oldest first.
    pub(crate) fn sessions(&self) -> Vec<RunningSession> {
        let state = self.0.lock();
        let sessions = state.live.values();
        sessions.filter_map(|live| live.session.clone()).collect()
    }

    /// Returns a snapshot of the sessions' metrics. The daemon fills in its own values, which are
    /// zero here.
    pub(crate) fn read(&self) -> Metrics {
        let state = self.0.lock();
        let mut metrics = state.totals.clone();
        for live in state.live.values() {
            metrics.paths.add(live.paths);
            metrics.transfers += live.transfers;
        }
        metrics
    }
}

/// Returns the word for the reason of a loss in [`Metrics::paths_lost`].
pub(crate) fn loss_word(loss: PathLoss) -> &'static str {
    match loss {
        PathLoss::Unreachable => "unreachable",
        PathLoss::CarrierLost => "carrier",
        PathLoss::Silent => "silent",
        PathLoss::Reset => "reset",
        PathLoss::Damaged => "damaged",
        PathLoss::Protocol => "protocol",
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
                session: None,
            },
            &moved,
            3,
        );
        meters.report(
            other,
            Live {
                paths,
                transfers: 1,
                session: None,
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
