//! One path to the peer: its plan, state machine and measurements.
//!
//! ```text
//! Routing ──► Announced ──┐
//!    │   route, no answer │ answered
//!    │        needed      ▼           opened            silent for T        silent for max(1.5 s, 2 T)
//!    └───────────────► Connecting ──────► Open ◄──────────────────► Suspect ─────────────────► Failed
//!                        ▲  │              │                          │                        ▲  │
//!                        │  │              └──────────────────────────┴── carrier lost, reset ─┤  │
//!                        │  └───────────────────────────────────────────── could not connect ──┘  │
//!                        └──────────────────────── after 250 ms to 1.5 s ─────────────────────────┘
//!
//! any state ──► Retired: the link is not wanted, or its interface is gone ──► Routing, Connecting
//! ```
//!
//! T, the suspect timeout, is 4 × the minimum RTT, but at least 500 ms and at most 2 s.
//!
//! A flapping path keeps its back-off across connections, and control messages avoid the path. A
//! path that delivers damaged data is quarantined while another path can carry data. Each damage
//! doubles the time of the quarantine ([`crate::path::flap_damping`]).
//!
//! Only `Path::to` changes the state.

use std::{
    cmp::Reverse,
    net::IpAddr,
    time::{Duration, Instant},
};

use super::{
    flap_damping::FlapDamping,
    flow::Flow,
    pace::Pace,
    plan::{Origin, PathPlan},
};
use crate::{pairing::Obstacle, units::BitRate, wire::load::LoadOrder};

/// Combines the verification results of two connections: false if either failed, otherwise unknown
/// (`None`) if either is unknown.
pub fn all_verified(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        (None, _) | (_, None) => None,
    }
}

/// Idle time after which an end sends a heartbeat.
///
/// Five heartbeats fit into [`SUSPECT_AFTER`], so a single late wake-up on a busy machine does not
/// make the path suspect.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum silence after which a path becomes suspect. Healthy 1 Gbit/s and 10 Mbit/s links were
/// silent for at most 56 ms (bufferbloat); this value is nine times as long.
pub(crate) const SUSPECT_AFTER: Duration = Duration::from_millis(500);

/// Minimum silence after which a path's connection is closed.
pub(crate) const FAIL_AFTER: Duration = Duration::from_millis(1500);

/// Minimum delay before a reconnect.
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(250);

/// Maximum interval between the starts of two connection attempts.
///
/// A recovered link must carry data within 2 s, even while an attempt is waiting for its connect
/// timeout. A connect timeout of up to 1.25 s leaves at least [`RETRY_FIRST`] before the next
/// attempt.
pub(crate) const RETRY_LONGEST: Duration = Duration::from_millis(1500);

/// Maximum suspect timeout, for a path with a long RTT. Without this maximum, an RTT measured
/// during a stall would delay the detection of the next stall.
pub(crate) const SUSPECT_AFTER_AT_MOST: Duration = Duration::from_secs(2);

/// State of a path, as seen by one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState {
    /// Client only: the host route that the path may need is being installed.
    Routing,
    /// Client only: the peer, which needs a host route, knows of the connection and has not
    /// answered yet.
    Announced,
    /// Connection attempt in progress.
    Connecting,
    /// Connected and in use.
    Open,
    /// Connected, but silent for longer than the suspect timeout. The path gets no new chunks, and
    /// other paths may retransmit its chunks.
    Suspect,
    /// Not connected. The client connects again after a back-off.
    Failed {
        /// Time of the next connection attempt; `None` on the daemon, which waits for the client.
        retry_at: Option<Instant>,
    },
    /// No longer wanted. A path of the same link may take its ID.
    Retired,
}

impl PathState {
    /// Returns true if the path has a connection, even if the path is suspect.
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Open | Self::Suspect)
    }

    /// Returns true if the path is on its way to its first connection, or to the next.
    pub fn is_connecting(self) -> bool {
        matches!(self, Self::Routing | Self::Announced | Self::Connecting)
    }

    /// Table of the transitions.
    fn may_change_to(self, next: Self) -> bool {
        use PathState::{Announced, Connecting, Failed, Open, Retired, Routing, Suspect};
        matches!(
            (self, next),
            (Routing, Announced | Connecting | Retired)
                | (Announced, Connecting | Retired)
                | (Connecting, Open | Failed { .. } | Retired)
                | (Open, Suspect | Failed { .. } | Retired)
                | (Suspect, Open | Failed { .. } | Retired)
                | (Failed { .. }, Connecting | Retired)
                | (Retired, Routing | Connecting)
        )
    }
}

