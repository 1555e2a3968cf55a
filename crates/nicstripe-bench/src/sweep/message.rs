//! Sweep of message sizes after NetPIPE (Snell, Mikler and Gustafson, "NetPIPE: a network protocol
//! independent performance evaluator", 1996). Sizes are powers of two, and the neighbors of packet
//! and buffer boundaries.

use std::time::Duration;

use super::{Measured, Planner, Point, Stopped, TRIALS, Table, Trials, plateau, sized};
use nicstripe_proto::BitRate;

use crate::{
    report::{Sweep, SweepKind},
    statistics::median,
};

/// Planner that varies the message size from 1 byte to 64 MiB: ping-pong up to 64 KiB, one
/// direction above.
///
/// Sizes ascend, with three measurements each. The sweep stops after three doublings that change
/// the median by less than 1 %, at 95 % of the streaming rate. It also stops if a message takes
/// more than a second, or when the time budget is spent. Points below 90 % of their neighbors are
/// then measured again, at most twice, before they count as dropouts.
#[derive(Clone, Debug)]
pub(crate) struct MessageSweep {
    sizes: Vec<u64>,
    streaming: Option<BitRate>,
    budget: Duration,
    spent: Duration,
    table: Table,
    state: MessageStep,
    stopped: Stopped,
}

#[derive(Clone, Debug)]
enum MessageStep {
    /// Measures the size with this index. The next state is `Again`.
    Upwards(usize),
    /// Measures possible dropouts again, beginning with the first. The next state is `Ended`.
    Again(Vec<Suspect>),
    Ended,
}

/// Point that may be a dropout.
#[derive(Clone, Debug)]
struct Suspect {
    size: u64,
    /// Number of complete sets of repeats that confirmed the low rate.
    confirmed: u32,
    trials: Trials,
}

impl MessageSweep {
    /// Creates a sweep over a link with this payload per segment (1448 bytes if unknown) and
    /// streaming rate. No larger size begins after the time `budget` is spent.
    pub(crate) fn new(
        segment_bytes: Option<u64>,
        streaming: Option<BitRate>,
        budget: Duration,
    ) -> MessageSweep {
        MessageSweep {
            sizes: sizes(segment_bytes.unwrap_or(USUAL_SEGMENT)),
            streaming,
            budget,
            spent: Duration::ZERO,
            table: Table::default(),
            state: MessageStep::Upwards(0),
            stopped: Stopped::Early,
        }
    }

    /// Returns the number of messages that one repeat sends, estimated from the time per message of
    /// the previous size.
    fn messages(&self) -> u64 {
        let last = self
            .table
            .0
            .last()
            .and_then(Trials::time)
            .filter(|time| !time.is_zero());
        let round_trips = last.map_or(FIRST_MESSAGES, |time| {
            (TRIAL_TIME.as_nanos() / (2 * time.as_nanos()).max(1)) as u64
        });
        round_trips.clamp(TRIALS as u64, MOST_MESSAGES)
    }

    fn after_trial(&mut self, size: u64, measured: Measured) {
        if measured.time.is_some_and(|time| time > SLOW_MESSAGE) {
            return self.retry_suspects(Stopped::SlowMessage);
        }
        if self.table.count((Some(size), None)) < TRIALS {
            return;
        }
        if size.is_power_of_two() && self.is_flat() {
            return self.retry_suspects(Stopped::Plateau);
        }
        if self.spent >= self.budget {
            return self.retry_suspects(Stopped::Budget);
        }
        match &mut self.state {
            MessageStep::Upwards(index) if *index + 1 < self.sizes.len() => *index += 1,
            _ => self.retry_suspects(Stopped::Done),
        }
    }

    /// Returns true if the last three doublings changed the rate by less than 1 % each, at 95 % of
    /// the streaming rate.
    fn is_flat(&self) -> bool {
        let doublings: Vec<f64> = self
            .curve()
            .into_iter()
            .filter(|(size, _)| size.is_power_of_two())
            .map(|(_, rate)| rate)
            .collect();
        let Some(from) = doublings.len().checked_sub(FLAT_DOUBLINGS + 1) else {
            return false;
        };
        let best = doublings.iter().copied().fold(0.0, f64::max);
        let streaming = self.streaming.map_or(best, |rate| rate.0 as f64);
        let last = &doublings[from..];
        let is_still = last
            .windows(2)
            .all(|pair| (pair[1] - pair[0]).abs() < FLAT_CHANGE * pair[0]);
        is_still && last[FLAT_DOUBLINGS] >= FLAT_RATE * streaming
    }

