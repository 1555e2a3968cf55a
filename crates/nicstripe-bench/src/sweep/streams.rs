//! Sweep of the number of connections per link.

use super::{Key, Measured, Planner, Point, Stopped, TRIALS, Table, plateau};
use crate::{
    report::{Sweep, SweepKind, SweepPoint},
    statistics::median,
};

/// Planner that varies the connections per link: 1, 2, 4, 8, three times each, until a doubling
/// gains less than 2 % or the connections get unequal rates.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamSweep {
    table: Table,
    /// Index of the current number in [`COUNTS`].
    index: usize,
    stopped: Option<Stopped>,
}

impl StreamSweep {
    fn after_count(&mut self, streams: u32) {
        let before = self
            .index
            .checked_sub(1)
            .map(|before| self.table.median(key(COUNTS[before])));
        let rate = self.table.median(key(streams));
        self.index += 1;
        self.stopped = match before {
            _ if !self.is_fair(streams) => Some(Stopped::Unfair),
            Some(before) if rate < before * (1.0 + LEAST_GAIN) => Some(Stopped::Plateau),
            _ if self.index == COUNTS.len() => Some(Stopped::Done),
            _ => None,
        };
    }

    /// Returns true if this number was measured and its connections had equal or unknown rates.
    fn is_fair(&self, streams: u32) -> bool {
        self.table
            .of(key(streams))
            .is_some_and(|trials| median(&trials.fairness).is_none_or(|index| index >= FAIR))
    }
}

impl Planner for StreamSweep {
    fn next(&self) -> Option<Point> {
        let streams = *COUNTS.get(self.index).filter(|_| self.stopped.is_none())?;
        Some(self.table.point(key(streams)))
    }

    fn record(&mut self, _point: &Point, measured: Measured) {
        let Some(streams) = COUNTS.get(self.index).filter(|_| self.stopped.is_none()) else {
            return;
        };
        self.table.add(key(*streams), measured);
        if self.table.count(key(*streams)) >= TRIALS {
            self.after_count(*streams);
        }
    }

    /// Ends the sweep, as more connections would fail as well.
    fn fail(&mut self, _point: &Point) {
        self.stopped.get_or_insert(Stopped::Failed);
    }

    fn stopped(&self) -> Stopped {
        self.stopped.unwrap_or(Stopped::Early)
    }

    /// The plateau is a number of connections with equal rates.
    fn outcome(&self) -> Sweep {
        // `size` holds the swept value, here the number of connections.
        let points = self.table.results().into_iter().map(|point| SweepPoint {
            size: point.streams.map(u64::from),
            streams: None,
            ..point
        });
        let mut outcome = Sweep::of(SweepKind::Streams, points.collect(), self.stopped());
        let fair: Vec<u32> = COUNTS
            .into_iter()
            .take_while(|streams| self.is_fair(*streams))
            .collect();
        let rates: Vec<f64> = fair
            .iter()
            .map(|streams| self.table.median(key(*streams)))
            .collect();
        let best = plateau(&rates).and_then(|index| fair.get(index)).copied();
        outcome.plateau = best.map(u64::from);
        outcome.advice = match best {
            None => "nothing was measured".into(),
            Some(1) => "one connection per link is enough".into(),
            Some(streams) => {
                let gain =
                    (self.table.median(key(streams)) / self.table.median(key(1)) - 1.0) * 100.0;
                format!("{streams} connections per link carry {gain:.1} % more than one")
            }
        };
        outcome
    }
}

fn key(streams: u32) -> Key {
    (None, Some(streams))
}

pub(crate) const COUNTS: [u32; 4] = [1, 2, 4, 8];
/// Minimum significant gain of a doubling as a share of the rate.
const LEAST_GAIN: f64 = 0.02;
/// Minimum of Jain's fairness index at which rates count as equal.
const FAIR: f64 = 0.9;
