//! Path planning of a client: turns facts about both machines into path plans, without I/O.

use std::net::IpAddr;

use nicstripe_link::{Bond, Interface, LeftOut, ipv4_setting};
use nicstripe_proto::{
    message::{Idle, Ipv4Settings, PeerAddress, PeerInterface},
    pairing::{Candidate, MOST_ADDRESSES, MOST_INTERFACES, Pairing, PathEnd, choose},
    path::{Origin, PathPlan, socket_address},
};

use super::{
    local,
    request::{Family, LinkEnd, LinkRequest},
};
use crate::report::error::Error;

/// Returns the local interfaces that are up, then those that are down and could have a cable, in the
/// form announced to a peer.
pub(crate) fn described(interfaces: &[Interface], excluded: &[String]) -> Vec<PeerInterface> {
    let describe = |interface| describe(interface, interfaces, excluded);
    let (up, down): (Vec<_>, Vec<_>) = interfaces.iter().partition(|interface| interface.up);
    let down = down.into_iter().map(describe);
    up.into_iter()
        .map(describe)
        .chain(down.filter(|interface| interface.idle.is_some()))
        .take(MOST_INTERFACES)
        .collect()
}

fn describe(interface: &Interface, all: &[Interface], excluded: &[String]) -> PeerInterface {
    PeerInterface {
        name: interface.name.to_string(),
        index: interface.index.0,
        addresses: {
            let addresses = interface.addresses.iter().take(MOST_ADDRESSES);
            addresses
                .map(|address| PeerAddress {
                    ip: address.ip,
                    prefix_len: address.prefix_len,
                })
                .collect()
        },
        mtu: interface.mtu,
        line_rate_bps: interface.speed.map(|rate| rate.0),
        egress_limit_bps: interface.egress_limit.map(|rate| rate.0),
        candidate: interface.candidate(all).is_ok() && !local::is_among(interface, excluded),
        mac: interface.mac.map(|mac| mac.0),
        members: interface
            .bond
            .as_ref()
            .map(|bond| bond.members.iter().map(ToString::to_string).collect()),
        streams: interface.bond.as_ref().and_then(Bond::streams),
        settings: settings(interface),
        idle: idle(interface, all).filter(|_| !local::is_among(interface, excluded)),
        card: interface.card(all).map(|card| card.name.to_string()),
    }
}

/// Returns the reason why an interface that could have a cable carries nothing.
fn idle(interface: &Interface, all: &[Interface]) -> Option<Idle> {
    match interface.candidate(all).err()? {
        LeftOut::Down => Some(Idle::Down),
        LeftOut::NoCarrier => Some(Idle::NoCarrier),
        LeftOut::NoAddress | LeftOut::Duplicate(_) => Some(Idle::NoAddress),
        _ => None,
    }
}

fn settings(interface: &Interface) -> Option<Ipv4Settings> {
    let read = |key| ipv4_setting(&interface.name, key);
    Some(Ipv4Settings {
        arp_ignore: read("arp_ignore")?,
        arp_announce: read("arp_announce")?,
        rp_filter: read("rp_filter")?,
    })
}

/// Returns the pairing of both machines' interfaces, restricted to the requested IP version.
pub(crate) fn pairing(
    local: Vec<PeerInterface>,
    remote: Vec<PeerInterface>,
    family: Option<Family>,
) -> Pairing {
    let mut pairing = Pairing::new(local, remote);
    match family {
        Some(Family::V4) => pairing.restrict(IpAddr::is_ipv4),
        Some(Family::V6) => pairing.restrict(IpAddr::is_ipv6),
        None => {}
    }
    pairing
}

