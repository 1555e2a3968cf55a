//! Sources and sinks of a session's transfers: files, pipes, trees and their standalone files.
//!
//! Holds those that wait for the peer's answer, and the channels to tree threads.
//! [`OpenFiles`](crate::session::open_files) holds the files that are open while data moves.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, mpsc as threads},
};

use nicstripe_proto::{
    Acceptance, ChunkSize, Digest, FailCode, Name, Offer, SourceIdentity, Subtree, TransferId,
    message::{Committed, EntryRef, Get, GetTree, OfferKind, Put, PutOptions, PutTree, TreeBody},
    session::failure,
    tree::{EntryId, TreeMessage},
};

use tokio::sync::oneshot;

use super::Driver;
use crate::{
    file::{FileError, OF_SOURCE, OF_TARGET, ReadOptions, Source, Target},
    report::{error::Error, metrics::Direction},
    session::{
        input::{Fault, GetInto, Input, PutFrom, StandaloneFiles, TreeOutput, TreeRun, report},
        open_files::{Access, IoResult, LocalTarget, offer_of},
        reorder::{REORDER_CHUNKS, ReadItem, ReorderBuffer, Sink, start_writer},
        retransmit::{
            ChunkSender, Produced, RETRANSMIT_CHUNKS, RetransmitBuffer, SendWindow, read_pipe,
        },
        tree_channel::{ReceiverEnd, SenderEnd, SessionChannel, TransferOwner},
        waiters::{Outcome, Waiter},
    },
    storage,
    tree::{
        TreeReport,
        channel::{Backlog, EntryError, ReceiverInput, ReceiverRun, SenderInput, SenderRun},
    },
    tunnel::TunnelMux,
    wire::clock,
};

/// Sources and sinks of a session's transfers, except open files.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Sources that start once the peer accepts the transfer.
    sources: BTreeMap<TransferId, PendingSource>,
    /// Sinks that start once the peer offers the data.
    sinks: BTreeMap<TransferId, PendingSink>,
    trees: BTreeMap<TransferId, TreeThread>,
    /// Tree entries of the standalone files that are being transferred.
    entries: BTreeMap<TransferId, EntryRef>,
    reports: BTreeMap<TransferId, TreeReport>,
}

impl Ends {
    /// Returns true if the transfer is a tree with a running local thread.
    pub(super) fn is_tree(&self, transfer: TransferId) -> bool {
        self.trees.contains_key(&transfer)
    }
}

enum PendingSource {
    Pipe(Box<dyn io::Read + Send>),
    Writer(oneshot::Sender<ChunkSender>),
    Tree(SenderRun, Option<StandaloneFiles>),
    TunnelMux(Arc<TunnelMux>),
}

enum PendingSink {
    File(LocalTarget),
    Pipe(Box<dyn io::Write + Send>),
    Reader(tokio::sync::mpsc::UnboundedSender<ReadItem>),
    Tree(ReceiverRun, StandaloneFiles),
    Entry(EntryRef, PutOptions),
    TunnelMux(Arc<TunnelMux>),
}

#[derive(Debug)]
enum TreeThread {
    Sender(threads::Sender<SenderInput>, Backlog),
    Receiver(threads::Sender<ReceiverInput>),
}

impl TreeThread {
    /// Reports the end of a standalone file to the thread of its tree. Has no effect if the thread
    /// has ended.
    fn standalone_ended(&self, entry: EntryRef, result: Result<(), EntryError>) {
        match self {
            Self::Sender(sender, _) => drop(sender.send(SenderInput::StandaloneEnded {
                id: entry.id,
                result,
            })),
            Self::Receiver(receiver) => drop(receiver.send(ReceiverInput::StandaloneEnded {
                id: entry.id,
                result,
            })),
        }
    }

    fn stop(&self) {
        match self {
            Self::Sender(sender, _) => drop(sender.send(SenderInput::Stop)),
            Self::Receiver(receiver) => drop(receiver.send(ReceiverInput::Stop)),
        }
    }
}

impl Driver {
    fn await_end(&mut self, transfer: TransferId, tree: Option<TransferId>, waiter: Waiter) {
        self.waiters.insert(transfer, tree, waiter, clock::now());
    }

