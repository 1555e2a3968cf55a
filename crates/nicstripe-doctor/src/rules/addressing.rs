//! Rules about addresses, and which cable packets take.

use std::collections::BTreeMap;

use nicstripe_bench::listed;
use nicstripe_link::facts::InterfaceFacts;

use crate::{
    case::{Case, LinkFacts, LinkState, Side},
    command::{Line, quoted},
    finding::{Finding, Severity},
    rule::{Needs, Rule, Seen, each},
};

pub(super) const ONE_SUBNET: Rule = Rule {
    id: 1,
    needs: Needs::Machine,
    silences: &[2],
    judge: |case| {
        let of = |side| {
            let interfaces = case.machine(side).map(|machine| &*machine.facts.interfaces);
            let groups = subnets(interfaces.unwrap_or_default());
            let shared = groups.into_values().filter(|group| group.len() > 1);
            shared
                .map(move |group| one_subnet(case, side, &group))
                .collect::<Vec<_>>()
        };
        let found: Vec<_> = [Side::Here, Side::There].into_iter().flat_map(of).collect();
        let mut interfaces = case.interfaces();
        let is_known = interfaces.any(|place| !place.interface.addresses.is_empty());
        match found.is_empty() {
            true => [is_known.then_some(Seen::Fine)].into_iter().collect(),
            false => found.into_iter().map(|finding| finding.seen()).collect(),
        }
    },
};

/// Returns the interfaces that use a cable of their own, by the subnet of their first IPv4 address
/// or global IPv6 address.
fn subnets(interfaces: &[InterfaceFacts]) -> BTreeMap<String, Vec<&InterfaceFacts>> {
    let mut groups: BTreeMap<String, Vec<&InterfaceFacts>> = BTreeMap::new();
    for interface in interfaces.iter().filter(|one| has_own_cable(one)) {
        for address in &interface.addresses {
            let Some(subnet) = address.subnet() else {
                continue;
            };
            let group = groups.entry(subnet).or_default();
            if !group.iter().any(|known| known.name == interface.name) {
                group.push(interface);
            }
        }
    }
    groups
}

fn has_own_cable(interface: &InterfaceFacts) -> bool {
    let has_cable = matches!(
        interface.kind.as_deref(),
        Some("ethernet" | "veth" | "bond" | "bridge")
    );
    has_cable && interface.carrier != Some(false) && interface.up != Some(false)
}

fn one_subnet(case: &Case, side: Side, group: &[&InterfaceFacts]) -> Finding {
    let names: Vec<&str> = group.iter().map(|one| &*one.name).collect();
    let spoken: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let links = links_of(case, side, group);
    let all_work = do_all_work(&links, group);
    let severity = Severity::either(all_work, Severity::Note, Severity::Warning);
    let on = match case.there {
        None => String::new(),
        Some(_) => format!(" on {}", case.name(side)),
    };
    let sentence = match all_work {
        true => format!(
            "{}{on} are in one subnet: nicstripe uses each cable, other programs only the first",
            listed(&spoken)
        ),
        false => format!(
            "{}{on} are in one subnet: without a host route everything leaves by {}",
            listed(&spoken),
            spoken[0]
        ),
    };
    let mut finding = Finding::new(severity, sentence)
        .advise("Give each cable a separate subnet; or add a host route for each further cable at both ends");
    for interface in group {
        let addresses: Vec<String> = interface
            .addresses
            .iter()
            .map(|address| format!("{}/{}", address.ip, address.prefix_len))
            .collect();
        finding = finding.about((side, &*interface.name)).proof(
            format!("addresses of {}", interface.name),
            addresses.join(", "),
            "ip address",
        );
    }
    // A host route needs the address of the other end of the cable.
    let has_failed = links.iter().any(|link| !link.state.works());
    let wants = |(index, link): &(usize, &&LinkFacts)| match has_failed {
        true => !link.state.works(),
        false => *index > 0,
    };
    for (_, link) in links.iter().enumerate().filter(wants) {
        let (Some(name), Some(remote)) = (end(link, side), address(link, side)) else {
            continue;
        };
        finding = finding.run(
            side,
            Line::new("ip route add {} dev {} scope link", &[&remote, &name]),
            Some(Line::new("ip route del {} dev {}", &[&remote, &name])),
        );
    }
    finding
}

