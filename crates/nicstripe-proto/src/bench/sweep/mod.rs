//! How a rate depends on a size or a number: which points to measure, when to stop, and what follows.
//!
//! A planner is asked [`Planner::next`] for a point, that is measured, [`Planner::record`] or [`Planner::fail`] tells it what came of it,
//! until there is no more; [`Planner::outcome`] can be asked at any time, so that a sweep that is interrupted has one too. The five planners
//! are apart, as they stop by different rules; what they have in common is here.

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

pub use self::{buffer::BufferSweep, grid::GridSweep, message::MessageSweep, mtu::MtuSweep, streams::StreamSweep};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Bytes of a message, a socket buffer or a packet; absent: what the system does by itself.
    pub size: Option<u64>,
    /// Connections a link; absent: as the bench has them.
    pub streams: Option<u32>,
    /// Number of its repeat, from 1.
    pub repeat: u32,
    /// What to load the links with.
    pub load: Load,
    /// Shortest time for which to do it, warm-up not included.
    pub least: Duration,
}

/// How a point is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// So many messages to and fro, one after the other; more if they take less than the point's time.
    PingPong {
        /// How many, at least 3.
        messages: u64,
    },
    /// Messages of that size one way, and an answer to the last.
    Messages,
    /// As much as goes.
    Stream,
}

/// What came of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Goodput one way; of ping-pong, the size over half a round trip.
    pub rate: BitRate,
    /// How long the measurement took, all in all: it counts against the budget.
    pub elapsed: Duration,
    /// Time of one message: half a round trip, or what the delivery took.
    pub time: Option<Duration>,
    /// Processor time of both ends for a gigabit.
    pub cpu_seconds_per_gbit: Option<f64>,
    /// What the kernel gave where it was asked for a size: what `getsockopt` says of a buffer.
    pub got_bytes: Option<u64>,
    /// Jain's index of the connections.
    pub fairness: Option<f64>,
}

/// Why a sweep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It has not.
    Early,
    /// All that was planned was measured.
    Done,
    /// The rate does not rise any more.
    Plateau,
    /// The time was up.
    Budget,
    /// One message takes more than a second.
    SlowMessage,
    /// The system gives no larger buffer.
    Clamped,
    /// Connections do not get equal shares any more.
    Unfair,
    /// Points could not be measured.
    Failed,
}

/// Says why in a few words.
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

/// One point, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct PointResult {
    /// See [`Point::size`].
    pub size: Option<u64>,
    /// See [`Point::streams`].
    pub streams: Option<u32>,
    /// Its repeats.
    pub rate: Spread,
    /// Time of one message, the median.
    pub time: Option<Duration>,
    /// Processor time of both ends for a gigabit, the median.
    pub cpu_seconds_per_gbit: Option<f64>,
    /// What the kernel gave.
    pub got_bytes: Option<u64>,
    /// It is below its neighbours, and was so when it was measured again.
    pub dropout: bool,
    /// It was computed and not measured.
    pub computed: bool,
}

/// What a sweep has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The points, in the order of their sizes; what the system does by itself comes first.
    pub points: Vec<PointResult>,
    /// Where the rate stops to rise: the least size that reaches 98 % of the best. `None` where it still rises at the end.
    pub plateau: Option<u64>,
    /// Bandwidth × delay under load, in bytes, as it was given.
    pub bdp_bytes: Option<u64>,
    /// Half a round trip of messages up to 64 bytes.
    pub latency: Option<Duration>,
    /// The size that reaches half of the greatest rate, n½.
    pub half_size: Option<u64>,
    /// Mean of the best tenth of the points, of a grid.
    pub top_decile: Option<BitRate>,
    /// What follows, in a sentence.
    pub advice: String,
    /// Why it ended.
    pub stopped: Stopped,
}

/// A planner of any kind.
#[derive(Clone, Debug)]
pub enum Planner {
    /// Of messages.
    Message(MessageSweep),
    /// Of socket buffers.
    Buffer(BufferSweep),
    /// Of connections a link.
    Streams(StreamSweep),
    /// Of buffers × connections.
    Grid(GridSweep),
    /// Of packets.
    Mtu(MtuSweep),
}

