//! Tests of batches whose source waits for the verdicts of the sink.

use std::time::Duration;

use nicstripe_proto::message::OfferKind;
use nicstripe_sim::Rng;

use crate::{
    disk::Contents,
    harness::{Direction, Lab, Seed, ideal, secs},
    live::Plan,
};

const FULL: u64 = 4096;

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
