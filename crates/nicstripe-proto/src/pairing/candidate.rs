//! Candidates: address pairs that may connect two machines, derived from the machines' lists of
//! interfaces.

use std::{cmp::Reverse, collections::BTreeSet, fmt, net::IpAddr};

use crate::wire::message::{PeerAddress, PeerInterface};

/// Class of a candidate by its addresses, most robust class first (measured; `docs/DESIGN.md`,
/// section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// IPv4 addresses in a subnet that has only one interface on each machine.
    OwnSubnet,
    /// IPv6 link-local addresses. They must be probed, because they do not reveal which interfaces
    /// a cable joins.
    LinkLocal,
    /// IPv6 addresses with a prefix that only one interface on each machine has.
    OwnPrefix,
    /// Addresses in a subnet of several interfaces. Usable only if connections arrive at the
    /// intended interface.
    SharedSubnet,
}

impl Preference {
    pub(super) const COUNT: usize = Self::SharedSubnet as usize + 1;
}

/// One end of a candidate: an interface and one of its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathEnd {
    /// Name of the interface.
    pub interface: String,
    /// Index of the interface on its machine.
    pub index: u32,
    /// IP address of the interface.
    pub address: IpAddr,
    /// Rate of the interface in bit/s, by line rate or traffic shaper; `None` if unknown.
    pub rate_bps: Option<u64>,
    /// Name of the interface whose cable this one shares; `None` for its own cable.
    pub card: Option<String>,
}

impl PathEnd {
    /// Returns the name of the interface that has the cable. Ends with the same name share one
    /// cable.
    pub(super) fn cable(&self) -> &str {
        self.card.as_deref().unwrap_or(&self.interface)
    }
}

/// End of a candidate: at this machine or at the peer.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Local,
    Remote,
}

impl End {
    pub(super) const BOTH: [Self; 2] = [Self::Local, Self::Remote];

    pub(super) fn of(self, candidate: &Candidate) -> &PathEnd {
        match self {
            Self::Local => &candidate.local,
            Self::Remote => &candidate.remote,
        }
    }
}

/// Address pair that may connect two machines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Interface and address on the local machine.
    pub local: PathEnd,
    /// Interface and address on the peer.
    pub remote: PathEnd,
    /// Class of the candidate, by its addresses.
    pub preference: Preference,
    /// Rate of the slower end in bit/s, by line rate or traffic shaper; `None` if unknown. The line
    /// rate of one end suffices, because a cable has the same rate at both ends.
    pub rate_bps: Option<u64>,
}

impl Candidate {
    /// Returns the candidate's ID, which is unique among the candidates of two peers.
    pub fn id(&self) -> CandidateId {
        CandidateId {
            local: (self.local.index, self.local.address),
            remote: (self.remote.index, self.remote.address),
        }
    }

    /// Returns true if both candidates use the same cable of this machine or of the peer.
    pub(super) fn shares_an_end(&self, other: &Self) -> bool {
        self.local.cable() == other.local.cable() || self.remote.cable() == other.remote.cable()
    }
}

/// ID of a [`Candidate`]: interface index and address of both ends.
///
/// The ID stays the same if rates or other interfaces change, or if an interface returns with the
/// same index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId {
    local: (u32, IpAddr),
    remote: (u32, IpAddr),
}

/// Formats address and interface index of both ends, as in `fe80::1%3 → fe80::2%5`.
impl fmt::Display for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local, remote } = self;
        write!(f, "{}%{} → {}%{}", local.1, local.0, remote.1, remote.0)
    }
}

/// Returns the candidates between enabled interfaces, best first: pairs of addresses in one subnet,
/// and pairs of link-local addresses.
///
/// Within a class, the higher known rate comes first. Excludes addresses that both machines have,
/// such as the address of a container bridge. IDs are unique, even if the peer announces an
/// interface twice.
pub(super) fn candidates(local: &[PeerInterface], remote: &[PeerInterface]) -> Vec<Candidate> {
    let mut found = Vec::new();
    for ours in local.iter().filter(|interface| interface.candidate) {
        for address in ours
            .addresses
            .iter()
            .filter(|address| !has_address(remote, address.ip))
        {
            let preference = preference(address, local, remote);
            for theirs in remote.iter().filter(|interface| interface.candidate) {
                let reached = theirs
                    .addresses
                    .iter()
                    .filter(|their| in_one_subnet(address, their) && !has_address(local, their.ip));
                found
                    .extend(reached.map(|their| {
                        candidate((ours, address.ip), (theirs, their.ip), preference)
                    }));
            }
        }
        found.extend(
            remote
                .iter()
                .filter(|interface| interface.candidate)
                .filter_map(|theirs| link_local(ours, theirs)),
        );
    }
    found.sort_by_key(|candidate| (candidate.preference, Reverse(candidate.rate_bps)));
    let mut seen = BTreeSet::new();
    found.retain(|candidate| seen.insert(candidate.id()));
    found
}

