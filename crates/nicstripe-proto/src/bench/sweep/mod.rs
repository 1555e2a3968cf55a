//! Sweeps of a rate over a size or a number: points to measure, stop conditions, results.
//!
//! [`Planner::next`] returns a point to measure, and [`Planner::record`] or [`Planner::fail`] takes
//! its result, until none is left. [`Planner::outcome`] is available at any time. The five planners
//! stop by different rules; this module holds their common parts.

use std::{fmt, time::Duration};

use crate::{
    bench::statistics::{Spread, as_values, median},
    units::BitRate,
};

mod buffer;
mod grid;
mod message;
mod mtu;
mod streams;

pub use self::{
    buffer::BufferSweep, grid::GridSweep, message::MessageSweep, mtu::MtuSweep,
    streams::StreamSweep,
};

/// A point to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Bytes of a message, a socket buffer or a packet; `None` for the system's default.
    pub size: Option<u64>,
    /// Connections per link; `None` for the bench's default.
    pub streams: Option<u32>,
    /// Number of its repeat, from 1.
    pub repeat: u32,
    /// Kind of load.
    pub load: Load,
    /// Shortest duration, without warm-up.
    pub least: Duration,
}

/// Kind of load for a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Messages to and fro, one after the other; more than `messages` to fill the point's time.
    PingPong {
        /// Number of messages, at least 3.
        messages: u64,
    },
    /// Messages of that size in one direction, and an answer to the last.
    Messages,
    /// As much data as possible.
    Stream,
}

/// Result of one measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Goodput in one direction; for ping-pong, the size over half a round trip.
    pub rate: BitRate,
    /// Total duration of the measurement: it counts against the budget.
    pub elapsed: Duration,
    /// Time of one message: half a round trip, or the time to deliver it.
    pub time: Option<Duration>,
    /// Processor seconds of both ends per gigabit.
    pub cpu_seconds_per_gbit: Option<f64>,
    /// Buffer size that the kernel granted for a requested one, as `getsockopt` reports it.
    pub got_bytes: Option<u64>,
    /// Jain's index of the connections.
    pub fairness: Option<f64>,
}

/// Reason for which a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It has not ended.
    Early,
    /// All planned points were measured.
    Done,
    /// The rate has stopped rising.
    Plateau,
    /// The time budget is spent.
    Budget,
    /// One message takes more than a second.
    SlowMessage,
    /// The system grants no larger buffer.
    Clamped,
    /// Connections no longer get equal shares.
    Unfair,
    /// Points could not be measured.
    Failed,
}

/// Short text for each reason.
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

/// Result of one point.
#[derive(Clone, Debug, PartialEq)]
pub struct PointResult {
    /// See [`Point::size`].
    pub size: Option<u64>,
    /// See [`Point::streams`].
    pub streams: Option<u32>,
    /// Summary of its repeats.
    pub rate: Spread,
    /// Time of one message, the median.
    pub time: Option<Duration>,
    /// Processor seconds of both ends per gigabit, the median.
    pub cpu_seconds_per_gbit: Option<f64>,
    /// Buffer size that the kernel granted.
    pub got_bytes: Option<u64>,
    /// True if it is below its neighbours, confirmed by further measurements.
    pub dropout: bool,
    /// True if it was computed and not measured.
    pub computed: bool,
}

/// Result of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The points in ascending order of size; the system's default comes first.
    pub points: Vec<PointResult>,
    /// Smallest size that reaches 98 % of the best rate. `None` if the rate still rises at the end.
    pub plateau: Option<u64>,
    /// Bandwidth × delay under load in bytes, as given.
    pub bdp_bytes: Option<u64>,
    /// Half a round trip of messages up to 64 bytes.
    pub latency: Option<Duration>,
    /// Size that reaches half of the greatest rate, n½.
    pub half_size: Option<u64>,
    /// Mean of the best tenth of a grid's points.
    pub top_decile: Option<BitRate>,
    /// Conclusion in one sentence.
    pub advice: String,
    /// Reason for which it ended.
    pub stopped: Stopped,
}

