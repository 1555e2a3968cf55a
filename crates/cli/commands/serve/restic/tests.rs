//! Tests of requests over HTTP/1.1 and HTTP/2, against a storage in memory.

mod memory;

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use aws_lc_rs::digest::{SHA256, digest};
use http_body_util::BodyExt as _;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Frame, Incoming},
    client::conn::{http1, http2},
    header::{ACCEPT, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, HeaderName, ORIGIN, RANGE},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    net::{TcpListener, TcpStream},
};

use self::memory::Memory;
use super::{
    body::next_bytes,
    guard::{Guard, Guarded},
    password::Password,
    repository::Repository,
};
use crate::commands::serve::{
    connection_places::{Limits, Places},
    http::Server,
    own_names::OwnNames,
};

const V2: (HeaderName, &str) = (ACCEPT, "application/vnd.x.restic.rest.v2");
const MIB: usize = 1 << 20;

struct Rig {
    memory: Memory,
    server: Arc<Server<Guarded<Memory>>>,
}

impl Rig {
    fn new() -> Self {
        Self::with(None, Limits::default())
    }

    /// Returns a server with a password, and with a configuration that holds an `x`.
    fn guarded(limits: Limits) -> Self {
        let guard = Guard {
            password: Some(Password::of("user", "pass")),
            names: None,
        };
        let rig = Self::with(Some(guard), limits);
        rig.memory.plant("repo/config", b"x");
        rig
    }

    fn with(guard: Option<Guard>, limits: Limits) -> Self {
        let memory = Memory::default();
        let repository = Repository::new(
            Arc::new(memory.clone()),
            Some(nicstripe::Name::parse(b"repo").unwrap()),
        );
        Self {
            memory,
            server: Arc::new(Server {
                service: Guarded { repository, guard },
                places: Arc::new(Places::new(limits)),
                what: "restic",
            }),
        }
    }

    fn connect(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(64 << 10);
        tokio::spawn(self.server.clone().serve(far, None));
        near
    }

    /// Sends the same request over HTTP/1.1 and HTTP/2, and returns the response. Panics if they
    /// differ.
    ///
    /// Only for requests that change nothing.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
    ) -> HttpResponse {
        let one = self
            .http1(method.clone(), path, headers, Feed::default())
            .await;
        let two = self.http2(method, path, headers, Feed::default()).await;
        assert_eq!(one, two);
        two
    }

    async fn http1(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: Feed,
    ) -> HttpResponse {
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.connect()))
            .await
            .unwrap();
        tokio::spawn(connection);
        let asked = request(method, path, headers, body);
        HttpResponse::of(sender.send_request(asked).await.unwrap()).await
    }

    async fn http2(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: Feed,
    ) -> HttpResponse {
        let mut sender = http2_over(self.connect()).await;
        let asked = request(method, path, headers, body);
        HttpResponse::of(sender.send_request(asked).await.unwrap()).await
    }

    /// Like [`ask`](Self::ask), for a request without headers, whose status alone counts.
    async fn status(&self, method: Method, path: &str) -> u16 {
        self.ask(method, path, &[]).await.status.as_u16()
    }

    async fn delete(&self, path: &str) -> u16 {
        let answer = self.http2(Method::DELETE, path, &[], Feed::default());
        answer.await.status.as_u16()
    }

    async fn post(&self, path: &str, bytes: &[u8]) -> u16 {
        let answer = self.http2(Method::POST, path, &[], Feed::of(bytes));
        answer.await.status.as_u16()
    }
}

