//! Benchmark support of a session: orders of the client, answers of the daemon, and samples of
//! both.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use nicstripe_bench::{
    BenchCommand, BenchNews, BenchPath, CpuSampler, InterfaceCounters, StopOnDrop, Ticket,
};
use nicstripe_proto::{
    PathId,
    message::{
        BenchAsk, BenchBody, BenchFacts, BenchRefusal, BenchRefused, BenchSample, DiskDone,
        DiskOrder, MAX_LETTERS, PathSample, RunNumber, RunOrder, RunReady, TcpSample,
    },
};
use socket2::SockRef;
use tokio::sync::mpsc;

use super::Driver;
use crate::{
    report::metrics::JobCounts,
    session::{
        input::{BenchInput, Command, Input, SessionHandle, report},
        path_connection::PathConnection,
    },
    text::logged::boundary,
    wire::{clock, stream::Outgoing},
};

/// Time without any connection after which a daemon ends the client's benchmark. Long enough to
/// move a cable to another port.
const GONE_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct SessionBench {
    /// Client: channel to the running benchmark.
    owner: Option<mpsc::Sender<BenchNews>>,
    /// Daemon: ticket in the queue of benchmarks.
    ticket: Option<Ticket<SessionHandle>>,
    /// Daemon: end of the time granted for the benchmark.
    over_at: Option<Instant>,
    /// Daemon: time since which the session has had no connection during the benchmark.
    alone_since: Option<Instant>,
    sampling: Option<Sampling>,
    /// Daemon: guard of the running disk test, which stops when the guard is dropped.
    disk: Option<StopOnDrop>,
}

#[derive(Debug)]
struct Sampling {
    run: u32,
    paths: Vec<PathId>,
    began: Instant,
    interval: Duration,
    next: Instant,
    /// Time at which the daemon ends the run unless the client does so earlier.
    ends_at: Instant,
    /// Daemon: number of transfers in all its sessions at the start of the run.
    jobs: Option<JobCounts>,
    interfaces: InterfaceCounters,
    cpu: CpuSampler,
}

impl SessionBench {
    pub(super) fn next(&self) -> Option<Instant> {
        self.sampling
            .as_ref()
            .map(|sampling| sampling.next)
            .into_iter()
            .chain(self.over_at)
            .min()
    }

    /// Returns true in a client while a benchmark uses the session.
    pub(super) fn is_running(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| !owner.is_closed())
    }

    fn tell(&self, news: BenchNews) {
        if let Some(owner) = &self.owner {
            let _ = owner.try_send(news);
        }
    }
}

impl Driver {
    pub(super) fn on_bench_input(&mut self, input: BenchInput, now: Instant) {
        match input {
            BenchInput::Command(command) => self.on_bench_command(command, now),
            BenchInput::Answer(body) => self.answer_bench(body, now),
        }
    }

    fn on_bench_command(&mut self, command: BenchCommand, now: Instant) {
        match command {
            BenchCommand::Attach(owner) => {
                self.bench.owner = Some(owner);
                let paths = self
                    .connections
                    .iter()
                    .filter(|(_, connection)| connection.can_bench())
                    .map(|(id, connection)| connection.bench_path(*id))
                    .collect();
                self.bench
                    .tell(BenchNews::Paths(paths, self.session.load_gate().latest));
            }
            BenchCommand::Tell(body) => {
                match &*body {
                    BenchBody::Run(order) => {
                        self.begin_sampling(order, now);
                        if let Some(bytes) = order.socket_buffer {
                            let got = self.set_buffers(order, bytes);
                            self.bench.tell(BenchNews::Buffers(got));
                        }
                    }
                    // The last sample is taken before the other end stops sending.
                    BenchBody::Stop(_) => self.sample(true, now),
                    _ => {}
                }
                self.session.send_bench_message(*body);
            }
            BenchCommand::Ping { path, order, reply } => {
                if let Some(connection) = self.connections.get(&path) {
                    connection.send(Outgoing::Ping(order, reply));
                }
            }
        }
    }

    pub(super) fn on_bench_message(&mut self, body: BenchBody, now: Instant) {
        if self.config.service.is_none() {
            if matches!(body, BenchBody::Stopped(_) | BenchBody::Refused(_)) {
                self.bench.sampling = None;
            }
            return self.bench.tell(BenchNews::Said(body, now));
        }
        match body {
            BenchBody::Ask(ask) => self.on_asked(&ask),
            BenchBody::Run(order) => self.on_run_ordered(&order, now),
            BenchBody::Stop(RunNumber { run }) => self.stop_run(run, now),
            BenchBody::Disk(order) => self.on_disk_ordered(order),
            BenchBody::Leave => self.leave_bench(),
            _ => {}
        }
    }

