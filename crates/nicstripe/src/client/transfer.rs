//! A transfer at work: attempts until it is done, or cannot be done.

use std::{
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, FailCode, Name, TransferId,
    message::{Get, Put},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    CopyOptions, Inner, LiveSession,
    carried::{self, Carried},
    jobs::{PipeJob, TreeJob},
};
use crate::{
    error::Error,
    event::{Event, LinkState},
    file::{ReadOptions, Source},
    report::{Limit, Report, limit},
    session::{Command, LocalTarget, Outcome, Reply, Tally, offer_of},
    tree::TreeOptions,
};

/// A transfer that runs. Dropping it interrupts it; it can be resumed.
#[derive(Debug)]
pub struct Transfer {
    events: mpsc::Receiver<Event>,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<Result<Report, Error>>,
}

impl Transfer {
    pub(super) fn start(inner: Arc<Inner>, job: Job, options: CopyOptions) -> Self {
        let (events, receiver) = mpsc::channel(EVENTS);
        let cancel = CancellationToken::new();
        let run = Run { inner, job, options, events, cancel: cancel.clone(), started: Instant::now() };
        Self { events: receiver, cancel, task: tokio::spawn(run.run()) }
    }

    pub(super) fn start_tree(inner: Arc<Inner>, job: TreeJob, options: TreeOptions) -> Self {
        Self::unbuilt(format!("{inner:?} {job:?} {options:?}"))
    }

    pub(super) fn start_pipe(inner: Arc<Inner>, job: PipeJob, options: CopyOptions) -> Self {
        Self::unbuilt(format!("{inner:?} {job:?} {options:?}"))
    }

