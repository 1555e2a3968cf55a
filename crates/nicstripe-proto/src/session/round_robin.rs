//! Round-robin scheduling of the transfers that have chunks to send.

use std::collections::BTreeMap;

use crate::id::TransferId;

/// Round-robin scheduler of the sending transfers.
///
/// Transfers alternate chunk by chunk, so that a small transfer does not wait for a large one. A
/// tree and its standalone files count as one transfer. Within such a group, the lowest ID comes
/// first. This is the ID of the tree, whose batches carry the small files.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    /// Tree transfer of each standalone file's transfer.
    trees: BTreeMap<TransferId, TransferId>,
    /// Transfer or tree that sent the latest chunk; `None` at first.
    served: Option<TransferId>,
}

impl RoundRobin {
    /// Registers `entry` as the transfer of a standalone file in `tree`.
    pub(super) fn belongs(&mut self, entry: TransferId, tree: TransferId) {
        self.trees.insert(entry, tree);
    }

    pub(super) fn forget(&mut self, transfer: TransferId) {
        self.trees.remove(&transfer);
    }

    /// Returns the transfers in `sending`, in the order in which they may send.
    pub(super) fn order(&self, sending: impl Iterator<Item = TransferId>) -> Vec<TransferId> {
        let mut order: Vec<TransferId> = sending.collect();
        order.sort_by_key(|transfer| {
            let whole = self.whole(*transfer);
            (
                self.served.is_some_and(|served| whole <= served),
                whole,
                *transfer,
            )
        });
        order
    }

    /// Records that `transfer` sends a chunk. This ends its turn.
    pub(super) fn on_served(&mut self, transfer: TransferId) {
        self.served = Some(self.whole(transfer));
    }

    fn whole(&self, transfer: TransferId) -> TransferId {
        self.trees.get(&transfer).copied().unwrap_or(transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(round_robin: &mut RoundRobin, sending: &[u32], chunks: usize) -> Vec<u32> {
        let mut served = Vec::new();
        for _ in 0..chunks {
            let first = round_robin.order(sending.iter().copied().map(TransferId))[0];
            round_robin.on_served(first);
            served.push(first.0);
        }
        served
    }

    #[test]
    fn transfers_take_turns_and_a_new_one_waits_for_one_round_at_most() {
        let mut round_robin = RoundRobin::default();
        assert_eq!(play(&mut round_robin, &[1], 2), [1, 1]);
        assert_eq!(play(&mut round_robin, &[1, 4, 9], 7), [4, 9, 1, 4, 9, 1, 4]);
        assert_eq!(play(&mut round_robin, &[1, 9], 3), [9, 1, 9]);
    }

    #[test]
    fn a_tree_and_its_entries_have_one_turn_and_the_lowest_of_them_goes_first() {
        let mut round_robin = RoundRobin::default();
        round_robin.belongs(TransferId(3), TransferId(1));
        round_robin.belongs(TransferId(4), TransferId(1));
        assert_eq!(play(&mut round_robin, &[1, 2, 3, 4], 4), [1, 2, 1, 2]);
        assert_eq!(play(&mut round_robin, &[2, 3, 4], 4), [3, 2, 3, 2]);
        round_robin.forget(TransferId(3));
        round_robin.forget(TransferId(4));
        assert_eq!(play(&mut round_robin, &[3, 4], 4), [3, 4, 3, 4]);
    }
}
