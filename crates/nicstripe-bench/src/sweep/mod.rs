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
    /// Number of messages back and forth, each after the answer to the previous one, at least 3;
    /// more are sent if the minimum duration has not passed. `None` for a load in one direction.
    pub(crate) echoes: Option<u64>,
    /// Minimum duration of the measurement, without warm-up.
    pub(crate) least: Duration,
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

/// Planner of a sweep, by the varied parameter.
pub(crate) trait Planner: fmt::Debug + Send + Sync {
    /// Returns the next point to measure; `None` at the end. Repeated calls return the same point
    /// until its result is recorded.
    fn next(&self) -> Option<Point>;

    /// Records the result of the point that [`Planner::next`] returned.
    fn record(&mut self, point: &Point, measured: Measured);

    /// Records that the point of [`Planner::next`] cannot be measured. Skips it or ends the sweep.
    fn fail(&mut self, point: &Point);

    /// Returns the reason why the sweep ended.
    fn stopped(&self) -> Stopped;

    /// Returns the result of the sweep so far: points in ascending order of size, preceded by the
    /// system's default.
    fn outcome(&self) -> Sweep;
}

/// Size and number of connections of a point.
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
    fn of(key: Key) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

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
        self.entry(key).add(measured);
    }

    /// Returns the trials of a point, which are new if it was not measured yet.
    fn entry(&mut self, key: Key) -> &mut Trials {
        let found = self.0.iter().position(|trials| trials.key == key);
        let index = found.unwrap_or(self.0.len());
        if found.is_none() {
            self.0.push(Trials::of(key));
        }
        &mut self.0[index]
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

    /// Returns the next repeat of a point under a continuous load.
    fn point(&self, (size, streams): Key) -> Point {
        Point {
            size,
            streams,
            repeat: self.count((size, streams)) as u32 + 1,
            echoes: None,
            least: LOAD_TIME,
        }
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
    /// Returns the report section of a sweep over all links, without conclusions.
    fn of(kind: SweepKind, points: Vec<SweepPoint>, stopped: Stopped) -> Self {
        Self {
            kind,
            points,
            stopped: stopped.to_string(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
