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

use crate::harness::{
    AWKWARD, CHUNK, PARENTS, PLAIN, REPLACE, Served, code, content, digest, done, leftovers, name,
    ok, source_of, within,
};
use nicstripe::{Client, CopyOptions, Error, FailCode, Kind, RenameOptions, Slice};
use tokio::{
    io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt},
    runtime::Handle,
};

async fn names(client: &Client, dir: &str) -> Vec<String> {
    let listed = within(client.list(Some(&name(dir)))).await.unwrap();
    listed
        .into_iter()
        .map(|entry| entry.name.to_string())
        .collect()
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

    let client = served.client(2).await;
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
    let [plain, replacing] = [RenameOptions::default(), RenameOptions::replacing()];
    for served in Served::of_both(&[], |builder| builder).await {
        let client = served.client(1).await;
        let rename = |from: &str, to: &str, options| {
            let (client, from, to) = (client.clone(), name(from), name(to));
            async move { code(within(client.rename(&from, &to, options)).await) }
        };
        let remove = async |file: &str| code(within(client.remove(&name(file))).await);
        let (a, b, sub) = (name("a"), name("b"), name("x/y/z"));
        within(client.write(&a, "one", PLAIN)).await.unwrap();
        let again = within(client.write(&a, "two", PLAIN)).await;
        assert_eq!(code(again), Some(FailCode::Exists));
        within(client.write(&b, "two", REPLACE)).await.unwrap();
        let stat = within(client.stat(&a)).await.unwrap();
        assert_eq!((stat.kind, stat.size), (Kind::File, 3));

        assert_eq!(rename("a", "b", plain).await, Some(FailCode::Exists));
        assert_eq!(rename("a", "a", plain).await, Some(FailCode::Exists));
        assert_eq!(rename("a", "a", replacing).await, None);
        assert_eq!(rename("a", "b", replacing).await, None);
        assert!(within(client.stat(&a)).await.unwrap_err().is_not_found());
        assert_eq!(within(client.read(&b, None)).await.unwrap(), b"one");
        assert_eq!(within(client.read(&b, Some(1..2))).await.unwrap(), b"n");
        assert_eq!(rename("a", "b", replacing).await, Some(FailCode::NotFound));

        within(client.make_dir(&sub)).await.unwrap();
        within(client.make_dir(&sub)).await.unwrap();
        assert_eq!(within(client.stat(&sub)).await.unwrap().kind, Kind::Dir);
        assert_eq!(rename("b", "x/y/z/b", plain).await, None);
        assert_eq!(names(&client, "x/y/z").await, ["b"]);
        let beneath_file = within(client.make_dir(&name("x/y/z/b/c"))).await;
        assert_eq!(code(beneath_file), Some(FailCode::NotADirectory));
        assert_eq!(
            remove("x/y/z").await,
            Some(FailCode::Exists),
            "it is not empty"
        );
        assert_eq!(remove("x/y/z/b").await, None);
        assert_eq!(remove("x/y/z").await, None);
        assert_eq!(remove("x/y/z").await, Some(FailCode::NotFound));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_copies_keep_beside_their_targets_is_not_there_for_anybody() {
    let hidden = ".x.01234567.nicstripe-part";
    for served in Served::of_both(&["whole", hidden], |builder| builder).await {
        let client = served.client(1).await;
        let (part, whole, within_it) = (name(hidden), name("whole"), name(&format!("{hidden}/x")));
        let replacing = RenameOptions::replacing();
        let found = [
            code(within(client.stat(&part)).await),
            code(within(client.read(&part, None)).await),
            code(within(client.remove(&part)).await),
            code(within(client.rename(&part, &name("y"), replacing)).await),
        ];
        assert_eq!(found, [Some(FailCode::NotFound); 4]);
        let made = [
            code(within(client.rename(&whole, &part, replacing)).await),
            code(within(client.write(&part, "mine", REPLACE)).await),
            code(within(client.make_dir(&within_it)).await),
        ];
        assert_eq!(made, [Some(FailCode::Refused); 3]);
        assert_eq!(served.bytes(hidden).unwrap(), hidden.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_not_followed_out_of_the_root_and_are_removed_themselves() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir(outer.path().join("secret")).unwrap();
    std::fs::write(outer.path().join("secret/file"), "s").unwrap();
    let served = Served::start().await;
    std::os::unix::fs::symlink(outer.path().join("secret"), served.path("out")).unwrap();
    let client = served.client(1).await;
    let (inside, new, out) = (name("out/file"), name("out/new"), name("out"));
    let parents = CopyOptions {
        parents: true,
        ..REPLACE
    };
    let refused = [
        code(within(client.stat(&inside)).await),
        code(within(client.remove(&inside)).await),
        code(within(client.read(&inside, None)).await),
        code(within(client.list(Some(&out))).await),
        code(within(client.make_dir(&new)).await),
        code(within(client.write(&new, "x", parents)).await),
    ];
    assert_eq!(refused[0], Some(FailCode::Refused));
    assert!(refused.iter().all(Option::is_some), "{refused:?}");
    assert_eq!(
        within(client.stat(&name("out"))).await.unwrap().kind,
        Kind::Other
    );
    within(client.remove(&name("out"))).await.unwrap();
    assert!(outer.path().join("secret/file").exists() && !outer.path().join("secret/new").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_may_only_append_adds_files_and_removes_its_locks_alone() {
    for served in Served::of_both(&["kept"], |builder| builder.append_only(true)).await {
        let client = served.client(1).await;
        let parents = CopyOptions {
            parents: true,
            ..REPLACE
        };
        let write = async |file: &str| code(within(client.write(&name(file), "x", parents)).await);
        let remove = async |file: &str| code(within(client.remove(&name(file))).await);
        let refused = Some(FailCode::NotPermitted);
        assert_eq!([remove("kept").await, write("kept").await], [refused; 2]);
        let (kept, other) = (name("kept"), name("other"));
        let renamed = within(client.rename(&kept, &other, RenameOptions::default())).await;
        assert_eq!(code(renamed), refused);
        if served.storage.is_none() {
            std::fs::write(served.path("f"), "kept").unwrap();
            let slice = Slice {
                size: 4,
                ..Slice::default()
            };
            assert_eq!(code(write_slice(&client, slice, b"x").await), refused);
            assert_eq!(served.bytes("f").unwrap(), b"kept");
        }
        let digits = "0f".repeat(32);
        for (file, removed) in [
            (format!("repo/locks/{digits}"), None),
            (format!("repo/data/{digits}"), refused),
            ("repo/locks/0f0f".to_owned(), refused),
        ] {
            assert_eq!(write(&file).await, None);
            assert_eq!(remove(&file).await, removed, "{file}");
        }
        assert_eq!(
            remove("repo/locks").await,
            refused,
            "a directory is no lock"
        );
        within(client.make_dir(&name("new/dir"))).await.unwrap();
        assert_eq!(served.bytes("kept").unwrap(), b"kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_may_only_read_changes_nothing() {
    let lock = format!("locks/{}", "0".repeat(64));
    for served in Served::of_both(&[&lock], |builder| builder.read_only(true)).await {
        let client = served.client(1).await;
        let (file, new) = (name(&lock), name("x"));
        let parents = CopyOptions {
            parents: true,
            ..REPLACE
        };
        let refused = [
            code(within(client.remove(&file)).await),
            code(within(client.rename(&file, &new, RenameOptions::default())).await),
            code(within(client.make_dir(&new)).await),
            code(within(client.write(&name("x/y"), "new", parents)).await),
            code(within(client.write(&file, "new", REPLACE)).await),
        ];
        assert_eq!(refused, [Some(FailCode::NotPermitted); 5]);
        assert_eq!(
            within(client.read(&file, None)).await.unwrap(),
            lock.as_bytes()
        );
        assert_eq!(names(&client, "locks").await.len(), 1);
        assert_eq!(within(client.list(None)).await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_read_at_every_edge() {
    let served = Served::start().await;
    let client = served.client(3).await;
    for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7] {
        let bytes = content(size);
        std::fs::write(served.path("file"), &bytes).unwrap();
        assert!(
            within(client.read(&name("file"), None)).await.unwrap() == bytes,
            "all of {size}"
        );
        let ends = [size.saturating_sub(1), size, size + 1];
        let places = [&[0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 4 * CHUNK][..], &ends].concat();
        for start in &places {
            for end in &places {
                let range = *start as u64..*end as u64;
                let read = within(client.read(&name("file"), Some(range.clone()))).await;
                if *start > size || end < start {
                    assert_eq!(code(read), Some(FailCode::Range), "{range:?} of {size}");
                } else {
                    let expected = &bytes[*start..*end.min(&size)];
                    assert!(read.unwrap() == expected, "{range:?} of {size}");
                }
            }
        }
        let far = ok(client.read(&name("file"), Some(0..u64::MAX))).await;
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
    let client = served.client(2).await;
    for range in [
        0..bytes.len(),
        100..bytes.len() - 1,
        at - 5000..at + 5000,
        CHUNK..2 * CHUNK,
    ] {
        let read =
            ok(client.read(&name("sparse"), Some(range.start as u64..range.end as u64))).await;
        assert!(read == bytes[range.clone()], "{range:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_gives_what_is_there_wherever_it_seeks() {
    let bytes = content(12 * CHUNK + 321);
    for served in Served::of_both(&["dir/file"], |builder| builder).await {
        served.has("file", &bytes);
        let client = served.client(2).await;
        let mut reader = within(client.open(&name("file"))).await.unwrap();
        assert_eq!(reader.len(), bytes.len() as u64);
        let mut all = Vec::new();
        within(reader.read_to_end(&mut all)).await.unwrap();
        assert!(all == bytes);
        let after_the_end = within(reader.read(&mut [0; 9])).await.unwrap();
        assert_eq!(after_the_end, 0);

        let mut random = 7_usize;
        for turn in 0..60 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let len = (random >> 9) % [10, 5000, 3 * CHUNK][turn % 3];
            let at = match turn % 4 {
                0 => reader.position() as usize + 1000,
                _ => (random >> 20) % bytes.len(),
            };
            ok(reader.seek(SeekFrom::Start(at as u64))).await;
            let expected = bytes
                .get(at..(at + len).min(bytes.len()))
                .unwrap_or_default();
            let mut read = vec![0; expected.len()];
            within(reader.read_exact(&mut read)).await.unwrap();
            assert!(read == expected, "round {turn}: {len} bytes at {at}");
        }
        let near_the_end = within(reader.seek(SeekFrom::End(-21))).await.unwrap();
        assert_eq!(near_the_end, bytes.len() as u64 - 21);
        let mut rest = Vec::new();
        within(reader.read_to_end(&mut rest)).await.unwrap();
        assert!(rest == bytes[bytes.len() - 21..]);
        assert!(reader.seek(SeekFrom::Current(-(1 << 40))).await.is_err());
        within(reader.seek(SeekFrom::Start(1 << 50))).await.unwrap();
        assert_eq!(within(reader.read(&mut [0; 9])).await.unwrap(), 0);

        let missing = within(client.open(&name("missing"))).await;
        assert_eq!(code(missing), Some(FailCode::NotFound));
        let dir = within(client.open(&name("dir"))).await;
        assert_eq!(code(dir), Some(FailCode::NotAFile));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_under_its_reader_is_an_error_and_not_a_mixture() {
    let served = Served::start().await;
    std::fs::write(served.path("file"), content(8 * CHUNK)).unwrap();
    let client = served.client(1).await;
    let mut reader = within(client.open(&name("file"))).await.unwrap();
    within(reader.read_exact(&mut [0; 100])).await.unwrap();
    std::fs::write(served.path("file"), vec![1; 8 * CHUNK]).unwrap();
    ok(reader.seek(SeekFrom::Start(6 * CHUNK as u64))).await;
    let error = within(reader.read(&mut [0; 100])).await.unwrap_err();
    let error = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<Error>())
        .unwrap();
    assert_eq!(error.fail_code(), Some(FailCode::SourceChanged));
    assert!(error.is_retryable());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_as_their_bytes_come() {
    for served in Served::of_both(&[], |builder| builder).await {
        let client = served.client(3).await;
        for size in AWKWARD {
            let (bytes, file) = (content(size), format!("new/{size}/file"));
            let mut writer = client.create(&name(&file), PARENTS);
            for piece in bytes.chunks(100_003) {
                within(writer.write_all(piece)).await.unwrap();
            }
            within(writer.flush()).await.unwrap();
            assert_eq!(
                served.bytes(&file),
                None,
                "nothing has the name before the end"
            );
            let report = within(writer.finish()).await.unwrap();
            let found = (report.size, report.digest);
            assert_eq!(found, (size as u64, Some(digest(&bytes))));
            assert!(served.bytes(&file).unwrap() == bytes, "{size} bytes");
            let dir = served.path(&format!("new/{size}"));
            assert!(!dir.exists() || leftovers(&dir).is_empty());
        }
        let without = within(client.write(&name("missing/file"), "x", PLAIN)).await;
        assert!(without.unwrap_err().is_not_found());
        served.tidied().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_dropped_leaves_nothing() {
    let served = Served::start().await;
    let client = served.client(2).await;
    std::fs::write(served.path("kept"), "before").unwrap();
    for turn in 0..30 {
        let mut writer = client.create(&name(["new", "kept"][turn % 2]), REPLACE);
        ok(writer.write_all(&content(turn * CHUNK / 3))).await;
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
    served.tidied().await;
    assert_eq!(names_in(served.root.path()), ["kept"]);
    assert_eq!(std::fs::read(served.path("kept")).unwrap(), b"before");
    ok(client.write(&name("new"), "works", PLAIN)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_what_may_not_be_written_says_why() {
    let served = Served::start().await;
    let client = served.client(1).await;
    std::fs::write(served.path("kept"), "before").unwrap();
    let mut writer = client.create(&name("kept"), PLAIN);
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
    let client = served.client(1).await;
    let bytes = content(3 * CHUNK + 7);
    let mut writer = client.create(&name("stored"), PLAIN);
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

    let mut writer = client.create(&name("stored"), PLAIN);
    let error = within(writer.shutdown()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(within(writer.finish()).await.is_err());
    drop(client.create(&name("dropped"), PLAIN));
    served.tidied().await;
    assert_eq!(names_in(served.root.path()), ["stored"]);
}

/// Writes a slice of the file `f`.
async fn write_slice(client: &Client, slice: Slice, bytes: &[u8]) -> Result<(), Error> {
    let options = CopyOptions {
        slice: Some(slice),
        ..PLAIN
    };
    let mut writer = client.create(&name("f"), options);
    let _ = writer.write_all(bytes).await;
    within(writer.finish()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_of_a_file_are_written_at_once_and_none_beyond_it() {
    let served = Served::start().await;
    let client = served.client(2).await;
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
    served.tidied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_grows_with_its_slices_in_any_order() {
    let served = Served::start().await;
    let client = served.client(2).await;
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
    let client = served.client(1).await;
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
    let client = served.client_at(1, nicstripe::BitRate(200_000_000)).await;
    let (_here, source) = source_of(content(40 * CHUNK));
    let transfer = client.put(&source, None, PLAIN);
    let mut seen = transfer.progress();
    within(async {
        while seen.bytes == 0 || seen.size == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            seen = transfer.progress();
        }
    })
    .await;
    assert_eq!(seen.size, 40 * CHUNK as u64);
    done(transfer).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_dropped_at_any_moment_leaves_nothing_behind_and_holds_up_nobody() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let bytes = content(6 * CHUNK);
    ok(client.write(&name("kept"), &bytes, PLAIN)).await;
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
                1 => drop(client.write(&file, &bytes, PLAIN).await.unwrap()),
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
    served.tidied().await;
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
        let mut writer = client.create(&name(&format!("last-{number}")), PLAIN);
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
    let client = served.client(1).await;
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
        let written = tokio::task::block_in_place(|| {
            Handle::current().block_on(async {
                for _ in 0..500 {
                    removals.store(0, Ordering::Relaxed);
                    within(client.write(&name("a/b/c"), "x", PARENTS)).await?;
                    within(client.remove(&name("a/b/c"))).await?;
                }
                Ok::<_, Error>(())
            })
        });
        ended.store(true, Ordering::Relaxed);
        written.unwrap();
    });
}
