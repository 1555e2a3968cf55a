//! The daemon: listens on each interface, greets, and lets sessions work on the directory it serves.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use nicstripe_link::{Change, Changes, Interface, InterfaceName, arrival_interface, interfaces, listen};
use nicstripe_proto::{
    FailCode, Frame, Name, PathId, Role, SessionConfig, SessionId, Subtree,
    message::{CloseCode, Hello, Put, PutOptions, Refusal, RefusalCode, VERSION, Welcome},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

use crate::{
    DEFAULT_PORT,
    client::EventSlot,
    connect::{GREETING_TIMEOUT, encoded, tune_stream},
    discovery::{self, Responder, ResponderConfig},
    error::Error,
    file::{BufferPool, FileError, IoPool, Root, Source, Target, TargetRequest},
    plan::described,
    session::{Access, Capacity, Command, Driver, DriverConfig, Established, Input, PathPlan, SessionHandle},
    stream::{Greeted, StreamEnd},
    tls::{KeyFilter, ServerTls, TlsStream},
    trust::{self, Identity, Peers, PublicKey},
};

/// Sets up a [`Daemon`].
///
/// Defaults: port 7747, every interface that is up, the current directory as root, reading and writing allowed. Identity and peers have to
/// be given.
#[derive(Debug, Clone)]
pub struct DaemonBuilder {
    identity: Option<Identity>,
    trusted: Trusted,
    root: PathBuf,
    port: u16,
    listen: Vec<SocketAddr>,
    interfaces: Vec<String>,
    access: trust::Access,
    announce: bool,
}

impl DaemonBuilder {
    /// Who we are.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Whom we speak to.
    pub fn peers(mut self, peers: Peers) -> Self {
        self.trusted = Trusted::Fixed(Arc::new(peers));
        self
    }

    /// Whom we speak to: this file, read again when it has changed. While it cannot be read, nobody.
    pub fn peers_file(mut self, path: PathBuf) -> Self {
        self.trusted = Trusted::File(Arc::new(PeersFile { path, read: Mutex::new(None) }));
        self
    }

    /// The directory that is served.
    pub fn root(mut self, root: PathBuf) -> Self {
        self.root = root;
        self
    }

    /// TCP port; 0 takes a free one, the same on every interface.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Listens on these addresses only, each pinned to the interface that has it. Port 0 stands for [`DaemonBuilder::port`].
    pub fn listen(mut self, addresses: Vec<SocketAddr>) -> Self {
        self.listen = addresses;
        self
    }

    /// Listens on these interfaces only, by name.
    pub fn interfaces(mut self, names: Vec<String>) -> Self {
        self.interfaces = names;
        self
    }

    /// Lets no peer write.
    pub fn read_only(mut self, read_only: bool) -> Self {
        if read_only {
            self.access = trust::Access::ReadOnly;
        }
        self
    }

    /// Lets peers make new files, but not replace any.
    pub fn append_only(mut self, append_only: bool) -> Self {
        if append_only && self.access == trust::Access::Full {
            self.access = trust::Access::AppendOnly;
        }
        self
    }

    /// Answers the [discovery](crate::discovery) of everybody on the same cable, and not only of peers. They learn the key, the host's name,
    /// and the interface; without the key being trusted they still get no further.
    pub fn announce(mut self, announce: bool) -> Self {
        self.announce = announce;
        self
    }

    /// Opens the root and the listening sockets.
    ///
    /// # Errors
    ///
    /// The root cannot be opened, a named interface or address is not there, or none can be listened on.
    pub async fn bind(self) -> Result<Daemon, Error> {
        let system = |what| move |source| Error::System { what, source };
        let root = Root::open(&self.root)?;
        let here = interfaces().map_err(|error| Error::System { what: "list the interfaces", source: std::io::Error::other(error) })?;
        let identity = match self.identity {
            Some(identity) => identity,
            None => Identity::generate().map_err(|error| Error::System { what: "make a key", source: std::io::Error::other(error) })?,
        };
        let listeners = open_listeners(&self.listen, &self.interfaces, self.port, &here)?;
        let addresses = listeners.iter().map(|(address, _)| address.clone()).collect();
        let trusted = self.trusted.clone();
        let accepts: KeyFilter = Arc::new(move |key| trusted.peers().find(key).is_some());
        let chosen = !self.listen.is_empty() || !self.interfaces.is_empty();
        let responder = listeners.first().map(|(first, _)| {
            let (accepts, announce, port) = (accepts.clone(), self.announce, first.address.port());
            let only = chosen.then(|| on_any_address(&listeners));
            Arc::new(Responder::new(ResponderConfig { identity: identity.clone(), accepts, announce, port, only }))
        });
        let shared = Shared {
            tls: ServerTls::new(&identity, accepts),
            trusted: self.trusted,
            root: Arc::new(root),
            access: self.access,
            pool: IoPool::start().map_err(system("start threads"))?,
            buffers: BufferPool::default(),
            sessions: Mutex::default(),
            greetings: Arc::new(Semaphore::new(MOST_GREETINGS)),
        };
        Ok(Daemon { shared: Arc::new(shared), listeners, addresses, responder })
    }
}

/// Where a daemon listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    /// The interface.
    pub interface: String,
    /// Address and port; unspecified where all addresses of the interface are meant.
    pub address: SocketAddr,
}

