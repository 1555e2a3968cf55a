//! The part of a session that moves files: who sends what, what arrived, when it is whole.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{Acceptance, Event, PathError, Reason, Role, Session, TransferId, Transmit};
use crate::{
    extent::{ChunkId, ChunkRange},
    frame::DataHeader,
    grid::{ChunkSize, Grid, MOST_SIZE, Shape},
    hash_tree::{ChainingValue, Subtree},
    message::{
        Accept, Committed, Complete, Expect, Expected, Fail, FailCode, Get, GetTree, Interfaces, MAX_EXPECTED, MAX_HAVE, Message, Offer,
        OfferKind, PeerInterface, Put, PutTree, StreamReport, TreeBody, Window,
    },
    path::{PathId, PathState},
    receiver::{Arrival, Receiver},
    sender::Sender,
};

/// Where a transfer stands at this end.
#[derive(Debug)]
pub(super) enum Transfer {
    /// Get, at the receiver: asked for. To: `Deciding`.
    Asked,
    /// Get, at the sender: asked for, the driver opens the source. To: `Offered`, `Ended`.
    Requested,
    /// At the receiver: offered, the driver opens the target. To: `Receiving`, `Ended`.
    Deciding(Shape),
    /// At the sender: offered. To: `Sending`, `Ended`.
    Offered(Shape),
    /// To: `Ended`.
    Sending {
        sender: Sender,
        /// Whether the driver was told that everything was read.
        read: bool,
    },
    /// To: `Ended`.
    Receiving(Receiver),
    /// Committed or failed; what it had moved.
    Ended(TransferStats),
}

impl Transfer {
    pub(super) fn receiver_mut(&mut self) -> Option<&mut Receiver> {
        match self {
            Self::Receiving(receiver) => Some(receiver),
            _ => None,
        }
    }

    /// What it has moved; at either end, as far as that end knows.
    fn stats(&self) -> TransferStats {
        match self {
            Self::Sending { sender, .. } => TransferStats {
                size: size_of(sender.grid()),
                resumed_bytes: sender.resumed_bytes(),
                delivered_bytes: sender.acknowledged_bytes(),
                repeated_bytes: sender.resent_bytes(),
                unsent_bytes: sender.unsent_bytes(),
                by_path: sender.delivered_by_path().collect(),
            },
            Self::Receiving(receiver) => TransferStats {
                size: size_of(receiver.grid()),
                resumed_bytes: receiver.resumed_bytes(),
                delivered_bytes: receiver.written_bytes(),
                repeated_bytes: receiver.duplicate_bytes(),
                unsent_bytes: receiver.unsent_bytes(),
                by_path: receiver.delivered_by_path().collect(),
            },
            Self::Ended(stats) => stats.clone(),
            _ => TransferStats::default(),
        }
    }

    fn sender(&self) -> Option<&Sender> {
        match self {
            Self::Sending { sender, .. } => Some(sender),
            _ => None,
        }
    }

    pub(super) fn sender_mut(&mut self) -> Option<&mut Sender> {
        match self {
            Self::Sending { sender, .. } => Some(sender),
            _ => None,
        }
    }

    pub(super) fn on_path_lost(&mut self, path: PathId) {
        match self {
            Self::Sending { sender, .. } => sender.on_path_lost(path),
            Self::Receiving(receiver) => receiver.on_path_lost(path),
            _ => {}
        }
    }

    pub(super) fn timeouts(&self, sync_interval: Duration) -> impl Iterator<Item = (Instant, Reason)> {
        let receiver = match self {
            Self::Receiving(receiver) => Some(receiver),
            _ => None,
        };
        let ack = receiver.and_then(|receiver| Some((receiver.ack_deadline()?, Reason::Acknowledge)));
        let sync = receiver.and_then(|receiver| Some((receiver.sync_deadline(sync_interval)?, Reason::Sync)));
        ack.into_iter().chain(sync)
    }
}

