//! Test harness: a client and a daemon, simulated links between them, and a virtual clock.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use nicstripe_proto::{
    BitRate, ChunkSize, Name, PathId, Session, SessionConfig, TransferId,
    message::{Get, PutOptions},
    path::{Arrival, PathPlan},
};
use nicstripe_sim::{End, LinkConfig, LinkId};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout},
};

use crate::{
    daemon::Daemon,
    file::{self, BufferPool, IoPool, ReadOptions, SimulatedDisk},
    report::{error::Error, metrics::Meters},
    session::{
        Audience, ChunkShares, Command, Driver, DriverConfig, Established, Input, Joining,
        LinkSteps, Outcome, Serve, SessionHandle, SharedProgress, Starter, Tally, Waiter,
        kind::{
            Kind, Upload,
            file::{FileSource, LocalFile, LocalTarget, Stored},
        },
    },
    trust::{Identity, Peers, PublicLine},
    wire::{
        clock,
        simulated::{Connection, News, SimulatedNetwork},
        stream::Greeted,
        tls::{ClientTls, ServerTls, Socket, TlsStream},
    },
};

/// Runs a test on a runtime with virtual time.
pub(super) fn in_virtual_time<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        // A task that yields then runs again when no other is ready.
        .event_interval(u32::MAX)
        .build()
        .unwrap();
    runtime.block_on(test)
}

/// Runs a test in virtual time for each direction.
pub(super) fn both_ways(test: impl AsyncFn(Direction)) {
    for direction in Direction::BOTH {
        in_virtual_time(test(direction));
    }
}

pub(super) const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) const fn mib(mib: u64) -> u64 {
    mib << 20
}

/// Keys of the client and of the daemon.
static KEYS: LazyLock<[Identity; 2]> =
    LazyLock::new(|| std::array::from_fn(|_| Identity::generate().unwrap()));

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which a client learns that a link has a carrier again.
const CARRIER_DETECTION: Duration = Duration::from_millis(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Put,
    Get,
}

impl Direction {
    pub(super) const BOTH: [Self; 2] = [Self::Put, Self::Get];

    pub(super) fn sender(self) -> End {
        if self == Self::Put { End::A } else { End::B }
    }
}

pub(super) struct Lab {
    pub(super) links: Links,
    /// Sessions of the client and of the daemon.
    pub(super) sessions: [SessionHandle; 2],
    /// Subscribers to the events of the client's session.
    pub(super) audience: Audience,
    pub(super) disks: [SimulatedDisk; 2],
    /// Chunk memory of the daemon.
    pub(super) shares: ChunkShares,
    /// Options of the next transfer.
    pub(super) options: PutOptions,
    /// Chunk size of the files that the client sends.
    pub(super) chunk_size: ChunkSize,
    /// True if a file may change while it is sent.
    pub(super) allow_changing: bool,
    /// Metrics of the daemon.
    pub(super) meters: Arc<Meters>,
    pub(super) folder: Arc<TempDir>,
    transfers: u32,
    seed: u64,
}

/// Simulated links of a [`Lab`], to which tests add faults.
#[derive(Clone)]
pub(super) struct Links {
    pub(super) network: SimulatedNetwork,
    ids: Vec<LinkId>,
    client: mpsc::Sender<Input>,
}

/// Copy that was started and may still run.
pub(super) struct Copy {
    pub(super) transfer: TransferId,
    pub(super) progress: SharedProgress,
    pub(super) ended: oneshot::Receiver<Result<(Outcome, Tally), Error>>,
}

impl Copy {
    /// Returns true if the copy has ended.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Waits for the end of the copy, for at most `limit`.
    pub(super) async fn end(self, limit: Duration) -> Result<(Outcome, Tally), Error> {
        timeout(limit, self.ended)
            .await
            .expect("the transfer does not end")
            .expect("the session ended without a word")
    }
}

impl Lab {
    /// Starts both sessions, connected by links with these rates in Mbit/s and a delay of 0.1 ms.
    pub(super) async fn new(seed: u64, rates: &[u64]) -> Self {
        Self::with(seed, rates, SessionConfig::default(), None).await
    }

    /// Like [`new`](Self::new), with a configuration of both sessions, and a rate limit of the
    /// client's first path.
    pub(super) async fn with(
        seed: u64,
        rates: &[u64],
        config: SessionConfig,
        cap: Option<BitRate>,
    ) -> Self {
        let links = rates.iter().map(|mbit| link(*mbit)).collect();
        let lab = Self::over(seed, links, config).await;
        lab.add_paths(cap).await;
        lab
    }

