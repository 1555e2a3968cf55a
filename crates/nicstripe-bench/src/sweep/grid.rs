//! Sweep over pairs of buffer size and number of connections: the oldest way to find the capacity
//! of a long path (SLAC's bulk throughput measurements, 2002).

use super::{Key, Measured, Planner, Point, Stopped, TRIALS, Table, sized, streams::COUNTS};
use crate::{
    report::{Sweep, SweepKind},
    statistics::top_decile,
};

/// Planner that varies socket buffers and connections per link.
///
/// For each number of connections, sizes ascend until two in a row gain less than 2 %. All points
/// are then measured twice more in the same order, so that repeats of a point are far apart in
/// time.
#[derive(Clone, Debug)]
pub(crate) struct GridSweep {
    sizes: Vec<u64>,
    table: Table,
    state: GridStep,
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
enum GridStep {
    /// Measures the number of connections `COUNTS[column]` with the size of index `row`. The next
    /// state is `Again`.
    Upwards {
        column: usize,
        row: usize,
    },
    /// Repeats the point with this index. The next state is `Ended`.
    Again(usize),
    Ended,
}

impl GridSweep {
    /// Creates a sweep over at most six sizes: from 64 KiB by factors of four, up to `largest`
    /// bytes.
    pub(crate) fn new(largest: u64) -> GridSweep {
        let sizes = (0..6)
            .map(|step: u32| SMALLEST << (2 * step))
            .filter(|size| *size <= largest.max(SMALLEST))
            .collect();
        GridSweep {
            sizes,
            table: Table::default(),
            state: GridStep::Upwards { column: 0, row: 0 },
            failures: 0,
        }
    }

    fn key(&self) -> Option<Key> {
        match self.state {
            GridStep::Upwards { column, row } => {
                Some((Some(*self.sizes.get(row)?), Some(*COUNTS.get(column)?)))
            }
            GridStep::Again(index) => self.table.0.get(index).map(|trials| trials.key),
            GridStep::Ended => None,
        }
    }

    fn advance(&mut self, has_failed: bool) {
        self.state = match self.state {
            GridStep::Upwards { column, row }
                if !has_failed && row + 1 < self.sizes.len() && !self.is_flat(column, row) =>
            {
                GridStep::Upwards {
                    column,
                    row: row + 1,
                }
            }
            GridStep::Upwards { column, .. } if column + 1 < COUNTS.len() => GridStep::Upwards {
                column: column + 1,
                row: 0,
            },
            GridStep::Upwards { .. } => GridStep::Again(0),
            GridStep::Again(index) => GridStep::Again(index + 1),
            GridStep::Ended => GridStep::Ended,
        };
        if let GridStep::Again(index) = self.state
            && index >= self.table.0.len()
        {
            let is_done = self.table.0.iter().all(|trials| trials.count() >= TRIALS);
            self.state = if is_done || self.table.0.is_empty() {
                GridStep::Ended
            } else {
                GridStep::Again(0)
            };
        }
    }

    /// Returns true if the last two sizes gained less than 2 % each.
    fn is_flat(&self, column: usize, row: usize) -> bool {
        let rate = |row: usize| {
            self.table
                .median((Some(self.sizes[row]), Some(COUNTS[column])))
        };
        row >= 2 && (row - 1..=row).all(|row| rate(row) < rate(row - 1) * (1.0 + LEAST_GAIN))
    }
}

impl Planner for GridSweep {
    fn next(&self) -> Option<Point> {
        Some(self.table.point(self.key()?))
    }

    fn record(&mut self, _point: &Point, measured: Measured) {
        let Some(key) = self.key() else { return };
        self.table.add(key, measured);
        self.advance(false);
    }

    /// Continues with the next number of connections. A second failure ends the sweep.
    fn fail(&mut self, _point: &Point) {
        self.failures += 1;
        match self.failures {
            1 => self.advance(true),
            _ => self.state = GridStep::Ended,
        }
    }

    fn stopped(&self) -> Stopped {
        match self.state {
            GridStep::Ended if self.failures > 1 => Stopped::Failed,
            GridStep::Ended => Stopped::Done,
            _ => Stopped::Early,
        }
    }

    /// The plateau is the buffer size of the fastest point.
    fn outcome(&self) -> Sweep {
        let mut outcome = Sweep::of(SweepKind::Grid, self.table.results(), self.stopped());
        let medians = outcome.points.iter();
        let medians: Vec<f64> = medians.map(|point| point.rate.median_bps as f64).collect();
        outcome.top_decile_bps = top_decile(&medians).map(|rate| rate.round() as u64);
        // The first of equal points has the smallest settings.
        let best = outcome
            .points
            .iter()
            .rev()
            .max_by_key(|point| point.rate.median_bps);
        outcome.plateau = best.and_then(|point| point.size);
        outcome.advice = match best.map(|point| (point.size, point.streams)) {
            Some((Some(size), Some(streams))) => format!(
                "best with buffers of {} and {streams} connection{} per link: {}",
                sized(size),
                if streams == 1 { "" } else { "s" },
                best.map(|point| point.rate.median()).unwrap_or_default()
            ),
            _ => "nothing was measured".into(),
        };
        outcome
    }
}

const SMALLEST: u64 = 64 << 10;
/// Minimum significant gain of a size four times as large, as a share of the rate.
const LEAST_GAIN: f64 = 0.02;
