//! Daemon in the test process, a gateway to it, and a client that signs.

use std::{
    convert::Infallible,
    net::TcpListener,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll, ready},
};

use aws_lc_rs::digest::{SHA256, digest};
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::{Body, Bytes, Frame},
};
use nicstripe::{
    CancellationToken, Client, Daemon, DaemonBuilder, Name,
    storage::MemoryStorage,
    trust::{Access, Identity, PeerOptions, Peers, PublicLine},
};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::{
    Gateway, Keys,
    protocol::{
        signature::tests::sign,
        xml::{self, Element},
    },
};

pub(super) struct Rig {
    pub(super) gateway: Gateway,
    pub(super) keys: Keys,
    root: TempDir,
    shutdown: CancellationToken,
}

/// Response whose body was read.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn xml(&self, root: &str) -> Element {
        xml::read(&self.body, root).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the code of an error.
    pub(super) fn code(&self) -> String {
        self.xml("Error").get("Code").unwrap().to_owned()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// Body of a request in pieces, which may break off.
pub(super) struct Pieces {
    pieces: Vec<Bytes>,
    /// Sign to send the last piece.
    go_on: Option<oneshot::Receiver<()>>,
    breaks_off: bool,
}

impl Pieces {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut pieces: Vec<_> = bytes.chunks(100_000).map(Bytes::copy_from_slice).collect();
        pieces.reverse();
        Self {
            pieces,
            go_on: None,
            breaks_off: false,
        }
    }

    /// Returns a body whose last piece is sent behind a sign, which never comes from a sender that is gone.
    pub(super) fn held(bytes: &[u8]) -> (Self, oneshot::Sender<()>) {
        let (sign, go_on) = oneshot::channel();
        let go_on = Some(go_on);
        (
            Self {
                go_on,
                ..Self::of(bytes)
            },
            sign,
        )
    }

    /// Returns a body that does not continue behind these bytes.
    pub(super) fn broken(bytes: &[u8]) -> Self {
        Self {
            breaks_off: true,
            ..Self::of(bytes)
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.pieces.len() == 1
            && let Some(go_on) = &mut self.go_on
        {
            let sign = ready!(Pin::new(go_on).poll(context));
            self.go_on = None;
            self.breaks_off = sign.is_err();
        }
        match self.pieces.pop() {
            None if self.breaks_off => Poll::Pending,
            piece => Poll::Ready(piece.map(|piece| Ok(Frame::data(piece)))),
        }
    }
}

impl Rig {
    /// Serves a directory of the file system, to a client that may do everything.
    pub(super) async fn new() -> Self {
        Self::with_access(Access::Full).await
    }

    pub(super) async fn with_access(access: Access) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        Self::start(root, access, |builder| builder.root(path)).await
    }

    pub(super) async fn memory() -> Self {
        let root = tempfile::tempdir().unwrap();
        let storage = MemoryStorage::new();
        Self::start(root, Access::Full, |builder| builder.storage(storage)).await
    }

    async fn start(
        root: TempDir,
        access: Access,
        built: impl FnOnce(DaemonBuilder) -> DaemonBuilder,
    ) -> Self {
        let (client, daemon) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut peers = trusting(&client);
        let options = PeerOptions {
            access,
            ..PeerOptions::unrestricted()
        };
        peers.set_options(&client.public_key(), options).unwrap();
        let builder = Daemon::builder()
            .identity(daemon.clone())
            .peers(peers)
            .listeners(vec![listener]);
        let shutdown = CancellationToken::new();
        let running = built(builder).bind().await.unwrap().run(shutdown.clone());
        tokio::spawn(async move { running.await.unwrap() });
        let client = Client::builder()
            .identity(client)
            .peers(trusting(&daemon))
            .port(port)
            .links(vec!["127.0.0.2=127.0.0.1".parse().unwrap()])
            .connect("127.0.0.1")
            .await
            .unwrap();
        let keys = Keys::random().unwrap();
        let base = Some(Name::parse(b"lake").unwrap());
        Self {
            gateway: Gateway::new(client, base, keys.clone()),
            keys,
            root,
            shutdown,
        }
    }

    /// Returns the path of what is in the base.
    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.root.path().join("lake").join(below)
    }

    /// Returns the names of all files and empty directories of the bucket `b`, in their order.
    pub(super) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![String::new()];
        while let Some(dir) = open.pop() {
            let entries: Vec<_> = std::fs::read_dir(self.path("b").join(&dir))
                .unwrap()
                .collect();
            if entries.is_empty() && !dir.is_empty() {
                found.push(dir.clone());
            }
            for entry in entries {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                match entry.path().is_dir() {
                    true => open.push(format!("{dir}{name}/")),
                    false => found.push(format!("{dir}{name}")),
                }
            }
        }
        found.sort();
        found
    }

    /// Sends a request that is signed with the hash of its body.
    pub(super) async fn ask(
        &self,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let hash = hex::encode(digest(&SHA256, body));
        self.ask_as(method, uri, headers, &hash, Pieces::of(body), body.len())
            .await
    }

    /// Returns the code of the error with which a request is refused.
    pub(super) async fn refusal(
        &self,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> String {
        self.ask(method, uri, headers, body).await.code()
    }

    /// Asks with a body whose hash is not signed, of this length.
    pub(super) async fn put_unsigned(&self, uri: &str, body: Pieces, len: usize) -> Answer {
        let unsigned = "UNSIGNED-PAYLOAD";
        self.ask_as(Method::PUT, uri, &[], unsigned, body, len)
            .await
    }

    pub(super) async fn delete(&self, uri: &str) -> u16 {
        let answer = self.ask(Method::DELETE, uri, &[], b"").await;
        answer.status.as_u16()
    }

    pub(super) async fn get(&self, uri: &str) -> Answer {
        self.ask(Method::GET, uri, &[], b"").await
    }

    pub(super) async fn put(&self, uri: &str, body: &[u8]) -> Answer {
        self.ask(Method::PUT, uri, &[], body).await
    }

    /// Sends a request with this value of `x-amz-content-sha256`, and a body of this length.
    pub(super) async fn ask_as(
        &self,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
        payload: &str,
        body: Pieces,
        len: usize,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("content-length", len.to_string());
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        sign(&self.keys, &mut head, payload);
        let reply = match self.gateway.check(&head) {
            Ok(allowed) => self.gateway.answer(allowed, &head, body).await,
            Err(reply) => *reply,
        };
        let (head, content) = reply.into_parts();
        let body = content.collect().await.unwrap().to_bytes().to_vec();
        Answer {
            status: head.status,
            headers: head.headers,
            body,
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn trusting(identity: &Identity) -> Peers {
    let mut peers = Peers::default();
    let line = PublicLine::new(identity.public_key(), "peer");
    peers.add(&line, Some("peer")).unwrap();
    peers
}

/// Returns bytes that differ from each other.
pub(super) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Waits for a condition, up to a minute.
pub(super) async fn until(mut is_true: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_true() {
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(60),
            "it did not come true"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
