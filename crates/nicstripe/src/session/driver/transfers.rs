//! Transfers in a session's event loop: results of I/O jobs, and the ends of transfers.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    ChainingValue, ChunkId, DataHeader, Digest, FailCode, Grid, Incoming, PathError, PathId,
    PathLoss, TransferId,
    message::{CloseCode, Committed},
    session::failure,
};

use super::{Driver, ends::discard_unfinishable};
use crate::{
    file::{Arrived, ChunkBuffer, FileError, WriteError},
    report::{
        error::Error,
        event::{Event, LinkState},
    },
    session::{
        input::{Input, IoResult, Step, verified},
        path_connection::PathConnection,
        waiters::Outcome,
    },
    text::logged::logged,
    wire::clock,
};

impl Driver {
    /// Starts to hash and compare the chunks that the protocol asks for, each kind up to its limit.
    pub(super) fn hash_ahead(&mut self) {
        while self.hashing < HASHING_AT_ONCE {
            let Some((transfer, chunk)) = self.session.poll_hash() else {
                break;
            };
            if let Some(file) = self.ends.file(transfer) {
                self.hashing += 1;
                self.jobs.hash(transfer, chunk, file.clone());
            }
        }
        while self.zeroing < ZEROING_AT_ONCE {
            let Some((transfer, grid, zeros)) = self.session.poll_zeros() else {
                break;
            };
            self.zeroing += 1;
            self.jobs.hash_zeros(transfer, grid, zeros);
        }
        while self.comparing < COMPARING_AT_ONCE {
            let Some((transfer, chunk)) = self.session.poll_compare() else {
                break;
            };
            if let Some(target) = self.ends.target(transfer) {
                self.comparing += 1;
                self.jobs.compare(transfer, chunk, target.clone());
            }
        }
    }

    /// Handles the result of an I/O job. An error ends its transfer.
    pub(super) fn on_io(&mut self, done: IoResult, now: Instant) {
        match done {
            IoResult::Read {
                path,
                transfer,
                chunk,
                result,
            } => self.if_ok(transfer, result, |driver, (value, buffer)| {
                driver.on_read(path, transfer, chunk, value, buffer, now);
            }),
            IoResult::Hashed {
                transfer,
                chunk,
                result,
            } => {
                self.hashing -= 1;
                self.if_ok(transfer, result, |driver, value| {
                    driver.session.handle_chunk_hashed(transfer, chunk, value);
                });
            }
            IoResult::ZerosHashed { transfer, result } => {
                self.zeroing -= 1;
                self.if_ok(transfer, result, |driver, subtree| {
                    driver.session.handle_zeros_hashed(transfer, subtree, now);
                });
            }
            IoResult::Compared {
                transfer,
                chunk,
                result,
            } => {
                self.comparing -= 1;
                self.if_ok(transfer, result, |driver, value| {
                    driver.session.handle_compared(transfer, chunk, value);
                });
            }
            IoResult::Written {
                path,
                header,
                result,
            } => _ = self.on_written(path, &header, result, now),
            IoResult::Verified { arrived, result } => {
                let transfer = arrived.header.transfer;
                if self.on_written(arrived.path, &arrived.header, result, now) {
                    self.ends.take(arrived);
                    self.poll_mux(transfer);
                }
            }
            IoResult::Step {
                transfer,
                step,
                result,
            } => self.on_step(transfer, step, result, now),
            IoResult::Flushed { transfer, error } => self.end_transfer(transfer, Err(*error)),
        }
    }

    fn on_step(
        &mut self,
        transfer: TransferId,
        step: Step,
        result: Result<(), FileError>,
        now: Instant,
    ) {
        if let Step::Synced = step {
            self.account_mut(|account| account.synced(transfer));
        }
        let digest = match (&step, result) {
            (Step::Committed(digest), Ok(())) => Ok(*digest),
            (Step::Drained, Ok(())) => self.ends.digest(transfer),
            (_, result) => result.map(|()| Digest::NONE),
        };
        self.if_ok(transfer, digest, |driver, digest| match step {
            Step::HolesMade => driver.session.handle_holes_made(transfer),
            Step::Synced => driver.session.handle_synced(transfer, now),
            Step::Checked => driver.complete(transfer),
            Step::Drained | Step::Committed(_) => driver.on_in_place(transfer, digest),
        });
    }

