//! Tests with links that flap or damage data, and of the slowdown that this causes on other links.
//!
//! All faults and rates: `cargo test --release -p nicstripe-proto --test session every_flap --
//! --ignored --nocapture`

use std::time::Duration;

use nicstripe_proto::{PathId, PathLoss, message::OfferKind};
use nicstripe_sim::End;

use crate::{
    harness::{Direction, Lab, Seed, mib, ms, secs},
    live::Plan,
    ratios::ideal,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    Cut,
    Silent,
    /// Silence of the data that this end sends.
    Mute(End),
}

impl Away {
    const ALL: [Self; 4] = [
        Self::Cut,
        Self::Silent,
        Self::Mute(End::A),
        Self::Mute(End::B),
    ];
}

/// Schedules outages of link 0 from 1 s to `until`: each lasts `away`, with service for `there` in
/// between.
fn flap(lab: &mut Lab, how: Away, away: Duration, there: Duration, until: Duration) {
    let mut at = secs(1);
    while at < until {
        lab.at(at, move |lab| match how {
            Away::Cut => lab.cut(0),
            Away::Silent => End::BOTH.into_iter().for_each(|end| lab.silence(0, end)),
            Away::Mute(end) => lab.silence(0, end),
        });
        lab.at(at + away, move |lab| match how {
            Away::Cut => lab.heal(0),
            _ => lab.heal_silently(0),
        });
        at += away + there;
    }
}

/// Returns two kinds of transfer: a file, and a pipe whose sink consumes chunks in order, so that a
/// late chunk blocks it.
fn plans() -> [Option<Plan>; 2] {
    [
        None,
        Some(Plan {
            room: Some(64),
            ..Plan::new(OfferKind::Pipe)
        }),
    ]
}

/// Returns the duration of a transfer with a flapping link, relative to the ideal duration over the
/// steady gigabit link alone.
fn cost(
    mib: u64,
    mbit: u64,
    direction: Direction,
    plan: Option<Plan>,
    how: Away,
    (away, there): (u64, u64),
) -> f64 {
    let size = self::mib(mib);
    let mut lab = Lab::scaled(Seed(3), size)
        .direction(direction)
        .link(mbit)
        .link(1000);
    if let Some(plan) = plan {
        lab = lab.plan(plan);
    }
    flap(&mut lab, how, ms(away), ms(there), secs(60));
    lab.start();
    let took = lab.run(secs(120));
    lab.assert_delivered();
    let cost = took.as_secs_f64() / ideal(&[1000], size).as_secs_f64();
    println!(
        "{} {direction:?} {mbit} Mbit/s {how:?} {away}/{there} ms: {cost:.3}",
        if plan.is_some() { "pipe" } else { "file" }
    );
    cost
}

#[test]
fn a_link_that_comes_and_goes_costs_the_others_nothing() {
    // The worst were 1.12 (with 10 Mbit/s), when the receiver's messages used the flapping link.
    for (plan, how, phases) in [
        (1, Away::Mute(End::B), (1000, 1000)),
        (1, Away::Silent, (400, 600)),
        (1, Away::Cut, (300, 300)),
        (0, Away::Mute(End::B), (700, 300)),
    ] {
        let cost = cost(768, 10, Direction::Put, plans()[plan], how, phases);
        assert!(cost <= 1.02, "{cost}");
    }
}

#[test]
#[ignore = "480 runs of 20 s in virtual time: a minute of two processors with --release"]
fn every_flap() {
    let phases = [
        (100, 100),
        (300, 300),
        (400, 600),
        (700, 300),
        (1000, 1000),
        (3000, 3000),
    ];
    for (plan, direction) in plans()
        .into_iter()
        .flat_map(|plan| Direction::BOTH.map(|direction| (plan, direction)))
    {
        for (mbit, how) in [2, 10, 50, 100, 1000]
            .into_iter()
            .flat_map(|mbit| Away::ALL.map(|how| (mbit, how)))
        {
            for phases in phases {
                let cost = cost(2560, mbit, direction, plan, how, phases);
                assert!(cost <= 1.02, "{cost}");
            }
        }
    }
}

