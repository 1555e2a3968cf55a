//! Tests of work on files that stays at the daemon: copies, walks, and the removal of many.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    time::Duration,
};

use nicstripe::{Client, Entries, FailCode, Kind, Name, RenameOptions};

use crate::harness::{PARENTS, Served, code, content, in_memory, leftovers, name, ok, within};

async fn write(client: &Client, to: &str, bytes: &[u8]) {
    ok(client.write(&name(to), bytes, PARENTS)).await;
}

/// Returns the keys of what is left of a listing: names, with a slash behind those of directories.
async fn keys(mut entries: Entries) -> Vec<String> {
    let mut keys = Vec::new();
    while let Some(entry) = within(entries.next()).await.unwrap() {
        let slash = ["", "/"][usize::from(entry.stat.kind == Kind::Dir)];
        keys.push(format!("{}{slash}", entry.name));
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_the_same_bytes_under_another_name() {
    for served in [Served::start().await, in_memory().await] {
        let client = served.client(2).await;
        for len in [0, 1, 262_145, 20_000_000] {
            let (from, to) = (name(&format!("{len}")), name(&format!("copies/{len}")));
            write(&client, &from.to_string(), &content(len)).await;
            let options = RenameOptions {
                parents: true,
                ..RenameOptions::default()
            };
            let copy = within(client.copy(&from, &to, options)).await.unwrap();
            assert_eq!((copy.kind, copy.size), (Kind::File, len as u64));
            assert_eq!(within(client.stat(&to)).await.unwrap(), copy);
            assert!(within(client.read(&to, None)).await.unwrap() == content(len));
            assert_eq!(
                code(within(client.copy(&from, &to, options)).await),
                Some(FailCode::Exists)
            );
            let replacing = within(client.copy(&from, &to, RenameOptions::replacing())).await;
            assert_ne!(replacing.unwrap().etag, copy.etag);
        }
        let tag = within(client.stat(&name("1"))).await.unwrap().etag;
        let only = |only_if| RenameOptions {
            only_if,
            ..RenameOptions::default()
        };
        let stale = within(client.copy(&name("0"), &name("x"), only(tag))).await;
        assert_eq!(code(stale), Some(FailCode::Precondition));
        ok(client.copy(&name("1"), &name("x"), only(tag))).await;

        let copy = |from: &str, to: &str| {
            let (from, to) = (name(from), name(to));
            let client = client.clone();
            async move { code(within(client.copy(&from, &to, RenameOptions::replacing())).await) }
        };
        assert_eq!(copy("missing", "y").await, Some(FailCode::NotFound));
        assert_eq!(copy("copies", "y").await, Some(FailCode::NotAFile));
        assert_eq!(copy("1", "copies").await, Some(FailCode::Occupied));
        assert_eq!(copy("1", "missing/y").await, Some(FailCode::NotFound));
        assert_eq!(copy("1", "1").await, None);
        assert!(within(client.read(&name("1"), None)).await.unwrap() == content(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_the_mode_of_the_file_and_leaves_nothing_when_it_fails() {
    let served = Served::start().await;
    let client = served.client(1).await;
    fs::write(served.path("tool"), content(300_000)).unwrap();
    fs::set_permissions(served.path("tool"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink("tool", served.path("link")).unwrap();
    let options = RenameOptions::default();
    for from in ["tool", "link"] {
        let to = name(&format!("{from}.copy"));
        ok(client.copy(&name(from), &to, options)).await;
        let copied = fs::symlink_metadata(served.path(&to.to_string())).unwrap();
        assert!(copied.is_file(), "{from}");
        assert_eq!(copied.permissions().mode() & 0o777, 0o700);
    }
    assert_eq!(
        code(within(client.copy(&name("tool"), &name("link.copy"), options)).await),
        Some(FailCode::Exists)
    );
    assert_eq!(leftovers(served.root.path()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_given_up_holds_nothing() {
    let served = Served::start().await;
    let client = served.client(1).await;
    // Sparse at the source; a copy writes all of it.
    let file = fs::File::create(served.path("large")).unwrap();
    file.set_len(1 << 30).unwrap();
    let options = RenameOptions::default();
    let (large, small, to) = (name("large"), name("small"), name("copy"));
    let copying = client.copy(&large, &to, options);
    let given_up = tokio::time::timeout(Duration::from_millis(100), copying).await;
    if let Ok(copied) = given_up {
        // The file system shares blocks.
        copied.unwrap();
        within(client.remove(&to)).await.unwrap();
    }
    write(&client, "small", b"x").await;
    assert_eq!(ok(client.copy(&small, &to, options)).await.size, 1);
    assert_eq!(within(client.read(&to, None)).await.unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_copies_at_once_are_all_made() {
    let served = Served::start().await;
    let client = served.client(1).await;
    write(&client, "a", &content(3_000_000)).await;
    let copies: Vec<_> = (0..64)
        .map(|number| {
            let client = client.clone();
            let to = name(&format!("copy {number}"));
            tokio::spawn(
                async move { client.copy(&name("a"), &to, RenameOptions::default()).await },
            )
        })
        .collect();
    for copy in copies {
        assert_eq!(within(copy).await.unwrap().unwrap().size, 3_000_000);
    }
    assert_eq!(within(client.list(None)).await.unwrap().len(), 65);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_names_each_file_once_in_the_order_of_keys() {
    for served in [Served::start().await, in_memory().await] {
        let client = served.client(2).await;
        let files = [
            "a-b", "a/b", "a/b-c", "a/b0/c", "a.txt", "a0", "b/c/d/e", "ä/x", "z",
        ];
        for file in files {
            write(&client, file, b"1").await;
        }
        within(client.make_dir(&name("empty"))).await.unwrap();
        let all = [
            "a-b", "a.txt", "a/", "a/b", "a/b-c", "a/b0/", "a/b0/c", "a0", "b/", "b/c/", "b/c/d/",
            "b/c/d/e", "empty/", "z", "ä/", "ä/x",
        ];
        assert_eq!(keys(client.walk(None)).await, all);
        // From any name on, whether it is there or not.
        let behind = [
            "a", "a-b", "a/a", "a/b", "a/b0", "a/b0/d", "a1", "b/c/d/e", "zz",
        ];
        for after in behind.map(name) {
            let walk = client.walk(None).after(&after);
            let expected = all.iter().filter(|key| ***key > *after.to_string());
            assert_eq!(
                keys(walk).await,
                expected.copied().collect::<Vec<_>>(),
                "{after}"
            );
        }
        assert_eq!(
            keys(client.walk(Some(name("a")))).await,
            ["b", "b-c", "b0/", "b0/c"]
        );
        assert_eq!(keys(client.walk(Some(name("empty")))).await, [""; 0]);
        let missing = within(client.walk(Some(name("missing"))).next()).await;
        assert!(missing.unwrap_err().is_not_found());
        for file in [
            client.walk(Some(name("a0"))),
            client.entries(Some(name("a0"))),
        ] {
            let mut file = file;
            assert_eq!(
                code(within(file.next()).await),
                Some(FailCode::NotADirectory)
            );
        }
        let after = client.entries(None).after(&name("a0"));
        assert_eq!(keys(after).await, ["b/", "empty/", "z", "ä/"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_of_many_pages_goes_on_where_it_was_whoever_else_walks() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let mut expected = BTreeSet::new();
    for dir in 0..50 {
        let folder = format!("{dir}-{}", "x".repeat(dir * 3));
        fs::create_dir_all(served.path(&folder)).unwrap();
        expected.insert(format!("{folder}/"));
        for file in 0..100 {
            let file = format!("{folder}/{file}");
            fs::write(served.path(&file), "").unwrap();
            expected.insert(file);
        }
    }
    symlink("..", served.path("out")).unwrap();
    symlink(".", served.path("loop")).unwrap();
    expected.insert("loop".into());
    fs::write(served.path(".x.01234567.nicstripe-part"), "hidden").unwrap();
    expected.insert("out".into());
    let walks: Vec<_> = (0..5)
        .map(|_| tokio::spawn(keys(client.walk(None))))
        .collect();
    for link in ["loop/0-", "loop/loop/0-", "loop/1-xxx/5"] {
        let found = keys(client.walk(None).after(&name(link))).await;
        assert_eq!(found, ["out"], "{link} is behind a link");
    }
    for walk in walks {
        let found = walk.await.unwrap();
        assert!(
            found.iter().eq(&expected),
            "{} of {}",
            found.len(),
            expected.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_removed_and_those_that_stay_are_named() {
    for served in [Served::start().await, in_memory().await] {
        let client = served.client(2).await;
        let mut names: Vec<Name> = (0..300)
            .map(|number| name(&format!("d/{number}")))
            .collect();
        for file in &names {
            write(&client, &file.to_string(), b"x").await;
        }
        write(&client, "full/kept", b"x").await;
        names.insert(100, name("missing"));
        names.push(name("full"));
        names.push(name("d"));
        let left = within(client.remove_many(&names)).await.unwrap();
        let left: Vec<_> = left
            .iter()
            .map(|one| (one.name.to_string(), one.error.fail_code().unwrap()))
            .collect();
        let expected = [("missing", FailCode::NotFound), ("full", FailCode::Exists)];
        assert_eq!(left, expected.map(|(name, code)| (name.to_owned(), code)));
        assert_eq!(keys(client.walk(None)).await, ["full/", "full/kept"]);
        assert!(within(client.remove_many(&[])).await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_hold_for_what_stays_at_the_daemon() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a"), "a").unwrap();
    fs::write(root.path().join("b"), "b").unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "s").unwrap();
    symlink(outside.path(), root.path().join("out")).unwrap();
    let served = Served::start_built(root, |builder| builder.append_only(true)).await;
    let client = served.client(1).await;
    let copy = |from: &str, to: &str, options| {
        let (client, from, to) = (client.clone(), name(from), name(to));
        async move { code(within(client.copy(&from, &to, options)).await) }
    };
    let (adding, replacing) = (RenameOptions::default(), RenameOptions::replacing());
    assert_eq!(copy("a", "c", adding).await, None);
    assert_eq!(
        copy("a", "b", replacing).await,
        Some(FailCode::NotPermitted)
    );
    assert!(copy("out/secret", "d", adding).await.is_some());
    assert!(copy("a", "out/d", adding).await.is_some());
    let left = ok(client.remove_many(&[name("a"), name("b")])).await;
    let codes: Vec<_> = left.iter().map(|one| one.error.fail_code()).collect();
    assert_eq!(codes, [Some(FailCode::NotPermitted); 2]);
    assert_eq!(keys(client.walk(None)).await, ["a", "b", "c", "out"]);
    assert!(within(client.walk(Some(name("out"))).next()).await.is_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_shall_be_files_only_files_are_removed() {
    for served in [Served::start().await, in_memory().await] {
        let client = served.client(1).await;
        write(&client, "file", b"x").await;
        within(client.make_dir(&name("dir"))).await.unwrap();
        let names = [name("dir"), name("file")];
        let left = within(client.remove_files(&names)).await.unwrap();
        let left: Vec<_> = left
            .iter()
            .map(|one| (&one.name, one.error.fail_code()))
            .collect();
        assert_eq!(left, [(&names[0], Some(FailCode::NotAFile))]);
        assert_eq!(keys(client.walk(None)).await, ["dir/"]);

        write(&client, "file", b"x").await;
        write(&client, "full/file", b"x").await;
        let names = [name("file"), name("full"), name("dir")];
        let left = within(client.remove_dirs(&names)).await.unwrap();
        let codes: Vec<_> = left.iter().map(|one| one.error.fail_code()).collect();
        assert_eq!(
            codes,
            [Some(FailCode::NotADirectory), Some(FailCode::Exists)]
        );
        assert_eq!(
            keys(client.walk(None)).await,
            ["file", "full/", "full/file"]
        );
    }
}

/// Returns files of these lengths, with one content that continues from one to the next.
async fn parts(client: &Client, lengths: &[usize]) -> (Vec<Name>, Vec<u8>) {
    let whole = content(lengths.iter().sum());
    let (mut names, mut begin) = (Vec::new(), 0);
    for (index, length) in lengths.iter().enumerate() {
        let part = format!("parts/{index}");
        write(client, &part, &whole[begin..begin + length]).await;
        names.push(name(&part));
        begin += length;
    }
    (names, whole)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_several_processes_wrote_become_one() {
    for served in [Served::start().await, in_memory().await] {
        let client = served.client(2).await;
        let lengths = [0, 3_000_000, 1, 0, 262_144, 700_001];
        let (names, whole) = parts(&client, &lengths).await;
        let (to, options) = (name("made/of/parts"), RenameOptions::default());
        let with_parents = RenameOptions {
            parents: true,
            ..options
        };
        // Of another process than the one that wrote the parts.
        let other = served.client(1).await;
        let made = ok(other.concat(&names, &to, with_parents)).await;
        assert_eq!(made.size, whole.len() as u64);
        assert_eq!(made, within(client.stat(&to)).await.unwrap());
        assert_eq!(within(client.read(&to, None)).await.unwrap(), whole);
        assert_eq!(ok(client.list(Some(&name("parts")))).await.len(), 6);

        let again = |options| client.concat(&names[1..2], &to, options);
        assert_eq!(code(within(again(options)).await), Some(FailCode::Exists));
        let tagged = |tag| RenameOptions {
            only_if: tag,
            ..options
        };
        within(again(tagged(made.etag))).await.unwrap();
        assert_eq!(within(client.stat(&to)).await.unwrap().size, 3_000_000);
        let stale = within(again(tagged(made.etag))).await;
        assert_eq!(code(stale), Some(FailCode::Precondition));

        let empty = within(client.concat(&[], &name("empty"), options)).await;
        assert_eq!(empty.unwrap().size, 0);
        let missing = [names[1].clone(), name("missing")];
        let missing = within(client.concat(&missing, &name("x"), options)).await;
        assert!(missing.unwrap_err().is_not_found());
        let of_dir = within(client.concat(&[name("parts")], &name("x"), options)).await;
        assert_eq!(code(of_dir), Some(FailCode::NotAFile));
        assert!(
            within(client.stat(&name("x")))
                .await
                .unwrap_err()
                .is_not_found()
        );
        // A file that was begun twice and given up holds nothing.
        ok(client.concat(&names, &name("x"), options)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_files_of_one_name_that_are_made_at_once_are_not_mixed() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let mut parts = Vec::new();
    for content in ["a", "b"] {
        let part = name(&format!("part-{content}"));
        write(&client, &part.to_string(), content.as_bytes()).await;
        parts.push(vec![part; 8]);
    }
    let (to, replacing) = (
        name("made"),
        RenameOptions {
            replace: true,
            ..RenameOptions::default()
        },
    );
    for _ in 0..8 {
        let made = |parts| client.concat(parts, &to, replacing);
        let (one, two) = within(async { tokio::join!(made(&parts[0]), made(&parts[1])) }).await;
        assert_eq!((one.unwrap().size, two.unwrap().size), (8, 8));
        let read = within(client.read(&to, None)).await.unwrap();
        assert!(
            [&b"aaaaaaaa"[..], b"bbbbbbbb"].contains(&&read[..]),
            "{read:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_parts_that_was_given_up_leaves_nothing() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let (names, _) = parts(&client, &[9_000_000; 8]).await;
    for polls in 1..40 {
        let options = RenameOptions::default();
        let to = name("x");
        let mut call = Box::pin(client.concat(&names, &to, options));
        for _ in 0..polls {
            let poll = tokio::time::timeout(Duration::from_millis(1), &mut call).await;
            if poll.is_ok() {
                break;
            }
        }
        drop(call);
        let replacing = RenameOptions::replacing();
        ok(client.concat(&names[..1], &to, replacing)).await;
        within(client.remove(&to)).await.unwrap();
    }
    drop(client);
    let begun = std::time::Instant::now();
    while !leftovers(&served.path("")).is_empty() && begun.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(leftovers(&served.path("")), [""; 0]);
}