/// State of a path, for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStatus {
    /// Connecting for the first time.
    Connecting,
    /// Connected and in use.
    Up,
    /// Connected, but nothing was heard for too long.
    Suspect,
    /// The connection was lost, for this reason. A client connects again unless the path is retired.
    Down(Cause),
    /// Not used, for this reason.
    LeftOut(Cause),
}

/// Reason why a path is not connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The connection was lost.
    Lost(PathLoss),
    /// The attempt failed; the text, for people, is that of its error.
    NotConnected(String),
    /// The connection arrived at this interface of the peer, which is not the intended one.
    WrongInterface {
        /// Interface of the peer at which the connection arrived.
        arrived: String,
    },
    /// Other links are better.
    Replaced,
    /// The path only served to reach the peer.
    ContactOnly,
    /// The link was named and did not connect during the whole transfer.
    NotInTime,
}

/// Why a connection attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotConnected {
    /// Nothing answered, or what answered refused the connection.
    Obstacle(Obstacle),
    /// The connection, or the handshake on it, failed in another way.
    Other,
    /// Another machine answered.
    Stranger,
}

/// Reason why a path has lost its connection or could not connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathLoss {
    /// The connection attempt failed.
    Unreachable,
    /// The link has no carrier: the cable was unplugged, or the interface at the other end went
    /// down.
    CarrierLost,
    /// Nothing was received on the connection for `FAIL_AFTER` or longer.
    Silent,
    /// The peer or the kernel closed the connection.
    Reset,
    /// The peer violated the protocol.
    Protocol,
    /// A chunk or the TLS stream was corrupted in transit, for example by a faulty cable, interface
    /// or memory.
    Damaged,
}

/// Facts about a new connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Name of the peer's interface at which the connection arrived; `None` if unknown.
    pub interface: Option<String>,
    /// Local address of the connection.
    pub local: Option<IpAddr>,
    /// Path MTU in bytes; `None` if it equals the interface's MTU.
    pub path_mtu: Option<u32>,
}

/// Plan, state, timers and measurements of one path of a session.
#[derive(Debug)]
pub struct Path {
    plan: PathPlan,
    state: PathState,
    /// Reason of the latest loss or failure; `None` while connected and before the first failure.
    cause: Option<Cause>,
    /// Last status that the driver received.
    pub(crate) told: PathStatus,
    /// True if the path has been connected since it was planned.
    was_open: bool,
    connections: u32,
    /// Interface of the peer at which the latest connection arrived; `None` if unknown.
    arrived: Option<String>,
    /// Size in bytes of the largest packets that pass, if smaller than the interface's MTU.
    path_mtu: Option<u32>,
    /// True if a probe was answered during a connection attempt that may have begun before the
    /// cable was plugged in. A failure of that attempt says nothing then.
    pub(crate) is_overtaken: bool,
    last_heard: Instant,
    last_sent: Instant,
    attempts: u32,
    pub(crate) flow: Flow,
    /// True if the path may carry data. If false, the path carries only control messages.
    pub(crate) carries_data: bool,
    /// Rate limit that the user set for this path; `None` without a limit.
    pub(crate) pace: Option<Pace>,
    /// Benchmark load that the path's connection must generate; `None` without a load.
    pub(crate) loading: Option<LoadOrder>,
    /// True if the close frame of the session was sent on this connection.
    pub(crate) close_sent: bool,
    /// Latest heartbeat timestamp of the peer, which the next heartbeat echoes; `None` if it was
    /// echoed.
    echo: Option<u64>,
    rtt: Option<Duration>,
    /// Minimum RTT measured on the current connection; `None` before the first measurement.
    min_rtt: Option<Duration>,
    /// Start time of the latest connection attempt.
    attempted: Instant,
    pub(crate) rate: RateEstimate,
    /// Total time during which data was ready but credit was lacking, without the wait in progress.
    /// A long time means that the receiver's disk or processor is the bottleneck.
    pub starved: Duration,
    starved_since: Option<Instant>,
    /// Number of connections that this path has lost.
    pub failures: u32,
    /// Number of connections that this path has lost because of damaged data.
    pub damages: u32,
    flap_damping: FlapDamping,
    /// Time at which the acknowledgement of a control message was last overdue; `None` if control
    /// messages are not late. Cleared by the echo of a heartbeat that was sent after that time.
    control_late: Option<Instant>,
}

