//! Calls with which a session's driver starts, accepts, feeds and ends transfers, and the events at
//! their ends.

use super::{
    error::PathError,
    event::Event,
    state::Session,
    transfers::{Acceptance, Offering, Transfer},
};
use crate::{
    file::{
        extent::ChunkId,
        grid::{ChunkSize, Grid, MOST_SIZE, Shape},
        hash_tree::{ChainingValue, Subtree},
    },
    id::TransferId,
    transfer::{receiver::Receiver, stats::TransferStats},
    wire::{
        frame::MAX_PAYLOAD,
        message::{
            Accept, Committed, Complete, Exec, Fail, Get, GetTree, MAX_HAVE, Message, Offer,
            OfferKind, OpenTunnels, Put, PutTree, StreamReport, TreeBody, Window,
        },
    },
};

impl Session {
    /// Offers a file to the daemon for upload; client only.
    ///
    /// # Errors
    ///
    /// Returns [`PathError`] if the protocol does not support the file size or the chunk size.
    pub fn put(&mut self, put: Put) -> Result<(), PathError> {
        let shape = shape_of(&put.offer)?;
        self.transfers
            .insert(put.offer.transfer, Transfer::Offered(shape));
        if let Some(entry) = put.entry {
            self.transfers
                .round_robin
                .belongs(put.offer.transfer, entry.tree);
        }
        self.send(&Message::Put(put));
        Ok(())
    }

    /// Requests the download of a file from the daemon; client only.
    pub fn get(&mut self, get: Get) {
        self.transfers.insert(
            get.transfer,
            Transfer::Asked {
                may_change: get.allow_changing,
            },
        );
        self.send(&Message::Get(get));
    }

    /// Offers a directory tree to the daemon for upload; client only. Send the tree's batches with
    /// [`give`](Self::give).
    pub fn put_tree(&mut self, put: PutTree) {
        self.transfers.insert(
            put.transfer,
            Transfer::Offered(Shape::Batches(ChunkSize::DEFAULT)),
        );
        self.send(&Message::PutTree(put));
    }

    /// Requests the download of directory trees from the daemon; client only.
    pub fn get_tree(&mut self, get: GetTree) {
        self.transfers
            .insert(get.transfer, Transfer::Asked { may_change: false });
        self.send(&Message::GetTree(get));
    }

    /// Requests the tunnel multiplexer from the daemon; client only. Send the multiplexer's batches
    /// with [`give`](Self::give).
    pub fn open_tunnels(&mut self, mux: OpenTunnels) {
        self.transfers.insert(
            mux.up,
            Transfer::Offered(Shape::Batches(ChunkSize::DEFAULT)),
        );
        self.transfers
            .insert(mux.down, Transfer::Asked { may_change: false });
        self.send(&Message::OpenTunnels(mux));
    }

    /// Requests to run a command; client only. Send its input with [`give`](Self::give).
    pub fn exec(&mut self, exec: Exec) {
        let shape = Shape::Batches(ChunkSize::DEFAULT);
        let states = [
            Transfer::Offered(shape),
            Transfer::Asked { may_change: false },
            Transfer::Asked { may_change: false },
            Transfer::Asked { may_change: false },
        ];
        for (transfer, state) in exec.streams().into_iter().flatten().zip(states) {
            self.transfers.insert(transfer, state);
        }
        self.send(&Message::Exec(exec));
    }

    /// Sends a message from the receiver of a tree to its sender. Has no effect after the
    /// transfer's end.
    pub fn send_tree(&mut self, body: TreeBody) {
        if self.is_under_way(body.transfer) {
            self.send(&Message::Tree(body));
        }
    }

    /// Queues the next chunk of a stream, with its length `len` in bytes and its chaining value.
    /// Returns the chunk's index; `None` if the transfer cannot take the chunk. Ends the stream if
    /// `last` is set.
    ///
    /// The source must keep the chunk for retransmission until [`Event::Released`].
    pub fn give(
        &mut self,
        transfer: TransferId,
        len: u32,
        value: ChainingValue,
        last: bool,
    ) -> Option<ChunkId> {
        let chunk = self.transfers.sender_mut(transfer)?.give(len, value, last);
        self.poll_read(transfer);
        chunk
    }

    /// Marks the end of a stream at its sender, without another chunk.
    pub fn close_source(&mut self, transfer: TransferId) {
        if let Some(sender) = self.transfers.sender_mut(transfer) {
            sender.close();
            self.poll_read(transfer);
        }
    }

    /// Records that the receiver's sink has consumed `chunks` more chunks. This extends the
    /// sender's window.
    pub fn taken(&mut self, transfer: TransferId, chunks: u64) {
        let granted = self
            .transfers
            .receiver_mut(transfer)
            .and_then(|receiver| receiver.on_taken(chunks));
        if let Some(chunks) = granted {
            self.send(&Message::Window(Window { transfer, chunks }));
        }
    }

