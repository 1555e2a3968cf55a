//! Paths: what is known of one way to the peer, and the states it goes through.
//!
//! ```text
//!            opened                silent for max(500 ms, 4 × RTT)          silent for 1.5 s, carrier lost, reset
//! Probing ───────────► Open ◄──────────────────────────────────► Suspect ──────────────────────────► Failed ──► Probing
//!    │                  └──────────────── carrier lost, reset ───────────────────────────────────────►│ (250 ms → 1.5 s)
//!    └──────────────────────── could not connect ────────────────────────────────────────────────────►│
//! ```
//!
//! A path that comes and goes keeps its back-off from one connection to the next, and control messages avoid it; one whose data are damaged
//! gets none for a while, which doubles each time, as long as another path can carry them ([`crate::steady`]).
//!
//! `Path::to` is the only place that changes a state.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use minicbor::{Decode, Encode};

use crate::{flow::Flow, load::LoadOrder, pace::Pace, steady::Steadiness, units::BitRate};

/// Number of a path in its session, chosen by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct PathId(#[n(0)] pub u16);

/// The greatest number of a path: with 64 paths of 8 MiB each a peer can make us hold 512 MiB at most.
pub const LAST_PATH: PathId = PathId(63);

/// A side that has said nothing else for so long sends a heartbeat.
///
/// Five of them fit into [`SUSPECT_AFTER`], so that one late wake-up on a busy machine raises no suspicion.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// Least silence that makes a path suspect: nine times what healthy gigabit and 10 Mbit/s links showed at worst (56 ms, bufferbloat).
pub const SUSPECT_AFTER: Duration = Duration::from_millis(500);

/// Silence that ends a path's connection.
pub const FAIL_AFTER: Duration = Duration::from_millis(1500);

/// First pause before a failed path is tried again.
pub const RETRY_FIRST: Duration = Duration::from_millis(250);

/// Longest time from one attempt at a failed path to the next.
///
/// It counts from when an attempt began, so that a healed link carries data within 2 s although the attempt under way waits in vain
/// for its connect timeout (up to 1.25 s leaves [`RETRY_FIRST`]).
pub const RETRY_LONGEST: Duration = Duration::from_millis(1500);

/// Longest silence that a long round trip excuses; a measurement over a stall must not put off the detection of the next one for long.
pub const SUSPECT_AFTER_AT_MOST: Duration = Duration::from_secs(2);

/// What a path may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState {
    /// A connection is being made. From: the start, `Failed`. To: `Open`, `Failed`.
    Probing,
    /// Carries data. From: `Probing`, `Suspect`. To: `Suspect`, `Failed`.
    Open,
    /// Nothing was heard for too long: gets nothing new, and what it carries may be sent on other paths. From: `Open`. To: `Open`, `Failed`.
    Suspect,
    /// Has no connection. From: all others. To: `Probing`, when its pause is over (on the client's side only).
    Failed {
        /// When to try again; `None` on the daemon's side, which waits for the client.
        retry_at: Option<Instant>,
    },
}

impl PathState {
    /// Whether a connection is up.
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Open | Self::Suspect)
    }

    fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Probing, Self::Open | Self::Failed { .. })
                | (Self::Open, Self::Suspect | Self::Failed { .. })
                | (Self::Suspect, Self::Open | Self::Failed { .. })
                | (Self::Failed { .. }, Self::Probing)
        )
    }
}

/// Why a path has no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathLoss {
    /// No connection could be made.
    Unreachable,
    /// The link lost its carrier.
    CarrierLost,
    /// Nothing was heard for [`FAIL_AFTER`].
    Silent,
    /// The peer or the kernel ended the connection.
    Reset,
    /// What arrived made no sense.
    Protocol,
    /// A chunk, or what protects the connection, was damaged on its way: a bad cable, card or memory.
    Damaged,
    /// Arrived at another of the peer's interfaces than it was aimed at.
    WrongInterface,
}

/// One path.
#[derive(Debug)]
pub struct Path {
    state: PathState,
    last_heard: Instant,
    last_sent: Instant,
    attempts: u32,
    pub(crate) flow: Flow,
    /// Whether it may carry data in either direction; else control messages only.
    pub(crate) carries_data: bool,
    /// The user's limit on this path.
    pub(crate) pace: Option<Pace>,
    /// What its connection was told to send of a bench.
    pub(crate) loading: Option<LoadOrder>,
    /// Whether the session's close was sent on this connection.
    pub(crate) close_sent: bool,
    /// The peer's time stamp that has to be answered.
    echo: Option<u64>,
    rtt: Option<Duration>,
    /// Least round-trip time of this connection.
    min_rtt: Option<Duration>,
    /// When the last attempt at a connection began.
    attempted: Instant,
    pub(crate) rate: RateEstimate,
    /// How long it has waited for the receiver to take what was sent, and since when it does now.
    pub(crate) starved: Duration,
    pub(crate) starved_since: Option<Instant>,
    /// Times that the connection was lost.
    pub(crate) failures: u32,
    /// Times that it was lost because of damage.
    damages: u32,
    steadiness: Steadiness,
    /// Since when it is known that a control message was not acknowledged in time, unless a heartbeat sent later has come back.
    control_late: Option<Instant>,
}

