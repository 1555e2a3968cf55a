//! Running transfer of a client, which repeats attempts until success or a final error.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use nicstripe_proto::{BitRate, FailCode, TransferId, message::EntryRef, tree::EntryId};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;

use super::{
    carried::{self, Carried},
    reconnects::Reconnects,
    request::{Attempt, Request},
    sessions::{CLOSE_TIMEOUT, Inner},
};
use crate::{
    links::establish::LinkedSession,
    report::{
        Limit, LinkReport, Report,
        error::Error,
        event::{Event, LinkState, Progress},
        limit,
        metrics::TransferDirection,
        survey::UnusedInterface,
    },
    session::{Command, Outcome, SharedProgress, Tally, Waiter},
};

/// Running transfer of a client. Dropping it cancels it; it can be resumed.
#[derive(Debug)]
pub struct Transfer {
    events: mpsc::Receiver<Event>,
    cancel: CancellationToken,
    progress: SharedProgress,
    /// Task of the transfer, or why there is none; `None` once its result was returned.
    task: Option<Result<JoinHandle<Result<Report, Error>>, Error>>,
    /// True if the transfer continues when this handle is dropped.
    goes_on: bool,
}

impl Transfer {
    pub(super) fn start(inner: Arc<Inner>, request: Box<dyn Request>) -> Self {
        let runtime = inner.runtime.handle.clone();
        let (events, receiver) = mpsc::channel(EVENTS);
        let cancel = inner.closed.child_token();
        let open = inner.require_open();
        let progress = SharedProgress::default();
        let run = Run {
            inner,
            request,
            restart: false,
            is_opened: false,
            events,
            progress: progress.clone(),
            cancel: cancel.clone(),
            started: Instant::now(),
        };
        Self {
            events: receiver,
            cancel,
            progress,
            task: Some(open.map(|()| runtime.spawn(run.run()))),
            goes_on: false,
        }
    }

    /// Returns the next event, or `None` when the transfer has ended. Cancel safe.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use nicstripe::{CopyOptions, Event};
    /// let mut transfer = client.put("disk.img", None, CopyOptions::default());
    /// while let Some(event) = transfer.next_event().await {
    ///     if let Event::Progress(progress) = event {
    ///         println!("{} of {} bytes", progress.bytes, progress.size);
    ///     }
    /// }
    /// transfer.finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Returns the current progress, at most a tenth of a second old while the transfer runs. Works
    /// even if the program reads no events.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// # use nicstripe::CopyOptions;
    /// let transfer = client.put("disk.img", None, CopyOptions::default());
    /// tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    /// let progress = transfer.progress();
    /// println!("{} of {} bytes", progress.bytes, progress.size);
    /// transfer.finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn progress(&self) -> Progress {
        self.progress.get()
    }

    /// Cancels the transfer. The receiver makes the received data durable, so that repeating the
    /// transfer resumes.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transfer = client.put("disk.img", None, nicstripe::CopyOptions::default());
    /// transfer.cancel();
    /// match transfer.finish().await {
    ///     Err(error) if error.is_resumable() => println!("to be continued"),
    ///     ended => println!("{:?}", ended.map(|report| report.size)),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Returns a token that cancels the transfer from another task.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transfer = client.put("disk.img", None, nicstripe::CopyOptions::default());
    /// let cancel = transfer.cancel_token();
    /// let ended = tokio::spawn(transfer.finish());
    /// cancel.cancel();
    /// println!("{:?}", ended.await?.map(|report| report.size));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel_token(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Waits until the transfer ends. `Ok` means that the whole file is durable at the receiver
    /// under its name.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transfer = client.put("disk.img", None, nicstripe::CopyOptions::default());
    /// let report = transfer.finish().await?;
    /// println!("{} bytes in {:?}", report.size, report.elapsed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn finish(mut self) -> Result<Report, Error> {
        self.events.close();
        poll_fn(|cx| self.poll_end(cx)).await
    }

    /// Polls for the result, like [`finish`](Self::finish). Later calls return
    /// [`Error::Cancelled`].
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Report, Error>> {
        let ended = match &mut self.task {
            Some(Ok(task)) => match ready!(Pin::new(task).poll(cx)) {
                Ok(ended) => ended,
                Err(error) if error.is_cancelled() => Err(Error::RuntimeEnded),
                Err(error) => Err(Error::failed("run the transfer", error)),
            },
            Some(Err(_)) | None => {
                let refused = self.task.take().and_then(Result::err);
                Err(refused.unwrap_or(Error::Cancelled { resumable: false }))
            }
        };
        self.task = None;
        Poll::Ready(ended)
    }

    /// Polls for the error of a transfer that no longer accepts data.
    pub(super) fn poll_failure(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let ended = ready!(self.poll_end(cx));
        Poll::Ready(ended.err().unwrap_or(Error::Cancelled { resumable: false }))
    }

    /// Lets the transfer continue when this handle is dropped. Used once all data is transferred.
    pub(super) fn finish_later(&mut self) {
        self.goes_on = true;
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.goes_on {
            self.cancel.cancel();
        }
    }
}

