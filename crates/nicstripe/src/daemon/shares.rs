//! Fair sharing of a limited resource between keys.

use std::collections::HashMap;

use crate::trust::PublicKey;

/// Rule for sharing the units of one resource, such as sessions, between keys.
///
/// A key gets at most `each` of `all` units, by default half, so that a single key leaves half to
/// the others. When all units are taken, a key may take one from the key with the most. After that
/// it must have at most half as many as that key had before. A key without any thus always gets
/// one, unless all keys have just one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) all: usize,
    pub(super) each: usize,
}

/// Decision on a key's request for a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// The key takes a free unit.
    Free,
    /// The key takes a unit from this other key.
    Of(PublicKey),
    /// The request is rejected. Contains the limit that was reached, in units.
    None(usize),
}

impl Shares {
    /// Decides a key's request for one unit. `held` yields the holder of each unit in use.
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

    /// Simulates rounds in which the keys request units in turn, until no key gets another. Returns
    /// the final number of units per key.
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
        let count = |number| {
            held.iter()
                .filter(|holder| **holder == PublicKey::from_bytes([number; 32]))
                .count()
        };
        (1..=rounds
            .iter()
            .flat_map(|keys| keys.iter())
            .copied()
            .max()
            .unwrap_or(0))
            .map(count)
            .collect()
    }

    #[test]
    fn greedy_keys_leave_room_and_end_within_a_factor_of_two() {
        let shares = Shares { all: 64, each: 32 };
        assert_eq!(settle(shares, &[&[1]]), [32], "half is left");
        assert_eq!(settle(shares, &[&[1], &[2]]), [32, 32]);
        for order in [
            &[&[1][..], &[2], &[3]][..],
            &[&[1, 2, 3]],
            &[&[1], &[2], &[3], &[4, 5], &[1, 2, 3, 4, 5]],
        ] {
            let counts = settle(shares, order);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(
                most < &(2 * (least + 1)) && counts.iter().sum::<usize>() == 64,
                "{counts:?}"
            );
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
