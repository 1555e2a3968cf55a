//! Tests with disks that are full, and with reads, writes and syncs that fail.

use nicstripe_proto::{FailCode, SessionConfig};

use tokio::time::sleep;

use super::lab::{Direction, Lab, in_virtual_time, mib, ms, secs};
use crate::{file::DiskCall, report::error::Error};

const SIZE: u64 = mib(4);

/// Starts a copy in a lab with this fault, which ends it with `code`. Then repairs the disks and
/// copies again.
async fn assert_fails_once(direction: Direction, code: FailCode, fault: impl FnOnce(&Lab)) {
    let config = SessionConfig {
        sync_bytes: mib(1) / 2,
        ..SessionConfig::default()
    };
    let mut lab = Lab::with(3, &[100, 100], config, None).await;
    fault(&lab);
    let copy = lab.copy(direction, SIZE).await;
    let ended = copy.end(secs(60)).await;
    let found = ended.as_ref().err().and_then(Error::fail_code);
    assert_eq!(found, Some(code), "{direction:?} {ended:?}");
    assert!(!lab.file(direction.sender().other()).exists());
    lab.disks.iter().for_each(|disk| disk.set_free(None));
    let again = lab.copy_again(direction).await;
    again.end(secs(60)).await.unwrap();
    lab.assert_delivered();
    assert!(lab.disks.iter().all(|disk| !disk.has_retried_sync()));
    // The client may know its result before the daemon does.
    sleep(ms(100)).await;
    let (ended, failed) = (lab.meters.read().transfers_ended, code.word());
    let results: Vec<_> = ended.iter().map(|((_, how), n)| (*how, *n)).collect();
    assert_eq!(results, [("done", 1), (failed, 1)], "{direction:?}");
}

#[test]
fn a_full_disk_ends_the_transfer_once_at_both_ends_and_the_session_goes_on() {
    for direction in Direction::BOTH {
        in_virtual_time(assert_fails_once(direction, FailCode::NoSpace, |lab| {
            let receiver = direction.sender().other();
            lab.disks[receiver as usize].set_free(Some(SIZE / 4));
        }));
    }
}

#[test]
fn a_call_that_fails_ends_the_transfer_once_at_both_ends_and_the_session_goes_on() {
    for direction in Direction::BOTH {
        for (call, succeeding) in [
            (DiskCall::Read, 0),
            (DiskCall::Read, 10),
            (DiskCall::Write, 0),
            (DiskCall::Write, 10),
            // Data, journal, and so on; the last are those of the file and its directory.
            (DiskCall::Sync, 0),
            (DiskCall::Sync, 1),
            (DiskCall::Sync, 6),
            (DiskCall::Sync, 7),
        ] {
            in_virtual_time(assert_fails_once(direction, FailCode::Io, |lab| {
                let end = match call {
                    DiskCall::Read => direction.sender(),
                    DiskCall::Write | DiskCall::Sync => direction.sender().other(),
                };
                lab.disks[end as usize].fail(call, succeeding);
            }));
        }
    }
}
