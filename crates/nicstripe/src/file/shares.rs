//! Fair sharing of a limited resource between owners.

use std::{collections::HashMap, hash::Hash};

/// Owner of units: a peer's key, or zeros for local work.
pub(crate) type Owner = [u8; 32];

/// Fair shares of a limited resource, with the number of units that each owner holds.
///
/// There are two rules, because only some units can be taken back:
///
/// - Descriptors, memory and threads stay with their owner until it gives them back. An owner
///   never holds more than it leaves free ([`may_take`](Self::may_take)): the first may have half,
///   the second half of the rest. So an owner without any gets one as long as one is free.
/// - Sessions and connections can be evicted, so all of them may be in use
///   ([`request`](Self::request)). Then the owner with the most loses one to an owner that has at
///   most half as many after that. So an owner without any gets one, unless each has just one.
///
/// Slots of strangers go by [`greatest`](Self::greatest) alone: any newcomer evicts a connection of
/// the address with several, because a retry costs an honest client only milliseconds.
#[derive(Debug)]
pub(crate) struct FairShares<K> {
    /// Number of units in total.
    pub(crate) all: usize,
    used: usize,
    /// Number of units of each owner that holds any.
    held: HashMap<K, usize>,
}

/// Decision on an owner's request for a unit that can be evicted.
#[derive(Debug)]
pub(crate) enum Grant<K> {
    /// The owner takes a free unit.
    Free,
    /// The owner takes a unit from this other owner.
    Evict(K),
    /// The request is rejected. Contains the limit that was reached, in units.
    Rejected(usize),
}

impl<K: Copy + Eq + Hash> FairShares<K> {
    pub(crate) fn new(all: usize) -> Self {
        Self {
            all,
            used: 0,
            held: HashMap::new(),
        }
    }

    /// Returns the shares of `all` units. `holders` yields the holder of each unit in use.
    pub(crate) fn held_by(all: usize, holders: impl Iterator<Item = K>) -> Self {
        let mut shares = Self::new(all);
        holders.for_each(|holder| shares.take(holder, 1));
        shares
    }

    pub(crate) fn take(&mut self, owner: K, count: usize) {
        if count > 0 {
            *self.held.entry(owner).or_default() += count;
            self.used += count;
        }
    }

    pub(crate) fn give_back(&mut self, owner: &K, count: usize) {
        if let Some(held) = self.held.get_mut(owner) {
            *held -= count;
            self.used -= count;
            if *held == 0 {
                self.held.remove(owner);
            }
        }
    }

    pub(crate) fn held(&self, owner: &K) -> usize {
        self.held.get(owner).copied().unwrap_or(0)
    }

    pub(crate) fn free(&self) -> usize {
        self.all.saturating_sub(self.used)
    }

    /// Returns the owner's share: half of the units that the others do not hold.
    pub(crate) fn share(&self, owner: &K) -> usize {
        self.all.saturating_sub(self.used - self.held(owner)) / 2
    }

    /// Returns the number of units by which the owner is below its share.
    pub(crate) fn room(&self, owner: &K) -> usize {
        self.share(owner).saturating_sub(self.held(owner))
    }

    /// Returns true if the owner may take `count` free units: up to its share, or any if it holds
    /// none.
    pub(crate) fn may_take(&self, owner: &K, count: usize) -> bool {
        let is_new = self.held(owner) == 0;
        count
            <= if is_new {
                self.free()
            } else {
                self.room(owner)
            }
    }

    /// Decides an owner's request for one unit. An owner gets at most `each`, by default half of
    /// all, so that a single owner leaves half to the others.
    pub(crate) fn request(&self, owner: &K, each: usize) -> Grant<K> {
        let own = self.held(owner);
        if own >= each {
            return Grant::Rejected(each.min(self.all));
        }
        if self.free() > 0 {
            return Grant::Free;
        }
        match self.greatest(|_| true) {
            Some((greatest, count)) if count >= 2 * (own + 1) => Grant::Evict(greatest),
            _ => Grant::Rejected(self.all),
        }
    }

    /// Returns the matching owner with the most units, and their number.
    pub(crate) fn greatest(&self, matches: impl Fn(&K) -> bool) -> Option<(K, usize)> {
        let matching = self.held.iter().filter(|(owner, _)| matches(owner));
        matching
            .map(|(owner, count)| (*owner, *count))
            .max_by_key(|(_, count)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_leaves_as_much_as_it_has_and_the_next_gets_one_while_one_is_free() {
        let mut shares = FairShares::new(2048);
        let fill = |owner: u8| {
            while shares.may_take(&owner, 1) {
                shares.take(owner, 1);
            }
            shares.held(&owner)
        };
        let held: Vec<usize> = (0..13).map(fill).collect();
        assert_eq!(held, [1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1, 0]);
        (0..)
            .zip(&held)
            .for_each(|(owner, count)| shares.give_back(&owner, *count));
        assert_eq!((shares.free(), shares.held.len()), (2048, 0));
    }

    /// Simulates rounds in which the owners request units in turn, until none gets another. Returns
    /// the final number of units of each.
    fn settle(all: usize, each: usize, rounds: &[&[u8]]) -> Vec<usize> {
        let mut shares = FairShares::new(all);
        for asking in rounds {
            let mut gets = true;
            while std::mem::take(&mut gets) {
                for owner in *asking {
                    match shares.request(owner, each) {
                        Grant::Free => {}
                        Grant::Evict(other) => shares.give_back(&other, 1),
                        Grant::Rejected(_) => continue,
                    }
                    shares.take(*owner, 1);
                    gets = true;
                }
            }
        }
        let last = rounds.concat().into_iter().max().unwrap_or(0);
        (1..=last).map(|owner| shares.held(&owner)).collect()
    }

    #[test]
    fn greedy_owners_leave_room_and_end_within_a_factor_of_two() {
        assert_eq!(settle(64, 32, &[&[1]]), [32], "half is left");
        assert_eq!(settle(64, 32, &[&[1], &[2]]), [32, 32]);
        for order in [
            &[&[1][..], &[2], &[3]][..],
            &[&[1, 2, 3]],
            &[&[1], &[2], &[3], &[4, 5], &[1, 2, 3, 4, 5]],
        ] {
            let counts = settle(64, 32, order);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most < &(2 * (least + 1)), "{counts:?}");
            assert!(counts.iter().sum::<usize>() == 64, "{counts:?}");
        }
        let each_in_turn: [&[u8]; 10] =
            [&[1], &[2], &[3], &[4], &[5], &[6], &[7], &[8], &[9], &[10]];
        let counts = settle(8, 4, &each_in_turn);
        assert_eq!(
            counts,
            [1, 1, 1, 1, 1, 1, 1, 1, 0, 0],
            "each unit is another owner's"
        );
    }
}