/// What a transfer has moved so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferStats {
    /// Bytes of the whole, as far as it is known.
    pub size: u64,
    /// Bytes that were durable at the receiver before this session.
    pub resumed_bytes: u64,
    /// Bytes that arrived, each counted once.
    pub delivered_bytes: u64,
    /// Bytes that were sent, or came, once more.
    pub repeated_bytes: u64,
    /// Bytes that did not have to be sent: of holes, and of chunks that the receiver's file had.
    pub unsent_bytes: u64,
    /// The delivered bytes by path.
    pub by_path: BTreeMap<PathId, u64>,
}

impl TransferStats {
    /// Adds what another transfer has moved.
    pub fn add(&mut self, other: &Self) {
        self.size += other.size;
        self.resumed_bytes += other.resumed_bytes;
        self.delivered_bytes += other.delivered_bytes;
        self.repeated_bytes += other.repeated_bytes;
        self.unsent_bytes += other.unsent_bytes;
        for (path, bytes) in &other.by_path {
            *self.by_path.entry(*path).or_default() += bytes;
        }
    }
}

/// The size of a grid, 0 while it is not known.
fn size_of(grid: Grid) -> u64 {
    if grid.is_open() { 0 } else { grid.size }
}

/// What is to be done with a chunk that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// Verify it against its header, write it at `offset`, then call [`Session::handle_chunk_written`], [`Session::handle_chunk_damaged`]
    /// or, where writing failed, [`Session::handle_chunk_unwritten`].
    Write {
        /// The file's grid.
        grid: Grid,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// Forget it.
    Drop,
    /// Keep it, and call [`Session::handle_chunk_again`] when the copy of the chunk that is being written is written, or not; or
    /// [`Session::handle_chunk_unwritten`] when the transfer has ended before.
    Later,
}

impl Session {
    /// Client: asks the daemon to take a file.
    pub fn put(&mut self, put: Put) -> Result<(), PathError> {
        let shape = shape_of(&put.offer)?;
        self.insert(put.offer.transfer, Transfer::Offered(shape));
        self.send(&Message::Put(put));
        Ok(())
    }

    /// Client: asks the daemon for a file.
    pub fn get(&mut self, get: Get) {
        self.insert(get.transfer, Transfer::Asked);
        self.send(&Message::Get(get));
    }

    /// Client: asks the daemon to take a tree, whose parcels it [gives](Self::give).
    pub fn put_tree(&mut self, put: PutTree) {
        self.insert(put.transfer, Transfer::Offered(Shape::Parcels(ChunkSize::DEFAULT)));
        self.send(&Message::PutTree(put));
    }

    /// Client: asks the daemon for trees.
    pub fn get_tree(&mut self, get: GetTree) {
        self.insert(get.transfer, Transfer::Asked);
        self.send(&Message::GetTree(get));
    }

    /// Receiver of a tree: tells its sender something.
    pub fn tell_tree(&mut self, body: TreeBody) {
        if self.is_under_way(body.transfer) {
            self.send(&Message::Tree(body));
        }
    }

    /// Sender: the source has the next chunk, of `len` bytes and this value, and keeps it until it is acknowledged; `last` says that it knows of
    /// nothing behind it. Returns its number.
    pub fn give(&mut self, transfer: TransferId, len: u32, value: ChainingValue, last: bool) -> Option<ChunkId> {
        let chunk = self.transfers.get_mut(&transfer).and_then(Transfer::sender_mut)?.give(len, value, last);
        self.poll_read(transfer);
        chunk
    }

    /// Sender: the source has given all it has.
    pub fn close_source(&mut self, transfer: TransferId) {
        if let Some(sender) = self.transfers.get_mut(&transfer).and_then(Transfer::sender_mut) {
            sender.close();
            self.poll_read(transfer);
        }
    }

