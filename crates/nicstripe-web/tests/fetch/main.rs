//! Fetches from servers in this process, and uploads to stores: honest ones, and each way to break the rules.

#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod server;
mod sources;
mod store;
mod streams;
mod uploads;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nicstripe::{CancellationToken, Event};
use nicstripe_web::{Algorithm, Fetch, FetchOptions, Fetched, Proof, WebError};
use tempfile::TempDir;

use self::server::{Reply, Request, Server, honest, part, status, whole};

pub(crate) const TAG: &str = "\"one\"";

pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    /// Returns the names in the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn options() -> FetchOptions {
    FetchOptions::default()
}

fn patient() -> FetchOptions {
    let mut options = options();
    options.patience = Duration::from_secs(60);
    options
}

pub(crate) async fn fetch_to(
    url: &str,
    target: &Path,
    options: FetchOptions,
) -> Result<Fetched, WebError> {
    let fetch = Fetch::new(url.parse().unwrap(), options);
    fetch
        .into_file(target, CancellationToken::new(), |_| {})
        .await
}

pub(crate) async fn fetch_with(
    server: &Server,
    place: &Place,
    options: FetchOptions,
) -> Result<Fetched, WebError> {
    fetch_to(&server.url("/file"), &place.file(), options).await
}

pub(crate) async fn fetch(server: &Server, place: &Place) -> Result<Fetched, WebError> {
    fetch_with(server, place, options()).await
}

/// Fetches the file, which must arrive as it is.
async fn arrives(server: &Server, data: &[u8]) -> Fetched {
    let place = Place::new();
    let fetched = fetch(server, &place).await.unwrap();
    assert!(fs::read(place.file()).unwrap() == data);
    assert_eq!(place.names(), ["file"]);
    let digest = fetched.report.digest.unwrap().to_string();
    assert_eq!(digest, blake3::hash(data).to_string());
    fetched
}

/// Returns bytes that do not repeat.
pub(crate) fn data(length: usize) -> Arc<Vec<u8>> {
    let mut reader = blake3::Hasher::new().update(b"seed").finalize_xof();
    let mut bytes = vec![0; length];
    reader.fill(&mut bytes);
    Arc::new(bytes)
}

