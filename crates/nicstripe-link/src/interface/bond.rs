//! Kernel bonds: their members, mode and hash policy, and the number of TCP connections that uses
//! all members.

use nicstripe_netlink::{Attributes, u8_at};

use crate::interface::name::InterfaceName;

/// Members of a bond, team or HSR interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bond {
    /// Names of the bond's ports in order of interface index, including those that are down.
    pub members: Vec<InterfaceName>,
    /// Number of members that are up with carrier. At most `members.len()`.
    pub carrying: usize,
    /// True if connections between one pair of addresses cannot use different members. False of
    /// team and HSR, and of modes and hash policies newer than this code.
    ignores_ports: bool,
}

impl Bond {
    /// Parses the mode and the hash policy from a bond's `IFLA_INFO_DATA` attributes.
    pub(crate) fn parse(data: Attributes<'_>) -> Self {
        let is_one_of = |kind, numbers: [u8; 4]| {
            let number = data.find(kind).and_then(|value| u8_at(value, 0));
            number.is_some_and(|number| numbers.contains(&number))
        };
        Self {
            ignores_ports: is_one_of(IFLA_BOND_MODE, MODES_WITHOUT_PORTS)
                || is_one_of(IFLA_BOND_XMIT_HASH_POLICY, HASHES_WITHOUT_PORTS),
            ..Self::default()
        }
    }

    /// Returns the number of connections to one address that is enough to send over all members
    /// that have carrier: with random ports they use all with a probability of at least 99 %.
    /// Returns `None` if more than one connection does not help.
    ///
    /// If the hash includes ports, a connection with a random port uses each of the *n* members with
    /// equal probability. After *k* connections all are used with probability Σᵢ (−1)ⁱ · C(n, i) ·
    /// (1 − i/n)ᵏ (the coupon collector's problem, by inclusion and exclusion; W. Feller, *An
    /// Introduction to Probability Theory and Its Applications*, vol. 1, ch. IV.2): 8 for two
    /// members, 15 for three, 21 for four. The switch or the peer's bond distributes *received*
    /// traffic, which this machine cannot influence.
    pub fn streams(&self) -> Option<u8> {
        (!self.ignores_ports && self.carrying > 1).then(|| draws_for_all(self.carrying))
    }
}

/// Returns the smallest number of random draws after which each of `kinds` equally likely outcomes
/// has occurred with a probability of at least [`ENOUGH`].
fn draws_for_all(kinds: usize) -> u8 {
    let all_drawn = |draws: &u8| probability_of_all(kinds, *draws) >= ENOUGH;
    (1..u8::MAX).find(all_drawn).unwrap_or(u8::MAX)
}

fn probability_of_all(kinds: usize, draws: u8) -> f64 {
    let n = kinds as f64;
    let mut choose = 1.0;
    let mut sum = 0.0;
    for missing in 0..kinds {
        let i = missing as f64;
        let sign = if missing % 2 == 0 { 1.0 } else { -1.0 };
        sum += sign * choose * (1.0 - i / n).powi(draws.into());
        choose *= (n - i) / (i + 1.0);
    }
    sum
}

const ENOUGH: f64 = 0.99;

// include/uapi/linux/if_link.h
const IFLA_BOND_MODE: u16 = 1;
const IFLA_BOND_XMIT_HASH_POLICY: u16 = 14;

/// Modes (`BOND_MODE_*`, include/uapi/linux/if_bonding.h) in which more connections do not help.
/// `balance-rr` (0) and `broadcast` (3) send one connection over all members, `active-backup` (1)
/// over the active one; in `balance-alb` (6) the destination address selects the member.
const MODES_WITHOUT_PORTS: [u8; 4] = [0, 1, 3, 6];
/// Hash policies (`BOND_XMIT_POLICY_*`, include/uapi/linux/if_bonding.h) that include no ports:
/// `layer2` (0), `layer2+3` (2), `encap2+3` (3) and `vlan+srcmac` (5). The others are `layer3+4` (1)
/// and `encap3+4` (4).
const HASHES_WITHOUT_PORTS: [u8; 4] = [0, 2, 3, 5];

#[cfg(test)]
mod tests {
    use super::*;
    use nicstripe_netlink::push_attribute;

    /// Returns a bond with members that all have carrier, as the kernel describes it.
    fn bond(mode: u8, hash: u8, carrying: usize) -> Bond {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, IFLA_BOND_MODE, &[mode]);
        push_attribute(&mut bytes, 3, &100_u32.to_ne_bytes());
        push_attribute(&mut bytes, IFLA_BOND_XMIT_HASH_POLICY, &[hash]);
        Bond {
            carrying,
            ..Bond::parse(Attributes::new(&bytes))
        }
    }

    const LACP: u8 = 4;

    #[test]
    fn a_hash_of_ports_needs_as_many_as_the_coupon_collector() {
        for (members, expected) in [(1, None), (2, Some(8)), (3, Some(15)), (4, Some(21))] {
            for hash in [1, 4] {
                assert_eq!(bond(LACP, hash, members).streams(), expected, "{members}");
            }
        }
        // 2 · (1/2)^7 = 1.6 % of 7-draw runs miss one of two, 0.8 % of 8-draw runs.
        assert!(probability_of_all(2, 7) < ENOUGH && probability_of_all(2, 8) >= ENOUGH);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a million trials take hours under Miri")]
    fn the_number_holds_in_a_million_seeded_trials() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |kinds: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % kinds
        };
        for members in [2, 3, 4, 8] {
            let draws = draws_for_all(members as usize);
            let trials = 100_000;
            let all = (1_u64 << members) - 1;
            let complete = (0..trials)
                .filter(|_| (0..draws).fold(0, |seen, _| seen | 1 << draw(members)) == all)
                .count();
            // Three standard deviations of a share of 0.99 in 100,000 trials are 0.001.
            assert!(
                complete as f64 / f64::from(trials) > ENOUGH - 0.001,
                "{members}: {complete}"
            );
        }
    }

    #[test]
    fn a_hash_of_addresses_is_helped_by_no_number() {
        for hash in HASHES_WITHOUT_PORTS {
            assert_eq!(bond(LACP, hash, 4).streams(), None, "{hash}");
        }
    }

    #[test]
    fn one_connection_is_enough_where_more_change_nothing() {
        for mode in MODES_WITHOUT_PORTS {
            assert_eq!(bond(mode, 1, 4).streams(), None, "{mode}");
        }
        assert_eq!(bond(LACP, 1, 1).streams(), None, "one cable remains");
    }

    #[test]
    fn what_is_unknown_is_taken_for_a_hash_of_ports() {
        assert_eq!(bond(99, 99, 2).streams(), Some(8), "a newer kernel's");
        let unknown = Bond {
            carrying: 2,
            ..Bond::default()
        };
        assert_eq!(unknown.streams(), Some(8));
    }
}
