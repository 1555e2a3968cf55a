//! Tests with links that are cut, silenced, slowed and healed, and with disks that stall.

use std::time::Duration;

use nicstripe_proto::{FailCode, Message, PathId};
use nicstripe_sim::End;

use crate::{
    harness::{Direction, Kind, Lab, Seed, mib, ms, secs},
    peer::Outcome,
};

/// Size of the file in bytes: 512 MiB take 2.147 s over two gigabit links.
const SIZE: u64 = mib(512);

fn two_links(direction: Direction) -> Lab {
    let mut lab = Lab::scaled(Seed(3), SIZE)
        .direction(direction)
        .link(1000)
        .link(1000);
    lab.start();
    lab
}

/// Returns the ideal duration of the transfer over two gigabit links, one of which fails at `at`.
fn ideal_on_one(at: Duration) -> Duration {
    let all = Duration::from_secs_f64(SIZE as f64 * 8.0 / 1e9);
    all - at
}

#[test]
fn a_cut_link_costs_at_most_half_a_second_more_than_the_rest_carries() {
    for direction in Direction::BOTH {
        for (index, at) in [(0, secs(1)), (1, secs(1)), (0, ms(1)), (1, ms(2100))] {
            let mut lab = two_links(direction);
            lab.at(at, move |lab| lab.cut(index));
            let took = lab.run(secs(60));
            lab.assert_delivered();
            println!(
                "cut {index} at {at:?} {direction:?}: {took:?}, ideal {:?}",
                ideal_on_one(at)
            );
            assert!(
                took <= ideal_on_one(at) + ms(500),
                "{direction:?}, link {index} at {at:?}: {took:?}"
            );
        }
    }
}

#[test]
fn a_link_that_falls_silent_costs_at_most_one_point_seven_seconds_more() {
    for direction in Direction::BOTH {
        for silent in [&[End::A, End::B][..], &[End::A], &[End::B]] {
            for at in [secs(1), ms(2050)] {
                let mut lab = two_links(direction);
                let ends = silent.to_vec();
                lab.at(at, move |lab| {
                    ends.into_iter().for_each(|end| lab.silence(0, end));
                });
                let took = lab.run(secs(60));
                lab.assert_delivered();
                println!(
                    "silent {silent:?} at {at:?} {direction:?}: {took:?}, ideal {:?}",
                    ideal_on_one(at)
                );
                assert!(
                    took <= ideal_on_one(at) + ms(1700),
                    "{direction:?}, silent {silent:?} at {at:?}: {took:?}"
                );
            }
        }
    }
}

#[test]
fn a_link_that_is_cut_and_healed_carries_data_again_within_two_seconds() {
    for direction in Direction::BOTH {
        for heal in [ms(1100), ms(1700), ms(2300)] {
            let mut lab = two_links(direction);
            lab.at(secs(1), |lab| lab.cut(0));
            lab.at(heal, |lab| lab.heal(0));
            lab.run(secs(60));
            lab.assert_delivered();
            assert_carries_again(&lab, heal, secs(2));
        }
    }
}

#[test]
fn a_link_that_was_silent_carries_data_again_within_two_seconds() {
    // Long enough for the longest back-off; the other link is slow, so that the transfer lasts.
    for tenths in 0..20 {
        let heal = secs(8) + ms(100 * tenths);
        let mut lab = Lab::scaled(Seed(3), mib(256)).link(1000).link(100);
        lab.start();
        lab.at(ms(500), |lab| {
            End::BOTH.into_iter().for_each(|end| lab.silence(0, end));
        });
        lab.at(heal, |lab| lab.heal_silently(0));
        lab.run(secs(60));
        lab.assert_delivered();
        assert_carries_again(&lab, heal, secs(2));
    }
}

fn assert_carries_again(lab: &Lab, heal: Duration, within: Duration) {
    let again = lab
        .arrivals
        .iter()
        .find(|(at, path)| *at > heal && *path == PathId(0))
        .map(|(at, _)| *at - heal);
    assert!(
        again.is_some_and(|again| again <= within),
        "healed at {heal:?}, data again after {again:?}"
    );
}

