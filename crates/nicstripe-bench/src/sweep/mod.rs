//! Sweeps that vary a size or a number of connections: points to measure, stop conditions, results.
//!
//! [`Planner::next`] returns a point to measure, and [`Planner::record`] or [`Planner::fail`] takes
//! its result, until no point is left. [`Planner::outcome`] is available at any time. The five
//! planners stop by different rules; this module has their common parts.

use std::{fmt, time::Duration};

use nicstripe_proto::BitRate;

use crate::{
    report::{Spread, Sweep, SweepKind, SweepPoint},
    statistics::{as_values, median},
};

mod buffer;
mod grid;
mod message;
mod mtu;
mod streams;

pub(crate) use self::{
    buffer::BufferSweep, grid::GridSweep, message::MessageSweep, mtu::MtuSweep,
    streams::StreamSweep,
};

/// Measurement that the caller must perform next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Size in bytes of a message, a socket buffer or a packet, depending on the sweep; `None` for
    /// the system's default.
    pub(crate) size: Option<u64>,
    /// Number of connections per link; `None` for the bench's default.
    pub(crate) streams: Option<u32>,
    /// Index of the repeat of this point, from 1.
    pub(crate) repeat: u32,
    /// Kind of load to apply.
    pub(crate) load: Load,
    /// Minimum duration of the measurement, without warm-up.
    pub(crate) least: Duration,
}

/// Kind of load at a point of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Messages back and forth, each after the answer to the previous one.
    PingPong {
        /// Number of messages, at least 3. More are sent if the point's minimum duration has not
        /// passed.
        messages: u64,
    },
    /// Messages of the point's size in one direction, and an answer to the last.
    Messages,
    /// Continuous stream in one direction.
    Stream,
}

/// Result of one measurement of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// Goodput in one direction; for ping-pong, the message size divided by half the RTT.
    pub(crate) rate: BitRate,
    /// Total duration of the measurement, which counts against the time budget.
    pub(crate) elapsed: Duration,
    /// Time per message: half the RTT of a ping-pong, or the time to deliver it.
    pub(crate) time: Option<Duration>,
    /// CPU time of both ends in seconds per gigabit.
    pub(crate) cpu_seconds_per_gbit: Option<f64>,
    /// Buffer size in bytes that the kernel granted for a requested one, as reported by
    /// `getsockopt`.
    pub(crate) got_bytes: Option<u64>,
    /// Jain's fairness index of the connections' rates.
    pub(crate) fairness: Option<f64>,
}

/// Reason why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The sweep has not ended.
    Early,
    /// All planned points were measured.
    Done,
    /// The rate has stopped rising.
    Plateau,
    /// The time budget is spent.
    Budget,
    /// One message takes more than a second.
    SlowMessage,
    /// The kernel grants no larger buffer.
    Clamped,
    /// The connections no longer get equal rates.
    Unfair,
    /// A point could not be measured.
    Failed,
}

/// Formats the reason as a clause.
impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stopped::Early => "interrupted",
            Stopped::Done => "all points were measured",
            Stopped::Plateau => "the rate does not rise any more",
            Stopped::Budget => "the time was up",
            Stopped::SlowMessage => "one message takes more than a second",
            Stopped::Clamped => "the system gives no larger buffer",
            Stopped::Unfair => "the connections do not get equal shares any more",
            Stopped::Failed => "points could not be measured",
        })
    }
}

/// Result of a sweep so far.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Points in ascending order of size, preceded by the system's default.
    pub(crate) points: Vec<SweepPoint>,
    /// Smallest size in bytes that reaches 98 % of the best rate; for connections, their number.
    /// `None` if the rate still rises at the end.
    pub(crate) plateau: Option<u64>,
    /// Bandwidth-delay product under load in bytes, as passed to the sweep.
    pub(crate) bdp_bytes: Option<u64>,
    /// Median time of messages up to 64 bytes: half the RTT.
    pub(crate) latency: Option<Duration>,
    /// Message size in bytes that reaches half of the maximum rate (n½).
    pub(crate) half_size: Option<u64>,
    /// Mean rate of the fastest tenth of a grid's points.
    pub(crate) top_decile: Option<BitRate>,
    /// Recommendation in one sentence.
    pub(crate) advice: String,
    /// Reason why the sweep ended.
    pub(crate) stopped: Stopped,
}

/// Planner of a sweep, by the varied parameter.
#[derive(Clone, Debug)]
pub(crate) enum Planner {
    Message(MessageSweep),
    Buffer(BufferSweep),
    Streams(StreamSweep),
    Grid(GridSweep),
    Mtu(MtuSweep),
}

impl Planner {
    /// Returns the next point to measure; `None` at the end. Repeated calls return the same point
    /// until its result is recorded.
    pub(crate) fn next(&self) -> Option<Point> {
        match self {
            Planner::Message(sweep) => sweep.next(),
            Planner::Buffer(sweep) => sweep.next(),
            Planner::Streams(sweep) => sweep.next(),
            Planner::Grid(sweep) => sweep.next(),
            Planner::Mtu(sweep) => sweep.next(),
        }
    }

    /// Records the result of the point that [`Planner::next`] returned.
    pub(crate) fn record(&mut self, point: &Point, measured: Measured) {
        match self {
            Planner::Message(sweep) => sweep.record(point, measured),
            Planner::Buffer(sweep) => sweep.record(point, measured),
            Planner::Streams(sweep) => sweep.record(point, measured),
            Planner::Grid(sweep) => sweep.record(point, measured),
            Planner::Mtu(sweep) => sweep.record(point, measured),
        }
    }