    /// Daemon: sends a benchmark message to the client, unless the client has left the benchmark.
    fn answer_bench(&mut self, body: BenchBody, now: Instant) {
        let is_wanted = self.bench.ticket.is_some();
        if let (true, BenchBody::Refused(refused)) = (is_wanted, &body) {
            return self.refuse_bench(*refused);
        }
        if !is_wanted || !self.session.send_bench_message(body.clone()) {
            return;
        }
        if let BenchBody::Admitted(admitted) = body {
            self.bench.over_at = Some(now + Duration::from_secs(admitted.seconds.into()));
            let version = env!("CARGO_PKG_VERSION").into();
            let facts = BenchBody::Facts(BenchFacts { version });
            self.session.send_bench_message(facts);
        }
    }

    /// Takes a sample, ends the run or ends the benchmark if its time has come.
    pub(super) fn poll_bench(&mut self, now: Instant) {
        if self.bench.over_at.is_some_and(|at| at <= now) {
            self.refuse_bench(BenchRefused {
                why: BenchRefusal::TimeOver,
                retry_after_ms: None,
            });
        }
        let Some(Sampling {
            run, next, ends_at, ..
        }) = self.bench.sampling.as_ref()
        else {
            return;
        };
        if *ends_at <= now && self.config.service.is_some() {
            self.stop_run(*run, now);
        } else if *next <= now {
            self.sample(false, now);
        }
    }

    /// Daemon: ends the benchmark after [`GONE_AFTER`] without a connection, so that the next in
    /// the queue can start. Call several times a second.
    pub(super) fn release_bench(&mut self, now: Instant) {
        if self.bench.ticket.is_none() || self.session.is_connected() {
            self.bench.alone_since = None;
        } else if now.saturating_duration_since(*self.bench.alone_since.get_or_insert(now))
            >= GONE_AFTER
        {
            self.refuse_bench(BenchRefused {
                why: BenchRefusal::TimeOver,
                retry_after_ms: Some(0),
            });
        }
    }

    fn on_asked(&mut self, ask: &BenchAsk) {
        let Some(service) = &self.config.service else {
            return;
        };
        match service.ask_bench(ask, self.handle()) {
            Ok(ticket) => self.bench.ticket = Some(ticket),
            Err(refused) => self.refuse_bench(refused),
        }
    }

    fn refuse_bench(&mut self, refused: BenchRefused) {
        self.session.send_bench_message(BenchBody::Refused(refused));
        self.leave_bench();
    }

    fn leave_bench(&mut self) {
        (
            self.bench.ticket,
            self.bench.over_at,
            self.bench.sampling,
            self.bench.disk,
        ) = (None, None, None, None);
    }

    fn on_run_ordered(&mut self, order: &RunOrder, now: Instant) {
        self.begin_sampling(order, now);
        let got = order
            .socket_buffer
            .map(|bytes| self.set_buffers(order, bytes));
        let ready = RunReady {
            run: order.run,
            ..got.unwrap_or_default()
        };
        self.session.send_bench_message(BenchBody::Ready(ready));
    }

    fn stop_run(&mut self, run: u32, now: Instant) {
        self.sample(true, now);
        self.bench.sampling = None;
        self.session.end_run();
        self.session
            .send_bench_message(BenchBody::Stopped(RunNumber { run }));
    }

    fn begin_sampling(&mut self, order: &RunOrder, now: Instant) {
        let paths: Vec<PathId> = order.paths.iter().copied().map(PathId).collect();
        let names = paths
            .iter()
            .filter_map(|path| self.connections.get(path))
            .map(|connection| connection.plan.interface.clone());
        let interval = Duration::from_millis(order.interval_ms.into());
        self.bench.sampling = Some(Sampling {
            run: order.run,
            interfaces: InterfaceCounters::of(names),
            cpu: CpuSampler::begin(),
            paths,
            began: now,
            interval,
            next: now,
            ends_at: now + Duration::from_millis(order.longest_ms.into()),
            jobs: self.jobs(),
        });
    }

    fn jobs(&self) -> Option<JobCounts> {
        Some(self.config.service.as_ref()?.meters().jobs())
    }

