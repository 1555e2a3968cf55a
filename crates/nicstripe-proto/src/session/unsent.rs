//! The part of a session that spares bytes: holes of a sparse file, and chunks that the receiver's file has already.

use std::time::Instant;

use super::{Event, PathError, Session, TransferId, transfers::Transfer};
use crate::{
    basis::ranges_of,
    extent::{ChunkId, ChunkRange, Extent},
    grid::Grid,
    hash_tree::{ChainingValue, Subtree},
    hole::{HOLES_PER_MESSAGE, HoleMap, Zeros},
    message::{Holes, Keep, Message, Values},
    sender::Sender,
};

/// What a sender knows of a source besides its offer.
#[derive(Debug, Clone, Default)]
pub struct Offering {
    /// Its holes; not empty if and only if [`crate::Offer::data`] is set.
    pub holes: HoleMap,
    /// Whether it may change while it is read.
    pub may_change: bool,
}

/// How a receiver takes a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Acceptance {
    /// Keep what arrives in memory, at most so many chunks that were not [taken](Session::taken). Then the others do not count.
    pub room: Option<u64>,
    /// Wait for the source's holes: [`crate::Offer::data`] was set.
    pub holes: bool,
    /// Compare so many chunks, from the first, with those of the file that is there.
    pub delta: Option<u64>,
    /// Of a tree: have its sender keep the memory for entries within so many bytes; see [`crate::message::Accept::memory`].
    pub memory: Option<u64>,
}

impl Session {
    /// Sender: says more of a source than its offer, before that is made.
    pub fn prepare(&mut self, transfer: TransferId, offering: Offering) {
        self.offerings.insert(transfer, offering);
    }

    /// Returns zeros to hash, of a transfer with this grid: then call [`Session::handle_zeros_hashed`].
    ///
    /// None while no path has a connection: a peer that is gone costs nothing.
    pub fn poll_zeros(&mut self) -> Option<(TransferId, Grid, Zeros)> {
        if !self.is_connected() {
            return None;
        }
        self.transfers.iter_mut().find_map(|(id, transfer)| match transfer {
            Transfer::Sending { sender, .. } => Some((*id, sender.grid(), sender.next_zeros()?)),
            Transfer::Receiving(receiver) => Some((*id, receiver.grid(), receiver.next_zeros()?)),
            _ => None,
        })
    }

    /// Zeros were hashed, by [`crate::hash_tree::zeros_subtree`].
    pub fn handle_zeros_hashed(&mut self, transfer: TransferId, subtree: Subtree, now: Instant) {
        match self.transfers.get_mut(&transfer) {
            Some(Transfer::Sending { sender, .. }) => {
                sender.on_zeros(subtree);
                self.poll_read(transfer);
            }
            Some(Transfer::Receiving(receiver)) => {
                receiver.on_zeros(subtree, now);
                self.poll_finished(transfer);
                self.poll_syncs(now);
            }
            _ => {}
        }
    }

