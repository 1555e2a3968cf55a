//! Choice of congestion control per connection: the system's default, or bbr if random loss makes
//! bbr faster.
//!
//! Cubic, the usual default, treats each lost packet as a full queue and slows down. A cable that
//! corrupts one packet in 200 keeps it slow permanently. bbr follows rate and round-trip time
//! instead, but is slower than cubic on some loss-free links. So bbr is tried on lossy connections
//! and kept unless it lowers the rate by more than a tenth. Failed trials are repeated later,
//! because one trial may fall into a bad moment: of ten copies over a link that lost one packet in
//! 200, one stayed with cubic and took a fifth longer.

use std::time::{Duration, Instant};

use nicstripe_link::TcpInfo;

/// Selects the congestion control of one connection. Call [`Congestion::on_info`] every
/// [`WINDOW`].
#[derive(Debug)]
pub(super) struct Congestion {
    state: Choice,
    failed_trials: u32,
    /// Start of the current measuring window, with the kernel's counters at that time.
    since: Option<(Instant, TcpInfo)>,
}

/// Change of congestion control to apply to the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// Switch to bbr.
    Try,
    /// Restore the algorithm that was used before bbr.
    Return,
}

#[derive(Debug)]
enum Choice {
    /// No measurement for this number of windows, after a failed trial.
    Resting(u32),
    /// Measurement of the default algorithm: rates of the latest consecutive lossy windows, in
    /// bytes per second.
    Watching(Vec<f64>),
    /// Trial of bbr: remaining windows for it to settle, the rate before the trial, and the rates
    /// measured in it, in bytes per second.
    Trying {
        pausing: u32,
        before: f64,
        rates: Vec<f64>,
    },
    /// Final choice: no further trials.
    Settled,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    /// Rate of acknowledged data, in bytes per second.
    rate: f64,
    /// Ratio of retransmitted to sent bytes.
    loss: f64,
    /// True if the network was the bottleneck for most of the window.
    is_full: bool,
}

impl Congestion {
    pub(super) fn new() -> Self {
        Self {
            state: Choice::Watching(Vec::new()),
            failed_trials: 0,
            since: None,
        }
    }

    /// Evaluates a `tcp_info` reading and returns the change to apply, if any.
    pub(super) fn on_info(&mut self, info: &TcpInfo, now: Instant) -> Option<Advice> {
        let Some((start, before)) = &self.since else {
            self.since = Some((now, info.clone()));
            return None;
        };
        let elapsed = now.saturating_duration_since(*start);
        if elapsed < SHORTEST.max(info.rtt * ROUND_TRIPS) {
            return None;
        }
        let window = Window::between(before, info, elapsed);
        self.since = Some((now, info.clone()));
        self.on_window(&window?)
    }

    /// Returns true if the choice is final and the kernel need not be queried again.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.state, Choice::Settled)
    }

    /// Makes the choice final after the kernel has rejected bbr.
    pub(super) fn on_refused(&mut self) {
        self.state = Choice::Settled;
    }

    fn on_failed_trial(&mut self) {
        let rest = REST << self.failed_trials;
        self.failed_trials += 1;
        self.state = if self.failed_trials < MOST_TRIALS {
            Choice::Resting(rest)
        } else {
            Choice::Settled
        };
    }

    fn on_window(&mut self, window: &Window) -> Option<Advice> {
        match &mut self.state {
            Choice::Resting(0) => self.state = Choice::Watching(Vec::new()),
            Choice::Resting(left) => *left -= 1,
            Choice::Watching(rates) if window.is_full && window.loss >= LOSSY => {
                rates.push(window.rate);
                if rates.len() >= LOSSY_WINDOWS {
                    let before = mean(rates);
                    self.state = Choice::Trying {
                        pausing: PAUSE,
                        before,
                        rates: Vec::new(),
                    };
                    return Some(Advice::Try);
                }
            }
            Choice::Watching(rates) => rates.clear(),
            // A window with too little to send says nothing about bbr.
            Choice::Trying { .. } if !window.is_full => {}
            Choice::Trying { pausing, .. } if *pausing > 0 => *pausing -= 1,
            Choice::Trying { before, rates, .. } => {
                rates.push(window.rate);
                if rates.len() >= TRIED_WINDOWS {
                    if mean(rates) >= *before * GOOD_ENOUGH {
                        self.state = Choice::Settled;
                        return None;
                    }
                    self.on_failed_trial();
                    return Some(Advice::Return);
                }
            }
            Choice::Settled => {}
        }
        None
    }
}

