//! Pairing: which of our interfaces talks to which of the peer's.
//!
//! Pure functions of two interface lists. What they return is a plan to be probed, not a fact: a link is used when a connection over it
//! was made, authenticated, and arrived at the interface it was aimed at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::message::{PeerAddress, PeerInterface};

/// Why a candidate is good, best first. The order is that in which less can go wrong (measured; `docs/DESIGN.md`, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// IPv4 in a subnet that only one interface on either side is in.
    OwnSubnet,
    /// IPv6 with a prefix that only one interface on either side is in.
    OwnPrefix,
    /// Several interfaces share the subnet: clean only if what arrives proves it.
    SharedSubnet,
}

/// One end of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathEnd {
    /// The interface's name.
    pub interface: String,
    /// The interface's index.
    pub index: u32,
    /// The address on it.
    pub address: IpAddr,
}

/// A way to the peer that may work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Our end.
    pub local: PathEnd,
    /// The peer's end.
    pub remote: PathEnd,
    /// Why it may work.
    pub preference: Preference,
    /// The lesser line rate of the two ends in bit/s, where one is known.
    pub line_rate_bps: Option<u64>,
}

/// Returns every pair of addresses in one subnet on interfaces that both sides would use, best first.
///
/// An address that both sides have (a bridge of the same container system on each, say) is nobody's way to the other.
pub fn candidates(local: &[PeerInterface], remote: &[PeerInterface]) -> Vec<Candidate> {
    let mut found = Vec::new();
    for ours in local.iter().filter(|interface| interface.candidate) {
        for theirs in remote.iter().filter(|interface| interface.candidate) {
            for our_address in &ours.addresses {
                for their_address in theirs.addresses.iter().filter(|address| in_one_subnet(our_address, address)) {
                    if !has_address(local, their_address.ip) && !has_address(remote, our_address.ip) {
                        found.push(candidate(ours, our_address, theirs, their_address, local, remote));
                    }
                }
            }
        }
    }
    found.sort_by_key(|candidate| (candidate.preference, std::cmp::Reverse(candidate.line_rate_bps)));
    found
}

/// Chooses from `candidates`, best first, so that each interface is used at most once on either side, beside those `taken` already.
///
/// Greedy in the order given: preference first, then the higher line rate.
pub fn choose(candidates: &[Candidate], taken: &[(String, String)]) -> Vec<Candidate> {
    let mut chosen: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        let (local, remote) = (&candidate.local.interface, &candidate.remote.interface);
        let free = taken.iter().all(|(ours, theirs)| ours != local && theirs != remote)
            && chosen.iter().all(|other| other.local.interface != *local && other.remote.interface != *remote);
        if free {
            chosen.push(candidate.clone());
        }
    }
    chosen
}

fn candidate(
    ours: &PeerInterface,
    our_address: &PeerAddress,
    theirs: &PeerInterface,
    their_address: &PeerAddress,
    local: &[PeerInterface],
    remote: &[PeerInterface],
) -> Candidate {
    let members = |side: &[PeerInterface]| {
        let in_subnet = |interface: &&PeerInterface| interface.addresses.iter().any(|address| in_one_subnet(address, our_address));
        side.iter().filter(in_subnet).count()
    };
    let shared = members(local) > 1 || members(remote) > 1;
    let preference = match our_address.ip {
        _ if shared => Preference::SharedSubnet,
        IpAddr::V4(_) => Preference::OwnSubnet,
        IpAddr::V6(_) => Preference::OwnPrefix,
    };
    let end = |interface: &PeerInterface, address: &PeerAddress| PathEnd {
        interface: interface.name.clone(),
        index: interface.index,
        address: address.ip,
    };
    Candidate {
        local: end(ours, our_address),
        remote: end(theirs, their_address),
        preference,
        line_rate_bps: ours.line_rate_bps.into_iter().chain(theirs.line_rate_bps).min(),
    }
}

fn has_address(interfaces: &[PeerInterface], ip: IpAddr) -> bool {
    interfaces.iter().flat_map(|interface| &interface.addresses).any(|address| address.ip == ip)
}

/// Whether two addresses are in one subnet as both sides see it. Link-local addresses say nothing about cables, so they never are.
fn in_one_subnet(a: &PeerAddress, b: &PeerAddress) -> bool {
    if a.prefix_len != b.prefix_len {
        return false;
    }
    match (a.ip, b.ip) {
        (IpAddr::V4(x), IpAddr::V4(y)) => !x.is_loopback() && !x.is_link_local() && prefix4(x, a.prefix_len) == prefix4(y, a.prefix_len),
        (IpAddr::V6(x), IpAddr::V6(y)) => {
            !x.is_loopback() && !x.is_unicast_link_local() && prefix6(x, a.prefix_len) == prefix6(y, a.prefix_len)
        }
        _ => false,
    }
}

