//! The client: makes sessions and moves files over them.

mod carried;
mod establish;
mod feed;
mod jobs;
mod linker;
mod objects;
mod probes;
mod reader;
mod survey;
mod transfer;
mod trees;
mod tunnels;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, Name, SessionConfig,
    message::{CloseCode, PutOptions},
};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use self::{
    jobs::{Job, Numbers, PipeJob, TreeJob},
    linker::{MOST_STREAMS, SurveyRequest},
};
pub use self::{
    objects::{Entries, Entry, Kind, Stat},
    reader::ObjectReader,
    survey::{LinkReason, LinkRemedy, LinkSurvey, SurveyedLink, UnusedInterface},
    transfer::Transfer,
    writer::ObjectWriter,
};
use crate::{
    DEFAULT_PORT,
    bench::{Bench, BenchPlan},
    error::Error,
    event::Event,
    file::{BufferPool, IoPool},
    link::{Family, LinkRequest, RoutePolicy},
    path_routes::RouteKeeper,
    session::{Audience, Command, SessionHandle},
    tree::TreeOptions,
    trust::{Identity, Peers, PublicKey},
    tunnel::Trunk,
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
    /// Where a file of the name exists, send only the chunks of 256 KiB that differ from it; implies `replace` for that file.
    pub delta: bool,
    /// Write into the existing file rather than into a new one that takes its place; implies `delta`. What is interrupted leaves it mixed.
    pub in_place: bool,
    /// Compress chunks with zstd where that pays.
    pub compress: bool,
    /// Do not fail when the source changes while it is read: what is sent is what was read, up to the size that it had at first.
    pub allow_changing: bool,
    /// Make the directories that lead to the name at the daemon, where they are missing.
    pub parents: bool,
}

impl From<CopyOptions> for PutOptions {
    fn from(options: CopyOptions) -> Self {
        let CopyOptions { replace, restart, preserve, verify, delta, in_place, parents, .. } = options;
        Self { replace, restart, preserve, verify, delta, in_place, trial: false, parents }
    }
}

/// Sets up a [`Client`].
///
/// Defaults: port 7747, every usable link, one connection a link and more over bonds, routes as [`RoutePolicy::Auto`], no limit, 10 minutes of patience
/// without any link. Identity and peers have to be given.
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    identity: Option<Identity>,
    peers: Peers,
    port: u16,
    links: Vec<LinkRequest>,
    excluded: Vec<String>,
    streams: Option<u8>,
    bandwidth: Option<BitRate>,
    patience: Duration,
    family: Option<Family>,
    routes: RoutePolicy,
    state_dir: Option<PathBuf>,
    route_keeper: Option<Arc<RouteKeeper>>,
    socket_buffer: Option<u64>,
}

