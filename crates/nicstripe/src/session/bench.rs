//! Benchmark of a session: a client carries out its orders, a daemon serves it, and both sample
//! their end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nicstripe_bench::{BenchCommand, BenchNews, BenchPath, Sampler, StopOnDrop, Ticket};
use nicstripe_proto::{
    PathId, Session,
    message::{
        BenchAsk, BenchBody, BenchFacts, BenchRefused, BenchSample, DiskDone, DiskOrder,
        MAX_LETTERS, PathSample, RunNumber, RunOrder, RunReady, TcpSample,
    },
    path::Path,
};
use socket2::SockRef;
use tokio::sync::mpsc;

use super::{
    handle::SessionHandle,
    inbox::{BenchInput, Command, Input, report},
    jobs::Jobs,
    path_connection::PathConnection,
    serve::Serve,
};
use crate::{
    file::FileError,
    report::metrics::JobCounts,
    text::logged::boundary,
    wire::{clock, stream::Outgoing},
};

/// True if this program runs and serves benchmarks.
pub(crate) const SERVES_BENCH: bool = true;

/// Service of a daemon for the benchmarks of the peer.
pub(crate) trait ServeBench {
    /// Queues the peer for a benchmark. Returns its ticket in the queue, or the reason for a
    /// rejection. The queue sends later answers through `session`.
    fn ask_bench(
        &self,
        ask: &BenchAsk,
        session: SessionHandle,
    ) -> Result<Ticket<SessionHandle>, BenchRefused>;
    /// Runs a disk test for a benchmark: reads files like a sender, or writes like a receiver and
    /// then discards the data. Blocks the thread until done or until `stop` is set.
    fn work_for_bench(&self, order: &DiskOrder, stop: &AtomicBool) -> Result<DiskDone, FileError>;
}

/// Benchmark over one session.
#[derive(Debug)]
pub(super) enum SessionBench {
    Client(ClientBench),
    Daemon(DaemonBench),
}

/// Parts of a session that its benchmark uses.
pub(super) struct Tap<'a> {
    pub(super) session: &'a mut Session,
    pub(super) connections: &'a BTreeMap<PathId, PathConnection>,
    pub(super) jobs: &'a Jobs,
    pub(super) now: Instant,
}

impl SessionBench {
    /// Creates the state of a session without a benchmark. Only a daemon has a `service`.
    pub(super) fn new(service: Option<Arc<dyn Serve>>) -> Self {
        match service {
            Some(service) => Self::Daemon(DaemonBench {
                service,
                admission: None,
            }),
            None => Self::Client(ClientBench::default()),
        }
    }

    /// Returns the time of the next sample.
    pub(super) fn next(&self) -> Option<Instant> {
        match self {
            Self::Client(bench) => bench.sampler.as_ref().map(Sampler::next),
            Self::Daemon(bench) => Some(bench.admission.as_ref()?.run.as_ref()?.0.next()),
        }
    }

    /// Returns true in a client while a benchmark uses the session.
    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Client(ClientBench { owner: Some(owner), .. }) if !owner.is_closed())
    }

    pub(super) fn on_input(&mut self, input: BenchInput, tap: &mut Tap<'_>) {
        match (self, input) {
            (Self::Client(bench), BenchInput::Command(command)) => bench.on_command(command, tap),
            (Self::Daemon(bench), BenchInput::Message(body)) => bench.send(body, tap),
            _ => {}
        }
    }

    pub(super) fn on_message(&mut self, body: BenchBody, tap: &mut Tap<'_>) {
        match self {
            Self::Client(bench) => bench.on_message(body, tap.now),
            Self::Daemon(bench) => bench.on_message(body, tap),
        }
    }

    /// Takes a sample, ends the run or ends the benchmark if its time has come. Call several times
    /// a second.
    pub(super) fn poll(&mut self, tap: &mut Tap<'_>) {
        let is_due = self.next().is_some_and(|at| at <= tap.now);
        match self {
            Self::Client(bench) if is_due => bench.sample(false, tap),
            Self::Client(_) => {}
            Self::Daemon(bench) => bench.poll(is_due, tap),
        }
    }
}

/// Benchmark of a client, which runs outside the session.
#[derive(Debug, Default)]
pub(super) struct ClientBench {
    /// Channel to the benchmark; `None` until one attaches.
    owner: Option<mpsc::Sender<BenchNews>>,
    sampler: Option<Sampler>,
}

impl ClientBench {
    fn tell(&self, news: BenchNews) {
        if let Some(owner) = &self.owner {
            let _ = owner.try_send(news);
        }
    }

