//! Tests with cut links, full disks and damaged chunks. The library's `session/simulated` tests run
//! the shipped event loop over links that are cut, silenced and healed.

use nicstripe_proto::{FailCode, Message};
use nicstripe_sim::End;

use crate::{
    harness::{Direction, Kind, Lab, Seed, mib, ms, secs},
    peer::Outcome,
};

/// Size of the file in bytes: 512 MiB take 2.147 s over two links of 1 Gbit/s.
const SIZE: u64 = mib(512);

fn two_links(direction: Direction) -> Lab {
    let mut lab = Lab::scaled(Seed(3), SIZE)
        .direction(direction)
        .link(1000)
        .link(1000);
    lab.start();
    lab
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
