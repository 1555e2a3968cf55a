//! Tests that kill either end in the middle of a transfer, and check which data is sent after the
//! restart.

use nicstripe_proto::{ChainingValue, ChunkId, FailCode, Subtree};
use nicstripe_sim::End;

use crate::{
    harness::{Direction, Lab, Seed, mib, ms, secs},
    peer::Outcome,
};

#[test]
fn after_a_crash_only_what_was_not_durable_is_sent_again() {
    for direction in Direction::BOTH {
        for killed in End::BOTH {
            let mut lab = Lab::scaled(Seed(3), mib(1024))
                .direction(direction)
                .link(1000)
                .link(1000);
            lab.start();
            lab.run_until(secs(2));
            let written = lab.receiver().disk.written.len() as u64;
            lab.restart(killed);
            let durable = lab.receiver().disk.durable.len();
            // 64 MiB, or a second, and the data written during a sync: 250 MB/s for 5 ms.
            assert!(
                written - durable <= 256 + 8,
                "{written} chunks written, {durable} durable"
            );
            let took = lab.run(secs(60)) - secs(2);
            lab.assert_delivered();
            let stats = lab.sender_stats();
            assert_eq!(
                (stats.resumed_bytes, stats.delivered_bytes),
                (durable * 4096, (4096 - durable) * 4096)
            );
            assert_eq!(
                lab.sender().sent_chunks - stats.repeated_bytes / 4096,
                4096 - durable
            );
            assert!(
                took <= ms(4300) * (4096 - durable as u32) / 4096 + ms(100),
                "{took:?}"
            );
        }
    }
}

#[test]
fn an_orderly_end_keeps_what_was_written_while_a_sync_was_under_way() {
    let mut lab = Lab::scaled(Seed(3), mib(1024)).link(1000).link(1000);
    lab.peer_mut(End::B).disk.sync_delay = ms(700);
    lab.start();
    lab.run_until(ms(1500));
    let written = lab.receiver().disk.written.len() as u64;
    lab.restart(End::A);
    assert_eq!(lab.receiver().disk.durable.len(), written);
}

#[test]
fn crash_after_crash_the_file_arrives() {
    let mut lab = Lab::scaled(Seed(3), mib(1024)).link(1000).link(1000);
    lab.start();
    for crash in 1..6 {
        lab.run_until(ms(700 * crash));
        lab.restart(if crash % 2 == 0 { End::A } else { End::B });
    }
    lab.run(secs(60));
    lab.assert_delivered();
}

#[test]
fn a_file_in_more_pieces_than_a_message_names_is_resumed_with_the_largest() {
    let mut lab = Lab::scaled(Seed(3), mib(2048)).link(1000).link(1000);
    let (contents, source) = (lab.contents.clone(), lab.sender().source);
    let pieces: Vec<Subtree> = contents
        .grid
        .all_chunks()
        .chunks()
        .step_by(3)
        .map(|chunk| Subtree::of_chunk(chunk, contents.value(source, chunk)))
        .collect();
    let disk = &mut lab.peer_mut(End::B).disk;
    disk.written
        .extend(pieces.iter().map(|piece| (piece.first, source)));
    disk.sync(contents.grid, &pieces);
    disk.restart();
    lab.start();
    lab.run(secs(60));
    lab.assert_delivered();
    assert_eq!(lab.sender_stats().resumed_bytes, 1400 * 4096);
}

#[test]
fn a_journal_that_overlaps_or_makes_no_sense_is_resumed_with_what_fits() {
    let mut lab = Lab::scaled(Seed(3), mib(256)).link(1000);
    let (contents, source) = (lab.contents.clone(), lab.sender().source);
    let of = |chunk| Subtree::of_chunk(ChunkId(chunk), contents.value(source, ChunkId(chunk)));
    let disk = &mut lab.peer_mut(End::B).disk;
    disk.written
        .extend([0, 1, 2].map(|chunk| (ChunkId(chunk), source)));
    disk.journal = vec![
        of(0),
        of(1),
        of(1),
        of(0),
        of(2),
        Subtree::of_chunk(ChunkId(9999), ChainingValue([1; 32])),
    ];
    lab.start();
    lab.run(secs(60));
    lab.assert_delivered();
    assert_eq!(lab.sender_stats().resumed_bytes, 3 * 4096);
}

#[test]
fn a_receiver_that_claims_what_it_does_not_have_ends_in_a_mismatch() {
    for direction in Direction::BOTH {
        let mut lab = Lab::scaled(Seed(3), mib(64))
            .direction(direction)
            .link(1000)
            .link(1000);
        lab.lie = Some(vec![Subtree {
            first: ChunkId(64),
            level: 5,
            value: ChainingValue([7; 32]),
        }]);
        lab.start();
        lab.run(secs(60));
        assert_eq!(
            lab.receiver().outcomes[&lab.transfer],
            Outcome::FailedHere(FailCode::Digest)
        );
        assert_eq!(
            lab.sender().outcomes[&lab.transfer],
            Outcome::FailedThere(FailCode::Digest)
        );
        assert_eq!(lab.receiver().disk.committed, None);
    }
}

#[test]
fn a_whole_file_that_was_durable_is_only_hashed() {
    for direction in Direction::BOTH {
        let mut lab = Lab::scaled(Seed(3), mib(256))
            .direction(direction)
            .link(1000);
        lab.start();
        // Everything is written and the sender's `Complete` has arrived. The sender is killed
        // before the commit, and the receiver shuts down in order.
        let receiver = direction.sender().other();
        lab.run_while(secs(60), |lab| lab.receiver().disk.written.len() < 1024);
        lab.run_until(lab.net.now() + ms(1));
        lab.restart(if receiver == End::A { End::B } else { End::A });
        lab.run(secs(60));
        lab.assert_delivered();
        assert!(lab.sender_stats().resumed_bytes > 0);
    }
}
