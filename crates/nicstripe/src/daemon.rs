//! The daemon: listens on each interface, greets, and lets sessions work on the directory it serves.
//!
//! [`listeners`] are its sockets, [`gate`] says which strangers may wait at them, [`connections`] and
//! [`shares`] which connections and sessions each key may have, [`greeting`] finds out who has connected, [`limits`] bound all, [`service`] is what one peer may have, and [`watch`] follows
//! the interfaces.

mod claims;
mod connections;
mod gate;
mod greeting;
mod handle;
mod limits;
mod listeners;
mod metrics;
mod objects;
mod refusals;
mod rights;
mod service;
mod shares;
mod trees;
mod trusted;
mod watch;

use std::{
    collections::HashMap,
    net::{Ipv6Addr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use nicstripe_link::InterfaceName;
use nicstripe_proto::{SessionId, message::CloseCode};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::connections::Place;
pub(crate) use self::metrics::{JobCounts, Live, MeterId, Meters};
pub(crate) use self::service::Service;
use self::{
    claims::{Budgets, Probations},
    connections::Connections,
    gate::Gate,
    limits::descriptors,
    listeners::{Listeners, Wanted},
    refusals::Refusals,
    rights::Rights,
    trusted::{PeersFile, Trusted},
    watch::Watch,
};
pub use self::{
    handle::DaemonHandle,
    limits::Limits,
    listeners::ListenAddress,
    metrics::{Direction, Histogram, InterfaceBytes, Metrics, PathCounts},
};
use crate::{
    DEFAULT_PORT,
    bench::{Admissions, BenchLimits},
    discovery::{Responder, ResponderConfig},
    error::Error,
    file::{BufferPool, FileError, IoPool, Quota, Root},
    here,
    path_routes::RouteKeeper,
    session::{ChunkShares, Command, SessionHandle},
    storage::{Served, Storage, Stored},
    tls::{KeyFilter, ServerTls},
    tree::allowance::MOST_OF_ALL,
    trust::{self, Home, Identity, Peers, PublicKey},
};

/// Sets up a [`Daemon`].
///
/// Defaults: port 7747, every interface that is up, the current directory as root, reading and writing allowed. Identity and peers have to
/// be given.
#[derive(Debug, Clone)]
pub struct DaemonBuilder {
    identity: Option<Identity>,
    trusted: Trusted,
    home: Option<Home>,
    root: Storing,
    given: Option<Arc<Vec<TcpListener>>>,
    port: u16,
    listen: Vec<SocketAddr>,
    interfaces: Vec<String>,
    access: trust::Access,
    routes: Option<Arc<RouteKeeper>>,
    announce: bool,
    limits: Limits,
    bench: BenchLimits,
    /// That the process may have.
    descriptors: Option<u64>,
}

/// Where files are to be kept.
#[derive(Debug, Clone)]
enum Storing {
    Path(PathBuf),
    Handle(Arc<OwnedFd>),
    Storage(Arc<dyn Storage>),
}

impl Storing {
    fn open(&self, home: Option<&Home>) -> Result<Served, FileError> {
        Ok(match self {
            Self::Path(path) => Served::Files(Arc::new(Root::open(path)?.outside_of(home, path)?)),
            Self::Handle(dir) => Served::Files(Arc::new(Root::of(dir)?.outside_of(home, "the directory that was handed over".as_ref())?)),
            Self::Storage(storage) => Served::Other(Stored::new(storage.clone())),
        })
    }
}

impl DaemonBuilder {
    /// Who we are.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().identity(nicstripe::trust::Identity::generate()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Whom we speak to.
    ///
    /// ```
    /// use nicstripe::trust::{Peers, PublicLine};
    /// let line: PublicLine = "nicstripe-ed25519 BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc= laptop".parse()?;
    /// let mut peers = Peers::default();
    /// peers.add(&line, None)?;
    /// let builder = nicstripe::Daemon::builder().peers(peers);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peers(mut self, peers: Peers) -> Self {
        self.trusted = Trusted::Fixed(Arc::new(peers));
        self
    }

    /// Whom we speak to: this file, read again when it has changed. While it cannot be read, nobody.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().peers_file("/etc/backup-tool/peers".into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peers_file(mut self, path: PathBuf) -> Self {
        self.trusted = Trusted::File(Arc::new(PeersFile::new(path)));
        self
    }

    /// Serves no directory that contains these folders, also none of a peer's `root=`: whoever could write there would be trusted.
    ///
    /// ```
    /// use nicstripe::trust::Home;
    /// let builder = nicstripe::Daemon::builder().keep_out_of(Home::at("/etc/backup-tool"));
    /// ```
    pub fn keep_out_of(mut self, home: Home) -> Self {
        self.home = Some(home);
        self
    }

    /// The directory that is served.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().root("/srv/backups".into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn root(mut self, root: PathBuf) -> Self {
        self.root = Storing::Path(root);
        self
    }

    /// The directory that is served, open: for a program that may not look it up itself any more, or that wants it to be this one whatever
    /// becomes of its name. Of [`root`](Self::root), this and [`storage`](Self::storage) the last one counts.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let dir = std::fs::File::open(std::env::temp_dir())?;
    /// let _builder = nicstripe::Daemon::builder().root_handle(dir.into());
    /// # Ok(())
    /// # }
    /// ```
    pub fn root_handle(mut self, dir: OwnedFd) -> Self {
        self.root = Storing::Handle(Arc::new(dir));
        self
    }

    /// Keeps files in this instead of in a directory. Trees, measurements of the disk, and peers with a `root=` of their own need a directory
    /// and are refused.
    ///
    /// ```
    /// use nicstripe::{Daemon, storage::MemoryStorage};
    ///
    /// let files = MemoryStorage::with_limit(64 << 20);
    /// let _builder = Daemon::builder().storage(files.clone());
    /// ```
    pub fn storage(mut self, storage: impl Storage) -> Self {
        self.root = Storing::Storage(Arc::new(storage));
        self
    }

    /// Accepts connections on these sockets, which listen already, and opens none of its own: no other interface is listened on, now or when
    /// it appears, and nothing is [announced](Self::announce). Then [`port`](Self::port), [`listen`](Self::listen) and
    /// [`interfaces`](Self::interfaces) do not count.
    ///
    /// One socket a cable, bound to its device, is best: answers then take the cable that the question came by. A socket on one address
    /// of each cable will do where the kernel's routes agree.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let _builder = nicstripe::Daemon::builder().listeners(vec![listener]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn listeners(mut self, listeners: Vec<TcpListener>) -> Self {
        self.given = Some(Arc::new(listeners));
        self
    }

    /// TCP port; 0 takes a free one, the same on every interface.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().port(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Listens on these addresses only, each pinned to the interface that has it. Port 0 stands for [`DaemonBuilder::port`].
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().listen(vec!["10.0.1.2:7747".parse()?, "10.0.2.2:0".parse()?]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listen(mut self, addresses: Vec<SocketAddr>) -> Self {
        self.listen = addresses;
        self
    }

    /// Listens on these interfaces only, by name.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().interfaces(vec!["eth1".into(), "eth2".into()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn interfaces(mut self, names: Vec<String>) -> Self {
        self.interfaces = names;
        self
    }

    /// Lets no peer write.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().read_only(true);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        if read_only {
            self.access = trust::Access::ReadOnly;
        }
        self
    }

    /// Lets peers make new files, but not replace any.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().append_only(true);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append_only(mut self, append_only: bool) -> Self {
        if append_only && self.access == trust::Access::Full {
            self.access = trust::Access::AppendOnly;
        }
        self
    }

    /// Installs host routes where connections of a peer would otherwise not come in, by this keeper's helper and policy. Without one none are
    /// installed.
    ///
    /// ```no_run
    /// use nicstripe::{RoutePolicy, routes::RouteKeeper};
    /// let keeper = RouteKeeper::start(RoutePolicy::Auto, "/var/lib/backup-tool".as_ref());
    /// let builder = nicstripe::Daemon::builder().route_keeper(keeper.into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn route_keeper(mut self, keeper: Arc<RouteKeeper>) -> Self {
        self.routes = Some(keeper);
        self
    }

    /// Answers the [discovery](crate::discovery) of everybody on the same cable, and not only of peers. They learn the key, the host's name,
    /// and the interface; without the key being trusted they still get no further.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().announce(true);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn announce(mut self, announce: bool) -> Self {
        self.announce = announce;
        self
    }

    /// What strangers and peers may take of it.
    ///
    /// ```
    /// use nicstripe::{Daemon, Limits};
    /// let mut limits = Limits::default();
    /// limits.shutdown_time = std::time::Duration::from_secs(5);
    /// let builder = Daemon::builder().limits(limits);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Shares out so many file descriptors instead of those that the process may have.
    #[cfg(test)]
    pub(crate) fn descriptors(mut self, descriptors: u64) -> Self {
        self.descriptors = Some(descriptors);
        self
    }

    /// What peers may have of it in benches.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().bench(nicstripe::BenchLimits::default());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bench(mut self, limits: BenchLimits) -> Self {
        self.bench = limits;
        self
    }

    /// Opens the root and the listening sockets.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Daemon, trust::{Home, Identity}};
    ///
    /// let home = Home::at("/etc/backup-tool");
    /// let daemon = Daemon::builder()
    ///     .identity(Identity::load_or_create(&home.identity_file())?)
    ///     .peers_file(home.peers_file())
    ///     .root("/srv/backups".into())
    ///     .bind()
    ///     .await?;
    /// for listened in daemon.addresses() {
    ///     println!("listening on {}", listened.address);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The root cannot be opened, a named interface or address is not there, or none can be listened on.
    pub async fn bind(self) -> Result<Daemon, Error> {
        let system = |what| move |source| Error::System { what, source };
        let served = self.root.open(self.home.as_ref())?;
        let here = here::listed()?;
        let identity = match self.identity {
            Some(identity) => identity,
            None => Identity::generate().map_err(|error| Error::System { what: "make a key", source: std::io::Error::other(error) })?,
        };
        let chosen = !self.listen.is_empty() || !self.interfaces.is_empty();
        let wanted = Wanted { addresses: self.listen, interfaces: self.interfaces, port: self.port };
        let is_given = self.given.is_some();
        let listeners = match &self.given {
            Some(given) => Listeners::of(given, &here)?,
            None => Listeners::open(wanted, &here)?,
        };
        let addresses = listeners.addresses();
        let trusted = self.trusted.clone();
        let accepts: KeyFilter = Arc::new(move |key| trusted.peers().is_some_and(|peers| peers.find(key).is_some()));
        let responder = addresses.first().filter(|_| !is_given).map(|first| {
            let (accepts, announce, port) = (accepts.clone(), self.announce, first.address.port());
            let only = chosen.then(|| on_any_address(&addresses));
            Responder::new(ResponderConfig { identity: identity.clone(), accepts, announce, port, only })
        });
        let limits = self.limits.usable().within(self.descriptors);
        let shared = Shared {
            tls: ServerTls::new(&identity, accepts),
            trusted: self.trusted,
            home: self.home,
            served,
            access: self.access,
            pool: IoPool::start().map_err(system("start threads"))?,
            files: Quota::new(limits::for_files(self.descriptors)),
            trees: Quota::new(limits::for_files(self.descriptors)),
            tree_memory: Quota::new(MOST_OF_ALL),
            buffers: BufferPool::default(),
            chunks: ChunkShares::default(),
            sessions: Mutex::default(),
            gate: Arc::new(Gate::new(&limits)),
            refusals: Arc::new(Refusals::new(limits.refusals_logged)),
            connections: Arc::new(Connections::new(limits.paths)),
            limits: RwLock::new(Arc::new(limits)),
            tokens: Budgets::default(),
            probations: Probations::default(),
            meters: Arc::default(),
            bench: RwLock::new(self.bench),
            benches: Arc::default(),
            ending: CancellationToken::new(),
            routes: self.routes,
        };
        Ok(Daemon { shared: Arc::new(shared), listeners, addresses, responder })
    }
}

