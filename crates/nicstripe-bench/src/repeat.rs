//! Number and order of the repeats of each load.

use std::ops::RangeInclusive;

use nicstripe_proto::BitRate;

use crate::{
    metrics,
    report::{Phase, Spread},
    statistics::agree,
};

/// Returns true if these repeats of a load are enough: they agree, or their maximum number is
/// reached.
///
/// Usually at least 6 and at most 12 (netperf takes 30 at most): fewer have no 95 % confidence
/// interval of the median, see [`crate::statistics::median_interval`]. At least one is taken.
pub(crate) fn are_enough(rates: &[BitRate], repeats: &RangeInclusive<u32>) -> bool {
    let least = (*repeats.start()).max(1);
    let count = rates.len();
    count >= least as usize && (agree(rates) || count >= (*repeats.end()).max(least) as usize)
}

/// Measurement that the caller must perform next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Kind of measurement.
    pub(crate) phase: Phase,
    /// Index of the repeat, from 1.
    pub(crate) repeat: u32,
    /// Identifiers of the loaded links.
    pub(crate) links: Vec<u32>,
}

/// Schedule of measurements, which depends on the results so far.
///
/// Call [`Schedule::next`], measure, and call [`Schedule::record`], until `next` returns `None`.
/// [`Schedule::spread`] returns results at any time.
///
/// RTTs are measured first and once. Then loads alternate (ABAB, not AABB), so that drift affects
/// all of them; each ends as [`are_enough`] decides. A single link is not measured both alone and
/// together. If more than two links together carry less than [`GOOD_SCALING`] of the sum of their
/// rates alone, loads on pairs of them follow. Memory: one rate per repeat, and at most 28 pairs.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    links: Vec<u32>,
    repeats: RangeInclusive<u32>,
    series: Vec<Series>,
    has_planned_pairs: bool,
}

impl Schedule {
    /// Creates a schedule of these phases over these links. Each phase occurs once, in the order of
    /// [`Phase`].
    pub(crate) fn new(phases: &[Phase], links: &[u32], repeats: RangeInclusive<u32>) -> Schedule {
        let mut schedule = Schedule {
            links: links.to_vec(),
            repeats: repeats.clone(),
            series: Vec::new(),
            has_planned_pairs: false,
        };
        let is_planned = |phase| phases.contains(&phase) && !links.is_empty();
        if is_planned(Phase::Idle) {
            schedule.plan(Phase::Idle, links, 1..=1);
        }
        if is_planned(Phase::Solo) && !(links.len() == 1 && is_planned(Phase::Together)) {
            links
                .iter()
                .for_each(|link| schedule.plan(Phase::Solo, &[*link], repeats.clone()));
        }
        for phase in [Phase::Together, Phase::Reverse, Phase::Both]
            .into_iter()
            .filter(|phase| is_planned(*phase))
        {
            schedule.plan(phase, links, repeats.clone());
        }
        schedule
    }

    fn plan(&mut self, phase: Phase, links: &[u32], repeats: RangeInclusive<u32>) {
        self.series.push(Series {
            phase,
            links: links.to_vec(),
            repeats,
            rates: Vec::new(),
            failures: 0,
        });
    }

    /// Returns the next measurement; `None` at the end. Repeated calls return the same measurement
    /// until its result is recorded.
    pub(crate) fn next(&self) -> Option<Planned> {
        let open = self.series.iter().filter(|series| !series.is_done());
        let series = open.min_by_key(|series| {
            (
                series.phase != Phase::Idle,
                series.phase == Phase::Pair,
                series.attempts(),
            )
        })?;
        Some(Planned {
            phase: series.phase,
            repeat: series.rates.len() as u32 + 1,
            links: series.links.clone(),
        })
    }

    /// Returns the minimum number of loads that remain, without RTT measurements. A load whose
    /// repeats disagree after the minimum number counts as one.
    pub(crate) fn loads_left(&self) -> u32 {
        let open = self
            .series
            .iter()
            .filter(|series| series.phase != Phase::Idle && !series.is_done());
        open.map(|series| {
            series
                .repeats
                .start()
                .saturating_sub(series.attempts() as u32)
                .max(1)
        })
        .sum()
    }

    /// Records the rate of a load, summed over all links and directions, or that it failed. The rate
    /// of [`Phase::Idle`] is ignored. A load is retried after its first failure; after the second its
    /// earlier results are final.
    pub(crate) fn record(&mut self, planned: &Planned, rate: Option<BitRate>) {
        let same =
            |series: &&mut Series| series.phase == planned.phase && series.links == planned.links;
        if let Some(series) = self.series.iter_mut().find(same) {
            series.rates.extend(rate);
            series.failures += u32::from(rate.is_none());
        }
        self.plan_pairs();
    }

