//! Transfers of a session: their states and progress.

use std::{collections::BTreeMap, time::Instant};

use super::{config::MAX_OPEN_TRANSFERS, error::PathError, round_robin::RoundRobin};
use crate::{
    file::{extent::ChunkRange, grid::Shape, hash_tree::Subtree, hole::HoleMap},
    id::{PathId, TransferId},
    transfer::{receiver::Receiver, sender::Sender, stats::TransferStats},
};

#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) transfers: BTreeMap<TransferId, Transfer>,
    /// Highest transfer ID so far; `None` before the first transfer. A lower ID that is not in
    /// `transfers` belongs to an ended transfer.
    last: Option<TransferId>,
    pub(super) round_robin: RoundRobin,
    /// Properties of sources that the receiver has not yet accepted.
    pub(super) offerings: BTreeMap<TransferId, Offering>,
}

impl Transfers {
    pub(super) fn get(&self, id: TransferId) -> Option<&Transfer> {
        self.transfers.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: TransferId) -> Option<&mut Transfer> {
        self.transfers.get_mut(&id)
    }

    /// Iterates over the transfers in ascending order of their IDs.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TransferId, &mut Transfer)> {
        self.transfers.iter_mut().map(|(id, state)| (*id, state))
    }

    /// Returns the sending half of a transfer; `None` unless the transfer is accepted and has not
    /// ended.
    pub(super) fn sender(&self, id: TransferId) -> Option<&Sender> {
        self.get(id)?.sender()
    }

    pub(super) fn sender_mut(&mut self, id: TransferId) -> Option<&mut Sender> {
        self.get_mut(id)?.sender_mut()
    }

    /// Returns the receiving half of a transfer; `None` unless the transfer is accepted and has not
    /// ended.
    pub(super) fn receiver_mut(&mut self, id: TransferId) -> Option<&mut Receiver> {
        self.get_mut(id)?.receiver_mut()
    }

    pub(super) fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.transfers.values().filter_map(Transfer::sender)
    }

    pub(super) fn senders_mut(&mut self) -> impl Iterator<Item = (TransferId, &mut Sender)> {
        self.iter_mut()
            .filter_map(|(id, transfer)| Some((id, transfer.sender_mut()?)))
    }

    pub(super) fn receivers(&self) -> impl Iterator<Item = &Receiver> {
        self.transfers.values().filter_map(Transfer::receiver)
    }

    pub(super) fn receivers_mut(&mut self) -> impl Iterator<Item = (TransferId, &mut Receiver)> {
        self.iter_mut()
            .filter_map(|(id, transfer)| Some((id, transfer.receiver_mut()?)))
    }

    /// Returns the transfers that may send, in their round-robin order.
    pub(super) fn in_turn(&self) -> Vec<TransferId> {
        let sending = self
            .transfers
            .iter()
            .filter(|(_, transfer)| transfer.sender().is_some());
        self.round_robin.order(sending.map(|(id, _)| *id))
    }

    pub(super) fn insert(&mut self, id: TransferId, transfer: Transfer) {
        self.last = self.last.max(Some(id));
        self.transfers.insert(id, transfer);
    }

    /// Adds a transfer that the peer begins.
    ///
    /// # Errors
    ///
    /// Returns [`PathError`] if the transfer's ID was used before or if there are too many
    /// transfers.
    pub(super) fn begin(
        &mut self,
        id: TransferId,
        what: &'static str,
        transfer: Transfer,
    ) -> Result<(), PathError> {
        if self.last >= Some(id) {
            return Err(PathError::Transfer {
                what,
                transfer: id.0,
                expected: "new",
            });
        }
        if self.transfers.len() >= MAX_OPEN_TRANSFERS + ENDED_KEPT {
            return Err(PathError::TooManyTransfers);
        }
        self.insert(id, transfer);
        Ok(())
    }

    /// Returns the part of a transfer that `pick` selects, for a message about this transfer.
    /// Returns `None` if the transfer has ended at this end, because the peer may not have known
    /// that.
    ///
    /// # Errors
    ///
    /// Returns [`PathError::Transfer`] if the transfer is unknown, or if `pick` returns `None`
    /// because the transfer is in another state.
    pub(super) fn expect<'a, T>(
        &'a mut self,
        id: TransferId,
        what: &'static str,
        expected: &'static str,
        pick: impl FnOnce(&'a mut Transfer) -> Option<T>,
    ) -> Result<Option<T>, PathError> {
        let has_ended = self.last >= Some(id);
        let picked = match self.transfers.get_mut(&id) {
            Some(Transfer::Ended { .. }) => return Ok(None),
            None if has_ended => return Ok(None),
            transfer => transfer.and_then(pick),
        };
        picked.map(Some).ok_or(PathError::Transfer {
            what,
            transfer: id.0,
            expected,
        })
    }

    /// Returns the sending half of a transfer for a message about it, like
    /// [`expect`](Self::expect).
    pub(super) fn expect_sender(
        &mut self,
        id: TransferId,
        what: &'static str,
    ) -> Result<Option<&mut Sender>, PathError> {
        self.expect(id, what, "being sent", Transfer::sender_mut)
    }

    /// Returns the receiving half of a transfer for a message about it, like
    /// [`expect`](Self::expect).
    pub(super) fn expect_receiver(
        &mut self,
        id: TransferId,
        what: &'static str,
    ) -> Result<Option<&mut Receiver>, PathError> {
        self.expect(id, what, "being received", Transfer::receiver_mut)
    }

    /// Returns the next acknowledgement that is due on a path; `None` if none is due.
    pub(super) fn poll_acks(
        &mut self,
        path: PathId,
        now: Instant,
    ) -> Option<(TransferId, Vec<ChunkRange>)> {
        self.receivers_mut()
            .find_map(|(id, receiver)| Some((id, receiver.poll_ack(path, now)?)))
    }

    pub(super) fn on_path_lost(&mut self, path: PathId) {
        for transfer in self.transfers.values_mut() {
            match transfer {
                Transfer::Sending { sender, .. } => sender.on_path_lost(path),
                Transfer::Receiving(receiver) => receiver.on_path_lost(path),
                _ => {}
            }
        }
    }

    /// Ends a transfer. Its progress and unsynced subtrees remain available while it is one of the
    /// latest `ENDED_KEPT` ended transfers.
    pub(super) fn end(&mut self, id: TransferId) {
        self.offerings.remove(&id);
        self.round_robin.forget(id);
        let stats = self.get(id).map(Transfer::stats).unwrap_or_default();
        let unsynced = self
            .receiver_mut(id)
            .map(Receiver::take_fresh)
            .unwrap_or_default();
        self.transfers
            .insert(id, Transfer::Ended { stats, unsynced });
        let ended = self
            .transfers
            .iter()
            .filter(|(_, transfer)| transfer.has_ended());
        let ended: Vec<TransferId> = ended.map(|(id, _)| *id).collect();
        for id in ended.iter().rev().skip(ENDED_KEPT) {
            self.transfers.remove(id);
        }
    }
}

