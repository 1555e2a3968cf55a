//! Sweep of socket buffer sizes, compared with the kernel's auto-tuning.

use super::{Key, Measured, Planner, Point, Stopped, TRIALS, Table, Trials, plateau, sized};
use nicstripe_proto::BitRate;

use crate::{
    report::{Sweep, SweepKind},
    statistics::{as_values, median},
};

/// Planner that doubles the socket buffers from 16 KiB, until two doublings bring no gain.
///
/// Each size is measured three times, interleaved with the kernel's auto-tuning for equal
/// conditions. The plateau is the smallest size that later ones exceed by less than 2 %, or by less
/// than the scatter of repeats. A size is recommended if it is more than 3 % faster than
/// auto-tuning, also in a second comparison (ABBA).
#[derive(Clone, Debug)]
pub(crate) struct BufferSweep {
    sizes: Vec<u64>,
    bdp_bytes: Option<u64>,
    table: Table,
    state: BufferStep,
    has_won: bool,
    stopped: Stopped,
}

#[derive(Clone, Debug)]
enum BufferStep {
    /// Measures the size with this index. The next state is `Check` or `Ended`.
    Upwards(usize),
    /// Compares a size with auto-tuning again, in the order of [`CHECK`]. The next state is
    /// `Ended`.
    Check(Check),
    Ended,
}

/// Second comparison of a size with the kernel's auto-tuning.
#[derive(Clone, Debug)]
struct Check {
    size: u64,
    fixed: Vec<BitRate>,
    kernel: Vec<BitRate>,
}

impl Check {
    fn done(&self) -> usize {
        self.fixed.len() + self.kernel.len()
    }

    fn is_won(&self) -> bool {
        let rate = |rates: &[BitRate]| median(&as_values(rates)).unwrap_or_default();
        self.done() == CHECK.len() && rate(&self.fixed) > BETTER * rate(&self.kernel)
    }
}

impl BufferSweep {
    /// Creates a sweep for a link with this bandwidth-delay product under load in bytes.
    ///
    /// The limit of the system shows when it grants no more. Ends at eight times the bandwidth-delay product, at least at 1 MiB to show a cable's
    /// plateau; at 64 MiB if the product is unknown.
    pub(crate) fn new(bdp_bytes: Option<u64>) -> BufferSweep {
        let largest = bdp_bytes.map_or(LARGEST, |bdp| {
            bdp.saturating_mul(8).clamp(SUFFICIENT, LARGEST)
        });
        let sizes = (0..)
            .map(|doublings: u32| SMALLEST << doublings)
            .take_while(|size| *size <= largest)
            .collect();
        BufferSweep {
            sizes,
            bdp_bytes,
            table: Table::default(),
            state: BufferStep::Upwards(0),
            has_won: false,
            stopped: Stopped::Early,
        }
    }

    fn after_size(&mut self) {
        let BufferStep::Upwards(index) = self.state else {
            return;
        };
        if self.is_clamped(index) {
            return self.decide(Stopped::Clamped);
        }
        let is_confirmed = self
            .plateau()
            .is_some_and(|(position, _)| position + CONFIRMING <= index);
        match is_confirmed {
            true => self.decide(Stopped::Plateau),
            false if index + 1 == self.sizes.len() => self.decide(Stopped::Done),
            false => self.state = BufferStep::Upwards(index + 1),
        }
    }

    /// Returns true if the kernel granted less than requested, or no more than for the previous
    /// size.
    fn is_clamped(&self, index: usize) -> bool {
        let got = |index: usize| {
            self.table
                .of((Some(self.sizes[index]), None))
                .and_then(|trials| trials.got_bytes)
        };
        let before = index.checked_sub(1).and_then(got);
        got(index).is_some_and(|bytes| {
            bytes < self.sizes[index] || before.is_some_and(|before| bytes <= before)
        })
    }

    /// Returns the index and size of the plateau; `None` if the last size is still significantly
    /// faster than the previous one.
    fn plateau(&self) -> Option<(usize, u64)> {
        let trials: Vec<&Trials> = self
            .sizes
            .iter()
            .map_while(|size| self.table.of((Some(*size), None)))
            .collect();
        let extents: Vec<f64> = trials.iter().map(|trials| trials.extent()).collect();
        let chance = LEAST_GAIN.max(CHANCE * median(&extents).unwrap_or_default());
        let gains =
            |from: &Trials, to: &Trials| to.median() - from.median() >= chance * to.median();
        let rates: Vec<f64> = trials.iter().map(|trials| trials.median()).collect();
        // Both rules agree if there is no scatter.
        let position = (0..trials.len()).find(|position| {
            !trials[position + 1..]
                .iter()
                .any(|later| gains(trials[*position], later))
        });
        let position = position
            .zip(plateau(&rates))
            .map(|(position, least)| position.min(least))?;
        let is_one = position + 1 < trials.len()
            || self.stopped == Stopped::Clamped
                && position > 0
                && !gains(trials[position - 1], trials[position]);
        is_one.then(|| (position, self.sizes[position]))
    }