#[test]
fn a_session_outlives_a_minute_without_any_link() {
    for direction in Direction::BOTH {
        let mut lab = two_links(direction);
        lab.at(secs(1), |lab| (0..2).for_each(|index| lab.cut(index)));
        lab.at(secs(61), |lab| (0..2).for_each(|index| lab.heal(index)));
        let took = lab.run(secs(120));
        lab.assert_delivered();
        assert!(took <= secs(65), "{took:?}");
        // Acknowledged data is not retransmitted; at most two windows of 32 chunks were in flight.
        assert!(
            lab.sender_stats().repeated_bytes <= 64 * 4096,
            "{:?}",
            lab.sender_stats()
        );
    }
}

#[test]
fn a_session_without_links_is_abandoned_when_its_patience_ends() {
    let mut lab = Lab::scaled(Seed(1), SIZE).link(1000);
    lab.set_patience(secs(30));
    lab.start();
    lab.at(secs(1), |lab| lab.cut(0));
    lab.run_until(ms(30_900));
    assert!(!lab.peers[0].abandoned && !lab.peers[1].abandoned);
    lab.run_until(ms(31_100));
    assert!(lab.peers[0].abandoned && lab.peers[1].abandoned);
    assert!(lab.peers[0].outcomes.is_empty());
}

#[test]
fn a_session_that_never_had_a_link_is_abandoned() {
    let mut lab = Lab::scaled(Seed(1), SIZE).link(1000);
    lab.set_patience(secs(30));
    lab.cut(0);
    lab.start();
    lab.run_until(secs(31));
    assert!(lab.peers[0].abandoned && lab.peers[1].abandoned);
}

#[test]
fn a_disk_that_stalls_kills_no_path_and_memory_stays_bounded() {
    for direction in Direction::BOTH {
        let mut lab = two_links(direction);
        let receiver = direction.sender().other();
        lab.at(secs(1), move |lab| {
            lab.peer_mut(receiver).disk.stalled_until = secs(31);
        });
        let took = lab.run(secs(60));
        lab.assert_delivered();
        let losses: Vec<_> = lab.peers.iter().flat_map(|peer| &peer.losses).collect();
        assert!(losses.is_empty(), "{losses:?}");
        assert!(
            lab.receiver().most_writing <= 2 * lab.config.credit_window,
            "{}",
            lab.receiver().most_writing
        );
        assert!(took <= ms(2150) + secs(30) + ms(300), "{took:?}");
    }
}

#[test]
fn links_that_flap_while_the_disk_stalls_do_not_fill_the_memory() {
    let mut lab = two_links(Direction::Put);
    lab.at(secs(1), |lab| {
        lab.peer_mut(End::B).disk.stalled_until = secs(31);
    });
    for second in 2..30 {
        lab.at(secs(second), |lab| lab.cut(0));
        lab.at(secs(second) + ms(500), |lab| lab.heal(0));
    }
    lab.run(secs(60));
    lab.assert_delivered();
    assert!(
        lab.receiver().most_writing <= 2 * lab.config.credit_window,
        "{}",
        lab.receiver().most_writing
    );
}

#[test]
fn a_source_disk_that_stalls_kills_no_path() {
    let mut lab = two_links(Direction::Put);
    lab.at(secs(1), |lab| {
        lab.peer_mut(End::A).disk.stalled_until = secs(31);
    });
    lab.run(secs(60));
    lab.assert_delivered();
    assert!(lab.peers.iter().all(|peer| peer.losses.is_empty()));
}

#[test]
fn a_full_disk_ends_the_transfer_once_at_both_ends_and_the_session_goes_on() {
    for direction in Direction::BOTH {
        let mut lab = two_links(direction);
        let receiver = direction.sender().other();
        lab.peer_mut(receiver).disk.full_at = Some(500);
        lab.run(secs(60));
        assert_eq!(
            lab.receiver().outcomes[&lab.transfer],
            Outcome::FailedHere(FailCode::NoSpace)
        );
        assert_eq!(
            lab.sender().outcomes[&lab.transfer],
            Outcome::FailedThere(FailCode::NoSpace)
        );
        lab.peer_mut(receiver).disk.full_at = None;
        lab.begin();
        lab.run(secs(120));
        lab.assert_delivered();
    }
}