impl Window {
    /// Compares two readings of the kernel's counters, which are cumulative since the start of the
    /// connection. Returns `None` if the kernel does not provide all of them (before 4.19).
    fn between(before: &TcpInfo, after: &TcpInfo, elapsed: Duration) -> Option<Self> {
        let grown = |count: fn(&TcpInfo) -> Option<u64>| -> Option<u64> {
            Some(count(after)?.saturating_sub(count(before)?))
        };
        let held_back = |info: &TcpInfo| {
            info.rwnd_limited.unwrap_or_default() + info.sndbuf_limited.unwrap_or_default()
        };
        let sent = grown(|info| info.bytes_sent)?;
        let busy = after.busy?.saturating_sub(before.busy?);
        Some(Self {
            rate: grown(|info| info.bytes_acked)? as f64 / elapsed.as_secs_f64(),
            loss: grown(|info| info.bytes_retrans)? as f64 / sent.max(1) as f64,
            is_full: sent >= LEAST_SENT
                && busy >= elapsed.mul_f64(FULL)
                && held_back(after).saturating_sub(held_back(before))
                    <= elapsed.mul_f64(1.0 - FULL),
        })
    }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

/// Interval of the readings, and duration of a measuring window at short round trips. Long enough for
/// 20 losses at 0.5 % and 1 Gbit/s; short enough to help a copy that lasts seconds.
pub(super) const WINDOW: Duration = Duration::from_millis(50);

/// Minimum duration of a window, for readings that come late and early.
const SHORTEST: Duration = Duration::from_millis(45);

/// Minimum number of round trips in a window: slow start's losses are retransmitted in one or two,
/// and thus in one window.
const ROUND_TRIPS: u32 = 4;

/// Ratio of retransmitted to sent bytes that indicates random loss, such as from a bad cable. A
/// full queue of 1000 packets at 1 Gbit/s costs cubic one loss in several thousand packets.
const LOSSY: f64 = 0.002;

/// Number of consecutive lossy windows required before a trial, to exclude chance and slow start.
const LOSSY_WINDOWS: usize = 2;

/// Number of windows for bbr to settle: several round trips, and time to drain a queue.
const PAUSE: u32 = 4;

/// Number of windows measured in a trial of bbr.
const TRIED_WINDOWS: usize = 10;

/// Minimum ratio of the rate in a trial to that before it. Two windows before it may be lucky: cubic
/// at 0.5 % loss sends 99 to 117 MB/s in them and slows down later. Of 22 trials with the minimum
/// 1, one failed, and its copy took 7 % longer.
const GOOD_ENOUGH: f64 = 0.9;

/// Number of failed trials after which a connection keeps the default algorithm.
const MOST_TRIALS: u32 = 4;

/// Number of windows ignored after the first failed trial (one second); doubles after each further
/// one.
const REST: u32 = 20;

/// Minimum bytes sent in a window to evaluate its packet loss: 100 packets.
const LEAST_SENT: u64 = 100 * 1448;

/// Minimum fraction of a window in which the network must be the bottleneck. The kernel counts in
/// ticks of up to 10 ms, so a busy window of 50 ms may have 40.
const FULL: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulated connection that produces `tcp_info` readings with a given rate, loss ratio and
    /// busy fraction.
    struct Connection {
        congestion: Congestion,
        now: Instant,
        info: TcpInfo,
    }

    impl Connection {
        fn new() -> Self {
            let info = |zero| {
                let mut info = TcpInfo::default();
                (info.bytes_sent, info.bytes_retrans, info.bytes_acked) =
                    (Some(zero), Some(zero), Some(zero));
                (info.busy, info.rwnd_limited, info.sndbuf_limited) = (
                    Some(Duration::ZERO),
                    Some(Duration::ZERO),
                    Some(Duration::ZERO),
                );
                info
            };
            let mut connection = Self {
                congestion: Congestion::new(),
                now: Instant::now(),
                info: info(0),
            };
            let (info, now) = (&connection.info, connection.now);
            assert_eq!(connection.congestion.on_info(info, now), None);
            connection
        }