    pub(super) fn put(&mut self, transfer: TransferId, from: PutFrom, waiter: Waiter) {
        self.await_end(transfer, from.tree(), waiter);
        match from {
            PutFrom::File { source, put } => {
                self.session.prepare(transfer, source.offering().clone());
                self.files
                    .insert_source(transfer, source, put.offer.source.size);
                self.offer_put(*put);
            }
            PutFrom::Pipe { reader, put } => {
                self.ends
                    .sources
                    .insert(transfer, PendingSource::Pipe(reader));
                self.offer_put(*put);
            }
            PutFrom::Writer { chunks, put } => {
                self.ends
                    .sources
                    .insert(transfer, PendingSource::Writer(chunks));
                self.offer_put(*put);
            }
            PutFrom::Tree {
                run,
                put,
                standalone,
            } => {
                self.ends
                    .sources
                    .insert(transfer, PendingSource::Tree(run, Some(standalone)));
                self.session.put_tree(*put);
            }
            PutFrom::Entry { entry, options } => {
                self.ends.entries.insert(transfer, entry);
                let inputs = self.handle.inputs.clone();
                self.open_entry_source(entry, move |result| {
                    report(
                        &inputs,
                        Input::StandaloneOpened {
                            transfer,
                            options,
                            result,
                        },
                    );
                });
            }
        }
    }

    fn offer_put(&mut self, put: Put) {
        // Own offers use the default chunk size and an existing file.
        let offered = self.session.put(put);
        debug_assert!(offered.is_ok(), "{offered:?}");
    }

    pub(super) fn get(&mut self, transfer: TransferId, into: GetInto, waiter: Waiter) {
        self.await_end(transfer, into.tree(), waiter);
        match into {
            GetInto::File { get, target } => {
                self.ends.sinks.insert(transfer, PendingSink::File(target));
                self.session.get(*get);
            }
            GetInto::Pipe { get, writer } => {
                self.ends.sinks.insert(transfer, PendingSink::Pipe(writer));
                self.session.get(*get);
            }
            GetInto::Reader { get, reader } => {
                self.ends
                    .sinks
                    .insert(transfer, PendingSink::Reader(reader));
                self.session.get(*get);
            }
            GetInto::Tree {
                run,
                get,
                standalone,
            } => {
                self.ends
                    .sinks
                    .insert(transfer, PendingSink::Tree(run, standalone));
                self.session.get_tree(*get);
            }
            GetInto::Entry {
                entry,
                options,
                allow_changing,
            } => {
                self.ends.entries.insert(transfer, entry);
                self.ends
                    .sinks
                    .insert(transfer, PendingSink::Entry(entry, options));
                self.session.get(Get {
                    transfer,
                    name: entry_name(),
                    limit_bps: None,
                    entry: Some(entry),
                    compress: false,
                    allow_changing,
                    range: None,
                });
            }
        }
    }

    /// Offers the peer a standalone file that the tree's sender has opened, or ends its transfer
    /// with the error.
    pub(super) fn on_standalone_opened(
        &mut self,
        transfer: TransferId,
        options: PutOptions,
        result: Result<Source, FileError>,
    ) {
        match result {
            // The tree has ended meanwhile.
            Ok(_) if !self.waiters.contains(transfer) => {}
            Ok(source) => {
                let source = Arc::new(source);
                let offer = offer_of(transfer, &source);
                self.session.prepare(transfer, source.offering().clone());
                self.files
                    .insert_source(transfer, source, offer.source.size);
                let entry = self.ends.entries.get(&transfer).copied();
                self.offer_put(Put {
                    name: entry_name(),
                    offer,
                    options,
                    into: None,
                    entry,
                });
            }
            // The peer does not know this transfer yet.
            Err(error) => self.end_transfer(transfer, Err(Error::File(error))),
        }
    }

