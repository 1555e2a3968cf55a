//! Fetches into a stream: in order, bounded, and proved at the end.

use std::{sync::Arc, time::Duration};

use nicstripe::CancellationToken;
use nicstripe_web::{Fetch, FetchOptions, Fetched, Proof, WebError};
use tokio::io::{AsyncReadExt as _, AsyncWrite, duplex};

use crate::{
    TAG, data, options,
    server::{Server, honest, whole},
    sources::sha256,
    that,
};

async fn fetch(
    server: &Server,
    options: FetchOptions,
    output: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<Fetched, WebError> {
    let fetch = Fetch::new(server.url("/file").parse().unwrap(), options);
    fetch
        .into_stream(output, CancellationToken::new(), |_| {})
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_gets_all_bytes_in_order() {
    for length in [0, 1, (5 << 20) + 7, 70 << 20] {
        let data = data(length);
        let server = that(&data, |_, _| None).await;
        let mut output = Vec::new();
        let mut options = options();
        options.expected = Some(format!("sha256:{}", sha256(&data)).parse().unwrap());
        let fetched = fetch(&server, options, &mut output).await.unwrap();
        assert!(output == **data, "{length}");
        assert!(
            matches!(fetched.proof, Proof::Expected(_)),
            "{:?}",
            fetched.proof
        );
        assert_eq!(
            fetched.report.digest.unwrap().to_string(),
            blake3::hash(&data).to_string()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_waits_makes_the_fetch_wait_and_no_longer() {
    let data = data(200 << 20);
    let server = Arc::new(that(&data, |_, _| None).await);
    let (mut output, mut input) = duplex(1 << 16);
    let mut options = options();
    // The reader is slow, not the server.
    options.patience = Duration::from_millis(1500);
    let of = server.clone();
    let fetching = tokio::spawn(async move { fetch(&of, options, &mut output).await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let sent = server.sent();
    assert!(sent < 100 << 20, "{sent} bytes for a reader that took none");
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).await.unwrap();
    fetching.await.unwrap().unwrap();
    assert!(bytes == **data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_digest_is_an_error_after_the_last_byte() {
    let data = data(3 << 20);
    let server = that(&data, |_, _| None).await;
    let mut options = options();
    options.expected = Some(format!("sha256:{}", "00".repeat(32)).parse().unwrap());
    let error = fetch(&server, options, &mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, WebError::Digest { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_gone_ends_the_fetch_with_an_error() {
    let data = data(1 << 20);
    let in_parts = that(&data, |_, _| None).await;
    let at_once = that(&data, |_, data| Some(whole(data, "W/\"weak\""))).await;
    for server in [&in_parts, &at_once] {
        let (mut output, input) = duplex(1);
        drop(input);
        let error = fetch(server, options(), &mut output).await.unwrap_err();
        assert!(matches!(error, WebError::Output(_)), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_that_breaks_off_is_not_begun_again_behind_its_bytes() {
    let data = data(1 << 20);
    let server = that(&data, |_, data| {
        let closing = "\r\nconnection: close\r\n\r\n";
        let mut reply = whole(data, "W/\"weak\"").with("\r\n\r\n", closing);
        reply.body.truncate(1000);
        Some(reply)
    })
    .await;
    let mut output = Vec::new();
    let error = fetch(&server, options(), &mut output).await.unwrap_err();
    assert!(matches!(error, WebError::NoAnswer { .. }), "{error:?}");
    assert!(output.len() <= 1000, "{} bytes", output.len());
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_a_second_is_as_good_as_none() {
    let data = data(4 << 20);
    let server = that(&data, |request, data| match request.number {
        0 => None,
        _ => {
            let mut reply = honest(data, TAG, request);
            reply.trickles = true;
            Some(reply)
        }
    })
    .await;
    let mut options = options();
    options.patience = Duration::from_secs(3);
    let error = fetch(&server, options, &mut Vec::new()).await.unwrap_err();
    assert!(
        error.to_string().contains("less than 1 KiB/s for 3 s"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_before_the_reader_has_all_is_no_success() {
    let data = data(9 << 20);
    for expected in [None, Some(format!("sha256:{}", "0".repeat(64)))] {
        let server = that(&data, |_, _| None).await;
        // Nobody reads: everything arrives, and waits.
        let (mut output, _input) = duplex(1 << 16);
        let mut options = options();
        options.expected = expected.map(|text| text.parse().unwrap());
        let stop = CancellationToken::new();
        let fetch = Fetch::new(server.url("/file").parse().unwrap(), options);
        let late = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            late.cancel();
        });
        let error = fetch
            .into_stream(&mut output, stop, |_| {})
            .await
            .unwrap_err();
        assert!(
            matches!(error, WebError::Cancelled { resumable: false }),
            "{error:?}"
        );
    }
}