impl Path {
    /// Returns a new path in state [`PathState::Connecting`].
    pub(crate) fn new(plan: PathPlan, now: Instant) -> Self {
        Self {
            carries_data: plan.origin != Origin::Excluded,
            pace: plan.cap.map(|cap| Pace::new(cap, now)),
            plan,
            state: PathState::Connecting,
            cause: None,
            told: PathStatus::Connecting,
            was_open: false,
            connections: 0,
            arrived: None,
            path_mtu: None,
            is_overtaken: false,
            last_heard: now,
            last_sent: now,
            attempts: 0,
            flow: Flow::default(),
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
            flap_damping: FlapDamping::default(),
            control_late: None,
        }
    }

    /// Returns a new path in state [`PathState::Routing`].
    pub(crate) fn routing(plan: PathPlan, now: Instant) -> Self {
        Self {
            state: PathState::Routing,
            ..Self::new(plan, now)
        }
    }

    /// Returns the number of chunks that arrived on this path and still occupy memory.
    pub fn held_chunks(&self) -> u64 {
        self.flow.held
    }

    /// Returns true if the path is flapping: it was lost or silent several times in quick
    /// succession and has not been stable since.
    pub(crate) fn is_flapping(&self, now: Instant) -> bool {
        self.flap_damping.is_flapping(now)
    }

    /// Returns the end of the quarantine after damaged data; `None` without a current quarantine.
    /// During a quarantine, the path carries no data if another path can.
    pub(crate) fn quarantined_until(&self, now: Instant) -> Option<Instant> {
        self.flap_damping.quarantined_until(now)
    }

    /// Starts or stops measuring the time without credit. `starved` is true if the path has data to
    /// send but lacks credit.
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

    /// Returns the plan of the path.
    pub fn plan(&self) -> &PathPlan {
        &self.plan
    }

    pub(crate) fn plan_mut(&mut self) -> &mut PathPlan {
        &mut self.plan
    }

    /// Returns the current state of the path.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// Returns true if the path is no longer wanted.
    pub fn is_retired(&self) -> bool {
        self.state == PathState::Retired
    }

    /// Returns true if the path is connected, or its next connection is under way for the first
    /// time. Such a path holds its interfaces.
    pub(crate) fn holds_interfaces(&self) -> bool {
        self.state.is_connected() || (self.state.is_connecting() && self.cause.is_none())
    }

    /// Returns true during the first connection attempt.
    pub(crate) fn is_tried_first(&self) -> bool {
        self.state == PathState::Connecting && self.cause.is_none()
    }

    /// Returns true if the path has been connected since it was planned.
    pub fn was_open(&self) -> bool {
        self.was_open
    }

    /// Returns the number of connections that the path has had.
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// Returns true if the latest connection arrived at the intended interface of the peer; `None`
    /// if unknown.
    pub fn verified(&self) -> Option<bool> {
        let (intended, arrived) = (self.plan.peer_interface.as_ref()?, self.arrived.as_ref()?);
        Some(intended == arrived)
    }

    /// Returns the interface of the peer at which the latest connection arrived; `None` if unknown.
    pub(crate) fn arrived(&self) -> Option<&str> {
        self.arrived.as_deref()
    }

    /// Returns the path MTU in bytes; `None` if it equals the interface's MTU.
    pub fn path_mtu(&self) -> Option<u32> {
        self.path_mtu
    }

    /// Returns the state of the path, for users.
    pub fn status(&self) -> PathStatus {
        match (self.state, &self.cause) {
            (PathState::Open, _) => PathStatus::Up,
            (PathState::Suspect, _) => PathStatus::Suspect,
            (_, None) => PathStatus::Connecting,
            (_, Some(cause @ (Cause::Replaced | Cause::ContactOnly | Cause::NotInTime))) => {
                PathStatus::LeftOut(cause.clone())
            }
            (_, Some(cause)) if self.connections > 0 => PathStatus::Down(cause.clone()),
            (_, Some(cause)) => PathStatus::LeftOut(cause.clone()),
        }
    }

