//! What a session's links are and why: for people who want to see the plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use nicstripe_link::{
    Interface, InterfaceAddress, InterfaceName, Remedy, Setting, StrictPath, Sysctls, arp_flux_remedy, strict_path_remedies,
};
use nicstripe_proto::{
    BitRate, PathId,
    message::PeerInterface,
    pairing::{Candidate, Explanation, Fact, Failure, LeftOut, Pairing, Preference, Side},
};

use super::linker::{Linked, LinkerConfig};
use crate::{
    event::{LinkName, LinkState},
    here,
    routes::{RouteFacts, needs_route},
};

/// The links between two machines, and the interfaces that are none.
#[derive(Debug, Clone)]
pub struct LinkSurvey {
    /// Links that carry data, or are meant to.
    pub links: Vec<SurveyedLink>,
    /// Interfaces of both machines that are not used.
    pub unused: Vec<UnusedInterface>,
    /// What an administrator could do about those that failed.
    pub remedies: Vec<LinkRemedy>,
    /// Goodput of all links together from here to the peer, where each one's rate is known.
    pub expected: Option<BitRate>,
    /// Whether answers over some cable are still awaited.
    pub(super) is_probing: bool,
}

impl LinkSurvey {
    /// Whether nothing about it will change by itself.
    pub(super) fn is_settled(&self) -> bool {
        !self.is_probing && self.links.iter().all(|link| link.state != LinkState::Connecting)
    }
}

/// One link.
#[derive(Debug, Clone)]
pub struct SurveyedLink {
    /// Its two ends.
    pub link: LinkName,
    /// Why it was chosen.
    pub reason: LinkReason,
    /// What has become of it.
    pub state: LinkState,
    /// Whether its packets arrive at the peer's interface that they are aimed at; `None` where nobody could tell, or it is not connected.
    pub verified: Option<bool>,
    /// Largest packet of the interfaces at both ends, in bytes.
    pub mtu: u32,
    /// Largest packet that gets through, where that is less.
    pub path_mtu: Option<u32>,
    /// Line rate of our end, if known.
    pub line_rate: Option<BitRate>,
    /// Line rate of the peer's end, if known.
    pub peer_line_rate: Option<BitRate>,
    /// Most goodput from here to the peer, if known.
    pub theory: Option<BitRate>,
    /// Connections that it consists of.
    pub streams: u32,
    /// The cables of our end, where it is a bond.
    pub members: Vec<String>,
    /// The cables of the peer's end, where it is a bond.
    pub peer_members: Vec<String>,
    /// Destination of the host route that it needs here, if it needs one.
    pub route: Option<IpAddr>,
}

/// What keeps cables of one subnet from working by themselves, and what cures it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRemedy {
    /// Whether it is the peer's fault.
    pub is_peers: bool,
    /// What is wrong there, in a sentence.
    pub problem: String,
    /// The commands that cure it, to be run as root there.
    pub apply: Vec<String>,
    /// The commands that restore what was.
    pub undo: Vec<String>,
}

/// Why a link was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkReason {
    /// The user named it.
    Named,
    /// It is how the kernel reaches the host, and nothing better was found.
    Contact,
    /// An IPv4 subnet of its own.
    OwnSubnet,
    /// IPv6 link-local addresses that answer over it.
    LinkLocal,
    /// An IPv6 prefix of its own.
    OwnPrefix,
    /// A subnet that it shares with other links.
    SharedSubnet,
}

/// An interface that no link uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedInterface {
    /// Whether it is the peer's.
    pub is_peers: bool,
    /// Its name there.
    pub interface: String,
    /// Why not, in a few words.
    pub why: String,
    /// Whether it was meant to be a link, and did not work as one.
    pub failed: bool,
}

impl From<Preference> for LinkReason {
    fn from(preference: Preference) -> Self {
        match preference {
            Preference::OwnSubnet => Self::OwnSubnet,
            Preference::LinkLocal => Self::LinkLocal,
            Preference::OwnPrefix => Self::OwnPrefix,
            Preference::SharedSubnet => Self::SharedSubnet,
        }
    }
}

/// What a linker knows.
pub(super) struct Known<'a> {
    pub(super) here: &'a [Interface],
    pub(super) local: &'a [PeerInterface],
    pub(super) remote: &'a [PeerInterface],
    pub(super) pairing: &'a Pairing,
    pub(super) taken: &'a [(String, String)],
    pub(super) paths: &'a BTreeMap<PathId, Linked>,
    pub(super) config: &'a LinkerConfig,
}

