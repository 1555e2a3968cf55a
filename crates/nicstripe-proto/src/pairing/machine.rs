//! State machine of the pairing: probe and connection results of the candidates, and the plan of
//! links.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    candidate::{Candidate, CandidateId, PathEnd, Preference, candidates},
    matching::{Offer, best, is_free, total_rate},
    state::{Failure, State},
};
use crate::wire::message::PeerInterface;

/// Maximum number of interfaces announced and paired per side. With [`MOST_ADDRESSES`] each they
/// fit into a handshake message.
pub const MOST_INTERFACES: usize = 64;
/// Maximum number of addresses per interface. See [`MOST_INTERFACES`].
pub const MOST_ADDRESSES: usize = 8;

/// Maximum number of candidates probed at the same time.
pub const MOST_PROBES: usize = 64;

/// State of the pairing: interfaces of two peers, and the candidates between them with their
/// states.
///
/// Call [`plan`](Self::plan) for the links to use, and again after `update` or a
/// verdict: `reached` after a probe, or [`verified`](Self::verified),
/// `lost` and [`failed`](Self::failed) after a connection. Close candidates that left
/// the plan once they are no longer in use.
#[derive(Debug, Clone)]
pub struct Pairing {
    pub(super) local: Vec<PeerInterface>,
    pub(super) remote: Vec<PeerInterface>,
    /// All candidates, best first.
    pub(super) candidates: Vec<Candidate>,
    /// States of tried candidates. Invariant: each ID is that of an existing candidate.
    states: BTreeMap<CandidateId, State>,
    /// Best links among the verified candidates. Invariant: they share no interface, and each is
    /// verified.
    in_use: BTreeMap<CandidateId, Candidate>,
    /// Links that lost their connection or an address. Kept until verified again, or until both
    /// interfaces are in use or gone.
    lost: BTreeMap<CandidateId, Candidate>,
    permits: fn(&IpAddr) -> bool,
}

impl Pairing {
    /// Returns the pairing of two machines, given their lists of interfaces.
    ///
    /// Ignores duplicate names, and all beyond [`MOST_INTERFACES`] and [`MOST_ADDRESSES`].
    pub fn new(local: Vec<PeerInterface>, remote: Vec<PeerInterface>) -> Self {
        let (local, remote) = (sensible(local), sensible(remote));
        let candidates = candidates(&local, &remote);
        Self {
            local,
            remote,
            candidates,
            states: BTreeMap::new(),
            in_use: BTreeMap::new(),
            lost: BTreeMap::new(),
            permits: |_| true,
        }
    }

    /// Restricts the peer's addresses to those that `permits` accepts, such as `IpAddr::is_ipv4`.
    /// Keeps the states of excluded candidates.
    pub fn restrict(&mut self, permits: fn(&IpAddr) -> bool) {
        self.permits = permits;
    }

    /// Replaces the lists of interfaces after a change on either side.
    ///
    /// Keeps the states of existing candidates. Discards a failure if the sharing of its subnet
    /// changed or an interface came back: it is new, became a candidate, got another address, or
    /// changed its line rate.
    pub(crate) fn update(&mut self, local: Vec<PeerInterface>, remote: Vec<PeerInterface>) {
        let (local, remote) = (sensible(local), sensible(remote));
        let candidates = candidates(&local, &remote);
        let (ours_back, theirs_back) = (
            came_back(&self.local, &local),
            came_back(&self.remote, &remote),
        );
        let before: BTreeMap<CandidateId, Preference> = self
            .candidates
            .iter()
            .map(|candidate| (candidate.id(), candidate.preference))
            .collect();
        let mut states = BTreeMap::new();
        for candidate in &candidates {
            let id = candidate.id();
            let Some(state) = self.states.remove(&id) else {
                continue;
            };
            let changed = ours_back.contains(candidate.local.interface.as_str())
                || theirs_back.contains(candidate.remote.interface.as_str())
                || before.get(&id) != Some(&candidate.preference);
            if state.failure().is_none() || !changed {
                states.insert(id, state);
            }
        }
        let is_lost = |id: &CandidateId| !candidates.iter().any(|candidate| candidate.id() == *id);
        let lost: Vec<CandidateId> = self.in_use.keys().copied().filter(is_lost).collect();
        self.lost.extend(
            lost.into_iter()
                .filter_map(|id| self.in_use.remove_entry(&id)),
        );
        let has = |side: &[PeerInterface], end: &PathEnd| {
            side.iter().any(|interface| interface.name == end.interface)
        };
        self.lost
            .retain(|_, lost| has(&local, &lost.local) || has(&remote, &lost.remote));
        (self.local, self.remote, self.candidates, self.states) =
            (local, remote, candidates, states);
        self.choose_in_use();
    }