    /// Ends the ascent in state `Upwards`. Next state: `Again`, or `Ended` if there are no possible
    /// dropouts.
    fn retry_suspects(&mut self, stopped: Stopped) {
        self.stopped = stopped;
        let suspects = dropouts(&self.curve()).into_iter().take(MOST_SUSPECTS);
        self.state = MessageStep::Again(
            suspects
                .map(|size| Suspect {
                    size,
                    confirmed: 0,
                    trials: Trials::of((Some(size), None)),
                })
                .collect(),
        );
        self.end_if_done();
    }

    /// Evaluates a possible dropout after a repeat: a complete set of repeats refutes or confirms
    /// it.
    fn after_repeat(&mut self) {
        let mut curve = self.curve();
        let MessageStep::Again(suspects) = &mut self.state else {
            return;
        };
        let Some(suspect) = suspects
            .first_mut()
            .filter(|suspect| suspect.trials.count() >= TRIALS)
        else {
            return;
        };
        let set = std::mem::replace(&mut suspect.trials, Trials::of((Some(suspect.size), None)));
        if let Some((_, rate)) = curve.iter_mut().find(|(size, _)| *size == suspect.size) {
            *rate = set.median();
        }
        let is_low = dropouts(&curve).contains(&suspect.size);
        suspect.confirmed += u32::from(is_low);
        if is_low && suspect.confirmed < CONFIRMATIONS {
            return;
        }
        let size = suspects.remove(0).size;
        let trials = self.table.entry((Some(size), None));
        match is_low {
            true => trials.dropout = true,
            // The first measurement was disturbed, so the new one replaces it.
            false => *trials = set,
        }
        self.end_if_done();
    }

    fn end_if_done(&mut self) {
        if matches!(&self.state, MessageStep::Again(suspects) if suspects.is_empty()) {
            self.state = MessageStep::Ended;
        }
    }

    /// Returns all sizes with their median rates in bits per second, in ascending order of size.
    fn curve(&self) -> Vec<(u64, f64)> {
        let mut curve: Vec<(u64, f64)> = self
            .table
            .0
            .iter()
            .filter_map(|trials| Some((trials.key.0?, trials.median())))
            .collect();
        curve.sort_by_key(|(size, _)| *size);
        curve
    }

    fn is_dropout(&self, size: u64) -> bool {
        self.table
            .of((Some(size), None))
            .is_some_and(|trials| trials.dropout)
    }
}

impl Planner for MessageSweep {
    fn next(&self) -> Option<Point> {
        let (size, repeat) = match &self.state {
            MessageStep::Upwards(index) => {
                let size = *self.sizes.get(*index)?;
                (size, self.table.count((Some(size), None)))
            }
            MessageStep::Again(suspects) => suspects
                .first()
                .map(|suspect| (suspect.size, suspect.trials.count()))?,
            MessageStep::Ended => return None,
        };
        Some(Point {
            size: Some(size),
            streams: None,
            repeat: repeat as u32 + 1,
            echoes: (size <= LARGEST_PING).then(|| self.messages()),
            least: TRIAL_TIME,
        })
    }

    fn record(&mut self, point: &Point, measured: Measured) {
        let Some(size) = point.size else { return };
        self.spent = self.spent.saturating_add(measured.elapsed);
        match &mut self.state {
            MessageStep::Upwards(index) if self.sizes.get(*index) == Some(&size) => {
                self.table.add((Some(size), None), measured);
                self.after_trial(size, measured);
            }
            MessageStep::Again(suspects)
                if suspects.first().is_some_and(|suspect| suspect.size == size) =>
            {
                suspects[0].trials.add(measured);
                self.after_repeat();
            }
            _ => {}
        }
    }

    /// Ends the ascent, as larger messages would fail as well, or skips a possible dropout.
    fn fail(&mut self, _point: &Point) {
        match &mut self.state {
            MessageStep::Upwards(_) => self.retry_suspects(Stopped::Failed),
            MessageStep::Again(suspects) => {
                suspects.remove(0);
                self.end_if_done();
            }
            MessageStep::Ended => {}
        }
    }

    fn stopped(&self) -> Stopped {
        self.stopped
    }

    fn outcome(&self) -> Sweep {
        let points = self.table.results();
        let good: Vec<(u64, f64)> = self
            .curve()
            .into_iter()
            .filter(|(size, _)| !self.is_dropout(*size))
            .collect();
        let rates: Vec<f64> = good.iter().map(|(_, rate)| *rate).collect();
        let short = points
            .iter()
            .filter(|point| point.size.is_some_and(|size| size <= SHORT));
        let times: Vec<f64> = short.filter_map(|point| point.time_us).collect();
        let is_flat = matches!(self.stopped, Stopped::Plateau | Stopped::Done);
        let mut outcome = Sweep::of(SweepKind::Message, points, self.stopped);
        outcome.plateau = plateau(&rates)
            .filter(|_| is_flat)
            .and_then(|index| good.get(index))
            .map(|(size, _)| *size);
        outcome.half_size_bytes = half_size(&good);
        outcome.latency_us = median(&times);
        outcome.advice = advice(&outcome);
        outcome
    }
}