/// Returns the links that end at one of these interfaces.
fn links_of<'a>(case: &'a Case, side: Side, group: &[&InterfaceFacts]) -> Vec<&'a LinkFacts> {
    let ends_here = |link: &&LinkFacts| {
        end(link, side).is_some_and(|name| group.iter().any(|one| one.name == name))
    };
    case.links.iter().filter(ends_here).collect()
}

/// Returns true if each interface has a link, and all arrive where they were meant to.
fn do_all_work(links: &[&LinkFacts], group: &[&InterfaceFacts]) -> bool {
    links.len() >= group.len() && links.iter().all(|link| link.state == LinkState::Verified)
}

/// Returns the name of a link's interface on this side.
fn end(link: &LinkFacts, side: Side) -> Option<&str> {
    match side {
        Side::Here => Some(&link.here),
        Side::There => link.there.as_deref(),
    }
}

/// Returns the address at the other end of a link, as this side sees it.
fn address(link: &LinkFacts, side: Side) -> Option<std::net::IpAddr> {
    match side {
        Side::Here => link.remote,
        Side::There => link.local,
    }
    .filter(std::net::IpAddr::is_ipv4)
}

pub(super) const ARP_FLUX: Rule = Rule {
    id: 2,
    needs: Needs::Machine,
    silences: &[1],
    judge: |case| {
        let side_of_fault = |side| {
            let machine = case.machine(side)?;
            let groups = subnets(&machine.facts.interfaces);
            let shared = groups.into_values().find(|group| group.len() > 1);
            let Some(shared) = shared else {
                return Some(Seen::Fine);
            };
            let loose: Option<Vec<_>> = shared
                .iter()
                .map(|one| Some((one, one.arp_ignore?)))
                .collect();
            let loose = loose?;
            Some(match loose.iter().any(|(_, value)| *value == 0) {
                true => flux(case, side, &shared).into(),
                false => Seen::Fine,
            })
        };
        [Side::Here, Side::There]
            .map(side_of_fault)
            .into_iter()
            .collect()
    },
};

fn flux(case: &Case, side: Side, group: &[&InterfaceFacts]) -> Finding {
    let names: Vec<&str> = group.iter().map(|one| &*one.name).collect();
    let spoken: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let links = links_of(case, side, group);
    let mut strayed = links.iter();
    let strayed = strayed.find(|link| link.state == LinkState::Misdirected);
    // A strict filter drops packets as well, and a host route cures that (rule 1).
    let is_strict = case
        .interfaces()
        .any(|place| place.interface.rp_filter == Some(1));
    let is_silent = links.iter().any(|link| link.state == LinkState::Silent) && !is_strict;
    let severity = match strayed {
        Some(_) => Severity::Bad,
        None if do_all_work(&links, group) => Severity::Note,
        None if is_silent => Severity::Bad,
        None => Severity::Warning,
    };
    let who = case.name(side);
    let sentence = format!(
        "{who} answers ARP for {} on any of these cables (ARP flux)",
        listed(&spoken)
    );
    let mut finding = Finding::new(severity, sentence).advise(
        "Give each cable a separate subnet; or let each card answer only for its own addresses, at both ends",
    );
    if let Some(LinkFacts {
        here,
        there: Some(there),
        arrived: Some(arrived),
        ..
    }) = strayed
    {
        finding = finding.proof(
            format!("connection {here} → {there}"),
            format!("arrived at {arrived}"),
            "the peer",
        );
    } else {
        finding = finding.likely();
    }
    for interface in group {
        let name = &*interface.name;
        finding = finding.about((side, name));
        for (key, value, target) in [
            ("arp_ignore", interface.arp_ignore, 1),
            ("arp_announce", interface.arp_announce, 2),
        ] {
            let Some(value) = value.filter(|value| *value < target) else {
                continue;
            };
            // A dot in the name would act as a separator.
            let text = match name.contains('.') {
                true => "sysctl -w net/ipv4/conf/{}/{}={}",
                false => "sysctl -w net.ipv4.conf.{}.{}={}",
            };
            finding = finding
                .proof(format!("{key} of {name}"), value, "sysctl")
                .turn(side, text, &[&name, &key, &target], &[&name, &key, &value]);
        }
    }
    for name in names {
        finding = finding.run(side, Line::new("ip neigh flush dev {}", &[&name]), None);
    }
    finding
}