    fn unbuilt(what: String) -> Self {
        let (_, events) = mpsc::channel(1);
        let task = tokio::spawn(async { Err(Error::System { what: "start this transfer", source: std::io::Error::other(what) }) });
        Self { events, cancel: CancellationToken::new(), task }
    }

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

/// What a transfer does.
#[derive(Debug, Clone)]
pub(super) enum Job {
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
                Err(error) if error.fail_code() == Some(FailCode::Digest) && !restarted => restarted = true,
                // The daemon went away in the middle: perhaps it comes back, and what is durable is still there.
                Err(error) if begun && self.may_wait(&error, &mut lost_since) => {
                    let since = lost_since.map_or(Duration::ZERO, |since| since.elapsed());
                    let _ = self.events.try_send(Event::Waiting { since });
                    tokio::select! {
                        () = tokio::time::sleep(RECONNECT_PAUSE) => continue,
                        () = self.cancel.cancelled() => return Err(Error::Cancelled { resumable: true }),
                    }
                }
                Err(error) => return Err(self.given_up(error, lost_since)),
            }
            self.options.restart = true;
            let _ = self.events.try_send(Event::Restarted);
        }
    }

    /// An error after the daemon was waited for in vain: that is what ended the transfer, and a rerun goes on.
    fn given_up(&self, error: Error, lost_since: Option<Instant>) -> Error {
        match (&error, lost_since) {
            (Error::Connect { .. } | Error::Refused { .. } | Error::Link { .. }, Some(since)) => {
                Error::Abandoned { host: self.inner.host.clone(), waited: since.elapsed() }
            }
            _ => error,
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
            // A named link cannot connect while its daemon is away.
            Error::Link { .. } => lost_since.is_some_and(|since| since.elapsed() < self.inner.settings.patience),
            _ => false,
        }
    }

    async fn attempt(&self, begun: &mut bool) -> Result<Report, Error> {
        let session = tokio::select! {
            session = self.inner.session(Some(&self.events)) => session?,
            () = self.cancel.cancelled() => return Err(Error::Cancelled { resumable: *begun }),
        };
        let name = self.inner.name_of(&session.key);
        let _ = self.events.try_send(Event::Connected { key: session.key, name });
        let (reply, mut answer) = oneshot::channel();
        let command = self.command(&session, reply).await?;
        let before = Carried::read();
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
                let mut report = self.report(&outcome, tally, session.routes.as_ref().map_or(0, |routes| routes.count()));
                carried::verify(&mut report.links, &before, matches!(self.job, Job::Get { .. })).await;
                if let Some(survey) = session.survey().await {
                    report.failed = survey.unused.into_iter().filter(|unused| unused.failed).collect();
                    report.remedies = survey.remedies;
                }
                Ok(report)
            }
            Err(error) => {
                self.inner.forget(&session).await;
                Err(error)
            }
        }
    }

    /// Opens what has to be open before the peer is asked.
    async fn command(&self, session: &LiveSession, reply: Reply) -> Result<Command, Error> {
        let transfer = TransferId(self.inner.next_transfer.fetch_add(1, Ordering::Relaxed));
        match self.job.clone() {
            Job::Put { source: path, name } => {
                let own_name = Name::new(path.file_name().map(|name| name.as_bytes().to_vec()))?;
                let CopyOptions { allow_changing, compress, .. } = self.options;
                let options = ReadOptions { allow_changing, compress };
                let opened = self.inner.pool.call(move || Source::open(&path, options)).await;
                let source = Arc::new(opened.ok_or_else(io_threads_gone)??);
                let put = Put {
                    into: name.is_some().then(|| own_name.clone()),
                    name: name.unwrap_or(own_name),
                    offer: offer_of(transfer, &source),
                    options: self.options.into(),
                    entry: None,
                };
                Ok(Command::Put { source, put: Box::new(put), reply })
            }
            Job::Get { name, target } => {
                let path = if target.is_dir() { target.join(std::ffi::OsStr::from_bytes(name.file_name())) } else { target };
                let target = LocalTarget { path, options: self.options.into(), peer_key: *session.key.as_bytes() };
                let limit_bps = self.inner.settings.bandwidth.map(|BitRate(bps)| bps);
                let CopyOptions { allow_changing, compress, .. } = self.options;
                let get = Get { transfer, name, limit_bps, entry: None, compress, allow_changing };
                Ok(Command::Get { get: Box::new(get), target, reply })
            }
        }
    }

    /// Most that the user lets the transfer have, if that is limited at all.
    fn limit(&self) -> Option<BitRate> {
        let settings = &self.inner.settings;
        let caps = settings.links.iter().map(|link| link.cap.map(|BitRate(bps)| bps)).sum::<Option<u64>>();
        let caps = caps.filter(|bps| *bps > 0).map(BitRate);
        settings.bandwidth.into_iter().chain(caps).min()
    }

    fn report(&self, outcome: &Outcome, tally: Tally, routes_installed: u32) -> Report {
        let elapsed = self.started.elapsed();
        let mut links = tally.links;
        for link in &mut links {
            link.goodput = BitRate::from_bytes_over(link.bytes, elapsed);
        }
        // What was left out was not expected to carry anything.
        let expected = || links.iter().filter(|link| !matches!(link.state, LinkState::LeftOut(_)));
        let all_known = expected().count() > 0 && expected().all(|link| link.theory.is_some());
        let mut report = Report {
            size: outcome.size,
            digest: Some(outcome.digest),
            tree: None,
            wire_bytes: tally.wire_bytes,
            elapsed,
            moving: tally.moving_since.map_or(Duration::ZERO, |since| since.elapsed()),
            resumed_bytes: tally.stats.resumed_bytes,
            resent_bytes: tally.stats.repeated_bytes,
            failovers: tally.failovers,
            routes_installed,
            expected: all_known.then(|| BitRate(expected().filter_map(|link| link.theory).map(|rate| rate.0).sum())),
            limited_by: Limit::Unknown,
            links,
            failed: Vec::new(),
            remedies: Vec::new(),
        };
        report.limited_by = limit(&report, self.limit());
        report
    }
}

fn io_threads_gone() -> Error {
    Error::System { what: "open a file", source: std::io::Error::other("the I/O threads have ended") }
}

/// Events that may wait for whoever shows them.
const EVENTS: usize = 1024;

/// Pause between attempts to reach a daemon that went away.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