/// Describes what a linker knows.
pub(super) fn of(known: &Known<'_>) -> LinkSurvey {
    let mut links: Vec<SurveyedLink> = Vec::new();
    for linked in known.paths.values().filter(|linked| !never_worked(linked, known.pairing)) {
        let link = linked.plan.link();
        match links.iter_mut().find(|other| other.link.interface == link.interface && other.link.remote == link.remote) {
            Some(other) => {
                other.streams += 1;
                other.verified = crate::session::all_verified(other.verified, linked.verified);
            }
            None => links.push(surveyed(linked, link, known.here, known.local, known.remote)),
        }
    }
    let contact_is_alone = links.len() == 1;
    links.retain(|link| contact_is_alone || link.reason != LinkReason::Contact);
    let failures = failures(known.pairing, &links);
    let explained = known.pairing.explain(known.taken);
    let unused = explained.into_iter().filter_map(|one| unused(one, known, &failures)).filter(|unused| !is_used(&links, unused)).collect();
    let rates: Option<u64> = links.iter().map(|link| link.theory.map(|rate| rate.0)).sum();
    LinkSurvey {
        expected: rates.filter(|_| !links.is_empty()).map(BitRate),
        remedies: remedies(&failures, known.local, known.remote),
        links,
        unused,
        is_probing: false,
    }
}

fn is_used(links: &[SurveyedLink], unused: &UnusedInterface) -> bool {
    let is_end = |link: &SurveyedLink| match unused.is_peers {
        true => link.link.peer_interface.as_ref() == Some(&unused.interface),
        false => link.link.interface == unused.interface,
    };
    links.iter().any(is_end)
}

/// Whether it was tried in vain and never had a connection, though it is tried again: it is told among what does not work.
fn never_worked(linked: &Linked, pairing: &Pairing) -> bool {
    let failed = |candidate: &Candidate| pairing.state(candidate.id()).failure().is_some();
    !linked.opened && linked.candidate.as_ref().is_some_and(failed)
}

/// Returns the ways between interfaces that no link uses which were tried in vain: those are links that are missing.
fn failures<'a>(pairing: &'a Pairing, links: &[SurveyedLink]) -> Vec<(&'a Candidate, &'a Failure)> {
    let free = |candidate: &Candidate| {
        let ours = links.iter().all(|link| link.link.interface != candidate.local.interface);
        ours && links.iter().all(|link| link.link.peer_interface.as_ref() != Some(&candidate.remote.interface))
    };
    let failed = pairing.candidates().filter_map(|candidate| Some((candidate, pairing.state(candidate.id()).failure()?)));
    failed.filter(|(candidate, _)| free(candidate)).collect()
}

fn surveyed(linked: &Linked, link: LinkName, here: &[Interface], local: &[PeerInterface], remote: &[PeerInterface]) -> SurveyedLink {
    let ours = local.iter().find(|interface| interface.name == link.interface);
    let theirs = remote.iter().find(|interface| Some(&interface.name) == link.peer_interface.as_ref());
    let ends = || ours.into_iter().chain(theirs);
    let rate = |end: Option<&PeerInterface>| end.and_then(|end| end.line_rate_bps).map(BitRate);
    let members = |end: Option<&PeerInterface>| end.and_then(|end| end.members.clone()).unwrap_or_default();
    let interface = here.iter().find(|interface| interface.is_called(&link.interface));
    SurveyedLink {
        reason: match &linked.candidate {
            Some(candidate) => candidate.preference.into(),
            None if linked.plan.named => LinkReason::Named,
            None => LinkReason::Contact,
        },
        state: linked.state.clone(),
        verified: linked.verified,
        mtu: ends().map(|end| end.mtu).min().unwrap_or_default(),
        path_mtu: linked.path_mtu,
        line_rate: rate(ours),
        peer_line_rate: rate(theirs),
        theory: linked.plan.capacity.through(linked.path_mtu).outgoing,
        streams: 1,
        members: members(ours),
        peer_members: members(theirs),
        route: interface.is_some_and(|interface| needs_route(&RouteFacts::read(link.remote, interface.index))).then_some(link.remote),
        link,
    }
}

fn unused(explanation: Explanation, known: &Known<'_>, failures: &[(&Candidate, &Failure)]) -> Option<UnusedInterface> {
    let Explanation { side, interface, fact } = explanation;
    let Fact::LeftOut(why) = fact else { return None };
    let is_peers = side == Side::Remote;
    let is_end =
        |candidate: &Candidate| if is_peers { candidate.remote.interface == interface } else { candidate.local.interface == interface };
    let tried = || failures.iter().filter(|(candidate, _)| is_end(candidate));
    let texts: BTreeSet<String> = tried().map(|(_, failure)| failure_text(failure)).collect();
    let texts: Vec<String> = texts.into_iter().collect();
    let failed = known.config.automatic && tried().any(|(candidate, failure)| was_meant(candidate, failure));
    let why = match why {
        _ if !known.config.automatic => "others were named".to_owned(),
        _ if !texts.is_empty() => texts.join("; "),
        LeftOut::NoCandidateHere => "not used unasked".to_owned(),
        LeftOut::NothingInCommon => "no subnet in common with the peer, and no link-local address at both ends".to_owned(),
        LeftOut::NotPermitted => "no address of the wanted IP version".to_owned(),
        LeftOut::AwaitsProbe => "nobody has answered over it yet".to_owned(),
        LeftOut::PeerHasNoMore | LeftOut::Failed(_) => "the interfaces at the other end that it reaches are used by others".to_owned(),
    };
    let mut unused = UnusedInterface { is_peers, interface, why, failed };
    if !is_peers && texts.is_empty() {
        refine(&mut unused, known.here, &known.config.excluded);
    }
    Some(unused)
}