impl Path {
    /// Returns a path to which a connection is being made.
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
            steadiness: Steadiness::default(),
            control_late: None,
        }
    }

    /// Chunks that came by it and still take memory.
    pub fn held_chunks(&self) -> u64 {
        self.flow.held()
    }

    /// Times that its connection was lost.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Times that its connection was lost because what arrived was damaged.
    pub fn damages(&self) -> u32 {
        self.damages
    }

    /// Whether it was lost or silent several times, each soon after the one before, and has not stayed up since.
    pub fn is_unsteady(&self, now: Instant) -> bool {
        self.steadiness.is_unsteady(now)
    }

    /// Until when it carries no data, because what it brought was damaged, as long as another path can carry them.
    pub fn quarantined_until(&self, now: Instant) -> Option<Instant> {
        self.steadiness.quarantined_until(now)
    }

    /// How long it has waited for credit while there was something to send: the receiver's disk or processor is the brake then.
    pub fn starved(&self) -> Duration {
        self.starved
    }

    /// It could send, or could not for want of credit only.
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

    /// Its state.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// The round-trip time measured last by a heartbeat, queues included.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// How a control message would fare here, the less the better: whether one was late, or the path comes and goes; the time that data
    /// takes which is before it; the rate; and, as a side that only receives knows no rate, how much has come by it.
    pub(crate) fn control_delay(&self, now: Instant) -> (bool, Duration, Reverse<BitRate>, Reverse<u64>) {
        let (frames, rate) = (self.flow.unflushed(), self.rate.rate().unwrap_or(UNKNOWN_RATE));
        let is_doubtful = self.control_late.is_some() || self.is_unsteady(now);
        (is_doubtful, rate.time_for(frames.saturating_mul(crate::frame::MAX_PAYLOAD as u64)), Reverse(rate), Reverse(self.flow.arrived()))
    }

    /// A control message was not acknowledged in time.
    pub(crate) fn on_control_late(&mut self, now: Instant) {
        self.control_late = Some(now);
    }

    /// Changes the state, if the table of [`PathState`] has such an arrow; says whether it did.
    fn to(&mut self, next: PathState) -> bool {
        let legal = self.state.may_become(next);
        if legal {
            self.state = next;
        }
        legal
    }

    /// From: `Probing`. To: `Open`, with a fresh connection that permits nothing yet.
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

    /// From: `Suspect`. To: `Open`. Says whether the state changed.
    pub(crate) fn on_heard(&mut self, now: Instant) -> bool {
        self.last_heard = self.last_heard.max(now);
        let is_back = self.state == PathState::Suspect && self.to(PathState::Open);
        if is_back {
            self.steadiness.on_open(now);
        }
        is_back
    }

    /// From: all but `Failed`. To: `Failed`, to be tried again after a pause that doubles each time where `retry` is set. A path that comes
    /// and goes is in less of a hurry only as long as it is not the only one.
    pub(crate) fn on_lost(&mut self, now: Instant, retry: bool, is_only: bool) -> bool {
        let was_connected = self.state.is_connected();
        if was_connected {
            self.steadiness.on_trouble(now);
            self.attempts = if is_only { 0 } else { self.attempts };
        }
        let pause = RETRY_FIRST.saturating_mul(1 << self.attempts.min(8)).min(RETRY_LONGEST);
        let retry_at = (now + RETRY_FIRST).max(self.attempted + pause);
        if !self.to(PathState::Failed { retry_at: retry.then_some(retry_at) }) {
            return false;
        }
        self.attempts += 1;
        self.failures += u32::from(was_connected);
        self.rate.pause();
        true
    }

    /// It was lost because what arrived was damaged. Returns for how long it gets no data.
    pub(crate) fn on_damaged(&mut self, now: Instant) -> Duration {
        self.damages += 1;
        self.steadiness.on_damaged(now)
    }

    /// A failed path is not tried again.
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

    /// What the clock has to say: the state that silence has led to, if it is another one.
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
        // The least round trip: one that a queue or a stall made long says nothing about the next silence.
        self.min_rtt.map_or(SUSPECT_AFTER, |rtt| rtt.saturating_mul(4).clamp(SUSPECT_AFTER, SUSPECT_AFTER_AT_MOST))
    }

    fn fail_after(&self) -> Duration {
        FAIL_AFTER.max(self.suspect_after() * 2)
    }

    /// When silence, or a pause, next leads to another state.
    pub(crate) fn verdict_at(&self) -> Option<Instant> {
        match self.state {
            PathState::Probing => None,
            PathState::Open => Some(self.last_heard + self.suspect_after()),
            PathState::Suspect => Some(self.last_heard + self.fail_after()),
            PathState::Failed { retry_at } => retry_at,
        }
    }

    /// When a heartbeat is due on its connection.
    pub(crate) fn heartbeat_at(&self) -> Option<Instant> {
        self.state.is_connected().then(|| self.last_sent + HEARTBEAT_INTERVAL)
    }

    pub(crate) fn heartbeat_is_due(&self, now: Instant) -> bool {
        self.heartbeat_at().is_some_and(|at| self.echo.is_some() || now >= at)
    }

    /// The time stamp to answer, once.
    pub(crate) fn take_echo(&mut self) -> Option<u64> {
        self.echo.take()
    }

    pub(crate) fn on_sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    pub(crate) fn on_heartbeat(&mut self, sent_us: u64, round_trip: Option<Duration>, now: Instant) {
        self.rtt = round_trip.or(self.rtt);
        // An echo may have waited behind data, and then says nothing of the time since.
        self.control_late = self.control_late.filter(|late| round_trip.is_none_or(|round_trip| now < *late + round_trip));
        self.min_rtt = self.min_rtt.into_iter().chain(round_trip).min();
        // An echo is answered at most once, so two peers do not play ping-pong for ever.
        self.echo = (sent_us != 0 && round_trip.is_none()).then_some(sent_us).or(self.echo);
    }
}