    /// Sets the reason why the path is not connected. A reason that is known stays unless `is_news`.
    pub(crate) fn set_cause(&mut self, cause: Cause, is_news: bool) {
        if is_news || self.cause.is_none() {
            self.cause = Some(cause);
        }
    }

    /// Plans a retired path again, which keeps its counters. Previous state: `Retired`.
    pub(crate) fn on_planned(&mut self, plan: PathPlan, next: PathState, now: Instant) -> bool {
        if !self.to(next) {
            return false;
        }
        // The last report about a link that was up stays until it is up again.
        if matches!(self.status(), PathStatus::LeftOut(_)) {
            self.cause = None;
        }
        self.carries_data = plan.origin != Origin::Excluded;
        self.pace = plan.cap.map(|cap| Pace::new(cap, now));
        (self.plan, self.was_open, self.is_overtaken) = (plan, false, false);
        (self.last_heard, self.attempted) = (now, now);
        true
    }

    /// Records that the peer knows of the connection. Previous state: `Routing`.
    pub(crate) fn on_announced(&mut self) -> bool {
        self.to(PathState::Announced)
    }

    /// Replaces the plan by that of a connection which the caller has made.
    pub(crate) fn replan(&mut self, plan: PathPlan, now: Instant) {
        self.pace = plan.cap.map(|cap| Pace::new(cap, now));
        self.carries_data = plan.origin != Origin::Excluded;
        self.plan = plan;
    }

    /// Records what is known of a new connection.
    pub(crate) fn on_arrived(&mut self, arrived: &Arrival) {
        self.arrived.clone_from(&arrived.interface);
        self.path_mtu = arrived.path_mtu;
        self.plan.local = arrived.local.or(self.plan.local);
    }

    /// Returns the expected delay of a control message. The path with the minimum is best.
    ///
    /// Compares, in this order: late acknowledgement or flapping, drain time of the data ahead,
    /// rate, and frames received. The number of received frames serves an end that only receives
    /// and therefore knows no rate.
    pub(crate) fn control_delay(
        &self,
        now: Instant,
    ) -> (bool, Duration, Reverse<BitRate>, Reverse<u64>) {
        let (frames, rate) = (self.flow.unflushed, self.rate.rate.unwrap_or(UNKNOWN_RATE));
        let is_doubtful = self.control_late.is_some() || self.is_flapping(now);
        (
            is_doubtful,
            rate.time_for(frames.saturating_mul(crate::wire::frame::MAX_PAYLOAD as u64)),
            Reverse(rate),
            Reverse(self.flow.arrived),
        )
    }

    /// Records that the acknowledgement of a control message is overdue.
    pub(crate) fn on_control_late(&mut self, now: Instant) {
        self.control_late = Some(now);
    }

    /// Changes the state if the transition is legal; otherwise returns false.
    fn to(&mut self, next: PathState) -> bool {
        let legal = self.state.may_change_to(next);
        if legal {
            self.state = next;
        }
        legal
    }

    /// Records a new connection. Previous state: `Connecting`. Next state: `Open`, without credit.
    /// Returns false in any other state.
    pub(crate) fn on_opened(&mut self, now: Instant) -> bool {
        if !self.to(PathState::Open) {
            return false;
        }
        (self.was_open, self.is_overtaken, self.cause) = (true, false, None);
        self.connections += 1;
        (self.last_heard, self.last_sent) = (now, now);
        self.flow = self.flow.next_connection();
        (self.close_sent, self.loading) = (false, None);
        (self.control_late, self.echo, self.min_rtt) = (None, None, None);
        if !self.is_flapping(now) {
            self.attempts = 0;
        }
        self.flap_damping.on_open(now);
        self.rate.pause();
        true
    }

    /// Records that bytes were received. Previous state: `Suspect`. Next state: `Open`. Returns
    /// true if the state changed.
    pub(crate) fn on_heard(&mut self, now: Instant) -> bool {
        self.last_heard = self.last_heard.max(now);
        let is_back = self.state == PathState::Suspect && self.to(PathState::Open);
        if is_back {
            self.flap_damping.on_open(now);
        }
        is_back
    }

