//! Tests of delta transfers: the sender sends only chunks that differ from the existing file.

use std::{os::unix::fs::MetadataExt, path::Path};

use nicstripe::{BitRate, Client, CopyOptions, Error, FailCode, Report};

use super::{
    Served, content, digest, interrupt_at, leftovers, name,
    sparse::{data_map, sparse},
    within,
};

const CHUNK: usize = 256 * 1024;

fn delta(in_place: bool) -> CopyOptions {
    CopyOptions {
        delta: !in_place,
        in_place,
        ..CopyOptions::default()
    }
}

/// Copies `new` over `old` with `options`, by a put and a get. Returns both reports.
async fn over(
    served: &Served,
    client: &Client,
    new: &[u8],
    old: &[u8],
    options: CopyOptions,
) -> [Report; 2] {
    let here = tempfile::tempdir().unwrap();
    let (source, back) = (here.path().join("source"), here.path().join("back"));
    std::fs::write(&source, new).unwrap();
    std::fs::write(served.path("target"), old).unwrap();
    std::fs::write(&back, old).unwrap();
    let inodes = [served.path("target"), back.clone()].map(|path| path.metadata().unwrap().ino());
    let there = within(client.put(&source, Some(name("target")), options).finish())
        .await
        .unwrap();
    assert!(std::fs::read(served.path("target")).unwrap() == new);
    std::fs::copy(&source, served.path("again")).unwrap();
    let report = within(client.get(name("again"), &back, options).finish())
        .await
        .unwrap();
    assert!(std::fs::read(&back).unwrap() == new);
    assert_eq!(leftovers(served.root.path()), Vec::<String>::new());
    let after = [served.path("target"), back].map(|path| path.metadata().unwrap().ino());
    assert_eq!(
        after == inodes,
        options.in_place,
        "in place it stays the same file"
    );
    [there, report]
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_differs_is_on_the_wire() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let old = content(40 * CHUNK + 1000);
    let mut new = old.clone();
    [5, 10 * CHUNK, 10 * CHUNK + 7, 39 * CHUNK]
        .into_iter()
        .for_each(|at| new[at] ^= 1);
    for in_place in [false, true] {
        for report in over(&served, &client, &new, &old, delta(in_place)).await {
            assert_eq!(
                (report.wire_bytes, report.digest),
                (3 * CHUNK as u64 + report.resent_bytes, Some(digest(&new)))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_place_takes_away_what_an_attempt_beside_it_left() {
    let served = Served::start().await;
    let client = within(served.connect_at(1, Some(BitRate::from_mbit(200))))
        .await
        .unwrap();
    let here = tempfile::tempdir().unwrap();
    let (source, bytes) = (here.path().join("source"), content(40 * CHUNK));
    std::fs::write(&source, &bytes).unwrap();
    std::fs::write(served.path("target"), "old").unwrap();
    let replace = CopyOptions {
        replace: true,
        ..CopyOptions::default()
    };
    assert!(interrupt_at(client.put(&source, Some(name("target")), replace), 1 << 20).await);
    assert_eq!(leftovers(served.root.path()).len(), 2);
    within(
        client
            .put(&source, Some(name("target")), delta(true))
            .finish(),
    )
    .await
    .unwrap();
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
    assert_eq!(leftovers(served.root.path()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_file_may_be_longer_or_shorter_or_the_same_or_empty() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let whole = content(20 * CHUNK + 1000);
    for in_place in [false, true] {
        for (new, old, sent) in [
            (20 * CHUNK + 1000, 10 * CHUNK + 5, 10 * CHUNK + 1000),
            (10 * CHUNK + 5, 20 * CHUNK + 1000, 0),
            (20 * CHUNK + 1000, 20 * CHUNK + 1000, 0),
            (20 * CHUNK + 1000, 0, 20 * CHUNK + 1000),
            (0, 20 * CHUNK, 0),
            (100, 99, 100),
        ] {
            for report in over(
                &served,
                &client,
                &whole[..new],
                &whole[..old],
                delta(in_place),
            )
            .await
            {
                assert_eq!(
                    report.wire_bytes,
                    sent as u64 + report.resent_bytes,
                    "{new} over {old}"
                );
                assert_eq!(report.digest, Some(digest(&whole[..new])));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_old_file_it_is_a_plain_copy() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, content(5 * CHUNK)).unwrap();
    for in_place in [false, true] {
        let target = format!("target-{in_place}");
        let report = within(
            client
                .put(&source, Some(name(&target)), delta(in_place))
                .finish(),
        )
        .await
        .unwrap();
        assert_eq!(report.wire_bytes, 5 * CHUNK as u64 + report.resent_bytes);
        assert!(std::fs::read(served.path(&target)).unwrap() == content(5 * CHUNK));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delta_of_sparse_files_leaves_the_sources_holes() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    sparse(
        &source,
        32 << 20,
        &[(0, 4 << 20), ((10 << 20) + 4096, 8192), (20 << 20, 1 << 20)],
    );
    for in_place in [false, true] {
        std::fs::write(served.path("target"), content(30 << 20)).unwrap();
        let report = within(
            client
                .put(&source, Some(name("target")), delta(in_place))
                .finish(),
        )
        .await
        .unwrap();
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
        let again = within(
            client
                .put(&source, Some(name("target")), delta(in_place))
                .finish(),
        )
        .await
        .unwrap();
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
        let client = within(served.connect_at(2, Some(BitRate::from_mbit(400))))
            .await
            .unwrap();
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
        let client = within(served.connect(2)).await.unwrap();
        let report = within(
            client
                .put(&source, Some(name("target")), delta(in_place))
                .finish(),
        )
        .await
        .unwrap();
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
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, content(8 << 20)).unwrap();
    std::fs::write(served.path("target"), b"old").unwrap();
    let _lock = lock(&served.path("target"));
    let client = within(served.connect(1)).await.unwrap();
    let error = within(
        client
            .put(&source, Some(name("target")), delta(true))
            .finish(),
    )
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
