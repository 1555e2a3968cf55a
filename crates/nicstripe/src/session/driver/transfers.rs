//! Transfers in a session's event loop, from the request to the end.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, Digest, FailCode, Offer, Request, TransferId,
    message::{CloseCode, Committed, GetTree, TreeBody},
    session::failure,
};

use super::{Account, Driver};
use crate::{
    file::{Arrived, FileError},
    report::{error::Error, event::Event, metrics::TransferDirection},
    session::{
        inbox::{Input, IoResult, Said, Step},
        kind::{Kind, Opened, Opening, Scope},
        record::Record,
        transfer::Owner,
        waiters::{Outcome, Starter},
    },
    storage::Target,
    text::{logged::logged, shown_path},
    tree::TreeReport,
    wire::clock,
};

impl Driver {
    /// Client: starts a transfer.
    pub(super) fn start_transfer(
        &mut self,
        transfer: TransferId,
        kind: Box<dyn Kind>,
        starter: Starter,
    ) {
        let entry = kind.entry();
        let owner = Owner::of(starter, entry.is_some(), clock::now());
        self.running.insert(transfer, kind, entry, owner, None);
        self.act(transfer, |kind, at| kind.open(at));
    }

    /// Daemon: opens its end of a transfer that the peer requests. A client rejects the request.
    pub(super) fn on_requested(&mut self, request: Request, now: Instant) {
        if let Some(limit) = request.limit_bps() {
            self.session.limit_rate(BitRate(limit), now);
        }
        let (transfer, entry) = (request.transfer(), request.entry());
        let direction = match request.is_download() {
            true => TransferDirection::Send,
            false => TransferDirection::Receive,
        };
        let Some(service) = self.config.service.clone() else {
            let why = match direction {
                TransferDirection::Send => "a client serves no files",
                TransferDirection::Receive => "a client takes no files",
            };
            let refusal = failure(transfer, FailCode::Refused, why, false);
            return self.session.fail(refusal);
        };
        let record = |account: &Account| {
            let name = shown_name(&request)?;
            Some(Record::new(
                &account.meters,
                name,
                direction,
                entry.is_some(),
            ))
        };
        let record = self.account.as_ref().and_then(record);
        let kind = Box::new(Opening(direction));
        let owner = Owner::Nobody;
        self.running.insert(transfer, kind, entry, owner, record);
        let tree = entry.and_then(|entry| self.running.tree(entry.tree).cloned());
        self.jobs
            .open(transfer, service.open(request, tree, self.jobs.handle()));
    }

