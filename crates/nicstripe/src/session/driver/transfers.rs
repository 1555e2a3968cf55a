//! Transfers in a session's event loop: results of I/O jobs, and the ends of transfers.

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    Acceptance, ChainingValue, ChunkId, DataHeader, Digest, FailCode, Incoming, Offer, PathError,
    PathId, PathLoss, Subtree, TransferId,
    message::{CloseCode, Committed, Put},
    session::failure,
};

use super::Driver;
use crate::{
    file::{ChunkBuffer, FileError, Source, WriteError},
    report::{
        error::Error,
        event::{Event, LinkState},
        metrics::Direction,
    },
    session::{
        input::{Fault, Input},
        open_files::{Access, IoResult, verified},
        path_connection::PathConnection,
        waiters::Outcome,
    },
    storage::Target,
    text::logged::logged,
    wire::clock,
};

impl Driver {
    pub(super) fn on_io(&mut self, done: IoResult, now: Instant) {
        let (transfer, result) = self.take_work(done, now);
        if let Err(error) = result {
            self.fail(transfer, error);
        }
    }

    /// Handles the result of an I/O job. Returns its transfer, with the error that must end it, if
    /// any.
    fn take_work(&mut self, done: IoResult, now: Instant) -> (TransferId, Result<(), FileError>) {
        match done {
            IoResult::SourceOpened { transfer, result } => (
                transfer,
                result.map(|(source, offer)| self.on_source_opened(transfer, source, offer)),
            ),
            IoResult::TargetOpened { transfer, result } => (
                transfer,
                result.map(|(target, have)| self.on_target_opened(transfer, target, have, now)),
            ),
            IoResult::Read {
                path,
                transfer,
                chunk,
                result,
            } => (
                transfer,
                result
                    .map(|(value, buffer)| self.on_read(path, transfer, chunk, value, buffer, now)),
            ),
            IoResult::Hashed {
                transfer,
                chunk,
                result,
            } => {
                self.hashing -= 1;
                (
                    transfer,
                    result.map(|value| self.session.handle_chunk_hashed(transfer, chunk, value)),
                )
            }
            IoResult::ZerosHashed { transfer, result } => {
                self.zeroing -= 1;
                (
                    transfer,
                    result.map(|subtree| self.session.handle_zeros_hashed(transfer, subtree, now)),
                )
            }
            IoResult::HolesMade { transfer, result } => (
                transfer,
                result.map(|()| self.session.handle_holes_made(transfer)),
            ),
            IoResult::Compared {
                transfer,
                chunk,
                result,
            } => {
                self.comparing -= 1;
                (
                    transfer,
                    result.map(|value| self.session.handle_compared(transfer, chunk, value)),
                )
            }
            IoResult::Written {
                path,
                header,
                result,
            } => {
                self.on_written(path, &header, result, now);
                (header.transfer, Ok(()))
            }
            IoResult::Verified {
                path,
                header,
                buffer,
                result,
            } => {
                if self.on_written(path, &header, result, now)
                    && let Some(reorder) = self.files.reorder_mut(header.transfer)
                {
                    reorder.insert(header.chunk, buffer);
                    self.poll_mux(header.transfer);
                }
                (header.transfer, Ok(()))
            }
            IoResult::Drained { transfer, result } => {
                let digest = result.and_then(|()| self.files.ending(transfer));
                (
                    transfer,
                    digest.map(|digest| self.on_in_place(transfer, digest)),
                )
            }
            IoResult::Synced { transfer, result } => {
                self.account_mut(|account| account.synced(transfer));
                (
                    transfer,
                    result.map(|()| self.session.handle_synced(transfer, now)),
                )
            }
            IoResult::Checked { transfer, result } => {
                (transfer, result.map(|()| self.complete(transfer)))
            }
            IoResult::Flushed { transfer, error } => {
                self.end_transfer(transfer, Err(*error));
                (transfer, Ok(()))
            }
            IoResult::Committed {
                transfer,
                digest,
                result,
            } => (
                transfer,
                result.map(|()| self.on_in_place(transfer, digest)),
            ),
        }
    }

