//! Sweep of MTUs.

use super::{Key, Measured, Planner, Point, Stopped, TRIALS, Table, plateau};
use nicstripe_proto::{BitRate, theory::Theory};

use crate::report::{Spread, Sweep, SweepKind, SweepPoint};

/// Planner that varies the MTU: 1500, 4000, 9000 and the current one, alternating, three times
/// each.
///
/// Never exceeds the current MTU, since the path could drop larger packets; their rate is computed
/// from the share of payload. Rates of smaller MTUs are also computed if the MTU may not be
/// changed.
#[derive(Clone, Debug)]
pub(crate) struct MtuSweep {
    sizes: Vec<u32>,
    theory: Theory,
    may_set: bool,
    table: Table,
    failed: Vec<u64>,
}

impl MtuSweep {
    /// Creates a sweep over a link with the parameters of `theory`.
    ///
    /// The MTU of `theory` is the smallest of both ends and the path; its line rate is not used.
    /// `may_set` is true if the local MTU may be lowered.
    pub(crate) fn new(theory: Theory, may_set: bool) -> MtuSweep {
        let mut sizes: Vec<u32> = SIZES.into_iter().chain([theory.mtu]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        MtuSweep {
            sizes,
            theory,
            may_set,
            table: Table::default(),
            failed: Vec::new(),
        }
    }

    fn is_measured(&self, size: u32) -> bool {
        self.may_be_tried(size) && !self.failed.contains(&size.into())
    }

    fn may_be_tried(&self, size: u32) -> bool {
        size == self.theory.mtu || self.may_set && size < self.theory.mtu
    }

    /// Computes the result for an MTU that cannot be measured: the rate at the current MTU, scaled
    /// by the shares of payload. Returns `None` if it can be measured.
    fn computed(&self, size: u32) -> Option<SweepPoint> {
        if self.may_be_tried(size) {
            return None;
        }
        let now = self.table.of(key(self.theory.mtu))?.result()?;
        let part = |mtu: u32| {
            let theory = Theory {
                line: WHOLE,
                mtu,
                ..self.theory
            };
            u128::from(theory.goodput().0)
        };
        let scaled = |bps: u64| {
            let bps = (u128::from(bps) * part(size))
                .checked_div(part(self.theory.mtu))
                .unwrap_or_default();
            u64::try_from(bps).unwrap_or(u64::MAX)
        };
        let rate = Spread {
            median_bps: scaled(now.rate.median_bps),
            min_bps: scaled(now.rate.min_bps),
            max_bps: scaled(now.rate.max_bps),
            ..now.rate
        };
        Some(SweepPoint {
            size: Some(size.into()),
            rate,
            time_us: None,
            cpu_s_per_gbit: None,
            got_bytes: None,
            computed: true,
            ..now
        })
    }

    fn advice(&self, points: &[SweepPoint]) -> String {
        let now = points
            .iter()
            .find(|point| point.size == Some(self.theory.mtu.into()));
        // The first of equal points has the smallest MTU.
        let best = points
            .iter()
            .filter(|point| point.rate.median_bps > 0)
            .rev()
            .max_by_key(|point| point.rate.median_bps);
        let (Some(now), Some(best)) = (now, best) else {
            return "nothing was measured".into();
        };
        let size = best.size.unwrap_or_default();
        let failed: Vec<String> = self.failed.iter().map(ToString::to_string).collect();
        let lost = if failed.is_empty() {
            String::new()
        } else {
            format!("; packets of {} bytes are dropped", failed.join(", "))
        };
        let over = gain(now, best);
        if best.size != now.size && over >= WORTH_PERCENT {
            return match best.computed {
                true => format!(
                    "an MTU of {size} would carry {over:.1} % more: computed, as {}{lost}",
                    self.why_computed(size)
                ),
                false => format!(
                    "an MTU of {size} carries {over:.1} % more{}{lost}",
                    processor(now, best)
                ),
            };
        }
        // The gain of the current MTU shows against the smallest one measured.
        match points
            .iter()
            .find(|point| !point.computed && point.size < now.size)
        {
            Some(least) if gain(least, now) >= WORTH_PERCENT => {
                let (less, more) = (least.size.unwrap_or_default(), gain(least, now));
                format!(
                    "the MTU of {} carries {more:.1} % more than one of {less}{}{lost}",
                    self.theory.mtu,
                    processor(least, now)
                )
            }
            _ => format!("no other MTU is faster than {}{lost}", self.theory.mtu),
        }
    }

    fn why_computed(&self, size: u64) -> &'static str {
        if size > self.theory.mtu.into() {
            "it is not set at both ends and between them"
        } else {
            "setting it is not permitted"
        }
    }
}

impl Planner for MtuSweep {
    fn next(&self) -> Option<Point> {
        let open = self
            .sizes
            .iter()
            .filter(|size| self.is_measured(**size) && self.table.count(key(**size)) < TRIALS);
        let size = *open.min_by_key(|size| self.table.count(key(**size)))?;
        Some(self.table.point(key(size)))
    }

    fn record(&mut self, point: &Point, measured: Measured) {
        self.table.add((point.size, None), measured);
    }

    /// Skips the point's MTU, as the path drops such packets.
    fn fail(&mut self, point: &Point) {
        self.failed.extend(point.size);
    }

    fn stopped(&self) -> Stopped {
        match self.next() {
            Some(_) => Stopped::Early,
            None if self.table.0.is_empty() => Stopped::Failed,
            None => Stopped::Done,
        }
    }

    fn outcome(&self) -> Sweep {
        let mut points = self.table.results();
        points.extend(self.sizes.iter().filter_map(|size| self.computed(*size)));
        points.sort_by_key(|point| point.size);
        let measured: Vec<_> = points
            .iter()
            .filter(|point| !point.computed)
            .map(|point| (point.size, point.rate.median_bps as f64))
            .collect();
        let rates: Vec<f64> = measured.iter().map(|(_, rate)| *rate).collect();
        let mut outcome = Sweep::of(SweepKind::Mtu, points, self.stopped());
        // A single size has no plateau, and computed rates always rise.
        outcome.plateau = plateau(&rates)
            .filter(|_| rates.len() > 1)
            .and_then(|index| measured.get(index)?.0);
        outcome.advice = self.advice(&outcome.points);
        outcome
    }
}

/// Returns the gain in median rate from one point to another in percent.
fn gain(from: &SweepPoint, to: &SweepPoint) -> f64 {
    (to.rate.median_bps as f64 / from.rate.median_bps.max(1) as f64 - 1.0) * 100.0
}

/// Describes the change in CPU time from one point to another; empty if unknown.
fn processor(from: &SweepPoint, to: &SweepPoint) -> String {
    let cpu = from
        .cpu_s_per_gbit
        .zip(to.cpu_s_per_gbit)
        .filter(|(before, _)| *before > 0.0);
    cpu.map_or(String::new(), |(before, after)| {
        format!(
            " and takes {:.0} % of the processor time",
            after / before * 100.0
        )
    })
}

fn key(size: u32) -> Key {
    (Some(size.into()), None)
}

/// MTUs to compare in bytes: the standard, one that many old cards support, and the largest that
/// most cards support.
const SIZES: [u32; 3] = [1500, 4000, 9000];
/// Line rate for computing shares of payload; any large value would do.
const WHOLE: BitRate = BitRate::from_gbit(1000);
/// Minimum gain worth reporting in percent.
const WORTH_PERCENT: f64 = 1.0;
