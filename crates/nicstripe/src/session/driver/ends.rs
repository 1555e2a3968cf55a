//! Where a session's transfers come from and go to: files, pipes, trees and their entries.
//!
//! What begins when the peer has answered waits here, and so does the way to the threads of trees; what is open while bytes move is with
//! [`Works`](crate::session::work).

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, mpsc as threads},
    time::Instant,
};

use nicstripe_proto::{
    Acceptance, ChunkSize, Digest, FailCode, Name, Offer, SourceIdentity, Subtree, TransferId,
    message::{Committed, EntryRef, Get, GetTree, OfferKind, Put, PutOptions, PutTree, TreeBody},
    sender::NO_DIGEST,
    session::failure,
    tree::{EntryId, TreeMessage},
};

use tokio::sync::oneshot;

use super::Driver;
use crate::{
    daemon::Direction,
    error::Error,
    file::{FileError, OF_SOURCE, OF_TARGET, ReadOptions, Source, Target},
    session::{
        input::{Alone, GetInto, Input, PutFrom, TreeRun, TreeSaid},
        kept::{KEPT_CHUNKS, Kept, Taker, ToRead, start_writer},
        live::{Given, Giver, LIVE_CHUNKS, Live, Room, read_pipe},
        ports::{Giving, Owner, Port, Receiving},
        waiters::Waiter,
        work::{Access, Fault, LocalTarget, Outcome, WorkDone, offer_of},
    },
    storage,
    tree::{
        TreeReport,
        port::{Backlog, EntryError, ReceiverInput, ReceiverRun, SenderInput, SenderRun},
    },
    tunnel::Trunk,
};

/// What is known of the ends of transfers besides what is open.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// What begins when the peer accepts.
    starting: BTreeMap<TransferId, Start>,
    /// What begins when the peer offers.
    awaited: BTreeMap<TransferId, Await>,
    /// The threads of trees.
    trees: BTreeMap<TransferId, TreeThread>,
    /// The transfers that are entries of trees.
    entries: BTreeMap<TransferId, EntryRef>,
    /// What became of trees, as their threads say.
    reports: BTreeMap<TransferId, TreeReport>,
}

impl Ends {
    /// Whether a transfer is a tree whose thread runs here.
    pub(super) fn is_tree(&self, transfer: TransferId) -> bool {
        self.trees.contains_key(&transfer)
    }
}

enum Start {
    Pipe(Box<dyn io::Read + Send>),
    Writer(oneshot::Sender<Giver>),
    Tree(SenderRun, Option<Alone>),
    Trunk(Arc<Trunk>),
}

enum Await {
    File(LocalTarget),
    Pipe(Box<dyn io::Write + Send>),
    Reader(tokio::sync::mpsc::UnboundedSender<ToRead>),
    Tree(ReceiverRun, Alone),
    Entry(EntryRef, PutOptions),
    Trunk(Arc<Trunk>),
}

#[derive(Debug)]
enum TreeThread {
    Sender(threads::Sender<SenderInput>, Backlog),
    Receiver(threads::Sender<ReceiverInput>),
}