/// What a path whose rate is unknown is taken for where the soonest is looked for (picked by eye).
pub(crate) const UNKNOWN_RATE: BitRate = BitRate::from_mbit(100);

/// What silence has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Suspect,
    Silent,
    Retry,
}

/// How fast a path delivers, from its acknowledgements.
///
/// Bytes acknowledged over windows of at least [`RateEstimate::WINDOW`] while something was in flight, smoothed by a quarter.
#[derive(Debug, Default)]
pub struct RateEstimate {
    since: Option<Instant>,
    bytes: u64,
    rate: Option<BitRate>,
}

impl RateEstimate {
    /// Shortest window: some 45 acknowledged chunks at 1 Gbit/s; below it, the batching of acknowledgements shows.
    pub const WINDOW: Duration = Duration::from_millis(50);

    /// The estimate, once there is one.
    pub fn rate(&self) -> Option<BitRate> {
        self.rate
    }

    /// Bytes were acknowledged.
    pub(crate) fn on_acknowledged(&mut self, bytes: u64, now: Instant) {
        let Some(since) = self.since else {
            // The first acknowledgement opens the window: the time before it includes the way there.
            self.since = Some(now);
            return;
        };
        self.bytes += bytes;
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= Self::WINDOW {
            let sample = BitRate::from_bytes_over(self.bytes, elapsed);
            self.rate = Some(self.rate.map_or(sample, |rate| BitRate(rate.0 - rate.0 / 4 + sample.0 / 4)));
            (self.since, self.bytes) = (Some(now), 0);
        }
    }

    /// Nothing is in flight: what follows does not count as slow.
    pub(crate) fn pause(&mut self) {
        (self.since, self.bytes) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arbitrary origin for virtual time.
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
            let PathState::Failed { retry_at: Some(at) } = path.state() else { panic!("{:?}", path.state()) };
            pauses.push(at.duration_since(start));
            assert!(path.on_retry(at));
            start = at;
        }
        assert_eq!(pauses, [250 * MS, 500 * MS, 1000 * MS, 1500 * MS, 1500 * MS]);
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
        assert_eq!(path.state(), PathState::Failed { retry_at: Some(start + 1500 * MS) });
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
            let PathState::Failed { retry_at: Some(at) } = path.state() else { panic!("{:?}", path.state()) };
            let pause = at.duration_since(now);
            now = at;
            path.on_retry(now);
            pause
        };
        let pauses: Vec<Duration> = (0..7).map(|_| lose_after(&mut path, 100 * MS)).collect();
        // From the start of one attempt to the next, of which it was up for 100 ms.
        assert_eq!(pauses, [250 * MS, 250 * MS, 250 * MS, 400 * MS, 900 * MS, 1400 * MS, 1400 * MS]);
        assert_eq!(lose_after(&mut path, 10_000 * MS), 250 * MS);
        assert_eq!(lose_after(&mut path, 100 * MS), 250 * MS, "what was before is forgotten");
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
        assert!((990_000_000..=1_010_000_000).contains(&measured), "{measured}");
    }
}