/// Task of a transfer, which repeats attempts until success or a final error.
struct Run {
    inner: Arc<Inner>,
    request: Box<dyn Request>,
    /// True if the next attempt must start from zero, because received data was corrupt.
    restart: bool,
    /// True once the source or sink of an attempt was opened.
    is_opened: bool,
    events: mpsc::Sender<Event>,
    progress: SharedProgress,
    cancel: CancellationToken,
    started: Instant,
}

impl Run {
    async fn run(mut self) -> Result<Report, Error> {
        let result = self.attempts().await;
        // Unsubscribes from the session, which outlives the transfer, so that the event channel
        // closes.
        if let Some(session) = &self.inner.slot.lock().session {
            session.audience.leave(&self.events);
        }
        if let Ok(report) = &result {
            self.progress.close(report.size);
        }
        result
    }

    async fn attempts(&mut self) -> Result<Report, Error> {
        let (inner, cancel) = (self.inner.clone(), self.cancel.clone());
        let mut reconnects = Reconnects::new(&inner);
        let (mut begun, mut restarted) = (false, false);
        loop {
            let error = match self.attempt(&mut begun).await {
                Ok(report) => return Ok(report),
                Err(error) => error,
            };
            if error.fail_code() == Some(FailCode::Digest)
                && !restarted
                && self.request.can_start_over()
            {
                restarted = true;
                self.restart = true;
                let _ = self.events.try_send(Event::Restarted);
                continue;
            }
            let resumable = begun && self.request.is_resumable();
            let interrupted = || given_up(&inner, &cancel, Error::Cancelled { resumable });
            if inner.closed.is_cancelled() {
                return Err(interrupted());
            }
            if self.is_opened && !self.request.can_be_tried_again() {
                return Err(match error.is_resumable() {
                    true => Error::Pipe(Box::new(error)),
                    false => error,
                });
            }
            let (told, moved) = (self.told(begun).cloned(), self.progress.get().moved());
            let again = tokio::select! {
                again = reconnects.again(error, moved, told.as_ref()) => again,
                () = cancel.cancelled() => return Err(interrupted()),
            };
            again.map_err(|error| given_up(&inner, &cancel, error))?;
        }
    }

    /// Returns the channel for the reason why the transfer waits. The program sees no events of
    /// objects that have not begun.
    fn told(&self, begun: bool) -> Option<&mpsc::Sender<Event>> {
        match !begun && self.request.is_object() {
            true => self.inner.settings.session.events.as_ref(),
            false => Some(&self.events),
        }
    }