impl ClientBuilder {
    /// Who we are.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().identity(nicstripe::trust::Identity::generate()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Whom we speak to.
    ///
    /// ```
    /// use nicstripe::trust::{Home, Peers};
    /// let peers = Peers::load(&Home::at("/etc/backup-tool").peers_file())?;
    /// let builder = nicstripe::Client::builder().peers(peers);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peers(mut self, peers: Peers) -> Self {
        self.peers = peers;
        self
    }

    /// The daemon's TCP port.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().port(7748);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Uses these links and no others; empty: those that are found. One that cannot be used is then an error.
    ///
    /// ```
    /// let links = vec!["eth1".parse()?, "10.0.1.1=10.0.1.2".parse()?];
    /// let builder = nicstripe::Client::builder().links(links);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn links(mut self, links: Vec<LinkRequest>) -> Self {
        self.links = links;
        self
    }

    /// Leaves out these interfaces, by name.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().exclude_links(vec!["wlan0".into()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exclude_links(mut self, names: Vec<String>) -> Self {
        self.excluded = names;
        self
    }

    /// Connections a link, 1 to 16. One is enough on a LAN, and the default but for bonds, whose members it takes more to use; more also help
    /// where loss meets a long round trip.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().streams(4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn streams(mut self, streams: u8) -> Self {
        self.streams = Some(streams.clamp(1, MOST_STREAMS));
        self
    }

    /// Gives the sockets send and receive buffers of so many bytes before they connect, instead of letting the kernel size them: a buffer that is
    /// set later does not count for the window that the connection begins with. The kernel cuts silently at its own limits. For measurements.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().socket_buffer(Some(4 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn socket_buffer(mut self, bytes: Option<u64>) -> Self {
        self.socket_buffer = bytes;
        self
    }

    /// Most bits per second over all links together.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().bandwidth(Some(nicstripe::BitRate(500_000_000)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bandwidth(mut self, limit: Option<BitRate>) -> Self {
        self.bandwidth = limit;
        self
    }

    /// How long a transfer waits while there is no link at all.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().patience(std::time::Duration::from_secs(60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// When host routes are installed.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().routes(nicstripe::RoutePolicy::Never);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn routes(mut self, policy: RoutePolicy) -> Self {
        self.routes = policy;
        self
    }

    /// Where host routes are recorded, so that the next start finds those of a process that was killed. Without it none are installed.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().state_dir("/var/lib/backup-tool".into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state_dir(mut self, dir: PathBuf) -> Self {
        self.state_dir = Some(dir);
        self
    }

    /// Uses this keeper's helper and policy for host routes, which a program has [started apart](RouteKeeper::start_apart); then
    /// [`routes`](Self::routes) does not count.
    ///
    /// ```no_run
    /// use nicstripe::{RoutePolicy, routes::RouteKeeper};
    /// // In `main`, before there is a second thread.
    /// let keeper = RouteKeeper::start_apart(RoutePolicy::Auto, "/var/lib/backup-tool".as_ref());
    /// let builder = nicstripe::Client::builder().route_keeper(keeper.into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn route_keeper(mut self, keeper: Arc<RouteKeeper>) -> Self {
        self.route_keeper = Some(keeper);
        self
    }

    /// A keeper for one session; `None` without a state directory.
    fn session_routes(&self) -> Option<RouteKeeper> {
        match (&self.route_keeper, &self.state_dir) {
            (Some(keeper), _) => Some(keeper.another()),
            (None, Some(state_dir)) => Some(RouteKeeper::start(self.routes, state_dir)),
            (None, None) => None,
        }
    }

    /// Restricts the IP version.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().family(Some(nicstripe::Family::V6));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn family(mut self, family: Option<Family>) -> Self {
        self.family = family;
        self
    }

    /// Connects to a host by name or address.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Client, trust::{Home, Identity, Peers}};
    ///
    /// let home = Home::from_env()?;
    /// let client = Client::builder()
    ///     .identity(Identity::load_or_create(&home.identity_file())?)
    ///     .peers(Peers::load(&home.peers_file())?)
    ///     .connect("backup.lan")
    ///     .await?;
    /// let (key, name) = client.peer().await?;
    /// println!("connected to {}, {}", name.unwrap_or_default(), key.fingerprint());
    /// # Ok(())
    /// # }
    /// ```
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
            numbers: Mutex::default(),
            places: Semaphore::new(MOST_TRANSFERS),
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

/// Transfers of one client that run side by side; others wait for their turn. Each has files open at both ends.
pub const MOST_TRANSFERS: usize = 64;

