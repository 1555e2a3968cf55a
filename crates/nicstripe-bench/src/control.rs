//! Messages between a benchmark and the session that runs it.

use std::time::{Duration, Instant};

use nicstripe_proto::{
    PathId,
    load::PingOrder,
    message::{
        BenchAsk, BenchBody, BenchRefusal, BenchRefused, DiskDone, DiskOrder, RunNumber, RunOrder,
    },
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    client::{BenchCommand, BenchNews, BenchPath, Client, Failure, Session},
    event::BenchEvent,
    figures::{self, LoadedLink, Loading, Track},
    report::{Direction, Ends, Phase, Run},
    statistics::jain,
    window::{self, Progress, Snapshot, Span},
};

/// Connection of a benchmark to the session that runs it.
#[derive(Debug)]
pub(crate) struct Control<C: Client> {
    /// Client whose handle keeps the session open.
    pub(crate) client: C,
    session: C::Session,
    news: mpsc::Receiver<BenchNews>,
    run: u32,
    disk: u32,
}

/// One load: its parameters, and the samples of both ends so far.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) phase: Phase,
    pub(crate) repeat: u32,
    pub(crate) paths: Vec<u16>,
    pub(crate) links: Vec<LoadedLink>,
    pub(crate) warm_up: Duration,
    pub(crate) longest: Duration,
    pub(crate) interval: Duration,
    /// True if a settled rate ends the load, false if it runs for its full time.
    pub(crate) settles: bool,
    pub(crate) message_bytes: u32,
    pub(crate) socket_buffer: Option<u64>,
    pub(crate) began: Instant,
    pub(crate) client: Track,
    pub(crate) daemon: Track,
    /// Smallest socket buffer in bytes, send or receive, that a kernel granted to any connection.
    pub(crate) got_buffer: Option<u64>,
}

/// Maximum wait for an answer of the daemon, except while queued: covers the detection of a lost
/// path and the failover.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after its planned end at which the daemon ends a load without a stop message.
const GRACE: Duration = Duration::from_secs(10);

impl<C: Client> Control<C> {
    /// Attaches to a client's session. Returns the connection to it, and the session's paths.
    pub(crate) async fn begin(client: C) -> Result<(Self, Vec<BenchPath>), C::Error> {
        let session = client.session().await?;
        let (owner, news) = mpsc::channel(NEWS);
        let mut talk = Self {
            client,
            session,
            news,
            run: 0,
            disk: 0,
        };
        talk.command(BenchCommand::Attach(owner)).await?;
        loop {
            if let BenchNews::Paths(paths, latest) = talk.receive(ANSWER_TIMEOUT).await? {
                talk.run = latest;
                return Ok((talk, paths));
            }
        }
    }

    /// Requests admission at the daemon and waits for it. Returns the granted duration and the
    /// version of the daemon's program.
    pub(crate) async fn enter(
        &mut self,
        id: [u8; 16],
        seconds: u32,
        events: &mpsc::Sender<BenchEvent>,
    ) -> Result<(Duration, String), C::Error> {
        self.tell(BenchBody::Ask(BenchAsk { id, seconds })).await?;
        let mut admitted = None;
        // The wait in the queue is unbounded; the end of the session reports a lost daemon.
        let mut timeout = ANSWER_TIMEOUT;
        loop {
            match self.said(timeout).await? {
                (BenchBody::Queued(queued), _) => {
                    timeout = FOREVER;
                    let _ = events.try_send(BenchEvent::Waiting {
                        ahead: queued.ahead,
                        wait: Duration::from_millis(queued.wait_ms),
                    });
                }
                (BenchBody::Admitted(admission), _) => {
                    timeout = ANSWER_TIMEOUT;
                    admitted = Some(Duration::from_secs(admission.seconds.into()));
                }
                (BenchBody::Facts(facts), _) => {
                    if let Some(time) = admitted {
                        return Ok((time, facts.version));
                    }
                }
                _ => {}
            }
        }
    }

    /// Measures up to `count` round trips of messages of `bytes` on a path, for at most `longest`.
    /// Returns none if the connection is lost.
    pub(crate) async fn ping(
        &self,
        path: PathId,
        count: u32,
        bytes: u64,
        longest: Duration,
    ) -> Result<Vec<Duration>, C::Error> {
        let order = PingOrder {
            count,
            bytes,
            run: self.run,
            longest,
        };
        let (reply, times) = oneshot::channel();
        self.command(BenchCommand::Ping { path, order, reply })
            .await?;
        match tokio::time::timeout(longest + ANSWER_TIMEOUT, times).await {
            Ok(times) => Ok(times.unwrap_or_default()),
            Err(_) => Err(self.unanswered()),
        }
    }

