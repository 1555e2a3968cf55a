//! Which paths a client makes: facts of the two machines in, plans out. Pure.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use nicstripe_link::{BondStreams, Interface, InterfaceKind, Sysctls, streams_for};
use nicstripe_proto::{
    BitRate,
    message::{Ipv4Settings, PeerAddress, PeerInterface},
    pairing::{Candidate, MOST_ADDRESSES, MOST_INTERFACES, Pairing, choose},
};

use crate::{
    error::Error,
    link::{Family, LinkEnd, LinkRequest},
    session::{Capacity, PathPlan},
};

/// What this machine tells a peer of its interfaces.
pub(crate) fn described(interfaces: &[Interface], excluded: &[String]) -> Vec<PeerInterface> {
    let usable = interfaces.iter().filter(|interface| interface.up);
    usable.map(|interface| describe(interface, interfaces, excluded)).take(MOST_INTERFACES).collect()
}

fn describe(interface: &Interface, all: &[Interface], excluded: &[String]) -> PeerInterface {
    let is_excluded = excluded.iter().any(|name| interface.is_called(name));
    PeerInterface {
        name: interface.name.to_string(),
        index: interface.index.0,
        addresses: {
            let addresses = interface.addresses.iter().take(MOST_ADDRESSES);
            addresses.map(|address| PeerAddress { ip: address.ip, prefix_len: address.prefix_len }).collect()
        },
        mtu: interface.mtu,
        line_rate_bps: interface.speed.map(|rate| rate.0),
        egress_limit_bps: interface.egress_limit.map(|rate| rate.0),
        candidate: interface.candidate(all).is_ok() && !is_excluded,
        mac: interface.mac.map(|mac| mac.0),
        members: interface.bond.as_ref().map(|bond| bond.members.iter().map(ToString::to_string).collect()),
        streams: interface.bond.as_ref().and_then(|bond| match streams_for(bond) {
            BondStreams::Enough(streams) if streams > 1 => Some(streams),
            _ => None,
        }),
        settings: settings(interface),
    }
}

fn settings(interface: &Interface) -> Option<Ipv4Settings> {
    let found = Sysctls::read(&interface.name);
    Some(Ipv4Settings {
        arp_ignore: found.arp_ignore.effective()?,
        arp_announce: found.arp_announce.effective()?,
        rp_filter: found.rp_filter.effective()?,
    })
}

/// What is known when paths are planned.
pub(crate) struct Facts<'a> {
    pub(crate) local: &'a [PeerInterface],
    pub(crate) remote: &'a [PeerInterface],
    pub(crate) port: u16,
    pub(crate) family: Option<Family>,
}

