//! Tests with small files, and with several transfers in one session.

use crate::harness::{Lab, Seed, secs};

#[test]
fn a_small_file_takes_two_round_trips_and_what_its_disks_take() {
    let mut lab = Lab::small(Seed(1), 4096).link(1000).link(1000);
    lab.start();
    let took = lab.run(secs(1));
    // Three round trips of 0.2 ms to connect, Put and Accept, data, Committed; opening, reading,
    // writing, checking and a sync of 5 ms.
    assert!(took <= std::time::Duration::from_micros(9_000), "{took:?}");
}

#[test]
fn hundreds_of_transfers_leave_nothing_behind() {
    let mut lab = Lab::small(Seed(1), 3 * 4096).link(1000).link(1000);
    lab.start();
    for _ in 0..300 {
        let until = lab.net.now() + secs(10);
        lab.run(until);
        lab.assert_delivered();
        let receiver = lab.direction.sender().other();
        lab.peer_mut(receiver).disk = Default::default();
        lab.begin();
    }
    let first = nicstripe_proto::TransferId(1);
    assert_eq!(lab.sender().session.stats(first), Default::default());
}
