//! Pairing: which of our interfaces talks to which of the peer's.
//!
//! A plan made from two lists of interfaces is to be tried, not a fact: a link is used when a connection over it was made, authenticated,
//! and arrived at the interface it was aimed at. A [`Pairing`] plans, is told what came of it, and plans again.
//!
//! Link-local addresses join any interface to any, as far as the addresses tell; so those pairs are [probed](Pairing::to_probe) first.
//! How a candidate is probed and how often, and how long one that failed is left alone, is for the caller to decide.

mod candidate;
mod explain;
mod hungarian;
mod matching;
mod state;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use self::matching::{Offer, best, is_free, rate};
pub use self::{
    candidate::{Candidate, CandidateId, PathEnd, Preference},
    explain::{Explanation, Fact, LeftOut, Side},
    matching::{UNKNOWN_RATE_BPS, choose},
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
/// a probe that was answered, [`verified`](Self::verified) and [`failed`](Self::failed) for a connection. Candidates of the plan before
/// that are not in the new one are to be given up once their successors carry data. It ends: a verdict takes a candidate out or keeps it.
#[derive(Debug, Clone)]
pub struct Pairing {
    local: Vec<PeerInterface>,
    remote: Vec<PeerInterface>,
    /// Best first.
    candidates: Vec<Candidate>,
    /// Those that something is known of. Invariant: each is among the candidates.
    states: BTreeMap<CandidateId, State>,
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
        Self { local, remote, candidates, states: BTreeMap::new(), permits: |_| true, caps: BTreeMap::new() }
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
        *self = Self { local, remote, candidates, states, permits: self.permits, caps: std::mem::take(&mut self.caps) };
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

    /// Returns link-local candidates to be probed before they can be planned: untried, between interfaces that are not `taken` and neither
    /// of which has a verified link in the plan.
    ///
    /// At most [`MOST_PROBES`], in an order in which each interface has its turn early; others when these have been told of.
    pub fn to_probe(&self, taken: &[(String, String)]) -> Vec<Candidate> {
        let place = |side: &[PeerInterface], name: &str| side.iter().position(|interface| interface.name == name).unwrap_or_default();
        let turn = |candidate: &&Candidate| {
            let (ours, theirs) = (place(&self.local, &candidate.local.interface), place(&self.remote, &candidate.remote.interface));
            // In each turn every interface of ours meets another one of theirs: the diagonals of the table.
            ((MOST_INTERFACES + theirs - ours) % self.remote.len().max(1), ours)
        };
        let plan = self.plan(taken);
        let mut wanted: Vec<&Candidate> = self.unprobed(&plan, taken).collect();
        wanted.sort_by_cached_key(turn);
        wanted.into_iter().take(MOST_PROBES).cloned().collect()
    }

    /// A probe of the candidate was answered by the interface that it was meant for.
    pub fn reached(&mut self, id: CandidateId) {
        if *self.state(id) != State::Verified {
            self.set(id, State::Reached);
        }
    }

    /// A connection arrived at the interface it was aimed at.
    ///
    /// Verified links that share an interface with it are no longer the ones to keep: each interface has one at most.
    pub fn verified(&mut self, id: CandidateId) {
        let Some(candidate) = self.candidate(id).cloned() else { return };
        let shared = self.candidates.iter().filter(|other| other.shares_an_end(&candidate));
        for other in shared {
            if let Some(state @ State::Verified) = self.states.get_mut(&other.id()) {
                *state = State::Reached;
            }
        }
        self.set(id, State::Verified);
    }

    /// A probe or a connection came to nothing.
    pub fn failed(&mut self, id: CandidateId, why: Failure) {
        self.set(id, State::Failed(why));
    }

    /// Forgets of link-local candidates that nothing answered, so that they are probed again: the two ends of a cable learn of it, give
    /// themselves addresses, and begin to listen at their own pace.
    pub fn forgive(&mut self) {
        let candidates = &self.candidates;
        let is_link_local =
            |id: &CandidateId| candidates.iter().any(|candidate| candidate.id() == *id && candidate.preference == Preference::LinkLocal);
        self.states.retain(|id, state| !(*state == State::Failed(Failure::Unreachable) && is_link_local(id)));
    }

    /// Chooses the links to use beside those interfaces `taken` already, the best first.
    ///
    /// From those that have not failed, link-local ones only if they were reached: the choice of the greatest total rate, in which each
    /// interface is used at most once on either side. A verified link gives way only to a greater total. Of equal choices, the one with
    /// more of the better preferences is taken, then the one with more that were reached, then the one that pairs interfaces in
    /// their order.
    pub fn plan(&self, taken: &[(String, String)]) -> Vec<Candidate> {
        let free = self.candidates().filter(|candidate| self.is_usable(candidate) && is_free(candidate, taken));
        let offers: Vec<Offer<'_>> = free.map(|candidate| self.offer(candidate)).collect();
        best(&self.candidates, &offers).into_iter().map(|offer| offer.candidate.clone()).collect()
    }

    fn offer<'a>(&'a self, candidate: &'a Candidate) -> Offer<'a> {
        let rate_bps = rate(candidate).min(self.caps.get(&candidate.local.interface).copied().unwrap_or(u64::MAX));
        Offer { candidate, state: self.state(candidate.id()), rate_bps }
    }

    /// Whether it may be planned.
    fn is_usable(&self, candidate: &Candidate) -> bool {
        self.state(candidate.id()).failure().is_none() && !self.awaits_probe(candidate)
    }

    /// Whether only a probe can tell if it may be planned.
    fn awaits_probe(&self, candidate: &Candidate) -> bool {
        candidate.preference == Preference::LinkLocal && self.state(candidate.id()).is_untried()
    }

    /// Returns the candidates for probes, best first, beside what is planned.
    fn unprobed<'a>(&'a self, plan: &'a [Candidate], taken: &'a [(String, String)]) -> impl Iterator<Item = &'a Candidate> {
        let verified = |other: &&Candidate| *self.state(other.id()) == State::Verified;
        let working: Vec<&Candidate> = plan.iter().filter(verified).collect();
        let is_idle = move |candidate: &Candidate| working.iter().all(|other| !candidate.shares_an_end(other));
        self.candidates().filter(move |candidate| self.awaits_probe(candidate) && is_free(candidate, taken) && is_idle(candidate))
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