    /// Ends the ascent in state `Upwards`. Next state: `Check` if the plateau is faster than
    /// auto-tuning, otherwise `Ended`.
    fn decide(&mut self, stopped: Stopped) {
        self.stopped = stopped;
        let kernel = self.table.median(KERNEL);
        let better = self.plateau().filter(|(_, size)| {
            kernel > 0.0 && self.table.median((Some(*size), None)) > BETTER * kernel
        });
        self.state = match better {
            Some((_, size)) => BufferStep::Check(Check {
                size,
                fixed: Vec::new(),
                kernel: Vec::new(),
            }),
            None => BufferStep::Ended,
        };
    }

    /// Ends the sweep in state `Check`, and keeps a confirmed gain for `advice`. Next state:
    /// `Ended`.
    fn end(&mut self) {
        let found = std::mem::replace(&mut self.state, BufferStep::Ended);
        if let BufferStep::Check(check) = found
            && check.is_won()
        {
            for (key, rates) in [
                ((Some(check.size), None), check.fixed),
                (KERNEL, check.kernel),
            ] {
                self.table.entry(key).rates.extend(rates);
            }
            self.has_won = true;
        }
    }

    fn advice(&self, plateau: Option<u64>) -> String {
        let Some(size) = plateau else {
            let largest = self.table.0.iter().filter_map(|trials| trials.key.0).max();
            return largest.map_or("nothing was measured".into(), |size| {
                format!("the rate still rises at {}", sized(size))
            });
        };
        let clamp = if self.stopped == Stopped::Clamped {
            "; larger buffers are denied by net.core.rmem_max, wmem_max"
        } else {
            ""
        };
        match self.has_won {
            true => format!(
                "buffers of {} are {:.1} % faster than the kernel's own{clamp}",
                sized(size),
                self.gain(size)
            ),
            false => format!(
                "leave the buffers to the kernel: {} and more are not faster{clamp}",
                sized(size)
            ),
        }
    }

    fn gain(&self, size: u64) -> f64 {
        (self.table.median((Some(size), None)) / self.table.median(KERNEL) - 1.0) * 100.0
    }
}

impl Planner for BufferSweep {
    fn next(&self) -> Option<Point> {
        match &self.state {
            BufferStep::Upwards(index) => {
                let size = Some(*self.sizes.get(*index)?);
                let is_kernels_turn =
                    self.table.count((size, None)) == 1 && self.table.count(KERNEL) <= *index;
                let size = size.filter(|_| !is_kernels_turn);
                Some(self.table.point((size, None)))
            }
            BufferStep::Check(check) => {
                let is_fixed = *CHECK.get(check.done())?;
                let rates = if is_fixed {
                    &check.fixed
                } else {
                    &check.kernel
                };
                Some(Point {
                    repeat: rates.len() as u32 + 1,
                    ..self.table.point((is_fixed.then_some(check.size), None))
                })
            }
            BufferStep::Ended => None,
        }
    }

    fn record(&mut self, point: &Point, measured: Measured) {
        match &mut self.state {
            BufferStep::Upwards(index) => {
                let size = self.sizes[*index];
                self.table.add((point.size, None), measured);
                if self.table.count((Some(size), None)) >= TRIALS {
                    self.after_size();
                }
            }
            BufferStep::Check(check) => {
                let side = if point.size.is_some() {
                    &mut check.fixed
                } else {
                    &mut check.kernel
                };
                side.push(measured.rate);
                if check.done() == CHECK.len() {
                    self.end();
                }
            }
            BufferStep::Ended => {}
        }
    }

    /// Ends the sweep, as larger buffers would fail as well.
    fn fail(&mut self, _point: &Point) {
        match self.state {
            BufferStep::Upwards(_) => self.decide(Stopped::Failed),
            _ => self.end(),
        }
    }

    fn stopped(&self) -> Stopped {
        self.stopped
    }

    fn outcome(&self) -> Sweep {
        let mut outcome = Sweep::of(SweepKind::Buffer, self.table.results(), self.stopped);
        outcome.plateau = self.plateau().map(|(_, size)| size);
        outcome.bdp_bytes = self.bdp_bytes;
        outcome.advice = self.advice(outcome.plateau);
        outcome
    }
}

/// Table key of the kernel's auto-tuning.
const KERNEL: Key = (None, None);
const SMALLEST: u64 = 16 << 10;
/// Buffer size in bytes at which a cable without delay is two doublings past its plateau.
const SUFFICIENT: u64 = 1 << 20;
const LARGEST: u64 = 64 << 20;
/// Number of doublings beyond the plateau that must bring no gain.
const CONFIRMING: usize = 2;
/// Minimum significant gain as a share of the rate.
const LEAST_GAIN: f64 = 0.02;
/// Minimum significant gain, relative to the range of three repeats (1.7 standard deviations). The
/// smallest value by which medians of three never differed in 100 simulated sweeps. Uses the median
/// range of all sizes, so that one disturbed repeat does not count.
const CHANCE: f64 = 2.5;
/// Minimum rate relative to auto-tuning at which a size is recommended.
const BETTER: f64 = 1.03;
/// Order of the second comparison: true for the size, false for auto-tuning.
const CHECK: [bool; 4] = [true, false, false, true];
