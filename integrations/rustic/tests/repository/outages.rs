//! Tests of backups during outages of the daemon.

use std::{
    error::Error as _,
    thread,
    time::{Duration, Instant},
};

use nicstripe::{BitRate, Error, trust::Access};
use nicstripe_rustic::Backend;
use rustic_core::{FileType, Id, ReadBackend as _, WriteBackend as _};

use crate::{
    harness::{AWAY, Served, backup, check, files_beneath, init, open, restore, until},
    tree::{assert_same, content, plant, plant_all},
};

#[test]
fn a_backup_ends_well_although_the_daemon_was_restarted_and_killed_in_its_middle() {
    let mut served = Served::in_folder(Access::Full);
    let source = tempfile::tempdir().unwrap();
    plant_all(source.path());
    plant(source.path(), "larger", &content(11, 12 << 20), 0o644);
    init(served.backend());
    // 20 MB at 80 Mbit/s take at least two seconds.
    let backend = served.backend_built(|builder| builder.bandwidth(Some(BitRate(80_000_000))));
    thread::scope(|threads| {
        let backing = threads.spawn(|| backup(open(backend.clone()), source.path()));
        let data = served.path().join("data");
        for (packs, end) in [(1, Served::stop as fn(&mut Served)), (6, Served::kill)] {
            until("a pack", || files_beneath(&data).len() >= packs);
            assert!(!backing.is_finished());
            end(&mut served);
            // Longer than the first retries.
            thread::sleep(Duration::from_millis(400));
            assert!(!backing.is_finished());
            served.resume();
        }
        backing.join().unwrap();
    });
    check(&open(served.backend()));
    assert_same(source.path(), restore(open(served.backend())).path());
}

#[test]
fn calls_of_many_threads_wait_for_a_daemon_that_is_away() {
    let served = Served::in_folder(Access::Full);
    let backend = served.backend();
    calls_wait(served, &backend);
}

#[test]
fn calls_over_a_named_link_wait_for_a_daemon_that_is_away() {
    let served = Served::in_folder(Access::Full);
    let backend =
        served.backend_built(|builder| builder.links(vec!["127.0.0.2=127.0.0.1".parse().unwrap()]));
    calls_wait(served, &backend);
}

fn calls_wait(mut served: Served, backend: &Backend) {
    backend.create().unwrap();
    let bytes = |number: u8| content(number.into(), 10_000 * usize::from(number));
    let id = |number: u8| format!("{number:064x}").parse::<Id>().unwrap();
    for number in 0..8 {
        backend
            .write_bytes(FileType::Pack, &id(number), false, bytes(number).into())
            .unwrap();
        backend
            .write_bytes(FileType::Index, &id(number), false, bytes(number).into())
            .unwrap();
    }
    served.stop();
    thread::scope(|threads| {
        for number in 0..8 {
            threads.spawn(move || {
                assert!(backend.read_full(FileType::Pack, &id(number)).unwrap() == bytes(number));
            });
            threads.spawn(move || {
                backend
                    .write_bytes(FileType::Pack, &id(number + 8), false, bytes(number).into())
                    .unwrap();
            });
            threads.spawn(move || backend.remove(FileType::Index, &id(number), false).unwrap());
            threads.spawn(move || assert!(backend.list(FileType::Pack).unwrap().len() >= 8));
        }
        thread::sleep(Duration::from_millis(300));
        served.resume();
    });
    assert_eq!(backend.list(FileType::Pack).unwrap().len(), 16);
    assert!(backend.list(FileType::Index).unwrap().is_empty());
}

#[test]
fn a_daemon_that_stays_away_is_waited_for_no_longer_than_was_said() {
    let mut served = Served::in_memory();
    let backend = served.backend_built(|builder| builder.patience(Duration::from_millis(500)));
    backend.create().unwrap();
    served.stop();
    let begun = Instant::now();
    let failure = backend.list(FileType::Snapshot).unwrap_err();
    let took = begun.elapsed();
    assert!(
        (Duration::from_millis(200)..AWAY / 2).contains(&took),
        "{took:?}"
    );
    let source = failure
        .source()
        .and_then(|source| source.downcast_ref::<Error>())
        .unwrap();
    assert!(source.is_retryable(), "{source}");
    let log = failure.display_log();
    assert!(log.contains("Cannot list `backup/laptop/snapshots` of the repository `nicstripe:daemon:backup/laptop`"), "{log}");
}
