//! Pairing: which of our interfaces talks to which of the peer's.
//!
//! A plan made from two lists of interfaces is to be tried, not a fact: a link is used when a connection over it was made, authenticated,
//! and arrived at the interface it was aimed at. A [`Pairing`] plans, is told what came of it, and plans again.
//!
//! Link-local addresses join any interface to any, as far as the addresses tell; so those pairs are [probed](Pairing::to_probe) first.
//! Pairs that would take the place of a link that works, or of one that was lost, are probed as well: what never answers closes no link.
//! A [`Planner`] decides when to probe, which connections to make and which to end.

mod candidate;
mod explain;
mod hungarian;
mod matching;
mod planner;
mod state;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use self::matching::{Offer, best, is_free, rate, total_rate};
pub use self::{
    candidate::{Candidate, CandidateId, PathEnd, Preference},
    explain::{Explanation, Fact, LeftOut, Side},
    matching::{UNKNOWN_RATE_BPS, choose},
    planner::{Planner, Step},
    state::{Failure, State},
};
use crate::message::PeerInterface;

/// Most interfaces of either side that are told of and paired, and addresses of each: all of them fit into a greeting.
pub const MOST_INTERFACES: usize = 64;
/// See [`MOST_INTERFACES`].
pub const MOST_ADDRESSES: usize = 8;

/// Most candidates to be probed at a time.
pub const MOST_PROBES: usize = 64;

/// The interfaces of two peers, the ways between them, and what is known of each.
///
/// Call [`plan`](Self::plan) for the links to use, and again after [`update`](Self::update) or any verdict: [`reached`](Self::reached) for
/// a probe that was answered, [`verified`](Self::verified), [`lost`](Self::lost) and [`failed`](Self::failed) for a connection. Candidates
/// of the plan before that are not in the new one are to be given up once they are no longer [in use](Self::is_in_use).
#[derive(Debug, Clone)]
pub struct Pairing {
    local: Vec<PeerInterface>,
    remote: Vec<PeerInterface>,
    /// Best first.
    candidates: Vec<Candidate>,
    /// Those that something is known of. Invariant: each is among the candidates.
    states: BTreeMap<CandidateId, State>,
    /// The best links of those that are verified. Invariant: they share no interface, and each is verified.
    in_use: BTreeMap<CandidateId, Candidate>,
    /// Links that were in use and lost their connection, or an address, while an interface of theirs is idle.
    lost: BTreeMap<CandidateId, Candidate>,
    permits: fn(&IpAddr) -> bool,
    caps: BTreeMap<String, u64>,
}

impl Pairing {
    /// Returns the pairing of two machines of which nothing is known but what they say.
    ///
    /// Of interfaces with the same name the first is taken, and no more than [`MOST_INTERFACES`] and [`MOST_ADDRESSES`].
    pub fn new(local: Vec<PeerInterface>, remote: Vec<PeerInterface>) -> Self {
        let (local, remote) = (sensible(local), sensible(remote));
        let candidates = candidate::candidates(&local, &remote);
        Self {
            local,
            remote,
            candidates,
            states: BTreeMap::new(),
            in_use: BTreeMap::new(),
            lost: BTreeMap::new(),
            permits: |_| true,
            caps: BTreeMap::new(),
        }
    }

    /// Uses only those of the peer's addresses that `permits` says, such as `IpAddr::is_ipv4`. Verdicts on others are kept.
    pub fn restrict(&mut self, permits: fn(&IpAddr) -> bool) {
        self.permits = permits;
    }

    /// Counts our interface `name` for at most `bps` bit/s: what the user lets it carry.
    pub fn cap(&mut self, name: &str, bps: u64) {
        self.caps.insert(name.to_owned(), bps);
    }