    /// Receiver: `chunks` more of what is kept in memory were taken, so that others may come.
    pub fn taken(&mut self, transfer: TransferId, chunks: u64) {
        let granted = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut).and_then(|receiver| receiver.on_taken(chunks));
        if let Some(chunks) = granted {
            self.send(&Message::Window(Window { transfer, chunks }));
        }
    }

    /// Sender, in answer to [`Event::GetRequested`] or [`Event::TreeRequested`]: offers the file or tree.
    pub fn offer(&mut self, offer: Offer) -> Result<(), PathError> {
        let shape = shape_of(&offer)?;
        if matches!(self.transfers.get(&offer.transfer), Some(Transfer::Requested)) {
            self.insert(offer.transfer, Transfer::Offered(shape));
            self.send(&Message::Offer(offer));
        }
        Ok(())
    }

    /// Receiver, in answer to [`Event::PutRequested`] or [`Event::Offered`]: wants the file, all but `have`.
    ///
    /// Of more than [`MAX_HAVE`] subtrees, siblings joined, the largest are kept. What does not fit together is left out.
    /// With `room` what arrives is kept in memory, at most so many chunks that were not [taken](Self::taken).
    pub fn accept(&mut self, transfer: TransferId, have: Vec<Subtree>, room: Option<u64>) {
        self.accept_with(transfer, have, Acceptance { room, ..Acceptance::default() });
    }

    /// The same, for a file that has holes, or of which something is there.
    pub fn accept_with(&mut self, transfer: TransferId, have: Vec<Subtree>, how: Acceptance) {
        let room = how.room;
        let Some(Transfer::Deciding(shape)) = self.transfers.get(&transfer) else { return };
        let mut receiver = Receiver::new(*shape, &have, room);
        let mut have: Vec<Subtree> = receiver.subtrees().collect();
        if have.len() > MAX_HAVE {
            have.sort_by_key(|subtree| std::cmp::Reverse(subtree.level));
            have.truncate(MAX_HAVE);
            receiver = Receiver::new(*shape, &have, room);
        }
        let delta = how.delta.filter(|_| room.is_none());
        if how.holes && room.is_none() {
            receiver.announce_holes();
        }
        receiver.compare_first(delta.unwrap_or(0));
        self.insert(transfer, Transfer::Receiving(receiver));
        // What the peer is told is what the receiver took: a chunk that only one of them counts on would never come.
        self.send(&Message::Accept(Accept { transfer, have: have.iter().map(Into::into).collect(), window: room, delta }));
        self.poll_finished(transfer);
    }

    /// Sender, in answer to [`Event::SourceRead`]: the source did not change, the digest stands.
    pub fn complete(&mut self, transfer: TransferId, streams: Vec<StreamReport>) {
        if let Some(Transfer::Sending { sender, .. }) = self.transfers.get(&transfer)
            && let Some(digest) = sender.digest()
        {
            let changing = sender.is_changing();
            let end = sender.end();
            self.send(&Message::Complete(Complete { transfer, digest, streams, end, changing }));
        }
    }

    /// Receiver, in answer to [`Event::Commit`]: the file is durable under its name. Does nothing where the transfer has ended.
    pub fn committed(&mut self, committed: Committed) {
        if matches!(self.transfers.get(&committed.transfer), Some(Transfer::Receiving(_))) {
            self.end(committed.transfer);
            self.send(&Message::Committed(committed));
        }
    }

    /// Either side: the transfer failed here. Does nothing where it has ended.
    pub fn fail(&mut self, fail: Fail) {
        if self.is_under_way(fail.transfer) {
            self.end(fail.transfer);
            self.send(&Message::Fail(fail));
        }
    }

    /// Daemon: tells the client that these are our interfaces now.
    pub fn tell_interfaces(&mut self, interfaces: Vec<PeerInterface>) {
        self.send(&Message::Interfaces(Interfaces { interfaces }));
    }

    /// Client: tells the daemon which connections will come, at most [`MAX_EXPECTED`].
    pub fn expect_connections(&mut self, mut connections: Vec<Expected>) {
        connections.truncate(MAX_EXPECTED);
        self.send(&Message::Expect(Expect { connections }));
    }

    /// What a transfer has moved; nothing for one that is unknown.
    pub fn stats(&self, transfer: TransferId) -> TransferStats {
        self.transfers.get(&transfer).map(Transfer::stats).unwrap_or_default()
    }

    /// The sending half of a transfer, while it sends.
    pub fn sender(&self, transfer: TransferId) -> Option<&Sender> {
        self.transfers.get(&transfer)?.sender()
    }

    /// The receiving half of a transfer, while it receives.
    pub fn receiver(&self, transfer: TransferId) -> Option<&Receiver> {
        match self.transfers.get(&transfer) {
            Some(Transfer::Receiving(receiver)) => Some(receiver),
            _ => None,
        }
    }

    /// Whether every control message that was sent has arrived.
    pub fn is_settled(&self) -> bool {
        self.reliable.is_settled()
    }

    /// Returns a chunk to read and hash without sending it, as the receiver has it: then call [`Session::handle_chunk_hashed`].
    pub fn poll_hash(&mut self) -> Option<(TransferId, ChunkId)> {
        self.transfers.iter_mut().find_map(|(id, transfer)| Some((*id, transfer.sender_mut()?.next_to_hash()?)))
    }

    /// A chunk that was polled by [`Session::poll_hash`] was read.
    pub fn handle_chunk_hashed(&mut self, transfer: TransferId, chunk: ChunkId, value: ChainingValue) {
        if let Some(sender) = self.transfers.get_mut(&transfer).and_then(Transfer::sender_mut) {
            sender.on_hashed(chunk, value);
            self.poll_kept(transfer);
            self.poll_read(transfer);
        }
    }

    /// A chunk that was polled for a path was read: returns the header of the frame that carries it, or `None` if it need not be sent.
    pub fn handle_chunk_read(
        &mut self,
        id: PathId,
        transfer: TransferId,
        chunk: ChunkId,
        value: ChainingValue,
        now: Instant,
    ) -> Option<DataHeader> {
        let path = self.paths.get_mut(&id)?;
        let asked = path.flow.on_read(transfer, chunk);
        let sender = self.transfers.get_mut(&transfer).and_then(Transfer::sender_mut)?;
        sender.on_read(chunk, value);
        let wanted = asked && path.state() == PathState::Open && sender.on_send(id, chunk);
        if wanted {
            path.flow.on_begun();
            path.on_sent(now);
        } else if asked {
            sender.on_not_sent(id, chunk);
        }
        let (len, last) = (sender.chunk_bytes(chunk) as u32, sender.is_last(chunk));
        self.poll_read(transfer);
        wanted.then_some(DataHeader { transfer, chunk, value, len, raw_len: 0, last })
    }

    /// The kernel has taken a data frame wholly.
    pub fn handle_chunk_flushed(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.flow.on_flushed();
        }
    }

    /// A data frame arrived on a path: says what to do with it.
    pub fn handle_chunk(&mut self, id: PathId, header: &DataHeader, now: Instant) -> Result<Incoming, PathError> {
        self.handle_heard(id, now);
        let Some(path) = self.paths.get_mut(&id).filter(|path| path.state().is_connected()) else { return Ok(Incoming::Drop) };
        if !path.flow.on_arrived() {
            return Err(PathError::Credit);
        }
        self.arrive(id, header, now)
    }

    /// A chunk that had to wait because of [`Incoming::Later`] is asked about again.
    pub fn handle_chunk_again(&mut self, id: PathId, header: &DataHeader, now: Instant) -> Result<Incoming, PathError> {
        if let Some(path) = self.paths.get_mut(&id) {
            path.flow.on_released();
        }
        self.arrive(id, header, now)
    }

    fn arrive(&mut self, id: PathId, header: &DataHeader, now: Instant) -> Result<Incoming, PathError> {
        let receiver = match self.transfers.get_mut(&header.transfer) {
            Some(Transfer::Receiving(receiver)) => receiver,
            // What was under way when it ended.
            Some(Transfer::Ended(_)) => return Ok(Incoming::Drop),
            None if self.last_transfer >= Some(header.transfer) => return Ok(Incoming::Drop),
            _ => return Err(PathError::Transfer { what: "data", transfer: header.transfer.0, expected: "being received" }),
        };
        let incoming = match receiver.on_arrival(id, header, now)? {
            Arrival::Write(extent) => Incoming::Write { grid: receiver.grid(), offset: extent.offset },
            Arrival::Later => Incoming::Later,
            Arrival::Duplicate => return Ok(Incoming::Drop),
        };
        if let Some(path) = self.paths.get_mut(&id) {
            path.flow.on_held();
        }
        Ok(incoming)
    }

    /// A chunk was verified and written. Where what arrives is kept in memory: says whether it is to be kept, or there already.
    pub fn handle_chunk_written(&mut self, id: PathId, header: &DataHeader, now: Instant) -> bool {
        let DataHeader { transfer, chunk, value, .. } = *header;
        let ack_on = self.paths.get_mut(&id).and_then(|path| {
            path.flow.on_released();
            path.state().is_connected().then_some(id)
        });
        let Some(receiver) = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut) else { return false };
        let news = receiver.on_written(id, ack_on, chunk, header.chunk_len().into(), value, now);
        self.poll_finished(transfer);
        self.poll_syncs(now);
        news
    }

    /// A chunk did not have the value of its header: the path on which it came has to be given up, as
    /// [`PathLoss::Damaged`](crate::PathLoss), and the chunk comes again.
    pub fn handle_chunk_damaged(&mut self, id: PathId, transfer: TransferId, chunk: ChunkId) {
        self.handle_chunk_unwritten(id, transfer, chunk);
    }

    /// A chunk is not written because its file failed or is closed; the transfer has to be failed, if it was not.
    pub fn handle_chunk_unwritten(&mut self, id: PathId, transfer: TransferId, chunk: ChunkId) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.flow.on_released();
        }
        if let Some(receiver) = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut) {
            receiver.on_not_written(chunk);
            self.poll_finished(transfer);
        }
    }

    /// What [`Event::Sync`] asked for is done.
    pub fn handle_synced(&mut self, transfer: TransferId, now: Instant) {
        if let Some(receiver) = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut) {
            receiver.on_synced();
            self.poll_syncs(now);
        }
    }

    /// Takes what was written and is not durable yet, whether a sync is due or not; for an orderly end.
    pub fn take_unsynced(&mut self, transfer: TransferId, now: Instant) -> Option<Vec<Subtree>> {
        self.transfers.get_mut(&transfer)?.receiver_mut()?.poll_sync(0, Duration::ZERO, now)
    }

    pub(super) fn handle_message(&mut self, message: Message, now: Instant) -> Result<(), PathError> {
        match message {
            Message::Put(put) => {
                let shape = shape_of(&put.offer)?;
                if matches!(shape, Shape::Parcels(_)) {
                    return Err(PathError::Transfer { what: "parcels", transfer: put.offer.transfer.0, expected: "a tree" });
                }
                self.fresh(put.offer.transfer, "put", Transfer::Deciding(shape))?;
                self.events.push_back(Event::PutRequested(put));
            }
            Message::Get(get) => {
                self.fresh(get.transfer, "get", Transfer::Requested)?;
                self.events.push_back(Event::GetRequested(get));
            }
            Message::PutTree(put) => {
                self.fresh(put.transfer, "put tree", Transfer::Deciding(Shape::Parcels(ChunkSize::DEFAULT)))?;
                self.events.push_back(Event::TreePutRequested(put));
            }
            Message::GetTree(get) => {
                self.fresh(get.transfer, "get tree", Transfer::Requested)?;
                self.events.push_back(Event::TreeRequested(get));
            }
            Message::Tree(TreeBody { transfer, message }) => {
                if self.expect(
                    transfer,
                    "what becomes of a tree",
                    "a tree being sent",
                    |transfer| matches!(transfer, Transfer::Sending { sender, .. } if !sender.has_digest()),
                )? {
                    self.events.push_back(Event::TreeTold { transfer, message });
                }
            }
            Message::Window(Window { transfer, chunks }) => {
                if self.expect(transfer, "a window", "being sent", |transfer| matches!(transfer, Transfer::Sending { .. }))?
                    && let Some(sender) = self.transfers.get_mut(&transfer).and_then(Transfer::sender_mut)
                {
                    sender.on_window(chunks);
                }
            }
            Message::Offer(offer) => {
                let shape = shape_of(&offer)?;
                if self.expect(offer.transfer, "an offer", "asked for", |transfer| matches!(transfer, Transfer::Asked))? {
                    self.insert(offer.transfer, Transfer::Deciding(shape));
                    self.events.push_back(Event::Offered(offer));
                }
            }
            Message::Accept(accept) => self.handle_accept(accept)?,
            Message::Complete(complete) => {
                let transfer = complete.transfer;
                if self.expect(transfer, "a digest", "being received", |transfer| matches!(transfer, Transfer::Receiving(_)))?
                    && let Some(receiver) = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut)
                    && receiver.on_complete(complete.digest)
                {
                    if let Some(end) = complete.end {
                        receiver.on_end(end)?;
                    }
                    if complete.changing {
                        receiver.on_changing();
                    }
                    self.events.push_back(Event::Completed(complete));
                    self.poll_finished(transfer);
                }
            }
            Message::Holes(holes) => self.handle_holes(holes)?,
            Message::Values(values) => self.handle_values(values)?,
            Message::Keep(keep) => self.handle_keep(keep, now)?,
            Message::Committed(committed) => self.handle_committed(committed)?,
            Message::Fail(fail) => {
                if self.is_under_way(fail.transfer) {
                    self.end(fail.transfer);
                    self.events.push_back(Event::Failed(fail));
                }
            }
            Message::Interfaces(Interfaces { interfaces }) if self.role == Role::Client => {
                self.events.push_back(Event::PeerInterfaces(interfaces));
            }
            Message::Expect(Expect { mut connections }) if self.role == Role::Daemon => {
                connections.truncate(MAX_EXPECTED);
                self.events.push_back(Event::Expected(connections));
            }
            Message::Interfaces(_) => return Err(PathError::Unexpected("its interfaces to a daemon")),
            Message::Expect(_) => return Err(PathError::Unexpected("what a client tells")),
        }
        Ok(())
    }

    fn handle_committed(&mut self, committed: Committed) -> Result<(), PathError> {
        let Committed { transfer, digest } = committed;
        if !self.expect(transfer, "a commit", "being sent", |transfer| matches!(transfer, Transfer::Sending { .. }))? {
            return Ok(());
        }
        let Some(sender) = self.transfers.get_mut(&transfer).and_then(Transfer::sender_mut) else { return Ok(()) };
        // Of a source that changed, the receiver's digest stands: each of its chunks was read so.
        let sent = sender.digest().map(|sent| if sender.is_changing() { digest } else { sent });
        if sent == Some(digest) {
            // Acknowledgements may still be under way on other paths.
            sender.on_committed();
        }
        self.end(transfer);
        self.events.push_back(match sent {
            Some(sent) if sent == digest => Event::Committed { transfer, digest },
            Some(sent) => {
                let text = format!("peer says that digest {digest} is durable, but {sent} was sent");
                Event::Failed(failure(transfer, FailCode::Digest, text, false))
            }
            None => Event::Failed(failure(transfer, FailCode::Protocol, "peer says that a file is durable that was not sent yet", false)),
        });
        Ok(())
    }

    fn handle_accept(&mut self, accept: Accept) -> Result<(), PathError> {
        let Some(Transfer::Offered(shape)) = self.transfers.get(&accept.transfer) else {
            return self.expect(accept.transfer, "an acceptance", "offered", |_| false).map(|_| ());
        };
        let have: Vec<Subtree> = accept.have.into_iter().map(Into::into).collect();
        let mut sender = Sender::new(*shape, &have, accept.window);
        self.spare(accept.transfer, &mut sender, accept.delta, accept.window.is_some());
        let resumed_bytes = sender.resumed_bytes();
        self.insert(accept.transfer, Transfer::Sending { sender, read: false });
        self.events.push_back(Event::Accepted { transfer: accept.transfer, resumed_bytes });
        self.poll_read(accept.transfer);
        Ok(())
    }

    pub(super) fn handle_acks(&mut self, id: PathId, transfer: TransferId, ranges: &[ChunkRange], now: Instant) -> Result<(), PathError> {
        if !self.expect(transfer, "an acknowledgement", "being sent", |transfer| matches!(transfer, Transfer::Sending { .. }))? {
            return Ok(());
        }
        let Some(sender) = self.transfers.get_mut(&transfer).and_then(Transfer::sender_mut) else { return Ok(()) };
        for range in ranges {
            if let Some(chunk) = sender.never_sent(*range) {
                return Err(PathError::NeverSent { transfer: transfer.0, chunk: chunk.0 });
            }
            let acknowledged = sender.on_acknowledged(id, *range);
            for (path, bytes) in acknowledged.delivered {
                if let Some(path) = self.paths.get_mut(&path) {
                    path.rate.on_acknowledged(bytes, now);
                }
            }
            self.events.extend(acknowledged.released.into_iter().map(|chunk| Event::Released { transfer, chunk }));
            let superseded = acknowledged.superseded.into_iter();
            self.events.extend(superseded.map(|(path, chunk)| Event::Superseded { path, transfer, chunk }));
        }
        self.pause_idle_rates();
        self.poll_read(transfer);
        Ok(())
    }

    /// What follows a time with nothing in flight does not count as slow.
    fn pause_idle_rates(&mut self) {
        for (id, path) in &mut self.paths {
            let mut senders = self.transfers.values().filter_map(Transfer::sender);
            if senders.all(|sender| sender.in_flight_bytes(*id) == 0) {
                path.rate.pause();
            }
        }
    }

    pub(super) fn poll_chunk(&mut self, id: PathId, now: Instant) -> Option<Transmit> {
        if self.is_paced(id, now) {
            return None;
        }
        let has_work = self.transfers.values().filter_map(Transfer::sender).any(|sender| sender.queued_chunks() > 0);
        if let Some(path) = self.paths.get_mut(&id) {
            let starved = has_work && path.flow.is_out_of_credit();
            path.on_credit_checked(starved, now);
        }
        let path = self.paths.get(&id).filter(|path| path.state() == PathState::Open && self.may_carry_data(id, now))?;
        let (rate, flow, paths) = (path.rate.rate(), &path.flow, &self.paths);
        let senders = || self.transfers.values().filter_map(Transfer::sender);
        let chunk_bytes = senders().map(|sender| sender.grid().chunk_size.bytes()).max()?;
        if !flow.may_hand_out(rate, chunk_bytes) {
            return None;
        }
        let mut senders = self.transfers.iter_mut().filter_map(|(transfer, state)| Some((*transfer, state.sender_mut()?)));
        let open = paths.values().filter(|path| path.state() == PathState::Open).count() as u64;
        let first = senders.find_map(|(transfer, sender)| Some((transfer, sender.next_chunk(id, rate, open, now)?)));
        // Nothing is sent twice while another transfer has something to be sent once.
        let Some((transfer, chunk)) = first.or_else(|| {
            let mut senders = self.transfers.iter_mut().filter_map(|(transfer, state)| Some((*transfer, state.sender_mut()?)));
            senders.find_map(|(transfer, sender)| Some((transfer, sender.next_hedge(id, |id| Self::rate_of(paths, id), now)?)))
        }) else {
            let senders = self.transfers.values().filter_map(Transfer::sender);
            let late = senders.filter_map(|sender| sender.hedge_at(id, |id| Self::rate_of(paths, id))).min();
            self.hedge_at = self.hedge_at.into_iter().chain(late).min();
            return None;
        };
        self.paths.get_mut(&id)?.flow.on_handed_out(transfer, chunk);
        self.on_paced(id, chunk_bytes, now);
        Some(Transmit::Chunk { transfer, chunk })
    }

    pub(super) fn poll_syncs(&mut self, now: Instant) {
        let (bytes, interval) = (self.config.sync_bytes, self.config.sync_interval);
        for (id, transfer) in &mut self.transfers {
            if let Some(subtrees) = transfer.receiver_mut().and_then(|receiver| receiver.poll_sync(bytes, interval, now)) {
                self.events.push_back(Event::Sync { transfer: *id, subtrees });
            }
        }
    }

    /// Tells the driver once that everything was read.
    pub(super) fn poll_read(&mut self, id: TransferId) {
        if let Some(Transfer::Sending { sender, read: read @ false }) = self.transfers.get_mut(&id)
            && sender.is_read()
            && let Some(digest) = sender.digest()
        {
            *read = true;
            self.events.push_back(Event::SourceRead { transfer: id, digest });
        }
    }

    /// Tells the driver once that everything is written.
    pub(super) fn poll_finished(&mut self, id: TransferId) {
        let finished = self.transfers.get_mut(&id).and_then(Transfer::receiver_mut).and_then(Receiver::poll_finished);
        if let Some((received, sent)) = finished {
            self.events.push_back(if received == sent {
                Event::Commit { transfer: id, digest: sent }
            } else {
                Event::Mismatch { transfer: id, received, sent }
            });
        }
    }

    /// Whether a transfer has begun and not ended.
    pub fn is_under_way(&self, id: TransferId) -> bool {
        self.transfers.get(&id).is_some_and(|transfer| !matches!(transfer, Transfer::Ended(_)))
    }

    fn end(&mut self, id: TransferId) {
        self.offerings.remove(&id);
        let stats = self.stats(id);
        self.transfers.insert(id, Transfer::Ended(stats));
        self.paths.values_mut().for_each(|path| path.flow.on_transfer_ended(id));
        let ended = self.transfers.iter().filter(|(_, transfer)| matches!(transfer, Transfer::Ended(_))).map(|(id, _)| *id);
        let ended: Vec<TransferId> = ended.collect();
        for id in ended.iter().rev().skip(ENDED_KEPT) {
            self.transfers.remove(id);
        }
    }

    fn insert(&mut self, id: TransferId, transfer: Transfer) {
        self.last_transfer = self.last_transfer.max(Some(id));
        self.transfers.insert(id, transfer);
    }

    fn fresh(&mut self, id: TransferId, what: &'static str, transfer: Transfer) -> Result<(), PathError> {
        if self.last_transfer >= Some(id) {
            return Err(PathError::Transfer { what, transfer: id.0, expected: "new" });
        }
        if self.transfers.len() >= MAX_OPEN_TRANSFERS + ENDED_KEPT {
            return Err(PathError::TooManyTransfers);
        }
        self.insert(id, transfer);
        Ok(())
    }

    /// Whether a transfer is in the state that a message needs. One that has ended here is no fault of the peer, which could not know.
    pub(super) fn expect(
        &self,
        id: TransferId,
        what: &'static str,
        expected: &'static str,
        is: impl Fn(&Transfer) -> bool,
    ) -> Result<bool, PathError> {
        match self.transfers.get(&id) {
            Some(Transfer::Ended(_)) => Ok(false),
            None if self.last_transfer >= Some(id) => Ok(false),
            Some(transfer) if is(transfer) => Ok(true),
            _ => Err(PathError::Transfer { what, transfer: id.0, expected }),
        }
    }
}

