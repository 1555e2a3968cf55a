//! State machine and measurements of one path to the peer.
//!
//! ```text
//!         opened            silent for T               silent for max(1.5 s, 2 T)
//! Probing ──────► Open ◄──────────────────► Suspect ──────────────────────────────► Failed
//!  ▲  │             │                          │                                     ▲  │
//!  │  │             └──────────────────────────┴────── carrier lost, reset ──────────┤  │
//!  │  └─────────────────────────────────────────────── could not connect ────────────┘  │
//!  └────────────────────────── after 250 ms to 1.5 s ───────────────────────────────────┘
//! ```
//!
//! T is 4 × the minimum RTT, from 500 ms to 2 s.
//!
//! A flapping path keeps its back-off across connections, and control messages avoid it. A path
//! that delivers damaged data is quarantined if another path can carry data; the time doubles with
//! each damage ([`crate::flap_damping`]).
//!
//! Only `Path::to` changes a state.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use minicbor::{Decode, Encode};

use crate::{flap_damping::FlapDamping, flow::Flow, load::LoadOrder, pace::Pace, units::BitRate};

/// Path number within a session, chosen by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct PathId(#[n(0)] pub u16);

/// Highest path number. With 64 paths of 8 MiB each, a peer can occupy at most 512 MiB of memory.
pub const LAST_PATH: PathId = PathId(63);

/// Idle time after which a side sends a heartbeat.
///
/// Five heartbeats fit into [`SUSPECT_AFTER`], so one late wake-up on a busy machine raises no
/// suspicion.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// Shortest silence that makes a path suspect. Healthy 1 Gbit/s and 10 Mbit/s links showed at most
/// 56 ms (bufferbloat); this is nine times as much.
pub const SUSPECT_AFTER: Duration = Duration::from_millis(500);

/// Shortest silence that ends a path's connection.
pub const FAIL_AFTER: Duration = Duration::from_millis(1500);

/// First pause before a reconnect.
pub const RETRY_FIRST: Duration = Duration::from_millis(250);

/// Longest interval between the starts of two connection attempts.
///
/// A recovered link must carry data within 2 s, even while an attempt waits for its connect
/// timeout. A timeout of up to 1.25 s leaves [`RETRY_FIRST`].
pub const RETRY_LONGEST: Duration = Duration::from_millis(1500);

/// Upper bound of the suspect timeout for a path with a long RTT. An RTT measured during a stall
/// must not delay the detection of the next one for long.
pub const SUSPECT_AFTER_AT_MOST: Duration = Duration::from_secs(2);

/// State of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState {
    /// Connecting. From: the start, `Failed`. To: `Open`, `Failed`.
    Probing,
    /// Carries data. From: `Probing`, `Suspect`. To: `Suspect`, `Failed`.
    Open,
    /// Silent for too long. Gets no new chunks, and its chunks may be resent on other paths. From:
    /// `Open`. To: `Open`, `Failed`.
    Suspect,
    /// Not connected. From: all others. To: `Probing` after a pause, on the client only.
    Failed {
        /// Time of the next attempt; `None` on the daemon, which waits for the client.
        retry_at: Option<Instant>,
    },
}

impl PathState {
    /// Returns true if a connection is up.
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Open | Self::Suspect)
    }

    fn may_change_to(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Probing, Self::Open | Self::Failed { .. })
                | (Self::Open, Self::Suspect | Self::Failed { .. })
                | (Self::Suspect, Self::Open | Self::Failed { .. })
                | (Self::Failed { .. }, Self::Probing)
        )
    }
}

/// Reason why a path has no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathLoss {
    /// The connection attempt failed.
    Unreachable,
    /// The link lost its carrier.
    CarrierLost,
    /// Silent for [`FAIL_AFTER`] or longer.
    Silent,
    /// The peer or the kernel closed the connection.
    Reset,
    /// The peer violated the protocol.
    Protocol,
    /// A chunk or the TLS stream was corrupted in transit by a bad cable, interface or memory.
    Damaged,
    /// The connection arrived at another interface of the peer than intended.
    WrongInterface,
}