    /// Returns true if any load was abandoned after two failures.
    pub(crate) fn has_given_up(&self) -> bool {
        self.series
            .iter()
            .any(|series| series.failures >= MOST_FAILURES)
    }

    /// Returns the statistics of the repeats of a load so far; `None` without results.
    pub(crate) fn spread(&self, phase: Phase, links: &[u32]) -> Option<Spread> {
        let series = self
            .series
            .iter()
            .find(|series| series.phase == phase && series.links == links)?;
        Spread::of(&series.rates)
    }

    /// Returns the rate of all links together divided by the sum of their rates alone; `None` until
    /// both are measured.
    pub(crate) fn scaling(&self) -> Option<f64> {
        let alone: Option<Vec<BitRate>> = self
            .links
            .iter()
            .map(|link| self.spread(Phase::Solo, &[*link]).map(Spread::median))
            .collect();
        metrics::scaling(self.spread(Phase::Together, &self.links)?.median(), alone?)
    }

    /// Adds loads on pairs of links after all others are complete, if 3 to 8 links do not scale.
    fn plan_pairs(&mut self) {
        let is_worth_it = (3..=MOST_PAIRED_LINKS).contains(&self.links.len());
        if self.has_planned_pairs || !is_worth_it || !self.series.iter().all(Series::is_done) {
            return;
        }
        self.has_planned_pairs = true;
        if self.scaling().is_none_or(|scaling| scaling >= GOOD_SCALING) {
            return;
        }
        let links = self.links.clone();
        let pairs = links
            .iter()
            .enumerate()
            .flat_map(|(index, one)| links[index + 1..].iter().map(|other| [*one, *other]));
        let repeats = PAIR_REPEATS.min((*self.repeats.start()).max(1));
        pairs.for_each(|pair| {
            self.plan(Phase::Pair, &pair, repeats..=repeats);
        });
    }
}

#[derive(Clone, Debug)]
struct Series {
    phase: Phase,
    links: Vec<u32>,
    repeats: RangeInclusive<u32>,
    rates: Vec<BitRate>,
    failures: u32,
}

impl Series {
    fn attempts(&self) -> usize {
        self.rates.len() + self.failures as usize
    }

    fn is_done(&self) -> bool {
        self.failures >= MOST_FAILURES || are_enough(&self.rates, &self.repeats)
    }
}

/// Merges pairs of links with a common link into groups.
pub(crate) fn joined(pairs: impl IntoIterator<Item = Vec<u32>>) -> Vec<Vec<u32>> {
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for mut group in pairs {
        let (touching, apart): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|other| other.iter().any(|link| group.contains(link)));
        group.extend(touching.into_iter().flatten());
        group.sort_unstable();
        group.dedup();
        groups = apart;
        groups.push(group);
    }
    groups.sort();
    groups
}

/// Minimum scaling (rate together divided by the sum of the rates alone) at which links count as
/// independent.
pub const GOOD_SCALING: f64 = 0.95;

/// Number of repeats of a load on a pair: few, because they only identify a shared resource.
const PAIR_REPEATS: u32 = 2;
/// Maximum number of links whose pairs are measured: 8 links have 28 pairs.
const MOST_PAIRED_LINKS: usize = 8;
/// Number of failures after which a load is abandoned.
const MOST_FAILURES: u32 = 2;

#[cfg(test)]
mod tests {
    use nicstripe_sim::Rng;

    use super::*;

    fn mbit(rates: &[u64]) -> Vec<BitRate> {
        rates.iter().copied().map(BitRate::from_mbit).collect()
    }

    const USUAL: RangeInclusive<u32> = 6..=12;

    const ALL: [Phase; 5] = [
        Phase::Idle,
        Phase::Solo,
        Phase::Together,
        Phase::Reverse,
        Phase::Both,
    ];

    /// Runs a schedule to its end, and returns the measurements. `carry` returns the rate of a load
    /// in Mbit/s, or `None` if it fails.
    fn run(schedule: &mut Schedule, carry: impl Fn(&Planned) -> Option<u64>) -> Vec<Planned> {
        let mut order = Vec::new();
        while let Some(planned) = schedule.next() {
            assert!(order.len() < 500, "it has no end: {planned:?}");
            schedule.record(&planned, carry(&planned).map(BitRate::from_mbit));
            order.push(planned);
        }
        order
    }

    fn count(order: &[Planned], phase: Phase) -> usize {
        order
            .iter()
            .filter(|planned| planned.phase == phase)
            .count()
    }