    async fn attempt(&mut self, begun: &mut bool) -> Result<Report, Error> {
        let (inner, cancel) = (self.inner.clone(), self.cancel.clone());
        let patience = inner.settings.session.patience;
        let told = self.told(*begun);
        // After the first command, `attempts` reports the wait.
        let told_first = told.filter(|_| !*begun);
        let in_turn = async {
            let turn = inner.turns.next(&self.progress, patience, told).await?;
            let session = inner.session_of(Some(&self.events), told_first).await?;
            Ok::<_, Error>((turn, session))
        };
        let (_turn, session) = tokio::select! {
            in_turn = in_turn => in_turn?,
            () = self.cancel.cancelled() => return Err(Error::Cancelled { resumable: *begun }),
        };
        if let Some(feature) = self.request.needed() {
            session.peer.require(feature, &self.inner.host)?;
        }
        let name = self.inner.name_of(&session.key);
        let _ = self.events.try_send(Event::Connected {
            key: session.key,
            name,
        });
        let (reply, answer) = oneshot::channel();
        let (standalone, entries) = mpsc::unbounded_channel();
        let attempt = Attempt {
            inner: &self.inner,
            peer_key: self.inner.resume_key(&session.key),
            restart: self.restart,
            standalone,
        };
        // Opened before the transfer has its number, whose lock delays all other transfers.
        let end = tokio::select! {
            end = self.request.open(attempt) => end?,
            () = self.cancel.cancelled() => return Err(Error::Cancelled { resumable: *begun }),
        };
        self.is_opened = true;
        let (is_get, is_object, resumable) = (
            end.direction() == TransferDirection::Receive,
            self.request.is_object(),
            self.request.is_resumable(),
        );
        let waiter = Waiter {
            reply,
            events: Some(self.events.clone()),
            progress: self.progress.clone(),
            is_object,
        };
        let before = if is_object {
            Carried::default()
        } else {
            Carried::read()
        };
        let Some(transfer) = self.inner.begin(&session, end, waiter).await else {
            self.inner.forget(&session).await;
            return Err(Error::ended(&self.inner.host, "before the transfer began"));
        };
        *begun = true;
        let result = {
            let mut answer = pin!(self.move_entries(&session, transfer, entries, answer));
            tokio::select! {
                result = &mut answer => result,
                () = cancel.cancelled() => {
                    session.handle.command(Command::Cancel(transfer)).await;
                    // The answer arrives after written data is durable.
                    match tokio::time::timeout(CLOSE_TIMEOUT, answer).await {
                        // The transfer completed before the cancellation.
                        Ok(Ok(Ok(done))) => Ok(Ok(done)),
                        Ok(_) => return Err(Error::Cancelled { resumable }),
                        Err(_) => {
                            inner.forget(&session).await;
                            return Err(Error::Cancelled { resumable });
                        }
                    }
                }
            }
        };
        let ended = || Error::ended(&self.inner.host, "without an answer");
        match result.unwrap_or_else(|_| Err(ended())) {
            Ok((outcome, tally)) => {
                let mut report = self.report(
                    &outcome,
                    tally,
                    session.routes.as_ref().map_or(0, |routes| routes.count()),
                );
                if is_object {
                    return Ok(report);
                }
                carried::verify(&mut report.links, &before, is_get).await;
                if let Some(survey) = session.survey().await {
                    let of = |is_meant: fn(&UnusedInterface) -> bool| {
                        let unused = survey.unused.iter();
                        unused.filter(|unused| is_meant(unused)).cloned().collect()
                    };
                    report.failed = of(|unused| unused.failed);
                    report.unused = of(|unused| unused.is_card);
                    report.survey = Some(survey);
                }
                Ok(report)
            }
            // Errors of this transfer alone; the session stays.
            Err(error @ (Error::Peer { .. } | Error::File(_) | Error::Digest { .. })) => Err(error),
            Err(error) => {
                self.inner.forget(&session).await;
                Err(error)
            }
        }
    }

    /// Transfers the standalone files of a tree, at most [`MOST_STANDALONE`] at once, until the
    /// transfer ends. Returns its result.
    async fn move_entries(
        &mut self,
        session: &LinkedSession,
        tree: TransferId,
        mut entries: mpsc::UnboundedReceiver<(EntryId, u64)>,
        mut answer: oneshot::Receiver<Result<(Outcome, Tally), Error>>,
    ) -> Result<Result<(Outcome, Tally), Error>, oneshot::error::RecvError> {
        let (mut waiting, mut moving) = (VecDeque::new(), JoinSet::new());
        loop {
            while moving.len() < MOST_STANDALONE
                && let Some(id) = waiting.pop_front()
            {
                let entry = self.request.entry(EntryRef { tree, id }, self.restart);
                let Some(entry) = entry else { continue };
                let (reply, ended) = oneshot::channel();
                let waiter = Waiter {
                    reply,
                    events: None,
                    progress: SharedProgress::default(),
                    is_object: false,
                };
                self.inner.begin(session, entry, waiter).await;
                // The session reports the result to the tree itself.
                moving.spawn(async { drop(ended.await) });
            }
            tokio::select! {
                biased;
                result = &mut answer => return result,
                Some((id, _)) = entries.recv() => waiting.push_back(id),
                Some(_) = moving.join_next() => {}
            }
        }
    }

    /// Returns the user's rate limit for all links of the transfer; `None` without one.
    fn limit(&self) -> Option<BitRate> {
        let settings = &self.inner.settings.session;
        let caps = settings
            .links
            .iter()
            .map(|link| link.cap.map(|BitRate(bps)| bps))
            .sum::<Option<u64>>();
        let caps = caps.filter(|bps| *bps > 0).map(BitRate);
        settings.bandwidth.into_iter().chain(caps).min()
    }

