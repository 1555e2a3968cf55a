//! Tests of batches, which their sink consumes in order.

use std::time::Duration;

use nicstripe_proto::message::OfferKind;
use nicstripe_sim::{End, Rng};

use crate::{
    disk::Contents,
    harness::{Direction, Lab, Seed, ideal, ms, secs, us},
    live::Plan,
};

const FULL: u64 = 4096;

fn no_path_was_lost(lab: &Lab) {
    for peer in &lab.peers {
        assert!(peer.losses.is_empty(), "{:?}", peer.losses);
        assert_eq!(peer.suspicions, 0);
    }
}

/// Returns `count` random batches of 1 to 8192 bytes, most of them at most 300 bytes.
pub(crate) fn batches(seed: u64, count: u64) -> Contents {
    let mut rng = Rng::new(seed);
    let mut len = |_| {
        let most = if rng.below(4) == 0 { 2 * FULL } else { 300 };
        1 + rng.below(most) as u32
    };
    Contents::batches((0..count).map(&mut len).collect())
}

/// Measures a transfer of 4000 batches of 64 KiB over links with rates of `mbit` Mbit/s. Returns
/// its duration and the ideal duration.
fn batches_by(plan: Plan, direction: Direction, mbit: &[u64]) -> (Duration, Duration) {
    let (count, len) = (4000, 1 << 16);
    let mut lab = Lab::small(Seed(1), 0).direction(direction).plan(plan);
    for mbit in mbit {
        lab = lab.link(*mbit);
    }
    lab.contents = Contents::batches(vec![len / lab.scale as u32; count]);
    lab.start();
    let (took, ideal) = (
        lab.run(secs(60)),
        ideal(mbit, count as u64 * u64::from(len)),
    );
    lab.assert_delivered();
    println!("{plan:?}, {direction:?}: {took:?}, ideal {ideal:?}");
    (took, ideal)
}

#[test]
fn batches_of_who_waits_for_the_taker_take_the_sum_of_the_links() {
    for direction in Direction::BOTH {
        // The limit is what both links carry in 1.6 ms. If one path got each batch while the other
        // idles, one link would be the bottleneck.
        let (took, ideal) = batches_by(
            Plan {
                untold: Some(6),
                ..Plan::new(OfferKind::Batches)
            },
            direction,
            &[1000, 1000],
        );
        assert!(took <= ideal.mul_f64(1.02), "{took:?}, ideal {ideal:?}");
    }
}

#[test]
fn batches_of_who_has_few_places_take_the_sum_of_the_links() {
    for direction in Direction::BOTH {
        // Delayed acknowledgements would occupy most of the retransmit buffer.
        let (took, ideal) = batches_by(
            Plan {
                ahead: 8,
                ..Plan::new(OfferKind::Batches)
            },
            direction,
            &[1000, 1000],
        );
        assert!(took <= ideal.mul_f64(1.02), "{took:?}, ideal {ideal:?}");
    }
}

#[test]
fn batches_of_who_waits_for_the_taker_wait_little_for_a_slow_link() {
    for direction in Direction::BOTH {
        let plan = Plan {
            untold: Some(32),
            ..Plan::new(OfferKind::Batches)
        };
        let ((took, _), (alone, _)) = (
            batches_by(plan, direction, &[100, 1000]),
            batches_by(plan, direction, &[1000]),
        );
        assert!(
            took <= alone.mul_f64(1.1),
            "{took:?}, without the slow link {alone:?}"
        );
    }
}

#[test]
fn batches_of_odd_lengths_arrive_in_order_while_their_receiver_answers() {
    for direction in Direction::BOTH {
        for (count, untold) in [
            (0, None),
            (1, None),
            (1, Some(1)),
            (300, None),
            (300, Some(1)),
            (300, Some(7)),
        ] {
            let plan = Plan {
                untold,
                take_every: us(700),
                give_every: us(700),
                ..Plan::new(OfferKind::Batches)
            };
            let mut lab = Lab::small(Seed(count), 0)
                .direction(direction)
                .link(1000)
                .link(100)
                .plan(plan);
            lab.contents = batches(count, count);
            lab.start();
            lab.run(secs(30));
            lab.assert_delivered();
            no_path_was_lost(&lab);
        }
    }
}

#[test]
fn batches_come_through_while_links_are_cut_and_silent() {
    for direction in Direction::BOTH {
        for end in End::BOTH {
            let plan = Plan {
                untold: Some(20),
                take_every: ms(4),
                ..Plan::new(OfferKind::Batches)
            };
            let mut lab = Lab::small(Seed(8), 0)
                .direction(direction)
                .link(10)
                .link(100)
                .plan(plan);
            lab.contents = batches(8, 900);
            lab.start();
            lab.at(ms(200), |lab| lab.cut(1));
            lab.at(ms(700), |lab| lab.heal(1));
            lab.at(ms(1200), move |lab| lab.silence(0, end));
            lab.at(secs(5), |lab| lab.heal_silently(0));
            lab.run(secs(60));
            lab.assert_delivered();
        }
    }
}
