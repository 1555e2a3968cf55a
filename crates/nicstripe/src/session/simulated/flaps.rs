//! Tests of flapping links, and of their effect on the other links.

use std::time::Duration;

use nicstripe_sim::End;

use super::lab::{Direction, Lab, in_virtual_time, mib, ms, secs};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    Cut,
    Silent,
    /// The link silently drops the data from this end, but not from the other.
    Mute(End),
}

/// Schedules outages of link 0 from 1 s to 60 s. Each lasts `away`, and the link works for `there`
/// between them.
fn flap(lab: &Lab, how: Away, away: Duration, there: Duration) {
    let mut at = secs(1);
    while at < secs(60) {
        lab.at(at, move |links| match how {
            Away::Cut => links.cut(0),
            Away::Silent => End::BOTH.into_iter().for_each(|end| links.silence(0, end)),
            Away::Mute(end) => links.silence(0, end),
        });
        lab.at(at + away, move |links| match how {
            Away::Cut => links.heal(0),
            _ => links.heal_silently(0),
        });
        at += away + there;
    }
}

/// Returns the duration of a transfer with a flapping link, relative to the ideal duration over
/// only the steady link of 100 Mbit/s.
fn cost(size: u64, mbit: u64, how: Away, (away, there): (u64, u64)) -> f64 {
    let mut cost = 0.0;
    in_virtual_time(async {
        let mut lab = Lab::new(3, &[mbit, 100]).await;
        flap(&lab, how, ms(away), ms(there));
        let began = lab.now();
        let copy = lab.copy(Direction::Put, size).await;
        copy.end(secs(120)).await.unwrap();
        lab.assert_delivered();
        cost = (lab.now() - began).as_secs_f64() / (size as f64 * 8.0 / 100e6);
    });
    println!("{mbit} Mbit/s {how:?} {away}/{there} ms: {cost:.3}");
    cost
}

#[test]
fn a_link_that_comes_and_goes_costs_the_others_little() {
    for (how, phases) in [
        (Away::Mute(End::B), (1000, 1000)),
        (Away::Silent, (400, 600)),
        (Away::Cut, (300, 300)),
        (Away::Mute(End::B), (700, 300)),
    ] {
        let cost = cost(mib(64), 10, how, phases);
        assert!(cost <= 1.03, "{how:?} {phases:?}: {cost}");
    }
}

#[test]
fn a_fast_link_that_is_there_half_of_the_time_is_used_for_as_long_as_it_is_there() {
    // Two thirds if the outages lost no data.
    let cost = cost(mib(96), 100, Away::Cut, (1000, 1000));
    assert!(cost <= 0.8, "{cost}");
}
