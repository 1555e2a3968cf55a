//! Builder of a daemon: its settings, and the sockets and the root that it opens.

use std::{
    net::{Ipv6Addr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
};

use nicstripe_proto::invitation::Item;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use super::{
    benches::{BenchLimits, Benches},
    connections::Connections,
    executor::Executor,
    fetcher::Fetcher,
    gate::Gate,
    inbox::Inbox,
    limits::{self, Limits, descriptors},
    refusals::Refusals,
    roots::{Own, Roots},
    running::Daemon,
    seen::Seen,
    shared::Shared,
    trusted::Trusted,
};
use crate::{
    file::{BufferPool, FileError, IoPool, Logins, Quota, Root, options::DEFAULT_PORT},
    links::{
        discovery::{Responder, ResponderConfig},
        listeners::{ListenConfig, Listeners, on_any_address},
        local,
        route_keeper::RouteKeeper,
    },
    report::error::Error,
    session::ChunkShares,
    storage::{Served, Storage, Stored},
    tree::allowance::MOST_OF_ALL,
    trust::{self, Home, Identity, Peers, PublicKey, Sightings},
    tunnel::Resolver,
    wire::tls::{KeyFilter, ListCheck, ServerTls},
};

/// Builder of a [`Daemon`].
///
/// Defaults: port 7747, every interface that is up, the current directory as root, read and write
/// access. Identity and peers are required.
#[derive(Debug, Clone)]
pub struct DaemonBuilder {
    identity: Option<Identity>,
    trusted: Trusted,
    home: Option<Home>,
    logins: Logins,
    root: Storing,
    given: Option<Arc<Vec<TcpListener>>>,
    port: u16,
    listen: Vec<SocketAddr>,
    interfaces: Vec<String>,
    access: trust::Access,
    routes: Option<Arc<RouteKeeper>>,
    announce: bool,
    resume_as: Option<[u8; 32]>,
    inbox: Option<(Vec<Item>, bool)>,
    sightings: Option<Sightings>,
    executor: Option<Arc<dyn Executor>>,
    pub(crate) fetcher: Option<Arc<dyn Fetcher>>,
    limits: Limits,
    pub(super) bench: BenchLimits,
    /// File descriptor limit of the process; `None` without a limit.
    descriptors: Option<u64>,
}

/// Source of the served files: a path, an open directory or a [`Storage`].
#[derive(Debug, Clone)]
enum Storing {
    /// Directory that names begin at, without a boundary.
    Start(PathBuf),
    Path(PathBuf),
    Handle(Arc<OwnedFd>),
    Storage(Arc<dyn Storage>),
}

impl Storing {
    fn open(self, home: Option<Home>, logins: Logins) -> Result<Roots, FileError> {
        let own = match self {
            Self::Path(path) => Own::Path(path),
            Self::Start(path) => Own::Given(Served::Files(Arc::new(Root::unbounded(&path)?))),
            Self::Handle(dir) => Own::Given(Served::Files(Arc::new(Root::of(&dir)?))),
            Self::Storage(storage) => Own::Given(Served::Other(Stored::new(storage))),
        };
        Roots::open(own, home, logins)
    }
}

impl DaemonBuilder {
    /// Sets the daemon's key pair.
    ///
    /// ```
    /// let builder =
    ///     nicstripe::Daemon::builder().identity(nicstripe::trust::Identity::generate()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Sets the peers whose keys may connect, with their rights.
    ///
    /// ```
    /// use nicstripe::trust::{Peers, PublicLine};
    /// let line: PublicLine =
    ///     "nicstripe-ed25519 BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc= laptop".parse()?;
    /// let mut peers = Peers::default();
    /// peers.add(&line, None)?;
    /// let builder = nicstripe::Daemon::builder().peers(peers);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peers(mut self, peers: Peers) -> Self {
        self.trusted = Trusted::fixed(peers);
        self
    }

    /// Sets the file of trusted peers, read again whenever it changes. No peer is trusted while it
    /// cannot be read.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().peers_file("/etc/backup-tool/peers");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peers_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.trusted = Trusted::file(path.into());
        self
    }

    /// Records in a file when and from where each peer was last seen. By default there is none.
    ///
    /// ```
    /// use nicstripe::trust::Sightings;
    /// let builder = nicstripe::Daemon::builder()
    ///     .sightings(Sightings::at("/var/lib/backup-tool/sightings"));
    /// ```
    pub fn sightings(mut self, sightings: Sightings) -> Self {
        self.sightings = Some(sightings);
        self
    }

    /// Sets the folders of the key and the peers file, and rejects any root directory that contains
    /// one of them or the settings file, including a peer's `root=`. A client with write access to them could make
    /// itself trusted.
    ///
    /// ```
    /// use nicstripe::trust::Home;
    /// let builder = nicstripe::Daemon::builder().protect_home(Home::at("/etc/backup-tool"));
    /// ```
    pub fn protect_home(mut self, home: Home) -> Self {
        self.home = Some(home);
        self
    }

    /// Sets the home directories of accounts. In those that a root directory contains, no peer may
    /// write `.ssh`, and a peer that may only add files neither `bin` nor a name that begins with a
    /// dot: such files decide who may log in, or what runs then. By default there are none. Waits at
    /// most 2 s for their file systems.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().account_homes(["/home/me".into()]);
    /// ```
    pub fn account_homes(mut self, homes: impl IntoIterator<Item = PathBuf>) -> Self {
        self.logins = Logins::new(homes);
        self
    }

    /// Sets the directory whose files the daemon serves.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().root("/srv/backups");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Storing::Path(root.into());
        self
    }

    /// Sets the directory at which names begin, without a boundary: symbolic links may lead anywhere
    /// in the file system. For a client that may do as this process's user everything that the user
    /// may, such as after a login by ssh.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().start_at("/home/me");
    /// ```
    pub fn start_at(mut self, directory: impl Into<PathBuf>) -> Self {
        self.root = Storing::Start(directory.into());
        self
    }

    /// Sets an open directory as the one to serve. Use it if the program may no longer look up the
    /// path, or to keep the same directory after a rename. The last call of [`root`](Self::root),
    /// this and [`storage`](Self::storage) applies.
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

    /// Stores files in `storage` instead of a directory. Trees, disk measurements and peers with
    /// their own `root=` need a directory and are rejected.
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

    /// Accepts connections on these listening sockets and opens no others. The daemon listens on no
    /// other interface, present or future, and [announces](Self::announce) nothing.
    /// [`port`](Self::port), [`listen`](Self::listen) and [`interfaces`](Self::interfaces) are then
    /// ignored.
    ///
    /// Best is one socket per cable, bound to its device, so that replies leave on the cable the
    /// request came by. One socket per address also works if the kernel's routes agree.
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

    /// Sets the TCP port; 0 picks a free one, the same on every interface.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().port(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Listens only on these addresses, each pinned to its interface. Port 0 stands for
    /// [`DaemonBuilder::port`].
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder()
    ///     .listen(vec!["10.0.1.2:7747".parse()?, "10.0.2.2:0".parse()?]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listen(mut self, addresses: Vec<SocketAddr>) -> Self {
        self.listen = addresses;
        self
    }

    /// Listens only on the interfaces with these names, such as `eth1`.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().interfaces(vec!["eth1".into(), "eth2".into()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn interfaces(mut self, names: Vec<String>) -> Self {
        self.interfaces = names;
        self
    }

    /// Denies write access to all peers if `read_only` is true.
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

    /// Allows peers to create files but not to replace any, if `append_only` is true.
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

    /// Sets the route keeper, which installs a host route if a peer's connections would not arrive
    /// otherwise. Without a keeper the daemon installs no routes.
    ///
    /// ```no_run
    /// use nicstripe::{RoutePolicy, routes::RouteKeeper};
    /// let keeper = RouteKeeper::start(RoutePolicy::Auto, "/var/lib/backup-tool");
    /// let builder = nicstripe::Daemon::builder().route_keeper(keeper.into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn route_keeper(mut self, keeper: Arc<RouteKeeper>) -> Self {
        self.routes = Some(keeper);
        self
    }

    /// Sets whether to answer [discovery](crate::discovery) requests from any host on the same
    /// cable; by default only trusted peers get an answer. An answer contains the public key, the
    /// host name and the interface. Connecting still requires a trusted key.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().announce(true);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn announce(mut self, announce: bool) -> Self {
        self.announce = announce;
        self
    }

    /// Sets what runs the commands that peers' lines permit ([`exec`](crate::trust::PeerOptions::exec)).
    /// Without it, the daemon runs none.
    pub fn executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Sets what stands for a peer in the journals of unfinished copies, instead of its key. For a
    /// client whose key is new each time.
    pub(crate) fn resume_as(mut self, tag: [u8; 32]) -> Self {
        self.resume_as = Some(tag);
        self
    }

    /// Lets peers only create these files and directories in the root, and nothing else: neither read
    /// nor list, replace, rename or remove. Without an item there are no files for peers.
    ///
    /// An item is a limit: it arrives with its name and kind, and has at most its files and bytes,
    /// 1 % more, and 1 MiB or 16 files. A tree must have all items at its top. Symbolic links that
    /// lead out of their item are refused unless `keeps_links` is true.
    ///
    /// ```
    /// use nicstripe::invitation::Item;
    /// let image = Item {
    ///     name: b"disk.img".to_vec(),
    ///     is_dir: false,
    ///     is_link: false,
    ///     files: 1,
    ///     bytes: 64 << 30,
    /// };
    /// let builder = nicstripe::Daemon::builder().inbox([image], false);
    /// ```
    pub fn inbox(mut self, items: impl IntoIterator<Item = Item>, keeps_links: bool) -> Self {
        self.inbox = Some((items.into_iter().collect(), keeps_links));
        self.append_only(true)
    }

    /// Sets the resource limits for unauthenticated connections and peers.
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

    /// Overrides the file descriptor limit that the daemon divides among sessions, files and
    /// tunnels.
    #[cfg(test)]
    pub(crate) fn descriptors(mut self, descriptors: u64) -> Self {
        self.descriptors = Some(descriptors);
        self
    }

    /// Opens the root and the listening sockets, and returns a daemon that is ready to run.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Daemon, trust::{Home, Identity}};
    ///
    /// let home = Home::at("/etc/backup-tool");
    /// let daemon = Daemon::builder()
    ///     .identity(Identity::load_or_create(&home.identity_file())?)
    ///     .peers_file(home.peers_file())
    ///     .root("/srv/backups")
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
    /// The root cannot be opened, a named interface or address does not exist, or no socket can
    /// listen. [`Error::NoRuntime`] if the future is polled outside a tokio runtime.
    ///
    /// # Panics
    ///
    /// The runtime has no I/O or time driver (`enable_all` of its builder).
    pub async fn bind(self) -> Result<Daemon, Error> {
        Error::require_runtime()?;
        let system = |what| move |source| Error::System { what, source };
        let roots = Arc::new(self.root.open(self.home, self.logins)?);
        self.trusted.refresh_now();
        if let Some(peers) = self.trusted.peers() {
            roots.on_peers(&peers);
        }
        let interfaces = local::listed()?;
        let identity = match self.identity {
            Some(identity) => identity,
            None => Identity::generate().map_err(|error| Error::failed("make a key", error))?,
        };
        let config = ListenConfig {
            addresses: self.listen,
            interfaces: self.interfaces,
            port: self.port,
        };
        let is_everywhere = config.is_everywhere();
        let is_given = self.given.is_some();
        let listeners = match &self.given {
            Some(given) => Listeners::of(given, &interfaces)?,
            None => Listeners::open(config, &interfaces)?,
        };
        let addresses = listeners.addresses();
        let trusted = self.trusted.clone();
        let list = trusted.clone();
        let has_list: ListCheck = Arc::new(move || list.peers().is_some());
        let accepts: KeyFilter = Arc::new(move |key| trusted.knows(key));
        // An answer leads to a link-local address, at which the socket on `[::]` listens.
        let mut all = addresses.iter();
        let any = all.find(|listen| listen.address.ip() == Ipv6Addr::UNSPECIFIED);
        let answering = any.or(addresses.first()).filter(|_| !is_given);
        let responder = answering.map(|listen| {
            let (accepts, announce, port) = (accepts.clone(), self.announce, listen.address.port());
            let only = (!is_everywhere).then(|| on_any_address(&addresses));
            Responder::new(ResponderConfig {
                identity: identity.clone(),
                accepts,
                announce,
                invitation: None,
                port,
                asked_at: port,
                only,
            })
        });
        let limits = self.limits.usable().within(self.descriptors);
        let shared = Shared {
            identity: identity.clone(),
            tls: ServerTls::with_list(&identity, accepts, has_list),
            trusted: self.trusted,
            roots,
            access: self.access,
            pool: IoPool::start().map_err(system("start threads"))?,
            files: Quota::new(limits::for_files(self.descriptors)),
            trees: Quota::new(limits::for_files(self.descriptors)),
            memory: Quota::new(MOST_OF_ALL),
            resolver: Resolver::default(),
            buffers: BufferPool::default(),
            chunks: ChunkShares::default(),
            sessions: Mutex::default(),
            gate: Arc::new(Gate::new(&limits)),
            refusals: Arc::new(Refusals::new(limits.refusals_logged)),
            connections: Arc::new(Connections::new(limits.paths)),
            limits: RwLock::new(Arc::new(limits)),
            route_limits: Arc::default(),
            meters: Arc::default(),
            bench: Benches::new(self.bench),
            ending: CancellationToken::new(),
            executor: self.executor,
            fetcher: self.fetcher,
            routes: self.routes,
            resume_as: self
                .resume_as
                .and_then(|tag| PublicKey::from_bytes(tag).ok()),
            inbox: self.inbox.map(|(items, keeps)| Inbox::new(items, keeps)),
            seen: Arc::new(Seen::new(self.sightings)),
        };
        Ok(Daemon::new(Arc::new(shared), listeners, responder))
    }
}

impl Daemon {
    /// Returns a builder with default settings.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().root("/srv/backups").port(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> DaemonBuilder {
        DaemonBuilder {
            identity: None,
            trusted: Trusted::fixed(Peers::default()),
            home: None,
            logins: Logins::default(),
            root: Storing::Path(PathBuf::from(".")),
            given: None,
            port: DEFAULT_PORT,
            listen: Vec::new(),
            interfaces: Vec::new(),
            access: trust::Access::Full,
            routes: None,
            announce: false,
            resume_as: None,
            inbox: None,
            sightings: None,
            executor: None,
            fetcher: None,
            limits: Limits::default(),
            bench: BenchLimits::default(),
            descriptors: descriptors(),
        }
    }
}