    /// Returns the candidates that [`restrict`](Self::restrict) permits, in any state, best first.
    pub fn candidates(&self) -> impl DoubleEndedIterator<Item = &Candidate> {
        self.candidates
            .iter()
            .filter(move |candidate| (self.permits)(&candidate.remote.address))
    }

    /// Returns the candidate with this ID, if it still exists.
    pub(crate) fn candidate(&self, id: CandidateId) -> Option<&Candidate> {
        self.candidates
            .iter()
            .find(|candidate| candidate.id() == id)
    }

    /// Returns the probe and connection state of a candidate.
    pub fn state(&self, id: CandidateId) -> &State {
        self.states.get(&id).unwrap_or(&State::Untried)
    }

    /// Returns up to [`MOST_PROBES`] candidates that must be probed before they can be planned,
    /// first one for each interface. Excludes the interface pairs `taken`.
    ///
    /// First come link-local candidates and replacements of a lost link, between idle interfaces.
    /// Then come candidates that may replace a link in use for a greater total rate.
    pub(crate) fn to_probe(&self, taken: &[(String, String)]) -> Vec<Candidate> {
        let position = |side: &[PeerInterface], name: &str| {
            side.iter()
                .position(|interface| interface.name == name)
                .unwrap_or_default()
        };
        let order = |candidate: &&Candidate| {
            let (ours, theirs) = (
                position(&self.local, &candidate.local.interface),
                position(&self.remote, &candidate.remote.interface),
            );
            // Diagonals of the table: each round pairs every local interface with another one of
            // the peer.
            (
                (MOST_INTERFACES + theirs - ours) % self.remote.len().max(1),
                ours,
            )
        };
        let mut unprobed = self.unprobed(taken);
        unprobed.sort_by_cached_key(order);
        unprobed.into_iter().take(MOST_PROBES).cloned().collect()
    }

    /// Records that the intended interface answered a probe.
    ///
    /// If the candidate would replace a link in use, discards failures of idle pairs that share an
    /// interface with it: a cable may have been plugged in again.
    pub(crate) fn reached(&mut self, id: CandidateId) {
        if *self.state(id) == State::Verified {
            return;
        }
        self.set(id, State::Reached);
        let reached = self.candidate(id).cloned();
        if let Some(reached) = reached.filter(|candidate| self.uses_an_end(candidate)) {
            self.discard_failures(|pairing, other, why| {
                *why == Failure::Unreachable
                    && other.shares_an_end(&reached)
                    && !pairing.uses_an_end(other)
            });
        }
    }

    /// Records that a connection arrived at the intended interface.
    pub fn verified(&mut self, id: CandidateId) {
        if self.candidate(id).is_none() {
            return;
        }
        self.lost.remove(&id);
        self.set(id, State::Verified);
        self.choose_in_use();
    }

    /// Records that a verified candidate has lost its connection. Its interfaces are paired again
    /// after probes.
    ///
    /// Discards earlier failures between idle interfaces, since with a link gone another interface
    /// may reach an address.
    pub(crate) fn lost(&mut self, id: CandidateId) {
        let Some(candidate) = self.candidate(id).cloned() else {
            return;
        };
        self.lost.insert(id, candidate);
        self.set(id, State::Untried);
        self.choose_in_use();
        self.discard_failures(|pairing, candidate, why| {
            *why != Failure::Other && !pairing.uses_an_end(candidate)
        });
    }

    /// Records that a probe or a connection of a candidate failed, for the reason `why`.
    pub fn failed(&mut self, id: CandidateId, why: Failure) {
        let was_verified = *self.state(id) == State::Verified;
        self.set(id, State::Failed(why));
        if was_verified {
            self.choose_in_use();
        }
    }