    fn report(&self, outcome: &Outcome, tally: Tally, routes_installed: u32) -> Report {
        let elapsed = self.started.elapsed();
        let mut links = tally.links;
        for link in &mut links {
            link.goodput = BitRate::from_bytes_over(link.bytes, elapsed);
        }
        let mut report = Report {
            size: outcome.size,
            digest: outcome.digest,
            etag: outcome.etag,
            tree: outcome.tree.clone(),
            wire_bytes: tally.wire_bytes,
            elapsed,
            moving: tally
                .moving_since
                .map_or(Duration::ZERO, |since| since.elapsed()),
            resumed_bytes: tally.stats.resumed_bytes,
            resent_bytes: tally.stats.repeated_bytes,
            failovers: tally.failovers,
            routes_installed,
            expected: expected_rate(&links),
            limited_by: Limit::Unknown,
            links,
            failed: Vec::new(),
            unused: Vec::new(),
            survey: None,
        };
        report.limited_by = limit(&report, self.limit());
        report
    }
}

/// Replaces a cancellation by [`Error::Ended`] if an introduced peer has gone: session or client were
/// closed because of that, not by the caller.
fn given_up(inner: &Inner, cancel: &CancellationToken, error: Error) -> Error {
    let by_caller = cancel.is_cancelled() && !inner.closed.is_cancelled();
    match error {
        Error::Cancelled { .. } if inner.is_peer_gone() && !by_caller => inner.peer_ended(),
        _ => error,
    }
}

/// Returns the theoretical goodput of all cables together; `None` unless it is known for each link.
///
/// Each interface counts once: a cable that was paired again has several links, and one is up.
/// Excluded links were not expected to carry data.
fn expected_rate(links: &[LinkReport]) -> Option<BitRate> {
    let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
    for link in links {
        if matches!(link.state, LinkState::LeftOut(_)) {
            continue;
        }
        let (rate, ends) = (link.theory?.0, &link.link);
        let peer_interface = ends.peer_interface.clone();
        let theirs: &mut EndRates = theirs
            .entry(peer_interface.unwrap_or_else(|| ends.remote.to_string()))
            .or_default();
        let ours: &mut EndRates = ours.entry(&ends.interface).or_default();
        for end in [ours, theirs] {
            end.greatest = end.greatest.max(rate);
            if matches!(link.state, LinkState::Up | LinkState::Suspect) {
                end.up += rate;
            }
        }
    }
    let of_ours: u64 = ours.values().map(EndRates::rate).sum();
    let of_theirs: u64 = theirs.values().map(EndRates::rate).sum();
    (!ours.is_empty()).then_some(BitRate(of_ours.min(of_theirs)))
}

/// Rates of the links of one interface in bit/s.
#[derive(Default)]
struct EndRates {
    greatest: u64,
    /// Sum of the links that are up.
    up: u64,
}

impl EndRates {
    fn rate(&self) -> u64 {
        self.greatest.max(self.up)
    }
}

/// Number of standalone files of a tree transferred concurrently, so that the fsync of one does not
/// idle the links.
const MOST_STANDALONE: usize = 8;