    /// Records a lost connection. Previous states: all but `Failed`. Next state: `Failed`, with a
    /// retry if `retry` is set. Returns true if the state changed.
    ///
    /// The back-off doubles with each loss. It restarts if this was the only connected path, even
    /// if the path is flapping.
    pub(crate) fn on_lost(&mut self, now: Instant, retry: bool, is_only: bool) -> bool {
        let was_connected = self.state.is_connected();
        if was_connected {
            self.flap_damping.on_outage(now);
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

    /// Records that the path is no longer wanted: its end is neither a failure nor an outage. Next
    /// state: `Retired`. Returns true if the state changed.
    pub(crate) fn on_retired(&mut self) -> bool {
        let has_ended = self.to(PathState::Retired);
        if has_ended {
            self.rate.pause();
        }
        has_ended
    }

    /// Records the loss of a connection because of damaged data. Returns the duration of the
    /// quarantine.
    pub(crate) fn on_damaged(&mut self, now: Instant) -> Duration {
        self.damages += 1;
        self.flap_damping.on_damaged(now)
    }

    /// Records the start of a connection attempt. Next state: `Connecting`.
    pub(crate) fn on_retry(&mut self, now: Instant) -> bool {
        (self.last_heard, self.attempted) = (now, now);
        self.to(PathState::Connecting)
    }

    /// Returns true if the last attempt began at least the shortest pause ago.
    pub(crate) fn has_paused(&self, now: Instant) -> bool {
        now >= self.attempted + RETRY_FIRST
    }

    /// Records a silence. Previous state: `Open`. Next state: `Suspect`.
    pub(crate) fn on_suspect(&mut self, now: Instant) -> bool {
        self.flap_damping.on_outage(now);
        self.to(PathState::Suspect)
    }

    fn suspect_after(&self) -> Duration {
        // Uses the minimum RTT: an RTT increased by a queue or a stall does not predict the next
        // silence.
        self.min_rtt.map_or(SUSPECT_AFTER, |rtt| {
            rtt.saturating_mul(4)
                .clamp(SUSPECT_AFTER, SUSPECT_AFTER_AT_MOST)
        })
    }

    fn fail_after(&self) -> Duration {
        FAIL_AFTER.max(self.suspect_after() * 2)
    }

    /// Returns the time at which silence or the retry timer changes the state; `None` if neither
    /// will. An open path becomes suspect, a suspect path fails, and a failed path connects again.
    pub(crate) fn verdict_at(&self) -> Option<Instant> {
        match self.state {
            PathState::Routing
            | PathState::Announced
            | PathState::Connecting
            | PathState::Retired => None,
            PathState::Open => Some(self.last_heard + self.suspect_after()),
            PathState::Suspect => Some(self.last_heard + self.fail_after()),
            PathState::Failed { retry_at } => retry_at,
        }
    }

    /// Returns the time of the next heartbeat; `None` if the path is not connected.
    pub(crate) fn heartbeat_at(&self) -> Option<Instant> {
        self.state
            .is_connected()
            .then(|| self.last_sent + HEARTBEAT_INTERVAL)
    }

    pub(crate) fn heartbeat_is_due(&self, now: Instant) -> bool {
        self.heartbeat_at()
            .is_some_and(|at| self.echo.is_some() || now >= at)
    }

    /// Returns and clears the peer's timestamp to echo; `None` without one.
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
        // The echo shows nothing about the time after its heartbeat was sent, because the echo may
        // have waited behind data.
        self.control_late = self
            .control_late
            .filter(|late| round_trip.is_none_or(|round_trip| now < *late + round_trip));
        self.min_rtt = self.min_rtt.into_iter().chain(round_trip).min();
        // Each timestamp is echoed at most once. Otherwise the two ends would echo each other's
        // heartbeats endlessly.
        self.echo = (sent_us != 0 && round_trip.is_none())
            .then_some(sent_us)
            .or(self.echo);
    }
}

/// Rate assumed for a path without an estimate, when paths are compared (picked by eye).
pub(crate) const UNKNOWN_RATE: BitRate = BitRate::from_mbit(100);

/// Moving average of a path's delivery rate, measured by acknowledgements.
///
/// A sample is the number of bytes acknowledged in a window of at least [`RateEstimate::WINDOW`]
/// while data is in flight. Each new sample has a weight of one quarter.
#[derive(Debug, Default)]
pub(crate) struct RateEstimate {
    since: Option<Instant>,
    bytes: u64,
    /// Estimated rate; `None` before the first sample.
    pub(crate) rate: Option<BitRate>,
}

impl RateEstimate {
    /// Minimum duration of a sample: about 24 acknowledged chunks at 1 Gbit/s. In shorter samples,
    /// the batching of acknowledgements would dominate.
    pub(crate) const WINDOW: Duration = Duration::from_millis(50);