#[test]
fn a_source_that_changed_is_told_to_the_peer() {
    for direction in Direction::BOTH {
        let mut lab = two_links(direction);
        let sender = direction.sender();
        lab.at(secs(1), move |lab| lab.peer_mut(sender).source += 1);
        lab.run(secs(60));
        assert_eq!(
            lab.sender().outcomes[&lab.transfer],
            Outcome::FailedHere(FailCode::SourceChanged)
        );
        assert_eq!(
            lab.receiver().outcomes[&lab.transfer],
            Outcome::FailedThere(FailCode::SourceChanged)
        );
        assert_eq!(lab.receiver().disk.committed, None);
    }
}

#[test]
fn a_control_message_whose_link_is_cut_arrives_over_another() {
    let kinds: [Kind; 7] = [
        |message| matches!(message, Message::Put(_)),
        |message| matches!(message, Message::Get(_)),
        |message| matches!(message, Message::Offer(_)),
        |message| matches!(message, Message::Accept(_)),
        |message| matches!(message, Message::Complete(_)),
        |message| matches!(message, Message::Committed(_)),
        |message| matches!(message, Message::Fail(_)),
    ];
    for direction in Direction::BOTH {
        for (kind, end) in kinds
            .into_iter()
            .flat_map(|kind| End::BOTH.map(|end| (kind, end)))
        {
            let mut lab = Lab::scaled(Seed(3), mib(64))
                .direction(direction)
                .link(1000)
                .link(1000);
            lab.cut_after = Some((end, kind));
            lab.start();
            let took = lab.run(secs(60));
            lab.assert_delivered();
            // 64 MiB over one link take 0.54 s.
            assert!(took <= ms(540 + 500), "{took:?}");
        }
    }
}

#[test]
fn a_damaged_chunk_is_sent_again() {
    for direction in Direction::BOTH {
        let mut lab = two_links(direction);
        lab.damage = [0, 7, 1000, 2047].map(nicstripe_proto::ChunkId).into();
        lab.run(secs(60));
        lab.assert_delivered();
        assert!(lab.damage.is_empty());
        assert!(lab.sender_stats().repeated_bytes > 0);
    }
}

#[test]
fn a_damaged_chunk_is_sent_again_over_the_only_link() {
    let mut lab = Lab::scaled(Seed(3), mib(64)).link(1000);
    lab.damage = [0, 7, 255].map(nicstripe_proto::ChunkId).into();
    lab.start();
    lab.run(secs(60));
    lab.assert_delivered();
}

#[test]
fn a_link_that_becomes_slow_does_not_hold_up_the_end() {
    let mut lab = two_links(Direction::Put);
    lab.at(secs(1), |lab| {
        let link = lab.links[0];
        End::BOTH
            .into_iter()
            .for_each(|end| lab.net.set_rate(link, end, 1_000_000 / 64));
    });
    let took = lab.run(secs(60));
    lab.assert_delivered();
    let ideal = ideal_on_one(secs(1));
    println!("slowed to 1 Mbit/s: {took:?}, ideal {ideal:?}");
    assert!(took <= ideal.mul_f64(1.03), "{took:?}, ideal {ideal:?}");
}

#[test]
fn what_was_sent_twice_is_counted_alike_at_both_ends() {
    let mut lab = Lab::full(Seed(1), mib(64)).link(1000).link(10);
    lab.start();
    lab.run(secs(60));
    lab.assert_delivered();
    let (sent, received) = (lab.sender_stats(), lab.receiver_stats());
    assert_eq!(sent.delivered_bytes, mib(64));
    assert_eq!(received.delivered_bytes, mib(64));
    assert!(sent.repeated_bytes > 0);
    assert!(received.repeated_bytes <= sent.repeated_bytes);
    assert_eq!(sent.by_path.values().sum::<u64>(), mib(64));
    assert_eq!(received.by_path.values().sum::<u64>(), mib(64));
}