impl TreeThread {
    /// Says that an entry's own transfer has ended. A thread that is gone does not care.
    fn alone_ended(&self, entry: EntryRef, result: Result<(), EntryError>) {
        match self {
            Self::Sender(sender, _) => drop(sender.send(SenderInput::AloneEnded { id: entry.id, result })),
            Self::Receiver(receiver) => drop(receiver.send(ReceiverInput::AloneEnded { id: entry.id, result })),
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
        self.waiters.insert(transfer, tree, waiter, Instant::now());
    }

    pub(super) fn put(&mut self, transfer: TransferId, from: PutFrom, waiter: Waiter) {
        self.await_end(transfer, from.tree(), waiter);
        match from {
            PutFrom::File { source, put } => {
                self.session.prepare(transfer, source.offering().clone());
                self.works.insert_source(transfer, source, put.offer.source.size);
                self.offer_put(*put);
            }
            PutFrom::Pipe { reader, put } => {
                self.ends.starting.insert(transfer, Start::Pipe(reader));
                self.offer_put(*put);
            }
            PutFrom::Writer { giver, put } => {
                self.ends.starting.insert(transfer, Start::Writer(giver));
                self.offer_put(*put);
            }
            PutFrom::Tree { run, put, alone } => {
                self.ends.starting.insert(transfer, Start::Tree(run, Some(alone)));
                self.session.put_tree(*put);
            }
            PutFrom::Entry { entry, options } => {
                self.ends.entries.insert(transfer, entry);
                let inputs = self.handle.inputs.clone();
                self.open_entry_source(entry, move |result| {
                    drop(inputs.blocking_send(Input::AloneOpened { transfer, options, result }));
                });
            }
        }
    }

    fn offer_put(&mut self, put: Put) {
        // Our own offers have chunks of the default size, of a file that exists.
        let offered = self.session.put(put);
        debug_assert!(offered.is_ok(), "{offered:?}");
    }

    pub(super) fn get(&mut self, transfer: TransferId, into: GetInto, waiter: Waiter) {
        self.await_end(transfer, into.tree(), waiter);
        match into {
            GetInto::File { get, target } => {
                self.ends.awaited.insert(transfer, Await::File(target));
                self.session.get(*get);
            }
            GetInto::Pipe { get, writer } => {
                self.ends.awaited.insert(transfer, Await::Pipe(writer));
                self.session.get(*get);
            }
            GetInto::Reader { get, reader } => {
                self.ends.awaited.insert(transfer, Await::Reader(reader));
                self.session.get(*get);
            }
            GetInto::Tree { run, get, alone } => {
                self.ends.awaited.insert(transfer, Await::Tree(run, alone));
                self.session.get_tree(*get);
            }
            GetInto::Entry { entry, options, allow_changing } => {
                self.ends.entries.insert(transfer, entry);
                self.ends.awaited.insert(transfer, Await::Entry(entry, options));
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

    /// A tree's sender has opened a file that becomes a transfer of its own.
    pub(super) fn on_alone_opened(&mut self, transfer: TransferId, options: PutOptions, result: Result<Source, FileError>) {
        match result {
            // Its tree has ended meanwhile.
            Ok(_) if !self.waiters.contains(transfer) => {}
            Ok(source) => {
                let source = Arc::new(source);
                let offer = offer_of(transfer, &source);
                self.session.prepare(transfer, source.offering().clone());
                self.works.insert_source(transfer, source, offer.source.size);
                let entry = self.ends.entries.get(&transfer).copied();
                self.offer_put(Put { name: entry_name(), offer, options, into: None, entry });
            }
            // The peer has not heard of this transfer.
            Err(error) => self.end_transfer(transfer, Err(Error::File(error))),
        }
    }

    /// Daemon: the peer wants a file.
    pub(super) fn on_get_requested(&mut self, get: Get) {
        let transfer = get.transfer;
        self.account_mut(|account| account.asked(transfer, &get.name, Direction::Send, get.entry.is_some()));
        match (&self.config.access, get.entry) {
            (Access::Client, _) => self.refuse(transfer, "a client serves no files"),
            (Access::Daemon(service), Some(entry)) => {
                let Some(TreeThread::Sender(sender, _)) = self.ends.trees.get(&entry.tree) else { return self.fail(transfer, no_tree()) };
                self.ends.entries.insert(transfer, entry);
                let (service, sender, session) = (service.clone(), sender.clone(), self.handle.clone());
                let fault = Fault::of(&session.inputs);
                tokio::spawn(async move {
                    let _fault = fault;
                    let opened = match service.lease_files(OF_SOURCE, &session).await {
                        Ok(lease) => ask_for_source(&sender, entry.id).await.map(|source| source.keep(lease)),
                        Err(error) => Err(error),
                    };
                    let result = opened.map(|source| {
                        let offer = offer_of(transfer, &source);
                        (Arc::new(source), offer)
                    });
                    let _ = session.inputs.send(Input::Work(WorkDone::SourceOpened { transfer, result })).await;
                });
            }
            (Access::Daemon(service), None) => {
                let options = ReadOptions { allow_changing: get.allow_changing, compress: get.compress, range: get.range };
                self.works.open_served(service.clone(), self.handle.clone(), transfer, get.name, options);
            }
        }
    }

    fn open_entry_source(&self, entry: EntryRef, answer: impl FnOnce(Result<Source, FileError>) + Send + 'static) {
        let refused = match self.ends.trees.get(&entry.tree) {
            Some(TreeThread::Sender(sender, _)) => {
                sender.send(SenderInput::OpenAlone { id: entry.id, answer: Box::new(answer) }).err().and_then(|error| match error.0 {
                    SenderInput::OpenAlone { answer, .. } => Some(answer),
                    _ => None,
                })
            }
            _ => Some(Box::new(answer) as Box<_>),
        };
        if let Some(answer) = refused {
            // The answer waits for room in the queue of this very loop.
            self.works.aside(move || answer(Err(no_tree())));
        }
    }

    /// The peer offers what was asked for.
    pub(super) fn on_offered(&mut self, offer: Offer) {
        let transfer = offer.transfer;
        let is_tree = offer.kind == Some(OfferKind::Parcels);
        match self.ends.awaited.remove(&transfer) {
            Some(Await::File(wanted)) if !is_tree => self.works.open_local(wanted, offer, crate::random_bytes()),
            Some(Await::Pipe(writer)) if !is_tree => match start_writer(transfer, writer, self.handle.inputs.clone()) {
                Ok(writer) => {
                    self.works.insert_kept(transfer, Kept::new(Taker::Writer(writer)), offer.source.size);
                    self.session.accept(transfer, Vec::new(), Some(KEPT_CHUNKS));
                    self.on_started(transfer, 0, Instant::now());
                }
                Err(error) => self.fail_to_start(transfer, error),
            },
            Some(Await::Reader(reader)) if !is_tree => {
                // One that is gone has cancelled the transfer.
                let _ = reader.send(ToRead::Begun(offer.source));
                self.works.insert_kept(transfer, Kept::new(Taker::Reader(reader)), offer.source.size);
                self.session.accept(transfer, Vec::new(), Some(KEPT_CHUNKS));
                self.on_started(transfer, 0, Instant::now());
            }
            Some(Await::Trunk(trunk)) if is_tree => self.receive_trunk(transfer, trunk),
            Some(Await::Tree(run, alone)) if is_tree => self.receive_tree(transfer, run, Some(alone)),
            Some(Await::Entry(entry, options)) if !is_tree => self.open_entry_target(transfer, entry, offer, options),
            _ => {
                let cause = io::Error::other("peer offered something else than was asked for");
                self.fail(transfer, FileError::new("receive", "what was asked for", cause).with_code(FailCode::Protocol));
            }
        }
    }

    /// Daemon: the peer puts an entry of a tree; client: the entry that was asked for is offered.
    pub(super) fn open_entry_target(&mut self, transfer: TransferId, entry: EntryRef, offer: Offer, options: PutOptions) {
        self.ends.entries.insert(transfer, entry);
        let Some(TreeThread::Receiver(receiver)) = self.ends.trees.get(&entry.tree) else { return self.fail(transfer, no_tree()) };
        let (receiver, session, fault) = (receiver.clone(), self.handle.clone(), Fault::of(&self.handle.inputs));
        let attempt = move || ask_for_target(&receiver, entry.id, offer.clone(), options);
        let service = match &self.config.access {
            Access::Daemon(service) => Some(service.clone()),
            Access::Client => None,
        };
        // Waits for an earlier session of this peer to let go of the same file, so not on the I/O threads.
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
            let _ = session.inputs.send(Input::Work(WorkDone::TargetOpened { transfer, result })).await;
        });
    }

    /// Daemon: the peer wants to put a tree here.
    pub(super) fn on_tree_put_requested(&mut self, put: PutTree) {
        let transfer = put.transfer;
        let name = put.target.as_ref().map_or_else(|| ".".to_owned(), ToString::to_string);
        self.account_mut(|account| account.asked(transfer, name, Direction::Receive, false));
        match &self.config.access {
            Access::Client => self.refuse(transfer, "a client takes no files"),
            Access::Daemon(service) => {
                let (service, inputs, fault) = (service.clone(), self.handle.inputs.clone(), Fault::of(&self.handle.inputs));
                let session = self.handle.clone();
                tokio::spawn(async move {
                    let _fault = fault;
                    service.alone(&session).await;
                    let result = service.receive_tree(put, &session).await.map(TreeRun::Receiver);
                    let _ = inputs.send(Input::TreeReady { transfer, result }).await;
                });
            }
        }
    }

    /// Daemon: nothing stands in the way of the tree that the peer wants to put here, or to have.
    pub(super) fn on_tree_ready(&mut self, transfer: TransferId, result: Result<TreeRun, FileError>) {
        match result {
            // Its peer may have given it up while it was waited for.
            Ok(_) if !self.session.is_under_way(transfer) => {}
            Ok(TreeRun::Receiver(run)) => self.receive_tree(transfer, run, None),
            Ok(TreeRun::Sender(run)) => {
                self.ends.starting.insert(transfer, Start::Tree(run, None));
                let (source, kind) = (SourceIdentity::default(), Some(OfferKind::Parcels));
                let offer = Offer { transfer, source, chunk_log2: ChunkSize::DEFAULT.log2(), mode: 0, kind, data: None };
                let offered = self.session.offer(offer);
                debug_assert!(offered.is_ok(), "{offered:?}");
            }
            Err(error) => self.fail(transfer, error),
        }
    }

    /// Daemon: the peer wants trees.
    pub(super) fn on_tree_requested(&mut self, get: GetTree) {
        let transfer = get.transfer;
        let names = get.sources.iter().map(|source| source.name.as_ref().map_or_else(|| ".".to_owned(), ToString::to_string));
        let names = names.take(MOST_NAMED).collect::<Vec<_>>().join(" ");
        self.account_mut(|account| account.asked(transfer, names, Direction::Send, false));
        match &self.config.access {
            Access::Client => self.refuse(transfer, "a client serves no files"),
            Access::Daemon(service) => {
                let (service, session, fault) = (service.clone(), self.handle.clone(), Fault::of(&self.handle.inputs));
                tokio::spawn(async move {
                    let _fault = fault;
                    let result = service.send_tree(get, &session).await.map(TreeRun::Sender);
                    let _ = session.inputs.send(Input::TreeReady { transfer, result }).await;
                });
            }
        }
    }

    fn receive_tree(&mut self, transfer: TransferId, run: ReceiverRun, alone: Option<Alone>) {
        let port = self.port(transfer, alone, Receiving);
        let allowance = run.allowance;
        match run.start(self.config.pool.clone(), port) {
            Ok(inputs) => {
                self.works.insert_kept(transfer, Kept::new(Taker::Tree(inputs.clone())), 0);
                self.ends.trees.insert(transfer, TreeThread::Receiver(inputs));
                let how = Acceptance { room: Some(allowance.kept), memory: allowance.told, ..Acceptance::default() };
                self.session.accept_with(transfer, Vec::new(), how);
                self.on_started(transfer, 0, Instant::now());
            }
            Err(error) => self.fail_to_start(transfer, error),
        }
    }

    /// The peer has accepted: a source that is no file begins to give. Does nothing where it is a file.
    ///
    /// `memory` is what the receiver of a tree has for entries, where it says so.
    pub(super) fn start_source(&mut self, transfer: TransferId, memory: Option<u64>) {
        let Some(start) = self.ends.starting.remove(&transfer) else { return };
        let room = Room::new(if let Start::Tree(run, _) = &start { run.allowance.given } else { LIVE_CHUNKS });
        let giver = Giver::new(transfer, self.handle.inputs.clone(), self.config.buffers.clone(), room.clone());
        self.works.insert_live(transfer, Live::new(room));
        let started = match start {
            Start::Pipe(reader) => read_pipe(giver, reader),
            Start::Writer(writer) => {
                // One that is gone has cancelled the transfer.
                let _ = writer.send(giver);
                Ok(())
            }
            Start::Trunk(trunk) => {
                tokio::spawn(trunk.pump(giver));
                Ok(())
            }
            Start::Tree(run, alone) => {
                // Only a client's owner asks for names.
                let backlog = Backlog::new(run.allowance.messages, alone.is_some());
                let port = self.port(transfer, alone, Giving { giver, memory });
                let thread = |inputs| TreeThread::Sender(inputs, backlog);
                run.start(self.config.pool.clone(), port).map(|inputs| drop(self.ends.trees.insert(transfer, thread(inputs))))
            }
        };
        if let Err(error) = started {
            self.fail_to_start(transfer, error);
        }
    }

    fn port<T>(&self, transfer: TransferId, alone: Option<Alone>, end: T) -> Box<Port<T>> {
        let owner = alone.map(|alone| Owner { events: self.waiters.events(transfer), alone });
        let (_running, _fault) = (self.threads.token(), Fault::of(&self.handle.inputs));
        Box::new(Port { transfer, inputs: self.handle.inputs.clone(), owner, _running, _fault, end })
    }

    pub(super) fn on_given(&mut self, transfer: TransferId, given: Given) {
        match given {
            Given::Chunk(chunk) => {
                let number = self.session.give(transfer, chunk.buffer.bytes().len() as u32, chunk.value, chunk.last);
                if let (Some(live), Some(number)) = (self.works.live_mut(transfer), number) {
                    live.chunks.insert(number, chunk);
                }
            }
            Given::End => self.session.close_source(transfer),
            Given::Failed(error) => self.fail(transfer, error),
        }
    }

    pub(super) fn on_tree_said(&mut self, transfer: TransferId, said: TreeSaid) {
        match said {
            TreeSaid::Message(message) => self.session.tell_tree(TreeBody { transfer, message }),
            TreeSaid::Walked(progress) => self.waiters.walked(transfer, progress),
            TreeSaid::Finished(Err(error)) => self.fail(transfer, error),
            TreeSaid::Finished(Ok(report)) => {
                self.ends.reports.insert(transfer, report);
                if matches!(self.ends.trees.get(&transfer), Some(TreeThread::Receiver(_))) {
                    self.session.committed(Committed { transfer, digest: NO_DIGEST });
                }
                self.on_committed(transfer, NO_DIGEST);
            }
        }
    }

    /// The peer has committed a transfer. A tree's sender, which is here, ends it when it has taken in all that was told before.
    pub(super) fn on_peer_committed(&mut self, transfer: TransferId, digest: Digest) {
        match self.ends.trees.get(&transfer) {
            // A thread that is gone has said why.
            Some(TreeThread::Sender(sender, _)) => drop(sender.send(SenderInput::Committed)),
            _ => self.on_committed(transfer, digest),
        }
    }

    /// The receiver of a tree tells its sender, which is here.
    pub(super) fn on_tree_told(&mut self, transfer: TransferId, message: TreeMessage) {
        let Some(TreeThread::Sender(sender, backlog)) = self.ends.trees.get(&transfer) else { return };
        match backlog.queue(message) {
            // A thread that is gone has said why.
            Some(queued) => drop(sender.send(SenderInput::Message(queued))),
            None => self.fail(transfer, flooded()),
        }
    }

    /// Lets go of what there is beside files.
    pub(super) fn forget_ends(&mut self, transfer: TransferId, result: &Result<Outcome, Error>) {
        self.ends.starting.remove(&transfer);
        self.ends.awaited.remove(&transfer);
        if let Some(tree) = self.ends.trees.remove(&transfer) {
            tree.stop();
        }
        self.fail_orphans(transfer);
        self.forget_trunk(transfer);
        let Some(entry) = self.ends.entries.remove(&transfer) else { return };
        if let Some(tree) = self.ends.trees.get(&entry.tree) {
            tree.alone_ended(entry, result.as_ref().map(drop).map_err(entry_error));
        }
    }

    /// Ends the transfers of a tree's entries that have not ended before it, as they do unless it failed.
    fn fail_orphans(&mut self, tree: TransferId) {
        let orphans: Vec<TransferId> = self.ends.entries.iter().filter(|(_, entry)| entry.tree == tree).map(|(id, _)| *id).collect();
        for orphan in orphans {
            let error = FileError::new("copy", "an entry", io::Error::other("its tree has ended")).with_code(FailCode::Cancelled);
            self.session.fail(failure(orphan, FailCode::Cancelled, crate::chain(&error), true));
            self.let_go(orphan, Error::File(error));
        }
    }

    pub(super) fn take_report(&mut self, transfer: TransferId) -> Option<TreeReport> {
        self.ends.reports.remove(&transfer)
    }

    /// Tells the threads of trees that the session has ended.
    pub(super) fn stop_trees(&mut self) {
        std::mem::take(&mut self.ends.trees).values().for_each(TreeThread::stop);
        self.ends.starting.clear();
        self.ends.awaited.clear();
    }

    /// When the peer accepts one transfer, and offers the other, the trunk begins.
    pub(super) fn await_trunk(&mut self, out: Option<TransferId>, back: Option<TransferId>, trunk: &Arc<Trunk>) {
        out.into_iter().for_each(|transfer| drop(self.ends.starting.insert(transfer, Start::Trunk(trunk.clone()))));
        back.into_iter().for_each(|transfer| drop(self.ends.awaited.insert(transfer, Await::Trunk(trunk.clone()))));
    }

    pub(super) fn receive_trunk(&mut self, transfer: TransferId, trunk: Arc<Trunk>) {
        self.works.insert_kept(transfer, Kept::new(Taker::Trunk(trunk)), 0);
        self.session.accept(transfer, Vec::new(), Some(KEPT_CHUNKS));
    }

    /// The peer wants what is never done here. Nobody at this end waits for it.
    pub(super) fn refuse(&mut self, transfer: TransferId, why: &str) {
        self.session.fail(failure(transfer, FailCode::Refused, why, false));
    }
}

/// Sources of a tree that are named in the log.
const MOST_NAMED: usize = 8;

fn entry_error(error: &Error) -> EntryError {
    EntryError { code: error.fail_code().unwrap_or(FailCode::Io), text: crate::chain(error) }
}

fn flooded() -> FileError {
    let cause = io::Error::other("peer tells more of it than is taken in");
    FileError::new("send", "the tree", cause).with_code(FailCode::Protocol)
}

/// Asks a tree's thread for the target of an entry that is a transfer of its own.
fn ask_for_target(
    receiver: &threads::Sender<ReceiverInput>,
    id: EntryId,
    offer: Offer,
    options: PutOptions,
) -> impl Future<Output = Result<(Target, Vec<Subtree>), FileError>> + use<> {
    let (reply, opened) = oneshot::channel();
    // Nobody waits any more when the session has ended.
    let answer = Box::new(move |result| drop(reply.send(result)));
    // A thread that has ended drops the question, and with it the reply.
    let _ = receiver.send(ReceiverInput::OpenAlone { id, offer: Box::new(offer), options, answer });
    async move { opened.await.unwrap_or_else(|_| Err(no_tree())) }
}

/// Asks a tree's thread for the source of an entry that is a transfer of its own.
fn ask_for_source(sender: &threads::Sender<SenderInput>, id: EntryId) -> impl Future<Output = Result<Source, FileError>> + use<> {
    let (reply, opened) = oneshot::channel();
    let answer = Box::new(move |result| drop(reply.send(result)));
    // A thread that has ended drops the question, and with it the reply.
    let _ = sender.send(SenderInput::OpenAlone { id, answer });
    async move { opened.await.unwrap_or_else(|_| Err(no_tree())) }
}

fn no_tree() -> FileError {
    FileError::new("copy", "an entry", io::Error::other("its tree is not being copied")).with_code(FailCode::Protocol)
}

/// What stands for a name where the tree says where an entry is.
fn entry_name() -> Name {
    // Not empty, one component, plain.
    Name::parse(b"entry").unwrap_or_else(|_| unreachable!("a plain name"))
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pipe(_) => "Start::Pipe",
            Self::Writer(_) => "Start::Writer",
            Self::Tree(..) => "Start::Tree",
            Self::Trunk(_) => "Start::Trunk",
        })
    }
}

impl std::fmt::Debug for Await {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "Await::File",
            Self::Pipe(_) => "Await::Pipe",
            Self::Reader(_) => "Await::Reader",
            Self::Tree(..) => "Await::Tree",
            Self::Entry(..) => "Await::Entry",
            Self::Trunk(_) => "Await::Trunk",
        })
    }
}