    /// Takes the lists of interfaces as they are after a change on either side.
    ///
    /// Verdicts on candidates that still exist are kept. But a failed one is forgotten if either of its interfaces came back: it is new, it
    /// became a candidate, it got another address, or its line rate is another; or if its subnet is shared by others than before.
    pub fn update(&mut self, local: Vec<PeerInterface>, remote: Vec<PeerInterface>) {
        let (local, remote) = (sensible(local), sensible(remote));
        let candidates = candidate::candidates(&local, &remote);
        let (ours_back, theirs_back) = (came_back(&self.local, &local), came_back(&self.remote, &remote));
        let before: BTreeMap<CandidateId, Preference> =
            self.candidates.iter().map(|candidate| (candidate.id(), candidate.preference)).collect();
        let mut states = BTreeMap::new();
        for candidate in &candidates {
            let id = candidate.id();
            let Some(state) = self.states.remove(&id) else { continue };
            let changed = ours_back.contains(candidate.local.interface.as_str())
                || theirs_back.contains(candidate.remote.interface.as_str())
                || before.get(&id) != Some(&candidate.preference);
            if state.failure().is_none() || !changed {
                states.insert(id, state);
            }
        }
        let is_gone = |id: &CandidateId| !candidates.iter().any(|candidate| candidate.id() == *id);
        let gone: Vec<CandidateId> = self.in_use.keys().copied().filter(is_gone).collect();
        self.lost.extend(gone.into_iter().filter_map(|id| self.in_use.remove_entry(&id)));
        let has = |side: &[PeerInterface], end: &PathEnd| side.iter().any(|interface| interface.name == end.interface);
        self.lost.retain(|_, lost| has(&local, &lost.local) || has(&remote, &lost.remote));
        (self.local, self.remote, self.candidates, self.states) = (local, remote, candidates, states);
        self.choose_in_use();
    }

    /// Returns the ways that are permitted, best first, whatever is known of them.
    pub fn candidates(&self) -> impl DoubleEndedIterator<Item = &Candidate> {
        self.candidates.iter().filter(move |candidate| (self.permits)(&candidate.remote.address))
    }