/// One path of a session.
#[derive(Debug)]
pub struct Path {
    state: PathState,
    last_heard: Instant,
    last_sent: Instant,
    attempts: u32,
    pub(crate) flow: Flow,
    /// True if it may carry data; otherwise it carries control messages only.
    pub(crate) carries_data: bool,
    /// The user's limit on this path.
    pub(crate) pace: Option<Pace>,
    /// Benchmark load that its connection sends.
    pub(crate) loading: Option<LoadOrder>,
    /// True if the session's close was sent on this connection.
    pub(crate) close_sent: bool,
    /// Timestamp of the peer to echo.
    echo: Option<u64>,
    rtt: Option<Duration>,
    /// Minimum RTT of this connection.
    min_rtt: Option<Duration>,
    /// Start of the last connection attempt.
    attempted: Instant,
    pub(crate) rate: RateEstimate,
    /// Total time without credit, and start of the current wait.
    pub(crate) starved: Duration,
    pub(crate) starved_since: Option<Instant>,
    /// Number of lost connections.
    pub(crate) failures: u32,
    /// Number of connections lost to damaged data.
    damages: u32,
    steadiness: FlapDamping,
    /// Time of the last missed acknowledgement of a control message. Cleared by the echo of a
    /// heartbeat sent later.
    control_late: Option<Instant>,
}

impl Path {
    /// Returns a path in state `Probing`.
    pub fn probing(now: Instant) -> Self {
        Self {
            state: PathState::Probing,
            last_heard: now,
            last_sent: now,
            attempts: 0,
            flow: Flow::default(),
            carries_data: true,
            pace: None,
            loading: None,
            close_sent: false,
            echo: None,
            rtt: None,
            min_rtt: None,
            attempted: now,
            rate: RateEstimate::default(),
            starved: Duration::ZERO,
            starved_since: None,
            failures: 0,
            damages: 0,
            steadiness: FlapDamping::default(),
            control_late: None,
        }
    }

    /// Returns the number of chunks that arrived on this path and still occupy memory.
    pub fn held_chunks(&self) -> u64 {
        self.flow.held()
    }

    /// Returns the number of lost connections.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the number of connections lost to damaged data.
    pub fn damages(&self) -> u32 {
        self.damages
    }

    /// Returns true if the path is flapping: lost or silent several times in short succession, and
    /// not stable since.
    pub fn is_unsteady(&self, now: Instant) -> bool {
        self.steadiness.is_unsteady(now)
    }

    /// Returns the end of the quarantine after damaged data. The path carries none until then if
    /// another can.
    pub fn quarantined_until(&self, now: Instant) -> Option<Instant> {
        self.steadiness.quarantined_until(now)
    }

    /// Returns the total time without credit while data was ready. The receiver's disk or processor
    /// is then the bottleneck.
    pub fn starved(&self) -> Duration {
        self.starved
    }

    /// Records if the path lacks nothing but credit to send.
    pub(crate) fn on_credit_checked(&mut self, starved: bool, now: Instant) {
        match (starved, self.starved_since) {
            (true, None) => self.starved_since = Some(now),
            (false, Some(since)) => {
                self.starved += now.saturating_duration_since(since);
                self.starved_since = None;
            }
            _ => {}
        }
    }

    /// Returns the state.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// Returns the RTT of the latest heartbeat, including queueing.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Returns the expected delay of a control message; the path with the least value is best.
    ///
    /// Compares, in this order: late acknowledgement or flapping, drain time of the data ahead,
    /// rate, and frames received. The last one serves a side that only receives and knows no rate.
    pub(crate) fn control_delay(
        &self,
        now: Instant,
    ) -> (bool, Duration, Reverse<BitRate>, Reverse<u64>) {
        let (frames, rate) = (
            self.flow.unflushed(),
            self.rate.rate().unwrap_or(UNKNOWN_RATE),
        );
        let is_doubtful = self.control_late.is_some() || self.is_unsteady(now);
        (
            is_doubtful,
            rate.time_for(frames.saturating_mul(crate::frame::MAX_PAYLOAD as u64)),
            Reverse(rate),
            Reverse(self.flow.arrived()),
        )
    }

