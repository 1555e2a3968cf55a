//! Transfers of a session: their states, requests of the driver, and completion.

use std::collections::BTreeMap;

use super::{Acceptance, Event, PathError, Session, TransferId};
use crate::{
    extent::ChunkId,
    grid::{ChunkSize, Grid, MOST_SIZE, Shape},
    hash_tree::{ChainingValue, Subtree},
    message::{
        Accept, Committed, Complete, Expect, Expected, Fail, FailCode, Get, GetTree, Interfaces,
        MAX_EXPECTED, MAX_HAVE, Message, Offer, OfferKind, OpenTunnels, PeerInterface, Put,
        PutTree, StreamReport, TreeBody, Window,
    },
    path::PathId,
    receiver::Receiver,
    sender::Sender,
};

/// State of a transfer at this end.
#[derive(Debug)]
pub(super) enum Transfer {
    /// Receiver of a download: the request was sent. To: `Deciding`.
    Asked {
        /// True if the receiver's digest may replace the sender's, as in `Deciding`.
        may_change: bool,
    },
    /// Sender of a download: requested by the peer, while the driver opens the source. To:
    /// `Offered`, `Ended`.
    Requested,
    /// Receiver: offered by the sender, while the driver opens the target. To: `Receiving`,
    /// `Ended`.
    Deciding {
        shape: Shape,
        /// True if the receiver's digest may replace the sender's: the user allows a changing
        /// source, or is at the sender.
        may_change: bool,
    },
    /// Sender: the offer was sent. To: `Sending`, `Ended`.
    Offered(Shape),
    /// Sender: the receiver has accepted the offer. To: `Ended`.
    Sending {
        sender: Sender,
        /// True once [`Event::SourceRead`] was emitted.
        read: bool,
    },
    /// Receiver: the driver has accepted the offer. To: `Ended`.
    Receiving(Receiver),
    /// Either end: the transfer was committed or has failed.
    Ended {
        stats: TransferStats,
        /// Subtrees that were written and are not durable. The driver takes them to resume later.
        unsynced: Vec<Subtree>,
    },
}

impl Transfer {
    pub(super) fn receiver_mut(&mut self) -> Option<&mut Receiver> {
        match self {
            Self::Receiving(receiver) => Some(receiver),
            _ => None,
        }
    }

