//! Kernel bonds: their members, mode and hash policy, and the number of TCP connections that uses
//! all members.

use nicstripe_netlink::{Attributes, u8_at};

use crate::interface::name::InterfaceName;

/// Members, mode and transmit hash policy of a bond interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bond {
    /// Names of the bond's ports in order of interface index, including those that are down.
    pub members: Vec<InterfaceName>,
    /// Number of members that are up with carrier. At most `members.len()`.
    pub carrying: usize,
    /// Bonding mode; `None` for team and HSR, and for modes newer than this code.
    pub mode: Option<BondMode>,
    /// Transmit hash policy; `None` if the kernel does not report it.
    pub hash: Option<TransmitHash>,
}

impl Bond {
    /// Creates the description of a bond without members.
    ///
    /// For tests and simulations; [`interfaces`](crate::interfaces) reads real bonds.
    pub fn new(mode: Option<BondMode>, hash: Option<TransmitHash>) -> Self {
        Self {
            members: Vec::new(),
            carrying: 0,
            mode,
            hash,
        }
    }

    /// Parses the mode and the hash policy from a bond's `IFLA_INFO_DATA` attributes.
    pub(crate) fn parse(data: Attributes<'_>) -> Self {
        let number = |kind| data.find(kind).and_then(|value| u8_at(value, 0));
        Self::new(
            number(IFLA_BOND_MODE)
                .and_then(|number| BondMode::ALL.get(usize::from(number)).copied()),
            number(IFLA_BOND_XMIT_HASH_POLICY)
                .and_then(|number| TransmitHash::ALL.get(usize::from(number)).copied()),
        )
    }
}

/// Mode of a bond, named as in `ip link` and the kernel's `Documentation/networking/bonding.rst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BondMode {
    /// `balance-rr`: consecutive packets go to consecutive members.
    BalanceRoundRobin,
    /// `active-backup`: one member carries all packets, and the others are on standby.
    ActiveBackup,
    /// `balance-xor`: the transmit hash policy selects the member for each packet.
    BalanceXor,
    /// `broadcast`: every packet goes to every member.
    Broadcast,
    /// `802.3ad` (LACP): the transmit hash policy selects the member for each packet.
    Lacp,
    /// `balance-tlb`: each hash value goes to the member that was least loaded when the value first
    /// occurred. Only one member receives.
    BalanceTlb,
    /// `balance-alb`: the destination address selects the member for each packet.
    BalanceAlb,
}

impl BondMode {
    /// All modes in order of the kernel's `BOND_MODE_*` numbers (include/uapi/linux/if_bonding.h).
    const ALL: [Self; 7] = [
        Self::BalanceRoundRobin,
        Self::ActiveBackup,
        Self::BalanceXor,
        Self::Broadcast,
        Self::Lacp,
        Self::BalanceTlb,
        Self::BalanceAlb,
    ];
}

/// Transmit hash policy of a bond (`xmit_hash_policy`): the packet fields that select a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransmitHash {
    /// `layer2`: hashes hardware addresses.
    Layer2,
    /// `layer3+4`: hashes IP addresses and ports.
    Layer34,
    /// `layer2+3`: hashes hardware and IP addresses.
    Layer23,
    /// `encap2+3`: hashes hardware and IP addresses of the packet inside a tunnel.
    Encap23,
    /// `encap3+4`: hashes IP addresses and ports of the packet inside a tunnel.
    Encap34,
    /// `vlan+srcmac`: hashes VLAN and source hardware address.
    VlanSourceMac,
}

impl TransmitHash {
    /// All policies in order of the kernel's `BOND_XMIT_POLICY_*` numbers
    /// (include/uapi/linux/if_bonding.h).
    const ALL: [Self; 6] = [
        Self::Layer2,
        Self::Layer34,
        Self::Layer23,
        Self::Encap23,
        Self::Encap34,
        Self::VlanSourceMac,
    ];

    /// Returns true if the hash includes ports, so that connections between one pair of addresses
    /// can use different members.
    fn looks_at_ports(self) -> bool {
        matches!(self, Self::Layer34 | Self::Encap34)
    }
}

/// Number of TCP connections to one address that a bond needs to use all its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BondStreams {
    /// Sufficient number of connections: with random ports they use all members with a probability
    /// of at least 99 %. It is 1 if more connections would not help.
    Enough(u8),
    /// More connections do not help: all connections to one address use the same member.
    NoNumberHelps,
}

