//! Tests with links that damage data, and of the slowdown that this causes on other links.

use std::time::Duration;

use nicstripe_proto::{PathId, PathLoss};

use crate::harness::{Direction, Lab, Seed, ideal, mib, ms, secs};

/// Starts a transfer over two gigabit links; link 0 damages one of `one_in` chunks.
fn damaging(direction: Direction, size: u64, one_in: u64) -> Lab {
    let mut lab = Lab::scaled(Seed(3), size)
        .direction(direction)
        .link(1000)
        .link(1000);
    lab.damages.insert(PathId(0), one_in);
    lab.start();
    lab
}

#[test]
fn a_link_that_damages_what_it_carries_gets_less_and_less_of_it_and_is_named() {
    for direction in Direction::BOTH {
        let mut lab = damaging(direction, mib(1536), 20);
        let took = lab.run(secs(120));
        lab.assert_delivered();
        let receiver = lab.receiver();
        let damaged: Vec<Duration> = receiver
            .losses
            .iter()
            .filter(|loss| loss.2 == PathLoss::Damaged)
            .map(|loss| loss.0)
            .collect();
        println!("{direction:?}: {took:?}, damaged at {damaged:?}");
        // At the start, at the first reuse, and after 2, 4 and 8 s.
        assert!((3..=5).contains(&damaged.len()), "{damaged:?}");
        assert_eq!(
            receiver.session.path(PathId(0)).map(|path| path.damages()),
            Some(damaged.len() as u32)
        );
        assert_eq!(receiver.damages, damaged.len() as u64);
        let ideal = ideal(&[1000], mib(1536));
        assert!(took <= ideal.mul_f64(1.02), "{took:?}, ideal {ideal:?}");
    }
}

#[test]
fn a_link_that_damaged_one_chunk_is_used_again_at_once() {
    for direction in Direction::BOTH {
        let mut lab = damaging(direction, mib(512), 1);
        lab.at(ms(500), |lab| lab.damages.clear());
        lab.damages.clear();
        lab.at(ms(300), |lab| {
            lab.damage = (600..604).map(nicstripe_proto::ChunkId).collect();
        });
        let took = lab.run(secs(60));
        lab.assert_delivered();
        // The path is reconnected after 250 ms.
        assert!(took <= ideal(&[2000], mib(512)) + ms(400), "{took:?}");
    }
}

#[test]
fn the_only_link_is_used_whatever_it_damages() {
    for direction in Direction::BOTH {
        let mut lab = Lab::scaled(Seed(3), mib(256))
            .direction(direction)
            .link(1000);
        lab.damages.insert(PathId(0), 100);
        lab.start();
        let took = lab.run(secs(60));
        lab.assert_delivered();
        // 1024 chunks in 2.1 s, and about ten reconnects.
        assert!(took <= secs(12), "{took:?}");
    }
}
