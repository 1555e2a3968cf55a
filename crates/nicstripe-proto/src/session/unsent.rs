//! Data that need not be sent: holes of a sparse file, and chunks that are equal in the receiver's
//! existing file (`--delta`).

use std::time::Instant;

use super::{
    error::PathError,
    event::Event,
    state::Session,
    transfers::{Offering, Transfer},
};
use crate::{
    file::{
        extent::{ChunkId, ChunkSet},
        grid::Grid,
        hash_tree::{ChainingValue, Subtree},
        hole::{HOLES_PER_MESSAGE, Zeros},
    },
    id::TransferId,
    transfer::sender::Sender,
    wire::message::{Holes, Keep, Message, Values},
};

impl Session {
    /// Returns a subtree of zeros to hash, with its transfer and grid; `None` without one. Call
    /// [`Session::handle_zeros_hashed`] afterwards.
    ///
    /// Also returns `None` while no path is connected.
    pub fn poll_zeros(&mut self) -> Option<(TransferId, Grid, Zeros)> {
        if !self.is_connected() {
            return None;
        }
        self.transfers
            .iter_mut()
            .find_map(|(id, transfer)| match transfer {
                Transfer::Sending { sender, .. } => Some((id, sender.grid, sender.next_zeros()?)),
                Transfer::Receiving(receiver) => Some((id, receiver.grid, receiver.next_zeros()?)),
                _ => None,
            })
    }

    /// Records the hash of a subtree of zeros, from [`crate::hash_tree::zeros_subtree`].
    pub fn handle_zeros_hashed(&mut self, transfer: TransferId, subtree: Subtree, now: Instant) {
        match self.transfers.get_mut(transfer) {
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

    /// Records that the holes of [`Event::Holes`] have been punched or filled with zeros.
    pub fn handle_holes_made(&mut self, transfer: TransferId) {
        if let Some(receiver) = self.transfers.receiver_mut(transfer) {
            receiver.on_holes_made();
        }
    }

    /// Returns a chunk of the existing file to read, hash and copy to the new file; `None` without
    /// one. Call [`Session::handle_compared`] afterwards.
    ///
    /// Also returns `None` while no path is connected.
    pub fn poll_compare(&mut self) -> Option<(TransferId, ChunkId)> {
        if !self.is_connected() {
            return None;
        }
        self.transfers
            .receivers_mut()
            .find_map(|(id, receiver)| Some((id, receiver.next_to_compare()?)))
    }

    /// Records the chaining value of a chunk from [`Session::poll_compare`]. `None` means that the
    /// chunk could not be read.
    pub fn handle_compared(
        &mut self,
        transfer: TransferId,
        chunk: ChunkId,
        value: Option<ChainingValue>,
    ) {
        let Some(receiver) = self.transfers.receiver_mut(transfer) else {
            return;
        };
        receiver.basis.on_read(chunk, value);
        while let Some(announced) = self
            .transfers
            .receiver_mut(transfer)
            .and_then(|receiver| receiver.basis.poll_values())
        {
            let chunks: ChunkSet = announced.iter().map(|(chunk, _)| *chunk).collect();
            let ranges = chunks.ranges().collect();
            let values = announced
                .iter()
                .flat_map(|(_, value)| value.map_or(NO_VALUE, |value| value.0))
                .collect();
            self.send(&Message::Values(Values {
                transfer,
                ranges,
                values,
            }));
        }
    }

    /// Sends the list of the source's holes to the receiver. Excludes from the transfer the holes
    /// and, until they are compared, the chunks that may be equal in the receiver's file. Excludes
    /// nothing for a receiver that buffers in memory.
    pub(super) fn spare(
        &mut self,
        transfer: TransferId,
        sender: &mut Sender,
        delta: Option<u64>,
        in_memory: bool,
    ) {
        let Offering { holes, may_change } = self
            .transfers
            .offerings
            .remove(&transfer)
            .unwrap_or_default();
        if may_change {
            sender.allow_changing();
        }
        if in_memory {
            return;
        }
        sender.leave_out_holes(&holes.chunks(sender.grid));
        sender.compare_first(delta.unwrap_or(0));
        let mut messages = holes.extents().chunks(HOLES_PER_MESSAGE).peekable();
        while let Some(extents) = messages.next() {
            self.send(&Message::Holes(Holes {
                transfer,
                extents: extents.to_vec(),
                last: messages.peek().is_none(),
            }));
        }
    }

    pub(super) fn handle_holes(&mut self, holes: Holes) -> Result<(), PathError> {
        let Holes {
            transfer,
            extents,
            last,
        } = holes;
        if let Some(receiver) = self.transfers.expect_receiver(transfer, "holes")?
            && let Some(holes) = receiver.on_holes(extents, last)?
        {
            self.events.push_back(Event::Holes { transfer, holes });
        }
        Ok(())
    }

    pub(super) fn handle_values(&mut self, values: Values) -> Result<(), PathError> {
        let Values {
            transfer,
            ranges,
            values,
        } = values;
        let Some(sender) = self.transfers.expect_sender(transfer, "values")? else {
            return Ok(());
        };
        let (values, rest) = values.as_chunks::<32>();
        let mut values = values.iter();
        for range in ranges {
            // The number of values in the message bounds the loop, so an endless range costs
            // nothing.
            for chunk in range.chunks() {
                let refused = PathError::Compared {
                    what: "a value",
                    chunk: chunk.0,
                };
                let value = values.next().ok_or_else(|| refused.clone())?;
                if !sender.comparison.on_value(chunk, ChainingValue(*value)) {
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
        let Some(receiver) = self.transfers.expect_receiver(transfer, "chunks to keep")? else {
            return Ok(());
        };
        for range in ranges {
            // Stops at the first chunk without a value. At most 4096 chunks have a value.
            for chunk in range.chunks() {
                if !receiver.on_kept(chunk, now) {
                    return Err(PathError::Compared {
                        what: "to keep",
                        chunk: chunk.0,
                    });
                }
            }
        }
        self.poll_finished(transfer);
        self.poll_syncs(now);
        Ok(())
    }

    /// Sends the receiver the list of equal chunks to keep, if a message is due.
    pub(super) fn poll_kept(&mut self, transfer: TransferId) {
        while let Some(ranges) = self
            .transfers
            .sender_mut(transfer)
            .and_then(|sender| sender.comparison.poll_kept())
        {
            self.send(&Message::Keep(Keep { transfer, ranges }));
        }
    }
}

/// Placeholder for the chaining value of a chunk that could not be read. No real chunk has this
/// value.
const NO_VALUE: [u8; 32] = [0; 32];