    /// Records that a control message was not acknowledged in time.
    pub(crate) fn on_control_late(&mut self, now: Instant) {
        self.control_late = Some(now);
    }

    /// Changes the state if the transition is legal; returns true if it did.
    fn to(&mut self, next: PathState) -> bool {
        let legal = self.state.may_change_to(next);
        if legal {
            self.state = next;
        }
        legal
    }

    /// From: `Probing`. To: `Open`, with a new connection without credit.
    pub(crate) fn on_opened(&mut self, now: Instant) -> bool {
        if !self.to(PathState::Open) {
            return false;
        }
        (self.last_heard, self.last_sent) = (now, now);
        self.flow = self.flow.next_connection();
        (self.close_sent, self.loading) = (false, None);
        (self.control_late, self.echo, self.min_rtt) = (None, None, None);
        if !self.is_unsteady(now) {
            self.attempts = 0;
        }
        self.steadiness.on_open(now);
        self.rate.pause();
        true
    }

    /// From: `Suspect`. To: `Open`. Returns true if the state changed.
    pub(crate) fn on_heard(&mut self, now: Instant) -> bool {
        self.last_heard = self.last_heard.max(now);
        let is_back = self.state == PathState::Suspect && self.to(PathState::Open);
        if is_back {
            self.steadiness.on_open(now);
        }
        is_back
    }

    /// From: all but `Failed`. To: `Failed`, with a retry if `retry` is set. The pause doubles each
    /// time. If it is the only path, its back-off restarts even if it flaps.
    pub(crate) fn on_lost(&mut self, now: Instant, retry: bool, is_only: bool) -> bool {
        let was_connected = self.state.is_connected();
        if was_connected {
            self.steadiness.on_trouble(now);
            self.attempts = if is_only { 0 } else { self.attempts };
        }
        let pause = RETRY_FIRST
            .saturating_mul(1 << self.attempts.min(8))
            .min(RETRY_LONGEST);
        let retry_at = (now + RETRY_FIRST).max(self.attempted + pause);
        if !self.to(PathState::Failed {
            retry_at: retry.then_some(retry_at),
        }) {
            return false;
        }
        self.attempts += 1;
        self.failures += u32::from(was_connected);
        self.rate.pause();
        true
    }

    /// Records a loss to damaged data. Returns the length of the quarantine.
    pub(crate) fn on_damaged(&mut self, now: Instant) -> Duration {
        self.damages += 1;
        self.steadiness.on_damaged(now)
    }

    /// Cancels the retries of a failed path.
    pub(crate) fn on_retired(&mut self) {
        if let PathState::Failed { retry_at } = &mut self.state {
            *retry_at = None;
        }
    }

    /// From: `Failed`. To: `Probing`.
    pub(crate) fn on_retry(&mut self, now: Instant) -> bool {
        (self.last_heard, self.attempted) = (now, now);
        self.to(PathState::Probing)
    }

    /// Returns the transition or retry that is due.
    pub(crate) fn verdict(&self, now: Instant) -> Option<Verdict> {
        let silence = now.saturating_duration_since(self.last_heard);
        match self.state {
            PathState::Open if silence >= self.suspect_after() => Some(Verdict::Suspect),
            PathState::Suspect if silence >= self.fail_after() => Some(Verdict::Silent),
            PathState::Failed { retry_at: Some(at) } if now >= at => Some(Verdict::Retry),
            _ => None,
        }
    }

    /// From: `Open`. To: `Suspect`.
    pub(crate) fn on_suspect(&mut self, now: Instant) -> bool {
        self.steadiness.on_trouble(now);
        self.to(PathState::Suspect)
    }

    fn suspect_after(&self) -> Duration {
        // Uses the minimum RTT: one inflated by a queue or a stall predicts nothing about the next
        // silence.
        self.min_rtt.map_or(SUSPECT_AFTER, |rtt| {
            rtt.saturating_mul(4)
                .clamp(SUSPECT_AFTER, SUSPECT_AFTER_AT_MOST)
        })
    }

    fn fail_after(&self) -> Duration {
        FAIL_AFTER.max(self.suspect_after() * 2)
    }