    /// Daemon: opens the file that the peer requests.
    pub(super) fn on_get_requested(&mut self, get: Get) {
        let transfer = get.transfer;
        self.account_mut(|account| {
            account.asked(transfer, &get.name, Direction::Send, get.entry.is_some());
        });
        match (&self.config.access, get.entry) {
            (Access::Client, _) => self.refuse(transfer, "a client serves no files"),
            (Access::Daemon(service), Some(entry)) => {
                let Some(TreeThread::Sender(sender, _)) = self.ends.trees.get(&entry.tree) else {
                    return self.fail(transfer, no_tree());
                };
                self.ends.entries.insert(transfer, entry);
                let (service, sender, session) =
                    (service.clone(), sender.clone(), self.handle.clone());
                let fault = Fault::of(&session.inputs);
                tokio::spawn(async move {
                    let _fault = fault;
                    let opened = match service.lease_files(OF_SOURCE, &session).await {
                        Ok(lease) => ask_for_source(&sender, entry.id)
                            .await
                            .map(|source| source.keep(lease)),
                        Err(error) => Err(error),
                    };
                    let result = opened.map(|source| {
                        let offer = offer_of(transfer, &source);
                        (Arc::new(source), offer)
                    });
                    let _ = session
                        .inputs
                        .send(Input::Io(IoResult::SourceOpened { transfer, result }))
                        .await;
                });
            }
            (Access::Daemon(service), None) => {
                let options = ReadOptions {
                    allow_changing: get.allow_changing,
                    compress: get.compress,
                    range: get.range,
                };
                self.files.open_served(
                    service.clone(),
                    self.handle.clone(),
                    transfer,
                    get.name,
                    options,
                );
            }
        }
    }

    fn open_entry_source(
        &self,
        entry: EntryRef,
        answer: impl FnOnce(Result<Source, FileError>) + Send + 'static,
    ) {
        let refused = match self.ends.trees.get(&entry.tree) {
            Some(TreeThread::Sender(sender, _)) => sender
                .send(SenderInput::OpenStandalone {
                    id: entry.id,
                    answer: Box::new(answer),
                })
                .err()
                .and_then(|error| match error.0 {
                    SenderInput::OpenStandalone { answer, .. } => Some(answer),
                    _ => None,
                }),
            _ => Some(Box::new(answer) as Box<_>),
        };
        if let Some(answer) = refused {
            // On another thread, because the answer blocks while this loop's queue is full.
            self.files.aside(move || answer(Err(no_tree())));
        }
    }

    pub(super) fn on_offered(&mut self, offer: Offer) {
        let transfer = offer.transfer;
        let is_tree = offer.kind == Some(OfferKind::Batches);
        match self.ends.sinks.remove(&transfer) {
            Some(PendingSink::File(wanted)) if !is_tree => {
                self.files
                    .open_local(wanted, offer, crate::trust::random::random_bytes());
            }
            Some(PendingSink::Pipe(writer)) if !is_tree => {
                match start_writer(transfer, writer, self.handle.inputs.clone()) {
                    Ok(writer) => {
                        self.files.insert_reorder(
                            transfer,
                            ReorderBuffer::new(Sink::Writer(writer)),
                            offer.source.size,
                        );
                        self.session
                            .accept(transfer, Vec::new(), Some(REORDER_CHUNKS));
                        self.on_started(transfer, 0, clock::now());
                    }
                    Err(error) => self.fail_to_start(transfer, error),
                }
            }
            Some(PendingSink::Reader(reader)) if !is_tree => {
                // Fails if the reader is gone, which cancels the transfer.
                let _ = reader.send(ReadItem::Begun(offer.source));
                self.files.insert_reorder(
                    transfer,
                    ReorderBuffer::new(Sink::Reader(reader)),
                    offer.source.size,
                );
                self.session
                    .accept(transfer, Vec::new(), Some(REORDER_CHUNKS));
                self.on_started(transfer, 0, clock::now());
            }
            Some(PendingSink::TunnelMux(mux)) if is_tree => self.receive_mux(transfer, mux),
            Some(PendingSink::Tree(run, standalone)) if is_tree => {
                self.receive_tree(transfer, run, Some(standalone));
            }
            Some(PendingSink::Entry(entry, options)) if !is_tree => {
                self.open_entry_target(transfer, entry, offer, options);
            }
            _ => {
                let cause = io::Error::other("peer offered another kind than requested");
                self.fail(
                    transfer,
                    FileError::new("receive", "the requested file", cause)
                        .with_code(FailCode::Protocol),
                );
            }
        }
    }