    /// Returns the candidate of an identity, if it exists still.
    pub fn candidate(&self, id: CandidateId) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.id() == id)
    }

    /// Returns what is known of a candidate.
    pub fn state(&self, id: CandidateId) -> &State {
        self.states.get(&id).unwrap_or(&State::Untried)
    }

    /// Returns the candidates to be probed before they can be planned: link-local ones, and those that may take the place of a link that was
    /// lost, between interfaces without a link; when these have been told of, those that may take the place of a link in use for a greater
    /// total.
    ///
    /// At most [`MOST_PROBES`], in an order in which each interface has its turn early; others when these have been told of.
    pub fn to_probe(&self, taken: &[(String, String)]) -> Vec<Candidate> {
        let place = |side: &[PeerInterface], name: &str| side.iter().position(|interface| interface.name == name).unwrap_or_default();
        let turn = |candidate: &&Candidate| {
            let (ours, theirs) = (place(&self.local, &candidate.local.interface), place(&self.remote, &candidate.remote.interface));
            // In each turn every interface of ours meets another one of theirs: the diagonals of the table.
            ((MOST_INTERFACES + theirs - ours) % self.remote.len().max(1), ours)
        };
        let mut wanted = self.unprobed(taken);
        wanted.sort_by_cached_key(turn);
        wanted.into_iter().take(MOST_PROBES).cloned().collect()
    }

    /// A probe of the candidate was answered by the interface that it was meant for.
    ///
    /// If it would take the place of a link in use, pairs of idle interfaces that did not answer are probed again: a cable may have come
    /// back while they were.
    pub fn reached(&mut self, id: CandidateId) {
        if *self.state(id) == State::Verified {
            return;
        }
        self.set(id, State::Reached);
        let Some(reached) = self.candidate(id).filter(|candidate| self.uses_an_end(candidate)) else { return };
        let is_rival = |other: &&Candidate| other.shares_an_end(reached) && !self.uses_an_end(other);
        let rivals: BTreeSet<CandidateId> = self.candidates.iter().filter(is_rival).map(Candidate::id).collect();
        self.states.retain(|id, state| state.failure() != Some(&Failure::Unreachable) || !rivals.contains(id));
    }

    /// A connection arrived at the interface it was aimed at.
    pub fn verified(&mut self, id: CandidateId) {
        if self.candidate(id).is_none() {
            return;
        }
        self.lost.remove(&id);
        self.set(id, State::Verified);
        self.choose_in_use();
    }

    /// A candidate that was verified has no connection any more.
    ///
    /// Its interfaces are paired anew, with each other or with others, after probes. Earlier failures to find a way between interfaces without
    /// a link are forgotten: with a link gone, an address may be reached by another interface.
    pub fn lost(&mut self, id: CandidateId) {
        let Some(candidate) = self.candidate(id).cloned() else { return };
        self.lost.insert(id, candidate);
        self.set(id, State::Untried);
        self.choose_in_use();
        let is_idle = |candidate: &Candidate| !self.uses_an_end(candidate);
        let idle: BTreeSet<CandidateId> = self.candidates.iter().filter(|candidate| is_idle(candidate)).map(Candidate::id).collect();
        self.states.retain(|id, state| !idle.contains(id) || matches!(state.failure(), None | Some(Failure::Other)));
    }

    /// A probe or a connection came to nothing.
    pub fn failed(&mut self, id: CandidateId, why: Failure) {
        let was_verified = *self.state(id) == State::Verified;
        self.set(id, State::Failed(why));
        if was_verified {
            self.choose_in_use();
        }
    }

    /// Whether a candidate is one of the best links of those that are verified. A link in use gives way only to a greater total of verified
    /// links.
    pub fn is_in_use(&self, id: CandidateId) -> bool {
        self.in_use.contains_key(&id)
    }

    /// Whether a link was lost and is not back.
    pub fn misses_a_link(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether a link lacks a route.
    pub fn lacks_a_route(&self) -> bool {
        self.states.values().any(|state| state.failure() == Some(&Failure::Unrouted))
    }

    /// Forgets of candidates that nothing answered if they were to be probed, so that they are probed again: the two ends of a cable learn of
    /// it, give themselves addresses, and begin to listen at their own pace. Forgets, too, what lacked a route: a proof may be lost in a
    /// full queue.
    pub fn forgive(&mut self) {
        let is_link_local = |candidate: &Candidate| candidate.preference == Preference::LinkLocal;
        let is_probed = |candidate: &&Candidate| is_link_local(candidate) || self.is_beside_a_loss(candidate);
        let probed: BTreeSet<CandidateId> = self.candidates.iter().filter(is_probed).map(Candidate::id).collect();
        self.states.retain(|id, state| match state.failure() {
            Some(Failure::Unreachable) => !probed.contains(id),
            Some(Failure::Unrouted) => false,
            _ => true,
        });
    }

    /// Chooses the links to use beside those interfaces `taken` already, the best first.
    ///
    /// From those that have not failed and do not wait for a probe: the choice of the greatest total rate, in which each interface is used at
    /// most once on either side. A link in use gives way only to a greater total. Of equal choices, the one with more of the better
    /// preferences is taken, then the one with more that were reached, then the one that pairs interfaces in their order.
    pub fn plan(&self, taken: &[(String, String)]) -> Vec<Candidate> {
        let offers = self.offers(taken, |candidate| self.is_usable(candidate));
        best(&self.candidates, &offers).into_iter().map(|offer| offer.candidate.clone()).collect()
    }

    /// Whether the packets of a connection may be dropped by a strict reverse path filter unless one end or both install a host route: no
    /// probe can tell whether it works.
    pub fn is_filtered(&self, candidate: &Candidate) -> bool {
        let is_strict = |interface: &PeerInterface| interface.settings.is_some_and(|settings| settings.rp_filter == 1);
        candidate.preference == Preference::SharedSubnet && self.local.iter().chain(&self.remote).any(is_strict)
    }

    fn offers<'a>(&'a self, taken: &[(String, String)], is_offered: impl Fn(&Candidate) -> bool) -> Vec<Offer<'a>> {
        let offered = self.candidates().filter(|candidate| is_free(candidate, taken) && is_offered(candidate));
        offered.map(|candidate| self.offer(candidate)).collect()
    }

    /// Chooses from the verified candidates as a plan does.
    fn choose_in_use(&mut self) {
        let offers = self.offers(&[], |candidate| *self.state(candidate.id()) == State::Verified);
        self.in_use = best(&self.candidates, &offers).into_iter().map(|offer| (offer.candidate.id(), offer.candidate.clone())).collect();
        let lost = std::mem::take(&mut self.lost);
        self.lost = lost.into_iter().filter(|(_, lost)| self.has_an_idle_end(lost)).collect();
    }

    fn offer<'a>(&'a self, candidate: &'a Candidate) -> Offer<'a> {
        let rate_bps = rate(candidate).min(self.caps.get(&candidate.local.interface).copied().unwrap_or(u64::MAX));
        let id = candidate.id();
        let was_reached = matches!(self.state(id), State::Reached | State::Verified);
        Offer { candidate, is_in_use: self.is_in_use(id), was_reached, rate_bps }
    }

    /// Whether it may be planned.
    fn is_usable(&self, candidate: &Candidate) -> bool {
        self.state(candidate.id()).failure().is_none() && !self.awaits_probe(candidate)
    }

    /// Whether only a probe can tell if it may be planned.
    fn awaits_probe(&self, candidate: &Candidate) -> bool {
        let is_unsure = || candidate.preference == Preference::LinkLocal || self.uses_an_end(candidate) || self.follows_a_loss(candidate);
        self.state(candidate.id()).is_untried() && is_unsure()
    }

    /// Whether it shares an interface with a link in use.
    fn uses_an_end(&self, candidate: &Candidate) -> bool {
        self.in_use.values().any(|other| other.shares_an_end(candidate))
    }

    /// Whether it was lost, or may take the place of one that was. Not if a filter would drop the probe.
    fn follows_a_loss(&self, candidate: &Candidate) -> bool {
        self.is_beside_a_loss(candidate) && !self.is_filtered(candidate)
    }

    fn is_beside_a_loss(&self, candidate: &Candidate) -> bool {
        self.lost.values().any(|other| other.shares_an_end(candidate))
    }

    /// Returns the candidates for probes, best first.
    fn unprobed(&self, taken: &[(String, String)]) -> Vec<&Candidate> {
        let awaiting = self.offers(taken, |candidate| self.awaits_probe(candidate));
        let candidates = || awaiting.iter().map(|offer| offer.candidate);
        let idle: Vec<&Candidate> = candidates().filter(|candidate| !self.uses_an_end(candidate)).collect();
        if awaiting.is_empty() || !idle.is_empty() {
            return idle;
        }
        let known = self.offers(taken, |candidate| self.is_usable(candidate));
        let all: Vec<Offer<'_>> = known.iter().chain(&awaiting).copied().collect();
        let may_gain = total_rate(&best(&self.candidates, &all)) > total_rate(&best(&self.candidates, &known));
        candidates().filter(|candidate| may_gain && self.has_an_idle_end(candidate)).collect()
    }

    /// Whether an interface of it has no link in use.
    fn has_an_idle_end(&self, candidate: &Candidate) -> bool {
        let is_idle = |end: fn(&Candidate) -> &PathEnd| self.in_use.values().all(|other| end(other).interface != end(candidate).interface);
        is_idle(|candidate| &candidate.local) || is_idle(|candidate| &candidate.remote)
    }

    /// Records a verdict, unless the candidate went while it was tried.
    fn set(&mut self, id: CandidateId, state: State) {
        if self.candidate(id).is_some() {
            self.states.insert(id, state);
        }
    }
}

/// Returns so much of a list of interfaces as is used.
fn sensible(mut interfaces: Vec<PeerInterface>) -> Vec<PeerInterface> {
    let mut names = BTreeSet::new();
    interfaces.retain(|interface| names.insert(interface.name.clone()));
    interfaces.truncate(MOST_INTERFACES);
    for interface in &mut interfaces {
        interface.addresses.truncate(MOST_ADDRESSES);
    }
    interfaces
}

/// Returns those interfaces whose earlier failures say nothing any more. The line rate is negotiated anew when a cable is plugged in.
///
/// One that was no candidate for a while needs no mention: nothing is known of it.
fn came_back<'a>(before: &[PeerInterface], after: &'a [PeerInterface]) -> BTreeSet<&'a str> {
    let is_back = |interface: &&PeerInterface| {
        let old = before.iter().find(|old| old.name == interface.name);
        old.is_none_or(|old| {
            interface.line_rate_bps != old.line_rate_bps || interface.addresses.iter().any(|address| !old.addresses.contains(address))
        })
    };
    after.iter().filter(is_back).map(|interface| interface.name.as_str()).collect()
}
