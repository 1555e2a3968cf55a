//! Makes the survey of a session's links, with the reason for each decision.

use std::collections::BTreeSet;

use nicstripe_link::{
    Interface, InterfaceIndex,
    facts::{AddressFacts, InterfaceFacts},
    is_neighbour,
};
use nicstripe_proto::{
    BitRate,
    message::PeerInterface,
    pairing::{
        Candidate, Explanation, Fact, Failure, LeftOut, Obstacle, Pairing, Preference, Side,
    },
    path::Origin,
    session::{LinksView, PathView},
};

use super::{
    local,
    route_keeper::{RouteFacts, needs_route},
};
use crate::report::{
    event::LinkName,
    link_text::{failure_text, idle_text, state_of},
    survey::{FailedLink, LinkFailure, LinkReason, LinkSurvey, SurveyedLink, UnusedInterface},
};

const fn reason_of(preference: Preference) -> LinkReason {
    match preference {
        Preference::OwnSubnet => LinkReason::OwnSubnet,
        Preference::LinkLocal => LinkReason::LinkLocal,
        Preference::OwnPrefix => LinkReason::OwnPrefix,
        Preference::SharedSubnet => LinkReason::SharedSubnet,
    }
}

pub(crate) struct Known<'a> {
    pub(crate) view: &'a LinksView,
    /// Interfaces of this machine, as the kernel lists them now.
    pub(crate) interfaces: &'a [Interface],
    /// Names of interfaces that the user excluded.
    pub(crate) excluded: &'a [String],
}

pub(crate) fn of(known: &Known<'_>) -> LinkSurvey {
    let pairing = &known.view.pairing;
    let mut links: Vec<SurveyedLink> = Vec::new();
    let shown = known.view.paths.iter();
    for path in shown.filter(|path| !never_worked(path, pairing)) {
        let link = LinkName::from(&path.plan);
        match links.iter_mut().find(|other| {
            other.link.interface == link.interface && other.link.remote == link.remote
        }) {
            Some(other) => {
                other.streams += 1;
                other.verified = nicstripe_proto::path::all_verified(other.verified, path.verified);
            }
            None => links.push(surveyed(path, link, known)),
        }
    }
    let is_only_contact = links.len() == 1;
    links.retain(|link| is_only_contact || link.reason != LinkReason::Contact);
    let failures = failures(pairing, &links);
    let explained = known.view.explanations.iter().cloned();
    let unused: Vec<UnusedInterface> = explained
        .filter_map(|one| unused(one, known, &failures))
        .filter(|unused| !is_used(&links, unused))
        .collect();
    let rates: Option<u64> = links
        .iter()
        .map(|link| link.theory.map(|rate| rate.0))
        .sum();
    LinkSurvey {
        expected: rates.filter(|_| !links.is_empty()).map(BitRate),
        peer_interfaces: pairing.remote().iter().map(facts).collect(),
        failed: failures
            .iter()
            .filter(|(candidate, failure)| was_meant(candidate, failure))
            .map(|(candidate, failure)| failed(candidate, failure))
            .collect(),
        links,
        unused,
        is_probing: known.view.is_probing,
    }
}

fn is_used(links: &[SurveyedLink], unused: &UnusedInterface) -> bool {
    let is_end = |link: &SurveyedLink| match unused.is_peers {
        true => link.link.peer_interface.as_ref() == Some(&unused.interface),
        false => link.link.interface == unused.interface,
    };
    links.iter().any(is_end)
}

/// Returns true if the path has failed and has never been connected, even if it is retried. The
/// survey lists its interfaces as unused.
fn never_worked(path: &PathView, pairing: &Pairing) -> bool {
    let failed = |candidate: &Candidate| pairing.state(candidate.id()).failure().is_some();
    !path.was_open && path.plan.candidate().is_some_and(failed)
}

/// Returns the failed address pairs between interfaces that no link uses, with the failures.
fn failures<'a>(pairing: &'a Pairing, links: &[SurveyedLink]) -> Vec<(&'a Candidate, &'a Failure)> {
    let free = |candidate: &Candidate| {
        let ours = links
            .iter()
            .all(|link| link.link.interface != candidate.local.interface);
        ours && links
            .iter()
            .all(|link| link.link.peer_interface.as_ref() != Some(&candidate.remote.interface))
    };
    let failed = pairing
        .candidates()
        .filter_map(|candidate| Some((candidate, pairing.state(candidate.id()).failure()?)));
    failed.filter(|(candidate, _)| free(candidate)).collect()
}