pub(super) const CROSSED: Rule = Rule {
    id: 12,
    needs: Needs::Links,
    silences: &[14],
    judge: |case| {
        let seen = |link: &LinkFacts| {
            let there = link.there.as_deref()?;
            let finding = match link.state {
                LinkState::Misdirected if !is_shared(case, link) => {
                    let arrived = link.arrived.as_deref().unwrap_or("another interface");
                    let sentence = format!(
                        "{} is plugged into {} of {}, not into {}",
                        quoted(&link.here),
                        quoted(arrived),
                        case.name(Side::There),
                        quoted(there)
                    );
                    Finding::new(Severity::Bad, sentence)
                        .about((Side::Here, &*link.here))
                        .about((Side::There, there))
                        .proof(
                            format!("connection {} → {there}", link.here),
                            format!("arrived at {arrived}"),
                            "the peer",
                        )
                        .advise("Swap the two cables at one end, or exchange the addresses")
                }
                LinkState::Stranger => {
                    let sentence = format!(
                        "another machine than {} answers on the cable of {}",
                        case.name(Side::There),
                        quoted(&link.here)
                    );
                    Finding::new(Severity::Bad, sentence)
                        .about((Side::Here, &*link.here))
                        .proof(
                            format!("key of the machine behind {}", link.here),
                            "not the peer's",
                            "TLS handshake",
                        )
                        .advise("Follow the cable, or correct the address")
                }
                LinkState::Untried => return None,
                LinkState::Verified => return Some(elsewhere(case, link).into()),
                _ => return Some(Seen::Fine),
            };
            finding.seen()
        };
        case.links.iter().map(seen).collect()
    },
};

/// Returns the finding about a link that works, if the IPv4 addresses say that its cable leads to
/// another card of the peer.
fn elsewhere(case: &Case, link: &LinkFacts) -> Option<Finding> {
    let here = case.place(Side::Here, &link.here)?;
    let there = case.place(Side::There, link.there.as_deref()?)?;
    let ours = ipv4_subnets(here.interface);
    let is_in = |other: &InterfaceFacts| {
        let theirs = ipv4_subnets(other);
        theirs.iter().any(|subnet| ours.contains(subnet))
    };
    // A card without an address is part of no plan.
    if is_in(there.interface) || ipv4_subnets(there.interface).is_empty() || is_shared(case, link) {
        return None;
    }
    let cards = there.machine.facts.interfaces.iter();
    let meant = cards
        .filter(|one| has_own_cable(one))
        .find(|one| is_in(one))?;
    let (from, to) = (here.label(case), there.label(case));
    let sentence = format!(
        "{from} is plugged into {to}, but its addresses are for {}: other programs do not pass",
        quoted(&meant.name)
    );
    Some(
        Finding::new(Severity::Warning, sentence)
            .about(&here)
            .about(&there)
            .proof(format!("subnets of {from}"), listed(&ours), "ip address")
            .proof(
                format!("subnets of {to}"),
                listed(&ipv4_subnets(there.interface)),
                "ip address",
            )
            .advise("Swap the two cables at one end, or exchange the addresses"),
    )
}

fn ipv4_subnets(interface: &InterfaceFacts) -> Vec<String> {
    let addresses = interface.addresses.iter();
    addresses
        .filter(|address| address.ip.is_ipv4())
        .filter_map(|address| address.subnet())
        .collect()
}

