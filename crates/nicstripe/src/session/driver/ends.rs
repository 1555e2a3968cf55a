//! Sources and sinks of a session's transfers, from the request to the end, and the tunnel
//! multiplexer, which two transfers carry.

use std::{collections::BTreeMap, fmt, io, sync::Arc};

use nicstripe_proto::{
    ChunkId, Digest, FailCode, Offer, Subtree, TransferId,
    message::{Committed, EntryRef, Get, GetTree, OpenTunnels, Put, PutTree, TreeBody},
    session::failure,
    tree::{Reason, TreeMessage},
};

use super::Driver;
use crate::{
    file::{self, Arrived, ChunkBuffer, FileError},
    report::{error::Error, metrics::Direction},
    session::{
        endpoint::{
            End, Scope, Sink, SinkOpened, Source,
            entry::{open_source, open_target},
            retransmit::{Produced, RetransmitBuffer},
            tree::{Trees, no_tree},
            tunnel::{TunnelSink, TunnelSource},
        },
        input::TreeOutput,
        last_progress::Mark,
        serve::{Pending, Serve},
        waiters::{Outcome, Waiter},
    },
    storage::Target,
    text::shown_path,
    tree::TreeReport,
    tunnel::TunnelMux,
    wire::clock,
};

/// Sources and sinks of a session's transfers.
#[derive(Debug, Default)]
pub(super) struct Ends {
    sources: BTreeMap<TransferId, Outgoing>,
    sinks: BTreeMap<TransferId, Incoming>,
    trees: Trees,
    /// Tree entries of the standalone files that are being transferred.
    entries: BTreeMap<TransferId, EntryRef>,
    reports: BTreeMap<TransferId, TreeReport>,
}

#[derive(Debug)]
struct Outgoing {
    source: Box<dyn Source>,
    /// Retransmit buffer of a stream that has started.
    buffer: Option<RetransmitBuffer>,
}

#[derive(Debug)]
struct Incoming {
    sink: Box<dyn Sink>,
    /// Reorder buffer of a stream: chunks that wait for earlier ones.
    reordered: BTreeMap<ChunkId, ChunkBuffer>,
    /// Next chunk of a stream that the sink takes.
    next: ChunkId,
    /// Number of chunks that the sink has consumed.
    consumed: u64,
    /// Digest of a stream that both ends agreed on; `None` until all data has arrived.
    digest: Option<Digest>,
}

impl Incoming {
    fn new(sink: Box<dyn Sink>) -> Self {
        Self {
            sink,
            reordered: BTreeMap::new(),
            next: ChunkId(0),
            consumed: 0,
            digest: None,
        }
    }
}

impl Ends {
    pub(super) fn file(&self, transfer: TransferId) -> Option<&Arc<file::Source>> {
        self.sources.get(&transfer)?.source.file()
    }

    /// Returns the retransmit buffer of a stream that this session sends.
    pub(super) fn retransmit_mut(&mut self, transfer: TransferId) -> Option<&mut RetransmitBuffer> {
        self.sources.get_mut(&transfer)?.buffer.as_mut()
    }

    pub(super) fn target(&self, transfer: TransferId) -> Option<&Arc<Target>> {
        self.sinks.get(&transfer)?.sink.target()
    }

    pub(super) fn targets(&self) -> Vec<(TransferId, Arc<Target>)> {
        self.sinks
            .iter()
            .filter_map(|(id, incoming)| Some((*id, incoming.sink.target()?.clone())))
            .collect()
    }

    /// Returns true if this session receives the transfer as a stream.
    pub(super) fn is_stream(&self, transfer: TransferId) -> bool {
        self.sinks
            .get(&transfer)
            .is_some_and(|incoming| incoming.sink.target().is_none())
    }

    /// Returns the size of a transfer in bytes; `None` if it is unknown.
    pub(super) fn size(&self, transfer: TransferId) -> Option<u64> {
        match self.file(transfer) {
            Some(file) => Some(file.identity.size),
            None => self.sinks.get(&transfer)?.sink.size(),
        }
    }

    /// Passes a verified chunk of a stream to its sink, followed by later chunks that are now in
    /// order.
    pub(super) fn take(&mut self, Arrived { header, buffer, .. }: Arrived) {
        if let Some(incoming) = self.sinks.get_mut(&header.transfer) {
            incoming.reordered.insert(header.chunk, buffer);
            while let Some(chunk) = incoming.reordered.remove(&incoming.next) {
                incoming.next = ChunkId(incoming.next.0 + 1);
                incoming.sink.take(chunk);
            }
        }
    }

