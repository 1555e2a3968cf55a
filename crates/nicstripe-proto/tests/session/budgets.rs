//! Tests with memory budgets that change during a transfer.

use std::{cell::RefCell, rc::Rc};

use nicstripe_sim::Rng;

use crate::harness::{Direction, Lab, Seed, mib, ms, secs};

/// Runs a transfer while the chunk budgets of both ends change every 5 ms for 2 s. Checks that the
/// number of chunks for which an end has committed memory never grows beyond its budget.
fn run(seed: u64, direction: Direction, links: u64, budgets: &'static [u64]) {
    let mut lab = (0..links).fold(
        Lab::scaled(Seed(seed), mib(64)).direction(direction),
        |lab, _| lab.link(1000),
    );
    let now_set = Rc::new(RefCell::new([u64::MAX; 2]));
    let mut rng = Rng::new(seed);
    for turn in 0..400 {
        let (now_set, chosen) = (
            now_set.clone(),
            [0; 2].map(|_: u64| budgets[rng.below(budgets.len() as u64) as usize]),
        );
        lab.at(ms(5 * turn), move |lab| {
            *now_set.borrow_mut() = chosen;
            lab.peers
                .iter_mut()
                .zip(chosen)
                .for_each(|(peer, budget)| peer.session.set_chunk_budget(budget));
        });
    }
    lab.start();
    let mut before = [0; 2];
    lab.run_while(secs(60), |lab| {
        for (index, peer) in lab.peers.iter().enumerate() {
            let (has, budget) = (peer.session.committed_chunks(), now_set.borrow()[index]);
            // An end that only sends grants its peer one chunk per path in addition to its budget.
            assert!(
                has <= before[index].max(budget.max(links).saturating_add(links)),
                "seed {seed} {direction:?}: {has} chunks of {budget}"
            );
            before[index] = has;
        }
        lab.peers
            .iter()
            .any(|peer| !peer.outcomes.contains_key(&lab.transfer))
    });
    lab.assert_delivered();
}

#[test]
fn budgets_that_change_all_the_time_are_kept_and_nothing_stands_still() {
    for seed in 0..12 {
        for direction in Direction::BOTH {
            run(seed, direction, 1 + seed % 4, &[0, 1, 2, 5, 17, 40, 200]);
        }
    }
}

#[test]
fn a_session_with_one_chunk_a_path_still_moves() {
    for direction in Direction::BOTH {
        run(1, direction, 1, &[0]);
        run(2, direction, 3, &[0, 1]);
    }
}

#[test]
fn cut_and_healed_links_and_a_small_budget_deliver() {
    for seed in 0..8 {
        let mut lab = Lab::scaled(Seed(seed), mib(64))
            .link(1000)
            .link(100)
            .link(1000);
        for turn in 0..20 {
            let index = (seed + turn) as usize % 3;
            lab.at(ms(40 * turn + 20), move |lab| {
                if turn % 2 == 0 {
                    lab.cut(index);
                } else {
                    lab.heal(index);
                }
            });
        }
        for peer in &mut lab.peers {
            peer.session.set_chunk_budget(2);
        }
        lab.at(secs(2), |lab| (0..3).for_each(|index| lab.heal(index)));
        lab.start();
        lab.run(secs(120));
        lab.assert_delivered();
    }
}
