//! Tests of compressed copies, whose chunks are sent as zstd frames.

use nicstripe::{BitRate, CopyOptions};

use super::{Served, Sink, content, digest, interrupt_at, name, within};

const COMPRESS: CopyOptions = CopyOptions {
    replace: false,
    restart: false,
    preserve: false,
    verify: false,
    delta: false,
    in_place: false,
    compress: true,
    allow_changing: false,
    parents: false,
    force: false,
    only_if: None,
    slice: None,
    times: false,
};

/// Returns `len` bytes of compressible text without repeated lines.
fn text(len: usize) -> Vec<u8> {
    let mut text: Vec<u8> = (0..)
        .map(|line| format!("{line:09} the quick brown fox jumps over the lazy dog\n"))
        .flat_map(String::into_bytes)
        .take(len)
        .collect();
    text.truncate(len);
    text
}

/// Returns a link rate so low that compression makes a copy faster on every machine.
fn slow() -> Option<BitRate> {
    Some(BitRate::from_mbit(200))
}

#[tokio::test(flavor = "multi_thread")]
async fn text_shrinks_on_the_wire_there_and_back() {
    let served = Served::start().await;
    let client = within(served.connect_at(2, slow())).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let (source, back, bytes) = (
        here.path().join("source"),
        here.path().join("back"),
        text((24 << 20) + 77),
    );
    std::fs::write(&source, &bytes).unwrap();
    let there = within(client.put(&source, Some(name("target")), COMPRESS).finish())
        .await
        .unwrap();
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
    let report = within(client.get(name("target"), &back, COMPRESS).finish())
        .await
        .unwrap();
    assert!(std::fs::read(&back).unwrap() == bytes);
    for report in [there, report] {
        assert_eq!(report.digest, Some(digest(&bytes)));
        // Data sent before the link rates are known is uncompressed: 50 ms of data and the
        // read-ahead.
        assert!(
            report.wire_bytes < bytes.len() as u64 * 2 / 3 + report.resent_bytes,
            "{report:?}"
        );
        // The interfaces carry compressed bytes.
        let links: u64 = report.links.iter().map(|link| link.wire_bytes).sum();
        assert!(
            links <= report.wire_bytes && links > 0,
            "{links} of {}",
            report.wire_bytes
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_do_not_grow() {
    let served = Served::start().await;
    let client = within(served.connect_at(1, slow())).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let (source, bytes) = (here.path().join("source"), content(8 << 20));
    std::fs::write(&source, &bytes).unwrap();
    let report = within(client.put(&source, Some(name("target")), COMPRESS).finish())
        .await
        .unwrap();
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
    assert_eq!(report.wire_bytes, bytes.len() as u64 + report.resent_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_being_asked_nothing_is_compressed() {
    let served = Served::start().await;
    let client = within(served.connect_at(1, slow())).await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, text(8 << 20)).unwrap();
    let report = within(
        client
            .put(&source, Some(name("target")), CopyOptions::default())
            .finish(),
    )
    .await
    .unwrap();
    assert_eq!(report.wire_bytes, (8 << 20) + report.resent_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_transfer_of_packed_chunks_goes_on() {
    let served = Served::start().await;
    let here = tempfile::tempdir().unwrap();
    let (source, bytes) = (here.path().join("source"), text(48 << 20));
    std::fs::write(&source, &bytes).unwrap();
    // A copy of seconds, however fast the machine compresses.
    let rate = Some(BitRate::from_mbit(20));
    let client = within(served.connect_at(2, rate)).await.unwrap();
    assert!(
        interrupt_at(
            client.put(&source, Some(name("target")), COMPRESS),
            24 << 20
        )
        .await
    );
    drop(client);
    let client = within(served.connect_at(2, rate)).await.unwrap();
    let report = within(client.put(&source, Some(name("target")), COMPRESS).finish())
        .await
        .unwrap();
    assert!(report.resumed_bytes > 0);
    assert_eq!(report.digest, Some(digest(&bytes)));
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_was_compressed_comes_out_of_a_pipe_as_it_was() {
    let served = Served::start().await;
    let client = within(served.connect_at(2, slow())).await.unwrap();
    let (bytes, sink) = (text((12 << 20) + 77), Sink::default());
    std::fs::write(served.path("file"), &bytes).unwrap();
    let report = within(
        client
            .get_pipe(name("file"), sink.clone(), COMPRESS)
            .finish(),
    )
    .await
    .unwrap();
    assert_eq!((report.digest, report.failovers), (Some(digest(&bytes)), 0));
    assert!(*sink.bytes.lock().unwrap() == bytes);
    assert!(
        report.wire_bytes < bytes.len() as u64 + report.resent_bytes,
        "{report:?}"
    );
}