    /// Opens the target of a standalone file, which the peer sends to a daemon or offers to a
    /// client.
    pub(super) fn open_entry_target(
        &mut self,
        transfer: TransferId,
        entry: EntryRef,
        offer: Offer,
        options: PutOptions,
    ) {
        self.ends.entries.insert(transfer, entry);
        let Some(TreeThread::Receiver(receiver)) = self.ends.trees.get(&entry.tree) else {
            return self.fail(transfer, no_tree());
        };
        let (receiver, session, fault) = (
            receiver.clone(),
            self.handle.clone(),
            Fault::of(&self.handle.inputs),
        );
        let attempt = move || ask_for_target(&receiver, entry.id, offer.clone(), options);
        let service = match &self.config.access {
            Access::Daemon(service) => Some(service.clone()),
            Access::Client => None,
        };
        // Async, not on the I/O threads: waits until an earlier session of this peer releases the
        // file.
        tokio::spawn(async move {
            let _fault = fault;
            let opened = match service {
                Some(service) => {
                    async {
                        let lease = service.lease_files(OF_TARGET, &session).await?;
                        let (target, have) = service.once_free(&session, attempt).await?;
                        Ok((storage::Target::from(target).keep(lease), have))
                    }
                    .await
                }
                None => attempt().await.map(|(target, have)| (target.into(), have)),
            };
            let result = opened.map(|(target, have)| (Arc::new(target), have));
            let _ = session
                .inputs
                .send(Input::Io(IoResult::TargetOpened { transfer, result }))
                .await;
        });
    }

    /// Daemon: prepares to receive a tree from the peer.
    pub(super) fn on_tree_put_requested(&mut self, put: PutTree) {
        let transfer = put.transfer;
        let name = put
            .target
            .as_ref()
            .map_or_else(|| ".".to_owned(), ToString::to_string);
        self.account_mut(|account| account.asked(transfer, name, Direction::Receive, false));
        match &self.config.access {
            Access::Client => self.refuse(transfer, "a client takes no files"),
            Access::Daemon(service) => {
                let (service, inputs, fault) = (
                    service.clone(),
                    self.handle.inputs.clone(),
                    Fault::of(&self.handle.inputs),
                );
                let session = self.handle.clone();
                tokio::spawn(async move {
                    let _fault = fault;
                    service.earlier_sessions_ended(&session).await;
                    let result = service
                        .receive_tree(put, &session)
                        .await
                        .map(TreeRun::Receiver);
                    let _ = inputs.send(Input::TreeReady { transfer, result }).await;
                });
            }
        }
    }

    /// Daemon: starts a tree transfer whose resources are reserved, or rejects it.
    pub(super) fn on_tree_ready(
        &mut self,
        transfer: TransferId,
        result: Result<TreeRun, FileError>,
    ) {
        match result {
            // The peer may have cancelled it meanwhile.
            Ok(_) if !self.session.is_under_way(transfer) => {}
            Ok(TreeRun::Receiver(run)) => self.receive_tree(transfer, run, None),
            Ok(TreeRun::Sender(run)) => {
                self.ends
                    .sources
                    .insert(transfer, PendingSource::Tree(run, None));
                let (source, kind) = (SourceIdentity::default(), Some(OfferKind::Batches));
                let offer = Offer {
                    transfer,
                    source,
                    chunk_log2: ChunkSize::DEFAULT.log2(),
                    mode: 0,
                    kind,
                    data: None,
                };
                let offered = self.session.offer(offer);
                debug_assert!(offered.is_ok(), "{offered:?}");
            }
            Err(error) => self.fail(transfer, error),
        }
    }