fn surveyed(path: &PathView, link: LinkName, known: &Known<'_>) -> SurveyedLink {
    let (plan, pairing) = (&path.plan, &known.view.pairing);
    let ours = pairing
        .local()
        .iter()
        .find(|interface| interface.name == link.interface);
    let theirs = pairing
        .remote()
        .iter()
        .find(|interface| Some(&interface.name) == link.peer_interface.as_ref());
    let ends = || ours.into_iter().chain(theirs);
    let rate = |end: Option<&PeerInterface>| end.and_then(|end| end.line_rate_bps).map(BitRate);
    let members =
        |end: Option<&PeerInterface>| end.and_then(|end| end.members.clone()).unwrap_or_default();
    let interface = local::find(known.interfaces, &link.interface);
    SurveyedLink {
        reason: match (plan.origin, plan.candidate()) {
            (_, Some(candidate)) => reason_of(candidate.preference),
            (Origin::Named, None) => LinkReason::Named,
            (_, None) => LinkReason::Contact,
        },
        state: state_of(plan, &path.status),
        verified: path.verified,
        mtu: ends().map(|end| end.mtu).min().unwrap_or_default(),
        path_mtu: path.path_mtu,
        line_rate: rate(ours),
        peer_line_rate: rate(theirs),
        theory: plan.capacity.through(path.path_mtu).outgoing,
        streams: 1,
        members: members(ours),
        peer_members: members(theirs),
        route: interface
            .is_some_and(|interface| needs_route(&RouteFacts::read(link.remote, interface.index.0)))
            .then_some(link.remote),
        link,
    }
}

fn unused(
    explanation: Explanation,
    known: &Known<'_>,
    failures: &[(&Candidate, &Failure)],
) -> Option<UnusedInterface> {
    let Explanation {
        side,
        interface,
        fact,
    } = explanation;
    let Fact::LeftOut(why) = fact else {
        return None;
    };
    let is_peers = side == Side::Remote;
    let is_end = |candidate: &Candidate| {
        if is_peers {
            candidate.remote.interface == interface
        } else {
            candidate.local.interface == interface
        }
    };
    let tried = || failures.iter().filter(|(candidate, _)| is_end(candidate));
    let texts: BTreeSet<String> = tried()
        .map(|(candidate, failure)| failure_text(candidate, failure))
        .collect();
    let texts: Vec<String> = texts.into_iter().collect();
    let failed = !matches!(why, LeftOut::SharesCable(_))
        && known.view.is_automatic
        && tried().any(|(candidate, failure)| was_meant(candidate, failure));
    let (local, remote) = (known.view.pairing.local(), known.view.pairing.remote());
    let (side, other) = match is_peers {
        true => (remote, local),
        false => (local, remote),
    };
    let own = side.iter().find(|own| own.name == interface);
    let idle = own.and_then(|own| own.idle);
    let is_automatic = known.view.is_automatic;
    let told = match is_automatic {
        false => Some("other interfaces were named".to_owned()),
        true => duplicate(&interface, known)
            .filter(|_| !is_peers)
            .or_else(|| Some(idle_text(idle?, &interface, is_peers))),
    };
    let why = told.unwrap_or_else(|| match why {
        LeftOut::SharesCable(with) => format!("shares the cable of {with}, which is used"),
        _ if !texts.is_empty() => texts.join("; "),
        LeftOut::NoCandidateHere => "not used by default".to_owned(),
        // One that is idle may be its counterpart.
        LeftOut::NothingInCommon if has_idle(other) => no_free(is_peers).to_owned(),
        LeftOut::NothingInCommon => {
            "no subnet shared with the peer, no link-local addresses at both ends".to_owned()
        }
        LeftOut::NotPermitted => "no address of the requested IP version".to_owned(),
        LeftOut::AwaitsProbe => "no answer yet".to_owned(),
        LeftOut::PeerHasNoMore => no_free(is_peers).to_owned(),
        LeftOut::Failed(failed) => match failed.first() {
            Some((candidate, failure)) => failure_text(candidate, failure),
            None => "no answer".to_owned(),
        },
    });
    let mut unused = UnusedInterface {
        is_peers,
        interface,
        why,
        failed,
        is_card: is_automatic && own.is_some_and(|own| own.candidate || own.idle.is_some()),
        is_idle: idle.is_some(),
    };
    if !is_peers && idle.is_none() && texts.is_empty() {
        refine(&mut unused, known.interfaces, known.excluded);
    }
    Some(unused)
}

