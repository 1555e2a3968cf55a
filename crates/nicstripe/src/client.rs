//! The client: makes sessions and moves files over them.

use std::{
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use nicstripe_link::{Change, Changes, Interface, interfaces, route_to};
use nicstripe_proto::{
    BitRate, Name, PathId, Role, SessionConfig, TransferId,
    message::{CloseCode, Get, Put, PutOptions},
};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub(crate) use crate::connect::Connector;
use crate::{
    DEFAULT_PORT,
    connect::{FirstContact, arrived_rightly},
    error::Error,
    event::Event,
    file::{BufferPool, IoPool, Source},
    link::{Family, LinkRequest, RoutePolicy},
    path_routes::SessionRoutes,
    plan::{Facts, described, direct, local_interface, socket_address},
    report::{Limit, Report, limit},
    session::{Access, Capacity, Command, Driver, DriverConfig, Input, LocalTarget, Outcome, PathPlan, SessionHandle, Tally, offer_of},
    trust::{Identity, Peers, PublicKey},
};

/// How a file is copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Replace a file of that name; otherwise it is an error that there is one.
    pub replace: bool,
    /// Start from nothing although a partial file is there.
    pub restart: bool,
    /// Keep mode and modification time.
    pub preserve: bool,
    /// Read back what was written, from the disk, and compare before the file gets its name.
    pub verify: bool,
}

impl From<CopyOptions> for PutOptions {
    fn from(options: CopyOptions) -> Self {
        let CopyOptions { replace, restart, preserve, verify } = options;
        Self { replace, restart, preserve, verify }
    }
}

/// Sets up a [`Client`].
///
/// Defaults: port 7747, every usable link, one connection a link, routes as [`RoutePolicy::Auto`], no limit, 10 minutes of patience
/// without any link. Identity and peers have to be given.
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    identity: Option<Identity>,
    peers: Peers,
    port: u16,
    links: Vec<LinkRequest>,
    excluded: Vec<String>,
    streams: u8,
    bandwidth: Option<BitRate>,
    patience: Duration,
    family: Option<Family>,
    routes: RoutePolicy,
    state_dir: Option<PathBuf>,
}

impl ClientBuilder {
    /// Who we are.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Whom we speak to.
    pub fn peers(mut self, peers: Peers) -> Self {
        self.peers = peers;
        self
    }

    /// The daemon's TCP port.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Uses these links and no others; empty: those that are found. One that cannot be used is then an error.
    pub fn links(mut self, links: Vec<LinkRequest>) -> Self {
        self.links = links;
        self
    }

    /// Leaves out these interfaces, by name.
    pub fn exclude_links(mut self, names: Vec<String>) -> Self {
        self.excluded = names;
        self
    }

    /// Connections a link, 1 to 16. One is enough on a LAN; more help where loss meets a long round trip.
    pub fn streams(mut self, streams: u8) -> Self {
        self.streams = streams.clamp(1, MOST_STREAMS);
        self
    }

    /// Most bits per second over all links together.
    pub fn bandwidth(mut self, limit: Option<BitRate>) -> Self {
        self.bandwidth = limit;
        self
    }

    /// How long a transfer waits while there is no link at all.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// When host routes are installed.
    pub fn routes(mut self, policy: RoutePolicy) -> Self {
        self.routes = policy;
        self
    }

    /// Where host routes are recorded, so that the next start finds those of a process that was killed. Without it none are installed.
    pub fn state_dir(mut self, dir: PathBuf) -> Self {
        self.state_dir = Some(dir);
        self
    }

    /// Restricts the IP version.
    pub fn family(mut self, family: Option<Family>) -> Self {
        self.family = family;
        self
    }