/// Returns the shape of an offer, whose chunks must fit into a frame.
fn shape_of(offer: &Offer) -> Result<Shape, PathError> {
    let chunk_size = ChunkSize::from_log2(offer.chunk_log2).ok().filter(|size| size.bytes() <= crate::frame::MAX_PAYLOAD as u64);
    let chunk_size = chunk_size.ok_or(PathError::ChunkSize(offer.chunk_log2))?;
    match offer.kind.unwrap_or_default() {
        OfferKind::File if offer.source.size < MOST_SIZE => Ok(Shape::File(Grid::new(offer.source.size, chunk_size))),
        OfferKind::File => Err(PathError::FileSize(offer.source.size)),
        OfferKind::Pipe => Ok(Shape::Pipe(chunk_size)),
        OfferKind::Parcels => Ok(Shape::Parcels(chunk_size)),
    }
}

/// Returns the failure to tell a peer whose transfer cannot go on for a reason of ours.
pub fn failure(transfer: TransferId, code: FailCode, text: impl Into<String>, resumable: bool) -> Fail {
    let mut text: String = text.into();
    if text.len() > MAX_FAIL_TEXT {
        let end = (0..=MAX_FAIL_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    Fail { transfer, code, text, resumable }
}

/// Most transfers of a session that may be under way at once: far more than files that a copy keeps open (picked by eye).
pub const MAX_OPEN_TRANSFERS: usize = 1024;

/// Transfers that have ended and whose numbers can still be asked for by [`Session::stats`].
const ENDED_KEPT: usize = 64;

/// Most bytes of a failure's text.
const MAX_FAIL_TEXT: usize = 1024;
