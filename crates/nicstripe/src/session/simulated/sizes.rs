//! Tests with files of boundary sizes, and with consecutive transfers.

use nicstripe_proto::{Digest, TransferId, TransferStats};
use nicstripe_sim::End;

use super::lab::{Direction, Lab, in_virtual_time, mib, ms, secs};

const CHUNK: u64 = 256 << 10;

#[test]
fn files_of_awkward_sizes_arrive_with_the_digest_of_their_bytes() {
    for direction in Direction::BOTH {
        for size in [
            0,
            1,
            CHUNK - 1,
            CHUNK,
            CHUNK + 1,
            2 * CHUNK,
            3 * CHUNK + 1,
            mib(4),
            mib(4) - 1,
        ] {
            in_virtual_time(async move {
                let mut lab = Lab::new(size, &[1000, 100]).await;
                let copy = lab.copy(direction, size).await;
                let (outcome, tally) = copy.end(secs(10)).await.unwrap();
                lab.assert_delivered();
                let bytes = std::fs::read(lab.file(direction.sender())).unwrap();
                let digest = Digest(*blake3::hash(&bytes).as_bytes());
                assert_eq!((outcome.size, outcome.digest), (size, Some(digest)));
                assert_eq!(tally.stats.delivered_bytes, size, "{direction:?}");
            });
        }
    }
}

#[test]
fn a_small_file_takes_two_round_trips_and_what_its_disks_take() {
    in_virtual_time(async {
        let mut lab = Lab::new(1, &[1000, 1000]).await;
        for disk in &lab.disks {
            disk.set_delay(ms(1));
        }
        let copy = lab.copy(Direction::Put, 4096).await;
        copy.end(secs(10)).await.unwrap();
        // Two round trips of 0.2 ms to connect, Put and Accept, data, Committed; opening, reading,
        // writing, checking, syncing and renaming.
        assert!(lab.now() <= ms(20), "{:?}", lab.now());
    });
}

#[test]
fn hundreds_of_transfers_in_one_session_all_end_and_the_first_is_forgotten() {
    in_virtual_time(async {
        let mut lab = Lab::new(1, &[1000, 1000]).await;
        for turn in 0..300 {
            let direction = Direction::BOTH[turn % 2];
            lab.deliver(direction, 3 * 4096, secs(10)).await;
            for end in End::BOTH {
                std::fs::remove_file(lab.file(end)).unwrap();
            }
        }
        for end in End::BOTH {
            let first = lab.inspect(end, |session| session.stats(TransferId(1)));
            assert_eq!(first.await, TransferStats::default(), "{end:?}");
        }
    });
}