    fn on_command(&mut self, command: BenchCommand, tap: &mut Tap<'_>) {
        match command {
            BenchCommand::Attach(owner) => {
                self.owner = Some(owner);
                let latest = tap.session.load_gate().latest;
                self.tell(BenchNews::Paths(tap.paths(), latest));
            }
            BenchCommand::Tell(body) => {
                match &*body {
                    BenchBody::Run(order) => {
                        self.sampler = Some(tap.begin(order));
                        self.tell(BenchNews::Buffers(tap.set_buffers(order)));
                    }
                    // The last sample is taken before the other end stops sending.
                    BenchBody::Stop(_) => self.sample(true, tap),
                    _ => {}
                }
                tap.session.send_bench_message(*body);
            }
            BenchCommand::Ping { path, order, reply } => {
                if let Some(connection) = tap.connections.get(&path) {
                    connection.send(Outgoing::Ping(order, reply));
                }
            }
        }
    }

    fn on_message(&mut self, body: BenchBody, now: Instant) {
        if matches!(body, BenchBody::Stopped(_) | BenchBody::Refused(_)) {
            self.sampler = None;
        }
        self.tell(BenchNews::Said(body, now));
    }

    fn sample(&mut self, last: bool, tap: &Tap<'_>) {
        if let Some(sampler) = &mut self.sampler {
            let at = clock::now();
            let sample = tap.sample(sampler, last, at);
            self.tell(BenchNews::Sample(sample, at));
        }
    }
}

/// Benchmark that a daemon serves.
#[derive(Debug)]
pub(super) struct DaemonBench {
    service: Arc<dyn Serve>,
    /// `None` while the client takes part in no benchmark.
    admission: Option<Admission>,
}

/// Client in the benchmark, or in its queue.
#[derive(Debug)]
struct Admission {
    ticket: Ticket<SessionHandle>,
    /// Current run, and the number of transfers in all sessions at its start.
    run: Option<(Sampler, JobCounts)>,
    /// Guard of the running disk test, which stops when the guard is dropped.
    disk: Option<StopOnDrop>,
}

impl DaemonBench {
    fn on_message(&mut self, body: BenchBody, tap: &mut Tap<'_>) {
        match body {
            BenchBody::Ask(ask) => match self.service.ask_bench(&ask, tap.jobs.handle()) {
                Ok(ticket) => {
                    let (run, disk) = (None, None);
                    self.admission = Some(Admission { ticket, run, disk });
                }
                Err(refused) => self.refuse(refused, tap),
            },
            BenchBody::Run(order) => {
                if let Some(admission) = &mut self.admission {
                    admission.run = Some((tap.begin(&order), self.service.meters().jobs()));
                }
                let ready = tap.set_buffers(&order);
                tap.session.send_bench_message(BenchBody::Ready(ready));
            }
            BenchBody::Stop(run) => self.stop(run, tap),
            BenchBody::Disk(order) => {
                if let Some(admission) = &mut self.admission {
                    // Replacing the guard stops a running test.
                    admission.disk = Some(test_disk(self.service.clone(), order, tap.jobs));
                }
            }
            BenchBody::Leave => self.admission = None,
            _ => {}
        }
    }

    /// Sends a message of the queue to the client, unless it has left the benchmark.
    fn send(&mut self, body: BenchBody, tap: &mut Tap<'_>) {
        let Some(admission) = &mut self.admission else {
            return;
        };
        let granted = match &body {
            BenchBody::Refused(refused) => return self.refuse(*refused, tap),
            BenchBody::Admitted(admitted) => Some(Duration::from_secs(admitted.seconds.into())),
            _ => None,
        };
        if tap.session.send_bench_message(body)
            && let Some(time) = granted
        {
            admission.ticket.admit(time, tap.now);
            let version = env!("CARGO_PKG_VERSION").into();
            let facts = BenchBody::Facts(BenchFacts { version });
            tap.session.send_bench_message(facts);
        }
    }

    fn poll(&mut self, is_due: bool, tap: &mut Tap<'_>) {
        let Some(Admission { ticket, run, .. }) = &mut self.admission else {
            return;
        };
        if let Some(refused) = ticket.end(tap.session.is_connected(), tap.now) {
            return self.refuse(refused, tap);
        }
        match run
            .as_ref()
            .and_then(|(sampler, _)| sampler.overdue(tap.now))
        {
            Some(run) => self.stop(run, tap),
            None if is_due => self.sample(false, tap),
            None => {}
        }
    }

    /// Ends the client's benchmark, and reports the reason.
    fn refuse(&mut self, refused: BenchRefused, tap: &mut Tap<'_>) {
        tap.session.send_bench_message(BenchBody::Refused(refused));
        self.admission = None;
    }

    fn stop(&mut self, run: RunNumber, tap: &mut Tap<'_>) {
        self.sample(true, tap);
        if let Some(admission) = &mut self.admission {
            admission.run = None;
        }
        tap.session.end_run();
        tap.session.send_bench_message(BenchBody::Stopped(run));
    }

