//! Tests of rate limits set by the user.

use nicstripe_proto::{BitRate, PathId};

use crate::{
    harness::{Direction, Lab, Seed, mib, secs},
    ratios::ideal,
};

#[test]
fn a_limit_on_the_session_is_kept_and_used() {
    for direction in Direction::BOTH {
        let mut lab = Lab::full(Seed(1), mib(64))
            .direction(direction)
            .link(1000)
            .link(1000);
        let (now, sender) = (lab.now(), direction.sender());
        lab.peer_mut(sender)
            .session
            .limit_rate(BitRate::from_mbit(100), now);
        lab.start();
        let (took, ideal) = (lab.run(secs(60)), ideal(&[100], mib(64)));
        lab.assert_delivered();
        assert!(
            took >= ideal.mul_f64(0.99) && took <= ideal.mul_f64(1.03),
            "{took:?}, ideal {ideal:?}"
        );
    }
}

#[test]
fn a_limit_on_one_path_leaves_the_others_alone() {
    let mut lab = Lab::full(Seed(1), mib(256)).link(1000).link(1000);
    lab.start();
    let now = lab.now();
    lab.peers[0]
        .session
        .limit_path(PathId(0), Some(BitRate::from_mbit(100)), now);
    let (took, ideal) = (lab.run(secs(60)), ideal(&[100, 1000], mib(256)));
    lab.assert_delivered();
    assert!(
        took >= ideal.mul_f64(0.98) && took <= ideal.mul_f64(1.03),
        "{took:?}, ideal {ideal:?}"
    );
}