    /// Continues a transfer with the result of a job, or fails it.
    fn if_ok<T>(
        &mut self,
        transfer: TransferId,
        result: Result<T, FileError>,
        then: impl FnOnce(&mut Self, T),
    ) {
        match result {
            Ok(value) => then(self, value),
            Err(error) => self.fail(transfer, error),
        }
    }

    fn on_read(
        &mut self,
        path: PathId,
        transfer: TransferId,
        chunk: ChunkId,
        value: ChainingValue,
        buffer: ChunkBuffer,
        now: Instant,
    ) {
        let Some(header) = self
            .session
            .handle_chunk_read(path, transfer, chunk, value, now)
        else {
            return;
        };
        let len = buffer.bytes().len() as u32;
        let header = if len < header.len {
            header.packed(len)
        } else {
            header
        };
        self.waiters.on_wire(path, &header);
        let sent = self
            .connections
            .get_mut(&path)
            .is_some_and(|connection| connection.send_chunk(header, Arc::new(buffer)));
        if !sent {
            self.lose(path, PathLoss::Reset, now);
        }
    }

    /// Reports a received file as durable under its name, to the peer and the owner.
    fn on_in_place(&mut self, transfer: TransferId, digest: Digest) {
        self.session.committed(Committed { transfer, digest });
        self.on_committed(transfer, digest);
    }