    /// Records that the point of [`Planner::next`] cannot be measured. Skips it or ends the sweep.
    pub(crate) fn fail(&mut self, point: &Point) {
        match self {
            Planner::Message(sweep) => sweep.fail(point),
            Planner::Buffer(sweep) => sweep.fail(point),
            Planner::Streams(sweep) => sweep.fail(point),
            Planner::Grid(sweep) => sweep.fail(point),
            Planner::Mtu(sweep) => sweep.fail(point),
        }
    }

    /// Returns the result of the sweep so far.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Planner::Message(sweep) => sweep.outcome(),
            Planner::Buffer(sweep) => sweep.outcome(),
            Planner::Streams(sweep) => sweep.outcome(),
            Planner::Grid(sweep) => sweep.outcome(),
            Planner::Mtu(sweep) => sweep.outcome(),
        }
    }
}

type Key = (Option<u64>, Option<u32>);

/// Repeats of one point so far.
#[derive(Clone, Debug, Default)]
struct Trials {
    key: Key,
    rates: Vec<BitRate>,
    times: Vec<f64>,
    cpu: Vec<f64>,
    fairness: Vec<f64>,
    got_bytes: Option<u64>,
    dropout: bool,
}

impl Trials {
    fn add(&mut self, measured: Measured) {
        self.rates.push(measured.rate);
        self.times
            .extend(measured.time.map(|time| time.as_secs_f64()));
        self.cpu.extend(measured.cpu_seconds_per_gbit);
        self.fairness.extend(measured.fairness);
        self.got_bytes = measured.got_bytes.or(self.got_bytes);
    }

    fn count(&self) -> usize {
        self.rates.len()
    }

    /// Returns the median rate in bits per second; 0 without repeats.
    fn median(&self) -> f64 {
        median(&as_values(&self.rates)).unwrap_or_default()
    }

    /// Returns the range of the rates (maximum − minimum) as a share of their median.
    fn extent(&self) -> f64 {
        let rates = || self.rates.iter().map(|rate| rate.0 as f64);
        (rates().fold(0.0, f64::max) - rates().fold(f64::INFINITY, f64::min))
            / self.median().max(1.0)
    }

    fn time(&self) -> Option<Duration> {
        median(&self.times).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    fn result(&self) -> Option<SweepPoint> {
        Some(SweepPoint {
            size: self.key.0,
            streams: self.key.1,
            rate: Spread::of(&self.rates)?,
            time_us: self.time().map(|time| time.as_secs_f64() * 1e6),
            cpu_s_per_gbit: median(&self.cpu),
            got_bytes: self.got_bytes,
            dropout: self.dropout,
            computed: false,
        })
    }
}

/// Repeats of all points so far, in the order of their first measurement.
#[derive(Clone, Debug, Default)]
struct Table(Vec<Trials>);

impl Table {
    fn add(&mut self, key: Key, measured: Measured) {
        match self.0.iter_mut().find(|trials| trials.key == key) {
            Some(trials) => trials.add(measured),
            None => {
                let mut trials = Trials {
                    key,
                    ..Trials::default()
                };
                trials.add(measured);
                self.0.push(trials);
            }
        }
    }

    fn of(&self, key: Key) -> Option<&Trials> {
        self.0.iter().find(|trials| trials.key == key)
    }

    fn count(&self, key: Key) -> usize {
        self.of(key).map_or(0, Trials::count)
    }

    /// Returns the median rate of a point in bits per second; 0 without repeats.
    fn median(&self, key: Key) -> f64 {
        self.of(key).map_or(0.0, Trials::median)
    }

    fn results(&self) -> Vec<SweepPoint> {
        let mut results: Vec<SweepPoint> = self.0.iter().filter_map(Trials::result).collect();
        results.sort_by_key(|point| (point.size, point.streams));
        results
    }
}

/// Returns the index of the first rate that reaches 98 % of the maximum; `None` if all are 0.
fn plateau(rates: &[f64]) -> Option<usize> {
    let best = rates.iter().copied().fold(0.0, f64::max);
    rates
        .iter()
        .position(|rate| best > 0.0 && *rate >= PLATEAU * best)
}

fn outcome_of(points: Vec<SweepPoint>, stopped: Stopped) -> Outcome {
    Outcome {
        points,
        plateau: None,
        bdp_bytes: None,
        latency: None,
        half_size: None,
        top_decile: None,
        advice: String::new(),
        stopped,
    }
}

/// Formats a size in bytes as `2 MiB`, `64 KiB` or `1449 bytes`.
fn sized(bytes: u64) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        1 => "1 byte".into(),
        _ => format!("{bytes} bytes"),
    }
}

/// Minimum share of the maximum rate at which a point belongs to the plateau.
const PLATEAU: f64 = 0.98;
/// Number of repeats of a point: the smallest number with a middle value.
const TRIALS: usize = 3;
/// Duration of one repeat of a point with continuous load.
const LOAD_TIME: Duration = Duration::from_secs(2);

impl Sweep {
    /// Returns the report section of a sweep over this link, or over all links if `None`.
    pub(crate) fn of(kind: SweepKind, link: Option<u32>, outcome: Outcome) -> Sweep {
        Sweep {
            kind,
            link,
            points: outcome.points,
            plateau: outcome.plateau,
            bdp_bytes: outcome.bdp_bytes,
            latency_us: outcome.latency.map(|time| time.as_secs_f64() * 1e6),
            half_size_bytes: outcome.half_size,
            top_decile_bps: outcome.top_decile.map(|rate| rate.0),
            advice: outcome.advice,
            stopped: outcome.stopped.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