    fn sample(&mut self, last: bool, tap: &mut Tap<'_>) {
        if let Some(Admission { run: Some(run), .. }) = &mut self.admission {
            let (sampler, before) = run;
            let transfers = self.service.meters().jobs().since(*before);
            let sample = BenchBody::Sample(BenchSample {
                transfers: Some(u32::try_from(transfers).unwrap_or(u32::MAX)),
                ..tap.sample(sampler, last, clock::now())
            });
            tap.session.send_bench_message(sample);
        }
    }
}

/// Runs a disk test in an I/O thread and sends the client its result. Returns a guard that stops
/// the test when dropped.
fn test_disk(service: Arc<dyn Serve>, order: DiskOrder, jobs: &Jobs) -> StopOnDrop {
    let (inputs, stop) = (jobs.inputs(), StopOnDrop::default());
    let stopped = stop.flag();
    jobs.pool.run(move || {
        let done = service.work_for_bench(&order, &stopped);
        let done = done.unwrap_or_else(|error| {
            let mut text = crate::text::chain(&error);
            text.truncate(boundary(&text, MAX_LETTERS));
            DiskDone {
                number: order.number,
                bytes: 0,
                micros: 0,
                file_system: None,
                error: Some(text),
            }
        });
        let message = BenchInput::Message(BenchBody::DiskDone(done));
        report(&inputs, Input::Command(Command::Bench(message)));
    });
    stop
}

impl Tap<'_> {
    /// Returns the paths that are connected and may carry data.
    fn paths(&self) -> Vec<BenchPath> {
        let paths = self.session.paths().filter(|(_, path)| {
            path.state().is_connected() && !path.plan().origin.is_contact_only()
        });
        let path = |(id, path): (PathId, &Path)| {
            let plan = path.plan().clone();
            BenchPath {
                id,
                interface: plan.interface,
                peer_interface: plan.peer_interface,
                local: plan.local,
                remote: plan.remote.ip(),
                line: plan.capacity.rates.line,
                shapers: plan.capacity.rates.shapers,
                path_mtu: path.path_mtu(),
                verified: path.verified(),
            }
        };
        paths.map(path).collect()
    }

    fn begin(&self, order: &RunOrder) -> Sampler {
        let interface = |path: PathId| Some(&*self.session.path(path)?.plan().interface);
        Sampler::begin(order, interface, self.now)
    }

    fn sample(&self, sampler: &mut Sampler, last: bool, at: Instant) -> BenchSample {
        let path = |path: PathId| self.connections.get(&path).map(carried).unwrap_or_default();
        sampler.sample(path, last, at)
    }

    /// Sets the socket buffers of a run's paths, if it requests a size. Returns the smallest sizes
    /// that the kernel granted.
    fn set_buffers(&self, order: &RunOrder) -> RunReady {
        let size = order.socket_buffer;
        let sizes = order.paths.iter().filter_map(|path| {
            let connection = self.connections.get(&PathId(*path))?;
            let socket = SockRef::from(connection.probe()?);
            let size = usize::try_from(size?).ok()?;
            // The kernel may grant less without an error; the sizes are read back.
            let _ = socket.set_send_buffer_size(size);
            let _ = socket.set_recv_buffer_size(size);
            buffers(connection)
        });
        let (send, receive): (Vec<u64>, Vec<u64>) = sizes.unzip();
        RunReady {
            run: order.run,
            send_buffer: send.into_iter().min(),
            receive_buffer: receive.into_iter().min(),
        }
    }
}

/// Returns the sizes of a socket's send and receive buffers in bytes. The kernel reports twice the
/// requested size.
fn buffers(connection: &PathConnection) -> Option<(u64, u64)> {
    let socket = SockRef::from(connection.probe()?);
    Some((
        socket.send_buffer_size().ok()? as u64,
        socket.recv_buffer_size().ok()? as u64,
    ))
}

/// Returns the benchmark load carried by a path, and TCP statistics of its current connection.
fn carried(connection: &PathConnection) -> PathSample {
    let micros = |time: Duration| time.as_micros() as u64;
    let (send_buffer, receive_buffer) = buffers(connection).unzip();
    let tcp = connection.tcp().map(|info| TcpSample {
        sent: info.bytes_sent,
        retransmitted: info.bytes_retrans,
        busy_us: info.busy.map(micros),
        rwnd_limited_us: info.rwnd_limited.map(micros),
        sndbuf_limited_us: info.sndbuf_limited.map(micros),
        cwnd_bytes: Some(u64::from(info.snd_cwnd) * u64::from(info.mss)),
        rtt_us: Some(micros(info.rtt)),
        send_buffer,
        receive_buffer,
    });
    let counters = &connection.load_counters;
    PathSample {
        received: counters.received.load(Ordering::Relaxed),
        sent: counters.sent.load(Ordering::Relaxed),
        tcp,
        ..PathSample::default()
    }
}
