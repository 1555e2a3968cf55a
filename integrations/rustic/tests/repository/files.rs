//! Tests of single repository files: reads, ranges, and files that do not belong to a repository.

use std::{
    error::Error as _,
    fs::{self, File},
    os::unix::fs::symlink,
};

use nicstripe::{Error, FailCode, trust::Access};
use nicstripe_rustic::Backend;
use rustic_core::{ALL_FILE_TYPES, FileType, Id, ReadBackend as _, WriteBackend as _};

use crate::{
    harness::{Served, name, until},
    tree::content,
};

fn id(number: u64) -> Id {
    format!("{number:064x}").parse().unwrap()
}

#[test]
fn files_of_all_types_come_back_whole_and_in_parts() {
    let served = Served::in_memory();
    let backend = served.backend();
    for (number, tpe) in ALL_FILE_TYPES
        .into_iter()
        .chain([FileType::Config])
        .enumerate()
    {
        // Without its directory, since none was created.
        let (id, bytes) = (id(number as u64), content(number as u64, 700_000));
        let id = if tpe == FileType::Config {
            Id::default()
        } else {
            id
        };
        backend
            .write_bytes(tpe, &id, false, bytes.clone().into())
            .unwrap();
        assert_eq!(backend.list_with_size(tpe).unwrap(), [(id, 700_000)]);
        assert_eq!(
            served
                .storage()
                .contents(&name(&backend.warmup_path(tpe, &id)))
                .as_deref(),
            Some(&bytes[..])
        );
        assert!(backend.read_full(tpe, &id).unwrap() == bytes);
        for (offset, length) in [
            (0, 0),
            (0, 1),
            (699_999, 1),
            (700_000, 0),
            (262_143, 262_146),
            (0, 700_000),
        ] {
            let part = backend
                .read_partial(tpe, &id, false, offset, length)
                .unwrap();
            assert!(
                part == bytes[offset as usize..][..length as usize],
                "{tpe} {offset} {length}"
            );
        }
        for (offset, length) in [
            (0, 700_001),
            (699_999, 2),
            (700_001, 1),
            (u32::MAX, u32::MAX),
        ] {
            let error = backend
                .read_partial(tpe, &id, false, offset, length)
                .unwrap_err()
                .display_log();
            assert!(
                error.contains("Cannot read") && error.contains("700000 bytes"),
                "{error}"
            );
        }
    }
    backend
        .write_bytes(FileType::Index, &id(9), false, Default::default())
        .unwrap();
    assert!(
        backend
            .read_full(FileType::Index, &id(9))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_part_is_fetched_without_the_rest() {
    let served = Served::in_folder(Access::Full);
    let backend = served.backend();
    backend
        .write_bytes(FileType::Pack, &id(1), false, content(1, 16 << 20).into())
        .unwrap();
    backend.close();
    let for_parts = sent_for(&served, |backend| {
        for part in 0..10 {
            assert_eq!(
                backend
                    .read_partial(FileType::Pack, &id(1), false, part * 1_500_000, 1000)
                    .unwrap()
                    .len(),
                1000
            );
        }
    });
    assert_eq!(for_parts, 10_000);
    let for_all = sent_for(&served, |backend| {
        assert_eq!(
            backend.read_full(FileType::Pack, &id(1)).unwrap().len(),
            16 << 20
        );
    });
    assert_eq!(for_all, 16 << 20);
}

/// Returns the bytes of file content that the daemon sends while `act` uses a backend.
fn sent_for(served: &Served, act: impl FnOnce(&Backend)) -> u64 {
    let metrics = || served.handle().metrics();
    // The counters of a session are complete once it has ended.
    let sent = || {
        until("the end of a session", || metrics().sessions == 0);
        metrics()
            .interfaces
            .values()
            .map(|bytes| bytes.sent)
            .sum::<u64>()
    };
    let before = sent();
    let backend = served.backend();
    act(&backend);
    backend.close();
    sent() - before
}

#[test]
fn writing_the_same_twice_is_fine_and_something_else_is_not() {
    let served = Served::in_memory();
    let backend = served.backend();
    let write =
        |bytes: &'static str| backend.write_bytes(FileType::Pack, &id(1), false, bytes.into());
    write("a pack").unwrap();
    write("a pack").unwrap();
    let error = write("another pack").unwrap_err().display_log();
    assert!(error.contains("6 bytes, expected 12"), "{error}");
    assert_eq!(backend.read_full(FileType::Pack, &id(1)).unwrap(), "a pack");

    // Only the configuration is ever replaced.
    let write = |bytes: &'static str| {
        backend.write_bytes(FileType::Config, &Id::default(), false, bytes.into())
    };
    write("a configuration").unwrap();
    write("another configuration").unwrap();
    assert_eq!(
        backend.read_full(FileType::Config, &Id::default()).unwrap(),
        "another configuration"
    );
}

#[test]
fn what_is_missing_is_an_error_that_names_it() {
    let served = Served::in_memory();
    let backend = served.backend();
    let errors = [
        backend.read_full(FileType::Snapshot, &id(1)).unwrap_err(),
        backend
            .read_partial(FileType::Snapshot, &id(1), false, 0, 1)
            .unwrap_err(),
        backend
            .remove(FileType::Snapshot, &id(1), false)
            .unwrap_err(),
    ];
    for error in errors {
        let source = error
            .source()
            .and_then(|source| source.downcast_ref::<Error>())
            .unwrap();
        assert_eq!(source.fail_code(), Some(FailCode::NotFound));
        let log = error.display_log();
        assert!(
            log.contains(&format!(
                "`{}`",
                backend.warmup_path(FileType::Snapshot, &id(1))
            )),
            "{log}"
        );
    }
    for tpe in ALL_FILE_TYPES {
        assert!(backend.list(tpe).unwrap().is_empty());
    }
    backend
        .write_bytes(FileType::Snapshot, &id(1), false, "a snapshot".into())
        .unwrap();
    backend.remove(FileType::Snapshot, &id(1), false).unwrap();
    assert!(backend.list(FileType::Snapshot).unwrap().is_empty());
}

#[test]
fn what_is_no_file_of_a_repository_is_not_listed() {
    let served = Served::in_folder(Access::Full);
    let backend = served.backend();
    backend.create().unwrap();
    let hex = |number: u64| id(number).to_hex().to_string();
    let (folder, good) = (served.path(), hex(1));
    let snapshots = folder.join("snapshots");
    fs::write(snapshots.join(&good), "a snapshot").unwrap();
    for junk in [
        "README".to_owned(),
        "tmp-1".into(),
        hex(0xabc).to_uppercase(),
        hex(2)[1..].into(),
        format!("{}0", hex(2)),
        "é".repeat(32),
    ] {
        fs::write(snapshots.join(junk), "junk").unwrap();
    }
    fs::create_dir(snapshots.join(hex(3))).unwrap();
    symlink(&good, snapshots.join(hex(4))).unwrap();
    File::create(snapshots.join(hex(5)))
        .unwrap()
        .set_len(1 << 32)
        .unwrap();
    assert_eq!(
        backend.list_with_size(FileType::Snapshot).unwrap(),
        [(id(1), 10)]
    );

    let data = folder.join("data");
    for path in [
        format!("00/{good}"),
        format!("01/{}", hex(6)),
        hex(7),
        "ab/README".into(),
    ] {
        fs::write(data.join(path), "a pack").unwrap();
    }
    fs::create_dir(data.join("zz")).unwrap();
    fs::write(data.join("zz").join(hex(8)), "junk").unwrap();
    assert_eq!(
        backend.list_with_size(FileType::Pack).unwrap(),
        [(id(1), 6)]
    );
    fs::create_dir(folder.join("config")).unwrap();
    assert!(backend.list(FileType::Config).unwrap().is_empty());
}

#[test]
fn a_blocking_task_of_an_async_program_may_use_it() {
    let served = Served::in_memory();
    let backend = served.backend();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async move {
        let work = tokio::task::spawn_blocking(move || {
            backend.create().unwrap();
            let bytes = backend
                .write_bytes(FileType::Pack, &id(1), false, "a pack".into())
                .and_then(|()| backend.read_full(FileType::Pack, &id(1)));
            (backend, bytes.unwrap())
        });
        let (backend, bytes) = work.await.unwrap();
        assert_eq!(bytes, "a pack");
        drop(backend);
    });
}
