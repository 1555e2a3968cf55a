//! Event loop of one session: applies inputs to the protocol's state and sends the resulting
//! frames.

mod account;
mod asks;
mod chunks;
mod events;
mod paths;
mod stalls;
mod transfers;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    pin::Pin,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, Frame, PathId, PathLoss, Role, Session, SessionConfig, TransferId, Transmit,
    load::LoadGate,
    message::{CloseCode, Expected},
    pairing::{Candidate, Obstacle},
    path::{Path, PathPlan},
    session::Routed,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use self::{account::Account, asks::Asks};
use super::{
    bench::{SessionBench, Tap},
    congestion,
    handle::{SessionHandle, SessionSignals},
    inbox::{Command, Input},
    jobs::Jobs,
    kind::retransmit::BufferedChunk,
    path_connection::{Established, PathConnection},
    record::Record,
    serve::Serve,
    shares::ChunkShare,
    transfer::Transfers,
    waiters::Audience,
};
use crate::{
    file::{Arrived, BufferPool, IoPool},
    report::{
        error::Error,
        event::{Event, UnreachableNotice},
    },
    text::logged::logged_error,
    wire::{
        clock,
        stream::{Outgoing, StreamEnd, StreamEvent},
        tasks::TaskTracker,
    },
};

pub(crate) struct DriverConfig {
    /// Daemon only: service for the peer, within the rights granted to it.
    pub(crate) service: Option<Arc<dyn Serve>>,
    /// Host name of the peer for error messages, as the user gave it; in a daemon the peer's name.
    pub(crate) host: String,
    pub(crate) session: SessionConfig,
    pub(crate) pool: IoPool,
    pub(crate) buffers: BufferPool,
    /// True if the peer accepts compressed chunks.
    pub(crate) packs: bool,
    /// Daemon only: the session's part of the chunk memory that all sessions share.
    pub(crate) share: Option<ChunkShare>,
    /// Client only: carries out the steps for its links.
    pub(crate) steps: Option<Arc<dyn LinkSteps>>,
    pub(crate) audience: Audience,
    /// Client only: channel for events that concern no transfer.
    pub(crate) events: Option<mpsc::Sender<Event>>,
}

impl DriverConfig {
    /// Sends an event that concerns no transfer, unless the channel is full.
    fn tell(&self, event: Event) {
        if let Some(events) = &self.events {
            let _ = events.try_send(event);
        }
    }
}

/// Steps for the links of a client's session, which the protocol asks for.
pub(crate) trait LinkSteps: Send + Sync {
    /// Connects a path and authenticates the peer. `first` is true for the first attempt at a path.
    fn join<'a>(&'a self, path: PathId, plan: &'a PathPlan, first: bool) -> Joining<'a>;

    /// Finds out if an address pair may be joined by a cable.
    fn probe<'a>(&'a self, _candidate: &'a Candidate) -> StepFuture<'a, Result<(), Obstacle>> {
        Box::pin(async { Err(Obstacle::Silence) })
    }

    /// Installs the host routes that paths may need; true for a path that is connected. Fails if a
    /// mandatory route cannot be installed.
    fn hold_routes<'a>(
        &'a self,
        paths: &'a [(PathId, PathPlan, bool)],
    ) -> StepFuture<'a, Result<Vec<(PathId, Routed)>, Error>> {
        let held = paths.iter().map(|(path, ..)| (*path, Routed::Held));
        Box::pin(std::future::ready(Ok(held.collect())))
    }

    /// Prepares to receive the peer's tokens for connections (local address, the peer's interface
    /// index), and returns what to announce.
    fn announce<'a>(
        &'a self,
        _connections: BTreeSet<(IpAddr, u32)>,
        _session: SessionHandle,
    ) -> StepFuture<'a, Vec<Expected>> {
        Box::pin(async { Vec::new() })
    }
}