    fn on_source_opened(&mut self, transfer: TransferId, source: Arc<Source>, offer: Offer) {
        // The transfer ended while the file was opened.
        if !self.session.is_under_way(transfer) {
            return;
        }
        self.session.prepare(transfer, source.offering().clone());
        self.files
            .insert_source(transfer, source, offer.source.size);
        let offered = self.session.offer(offer);
        debug_assert!(offered.is_ok(), "{offered:?}");
    }

    fn on_target_opened(
        &mut self,
        transfer: TransferId,
        target: Arc<Target>,
        have: Vec<Subtree>,
        now: Instant,
    ) {
        if !self.session.is_under_way(transfer) {
            return;
        }
        let how = Acceptance {
            room: None,
            holes: target.awaits_holes(),
            delta: target.delta(),
            ..Acceptance::default()
        };
        self.files.insert_target(transfer, target);
        self.session.accept_with(transfer, have, how);
        let resumed = self.session.stats(transfer).resumed_bytes;
        self.on_started(transfer, resumed, now);
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
        if let Some(header) = self
            .session
            .handle_chunk_read(path, transfer, chunk, value, now)
        {
            let len = buffer.bytes().len() as u32;
            let header = if len < header.len {
                header.packed(len)
            } else {
                header
            };
            self.send_chunk(path, header, Arc::new(buffer), now);
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
        if !self.files.check(transfer) {
            self.complete(transfer);
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
        path: PathId,
        header: DataHeader,
        buffer: ChunkBuffer,
        incoming: Result<Incoming, PathError>,
        now: Instant,
    ) {
        match incoming {
            Ok(Incoming::Write { grid, .. }) if self.files.is_verified_at_once(&header) => {
                self.on_io(verified(path, grid, header, buffer), now);
            }
            Ok(Incoming::Write { grid, .. }) => self.files.write(path, grid, header, buffer),
            Ok(Incoming::Later) => self.later.push((path, header, buffer)),
            Ok(Incoming::Drop) => {}
            Err(error) => self.on_misbehaved(path, &error, now),
        }
    }

    /// Handles the received copies of a chunk that waited for the result of a write.
    pub(super) fn retry_later(&mut self, transfer: TransferId, chunk: ChunkId, now: Instant) {
        let is_of = |header: &DataHeader| header.transfer == transfer && header.chunk == chunk;
        let waited: Vec<_> = self
            .later
            .extract_if(.., |(_, header, _)| is_of(header))
            .collect();
        for (path, header, buffer) in waited {
            let incoming = self.session.handle_chunk_again(path, &header, now);
            self.on_incoming(path, header, buffer, incoming, now);
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
                self.account_mut(|account| account.corrupt_chunk());
                self.session
                    .handle_chunk_damaged(path, header.transfer, header.chunk);
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

    pub(super) fn send_chunk(
        &mut self,
        path: PathId,
        header: DataHeader,
        buffer: Arc<ChunkBuffer>,
        now: Instant,
    ) {
        self.waiters.on_wire(path, &header);
        let sent = self
            .connections
            .get_mut(&path)
            .is_some_and(|connection| connection.send_chunk(header, buffer));
        if !sent {
            self.lose(path, PathLoss::Reset, now);
        }
    }

    pub(super) fn on_put_requested(&mut self, put: Put) {
        let transfer = put.offer.transfer;
        self.account_mut(|account| {
            account.asked(transfer, &put.name, Direction::Receive, put.entry.is_some());
        });
        if let (Some(entry), Access::Daemon(_)) = (put.entry, &self.config.access) {
            return self.open_entry_target(transfer, entry, put.offer, put.options);
        }
        match &self.config.access {
            Access::Daemon(service) => {
                let (service, session, fault) = (
                    service.clone(),
                    self.handle.clone(),
                    Fault::of(&self.handle.inputs),
                );
                // Async, not on the I/O threads: waits until an earlier session of this peer
                // releases the file.
                tokio::spawn(async move {
                    let _fault = fault;
                    let result = service.open_target(put, &session).await;
                    let _ = session
                        .inputs
                        .send(Input::Io(IoResult::TargetOpened { transfer, result }))
                        .await;
                });
            }
            Access::Client => self.refuse(transfer, "a client takes no files"),
        }
    }

    pub(super) fn on_started(&mut self, transfer: TransferId, resumed: u64, now: Instant) {
        self.account_started(transfer, resumed);
        let Some(size) = self.files.size(transfer) else {
            return;
        };
        let is_sized =
            self.files.retransmit_mut(transfer).is_none() && !self.ends.is_tree(transfer);
        self.waiters.started(transfer, size, is_sized, resumed, now);
    }

    fn account_started(&mut self, transfer: TransferId, resumed: u64) {
        let is_sized =
            self.files.retransmit_mut(transfer).is_none() && !self.ends.is_tree(transfer);
        let size = self.files.size(transfer).filter(|_| is_sized);
        let name = self
            .files
            .target(transfer)
            .map(|target| target.shown().to_owned());
        self.account_mut(|account| account.started(transfer, size, resumed, name.as_deref()));
    }

    pub(super) fn on_committed(&mut self, transfer: TransferId, digest: Digest) {
        let tree = self.take_report(transfer);
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

    /// Fails a transfer locally and reports it to the peer and the owner.
    pub(super) fn fail(&mut self, transfer: TransferId, error: FileError) {
        self.fail_by(transfer, Error::File(error));
    }

    /// Fails a transfer because a thread could not be started.
    pub(super) fn fail_to_start(&mut self, transfer: TransferId, source: io::Error) {
        self.fail_by(
            transfer,
            Error::System {
                what: "start a thread",
                source,
            },
        );
    }

    fn fail_by(&mut self, transfer: TransferId, error: Error) {
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
        if result.is_err() {
            self.files.discard_unfinishable(transfer);
        }
        self.files.remove(transfer);
        for (path, header, _) in self
            .later
            .extract_if(.., |(_, header, _)| header.transfer == transfer)
        {
            self.session
                .handle_chunk_unwritten(path, header.transfer, header.chunk);
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

    /// Reports links that the user named as excluded if they have not connected by the end of a
    /// transfer of more than [`TIME_TO_CONNECT`].
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
            .files
            .target(transfer)
            .filter(|target| target.is_resumable())
            .cloned();
        match target.zip(self.session.take_unsynced(transfer)) {
            Some((target, subtrees)) => self.files.run(move || {
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
            error.take().unwrap_or_else(|| Error::Ended {
                host: host.clone(),
                why: why.clone(),
            })
        });
    }

    pub(super) fn report_progress(&mut self) {
        let now = clock::now();
        if let Some(since) = self
            .session
            .alone_since()
            .filter(|_| !self.session.is_connected() && !self.waiters.is_empty())
        {
            self.config.audience.tell(&Event::Waiting {
                since: now.saturating_duration_since(since),
            });
        }
        self.waiters
            .report_progress(now, &self.session, &self.connections);
    }

    /// Waits for running I/O jobs at the end of a session, then syncs the data they wrote.
    pub(super) async fn settle(&mut self) {
        for transfer in self.files.targets() {
            let Some(target) = self.files.target(transfer).cloned() else {
                continue;
            };
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
                if let Input::Io(done @ (IoResult::Written { .. } | IoResult::Synced { .. })) =
                    input
                {
                    self.on_io(done, now);
                }
            }
            self.files.discard_unfinishable(transfer);
            if let Some(subtrees) = self
                .session
                .take_unsynced(transfer)
                .filter(|_| target.is_resumable())
            {
                self.config.pool.call(move || target.sync(subtrees)).await;
            }
            self.files.remove(transfer);
        }
    }
}

/// Duration of a transfer after which links that have not connected are reported as excluded.
const TIME_TO_CONNECT: Duration = Duration::from_secs(1);

/// Maximum wait at the end of a session for an I/O job that reports nothing; its disk is considered
/// stuck then.
const LONGEST_JOB: Duration = Duration::from_secs(1);

/// Polling interval of the references that running I/O jobs hold to a target. A job drops its
/// reference shortly after it has reported.
const LETTING_GO: Duration = Duration::from_millis(5);
