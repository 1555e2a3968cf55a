//! Tests with sparse files: the sender announces holes instead of sending zeros, and the receiver
//! makes them durable as holes.

use nicstripe_sim::End;

use crate::harness::{Direction, Lab, Seed, ms, secs};

const CHUNK: u64 = 4096;

#[test]
fn only_data_is_sent_and_the_digest_is_that_of_the_whole() {
    for direction in Direction::BOTH {
        let mut lab = Lab::small(Seed(3), 300 * CHUNK - 5)
            .direction(direction)
            .link(1000)
            .link(100);
        lab.add_hole(0, 17);
        lab.add_hole(20, 1);
        lab.add_hole(100, 200);
        lab.start();
        lab.run(secs(60));
        lab.assert_delivered();
        let data = (300 - 218) * CHUNK;
        for stats in [lab.sender_stats(), lab.receiver_stats()] {
            assert_eq!(
                (stats.delivered_bytes, stats.unsent_bytes),
                (data, 218 * CHUNK - 5)
            );
        }
    }
}

#[test]
fn a_file_that_is_one_hole_is_not_sent_at_all() {
    for chunks in [1, 2, 3000] {
        let mut lab = Lab::small(Seed(3), chunks * CHUNK).link(100);
        lab.add_hole(0, chunks);
        lab.start();
        lab.run(secs(60));
        lab.assert_delivered();
        assert_eq!(
            (lab.sender().sent_chunks, lab.receiver_stats().unsent_bytes),
            (0, chunks * CHUNK)
        );
    }
}

#[test]
fn more_holes_than_fit_into_a_message_are_told_in_several() {
    let chunks = 2 * nicstripe_proto::hole::HOLES_PER_MESSAGE as u64 + 200;
    let mut lab = Lab::small(Seed(3), chunks * CHUNK).link(1000);
    (0..chunks)
        .step_by(2)
        .for_each(|chunk| lab.add_hole(chunk, 1));
    lab.start();
    lab.run(secs(60));
    lab.assert_delivered();
    assert_eq!(lab.sender_stats().delivered_bytes, chunks / 2 * CHUNK);
}

#[test]
fn holes_that_are_durable_need_not_be_made_again() {
    for killed in End::BOTH {
        let mut lab = Lab::small(Seed(3), 4000 * CHUNK).link(10);
        lab.add_hole(0, 3000);
        lab.start();
        lab.run_until(secs(3));
        lab.restart(killed);
        lab.run(secs(600));
        lab.assert_delivered();
        let stats = lab.receiver_stats();
        assert!(stats.resumed_bytes >= 3000 * CHUNK, "{stats:?}");
        assert_eq!(stats.unsent_bytes, 0);
    }
}

#[test]
fn holes_are_told_although_a_link_is_cut_under_them() {
    let mut lab = Lab::small(Seed(3), 400 * CHUNK).link(1000).link(1000);
    lab.add_hole(5, 300);
    lab.cut_after = Some((End::A, |message| {
        matches!(message, nicstripe_proto::Message::Holes(_))
    }));
    lab.start();
    let took = lab.run(secs(60));
    lab.assert_delivered();
    assert!(took < ms(2000), "{took:?}");
}
