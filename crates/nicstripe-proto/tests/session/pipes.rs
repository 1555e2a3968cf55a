//! Tests of transfers whose length is known only at their end, and of sinks that consume chunks in
//! order.

use std::time::Duration;

use nicstripe_proto::{BitRate, PathId, message::OfferKind};
use nicstripe_sim::{End, Rng};

use crate::{
    disk::Contents,
    harness::{Direction, Lab, Seed, mib, ms, secs, us},
    live::Plan,
    ratios::ideal,
};

const FULL: u64 = 4096;

fn no_path_was_lost(lab: &Lab) {
    for peer in &lab.peers {
        assert!(peer.losses.is_empty(), "{:?}", peer.losses);
        assert_eq!(peer.suspicions, 0);
    }
}

#[test]
fn a_pipe_of_any_length_arrives_with_the_digest_of_what_was_given() {
    for direction in Direction::BOTH {
        for size in [
            0,
            1,
            FULL - 1,
            FULL,
            FULL + 1,
            2 * FULL,
            9 * FULL - 1,
            16 * FULL,
            37 * FULL + 5,
            200 * FULL,
        ] {
            for knows_last in [true, false] {
                let plan = Plan {
                    knows_last,
                    give_every: ms(3),
                    ..Plan::new(OfferKind::Pipe)
                };
                let mut lab = Lab::small(Seed(size), size)
                    .direction(direction)
                    .link(1000)
                    .link(100)
                    .plan(plan);
                lab.start();
                lab.run(secs(20));
                lab.assert_delivered();
                assert_digest_is_that_of_all_bytes(&lab);
            }
        }
    }
}

fn assert_digest_is_that_of_all_bytes(lab: &Lab) {
    let mut hasher = blake3::Hasher::new();
    for chunk in lab.contents.chunks().chunks() {
        hasher.update(&lab.contents.bytes(lab.offered, chunk));
    }
    assert_eq!(
        lab.receiver().disk.committed.map(|digest| digest.0),
        Some(*hasher.finalize().as_bytes())
    );
}

#[test]
fn a_pipe_that_gives_little_and_seldom_kills_no_path() {
    for direction in Direction::BOTH {
        let plan = Plan {
            give_every: secs(20),
            ..Plan::new(OfferKind::Pipe)
        };
        let mut lab = Lab::small(Seed(5), 10 * FULL + 1)
            .direction(direction)
            .link(1000)
            .link(10)
            .plan(plan);
        lab.start();
        lab.run(secs(300));
        lab.assert_delivered();
        no_path_was_lost(&lab);
    }
}

#[test]
fn a_pipe_whose_links_are_cut_and_healed_arrives_whole() {
    for direction in Direction::BOTH {
        // 600 chunks over 10 Mbit/s take 1.9 s at full size.
        let mut lab = Lab::small(Seed(6), 600 * FULL - 7)
            .direction(direction)
            .link(100)
            .link(10)
            .plan(Plan::new(OfferKind::Pipe));
        lab.start();
        lab.at(ms(300), |lab| lab.cut(0));
        lab.at(ms(900), |lab| lab.heal(0));
        lab.at(ms(1200), |lab| (0..2).for_each(|index| lab.cut(index)));
        lab.at(secs(6), |lab| (0..2).for_each(|index| lab.heal(index)));
        lab.damage = [3, 599].map(nicstripe_proto::ChunkId).into();
        lab.run(secs(60));
        lab.assert_delivered();
        assert_digest_is_that_of_all_bytes(&lab);
    }
}

#[test]
fn a_pipe_takes_the_sum_of_its_links() {
    for direction in Direction::BOTH {
        let size = mib(512);
        let mut lab = Lab::scaled(Seed(1), size)
            .direction(direction)
            .link(1000)
            .link(1000)
            .plan(Plan::new(OfferKind::Pipe));
        lab.start();
        let (took, ideal) = (lab.run(secs(60)), ideal(&[1000, 1000], size));
        lab.assert_delivered();
        assert!(took <= ideal.mul_f64(1.02), "{took:?}, ideal {ideal:?}");
    }
}

