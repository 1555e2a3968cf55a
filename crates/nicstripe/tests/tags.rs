//! Tests of entity tags: what has one, when it changes, and what depends on it.

use nicstripe::{CopyOptions, ETag, Error, FailCode, OpenOptions, RenameOptions, TreeOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::harness::{PLAIN, REPLACE, Served, code, content, in_memory, name, ok, within};

fn only_if(tag: ETag) -> CopyOptions {
    CopyOptions {
        only_if: Some(tag),
        ..PLAIN
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_the_same_tag_wherever_it_is_told_until_it_changes() {
    for served in [Served::start().await, in_memory().await] {
        let client = served.client(2).await;
        let a = name("a");
        let written = within(client.write(&a, content(700_000), PLAIN));
        let first = written.await.unwrap().etag.unwrap();
        let reader = within(client.open(&a)).await.unwrap();
        let read = within(client.read_with(&a, OpenOptions::default()));
        let read = read.await.unwrap();
        assert_eq!(read.bytes, content(700_000));
        assert_eq!((read.stat.size, read.stat), (700_000, *reader.stat()));
        let listed = within(client.list(None)).await.unwrap();
        assert_eq!(within(client.stat(&a)).await.unwrap(), read.stat);
        assert_eq!([listed[0].stat.etag, read.stat.etag], [Some(first); 2]);

        let again = within(client.write(&a, content(700_000), REPLACE)).await;
        let second = again.unwrap().etag.unwrap();
        assert_ne!(first, second, "equal bytes are another file");
        within(client.make_dir(&name("dir"))).await.unwrap();
        assert_eq!(within(client.stat(&name("dir"))).await.unwrap().etag, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_depends_on_a_tag_is_done_to_that_content_alone() {
    for served in [Served::start().await, in_memory().await] {
        let client = served.client(2).await;
        let (a, b) = (name("a"), name("b"));
        let write = |bytes: &'static str, options| client.write(&a, bytes, options);
        let first = within(write("one", PLAIN)).await.unwrap();
        let first = first.etag.unwrap();
        let second = within(write("two", only_if(first))).await.unwrap();
        let second = second.etag.unwrap();

        // All that a program which still knows the first content may want.
        let stale = OpenOptions {
            only_if: Some(first),
            ..OpenOptions::default()
        };
        let renaming = |tag| RenameOptions {
            only_if: Some(tag),
            ..RenameOptions::default()
        };
        let refused = [
            code(within(write("three", only_if(first))).await),
            code(within(client.read_with(&a, stale.clone())).await),
            code(within(client.open_with(&a, stale)).await),
            code(within(client.remove_if(&a, first)).await),
            code(within(client.rename(&a, &b, renaming(first))).await),
            code(within(client.write(&b, "new", only_if(first))).await),
        ];
        assert_eq!(refused, [Some(FailCode::Precondition); 6]);
        assert_eq!(within(client.read(&a, None)).await.unwrap(), b"two");
        assert_eq!(within(client.list(None)).await.unwrap().len(), 1);

        let known = OpenOptions {
            range: Some(1..2),
            only_if: Some(second),
        };
        let read = within(client.read_with(&a, known)).await.unwrap();
        assert_eq!((&read.bytes[..], read.stat.size), (&b"w"[..], 3));
        ok(client.rename(&a, &b, renaming(second))).await;
        // A file system counts a new name as a change.
        let moved = within(client.stat(&b)).await.unwrap().etag.unwrap();
        within(client.remove_if(&b, moved)).await.unwrap();
        let gone = within(client.remove_if(&b, moved)).await.unwrap_err();
        assert!(gone.is_not_found(), "{gone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_writers_that_know_the_same_content_one_replaces_it() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let a = name("a");
    let mut tag = within(client.write(&a, "0", PLAIN)).await.unwrap().etag;
    for round in 0..10 {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (client, a, options) = (client.clone(), a.clone(), only_if(tag.unwrap()));
                let bytes = format!("{round} {writer}");
                tokio::spawn(async move { (client.write(&a, &bytes, options).await, bytes) })
            })
            .collect();
        let mut won = Vec::new();
        for writer in writers {
            match within(writer).await.unwrap() {
                (Ok(report), bytes) => won.push((report.etag, bytes)),
                // Two unfinished files of one name exclude each other.
                (Err(error), _) => assert!(
                    matches!(
                        error.fail_code(),
                        Some(FailCode::Precondition | FailCode::Busy)
                    ),
                    "{error}"
                ),
            }
        }
        let [(etag, bytes)] = &won[..] else {
            panic!("{won:?}")
        };
        assert_eq!(
            within(client.read(&a, None)).await.unwrap(),
            bytes.as_bytes()
        );
        tag = *etag;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_range_ends_with_it_and_reads_one_content() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let (a, bytes) = (name("a"), content(5_000_000));
    std::fs::write(served.path("a"), &bytes).unwrap();
    let open = |range| {
        let range = Some(range);
        client.open_with(
            &a,
            OpenOptions {
                range,
                only_if: None,
            },
        )
    };
    for range in [
        0..0,
        0..1,
        9..3_000_009,
        4_999_999..9_000_000,
        5_000_000..5_000_001,
    ] {
        let (start, end) = (range.start as usize, bytes.len().min(range.end as usize));
        let mut reader = within(open(range)).await.unwrap();
        assert_eq!((reader.position(), reader.len()), (start as u64, 5_000_000));
        let mut read = Vec::new();
        within(reader.read_to_end(&mut read)).await.unwrap();
        assert!(read == bytes[start..end], "{start} {end}");
    }
    let backward = std::ops::Range { start: 2, end: 1 };
    assert_eq!(code(within(open(backward)).await), Some(FailCode::Range));
    assert_eq!(
        code(within(open(5_000_001..5_000_002)).await),
        Some(FailCode::Range)
    );
    within(client.make_dir(&name("dir"))).await.unwrap();
    let dir = within(client.open_with(&name("dir"), OpenOptions::default())).await;
    assert_eq!(code(dir), Some(FailCode::NotAFile));

    let mut reader = within(open(0..10)).await.unwrap();
    let mut first = [0; 10];
    within(reader.read_exact(&mut first)).await.unwrap();
    // Replaced before the reader has seen any of it, and as long as before.
    let mut lazy = within(client.open(&a)).await.unwrap();
    let replaced = served.path("new");
    std::fs::write(&replaced, &bytes).unwrap();
    std::fs::rename(&replaced, served.path("a")).unwrap();
    for reader in [&mut reader, &mut lazy] {
        reader.seek(std::io::SeekFrom::Start(4)).await.unwrap();
        let error = within(reader.read_exact(&mut [0; 1])).await.unwrap_err();
        let error = error.downcast::<Error>().unwrap();
        assert_eq!(error.fail_code(), Some(FailCode::SourceChanged), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_what_is_replaced_or_removed_meanwhile_has_the_old_content() {
    for served in [Served::start().await, in_memory().await] {
        let client = served.client(2).await;
        let (a, old) = (name("a"), content(40_000_000));
        within(client.write(&a, &old, PLAIN)).await.unwrap();
        for round in 0..2 {
            // More than may be read ahead.
            let reader = client.open_with(&a, OpenOptions::default());
            let mut reader = within(reader).await.unwrap();
            match round {
                0 => drop(within(client.write(&a, &old, REPLACE)).await.unwrap()),
                _ => within(client.remove(&a)).await.unwrap(),
            }
            let mut read = Vec::new();
            within(reader.read_to_end(&mut read)).await.unwrap();
            assert!(read == old);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_grants_no_right_and_a_tree_has_no_tag() {
    let root = tempfile::tempdir().unwrap();
    let served = Served::start_built(root, |builder| builder.append_only(true)).await;
    let client = served.client(1).await;
    let a = name("a");
    let tag = within(client.write(&a, "one", PLAIN)).await.unwrap();
    let tag = tag.etag.unwrap();
    let renaming = RenameOptions {
        only_if: Some(tag),
        ..RenameOptions::default()
    };
    let refused = [
        code(within(client.write(&a, "two", only_if(tag))).await),
        code(within(client.remove_if(&a, tag)).await),
        code(within(client.rename(&a, &name("b"), renaming)).await),
    ];
    assert_eq!(refused, [Some(FailCode::NotPermitted); 3]);
    assert_eq!(std::fs::read(served.path("a")).unwrap(), b"one");

    let source = tempfile::tempdir().unwrap();
    let files = only_if(tag);
    let options = TreeOptions {
        files,
        ..TreeOptions::default()
    };
    let tree = client.put_tree(vec![source.path().to_owned()], None, options);
    assert_eq!(code(within(tree.finish()).await), Some(FailCode::Refused));
}
