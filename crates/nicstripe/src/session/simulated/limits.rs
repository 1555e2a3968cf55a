//! Tests of rate limits set by the user, and of the rates without limits.

use std::time::Duration;

use nicstripe_proto::{BitRate, SessionConfig};

use super::lab::{Direction, Lab, in_virtual_time, mib, secs};

/// Asserts that a copy takes its ideal duration at a total rate of `mbit` Mbit/s, and at most 3 %
/// more.
async fn assert_takes(mut lab: Lab, direction: Direction, size: u64, mbit: f64) {
    let began = lab.now();
    let copy = lab.copy(direction, size).await;
    copy.end(secs(120)).await.unwrap();
    lab.assert_delivered();
    let (took, ideal) = (
        lab.now() - began,
        Duration::from_secs_f64(size as f64 * 8.0 / (mbit * 1e6)),
    );
    assert!(
        took >= ideal.mul_f64(0.98) && took <= ideal.mul_f64(1.03),
        "{direction:?} {took:?}, ideal {ideal:?}"
    );
}

#[test]
fn links_carry_their_sum_both_ways() {
    for direction in Direction::BOTH {
        for rates in [
            &[100][..],
            &[100, 100],
            &[100, 100, 100, 100],
            &[100, 10],
            &[10, 100],
        ] {
            in_virtual_time(async move {
                let sum: u64 = rates.iter().sum();
                let size = mib(12) * sum / 50;
                assert_takes(Lab::new(1, rates).await, direction, size, sum as f64).await;
            });
        }
    }
}

#[test]
fn a_limit_on_the_session_is_kept_and_used() {
    for direction in Direction::BOTH {
        in_virtual_time(async move {
            let config = SessionConfig {
                rate_limit: Some(BitRate::from_mbit(50)),
                ..SessionConfig::default()
            };
            let lab = Lab::with(1, &[100, 100], config, None).await;
            assert_takes(lab, direction, mib(32), 50.0).await;
        });
    }
}

#[test]
fn a_limit_on_one_path_leaves_the_others_alone() {
    in_virtual_time(async {
        let cap = Some(BitRate::from_mbit(10));
        let lab = Lab::with(1, &[100, 100], SessionConfig::default(), cap).await;
        assert_takes(lab, Direction::Put, mib(64), 110.0).await;
    });
}
