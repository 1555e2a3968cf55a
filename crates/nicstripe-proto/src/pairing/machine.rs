//! State machine of the pairing: probe and connection results of the candidates, and the plan of
//! links.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    candidate::{Candidate, CandidateId, End, PathEnd, Preference, candidates, diverted},
    matching::{Offer, best, has_room, is_free, total_rate},
    state::{CandidateState, Failure},
};
use crate::wire::message::PeerInterface;

/// Maximum number of interfaces per machine that are announced and paired. These interfaces, with
/// [`MOST_ADDRESSES`] each, fit into one handshake message.
pub const MOST_INTERFACES: usize = 64;
/// Maximum number of addresses per interface. See [`MOST_INTERFACES`].
pub const MOST_ADDRESSES: usize = 8;

/// Maximum number of concurrent probes.
pub const MOST_PROBES: usize = 64;

/// State of the pairing: the interfaces of two peers, and the candidates between them with their
/// states.
///
/// Call [`plan`](Self::plan) for the links to use. Call it again after `update` and after each
/// result: `reached` after a probe; [`verified`](Self::verified), `lost` or
/// [`failed`](Self::failed) after a connection. Close the connections of candidates that have left
/// the plan once they are no longer in use.
#[derive(Debug, Clone)]
pub struct Pairing {
    pub(super) local: Vec<PeerInterface>,
    pub(super) remote: Vec<PeerInterface>,
    /// All candidates, best first.
    pub(super) candidates: Vec<Candidate>,
    /// States of the tried candidates. Invariant: each ID belongs to an existing candidate.
    states: BTreeMap<CandidateId, CandidateState>,
    /// Best links among the verified candidates. Invariant: each link is verified, and no
    /// interface has more links than its rate permits.
    in_use: BTreeMap<CandidateId, Candidate>,
    /// Links that lost their connection or an address. A link is kept until it is verified again,
    /// or until both of its interfaces are in use or gone.
    lost: BTreeMap<CandidateId, Candidate>,
    /// Candidates of the interfaces at which connections arrived that were meant for others, by
    /// the candidates of those connections.
    diverted: BTreeMap<CandidateId, Candidate>,
    permits: fn(&IpAddr) -> bool,
}

