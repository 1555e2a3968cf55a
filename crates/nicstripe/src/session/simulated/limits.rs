//! Tests of rate limits set by the user, and of the rates without limits.

use std::time::Duration;

use nicstripe_proto::{BitRate, ChunkSize, SessionConfig};
use nicstripe_sim::LinkConfig;
use nicstripe_testkit::trial::amount;

use super::lab::{Direction, Lab, in_virtual_time, mib, ms, secs, us};

/// Returns the ideal duration of a copy at a total rate of `mbit` Mbit/s.
fn ideal(size: u64, mbit: f64) -> Duration {
    Duration::from_secs_f64(size as f64 * 8.0 / (mbit * 1e6))
}

/// Asserts that a copy takes its ideal duration at a total rate of `mbit` Mbit/s, and at most
/// `most` times as long.
async fn assert_takes(mut lab: Lab, direction: Direction, size: u64, mbit: f64, most: f64) {
    let began = lab.now();
    let tally = lab.deliver(direction, size, secs(120)).await;
    let (took, ideal) = (lab.now() - began, ideal(size, mbit));
    let ratio = took.as_secs_f64() / ideal.as_secs_f64();
    let repeated = tally.stats.repeated_bytes;
    let what = format!("{direction:?} {mbit} Mbit/s {size} bytes: {ratio:.4}, {repeated} repeated");
    println!("{what}");
    assert!((0.99..=most).contains(&ratio), "{what}");
}

#[test]
fn links_carry_their_sum_both_ways() {
    for direction in Direction::BOTH {
        for rates in [
            &[100][..],
            &[100, 100],
            &[50, 50, 50, 50],
            &[25, 25, 25, 25, 25, 25, 25, 25],
            &[100, 10],
            &[10, 100],
        ] {
            in_virtual_time(async move {
                let sum: u64 = rates.iter().sum();
                let lab = Lab::new(1, rates).await;
                assert_takes(lab, direction, mib(20) * sum / 100, sum as f64, 1.01).await;
            });
        }
    }
}

#[test]
fn a_link_of_a_hundredth_of_the_rate_costs_at_most_a_percent() {
    // At a quarter of the rate and of the chunk size, like a gigabit link and one of 10 Mbit/s.
    for kbit in [[250_000, 2_500], [2_500, 250_000]] {
        in_virtual_time(async move {
            let links = kbit.map(|kbit| LinkConfig::new(kbit * 1000, us(100)));
            let mut lab = Lab::over_paths(1, links.to_vec()).await;
            lab.chunk_size = ChunkSize::from_log2(16).unwrap();
            assert_takes(lab, Direction::Put, mib(32), 252.5, 1.01).await;
        });
    }
}

#[test]
fn ten_gigabit_links_carry_their_sum() {
    in_virtual_time(async {
        let lab = Lab::new(1, &[10_000, 10_000]).await;
        let (size, most) = amount((mib(128), 1.03), (mib(1024), 1.02));
        assert_takes(lab, Direction::Put, size, 20_000.0, most).await;
    });
}

#[test]
fn a_small_file_over_equal_links_is_not_sent_twice() {
    for chunks in [1, 4, 8, 16] {
        in_virtual_time(async move {
            let mut lab = Lab::new(1, &[1000, 1000]).await;
            let copy = lab.copy(Direction::Put, chunks << 18).await;
            let (_, tally) = copy.end(secs(10)).await.unwrap();
            assert_eq!(tally.stats.repeated_bytes, 0, "{chunks} chunks");
        });
    }
}

#[test]
fn a_slow_link_that_connects_first_costs_a_small_file_little() {
    for mib in [1, 2, 4, 16] {
        in_virtual_time(async move {
            let (mut lab, size) = (Lab::new(1, &[10, 1000]).await, mib << 20);
            let began = lab.now();
            let copy = lab.copy(Direction::Put, size).await;
            copy.end(secs(10)).await.unwrap();
            let (took, ideal) = (lab.now() - began, ideal(size, 1010.0));
            // 25 ms until its chunks are late, 50 ms until a control message behind them is. It
            // was 840 ms.
            println!("{mib} MiB: {took:?}, ideal {ideal:?}");
            assert!(
                took <= ideal + ms(25 + 50 + 10),
                "{mib} MiB: {took:?}, ideal {ideal:?}"
            );
        });
    }
}

#[test]
fn a_limit_on_the_session_is_kept_and_used_and_one_on_a_path_leaves_the_others_alone() {
    let (of_session, of_path) = (BitRate::from_mbit(50), BitRate::from_mbit(10));
    for (direction, rate_limit, cap, mbit) in [
        (Direction::Put, Some(of_session), None, 50.0),
        (Direction::Get, Some(of_session), None, 50.0),
        (Direction::Put, None, Some(of_path), 110.0),
    ] {
        in_virtual_time(async move {
            let config = SessionConfig {
                rate_limit,
                ..SessionConfig::default()
            };
            let lab = Lab::with(1, &[100, 100], config, cap).await;
            assert_takes(lab, direction, mib(32), mbit, 1.01).await;
        });
    }
}
