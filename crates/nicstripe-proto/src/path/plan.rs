//! Plan of a path: its two ends, why it exists, and what bounds its rate.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::{
    pairing::{Candidate, Pairing},
    theory::{IpVersion, Theory},
    units::BitRate,
    wire::message::PeerInterface,
};

/// Plan of a path, made by the client or learned by the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPlan {
    /// Name of the local interface.
    pub interface: String,
    /// Local address to bind to; `None` for the kernel's choice.
    pub local: Option<IpAddr>,
    /// Address and port of the peer.
    pub remote: SocketAddr,
    /// Name of the peer's interface that the path must reach; `None` if unknown.
    pub peer_interface: Option<String>,
    /// Address pair of the path; `None` if the interface at the peer is unknown, for example behind
    /// NAT.
    pub pair: Option<Candidate>,
    /// Reason why the path exists.
    pub origin: Origin,
    /// Bound of the goodput of the path, if known.
    pub capacity: Capacities,
    /// Rate limit that the user set for this path.
    pub cap: Option<BitRate>,
}

/// Reason why a path exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// First connection of the session, which is a link like others.
    Contact,
    /// First connection of the session, which only serves to reach the peer. It is retired once
    /// another path is connected.
    ContactOnly,
    /// Like [`ContactOnly`](Self::ContactOnly), and without data, because the user excluded the
    /// interface or named other links.
    Excluded,
    /// The user named the link, so that a failure to connect ends the session.
    Named,
    /// The planner chose the address pair.
    Planned,
}

impl Origin {
    /// Returns true for a first connection that is no link.
    pub fn is_contact_only(self) -> bool {
        matches!(self, Self::ContactOnly | Self::Excluded)
    }
}

impl PathPlan {
    /// Returns the plan of a path from a local interface to the peer's address, without other
    /// constraints or known properties.
    pub fn new(interface: String, remote: SocketAddr) -> Self {
        Self {
            interface,
            local: None,
            remote,
            peer_interface: None,
            pair: None,
            origin: Origin::Contact,
            capacity: Capacities::default(),
            cap: None,
        }
    }

    /// Returns the plan of a path over an address pair, to this port of the peer.
    pub fn of(candidate: &Candidate, port: u16, origin: Origin, pairing: &Pairing) -> Self {
        let (ours, theirs) = (&candidate.local, &candidate.remote);
        let remote = socket_address(theirs.address, port, ours.index);
        let mut plan = Self {
            local: Some(ours.address),
            origin,
            ..Self::new(ours.interface.clone(), remote)
        };
        plan.complete(pairing);
        // The address may belong to another interface than the one at which it answers.
        plan.peer_interface = Some(theirs.interface.clone());
        plan.pair = Some(candidate.clone());
        plan
    }

    /// Adds the peer's interface, the address pair and the capacity, if the lists of
    /// interfaces tell.
    pub fn complete(&mut self, pairing: &Pairing) {
        let remote = self.remote.ip();
        let has = |interface: &&PeerInterface| {
            let mut addresses = interface.addresses.iter();
            addresses.any(|address| address.ip == remote)
        };
        let is_loopback = |interface: &&PeerInterface| {
            let mut addresses = interface.addresses.iter();
            addresses.any(|address| address.ip.is_loopback())
        };
        let mut theirs = pairing.remote().iter();
        let theirs = theirs.find(has).or_else(|| {
            let mut all = pairing.remote().iter();
            all.find(is_loopback).filter(|_| remote.is_loopback())
        });
        let mut ours = pairing.local().iter();
        let ours = ours.find(|interface| interface.name == self.interface);
        if let Some(theirs) = theirs {
            self.peer_interface = Some(theirs.name.clone());
            self.capacity = ours.map_or_else(Capacities::default, |ours| {
                Capacities::between(ours, theirs, remote.is_ipv6())
            });
        }
        let is_own = |candidate: &&Candidate| {
            candidate.local.interface == self.interface && candidate.remote.address == remote
        };
        self.pair = pairing.candidates().find(is_own).cloned();
    }

    /// Returns the address pair, if the path is one of the links between which the planner chooses.
    pub fn candidate(&self) -> Option<&Candidate> {
        match self.origin {
            Origin::Contact | Origin::Planned => self.pair.as_ref(),
            Origin::ContactOnly | Origin::Excluded | Origin::Named => None,
        }
    }

    pub(crate) fn is_one_link(&self, other: &Self) -> bool {
        self.interface == other.interface && self.remote.ip() == other.remote.ip()
    }
}

/// Theoretical goodput of a link per direction; `None` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Goodput towards the peer.
    pub outgoing: Option<BitRate>,
    /// Goodput from the peer.
    pub incoming: Option<BitRate>,
}

/// Bound of the goodput of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacities {
    /// Rates before header overhead.
    pub rates: LinkRates,
    /// The smaller MTU of both interfaces in bytes.
    pub mtu: u32,
    /// True for IPv6 addresses.
    pub is_ipv6: bool,
}