    /// Offers a file or tree to the receiver, in response to [`Event::Requested`].
    ///
    /// # Errors
    ///
    /// Returns [`PathError`] if the protocol does not support the file size or the chunk size.
    pub fn offer(&mut self, offer: Offer) -> Result<(), PathError> {
        let shape = shape_of(&offer)?;
        if matches!(
            self.transfers.get(offer.transfer),
            Some(Transfer::Requested)
        ) {
            self.transfers
                .insert(offer.transfer, Transfer::Offered(shape));
            self.send(&Message::Offer(offer));
        }
        Ok(())
    }

    /// Sets properties of a source at the sender. Must be called before the offer.
    pub fn prepare(&mut self, transfer: TransferId, offering: Offering) {
        self.transfers.offerings.insert(transfer, offering);
    }

    /// Accepts a file at the receiver, in response to [`Event::Requested`] or
    /// [`Event::Offered`]. `have` is the list of subtrees that the receiver already has.
    ///
    /// Joins sibling subtrees and keeps the `MAX_HAVE` largest ones. The sender retransmits the
    /// others.
    pub fn accept(&mut self, transfer: TransferId, have: Vec<Subtree>, how: Acceptance) {
        let room = how.room;
        let Some(&Transfer::Deciding { shape, may_change }) = self.transfers.get(transfer) else {
            return;
        };
        let mut receiver = Receiver::new(shape, &have, room);
        let mut have: Vec<Subtree> = receiver.tree.subtrees().collect();
        if have.len() > MAX_HAVE {
            have.sort_by_key(|subtree| std::cmp::Reverse(subtree.level));
            have.truncate(MAX_HAVE);
            receiver = Receiver::new(shape, &have, room);
        }
        receiver.may_change = may_change;
        let delta = how.delta.filter(|_| room.is_none());
        if how.holes && room.is_none() {
            receiver.announce_holes();
        }
        receiver.compare_first(delta.unwrap_or(0));
        self.transfers
            .insert(transfer, Transfer::Receiving(receiver));
        // Sends the subtrees that the receiver kept. A chunk that only the sender counts as present
        // would never arrive.
        self.send(&Message::Accept(Accept {
            transfer,
            have,
            window: room,
            delta,
            memory: how.memory,
        }));
        self.poll_finished(transfer);
    }

    /// Confirms at the sender that the source did not change, in response to [`Event::SourceRead`].
    /// Sends the source's digest to the receiver.
    pub fn complete(&mut self, transfer: TransferId, streams: Vec<StreamReport>) {
        if let Some(sender) = self.transfers.sender(transfer)
            && let Some(digest) = sender.digest()
        {
            let complete = Complete {
                transfer,
                digest,
                streams,
                end: sender.end(),
                changing: sender.is_changing,
            };
            self.send(&Message::Complete(complete));
        }
    }

    /// Reports at the receiver that the file is durable under its final name, in response to
    /// [`Event::Commit`]. Has no effect after the transfer's end.
    pub fn committed(&mut self, committed: Committed) {
        if self.transfers.receiver_mut(committed.transfer).is_some() {
            self.end(committed.transfer);
            self.send(&Message::Committed(committed));
        }
    }

    /// Fails a transfer at either end, and sends the reason to the peer. Has no effect after the
    /// transfer's end.
    pub fn fail(&mut self, fail: Fail) {
        if self.is_under_way(fail.transfer) {
            self.end(fail.transfer);
            self.send(&Message::Fail(fail));
        }
    }

    /// Returns the progress of a transfer. All numbers are zero if the transfer is unknown.
    pub fn stats(&self, transfer: TransferId) -> TransferStats {
        self.transfers
            .get(transfer)
            .map(Transfer::stats)
            .unwrap_or_default()
    }

    /// Emits [`Event::SourceRead`] once, after the sender has read the whole source.
    pub(super) fn poll_read(&mut self, id: TransferId) {
        if let Some(Transfer::Sending {
            sender,
            read: read @ false,
        }) = self.transfers.get_mut(id)
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

    /// Emits [`Event::Commit`] or [`Event::Mismatch`] once, after all chunks are written.
    pub(super) fn poll_finished(&mut self, id: TransferId) {
        let finished = self
            .transfers
            .receiver_mut(id)
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

    /// Returns true if a transfer has begun and has not ended.
    pub fn is_under_way(&self, id: TransferId) -> bool {
        let transfer = self.transfers.get(id);
        transfer.is_some_and(|transfer| !transfer.has_ended())
    }

    /// Returns true if any transfer has begun and has not ended.
    pub fn is_busy(&self) -> bool {
        let mut transfers = self.transfers.transfers.values();
        !transfers.all(Transfer::has_ended)
    }

    pub(super) fn end(&mut self, id: TransferId) {
        self.transfers.end(id);
        for (_, path) in self.paths.iter_mut() {
            path.flow.on_transfer_ended(id);
        }
    }
}

/// Returns the shape of an offered transfer.
///
/// # Errors
///
/// Returns [`PathError`] if the file is too large or its chunks do not fit into a data frame.
pub(super) fn shape_of(offer: &Offer) -> Result<Shape, PathError> {
    let chunk_size = ChunkSize::from_log2(offer.chunk_log2)
        .ok()
        .filter(|size| size.bytes() <= MAX_PAYLOAD as u64);
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
