//! Tests of delta transfers, which compare chunks with the receiver's existing file instead of
//! sending them.

use std::collections::BTreeMap;

use nicstripe_proto::{ChunkId, Message};
use nicstripe_sim::End;

use crate::{
    disk::Version,
    harness::{Lab, Seed, secs},
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