    /// Lets the kind of a transfer act. An error ends the transfer.
    pub(super) fn act(
        &mut self,
        transfer: TransferId,
        act: impl FnOnce(&mut dyn Kind, &mut Scope<'_>) -> Result<(), Error>,
    ) {
        let Some(running) = self.running.get_mut(transfer) else {
            return;
        };
        match running.act(transfer, &mut self.session, &self.jobs, act) {
            (Ok(()), true) => {
                let resumed = self.session.stats(transfer).resumed_bytes;
                self.on_started(transfer, resumed, clock::now());
            }
            (Ok(()), false) => {}
            (Err(error), _) => self.fail(transfer, error),
        }
    }

    pub(super) fn on_said(&mut self, transfer: TransferId, said: Said) {
        match said {
            Said::Opened(Ok(opened)) => self.on_opened(transfer, opened),
            Said::Opened(Err(error)) | Said::Finished(Err(error)) => self.fail(transfer, error),
            Said::Produced(produced) => self.on_produced(transfer, produced),
            Said::Consumed => {
                if let Some(running) = self.running.get_mut(transfer) {
                    running.reordered.consumed += 1;
                }
                self.session.taken(transfer, 1);
            }
            Said::Message(message) => self.session.send_tree(TreeBody { transfer, message }),
            Said::Walked(progress) => {
                if let Some(tally) = self.running.tally(transfer) {
                    tally.walked = Some(progress);
                }
            }
            Said::Finished(Ok(report)) => self.on_in_place(transfer, Digest::NONE, Some(report)),
        }
    }

    /// Continues with the opened end of a transfer, unless the transfer has ended meanwhile.
    fn on_opened(&mut self, transfer: TransferId, (kind, have): Opened) {
        if let Some(running) = self.running.get_mut(transfer) {
            running.kind = kind;
            self.act(transfer, |kind, at| {
                at.have = have;
                kind.open(at)
            });
        }
    }

    pub(super) fn on_offered(&mut self, offer: &Offer) {
        self.act(offer.transfer, |kind, at| kind.on_offered(offer, at));
    }

    pub(super) fn on_started(&mut self, transfer: TransferId, resumed: u64, now: Instant) {
        let Some(running) = self.running.get_mut(transfer) else {
            return;
        };
        let size = running.kind.size();
        if let Some(account) = &mut self.account
            && let Some(mut record) = running.record.take()
        {
            let target = running.kind.target();
            let name = target.map(|target| target.shown.as_str());
            account.started(transfer, &mut record, size, resumed, name);
            running.record = Some(record);
        }
        self.running.started(transfer, size, resumed, now);
    }

    /// Reports received data as durable under its name, to the peer and the owner.
    pub(super) fn on_in_place(
        &mut self,
        transfer: TransferId,
        digest: Digest,
        tree: Option<TreeReport>,
    ) {
        let target = self.running.get(transfer);
        let target = target.and_then(|running| running.kind.target());
        let etag = target.and_then(|target| target.etag());
        let committed = Committed {
            transfer,
            digest,
            etag,
        };
        self.session.committed(committed);
        self.on_committed(committed, tree);
    }

    /// Reports a stream whose data is consumed.
    pub(super) fn on_drained(&mut self, transfer: TransferId) {
        let running = self.running.get(transfer);
        match running.and_then(|running| running.reordered.digest) {
            Some(digest) => self.on_in_place(transfer, digest, None),
            None => {
                let cause = io::ErrorKind::UnexpectedEof.into();
                self.fail(transfer, FileError::new("write", "standard output", cause));
            }
        }
    }

    /// Handles the receiver's message that everything is durable.
    pub(super) fn on_peer_committed(&mut self, committed: Committed) {
        let mut goes_on = false;
        self.act(committed.transfer, |kind, _| {
            goes_on = kind.on_committed();
            Ok(())
        });
        if !goes_on {
            self.on_committed(committed, None);
        }
    }

    /// Ends the stream that this session receives. `digest` is the one that both ends agreed on.
    pub(super) fn end_stream(&mut self, transfer: TransferId, digest: Digest) {
        if let Some(running) = self.running.get_mut(transfer) {
            running.reordered.digest = Some(digest);
        }
        self.act(transfer, |kind, _| kind.on_end());
    }

    /// Checks after the last read that a source has not changed. A streamed source cannot be
    /// checked and is complete.
    pub(super) fn on_source_read(&mut self, transfer: TransferId) {
        match self.file(transfer).cloned() {
            Some(file) => self
                .jobs
                .step(transfer, Step::Checked, file, |file| file.check_unchanged()),
            None => self.complete(transfer),
        }
    }

    /// Tells the receiver that all data is sent, with the sender's TCP statistics.
    pub(super) fn complete(&mut self, transfer: TransferId) {
        let streams = self
            .connections
            .iter()
            .map(|(id, connection)| connection.stream_report(*id, self.session.path(*id)))
            .collect();
        self.session.complete(transfer, streams);
    }

    fn on_committed(&mut self, committed: Committed, tree: Option<TreeReport>) {
        let Committed {
            transfer,
            digest,
            etag,
        } = committed;
        let size = self.session.stats(transfer).size;
        if self.account.is_none() && self.running.contains(transfer) {
            match &tree {
                Some(tree) => tracing::info!(
                    transfer = transfer.0,
                    files = tree.files,
                    bytes = tree.bytes,
                    failed = tree.failed,
                    "tree done"
                ),
                None => tracing::info!(transfer = transfer.0, size, %digest, "file committed"),
            }
        }
        let outcome = Outcome {
            digest: tree.is_none().then_some(digest),
            etag,
            size: tree.as_ref().map_or(size, |tree| tree.bytes),
            tree,
        };
        self.end_transfer(transfer, Ok(outcome));
    }

    /// Ends a transfer with a local error, which the peer and the owner receive.
    pub(super) fn fail(&mut self, transfer: TransferId, error: impl Into<Error>) {
        let error = error.into();
        // Later errors of an ended transfer are not logged.
        if self.session.is_under_way(transfer) && self.account.is_none() {
            tracing::info!(transfer = transfer.0, error = %logged(crate::text::chain(&error)), "transfer failed");
        }
        let code = error.fail_code().unwrap_or(FailCode::Io);
        self.session.fail(failure(
            transfer,
            code,
            crate::text::chain(&error),
            error.is_resumable(),
        ));
        self.end_transfer(transfer, Err(error));
    }

    pub(super) fn end_transfer(&mut self, transfer: TransferId, result: Result<Outcome, Error>) {
        let Some(running) = self.running.get(transfer) else {
            return;
        };
        let stats = self.session.stats(transfer);
        if running.has_moved_for(TIME_TO_CONNECT) {
            self.session.leave_out_late_paths();
        }
        if let Some(tally) = self.running.tally(transfer) {
            tally.stats.add(&stats);
        }
        let Some(mut running) = self.running.remove(transfer) else {
            return;
        };
        if let (Some(account), Some(record)) = (&mut self.account, &running.record) {
            account.ended(transfer, record, &result, &stats);
        }
        for Arrived { path, header, .. } in running.later.drain(..) {
            self.session
                .handle_chunk_unwritten(path, transfer, header.chunk);
        }
        self.fail_parts(transfer);
        let unfinished = running.kind.target().filter(|_| result.is_err()).cloned();
        let (session, connections) = (&self.session, &self.connections);
        let left = running.end(result, |tally| tally.closed(connections, session));
        self.without_waiting(move || {
            unfinished
                .iter()
                .for_each(|target| discard_unfinishable(target));
            drop(left);
        });
    }

    /// Runs file work whose result no one awaits. A daemon's session leaves it to the I/O threads,
    /// because a file system may not answer, and other sessions use its thread.
    pub(super) fn without_waiting(&self, work: impl FnOnce() + Send + 'static) {
        match self.config.service {
            Some(_) => self.config.pool.run(work),
            None => work(),
        }
    }

    /// Fails the standalone files that are still being transferred when their tree ends. No other
    /// transfer has any.
    fn fail_parts(&mut self, tree: TransferId) {
        for part in self.running.parts_of(tree) {
            let error = FileError::new("copy", "an entry", io::Error::other("its tree has ended"))
                .with_code(FailCode::Cancelled);
            let text = crate::text::chain(&error);
            self.session
                .fail(failure(part, FailCode::Cancelled, text, true));
            self.fail_locally(part, Error::File(error));
        }
    }

    pub(super) fn cancel(&mut self, transfer: TransferId) {
        if self.running.contains(transfer) {
            self.session
                .fail(failure(transfer, FailCode::Cancelled, "interrupted", true));
            self.fail_locally(transfer, Error::Cancelled { resumable: true });
        }
    }

    /// Ends a transfer after an error at the peer or elsewhere. First syncs the written data and waits
    /// for a sync that runs, so that a later transfer can resume.
    pub(super) fn fail_locally(&mut self, transfer: TransferId, error: Error) {
        let target = self.target(transfer);
        let Some(target) = target.filter(|target| target.is_resumable()) else {
            return self.end_transfer(transfer, Err(error));
        };
        let unsynced = self.session.take_unsynced(transfer).unwrap_or_default();
        self.jobs.run(move || {
            // Data that cannot be synced is retransmitted on resume.
            let _ = target.sync(unsynced);
            IoResult::Flushed {
                transfer,
                error: Box::new(error),
            }
        });
    }

    /// Ends the session and reports the error to all waiting owners. A client may then create a new
    /// session.
    pub(super) fn give_up(&mut self, error: Error) {
        self.closing = Some(CloseCode::Cancelled);
        let host = self.config.host.clone();
        let again = |error: &Error| match error {
            Error::Ended { why, .. } => Error::ended(&host, why),
            // No session with this peer goes better.
            Error::Protocol { address, why } => Error::Protocol {
                address: *address,
                why: why.clone(),
            },
            error => Error::ended(&host, crate::text::chain(error)),
        };
        let mut next = error;
        Self::end_waiting(&mut self.running, &mut self.asks, || {
            let others = again(&next);
            std::mem::replace(&mut next, others)
        });
    }

    pub(super) fn report_progress(&mut self) {
        let now = clock::now();
        if let Some(since) = self
            .session
            .alone_since()
            .filter(|_| !self.session.is_connected())
        {
            let since = now.saturating_duration_since(since);
            // First, because a full channel drops the later of two events.
            if self.unreachable_notice.is_due(since) {
                self.tell_of_wait(self.unreachable(since));
            }
            self.tell_of_wait(Event::Waiting { since });
        }
        self.running
            .report_progress(now, &self.session, &self.connections);
    }

    /// Sends an event to the owners of transfers; without any, or if one moves an object, to the
    /// owner of requests, tunnels and benchmarks.
    fn tell_of_wait(&self, event: Event) {
        let have_owner = self.running.have_owner();
        if have_owner {
            self.config.audience.tell(&event);
        }
        // The others are tunnels and streams of commands.
        let waits = match have_owner {
            true => self.running.have_object(),
            false => !self.running.is_empty() || !self.asks.is_empty() || self.bench.is_running(),
        };
        if waits {
            self.config.tell(event);
        }
    }

    fn unreachable(&self, since: Duration) -> Event {
        let tried = self.session.paths().filter(|(_, path)| !path.is_retired());
        let interfaces: BTreeSet<&String> = tried.map(|(_, path)| &path.plan().interface).collect();
        Event::Unreachable {
            host: self.config.host.clone(),
            interfaces: interfaces.into_iter().cloned().collect(),
            since,
            // A benchmark ends earlier.
            patience: (!self.bench.is_running()).then_some(self.config.session.patience),
        }
    }

    /// Waits for running I/O jobs at the end of a session, then syncs the data they wrote.
    pub(super) async fn settle(&mut self) {
        for (transfer, target, jobs) in self.running.targets() {
            let mut held: VecDeque<Input> = VecDeque::new();
            loop {
                tokio::select! {
                    biased;
                    Some(input) = self.inputs.recv() => held.push_back(input),
                    () = jobs.wait() => break,
                    () = tokio::time::sleep(LONGEST_JOB) => break,
                }
            }
            while let Ok(input) = self.inputs.try_recv() {
                held.push_back(input);
            }
            let now = clock::now();
            for input in held {
                if let Input::Io(
                    done @ (IoResult::Written { .. }
                    | IoResult::Step {
                        step: Step::Synced, ..
                    }),
                ) = input
                {
                    self.on_io(done, now);
                }
            }
            let unsynced = self.session.take_unsynced(transfer);
            let running = self.running.remove(transfer);
            let release = move || {
                discard_unfinishable(&target);
                if let Some(subtrees) = unsynced.filter(|_| target.is_resumable()) {
                    // Data that cannot be synced is retransmitted on resume.
                    let _ = target.sync(subtrees);
                }
                drop((target, running));
            };
            self.config.pool.call(release).await;
        }
    }
}

/// Deletes the received data of a transfer of unknown size. It cannot be resumed, because its
/// source cannot be read again.
fn discard_unfinishable(target: &Target) {
    if target.grid.is_open() {
        target.discard();
    }
}

/// Returns the name of what a request transfers, for the log; `None` for tunnels and commands, which
/// have log records of their own.
fn shown_name(request: &Request) -> Option<String> {
    match request {
        Request::Put(put) => Some(put.name.to_string()),
        Request::Get(get) => Some(get.name.to_string()),
        Request::PutTree(put) => Some(shown_path(put.target.as_ref())),
        Request::GetTree(GetTree { sources, .. }) => {
            let names = sources.iter().take(MOST_NAMED);
            let names = names.map(|source| shown_path(source.name.as_ref()));
            Some(names.collect::<Vec<_>>().join(" "))
        }
        Request::TunnelsUp(_)
        | Request::TunnelsDown(_)
        | Request::Exec(_)
        | Request::ExecOutput(_) => None,
    }
}

/// Maximum number of source names of a tree in a log record.
const MOST_NAMED: usize = 8;

/// Duration of a transfer after which links that have not connected are reported as excluded.
const TIME_TO_CONNECT: Duration = Duration::from_secs(1);

/// Maximum wait at the end of a session for the next result of an I/O job. A disk that takes longer
/// is considered stuck.
const LONGEST_JOB: Duration = Duration::from_secs(1);
