//! Test harness: a daemon and its clients in one process, with loopback addresses as links.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::{
    fmt::Debug,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use nicstripe::{
    BenchLimits, BitRate, CancellationToken, Client, ClientBuilder, CopyOptions, Daemon,
    DaemonBuilder, Digest, Error, FailCode, Limits, Name, Report, Transfer,
    storage::MemoryStorage,
    trust::{Identity, Peers, PublicLine},
};
pub use nicstripe_testkit::content;
use tempfile::TempDir;

/// Options without any wish, and those that only replace a file or make its parents.
pub const PLAIN: CopyOptions = CopyOptions {
    replace: false,
    force: false,
    restart: false,
    preserve: false,
    times: false,
    verify: false,
    delta: false,
    in_place: false,
    compress: false,
    allow_changing: false,
    parents: false,
    only_if: None,
    slice: None,
};
pub const REPLACE: CopyOptions = CopyOptions {
    replace: true,
    ..PLAIN
};
pub const PARENTS: CopyOptions = CopyOptions {
    parents: true,
    ..PLAIN
};

pub const CHUNK: usize = 256 * 1024;

/// Lengths of files at the edges of chunks.
pub const AWKWARD: [usize; 8] = [
    0,
    1,
    CHUNK - 1,
    CHUNK,
    CHUNK + 1,
    2 * CHUNK,
    7 * CHUNK,
    40 * CHUNK + 4097,
];

/// Running daemon that serves a temporary directory or its memory, and the identity of the client that it trusts.
pub struct Served {
    pub root: TempDir,
    pub storage: Option<MemoryStorage>,
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
            storage: None,
            port,
            client,
            trusted: trusting(&daemon, "daemon"),
            daemon,
            shutdown,
            running,
        }
    }

    /// Daemon that keeps its files in memory.
    pub async fn start_in_memory(
        storage: MemoryStorage,
        built: impl FnOnce(DaemonBuilder) -> DaemonBuilder,
    ) -> Self {
        let kept = storage.clone();
        let root = tempfile::tempdir().unwrap();
        let mut served = Self::start_built(root, |builder| built(builder.storage(kept))).await;
        served.storage = Some(storage);
        served
    }

    /// Daemon whose line for the client has these options.
    pub async fn start_granting(
        options: impl FnOnce(&TempDir) -> String,
        built: impl FnOnce(DaemonBuilder) -> DaemonBuilder,
    ) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (client, options) = (Identity::generate().unwrap(), options(&root));
        let mut peers = trusting(&client, "peer");
        let options = options.parse().unwrap();
        peers.set_options(&client.public_key(), options).unwrap();
        let mut served = Self::start_built(root, |builder| built(builder.peers(peers))).await;
        served.client = client;
        served
    }

    /// Daemons with each kind of storage, which have the files `old` with their name as content.
    pub async fn of_both(old: &[&str], built: fn(DaemonBuilder) -> DaemonBuilder) -> [Self; 2] {
        let (root, storage) = (tempfile::tempdir().unwrap(), MemoryStorage::new());
        let both = [
            Self::start_built(root, built).await,
            Self::start_in_memory(storage, built).await,
        ];
        for served in &both {
            old.iter()
                .for_each(|file| served.has(file, file.as_bytes()));
        }
        both
    }

    /// Gives the daemon a file, with its parents.
    pub fn has(&self, file: &str, bytes: &[u8]) {
        let parent = file.rsplit_once('/').map(|(parent, _)| parent);
        if let Some(storage) = &self.storage {
            parent.map(|parent| nicstripe::storage::Storage::make_dir(storage, &name(parent)));
            return storage.insert(&name(file), bytes).unwrap();
        }
        std::fs::create_dir_all(self.path(parent.unwrap_or_default())).unwrap();
        std::fs::write(self.path(file), bytes).unwrap();
    }

    /// Returns the content of a file, whatever the daemon keeps it in.
    pub fn bytes(&self, file: &str) -> Option<Vec<u8>> {
        match &self.storage {
            Some(storage) => storage.contents(&name(file)),
            None => std::fs::read(self.path(file)).ok(),
        }
    }

    /// Returns true if nothing of an unfinished transfer is left, and the directory of a daemon with
    /// a storage in memory is empty.
    pub fn is_tidy(&self) -> bool {
        let names = || std::fs::read_dir(self.root.path()).unwrap().count();
        match &self.storage {
            Some(storage) => storage.unfinished() == 0 && names() == 0,
            None => leftovers(self.root.path()).is_empty(),
        }
    }

    /// Waits until nothing of an unfinished transfer is left: a daemon tidies up a little later.
    pub async fn tidied(&self) {
        within(async {
            while !self.is_tidy() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    /// Ends the daemon as a crash does, and gives its clients time to notice.
    pub async fn crash(&mut self) {
        self.running.abort();
        let _ = within(&mut self.running).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    /// Starts the daemon that has crashed again, at its port.
    pub async fn start_again(&mut self) {
        self.shutdown = CancellationToken::new();
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

    /// Returns a client that is connected over this number of links.
    pub async fn client(&self, links: usize) -> Client {
        within(self.connect(links)).await.unwrap()
    }

    pub async fn client_at(&self, links: usize, rate: BitRate) -> Client {
        within(self.connect_at(links, Some(rate))).await.unwrap()
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
}

pub fn trusting(identity: &Identity, name: &str) -> Peers {
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

pub async fn in_memory() -> Served {
    Served::start_in_memory(MemoryStorage::new(), |builder| builder).await
}

/// Returns a file `source` with this content, in its own directory.
pub fn source_of(bytes: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let here = tempfile::tempdir().unwrap();
    let source = here.path().join("source");
    std::fs::write(&source, bytes).unwrap();
    (here, source)
}

pub fn code(result: Result<impl Sized, Error>) -> Option<FailCode> {
    result.err().and_then(|error| error.fail_code())
}

/// Waits for the end of a transfer.
pub async fn done(transfer: Transfer) -> Result<Report, Error> {
    within(transfer.finish()).await
}

pub async fn finished(transfer: Transfer) -> Report {
    done(transfer).await.unwrap()
}

/// Waits for what must succeed.
pub async fn ok<T, E: Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    within(future).await.unwrap()
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