/// Rates of a link before header overhead; `None` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkRates {
    /// Line rate of the slower interface.
    pub line: Option<BitRate>,
    /// Rates of the local and the remote traffic shaper; see [`Theory::goodput_of_shaper`] for the
    /// header bytes that a shaper counts.
    pub shapers: [Option<BitRate>; 2],
}

impl Capacities {
    /// Returns what bounds the goodput between two interfaces.
    fn between(ours: &PeerInterface, theirs: &PeerInterface, is_ipv6: bool) -> Self {
        let rate = |bps: Option<u64>| bps.map(BitRate);
        let lines = ours.line_rate_bps.into_iter().chain(theirs.line_rate_bps);
        Self {
            rates: LinkRates {
                line: rate(lines.min()),
                shapers: [rate(ours.egress_limit_bps), rate(theirs.egress_limit_bps)],
            },
            mtu: ours.mtu.min(theirs.mtu),
            is_ipv6,
        }
    }

    /// Returns the theoretical goodput of the link per direction, after all headers: that of its
    /// slower end, or of a shaper at the sending end. If `path_mtu` is known, the path drops larger
    /// packets.
    ///
    /// See [`Theory`]; a shaper counts fewer bytes per packet than the wire carries. Example: 941.5
    /// Mbit/s for 1 GbE.
    pub fn through(&self, path_mtu: Option<u32>) -> Capacity {
        // The length field limits a packet, whatever MTU the interface reports (lo: 65,536).
        let mtu = path_mtu.unwrap_or(u32::MAX).min(self.mtu).min(65_536);
        let of = |rate: BitRate| Theory {
            ip: if self.is_ipv6 {
                IpVersion::V6
            } else {
                IpVersion::V4
            },
            ..Theory::usual(rate, mtu)
        };
        let line = self.rates.line.map(|rate| of(rate).goodput());
        let behind = |shaper: Option<BitRate>| {
            line.into_iter()
                .chain(shaper.map(|rate| of(rate).goodput_of_shaper()))
                .min()
        };
        let [outgoing, incoming] = self.rates.shapers.map(behind);
        Capacity { outgoing, incoming }
    }
}

/// Returns the socket address. `interface` is the interface index, used as scope of a link-local
/// address.
pub fn socket_address(ip: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, port, 0, interface).into()
        }
        ip => (ip, port).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::PeerAddress;

    fn interface(mtu: u32, line: Option<u64>, limit: Option<u64>) -> PeerInterface {
        PeerInterface {
            mtu,
            line_rate_bps: line,
            egress_limit_bps: limit,
            ..PeerInterface::new("x", 1)
        }
    }

    #[test]
    fn a_peer_whose_loopback_is_spoken_to_is_known_by_its_loopback_interface() {
        let lo = || PeerInterface {
            candidate: false,
            addresses: vec![PeerAddress {
                ip: [127, 0, 0, 1].into(),
                prefix_len: 8,
            }],
            ..PeerInterface::new("lo", 1)
        };
        let mut plan = PathPlan::new("lo".into(), ([127, 0, 0, 3], 7747).into());
        plan.complete(&Pairing::new(vec![lo()], vec![lo()]));
        assert_eq!(plan.peer_interface.as_deref(), Some("lo"));
    }

    #[test]
    fn a_link_local_address_goes_by_its_interface_and_no_other_does() {
        for (address, scope) in [("fe80::1", 3), ("fd00::1", 0)] {
            let address = socket_address(address.parse().unwrap(), 7, 3);
            assert!(
                matches!(address, SocketAddr::V6(address) if address.scope_id() == scope),
                "{address}"
            );
        }
    }

    #[test]
    fn a_gigabit_cable_carries_941_5_mbit() {
        let end = interface(1500, Some(1_000_000_000), None);
        let capacity = Capacities::between(&end, &end, false).through(None);
        assert_eq!(capacity.outgoing, Some(BitRate(941_482_444)));
        assert_eq!(capacity.incoming, capacity.outgoing);
    }

    #[test]
    fn a_shaper_limits_the_direction_in_which_it_sends() {
        let (ours, theirs) = (
            interface(1500, None, Some(984_396_000)),
            interface(9000, None, None),
        );
        let capacity = Capacities::between(&ours, &theirs, false).through(None);
        assert_eq!(capacity.outgoing, Some(BitRate(941_483_096)));
        assert_eq!(capacity.incoming, None);
    }

    #[test]
    fn where_jumbo_frames_vanish_a_link_is_expected_to_carry_what_small_ones_do() {
        let of = |mtu| {
            let end = interface(mtu, Some(1_000_000_000), None);
            Capacities::between(&end, &end, false)
        };
        let jumbo = of(9000);
        assert_eq!(jumbo.through(None).outgoing, Some(BitRate(990_042_044)));
        assert_eq!(jumbo.through(Some(1500)), of(1500).through(None));
    }
}