/// Begins to speak HTTP/2 over a stream.
async fn http2_over(stream: DuplexStream) -> http2::SendRequest<Feed> {
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(
    method: Method,
    path: &str,
    headers: &[(HeaderName, &str)],
    body: Feed,
) -> Request<Feed> {
    let request = Request::builder()
        .method(method)
        .uri(format!("http://localhost{path}"));
    headers
        .iter()
        .fold(request, |request, (name, value)| {
            request.header(name, *value)
        })
        .body(body)
        .unwrap()
}

/// Response fields that the tests compare.
#[derive(Debug, PartialEq)]
struct HttpResponse {
    status: StatusCode,
    length: Option<String>,
    range: Option<String>,
    kind: Option<String>,
    body: Vec<u8>,
}

impl HttpResponse {
    async fn of(response: Response<Incoming>) -> Self {
        let header = |name: HeaderName| {
            let value = response.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let (length, range, kind) = (
            header(hyper::header::CONTENT_LENGTH),
            header(CONTENT_RANGE),
            header(CONTENT_TYPE),
        );
        let status = response.status();
        let body = response.into_body().collect().await.unwrap();
        Self {
            status,
            length,
            range,
            kind,
            body: body.to_bytes().to_vec(),
        }
    }

    fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }
}

/// Request body that is sent in pieces. Ends with an error if `breaks` is set.
#[derive(Debug, Default)]
struct Feed {
    pieces: Vec<Bytes>,
    breaks: bool,
}

impl Feed {
    fn of(bytes: &[u8]) -> Self {
        let pieces = bytes
            .chunks(10_000)
            .rev()
            .map(Bytes::copy_from_slice)
            .collect();
        Self {
            pieces,
            breaks: false,
        }
    }
}

impl Body for Feed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let feed = self.get_mut();
        match feed.pieces.pop() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if feed.breaks => Poll::Ready(Some(Err(std::io::ErrorKind::Other.into()))),
            None => Poll::Ready(None),
        }
    }
}