/// A daemon that listens.
#[derive(Debug)]
pub struct Daemon {
    shared: Arc<Shared>,
    listeners: Vec<(ListenAddress, TcpListener)>,
    addresses: Vec<ListenAddress>,
    responder: Option<Arc<Responder>>,
}

impl Daemon {
    /// Starts to set up a daemon.
    pub fn builder() -> DaemonBuilder {
        DaemonBuilder {
            identity: None,
            trusted: Trusted::Fixed(Arc::default()),
            root: PathBuf::from("."),
            port: DEFAULT_PORT,
            listen: Vec::new(),
            interfaces: Vec::new(),
            access: trust::Access::Full,
            announce: false,
        }
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Serves until `shutdown` is cancelled; then ends all sessions in order, so that what was received can be resumed.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        for (address, listener) in self.listeners {
            let (shared, shutdown) = (self.shared.clone(), shutdown.clone());
            tokio::spawn(accept(shared, address, listener, shutdown));
        }
        tokio::spawn(watch_carriers(self.shared.clone(), shutdown.clone()));
        if let Some(responder) = self.responder {
            tokio::spawn(discovery::follow(responder, shutdown.clone()));
        }
        shutdown.cancelled().await;
        let sessions: Vec<SessionHandle> = self.shared.sessions().drain().map(|(_, entry)| entry.handle).collect();
        for session in &sessions {
            session.command(Command::Close(CloseCode::ShuttingDown)).await;
        }
        for session in &sessions {
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, session.ended.cancelled()).await;
        }
        Ok(())
    }
}

/// What all connections of a daemon share.
#[derive(Debug)]
pub(crate) struct Shared {
    tls: ServerTls,
    trusted: Trusted,
    root: Arc<Root>,
    access: trust::Access,
    pool: IoPool,
    buffers: BufferPool,
    sessions: Mutex<HashMap<SessionId, Entry>>,
    /// Connections that have not proved yet who they are.
    greetings: Arc<Semaphore>,
}

#[derive(Debug)]
struct Entry {
    key: PublicKey,
    handle: SessionHandle,
}

impl Shared {
    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Entry>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a peer's sessions that have no connection to end: their peer has come back with a new one.
    async fn give_way(&self, key: &PublicKey) {
        let idle = |entry: &&Entry| entry.key == *key && !entry.handle.connected.load(std::sync::atomic::Ordering::Acquire);
        let handles: Vec<SessionHandle> = self.sessions().values().filter(idle).map(|entry| entry.handle.clone()).collect();
        for handle in handles {
            handle.command(Command::GiveWay).await;
        }
    }
}

/// What one peer may have of the daemon.
#[derive(Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
    key: PublicKey,
    root: Arc<Root>,
    access: trust::Access,
}

impl Service {
    fn new(shared: &Arc<Shared>, key: PublicKey) -> Result<Self, FileError> {
        let peers = shared.trusted.peers();
        let options = peers.find(&key).map(|peer| peer.options.clone()).unwrap_or_default();
        let root = match &options.root {
            Some(root) => Arc::new(Root::open(root)?),
            None => shared.root.clone(),
        };
        Ok(Self { shared: shared.clone(), key, root, access: shared.access.max(options.access) })
    }

    /// Opens a file for the peer to read.
    pub(crate) fn open_source(&self, name: &Name) -> Result<Source, FileError> {
        Source::open_beneath(&self.root, name)
    }