    /// Returns the progress of the transfer as known at this end.
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
            Self::Ended { stats, .. } => stats.clone(),
            _ => TransferStats::default(),
        }
    }

    pub(super) fn sender(&self) -> Option<&Sender> {
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

    pub(super) fn receiver(&self) -> Option<&Receiver> {
        match self {
            Self::Receiving(receiver) => Some(receiver),
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
}

/// Progress of a transfer, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferStats {
    /// Total size in bytes, 0 while unknown.
    pub size: u64,
    /// Number of bytes that were durable at the receiver before this session.
    pub resumed_bytes: u64,
    /// Number of bytes that arrived, each counted once.
    pub delivered_bytes: u64,
    /// Number of bytes retransmitted by the sender, or received in duplicate chunks.
    pub repeated_bytes: u64,
    /// Number of bytes that need not be sent: holes, and chunks equal to those in the receiver's
    /// file.
    pub unsent_bytes: u64,
    /// Number of delivered bytes by path.
    pub by_path: BTreeMap<PathId, u64>,
}

impl TransferStats {
    /// Adds the numbers of another transfer.
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

/// Returns the total size of a transfer in bytes, 0 while unknown.
fn size_of(grid: Grid) -> u64 {
    if grid.is_open() { 0 } else { grid.size }
}

impl Session {
    /// Offers a file to the daemon for upload; client only.
    ///
    /// # Errors
    ///
    /// [`PathError`] if the protocol does not support the file or chunk size.
    pub fn put(&mut self, put: Put) -> Result<(), PathError> {
        let shape = shape_of(&put.offer)?;
        self.insert(put.offer.transfer, Transfer::Offered(shape));
        put.entry
            .into_iter()
            .for_each(|entry| self.turns.belongs(put.offer.transfer, entry.tree));
        self.send(&Message::Put(put));
        Ok(())
    }

    /// Requests the download of a file from the daemon; client only.
    pub fn get(&mut self, get: Get) {
        self.insert(
            get.transfer,
            Transfer::Asked {
                may_change: get.allow_changing,
            },
        );
        self.send(&Message::Get(get));
    }

    /// Offers a directory tree to the daemon for upload; client only. [`give`](Self::give) sends
    /// its batches.
    pub fn put_tree(&mut self, put: PutTree) {
        self.insert(
            put.transfer,
            Transfer::Offered(Shape::Batches(ChunkSize::DEFAULT)),
        );
        self.send(&Message::PutTree(put));
    }

    /// Requests the download of directory trees from the daemon; client only.
    pub fn get_tree(&mut self, get: GetTree) {
        self.insert(get.transfer, Transfer::Asked { may_change: false });
        self.send(&Message::GetTree(get));
    }

    /// Requests the tunnel multiplexer from the daemon; client only. [`give`](Self::give) sends its
    /// batches.
    pub fn open_tunnels(&mut self, mux: OpenTunnels) {
        self.insert(
            mux.up,
            Transfer::Offered(Shape::Batches(ChunkSize::DEFAULT)),
        );
        self.insert(mux.down, Transfer::Asked { may_change: false });
        self.send(&Message::OpenTunnels(mux));
    }

    /// Sends a message from the receiver of a tree to its sender. No effect after the transfer's
    /// end.
    pub fn send_tree(&mut self, body: TreeBody) {
        if self.is_under_way(body.transfer) {
            self.send(&Message::Tree(body));
        }
    }

    /// Queues the next chunk of a stream to be sent, of `len` bytes and this chaining value.
    /// Returns its index. `last` also ends the stream.
    ///
    /// The source keeps the chunk for retransmission until [`Event::Released`].
    pub fn give(
        &mut self,
        transfer: TransferId,
        len: u32,
        value: ChainingValue,
        last: bool,
    ) -> Option<ChunkId> {
        let chunk = self
            .transfers
            .get_mut(&transfer)
            .and_then(Transfer::sender_mut)?
            .give(len, value, last);
        self.poll_read(transfer);
        chunk
    }

    /// Marks the end of a stream at its sender, without another chunk.
    pub fn close_source(&mut self, transfer: TransferId) {
        if let Some(sender) = self
            .transfers
            .get_mut(&transfer)
            .and_then(Transfer::sender_mut)
        {
            sender.close();
            self.poll_read(transfer);
        }
    }

    /// Records that the receiver's sink has consumed `chunks` more chunks, which extends the
    /// sender's window.
    pub fn taken(&mut self, transfer: TransferId, chunks: u64) {
        let granted = self
            .transfers
            .get_mut(&transfer)
            .and_then(Transfer::receiver_mut)
            .and_then(|receiver| receiver.on_taken(chunks));
        if let Some(chunks) = granted {
            self.send(&Message::Window(Window { transfer, chunks }));
        }
    }

    /// Offers a file or tree to the receiver, in answer to [`Event::GetRequested`] or
    /// [`Event::TreeRequested`].
    ///
    /// # Errors
    ///
    /// [`PathError`] if the protocol does not support the file or chunk size.
    pub fn offer(&mut self, offer: Offer) -> Result<(), PathError> {
        let shape = shape_of(&offer)?;
        if matches!(
            self.transfers.get(&offer.transfer),
            Some(Transfer::Requested)
        ) {
            self.insert(offer.transfer, Transfer::Offered(shape));
            self.send(&Message::Offer(offer));
        }
        Ok(())
    }

    /// Accepts a file as its receiver, in answer to [`Event::PutRequested`] or [`Event::Offered`].
    /// The receiver already has the subtrees `have`.
    ///
    /// Joins sibling subtrees and keeps the [`MAX_HAVE`] largest; the others are sent again. `room`
    /// limits the chunks in memory that the sink has not [consumed](Self::taken).
    pub fn accept(&mut self, transfer: TransferId, have: Vec<Subtree>, room: Option<u64>) {
        self.accept_with(
            transfer,
            have,
            Acceptance {
                room,
                ..Acceptance::default()
            },
        );
    }

    /// Accepts a file as [`accept`](Self::accept) does, with options for holes and for an existing
    /// target.
    pub fn accept_with(&mut self, transfer: TransferId, have: Vec<Subtree>, how: Acceptance) {
        let room = how.room;
        let Some(&Transfer::Deciding { shape, may_change }) = self.transfers.get(&transfer) else {
            return;
        };
        let mut receiver = Receiver::new(shape, &have, room);
        let mut have: Vec<Subtree> = receiver.subtrees().collect();
        if have.len() > MAX_HAVE {
            have.sort_by_key(|subtree| std::cmp::Reverse(subtree.level));
            have.truncate(MAX_HAVE);
            receiver = Receiver::new(shape, &have, room);
        }
        receiver.allow_changing(may_change);
        let delta = how.delta.filter(|_| room.is_none());
        if how.holes && room.is_none() {
            receiver.announce_holes();
        }
        receiver.compare_first(delta.unwrap_or(0));
        self.insert(transfer, Transfer::Receiving(receiver));
        // Sends the subtrees that the receiver kept: a chunk that only one end counts as present
        // would never arrive.
        self.send(&Message::Accept(Accept {
            transfer,
            have: have.iter().map(Into::into).collect(),
            window: room,
            delta,
            memory: how.memory,
        }));
        self.poll_finished(transfer);
    }

    /// Confirms as the sender that the source did not change, in answer to [`Event::SourceRead`],
    /// and sends its digest.
    pub fn complete(&mut self, transfer: TransferId, streams: Vec<StreamReport>) {
        if let Some(Transfer::Sending { sender, .. }) = self.transfers.get(&transfer)
            && let Some(digest) = sender.digest()
        {
            let changing = sender.is_changing();
            let end = sender.end();
            self.send(&Message::Complete(Complete {
                transfer,
                digest,
                streams,
                end,
                changing,
            }));
        }
    }

    /// Reports as the receiver that the file is durable under its name, in answer to
    /// [`Event::Commit`]. No effect after the transfer's end.
    pub fn committed(&mut self, committed: Committed) {
        if matches!(
            self.transfers.get(&committed.transfer),
            Some(Transfer::Receiving(_))
        ) {
            self.end(committed.transfer);
            self.send(&Message::Committed(committed));
        }
    }

    /// Fails a transfer at either end, and tells the peer the reason. No effect after the
    /// transfer's end.
    pub fn fail(&mut self, fail: Fail) {
        if self.is_under_way(fail.transfer) {
            self.end(fail.transfer);
            self.send(&Message::Fail(fail));
        }
    }

    /// Sends the list of the daemon's current interfaces to the client; daemon only.
    pub fn send_interfaces(&mut self, interfaces: Vec<PeerInterface>) {
        self.send(&Message::Interfaces(Interfaces { interfaces }));
    }

    /// Announces connections that the client is about to make, at most [`MAX_EXPECTED`]; client
    /// only.
    pub fn expect_connections(&mut self, mut connections: Vec<Expected>) {
        connections.truncate(MAX_EXPECTED);
        self.send(&Message::Expect(Expect { connections }));
    }

    /// Returns the progress of a transfer; all numbers are zero if it is unknown.
    pub fn stats(&self, transfer: TransferId) -> TransferStats {
        self.transfers
            .get(&transfer)
            .map(Transfer::stats)
            .unwrap_or_default()
    }

    /// Returns the sending half of a transfer, or `None` unless it is accepted and has not ended.
    pub fn sender(&self, transfer: TransferId) -> Option<&Sender> {
        self.transfers.get(&transfer)?.sender()
    }

    /// Returns the receiving half of a transfer, or `None` unless it is accepted and has not ended.
    pub fn receiver(&self, transfer: TransferId) -> Option<&Receiver> {
        match self.transfers.get(&transfer) {
            Some(Transfer::Receiving(receiver)) => Some(receiver),
            _ => None,
        }
    }

    /// Returns true if the peer has acknowledged every control message of this end.
    pub fn is_settled(&self) -> bool {
        self.reliable.is_settled()
    }

    /// Emits [`Event::SourceRead`] once, after the whole source was read.
    pub(super) fn poll_read(&mut self, id: TransferId) {
        if let Some(Transfer::Sending {
            sender,
            read: read @ false,
        }) = self.transfers.get_mut(&id)
            && sender.is_read()
            && let Some(digest) = sender.digest()
        {
            *read = true;
            self.events.push_back(Event::SourceRead {
                transfer: id,
                digest,
            });
        }
    }

    /// Emits [`Event::Commit`] or [`Event::Mismatch`] once, after all chunks were written.
    pub(super) fn poll_finished(&mut self, id: TransferId) {
        let finished = self
            .transfers
            .get_mut(&id)
            .and_then(Transfer::receiver_mut)
            .and_then(Receiver::poll_finished);
        if let Some((received, sent)) = finished {
            self.events.push_back(if received == sent {
                Event::Commit {
                    transfer: id,
                    digest: sent,
                }
            } else {
                Event::Mismatch {
                    transfer: id,
                    received,
                    sent,
                }
            });
        }
    }

    /// Returns true if a transfer has begun and not ended.
    pub fn is_under_way(&self, id: TransferId) -> bool {
        self.transfers
            .get(&id)
            .is_some_and(|transfer| !matches!(transfer, Transfer::Ended { .. }))
    }

    pub(super) fn end(&mut self, id: TransferId) {
        self.offerings.remove(&id);
        self.turns.forget(id);
        let stats = self.stats(id);
        let unsynced = self
            .transfers
            .get_mut(&id)
            .and_then(Transfer::receiver_mut)
            .map(Receiver::take_fresh)
            .unwrap_or_default();
        self.transfers
            .insert(id, Transfer::Ended { stats, unsynced });
        self.paths
            .values_mut()
            .for_each(|path| path.flow.on_transfer_ended(id));
        let ended = self
            .transfers
            .iter()
            .filter(|(_, transfer)| matches!(transfer, Transfer::Ended { .. }))
            .map(|(id, _)| *id);
        let ended: Vec<TransferId> = ended.collect();
        for id in ended.iter().rev().skip(ENDED_KEPT) {
            self.transfers.remove(id);
        }
    }

    pub(super) fn insert(&mut self, id: TransferId, transfer: Transfer) {
        self.last_transfer = self.last_transfer.max(Some(id));
        self.transfers.insert(id, transfer);
    }
}

/// Returns the shape of an offered transfer.
///
/// # Errors
///
/// [`PathError`] if the file is too large, or if its chunks do not fit into a data frame.
pub(super) fn shape_of(offer: &Offer) -> Result<Shape, PathError> {
    let chunk_size = ChunkSize::from_log2(offer.chunk_log2)
        .ok()
        .filter(|size| size.bytes() <= crate::frame::MAX_PAYLOAD as u64);
    let chunk_size = chunk_size.ok_or(PathError::ChunkSize(offer.chunk_log2))?;
    match offer.kind.unwrap_or_default() {
        OfferKind::File if offer.source.size < MOST_SIZE => {
            Ok(Shape::File(Grid::new(offer.source.size, chunk_size)))
        }
        OfferKind::File => Err(PathError::FileSize(offer.source.size)),
        OfferKind::Pipe => Ok(Shape::Pipe(chunk_size)),
        OfferKind::Batches => Ok(Shape::Batches(chunk_size)),
    }
}

/// Returns the message that tells the peer of a local failure; truncates the text.
pub fn failure(
    transfer: TransferId,
    code: FailCode,
    text: impl Into<String>,
    resumable: bool,
) -> Fail {
    let mut text: String = text.into();
    cut(&mut text);
    Fail {
        transfer,
        code,
        text,
        resumable,
    }
}

pub(super) fn cut(text: &mut String) {
    if text.len() > MAX_FAIL_TEXT {
        let end = (0..=MAX_FAIL_TEXT)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
}

/// Maximum number of concurrent transfers in a session: far above the number of files that a copy
/// has open (picked by eye).
pub const MAX_OPEN_TRANSFERS: usize = 1024;

/// Number of ended transfers whose statistics [`Session::stats`] still returns.
pub(super) const ENDED_KEPT: usize = 64;

/// Maximum length of a failure's text in bytes.
const MAX_FAIL_TEXT: usize = 1024;