fn id_of(bytes: &[u8]) -> String {
    digest(&SHA256, bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn content(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

#[tokio::test]
async fn a_repository_is_made_with_all_its_directories() {
    let rig = Rig::new();
    assert_eq!(rig.post("/", b"").await, 400);
    assert_eq!(rig.memory.directories(), 0);
    assert_eq!(rig.post("/?create=true", b"").await, 200);
    assert_eq!(rig.memory.directories(), 5 + 256);
    assert_eq!(rig.delete("/").await, 501);
}

#[tokio::test]
async fn the_configuration_is_written_once_whatever_is_in_it() {
    let rig = Rig::new();
    assert_eq!(rig.status(Method::HEAD, "/config").await, 404);
    assert_eq!(rig.status(Method::GET, "/config").await, 404);
    assert_eq!(rig.post("/config", b"first").await, 200);
    assert_eq!(rig.post("/config", b"other").await, 403);
    let head = rig.ask(Method::HEAD, "/config", &[]).await;
    assert_eq!(
        (head.status, head.length.as_deref(), head.text()),
        (StatusCode::OK, Some("5"), "")
    );
    assert_eq!(rig.ask(Method::GET, "/config", &[]).await.text(), "first");
    assert_eq!(rig.memory.files(), ["repo/config"]);
}

#[tokio::test]
async fn a_file_is_saved_under_the_name_of_its_content_alone() {
    let rig = Rig::new();
    for (kind, len) in [
        ("data", 3 * MIB + 7),
        ("keys", 200),
        ("locks", 1),
        ("snapshots", 0),
        ("index", 64 << 10),
    ] {
        let bytes = content(len);
        let id = id_of(&bytes);
        let path = format!("/{kind}/{id}");
        let other = format!("/{kind}/{}", id_of(b"other"));
        assert_eq!(rig.post(&other, &bytes).await, 400);
        let refused = rig.http1(Method::POST, &other, &[], Feed::of(&bytes)).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert_eq!(rig.memory.files(), [""; 0]);
        let saved = rig.http1(Method::POST, &path, &[], Feed::of(&bytes)).await;
        assert_eq!(saved.status, StatusCode::OK);
        let expected = if kind == "data" {
            format!("repo/data/{}/{id}", &id[..2])
        } else {
            format!("repo/{kind}/{id}")
        };
        assert_eq!(rig.memory.files(), [expected]);
        assert_eq!(rig.post(&path, &bytes).await, 403);
        let got = rig.ask(Method::GET, &path, &[]).await;
        assert_eq!(
            (got.status, got.length, got.body == bytes),
            (StatusCode::OK, Some(len.to_string()), true),
            "{kind}"
        );
        let removed = rig.http1(Method::DELETE, &path, &[], Feed::default());
        assert_eq!(removed.await.status, StatusCode::OK);
        assert_eq!(rig.delete(&path).await, 404);
        assert_eq!(rig.status(Method::HEAD, &path).await, 404);
    }
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let rig = Rig::new();
    let bytes = content(100_000);
    let path = format!("/data/{}", id_of(&bytes));
    let mut sender = http2_over(rig.connect()).await;
    let broken = Feed {
        breaks: true,
        ..Feed::of(&bytes)
    };
    let ended = request(Method::POST, &path, &[], broken);
    let ended = sender.send_request(ended).await;
    assert!(ended.is_err() || ended.unwrap().status() == StatusCode::BAD_REQUEST);
    // The connection survives.
    let missing = request(Method::HEAD, &path, &[], Feed::default());
    let missing = sender.send_request(missing).await.unwrap();
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert_eq!(rig.memory.files(), [""; 0]);
}

#[tokio::test]
async fn lists_have_two_versions_and_no_strangers() {
    let rig = Rig::new();
    let (one, two) = (id_of(b"one"), id_of(b"two"));
    for kind in ["keys", "data"] {
        let none = rig.ask(Method::GET, &format!("/{kind}/"), &[V2]).await;
        assert_eq!((none.status, none.text()), (StatusCode::OK, "[]"));
    }
    assert_eq!(rig.post(&format!("/data/{one}"), b"one").await, 200);
    assert_eq!(rig.post(&format!("/keys/{two}"), b"two").await, 200);
    rig.memory.plant("repo/keys/README", b"a stranger");
    rig.memory.plant(&format!("repo/data/{two}"), b"a stranger");
    rig.memory
        .plant(&format!("repo/data/zz/{two}"), b"a stranger");
    let data = rig.ask(Method::GET, "/data/", &[V2]).await;
    assert_eq!(
        (data.text(), data.kind.as_deref()),
        (&*format!("[{{\"name\":\"{one}\",\"size\":3}}]"), Some(V2.1))
    );
    let keys = rig.ask(Method::GET, "/keys", &[]).await;
    assert_eq!(
        (keys.text(), keys.kind.as_deref()),
        (
            &*format!("[\"{two}\"]"),
            Some("application/vnd.x.restic.rest.v1")
        )
    );
}

/// Asks for a list, and returns the response and the connection that must outlive it.
async fn list_of(rig: &Rig, path: &str) -> (Response<Incoming>, http1::SendRequest<Feed>) {
    let (mut sender, connection) = http1::handshake(TokioIo::new(rig.connect())).await.unwrap();
    tokio::spawn(connection);
    let asked = request(Method::GET, path, &[V2], Feed::default());
    let response = in_time(sender.send_request(asked)).await.unwrap();
    (response, sender)
}

#[tokio::test]
async fn a_list_without_end_is_passed_on_and_not_kept() {
    let rig = Rig::new();
    for kind in ["keys", "data"] {
        rig.memory.plant(&format!("repo/{kind}/README"), b"x");
    }
    rig.memory.make_endless("repo/keys");
    let (response, _sender) = list_of(&rig, "/keys/").await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let mut received = 0;
    while received < 8 * MIB {
        received += in_time(next_bytes(&mut body)).await.unwrap().unwrap().len();
    }
    drop(body);
    // Nothing of a repository is in it, so that nothing can be passed on.
    rig.memory.make_endless("repo/data");
    let (response, _sender) = list_of(&rig, "/data/").await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn a_long_list_is_whole_and_fails_as_a_whole() {
    let rig = Rig::new();
    for number in 0..3000 {
        rig.memory.plant(
            &format!("repo/data/{:02x}/{number:064x}", number % 256),
            b"x",
        );
    }
    let list = rig.ask(Method::GET, "/data/", &[V2]).await;
    let files: Vec<serde_json::Value> = serde_json::from_str(list.text()).unwrap();
    assert_eq!(files.len(), 3000);
    rig.memory.fail(Some(StatusCode::SERVICE_UNAVAILABLE));
    for path in ["/data/", "/keys/"] {
        assert_eq!(rig.status(Method::GET, path).await, 503);
    }
}

#[tokio::test]
async fn parts_of_a_file_are_to_be_had() {
    let rig = Rig::new();
    let bytes = content(MIB);
    let path = format!("/data/{}", id_of(&bytes));
    rig.post(&path, &bytes).await;
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=1000-300999", 1000, 301_000),
        ("bytes=-7", MIB - 7, MIB),
        ("bytes=9-", 9, MIB),
    ] {
        let part = rig.ask(Method::GET, &path, &[(RANGE, range)]).await;
        assert_eq!(part.status, StatusCode::PARTIAL_CONTENT, "{range}");
        assert_eq!(part.range, Some(format!("bytes {from}-{}/{MIB}", to - 1)));
        assert_eq!(part.length, Some((to - from).to_string()));
        assert!(part.body == bytes[from..to], "{range}");
    }
    let beyond = rig
        .ask(Method::GET, &path, &[(RANGE, "bytes=1048576-")])
        .await;
    assert_eq!(
        (beyond.status, beyond.range.as_deref()),
        (StatusCode::RANGE_NOT_SATISFIABLE, Some("bytes */1048576"))
    );
}

#[tokio::test]
async fn what_is_no_request_of_a_repository_is_refused() {
    let rig = Rig::new();
    let id = id_of(b"x");
    for (method, path, status) in [
        (Method::GET, "/file-123", 404),
        (Method::GET, "/../config", 404),
        (Method::GET, "/data/x", 400),
        (Method::DELETE, "/keys/..", 400),
        (Method::GET, "/", 405),
        (Method::PUT, "/config", 405),
        (Method::DELETE, "/locks/", 405),
        (Method::PATCH, &*format!("/data/{id}"), 405),
        (Method::OPTIONS, "/config", 405),
    ] {
        let found = rig.status(method.clone(), path).await;
        assert_eq!(found, status, "{method} {path}");
    }
}

#[tokio::test]
async fn what_stands_against_a_request_is_told_by_its_status() {
    let rig = Rig::new();
    let bytes = b"bytes";
    let path = format!("/snapshots/{}", id_of(bytes));
    rig.post(&path, bytes).await;
    for status in [
        StatusCode::NOT_FOUND,
        StatusCode::FORBIDDEN,
        StatusCode::INSUFFICIENT_STORAGE,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::INTERNAL_SERVER_ERROR,
    ] {
        rig.memory.fail(Some(status));
        let status = status.as_u16();
        assert_eq!(rig.status(Method::GET, &path).await, status);
        assert_eq!(rig.post(&path, bytes).await, status);
        assert_eq!(rig.delete(&path).await, status);
    }
    rig.memory.fail(None);
    assert_eq!(rig.ask(Method::GET, &path, &[]).await.body, bytes);
}

#[tokio::test]
async fn with_a_password_only_who_knows_it_is_answered() {
    let rig = Rig::guarded(Limits::default());
    assert_eq!(rig.status(Method::GET, "/config").await, 401);
    assert_eq!(rig.post("/config", b"y").await, 401);
    let known = (AUTHORIZATION, "Basic dXNlcjpwYXNz");
    assert_eq!(rig.ask(Method::GET, "/config", &[known]).await.body, b"x");
}

/// Starts a server with a password on a TCP port of the loopback interface.
async fn listening(limits: Limits) -> SocketAddr {
    let rig = Rig::guarded(limits);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(rig.server.accept(listener));
    address
}

/// Sends a request with the right password, and returns the start of the response.
async fn ask_with_the_password(stream: &mut TcpStream) -> String {
    let request = "GET /config HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dXNlcjpwYXNz\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    in_time(stream.read_exact(&mut start)).await.unwrap();
    String::from_utf8(start.to_vec()).unwrap()
}

/// Waits until the server closes a connection.
async fn closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end as well.
    let _ = in_time(stream.read_to_end(&mut rest)).await;
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work)
        .await
        .expect("not within 60 s")
}

/// Beginnings of connections that never carry the password: nothing, a cut HTTP/1.1 header, the
/// HTTP/2 preface and its settings.
const STRANGERS: [&[u8]; 3] = [
    b"",
    b"GET /config HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
];

#[tokio::test]
async fn connections_without_the_password_do_not_keep_its_holder_out() {
    let never = Duration::from_secs(3600);
    let address = listening(Limits {
        proof_time: never,
        idle_time: never,
        ..Limits::default()
    })
    .await;
    let mut early = TcpStream::connect(address).await.unwrap();
    assert_eq!(ask_with_the_password(&mut early).await, "HTTP/1.1 200");
    let mut strangers = Vec::new();
    for index in 0..200 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(STRANGERS[index % STRANGERS.len()])
            .await
            .unwrap();
        strangers.push(stream);
    }
    let mut late = TcpStream::connect(address).await.unwrap();
    assert_eq!(ask_with_the_password(&mut late).await, "HTTP/1.1 200");
    // 200 of 64 places: the oldest ones are closed.
    for stream in strangers.drain(..100) {
        closed(stream).await;
    }
}