    /// Returns the next time at which [`Path::verdict`] may return a value.
    pub(crate) fn verdict_at(&self) -> Option<Instant> {
        match self.state {
            PathState::Probing => None,
            PathState::Open => Some(self.last_heard + self.suspect_after()),
            PathState::Suspect => Some(self.last_heard + self.fail_after()),
            PathState::Failed { retry_at } => retry_at,
        }
    }

    /// Returns the time at which a heartbeat is due.
    pub(crate) fn heartbeat_at(&self) -> Option<Instant> {
        self.state
            .is_connected()
            .then(|| self.last_sent + HEARTBEAT_INTERVAL)
    }

    pub(crate) fn heartbeat_is_due(&self, now: Instant) -> bool {
        self.heartbeat_at()
            .is_some_and(|at| self.echo.is_some() || now >= at)
    }

    /// Takes the timestamp to echo.
    pub(crate) fn take_echo(&mut self) -> Option<u64> {
        self.echo.take()
    }

    pub(crate) fn on_sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    pub(crate) fn on_heartbeat(
        &mut self,
        sent_us: u64,
        round_trip: Option<Duration>,
        now: Instant,
    ) {
        self.rtt = round_trip.or(self.rtt);
        // The echo may have waited behind data; it proves nothing about the time after its
        // heartbeat was sent.
        self.control_late = self
            .control_late
            .filter(|late| round_trip.is_none_or(|round_trip| now < *late + round_trip));
        self.min_rtt = self.min_rtt.into_iter().chain(round_trip).min();
        // Each timestamp is echoed at most once, which prevents an endless exchange.
        self.echo = (sent_us != 0 && round_trip.is_none())
            .then_some(sent_us)
            .or(self.echo);
    }
}

/// Assumed rate of a path without an estimate, for comparisons (picked by eye).
pub(crate) const UNKNOWN_RATE: BitRate = BitRate::from_mbit(100);

/// Transition or retry caused by silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Suspect,
    Silent,
    Retry,
}

/// Delivery rate of a path, from its acknowledgements.
///
/// Samples are acknowledged bytes per window of at least [`RateEstimate::WINDOW`], taken while data
/// is in flight. Each sample has a weight of one quarter.
#[derive(Debug, Default)]
pub struct RateEstimate {
    since: Option<Instant>,
    bytes: u64,
    rate: Option<BitRate>,
}

impl RateEstimate {
    /// Shortest sample window: about 24 acknowledged chunks at 1 Gbit/s. Shorter windows show the
    /// batching of acknowledgements.
    pub const WINDOW: Duration = Duration::from_millis(50);

    /// Returns the estimate, if available.
    pub fn rate(&self) -> Option<BitRate> {
        self.rate
    }

    pub(crate) fn on_acknowledged(&mut self, bytes: u64, now: Instant) {
        let Some(since) = self.since else {
            // The first acknowledgement opens the window: the time before it includes the RTT.
            self.since = Some(now);
            return;
        };
        self.bytes += bytes;
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= Self::WINDOW {
            let sample = BitRate::from_bytes_over(self.bytes, elapsed);
            self.rate = Some(
                self.rate
                    .map_or(sample, |rate| BitRate(rate.0 - rate.0 / 4 + sample.0 / 4)),
            );
            (self.since, self.bytes) = (Some(now), 0);
        }
    }

