//! How close to the sum of its links a transfer comes, in virtual time.

use std::time::Duration;

use crate::harness::{Direction, Lab, Seed, mib, secs};

/// Ideal ÷ taken, from the first call to the moment when both ends know that the file is durable.
fn efficiency(mut lab: Lab, mbit: &[u64], size: u64) -> f64 {
    for mbit in mbit {
        lab = lab.link(*mbit);
    }
    lab.start();
    let took = lab.run(secs(600));
    lab.assert_delivered();
    let ratio = ideal(mbit, size).as_secs_f64() / took.as_secs_f64();
    let repeated = lab.sender_stats().repeated_bytes * 100 / lab.contents.grid.size;
    println!("{mbit:?} Mbit/s, {} MiB, {:?}: {:.2} % of the sum, {repeated} % sent twice", size >> 20, lab.direction, ratio * 100.0);
    ratio
}

pub fn ideal(mbit: &[u64], size: u64) -> Duration {
    Duration::from_secs_f64(size as f64 * 8.0 / (mbit.iter().sum::<u64>() as f64 * 1e6))
}

#[test]
fn equal_links_carry_their_sum_both_ways() {
    for direction in Direction::BOTH {
        for links in [1, 2, 4, 8] {
            let size = mib(512 * links);
            let ratio = efficiency(Lab::scaled(Seed(links), size).direction(direction), &vec![1000; links as usize], size);
            assert!(ratio >= 0.99, "{links} links: {ratio}");
        }
    }
}

#[test]
fn a_gigabit_and_a_hundred_megabit_link_carry_their_sum_both_ways() {
    for direction in Direction::BOTH {
        let size = mib(1024);
        let ratio = efficiency(Lab::full(Seed(1), size).direction(direction), &[1000, 100], size);
        assert!(ratio >= 0.99, "{ratio}");
    }
}

#[test]
fn a_ten_megabit_link_beside_a_gigabit_one_costs_at_most_three_percent() {
    for (direction, size) in [(Direction::Put, mib(1024)), (Direction::Get, mib(256))] {
        let ratio = efficiency(Lab::full(Seed(1), size).direction(direction), &[1000, 10], size);
        assert!(ratio >= 1.0 / 1.03, "{ratio}");
    }
}

#[test]
fn ten_gigabit_links_carry_their_sum() {
    let size = mib(4096);
    let ratio = efficiency(Lab::full(Seed(1), size), &[10_000, 10_000], size);
    assert!(ratio >= 0.98, "{ratio}");
}
