//! Tests of flapping links, and of their effect on the other links.

use std::time::Duration;

use nicstripe_proto::ChunkSize;
use nicstripe_sim::End;
use nicstripe_testkit::trial::amount;

use super::{
    faults::carries_again,
    lab::{Direction, Lab, in_virtual_time, mib, ms, secs},
    streams::Program,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    Cut,
    Silent,
    /// The link silently drops the data from this end, but not from the other.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    /// Stream, whose receiver may wait for a late chunk.
    Stream,
}

/// Schedules outages of link 0 from 1 s to `until`. Each lasts `away`, and the link works for
/// `there` between them.
fn flap(lab: &Lab, how: Away, (away, there): (Duration, Duration), until: Duration) {
    let mut at = secs(1);
    while at < until {
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
fn cost(
    kind: Kind,
    direction: Direction,
    (size, mbit): (u64, u64),
    how: Away,
    (away, there): (u64, u64),
) -> f64 {
    let mut cost = 0.0;
    in_virtual_time(async {
        let mut lab = Lab::new(3, &[mbit, 100]).await;
        flap(&lab, how, (ms(away), ms(there)), secs(60));
        let began = lab.now();
        let ended = match kind {
            Kind::File => {
                lab.deliver(direction, size, secs(120)).await;
                lab.now()
            }
            Kind::Stream => {
                let stream = lab.stream(direction, size, Program::default()).await;
                stream.end(&lab, secs(120)).await.0
            }
        };
        cost = (ended - began).as_secs_f64() / (size as f64 * 8.0 / 100e6);
    });
    println!("{kind:?} {direction:?} {mbit} Mbit/s {how:?} {away}/{there} ms: {cost:.3}");
    cost
}

#[test]
fn a_link_that_comes_and_goes_costs_the_others_nothing() {
    // The worst were 1.12, when the receiver's messages used the flapping link.
    for (kind, direction, how, phases) in [
        (
            Kind::Stream,
            Direction::Get,
            Away::Mute(End::B),
            (1000, 1000),
        ),
        (Kind::Stream, Direction::Put, Away::Silent, (400, 600)),
        (Kind::Stream, Direction::Get, Away::Cut, (300, 300)),
        (Kind::File, Direction::Put, Away::Mute(End::B), (700, 300)),
    ] {
        let cost = cost(kind, direction, (mib(40), 10), how, phases);
        assert!(cost <= 1.02, "{kind:?} {how:?} {phases:?}: {cost}");
    }
}

#[test]
fn no_flap_costs_the_others_anything() {
    let phases = amount(
        &[][..],
        &[
            (100, 100),
            (300, 300),
            (400, 600),
            (700, 300),
            (1000, 1000),
            (3000, 3000),
        ],
    );
    for (direction, how) in Direction::BOTH
        .into_iter()
        .flat_map(|direction| Away::ALL.map(|how| (direction, how)))
    {
        for (kind, mbit) in [Kind::File, Kind::Stream]
            .into_iter()
            .flat_map(|kind| [2, 10, 50, 100].map(|mbit| (kind, mbit)))
        {
            for phases in phases {
                let cost = cost(kind, direction, (mib(128), mbit), how, *phases);
                assert!(cost <= 1.02, "{cost}");
            }
        }
    }
}

#[test]
fn a_fast_link_that_is_there_half_of_the_time_is_used_for_as_long_as_it_is_there() {
    // Two thirds if the outages lost no data.
    let of = (mib(96), 100);
    let cost = cost(Kind::File, Direction::Put, of, Away::Cut, (1000, 1000));
    assert!(cost <= 0.75, "{cost}");
}

#[test]
fn a_link_that_has_flapped_carries_data_two_seconds_after_it_stays() {
    for (how, tenths) in Away::ALL.into_iter().flat_map(|how| {
        amount(&[0, 8][..], &[0, 4, 8, 12])
            .iter()
            .map(move |tenths| (how, tenths))
    }) {
        in_virtual_time(async move {
            // The other link is slow, so that the transfer lasts; this one has five outages.
            let mut lab = Lab::new(3, &[20, 2]).await;
            lab.chunk_size = ChunkSize::from_log2(16).unwrap();
            let (away, there) = (ms(2000 + 100 * tenths), ms(200));
            let stays = secs(1) + (away + there) * 5 - there;
            flap(&lab, how, (away, there), stays);
            let again = carries_again(&lab, End::A, stays);
            let _copy = lab.copy(Direction::Put, mib(32)).await;
            let again = again.await.unwrap();
            assert!(
                again <= secs(2),
                "{how:?}: stays from {stays:?} on, data again after {again:?}"
            );
        });
    }
}