/// Returns the candidate of a connection that was `meant` for another interface of the peer, but
/// arrives at the interface of this index. Its remote address belongs to another interface: a machine
/// answers ARP requests for each of its addresses at any interface.
///
/// Returns `None` if one of the two interfaces may not be used, or if an end no longer has its
/// address.
pub(super) fn diverted(
    meant: &Candidate,
    arrived: u32,
    local: &[PeerInterface],
    remote: &[PeerInterface],
) -> Option<Candidate> {
    let mut ours = local.iter();
    let ours = ours.find(|own| own.candidate && own.index == meant.local.index)?;
    // One that was idle when the peer reported it is not any more.
    let mut theirs = remote.iter();
    let is_usable = |own: &PeerInterface| own.candidate || own.idle.is_some();
    let theirs = theirs.find(|own| is_usable(own) && own.index == arrived)?;
    let (our_address, their_address) = (meant.local.address, meant.remote.address);
    let has_both =
        has_address(std::slice::from_ref(ours), our_address) && has_address(remote, their_address);
    has_both.then(|| {
        candidate(
            (ours, our_address),
            (theirs, their_address),
            meant.preference,
        )
    })
}

/// Returns the class of a candidate with the local address `address`, based on the other interfaces
/// in the subnet.
fn preference(
    address: &PeerAddress,
    local: &[PeerInterface],
    remote: &[PeerInterface],
) -> Preference {
    let in_subnet = |interface: &&PeerInterface| {
        interface
            .addresses
            .iter()
            .any(|other| in_one_subnet(other, address))
    };
    let is_shared = |side: &[PeerInterface]| side.iter().filter(in_subnet).nth(1).is_some();
    match address.ip {
        _ if is_shared(local) || is_shared(remote) => Preference::SharedSubnet,
        IpAddr::V4(_) => Preference::OwnSubnet,
        IpAddr::V6(_) => Preference::OwnPrefix,
    }
}

/// Returns the candidate of the first link-local addresses of two interfaces; `None` if an
/// interface has none. Also returns `None` if the addresses are equal, because packets would not
/// leave the machine.
fn link_local(ours: &PeerInterface, theirs: &PeerInterface) -> Option<Candidate> {
    let first = |interface: &PeerInterface| {
        let mut addresses = interface.addresses.iter().map(|address| address.ip);
        addresses.find(|ip| ip.is_ipv6() && is_link_local(*ip))
    };
    let (our_address, their_address) = (first(ours)?, first(theirs)?);
    (our_address != their_address).then(|| {
        candidate(
            (ours, our_address),
            (theirs, their_address),
            Preference::LinkLocal,
        )
    })
}

fn candidate(
    ours: (&PeerInterface, IpAddr),
    theirs: (&PeerInterface, IpAddr),
    preference: Preference,
) -> Candidate {
    let end = |(interface, address): (&PeerInterface, IpAddr)| PathEnd {
        interface: interface.name.clone(),
        index: interface.index,
        address,
        rate_bps: interface
            .line_rate_bps
            .into_iter()
            .chain(interface.egress_limit_bps)
            .min(),
        card: interface.card.clone(),
    };
    let (local, remote) = (end(ours), end(theirs));
    Candidate {
        rate_bps: local.rate_bps.into_iter().chain(remote.rate_bps).min(),
        local,
        remote,
        preference,
    }
}

fn has_address(interfaces: &[PeerInterface], ip: IpAddr) -> bool {
    interfaces
        .iter()
        .flat_map(|interface| &interface.addresses)
        .any(|address| address.ip == ip)
}

/// Returns true if both addresses are in the same subnet and have the same prefix length. Returns
/// false for link-local addresses, which do not reveal which interfaces a cable joins.
fn in_one_subnet(a: &PeerAddress, b: &PeerAddress) -> bool {
    a.ip.is_ipv4() == b.ip.is_ipv4()
        && a.prefix_len == b.prefix_len
        && !a.ip.is_loopback()
        && !is_link_local(a.ip)
        && prefix(a) == prefix(b)
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Returns the prefix bits of an address, left-aligned. Returns the whole address if an invalid
/// announcement has a longer prefix.
fn prefix(address: &PeerAddress) -> u128 {
    let bits = match address.ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)) << 96,
        IpAddr::V6(ip) => ip.into(),
    };
    let host_bits = 128_u32.saturating_sub(address.prefix_len.into());
    bits & u128::MAX.checked_shl(host_bits).unwrap_or(0)
}