    /// Returns true if a candidate is among the best verified links. Only a greater total rate
    /// replaces it.
    pub(crate) fn is_in_use(&self, id: CandidateId) -> bool {
        self.in_use.contains_key(&id)
    }

    /// Returns true if any lost link was not verified again.
    pub(crate) fn misses_a_link(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns true if any candidate failed because of a missing host route.
    pub(crate) fn lacks_a_route(&self) -> bool {
        self.states
            .values()
            .any(|state| state.failure() == Some(&Failure::Unrouted))
    }

    /// Discards failures of candidates that needed a probe and did not answer. The two ends of a
    /// cable detect it, configure addresses and start to listen at different times.
    ///
    /// Also discards failures by a missing route, since a full queue may have dropped the proof of
    /// an address.
    pub(crate) fn forgive(&mut self) {
        self.discard_failures(|pairing, candidate, why| match why {
            Failure::Unreachable => {
                candidate.preference == Preference::LinkLocal || pairing.is_beside_a_loss(candidate)
            }
            Failure::Unrouted => true,
            _ => false,
        });
    }

    /// Returns the failed candidates for which `is_obsolete` returns true to the state untried.
    fn discard_failures(&mut self, is_obsolete: impl Fn(&Self, &Candidate, &Failure) -> bool) {
        let is_to_try = |candidate: &&Candidate| {
            let failure = self.state(candidate.id()).failure();
            failure.is_some_and(|why| is_obsolete(self, candidate, why))
        };
        let to_try = self.candidates.iter().filter(is_to_try);
        for id in to_try.map(Candidate::id).collect::<Vec<_>>() {
            self.states.remove(&id);
        }
    }

    /// Selects the links to use, best first, excluding the interface pairs `taken` (local name,
    /// remote name).
    ///
    /// Considers candidates that have not failed and await no probe, for the greatest total rate.
    /// Uses each interface at most once on either side. Only a greater total replaces a link in
    /// use. Ties go to the better preferences, then to more reached candidates, then to interface
    /// order.
    pub fn plan(&self, taken: &[(String, String)]) -> Vec<Candidate> {
        let offers = self.offers(taken, |candidate| self.is_usable(candidate));
        best(&self.candidates, &offers)
            .into_iter()
            .map(|offer| offer.candidate.clone())
            .collect()
    }

    /// Returns true if strict reverse-path filtering (`rp_filter=1`) may drop a connection's
    /// packets until host routes are installed: in a shared subnet, with the setting on any
    /// interface. No probe can detect this.
    pub fn is_filtered(&self, candidate: &Candidate) -> bool {
        let is_strict = |interface: &PeerInterface| {
            interface
                .settings
                .is_some_and(|settings| settings.rp_filter == 1)
        };
        candidate.preference == Preference::SharedSubnet
            && self.local.iter().chain(&self.remote).any(is_strict)
    }

    fn offers<'a>(
        &'a self,
        taken: &[(String, String)],
        is_offered: impl Fn(&Candidate) -> bool,
    ) -> Vec<Offer<'a>> {
        let offered = self
            .candidates()
            .filter(|candidate| is_free(candidate, taken) && is_offered(candidate));
        offered.map(|candidate| self.offer(candidate)).collect()
    }

    /// Selects the links in use from the verified candidates, by the criteria of
    /// [`plan`](Self::plan).
    fn choose_in_use(&mut self) {
        let offers = self.offers(&[], |candidate| {
            *self.state(candidate.id()) == State::Verified
        });
        self.in_use = best(&self.candidates, &offers)
            .into_iter()
            .map(|offer| (offer.candidate.id(), offer.candidate.clone()))
            .collect();
        let lost = std::mem::take(&mut self.lost);
        self.lost = lost
            .into_iter()
            .filter(|(_, lost)| self.has_an_idle_end(lost))
            .collect();
    }

    pub(super) fn offer<'a>(&'a self, candidate: &'a Candidate) -> Offer<'a> {
        let id = candidate.id();
        let was_reached = matches!(self.state(id), State::Reached | State::Verified);
        Offer {
            candidate,
            is_in_use: self.is_in_use(id),
            was_reached,
        }
    }

    /// Returns true if the candidate may be planned: it has not failed and awaits no probe.
    fn is_usable(&self, candidate: &Candidate) -> bool {
        self.state(candidate.id()).failure().is_none() && !self.awaits_probe(candidate)
    }

    /// Returns true if the candidate is untried and must be probed before it may be planned.
    fn awaits_probe(&self, candidate: &Candidate) -> bool {
        let is_unsure = || {
            candidate.preference == Preference::LinkLocal
                || self.uses_an_end(candidate)
                || self.follows_a_loss(candidate)
        };
        *self.state(candidate.id()) == State::Untried && is_unsure()
    }

    /// Returns true if the candidate shares an interface with a link in use.
    pub(super) fn uses_an_end(&self, candidate: &Candidate) -> bool {
        self.in_use
            .values()
            .any(|other| other.shares_an_end(candidate))
    }

    /// Returns true if the candidate shares an interface with a lost link, unless a reverse-path
    /// filter may drop the probe.
    fn follows_a_loss(&self, candidate: &Candidate) -> bool {
        self.is_beside_a_loss(candidate) && !self.is_filtered(candidate)
    }

    fn is_beside_a_loss(&self, candidate: &Candidate) -> bool {
        self.lost
            .values()
            .any(|other| other.shares_an_end(candidate))
    }

    /// Returns the candidates to probe before they may be planned, best first.
    pub(super) fn unprobed(&self, taken: &[(String, String)]) -> Vec<&Candidate> {
        let awaiting = self.offers(taken, |candidate| self.awaits_probe(candidate));
        let candidates = || awaiting.iter().map(|offer| offer.candidate);
        let idle: Vec<&Candidate> = candidates()
            .filter(|candidate| !self.uses_an_end(candidate))
            .collect();
        if awaiting.is_empty() || !idle.is_empty() {
            return idle;
        }
        let known = self.offers(taken, |candidate| self.is_usable(candidate));
        let all: Vec<Offer<'_>> = known.iter().chain(&awaiting).copied().collect();
        let may_gain =
            total_rate(&best(&self.candidates, &all)) > total_rate(&best(&self.candidates, &known));
        candidates()
            .filter(|candidate| may_gain && self.has_an_idle_end(candidate))
            .collect()
    }

    /// Returns true if at least one of the candidate's interfaces has no link in use.
    fn has_an_idle_end(&self, candidate: &Candidate) -> bool {
        let is_idle = |end: fn(&Candidate) -> &PathEnd| {
            self.in_use
                .values()
                .all(|other| end(other).interface != end(candidate).interface)
        };
        is_idle(|candidate| &candidate.local) || is_idle(|candidate| &candidate.remote)
    }

    /// Sets the state of a candidate. No effect if the candidate no longer exists.
    fn set(&mut self, id: CandidateId, state: State) {
        if self.candidate(id).is_some() {
            self.states.insert(id, state);
        }
    }
}

/// Removes interfaces with duplicate names, and those beyond the limits.
fn sensible(mut interfaces: Vec<PeerInterface>) -> Vec<PeerInterface> {
    let mut names = BTreeSet::new();
    interfaces.retain(|interface| names.insert(interface.name.clone()));
    interfaces.truncate(MOST_INTERFACES);
    for interface in &mut interfaces {
        interface.addresses.truncate(MOST_ADDRESSES);
    }
    interfaces
}

/// Returns the names of interfaces whose earlier failures are obsolete: those that are new, or have
/// a new address or line rate, for example after replugging.
///
/// Omits an interface that was no candidate before, since it has no states.
fn came_back<'a>(before: &[PeerInterface], after: &'a [PeerInterface]) -> BTreeSet<&'a str> {
    let is_back = |interface: &&PeerInterface| {
        let old = before.iter().find(|old| old.name == interface.name);
        old.is_none_or(|old| {
            interface.line_rate_bps != old.line_rate_bps
                || interface
                    .addresses
                    .iter()
                    .any(|address| !old.addresses.contains(address))
        })
    };
    after
        .iter()
        .filter(is_back)
        .map(|interface| interface.name.as_str())
        .collect()
}