pub(crate) type StepFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Future of one connection attempt of a path.
pub(crate) type Joining<'a> = StepFuture<'a, Result<Established, Error>>;

/// Capacity of the session's input channel, in inputs. A full channel deliberately blocks the
/// connections and the I/O threads.
const INPUTS: usize = 1024;

/// Maximum number of inputs applied before the session sends again.
const BATCH: usize = 64;

const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum wait at the end of a session for connections to flush their queues.
const LINGER: Duration = Duration::from_millis(300);

/// Maximum wait at the end of a session for the threads of trees. A slow disk may take this long to
/// sync small files.
const TIDYING: Duration = Duration::from_secs(5);

/// Number of consecutive connections with a protocol violation after which the session ends. A
/// valid chunk resets the count. One violation may be a fault of one connection. Without a limit,
/// the session would reconnect forever to a peer that always violates the protocol, since each
/// handshake succeeds.
const MOST_BREACHES: u32 = 5;

/// Event loop of one session, run by one task. [`events`] handles the events of the protocol,
/// [`paths`] the connections, [`transfers`] the transfers and [`chunks`] their chunks.
pub(crate) struct Driver {
    session: Session,
    config: DriverConfig,
    inputs: mpsc::Receiver<Input>,
    signals: SessionSignals,
    connections: BTreeMap<PathId, PathConnection>,
    streams: TaskTracker,
    jobs: Jobs,
    running: Transfers,
    /// Daemon only: log records and metrics of the session. A client's owner receives events
    /// instead.
    account: Option<Account>,
    hashing: u32,
    /// Client only: when the owners learn that no connection remains.
    unreachable_notice: UnreachableNotice,
    zeroing: u32,
    comparing: u32,
    /// True if the peer has closed the session, so that the loss of its connections is expected.
    is_taking_leave: bool,
    /// Time at which the peer's kernel closed the latest connection; `None` if it was lost otherwise.
    hung_up_at: Option<Instant>,
    /// Number of protocol violations since the last valid chunk.
    breaches: u32,
    closing: Option<CloseCode>,
    next_generation: u64,
    /// Client only: owner that waits for the host routes of the first links.
    beginning: Option<oneshot::Sender<Result<(), Error>>>,
    bench: SessionBench,
    /// Current benchmark run, shared with the connections, which count its load.
    gate: watch::Sender<LoadGate>,
    asks: Asks,
}

impl Driver {
    /// Starts the task of a new session, which has no paths yet.
    pub(crate) fn start(config: DriverConfig) -> SessionHandle {
        let (driver, handle) = Self::new(config);
        let ending = Ending(driver.signals.clone());
        tokio::spawn(async move {
            let _ending = ending;
            driver.run().await;
        });
        handle
    }