    /// Daemon: prepares to send the trees that the peer requests.
    pub(super) fn on_tree_requested(&mut self, get: GetTree) {
        let transfer = get.transfer;
        let names = get.sources.iter().map(|source| {
            source
                .name
                .as_ref()
                .map_or_else(|| ".".to_owned(), ToString::to_string)
        });
        let names = names.take(MOST_NAMED).collect::<Vec<_>>().join(" ");
        self.account_mut(|account| account.asked(transfer, names, Direction::Send, false));
        match &self.config.access {
            Access::Client => self.refuse(transfer, "a client serves no files"),
            Access::Daemon(service) => {
                let (service, session, fault) = (
                    service.clone(),
                    self.handle.clone(),
                    Fault::of(&self.handle.inputs),
                );
                tokio::spawn(async move {
                    let _fault = fault;
                    let result = service.send_tree(get, &session).await.map(TreeRun::Sender);
                    let _ = session
                        .inputs
                        .send(Input::TreeReady { transfer, result })
                        .await;
                });
            }
        }
    }

    fn receive_tree(
        &mut self,
        transfer: TransferId,
        run: ReceiverRun,
        standalone: Option<StandaloneFiles>,
    ) {
        let channel = self.tree_channel(transfer, standalone, ReceiverEnd);
        let allowance = run.allowance;
        match run.start(self.config.pool.clone(), channel) {
            Ok(inputs) => {
                self.files.insert_reorder(
                    transfer,
                    ReorderBuffer::new(Sink::Tree(inputs.clone())),
                    0,
                );
                self.ends
                    .trees
                    .insert(transfer, TreeThread::Receiver(inputs));
                let how = Acceptance {
                    room: Some(allowance.kept),
                    memory: allowance.told,
                    ..Acceptance::default()
                };
                self.session.accept_with(transfer, Vec::new(), how);
                self.on_started(transfer, 0, clock::now());
            }
            Err(error) => self.fail_to_start(transfer, error),
        }
    }

    /// Starts a streamed source after the peer has accepted it. Has no effect for a file.
    ///
    /// `memory` is the receiver's memory for entries of a tree in bytes, if announced.
    pub(super) fn start_source(&mut self, transfer: TransferId, memory: Option<u64>) {
        let Some(start) = self.ends.sources.remove(&transfer) else {
            return;
        };
        let window = SendWindow::new(if let PendingSource::Tree(run, _) = &start {
            run.allowance.given
        } else {
            RETRANSMIT_CHUNKS
        });
        let chunks = ChunkSender::new(
            transfer,
            self.handle.inputs.clone(),
            self.config.buffers.clone(),
            window.clone(),
        );
        self.files
            .insert_retransmit(transfer, RetransmitBuffer::new(window));
        let started = match start {
            PendingSource::Pipe(reader) => read_pipe(chunks, reader),
            PendingSource::Writer(writer) => {
                // Fails if the writer is gone, which cancels the transfer.
                let _ = writer.send(chunks);
                Ok(())
            }
            PendingSource::TunnelMux(mux) => {
                tokio::spawn(mux.pump(chunks));
                Ok(())
            }
            PendingSource::Tree(run, standalone) => {
                // Only a client's owner requests the names of entries.
                let backlog = Backlog::new(run.allowance.messages, standalone.is_some());
                let channel = self.tree_channel(transfer, standalone, SenderEnd { chunks, memory });
                let thread = |inputs| TreeThread::Sender(inputs, backlog);
                run.start(self.config.pool.clone(), channel)
                    .map(|inputs| drop(self.ends.trees.insert(transfer, thread(inputs))))
            }
        };
        if let Err(error) = started {
            self.fail_to_start(transfer, error);
        }
    }

    fn tree_channel<T>(
        &self,
        transfer: TransferId,
        standalone: Option<StandaloneFiles>,
        end: T,
    ) -> Box<SessionChannel<T>> {
        let owner = standalone.map(|standalone| TransferOwner {
            events: self.waiters.events(transfer),
            standalone,
        });
        let (_running, _fault) = (self.threads.token(), Fault::of(&self.handle.inputs));
        Box::new(SessionChannel {
            transfer,
            inputs: self.handle.inputs.clone(),
            owner,
            _running,
            _fault,
            end,
        })
    }