    /// Checks after the last read that a source has not changed. A streamed source cannot be
    /// checked and is complete.
    pub(super) fn on_source_read(&mut self, transfer: TransferId) {
        match self.ends.file(transfer).cloned() {
            Some(file) => self
                .jobs
                .step(transfer, Step::Checked, move || file.check_unchanged()),
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

    pub(super) fn on_incoming(
        &mut self,
        arrived: Arrived,
        incoming: Result<Incoming, PathError>,
        now: Instant,
    ) {
        match incoming {
            Ok(Incoming::Write { grid, .. }) => self.write(grid, arrived, now),
            Ok(Incoming::Later) => self.later.push(arrived),
            Ok(Incoming::Drop) => {}
            Err(error) => self.on_misbehaved(arrived.path, &error, now),
        }
    }

    /// Verifies a received chunk, and writes it to its target.
    fn write(&mut self, grid: Grid, arrived: Arrived, now: Instant) {
        let header = arrived.header;
        match self.ends.target(header.transfer) {
            Some(target) => self.jobs.write(target.clone(), arrived),
            None if !self.ends.is_stream(header.transfer) => {}
            None if header.chunk_len() <= VERIFIED_AT_ONCE => {
                self.on_io(verified(grid, arrived), now);
            }
            None => self.jobs.run(move || verified(grid, arrived)),
        }
    }

    /// Handles the received copies of a chunk that waited for the result of a write.
    pub(super) fn retry_later(&mut self, transfer: TransferId, chunk: ChunkId, now: Instant) {
        let is_copy = |arrived: &mut Arrived| {
            arrived.header.transfer == transfer && arrived.header.chunk == chunk
        };
        for arrived in self.later.extract_if(.., is_copy).collect::<Vec<_>>() {
            let Arrived { path, header, .. } = &arrived;
            let incoming = self.session.handle_chunk_again(*path, header, now);
            self.on_incoming(arrived, incoming, now);
        }
    }

    /// Handles the result of verifying and writing a received chunk. Returns true if the chunk was
    /// valid and not received before.
    pub(super) fn on_written(
        &mut self,
        path: PathId,
        header: &DataHeader,
        result: Result<(), WriteError>,
        now: Instant,
    ) -> bool {
        match result {
            Ok(()) => {
                let is_news = self.session.handle_chunk_written(path, header, now);
                self.retry_later(header.transfer, header.chunk, now);
                if is_news {
                    self.breaches = 0;
                }
                return is_news;
            }
            Err(WriteError::Damaged) => {
                tracing::warn!(
                    path = path.0,
                    chunk = header.chunk.0,
                    "chunk damaged in transit"
                );
                self.account_mut(|account| account.meters.totals().corrupt_chunks += 1);
                self.session
                    .handle_chunk_unwritten(path, header.transfer, header.chunk);
                self.retry_later(header.transfer, header.chunk, now);
                self.on_breach(
                    path,
                    PathLoss::Damaged,
                    "chunk does not match its hash".into(),
                    now,
                );
            }
            Err(WriteError::File(error)) => {
                self.session
                    .handle_chunk_unwritten(path, header.transfer, header.chunk);
                self.fail(header.transfer, error);
            }
        }
        false
    }

    pub(super) fn on_started(&mut self, transfer: TransferId, resumed: u64, now: Instant) {
        let size = self.ends.size(transfer);
        let name = self
            .ends
            .target(transfer)
            .map(|target| target.shown.clone());
        self.account_mut(|account| account.started(transfer, size, resumed, name.as_deref()));
        self.waiters.started(transfer, size, resumed, now);
    }

    pub(super) fn on_committed(&mut self, transfer: TransferId, digest: Digest) {
        let tree = self.ends.take_report(transfer);
        let digest = tree.is_none().then_some(digest);
        let size = self.session.stats(transfer).size;
        match (&tree, digest) {
            _ if self.account.is_some() => {}
            (Some(tree), _) => {
                tracing::info!(
                    transfer = transfer.0,
                    files = tree.files,
                    bytes = tree.bytes,
                    failed = tree.failed,
                    "tree done"
                );
            }
            (None, Some(digest)) => {
                tracing::info!(transfer = transfer.0, size, %digest, "file committed");
            }
            (None, None) => {}
        }
        let size = tree.as_ref().map_or(size, |tree| tree.bytes);
        self.end_transfer(transfer, Ok(Outcome { digest, size, tree }));
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
        let stats = self.session.stats(transfer);
        self.account_mut(|account| account.ended(transfer, &result, &stats));
        let is_of = |arrived: &mut Arrived| arrived.header.transfer == transfer;
        for Arrived { path, header, .. } in self.later.extract_if(.., is_of) {
            self.session
                .handle_chunk_unwritten(path, transfer, header.chunk);
        }
        self.forget_ends(transfer, &result);
        if self.waiters.has_moved_for(transfer, TIME_TO_CONNECT) {
            self.leave_out_late_links();
        }
        let Self {
            waiters,
            connections,
            session,
            ..
        } = self;
        waiters.end(transfer, result, &stats, |tally| {
            tally.closed(connections, session)
        });
    }

    /// Reports links that the user named but that never connected as excluded. Call at the end of a
    /// transfer of at least [`TIME_TO_CONNECT`].
    fn leave_out_late_links(&mut self) {
        let never = |(path, connection): (&PathId, &PathConnection)| {
            (connection.plan.named && connection.generation == 0).then_some(*path)
        };
        for path in self
            .connections
            .iter()
            .filter_map(never)
            .collect::<Vec<_>>()
        {
            self.report_link(
                path,
                LinkState::LeftOut("still connecting when the transfer ended".into()),
            );
        }
    }

    pub(super) fn cancel(&mut self, transfer: TransferId) {
        if self.waiters.contains(transfer) {
            self.session
                .fail(failure(transfer, FailCode::Cancelled, "interrupted", true));
            self.fail_locally(transfer, Error::Cancelled { resumable: true });
        }
    }

    /// Ends a transfer after an error at the peer or elsewhere. First syncs the written data, so
    /// that a later transfer can resume.
    pub(super) fn fail_locally(&mut self, transfer: TransferId, error: Error) {
        let target = self
            .ends
            .target(transfer)
            .filter(|target| target.is_resumable())
            .cloned();
        match target.zip(self.session.take_unsynced(transfer)) {
            Some((target, subtrees)) => self.jobs.run(move || {
                // Data that cannot be synced is retransmitted on resume.
                let _ = target.sync(subtrees);
                IoResult::Flushed {
                    transfer,
                    error: Box::new(error),
                }
            }),
            None => self.end_transfer(transfer, Err(error)),
        }
    }

    /// Ends the session and reports the error to all waiting owners. A client may then create a new
    /// session.
    pub(super) fn give_up(&mut self, error: Error) {
        self.closing = Some(CloseCode::Cancelled);
        let (host, why) = (self.config.host.clone(), crate::text::chain(&error));
        let mut error = Some(error);
        Self::end_waiting(&mut self.waiters, &mut self.asks, || {
            error.take().unwrap_or_else(|| Error::ended(&host, &why))
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
        self.waiters
            .report_progress(now, &self.session, &self.connections);
    }

    /// Sends an event to the owners of transfers; without any, or if one moves an object, to the
    /// owner of requests, tunnels and benchmarks.
    fn tell_of_wait(&self, event: Event) {
        if !self.waiters.is_empty() {
            self.config.audience.tell(&event);
        }
        let waits = match self.waiters.is_empty() {
            true => self.mux.is_some() || !self.asks.open.is_empty() || self.bench.is_running(),
            false => self.waiters.have_object(),
        };
        if waits {
            self.config.tell(event);
        }
    }

    fn unreachable(&self, since: Duration) -> Event {
        let tried = self.connections.values().filter(|tried| !tried.retired);
        let interfaces: BTreeSet<&String> = tried.map(|tried| &tried.plan.interface).collect();
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
        for (transfer, target) in self.ends.targets() {
            let mut held: VecDeque<Input> = VecDeque::new();
            let mut quiet_since = clock::now();
            // Two handles are the session's and this one; others belong to running jobs. A job
            // drops its handle after it has reported.
            while Arc::strong_count(&target) > 2 && clock::now() - quiet_since < LONGEST_JOB {
                if let Ok(Some(input)) = tokio::time::timeout(LETTING_GO, self.inputs.recv()).await
                {
                    held.push_back(input);
                    quiet_since = clock::now();
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
            let ends = self.ends.remove(transfer);
            let release = move || {
                discard_unfinishable(&target);
                if let Some(subtrees) = unsynced.filter(|_| target.is_resumable()) {
                    // Data that cannot be synced is retransmitted on resume.
                    let _ = target.sync(subtrees);
                }
                drop((target, ends));
            };
            self.config.pool.call(release).await;
        }
    }
}

/// Number of concurrent reads to hash data that the receiver already has. Enough for one disk,
/// without delaying the reads of data to send.
const HASHING_AT_ONCE: u32 = 2;

/// Maximum number of zero extents hashed concurrently. Each takes about one millisecond; four keep
/// two threads busy.
const ZEROING_AT_ONCE: u32 = 4;

/// Number of concurrent chunk reads from an existing file for a delta transfer: enough to keep one
/// disk's queue filled.
const COMPARING_AT_ONCE: u32 = 4;

/// Maximum length of a chunk that the session's task verifies itself, in bytes. Takes about 10 µs,
/// as long as passing it to a thread.
const VERIFIED_AT_ONCE: u32 = 64 << 10;

/// Duration of a transfer after which links that have not connected are reported as excluded.
const TIME_TO_CONNECT: Duration = Duration::from_secs(1);

/// Maximum wait at the end of a session for the next result of an I/O job. A disk that takes longer
/// is considered stuck.
const LONGEST_JOB: Duration = Duration::from_secs(1);

/// Polling interval while running I/O jobs hold references to a target. A job drops its reference
/// shortly after it has reported its result.
const LETTING_GO: Duration = Duration::from_millis(5);