/// A planner of any kind.
#[derive(Clone, Debug)]
pub enum Planner {
    /// Message sizes.
    Message(MessageSweep),
    /// Socket buffers.
    Buffer(BufferSweep),
    /// Connections per link.
    Streams(StreamSweep),
    /// Socket buffers × connections.
    Grid(GridSweep),
    /// Packet sizes.
    Mtu(MtuSweep),
}

impl Planner {
    /// Returns the next point to measure; unchanged until a result is recorded, `None` after the
    /// end.
    pub fn next(&self) -> Option<Point> {
        match self {
            Planner::Message(sweep) => sweep.next(),
            Planner::Buffer(sweep) => sweep.next(),
            Planner::Streams(sweep) => sweep.next(),
            Planner::Grid(sweep) => sweep.next(),
            Planner::Mtu(sweep) => sweep.next(),
        }
    }

    /// Records the result of the point that [`Planner::next`] returned.
    pub fn record(&mut self, point: &Point, measured: Measured) {
        match self {
            Planner::Message(sweep) => sweep.record(point, measured),
            Planner::Buffer(sweep) => sweep.record(point, measured),
            Planner::Streams(sweep) => sweep.record(point, measured),
            Planner::Grid(sweep) => sweep.record(point, measured),
            Planner::Mtu(sweep) => sweep.record(point, measured),
        }
    }

    /// Records that this point cannot be measured: it is skipped, or ends the sweep.
    pub fn fail(&mut self, point: &Point) {
        match self {
            Planner::Message(sweep) => sweep.fail(point),
            Planner::Buffer(sweep) => sweep.fail(point),
            Planner::Streams(sweep) => sweep.fail(point),
            Planner::Grid(sweep) => sweep.fail(point),
            Planner::Mtu(sweep) => sweep.fail(point),
        }
    }

    /// Returns the result so far.
    pub fn outcome(&self) -> Outcome {
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

    /// Returns the median rate; 0 without repeats.
    fn median(&self) -> f64 {
        median(&as_values(&self.rates)).unwrap_or_default()
    }

    /// Returns the difference of greatest and least, as a share of the median.
    fn extent(&self) -> f64 {
        let rates = || self.rates.iter().map(|rate| rate.0 as f64);
        (rates().fold(0.0, f64::max) - rates().fold(f64::INFINITY, f64::min))
            / self.median().max(1.0)
    }

    fn time(&self) -> Option<Duration> {
        median(&self.times).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    fn result(&self) -> Option<PointResult> {
        Some(PointResult {
            size: self.key.0,
            streams: self.key.1,
            rate: Spread::of(&self.rates)?,
            time: self.time(),
            cpu_seconds_per_gbit: median(&self.cpu),
            got_bytes: self.got_bytes,
            dropout: self.dropout,
            computed: false,
        })
    }
}

/// Results of all points so far, in the order of measurement.
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

    /// Returns the median rate of a point; 0 without repeats.
    fn median(&self, key: Key) -> f64 {
        self.of(key).map_or(0.0, Trials::median)
    }

    fn results(&self) -> Vec<PointResult> {
        let mut results: Vec<PointResult> = self.0.iter().filter_map(Trials::result).collect();
        results.sort_by_key(|point| (point.size, point.streams));
        results
    }
}

/// Returns the index of the first value that reaches 98 % of the best; `None` if all are 0.
fn plateau(rates: &[f64]) -> Option<usize> {
    let best = rates.iter().copied().fold(0.0, f64::max);
    rates
        .iter()
        .position(|rate| best > 0.0 && *rate >= PLATEAU * best)
}

fn outcome_of(points: Vec<PointResult>, stopped: Stopped) -> Outcome {
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

/// Formats a size for display: `64 KiB`, `1449 bytes`.
fn sized(bytes: u64) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        1 => "1 byte".into(),
        _ => format!("{bytes} bytes"),
    }
}

/// Share of the best rate at which the plateau begins.
const PLATEAU: f64 = 0.98;
/// Repeats of a point: the smallest number with a middle value.
const TRIALS: usize = 3;
/// Duration of one repeat of a point under load.
const LOAD_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
