//! Tests of delta transfers: the sender sends only chunks that differ from the existing file.

use crate::harness::{
    CHUNK, PLAIN, REPLACE, Served, content, digest, done, finished, interrupt_at, leftovers, name,
    source_of,
};
use std::{os::unix::fs::MetadataExt, path::Path};

use nicstripe::{BitRate, Client, CopyOptions, Error, FailCode, Report};

use super::sparse::{data_map, sparse};

fn delta(in_place: bool) -> CopyOptions {
    CopyOptions {
        delta: !in_place,
        in_place,
        ..PLAIN
    }
}

/// Copies `new` over `old` with `options`, by a put and a get. Returns both reports.
async fn over(
    served: &Served,
    client: &Client,
    new: &[u8],
    old: Option<&[u8]>,
    options: CopyOptions,
) -> [Report; 2] {
    let (here, source) = source_of(new);
    let targets = [served.path("target"), here.path().join("back")];
    for target in &targets {
        let _ = std::fs::remove_file(target);
        if let Some(old) = old {
            std::fs::write(target, old).unwrap();
        }
    }
    let inodes = || {
        targets
            .each_ref()
            .map(|path| path.metadata().map(|meta| meta.ino()).ok())
    };
    let before = inodes();
    let there = done(client.put(&source, Some(name("target")), options)).await;
    std::fs::copy(&source, served.path("again")).unwrap();
    let back = done(client.get(name("again"), &targets[1], options)).await;
    for target in &targets {
        assert!(std::fs::read(target).unwrap() == new);
    }
    assert!(served.is_tidy());
    let is_same = old.is_some() && inodes() == before;
    assert_eq!(
        is_same,
        old.is_some() && options.in_place,
        "in place it stays the same file"
    );
    [there.unwrap(), back.unwrap()]
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_differs_is_on_the_wire_whatever_the_old_file_is() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let whole = content(40 * CHUNK + 1000);
    let mut changed = whole.clone();
    for at in [5, 10 * CHUNK, 10 * CHUNK + 7, 39 * CHUNK] {
        changed[at] ^= 1;
    }
    let (short, long) = (&whole[..10 * CHUNK + 5], &whole[..20 * CHUNK + 1000]);
    for in_place in [false, true] {
        for (what, new, old, sent) in [
            ("changed", &changed[..], Some(&whole[..]), 3 * CHUNK),
            ("longer", long, Some(short), 10 * CHUNK + 1000),
            ("shorter", short, Some(long), 0),
            ("the same", long, Some(long), 0),
            ("over an empty one", long, Some(&[]), 20 * CHUNK + 1000),
            ("empty", &[], Some(long), 0),
            ("small", &whole[..100], Some(&whole[..99]), 100),
            ("new", short, None, 10 * CHUNK + 5),
        ] {
            for report in over(&served, &client, new, old, delta(in_place)).await {
                let found = (report.wire_bytes - report.resent_bytes, report.digest);
                assert_eq!(
                    found,
                    (sent as u64, Some(digest(new))),
                    "{what}, {in_place}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_place_takes_away_what_an_attempt_beside_it_left() {
    let served = Served::start().await;
    let client = served.client_at(1, BitRate::from_mbit(200)).await;
    let bytes = content(40 * CHUNK);
    let (_here, source) = source_of(&bytes);
    std::fs::write(served.path("target"), "old").unwrap();
    assert!(interrupt_at(client.put(&source, Some(name("target")), REPLACE), 1 << 20).await);
    assert_eq!(leftovers(served.root.path()).len(), 2);
    finished(client.put(&source, Some(name("target")), delta(true))).await;
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
    assert_eq!(leftovers(served.root.path()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delta_of_sparse_files_leaves_the_sources_holes() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    sparse(
        &source,
        32 << 20,
        &[(0, 4 << 20), ((10 << 20) + 4096, 8192), (20 << 20, 1 << 20)],
    );
    for in_place in [false, true] {
        std::fs::write(served.path("target"), content(30 << 20)).unwrap();
        let report = finished(client.put(&source, Some(name("target")), delta(in_place))).await;
        assert!(std::fs::read(served.path("target")).unwrap() == std::fs::read(&source).unwrap());
        assert_eq!(
            data_map(&served.path("target")),
            data_map(&source),
            "in place: {in_place}"
        );
        assert!(
            report.wire_bytes < (2 << 20) + report.resent_bytes,
            "{report:?}"
        );
        let again = finished(client.put(&source, Some(name("target")), delta(in_place))).await;
        assert_eq!((again.wire_bytes, again.digest), (0, report.digest));
        assert_eq!(
            data_map(&served.path("target")),
            data_map(&source),
            "in place: {in_place}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_delta_goes_on() {
    let served = Served::start().await;
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    let old = content(160 << 20);
    let mut new = old.clone();
    (0..640)
        .step_by(2)
        .for_each(|chunk| new[chunk * CHUNK] ^= 1);
    std::fs::write(&source, &new).unwrap();
    for in_place in [false, true] {
        std::fs::write(served.path("target"), &old).unwrap();
        let client = served.client_at(2, BitRate::from_mbit(400)).await;
        assert!(
            interrupt_at(
                client.put(&source, Some(name("target")), delta(in_place)),
                120 << 20
            )
            .await
        );
        drop(client);
        assert_eq!(
            std::fs::read(served.path("target")).unwrap() == old,
            !in_place
        );
        let client = served.client(2).await;
        let report = finished(client.put(&source, Some(name("target")), delta(in_place))).await;
        assert_eq!(report.digest, Some(digest(&new)));
        assert!(std::fs::read(served.path("target")).unwrap() == new);
        assert_eq!(report.resumed_bytes > 0, !in_place, "{report:?}");
        assert!(
            report.wire_bytes < (70 << 20) + report.resent_bytes,
            "of 80 MiB that differ: {}",
            report.wire_bytes
        );
        assert_eq!(leftovers(served.root.path()), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_transfers_do_not_write_one_file_in_place() {
    let served = Served::start().await;
    let (_here, source) = source_of(content(8 << 20));
    std::fs::write(served.path("target"), b"old").unwrap();
    let _lock = lock(&served.path("target"));
    let client = served.client(1).await;
    let error = done(client.put(&source, Some(name("target")), delta(true)))
        .await
        .unwrap_err();
    assert!(
        matches!(error.fail_code(), Some(FailCode::Busy)),
        "{error:?}"
    );
    assert!(matches!(error, Error::Peer { .. }));
    assert_eq!(std::fs::read(served.path("target")).unwrap(), b"old");
}

fn lock(path: &Path) -> std::fs::File {
    let file = std::fs::File::open(path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    file
}