    /// Starts both sessions, connected by these links.
    pub(super) async fn over_paths(seed: u64, links: Vec<LinkConfig>) -> Self {
        let lab = Self::over(seed, links, SessionConfig::default()).await;
        lab.add_paths(None).await;
        lab
    }

    /// Like [`over_paths`](Self::over_paths), with this service of the daemon.
    pub(super) async fn serving(
        seed: u64,
        links: Vec<LinkConfig>,
        service: Arc<dyn Serve>,
    ) -> Self {
        let lab = Self::start(
            new_folder(),
            seed,
            links,
            SessionConfig::default(),
            Some(service),
        )
        .await;
        lab.add_paths(None).await;
        lab
    }

    /// Adds a path for each link to the client's session, with a rate limit of the first path.
    async fn add_paths(&self, cap: Option<BitRate>) {
        let paths = (0..self.links.count()).map(|index| {
            let cap = cap.filter(|_| index == 0);
            PathPlan { cap, ..plan(index) }
        });
        self.add(paths).await;
    }

    /// Adds these paths to the client's session.
    pub(super) async fn add(&self, plans: impl Iterator<Item = PathPlan>) {
        let plans: Vec<PathPlan> = plans.collect();
        let add = Command::Inspect(Box::new(|session: &mut Session| {
            for plan in plans {
                session.add_path(plan, clock::now()).unwrap();
            }
        }));
        self.command(add).await;
    }

    /// Starts both sessions with these links. The client has no paths yet.
    pub(super) async fn over(seed: u64, links: Vec<LinkConfig>, config: SessionConfig) -> Self {
        Self::on(new_folder(), seed, links, config).await
    }

    /// Like [`over`](Self::over), with the files that an earlier lab has left in `folder`.
    pub(super) async fn on(
        folder: Arc<TempDir>,
        seed: u64,
        links: Vec<LinkConfig>,
        config: SessionConfig,
    ) -> Self {
        Self::start(folder, seed, links, config, None).await
    }

    /// Starts both sessions. The daemon serves its folder if there is no `service`.
    async fn start(
        folder: Arc<TempDir>,
        seed: u64,
        links: Vec<LinkConfig>,
        config: SessionConfig,
        service: Option<Arc<dyn Serve>>,
    ) -> Self {
        let (network, news) = SimulatedNetwork::new(seed, SEGMENT);
        let ids: Vec<LinkId> = links
            .into_iter()
            .map(|link| network.add_link(link))
            .collect();
        let disks: [SimulatedDisk; 2] = Default::default();
        let connector = Connector {
            tls: client_tls(),
            network: network.clone(),
            links: ids.clone(),
        };
        let [client_pool, daemon_pool] = disks.each_ref().map(IoPool::simulated);
        let (own_service, meters) =
            daemon(&folder.path().join(FOLDERS[1]), daemon_pool.clone()).await;
        let end = |service, pool| DriverConfig {
            service,
            host: "peer".into(),
            session: config.clone(),
            pool,
            buffers: BufferPool::default(),
            packs: true,
            share: None,
            steps: None,
            audience: Audience::default(),
            events: None,
        };
        let audience = Audience::default();
        let shares = ChunkShares::default();
        let sessions = [
            Driver::start(DriverConfig {
                steps: Some(Arc::new(connector)),
                audience: audience.clone(),
                ..end(None, client_pool)
            }),
            Driver::start(DriverConfig {
                share: Some(shares.join(*KEYS[0].public_key().as_bytes())),
                ..end(Some(service.unwrap_or(own_service)), daemon_pool)
            }),
        ];
        tokio::spawn(network.clone().run());
        tokio::spawn(listen(news, sessions.clone()));
        Self {
            links: Links {
                network,
                ids,
                client: sessions[0].inputs.clone(),
            },
            sessions,
            audience,
            disks,
            shares,
            options: PutOptions::default(),
            chunk_size: ChunkSize::DEFAULT,
            allow_changing: false,
            meters,
            folder,
            transfers: 0,
            seed,
        }
    }

    pub(super) async fn command(&self, command: Command) {
        assert!(self.sessions[0].command(command).await, "the session ended");
    }

