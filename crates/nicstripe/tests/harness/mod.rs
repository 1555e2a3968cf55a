//! Test harness: a daemon and its clients in one process, with loopback addresses as links.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::{io::ErrorKind, path::Path, time::Duration};

use nicstripe::{
    BenchLimits, BitRate, CancellationToken, Client, ClientBuilder, Daemon, DaemonBuilder, Digest,
    Error, Limits, Name, Transfer,
    trust::{Identity, Peers, PublicLine},
};
pub use nicstripe_testkit::content;
use tempfile::TempDir;

/// Running daemon that serves a temporary directory, and the identity of the client that it trusts.
pub struct Served {
    pub root: TempDir,
    pub port: u16,
    pub client: Identity,
    pub trusted: Peers,
    daemon: Identity,
    pub shutdown: CancellationToken,
    /// Task of the daemon.
    pub running: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Served {
    pub async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap()).await
    }

    pub async fn start_in(root: TempDir) -> Self {
        Self::start_as(root, BenchLimits::default(), Limits::default()).await
    }

    pub async fn start_with(bench: BenchLimits) -> Self {
        Self::start_as(tempfile::tempdir().unwrap(), bench, Limits::default()).await
    }

    pub async fn start_within(limits: Limits) -> Self {
        Self::start_as(tempfile::tempdir().unwrap(), BenchLimits::default(), limits).await
    }

    async fn start_as(root: TempDir, bench: BenchLimits, limits: Limits) -> Self {
        Self::start_built(root, |builder| builder.bench(bench).limits(limits)).await
    }

    pub async fn start_built(
        root: TempDir,
        built: impl FnOnce(DaemonBuilder) -> DaemonBuilder,
    ) -> Self {
        let (client, daemon) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let shutdown = CancellationToken::new();
        let builder = built(builder(&root, &client, &daemon));
        let (port, running) = run(builder, &shutdown).await;
        Self {
            root,
            port,
            client,
            trusted: trusting(&daemon, "daemon"),
            daemon,
            shutdown,
            running,
        }
    }

    /// Ends the daemon as a crash does, and gives its clients time to notice.
    pub async fn crash(&mut self) {
        self.running.abort();
        let _ = within(&mut self.running).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    /// Starts the daemon that has crashed again, at its port.
    pub async fn start_again(&mut self) {
        let builder = builder(&self.root, &self.client, &self.daemon).port(self.port);
        self.running = run(builder, &self.shutdown).await.1;
    }

    pub async fn connect(&self, links: usize) -> Result<Client, Error> {
        self.connect_at(links, None).await
    }

    pub async fn connect_at(
        &self,
        links: usize,
        bandwidth: Option<BitRate>,
    ) -> Result<Client, Error> {
        let builder = self.builder(links).bandwidth(bandwidth);
        builder.connect("127.0.0.1").await
    }

    pub fn builder(&self, links: usize) -> ClientBuilder {
        let named = (1..=links)
            .map(|link| format!("127.0.0.{link}=127.0.1.{link}").parse().unwrap())
            .collect();
        Client::builder()
            .identity(self.client.clone())
            .peers(self.trusted.clone())
            .port(self.port)
            .links(named)
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }
}

fn trusting(identity: &Identity, name: &str) -> Peers {
    let mut peers = Peers::default();
    let line = PublicLine::new(identity.public_key(), name);
    peers.add(&line, Some(name)).unwrap();
    peers
}

fn builder(root: &TempDir, client: &Identity, daemon: &Identity) -> DaemonBuilder {
    Daemon::builder()
        .peers(trusting(client, "client"))
        .root(root.path().to_owned())
        .port(0)
        .interfaces(vec!["lo".into()])
        .identity(daemon.clone())
}

async fn run(
    builder: DaemonBuilder,
    shutdown: &CancellationToken,
) -> (u16, tokio::task::JoinHandle<Result<(), Error>>) {
    // The tasks of a daemon that has crashed release its sockets soon.
    let bound = within(async {
        loop {
            match builder.clone().bind().await {
                Ok(bound) => return bound,
                Err(Error::System { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    let bound = bound.await;
    let port = bound.addresses()[0].address.port();
    (port, tokio::spawn(bound.run(shutdown.clone())))
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

pub fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

pub fn digest(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

pub fn leftovers(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("nicstripe")).collect()
}

pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .expect("took longer than a minute")
}

/// Cancels a transfer after `bytes` bytes. Returns true if it can be resumed.
pub async fn interrupt_at(mut transfer: Transfer, bytes: u64) -> bool {
    while let Some(event) = within(transfer.next_event()).await {
        if let nicstripe::Event::Progress(progress) = event
            && progress.bytes >= bytes
        {
            transfer.cancel();
            break;
        }
    }
    matches!(
        within(transfer.finish()).await,
        Err(Error::Cancelled { resumable: true })
    )
}
