//! Links that come and go: what they cost the others.

use std::time::Duration;

use nicstripe_proto::message::OfferKind;
use nicstripe_sim::End;

use crate::{
    harness::{Direction, Lab, Seed, mib, ms, secs},
    live::Plan,
    ratios::ideal,
};

/// How a link is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    Cut,
    Silent,
    /// In this direction only.
    Mute(End),
}

impl Away {
    const ALL: [Self; 4] = [Self::Cut, Self::Silent, Self::Mute(End::A), Self::Mute(End::B)];
}

/// From one second on, link 0 is away and there by turns.
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

/// How long it takes, as a part of what the steady link takes alone.
fn cost(mbit: u64, direction: Direction, plan: Option<Plan>, how: Away, (away, there): (Duration, Duration)) -> f64 {
    let size = mib(2560);
    let mut lab = Lab::scaled(Seed(3), size).direction(direction).link(mbit).link(1000);
    if let Some(plan) = plan {
        lab = lab.plan(plan);
    }
    flap(&mut lab, how, away, there, secs(60));
    lab.start();
    let took = lab.run(secs(120));
    lab.assert_delivered();
    took.as_secs_f64() / ideal(&[1000], size).as_secs_f64()
}

/// What a link that comes and goes costs, by what kind of link it is.
fn costs(plan: Option<Plan>, rates: &[u64], phases: &[(u64, u64)]) -> Vec<(String, f64)> {
    let mut costs = Vec::new();
    for direction in Direction::BOTH {
        for (mbit, how) in rates.iter().flat_map(|mbit| Away::ALL.map(|how| (*mbit, how))) {
            for (away, there) in phases {
                let cost = cost(mbit, direction, plan, how, (ms(*away), ms(*there)));
                costs.push((format!("{direction:?} {mbit} Mbit/s {how:?} {away}/{there} ms"), cost));
            }
        }
    }
    costs
}

#[test]
fn measure() {
    let room = Plan { room: Some(64), ..Plan::new(OfferKind::Pipe) };
    for (name, plan, rates) in [("pipe", Some(room), &[100, 10, 2][..]), ("file", None, &[10, 1000])] {
        for (what, cost) in costs(plan, rates, &[(100, 100), (300, 300), (700, 300), (1000, 1000), (3000, 3000), (400, 600)]) {
            if cost > 1.005 {
                println!("{name} {what} {cost:.3}");
            }
        }
    }
}