    /// Connects to a host by name or address.
    ///
    /// # Errors
    ///
    /// As [`Error`] lists them; nothing is left behind.
    pub async fn connect(self, host: &str) -> Result<Client, Error> {
        let system = |source| Error::System { what: "start threads", source };
        let identity = match &self.identity {
            Some(identity) => identity.clone(),
            None => Identity::generate().map_err(|error| Error::System { what: "make a key", source: std::io::Error::other(error) })?,
        };
        let inner = Inner {
            peers: Arc::new(self.peers.clone()),
            pool: IoPool::start().map_err(system)?,
            buffers: BufferPool::default(),
            next_transfer: AtomicU32::new(1),
            session: Mutex::new(None),
            host: host.to_owned(),
            settings: self,
            identity,
        };
        let client = Client { inner: Arc::new(inner) };
        client.inner.session(None).await?;
        Ok(client)
    }
}

/// A daemon that files are moved to and from. Cheap to clone; clones share one session.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl Client {
    /// Starts to set up a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            identity: None,
            peers: Peers::default(),
            port: DEFAULT_PORT,
            links: Vec::new(),
            excluded: Vec::new(),
            streams: 1,
            bandwidth: None,
            patience: SessionConfig::default().patience,
            family: None,
            routes: RoutePolicy::default(),
            state_dir: None,
        }
    }

    /// Sends the file `source`. `name` is relative to the daemon's root; where that is a directory, or `None`, the file goes into it under its
    /// own name.
    ///
    /// Has to be called within a tokio runtime.
    pub fn put(&self, source: &Path, name: Option<Name>, options: CopyOptions) -> Transfer {
        self.start(Job::Put { source: source.to_owned(), name }, options)
    }

    /// Fetches the file `name` of the daemon's root. Where `target` is a directory, the file goes into it under its own name.
    ///
    /// Has to be called within a tokio runtime.
    pub fn get(&self, name: Name, target: &Path, options: CopyOptions) -> Transfer {
        self.start(Job::Get { name, target: target.to_owned() }, options)
    }

    /// Ends the session in order. Transfers that run are interrupted and can be resumed.
    pub async fn close(self) {
        let session = self.inner.session.lock().await.take();
        if let Some(session) = session {
            session.handle.command(Command::Close(CloseCode::Done)).await;
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.handle.ended.cancelled()).await;
        }
    }

    fn start(&self, job: Job, options: CopyOptions) -> Transfer {
        let (events, receiver) = mpsc::channel(EVENTS);
        let cancel = CancellationToken::new();
        let run = Run { inner: self.inner.clone(), job, options, events, cancel: cancel.clone(), started: Instant::now() };
        Transfer { events: receiver, cancel, task: tokio::spawn(run.run()) }
    }
}

/// A transfer that runs. Dropping it interrupts it; it can be resumed.
#[derive(Debug)]
pub struct Transfer {
    events: mpsc::Receiver<Event>,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<Result<Report, Error>>,
}

