//! Tests of objects between a client and a daemon on loopback: names, ranges, readers and writers.

mod cut;
use std::{
    collections::BTreeMap,
    io::SeekFrom,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use crate::harness::{Served, content, digest, leftovers, name, within};
use nicstripe::{Client, CopyOptions, Error, FailCode, Kind, RenameOptions, Slice};
use tokio::{
    io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt},
    runtime::Handle,
};

const CHUNK: usize = 256 * 1024;

fn replace() -> CopyOptions {
    CopyOptions {
        replace: true,
        ..CopyOptions::default()
    }
}

async fn names(client: &Client, dir: &str) -> Vec<String> {
    let listed = within(client.list(Some(&name(dir)))).await.unwrap();
    listed
        .into_iter()
        .map(|entry| entry.name.to_string())
        .collect()
}

fn code(result: Result<impl Sized, Error>) -> Option<FailCode> {
    result.err().and_then(|error| error.fail_code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_10_000_names_is_listed_in_order_and_each_name_once() {
    let served = Served::start().await;
    let dir = served.path("many");
    std::fs::create_dir(&dir).unwrap();
    let mut expected = BTreeMap::new();
    for number in 0..10_000_usize {
        let name = format!(
            "{:x}-{}",
            number.wrapping_mul(2_654_435_761) % 65_536,
            "x".repeat(number % 200)
        );
        std::fs::write(dir.join(&name), &b"12345"[..number % 6]).unwrap();
        expected.insert(name, (number % 6) as u64);
    }
    std::fs::create_dir(dir.join("sub")).unwrap();
    std::os::unix::fs::symlink("sub", dir.join("link")).unwrap();
    std::fs::write(dir.join(".x.01234567.nicstripe-part"), "hidden").unwrap();

    let client = within(served.connect(2)).await.unwrap();
    let listed = within(client.list(Some(&name("many")))).await.unwrap();
    assert_eq!(listed.len(), expected.len() + 2);
    assert!(listed.is_sorted_by(|one, next| one.name.file_name() < next.name.file_name()));
    for entry in &listed {
        match entry.name.to_string().as_str() {
            "sub" => assert_eq!(entry.stat.kind, Kind::Dir),
            "link" => assert_eq!(entry.stat.kind, Kind::Other),
            name => assert_eq!(
                (entry.stat.kind, entry.stat.size),
                (Kind::File, expected[name]),
                "{name}"
            ),
        }
    }
    let age = listed[0].stat.modified.elapsed().unwrap_or_default();
    assert!(age < Duration::from_secs(3600), "{age:?}");
    assert_eq!(within(client.list(None)).await.unwrap().len(), 1);
    assert!(
        within(client.list(Some(&name("nothing"))))
            .await
            .unwrap_err()
            .is_not_found()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_looked_at_removed_renamed_and_made() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let (a, b, sub) = (name("a"), name("b"), name("x/y/z"));
    within(client.write(&a, "one", CopyOptions::default()))
        .await
        .unwrap();
    assert_eq!(
        code(within(client.write(&a, "two", CopyOptions::default())).await),
        Some(FailCode::Exists)
    );
    within(client.write(&b, "two", replace())).await.unwrap();
    let stat = within(client.stat(&a)).await.unwrap();
    assert_eq!((stat.kind, stat.size), (Kind::File, 3));

    assert_eq!(
        code(within(client.rename(&a, &b, RenameOptions::default())).await),
        Some(FailCode::Exists)
    );
    for (options, expected) in [
        (RenameOptions::default(), Some(FailCode::Exists)),
        (RenameOptions::replacing(), None),
    ] {
        let onto_itself = within(client.rename(&a, &a, options)).await;
        assert_eq!(
            onto_itself.err().and_then(|error| error.fail_code()),
            expected
        );
    }
    within(client.rename(&a, &b, RenameOptions::replacing()))
        .await
        .unwrap();
    assert!(within(client.stat(&a)).await.unwrap_err().is_not_found());
    assert_eq!(within(client.read(&b, None)).await.unwrap(), b"one");
    assert!(
        within(client.rename(&a, &b, RenameOptions::replacing()))
            .await
            .unwrap_err()
            .is_not_found()
    );

    within(client.make_dir(&sub)).await.unwrap();
    within(client.make_dir(&sub)).await.unwrap();
    assert!(served.path("x/y/z").is_dir());
    within(client.rename(&b, &name("x/y/z/b"), RenameOptions::default()))
        .await
        .unwrap();
    assert_eq!(names(&client, "x/y/z").await, ["b"]);
    assert_eq!(
        code(within(client.make_dir(&name("x/y/z/b/c"))).await),
        Some(FailCode::NotADirectory)
    );
    assert_eq!(
        code(within(client.remove(&sub)).await),
        Some(FailCode::Exists),
        "it is not empty"
    );
    within(client.remove(&name("x/y/z/b"))).await.unwrap();
    within(client.remove(&sub)).await.unwrap();
    assert!(
        within(client.remove(&sub))
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(!served.path("x/y/z").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_copies_keep_beside_their_targets_is_not_there_for_anybody() {
    let served = Served::start().await;
    let hidden = ".x.01234567.nicstripe-part";
    std::fs::write(served.path(hidden), "half").unwrap();
    std::fs::write(served.path("whole"), "whole").unwrap();
    let client = within(served.connect(1)).await.unwrap();
    assert!(
        within(client.stat(&name(hidden)))
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(
        within(client.remove(&name(hidden)))
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(
        within(client.rename(&name(hidden), &name("y"), RenameOptions::replacing()))
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert_eq!(
        code(
            within(client.rename(&name("whole"), &name(hidden), RenameOptions::replacing())).await
        ),
        Some(FailCode::Refused)
    );
    assert_eq!(
        code(within(client.make_dir(&name(&format!("{hidden}/x")))).await),
        Some(FailCode::Refused)
    );
    assert_eq!(std::fs::read(served.path(hidden)).unwrap(), b"half");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_not_followed_out_of_the_root_and_are_removed_themselves() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir(outer.path().join("secret")).unwrap();
    std::fs::write(outer.path().join("secret/file"), "s").unwrap();
    let served = Served::start().await;
    std::os::unix::fs::symlink(outer.path().join("secret"), served.path("out")).unwrap();
    let client = within(served.connect(1)).await.unwrap();
    let inside = name("out/file");
    assert_eq!(
        code(within(client.stat(&inside)).await),
        Some(FailCode::Refused)
    );
    assert!(
        within(client.remove(&inside)).await.is_err()
            && within(client.read(&inside, None)).await.is_err()
    );
    assert!(
        within(client.list(Some(&name("out")))).await.is_err()
            && within(client.make_dir(&name("out/new"))).await.is_err()
    );
    assert!(
        within(client.write(
            &name("out/new"),
            "x",
            CopyOptions {
                parents: true,
                ..replace()
            }
        ))
        .await
        .is_err()
    );
    assert_eq!(
        within(client.stat(&name("out"))).await.unwrap().kind,
        Kind::Other
    );
    within(client.remove(&name("out"))).await.unwrap();
    assert!(outer.path().join("secret/file").exists() && !outer.path().join("secret/new").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_may_only_append_adds_files_and_removes_its_locks_alone() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("kept"), "kept").unwrap();
    let served = Served::start_built(root, |builder| builder.append_only(true)).await;
    let client = within(served.connect(1)).await.unwrap();
    let (kept, parents) = (
        name("kept"),
        CopyOptions {
            parents: true,
            ..replace()
        },
    );
    assert_eq!(
        code(within(client.remove(&kept)).await),
        Some(FailCode::NotPermitted)
    );
    assert_eq!(
        code(within(client.rename(&kept, &name("other"), RenameOptions::default())).await),
        Some(FailCode::NotPermitted)
    );
    assert_eq!(
        code(within(client.write(&kept, "new", parents)).await),
        Some(FailCode::NotPermitted)
    );
    let slice = Slice {
        size: 4,
        ..Slice::default()
    };
    assert_eq!(
        code(write_slice(&client, slice, b"x").await),
        Some(FailCode::NotPermitted)
    );
    let (lock, other) = (
        format!("repo/locks/{}", "0f".repeat(32)),
        format!("repo/data/{}", "0f".repeat(32)),
    );
    for file in [&lock, &other] {
        within(client.write(&name(file), "x", parents))
            .await
            .unwrap();
    }
    within(client.remove(&name(&lock))).await.unwrap();
    assert_eq!(
        code(within(client.remove(&name(&other))).await),
        Some(FailCode::NotPermitted)
    );
    assert_eq!(
        code(within(client.remove(&name("repo/locks"))).await),
        Some(FailCode::NotPermitted),
        "a directory is no lock"
    );
    let short = name("repo/locks/0f0f");
    within(client.write(&short, "x", parents)).await.unwrap();
    assert_eq!(
        code(within(client.remove(&short)).await),
        Some(FailCode::NotPermitted)
    );
    within(client.make_dir(&name("new/dir"))).await.unwrap();
    assert_eq!(std::fs::read(served.path("kept")).unwrap(), b"kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_may_only_read_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("locks")).unwrap();
    let lock = format!("locks/{}", "0".repeat(64));
    std::fs::write(root.path().join(&lock), "kept").unwrap();
    let served = Served::start_built(root, |builder| builder.read_only(true)).await;
    let client = within(served.connect(1)).await.unwrap();
    let lock = name(&lock);
    assert_eq!(
        code(within(client.remove(&lock)).await),
        Some(FailCode::NotPermitted)
    );
    assert_eq!(
        code(within(client.rename(&lock, &name("x"), RenameOptions::default())).await),
        Some(FailCode::NotPermitted)
    );
    assert_eq!(
        code(within(client.make_dir(&name("x"))).await),
        Some(FailCode::NotPermitted)
    );
    let parents = CopyOptions {
        parents: true,
        ..replace()
    };
    assert_eq!(
        code(within(client.write(&name("x/y"), "new", parents)).await),
        Some(FailCode::NotPermitted)
    );
    assert_eq!(within(client.read(&lock, None)).await.unwrap(), b"kept");
    assert_eq!(names(&client, "locks").await.len(), 1);
    assert!(!served.path("x").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_read_at_every_edge() {
    let served = Served::start().await;
    let client = within(served.connect(3)).await.unwrap();
    for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7] {
        let bytes = content(size);
        std::fs::write(served.path("file"), &bytes).unwrap();
        assert!(
            within(client.read(&name("file"), None)).await.unwrap() == bytes,
            "all of {size}"
        );
        let places = [
            0,
            1,
            CHUNK - 1,
            CHUNK,
            CHUNK + 1,
            4 * CHUNK,
            size.saturating_sub(1),
            size,
            size + 1,
        ];
        for (start, end) in places
            .iter()
            .flat_map(|start| places.iter().map(move |end| (*start, *end)))
        {
            let read = within(client.read(&name("file"), Some(start as u64..end as u64))).await;
            if start > size || end < start {
                assert_eq!(
                    code(read),
                    Some(FailCode::Range),
                    "{start}..{end} of {size}"
                );
            } else {
                let expected = &bytes[start..end.min(size)];
                assert!(read.unwrap() == expected, "{start}..{end} of {size}");
            }
        }
        let far = within(client.read(&name("file"), Some(0..u64::MAX)))
            .await
            .unwrap();
        assert!(far == bytes, "more than all of {size}");
    }
    assert!(
        within(client.read(&name("missing"), Some(0..1)))
            .await
            .unwrap_err()
            .is_not_found()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_a_file_with_holes_are_what_is_there() {
    let served = Served::start().await;
    let (mut bytes, at) = (vec![0; 9 * CHUNK], 5 * CHUNK - 100);
    bytes[at..at + 1000].copy_from_slice(&content(1000));
    let file = std::fs::File::create(served.path("sparse")).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes[at..at + 1000], at as u64).unwrap();
    let client = within(served.connect(2)).await.unwrap();
    for range in [
        0..bytes.len(),
        100..bytes.len() - 1,
        at - 5000..at + 5000,
        CHUNK..2 * CHUNK,
    ] {
        let read = within(client.read(&name("sparse"), Some(range.start as u64..range.end as u64)))
            .await
            .unwrap();
        assert!(read == bytes[range.clone()], "{range:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_gives_what_is_there_wherever_it_seeks() {
    let served = Served::start().await;
    let bytes = content(12 * CHUNK + 321);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let client = within(served.connect(2)).await.unwrap();
    let mut reader = within(client.open(&name("file"))).await.unwrap();
    assert_eq!(reader.len(), bytes.len() as u64);
    let mut all = Vec::new();
    within(reader.read_to_end(&mut all)).await.unwrap();
    assert!(all == bytes);
    assert_eq!(
        within(reader.read(&mut [0; 9])).await.unwrap(),
        0,
        "no data after the end"
    );

    let mut random = 7_usize;
    for turn in 0..60 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (at, len) = (
            (random >> 20) % bytes.len(),
            (random >> 9) % [10, 5000, 3 * CHUNK][turn % 3],
        );
        let at = if turn % 4 == 0 {
            reader.position() as usize + 1000
        } else {
            at
        };
        within(reader.seek(SeekFrom::Start(at as u64)))
            .await
            .unwrap();
        let expected = bytes
            .get(at..(at + len).min(bytes.len()))
            .unwrap_or_default();
        let mut read = vec![0; expected.len()];
        within(reader.read_exact(&mut read)).await.unwrap();
        assert!(read == expected, "round {turn}: {len} bytes at {at}");
    }
    assert_eq!(
        within(reader.seek(SeekFrom::End(-21))).await.unwrap(),
        bytes.len() as u64 - 21
    );
    let mut rest = Vec::new();
    within(reader.read_to_end(&mut rest)).await.unwrap();
    assert!(rest == bytes[bytes.len() - 21..]);
    assert!(reader.seek(SeekFrom::Current(-(1 << 40))).await.is_err());
    within(reader.seek(SeekFrom::Start(1 << 50))).await.unwrap();
    assert_eq!(within(reader.read(&mut [0; 9])).await.unwrap(), 0);

    assert_eq!(
        code(within(client.open(&name("missing"))).await),
        Some(FailCode::NotFound)
    );
    std::fs::create_dir(served.path("dir")).unwrap();
    assert_eq!(
        code(within(client.open(&name("dir"))).await),
        Some(FailCode::NotAFile)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_under_its_reader_is_an_error_and_not_a_mixture() {
    let served = Served::start().await;
    std::fs::write(served.path("file"), content(8 * CHUNK)).unwrap();
    let client = within(served.connect(1)).await.unwrap();
    let mut reader = within(client.open(&name("file"))).await.unwrap();
    within(reader.read_exact(&mut [0; 100])).await.unwrap();
    std::fs::write(served.path("file"), vec![1; 8 * CHUNK]).unwrap();
    within(reader.seek(SeekFrom::Start(6 * CHUNK as u64)))
        .await
        .unwrap();
    let error = within(reader.read(&mut [0; 100])).await.unwrap_err();
    let error = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<Error>())
        .unwrap();
    assert_eq!(error.fail_code(), Some(FailCode::SourceChanged));
    assert!(error.is_retryable());
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_are_dropped_in_the_middle_hold_up_nobody() {
    let served = Served::start().await;
    let bytes = content(40 * CHUNK);
    std::fs::write(served.path("file"), &bytes).unwrap();
    let client = within(served.connect(2)).await.unwrap();
    for turn in 0..100 {
        let mut reader = within(client.open(&name("file"))).await.unwrap();
        let mut some = vec![0; turn * CHUNK / 8];
        within(reader.read_exact(&mut some)).await.unwrap();
        assert!(some == bytes[..some.len()]);
    }
    assert!(within(client.read(&name("file"), None)).await.unwrap() == bytes);
    within(client.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_as_their_bytes_come() {
    let served = Served::start().await;
    let client = within(served.connect(3)).await.unwrap();
    let parents = CopyOptions {
        parents: true,
        ..CopyOptions::default()
    };
    for (number, size) in [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        2 * CHUNK,
        50 * CHUNK + 77,
    ]
    .into_iter()
    .enumerate()
    {
        let (bytes, file) = (content(size), format!("new/{number}/file"));
        let mut writer = client.create(&name(&file), parents);
        for piece in bytes.chunks(100_003) {
            within(writer.write_all(piece)).await.unwrap();
        }
        within(writer.flush()).await.unwrap();
        assert!(
            !served.path(&file).exists(),
            "nothing has the name before the end"
        );
        let report = within(writer.finish()).await.unwrap();
        assert_eq!(
            (report.size, report.digest),
            (size as u64, Some(digest(&bytes)))
        );
        assert!(
            std::fs::read(served.path(&file)).unwrap() == bytes,
            "{size} bytes"
        );
        assert_eq!(
            leftovers(served.path(&file).parent().unwrap()),
            Vec::<String>::new()
        );
    }
    let without = within(client.write(&name("missing/file"), "x", CopyOptions::default())).await;
    assert!(without.unwrap_err().is_not_found());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_dropped_leaves_nothing() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    std::fs::write(served.path("kept"), "before").unwrap();
    for turn in 0..30 {
        let mut writer = client.create(&name(["new", "kept"][turn % 2]), replace());
        within(writer.write_all(&content(turn * CHUNK / 3)))
            .await
            .unwrap();
        match turn % 3 {
            0 => tokio::time::sleep(Duration::from_millis(turn as u64)).await,
            1 => drop(tokio::time::timeout(
                Duration::from_micros(50 * turn as u64),
                async { writer.flush().await },
            )),
            _ => {}
        }
        drop(writer);
    }
    no_leftovers(&served).await;
    assert_eq!(names_in(served.root.path()), ["kept"]);
    assert_eq!(std::fs::read(served.path("kept")).unwrap(), b"before");
    within(client.write(&name("new"), "works", CopyOptions::default()))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_what_may_not_be_written_says_why() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    std::fs::write(served.path("kept"), "before").unwrap();
    let mut writer = client.create(&name("kept"), CopyOptions::default());
    let bytes = content(30 * CHUNK);
    let error = within(writer.write_all(&bytes)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    let error = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<Error>())
        .unwrap();
    assert_eq!(
        (error.fail_code(), error.is_retryable()),
        (Some(FailCode::Exists), false)
    );
    assert!(within(writer.finish()).await.is_err());
    assert_eq!(std::fs::read(served.path("kept")).unwrap(), b"before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_shut_down_has_stored_its_file() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let bytes = content(3 * CHUNK + 7);
    let mut writer = client.create(&name("stored"), CopyOptions::default());
    within(writer.write_all(&bytes)).await.unwrap();
    within(writer.shutdown()).await.unwrap();
    assert!(std::fs::read(served.path("stored")).unwrap() == bytes);
    let error = within(writer.write_all(b"more")).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    within(writer.shutdown()).await.unwrap();
    assert_eq!(
        within(writer.finish()).await.unwrap().size,
        bytes.len() as u64
    );

    let mut writer = client.create(&name("stored"), CopyOptions::default());
    let error = within(writer.shutdown()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(within(writer.finish()).await.is_err());
    drop(client.create(&name("dropped"), CopyOptions::default()));
    no_leftovers(&served).await;
    assert_eq!(names_in(served.root.path()), ["stored"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_objects_are_written_read_and_removed_at_once() {
    let served = Served::start().await;
    let client = within(served.connect(3)).await.unwrap();
    let parents = CopyOptions {
        parents: true,
        ..CopyOptions::default()
    };
    let all = (0..64_usize).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let (file, bytes) = (
                name(&format!("at-once/{}/{number}", number % 5)),
                content(number * 7919),
            );
            client.write(&file, &bytes, parents).await.unwrap();
            assert!(client.read(&file, None).await.unwrap() == bytes);
            let mut reader = client.open(&file).await.unwrap();
            let mut read = Vec::new();
            reader.read_to_end(&mut read).await.unwrap();
            assert!(read == bytes);
            assert_eq!(client.stat(&file).await.unwrap().size, bytes.len() as u64);
            client.remove(&file).await.unwrap();
        })
    });
    for task in all.collect::<Vec<_>>() {
        within(task).await.unwrap();
    }
    for dir in 0..5 {
        assert_eq!(
            names(&client, &format!("at-once/{dir}")).await,
            Vec::<String>::new()
        );
    }
}

/// Writes a slice of the file `f`.
async fn write_slice(client: &Client, slice: Slice, bytes: &[u8]) -> Result<(), Error> {
    let options = CopyOptions {
        slice: Some(slice),
        ..CopyOptions::default()
    };
    let mut writer = client.create(&name("f"), options);
    let _ = writer.write_all(bytes).await;
    within(writer.finish()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_of_a_file_are_written_at_once_and_none_beyond_it() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let bytes = content(9 * CHUNK + 12_345);
    let size = bytes.len() as u64;
    let slice = |offset: usize| Slice {
        offset: offset as u64,
        size,
        ..Slice::default()
    };
    let modified = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let last = Slice {
        modified: Some(modified),
        mode: Some(0o640),
        ..slice(bytes.len())
    };
    // Attributes are for a file that exists.
    let missing = write_slice(&client, last, b"").await.unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    let cuts = [0, 5, CHUNK + 1, 4 * CHUNK, 8 * CHUNK + 7, bytes.len()];
    let mut tasks = tokio::task::JoinSet::new();
    for cut in cuts.windows(2) {
        let (client, part) = (client.clone(), bytes[cut[0]..cut[1]].to_vec());
        let slice = slice(cut[0]);
        tasks.spawn(async move { write_slice(&client, slice, &part).await });
    }
    while let Some(written) = tasks.join_next().await {
        written.unwrap().unwrap();
    }
    write_slice(&client, last, b"").await.unwrap();
    assert!(within(client.read(&name("f"), None)).await.unwrap() == bytes);
    let found = served.path("f").metadata().unwrap();
    assert_eq!(found.modified().unwrap(), modified);
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&found) & 0o777, 0o640);

    let beyond = write_slice(&client, slice(bytes.len() - 1), b"ab").await;
    assert!(beyond.is_err());
    for size in [size - 1, size + 1] {
        let other = Slice {
            offset: size,
            size,
            ..last
        };
        let other = write_slice(&client, other, b"").await;
        assert_eq!(code(other), Some(FailCode::Refused));
    }
    let link = served.path("f");
    let shared = std::os::unix::fs::PermissionsExt::from_mode(0o660);
    std::fs::set_permissions(&link, shared).unwrap();
    let shared = write_slice(&client, slice(0), b"a").await;
    assert_eq!(code(shared), Some(FailCode::NotPermitted));
    std::fs::rename(&link, served.path("real")).unwrap();
    std::os::unix::fs::symlink("real", &link).unwrap();
    assert!(write_slice(&client, slice(0), b"a").await.is_err());
    assert!(std::fs::read(served.path("real")).unwrap() == bytes);
    no_leftovers(&served).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_grows_with_its_slices_in_any_order() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let bytes = content(40 * 1000);
    let mut tasks = tokio::task::JoinSet::new();
    for number in (0..40).rev() {
        let (client, at) = (client.clone(), number * 1000);
        let part = bytes[at..at + 1000].to_vec();
        let slice = Slice {
            offset: at as u64,
            size: at as u64 + 1000,
            ..Slice::default()
        };
        tasks.spawn(async move { write_slice(&client, slice, &part).await });
    }
    while let Some(written) = tasks.join_next().await {
        written.unwrap().unwrap();
    }
    assert!(within(client.read(&name("f"), None)).await.unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_asks_than_may_be_under_way_wait_for_their_turn() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let asks = (0..1000).map(|number| {
        let client = client.clone();
        tokio::spawn(async move { client.make_dir(&name(&format!("d/{number}"))).await })
    });
    for (number, ask) in asks.collect::<Vec<_>>().into_iter().enumerate() {
        match number % 10 {
            // An aborted call may or may not take effect, and must not block the others.
            9 => ask.abort(),
            _ => within(ask).await.unwrap().unwrap(),
        }
    }
    let made = names(&client, "d").await.len();
    assert!((900..=1000).contains(&made), "{made}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_to_whoever_looks() {
    let served = Served::start().await;
    let client = within(served.connect_at(1, Some(nicstripe::BitRate(200_000_000))))
        .await
        .unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, content(40 * CHUNK)).unwrap();
    let transfer = client.put(&source, None, CopyOptions::default());
    let mut seen = transfer.progress();
    within(async {
        while seen.bytes == 0 || seen.size == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            seen = transfer.progress();
        }
    })
    .await;
    assert_eq!(seen.size, 40 * CHUNK as u64);
    within(transfer.finish()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_dropped_at_any_moment_leaves_nothing_behind_and_holds_up_nobody() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let bytes = content(6 * CHUNK);
    within(client.write(&name("kept"), &bytes, CopyOptions::default()))
        .await
        .unwrap();
    let mut random = 3_usize;
    for turn in 0..400 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let moment = Duration::from_micros((random >> 33) as u64 % [100, 1_000, 8_000][turn % 3]);
        let (file, kept) = (name(&format!("new-{turn}")), name("kept"));
        let cut_short = async {
            match turn % 5 {
                0 => drop(client.read(&kept, None).await.unwrap()),
                1 => drop(
                    client
                        .write(&file, &bytes, CopyOptions::default())
                        .await
                        .unwrap(),
                ),
                2 => drop(client.list(None).await.unwrap()),
                3 => drop(
                    client
                        .open(&kept)
                        .await
                        .unwrap()
                        .read_to_end(&mut Vec::new())
                        .await
                        .unwrap(),
                ),
                _ => client
                    .make_dir(&name(&format!("dir-{turn}")))
                    .await
                    .unwrap(),
            }
        };
        let _ = tokio::time::timeout(moment, cut_short).await;
    }
    within(async {
        while !leftovers(served.root.path()).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // A written object is complete or absent.
    for file in names_in(served.root.path())
        .iter()
        .filter(|name| name.starts_with("new-"))
    {
        assert!(std::fs::read(served.path(file)).unwrap() == bytes, "{file}");
    }
    // The full number of concurrent transfers is still available.
    let all = (0..nicstripe::MOST_TRANSFERS).map(|number| {
        let client = client.clone();
        let mut writer = client.create(&name(&format!("last-{number}")), CopyOptions::default());
        async move {
            writer.write_all(&[7; CHUNK + 1]).await.unwrap();
            writer
        }
    });
    let mut writers = Vec::new();
    for writer in all.collect::<Vec<_>>() {
        writers.push(within(writer).await);
    }
    for writer in writers {
        within(writer.finish()).await.unwrap();
    }
    within(client.close()).await;
}

/// Waits until the daemon has ended the last transfers.
async fn no_leftovers(served: &Served) {
    within(async {
        while !leftovers(served.root.path()).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

fn names_in(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Removals of a directory during one write. The daemon makes it again more often.
const REMOVALS: u32 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_others_remove_while_it_is_empty_gets_its_files() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let dir = served.path("a");
    let ended = AtomicBool::new(false);
    let removals = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for empty in [dir.join("b"), dir.clone()] {
                    let is_due = removals.load(Ordering::Relaxed) < REMOVALS;
                    if is_due && std::fs::remove_dir(empty).is_ok() {
                        removals.fetch_add(1, Ordering::Relaxed);
                    }
                }
                thread::yield_now();
            }
        });
        let parents = CopyOptions {
            parents: true,
            ..CopyOptions::default()
        };
        let written = tokio::task::block_in_place(|| {
            Handle::current().block_on(async {
                for _ in 0..500 {
                    removals.store(0, Ordering::Relaxed);
                    within(client.write(&name("a/b/c"), "x", parents)).await?;
                    within(client.remove(&name("a/b/c"))).await?;
                }
                Ok::<_, Error>(())
            })
        });
        ended.store(true, Ordering::Relaxed);
        written.unwrap();
    });
}