/// Returns true if several cards of one end are in the subnet of the link.
fn is_shared(case: &Case, link: &LinkFacts) -> bool {
    let in_shared = |side| {
        let machine = case.machine(side)?;
        let name = end(link, side)?;
        let groups = subnets(&machine.facts.interfaces);
        let of = |group: &Vec<&InterfaceFacts>| {
            group.len() > 1 && group.iter().any(|one| one.name == name)
        };
        groups.values().any(of).then_some(())
    };
    [Side::Here, Side::There]
        .into_iter()
        .any(|side| in_shared(side).is_some())
}

pub(super) const FIREWALL: Rule = Rule {
    id: 14,
    needs: Needs::Links,
    silences: &[],
    judge: |case| {
        let works = case.links.iter().any(|link| link.state.works());
        let seen = |link: &LinkFacts| {
            let (what, why) = match link.state {
                LinkState::Silent => ("does not answer", "a firewall there"),
                LinkState::Rejected => ("rejects connections", "a firewall there"),
                LinkState::Reset => ("resets connections", "a firewall there"),
                LinkState::Refused => ("refuses connections", "no daemon listens there"),
                LinkState::FilteredHere => ("is not reached", "a firewall of this machine"),
                _ => return Some(Seen::Fine),
            };
            let answers = link.state != LinkState::Silent || link.neighbour?;
            if !works || !answers {
                return Some(Seen::Fine);
            }
            let (remote, there) = (link.remote?, link.there.as_deref()?);
            let port = link.port?;
            let sentence = format!(
                "port {port} of {} {what} at {remote} ({}) only: {why}",
                case.name(Side::There),
                quoted(there)
            );
            let mut finding = Finding::new(Severity::Bad, sentence)
                .likely()
                .about((Side::Here, &*link.here))
                .about((Side::There, there))
                .proof(
                    format!("connection {} → {there}", link.here),
                    what,
                    "connect(2)",
                )
                .advise(match link.state {
                    LinkState::Refused => format!(
                        "Let the daemon there listen on {} (serve --interface and --listen, or the keys of config.toml), or allow port {port} there if a firewall refuses it",
                        quoted(there)
                    ),
                    LinkState::FilteredHere => format!(
                        "Allow TCP port {port} out of {}, with the tool that manages the firewall of this machine",
                        quoted(&link.here)
                    ),
                    _ => format!(
                        "Admit TCP port {port} on {}, with the tool that manages the firewall there",
                        quoted(there)
                    ),
                });
            // Not the machine there, or no firewall.
            if matches!(link.state, LinkState::Refused | LinkState::FilteredHere) {
                return finding.seen();
            }
            if link.neighbour == Some(true) {
                finding = finding.proof(format!("neighbour {remote}"), "answers ARP", "ip neigh");
            }
            finding = finding.run(
                Side::There,
                Line::new(
                    "nft 'insert rule inet filter input iifname \"{}\" tcp dport {} accept comment \"nicstripe-doctor\"'",
                    &[&there, &port],
                ),
                Some(Line::own(
                    "nft -a list chain inet filter input | awk '/nicstripe-doctor/ {print $NF}' | xargs -r -n1 nft delete rule inet filter input handle",
                )),
            );
            finding.seen()
        };
        case.links.iter().map(seen).collect()
    },
};

pub(super) const DUPLICATE: Rule = Rule {
    id: 47,
    needs: Needs::Machine,
    silences: &[],
    judge: |case| {
        each(case.interfaces(), |place| {
            let Some(address) = place.interface.duplicates.first() else {
                return Some(Seen::Fine);
            };
            let is_only = place.interface.addresses.is_empty();
            let severity = Severity::either(is_only, Severity::Bad, Severity::Warning);
            let sentence = format!(
                "another machine on the cable of {} has its address {address} too",
                place.label(case)
            );
            Finding::new(severity, sentence)
                    .about(&place)
                    .proof(format!("address {address}"), "dadfailed", "ip -6 address")
                    .advise("Give the card of one of the two machines another MAC address, and take it down and up again")
                    .run(
                        place.side,
                        place.line("ip link set dev {} down && ip link set dev {} up",
                            &[&place.interface.name],
                        ),
                        None,
                    ).seen()
        })
    },
};