impl Facts<'_> {
    /// Returns the paths that were asked for by name, in their order, beside the first contact where that was one of them.
    ///
    /// Where both ends are given, that is the plan; else each of the peer's interfaces is taken once, by one of the candidates that were
    /// `reached`.
    pub(crate) fn named(
        &self,
        requests: &[LinkRequest],
        here: &[Interface],
        first: &PathPlan,
        reached: &[Candidate],
    ) -> Result<Vec<PathPlan>, Error> {
        let ends = |plan: &PathPlan| Some((plan.interface.clone(), plan.peer_interface.clone()?));
        let mut taken: Vec<(String, String)> = ends(first).filter(|_| first.named).into_iter().collect();
        let mut plans = Vec::new();
        for request in requests {
            if let Some(mut plan) = direct(request, here, self.port)? {
                self.complete(&mut plan);
                taken.extend(ends(&plan));
                plans.push(plan);
                continue;
            }
            let wanted = |candidate: &&Candidate| {
                is_end(&request.local, &candidate.local.interface, candidate.local.address)
                    && request.remote.as_ref().is_none_or(|end| is_end(end, &candidate.remote.interface, candidate.remote.address))
            };
            let matching: Vec<Candidate> = reached.iter().filter(wanted).cloned().collect();
            let Some(candidate) = choose(&matching, &taken).into_iter().next() else {
                return Err(self.no_pair(request));
            };
            taken.push((candidate.local.interface.clone(), candidate.remote.interface.clone()));
            plans.push(PathPlan { cap: request.cap, ..self.plan_of(&candidate, true) });
        }
        Ok(plans)
    }

    /// Completes a plan that was made before the peer's interfaces were known.
    pub(crate) fn complete(&self, plan: &mut PathPlan) {
        let remote = plan.remote.ip();
        let theirs = self.remote.iter().find(|interface| interface.addresses.iter().any(|address| address.ip == remote));
        let theirs = theirs.or_else(|| self.remote.iter().find(|interface| remote.is_loopback() && is_loopback(interface)));
        let ours = self.local.iter().find(|interface| interface.name == plan.interface);
        if let Some(theirs) = theirs {
            plan.peer_interface = Some(theirs.name.clone());
            plan.capacity = ours.map_or_else(Capacity::default, |ours| capacity(ours, theirs, remote.is_ipv6()));
        }
    }

    /// Returns the ways to the peer that may work, best first.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        self.pairing().candidates().cloned().collect()
    }

    /// Returns the two machines' interfaces, to be paired.
    pub(crate) fn pairing(&self) -> Pairing {
        let mut pairing = Pairing::new(self.local.to_vec(), self.remote.to_vec());
        match self.family {
            Some(Family::V4) => pairing.restrict(IpAddr::is_ipv4),
            Some(Family::V6) => pairing.restrict(IpAddr::is_ipv6),
            None => {}
        }
        pairing
    }

    pub(crate) fn plan_of(&self, candidate: &Candidate, named: bool) -> PathPlan {
        let mut plan = PathPlan {
            interface: candidate.local.interface.clone(),
            local: Some(candidate.local.address),
            remote: socket_address(candidate.remote.address, self.port, candidate.local.index),
            peer_interface: Some(candidate.remote.interface.clone()),
            capacity: Capacity::default(),
            cap: None,
            named,
            contact_only: false,
            no_data: false,
        };
        self.complete(&mut plan);
        plan
    }

    fn no_pair(&self, request: &LinkRequest) -> Error {
        let list = |side: &[PeerInterface]| {
            let candidates = side.iter().filter(|interface| interface.candidate).map(|interface| {
                let addresses: Vec<String> =
                    interface.addresses.iter().map(|address| format!("{}/{}", address.ip, address.prefix_len)).collect();
                format!("{} ({})", interface.name, addresses.join(", "))
            });
            let text: Vec<String> = candidates.collect();
            if text.is_empty() { "none".into() } else { text.join(", ") }
        };
        let why = format!(
            "no interface of the peer is in one subnet with it, and none answers at its link-local address; here: {}; at the peer: {}; name both ends as {}=ADDRESS if they reach each other anyway",
            list(self.local),
            list(self.remote),
            request.local
        );
        Error::Link { link: request.to_string(), why }
    }
}

/// Returns the plan of a link both of whose ends are given, which needs nothing of the peer.
pub(crate) fn direct(request: &LinkRequest, interfaces: &[Interface], port: u16) -> Result<Option<PathPlan>, Error> {
    let local = local_interface(request, interfaces)?;
    let Some(LinkEnd::Address(remote)) = request.remote else { return Ok(None) };
    let address = match request.local {
        LinkEnd::Address(address) => Some(address),
        LinkEnd::Interface(_) => None,
    };
    Ok(Some(PathPlan {
        interface: local.name.to_string(),
        local: address,
        remote: socket_address(remote, port, local.index.0),
        peer_interface: None,
        capacity: Capacity::default(),
        cap: request.cap,
        named: true,
        contact_only: false,
        no_data: false,
    }))
}