    /// Opens a file for the peer to write. Waits a while for an earlier session of the same peer to let go of it.
    pub(crate) async fn open_target(self: Arc<Self>, put: Put) -> Result<(Arc<Target>, Vec<Subtree>), FileError> {
        self.check_allowed(&put)?;
        let started = Instant::now();
        loop {
            self.shared.give_way(&self.key).await;
            let (service, put) = (self.clone(), put.clone());
            let opened = self.shared.pool.call(move || service.open_target_now(&put)).await;
            match opened {
                Some(Err(error)) if error.code == FailCode::Busy && started.elapsed() < BUSY_TIMEOUT => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                Some(result) => return result.map(|(target, have)| (Arc::new(target), have)),
                None => return Err(FileError::new("open", "the target", std::io::Error::other("the I/O threads have ended"))),
            }
        }
    }

    fn open_target_now(&self, put: &Put) -> Result<(Target, Vec<Subtree>), FileError> {
        let name = match &put.into {
            Some(own) if self.root.is_directory(&put.name) => put
                .name
                .join(own.file_name())
                .map_err(|error| FileError::new("receive", &put.name, std::io::Error::other(error)).with_code(FailCode::Refused))?,
            _ => put.name.clone(),
        };
        let dir = self.root.open_parent(&name).map_err(|error| FileError::new("open the directory of", &name, error))?;
        let append_only = self.access == trust::Access::AppendOnly;
        let options = PutOptions { replace: put.options.replace && !append_only, ..put.options };
        let request = TargetRequest {
            dir,
            name: std::os::unix::ffi::OsStrExt::from_bytes(name.file_name()),
            offer: &put.offer,
            options,
            peer_key: *self.key.as_bytes(),
            journal_id: crate::random_bytes(),
        };
        Target::open(request).map_err(|error| match error.code {
            FailCode::Exists if append_only && put.options.replace => error.with_code(FailCode::Refused),
            _ => error,
        })
    }

    fn check_allowed(&self, put: &Put) -> Result<(), FileError> {
        if self.access != trust::Access::ReadOnly {
            return Ok(());
        }
        let why = "this peer may only read here";
        Err(FileError::new("receive", &put.name, std::io::Error::new(std::io::ErrorKind::PermissionDenied, why))
            .with_code(FailCode::Refused))
    }
}

/// Opens one listening socket per interface and IP version, pinned before it listens.
fn open_listeners(
    addresses: &[SocketAddr],
    names: &[String],
    port: u16,
    here: &[Interface],
) -> Result<Vec<(ListenAddress, TcpListener)>, Error> {
    let mut wanted: Vec<(InterfaceName, SocketAddr, bool)> = Vec::new();
    for name in names {
        let found = here.iter().find(|interface| interface.is_called(name));
        let all = || here.iter().map(|interface| interface.name.to_string()).collect::<Vec<_>>().join(", ");
        let interface = found
            .ok_or_else(|| Error::Link { link: name.clone(), why: format!("there is no such interface here; there are {}", all()) })?;
        wanted.extend(unspecified(port).map(|address| (interface.name, address, true)));
    }
    for address in addresses {
        let interface = here.iter().find(|interface| interface.has_address(address.ip()) || is_loopback_of(interface, address.ip()));
        let interface =
            interface.ok_or_else(|| Error::Link { link: address.ip().to_string(), why: "no interface here has this address".into() })?;
        let port = if address.port() == 0 { port } else { address.port() };
        wanted.push((interface.name, SocketAddr::new(address.ip(), port), true));
    }
    if wanted.is_empty() {
        // Ports of a bridge or bond are left out by the kernel itself: their packets arrive at the master.
        let up = here.iter().filter(|interface| interface.up && interface.master.is_none());
        wanted.extend(up.flat_map(|interface| unspecified(port).map(|address| (interface.name, address, false))));
    }
    let mut listeners = Vec::new();
    let mut chosen_port = None;
    let mut failure = None;
    for (interface, mut address, _) in wanted {
        if address.port() == 0 {
            address.set_port(chosen_port.unwrap_or(0));
        }
        match open_listener(&interface, address) {
            Ok((bound, listener)) => {
                chosen_port.get_or_insert(bound.port());
                listeners.push((ListenAddress { interface: interface.to_string(), address: bound }, listener));
            }
            // A machine without IPv6 has no IPv6 sockets.
            Err(error) if address.is_ipv6() && address.ip().is_unspecified() => {
                tracing::debug!(%interface, %error, "not listening on IPv6");
            }
            Err(source) => failure = Some((address, source)),
        }
    }
    match failure {
        Some((address, source)) => {
            Err(Error::System { what: "listen", source: std::io::Error::new(source.kind(), format!("{address}: {source}")) })
        }
        None => Ok(listeners),
    }
}

