//! Test harness: a daemon in the test process, and repositories at it.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nicstripe::{
    CancellationToken, Client, ClientBuilder, Daemon, DaemonHandle, Name,
    storage::MemoryStorage,
    trust::{Access, Identity, PeerOptions, Peers, PublicLine},
};
use nicstripe_rustic::Backend;
use rustic_core::{
    BackupOptions, CheckOptions, ConfigOptions, Credentials, KeyOptions, LocalDestination,
    LsOptions, OpenStatus, PathList, Repository, RepositoryBackends, RepositoryOptions,
    RestoreOptions, SnapshotOptions, repofile::SnapshotFile,
};
use tempfile::TempDir;
use tokio::{runtime::Runtime, task::JoinHandle};

/// Directory of the test repository, relative to the daemon's root.
pub(crate) const BASE: &str = "backup/laptop";

/// Storage that a test daemon serves.
pub(crate) enum Kept {
    Folder(TempDir),
    Memory(MemoryStorage),
}

/// Test daemon that can be stopped, and restarted on the same port.
pub(crate) struct Served {
    kept: Kept,
    daemon: Identity,
    client: Identity,
    access: Access,
    port: u16,
    running: Option<Running>,
}

struct Running {
    runtime: Runtime,
    handle: DaemonHandle,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) fn in_folder(access: Access) -> Self {
        Self::start(Kept::Folder(tempfile::tempdir().unwrap()), access)
    }

    pub(crate) fn in_memory() -> Self {
        Self::start(Kept::Memory(MemoryStorage::new()), Access::Full)
    }

    fn start(kept: Kept, access: Access) -> Self {
        let (daemon, client) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let mut served = Self {
            kept,
            daemon,
            client,
            access,
            port: 0,
            running: None,
        };
        served.resume();
        served
    }

    /// Starts the daemon. A restarted one listens on its earlier port.
    pub(crate) fn resume(&mut self) {
        let runtime = Runtime::new().unwrap();
        // A killed daemon may not have released the port yet.
        let mut listener = None;
        until("a free port", || {
            listener = TcpListener::bind(("127.0.0.1", self.port)).ok();
            listener.is_some()
        });
        let listener = listener.unwrap();
        self.port = listener.local_addr().unwrap().port();
        let mut peers = trusting(&self.client, "client");
        let options = PeerOptions {
            access: self.access,
            ..PeerOptions::unrestricted()
        };
        peers
            .set_options(&self.client.public_key(), options)
            .unwrap();
        let builder = Daemon::builder()
            .identity(self.daemon.clone())
            .peers(peers)
            .listeners(vec![listener]);
        let builder = match &self.kept {
            Kept::Folder(root) => builder.root(root.path().to_owned()),
            Kept::Memory(storage) => builder.storage(storage.clone()),
        };
        let daemon = runtime.block_on(builder.bind()).unwrap();
        let (handle, shutdown) = (daemon.handle(), CancellationToken::new());
        let running = daemon.run(shutdown.clone());
        let task = runtime.spawn(async move { running.await.unwrap() });
        self.running = Some(Running {
            runtime,
            handle,
            shutdown,
            task,
        });
    }

    /// Shuts the daemon down cleanly, and waits until it has ended.
    pub(crate) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown.cancel();
            running.runtime.block_on(running.task).unwrap();
        }
    }

    /// Aborts the daemon without a shutdown, as SIGKILL would.
    pub(crate) fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.runtime.shutdown_background();
        }
    }

    pub(crate) fn handle(&self) -> &DaemonHandle {
        &self.running.as_ref().unwrap().handle
    }

    pub(crate) fn storage(&self) -> &MemoryStorage {
        match &self.kept {
            Kept::Memory(storage) => storage,
            Kept::Folder(_) => panic!("it serves a folder"),
        }
    }

    /// Returns the local directory that holds the repository.
    pub(crate) fn path(&self) -> PathBuf {
        match &self.kept {
            Kept::Folder(root) => root.path().join(BASE),
            Kept::Memory(_) => panic!("it serves no folder"),
        }
    }

    pub(crate) fn backend(&self) -> Backend {
        self.backend_built(|builder| builder)
    }

    pub(crate) fn backend_built(
        &self,
        built: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Backend {
        let builder = Client::builder()
            .identity(self.client.clone())
            .peers(trusting(&self.daemon, "daemon"))
            .port(self.port);
        Backend::connect(built(builder.patience(AWAY)), "127.0.0.1", Some(name(BASE))).unwrap()
    }
}

