//! Which load is next: repeats interleaved, until each agrees with itself.

use std::{collections::BTreeMap, ops::RangeInclusive};

use super::{
    decided::spread,
    report::{Phase, Run},
};

/// A load to be made: which kind, and over which links.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Load {
    pub(super) phase: Phase,
    pub(super) links: Vec<u32>,
}

/// Decides which load is next.
#[derive(Debug)]
pub(super) struct Schedule {
    loads: Vec<Load>,
    repeats: RangeInclusive<u32>,
    measured: BTreeMap<Load, Vec<u64>>,
    /// All links, where pairs are looked at if they share something.
    all: Vec<u32>,
    paired: bool,
}

/// Below this part of what links do alone, together, pairs of them are looked at.
const SHARES_BELOW: f64 = 0.95;

/// Repeats of a pair: it only has to be told apart.
const PAIR_REPEATS: u32 = 2;

/// Range that repeats may have, as a part of their middle.
const AGREE_WITHIN: f64 = 0.02;

impl Schedule {
    pub(super) fn new(phases: &[Phase], links: &[u32], repeats: RangeInclusive<u32>) -> Self {
        let mut loads = Vec::new();
        for phase in phases {
            match phase {
                Phase::Idle | Phase::Pair => {}
                Phase::Solo => loads.extend(links.iter().map(|link| Load { phase: Phase::Solo, links: vec![*link] })),
                phase => loads.push(Load { phase: *phase, links: links.to_vec() }),
            }
        }
        Self { loads, repeats, measured: BTreeMap::new(), all: links.to_vec(), paired: false }
    }

    /// The next load, and the number of its repeat: of those that are not done, the first of those with fewest repeats.
    pub(super) fn next(&mut self) -> Option<(Load, u32)> {
        if let Some(next) = self.open() {
            return Some(next);
        }
        if !std::mem::replace(&mut self.paired, true) && self.all.len() > 2 && self.scaling().is_some_and(|scaling| scaling < SHARES_BELOW)
        {
            for (index, one) in self.all.iter().enumerate() {
                let pairs = self.all[index + 1..].iter().map(|other| Load { phase: Phase::Pair, links: vec![*one, *other] });
                self.loads.extend(pairs);
            }
        }
        self.open()
    }

    fn open(&self) -> Option<(Load, u32)> {
        let open = self.loads.iter().filter(|load| !self.is_done(load));
        let load = open.min_by_key(|load| self.count(load))?;
        Some((load.clone(), self.count(load) + 1))
    }

    /// A load was measured.
    pub(super) fn record(&mut self, load: Load, run: &Run) {
        self.measured.entry(load).or_default().push(run.total_bps);
    }

    fn count(&self, load: &Load) -> u32 {
        self.measured.get(load).map_or(0, |rates| rates.len() as u32)
    }

    fn is_done(&self, load: &Load) -> bool {
        let count = self.count(load);
        let (fewest, most) =
            if load.phase == Phase::Pair { (PAIR_REPEATS, PAIR_REPEATS) } else { (*self.repeats.start(), *self.repeats.end()) };
        let agrees = || {
            let range = self.measured.get(load).cloned().and_then(spread);
            range.is_some_and(|range| (range.max_bps - range.min_bps) as f64 <= range.median_bps as f64 * AGREE_WITHIN)
        };
        count >= most || (count >= fewest && agrees())
    }

    fn scaling(&self) -> Option<f64> {
        let median = |phase: Phase, links: &[u32]| {
            spread(self.measured.get(&Load { phase, links: links.to_vec() })?.clone()).map(|range| range.median_bps)
        };
        let together = median(Phase::Together, &self.all)?;
        let alone: Option<u64> = self.all.iter().map(|link| median(Phase::Solo, &[*link])).sum();
        alone.filter(|sum| *sum > 0).map(|sum| together as f64 / sum as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Ends;

    fn run(total_bps: u64) -> Run {
        Run {
            phase: Phase::Together,
            repeat: 1,
            began_us: 0,
            window_us: 1,
            stable: true,
            flows: Vec::new(),
            total_bps,
            cpu: Ends::default(),
            intervals: Vec::new(),
        }
    }

    fn play(schedule: &mut Schedule, rate: impl Fn(&Load, u32) -> u64) -> Vec<(Phase, Vec<u32>, u32)> {
        let mut order = Vec::new();
        while let Some((load, repeat)) = schedule.next() {
            order.push((load.phase, load.links.clone(), repeat));
            schedule.record(load.clone(), &run(rate(&load, repeat)));
        }
        order
    }

    #[test]
    fn loads_alternate_and_end_when_they_agree() {
        let mut schedule = Schedule::new(&[Phase::Idle, Phase::Solo, Phase::Together], &[1, 2], 2..=5);
        let order =
            play(&mut schedule, |load, repeat| if load.links == [2] { 100 * u64::from(repeat) } else { 100 * load.links.len() as u64 });
        let ids: Vec<_> = order.iter().map(|(_, links, repeat)| (links.len() * 10 + links[0] as usize, *repeat)).collect();
        assert_eq!(ids, [(11, 1), (12, 1), (21, 1), (11, 2), (12, 2), (21, 2), (12, 3), (12, 4), (12, 5)]);
    }

    #[test]
    fn links_that_share_something_are_looked_at_in_pairs() {
        let shared = |load: &Load, _: u32| if load.phase == Phase::Solo { 100 } else { 120 };
        let mut schedule = Schedule::new(&[Phase::Solo, Phase::Together], &[1, 2, 3], 1..=1);
        let pairs: Vec<_> =
            play(&mut schedule, shared).into_iter().filter(|(phase, ..)| *phase == Phase::Pair).map(|(_, links, _)| links).collect();
        assert_eq!(pairs, [[1, 2], [1, 3], [2, 3], [1, 2], [1, 3], [2, 3]]);
        let mut schedule = Schedule::new(&[Phase::Solo, Phase::Together], &[1, 2, 3], 1..=1);
        assert_eq!(play(&mut schedule, |load, _| 100 * load.links.len() as u64).len(), 4);
    }
}