#[derive(Debug)]
pub(super) enum Transfer {
    /// Receiver of a download: the request was sent. Next state: `Deciding`.
    Asked {
        /// True if the client allows the source to change; see `Deciding`.
        may_change: bool,
    },
    /// Sender of a download: the peer requested it, and the driver opens the source. Next states:
    /// `Offered`, `Ended`.
    Requested,
    /// Receiver: the sender offered the transfer, and the driver opens the target. Next states:
    /// `Receiving`, `Ended`.
    Deciding {
        shape: Shape,
        /// True if the receiver's digest may replace the sender's, because the source may change
        /// while the sender reads it. Always true for an uploaded file.
        may_change: bool,
    },
    /// Sender: the offer was sent. Next states: `Sending`, `Ended`.
    Offered(Shape),
    /// Sender: the receiver has accepted the offer. Next state: `Ended`.
    Sending {
        sender: Sender,
        /// True once [`Event::SourceRead`](super::event::Event::SourceRead) was emitted.
        read: bool,
    },
    /// Receiver: the driver has accepted the offer. Next state: `Ended`.
    Receiving(Receiver),
    /// Either end: the transfer is complete or has failed.
    Ended {
        stats: TransferStats,
        /// Subtrees that were written but are not durable. The driver records them so that a later
        /// transfer can resume.
        unsynced: Vec<Subtree>,
    },
}

impl Transfer {
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

    pub(super) fn receiver_mut(&mut self) -> Option<&mut Receiver> {
        match self {
            Self::Receiving(receiver) => Some(receiver),
            _ => None,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// Returns the transfer's progress at this end.
    pub(super) fn stats(&self) -> TransferStats {
        match self {
            Self::Sending { sender, .. } => sender.stats(),
            Self::Receiving(receiver) => receiver.stats(),
            Self::Ended { stats, .. } => stats.clone(),
            _ => TransferStats::default(),
        }
    }
}

/// Properties of a source that are not part of its [`crate::Offer`].
#[derive(Debug, Clone, Default)]
pub struct Offering {
    /// Holes of the source. Empty unless [`crate::Offer::data`] is set.
    pub holes: HoleMap,
    /// True if the source may change while the sender reads it.
    pub may_change: bool,
}

/// Options with which a receiver accepts a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Acceptance {
    /// Size in chunks of the in-memory reorder buffer, which holds the chunks that the sink has not
    /// [consumed](crate::Session::taken); `None` to write chunks to a file instead. If set, `holes`
    /// and `delta` have no effect.
    pub room: Option<u64>,
    /// True to wait for the list of the source's holes. Required if [`crate::Offer::data`] is set.
    pub holes: bool,
    /// Number of leading chunks to compare with the existing file (`--delta`); `None` without a
    /// comparison.
    pub delta: Option<u64>,
    /// Maximum memory in bytes for the entries of a tree; `None` for no limit. See
    /// [`crate::message::Accept::memory`].
    pub memory: Option<u64>,
}

/// Number of ended transfers whose statistics remain available.
const ENDED_KEPT: usize = 64;