    pub(crate) fn on_acknowledged(&mut self, bytes: u64, now: Instant) {
        let Some(since) = self.since else {
            // The first acknowledgement starts the window, because the time before it includes the
            // RTT.
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

    /// Discards the current sample because no data is in flight. Idle time would lower the
    /// estimate.
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

    fn path(now: Instant) -> Path {
        Path::new(
            PathPlan::new("eth0".into(), ([10, 0, 0, 1], 7747).into()),
            now,
        )
    }

    fn is_due(path: &Path, now: Instant) -> bool {
        path.verdict_at().is_some_and(|at| now >= at)
    }

    #[test]
    fn a_link_is_verified_if_each_of_its_connections_is() {
        let [yes, no, unknown] = [Some(true), Some(false), None];
        assert_eq!(all_verified(yes, yes), yes);
        assert_eq!(
            [
                all_verified(yes, no),
                all_verified(no, yes),
                all_verified(no, unknown),
                all_verified(unknown, no)
            ],
            [no; 4]
        );
        assert_eq!(
            [all_verified(yes, unknown), all_verified(unknown, yes)],
            [unknown; 2]
        );
    }

    #[test]
    fn silence_makes_a_path_suspect_and_then_ends_it() {
        let start = origin();
        let mut path = path(start);
        assert!(path.on_opened(start));
        assert!(!is_due(&path, start + 499 * MS));
        assert!(is_due(&path, start + 500 * MS));
        assert!(path.on_suspect(start));
        assert!(!is_due(&path, start + 1499 * MS));
        assert!(is_due(&path, start + 1500 * MS));
    }

    #[test]
    fn a_byte_heard_clears_suspicion() {
        let start = origin();
        let mut path = path(start);
        path.on_opened(start);
        path.on_suspect(start);
        assert!(path.on_heard(start + 600 * MS));
        assert_eq!(path.state(), PathState::Open);
        assert!(!is_due(&path, start + 1000 * MS));
    }

    #[test]
    fn a_long_round_trip_is_not_suspicious() {
        let start = origin();
        let mut path = path(start);
        path.on_opened(start);
        path.on_heartbeat(1, Some(300 * MS), start);
        assert!(!is_due(&path, start + 1100 * MS)); // 4 × 300 ms
        assert!(is_due(&path, start + 1200 * MS));
    }

    #[test]
    fn a_planned_end_is_no_failure() {
        let start = origin();
        let mut path = path(start);
        path.on_opened(start);
        assert!(path.on_retired());
        assert_eq!((path.failures, path.state()), (0, PathState::Retired));
        assert!(!path.on_retired());
    }

    #[test]
    fn the_time_between_attempts_doubles_up_to_a_second_and_a_half() {
        let mut start = origin();
        let mut path = path(start);
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
        let mut path = path(start);
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
        let mut path = path(start);
        path.on_opened(start);
        path.on_heartbeat(1, Some(MS), start);
        path.on_heartbeat(1, Some(1400 * MS), start);
        assert_eq!(path.rtt, Some(1400 * MS));
        assert!(is_due(&path, start + 500 * MS));
    }

    #[test]
    fn a_path_that_comes_and_goes_keeps_its_back_off_until_it_has_stayed_up() {
        let mut now = origin();
        let mut path = path(now);
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
        // Pauses since the loss. Each connection lasted 100 ms.
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
        let mut path = path(start);
        assert!(!path.on_suspect(start));
        assert!(!path.on_retry(start));
        assert_eq!(path.state(), PathState::Connecting);
    }

    #[test]
    fn the_rate_is_that_of_acknowledged_bytes() {
        let start = origin();
        let mut rate = RateEstimate::default();
        for i in 0..=100 {
            rate.on_acknowledged(125_000, start + i * MS); // 1 Gbit/s
        }
        let measured = rate.rate.unwrap().0;
        assert!(
            (990_000_000..=1_010_000_000).contains(&measured),
            "{measured}"
        );
    }
}
