//! Tests with files of boundary sizes, and with consecutive transfers.

use nicstripe_proto::Digest;

use crate::harness::{Direction, Lab, Seed, secs};

#[test]
fn files_of_awkward_sizes_arrive_with_the_digest_of_their_bytes() {
    for direction in Direction::BOTH {
        for size in [
            0,
            1,
            4095,
            4096,
            4097,
            8192,
            3 * 4096 + 1,
            64 * 4096,
            65 * 4096 - 1,
        ] {
            let mut lab = Lab::small(Seed(size), size)
                .direction(direction)
                .link(1000)
                .link(100);
            lab.start();
            lab.run(secs(10));
            lab.assert_delivered();
            let chunks = lab.contents.grid.all_chunks().chunks();
            let bytes: Vec<u8> = chunks
                .flat_map(|chunk| lab.contents.bytes(lab.sender().source, chunk))
                .collect();
            assert_eq!(
                lab.receiver().disk.committed,
                Some(Digest(*blake3::hash(&bytes).as_bytes())),
                "{size} bytes, {direction:?}"
            );
        }
    }
}

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