    /// Ends the window because nothing is in flight; idle time does not lower the estimate.
    pub(crate) fn pause(&mut self) {
        (self.since, self.bytes) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods)]
    fn origin() -> Instant {
        Instant::now()
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn silence_makes_a_path_suspect_and_then_ends_it() {
        let start = origin();
        let mut path = Path::probing(start);
        assert!(path.on_opened(start));
        assert_eq!(path.verdict(start + 499 * MS), None);
        assert_eq!(path.verdict(start + 500 * MS), Some(Verdict::Suspect));
        assert!(path.on_suspect(start));
        assert_eq!(path.verdict(start + 1499 * MS), None);
        assert_eq!(path.verdict(start + 1500 * MS), Some(Verdict::Silent));
    }

    #[test]
    fn a_byte_heard_clears_suspicion() {
        let start = origin();
        let mut path = Path::probing(start);
        path.on_opened(start);
        path.on_suspect(start);
        assert!(path.on_heard(start + 600 * MS));
        assert_eq!(path.state(), PathState::Open);
        assert_eq!(path.verdict(start + 1000 * MS), None);
    }

    #[test]
    fn a_long_round_trip_is_not_suspicious() {
        let start = origin();
        let mut path = Path::probing(start);
        path.on_opened(start);
        path.on_heartbeat(1, Some(300 * MS), start);
        assert_eq!(path.verdict(start + 1100 * MS), None); // 4 × 300 ms
        assert_eq!(path.verdict(start + 1200 * MS), Some(Verdict::Suspect));
    }

    #[test]
    fn the_time_between_attempts_doubles_up_to_a_second_and_a_half() {
        let mut start = origin();
        let mut path = Path::probing(start);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            path.on_lost(start, true, false);
            let PathState::Failed { retry_at: Some(at) } = path.state() else {
                panic!("{:?}", path.state())
            };
            pauses.push(at.duration_since(start));
            assert!(path.on_retry(at));
            start = at;
        }
        assert_eq!(
            pauses,
            [250 * MS, 500 * MS, 1000 * MS, 1500 * MS, 1500 * MS]
        );
    }

    #[test]
    fn the_time_that_an_attempt_took_counts_towards_the_pause_after_it() {
        let start = origin();
        let mut path = Path::probing(start);
        (0..4).for_each(|_| {
            path.on_lost(start, true, false);
            path.on_retry(start);
        });
        path.on_lost(start + 1000 * MS, true, false);
        assert_eq!(
            path.state(),
            PathState::Failed {
                retry_at: Some(start + 1500 * MS)
            }
        );
    }

    #[test]
    fn a_round_trip_over_a_stall_does_not_put_off_suspicion() {
        let start = origin();
        let mut path = Path::probing(start);
        path.on_opened(start);
        path.on_heartbeat(1, Some(MS), start);
        path.on_heartbeat(1, Some(1400 * MS), start);
        assert_eq!(path.rtt(), Some(1400 * MS));
        assert_eq!(path.verdict(start + 500 * MS), Some(Verdict::Suspect));
    }

    #[test]
    fn a_path_that_comes_and_goes_keeps_its_back_off_until_it_has_stayed_up() {
        let mut now = origin();
        let mut path = Path::probing(now);
        let mut lose_after = |path: &mut Path, there: Duration| {
            path.on_opened(now);
            now += there;
            path.on_lost(now, true, false);
            let PathState::Failed { retry_at: Some(at) } = path.state() else {
                panic!("{:?}", path.state())
            };
            let pause = at.duration_since(now);
            now = at;
            path.on_retry(now);
            pause
        };
        let pauses: Vec<Duration> = (0..7).map(|_| lose_after(&mut path, 100 * MS)).collect();
        // Pauses from the loss; each connection lasted 100 ms.
        assert_eq!(
            pauses,
            [
                250 * MS,
                250 * MS,
                250 * MS,
                400 * MS,
                900 * MS,
                1400 * MS,
                1400 * MS
            ]
        );
        assert_eq!(lose_after(&mut path, 10_000 * MS), 250 * MS);
        assert_eq!(
            lose_after(&mut path, 100 * MS),
            250 * MS,
            "earlier events are forgotten"
        );
    }

    #[test]
    fn arrows_that_are_not_in_the_table_change_nothing() {
        let start = origin();
        let mut path = Path::probing(start);
        assert!(!path.on_suspect(start));
        assert!(!path.on_retry(start));
        assert_eq!(path.state(), PathState::Probing);
    }

    #[test]
    fn the_rate_is_that_of_acknowledged_bytes() {
        let start = origin();
        let mut rate = RateEstimate::default();
        for i in 0..=100 {
            rate.on_acknowledged(125_000, start + i * MS); // 1 Gbit/s
        }
        let measured = rate.rate().unwrap().0;
        assert!(
            (990_000_000..=1_010_000_000).contains(&measured),
            "{measured}"
        );
    }
}
