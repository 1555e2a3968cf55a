//! Fair shares: what becomes of a key that wants one more of what there is a limited number of.

use std::collections::HashMap;

use crate::trust::PublicKey;

/// How places of one kind are shared by keys.
///
/// A key has at most `each`. As long as not all are taken, that is all there is to it: half of them by default, so that one key alone leaves
/// the other half to all others. Where several keys have taken all, a key with less than half as many as the greatest one gets a place of
/// that one: a key that has none always gets its first, unless there are as many keys as places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) all: usize,
    pub(super) each: usize,
}

/// What becomes of a key's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// It gets a free place.
    Free,
    /// It gets a place of this key.
    Of(PublicKey),
    /// It gets none: there are no more than so many for it.
    None(usize),
}

impl Shares {
    /// Decides for a key; `held` has one key for each place that is taken.
    pub(super) fn decide(self, key: &PublicKey, held: impl Iterator<Item = PublicKey>) -> Share {
        let mut counts: HashMap<PublicKey, usize> = HashMap::new();
        held.for_each(|holder| *counts.entry(holder).or_default() += 1);
        let own = counts.get(key).copied().unwrap_or(0);
        if own >= self.each {
            return Share::None(self.each.min(self.all));
        }
        if counts.values().sum::<usize>() < self.all {
            return Share::Free;
        }
        match counts.into_iter().max_by_key(|(_, count)| *count) {
            Some((greatest, count)) if count >= 2 * (own + 1) => Share::Of(greatest),
            _ => Share::None(self.all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has these keys ask in turn, for as many places as they can get, and returns what each has in the end.
    fn settle(shares: Shares, rounds: &[&[u8]]) -> Vec<usize> {
        let mut held: Vec<PublicKey> = Vec::new();
        for asking in rounds {
            let mut gets = true;
            while std::mem::take(&mut gets) {
                for number in *asking {
                    let key = PublicKey::from_bytes([*number; 32]);
                    match shares.decide(&key, held.iter().copied()) {
                        Share::Free => held.push(key),
                        Share::Of(other) => {
                            let index = held.iter().position(|holder| *holder == other).unwrap();
                            held[index] = key;
                        }
                        Share::None(_) => continue,
                    }
                    gets = true;
                }
            }
        }
        let count = |number| held.iter().filter(|holder| **holder == PublicKey::from_bytes([number; 32])).count();
        (1..=rounds.iter().flat_map(|keys| keys.iter()).copied().max().unwrap_or(0)).map(count).collect()
    }

    #[test]
    fn greedy_keys_leave_room_and_end_within_a_factor_of_two() {
        let shares = Shares { all: 64, each: 32 };
        assert_eq!(settle(shares, &[&[1]]), [32], "half is left");
        assert_eq!(settle(shares, &[&[1], &[2]]), [32, 32]);
        for order in [&[&[1][..], &[2], &[3]][..], &[&[1, 2, 3]], &[&[1], &[2], &[3], &[4, 5], &[1, 2, 3, 4, 5]]] {
            let counts = settle(shares, order);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most < &(2 * (least + 1)) && counts.iter().sum::<usize>() == 64, "{counts:?}");
        }
    }

    #[test]
    fn whoever_has_none_gets_one_until_each_place_is_another_keys() {
        let shares = Shares { all: 8, each: 4 };
        let keys: Vec<u8> = (1..=10).collect();
        let each_in_turn: Vec<&[u8]> = keys.chunks(1).collect();
        let counts = settle(shares, &each_in_turn);
        assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
    }
}