    /// Runs a load until the rate has settled or its time is over. `load` holds the samples so
    /// far, even if this future is dropped.
    pub(crate) async fn load(
        &mut self,
        load: &mut Load,
        events: &mpsc::Sender<BenchEvent>,
    ) -> Result<(), C::Error> {
        let _ = events.try_send(BenchEvent::Began {
            phase: load.phase,
            repeat: load.repeat,
            links: load.link_ids(),
        });
        self.begin_run(load).await?;
        let deadline = Instant::now() + load.warm_up + load.longest + load.interval;
        let mut looked = load.began;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.news.recv()).await {
                Err(_) => break,
                Ok(news) => self.take(news, load, Some(events))?,
            };
            if load.settles && looked.elapsed() >= LOOK_PAUSE {
                looked = Instant::now();
                if load.progress() != Progress::Going {
                    break;
                }
            }
        }
        self.end_run(load).await
    }

    /// Begins a run at both ends.
    pub(crate) async fn begin_run(&mut self, load: &mut Load) -> Result<(), C::Error> {
        self.run += 1;
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let run = RunOrder {
            run: self.run,
            to_daemon: load.phase.ways().contains(&Direction::ToDaemon),
            to_client: load.phase.ways().contains(&Direction::ToClient),
            paths: load.paths.clone(),
            longest_ms: millis(load.warm_up + load.longest + load.interval + GRACE),
            interval_ms: millis(load.interval),
            message_bytes: load.message_bytes,
            socket_buffer: load.socket_buffer,
        };
        load.began = Instant::now();
        self.tell(BenchBody::Run(run)).await?;
        let is_ready = |body: &BenchBody, run: u32| matches!(body, BenchBody::Ready(ready) if ready.run == run);
        self.take_until(is_ready, load).await
    }

    /// Ends the current load. The receivers take their last sample before the senders stop.
    pub(crate) async fn end_run(&mut self, load: &mut Load) -> Result<(), C::Error> {
        let number = RunNumber { run: self.run };
        self.tell(BenchBody::Stop(number)).await?;
        let is_stopped =
            |body: &BenchBody, run: u32| *body == BenchBody::Stopped(RunNumber { run });
        self.take_until(is_stopped, load).await
    }

    /// Processes messages about the current load, until one of the daemon is the expected one.
    async fn take_until(
        &mut self,
        is_expected: impl Fn(&BenchBody, u32) -> bool,
        load: &mut Load,
    ) -> Result<(), C::Error> {
        let began = Instant::now();
        loop {
            let left = ANSWER_TIMEOUT.saturating_sub(began.elapsed());
            let news = self.receive(left).await?;
            let is_last = matches!(&news, BenchNews::Said(body, _) if is_expected(body, self.run));
            self.take(Some(news), load, None)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Processes a message about the current load.
    fn take(
        &self,
        news: Option<BenchNews>,
        load: &mut Load,
        events: Option<&mpsc::Sender<BenchEvent>>,
    ) -> Result<(), C::Error> {
        let began = load.began;
        let micros = |at: Instant| at.saturating_duration_since(began).as_micros() as u64;
        match news {
            None => return Err(self.ended()),
            Some(BenchNews::Sample(sample, at)) if sample.run == self.run => {
                load.client.push(sample, micros(at));
                load.show(Direction::ToClient, events);
            }
            Some(BenchNews::Said(BenchBody::Sample(sample), at))
                if sample.run == self.run && sample.paths.len() == load.paths.len() =>
            {
                load.daemon.push(sample, micros(at));
                load.show(Direction::ToDaemon, events);
            }
            Some(BenchNews::Buffers(ready) | BenchNews::Said(BenchBody::Ready(ready), _))
                if ready.run == self.run =>
            {
                let buffers = [load.got_buffer, ready.send_buffer, ready.receive_buffer];
                load.got_buffer = buffers.into_iter().flatten().min();
            }
            Some(BenchNews::Said(BenchBody::Refused(refused), _)) => {
                return Err(self.refused(refused));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Runs a disk stage at the daemon and waits for its result.
    pub(crate) async fn disk(
        &mut self,
        mut order: DiskOrder,
        longest: Duration,
    ) -> Result<DiskDone, C::Error> {
        self.disk += 1;
        order.number = self.disk;
        self.tell(BenchBody::Disk(order)).await?;
        loop {
            match self.said(longest).await? {
                (BenchBody::DiskDone(done), _) if done.number == self.disk => return Ok(done),
                _ => {}
            }
        }
    }

    /// Tells the daemon that this session has left the benchmark; running loads end.
    pub(crate) async fn leave(&self) {
        let _ = self.tell(BenchBody::Leave).await;
    }

    async fn said(&mut self, timeout: Duration) -> Result<(BenchBody, Instant), C::Error> {
        loop {
            match self.receive(timeout).await? {
                BenchNews::Said(BenchBody::Refused(refused), _) => {
                    return Err(self.refused(refused));
                }
                BenchNews::Said(body, at) => return Ok((body, at)),
                _ => {}
            }
        }
    }

    async fn receive(&mut self, timeout: Duration) -> Result<BenchNews, C::Error> {
        match tokio::time::timeout(timeout, self.news.recv()).await {
            Ok(Some(news)) => Ok(news),
            Ok(None) => Err(self.ended()),
            Err(_) => Err(self.unanswered()),
        }
    }

    async fn tell(&self, body: BenchBody) -> Result<(), C::Error> {
        self.command(BenchCommand::Tell(Box::new(body))).await
    }

    async fn command(&self, command: BenchCommand) -> Result<(), C::Error> {
        if self.session.command(command).await {
            Ok(())
        } else {
            Err(self.ended())
        }
    }

    fn unanswered(&self) -> C::Error {
        self.client.error(Failure::Ended("no answer to the bench"))
    }

    fn ended(&self) -> C::Error {
        self.client.error(Failure::Ended("during a bench"))
    }

    fn refused(&self, refused: BenchRefused) -> C::Error {
        let why = match refused.why {
            BenchRefusal::Disabled => "bench is disabled".to_owned(),
            BenchRefusal::NotPermitted => "bench is not permitted for this key".to_owned(),
            BenchRefusal::Busy => "busy with other benches, queue full".to_owned(),
            BenchRefusal::TimeOver => "its time limit for a bench is reached".to_owned(),
            BenchRefusal::ShuttingDown => "it is shutting down".to_owned(),
        };
        let again = refused
            .retry_after_ms
            .map(|millis| format!("; retry in {} s", millis.div_ceil(1000)));
        self.client
            .error(Failure::Refused(why + &again.unwrap_or_default()))
    }
}

impl Load {
    /// Returns a run over `paths` without a load, for messages that are too long to be echoed.
    pub(crate) fn none(paths: Vec<u16>) -> Self {
        Self {
            phase: Phase::Idle,
            repeat: 1,
            paths,
            links: Vec::new(),
            warm_up: Duration::ZERO,
            longest: Duration::from_secs(600),
            interval: Duration::from_secs(60),
            settles: false,
            message_bytes: 1,
            socket_buffer: None,
            began: Instant::now(),
            client: Track::default(),
            daemon: Track::default(),
            got_buffer: None,
        }
    }

    /// Computes the results of the load from the samples so far; `None` if it has no measurement
    /// window yet, or if no data arrived in it. The benchmark began at `bench_began`.
    pub(crate) fn run(&self, bench_began: Instant) -> Option<Run> {
        let (ways, span) = (self.ways(), self.window()?);
        let began = self.began.saturating_duration_since(bench_began);
        Some(Run {
            phase: self.phase,
            repeat: self.repeat,
            began_us: began.as_micros() as u64 + span.begin_us(),
            window_us: span.micros(),
            stable: self.progress() == Progress::Settled,
            flows: figures::flows(&ways, &span, &self.links),
            total_bps: span.total().0,
            cpu: Ends {
                client: self.client.cpu(&span),
                daemon: self.daemon.cpu(&span),
            },
            intervals: ways
                .iter()
                .flat_map(|loading| loading.intervals(&self.links))
                .collect(),
            other_transfers: self.daemon.transfers(),
        })
    }

    /// Returns Jain's index of the paths of the link whose paths share its rate least evenly.
    pub(crate) fn fairness(&self) -> Option<f64> {
        let span = self.window()?;
        let of = |link: &LoadedLink| {
            let bytes = link.paths.iter().filter_map(|path| span.bytes.get(*path));
            jain(&bytes.map(|bytes| *bytes as f64).collect::<Vec<f64>>())
        };
        self.links.iter().filter_map(of).min_by(f64::total_cmp)
    }

    /// Returns the measurement window, if data arrived in it.
    fn window(&self) -> Option<Span> {
        window::common(&self.snapshots(), self.warm_up).filter(|span| span.total_bytes() > 0)
    }

    fn progress(&self) -> Progress {
        window::progress(&self.snapshots(), self.warm_up, self.longest)
    }

    fn snapshots(&self) -> Vec<Snapshot> {
        figures::snapshots(&self.ways(), &self.links)
    }

    fn ways(&self) -> Vec<Loading<'_>> {
        let ways = self.phase.ways().iter();
        ways.map(|way| self.loading(*way)).collect()
    }

    fn loading(&self, way: Direction) -> Loading<'_> {
        let ends = Ends {
            client: &self.client,
            daemon: &self.daemon,
        };
        let (sender, receiver) = ends.by(way);
        Loading {
            way,
            receiver,
            sender,
        }
    }

    /// Sends the last interval of a direction as an event, if the load has this direction.
    fn show(&self, way: Direction, events: Option<&mpsc::Sender<BenchEvent>>) {
        let Some(events) = events.filter(|_| self.phase.ways().contains(&way)) else {
            return;
        };
        let Some(interval) = self.loading(way).last_interval(&self.links) else {
            return;
        };
        let _ = events.try_send(BenchEvent::Sample {
            phase: self.phase,
            repeat: self.repeat,
            way,
            interval,
            links: self.link_ids(),
        });
    }

    fn link_ids(&self) -> Vec<u32> {
        self.links.iter().map(|link| link.id).collect()
    }
}

/// Minimum interval between checks whether a running load has ended. Samples may arrive much more
/// often.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// Capacity of the message queue: one minute of samples at the shortest interval.
const NEWS: usize = 4096;

/// Effectively unbounded timeout.
const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);