/// Plans the links that the user named, in their order, except the one of the first connection.
///
/// A request with both ends is a plan by itself. Otherwise one of the address pairs in `reached`
/// is chosen, to an interface of the peer that no other link uses, if any.
pub(crate) fn named(
    pairing: &Pairing,
    port: u16,
    requests: &[LinkRequest],
    interfaces: &[Interface],
    first: &PathPlan,
    reached: &[Candidate],
) -> Result<Vec<PathPlan>, Error> {
    let ends = |plan: &PathPlan| Some((plan.interface.clone(), plan.peer_interface.clone()?));
    let mut taken: Vec<(String, String)> = ends(first)
        .filter(|_| first.origin == Origin::Named)
        .into_iter()
        .collect();
    let mut plans = Vec::new();
    for request in requests {
        if let Some(mut plan) = direct(request, interfaces, port)? {
            plan.complete(pairing);
            taken.extend(ends(&plan));
            plans.push(plan);
            continue;
        }
        let matching: Vec<Candidate> = reached
            .iter()
            .filter(|candidate| matches_request(request, candidate))
            .cloned()
            .collect();
        // The user's choice counts more than the rate of an interface of the peer.
        let of_free = choose(&matching, &taken);
        let of_all = || {
            let free_here = matching.iter().filter(|candidate| {
                let mut ours = taken.iter().map(|(ours, _)| ours);
                ours.all(|ours| *ours != candidate.local.interface)
            });
            choose(&free_here.cloned().collect::<Vec<_>>(), &[])
        };
        let first = of_free.into_iter().next();
        let Some(candidate) = first.or_else(|| of_all().into_iter().next()) else {
            return Err(no_pair(request, pairing));
        };
        taken.push((
            candidate.local.interface.clone(),
            candidate.remote.interface.clone(),
        ));
        plans.push(PathPlan {
            cap: request.cap,
            ..PathPlan::of(&candidate, port, Origin::Named, pairing)
        });
    }
    Ok(plans)
}

fn no_pair(request: &LinkRequest, pairing: &Pairing) -> Error {
    let list = |side: &[PeerInterface]| {
        let candidates = side
            .iter()
            .filter(|interface| interface.candidate)
            .map(|interface| {
                let addresses: Vec<String> = interface
                    .addresses
                    .iter()
                    .map(|address| format!("{}/{}", address.ip, address.prefix_len))
                    .collect();
                format!("{} ({})", interface.name, addresses.join(", "))
            });
        let text: Vec<String> = candidates.collect();
        if text.is_empty() {
            "none".into()
        } else {
            text.join(", ")
        }
    };
    let why = format!(
        "no peer interface shares a subnet with it or answers at its link-local address; local: {}; peer: {}; name both ends as {}=ADDRESS if they are connected",
        list(pairing.local()),
        list(pairing.remote()),
        request.local
    );
    Error::link(request, why)
}

/// Plans a requested link with both ends given. Needs no information from the peer. Returns `None`
/// if the peer's end is not given as an address.
pub(crate) fn direct(
    request: &LinkRequest,
    interfaces: &[Interface],
    port: u16,
) -> Result<Option<PathPlan>, Error> {
    let local = local_interface(request, interfaces)?;
    let Some(LinkEnd::Address(remote)) = request.remote else {
        return Ok(None);
    };
    let address = match request.local {
        LinkEnd::Address(address) => Some(address),
        LinkEnd::Interface(_) => None,
    };
    Ok(Some(PathPlan {
        local: address,
        cap: request.cap,
        origin: Origin::Named,
        ..PathPlan::new(
            local.name.to_string(),
            socket_address(remote, port, local.index.0),
        )
    }))
}

/// Returns the local interface that a request names, if it is usable.
pub(crate) fn local_interface<'a>(
    request: &LinkRequest,
    interfaces: &'a [Interface],
) -> Result<&'a Interface, Error> {
    let found = interfaces.iter().find(|interface| match &request.local {
        LinkEnd::Interface(name) => interface.is_called(name),
        LinkEnd::Address(address) => local::has_address(interface, *address),
    });
    let instead = || {
        let usable = interfaces
            .iter()
            .filter(|interface| interface.candidate(interfaces).is_ok());
        let names: Vec<String> = usable.map(|interface| interface.name.to_string()).collect();
        if names.is_empty() {
            "no local interface is usable".to_string()
        } else {
            format!("usable now: {}", names.join(", "))
        }
    };
    let why = match found {
        Some(interface) if !interface.up => format!("it is down; {}", instead()),
        Some(interface) if !interface.carrier => {
            format!("it has no carrier (cable unplugged?); {}", instead())
        }
        Some(interface) if interface.addresses.is_empty() => {
            format!("it has no address; {}", instead())
        }
        Some(interface) => return Ok(interface),
        None => format!(
            "no such interface or address; available: {}",
            local::names(interfaces)
        ),
    };
    Err(Error::link(request, why))
}

/// Returns true if an address pair matches the ends that a request names.
pub(crate) fn matches_request(request: &LinkRequest, candidate: &Candidate) -> bool {
    is_end(&request.local, &candidate.local)
        && request
            .remote
            .as_ref()
            .is_none_or(|end| is_end(end, &candidate.remote))
}

fn is_end(requested: &LinkEnd, end: &PathEnd) -> bool {
    match requested {
        LinkEnd::Interface(name) => *name == end.interface,
        LinkEnd::Address(address) => *address == end.address,
    }
}

#[cfg(test)]
mod tests {
    use nicstripe_link::{InterfaceAddress, InterfaceKind};