/// Capacity of a transfer's event channel.
const EVENTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use nicstripe_proto::{
        Name,
        path::{Cause, PathPlan},
        session::FIRST_PATH,
    };

    use crate::{
        daemon::hostile::Stage,
        file::options::CopyOptions,
        report::{KernelView, event::LinkName},
        session::{Inspect, SessionHandle},
        wire::clock,
    };

    #[test]
    fn each_cable_is_expected_to_carry_its_rate_once() {
        let down = || LinkState::Down("no carrier".into());
        let expected = |links: &[(&str, &str, LinkState)]| {
            let link = |(ours, theirs, state): &(&str, &str, LinkState)| LinkReport {
                link: LinkName {
                    interface: (*ours).into(),
                    peer_interface: Some((*theirs).into()),
                    local: None,
                    remote: [10, 0, 0, 1].into(),
                },
                bytes: 1,
                wire_bytes: 1,
                goodput: BitRate(0),
                theory: Some(BitRate(100)),
                state: state.clone(),
                verified: None,
                interface_bytes: None,
                path_mtu: None,
                failures: 0,
                damaged: 0,
                kernel: KernelView::default(),
            };
            expected_rate(&links.iter().map(link).collect::<Vec<_>>()).map(|rate| rate.0)
        };
        let up = || LinkState::Up;
        let paired_again = [
            ("eth1", "eth1", down()),
            ("eth2", "eth2", down()),
            ("eth1", "eth2", up()),
        ];
        assert_eq!(expected(&paired_again), Some(200));
        let shared = [("eth1", "eth1", up()), ("eth2", "eth1", up())];
        assert_eq!(expected(&shared), Some(200), "two cards at one fast port");
        let lost = [("eth1", "eth1", up()), ("eth2", "eth2", down())];
        assert_eq!(expected(&lost), Some(200));
        let left_out = [
            ("eth1", "eth1", up()),
            ("eth1", "eth2", LinkState::LeftOut("replaced".into())),
        ];
        assert_eq!(expected(&left_out), Some(100));
        assert_eq!(expected(&[]), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_session_that_ends_before_the_first_command_is_made_anew() {
        let stage = Stage::new().await;
        let client = stage
            .client(&["127.0.0.9=127.0.1.1"])
            .connect("127.0.1.1")
            .await
            .unwrap();
        // A session that accepts no commands and has not signalled its end.
        let handle = SessionHandle::new(mpsc::channel(1).0, Default::default());
        let ended = handle.ended.clone();
        client.inner.slot.lock().session.as_mut().unwrap().handle = handle;
        let source = stage.file("source", b"bytes");
        let mut transfer = client.put(&source, None, CopyOptions::default());
        while !matches!(transfer.next_event().await, Some(Event::Connected { .. })) {}
        let mut finish = pin!(transfer.finish());
        assert!(
            tokio::time::timeout(Duration::from_millis(300), &mut finish)
                .await
                .is_err(),
            "it waits until the session has ended"
        );
        ended.cancel();
        finish.await.unwrap();
        assert_eq!(std::fs::read(stage.served("source")).unwrap(), b"bytes");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_source_that_does_not_open_delays_no_other_transfer() {
        let stage = Stage::new().await;
        std::fs::write(stage.served("there"), b"bytes").unwrap();
        let client = stage
            .client(&["127.0.0.9=127.0.1.1"])
            .connect("127.0.1.1")
            .await
            .unwrap();
        // Occupies all I/O threads, so that no file opens.
        let gate = Arc::new(tokio::sync::Mutex::new(()));
        let closed = gate.clone().lock_owned().await;
        for _ in 0..16 {
            let gate = gate.clone();
            client.inner.pool.run(move || drop(gate.blocking_lock()));
        }
        let source = stage.file("source", b"other bytes");
        let mut transfer = client.put(&source, None, CopyOptions::default());
        while !matches!(transfer.next_event().await, Some(Event::Connected { .. })) {}
        tokio::time::sleep(Duration::from_millis(100)).await;
        let name = Name::parse(b"there").unwrap();
        let read = tokio::time::timeout(Duration::from_secs(5), client.read(&name, None)).await;
        drop(closed);
        assert_eq!(read.unwrap().unwrap(), b"bytes");
        transfer.finish().await.unwrap();
    }

    /// Two pairs of interfaces are planned when only one has been probed. Of the four candidates,
    /// the first is retired as soon as the others answer. It is the only one left when both links
    /// lose an end.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_path_that_is_given_up_while_it_connects_is_made_when_it_is_planned_again() {
        let stage = Stage::new().await;
        let client = stage
            .client(&["127.0.0.9=127.0.1.1"])
            .patience(Duration::from_secs(5))
            .connect("127.0.1.1")
            .await
            .unwrap();
        let session = client
            .inner
            .slot
            .lock()
            .session
            .as_ref()
            .unwrap()
            .handle
            .clone();
        let plan = PathPlan {
            local: Some([127, 0, 0, 8].into()),
            ..PathPlan::new("lo".into(), ([127, 0, 1, 1], stage.port).into())
        };
        let again = plan.clone();
        let inspect = |look: Box<dyn Inspect>| session.command(Command::Inspect(look));
        inspect(Box::new(move |session| {
            let now = clock::now();
            let path = session.add_path(plan, now).unwrap();
            session.retire_path(path, Cause::Replaced, now);
        }))
        .await;
        // The pending attempt ends with a connection.
        tokio::time::sleep(Duration::from_millis(500)).await;
        inspect(Box::new(move |session| {
            let now = clock::now();
            session.add_path(again, now).unwrap();
            session.retire_path(FIRST_PATH, Cause::Replaced, now);
        }))
        .await;
        let source = stage.file("source", b"bytes");
        client
            .put(&source, None, CopyOptions::default())
            .finish()
            .await
            .unwrap();
    }
}