impl Planner {
    /// Returns the next point to measure; the same until something is recorded, `None` when the sweep has ended.
    pub fn next(&self) -> Option<Point> {
        match self {
            Planner::Message(sweep) => sweep.next(),
            Planner::Buffer(sweep) => sweep.next(),
            Planner::Streams(sweep) => sweep.next(),
            Planner::Grid(sweep) => sweep.next(),
            Planner::Mtu(sweep) => sweep.next(),
        }
    }

    /// Takes what came of the point that [`Planner::next`] gave.
    pub fn record(&mut self, point: &Point, measured: Measured) {
        match self {
            Planner::Message(sweep) => sweep.record(point, measured),
            Planner::Buffer(sweep) => sweep.record(point, measured),
            Planner::Streams(sweep) => sweep.record(point, measured),
            Planner::Grid(sweep) => sweep.record(point, measured),
            Planner::Mtu(sweep) => sweep.record(point, measured),
        }
    }

    /// Takes note that this point cannot be measured: it is left out, or the sweep ends with what it has.
    pub fn fail(&mut self, point: &Point) {
        match self {
            Planner::Message(sweep) => sweep.fail(point),
            Planner::Buffer(sweep) => sweep.fail(point),
            Planner::Streams(sweep) => sweep.fail(point),
            Planner::Grid(sweep) => sweep.fail(point),
            Planner::Mtu(sweep) => sweep.fail(point),
        }
    }

    /// Returns what was found so far.
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

/// A size, or none; a number of connections, or none.
type Key = (Option<u64>, Option<u32>);

/// What was measured of one point so far.
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
        self.times.extend(measured.time.map(|time| time.as_secs_f64()));
        self.cpu.extend(measured.cpu_seconds_per_gbit);
        self.fairness.extend(measured.fairness);
        self.got_bytes = measured.got_bytes.or(self.got_bytes);
    }

    fn count(&self) -> usize {
        self.rates.len()
    }

    /// 0 where nothing was measured.
    fn median(&self) -> f64 {
        median(&as_values(&self.rates)).unwrap_or_default()
    }

    /// What the greatest and the least differ by, as a part of the median.
    fn extent(&self) -> f64 {
        let rates = || self.rates.iter().map(|rate| rate.0 as f64);
        (rates().fold(0.0, f64::max) - rates().fold(f64::INFINITY, f64::min)) / self.median().max(1.0)
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

/// What was measured of all points so far, in the order in which they came.
#[derive(Clone, Debug, Default)]
struct Table(Vec<Trials>);

impl Table {
    fn add(&mut self, key: Key, measured: Measured) {
        match self.0.iter_mut().find(|trials| trials.key == key) {
            Some(trials) => trials.add(measured),
            None => {
                let mut trials = Trials { key, ..Trials::default() };
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

    /// 0 where nothing was measured.
    fn median(&self, key: Key) -> f64 {
        self.of(key).map_or(0.0, Trials::median)
    }

    fn results(&self) -> Vec<PointResult> {
        let mut results: Vec<PointResult> = self.0.iter().filter_map(Trials::result).collect();
        results.sort_by_key(|point| (point.size, point.streams));
        results
    }
}

/// Returns the place of the least value that reaches 98 % of the best; `None` where nothing was reached.
fn plateau(rates: &[f64]) -> Option<usize> {
    let best = rates.iter().copied().fold(0.0, f64::max);
    rates.iter().position(|rate| best > 0.0 && *rate >= PLATEAU * best)
}

/// The outcome of nothing but points, to be completed.
fn outcome_of(points: Vec<PointResult>, stopped: Stopped) -> Outcome {
    Outcome { points, plateau: None, bdp_bytes: None, latency: None, half_size: None, top_decile: None, advice: String::new(), stopped }
}

/// Prints bytes for people: `64 KiB`, `1449 bytes`.
fn sized(bytes: u64) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        1 => "1 byte".into(),
        _ => format!("{bytes} bytes"),
    }
}

/// Where a rate stops to rise, as a part of the best.
const PLATEAU: f64 = 0.98;
/// Repeats of a point: the fewest that have a middle.
const TRIALS: usize = 3;
/// Time of one repeat of a point that is measured by a load.
const LOAD_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