/// Returns the reason of an own interface whose only address another machine has too.
fn duplicate(interface: &str, known: &Known<'_>) -> Option<String> {
    let interface = local::find(known.interfaces, interface)?;
    let why = interface.usable().err()?;
    matches!(why, nicstripe_link::LeftOut::Duplicate(_))
        .then(|| format!("{why}; give one of both another MAC address"))
}

fn failed(candidate: &Candidate, failure: &Failure) -> FailedLink {
    let remote = candidate.remote.address;
    let interface = InterfaceIndex(candidate.local.index);
    FailedLink {
        link: LinkName {
            interface: candidate.local.interface.clone(),
            peer_interface: Some(candidate.remote.interface.clone()),
            local: Some(candidate.local.address),
            remote,
        },
        why: match failure {
            Failure::Unreachable(obstacle) => match obstacle {
                Obstacle::Silence => LinkFailure::Silent,
                Obstacle::Refused => LinkFailure::Refused,
                Obstacle::Reset => LinkFailure::Reset,
                Obstacle::FilteredHere => LinkFailure::FilteredHere,
                Obstacle::Filtered => LinkFailure::Filtered,
            },
            Failure::Unrouted => LinkFailure::Unrouted,
            Failure::WrongInterface { arrived } => LinkFailure::Misdirected {
                arrived: arrived.clone(),
            },
            Failure::Stranger => LinkFailure::Stranger,
            Failure::NoPathLeft => LinkFailure::NoConnectionLeft,
        },
        is_neighbour: is_neighbour(interface, remote),
    }
}

fn has_idle(side: &[PeerInterface]) -> bool {
    side.iter().any(|interface| interface.idle.is_some())
}

/// Returns the reason of an interface whose counterparts are all in use or idle.
fn no_free(is_peers: bool) -> &'static str {
    match is_peers {
        true => "no free interface here",
        false => "no free interface at the peer",
    }
}

/// Returns true if a link was expected between the two ends: they share a subnet, or a machine
/// answered. Every interface has a link-local address, so silence there only means that no cable
/// joins the two.
fn was_meant(candidate: &Candidate, failure: &Failure) -> bool {
    candidate.preference != Preference::LinkLocal
        || *failure != Failure::Unreachable(Obstacle::Silence)
}

/// Replaces the reason for an unused local interface by a more precise one: excluded by option, or
/// not usable as a link by default.
fn refine(unused: &mut UnusedInterface, interfaces: &[Interface], excluded: &[String]) {
    let Some(interface) = local::find(interfaces, &unused.interface) else {
        return;
    };
    if local::is_among(interface, excluded) {
        "excluded by option".clone_into(&mut unused.why);
    } else if let Err(why) = interface.candidate(interfaces) {
        unused.why = why.to_string();
    }
}

/// Returns the facts that the peer has sent about an interface.
fn facts(interface: &PeerInterface) -> InterfaceFacts {
    let addresses = interface.addresses.iter().map(|address| AddressFacts {
        ip: address.ip,
        prefix_len: address.prefix_len,
    });
    let has_own_cable = interface.candidate && interface.card.is_none();
    InterfaceFacts {
        name: interface.name.clone(),
        mtu: Some(interface.mtu),
        kind: has_own_cable.then(|| "ethernet".to_owned()),
        addresses: addresses.collect(),
        arp_ignore: interface.settings.map(|settings| settings.arp_ignore),
        arp_announce: interface.settings.map(|settings| settings.arp_announce),
        rp_filter: interface.settings.map(|settings| settings.rp_filter),
        ..InterfaceFacts::default()
    }
}

#[cfg(test)]
mod tests;