/// A daemon that files are moved to and from. Cheap to clone; clones share one session.
///
/// Transfers run side by side, up to [`MOST_TRANSFERS`] of them, each with its own events, numbers and end: one that fails or is cancelled
/// takes no other along. Their chunks take turns, so that a small one does not wait for a large one. What happens to links is told to all.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl Client {
    /// Starts to set up a client.
    ///
    /// ```
    /// let builder = nicstripe::Client::builder().port(7748).streams(2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            identity: None,
            peers: Peers::default(),
            port: DEFAULT_PORT,
            links: Vec::new(),
            excluded: Vec::new(),
            streams: None,
            bandwidth: None,
            patience: SessionConfig::default().patience,
            family: None,
            routes: RoutePolicy::default(),
            state_dir: None,
            route_keeper: None,
            socket_buffer: None,
        }
    }

    /// Sends the file `source`. `name` is relative to the daemon's root; where that is a directory, or `None`, the file goes into it under its
    /// own name.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let options = CopyOptions { replace: true, preserve: true, ..CopyOptions::default() };
    /// let report = client.put("disk.img".as_ref(), Some(Name::parse(b"images/disk.img")?), options).finish().await?;
    /// println!("{} bytes at {}", report.size, report.goodput());
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(&self, source: &Path, name: Option<Name>, options: CopyOptions) -> Transfer {
        self.start(Job::Put { source: source.to_owned(), name, options, trial: false })
    }

    /// Sends a file as [`Client::put`] does, to a daemon that makes it durable and keeps nothing of it.
    pub(crate) fn try_put(&self, source: &Path, name: Option<Name>) -> Transfer {
        self.start(Job::Put { source: source.to_owned(), name, options: CopyOptions::default(), trial: true })
    }

    /// Fetches a file as [`Client::get`] does, makes it durable and keeps nothing of it.
    pub(crate) fn try_get(&self, name: Name, target: &Path) -> Transfer {
        self.start(Job::Get { name, target: target.to_owned(), options: CopyOptions::default(), trial: true })
    }

    /// Fetches the file `name` of the daemon's root. Where `target` is a directory, the file goes into it under its own name.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let name = Name::parse(b"images/disk.img")?;
    /// let report = client.get(name, "restored.img".as_ref(), CopyOptions::default()).finish().await?;
    /// println!("{} bytes", report.size);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, name: Name, target: &Path, options: CopyOptions) -> Transfer {
        self.start(Job::Get { name, target: target.to_owned(), options, trial: false })
    }

    /// Sends files and trees. `name` is a directory relative to the daemon's root, or `None` for the root itself: each source goes into it
    /// under its own name, or, where the source's path ends in a slash, what is in it. With `as_name` and one source the source gets `name`
    /// itself, unless that is a directory.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Name, TreeOptions};
    /// let options = TreeOptions { recursive: true, ..TreeOptions::default() };
    /// let report = client.put_tree(vec!["photos".into()], Some(Name::parse(b"2026")?), false, options).finish().await?;
    /// let tree = report.tree.unwrap_or_default();
    /// println!("{} files, {} were there, {} failed", tree.files, tree.unchanged, tree.failed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_tree(&self, sources: Vec<PathBuf>, name: Option<Name>, as_name: bool, options: TreeOptions) -> Transfer {
        self.start(Job::Tree(TreeJob::Put { sources, name, as_name }, options))
    }

    /// Fetches files and trees into the directory `target`, as [`Client::put_tree`] sends them. Of each source the second part says that what
    /// is in it is meant, not itself; a source without a name is the daemon's root, whose content is meant.
    ///
    /// Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{Name, TreeOptions};
    /// let options = TreeOptions { recursive: true, ..TreeOptions::default() };
    /// let sources = vec![(Some(Name::parse(b"2026/photos")?), false)];
    /// client.get_tree(sources, "restored".as_ref(), false, options).finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_tree(&self, sources: Vec<(Option<Name>, bool)>, target: &Path, as_name: bool, options: TreeOptions) -> Transfer {
        self.start(Job::Tree(TreeJob::Get { sources, target: target.to_owned(), as_name }, options))
    }

    /// Sends what a reader gives until its end, as the file `name` of the daemon's root.
    ///
    /// Nothing appears under the name before the end. A reader that fails ends the transfer, and nothing is left. Has to be called within a
    /// tokio runtime; the reader is read on a thread of its own.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let mut dump = std::process::Command::new("pg_dump").stdout(std::process::Stdio::piped()).spawn()?;
    /// let output = dump.stdout.take().ok_or("no output")?;
    /// client.put_pipe(output, Name::parse(b"db.sql")?, CopyOptions::default()).finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_pipe(&self, reader: impl std::io::Read + Send + 'static, name: Name, options: CopyOptions) -> Transfer {
        self.start(Job::Pipe(Some(PipeJob::Put { reader: Box::new(reader), name }).into(), options))
    }

    /// Fetches the file `name` of the daemon's root into a writer, in order. What is written is at most [`PIPE_WINDOW`] bytes behind what has
    /// arrived: a writer that is slow holds back the sender and no link. Has to be called within a tokio runtime; the writer is written to on a
    /// thread of its own.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Name};
    /// let file = std::fs::File::create("db.sql")?;
    /// client.get_pipe(Name::parse(b"db.sql")?, file, CopyOptions::default()).finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_pipe(&self, name: Name, writer: impl std::io::Write + Send + 'static, options: CopyOptions) -> Transfer {
        self.start(Job::Pipe(Some(PipeJob::Get { name, writer: Box::new(writer) }).into(), options))
    }

    /// The daemon's key, and its name in the peers file.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let (key, name) = client.peer().await?;
    /// println!("{} is {}", name.unwrap_or_default(), key.fingerprint());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn peer(&self) -> Result<(PublicKey, Option<String>), Error> {
        let key = self.inner.session(None).await?.key;
        Ok((key, self.inner.name_of(&key)))
    }

    /// Returns the links of the session, and why other interfaces are none. Links that still connect are waited for, at most 2 s.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// for link in client.links().await?.links {
    ///     println!("{link:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The daemon cannot be reached any more.
    pub async fn links(&self) -> Result<LinkSurvey, Error> {
        let session = self.inner.session(None).await?;
        let gone = || Error::Ended { host: self.inner.host.clone(), why: "before its links were known".into() };
        let deadline = Instant::now() + SURVEY_TIMEOUT;
        loop {
            let survey = session.survey().await.ok_or_else(gone)?;
            if survey.is_settled() || Instant::now() >= deadline {
                return Ok(survey);
            }
            tokio::time::sleep(SURVEY_PAUSE).await;
        }
    }

    /// Measures what the links carry, as `plan` says.
    ///
    /// The daemon benches with one at a time, and not beside copies: it may have to be waited for. Has to be called within a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let report = client.bench(nicstripe::BenchPlan::default()).finish().await?;
    /// println!("{}", report.summary.sentence);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bench(&self, plan: BenchPlan) -> Bench {
        Bench::start(self.clone(), plan)
    }

    /// The way to the session, which lasts as long as the client.
    pub(crate) async fn session_handle(&self) -> Result<SessionHandle, Error> {
        Ok(self.inner.session(None).await?.handle)
    }

    /// What the daemon was called.
    pub(crate) fn host(&self) -> &str {
        &self.inner.host
    }

    /// Connects once more, with so many connections a link where that is said, and with these socket buffers.
    pub(crate) async fn another(&self, streams: Option<u8>, socket_buffer: Option<u64>) -> Result<Self, Error> {
        let mut settings = self.inner.settings.clone();
        settings.socket_buffer = socket_buffer;
        settings.streams = streams.map(|streams| streams.clamp(1, MOST_STREAMS)).or(settings.streams);
        settings.identity = Some(self.inner.identity.clone());
        settings.connect(&self.inner.host).await
    }

    /// What changes MTUs for a measurement; `None` without a state directory.
    pub(crate) fn keeper(&self) -> Option<RouteKeeper> {
        self.inner.settings.session_routes()
    }

    /// Ends the session in order. Transfers that run are interrupted and can be resumed.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// client.put("disk.img".as_ref(), None, nicstripe::CopyOptions::default()).finish().await?;
    /// client.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(self) {
        let session = self.inner.session.lock().await.take();
        if let Some(session) = session {
            session.flush_tunnels().await;
            session.handle.command(Command::Close(CloseCode::Done)).await;
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.handle.ended.cancelled()).await;
        }
    }

    fn start(&self, job: Job) -> Transfer {
        Transfer::start(self.inner.clone(), job)
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
    numbers: Mutex<Numbers>,
    /// Places of transfers that run side by side.
    places: Semaphore,
    session: Mutex<Option<LiveSession>>,
}

