//! Tests with peers that violate the protocol deliberately, and attackers between two honest peers.
//!
//! Built from the library's own parts: [`peer`] speaks TLS and sends arbitrary frames, [`proxy`] is
//! an attacker on the path that knows record boundaries. The crate nicstripe-proto tests how
//! sessions handle single frames, [`crate::tree`] how trees handle names and batches.
#![allow(clippy::unwrap_used)]

mod benches;
mod clients;
mod commands;
mod crowds;
mod middle;
mod objects;
mod peer;
mod proxy;
mod reach;
mod rights;
mod servers;
mod shares;
mod strangers;
mod tunnels;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use nicstripe_proto::{Digest, Name};
use nicstripe_testkit::{content, names};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use self::peer::Peer;
use crate::{
    client::{Client, ClientBuilder},
    daemon::{Daemon, DaemonBuilder, DaemonHandle, Limits},
    file::options::CopyOptions,
    report::{Report, error::Error},
    trust::{Identity, Peers, PublicLine},
};

/// Test setup: a running daemon at 127.0.1.1, a client that it trusts, and the client's files.
pub(crate) struct Stage {
    root: TempDir,
    files: TempDir,
    pub(crate) port: u16,
    daemon: Identity,
    client: Identity,
    /// Second identity that the daemon trusts, for peers that misbehave.
    other: Identity,
    handle: DaemonHandle,
    shutdown: CancellationToken,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    async fn with(limits: Limits) -> Self {
        Self::built(|builder| builder.limits(limits)).await
    }

    /// Starts the daemon with additional settings from `built`.
    async fn built(built: impl FnOnce(DaemonBuilder) -> DaemonBuilder) -> Self {
        Self::granting("", built).await
    }

    /// Like `built`, and `client` has the rights in `options`, unless they are empty.
    async fn granting(options: &str, built: impl FnOnce(DaemonBuilder) -> DaemonBuilder) -> Self {
        let [daemon, client, other] = std::array::from_fn(|_| Identity::generate().unwrap());
        let (root, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(root.path().join("served")).unwrap();
        let mut peers = trusting(&[&client, &other]);
        if !options.is_empty() {
            let options = options.parse().unwrap();
            peers.set_options(&client.public_key(), options).unwrap();
        }
        let builder = Daemon::builder()
            .identity(daemon.clone())
            .peers(peers)
            .root(root.path().join("served"))
            .port(0)
            .listen(vec!["127.0.1.1:0".parse().unwrap()]);
        let bound = built(builder).bind().await.unwrap();
        let port = bound.addresses()[0].address.port();
        let (handle, shutdown) = (bound.handle(), CancellationToken::new());
        tokio::spawn(bound.run(shutdown.clone()));
        Self {
            root,
            files,
            port,
            daemon,
            client,
            other,
            handle,
            shutdown,
        }
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 1, 1], self.port).into()
    }

    /// Connects a scripted peer with this key, which sends no hello.
    async fn connect(&self, identity: &Identity) -> Peer {
        let connected = Peer::connect([127, 0, 3, 1], self.address(), identity).await;
        connected.unwrap()
    }

    /// Opens the session of a scripted peer with this key.
    async fn session(&self, identity: &Identity) -> Peer {
        Peer::session([127, 0, 3, 1], self.address(), identity).await
    }

    /// Connects an honest client over a separate link.
    async fn honest(&self) -> Client {
        let client = self.client(&["127.0.0.9=127.0.1.1"]);
        within(client.connect("127.0.1.1")).await.unwrap()
    }

    /// Returns a builder for an honest client that uses these links.
    pub(crate) fn client(&self, links: &[&str]) -> ClientBuilder {
        let links = links.iter().map(|link| link.parse().unwrap()).collect();
        Client::builder()
            .identity(self.client.clone())
            .peers(trusting(&[&self.daemon]))
            .port(self.port)
            .links(links)
    }

    /// Copies a file as an honest client, over a separate link.
    async fn put(&self, name: &str, bytes: &[u8]) -> Result<Report, Error> {
        let source = self.file(name, bytes);
        let client = self
            .client(&["127.0.0.9=127.0.1.1"])
            .patience(Duration::from_secs(5))
            .connect("127.0.1.1")
            .await?;
        within(client.put(&source, None, CopyOptions::default()).finish()).await
    }

    /// Asserts that the daemon still accepts a copy, and has written only into its folder.
    async fn still_serves(&self, name: &str) {
        let bytes = content(300_000);
        let report = self.put(name, &bytes).await.unwrap();
        assert_eq!(report.digest, Some(digest(&bytes)));
        assert_eq!(std::fs::read(self.served(name)).unwrap(), bytes);
        assert_eq!(names(self.root.path()), ["served"]);
    }

    /// Waits until the daemon has removed what sessions that have ended left unfinished.
    async fn serves_nothing(&self) {
        let is_empty = async {
            while !names(&self.served("")).is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(is_empty).await;
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.files.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn served(&self, name: &str) -> PathBuf {
        self.root.path().join("served").join(name)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Asserts that an error is one of these variants of [`Error`].
#[track_caller]
fn is_one_of(error: &Error, kinds: &[&str]) {
    let shown = format!("{error:?}");
    let kind = shown.split(|c: char| !c.is_alphanumeric()).next();
    assert!(
        kind.is_some_and(|kind| kinds.contains(&kind)),
        "{}",
        crate::text::chain(error)
    );
}

/// Returns the number of descriptors that this process has open for paths that satisfy `is_it`.
fn open_files(is_it: impl Fn(&Path) -> bool) -> usize {
    let links = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| is_it(link)).count()
}

fn trusting(identities: &[&Identity]) -> Peers {
    let mut peers = Peers::default();
    for (index, identity) in identities.iter().enumerate() {
        let name = format!("peer{index}");
        peers
            .add(&PublicLine::new(identity.public_key(), &name), Some(&name))
            .unwrap();
    }
    peers
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

fn digest(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// Limits what never ends. On a busy machine, the flood of one-byte batches alone takes 12 s and more.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), future)
        .await
        .expect("took longer than five minutes")
}