impl Transfer {
    /// Returns the next event, or `None` when the transfer has ended. Cancel safe.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Interrupts it: what was written becomes durable, so that a rerun goes on from there.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// A handle that interrupts it, for another task.
    pub fn cancel_token(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Waits for its end: `Ok` means that the whole file is durable at the receiver under its name.
    pub async fn finish(mut self) -> Result<Report, Error> {
        self.events.close();
        match (&mut self.task).await {
            Ok(result) => result,
            Err(error) => Err(Error::System { what: "run the transfer", source: std::io::Error::other(error) }),
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// What a client is made of.
#[derive(Debug)]
struct Inner {
    identity: Identity,
    peers: Arc<Peers>,
    settings: ClientBuilder,
    host: String,
    pool: IoPool,
    buffers: BufferPool,
    next_transfer: AtomicU32,
    session: Mutex<Option<LiveSession>>,
}

#[derive(Debug, Clone)]
struct LiveSession {
    handle: SessionHandle,
    key: PublicKey,
    /// Set to where events of the transfer that runs go.
    events: EventSlot,
    /// Removed with the last handle of the session.
    routes: Option<Arc<SessionRoutes>>,
}

/// Where a session's events go: to the transfer that runs.
pub(crate) type EventSlot = Arc<std::sync::Mutex<Option<mpsc::Sender<Event>>>>;

impl Inner {
    /// Returns the session, made anew where there is none or it has ended.
    async fn session(&self, events: Option<&mpsc::Sender<Event>>) -> Result<LiveSession, Error> {
        let mut slot = self.session.lock().await;
        if let Some(session) = slot.as_ref().filter(|session| !session.handle.ended.is_cancelled()) {
            session.route_events(events);
            return Ok(session.clone());
        }
        let session = self.establish().await?;
        session.route_events(events);
        *slot = Some(session.clone());
        Ok(session)
    }

    async fn forget(&self, session: &LiveSession) {
        session.handle.command(Command::Close(CloseCode::Cancelled)).await;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.handle.ended.cancelled()).await;
        *self.session.lock().await = None;
    }

    async fn establish(&self) -> Result<LiveSession, Error> {
        let here = interfaces().map_err(|error| Error::System { what: "list the interfaces", source: std::io::Error::other(error) })?;
        let local = described(&here, &self.settings.excluded);
        let connector = Arc::new(Connector::new(&self.identity, &self.peers, &self.host));

        let (mut first, contact) = self.first_contact(&connector, &here, &local).await?;
        let FirstContact { mut established, remote_interfaces, key, arrival } = contact;
        let facts = Facts { local: &local, remote: &remote_interfaces, port: self.settings.port, family: self.settings.family };
        facts.complete(&mut first);
        let rest = self.plan_rest(&facts, &here, &mut first)?;
        established.verified = arrived_rightly(first.peer_interface.as_deref(), arrival.as_deref());

        let routes = self.install_routes(&first, &rest, &here)?;
        let events = EventSlot::default();
        let session = SessionConfig { patience: self.settings.patience, rate_limit: self.settings.bandwidth, ..SessionConfig::default() };
        let handle = Driver::start(DriverConfig {
            role: Role::Client,
            access: Access::Client,
            host: self.host.clone(),
            session,
            pool: self.pool.clone(),
            buffers: self.buffers.clone(),
            connector: Some(connector),
            events: events.clone(),
        });
        let one = Input::Connected { path: FIRST_PATH, plan: Some(first.clone()), established: Box::new(established) };
        let _ = handle.inputs.send(one).await;
        handle.command(Command::AddPaths(self.numbered(&first, rest))).await;
        watch_carriers(handle.clone(), &here);
        Ok(LiveSession { handle, key, events, routes })
    }

    /// Connects for the first time, over the first link that is named with both ends, else however the kernel would go.
    async fn first_contact(
        &self,
        connector: &Connector,
        here: &[Interface],
        local: &[nicstripe_proto::message::PeerInterface],
    ) -> Result<(PathPlan, FirstContact), Error> {
        let mut plans = Vec::new();
        if let Some(request) = self.settings.links.first() {
            plans.extend(direct(request, here, self.settings.port)?);
        }
        for request in &self.settings.links {
            local_interface(request, here)?;
        }
        if plans.is_empty() {
            let contact_only = !self.settings.links.is_empty();
            for address in self.resolve().await? {
                plans.push(contact_plan(address, here, contact_only)?);
            }
        }
        let mut failure = None;
        for plan in plans {
            match connector.first(FIRST_PATH, &plan, local.to_vec()).await {
                Ok(contact) => return Ok((plan, contact)),
                // Somebody is there: another address would not change what it said.
                Err(error @ (Error::Untrusted { .. } | Error::UntrustedPeer { .. } | Error::Refused { .. })) => return Err(error),
                Err(error) if plan.named => {
                    return Err(Error::Link { link: plan.interface.clone(), why: crate::chain(&error) });
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| Error::Resolve { host: self.host.clone(), source: std::io::ErrorKind::NotFound.into() }))
    }

    /// Plans the paths beside the first; may find that the first was only good to meet the peer.
    fn plan_rest(&self, facts: &Facts<'_>, here: &[Interface], first: &mut PathPlan) -> Result<Vec<PathPlan>, Error> {
        if !self.settings.links.is_empty() {
            let mut plans = Vec::new();
            let skip = usize::from(first.named);
            first.cap = if first.named { self.settings.links[0].cap } else { None };
            for request in self.settings.links.iter().skip(skip) {
                match direct(request, here, facts.port)? {
                    Some(mut plan) => {
                        facts.complete(&mut plan);
                        plans.push(plan);
                    }
                    None => plans.extend(facts.named(std::slice::from_ref(request))?),
                }
            }
            return Ok(plans);
        }
        let is_candidate = facts.local.iter().any(|interface| interface.name == first.interface && interface.candidate);
        if !is_candidate {
            let others = facts.paths(&PathPlan { contact_only: true, ..first.clone() });
            first.contact_only = !others.is_empty();
            return Ok(others);
        }
        Ok(facts.paths(first))
    }

    fn install_routes(&self, first: &PathPlan, rest: &[PathPlan], here: &[Interface]) -> Result<Option<Arc<SessionRoutes>>, Error> {
        let Some(state_dir) = self.settings.state_dir.as_ref().filter(|_| self.settings.routes == RoutePolicy::Always) else {
            return Ok(None);
        };
        let plans: Vec<&PathPlan> = std::iter::once(first).filter(|first| !first.contact_only).chain(rest).collect();
        Ok(Some(Arc::new(SessionRoutes::install(state_dir, &plans, here)?)))
    }

    /// Gives each connection of each link a path number.
    fn numbered(&self, first: &PathPlan, rest: Vec<PathPlan>) -> Vec<(PathId, PathPlan)> {
        let streams = usize::from(self.settings.streams);
        let more_of_first = if first.contact_only { 0 } else { streams - 1 };
        let more_of_first = std::iter::repeat_n(first.clone(), more_of_first);
        let plans = more_of_first.chain(rest.into_iter().flat_map(|plan| std::iter::repeat_n(plan, streams)));
        plans.take(MOST_PATHS).enumerate().map(|(index, plan)| (PathId(index as u16 + 1), plan)).collect()
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let (host, port) = (&self.host, self.settings.port);
        let error = |source| Error::Resolve { host: host.clone(), source };
        if let Some((address, zone)) = host.split_once('%')
            && let Ok(ip) = address.parse::<IpAddr>()
        {
            let here = interfaces().map_err(|cause| error(std::io::Error::other(cause)))?;
            let interface = here.iter().find(|interface| interface.is_called(zone) || interface.index.0.to_string() == zone);
            let interface = interface.ok_or_else(|| error(std::io::Error::other(format!("there is no interface {zone} here"))))?;
            return Ok(vec![socket_address(ip, port, interface.index.0)]);
        }
        let found = tokio::net::lookup_host((host.as_str(), port)).await.map_err(error)?;
        let wanted = |address: &SocketAddr| self.settings.family.is_none_or(|family| family.has(address.ip()));
        let addresses: Vec<SocketAddr> = found.filter(wanted).collect();
        if addresses.is_empty() {
            return Err(error(std::io::Error::other("it has no address of the wanted IP version")));
        }
        Ok(addresses)
    }
}

impl LiveSession {
    fn route_events(&self, events: Option<&mpsc::Sender<Event>>) {
        *self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = events.cloned();
    }
}

/// Plans the first contact: pinned to the interface that the kernel would take.
fn contact_plan(remote: SocketAddr, here: &[Interface], contact_only: bool) -> Result<PathPlan, Error> {
    let scope = match remote {
        SocketAddr::V6(remote) if remote.scope_id() != 0 => Some(remote.scope_id()),
        _ => None,
    };
    let index = match scope {
        Some(index) => index,
        None => route_to(remote.ip()).map_err(|source| Error::Connect { address: remote, source })?.interface.0,
    };
    let interface = here.iter().find(|interface| interface.index.0 == index);
    let no_interface = || Error::Connect { address: remote, source: std::io::ErrorKind::NetworkUnreachable.into() };
    Ok(PathPlan {
        interface: interface.ok_or_else(no_interface)?.name.to_string(),
        local: None,
        remote,
        peer_interface: None,
        capacity: Capacity::default(),
        cap: None,
        named: false,
        contact_only,
    })
}

/// Tells the session when one of the interfaces loses or gets its carrier, as long as the session lives.
fn watch_carriers(handle: SessionHandle, here: &[Interface]) {
    let names: Vec<(u32, String)> = here.iter().map(|interface| (interface.index.0, interface.name.to_string())).collect();
    tokio::spawn(async move {
        let Ok(mut changes) = Changes::open() else { return };
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                () = handle.ended.cancelled() => return,
            };
            let Ok(change) = change else { return };
            let Change::Carrier { index, up, .. } = change else { continue };
            let Some((_, interface)) = names.iter().find(|(known, _)| *known == index.0) else { continue };
            if handle.inputs.send(Input::Carrier { interface: interface.clone(), up }).await.is_err() {
                return;
            }
        }
    });
}

/// What a transfer does.
#[derive(Debug, Clone)]
enum Job {
    Put { source: PathBuf, name: Option<Name> },
    Get { name: Name, target: PathBuf },
}

/// A transfer at work: attempts until it is done, or cannot be done.
struct Run {
    inner: Arc<Inner>,
    job: Job,
    options: CopyOptions,
    events: mpsc::Sender<Event>,
    cancel: CancellationToken,
    started: Instant,
}

impl Run {
    async fn run(mut self) -> Result<Report, Error> {
        let result = self.attempts().await;
        // The session outlives the transfer; its events do not, so that their reader sees the end.
        if let Some(session) = &*self.inner.session.lock().await {
            session.route_events(None);
        }
        result
    }

    async fn attempts(&mut self) -> Result<Report, Error> {
        let mut lost_since: Option<Instant> = None;
        let mut begun = false;
        let mut restarted = false;
        loop {
            match self.attempt(&mut begun).await {
                Ok(report) => return Ok(report),
                Err(Error::Digest { .. }) if !restarted => restarted = true,
                Err(Error::Peer { code: nicstripe_proto::FailCode::Digest, .. }) if !restarted => restarted = true,
                // The daemon went away in the middle: perhaps it comes back, and what is durable is still there.
                Err(error) if begun && self.may_wait(&error, &mut lost_since) => {
                    let since = lost_since.map_or(Duration::ZERO, |since| since.elapsed());
                    let _ = self.events.try_send(Event::Waiting { since });
                    tokio::select! {
                        () = tokio::time::sleep(RECONNECT_PAUSE) => continue,
                        () = self.cancel.cancelled() => return Err(Error::Cancelled { resumable: true }),
                    }
                }
                Err(error) => return Err(error),
            }
            self.options.restart = true;
            let _ = self.events.try_send(Event::Restarted);
        }
    }

    fn may_wait(&self, error: &Error, lost_since: &mut Option<Instant>) -> bool {
        match error {
            // A session that ended had been there: the clock of patience starts anew.
            Error::Ended { .. } => {
                *lost_since = Some(Instant::now());
                true
            }
            Error::Connect { .. } | Error::Refused { .. } => {
                lost_since.get_or_insert_with(Instant::now).elapsed() < self.inner.settings.patience
            }
            _ => false,
        }
    }

    async fn attempt(&self, begun: &mut bool) -> Result<Report, Error> {
        let session = tokio::select! {
            session = self.inner.session(Some(&self.events)) => session?,
            () = self.cancel.cancelled() => return Err(Error::Cancelled { resumable: *begun }),
        };
        let name = self.inner.peers.find(&session.key).and_then(|peer| peer.name.as_ref().map(|name| name.as_str().to_owned()));
        let _ = self.events.try_send(Event::Connected { key: session.key, name });
        let (reply, mut answer) = oneshot::channel();
        let command = self.command(&session, reply).await?;
        if !session.handle.command(command).await {
            return Err(Error::Ended { host: self.inner.host.clone(), why: "before the transfer began".into() });
        }
        *begun = true;
        let result = tokio::select! {
            result = &mut answer => result,
            () = self.cancel.cancelled() => {
                self.inner.forget(&session).await;
                return Err(Error::Cancelled { resumable: true });
            }
        };
        let ended = || Error::Ended { host: self.inner.host.clone(), why: "without an answer".into() };
        match result.unwrap_or_else(|_| Err(ended())) {
            Ok((outcome, tally)) => {
                // The session lives on; whoever reads this transfer's events waits for the last sender to go.
                session.route_events(None);
                let routes = session.routes.as_ref().map_or(0, |routes| routes.count());
                Ok(self.report(&outcome, tally, routes))
            }
            Err(error) => {
                self.inner.forget(&session).await;
                Err(error)
            }
        }
    }

    /// Opens what has to be open before the peer is asked.
    async fn command(&self, session: &LiveSession, reply: crate::session::Reply) -> Result<Command, Error> {
        let transfer = TransferId(self.inner.next_transfer.fetch_add(1, Ordering::Relaxed));
        match self.job.clone() {
            Job::Put { source: path, name } => {
                let own_name = Name::new(path.file_name().map(|name| name.as_bytes().to_vec()))?;
                let opened = self.inner.pool.call(move || Source::open(&path)).await;
                let source = Arc::new(opened.ok_or_else(io_threads_gone)??);
                let put = Put {
                    into: name.is_some().then(|| own_name.clone()),
                    name: name.unwrap_or(own_name),
                    offer: offer_of(transfer, &source),
                    options: self.options.into(),
                };
                Ok(Command::Put { source, put: Box::new(put), reply })
            }
            Job::Get { name, target } => {
                let path = if target.is_dir() { target.join(std::ffi::OsStr::from_bytes(name.file_name())) } else { target };
                let target = LocalTarget { path, options: self.options.into(), peer_key: *session.key.as_bytes() };
                let limit_bps = self.inner.settings.bandwidth.map(|BitRate(bps)| bps);
                Ok(Command::Get { get: Box::new(Get { transfer, name, limit_bps }), target, reply })
            }
        }
    }

    fn report(&self, outcome: &Outcome, tally: Tally, routes_installed: u32) -> Report {
        let elapsed = self.started.elapsed();
        let mut links = tally.links;
        for link in &mut links {
            link.goodput = BitRate::from_bytes_over(link.bytes, elapsed);
        }
        let all_known = !links.is_empty() && links.iter().all(|link| link.theory.is_some());
        let mut report = Report {
            size: outcome.size,
            digest: outcome.digest,
            elapsed,
            moving: tally.moving_since.map_or(Duration::ZERO, |since| since.elapsed()),
            resumed_bytes: tally.stats.resumed_bytes,
            resent_bytes: tally.stats.repeated_bytes,
            failovers: tally.failovers,
            routes_installed,
            expected: all_known.then(|| BitRate(links.iter().filter_map(|link| link.theory).map(|rate| rate.0).sum())),
            limited_by: Limit::Unknown,
            links,
        };
        report.limited_by = limit(&report);
        report
    }
}

fn io_threads_gone() -> Error {
    Error::System { what: "open a file", source: std::io::Error::other("the I/O threads have ended") }
}

/// Path number of a session's first connection.
const FIRST_PATH: PathId = PathId(0);

/// Most connections a link.
const MOST_STREAMS: u8 = 16;

/// Most paths of a session beside its first.
const MOST_PATHS: usize = 63;

/// Events that may wait for whoever shows them.
const EVENTS: usize = 1024;

/// How long an ended session may take to make durable what was written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between attempts to reach a daemon that went away.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
