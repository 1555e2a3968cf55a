//! Tests of delta transfers, which compare chunks with the receiver's existing file instead of
//! sending them.

use std::collections::BTreeMap;

use nicstripe_proto::{ChunkId, Message};
use nicstripe_sim::End;

use crate::{
    disk::Version,
    harness::{Direction, Lab, Seed, ms, secs},
};

const CHUNK: u64 = 4096;

/// Returns the receiver's old file: `count` chunks, of which one in `every` differs from the new
/// file.
fn old(lab: &Lab, count: u64, every: u64) -> Option<BTreeMap<ChunkId, Version>> {
    let same = lab.sender().source;
    Some(
        (0..count)
            .map(|chunk| {
                (
                    ChunkId(chunk),
                    if chunk % every == 0 { same ^ 1 } else { same },
                )
            })
            .collect(),
    )
}

#[test]
fn only_chunks_that_differ_are_sent() {
    for direction in Direction::BOTH {
        for (new, count) in [(500, 500), (500, 300), (500, 0), (1, 1), (6_000, 6_000)] {
            let mut lab = Lab::small(Seed(3), new * CHUNK)
                .direction(direction)
                .link(1000)
                .link(100);
            lab.old = old(&lab, count, 10);
            lab.start();
            lab.run(secs(60));
            lab.assert_delivered();
            let differing = count.div_ceil(10) + new - count;
            for stats in [lab.sender_stats(), lab.receiver_stats()] {
                assert_eq!(
                    (stats.delivered_bytes, stats.unsent_bytes),
                    (differing * CHUNK, (new - differing) * CHUNK)
                );
            }
        }
    }
}

#[test]
fn a_file_that_is_the_same_costs_values_only() {
    let mut lab = Lab::small(Seed(3), 10_000 * CHUNK).link(1000);
    lab.old = old(&lab, 10_000, u64::MAX).map(|mut old| {
        old.insert(ChunkId(0), lab.sender().source);
        old
    });
    lab.start();
    lab.run(secs(60));
    lab.assert_delivered();
    assert_eq!(lab.sender().sent_chunks, 0);
}

#[test]
fn a_file_that_differs_everywhere_is_sent_at_the_speed_of_the_links() {
    let mut lab = Lab::small(Seed(3), 5_000 * CHUNK).link(1000).link(1000);
    lab.old = old(&lab, 5_000, 1);
    (0..2).for_each(|end| lab.peers[end].disk.read_delay = ms(0));
    lab.start();
    let took = lab.run(secs(60));
    lab.assert_delivered();
    // 20 MB for 1.3 GB over 2 Gbit/s: 5.3 s.
    assert!(took < ms(5800), "{took:?}");
}

#[test]
fn holes_and_a_delta_go_together() {
    for direction in Direction::BOTH {
        let mut lab = Lab::small(Seed(3), 1000 * CHUNK)
            .direction(direction)
            .link(1000);
        lab.add_hole(100, 300);
        lab.old = old(&lab, 900, 5);
        lab.start();
        lab.run(secs(60));
        lab.assert_delivered();
        // Every fifth of the 600 compared chunks, and the 100 behind them.
        assert_eq!(lab.sender_stats().delivered_bytes, (120 + 100) * CHUNK);
    }
}

#[test]
fn what_was_kept_is_durable_and_is_not_compared_again() {
    for killed in End::BOTH {
        let mut lab = Lab::small(Seed(3), 8000 * CHUNK).link(20);
        lab.old = old(&lab, 8000, 10);
        lab.start();
        lab.run_until(secs(4));
        lab.restart(killed);
        lab.run(secs(600));
        lab.assert_delivered();
        let (stats, kept) = (lab.receiver_stats(), lab.sender_stats().unsent_bytes);
        assert!(stats.resumed_bytes > 0 && kept < 7200 * CHUNK, "{stats:?}");
        assert_eq!(
            stats.resumed_bytes + stats.delivered_bytes + stats.unsent_bytes,
            8000 * CHUNK
        );
    }
}

#[test]
fn values_and_what_is_kept_survive_the_loss_of_the_link_under_them() {
    for (end, kind) in [
        (
            End::B,
            (|message| matches!(message, Message::Values(_))) as fn(&Message) -> bool,
        ),
        (End::A, |message| matches!(message, Message::Keep(_))),
    ] {
        let mut lab = Lab::small(Seed(3), 2000 * CHUNK).link(1000).link(1000);
        lab.old = old(&lab, 2000, 3);
        lab.cut_after = Some((end, kind));
        lab.start();
        lab.run(secs(60));
        lab.assert_delivered();
    }
}
