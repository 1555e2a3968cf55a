//! Fetches from several URLs, and proof from a file of checksums.

use std::fs;

use nicstripe_web::{Algorithm, FetchOptions, Proof, WebError};

use crate::{
    Place, TAG, data, fetch_to, fetch_with, options,
    server::{Server, honest, part, status, whole},
    that,
};

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes))
}

/// Returns the options to fetch also from these servers, with the digest of these bytes.
fn with_mirrors(mirrors: &[&Server], bytes: &[u8]) -> FetchOptions {
    let mut options = options();
    let urls = mirrors.iter().map(|server| server.url("/file").parse());
    options.mirrors = urls.collect::<Result<_, _>>().unwrap();
    options.expected = Some(format!("sha256:{}", sha256(bytes)).parse().unwrap());
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_comes_from_all_its_urls_although_their_versions_differ() {
    let (data, place) = (data(32 << 20), Place::new());
    let one = that(&data, |_, _| None).await;
    let two = that(&data, |request, data| {
        Some(honest(data, "\"two\"", request))
    })
    .await;
    let mut options = options();
    options.mirrors = vec![two.url("/elsewhere").parse().unwrap()];
    let error = fetch_with(&one, &place, options.clone()).await;
    assert!(matches!(error, Err(WebError::NoDigest)), "{error:?}");
    options.expected = Some(format!("sha256:{}", sha256(&data)).parse().unwrap());
    let fetched = fetch_with(&one, &place, options).await.unwrap();
    assert!(fs::read(place.file()).unwrap() == **data);
    assert_eq!(fetched.proof, Proof::Expected(Algorithm::Sha256));
    assert!(fetched.liars.is_empty());
    assert!(one.sent() > 1 << 20 && two.sent() > 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_lies_is_named_and_the_file_is_right() {
    let (data, place) = (data(24 << 20), Place::new());
    let liar = that(&data, |request, data| {
        let (first, end) = request.range?;
        let mut reply = part(data, "\"lie\"", first, end);
        let middle = reply.body.len() / 2;
        reply.body[middle] ^= u8::from(request.number > 0);
        Some(reply)
    })
    .await;
    let honest_one = that(&data, |_, _| None).await;
    let options = with_mirrors(&[&honest_one], &data);
    let fetched = fetch_with(&liar, &place, options).await.unwrap();
    assert!(fs::read(place.file()).unwrap() == **data);
    assert_eq!(fetched.liars, [liar.url("/file")]);
    assert_eq!(place.names(), ["file"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_every_url_lies_nothing_is_kept() {
    let (data, place) = (data(2 << 20), Place::new());
    let one = that(&data, |_, _| None).await;
    let two = that(&data, |_, _| None).await;
    let options = with_mirrors(&[&two], b"other bytes");
    let error = fetch_with(&one, &place, options).await.unwrap_err();
    assert!(matches!(error, WebError::Digest { .. }), "{error:?}");
    assert_eq!(place.names(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_with_another_size_or_without_an_answer_is_left_out() {
    let (data, place) = (data(4 << 20), Place::new());
    let one = that(&data, |_, _| None).await;
    let other = that(&data, |request, data| {
        Some(honest(&data[1..], "\"other\"", request))
    })
    .await;
    let gone = that(&data, |_, _| Some(status("404 Not Found", ""))).await;
    let options = with_mirrors(&[&other, &gone], &data);
    fetch_with(&one, &place, options).await.unwrap();
    assert!(fs::read(place.file()).unwrap() == **data);
    assert!(other.sent() < 2, "{}", other.sent());
}

/// Starts a server with a file, and a file of checksums next to it.
async fn with_sums(bytes: &std::sync::Arc<Vec<u8>>, sums: String) -> Server {
    that(bytes, move |request, _| {
        (request.path == "/SHA256SUMS").then(|| whole(sums.as_bytes(), "\"sums\""))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_checksums_proves_the_file() {
    let (data, place) = (data(3 << 20), Place::new());
    let right = format!("{}  other\n{} *file\n", "11".repeat(32), sha256(&data));
    let server = with_sums(&data, right).await;
    let mut options = options();
    options.sums = Some(server.url("/SHA256SUMS").parse().unwrap());
    let fetched = fetch_with(&server, &place, options.clone()).await.unwrap();
    assert_eq!(
        fetched.proof.to_string(),
        "verified by sha256 of SHA256SUMS"
    );
    // A wrong one, none, and no file of checksums.
    fs::remove_file(place.file()).unwrap();
    let wrong = with_sums(&data, format!("{}  file\n", "11".repeat(32))).await;
    options.sums = Some(wrong.url("/SHA256SUMS").parse().unwrap());
    let error = fetch_with(&wrong, &place, options.clone()).await;
    assert!(matches!(error, Err(WebError::Digest { .. })), "{error:?}");
    let none = with_sums(&data, "nothing\n".to_owned()).await;
    options.sums = Some(none.url("/SHA256SUMS").parse().unwrap());
    let error = fetch_with(&none, &place, options.clone()).await;
    assert!(matches!(error, Err(WebError::NoSum { .. })), "{error:?}");
    let gone = that(&data, |request, _| {
        (request.path != "/file").then(|| status("404 Not Found", ""))
    })
    .await;
    options.sums = Some(gone.url("/SHA256SUMS").parse().unwrap());
    let error = fetch_with(&gone, &place, options).await.unwrap_err();
    assert!(error.is_missing(), "{error:?}");
    assert_eq!(place.names(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_that_the_server_promises_for_the_whole_is_compared() {
    let (data, place) = (data(3 << 20), Place::new());
    for (is_right, said) in [(true, "verified by the server's md5"), (false, "md5")] {
        let server = that(&data, move |request, data| {
            use base64::{Engine as _, engine::general_purpose::STANDARD};
            let mut reply = match request.head.starts_with("HEAD") {
                true => whole(data, TAG),
                false => return None,
            };
            let mut md5 = <md5::Md5 as md5::Digest>::digest(data).to_vec();
            md5[0] ^= u8::from(!is_right);
            let line = format!("\r\ncontent-md5: {}\r\n\r\n", STANDARD.encode(md5));
            reply.head = reply.head.replace("\r\n\r\n", &line);
            reply.body.clear();
            Some(reply)
        })
        .await;
        let fetched = fetch_with(&server, &place, options()).await;
        match is_right {
            true => assert_eq!(fetched.unwrap().proof.to_string(), said),
            false => assert!(
                matches!(fetched, Err(WebError::Digest { .. })),
                "{fetched:?}"
            ),
        }
        let _ = fs::remove_file(place.file());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_go_to_their_own_server_only() {
    let (data, place) = (data(1 << 20), Place::new());
    let mirror = that(&data, |_, _| None).await;
    let server = that(&data, |_, _| None).await;
    let mut options = with_mirrors(&[&mirror], &data);
    options.headers = vec!["x-token: secret".parse().unwrap()];
    options.netrc = Some("machine localhost login me password word".to_owned());
    options.cookies = "localhost\tFALSE\t/\tFALSE\t0\tid\t7\n".parse().unwrap();
    let url = server.url("/file").replace("127.0.0.1", "localhost");
    fetch_to(&url, &place.file(), options).await.unwrap();
    for request in server.seen() {
        for line in [
            "x-token: secret\r\n",
            "cookie: id=7\r\n",
            "authorization: Basic bWU6d29yZA==\r\n",
        ] {
            assert!(request.head.contains(line), "{line}: {}", request.head);
        }
    }
    assert!(!mirror.seen().is_empty());
    for request in mirror.seen() {
        for word in ["token", "cookie", "authorization"] {
            assert!(!request.head.contains(word), "{}", request.head);
        }
    }
}