    fn new(config: DriverConfig) -> (Self, SessionHandle) {
        let (sender, inputs) = mpsc::channel(INPUTS);
        let signals = SessionSignals::default();
        let handle = SessionHandle::new(sender, signals.clone());
        let now = clock::now();
        let role = match config.service {
            Some(_) => Role::Daemon,
            None => Role::Client,
        };
        let driver = Self {
            session: Session::new(role, config.session.clone(), now),
            jobs: Jobs::new(
                config.pool.clone(),
                config.buffers.clone(),
                config.packs,
                &handle,
            ),
            inputs,
            signals,
            connections: BTreeMap::new(),
            streams: TaskTracker::default(),
            running: Transfers::default(),
            account: Account::begin(config.service.as_ref(), &config.host, now),
            hashing: 0,
            unreachable_notice: UnreachableNotice::new(),
            zeroing: 0,
            comparing: 0,
            breaches: 0,
            hung_up_at: None,
            is_taking_leave: false,
            closing: None,
            next_generation: 0,
            beginning: None,
            bench: SessionBench::new(config.service.clone()),
            gate: watch::Sender::default(),
            asks: Asks::default(),
            config,
        };
        (driver, handle)
    }

    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut progress = tokio::time::interval(PROGRESS_INTERVAL);
        progress.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut sampling = tokio::time::interval(congestion::WINDOW);
        sampling.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let stopped = self.signals.stopped.clone();
        while self.closing.is_none() {
            let timeout = self
                .session
                .poll_timeout()
                .into_iter()
                .chain(self.bench.next())
                .min()
                .map(Into::into);
            tokio::select! {
                biased;
                () = stopped.cancelled() => self.closing = Some(CloseCode::ShuttingDown),
                // No handle, connection or job is left that could send another input.
                received = self.inputs.recv_many(&mut batch, BATCH) => if received == 0 {
                    break;
                },
                () = clock::sleep_until(timeout) => self.session.handle_timeout(clock::now()),
                _ = progress.tick() => {
                    self.report_progress();
                    self.watch_progress(clock::now());
                    self.end_with_peer(clock::now());
                    self.report_now_and_then();
                    for (path, connection) in &mut self.connections {
                        connection.update_unsent(self.session.path_rate(*path));
                    }
                }
                _ = sampling.tick() => for (path, connection) in &mut self.connections {
                    let plan = self.session.path(*path).map(Path::plan);
                    let interface = plan.map_or("", |plan| &plan.interface);
                    connection.update_congestion(interface, clock::now());
                },
            }
            let now = clock::now();
            for input in batch.drain(..) {
                self.apply(input, now);
            }
            self.act_on_bench(now, SessionBench::poll);
            self.pump(now);
        }
        self.end().await;
    }

    fn act_on_bench(&mut self, now: Instant, act: impl FnOnce(&mut SessionBench, &mut Tap<'_>)) {
        let mut tap = Tap {
            session: &mut self.session,
            connections: &self.connections,
            jobs: &self.jobs,
            now,
        };
        act(&mut self.bench, &mut tap);
    }

    /// Applies one input to the session's state. Never waits.
    fn apply(&mut self, input: Input, now: Instant) {
        match input {
            Input::Connected { path, made } => self.on_connected(path, *made, now),
            Input::Arrived {
                path,
                plan,
                established,
            } => {
                self.on_arrived(path, *plan, *established, now);
            }
            Input::Probed { candidate, answer } => {
                tracing::debug!(%candidate, answered = answer.is_ok(), "probed");
                self.session.handle_probed(candidate, answer, now);
            }
            Input::Routed { paths, result } => self.on_routed(&paths, result, now),
            Input::Expected(connections) => self.session.expect_connections(connections),
            Input::Interfaces { interfaces, names } => {
                self.session.handle_interfaces(interfaces, &names, now);
            }
            Input::Carrier { interface, up } => self.session.handle_carrier(&interface, up, now),
            Input::Fault => {
                let source = std::io::Error::other("internal error");
                self.give_up(Error::system("continue the session", source));
            }
            Input::Stream {
                path,
                generation,
                events,
                place: _place,
            } => {
                if self
                    .connections
                    .get(&path)
                    .is_some_and(|connection| connection.generation == generation)
                {
                    for event in events {
                        self.on_stream(path, event, now);
                    }
                }
            }
            Input::Io(done) => self.on_io(done, now),
            Input::Said { transfer, said } => self.on_said(transfer, said),
            Input::Done {
                ask,
                answer,
                ends_changes,
            } => self.on_done(&ask, answer, ends_changes),
            Input::Command(command) => self.on_command(command, now),
        }
    }

    fn on_stream(&mut self, path: PathId, event: StreamEvent, now: Instant) {
        if !matches!(event, StreamEvent::Flushed(_) | StreamEvent::Ended(_)) {
            self.signals.set_heard();
        }
        match event {
            StreamEvent::Heard => self.session.handle_heard(path, now),
            StreamEvent::Frame(frame) => {
                let is_message = matches!(frame, Frame::Control { .. });
                self.is_taking_leave |= matches!(frame, Frame::Close { .. });
                if let Err(error) = self.session.handle_frame(path, frame, now) {
                    if is_message && self.config.steps.is_some() {
                        // Ends the session: the message is acknowledged and will not be
                        // retransmitted, so a client would wait forever for its content.
                        self.breaches = MOST_BREACHES;
                    }
                    self.on_misbehaved(path, &error, now);
                }
            }
            StreamEvent::Chunk { header, buffer } => {
                let incoming = self.session.handle_chunk(path, &header, now);
                if incoming.is_ok() {
                    self.running.on_wire(path, &header);
                    if let Some(connection) = self.connections.get_mut(&path) {
                        connection.moved.received += u64::from(header.len);
                    }
                }
                let arrived = Arrived {
                    path,
                    header,
                    buffer,
                };
                self.on_incoming(arrived, incoming, now);
            }
            StreamEvent::Flushed(chunks) => {
                (0..chunks).for_each(|_| self.session.handle_chunk_flushed(path));
            }
            StreamEvent::Ended(end) => {
                let is_close = match &end {
                    StreamEnd::Closed => true,
                    StreamEnd::Tls(error) => error.is_close(),
                    _ => false,
                };
                let loss = match &end {
                    StreamEnd::Frame(error) => return self.on_misbehaved(path, error, now),
                    StreamEnd::Load(_)
                    | StreamEnd::Flood
                    | StreamEnd::Compressed
                    | StreamEnd::Credit => return self.on_misbehaved(path, &end, now),
                    // The TCP checksum matched, but TLS authentication failed: the data was altered
                    // in transit.
                    StreamEnd::Tls(error) if error.tells_of_damage() => PathLoss::Damaged,
                    _ => PathLoss::Reset,
                };
                if !self.is_taking_leave {
                    tracing::info!(path = path.0, end = %logged_error(&end), "path disconnected");
                }
                self.lose(path, loss, now);
                self.hung_up_at = is_close.then_some(now);
            }
        }
    }

    fn on_command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Begin(begin) => self.begin_links(*begin, now),
            Command::Survey(reply) => {
                if let Some(view) = self.session.links_view() {
                    let _ = reply.send(view);
                }
            }
            Command::Start {
                transfer,
                kind,
                starter,
            } => self.start_transfer(transfer, kind, starter),
            Command::Ask { ask, reply } => self.ask(ask, reply),
            Command::Cancel(transfer) => self.cancel(transfer),
            Command::Close(code) => self.closing = Some(code),
            Command::SendInterfaces(interfaces) => self.session.send_interfaces(interfaces),
            #[cfg(test)]
            Command::Inspect(look) => look(&mut self.session),
            #[cfg(feature = "bench")]
            Command::Bench(input) => {
                self.act_on_bench(now, |bench, tap| bench.on_input(input, tap));
            }
            Command::EndIfIdle => {
                if !self.session.is_connected() && !self.signals.is_awaiting() {
                    self.closing = Some(CloseCode::Cancelled);
                }
            }
        }
    }

    /// Handles pending events, starts reads and hashing, and passes frames to the connections.
    fn pump(&mut self, now: Instant) {
        self.update_share();
        loop {
            self.handle_events(now);
            self.hash_ahead();
            self.send_asks();
            self.gate.send_replace(self.session.load_gate());
            self.transmit(now);
            // The last events may have queued frames.
            if !self.handle_events(now) {
                break;
            }
        }
        self.update_share();
        self.signals.set_connected(self.session.is_connected());
    }

    /// Reports the session's chunk memory to the daemon and applies the budget it returns.
    fn update_share(&mut self) {
        if let Some(share) = &mut self.config.share {
            self.session.set_chunk_budget(
                share.update(self.session.committed_chunks(), self.session.is_busy()),
            );
        }
    }

    /// Passes frames to the connections until no path has a chunk to send. Polls each path
    /// repeatedly, because a path that left a chunk to a faster one may be the best for the next
    /// chunk.
    fn transmit(&mut self, now: Instant) {
        let rates = self
            .connections
            .keys()
            .filter_map(|path| self.session.path_rate(*path));
        let measured = rates
            .map(|rate| rate.0)
            .reduce(|sum, rate| sum + rate)
            .map(BitRate);
        // A rate limit below the links' capacity makes their measured rates too high (bursts
        // between pauses) or missing.
        let rate = measured.into_iter().chain(self.session.rate_limit()).min();
        let mut paths: Vec<PathId> = self.connections.keys().copied().collect();
        let mut goes_on = true;
        while std::mem::take(&mut goes_on) {
            paths.retain(|path| match self.transmit_on(*path, rate, now) {
                Ok(chunks) => {
                    goes_on |= chunks > 0;
                    true
                }
                Err(QueueFull) => {
                    self.lose(*path, PathLoss::Reset, now);
                    false
                }
            });
        }
    }

    /// Passes frames to one connection until its queue is full or nothing may be sent. Returns the
    /// number of chunks among them.
    fn transmit_on(
        &mut self,
        path: PathId,
        rate: Option<BitRate>,
        now: Instant,
    ) -> Result<u32, QueueFull> {
        let mut chunks = 0;
        let Some(connection) = self.connections.get_mut(&path) else {
            return Ok(0);
        };
        while connection.has_room() {
            let is_taken = match self.session.poll_transmit(path, now) {
                Some(Transmit::Frame(frame)) => connection.send(Outgoing::Frame(frame)),
                Some(Transmit::Load(order)) => connection.send(Outgoing::Load(order)),
                Some(Transmit::Chunk { transfer, chunk }) => {
                    chunks += 1;
                    // A stream's chunk is at hand; an I/O thread reads that of a file.
                    let Some(running) = self.running.get_mut(transfer) else {
                        continue;
                    };
                    let Some(buffer) = running.buffer_mut() else {
                        if let Some(file) = running.kind.file() {
                            self.jobs.read(path, (transfer, chunk), file.clone(), rate);
                        }
                        continue;
                    };
                    let Some(BufferedChunk { buffer, value, .. }) = buffer.chunks.get(&chunk)
                    else {
                        continue;
                    };
                    let (buffer, value) = (buffer.clone(), *value);
                    let Some(header) = self
                        .session
                        .handle_chunk_read(path, transfer, chunk, value, now)
                    else {
                        continue;
                    };
                    self.running.on_wire(path, &header);
                    connection.send_chunk(header, buffer)
                }
                None => break,
            };
            if !is_taken {
                return Err(QueueFull);
            }
        }
        Ok(chunks)
    }

    fn account_mut(&mut self, enter: impl FnOnce(&mut Account)) {
        if let Some(account) = &mut self.account {
            enter(account);
        }
    }

    fn record_mut(&mut self, transfer: TransferId, enter: impl FnOnce(&mut Record, &Account)) {
        let record = self.running.get_mut(transfer);
        let record = record.and_then(|running| running.record.as_mut());
        if let (Some(account), Some(record)) = (&self.account, record) {
            enter(record, account);
        }
    }

    /// Ends the session: makes written data durable, flushes the connections and reports to waiting
    /// owners.
    async fn end(mut self) {
        let (now, code) = (clock::now(), self.closing.unwrap_or(CloseCode::Cancelled));
        self.session.close(code);
        self.pump(now);
        self.connections
            .values_mut()
            .for_each(PathConnection::release);
        self.signals.stop();
        self.running.stop();
        self.settle().await;
        // A transfer that its owner has closed is cancelled; one that came while a session ended may be repeated.
        let resumable = true;
        Self::end_waiting(&mut self.running, &mut self.asks, || match code {
            CloseCode::Done => Error::Cancelled { resumable },
            _ => Error::ended(&self.config.host, "without an answer"),
        });
        self.wait_for_others().await;
        self.close_account(code);
        self.inputs.close();
        self.signals.set_connected(false);
        self.signals.ended.cancel();
    }

    /// Waits until the connections have flushed their queues, at most [`LINGER`], and until tree
    /// threads have removed their unnamed files, at most [`TIDYING`], since the disk may be slow.
    /// Drains the input channel meanwhile, so that no sender blocks on it.
    async fn wait_for_others(&mut self) {
        let Self {
            streams,
            jobs: Jobs { threads, .. },
            inputs,
            ..
        } = self;
        let mut ended = pin!(async {
            let (_, _) = tokio::join!(
                timeout(LINGER, streams.wait()),
                timeout(TIDYING, threads.wait())
            );
        });
        loop {
            tokio::select! {
                () = &mut ended => return,
                _ = inputs.recv() => {}
            }
        }
    }
}