#[test]
fn a_slow_taker_holds_back_the_sender_and_kills_no_path() {
    for direction in Direction::BOTH {
        for (room, take_every) in [(1, ms(20)), (3, ms(20)), (8, ms(40)), (64, ms(40))] {
            let plan = Plan {
                room: Some(room),
                take_every,
                ..Plan::new(OfferKind::File)
            };
            let mut lab = Lab::small(Seed(room), 300 * FULL - 9)
                .direction(direction)
                .link(1000)
                .link(1000)
                .plan(plan);
            lab.start();
            let took = lab.run(secs(60));
            lab.assert_delivered();
            no_path_was_lost(&lab);
            let live = lab.live.as_ref().unwrap();
            assert!(live.most_kept as u64 <= room);
            // On average half of the longest pause per chunk, plus a round trip if the window is
            // one chunk.
            assert!(
                took <= 300 * (take_every / 2 + ms(3)) + secs(1),
                "{room}: {took:?}"
            );
        }
    }
}

#[test]
fn a_taker_that_stops_for_half_a_minute_kills_no_path_and_keeps_no_more_than_its_room() {
    for direction in Direction::BOTH {
        for kind in [OfferKind::File, OfferKind::Pipe] {
            let plan = Plan {
                room: Some(64),
                ..Plan::new(kind)
            };
            let mut lab = Lab::scaled(Seed(2), mib(512))
                .direction(direction)
                .link(1000)
                .link(1000)
                .plan(plan);
            let receiver = direction.sender().other();
            lab.start();
            lab.at(secs(1), move |lab| {
                lab.peer_mut(receiver).disk.stalled_until = secs(31);
            });
            let took = lab.run(secs(60));
            lab.assert_delivered();
            no_path_was_lost(&lab);
            assert!(took <= ms(2150) + secs(30) + ms(300), "{took:?}");
        }
    }
}

#[test]
fn a_window_costs_a_fast_taker_nothing() {
    let size = mib(512);
    let plan = Plan {
        room: Some(64),
        ..Plan::new(OfferKind::File)
    };
    let mut lab = Lab::scaled(Seed(1), size).link(1000).link(1000).plan(plan);
    lab.start();
    let (took, ideal) = (lab.run(secs(60)), ideal(&[1000, 1000], size));
    lab.assert_delivered();
    assert!(took <= ideal.mul_f64(1.02), "{took:?}, ideal {ideal:?}");
}

#[test]
fn a_window_over_links_of_very_different_speed_does_not_stand_still() {
    for direction in Direction::BOTH {
        // A chunk takes 0.2 s at 10 Mbit/s, and all behind it wait in the window.
        let plan = Plan {
            room: Some(64),
            ..Plan::new(OfferKind::File)
        };
        let mut lab = Lab::scaled(Seed(1), mib(256))
            .direction(direction)
            .link(1000)
            .link(10)
            .plan(plan);
        lab.start();
        let (took, ideal) = (lab.run(secs(60)), ideal(&[1000], mib(256)));
        lab.assert_delivered();
        println!(
            "1000 and 10 Mbit/s, window of 64, {direction:?}: {took:?}, the fast link alone {ideal:?}"
        );
        assert!(took <= 3 * ideal, "{took:?}, the fast link alone {ideal:?}");
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

#[test]
fn a_limit_on_one_path_leaves_a_window_to_the_other() {
    let plan = Plan {
        room: Some(16),
        ..Plan::new(OfferKind::File)
    };
    let mut lab = Lab::scaled(Seed(1), mib(64))
        .link(1000)
        .link(1000)
        .plan(plan);
    lab.start();
    let now = lab.now();
    lab.peers[0]
        .session
        .limit_path(PathId(0), Some(BitRate::from_mbit(1)), now);
    let took: Duration = lab.run(secs(60));
    lab.assert_delivered();
    println!("one of two links limited to 1 Mbit/s, window of 16: {took:?}");
}