    #[test]
    fn six_repeats_that_agree_are_enough_and_twelve_are_the_most() {
        let is_met = |rates: &[BitRate]| are_enough(rates, &USUAL);
        assert!(!is_met(&mbit(&[940; 5])) && is_met(&mbit(&[940; 6])));
        let wild: Vec<u64> = (0..12).map(|index| 500 + 50 * (index % 6)).collect();
        assert!(!is_met(&mbit(&wild[..11])) && is_met(&mbit(&wild)));
    }

    #[test]
    fn repeats_agree_within_two_percent_or_when_their_median_is_known_to_two_and_a_half() {
        assert!(agree(&mbit(&[990, 1000, 1010])));
        assert!(!agree(&mbit(&[989, 1000, 1010])));
        // Least and greatest of six are the interval.
        assert!(agree(&mbit(&[975, 1000, 1000, 1000, 1000, 1025])));
        assert!(!agree(&mbit(&[974, 1000, 1000, 1000, 1000, 1025])));
        // Of nine the interval runs from the second to the last but one: one outlier does not
        // matter.
        assert!(agree(&mbit(&[
            500, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000
        ])));
        assert!(!agree(&mbit(&[940])) && !agree(&[]) && !agree(&mbit(&[0; 6])));
    }

    #[test]
    fn loads_take_turns_and_round_trips_come_first() {
        let mut schedule = Schedule::new(&ALL, &[1, 2], USUAL);
        let order = run(&mut schedule, |planned| {
            Some(940 * planned.links.len() as u64)
        });
        assert_eq!(
            order[0],
            Planned {
                phase: Phase::Idle,
                repeat: 1,
                links: vec![1, 2]
            }
        );
        let names = |range: std::ops::Range<usize>| {
            order[range]
                .iter()
                .map(|planned| (planned.phase, planned.links.len()))
                .collect::<Vec<_>>()
        };
        let round = [
            (Phase::Solo, 1),
            (Phase::Solo, 1),
            (Phase::Together, 2),
            (Phase::Reverse, 2),
            (Phase::Both, 2),
        ];
        for repeat in 0..6 {
            let from = 1 + repeat * round.len();
            assert_eq!(names(from..from + round.len()), round);
            assert!(
                order[from..from + round.len()]
                    .iter()
                    .all(|planned| planned.repeat as usize == repeat + 1)
            );
        }
        assert_eq!(order.len(), 31, "two links that scale need no pairs");
        assert_eq!(schedule.scaling(), Some(1.0));
    }

    #[test]
    fn the_loads_that_are_left_become_fewer_with_each_and_are_none_at_the_end() {
        let mut schedule = Schedule::new(&ALL, &[1, 2], 6..=12);
        let mut before = schedule.loads_left();
        assert_eq!(before, 5 * 6, "two alone, together, reverse and both ways");
        while let Some(planned) = schedule.next() {
            // A load that scatters is measured repeatedly.
            let scatters = planned.phase == Phase::Both;
            let mbit = if scatters {
                100 * u64::from(planned.repeat)
            } else {
                900
            };
            schedule.record(&planned, Some(BitRate::from_mbit(mbit)));
            let left = schedule.loads_left();
            assert!(
                left <= before && (left == 0) == schedule.next().is_none(),
                "{before} remained, then {left}"
            );
            before = left;
        }
    }

    #[test]
    fn only_what_scatters_is_repeated_more_often() {
        let mut schedule = Schedule::new(&[Phase::Solo, Phase::Together], &[1, 2], USUAL);
        let order = run(&mut schedule, |planned| match planned.phase {
            Phase::Together => Some(1000 + 300 * u64::from(planned.repeat % 2)),
            _ => Some(940),
        });
        assert_eq!(
            (count(&order, Phase::Solo), count(&order, Phase::Together)),
            (12, 12)
        );
        assert!(!schedule.spread(Phase::Together, &[1, 2]).unwrap().stable);
    }

    #[test]
    fn a_load_that_scatters_goes_on_alone_when_the_others_agree() {
        let mut schedule = Schedule::new(&[Phase::Solo, Phase::Together], &[1, 2], 2..=5);
        let order = run(&mut schedule, |planned| {
            Some(if planned.links == [2] {
                100 * u64::from(planned.repeat)
            } else {
                100
            })
        });
        let order: Vec<(u32, &[u32])> = order
            .iter()
            .map(|planned| (planned.repeat, &planned.links[..]))
            .collect();
        let (one, other, all) = (&[1][..], &[2][..], &[1, 2][..]);
        let alone = [(3, other), (4, other), (5, other)];
        assert_eq!(
            order,
            [
                &[
                    (1, one),
                    (1, other),
                    (1, all),
                    (2, one),
                    (2, other),
                    (2, all)
                ][..],
                &alone
            ]
            .concat()
        );
        assert!(!schedule.has_given_up());
    }