        fn send(&mut self, windows: usize, megabytes: u64, loss: f64, busy: f64) -> Vec<Advice> {
            let bytes = megabytes * 50_000;
            let add = |counter: &mut Option<u64>, bytes: u64| {
                *counter = counter.map(|before| before + bytes);
            };
            let mut advice = Vec::new();
            for _ in 0..windows {
                self.now += WINDOW;
                add(&mut self.info.bytes_sent, bytes);
                add(&mut self.info.bytes_acked, bytes);
                add(&mut self.info.bytes_retrans, (bytes as f64 * loss) as u64);
                self.info.busy = self.info.busy.map(|before| before + WINDOW.mul_f64(busy));
                advice.extend(self.congestion.on_info(&self.info, self.now));
            }
            advice
        }
    }

    #[test]
    fn a_clean_connection_is_left_alone() {
        let mut connection = Connection::new();
        assert_eq!(connection.send(1, 100, 0.05, 1.0), [], "slow start");
        assert_eq!(connection.send(100, 117, 0.0005, 1.0), []);
        assert_eq!(connection.send(1, 117, 0.01, 1.0), [], "once is chance");
        assert_eq!(connection.send(10, 117, 0.0, 1.0), []);
    }

    #[test]
    fn slow_start_over_a_long_way_is_no_random_loss() {
        let mut connection = Connection::new();
        connection.info.rtt = WINDOW;
        let windows = ROUND_TRIPS as usize;
        assert_eq!(connection.send(windows, 100, 0.05, 1.0), []);
        assert_eq!(connection.send(windows, 117, 0.0, 1.0), []);
        assert_eq!(connection.send(2 * windows, 80, 0.005, 1.0), [Advice::Try]);
    }

    #[test]
    fn a_lossy_connection_keeps_bbr_where_that_brings_more() {
        let mut connection = Connection::new();
        assert_eq!(connection.send(2, 80, 0.005, 1.0), [Advice::Try]);
        assert_eq!(connection.send(20, 116, 0.005, 1.0), []);
        let mut lucky = Connection::new();
        assert_eq!(lucky.send(2, 117, 0.005, 1.0), [Advice::Try]);
        assert_eq!(lucky.send(20, 112, 0.005, 1.0), []);
    }

    #[test]
    fn a_trial_that_slowed_it_down_is_repeated_later_and_later_and_at_most_three_times() {
        let mut connection = Connection::new();
        let mut pauses = Vec::new();
        let (mut windows, mut rate) = (0, 80);
        for _ in 0..1000 {
            windows += 1;
            match connection.send(1, rate, 0.005, 1.0)[..] {
                [Advice::Try] => {
                    pauses.push(std::mem::take(&mut windows));
                    rate = 60;
                }
                [Advice::Return] => (windows, rate) = (0, 80),
                _ => {}
            }
        }
        assert_eq!(pauses, [2, 23, 43, 83]);
    }

    #[test]
    fn a_trial_ends_where_it_brings_less_and_a_second_one_is_kept_where_it_brings_more() {
        let mut connection = Connection::new();
        assert_eq!(connection.send(2, 80, 0.005, 1.0), [Advice::Try]);
        assert_eq!(
            connection.send(40, 60, 0.005, 1.0),
            [Advice::Return, Advice::Try]
        );
        assert_eq!(connection.send(100, 116, 0.005, 1.0), []);
    }

    #[test]
    fn what_has_little_to_send_is_not_judged() {
        let mut connection = Connection::new();
        assert_eq!(connection.send(20, 80, 0.005, 0.3), []);
        assert_eq!(connection.send(2, 80, 0.005, 1.0), [Advice::Try]);
        assert_eq!(
            connection.send(20, 10, 0.005, 0.3),
            [],
            "its lower rate has another cause"
        );
        assert_eq!(connection.send(4, 90, 0.005, 1.0), []);
    }

    #[test]
    fn what_the_kernel_does_not_count_is_no_reason() {
        let mut congestion = Congestion::new();
        let now = Instant::now();
        for window in 0..10 {
            assert_eq!(
                congestion.on_info(&TcpInfo::default(), now + window * WINDOW),
                None
            );
        }
    }
}