    pub(super) fn on_produced(&mut self, transfer: TransferId, produced: Produced) {
        match produced {
            Produced::Chunk(chunk) => {
                let number = self.session.give(
                    transfer,
                    chunk.buffer.bytes().len() as u32,
                    chunk.value,
                    chunk.last,
                );
                if let (Some(buffer), Some(number)) = (self.files.retransmit_mut(transfer), number)
                {
                    buffer.chunks.insert(number, chunk);
                }
            }
            Produced::End => self.session.close_source(transfer),
            Produced::Failed(error) => self.fail(transfer, error),
        }
    }

    pub(super) fn on_tree_output(&mut self, transfer: TransferId, said: TreeOutput) {
        match said {
            TreeOutput::Message(message) => self.session.send_tree(TreeBody { transfer, message }),
            TreeOutput::Walked(progress) => self.waiters.walked(transfer, progress),
            TreeOutput::Finished(Err(error)) => self.fail(transfer, error),
            TreeOutput::Finished(Ok(report)) => {
                self.ends.reports.insert(transfer, report);
                if matches!(
                    self.ends.trees.get(&transfer),
                    Some(TreeThread::Receiver(_))
                ) {
                    self.session.committed(Committed {
                        transfer,
                        digest: Digest::NONE,
                    });
                }
                self.on_committed(transfer, Digest::NONE);
            }
        }
    }

    /// Handles the peer's message that it has everything of a transfer. A local tree sender ends
    /// the transfer after earlier messages.
    pub(super) fn on_peer_committed(&mut self, transfer: TransferId, digest: Digest) {
        match self.ends.trees.get(&transfer) {
            // A thread that has ended has reported why.
            Some(TreeThread::Sender(sender, _)) => drop(sender.send(SenderInput::Committed)),
            _ => self.on_committed(transfer, digest),
        }
    }

    /// Passes a message from the receiver of a tree to the local sender. Fails the transfer if the
    /// peer sends more messages than allowed.
    pub(super) fn on_tree_message(&mut self, transfer: TransferId, message: TreeMessage) {
        let Some(TreeThread::Sender(sender, backlog)) = self.ends.trees.get(&transfer) else {
            return;
        };
        match backlog.queue(message) {
            // A thread that has ended has reported why.
            Some(queued) => drop(sender.send(SenderInput::Message(queued))),
            None => self.fail(transfer, flooded()),
        }
    }

    /// Drops the state of an ended transfer, except open files, and reports the end of a standalone
    /// file to its tree.
    pub(super) fn forget_ends(&mut self, transfer: TransferId, result: &Result<Outcome, Error>) {
        self.ends.sources.remove(&transfer);
        self.ends.sinks.remove(&transfer);
        if let Some(tree) = self.ends.trees.remove(&transfer) {
            tree.stop();
        }
        self.fail_orphans(transfer);
        self.forget_mux(transfer);
        let Some(entry) = self.ends.entries.remove(&transfer) else {
            return;
        };
        if let Some(tree) = self.ends.trees.get(&entry.tree) {
            tree.standalone_ended(entry, result.as_ref().map(drop).map_err(entry_error));
        }
    }

    /// Fails the standalone files that are still being transferred when their tree ends.
    fn fail_orphans(&mut self, tree: TransferId) {
        let orphans: Vec<TransferId> = self
            .ends
            .entries
            .iter()
            .filter(|(_, entry)| entry.tree == tree)
            .map(|(id, _)| *id)
            .collect();
        for orphan in orphans {
            let error = FileError::new("copy", "an entry", io::Error::other("its tree has ended"))
                .with_code(FailCode::Cancelled);
            self.session.fail(failure(
                orphan,
                FailCode::Cancelled,
                crate::text::chain(&error),
                true,
            ));
            self.fail_locally(orphan, Error::File(error));
        }
    }

    pub(super) fn take_report(&mut self, transfer: TransferId) -> Option<TreeReport> {
        self.ends.reports.remove(&transfer)
    }

    pub(super) fn stop_trees(&mut self) {
        std::mem::take(&mut self.ends.trees)
            .values()
            .for_each(TreeThread::stop);
        self.ends.sources.clear();
        self.ends.sinks.clear();
    }