/// A daemon that listens.
#[derive(Debug)]
pub struct Daemon {
    shared: Arc<Shared>,
    listeners: Listeners,
    addresses: Vec<ListenAddress>,
    responder: Option<Responder>,
}

impl Daemon {
    /// Starts to set up a daemon.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().root("/srv/backups".into()).port(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> DaemonBuilder {
        DaemonBuilder {
            identity: None,
            trusted: Trusted::Fixed(Arc::default()),
            home: None,
            root: Storing::Path(PathBuf::from(".")),
            given: None,
            port: DEFAULT_PORT,
            listen: Vec::new(),
            interfaces: Vec::new(),
            access: trust::Access::Full,
            routes: None,
            announce: false,
            limits: Limits::default(),
            bench: BenchLimits::default(),
            descriptors: descriptors(),
        }
    }

    /// Where it listens, at first: interfaces that appear later are listened on as well, unless some were named.
    ///
    /// ```no_run
    /// # async fn example(daemon: nicstripe::Daemon) -> Result<(), Box<dyn std::error::Error>> {
    /// let port = daemon.addresses().first().map(|listened| listened.address.port());
    /// println!("{port:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Returns what reads this daemon's numbers and changes its limits while it runs.
    ///
    /// ```no_run
    /// # async fn example(daemon: nicstripe::Daemon) -> Result<(), Box<dyn std::error::Error>> {
    /// let handle = daemon.handle();
    /// tokio::spawn(daemon.run(nicstripe::CancellationToken::new()));
    /// println!("{} sessions", handle.metrics().sessions);
    /// # Ok(())
    /// # }
    /// ```
    pub fn handle(&self) -> DaemonHandle {
        DaemonHandle::new(self.shared.clone())
    }

    /// Serves until `shutdown` is cancelled; then ends all sessions in order, so that what was received can be resumed.
    ///
    /// All sessions together have [`Limits::shutdown_time`] for it. What a disk has not taken by then is sent again by whoever resumes.
    ///
    /// ```no_run
    /// # async fn example(daemon: nicstripe::Daemon) -> Result<(), Box<dyn std::error::Error>> {
    /// let shutdown = nicstripe::CancellationToken::new();
    /// let running = tokio::spawn(daemon.run(shutdown.clone()));
    /// // When the program ends:
    /// shutdown.cancel();
    /// running.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let watch = Watch::new(self.shared.clone(), self.listeners, self.responder);
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = watch.run() => {}
            () = rights::watch(self.shared.clone()) => {}
        }
        self.shared.ending.cancel();
        let sessions: Vec<SessionHandle> = self.shared.sessions().drain().map(|(_, entry)| entry.handle).collect();
        let all_ended: JoinSet<()> = sessions.iter().cloned().map(end).collect();
        if tokio::time::timeout(self.shared.limits().shutdown_time, all_ended.join_all()).await.is_err() {
            let left = sessions.iter().filter(|session| !session.ended.is_cancelled()).count();
            tracing::warn!(sessions = left, "ended before all that had arrived was durable; what is missing is sent again");
        }
        Ok(())
    }
}

