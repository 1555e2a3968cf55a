//! Tests of the efficiency of a transfer relative to the sum of its links' rates, in virtual time.

use std::time::Duration;

use crate::harness::{Direction, Lab, Seed, mib, secs};

/// Returns the ratio of ideal to actual duration, from the start until both ends know that the file
/// is durable.
fn efficiency(mut lab: Lab, mbit: &[u64], size: u64) -> f64 {
    for mbit in mbit {
        lab = lab.link(*mbit);
    }
    lab.start();
    let took = lab.run(secs(600));
    lab.assert_delivered();
    let ratio = ideal(mbit, size).as_secs_f64() / took.as_secs_f64();
    let repeated = lab.sender_stats().repeated_bytes * 100 / lab.contents.grid.size;
    println!(
        "{mbit:?} Mbit/s, {} MiB, {:?}: {:.2} % of the sum, {repeated} % sent twice",
        size >> 20,
        lab.direction,
        ratio * 100.0
    );
    ratio
}

pub(crate) fn ideal(mbit: &[u64], size: u64) -> Duration {
    Duration::from_secs_f64(size as f64 * 8.0 / (mbit.iter().sum::<u64>() as f64 * 1e6))
}

#[test]
fn equal_links_carry_their_sum_both_ways() {
    for direction in Direction::BOTH {
        for links in [1, 2, 4, 8] {
            let size = mib(192 * links);
            let ratio = efficiency(
                Lab::scaled(Seed(links), size).direction(direction),
                &vec![1000; links as usize],
                size,
            );
            assert!(ratio >= 0.99, "{links} links: {ratio}");
        }
    }
}

#[test]
fn a_gigabit_and_a_hundred_megabit_link_carry_their_sum_both_ways() {
    for (direction, links) in [
        (Direction::Put, [1000, 100]),
        (Direction::Put, [100, 1000]),
        (Direction::Get, [100, 1000]),
    ] {
        let size = mib(1024);
        let ratio = efficiency(Lab::full(Seed(1), size).direction(direction), &links, size);
        assert!(ratio >= 0.99, "{ratio}");
    }
}

#[test]
fn a_ten_megabit_link_beside_a_gigabit_one_costs_at_most_three_percent() {
    for (direction, links, size) in [
        (Direction::Put, [1000, 10], mib(1024)),
        (Direction::Put, [10, 1000], mib(256)),
        (Direction::Get, [10, 1000], mib(256)),
    ] {
        let ratio = efficiency(Lab::full(Seed(1), size).direction(direction), &links, size);
        assert!(ratio >= 1.0 / 1.03, "{ratio}");
    }
}

#[test]
fn ten_gigabit_links_carry_their_sum() {
    let size = mib(2048);
    let ratio = efficiency(Lab::full(Seed(1), size), &[10_000, 10_000], size);
    assert!(ratio >= 0.98, "{ratio}");
}

#[test]
fn small_files_over_equal_links_are_not_sent_twice() {
    for chunks in [1, 4, 8, 16] {
        let mut lab = Lab::full(Seed(1), chunks << 18).link(1000).link(1000);
        lab.start();
        lab.run(secs(10));
        lab.assert_delivered();
        assert_eq!(lab.sender_stats().repeated_bytes, 0, "{chunks} chunks");
    }
}

#[test]
fn a_slow_link_that_asks_first_costs_a_small_file_little() {
    for mib in [1, 2, 4, 16] {
        let (mut lab, size) = (Lab::full(Seed(1), mib << 20).link(10).link(1000), mib << 20);
        lab.start();
        let (took, ideal) = (lab.run(secs(10)), ideal(&[10, 1000], size));
        lab.assert_delivered();
        // 25 ms until its chunks are late, 50 ms until a control message behind them is. It was 840
        // ms.
        assert!(
            took <= ideal + Duration::from_millis(25 + 50 + 10),
            "{mib} MiB: {took:?}, ideal {ideal:?}"
        );
    }
}