    pub(super) fn on_consumed(&mut self, transfer: TransferId, chunks: u64) {
        if let Some(incoming) = self.sinks.get_mut(&transfer) {
            incoming.consumed += chunks;
        }
    }

    /// Returns true if this session sends the transfer.
    pub(super) fn is_sent(&self, transfer: TransferId) -> bool {
        self.sources.contains_key(&transfer)
    }

    /// Returns false if a transfer waits for a local stream: for data of its source, or for its sink
    /// to take data. `mark` counts the files of a tree in the first two places.
    pub(super) fn is_peers_turn(&self, transfer: TransferId, mark: &Mark) -> bool {
        let source = self.sources.get(&transfer);
        if let Some(buffer) = source.and_then(|source| source.buffer.as_ref()) {
            let [found, done, ..] = mark;
            return !buffer.chunks.is_empty() || buffer.has_ended || found > done;
        }
        let sink = self.sinks.get(&transfer);
        sink.is_none_or(|sink| sink.consumed >= sink.next.0 && sink.digest.is_none())
    }

    /// Signals the end of a stream to its sink. `digest` is the one that both ends agreed on.
    pub(super) fn end_stream(&mut self, transfer: TransferId, digest: Digest) {
        if let Some(incoming) = self.sinks.get_mut(&transfer) {
            incoming.digest = Some(digest);
            incoming.sink.end();
        }
    }

    /// Returns the agreed digest of a stream whose sink has consumed all data.
    pub(super) fn digest(&self, transfer: TransferId) -> Result<Digest, FileError> {
        let incoming = self.sinks.get(&transfer);
        incoming
            .and_then(|incoming| incoming.digest)
            .ok_or_else(|| {
                let cause = io::ErrorKind::UnexpectedEof.into();
                FileError::new("write", "standard output", cause)
            })
    }

    /// Removes the ends of a transfer. Dropping them closes files and deletes void ones.
    pub(super) fn remove(&mut self, transfer: TransferId) -> impl Send + 'static + use<> {
        (self.sources.remove(&transfer), self.sinks.remove(&transfer))
    }

    /// Stops the threads of trees and drops all sources, at the end of the session. Threads that
    /// wait for a send window fail.
    pub(super) fn stop(&mut self) {
        self.trees.stop_all();
        self.sources.clear();
    }

    pub(super) fn take_report(&mut self, transfer: TransferId) -> Option<TreeReport> {
        self.reports.remove(&transfer)
    }
}

/// Tunnel multiplexer of a session, and the two transfers that carry it.
#[derive(Debug)]
pub(super) struct MuxEnds {
    transfers: [TransferId; 2],
    pub(super) mux: Arc<TunnelMux>,
}

impl Driver {
    /// Starts a transfer of the owner, who waits for its end.
    pub(super) fn start_transfer(&mut self, transfer: TransferId, end: End, waiter: Waiter) {
        let entry = match &end {
            End::Source(source) => source.entry(),
            End::Sink(sink) => sink.entry(),
        };
        if let Some(entry) = entry {
            self.ends.entries.insert(transfer, entry);
        }
        let tree = entry.map(|entry| entry.tree);
        self.waiters.insert(transfer, tree, waiter, clock::now());
        match end {
            End::Source(source) => self.send(transfer, source),
            End::Sink(mut sink) => {
                sink.request(&mut self.scope(transfer));
                self.ends.sinks.insert(transfer, Incoming::new(sink));
            }
        }
    }

    /// Announces the data of a source to the peer.
    fn send(&mut self, transfer: TransferId, mut source: Box<dyn Source>) {
        source.announce(&mut self.scope(transfer));
        self.add_source(transfer, source);
    }

    fn add_source(&mut self, transfer: TransferId, source: Box<dyn Source>) {
        let buffer = None;
        self.ends
            .sources
            .insert(transfer, Outgoing { source, buffer });
    }

    /// Starts to receive into a sink that already has the subtrees `have`.
    fn receive(&mut self, transfer: TransferId, sink: Box<dyn Sink>, have: Vec<Subtree>) {
        let mut incoming = Incoming::new(sink);
        let started = incoming.sink.start(&mut self.scope(transfer));
        self.ends.sinks.insert(transfer, incoming);
        match started {
            Ok(how) => {
                self.session.accept(transfer, have, how);
                let resumed = self.session.stats(transfer).resumed_bytes;
                self.on_started(transfer, resumed, clock::now());
            }
            Err(error) => self.fail(transfer, Error::system(START, error)),
        }
    }