/// The interfaces whose link-local addresses are listened on, whatever they are.
fn on_any_address(listeners: &[(ListenAddress, TcpListener)]) -> Vec<InterfaceName> {
    let any = listeners.iter().map(|(listen, _)| listen).filter(|listen| listen.address.ip() == Ipv6Addr::UNSPECIFIED);
    any.filter_map(|listen| listen.interface.parse().ok()).collect()
}

fn unspecified(port: u16) -> impl Iterator<Item = SocketAddr> {
    [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)].into_iter().map(move |ip| SocketAddr::new(ip, port))
}

fn is_loopback_of(interface: &Interface, ip: IpAddr) -> bool {
    ip.is_loopback() && interface.kind == nicstripe_link::InterfaceKind::Loopback
}

fn open_listener(interface: &InterfaceName, address: SocketAddr) -> std::io::Result<(SocketAddr, TcpListener)> {
    let listener = TcpListener::from_std(listen(Some(interface), address, BACKLOG)?)?;
    Ok((listener.local_addr()?, listener))
}

async fn accept(shared: Arc<Shared>, address: ListenAddress, listener: TcpListener, shutdown: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((tcp, remote)) => {
                // Beyond the limit a stranger is turned away at once, without a byte.
                let Ok(permit) = shared.greetings.clone().try_acquire_owned() else { continue };
                let (shared, interface) = (shared.clone(), address.interface.clone());
                tokio::spawn(async move {
                    let greeted = tokio::time::timeout(GREETING_TIMEOUT, greet(&shared, tcp, remote, interface)).await;
                    drop(permit);
                    match greeted {
                        Ok(Ok(())) => {}
                        Ok(Err(end)) => tracing::info!(%remote, reason = %crate::chain(&end), "connection turned away"),
                        Err(_) => tracing::info!(%remote, "connection turned away: it did not greet within 5 s"),
                    }
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely: those in use will be given back.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Finds out who has connected and which session it means.
async fn greet(shared: &Arc<Shared>, tcp: TcpStream, remote: SocketAddr, interface: String) -> Result<(), StreamEnd> {
    tune_stream(&tcp);
    let arrival = arrival_interface(&tcp).ok().flatten().map(|name| name.to_string()).unwrap_or(interface);
    let local = tcp.local_addr().ok().map(|address| address.ip());
    let probe = tcp.as_fd().try_clone_to_owned().ok();
    let tls = TlsStream::accept(tcp, &shared.tls, Instant::now() + GREETING_TIMEOUT).await?;
    let key = tls.peer_key()?;
    let (frame, mut greeted) = Greeted::first_frame(tls).await?;
    let hello: Hello = match frame {
        Frame::Hello(body) => minicbor::decode(&body).map_err(|error| StreamEnd::Greeting(error.to_string()))?,
        _ => return Err(StreamEnd::Greeting("its first frame is no hello".into())),
    };
    let handle = match session_of(shared, &hello, key) {
        Ok(handle) => handle,
        Err(code) => {
            tracing::info!(%remote, ?code, "session refused");
            greeted.send(&Frame::Refuse(encoded(&Refusal { code, version: VERSION }))).await?;
            greeted.finish().await;
            return Ok(());
        }
    };
    let here = if hello.new { interfaces().ok() } else { None };
    let welcome = Welcome { version: VERSION, arrival: Some(arrival.clone()), interfaces: here.map(|here| described(&here, &[])) };
    greeted.send(&Frame::Welcome(encoded(&welcome))).await?;
    let plan = PathPlan {
        interface: arrival,
        local,
        remote,
        peer_interface: hello.interface,
        capacity: Capacity::default(),
        cap: hello.cap_bps.map(nicstripe_proto::BitRate),
        named: false,
        contact_only: false,
        no_data: false,
    };
    let established = Box::new(Established { greeted, probe, local, verified: None });
    let _ = handle.inputs.send(Input::Connected { path: PathId(hello.path), plan: Some(plan), established }).await;
    Ok(())
}

/// Returns the session that a hello means: a new one, or one of the same key.
fn session_of(shared: &Arc<Shared>, hello: &Hello, key: PublicKey) -> Result<SessionHandle, RefusalCode> {
    if hello.version != VERSION {
        return Err(RefusalCode::Version);
    }
    if hello.path > LAST_PATH {
        return Err(RefusalCode::Path);
    }
    let mut sessions = shared.sessions();
    sessions.retain(|_, entry| !entry.handle.ended.is_cancelled());
    match sessions.get(&hello.session) {
        Some(entry) if entry.key == key => return Ok(entry.handle.clone()),
        Some(_) => return Err(RefusalCode::UnknownSession),
        None if !hello.new => return Err(RefusalCode::UnknownSession),
        None if sessions.len() >= MOST_SESSIONS => return Err(RefusalCode::TooManySessions),
        None => {}
    }
    let service = Service::new(shared, key).map_err(|error| {
        tracing::error!(%key, error = %crate::chain(&error), "cannot serve this peer");
        RefusalCode::Storage
    })?;
    let peers = shared.trusted.peers();
    let peer = peers.find(&key);
    let host = peer.and_then(|peer| peer.name.as_ref()).map_or_else(|| key.fingerprint(), |name| name.as_str().to_owned());
    tracing::info!(peer = %host, "session");
    let handle = Driver::start(DriverConfig {
        role: Role::Daemon,
        access: Access::Daemon(Arc::new(service)),
        host,
        session: SessionConfig { rate_limit: peer.and_then(|peer| peer.options.rate), patience: PATIENCE, ..SessionConfig::default() },
        pool: shared.pool.clone(),
        buffers: shared.buffers.clone(),
        connector: None,
        events: EventSlot::default(),
    });
    sessions.insert(hello.session, Entry { key, handle: handle.clone() });
    Ok(handle)
}

/// Tells the sessions when an interface loses or gets its carrier.
async fn watch_carriers(shared: Arc<Shared>, shutdown: CancellationToken) {
    let (Ok(mut changes), Ok(here)) = (Changes::open(), interfaces()) else { return };
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            () = shutdown.cancelled() => return,
        };
        let Ok(change) = change else { return };
        let Change::Carrier { index, up, .. } = change else { continue };
        let Some(interface) = here.iter().find(|interface| interface.index == index) else { continue };
        let handles: Vec<SessionHandle> = shared.sessions().values().map(|entry| entry.handle.clone()).collect();
        for handle in handles {
            let _ = handle.inputs.send(Input::Carrier { interface: interface.name.to_string(), up }).await;
        }
    }
}

/// The keys that may connect.
#[derive(Debug, Clone)]
enum Trusted {
    Fixed(Arc<Peers>),
    File(Arc<PeersFile>),
}

/// A peers file, and what it said when it was read last.
#[derive(Debug)]
struct PeersFile {
    path: PathBuf,
    read: Mutex<Option<(Stamp, Arc<Peers>)>>,
}

/// Modification time and size: the file is replaced as a whole, so one of them changes.
type Stamp = Option<(std::time::SystemTime, u64)>;

impl Trusted {
    fn peers(&self) -> Arc<Peers> {
        match self {
            Self::Fixed(peers) => peers.clone(),
            Self::File(file) => file.peers(),
        }
    }
}

impl PeersFile {
    fn peers(&self) -> Arc<Peers> {
        let stamp = stamp(&self.path);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match &*read {
            Some((known, peers)) if *known == stamp => peers.clone(),
            _ => {
                let peers = Arc::new(Peers::load(&self.path).unwrap_or_else(|error| {
                    tracing::error!(error = %crate::chain(&error), "no peer is trusted until this is mended");
                    Peers::default()
                }));
                *read = Some((stamp, peers.clone()));
                peers
            }
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Connections at once that have not proved who they are.
const MOST_GREETINGS: usize = 256;

/// Sessions at once.
const MOST_SESSIONS: usize = 64;

/// Greatest path number; with 64 paths of 8 MiB each a peer can make us hold 512 MiB at most.
const LAST_PATH: u16 = 63;

/// How long a session without any connection is kept. A client that comes back later makes a new one and goes on from what is durable, so
/// this only saves it that; and a peer that comes and goes cannot fill [`MOST_SESSIONS`] for long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 1024;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a new session waits for an earlier one to let go of a file: a silent path is noticed after 1.5 s.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between attempts at it.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// How long sessions may take to make durable what they received.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