impl Pairing {
    /// Creates the pairing of two machines from their lists of interfaces.
    ///
    /// Ignores duplicate names, and everything beyond [`MOST_INTERFACES`] and [`MOST_ADDRESSES`].
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
            diverted: BTreeMap::new(),
            permits: |_| true,
        }
    }

    /// Restricts candidates to peer addresses that `permits` accepts, such as `IpAddr::is_ipv4`.
    /// Keeps the states of excluded candidates.
    pub fn restrict(&mut self, permits: fn(&IpAddr) -> bool) {
        self.permits = permits;
    }

    /// Replaces the lists of interfaces after a change on either machine.
    ///
    /// Keeps the states of existing candidates. Discards a candidate's failure if other interfaces
    /// joined or left its subnet, or if one of its interfaces came back. An interface came back if
    /// it is new, has been enabled, has another address, or has another line rate. A link in use
    /// whose interface is gone is [`lost`](Self::lost).
    pub(crate) fn update(&mut self, local: Vec<PeerInterface>, remote: Vec<PeerInterface>) {
        let (local, remote) = (sensible(local), sensible(remote));
        let mut candidates = candidates(&local, &remote);
        self.diverted.retain(|_, old| {
            // An interface keeps its index when it is renamed.
            match diverted(old, old.remote.index, &local, &remote) {
                Some(new) => {
                    *old = new;
                    true
                }
                None => false,
            }
        });
        for candidate in self.diverted.values() {
            if candidates.iter().all(|other| other.id() != candidate.id()) {
                candidates.push(candidate.clone());
            }
        }
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
        let any_lost = !lost.is_empty();
        self.lost.extend(
            lost.into_iter()
                .filter_map(|id| self.in_use.remove_entry(&id)),
        );
        let follow = |side: &[PeerInterface], end: &mut PathEnd| {
            let mut side = side.iter();
            let now = side.find(|interface| interface.index == end.index);
            if let Some(now) = now {
                end.interface.clone_from(&now.name);
                end.card.clone_from(&now.card);
            }
            now.is_some()
        };
        self.lost
            .retain(|_, lost| follow(&local, &mut lost.local) | follow(&remote, &mut lost.remote));
        (self.local, self.remote, self.candidates, self.states) =
            (local, remote, candidates, states);
        self.choose_in_use();
        if any_lost {
            self.discard_failures_of_idle_pairs();
        }
    }

    /// Returns the interfaces of this machine.
    pub fn local(&self) -> &[PeerInterface] {
        &self.local
    }

    /// Returns the interfaces of the peer.
    pub fn remote(&self) -> &[PeerInterface] {
        &self.remote
    }

    /// Returns the candidates that [`restrict`](Self::restrict) permits, in any state, best first.
    pub fn candidates(&self) -> impl DoubleEndedIterator<Item = &Candidate> {
        self.candidates
            .iter()
            .filter(move |candidate| (self.permits)(&candidate.remote.address))
    }

    /// Returns the candidate with the ID `id`; `None` if it no longer exists.
    pub(crate) fn candidate(&self, id: CandidateId) -> Option<&Candidate> {
        self.candidates
            .iter()
            .find(|candidate| candidate.id() == id)
    }

    /// Returns the probe and connection state of a candidate.
    pub fn state(&self, id: CandidateId) -> &CandidateState {
        self.states.get(&id).unwrap_or(&CandidateState::Untried)
    }

    /// Returns up to [`MOST_PROBES`] candidates that must be probed before they can be planned.
    /// Starts with one candidate for each interface. Excludes the interface pairs `taken`.
    ///
    /// Link-local candidates and replacements of a lost link, between idle interfaces, come first.
    /// Candidates that may replace a link in use to increase the total rate follow.
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
            // Diagonals of the table. In each round, every local interface is paired with another
            // interface of the peer.
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
    /// Discards the failures of idle pairs that share an interface with the candidate if the
    /// candidate would replace a link in use. Their cable may have been plugged in again.
    pub(crate) fn reached(&mut self, id: CandidateId) {
        if *self.state(id) == CandidateState::Verified {
            return;
        }
        self.set(id, CandidateState::Reached);
        let reached = self.candidate(id).cloned();
        if let Some(reached) = reached.filter(|candidate| !self.fits(candidate)) {
            self.discard_failures(|pairing, other, why| {
                matches!(why, Failure::Unreachable(_))
                    && other.shares_an_end(&reached)
                    && pairing.fits(other)
            });
        }
    }

    /// Records that a connection arrived at the intended interface.
    pub fn verified(&mut self, id: CandidateId) {
        if self.candidate(id).is_none() {
            return;
        }
        self.lost.remove(&id);
        self.set(id, CandidateState::Verified);
        self.choose_in_use();
    }

    /// Records that a verified candidate has lost its connection. Its interfaces are paired again
    /// after probes.
    ///
    /// Discards earlier failures between idle interfaces. Another interface may reach an address
    /// now that the link is gone.
    pub(crate) fn lost(&mut self, id: CandidateId) {
        let Some(candidate) = self.candidate(id).cloned() else {
            return;
        };
        self.lost.insert(id, candidate);
        self.set(id, CandidateState::Untried);
        self.choose_in_use();
        self.discard_failures_of_idle_pairs();
    }

    /// Records that the caller has closed the connection of a verified candidate. The candidate is
    /// no link any more: its interfaces are idle if no other link uses them.
    pub(crate) fn closed(&mut self, id: CandidateId) {
        if *self.state(id) == CandidateState::Verified {
            self.states.remove(&id);
            self.choose_in_use();
        }
    }

    /// Discards the failures between idle interfaces after the loss of a link, or of a connection
    /// between unknown ends. The peer may answer at another interface since then.
    pub(crate) fn discard_failures_of_idle_pairs(&mut self) {
        self.discard_failures(|pairing, candidate, why| {
            !matches!(why, Failure::Stranger | Failure::NoPathLeft) && pairing.fits(candidate)
        });
    }

    /// Records the failure of a candidate's probe or connection, with the reason `why`.
    ///
    /// A connection that arrived at another interface of the peer has found a way to that
    /// interface, which becomes a candidate that a probe has reached.
    pub fn failed(&mut self, id: CandidateId, why: Failure) {
        if let Failure::WrongInterface { arrived } = &why {
            self.add_diverted(id, arrived);
        }
        let was_verified = *self.state(id) == CandidateState::Verified;
        self.set(id, CandidateState::Failed(why));
        if was_verified {
            self.choose_in_use();
        }
    }

    fn add_diverted(&mut self, id: CandidateId, arrived: &str) {
        let mut theirs = self.remote.iter();
        let arrived = theirs.find(|own| own.name == arrived);
        let actual = self
            .candidate(id)
            .zip(arrived)
            .and_then(|(meant, own)| diverted(meant, own.index, &self.local, &self.remote));
        // A candidate that exists already keeps its state. Otherwise a peer that answers now here,
        // now there would be connected forever.
        let Some(actual) = actual.filter(|actual| self.candidate(actual.id()).is_none()) else {
            return;
        };
        self.states.insert(actual.id(), CandidateState::Reached);
        self.candidates.push(actual.clone());
        self.diverted.insert(id, actual);
    }

    /// Returns true if a candidate is among the best verified links. Such a link is replaced only
    /// to increase the total rate.
    pub(crate) fn is_in_use(&self, id: CandidateId) -> bool {
        self.in_use.contains_key(&id)
    }

    /// Returns true if a lost link has not been verified again.
    pub(crate) fn misses_a_link(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns true if a candidate failed because of a missing host route.
    pub(crate) fn lacks_a_route(&self) -> bool {
        self.states
            .values()
            .any(|state| state.failure() == Some(&Failure::Unrouted))
    }

    /// Discards the failures of candidates that needed a probe and did not answer, of all candidates if
    /// no link is in use. The two ends of
    /// a cable detect it, configure addresses and begin to listen at different times.
    ///
    /// Also discards failures because of a missing route: a full queue may have dropped the proof
    /// of an address.
    pub(crate) fn forgive(&mut self) {
        self.discard_failures(|pairing, candidate, why| match why {
            Failure::Unreachable(_) => {
                candidate.preference == Preference::LinkLocal
                    || pairing.is_beside_a_loss(candidate)
                    || pairing.in_use.is_empty()
            }
            Failure::Unrouted => true,
            _ => false,
        });
    }

    /// Sets failed candidates back to untried if `is_obsolete` returns true.
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

    /// Selects the links to use, best first. Excludes the interface pairs `taken` (local name,
    /// remote name).
    ///
    /// Maximizes the total rate of candidates that have not failed and await no probe. An interface
    /// takes as many links as its rate is a multiple of the rate of the fastest. Replaces a link in
    /// use only to increase the total rate. Ties are decided by the better preferences, then by more
    /// reached candidates, then by interface order.
    pub fn plan(&self, taken: &[(String, String)]) -> Vec<Candidate> {
        let offers = self.offers(taken, |candidate| self.is_usable(candidate));
        best(&self.candidates, &offers)
            .into_iter()
            .map(|offer| offer.candidate.clone())
            .collect()
    }

    /// Returns true if strict reverse-path filtering (`rp_filter=1`) may drop a connection's
    /// packets until host routes are installed. This requires a shared subnet, and the setting on
    /// any interface. Probes cannot detect it.
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

    /// Selects the links in use from the verified candidates, by the same criteria as
    /// [`plan`](Self::plan).
    fn choose_in_use(&mut self) {
        let offers = self.offers(&[], |candidate| {
            *self.state(candidate.id()) == CandidateState::Verified
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
        let was_reached = matches!(
            self.state(id),
            CandidateState::Reached | CandidateState::Verified
        );
        Offer {
            candidate,
            is_in_use: self.is_in_use(id),
            was_reached,
        }
    }

    /// Returns true if the candidate may be planned: it has not failed, and awaits no probe.
    fn is_usable(&self, candidate: &Candidate) -> bool {
        self.state(candidate.id()).failure().is_none() && !self.awaits_probe(candidate)
    }

    /// Returns true if the candidate is untried and must be probed before it can be planned.
    fn awaits_probe(&self, candidate: &Candidate) -> bool {
        let is_unsure = || {
            candidate.preference == Preference::LinkLocal
                || !self.fits(candidate)
                || self.follows_a_loss(candidate)
        };
        *self.state(candidate.id()) == CandidateState::Untried && is_unsure()
    }

    /// Returns true if the candidate can be used without replacing a link in use.
    pub(super) fn fits(&self, candidate: &Candidate) -> bool {
        has_room(candidate, self.in_use.values())
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

    /// Returns the candidates that must be probed before they can be planned, best first.
    pub(super) fn unprobed(&self, taken: &[(String, String)]) -> Vec<&Candidate> {
        let awaiting = self.offers(taken, |candidate| self.awaits_probe(candidate));
        let candidates = || awaiting.iter().map(|offer| offer.candidate);
        let idle: Vec<&Candidate> = candidates()
            .filter(|candidate| self.fits(candidate))
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

    /// Returns true if at least one of the candidate's cables has no link in use.
    fn has_an_idle_end(&self, candidate: &Candidate) -> bool {
        let is_idle = |end: &End| {
            self.in_use
                .values()
                .all(|other| end.of(other).cable() != end.of(candidate).cable())
        };
        End::BOTH.iter().any(is_idle)
    }

    /// Sets the state of a candidate. Has no effect if the candidate no longer exists.
    fn set(&mut self, id: CandidateId, state: CandidateState) {
        if self.candidate(id).is_some() {
            self.states.insert(id, state);
        }
    }
}

/// Removes interfaces with duplicate names, and interfaces beyond the limits.
fn sensible(mut interfaces: Vec<PeerInterface>) -> Vec<PeerInterface> {
    let mut names = BTreeSet::new();
    interfaces.retain(|interface| names.insert(interface.name.clone()));
    interfaces.truncate(MOST_INTERFACES);
    for interface in &mut interfaces {
        interface.addresses.truncate(MOST_ADDRESSES);
    }
    interfaces
}

/// Returns the names of interfaces whose earlier failures are obsolete. These interfaces are new,
/// or have a new address or line rate, for example after replugging.
///
/// Omits an interface that had no candidates before, because it has no states.
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
