use super::*;
use crate::fixture::{flow, link, report, run, runs};

mod change;

/// Returns a report of one link with these rates in Mbit/s, one per repeat.
fn of_rates(phase: Phase, mbit: &[f64]) -> BenchReport {
    let runs = mbit
        .iter()
        .zip(1..)
        .map(|(mbit, repeat)| run(phase, repeat, vec![flow(1, *mbit)]))
        .collect();
    report(vec![link(1)], runs)
}

fn verdict(now: &BenchReport, before: &BenchReport) -> (BaselineVerdict, Option<String>) {
    let found = compare(now, before);
    (found.verdict, found.why)
}

#[test]
fn what_a_shared_bus_costs_is_a_regression() {
    let links = || vec![link(1), link(2)];
    let good = report(
        links(),
        runs(
            &[flow(1, 940.0), flow(2, 940.0)],
            &[flow(1, 931.0), flow(2, 932.0)],
        ),
    );
    let shared = report(
        links(),
        runs(
            &[flow(1, 940.0), flow(2, 940.0)],
            &[flow(1, 657.0), flow(2, 490.0)],
        ),
    );
    let found = compare(&shared, &good);
    assert_eq!(
        (found.verdict, found.why, found.id),
        (BaselineVerdict::Regression, None, good.id.clone())
    );
    assert!(
        (found.change_pct + 38.4).abs() < 0.1 && found.noise_pct == 3.0,
        "{} {}",
        found.change_pct,
        found.noise_pct
    );
    assert_eq!(
        (found.baseline.median_bps, found.baseline.n),
        (1_863_000_000, 6)
    );
    assert_eq!(compare(&good, &shared).verdict, BaselineVerdict::Better);
    assert_eq!(compare(&good, &good).verdict, BaselineVerdict::Same);
}

#[test]
fn other_links_packets_directions_and_documents_are_not_compared() {
    let now = of_rates(Phase::Together, &[940.0; 6]);
    let mut other = now.clone();
    other.links[0].ends.client.name = "wlan0".into();
    assert_eq!(
        verdict(&now, &other),
        (
            BaselineVerdict::NotComparable,
            Some("links differ: eth0=enp0, baseline wlan0=enp0".into())
        )
    );
    let mut jumbo = now.clone();
    jumbo.links[0]
        .theory
        .iter_mut()
        .for_each(|theory| theory.mtu = 9000);
    assert_eq!(
        verdict(&now, &jumbo),
        (
            BaselineVerdict::NotComparable,
            Some("MTU of eth0 differs: 1500, baseline 9000".into())
        )
    );
    jumbo.links[0].theory = None;
    assert_eq!(
        verdict(&now, &jumbo).0,
        BaselineVerdict::Same,
        "the interfaces' MTUs are 1500"
    );
    let mut newer = now.clone();
    newer.schema = "nicstripe-bench-report/2".into();
    assert_eq!(verdict(&now, &newer).0, BaselineVerdict::NotComparable);
    let found = compare(&now, &of_rates(Phase::Reverse, &[940.0; 6]));
    assert_eq!(
        (found.verdict, found.baseline.n),
        (BaselineVerdict::NotComparable, 0)
    );
    assert_eq!(
        found.why.unwrap(),
        "no load was measured in the same direction by both"
    );
}

#[test]
fn links_in_another_order_and_a_slower_line_are_compared() {
    let of = |ids: [u32; 2], mbit: f64| {
        report(
            ids.map(link).to_vec(),
            runs(&[], &[flow(ids[0], mbit), flow(ids[1], mbit)]),
        )
    };
    assert_eq!(
        verdict(&of([1, 2], 940.0), &of([2, 1], 940.0)).0,
        BaselineVerdict::Same
    );
    let mut slow = of_rates(Phase::Together, &[94.0; 6]);
    slow.links[0].theory_bps = Some(94_148_244);
    assert_eq!(
        verdict(&slow, &of_rates(Phase::Together, &[940.0; 6])).0,
        BaselineVerdict::Regression
    );
}

#[test]
fn reports_of_the_reverse_alone_are_compared_by_it() {
    let found = compare(
        &of_rates(Phase::Reverse, &[800.0; 6]),
        &of_rates(Phase::Reverse, &[940.0; 6]),
    );
    assert_eq!(
        (found.verdict, found.baseline.median_bps),
        (BaselineVerdict::Regression, 940_000_000)
    );
}

/// Returns the next pseudo-random number of SplitMix64, as in nicstripe-sim, scaled to 0..1.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
}

/// Returns a report of six repeats at `mbit` Mbit/s with normal noise of 1 %.
fn noisy(state: &mut u64, mbit: f64) -> BenchReport {
    let mut normal = || (0..12).map(|_| uniform(state)).sum::<f64>() - 6.0;
    let rates: Vec<f64> = (0..6).map(|_| mbit * (1.0 + 0.01 * normal())).collect();
    of_rates(Phase::Together, &rates)
}

#[test]
fn in_1000_comparisons_noise_is_never_a_regression_and_a_tenth_less_always() {
    let mut state = 20_261_122;
    for _ in 0..1000 {
        let before = noisy(&mut state, 940.0);
        assert_ne!(
            compare(&noisy(&mut state, 940.0), &before).verdict,
            BaselineVerdict::Regression
        );
        assert_eq!(
            compare(&noisy(&mut state, 846.0), &before).verdict,
            BaselineVerdict::Regression
        );
    }
}
