//! Tests of transfers that are cancelled at random times, one after the other in one session. They
//! leave no state behind, and the next transfer resumes.
//!
//! `NICSTRIPE_SEEDS=500` cancels 100,000 of them; see `seeds.rs`.

use nicstripe_proto::FailCode;
use nicstripe_sim::{End, Rng};

use crate::{
    harness::{Direction, Lab, Seed, secs, us},
    peer::Outcome,
    seeds::run_all,
};

const CANCELS: u64 = 200;

const SEEDS: u64 = 20;

#[test]
fn transfers_given_up_at_any_moment_leave_nothing_behind_and_the_next_goes_on() {
    run_all("transfers_given_up", &[], SEEDS, run);
}

fn run(seed: Seed) {
    let mut rng = Rng::new(seed.0 ^ 0xca9ce1);
    let chunks = 1 + rng.below(150);
    let mut lab = Lab::small(seed, chunks * 4096).link(100).link_with(
        1000,
        us(rng.below(3_000)),
        us(rng.below(300)),
    );
    if rng.below(2) == 0 {
        lab = lab.direction(Direction::Get);
    }
    lab.start();
    let (mut first, mut durable) = (None, 0);
    for cancel in 0..CANCELS {
        let longest = 200 * (1 + rng.below(60));
        let moment = lab.net.now() + us(rng.below(longest));
        lab.run_until(moment);
        let was_cancelled = lab.cancel();
        if !was_cancelled || rng.below(8) == 0 {
            let moment = lab.net.now() + us(rng.below(20_000));
            lab.run_until(moment);
        }
        // A target can be opened only when no other transfer has it open.
        lab.run(lab.net.now() + secs(60));
        lab.run_while(lab.net.now() + secs(60), Lab::is_committing);
        if !was_cancelled {
            lab.assert_delivered();
        }
        if lab.receiver().disk.committed.is_some() {
            lab.forget_delivered();
        }
        durable = lab.receiver().disk.durable.len();
        lab.begin();
        if cancel == CANCELS / 2 {
            first = Some(held(&lab));
        }
    }
    let last = held(&lab);
    lab.run(lab.net.now() + secs(60));
    lab.assert_delivered();
    assert_eq!(
        lab.sender_stats().resumed_bytes,
        durable * 4096,
        "durable data is not retransmitted"
    );
    // The state kept for ended transfers is bounded; otherwise the second half would double it.
    let first = first.unwrap();
    assert!(
        last <= first + first / 2 + 4096,
        "{first} bytes describe a session after {} transfers, {last} after {CANCELS}",
        CANCELS / 2
    );
    for peer in &lab.peers {
        assert!(
            peer.session
                .paths()
                .all(|(_, path)| path.held_chunks() == 0),
            "{:?}",
            peer.end
        );
        assert!(
            peer.open.is_empty(),
            "{:?} has files open: {:?}",
            peer.end,
            peer.open
        );
        let cancelled = peer
            .outcomes
            .values()
            .filter(|outcome| !matches!(outcome, Outcome::Committed(_)));
        assert!(cancelled.clone().all(|outcome| matches!(
            outcome,
            Outcome::FailedHere(FailCode::Cancelled) | Outcome::FailedThere(FailCode::Cancelled)
        )));
    }
}

/// Returns the total length of both sessions' debug output in bytes, as a measure of their state.
fn held(lab: &Lab) -> usize {
    End::BOTH
        .into_iter()
        .map(|end| format!("{:?}", lab.peer(end).session).len())
        .sum()
}