/// Returns the first `len` bits; all of them for a `len` beyond the address, which only nonsense from a peer has.
fn prefix4(ip: Ipv4Addr, len: u8) -> u32 {
    u32::from(ip) & u32::MAX.checked_shl(32_u32.saturating_sub(len.into())).unwrap_or(0)
}

fn prefix6(ip: Ipv6Addr, len: u8) -> u128 {
    u128::from(ip) & u128::MAX.checked_shl(128_u32.saturating_sub(len.into())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addresses: &[&str]) -> PeerInterface {
        let address = |text: &&str| {
            let (ip, len) = text.split_once('/').unwrap();
            PeerAddress { ip: ip.parse().unwrap(), prefix_len: len.parse().unwrap() }
        };
        PeerInterface {
            name: name.into(),
            index: 1,
            addresses: addresses.iter().map(address).collect(),
            mtu: 1500,
            line_rate_bps: None,
            egress_limit_bps: None,
            candidate: true,
            mac: None,
        }
    }

    fn pairs(local: &[PeerInterface], remote: &[PeerInterface]) -> Vec<(String, String)> {
        let chosen = choose(&candidates(local, remote), &[]);
        chosen.into_iter().map(|candidate| (candidate.local.interface, candidate.remote.interface)).collect()
    }

    fn named(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect()
    }

    #[test]
    fn cables_in_separate_subnets_pair_by_subnet() {
        let local = [interface("eth1", &["10.0.1.1/24"]), interface("eth2", &["10.0.2.1/24"])];
        let remote = [interface("enp2", &["10.0.2.2/24"]), interface("enp1", &["10.0.1.2/24"]), interface("x", &["192.168.0.2/24"])];
        assert_eq!(pairs(&local, &remote), named(&[("eth1", "enp1"), ("eth2", "enp2")]));
    }

    #[test]
    fn an_address_that_both_sides_have_leads_nowhere() {
        let local = [interface("docker0", &["172.17.0.1/16"])];
        let remote = [interface("docker0", &["172.17.0.1/16"]), interface("y", &["172.17.0.9/16"])];
        assert_eq!(pairs(&local, &remote), named(&[]));
    }

    #[test]
    fn one_subnet_over_two_interfaces_is_paired_one_to_one_and_marked() {
        let local = [interface("a0", &["10.9.0.11/24"]), interface("a1", &["10.9.0.12/24"])];
        let remote = [interface("b0", &["10.9.0.21/24"]), interface("b1", &["10.9.0.22/24"])];
        let found = candidates(&local, &remote);
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|candidate| candidate.preference == Preference::SharedSubnet));
        assert_eq!(pairs(&local, &remote), named(&[("a0", "b0"), ("a1", "b1")]));
    }

    #[test]
    fn the_faster_pair_and_the_own_subnet_come_first() {
        let mut fast = interface("fast", &["10.0.1.1/24"]);
        fast.line_rate_bps = Some(10_000_000_000);
        let local = [interface("slow", &["10.0.1.3/24"]), fast, interface("own", &["fd00::1/64"])];
        let remote = [interface("b", &["10.0.1.2/24"]), interface("c", &["fd00::2/64"])];
        assert_eq!(pairs(&local, &remote), named(&[("own", "c"), ("fast", "b")]));
    }

    #[test]
    fn interfaces_that_are_taken_or_no_candidates_are_left_out() {
        let local = [interface("eth1", &["10.0.1.1/24"]), interface("eth2", &["10.0.2.1/24"])];
        let mut remote = [interface("enp1", &["10.0.1.2/24"]), interface("enp2", &["10.0.2.2/24"])];
        assert_eq!(choose(&candidates(&local, &remote), &named(&[("eth1", "enp1")])).len(), 1);
        remote[1].candidate = false;
        assert_eq!(pairs(&local, &remote), named(&[("eth1", "enp1")]));
    }

    #[test]
    fn senseless_prefixes_are_harmless() {
        let local = [interface("a", &["10.0.1.1/99", "fd00::1/255", "0.0.0.0/0"])];
        let remote = [interface("b", &["10.0.1.2/99", "fd00::2/255", "1.0.0.0/0"])];
        let _ = candidates(&local, &remote);
    }
}