/// Ends a session in order, and waits for that.
async fn end(session: SessionHandle) {
    session.command(Command::Close(CloseCode::ShuttingDown)).await;
    session.ended.cancelled().await;
}

/// What all connections of a daemon share.
#[derive(Debug)]
pub(crate) struct Shared {
    tls: ServerTls,
    trusted: Trusted,
    /// What no directory that is served may contain.
    home: Option<Home>,
    served: Served,
    access: trust::Access,
    pool: IoPool,
    /// For the files that peers have open, and what `dial=` connects.
    files: Quota,
    /// For the directories of trees.
    trees: Quota,
    /// Bytes of memory for trees.
    tree_memory: Quota,
    buffers: BufferPool,
    /// Memory that the sessions share.
    chunks: ChunkShares,
    sessions: Mutex<HashMap<SessionId, Entry>>,
    /// Connections that have not proved yet who they are.
    gate: Arc<Gate>,
    refusals: Arc<Refusals>,
    /// Those that have.
    connections: Arc<Connections>,
    limits: RwLock<Arc<Limits>>,
    /// For proofs that addresses are a peer's.
    tokens: Budgets,
    /// Of the host routes that peers had installed.
    probations: Probations,
    meters: Arc<Meters>,
    bench: RwLock<BenchLimits>,
    /// Who benches, and who waits for that.
    benches: Arc<Admissions>,
    /// Cancelled when it is to end: from then on no session begins.
    ending: CancellationToken,
    routes: Option<Arc<RouteKeeper>>,
}

