//! State of a client's links that its planning keeps between two inputs, and questions to it.

use std::{collections::BTreeSet, net::IpAddr, time::Instant};

use super::paths::Paths;
use crate::{
    pairing::{
        Candidate, CandidateId, CandidateState, Pairing, Preference, matching::has_room,
        probes::Probes,
    },
    path::plan::PathPlan,
    wire::message::PeerInterface,
};

/// Maximum number of connections per link.
pub const MOST_STREAMS: u8 = 16;

/// Conditions under which a client plans its links.
#[derive(Debug, Clone)]
pub struct LinkTerms {
    /// True unless the user named the links: the planner then chooses none.
    pub is_automatic: bool,
    /// Number of connections per link; `None` for as many as the bonds at its ends need.
    pub streams: Option<u8>,
    /// True if the driver may install host routes, and if connections for which the peer may need
    /// one are announced.
    pub has_routes: bool,
    /// Port of the peer.
    pub port: u16,
}

/// Planning of a client's links.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) terms: LinkTerms,
    pub(super) pairing: Pairing,
    pub(super) probes: Probes,
    /// Interfaces announced by the peer and not yet applied, and the time to apply them.
    pub(super) told: Option<Vec<PeerInterface>>,
    pub(super) apply_at: Option<Instant>,
    pub(super) applied_at: Option<Instant>,
    /// Time at which to plan, if other probes may be answered before; `None` to plan at once.
    pub(super) plan_at: Option<Instant>,
    /// Time to stop waiting for the peer's answer to an announcement.
    pub(super) answer_by: Option<Instant>,
    /// Number of times that the current announcement has been repeated.
    pub(super) reminders: u32,
    /// True once a path other than the first has connected.
    pub(super) has_worked: bool,
    pub(super) has_given_up: bool,
}

impl Links {
    pub(super) fn new(terms: LinkTerms, pairing: Pairing, now: Instant) -> Self {
        Self {
            terms,
            pairing,
            probes: Probes::new(now),
            told: None,
            apply_at: None,
            applied_at: None,
            plan_at: None,
            answer_by: None,
            reminders: 0,
            has_worked: false,
            has_given_up: false,
        }
    }

    pub(super) fn probe(&mut self, paths: &Paths, now: Instant) -> Vec<Candidate> {
        let is_connected = paths.iter().any(|(_, path)| path.state().is_connected());
        self.probes
            .begin(&self.pairing, &paths.taken(), is_connected, now)
    }

    /// Returns the connection to announce (local address, the peer's interface index) if the peer's
    /// kernel would drop or misroute its packets without a host route; `None` otherwise.
    pub(super) fn expected(&self, plan: &PathPlan) -> Option<(IpAddr, u32)> {
        // A client that must not install routes does not request them from the peer.
        let candidate = plan
            .candidate()
            .filter(|candidate| self.terms.has_routes && self.pairing.is_filtered(candidate))?;
        Some((plan.local?, candidate.remote.index))
    }

    /// Returns the number of connections for a link: as the user requested, otherwise as many as the
    /// bonds at its ends need.
    pub(super) fn streams_of(&self, plan: &PathPlan) -> usize {
        let of = |side: &[PeerInterface], name: &str| {
            let mut side = side.iter();
            side.find(|interface| interface.name == name)
                .and_then(|interface| interface.streams)
        };
        let theirs = plan.peer_interface.as_deref();
        let theirs = theirs.and_then(|name| of(self.pairing.remote(), name));
        let needed = of(self.pairing.local(), &plan.interface).max(theirs);
        let streams = self.terms.streams.or(needed).unwrap_or(1);
        usize::from(streams.clamp(1, MOST_STREAMS))
    }

    /// Returns the link that others replace: it is neither planned nor in use, and its interfaces
    /// have no room for it next to the links that are. A link that has worked is replaced only by
    /// links that are connected, and none during its first attempt: what takes its place may have
    /// failed before.
    pub(super) fn replaced(&self, paths: &Paths, plan: &[Candidate]) -> Option<CandidateId> {
        let is_planned = |id: CandidateId| plan.iter().any(|candidate| candidate.id() == id);
        let is_kept = |id: CandidateId| is_planned(id) || self.pairing.is_in_use(id);
        let in_use = || {
            let links = paths
                .links()
                .filter_map(|(_, path)| path.plan().candidate());
            let mut seen = BTreeSet::new();
            links.filter(move |candidate| {
                let id = candidate.id();
                self.pairing.is_in_use(id) && !is_planned(id) && seen.insert(id)
            })
        };
        let mut links = paths
            .links()
            .filter_map(|(_, path)| path.plan().candidate());
        let is_replaced = |own: &&Candidate| {
            let was_up = paths.over(own.id()).any(|(_, path)| path.was_open());
            let is_tried = paths.over(own.id()).any(|(_, path)| path.is_tried_first());
            let winners: Vec<&Candidate> = plan
                .iter()
                .chain(in_use())
                .filter(|other| !was_up || paths.is_up(other.id()))
                .collect();
            !is_kept(own.id()) && !is_tried && !has_room(own, winners.into_iter())
        };
        links.find(is_replaced).map(Candidate::id)
    }

    /// Returns false for an untried candidate in a shared subnet while a probe is in progress. The
    /// probe may find a link-local path, which is more robust.
    pub(super) fn may_be_made(&self, candidate: &Candidate) -> bool {
        candidate.preference != Preference::SharedSubnet
            || *self.pairing.state(candidate.id()) != CandidateState::Untried
            || !self.probes.are_under_way()
    }
}