    fn sample(&mut self, last: bool, now: Instant) {
        let jobs = self.jobs();
        let Some(sampling) = &mut self.bench.sampling else {
            return;
        };
        let at = clock::now();
        let counted = sampling.interfaces.read();
        let carried = |path: &PathId| {
            let connection = self.connections.get(path);
            connection.map_or_else(PathSample::default, |connection| {
                connection.load_sample(counted.get(&connection.plan.interface).copied())
            })
        };
        let paths = sampling.paths.iter().map(carried).collect();
        let at_us = at.saturating_duration_since(sampling.began).as_micros() as u64;
        let transfers = jobs
            .zip(sampling.jobs)
            .map(|(now, before)| u32::try_from(now.since(before)).unwrap_or(u32::MAX));
        let sample = BenchSample {
            run: sampling.run,
            at_us,
            paths,
            cpu: sampling.cpu.sample(),
            last,
            transfers,
        };
        // A busy machine skips the samples it missed.
        while sampling.next <= now {
            sampling.next += sampling.interval;
        }
        if self.config.service.is_none() {
            self.bench.tell(BenchNews::Sample(sample, at));
        } else {
            self.session.send_bench_message(BenchBody::Sample(sample));
        }
    }

    fn set_buffers(&self, order: &RunOrder, bytes: u64) -> RunReady {
        let connections = order
            .paths
            .iter()
            .filter_map(|path| self.connections.get(&PathId(*path)));
        let got: Vec<(u64, u64)> = connections
            .filter_map(|connection| connection.set_buffers(bytes))
            .collect();
        RunReady {
            run: order.run,
            send_buffer: got.iter().map(|(send, _)| *send).min(),
            receive_buffer: got.iter().map(|(_, receive)| *receive).min(),
        }
    }

    /// Daemon: runs a disk test in an I/O thread and sends the client its result.
    fn on_disk_ordered(&mut self, order: DiskOrder) {
        let Some(service) = &self.config.service else {
            return;
        };
        let (service, session, number) = (service.clone(), self.handle(), order.number);
        let stop = StopOnDrop::default();
        let stopped = stop.flag();
        // Replacing the handle stops a running test.
        self.bench.disk = Some(stop);
        let shortened = |text: &str| text[..boundary(text, MAX_LETTERS)].to_owned();
        self.jobs.pool.run(move || {
            let done = service
                .work_for_bench(&order, &stopped)
                .unwrap_or_else(|error| DiskDone {
                    number,
                    bytes: 0,
                    micros: 0,
                    file_system: None,
                    error: Some(shortened(&crate::text::chain(&error))),
                });
            send_in_background(&session, BenchBody::DiskDone(done));
        });
    }
}

/// Daemon: sends a benchmark message through the session, from an I/O thread.
fn send_in_background(session: &SessionHandle, body: BenchBody) {
    let answer = Command::Bench(BenchInput::Answer(body));
    report(&session.inputs, Input::Command(answer));
}

impl PathConnection {
    /// Returns true if the path is connected and may carry data.
    fn can_bench(&self) -> bool {
        self.is_open() && !self.retired && !self.plan.contact_only && !self.plan.no_data
    }

    fn bench_path(&self, id: PathId) -> BenchPath {
        let link = self.plan.link();
        BenchPath {
            id,
            interface: link.interface,
            peer_interface: link.peer_interface,
            local: self.plan.local,
            remote: link.remote,
            line: self.plan.capacity.rates.line,
            shapers: self.plan.capacity.rates.shapers,
            path_mtu: self.path_mtu,
            verified: self.verified,
        }
    }

    /// Requests send and receive buffers of `bytes` bytes each, and returns the sizes that the
    /// kernel granted (send, receive).
    fn set_buffers(&self, bytes: u64) -> Option<(u64, u64)> {
        let socket = SockRef::from(self.probe()?);
        let requested = usize::try_from(bytes).ok()?;
        // The kernel may grant less without an error; the sizes are read back.
        let _ = (
            socket.set_send_buffer_size(requested),
            socket.set_recv_buffer_size(requested),
        );
        self.buffers()
    }

    /// Returns the sizes of the socket's send and receive buffers in bytes. The kernel reports
    /// twice the requested size.
    fn buffers(&self) -> Option<(u64, u64)> {
        let socket = SockRef::from(self.probe()?);
        Some((
            socket.send_buffer_size().ok()? as u64,
            socket.recv_buffer_size().ok()? as u64,
        ))
    }

    /// Returns the benchmark load carried by the path, and TCP statistics of its current
    /// connection. `interface` is the number of bytes that the interface received and sent.
    fn load_sample(&self, interface: Option<(u64, u64)>) -> PathSample {
        let (interface_received, interface_sent) = interface.unzip();
        let counters = &self.load_counters;
        let micros = |time: Duration| time.as_micros() as u64;
        let (send_buffer, receive_buffer) = self.buffers().unzip();
        let tcp = self.tcp().map(|info| TcpSample {
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
        PathSample {
            received: counters.received.load(Ordering::Relaxed),
            sent: counters.sent.load(Ordering::Relaxed),
            interface_received,
            interface_sent,
            tcp,
        }
    }
}