/// Failure to pass a frame to a connection: its queue is full or its task has ended.
struct QueueFull;

/// Guard that marks the session as ended when its task finishes or panics. A panic thus affects no
/// other session and releases the session's quota.
struct Ending(SessionSignals);

impl Drop for Ending {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("session panicked");
        }
        self.0.set_connected(false);
        self.0.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    mod apply;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::session::jobs::Fault;

    fn started() -> SessionHandle {
        Driver::start(DriverConfig {
            service: None,
            host: "peer".into(),
            session: SessionConfig::default(),
            pool: IoPool::start().unwrap(),
            buffers: BufferPool::default(),
            packs: true,
            share: None,
            steps: None,
            audience: Audience::default(),
            events: None,
        })
    }

    /// Waits for the end of a session, for at most `millis`. Returns true if it came.
    async fn ends(ended: &CancellationToken, millis: u64) -> bool {
        let wait = Duration::from_millis(millis);
        timeout(wait, ended.cancelled()).await.is_ok()
    }

    #[tokio::test]
    async fn a_session_gives_way_unless_it_is_about_to_get_a_connection() {
        let handle = started();
        let arriving = handle.await_connection();
        assert!(!handle.is_idle() && handle.command(Command::EndIfIdle).await);
        assert!(!ends(&handle.ended, 100).await);
        drop(arriving);
        assert!(handle.is_idle() && handle.command(Command::EndIfIdle).await);
        assert!(ends(&handle.ended, 5000).await);
    }

    #[tokio::test]
    async fn a_session_without_handles_ends() {
        let handle = started();
        let (ended, copy) = (handle.ended.clone(), handle.clone());
        drop(handle);
        assert!(!ends(&ended, 300).await);
        drop(copy);
        assert!(ends(&ended, 5000).await);
    }

    #[tokio::test]
    async fn a_session_that_panics_has_ended_for_everybody_and_no_other_has() {
        let (faulty, other) = (started(), started());
        let fault = Command::Inspect(Box::new(|_| panic!("a fault, for a test")));
        assert!(faulty.command(fault).await);
        assert!(ends(&faulty.ended, 5000).await);
        assert!(!faulty.command(Command::EndIfIdle).await);
        assert!(other.command(Command::EndIfIdle).await);
        assert!(ends(&other.ended, 5000).await);
    }

    #[tokio::test]
    async fn a_session_whose_work_panics_ends() {
        let handle = started();
        let fault = Fault::of(&handle.inputs);
        let worker = std::thread::spawn(move || {
            let _fault = fault;
            panic!("a fault, for a test");
        });
        assert!(ends(&handle.ended, 5000).await);
        assert!(worker.join().is_err());
    }

    #[tokio::test]
    async fn a_session_whose_task_panics_ends() {
        let handle = started();
        let fault = Fault::of(&handle.inputs);
        let task = tokio::spawn(async move {
            let _fault = fault;
            panic!("a fault, for a test");
        });
        assert!(ends(&handle.ended, 5000).await);
        assert!(task.await.is_err());
    }
}
