//! Tests with a small file, and with consecutive transfers.

use nicstripe_proto::{TransferId, TransferStats};
use nicstripe_sim::End;

use super::lab::{Direction, Lab, in_virtual_time, ms, secs};

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