#[derive(Debug)]
struct Entry {
    rights: Rights,
    handle: SessionHandle,
    service: Arc<Service>,
    /// Whether it is ending in favour of another key: it counts no more.
    gives_way: bool,
}

impl Shared {
    /// The limits as they are now: they may change while the daemon runs.
    fn limits(&self) -> Arc<Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What peers may have in benches as it is now.
    fn bench_limits(&self) -> BenchLimits {
        self.bench.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Entry>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a peer's other sessions that have no connection to end: their peer has come back with this one, which may lack one for a moment.
    async fn give_way_to(&self, session: &SessionHandle, key: &PublicKey) -> Vec<SessionHandle> {
        let idle = |entry: &&Entry| entry.rights.key() == *key && entry.handle.is_idle() && !entry.handle.is_same(session);
        let handles: Vec<SessionHandle> = self.sessions().values().filter(idle).map(|entry| entry.handle.clone()).collect();
        for handle in &handles {
            handle.command(Command::GiveWay).await;
        }
        handles
    }
}

/// The interfaces whose link-local addresses are listened on, whatever they are.
fn on_any_address(listens: &[ListenAddress]) -> Vec<InterfaceName> {
    let any = listens.iter().filter(|listen| listen.address.ip() == Ipv6Addr::UNSPECIFIED);
    any.filter_map(|listen| listen.interface.parse().ok()).collect()
}