/// Starts a server that treats requests after the first one as `manner` says, and others honestly.
pub(crate) async fn that(
    data: &Arc<Vec<u8>>,
    manner: impl Fn(&Request, &[u8]) -> Option<Reply> + Send + Sync + 'static,
) -> Server {
    let data = data.clone();
    Server::start(move |request| {
        manner(request, &data).unwrap_or_else(|| honest(&data, TAG, request))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_arrives_whole_in_parts_of_one_version() {
    let data = data((9 << 20) + 12_345);
    let server = that(&data, |_, _| None).await;
    let fetched = arrives(&server, &data).await;
    assert_eq!(fetched.proof, Proof::Version);
    assert_eq!(fetched.report.links.len(), 1);
    assert_eq!(fetched.report.links[0].bytes, data.len() as u64);
    let seen = server.seen();
    assert!(seen.len() > 2);
    for request in &seen {
        assert!(
            request.head.contains("accept-encoding: identity\r\n"),
            "{request:?}"
        );
        assert_eq!(
            request.head.contains("if-range: \"one\"\r\n"),
            request.number > 0 && !request.head.starts_with("HEAD"),
            "{request:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_and_empty_files_arrive() {
    for length in [0, 1, 1 << 20, (1 << 20) + 1] {
        let data = data(length);
        arrives(&that(&data, |_, _| None).await, &data).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_ranges_or_a_version_one_request_brings_all() {
    type Manner = fn(&Request, &[u8]) -> Option<Reply>;
    let manners: [Manner; 3] = [
        |_, data| Some(whole(data, TAG)),
        |request, data| Some(honest(data, "W/\"weak\"", request)),
        |_, data| {
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_owned();
            Some(Reply {
                head,
                body: data.to_vec(),
                ..Reply::default()
            })
        },
    ];
    for manner in manners {
        let data = data(3 << 20);
        let fetched = arrives(&that(&data, manner).await, &data).await;
        assert!(matches!(fetched.proof, Proof::Length | Proof::None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_midway_is_an_error_and_leaves_nothing() {
    // From the first byte on, too: the server said before that it has the other version.
    for kept in [0, 2] {
        let (data, place) = (data(16 << 20), Place::new());
        let server = that(&data, move |request, data| {
            (request.number > kept).then(|| whole(data, "\"two\""))
        })
        .await;
        let error = fetch(&server, &place).await.unwrap_err();
        assert!(matches!(error, WebError::Changed { .. }), "{error}");
        assert_eq!(place.names(), [""; 0]);
        let server = that(&data, move |request, data| {
            let (first, end) = request.range?;
            (request.number > kept).then(|| part(data, "\"two\"", first, end))
        })
        .await;
        let error = fetch(&server, &place).await.unwrap_err();
        assert!(
            error.to_string().contains("changed during the copy"),
            "{error}"
        );
        assert_eq!(place.names(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_break_the_rules_are_named_and_nothing_wrong_gets_the_name() {
    type Manner = fn(&Request, &[u8]) -> Option<Reply>;
    let manners: [(&str, Manner); 7] = [
        ("answer has bytes 0-", |_, data| Some(whole(data, TAG))),
        ("were asked for", |request, data| {
            let (first, end) = request.range?;
            Some(part(data, TAG, first + 1, end + 1))
        }),
        ("senseless Content-Range", |request, data| {
            Some(honest(data, TAG, request).with("bytes ", "bites "))
        }),
        ("is encoded", |request, data| {
            Some(honest(data, TAG, request).with("etag", "content-encoding: gzip\r\netag"))
        }),
        ("403 Forbidden", |_, _| Some(status("403 Forbidden", ""))),
        ("404 Not Found", |_, _| Some(status("404 Not Found", ""))),
        ("a shorter file", |_, _| {
            Some(status("416 Range Not Satisfiable", ""))
        }),
    ];
    for (said, manner) in manners {
        let (data, place) = (data(4 << 20), Place::new());
        let server = that(&data, move |request, data| {
            (request.number > 0)
                .then(|| manner(request, data))
                .flatten()
        })
        .await;
        let error = fetch(&server, &place).await.unwrap_err().to_string();
        assert!(
            error.contains(said) && (error.contains("lo: ") || error.contains(" over lo,")),
            "{said}: {error}"
        );
        assert!(!place.file().exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_end_early_or_hang_are_asked_for_again() {
    let data = data(8 << 20);
    let server = that(&data, |request, data| {
        let (first, end) = request.range.filter(|_| request.number % 2 == 1)?;
        let mut reply = part(data, TAG, first, end).with("etag", "connection: close\r\netag");
        reply.body.truncate(reply.body.len() / 3);
        Some(reply)
    })
    .await;
    arrives(&server, &data).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_waits_for_no_request_that_the_server_put_off() {
    let data = data(6 << 20);
    let server = that(&data, |request, _| {
        let is_put_off = request.number == 1;
        is_put_off.then(|| status("503 Service Unavailable", "retry-after: 100\r\n"))
    })
    .await;
    let fetching = arrives(&server, &data);
    tokio::time::timeout(Duration::from_secs(60), fetching)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_may_leave_out_what_the_request_named() {
    let (data, place) = (data(6 << 20), Place::new());
    let old = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\netag";
    let server = that(&data, move |request, data| {
        let reply = honest(data, TAG, request);
        Some(match request.number {
            0 => reply.with("etag", old),
            _ => reply,
        })
    })
    .await;
    fetch(&server, &place).await.unwrap();
    assert_eq!(fs::read(place.file()).unwrap(), **data);
    let found = fs::metadata(place.file()).unwrap().modified().unwrap();
    assert_eq!(
        found,
        std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_is_no_minute_old_tells_no_versions_apart() {
    let data = data(3 << 20);
    let times =
        "date: Sun, 06 Nov 1994 08:49:40 GMT\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nx";
    let server = that(&data, move |request, data| {
        Some(honest(data, TAG, request).with("etag", times))
    })
    .await;
    let fetched = arrives(&server, &data).await;
    assert_eq!(fetched.proof, Proof::Length);
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_patience_gets_it() {
    type IsBusy = fn(usize) -> bool;
    let busy: [(usize, &str, IsBusy); 2] = [
        (2, "503 Service Unavailable", |number| {
            (1..4).contains(&number)
        }),
        // It dislikes many connections.
        (24, "429 Too Many Requests", |number| {
            number > 0 && number % 3 == 0
        }),
    ];
    for (mib, code, is_busy) in busy {
        let data = data(mib << 20);
        let server = that(&data, move |request, _| {
            is_busy(request.number).then(|| status(code, "retry-after: 0\r\n"))
        })
        .await;
        arrives(&server, &data).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrived_before_a_stop_is_not_fetched_again() {
    let (data, place) = (data(24 << 20), Place::new());
    let is_open = Arc::new(AtomicBool::new(false));
    let open = is_open.clone();
    let server = that(&data, move |request, data| {
        let (first, end) = request.range.filter(|range| range.0 > 12 << 20)?;
        let mut reply = part(data, TAG, first, end);
        if !open.load(Ordering::Relaxed) {
            reply.body.truncate(1000);
            reply.hangs = true;
        }
        Some(reply)
    })
    .await;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let url = server.url("/file?signed=1").parse().unwrap();
    let first = Fetch::new(url, patient());
    let tell = move |event| match event {
        Event::Progress(progress) if progress.bytes >= 8 << 20 => stopping.cancel(),
        _ => {}
    };
    let error = first
        .into_file(&place.file(), stop, tell)
        .await
        .unwrap_err();
    assert!(
        matches!(error, WebError::Cancelled { resumable: true }),
        "{error:?}"
    );
    assert!(!place.file().exists());
    is_open.store(true, Ordering::Relaxed);
    let fetched = fetch_to(&server.url("/file?signed=2"), &place.file(), options())
        .await
        .unwrap();
    assert_eq!(fs::read(place.file()).unwrap(), **data);
    let report = fetched.report;
    assert!(report.resumed_bytes >= 8 << 20, "{report:?}");
    let asked = server.seen().into_iter();
    let asked = asked.filter(|request| request.path.ends_with("signed=2"));
    let asked: u64 = asked
        .filter_map(|request| request.range)
        .map(|(first, end)| end - first)
        .sum();
    assert!(asked <= (16 << 20) + 1, "{asked}");
    assert!(report.wire_bytes <= 16 << 20, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expected_digest_decides() {
    let (data, place) = (data(3 << 20), Place::new());
    let server = that(&data, |_, _| None).await;
    let right = format!("blake3:{}", blake3::hash(&data));
    let mut options = options();
    options.expected = Some(format!("sha256:{}", "0".repeat(64)).parse().unwrap());
    let error = fetch_with(&server, &place, options.clone())
        .await
        .unwrap_err();
    assert!(matches!(error, WebError::Digest { .. }), "{error}");
    assert_eq!(place.names(), [""; 0]);
    options.expected = Some(right.parse().unwrap());
    let fetched = fetch_with(&server, &place, options).await.unwrap();
    assert_eq!(fetched.proof, Proof::Expected(Algorithm::Blake3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_that_the_server_promises_is_checked() {
    let (data, place) = (data(2 << 20), Place::new());
    let wrong = "repr-digest: sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:\r\netag";
    let server = that(&data, move |request, data| {
        Some(honest(data, TAG, request).with("etag", wrong))
    })
    .await;
    let error = fetch(&server, &place).await.unwrap_err();
    assert!(error.to_string().contains("has sha256"), "{error}");
    assert_eq!(place.names(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirections_are_followed_and_secrets_stay_with_their_server() {
    let (data, place) = (data(2 << 20), Place::new());
    let other = that(&data, |_, _| None).await;
    let to = other.url("/other?signature=1");
    let server = that(&data, move |_, _| {
        Some(status("302 Found", &format!("location: {to}\r\n")))
    })
    .await;
    let mut options = options();
    options.headers.push("x-token: secret".parse().unwrap());
    let url = server.url("/file").replace("http://", "http://me:word@");
    fetch_to(&url, &place.file(), options).await.unwrap();
    assert_eq!(fs::read(place.file()).unwrap(), **data);
    assert_eq!(server.seen().len(), 1, "asked once, then the other server");
    let sent = &server.seen()[0].head;
    assert!(sent.contains("x-token: secret"), "{sent}");
    assert!(sent.contains("authorization: Basic bWU6d29yZA=="), "{sent}");
    for request in other.seen() {
        assert_eq!(request.path, "/other?signature=1");
        assert!(!request.head.contains("secret"), "{request:?}");
        assert!(!request.head.contains("authorization"), "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirections_without_end_or_to_elsewhere_are_refused() {
    for (to, said) in [
        ("/again", "more than 10 places"),
        ("ftp://host/x", "redirects to ftp://host/x"),
        ("file:///etc/passwd", "redirects to file://"),
    ] {
        let place = Place::new();
        let server = that(&data(1), move |_, _| {
            Some(status("302 Found", &format!("location: {to}\r\n")))
        })
        .await;
        let error = fetch(&server, &place).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_redirection_is_asked_for_again() {
    let data = data(12 << 20);
    let server = that(&data, |request, data| {
        if request.path == "/file" {
            let location = format!("location: /signed/{}\r\n", request.number);
            return Some(status("302 Found", &location));
        }
        let signed: usize = request.path.rsplit('/').next()?.parse().ok()?;
        let is_expired = request.number > signed + 3;
        Some(match is_expired {
            true => status("403 Forbidden", ""),
            false => honest(data, TAG, request),
        })
    })
    .await;
    arrives(&server, &data).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_file_is_kept_unless_it_may_be_replaced() {
    let (data, place) = (data(1000), Place::new());
    let server = that(&data, |_, _| None).await;
    fs::write(place.file(), "old").unwrap();
    let error = fetch(&server, &place).await.unwrap_err();
    let said = nicstripe::chain(&error);
    assert!(said.contains("a file of that name exists"), "{said}");
    assert_eq!(fs::read(place.file()).unwrap(), b"old");
    let mut options = options();
    options.copy.replace = true;
    fetch_with(&server, &place, options).await.unwrap();
    assert_eq!(fs::read(place.file()).unwrap(), **data);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_told_with_the_link_and_without_secrets() {
    let place = Place::new();
    let url = "http://me:word@127.0.0.1:1/file?token=secret";
    let mut options = options();
    options.patience = Duration::from_millis(300);
    let error = fetch_to(url, &place.file(), options)
        .await
        .unwrap_err()
        .to_string();
    for said in ["http://127.0.0.1:1/file?…", "lo: ", "refused"] {
        assert!(error.contains(said), "{error}");
    }
    for secret in ["secret", "word"] {
        assert!(!error.contains(secret), "{error}");
    }
}
