//! Tests of a daemon whose chunk memory another session takes and returns all the time.

use nicstripe_sim::{End, Rng};
use nicstripe_testkit::trial::amount;
use tokio::time::sleep;

use super::lab::{Direction, Lab, in_virtual_time, mib, ms, secs};

/// Chunk memory of a daemon, in chunks.
const ALL: u64 = 256;

/// Copies a file over links of 100 Mbit/s. Every 20 ms a session of another key takes or returns
/// chunk memory, so that the daemon's budget is one of `budgets`, in chunks. Checks that the
/// chunks for which the daemon has committed memory never grow beyond the budget.
async fn run(seed: u64, direction: Direction, links: usize, budgets: &[u64]) {
    let mut lab = Lab::new(seed, &vec![100; links]).await;
    let mut rival = lab.shares.join([1; 32]);
    let mut rng = Rng::new(seed);
    let copy = lab.copy(direction, mib(8)).await;
    let links = links as u64;
    while !copy.has_ended() {
        assert!(
            lab.now() < secs(60),
            "seed {seed} {direction:?}: stands still"
        );
        let budget = budgets[rng.below(budgets.len() as u64) as usize];
        rival.update(ALL - 2 * budget, true);
        let mut before = lab.committed_chunks().await;
        for _ in 0..10 {
            sleep(ms(2)).await;
            let has = lab.committed_chunks().await;
            // A daemon that only sends grants one chunk per path in addition to its budget.
            assert!(
                has <= before.max(budget.max(links) + links),
                "seed {seed} {direction:?}: {has} chunks of {budget}"
            );
            before = has;
        }
    }
    copy.end(ms(1)).await.unwrap();
    lab.assert_delivered();
}

impl Lab {
    async fn committed_chunks(&self) -> u64 {
        self.inspect(End::B, |session| session.committed_chunks())
            .await
    }
}

#[test]
fn a_budget_that_changes_all_the_time_is_kept_and_nothing_stands_still() {
    for seed in 0..amount(4, 40) {
        for direction in Direction::BOTH {
            let links = 1 + seed as usize % 4;
            in_virtual_time(run(seed, direction, links, &[0, 1, 2, 5, 17, 40, 128]));
        }
    }
}

#[test]
fn a_session_with_one_chunk_a_path_still_moves() {
    for direction in Direction::BOTH {
        in_virtual_time(run(1, direction, 1, &[0]));
        in_virtual_time(run(2, direction, 3, &[0, 1]));
    }
}

#[test]
fn cut_and_healed_links_and_a_small_budget_deliver() {
    for seed in 0..amount(2, 8) {
        in_virtual_time(async move {
            let mut lab = Lab::new(seed, &[100, 10, 100]).await;
            let mut rival = lab.shares.join([1; 32]);
            rival.update(ALL - 2 * 2, true);
            for turn in 0..20 {
                let index = (seed + turn) as usize % 3;
                lab.at(ms(40 * turn + 20), move |links| {
                    if turn % 2 == 0 {
                        links.cut(index);
                    } else {
                        links.heal(index);
                    }
                });
            }
            lab.at(secs(2), |links| (0..3).for_each(|index| links.heal(index)));
            lab.deliver(Direction::Put, mib(8), secs(60)).await;
        });
    }
}
