//! Change of a rate between two sets of repeats.

use nicstripe_proto::BitRate;
use nicstripe_sim::Rng;

use crate::{
    baseline::{LEAST_NOISE_PERCENT, change},
    repeat::are_enough,
    report::BaselineVerdict,
};

fn mbit(rates: &[u64]) -> Vec<BitRate> {
    rates.iter().copied().map(BitRate::from_mbit).collect()
}

#[test]
fn what_a_shared_bus_costs_is_a_regression() {
    let (percent, noise, verdict) = change(
        &mbit(&[1147, 1144, 1150, 1146, 1148, 1147]),
        &mbit(&[1863, 1860, 1866, 1862, 1864, 1863]),
    )
    .unwrap();
    assert_eq!(verdict, BaselineVerdict::Regression);
    assert!((percent + 38.4).abs() < 0.1, "{percent}");
    assert_eq!(noise, LEAST_NOISE_PERCENT);
}

#[test]
fn the_same_the_other_way_round_is_better() {
    let (_, _, verdict) = change(&mbit(&[626, 630, 620]), &mbit(&[134, 130, 140])).unwrap();
    assert_eq!(verdict, BaselineVerdict::Better);
}

#[test]
fn three_percent_are_chance_and_so_are_ranges_that_overlap() {
    assert_eq!(
        change(&mbit(&[912; 6]), &mbit(&[940; 6])).unwrap().2,
        BaselineVerdict::Same
    );
    assert_eq!(
        change(&mbit(&[911; 6]), &mbit(&[940; 6])).unwrap().2,
        BaselineVerdict::Regression
    );
    assert_eq!(
        change(&mbit(&[850, 851, 850, 851, 850, 945]), &mbit(&[940; 6]))
            .unwrap()
            .2,
        BaselineVerdict::Same
    );
}

#[test]
fn repeats_that_scatter_hide_a_difference_as_large_as_their_scatter() {
    // Median 900, median absolute deviation 50: 150 of 1000 are noise.
    let (_, noise, verdict) = change(&mbit(&[800, 850, 900, 950, 999]), &mbit(&[1000; 5])).unwrap();
    assert_eq!((noise, verdict), (15.0, BaselineVerdict::Same));
}

#[test]
fn nothing_is_compared_with_nothing() {
    assert_eq!(change(&[], &mbit(&[1])), None);
    assert_eq!(change(&mbit(&[1]), &[]), None);
    assert_eq!(change(&mbit(&[1]), &mbit(&[0])), None);
}

/// Simulates repeats of a rate with normal noise of 1 %, as many as the default rule requires.
fn repeats(rng: &mut Rng, mbit: f64) -> Vec<BitRate> {
    let mut found = Vec::new();
    while !are_enough(&found, &(6..=12)) {
        // The sum of 12 uniform numbers has a deviation of 1.
        let normal = (0..12)
            .map(|_| rng.below(1 << 32) as f64 / (1_u64 << 32) as f64)
            .sum::<f64>()
            - 6.0;
        found.push(BitRate((mbit * 1e6 * (1.0 + 0.01 * normal)) as u64));
    }
    found
}

fn verdicts(now_mbit: f64, verdict: BaselineVerdict) -> usize {
    let mut rng = Rng::new(20_261_122);
    let compared = (0..1000).map(|_| {
        let earlier = repeats(&mut rng, 1880.0);
        change(&repeats(&mut rng, now_mbit), &earlier).unwrap()
    });
    compared.filter(|(_, _, found)| *found == verdict).count()
}

#[test]
fn noise_of_one_percent_is_no_regression_in_1000_of_1000_comparisons() {
    assert_eq!(verdicts(1880.0, BaselineVerdict::Same), 1000);
}

#[test]
fn a_tenth_less_is_a_regression_in_1000_of_1000_comparisons() {
    assert_eq!(verdicts(1880.0 * 0.9, BaselineVerdict::Regression), 1000);
}