    fn scope(&mut self, transfer: TransferId) -> Scope<'_> {
        Scope {
            transfer,
            session: &mut self.session,
            trees: &mut self.ends.trees,
            jobs: &self.jobs,
            events: self.waiters.events(transfer),
            memory: None,
        }
    }

    /// Starts a source after the peer has accepted its data. `memory` is the peer's memory for
    /// entries of a tree in bytes, if announced.
    pub(super) fn start_source(&mut self, transfer: TransferId, memory: Option<u64>) {
        let Some(mut outgoing) = self.ends.sources.remove(&transfer) else {
            return;
        };
        let mut scope = self.scope(transfer);
        scope.memory = memory;
        let started = outgoing.source.start(&mut scope);
        let failed = started.map(|buffer| outgoing.buffer = buffer).err();
        self.ends.sources.insert(transfer, outgoing);
        if let Some(error) = failed {
            self.fail(transfer, Error::system(START, error));
        }
    }

    pub(super) fn on_source_opened(
        &mut self,
        transfer: TransferId,
        result: Result<Box<dyn Source>, FileError>,
    ) {
        match result {
            Ok(source)
                if self.session.is_under_way(transfer) || self.waiters.contains(transfer) =>
            {
                self.send(transfer, source);
            }
            // The transfer or its tree has ended meanwhile.
            Ok(_) => {}
            Err(error) => self.fail(transfer, error),
        }
    }

    pub(super) fn on_sink_opened(
        &mut self,
        transfer: TransferId,
        result: Result<SinkOpened, FileError>,
    ) {
        match result {
            Ok((sink, have)) if self.session.is_under_way(transfer) => {
                self.receive(transfer, sink, have);
            }
            // The transfer has ended meanwhile.
            Ok(_) => {}
            Err(error) => self.fail(transfer, error),
        }
    }

    pub(super) fn on_offered(&mut self, offer: &Offer) {
        let transfer = offer.transfer;
        let requested = self.ends.sinks.remove(&transfer);
        let Some(Incoming { mut sink, .. }) =
            requested.filter(|incoming| incoming.sink.takes(offer.kind))
        else {
            let cause = io::Error::other("peer offered another kind than requested");
            let error = FileError::new("receive", "the requested file", cause);
            return self.fail(transfer, error.with_code(FailCode::Protocol));
        };
        if sink.open(offer, &mut self.scope(transfer)) {
            self.receive(transfer, sink, Vec::new());
        }
    }

    /// Daemon: opens the file that the peer requests.
    pub(super) fn on_get_requested(&mut self, get: Get) {
        let (transfer, session) = (get.transfer, self.handle.clone());
        let is_entry = get.entry.is_some();
        let Some(service) = self.requested(transfer, &get.name, Direction::Send, is_entry) else {
            return;
        };
        let opening = match get.entry {
            Some(entry) => {
                let Some(sender) = self.ends.trees.sender(entry.tree) else {
                    return self.fail(transfer, no_tree());
                };
                self.ends.entries.insert(transfer, entry);
                service.open_entry_source(Box::pin(open_source(sender, entry.id)), session)
            }
            None => service.open_source(get, session),
        };
        self.jobs.open_source(transfer, opening);
    }

    /// Daemon: opens the target of a file that the peer sends.
    pub(super) fn on_put_requested(&mut self, put: Put) {
        let (transfer, session) = (put.offer.transfer, self.handle.clone());
        let is_entry = put.entry.is_some();
        let Some(service) = self.requested(transfer, &put.name, Direction::Receive, is_entry)
        else {
            return;
        };
        let opening = match put.entry {
            Some(entry) => {
                let Some(receiver) = self.ends.trees.receiver(entry.tree) else {
                    return self.fail(transfer, no_tree());
                };
                self.ends.entries.insert(transfer, entry);
                let offer = put.offer.clone();
                let attempt = move || -> Pending<_> {
                    let (receiver, offer) = (receiver.clone(), put.offer.clone());
                    Box::pin(open_target(receiver, entry.id, offer, put.options))
                };
                service.open_entry_sink(offer, Box::new(attempt), session)
            }
            None => service.open_sink(put, session),
        };
        self.jobs.open_sink(transfer, opening);
    }

    /// Daemon: prepares to receive a tree from the peer.
    pub(super) fn on_tree_put_requested(&mut self, put: PutTree) {
        let (transfer, name) = (put.transfer, shown_path(put.target.as_ref()));
        if let Some(service) = self.requested(transfer, name, Direction::Receive, false) {
            let opening = service.receive_tree(put, self.handle.clone());
            self.jobs.open_sink(transfer, opening);
        }
    }

    /// Daemon: prepares to send the trees that the peer requests.
    pub(super) fn on_tree_requested(&mut self, get: GetTree) {
        let transfer = get.transfer;
        let names = get.sources.iter();
        let names = names.map(|source| shown_path(source.name.as_ref()));
        let names = names.take(MOST_NAMED).collect::<Vec<_>>().join(" ");
        if let Some(service) = self.requested(transfer, names, Direction::Send, false) {
            let opening = service.send_tree(get, self.handle.clone());
            self.jobs.open_source(transfer, opening);
        }
    }

    /// Records a transfer that the peer requests. Returns the service that opens its end; rejects
    /// the transfer if this machine is the client.
    fn requested(
        &mut self,
        transfer: TransferId,
        name: impl fmt::Display,
        direction: Direction,
        is_entry: bool,
    ) -> Option<Arc<dyn Serve>> {
        self.account_mut(|account| account.requested(transfer, name, direction, is_entry));
        if self.config.service.is_none() {
            let why = match direction {
                Direction::Send => "a client serves no files",
                Direction::Receive => "a client takes no files",
            };
            self.refuse(transfer, why);
        }
        self.config.service.clone()
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
                if let (Some(buffer), Some(number)) = (self.ends.retransmit_mut(transfer), number) {
                    buffer.chunks.insert(number, chunk);
                }
            }
            Produced::End => {
                if let Some(buffer) = self.ends.retransmit_mut(transfer) {
                    buffer.has_ended = true;
                }
                self.session.close_source(transfer);
            }
            Produced::Failed(error) => self.fail(transfer, error),
        }
    }

    /// Drops an acknowledged chunk of a stream.
    pub(super) fn on_released(&mut self, transfer: TransferId, chunk: ChunkId) {
        if let Some(buffer) = self.ends.retransmit_mut(transfer) {
            buffer.chunks.remove(&chunk);
        }
    }

    pub(super) fn on_tree_output(&mut self, transfer: TransferId, said: TreeOutput) {
        match said {
            TreeOutput::Message(message) => self.session.send_tree(TreeBody { transfer, message }),
            TreeOutput::Walked(progress) => {
                if let Some(tally) = self.waiters.tally(transfer) {
                    tally.walked = Some(progress);
                }
            }
            TreeOutput::Finished(Err(error)) => self.fail(transfer, error),
            TreeOutput::Finished(Ok(report)) => {
                self.ends.reports.insert(transfer, report);
                if self.ends.trees.receiver(transfer).is_some() {
                    self.session.committed(Committed {
                        transfer,
                        digest: Digest::NONE,
                    });
                }
                self.on_committed(transfer, Digest::NONE);
            }
        }
    }

    /// Handles the receiver's message that a transfer is committed. A local tree sender ends the
    /// transfer after earlier messages.
    pub(super) fn on_peer_committed(&mut self, transfer: TransferId, digest: Digest) {
        if !self.ends.trees.on_committed(transfer) {
            self.on_committed(transfer, digest);
        }
    }

    /// Passes a message from the receiver of a tree to the local sender. Fails the transfer if the
    /// peer sends more messages than allowed.
    pub(super) fn on_tree_message(&mut self, transfer: TransferId, message: TreeMessage) {
        if let Err(error) = self.ends.trees.on_message(transfer, message) {
            self.fail(transfer, error);
        }
    }

    /// Drops the state of an ended transfer, and reports the end of a standalone file to its tree.
    pub(super) fn forget_ends(&mut self, transfer: TransferId, result: &Result<Outcome, Error>) {
        let unfinished = self.ends.target(transfer).filter(|_| result.is_err());
        let (unfinished, ends) = (unfinished.cloned(), self.ends.remove(transfer));
        self.without_waiting(move || {
            unfinished
                .iter()
                .for_each(|target| discard_unfinishable(target));
            drop(ends);
        });
        let entry = self.ends.entries.remove(&transfer);
        // A tree is no entry of another, so the end of an orphan has no orphans.
        if self.ends.trees.stop(transfer) {
            self.fail_orphans(transfer);
        }
        self.forget_mux(transfer);
        if let Some(entry) = entry {
            self.ends
                .trees
                .standalone_ended(entry, result.as_ref().map(drop).map_err(entry_error));
        }
    }

    /// Runs file work whose result nobody awaits. A daemon's session leaves it to the I/O threads,
    /// because a file system may not answer, and other sessions use its thread.
    pub(super) fn without_waiting(&self, work: impl FnOnce() + Send + 'static) {
        match self.config.service {
            Some(_) => self.config.pool.run(work),
            None => work(),
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

    /// Rejects a transfer that the peer requests. It has no local owner to inform.
    pub(super) fn refuse(&mut self, transfer: TransferId, why: &str) {
        self.session
            .fail(failure(transfer, FailCode::Refused, why, false));
    }
}

impl Driver {
    /// Client: requests a multiplexer from the daemon. Ends `mux` if the session already has one.
    pub(super) fn open_mux(&mut self, request: OpenTunnels, mux: Arc<TunnelMux>) {
        if self.mux.is_some() {
            return mux.end();
        }
        self.add_source(request.up, Box::new(TunnelSource(mux.clone())));
        let sink = Incoming::new(Box::new(TunnelSink(mux.clone())));
        self.ends.sinks.insert(request.down, sink);
        self.mux = Some(MuxEnds {
            transfers: [request.up, request.down],
            mux,
        });
        self.session.open_tunnels(request);
    }

    /// Daemon: accepts the client's multiplexer. The targets are checked for each tunnel.
    pub(super) fn on_tunnels_requested(&mut self, request: OpenTunnels) {
        let Some(service) = &self.config.service else {
            return;
        };
        if self.mux.is_some() {
            return [request.up, request.down]
                .into_iter()
                .for_each(|transfer| self.refuse(transfer, "tunnel multiplexer exists already"));
        }
        let dialer = service.dialer(self.config.host.clone());
        let mux = TunnelMux::new(Some(Arc::new(dialer)));
        self.mux = Some(MuxEnds {
            transfers: [request.up, request.down],
            mux: mux.clone(),
        });
        self.receive(request.up, Box::new(TunnelSink(mux.clone())), Vec::new());
        self.send(request.down, Box::new(TunnelSource(mux)));
    }

    /// Reports consumed batches to the peer. Ends the multiplexer if the peer violated the tunnel
    /// protocol or ended a transfer.
    pub(super) fn poll_mux(&mut self, transfer: TransferId) {
        let Some(mux) = self.mux_of(transfer) else {
            return;
        };
        let ((taken, breach), has_ended) = (mux.status(), mux.has_ended());
        if taken > 0 {
            self.session.taken(transfer, taken);
        }
        if let Some(breach) = breach {
            tracing::warn!(peer = self.config.host, error = %breach, "tunnels end");
            self.end_mux(FailCode::Protocol, &breach.to_string());
        } else if has_ended {
            self.end_mux(FailCode::Protocol, "peer ended the tunnel multiplexer");
        }
    }

    /// Ends the multiplexer if one of its two transfers has ended.
    pub(super) fn forget_mux(&mut self, transfer: TransferId) {
        if self.mux_of(transfer).is_some() {
            self.end_mux(
                FailCode::Cancelled,
                "other direction of the tunnel multiplexer has ended",
            );
        }
    }

    /// Returns the multiplexer that a transfer carries.
    fn mux_of(&self, transfer: TransferId) -> Option<&TunnelMux> {
        let ends = self.mux.as_ref()?;
        ends.transfers.contains(&transfer).then_some(&ends.mux)
    }

    fn end_mux(&mut self, code: FailCode, why: &str) {
        let Some(ends) = self.mux.take() else { return };
        ends.mux.end();
        for transfer in ends.transfers {
            self.session.fail(failure(transfer, code, why, false));
            let error = FileError::new("carry", "tunnels", io::Error::other(why.to_owned()))
                .with_code(code);
            self.end_transfer(transfer, Err(Error::File(error)));
        }
    }
}

/// Deletes the received data of a transfer of unknown size. It cannot be resumed, because its
/// source cannot be read again.
pub(super) fn discard_unfinishable(target: &Target) {
    if target.grid.is_open() {
        target.discard();
    }
}

/// Action that failed if a source or sink does not start.
const START: &str = "start a thread";

/// Maximum number of source names of a tree in a log record.
const MOST_NAMED: usize = 8;

fn entry_error(error: &Error) -> Reason {
    Reason {
        code: error.fail_code().unwrap_or(FailCode::Io),
        text: crate::text::chain(error),
    }
}