#[test]
fn a_link_that_has_flapped_carries_data_two_seconds_after_it_stays() {
    for (how, tenths) in Away::ALL
        .into_iter()
        .flat_map(|how| [0, 4, 8, 12].map(|tenths| (how, tenths)))
    {
        let mut lab = Lab::scaled(Seed(3), mib(1024)).link(1000).link(100);
        // The other link is slow, so that the transfer lasts; this one has five outages.
        let (away, there) = (ms(2000 + 100 * tenths), ms(200));
        flap(&mut lab, how, away, there, secs(1) + (away + there) * 5);
        let stays = secs(1) + (away + there) * 5 - there;
        lab.start();
        lab.run(secs(60));
        lab.assert_delivered();
        let again = lab
            .arrivals
            .iter()
            .find(|(at, path)| *at > stays && path.0 == 0)
            .map(|(at, _)| *at - stays);
        assert!(
            again.is_some_and(|again| again <= secs(2)),
            "{how:?}: stays from {stays:?} on, data again after {again:?}"
        );
    }
}

/// Starts a transfer over two gigabit links; link 0 damages one of `one_in` chunks.
fn damaging(direction: Direction, size: u64, one_in: u64) -> Lab {
    let mut lab = Lab::scaled(Seed(3), size)
        .direction(direction)
        .link(1000)
        .link(1000);
    lab.damages.insert(PathId(0), one_in);
    lab.start();
    lab
}

#[test]
fn a_link_that_damages_what_it_carries_gets_less_and_less_of_it_and_is_named() {
    for direction in Direction::BOTH {
        let mut lab = damaging(direction, mib(1536), 20);
        let took = lab.run(secs(120));
        lab.assert_delivered();
        let receiver = lab.receiver();
        let damaged: Vec<Duration> = receiver
            .losses
            .iter()
            .filter(|loss| loss.2 == PathLoss::Damaged)
            .map(|loss| loss.0)
            .collect();
        println!("{direction:?}: {took:?}, damaged at {damaged:?}");
        // At the start, at the first reuse, and after 2, 4 and 8 s.
        assert!((3..=5).contains(&damaged.len()), "{damaged:?}");
        assert_eq!(
            receiver.session.path(PathId(0)).map(|path| path.damages()),
            Some(damaged.len() as u32)
        );
        assert_eq!(receiver.damages, damaged.len() as u64);
        let ideal = ideal(&[1000], mib(1536));
        assert!(took <= ideal.mul_f64(1.02), "{took:?}, ideal {ideal:?}");
    }
}

#[test]
fn a_link_that_damaged_one_chunk_is_used_again_at_once() {
    for direction in Direction::BOTH {
        let mut lab = damaging(direction, mib(512), 1);
        lab.at(ms(500), |lab| lab.damages.clear());
        lab.damages.clear();
        lab.at(ms(300), |lab| {
            lab.damage = (600..604).map(nicstripe_proto::ChunkId).collect();
        });
        let took = lab.run(secs(60));
        lab.assert_delivered();
        // The path is reconnected after 250 ms.
        assert!(took <= ideal(&[2000], mib(512)) + ms(400), "{took:?}");
    }
}

#[test]
fn the_only_link_is_used_whatever_it_damages() {
    for direction in Direction::BOTH {
        let mut lab = Lab::scaled(Seed(3), mib(256))
            .direction(direction)
            .link(1000);
        lab.damages.insert(PathId(0), 100);
        lab.start();
        let took = lab.run(secs(60));
        lab.assert_delivered();
        // 1024 chunks in 2.1 s, and about ten reconnects.
        assert!(took <= secs(12), "{took:?}");
    }
}