#[derive(Debug, Clone)]
struct LiveSession {
    handle: SessionHandle,
    key: PublicKey,
    /// Who is told what happens to its links: the transfers that run.
    audience: Audience,
    /// Its host routes; they are removed with the last handle of the session.
    routes: Option<Arc<RouteKeeper>>,
    /// Where its linker takes questions.
    survey: mpsc::Sender<SurveyRequest>,
    /// What its tunnels go through, once there is one.
    trunk: Arc<Mutex<Option<Arc<Trunk>>>>,
}

impl Inner {
    /// Returns the session, made anew where there is none or it has ended.
    async fn session(&self, events: Option<&mpsc::Sender<Event>>) -> Result<LiveSession, Error> {
        let mut slot = self.session.lock().await;
        if let Some(session) = slot.as_ref().filter(|session| !session.handle.ended.is_cancelled()) {
            events.into_iter().for_each(|events| session.audience.join(events));
            return Ok(session.clone());
        }
        let session = self.establish(events).await?;
        *slot = Some(session.clone());
        Ok(session)
    }

    /// The name of a key in the peers file.
    fn name_of(&self, key: &PublicKey) -> Option<String> {
        self.peers.find(key).and_then(|peer| peer.name.as_ref().map(|name| name.as_str().to_owned()))
    }

    /// Ends a session that does not do as it is told. The next transfer gets another.
    async fn forget(&self, session: &LiveSession) {
        session.handle.command(Command::Close(CloseCode::Cancelled)).await;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.handle.ended.cancelled()).await;
        self.session.lock().await.take_if(|current| current.handle.inputs.same_channel(&session.handle.inputs));
    }
}

impl LiveSession {
    /// Returns what is known of the links; nothing where the session has ended.
    async fn survey(&self) -> Option<LinkSurvey> {
        let (request, answer) = oneshot::channel();
        self.survey.send(request).await.ok()?;
        answer.await.ok()
    }
}

/// How long an ended session may take to make durable what was written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long links may take to connect before they are told as they are.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between two looks at them.
const SURVEY_PAUSE: Duration = Duration::from_millis(20);

/// Most bytes that have arrived for the writer of [`Client::get_pipe`] and are not written yet: 16 MiB, 10 Gbit/s for 13 ms.
pub const PIPE_WINDOW: u64 = 16 << 20;