    /// Returns the virtual time since the start.
    pub(super) fn now(&self) -> Duration {
        self.links.network.now()
    }

    /// Schedules `action` for this virtual time since the start.
    pub(super) fn at(&self, at: Duration, action: impl FnOnce(&Links) + Send + 'static) {
        let links = self.links.clone();
        let wait = at.saturating_sub(self.now());
        tokio::spawn(async move {
            sleep(wait).await;
            action(&links);
        });
    }

    /// Returns the path of the copied file at this end.
    pub(super) fn file(&self, end: End) -> PathBuf {
        self.folder_of(end).join("file")
    }

    pub(super) fn folder_of(&self, end: End) -> PathBuf {
        self.folder.path().join(FOLDERS[end as usize])
    }

    /// Writes a file of `size` random bytes at this end.
    pub(super) fn write(&self, end: End, size: u64) {
        let mut bytes = vec![0; size as usize];
        blake3::Hasher::new()
            .update(&self.seed.to_le_bytes())
            .finalize_xof()
            .fill(&mut bytes);
        std::fs::write(self.file(end), bytes).unwrap();
    }

    /// Writes a file of `size` random bytes at the sender, and starts to copy it.
    pub(super) async fn copy(&mut self, direction: Direction, size: u64) -> Copy {
        self.write(direction.sender(), size);
        self.copy_again(direction).await
    }

    /// Copies a new file of `size` bytes within `limit`, and returns the client's statistics.
    pub(super) async fn deliver(
        &mut self,
        direction: Direction,
        size: u64,
        limit: Duration,
    ) -> Tally {
        let copy = self.copy(direction, size).await;
        let (_, tally) = copy.end(limit).await.unwrap();
        self.assert_delivered();
        tally
    }

    /// Starts to copy the existing file of the sender.
    pub(super) async fn copy_again(&mut self, direction: Direction) -> Copy {
        let kind: Box<dyn Kind> = match direction {
            Direction::Put => Box::new(self.source()),
            Direction::Get => Box::new(self.sink()),
        };
        self.begin(kind).await
    }

    /// Starts to send the data of a source to the daemon, or to fetch data from it into a sink.
    pub(super) async fn begin(&mut self, kind: Box<dyn Kind>) -> Copy {
        let (copy, waiter) = self.next_copy();
        let transfer = copy.transfer;
        self.command(Command::Start {
            transfer,
            kind,
            starter: Starter::Program(waiter),
        })
        .await;
        copy
    }

    /// Returns the identifier of the next transfer.
    pub(super) fn next_transfer(&self) -> TransferId {
        TransferId(self.transfers + 1)
    }

    fn next_copy(&mut self) -> (Copy, Waiter) {
        self.transfers += 1;
        let transfer = TransferId(self.transfers);
        let (reply, ended) = oneshot::channel();
        let progress = SharedProgress::default();
        let waiter = Waiter {
            reply,
            events: None,
            progress: progress.clone(),
            is_object: false,
        };
        let copy = Copy {
            transfer,
            progress,
            ended,
        };
        (copy, waiter)
    }

    fn source(&self) -> FileSource {
        let options = ReadOptions {
            allow_changing: self.allow_changing,
            ..ReadOptions::default()
        };
        let source = file::Source::open(&self.file(End::A), options)
            .unwrap()
            .in_chunks_of(self.chunk_size);
        FileSource::new(source, Some(Stored::Named(self.upload())))
    }

    fn sink(&self) -> LocalFile {
        let target = LocalTarget {
            path: self.file(End::A),
            options: self.options,
            peer_key: *KEYS[1].public_key().as_bytes(),
        };
        let download = Get {
            allow_changing: self.allow_changing,
            ..download()
        };
        LocalFile { download, target }
    }

    /// Returns the place of the file of this lab.
    pub(super) fn upload(&self) -> Upload {
        Upload {
            name: name(),
            into: None,
            options: self.options,
            attributes: None,
        }
    }

