//! Candidates: the ways to a peer that may work, as far as two lists of interfaces tell.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::message::{PeerAddress, PeerInterface};

/// Why a candidate is good, best first. The order is that in which less can go wrong (measured; `docs/DESIGN.md`, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// IPv4 in a subnet that only one interface on either side is in.
    OwnSubnet,
    /// IPv6 link-local on both ends. Whether a cable joins the two interfaces is not in the addresses: it must be probed.
    LinkLocal,
    /// IPv6 with a prefix that only one interface on either side is in.
    OwnPrefix,
    /// Several interfaces share the subnet: clean only if what arrives proves it.
    SharedSubnet,
}

impl Preference {
    /// How many there are.
    pub(super) const COUNT: usize = Self::SharedSubnet as usize + 1;
}

/// One end of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathEnd {
    /// The interface's name.
    pub interface: String,
    /// The interface's index.
    pub index: u32,
    /// The address on it.
    pub address: IpAddr,
}

/// A way to the peer that may work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Our end.
    pub local: PathEnd,
    /// The peer's end.
    pub remote: PathEnd,
    /// Why it may work.
    pub preference: Preference,
    /// What the slower end lets through in bit/s, its line rate or its shaper's, where one is known.
    ///
    /// A cable has one rate at both ends, so that an end that knows its line rate speaks for one that does not.
    pub rate_bps: Option<u64>,
}

impl Candidate {
    /// Returns what tells it from all others between the same peers.
    pub fn id(&self) -> CandidateId {
        CandidateId { local: (self.local.index, self.local.address), remote: (self.remote.index, self.remote.address) }
    }

    /// Whether both use an interface of ours or both one of the peer's.
    pub(super) fn shares_an_end(&self, other: &Self) -> bool {
        self.local.interface == other.local.interface || self.remote.interface == other.remote.interface
    }
}

/// Identity of a [`Candidate`]: the interface index and the address of both ends.
///
/// It outlives changes of a rate and of what other interfaces have, and is the same after an interface went and came back with its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId {
    local: (u32, IpAddr),
    remote: (u32, IpAddr),
}

impl CandidateId {
    /// Returns the indices of our interface and of the peer's.
    pub fn indices(self) -> [u32; 2] {
        [self.local.0, self.remote.0]
    }
}

/// Address and interface index of both ends: `fe80::1%3 → fe80::2%5`.
impl fmt::Display for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local, remote } = self;
        write!(f, "{}%{} → {}%{}", local.1, local.0, remote.1, remote.0)
    }
}

/// Returns every pair of addresses in one subnet, and of link-local addresses, on interfaces that both sides would use; best first.
///
/// Within a preference, the higher known rate comes first. An address that both sides have (a bridge of the same container system on each,
/// say) is nobody's way to the other. No two candidates have the same identity, whatever the peer says it has.
pub(super) fn candidates(local: &[PeerInterface], remote: &[PeerInterface]) -> Vec<Candidate> {
    let mut found = Vec::new();
    for ours in local.iter().filter(|interface| interface.candidate) {
        for address in ours.addresses.iter().filter(|address| !has_address(remote, address.ip)) {
            let preference = preference(address, local, remote);
            for theirs in remote.iter().filter(|interface| interface.candidate) {
                let reached = theirs.addresses.iter().filter(|their| in_one_subnet(address, their) && !has_address(local, their.ip));
                found.extend(reached.map(|their| candidate((ours, address.ip), (theirs, their.ip), preference)));
            }
        }
        found.extend(remote.iter().filter(|interface| interface.candidate).filter_map(|theirs| link_local(ours, theirs)));
    }
    found.sort_by_key(|candidate| (candidate.preference, Reverse(candidate.rate_bps)));
    let mut seen = BTreeSet::new();
    found.retain(|candidate| seen.insert(candidate.id()));
    found
}

/// Returns how good `address` is for reaching the other interfaces of its subnet.
fn preference(address: &PeerAddress, local: &[PeerInterface], remote: &[PeerInterface]) -> Preference {
    let in_subnet = |interface: &&PeerInterface| interface.addresses.iter().any(|other| in_one_subnet(other, address));
    let is_shared = |side: &[PeerInterface]| side.iter().filter(in_subnet).nth(1).is_some();
    match address.ip {
        _ if is_shared(local) || is_shared(remote) => Preference::SharedSubnet,
        IpAddr::V4(_) => Preference::OwnSubnet,
        IpAddr::V6(_) => Preference::OwnPrefix,
    }
}

/// Pairs the first link-local address of each; none if it is the same one, which would be reached without leaving the machine.
fn link_local(ours: &PeerInterface, theirs: &PeerInterface) -> Option<Candidate> {
    let first = |interface: &PeerInterface| {
        let is_link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        interface.addresses.iter().map(|address| address.ip).find(is_link_local)
    };
    let (our_address, their_address) = (first(ours)?, first(theirs)?);
    (our_address != their_address).then(|| candidate((ours, our_address), (theirs, their_address), Preference::LinkLocal))
}

fn candidate(ours: (&PeerInterface, IpAddr), theirs: (&PeerInterface, IpAddr), preference: Preference) -> Candidate {
    let end =
        |(interface, address): (&PeerInterface, IpAddr)| PathEnd { interface: interface.name.clone(), index: interface.index, address };
    let limits = |interface: &PeerInterface| interface.line_rate_bps.into_iter().chain(interface.egress_limit_bps);
    Candidate { local: end(ours), remote: end(theirs), preference, rate_bps: limits(ours.0).chain(limits(theirs.0)).min() }
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