/// Patience of clients in these tests, longer than any outage.
pub(crate) const AWAY: Duration = Duration::from_secs(30);

fn trusting(identity: &Identity, name: &str) -> Peers {
    let mut peers = Peers::default();
    peers
        .add(&PublicLine::new(identity.public_key(), name), Some(name))
        .unwrap();
    peers
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

/// Returns the password of all test repositories.
pub(crate) fn credentials() -> Credentials {
    Credentials::password("secret")
}

fn closed(backends: impl Into<RepositoryBackends>) -> Repository<()> {
    // A cache would hide reads.
    Repository::new(
        &RepositoryOptions::default().no_cache(true),
        &backends.into(),
    )
    .unwrap()
}

/// Creates a repository with packs of 1 MiB, so that small backups have many packs.
pub(crate) fn init(backends: impl Into<RepositoryBackends>) -> Repository<OpenStatus> {
    let mut options = ConfigOptions::default();
    options.set_datapack_size = Some("1 MiB".parse().unwrap());
    options.set_datapack_growfactor = Some(0);
    closed(backends)
        .init(&credentials(), &KeyOptions::default(), &options)
        .unwrap()
}

pub(crate) fn open(backends: impl Into<RepositoryBackends>) -> Repository<OpenStatus> {
    closed(backends).open(&credentials()).unwrap()
}

pub(crate) fn backup(repository: Repository<OpenStatus>, source: &Path) -> SnapshotFile {
    let mut options = BackupOptions::default();
    options.as_path = Some("source".into());
    let source = PathList::from_string(source.to_str().unwrap())
        .unwrap()
        .sanitize()
        .unwrap();
    let snapshot = SnapshotOptions::default().to_snapshot().unwrap();
    repository
        .to_indexed_ids()
        .unwrap()
        .backup(&options, &source, snapshot)
        .unwrap()
}

/// Reads all data of the repository, and panics if any is missing or damaged.
#[track_caller]
pub(crate) fn check(repository: &Repository<OpenStatus>) {
    let found = repository
        .check(CheckOptions::default().read_data(true))
        .unwrap();
    assert!(found.0.is_empty(), "{found:?}");
}

/// Restores the newest snapshot to a new directory.
pub(crate) fn restore(repository: Repository<OpenStatus>) -> TempDir {
    let target = tempfile::tempdir().unwrap();
    let repository = repository.to_indexed().unwrap();
    let node = repository
        .node_from_snapshot_path("latest:source", |_| true)
        .unwrap();
    let how = LsOptions::default();
    let entries = || repository.ls(&node, &how).unwrap();
    let destination = LocalDestination::new(target.path().to_str().unwrap(), true, false).unwrap();
    let options = RestoreOptions::default();
    let plan = repository
        .prepare_restore(&options, entries(), &destination, false)
        .unwrap();
    repository
        .restore(plan, &options, entries(), &destination)
        .unwrap();
    target
}

/// Returns the relative path and size in bytes of all files in a directory tree.
pub(crate) fn files_beneath(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        // The folder may not exist yet.
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let (path, metadata) = (entry.path(), entry.metadata().unwrap());
            match metadata.is_dir() {
                true => folders.push(path),
                false => found.push((
                    path.strip_prefix(folder).unwrap().to_owned(),
                    metadata.len(),
                )),
            }
        }
    }
    found.sort();
    found
}

/// Waits until `is_so` returns true. Panics with `what` after one minute.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what} took longer than a minute"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