    /// Calls a function with the protocol's state at this end.
    pub(super) async fn inspect<T: Send + 'static>(
        &self,
        end: End,
        look: impl FnOnce(&Session) -> T + Send + 'static,
    ) -> T {
        let (reply, seen) = oneshot::channel();
        let look = Command::Inspect(Box::new(|session: &mut Session| {
            let _ = reply.send(look(session));
        }));
        assert!(self.sessions[end as usize].command(look).await);
        seen.await.expect("the session ended")
    }

    /// Returns the files of both ends that this process has open.
    pub(super) fn open_files(&self) -> Vec<PathBuf> {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .filter(|file| {
                let ours = file.strip_prefix(self.folder.path());
                ours.is_ok_and(|file| file.components().count() > 1)
            })
            .collect()
    }

    /// Asserts that both ends have equal files.
    pub(super) fn assert_equal(&self) {
        let [ours, served] = End::BOTH.map(|end| std::fs::read(self.file(end)).unwrap());
        assert!(ours == served, "another file arrived");
    }

    /// Asserts that both ends have equal files, and no other files.
    pub(super) fn assert_delivered(&self) {
        self.assert_equal();
        for end in End::BOTH {
            let names = std::fs::read_dir(self.folder_of(end)).unwrap();
            assert_eq!(names.count(), 1, "more than the file is left");
        }
    }
}

impl Links {
    pub(super) fn count(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn cut(&self, index: usize) {
        self.network.apply(|net| net.cut(self.ids[index]));
    }

    pub(super) fn silence(&self, index: usize, from: End) {
        self.network.apply(|net| net.silence(self.ids[index], from));
    }

    /// Ends the connection over a link at this end only. The other end believes that it is up.
    pub(super) fn reset(&self, index: usize, end: End) {
        self.network.reset(self.ids[index], end);
    }

    pub(super) fn set_rate(&self, index: usize, bits_per_second: u64) {
        self.network.apply(|net| {
            End::BOTH
                .into_iter()
                .for_each(|end| net.set_rate(self.ids[index], end, bits_per_second));
        });
    }

    /// Restores a link that was cut, and reports the carrier to the client.
    pub(super) fn heal(&self, index: usize) {
        self.heal_silently(index);
        let client = self.client.clone();
        tokio::spawn(async move {
            sleep(CARRIER_DETECTION).await;
            let (interface, up) = (interface(index), true);
            let _ = client.send(Input::Carrier { interface, up }).await;
        });
    }

    /// Restores a link that dropped data silently, without a carrier event.
    pub(super) fn heal_silently(&self, index: usize) {
        self.network.apply(|net| net.heal(self.ids[index]));
    }

    /// Returns the number of bytes from this end that the link has delivered.
    pub(super) fn delivered(&self, index: usize, from: End) -> u64 {
        let mut delivered = 0;
        self.network
            .apply(|net| delivered = net.traffic(self.ids[index], from).delivered_bytes);
        delivered
    }
}

/// Makes a folder for the files of both ends.
pub(super) fn new_folder() -> Arc<TempDir> {
    let folder = tempfile::tempdir_in(in_memory()).unwrap();
    for name in FOLDERS {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    Arc::new(folder)
}

/// Folders of the client and of the daemon.
const FOLDERS: [&str; 2] = ["ours", "served"];

fn name() -> Name {
    Name::new(["file"]).unwrap()
}

/// Returns what is requested of a lab's daemon.
pub(super) fn download() -> Get {
    Get {
        transfer: TransferId(0),
        name: name(),
        limit_bps: None,
        entry: None,
        compress: false,
        allow_changing: false,
        range: None,
    }
}

/// Returns a link of `mbit` Mbit/s with a delay of 0.1 ms.
pub(super) fn link(mbit: u64) -> LinkConfig {
    LinkConfig::new(mbit * 1_000_000, Duration::from_micros(100)).handshake_round_trips(1)
}

/// Returns the duration of a copy of `size` bytes at `mbit` Mbit/s.
pub(super) fn ideal(mbit: u64, size: u64) -> Duration {
    Duration::from_secs_f64(size as f64 * 8.0 / (mbit as f64 * 1e6))
}

/// Maximum number of bytes that the network delivers in one piece.
const SEGMENT: usize = 16 << 10;

/// Returns a directory in memory, or the temporary directory of the system if there is no
/// `/dev/shm`.
fn in_memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    }
}

fn interface(index: usize) -> String {
    format!("eth{index}")
}

/// Returns the plan of the path over the link with this index.
pub(in crate::session) fn plan(index: usize) -> PathPlan {
    let remote = SocketAddr::from(([10, 0, index as u8, 1], 7747));
    PathPlan::new(interface(index), remote)
}