/// Finds the interface that a request names here.
pub(crate) fn local_interface<'a>(request: &LinkRequest, interfaces: &'a [Interface]) -> Result<&'a Interface, Error> {
    let found = interfaces.iter().find(|interface| match &request.local {
        LinkEnd::Interface(name) => interface.is_called(name),
        // All of 127.0.0.0/8 is on the loopback interface without being listed.
        LinkEnd::Address(address) => {
            interface.has_address(*address) || (address.is_loopback() && interface.kind == InterfaceKind::Loopback)
        }
    });
    let instead = || {
        let usable = interfaces.iter().filter(|interface| interface.candidate(interfaces).is_ok());
        let names: Vec<String> = usable.map(|interface| interface.name.to_string()).collect();
        if names.is_empty() { "no interface here can be used now".to_string() } else { format!("usable now: {}", names.join(", ")) }
    };
    let why = match found {
        Some(interface) if !interface.up => format!("it is down; {}", instead()),
        Some(interface) if !interface.carrier => format!("it has no carrier: is the cable plugged in? {}", instead()),
        Some(interface) if interface.addresses.is_empty() => format!("it has no address; {}", instead()),
        Some(interface) => return Ok(interface),
        None => {
            let names: Vec<String> = interfaces.iter().map(|interface| interface.name.to_string()).collect();
            format!("there is no such interface or address here; there are {}", names.join(", "))
        }
    };
    Err(Error::Link { link: request.to_string(), why })
}

/// Returns most goodput over a link: the line rate of its slower end, what a shaper at the sending end lets out, less all headers.
///
/// Per packet of `mtu` bytes, IP (20 or 40) and TCP with timestamps (32) take their share of the MTU, and Ethernet 38 bytes beside it (14 header, 4
/// checksum, 8 preamble, 12 gap), of which a shaper sees the 14. 1 GbE: 10⁹ × 1448 / 1538 = 941.5 Mbit/s.
fn capacity(ours: &PeerInterface, theirs: &PeerInterface, ipv6: bool) -> Capacity {
    let mtu = u64::from(ours.mtu.min(theirs.mtu).min(65_536));
    let payload = mtu.saturating_sub(if ipv6 { 72 } else { 52 });
    let share = |rate: u64, overhead: u64| (u128::from(rate) * u128::from(payload) / u128::from(mtu + overhead)) as u64;
    let line = ours.line_rate_bps.into_iter().chain(theirs.line_rate_bps).min().map(|rate| share(rate, 38));
    let from = |sender: &PeerInterface| {
        let shaped = sender.egress_limit_bps.map(|rate| share(rate, 14));
        line.into_iter().chain(shaped).min().map(BitRate)
    };
    Capacity { outgoing: from(ours), incoming: from(theirs) }
}

fn is_end(end: &LinkEnd, interface: &str, address: IpAddr) -> bool {
    match end {
        LinkEnd::Interface(name) => name == interface,
        LinkEnd::Address(wanted) => *wanted == address,
    }
}

fn is_loopback(interface: &PeerInterface) -> bool {
    interface.addresses.iter().any(|address| address.ip.is_loopback())
}

/// A link-local address means something only with the interface that it is on.
pub(crate) fn socket_address(ip: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => SocketAddrV6::new(ip, port, 0, interface).into(),
        ip => (ip, port).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(mtu: u32, line: Option<u64>, limit: Option<u64>) -> PeerInterface {
        PeerInterface {
            name: "x".into(),
            index: 1,
            addresses: Vec::new(),
            mtu,
            line_rate_bps: line,
            egress_limit_bps: limit,
            candidate: true,
            mac: None,
            members: None,
            streams: None,
            settings: None,
        }
    }

    #[test]
    fn a_gigabit_cable_carries_941_5_mbit() {
        let end = interface(1500, Some(1_000_000_000), None);
        let capacity = capacity(&end, &end, false);
        assert_eq!(capacity.outgoing, Some(BitRate(941_482_444)));
        assert_eq!(capacity.incoming, capacity.outgoing);
    }

    #[test]
    fn a_shaper_limits_the_direction_in_which_it_sends() {
        let (ours, theirs) = (interface(1500, None, Some(984_396_000)), interface(9000, None, None));
        let capacity = capacity(&ours, &theirs, false);
        assert_eq!(capacity.outgoing, Some(BitRate(941_483_096)));
        assert_eq!(capacity.incoming, None);
    }

    #[test]
    fn ipv6_takes_twenty_bytes_more() {
        let end = interface(1500, Some(1_000_000_000), None);
        assert_eq!(capacity(&end, &end, true).outgoing, Some(BitRate(928_478_543)));
    }
}
