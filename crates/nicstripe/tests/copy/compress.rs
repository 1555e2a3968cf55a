//! Tests of compressed copies, whose chunks are sent as zstd frames.

use crate::harness::{
    PLAIN, REPLACE, Served, content, digest, done, finished, interrupt_at, name, source_of,
};
use nicstripe::{BitRate, CopyOptions};

use super::Sink;

const COMPRESS: CopyOptions = CopyOptions {
    compress: true,
    ..PLAIN
};

/// A link rate so low that compression makes a copy faster on every machine.
const SLOW: BitRate = BitRate::from_mbit(200);

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

#[tokio::test(flavor = "multi_thread")]
async fn text_shrinks_on_the_wire_there_and_back_and_into_a_pipe() {
    let served = Served::start().await;
    let client = served.client_at(2, SLOW).await;
    let bytes = text((24 << 20) + 77);
    let (here, source) = source_of(&bytes);
    let back = here.path().join("back");
    let there = done(client.put(&source, Some(name("target")), COMPRESS)).await;
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
    let returned = done(client.get(name("target"), &back, COMPRESS)).await;
    assert!(std::fs::read(&back).unwrap() == bytes);
    let sink = Sink::default();
    let piped = done(client.get_pipe(name("target"), sink.clone(), COMPRESS)).await;
    assert!(*sink.bytes.lock().unwrap() == bytes);
    for report in [there.unwrap(), returned.unwrap(), piped.unwrap()] {
        assert_eq!((report.digest, report.failovers), (Some(digest(&bytes)), 0));
        // Data sent before the link rates are known is uncompressed: 50 ms of data and the
        // read-ahead.
        let most = bytes.len() as u64 * 2 / 3 + report.resent_bytes;
        assert!(report.wire_bytes < most, "{report:?}");
        // The interfaces carry compressed bytes.
        let links: u64 = report.links.iter().map(|link| link.wire_bytes).sum();
        assert!(
            (1..=report.wire_bytes).contains(&links),
            "{links} of {}",
            report.wire_bytes
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_do_not_grow_and_what_was_not_to_be_compressed_is_not() {
    let served = Served::start().await;
    let client = served.client_at(1, SLOW).await;
    for (bytes, options) in [(content(8 << 20), COMPRESS), (text(8 << 20), REPLACE)] {
        let (_here, source) = source_of(&bytes);
        let report = finished(client.put(&source, Some(name("target")), options)).await;
        assert!(std::fs::read(served.path("target")).unwrap() == bytes);
        assert_eq!(report.wire_bytes, (8 << 20) + report.resent_bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_transfer_of_packed_chunks_goes_on() {
    let served = Served::start().await;
    let bytes = text(48 << 20);
    let (_here, source) = source_of(&bytes);
    // A copy of seconds, however fast the machine compresses.
    let rate = BitRate::from_mbit(20);
    let client = served.client_at(2, rate).await;
    assert!(
        interrupt_at(
            client.put(&source, Some(name("target")), COMPRESS),
            24 << 20
        )
        .await
    );
    drop(client);
    let client = served.client_at(2, rate).await;
    let report = finished(client.put(&source, Some(name("target")), COMPRESS)).await;
    assert!(report.resumed_bytes > 0);
    assert_eq!(report.digest, Some(digest(&bytes)));
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
}