/// Returns a client's established connection, and the daemon's stream of it.
pub(in crate::session) async fn pair() -> (Established, TlsStream) {
    let (network, mut news) = SimulatedNetwork::new(1, SEGMENT);
    let link = network.add_link(LinkConfig::new(1_000_000_000, Duration::ZERO));
    tokio::spawn(network.clone().run());
    let connection = network.connect(link, End::A).await.unwrap();
    let Some(News::Accepted(_, accepted)) = news.recv().await else {
        panic!("not accepted")
    };
    let deadline = clock::now() + CONNECT_TIMEOUT;
    let (ours, theirs) = (client_tls(), daemon_tls());
    let (client, daemon) = tokio::join!(
        TlsStream::connect(Socket::Simulated(connection), &ours, deadline),
        TlsStream::accept(
            Socket::Simulated(accepted),
            &theirs,
            deadline,
            std::future::ready(())
        ),
    );
    (established(client.unwrap()), daemon.unwrap())
}

fn client_tls() -> ClientTls {
    ClientTls::new(&KEYS[0], Arc::new(|key| *key == KEYS[1].public_key()))
}

fn daemon_tls() -> ServerTls {
    ServerTls::new(&KEYS[1], Arc::new(|key| *key == KEYS[0].public_key()))
}

/// Returns the service of a daemon that serves `root` for the client, and the daemon's metrics.
async fn daemon(root: &Path, pool: IoPool) -> (Arc<dyn Serve>, Arc<Meters>) {
    let mut peers = Peers::default();
    let client = KEYS[0].public_key();
    peers
        .add(&PublicLine::new(client, "client"), Some("client"))
        .unwrap();
    let daemon = Daemon::builder()
        .identity(KEYS[1].clone())
        .peers(peers)
        .root(root)
        .port(0)
        .listen(vec!["127.0.0.1:0".parse().unwrap()])
        .bind()
        .await
        .unwrap();
    let service = daemon.service_of(&client, pool);
    let meters = service.meters().clone();
    (service, meters)
}

/// Passes accepted connections to the daemon's session, and carrier losses to the session of the
/// affected end.
async fn listen(mut news: mpsc::UnboundedReceiver<News>, sessions: [SessionHandle; 2]) {
    let tls = Arc::new(daemon_tls());
    while let Some(news) = news.recv().await {
        match news {
            News::Accepted(link, connection) => {
                tokio::spawn(accept(link, connection, tls.clone(), sessions[1].clone()));
            }
            News::CarrierLost(link, end) => {
                let (interface, up) = (interface(link.index()), false);
                let lost = Input::Carrier { interface, up };
                let _ = sessions[end as usize].inputs.send(lost).await;
            }
        }
    }
}

async fn accept(link: LinkId, connection: Connection, tls: Arc<ServerTls>, session: SessionHandle) {
    let (socket, deadline) = (
        Socket::Simulated(connection),
        clock::now() + CONNECT_TIMEOUT,
    );
    let Ok(tls) = TlsStream::accept(socket, &tls, deadline, std::future::ready(())).await else {
        return;
    };
    let connected = Input::Arrived {
        path: PathId(link.index() as u16),
        plan: Box::new(plan(link.index())),
        established: Box::new(established(tls)),
    };
    let _ = session.inputs.send(connected).await;
}

fn established(tls: TlsStream) -> Established {
    Established {
        greeted: Greeted::unheard(tls),
        probe: None,
        arrival: Arrival::default(),
        arriving: None,
    }
}

/// Connector of the client's paths. Each path uses the link with the same index.
struct Connector {
    tls: ClientTls,
    network: SimulatedNetwork,
    links: Vec<LinkId>,
}

impl LinkSteps for Connector {
    fn join<'a>(&'a self, path: PathId, plan: &'a PathPlan, _first: bool) -> Joining<'a> {
        let link = self.links[usize::from(path.0)];
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let connected = async move {
            let connection = self.network.connect(link, End::A).await?;
            TlsStream::connect(
                Socket::Simulated(connection),
                &self.tls,
                deadline.into_std(),
            )
            .await
            .map_err(std::io::Error::other)
        };
        Box::pin(async move {
            let failed = |source| {
                let address = plan.remote;
                Error::Connect { address, source }
            };
            match tokio::time::timeout_at(deadline, connected).await {
                Ok(Ok(tls)) => Ok(established(tls)),
                Ok(Err(error)) => Err(failed(error)),
                Err(_) => Err(failed(std::io::ErrorKind::TimedOut.into())),
            }
        })
    }
}