/// Returns the number of connections to one address that is enough to send over all members of a
/// bond that have carrier.
///
/// If the hash includes ports, a connection with a random port uses each of the *n* members with
/// equal probability. After *k* connections all are used with probability Σᵢ (−1)ⁱ · C(n, i) · (1 −
/// i/n)ᵏ (the coupon collector's problem, by inclusion and exclusion; W. Feller, *An Introduction
/// to Probability Theory and Its Applications*, vol. 1, ch. IV.2): 8 for two members, 15 for three,
/// 21 for four. An unknown mode or hash is treated as one that includes ports. The switch or the
/// peer's bond distributes *received* traffic, which this machine cannot influence.
pub fn streams_for(bond: &Bond) -> BondStreams {
    match bond.mode {
        // A single connection uses all members of a round-robin bond. The other two have nothing to
        // spread.
        Some(BondMode::BalanceRoundRobin | BondMode::ActiveBackup | BondMode::Broadcast) => {
            BondStreams::Enough(1)
        }
        _ if bond.carrying < 2 => BondStreams::Enough(1),
        Some(BondMode::BalanceAlb) => BondStreams::NoNumberHelps,
        Some(BondMode::BalanceXor | BondMode::Lacp | BondMode::BalanceTlb) | None => {
            match bond.hash {
                Some(hash) if !hash.looks_at_ports() => BondStreams::NoNumberHelps,
                _ => BondStreams::Enough(draws_for_all(bond.carrying)),
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use nicstripe_netlink::push_attribute;

    fn bond(mode: BondMode, hash: TransmitHash, carrying: usize) -> Bond {
        Bond {
            carrying,
            ..Bond::new(Some(mode), Some(hash))
        }
    }

    #[test]
    fn a_hash_of_ports_needs_as_many_as_the_coupon_collector() {
        for (members, expected) in [(1, 1), (2, 8), (3, 15), (4, 21)] {
            assert_eq!(
                streams_for(&bond(BondMode::Lacp, TransmitHash::Layer34, members)),
                BondStreams::Enough(expected),
                "{members}"
            );
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
        for hash in [
            TransmitHash::Layer2,
            TransmitHash::Layer23,
            TransmitHash::Encap23,
            TransmitHash::VlanSourceMac,
        ] {
            assert_eq!(
                streams_for(&bond(BondMode::Lacp, hash, 4)),
                BondStreams::NoNumberHelps,
                "{hash:?}"
            );
        }
        assert_eq!(
            streams_for(&bond(BondMode::BalanceAlb, TransmitHash::Layer34, 2)),
            BondStreams::NoNumberHelps
        );
    }

    #[test]
    fn one_connection_is_enough_where_more_change_nothing() {
        for mode in [
            BondMode::ActiveBackup,
            BondMode::BalanceRoundRobin,
            BondMode::Broadcast,
        ] {
            assert_eq!(
                streams_for(&bond(mode, TransmitHash::Layer2, 4)),
                BondStreams::Enough(1),
                "{mode:?}"
            );
        }
        assert_eq!(
            streams_for(&bond(BondMode::Lacp, TransmitHash::Layer2, 1)),
            BondStreams::Enough(1),
            "one cable remains"
        );
    }

    #[test]
    fn what_is_unknown_is_taken_for_a_hash_of_ports() {
        assert_eq!(
            streams_for(&Bond {
                carrying: 2,
                ..Bond::new(None, None)
            }),
            BondStreams::Enough(8)
        );
    }

    #[test]
    fn mode_and_hash_are_read_from_the_kernels_attributes() {
        let parse = |mode: u8, hash: u8| {
            let mut bytes = Vec::new();
            push_attribute(&mut bytes, IFLA_BOND_MODE, &[mode]);
            push_attribute(&mut bytes, 3, &100_u32.to_ne_bytes());
            push_attribute(&mut bytes, IFLA_BOND_XMIT_HASH_POLICY, &[hash]);
            Bond::parse(Attributes::new(&bytes))
        };
        assert_eq!(
            parse(4, 1),
            Bond::new(Some(BondMode::Lacp), Some(TransmitHash::Layer34))
        );
        assert_eq!(
            parse(1, 0),
            Bond::new(Some(BondMode::ActiveBackup), Some(TransmitHash::Layer2))
        );
        assert_eq!(
            parse(6, 5),
            Bond::new(
                Some(BondMode::BalanceAlb),
                Some(TransmitHash::VlanSourceMac)
            )
        );
        assert_eq!(parse(99, 99), Bond::new(None, None), "a newer kernel's");
        assert_eq!(Bond::parse(Attributes::new(&[])), Bond::new(None, None));
    }
}