    /// Registers the tunnel multiplexer to start when the peer accepts transfer `out` and offers
    /// transfer `back`.
    pub(super) fn await_mux(
        &mut self,
        out: Option<TransferId>,
        back: Option<TransferId>,
        mux: &Arc<TunnelMux>,
    ) {
        out.into_iter().for_each(|transfer| {
            drop(
                self.ends
                    .sources
                    .insert(transfer, PendingSource::TunnelMux(mux.clone())),
            );
        });
        back.into_iter().for_each(|transfer| {
            drop(
                self.ends
                    .sinks
                    .insert(transfer, PendingSink::TunnelMux(mux.clone())),
            );
        });
    }

    pub(super) fn receive_mux(&mut self, transfer: TransferId, mux: Arc<TunnelMux>) {
        self.files
            .insert_reorder(transfer, ReorderBuffer::new(Sink::TunnelMux(mux)), 0);
        self.session
            .accept(transfer, Vec::new(), Some(REORDER_CHUNKS));
    }

    /// Rejects a transfer that the peer requests. It has no local owner to inform.
    pub(super) fn refuse(&mut self, transfer: TransferId, why: &str) {
        self.session
            .fail(failure(transfer, FailCode::Refused, why, false));
    }
}

/// Maximum number of source names of a tree in a log record.
const MOST_NAMED: usize = 8;

fn entry_error(error: &Error) -> EntryError {
    EntryError {
        code: error.fail_code().unwrap_or(FailCode::Io),
        text: crate::text::chain(error),
    }
}

fn flooded() -> FileError {
    let cause = io::Error::other("peer sent more messages than the limit");
    FileError::new("send", "the tree", cause).with_code(FailCode::Protocol)
}

/// Asks a tree's thread to open the target of a standalone file.
fn ask_for_target(
    receiver: &threads::Sender<ReceiverInput>,
    id: EntryId,
    offer: Offer,
    options: PutOptions,
) -> impl Future<Output = Result<(Target, Vec<Subtree>), FileError>> + use<> {
    let (reply, opened) = oneshot::channel();
    // Fails if the session has ended.
    let answer = Box::new(move |result| drop(reply.send(result)));
    // A thread that has ended drops the request and its reply channel.
    let _ = receiver.send(ReceiverInput::OpenStandalone {
        id,
        offer: Box::new(offer),
        options,
        answer,
    });
    async move { opened.await.unwrap_or_else(|_| Err(no_tree())) }
}

fn ask_for_source(
    sender: &threads::Sender<SenderInput>,
    id: EntryId,
) -> impl Future<Output = Result<Source, FileError>> + use<> {
    let (reply, opened) = oneshot::channel();
    let answer = Box::new(move |result| drop(reply.send(result)));
    // A thread that has ended drops the request and its reply channel.
    let _ = sender.send(SenderInput::OpenStandalone { id, answer });
    async move { opened.await.unwrap_or_else(|_| Err(no_tree())) }
}

fn no_tree() -> FileError {
    FileError::new(
        "copy",
        "an entry",
        io::Error::other("its tree is not in progress"),
    )
    .with_code(FailCode::Protocol)
}

/// Returns a placeholder name for a standalone file, whose real name only its tree knows.
fn entry_name() -> Name {
    // Valid: not empty, one component, plain.
    Name::parse(b"entry").unwrap_or_else(|_| unreachable!("a plain name"))
}

impl std::fmt::Debug for PendingSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pipe(_) => "PendingSource::Pipe",
            Self::Writer(_) => "PendingSource::Writer",
            Self::Tree(..) => "PendingSource::Tree",
            Self::TunnelMux(_) => "PendingSource::TunnelMux",
        })
    }
}

impl std::fmt::Debug for PendingSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "PendingSink::File",
            Self::Pipe(_) => "PendingSink::Pipe",
            Self::Reader(_) => "PendingSink::Reader",
            Self::Tree(..) => "PendingSink::Tree",
            Self::Entry(..) => "PendingSink::Entry",
            Self::TunnelMux(_) => "PendingSink::TunnelMux",
        })
    }
}
