//! Tests that compare the measured rates of links with theory.

use std::time::Duration;

use nicstripe_lab::{BitRate, Host, Lab, LinkSpec};
use nicstripe_testkit::{
    tests,
    traffic::{Flow, Pair, goodput},
    trial::Test,
};

pub(crate) const TESTS: &[Test] = tests![
    a_gigabit_link_carries_its_theory_in_both_directions,
    a_jumbo_link_carries_its_theory,
    two_links_carry_their_sum,
    a_new_rate_holds_for_a_stream_that_runs,
    an_idle_slow_link_saves_up_no_more_than_a_few_frames,
];

fn a_gigabit_link_carries_its_theory_in_both_directions() {
    carries_its_theory(LinkSpec::gigabit(), &Host::ALL);
}

fn a_jumbo_link_carries_its_theory() {
    carries_its_theory(LinkSpec::gigabit().with_mtu(9000), &[Host::A]);
}

fn two_links_carry_their_sum() {
    let specs = [LinkSpec::gigabit(), LinkSpec::mbit(500)];
    let lab = Lab::builder().links(specs).build().unwrap();
    let flows = [0, 1].map(|link| Flow::start(&lab, link, Host::A));
    let theory: f64 = specs.into_iter().map(theory).sum();
    settle(&flows);
    expect("both links", theory, 0.015, || {
        goodput(&flows, WINDOW).iter().sum()
    });
}

fn a_new_rate_holds_for_a_stream_that_runs() {
    let lab = Lab::builder().link(LinkSpec::gigabit()).build().unwrap();
    let flows = [Flow::start(&lab, 0, Host::A)];
    for megabits in [50, 400] {
        let rate = BitRate::mbit(megabits);
        lab.set_rate(0, rate).unwrap();
        assert_eq!(lab.links()[0].line_rate(), Some(rate));
        // The stream lost a full queue and must recover, which takes cubic seconds.
        expect(
            "the changed link",
            theory(LinkSpec::mbit(megabits)),
            0.05,
            || goodput(&flows, WINDOW)[0],
        );
    }
    lab.set_rate(0, None).unwrap();
    let free = (0..ATTEMPTS)
        .map(|_| goodput(&flows, WINDOW)[0])
        .fold(0.0, f64::max);
    // Three times the rate of the last shaper, so no shaper remains.
    assert!(free > 1.2e9, "{free:.0} bit/s on an unshaped link");
}

fn an_idle_slow_link_saves_up_no_more_than_a_few_frames() {
    let lab = Lab::builder().link(LinkSpec::mbit(10)).build().unwrap();
    let pair = Pair::new(&lab, 0);
    let took = (0..ATTEMPTS).map(|_| pair.train(60, 1472)).max().unwrap();
    // 60 full frames take 73.8 ms at 10 Mbit/s. A burst covers 10 of them, which leaves 61.5 ms.
    assert!(took > Duration::from_millis(58), "60 frames in {took:?}");
}

fn carries_its_theory(spec: LinkSpec, senders: &[Host]) {
    let lab = Lab::builder().link(spec).build().unwrap();
    for &sender in senders {
        let flows = [Flow::start(&lab, 0, sender)];
        settle(&flows);
        expect(&format!("what {sender} sends"), theory(spec), 0.015, || {
            goodput(&flows, WINDOW)[0]
        });
    }
}

fn theory(spec: LinkSpec) -> f64 {
    spec.goodput().unwrap().bits_per_second() as f64
}

/// Waits 300 ms, so that the streams reach a steady rate.
fn settle(flows: &[Flow]) {
    goodput(flows, Duration::from_millis(300));
}

/// Panics unless one of several measurements is within `tolerance` (a fraction of 1) of the theory.
/// A wrong rate fails in each measurement; a busy machine does not.
fn expect(what: &str, theory: f64, tolerance: f64, mut measure: impl FnMut() -> f64) {
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let ratio = measure() / theory;
        if (ratio - 1.0).abs() <= tolerance {
            return;
        }
        seen.push(format!("{:.2} %", ratio * 100.0));
    }
    panic!("{what}: {} of {theory:.0} bit/s", seen.join(", "));
}

const WINDOW: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 5;