/// Whether the two ends were to be a link: they share a subnet, or somebody answered. Link-local addresses are on every interface, and that
/// nobody answers at one only says that no cable joins these two.
fn was_meant(candidate: &Candidate, failure: &Failure) -> bool {
    candidate.preference != Preference::LinkLocal || *failure != Failure::Unreachable
}

fn failure_text(failure: &Failure) -> String {
    match failure {
        Failure::Unreachable => "nobody answers over it".to_owned(),
        Failure::WrongInterface { arrived } => {
            format!("its packets arrive at the peer's {arrived}: the peer answers ARP for one cable on the other")
        }
        Failure::Unrouted => {
            "a host route that it needs could not be had: the peer's address there was not proved, or not let in".to_owned()
        }
        Failure::Other => "another machine answers over it".to_owned(),
    }
}

/// The kernel knows better why an interface of ours is not used unasked.
fn refine(unused: &mut UnusedInterface, here: &[Interface], excluded: &[String]) {
    let Some(interface) = here.iter().find(|interface| interface.is_called(&unused.interface)) else { return };
    if here::is_among(interface, excluded) {
        "left out as asked".clone_into(&mut unused.why);
    } else if let Err(why) = interface.candidate(here) {
        unused.why = why.to_string();
    }
}

/// Finds cures for interfaces that share a subnet and did not work.
fn remedies(failures: &[(&Candidate, &Failure)], local: &[PeerInterface], remote: &[PeerInterface]) -> Vec<LinkRemedy> {
    let shared: Vec<_> = failures.iter().filter(|(candidate, _)| candidate.preference == Preference::SharedSubnet).collect();
    let is_strict =
        |side: &[PeerInterface]| side.iter().any(|interface| interface.settings.is_some_and(|settings| settings.rp_filter == 1));
    let strayed = shared.iter().any(|(_, failure)| matches!(failure, Failure::WrongInterface { .. }));
    let mut found = Vec::new();
    for (is_peers, side, other) in [(true, remote, local), (false, local, remote)] {
        if strayed || (!shared.is_empty() && !is_strict(side)) {
            found.extend(flux_remedy(is_peers, side, other));
        } else if is_strict(side) {
            found.extend(shared.iter().filter_map(|(candidate, _)| strict_remedy(is_peers, candidate)));
        }
    }
    found
}

/// The cure for a machine that answers on any of its interfaces in one subnet for the addresses of all.
fn flux_remedy(is_peers: bool, side: &[PeerInterface], other: &[PeerInterface]) -> Option<LinkRemedy> {
    let shares = |interface: &&PeerInterface| interface.candidate && other.iter().any(|theirs| has_common_subnet(interface, theirs));
    let sharing = side.iter().filter(shares).filter_map(|interface| {
        let settings = interface.settings?;
        let of = |value| Setting { own: Some(value), all: Some(value) };
        let sysctls = Sysctls { arp_ignore: of(settings.arp_ignore), arp_announce: of(settings.arp_announce), ..Sysctls::default() };
        Some((plain_name(&interface.name)?, sysctls))
    });
    let Remedy { problem, apply, undo, .. } = arp_flux_remedy(&sharing.collect::<Vec<_>>())?;
    Some(LinkRemedy { is_peers, problem, apply, undo })
}

/// The cure for a machine whose strict reverse path filter drops the packets of a link.
fn strict_remedy(is_peers: bool, candidate: &Candidate) -> Option<LinkRemedy> {
    let (end, from) = if is_peers { (&candidate.remote, &candidate.local) } else { (&candidate.local, &candidate.remote) };
    let strict = Setting { own: Some(1), all: Some(1) };
    let facts = StrictPath {
        interface: plain_name(&end.interface)?,
        remote: from.address,
        kernel_takes: None,
        sysctls: Sysctls { rp_filter: strict, ..Sysctls::default() },
    };
    let Remedy { apply, undo, .. } = strict_path_remedies(&facts).into_iter().next()?;
    let problem =
        format!("{} drops what comes from {}: rp_filter is strict, and its own way there is another", end.interface, from.address);
    Some(LinkRemedy { is_peers, problem, apply, undo })
}

/// Reads a name that goes into a command for an administrator. It may be the peer's word, so that it must mean nothing to a shell.
fn plain_name(name: &str) -> Option<InterfaceName> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (name.bytes().all(is_plain) && !name.starts_with('-')).then(|| name.parse().ok())?
}

fn has_common_subnet(ours: &PeerInterface, theirs: &PeerInterface) -> bool {
    let pairs = ours.addresses.iter().flat_map(|our| theirs.addresses.iter().map(move |their| (our, their)));
    pairs.into_iter().any(|(our, their)| our.ip.is_ipv4() && InterfaceAddress::new(our.ip, our.prefix_len).is_on_link(their.ip))
}

#[cfg(test)]
mod tests;