/// Returns the message sizes: powers of two, and the neighbors of segment boundaries and of the
/// largest ping-pong message.
fn sizes(segment: u64) -> Vec<u64> {
    let powers = (0..=LARGEST_SIZE.trailing_zeros()).map(|power| 1 << power);
    let beside = |size: u64| [size.saturating_sub(1), size, size.saturating_add(1)];
    let edges = [1, 2, 4]
        .into_iter()
        .map(|count: u64| count.saturating_mul(segment))
        .chain([LARGEST_PING]);
    let mut sizes: Vec<u64> = powers
        .chain(edges.flat_map(beside))
        .filter(|size| (1..=LARGEST_SIZE).contains(size))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns the sizes whose rate is below 90 % of an earlier and of a later size: dropouts, after
/// which the rate recovers.
fn dropouts(curve: &[(u64, f64)]) -> Vec<u64> {
    let mut found = Vec::new();
    let mut good = 0.0;
    for (index, (size, rate)) in curve.iter().enumerate() {
        let comes_back = curve[index + 1..]
            .iter()
            .any(|(_, later)| *rate < DROPOUT * later && *later >= DROPOUT * good);
        if *rate < DROPOUT * good && comes_back {
            found.push(*size);
        } else {
            good = *rate;
        }
    }
    found
}

/// Returns the size at which the rate first reaches half of its maximum, interpolated linearly by
/// rate.
fn half_size(curve: &[(u64, f64)]) -> Option<u64> {
    let half = curve.iter().map(|(_, rate)| *rate).fold(0.0, f64::max) / 2.0;
    let index = curve
        .iter()
        .position(|(_, rate)| half > 0.0 && *rate >= half)?;
    let (size, rate) = curve[index];
    let Some((before, lower)) = index
        .checked_sub(1)
        .and_then(|before| curve.get(before))
        .copied()
    else {
        return Some(size);
    };
    let part = (half - lower) / (rate - lower);
    Some(before + ((size - before) as f64 * part).ceil() as u64)
}

fn advice(outcome: &Sweep) -> String {
    let latency = outcome
        .latency_us
        .map(|micros| format!("a short message takes {micros:.1} µs"));
    let half = outcome
        .half_size_bytes
        .map(|size| format!("half the full rate needs messages of {}", sized(size)));
    let full = outcome
        .plateau
        .map(|size| format!("the full rate {}", sized(size)));
    let dropouts = outcome.points.iter().filter(|point| point.dropout).count();
    let slow = (dropouts > 0).then(|| {
        format!(
            "{dropouts} of {} sizes are slower than their neighbours",
            outcome.points.len()
        )
    });
    let parts: Vec<String> = [latency, half, full, slow].into_iter().flatten().collect();
    if parts.is_empty() {
        "nothing was measured".into()
    } else {
        parts.join(", ")
    }
}

/// Largest message in bytes, far beyond the size at which links reach their full rate.
const LARGEST_SIZE: u64 = 64 << 20;
/// Largest message of a ping-pong in bytes.
pub(crate) const LARGEST_PING: u64 = 64 << 10;
/// Maximum message size in bytes from which the latency is determined.
const SHORT: u64 = 64;
/// Payload of a TCP segment with timestamps at an MTU of 1500 bytes.
const USUAL_SEGMENT: u64 = 1448;
/// Duration of one repeat; three of them take a quarter of a second.
const TRIAL_TIME: Duration = Duration::from_millis(84);
/// Number of round trips in the first repeat, for which there is no estimate.
const FIRST_MESSAGES: u64 = 100;
/// Maximum number of round trips in a repeat. The shortest, on one machine, need 10,000 for 84 ms.
const MOST_MESSAGES: u64 = 100_000;
/// Time per message above which the sweep ends.
const SLOW_MESSAGE: Duration = Duration::from_secs(1);
/// Number of consecutive doublings without a significant change of the rate, after which the sweep
/// ends.
const FLAT_DOUBLINGS: usize = 3;
/// Minimum change between two sizes that counts as significant, as a share of the rate.
const FLAT_CHANGE: f64 = 0.01;
/// Share of the streaming rate that the plateau must reach.
const FLAT_RATE: f64 = 0.95;
/// Share of its neighbors' rates below which a point is a dropout.
const DROPOUT: f64 = 0.9;
const CONFIRMATIONS: u32 = 2;
/// Maximum number of points measured again, which limits the time beyond the budget to 4 s. A
/// permanently disturbed link has more.
const MOST_SUSPECTS: usize = 8;