#[tokio::test]
async fn a_connection_without_the_password_is_closed_in_time() {
    let address = listening(Limits {
        proof_time: Duration::from_millis(50),
        ..Limits::default()
    })
    .await;
    for start in STRANGERS {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(start).await.unwrap();
        closed(stream).await;
    }
    // A wrong password proves nothing.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /config HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    closed(stream).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_also_with_the_password() {
    let address = listening(Limits {
        idle_time: Duration::from_millis(50),
        ..Limits::default()
    })
    .await;
    let mut one = TcpStream::connect(address).await.unwrap();
    assert_eq!(ask_with_the_password(&mut one).await, "HTTP/1.1 200");
    closed(one).await;
    let two = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(two))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let known = (AUTHORIZATION, "Basic dXNlcjpwYXNz");
    let asked = request(Method::GET, "/config", &[known], Feed::default());
    let answer = HttpResponse::of(sender.send_request(asked).await.unwrap()).await;
    assert_eq!(answer.body, b"x");
    // The client keeps the connection open, and answers pings.
    in_time(connection).await.unwrap().unwrap();
    drop(sender);
}

#[tokio::test]
async fn a_web_page_is_not_answered_at_an_address_whatever_it_calls_it() {
    let names = OwnNames::of("localhost:0", ([127, 0, 0, 1], 1).into());
    let guard = Guard {
        password: None,
        names,
    };
    let rig = Rig::with(Some(guard), Limits::default());
    rig.memory.plant("repo/config", b"x");
    let site = |value| (HeaderName::from_static("sec-fetch-site"), value);
    let cases = [
        (None, 200),
        (Some(site("none")), 200),
        (Some(site("cross-site")), 403),
        (Some(site("same-origin")), 403),
        (Some((ORIGIN, "http://evil.example")), 403),
        (Some((ORIGIN, "null")), 403),
    ];
    for (header, status) in cases {
        let headers: Vec<_> = header.clone().into_iter().collect();
        let answer = rig.ask(Method::GET, "/config", &headers).await;
        assert_eq!(answer.status.as_u16(), status, "{header:?}");
    }
    // A page whose name resolves to this machine (DNS rebinding).
    for (host, status) in [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("evil.com", 421),
        ("evil.com:8000", 421),
        ("", 421),
    ] {
        let raw = format!("GET /config HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut stream = rig.connect();
        stream.write_all(raw.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{host:?}: {answer}"
        );
    }
}

#[tokio::test]
async fn many_uploads_and_downloads_share_a_connection() {
    let rig = Rig::new();
    let sender = http2_over(rig.connect()).await;
    let tasks: Vec<_> = (0..100_usize)
        .map(|index| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let bytes = content(index * 5_000);
                let path = format!("/data/{}", id_of(&bytes));
                let save = request(Method::POST, &path, &[], Feed::of(&bytes));
                let saved = sender.send_request(save).await.unwrap();
                assert_eq!(saved.status(), StatusCode::OK);
                let get = request(Method::GET, &path, &[], Feed::default());
                let got = sender.send_request(get).await.unwrap();
                assert!(HttpResponse::of(got).await.body == bytes);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(rig.memory.files().len(), 100);
}

#[tokio::test]
async fn nonsense_ends_its_connection_and_no_other() {
    let rig = Rig::new();
    for nonsense in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET / SMTP/9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxxx",
    ] {
        let mut stream = rig.connect();
        stream.write_all(nonsense).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
    }
    assert_eq!(rig.status(Method::GET, "/config").await, 404);
}