    use super::*;

    fn with_address(name: &str, index: u32, address: &str) -> PeerInterface {
        let addresses = vec![PeerAddress {
            ip: address.parse().unwrap(),
            prefix_len: 24,
        }];
        PeerInterface {
            addresses,
            line_rate_bps: Some(1_000_000_000),
            ..PeerInterface::new(name, index)
        }
    }

    fn interface_named(name: &str, index: u32) -> Interface {
        on(
            InterfaceKind::Ethernet,
            name,
            index,
            &format!("10.0.{index}.1"),
        )
    }

    fn on(kind: InterfaceKind, name: &str, index: u32, address: &str) -> Interface {
        let mut interface = Interface::new(
            nicstripe_link::InterfaceIndex(index),
            name.parse().unwrap(),
            kind,
        );
        interface
            .addresses
            .push(InterfaceAddress::new(address.parse().unwrap(), 24));
        interface
    }

    /// Plans the named links between two machines with two cables, for a test.
    fn named(requests: &[&str], first: Option<&str>) -> Result<Vec<PathPlan>, Error> {
        let local = vec![
            with_address("eth1", 1, "10.0.1.1"),
            with_address("eth2", 2, "10.0.2.1"),
        ];
        let remote = vec![
            with_address("enp1", 1, "10.0.1.2"),
            with_address("enp2", 2, "10.0.2.2"),
        ];
        let pairing = pairing(local, remote, None);
        let interfaces = [interface_named("eth1", 1), interface_named("eth2", 2)];
        let requests: Vec<LinkRequest> = requests
            .iter()
            .map(|request| request.parse().unwrap())
            .collect();
        let mut contact = direct(&"eth1=10.0.1.2".parse().unwrap(), &interfaces, 7747)
            .unwrap()
            .unwrap();
        contact.peer_interface = first.map(Into::into);
        let reached: Vec<Candidate> = pairing.candidates().cloned().collect();
        super::named(&pairing, 7747, &requests, &interfaces, &contact, &reached)
    }

    fn ends(plans: &[PathPlan]) -> Vec<(&str, Option<&str>)> {
        plans
            .iter()
            .map(|plan| (plan.interface.as_str(), plan.peer_interface.as_deref()))
            .collect()
    }

    #[test]
    fn a_link_named_by_one_end_gets_the_other_from_its_subnet() {
        let plans = named(&["eth2", "eth1"], None).unwrap();
        assert_eq!(
            ends(&plans),
            [("eth2", Some("enp2")), ("eth1", Some("enp1"))]
        );
        assert!(
            plans
                .iter()
                .all(|plan| plan.origin == Origin::Named && plan.local.is_some())
        );
    }

    #[test]
    fn a_link_of_both_ends_is_made_as_it_was_named() {
        let plans = named(&["eth2=10.0.1.2"], None).unwrap();
        assert_eq!(ends(&plans), [("eth2", Some("enp1"))]);
    }

    #[test]
    fn what_the_first_contact_uses_is_not_named_again() {
        assert!(
            matches!(named(&["eth1"], Some("enp1")), Err(Error::Link { link, .. }) if link == "eth1")
        );
    }

    #[test]
    fn a_named_link_that_reaches_nothing_says_what_there_is() {
        let Err(Error::Link { why, .. }) = named(&["eth2=enp1"], None) else {
            panic!("eth2 is not in a subnet with enp1")
        };
        assert!(why.contains("eth2 (10.0.2.1/24)"), "{why}");
        assert!(why.contains("enp2 (10.0.2.2/24)"), "{why}");
    }

    #[test]
    fn a_link_without_carrier_and_one_that_is_down_are_errors() {
        let request: LinkRequest = "eth1".parse().unwrap();
        let (mut unplugged, mut down) = (interface_named("eth1", 1), interface_named("eth1", 1));
        (unplugged.carrier, down.up) = (false, false);
        for (interface, text) in [(unplugged, "carrier"), (down, "down")] {
            assert!(
                matches!(local_interface(&request, &[interface]), Err(Error::Link { why, .. }) if why.contains(text)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_machine_tells_at_most_64_interfaces_and_8_addresses_of_each() {
        let mut many = interface_named("eth1", 1);
        many.addresses = (0..20)
            .map(|host| InterfaceAddress::new([10, 0, 0, host].into(), 24))
            .collect();
        let shown = described(&vec![many; 100], &["eth1".to_owned()]);
        assert_eq!(shown.len(), MOST_INTERFACES);
        assert_eq!(shown[0].addresses.len(), MOST_ADDRESSES);
        assert!(!shown[0].candidate);
    }
}