    /// What [`Event::Holes`] asked for is done: the file has no storage there, or zeros.
    pub fn handle_holes_made(&mut self, transfer: TransferId) {
        if let Some(receiver) = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut) {
            receiver.on_holes_made();
        }
    }

    /// Returns a chunk of the file that is there, to be read, and copied to where the new file has it: then call [`Session::handle_compared`].
    ///
    /// None while no path has a connection.
    pub fn poll_compare(&mut self) -> Option<(TransferId, ChunkId)> {
        if !self.is_connected() {
            return None;
        }
        self.transfers.iter_mut().find_map(|(id, transfer)| Some((*id, transfer.receiver_mut()?.next_to_compare()?)))
    }

    /// A chunk that was polled by [`Session::poll_compare`] was read, or could not be.
    pub fn handle_compared(&mut self, transfer: TransferId, chunk: ChunkId, value: Option<ChainingValue>) {
        let Some(receiver) = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut) else { return };
        receiver.on_compared(chunk, value);
        while let Some(told) = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut).and_then(|half| half.poll_values()) {
            let ranges = ranges_of(told.iter().map(|(chunk, _)| *chunk));
            let values = told.iter().flat_map(|(_, value)| value.map_or(NO_VALUE, |value| value.0)).collect();
            self.send(&Message::Values(Values { transfer, ranges, values }));
        }
    }

    /// Tells what the receiver has to know before it gets anything, and leaves out what it need not get. One that keeps in memory what it
    /// gets, gets all.
    pub(super) fn spare(&mut self, transfer: TransferId, sender: &mut Sender, delta: Option<u64>, in_memory: bool) {
        let Offering { holes, may_change } = self.offerings.remove(&transfer).unwrap_or_default();
        if may_change {
            sender.allow_changing();
        }
        if in_memory {
            return;
        }
        sender.leave_out_holes(&holes.chunks(sender.grid()));
        sender.compare_first(delta.unwrap_or(0));
        let mut messages = holes.extents().chunks(HOLES_PER_MESSAGE).peekable();
        while let Some(extents) = messages.next() {
            let extents = extents.iter().map(|extent| (extent.offset, extent.len)).collect();
            self.send(&Message::Holes(Holes { transfer, extents, last: messages.peek().is_none() }));
        }
    }

    pub(super) fn handle_holes(&mut self, holes: Holes) -> Result<(), PathError> {
        let Holes { transfer, extents, last } = holes;
        if self.expect(transfer, "holes", "being received", |transfer| matches!(transfer, Transfer::Receiving(_)))?
            && let Some(receiver) = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut)
        {
            let extents = extents.into_iter().map(|(offset, len)| Extent { offset, len });
            if let Some(holes) = receiver.on_holes(extents, last)? {
                self.events.push_back(Event::Holes { transfer, holes });
            }
        }
        Ok(())
    }

    pub(super) fn handle_values(&mut self, values: Values) -> Result<(), PathError> {
        let Values { transfer, ranges, values } = values;
        if !self.expect(transfer, "values", "being sent", |transfer| matches!(transfer, Transfer::Sending { .. }))? {
            return Ok(());
        }
        let Some(sender) = self.transfers.get_mut(&transfer).and_then(Transfer::sender_mut) else { return Ok(()) };
        let (values, rest) = values.as_chunks::<32>();
        let mut values = values.iter();
        for range in ranges {
            // At most as many as the message has values: a range without end costs nothing.
            for chunk in range_of(range).chunks() {
                let refused = PathError::Compared { what: "a value", chunk: chunk.0 };
                let value = values.next().ok_or_else(|| refused.clone())?;
                if !sender.on_value(chunk, ChainingValue(*value)) {
                    return Err(refused);
                }
            }
        }
        if values.next().is_some() || !rest.is_empty() {
            return Err(PathError::Message("values without chunks".into()));
        }
        Ok(())
    }

    pub(super) fn handle_keep(&mut self, keep: Keep, now: Instant) -> Result<(), PathError> {
        let Keep { transfer, ranges } = keep;
        if !self.expect(transfer, "chunks to keep", "being received", |transfer| matches!(transfer, Transfer::Receiving(_)))? {
            return Ok(());
        }
        let Some(receiver) = self.transfers.get_mut(&transfer).and_then(Transfer::receiver_mut) else { return Ok(()) };
        for range in ranges {
            // Ends at the first chunk without a value, of which there are 4096 at most.
            for chunk in range_of(range).chunks() {
                if !receiver.on_kept(chunk, now) {
                    return Err(PathError::Compared { what: "to keep", chunk: chunk.0 });
                }
            }
        }
        self.poll_finished(transfer);
        self.poll_syncs(now);
        Ok(())
    }

    /// Tells the receiver what it is to keep, if it is time.
    pub(super) fn poll_kept(&mut self, transfer: TransferId) {
        while let Some(kept) = self.transfers.get_mut(&transfer).and_then(Transfer::sender_mut).and_then(Sender::poll_kept) {
            let ranges = kept.into_iter().map(|range| (range.first.0, range.count)).collect();
            self.send(&Message::Keep(Keep { transfer, ranges }));
        }
    }
}

/// What stands for the value of a chunk that could not be read; no chunk has it.
const NO_VALUE: [u8; 32] = [0; 32];

fn range_of((first, count): (u64, u64)) -> ChunkRange {
    ChunkRange::new(ChunkId(first), count)
}