    #[test]
    fn one_link_is_not_measured_twice_for_the_same_thing() {
        let order = run(&mut Schedule::new(&ALL, &[7], USUAL), |_| Some(940));
        assert_eq!(
            (count(&order, Phase::Solo), count(&order, Phase::Together)),
            (0, 6)
        );
        let order = run(&mut Schedule::new(&[Phase::Solo], &[7], USUAL), |_| {
            Some(940)
        });
        assert_eq!(count(&order, Phase::Solo), 6);
        assert_eq!(Schedule::new(&ALL, &[], USUAL).next(), None);
    }

    /// Returns the total rate of `links` in Mbit/s, each 940 Mbit/s, where the `sharers` share 1200
    /// Mbit/s.
    fn shared(links: &[u32], sharers: &[u32]) -> u64 {
        let on_bus = links.iter().filter(|link| sharers.contains(link)).count() as u64;
        (on_bus * 940).min(1200) + (links.len() as u64 - on_bus) * 940
    }

    #[test]
    fn links_that_do_not_scale_are_measured_in_pairs() {
        let mut schedule = Schedule::new(&[Phase::Solo, Phase::Together], &[1, 2, 3, 4], USUAL);
        let order = run(&mut schedule, |planned| {
            Some(shared(&planned.links, &[2, 4]))
        });
        let pairs: Vec<_> = order
            .iter()
            .filter(|planned| planned.phase == Phase::Pair)
            .map(|planned| &planned.links[..])
            .collect();
        assert_eq!(
            pairs,
            [[1, 2], [1, 3], [1, 4], [2, 3], [2, 4], [3, 4]].repeat(PAIR_REPEATS as usize),
            "they take turns as well"
        );
    }

    #[test]
    fn of_two_links_the_pair_is_all_and_is_not_measured_again() {
        let mut schedule = Schedule::new(&[Phase::Solo, Phase::Together], &[1, 2], USUAL);
        let order = run(&mut schedule, |planned| {
            Some(shared(&planned.links, &[1, 2]))
        });
        assert_eq!(count(&order, Phase::Pair), 0);
        assert!((schedule.scaling().unwrap() - 0.638).abs() < 0.001);
    }

    #[test]
    fn where_every_pair_has_room_and_all_have_not_the_pairs_are_measured() {
        let mut schedule = Schedule::new(&[Phase::Solo, Phase::Together], &[1, 2, 3], USUAL);
        let order = run(&mut schedule, |planned| {
            Some((planned.links.len() as u64 * 940).min(2000))
        });
        assert_eq!(count(&order, Phase::Pair), 3 * PAIR_REPEATS as usize);
    }

    #[test]
    fn a_load_that_fails_twice_is_given_up_and_the_others_go_on() {
        let mut schedule = Schedule::new(&ALL, &[1, 2], USUAL);
        let order = run(&mut schedule, |planned| {
            (planned.links != [2]).then_some(940)
        });
        assert_eq!(
            order.iter().filter(|planned| planned.links == [2]).count(),
            2
        );
        assert_eq!(count(&order, Phase::Together), 6);
        assert!(schedule.has_given_up());
        assert_eq!(
            (schedule.spread(Phase::Solo, &[2]), schedule.scaling()),
            (None, None)
        );
    }

    #[test]
    fn groups_that_have_a_link_in_common_are_one() {
        let pairs = [vec![1, 2], vec![4, 5], vec![2, 3], vec![6, 7], vec![5, 7]];
        assert_eq!(joined(pairs), [vec![1, 2, 3], vec![4, 5, 6, 7]]);
    }

    #[test]
    fn whatever_is_measured_or_fails_there_is_an_end_and_no_load_is_repeated_too_often() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let links: Vec<u32> = (1..=1 + rng.below(5) as u32).collect();
            let (least, most) = (rng.below(8) as u32, rng.below(14) as u32);
            let mut schedule = Schedule::new(&ALL, &links, least..=most);
            let mut done: Vec<Planned> = Vec::new();
            while let Some(planned) = schedule.next() {
                let before = done
                    .iter()
                    .filter(|other| other.phase == planned.phase && other.links == planned.links)
                    .count() as u32;
                assert!(
                    planned.repeat == before + 1 && planned.repeat <= most.max(least).max(1),
                    "seed {seed}: {planned:?}"
                );
                if rng.below(20) == 0 {
                    schedule.record(&planned, None);
                } else {
                    schedule.record(&planned, Some(BitRate(rng.below(1_000_000_000))));
                    done.push(planned);
                }
            }
        }
    }
}
