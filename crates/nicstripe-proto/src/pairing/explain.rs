//! Explanations of a plan: the outcome for each interface and its reason, as data without text for
//! the user.

use super::{
    candidate::{Candidate, End, Preference},
    machine::Pairing,
    matching::{has_room, is_free},
    state::{CandidateState, Failure},
};
use crate::wire::message::PeerInterface;

/// Explanation of a plan's outcome for one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Machine of the interface.
    pub side: Side,
    /// Name of the interface on its machine.
    pub interface: String,
    /// Outcome of planning for this interface.
    pub fact: Fact,
}

/// One of the two machines of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Machine that has made the plan.
    Local,
    /// Peer of the machine that has made the plan.
    Remote,
}

/// Outcome of planning for one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The plan includes a link on the interface.
    Paired {
        /// Address pair of the link.
        candidate: Candidate,
        /// State of the link's probe and connection.
        state: CandidateState,
        /// Best of the interface's other usable candidates, to any interface of the peer, whether
        /// used or idle; `None` without one.
        next_best: Option<Box<Candidate>>,
    },
    /// The interface was already in use before the plan was made.
    Taken {
        /// Name of the other machine's interface to which this interface is connected.
        with: String,
    },
    /// The plan includes no link on the interface, for this reason.
    LeftOut(LeftOut),
}

/// Reason why a plan includes no link on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftOut {
    /// The interface's machine does not use it by default.
    NoCandidateHere,
    /// No enabled interface of the other machine is in the same subnet, and link-local addresses
    /// cannot connect the interface either.
    NothingInCommon,
    /// [`Pairing::restrict`] excludes all candidates of the interface.
    NotPermitted,
    /// The interface has candidates with unanswered probes.
    AwaitsProbe,
    /// The interface shares its cable with this one, which has a link.
    SharesCable(String),
    /// All matching interfaces of the other machine are in use, or have links that are at least as
    /// good.
    PeerHasNoMore,
    /// All candidates of the interface failed, or all candidates to free interfaces did. Contains
    /// the failed candidates, best first.
    Failed(Vec<(Candidate, Failure)>),
}

impl Pairing {
    /// Explains [`plan`](Self::plan) for each local interface and for each interface of the peer
    /// without a link. Excludes the interface pairs `taken`.
    pub fn explain(&self, taken: &[(String, String)]) -> Vec<Explanation> {
        let plan = self.plan(taken);
        let local = self
            .local
            .iter()
            .map(|interface| self.explain_one(Side::Local, interface, &plan, taken));
        let remote = self
            .remote
            .iter()
            .map(|interface| self.explain_one(Side::Remote, interface, &plan, taken));
        let left_over = remote.filter(|explanation| matches!(explanation.fact, Fact::LeftOut(_)));
        local.chain(left_over).collect()
    }

    fn explain_one(
        &self,
        side: Side,
        interface: &PeerInterface,
        plan: &[Candidate],
        taken: &[(String, String)],
    ) -> Explanation {
        let name = interface.name.as_str();
        let with = taken.iter().find_map(|(ours, theirs)| match side {
            Side::Local => (ours == name).then_some(theirs),
            Side::Remote => (theirs == name).then_some(ours),
        });
        let paired = plan
            .iter()
            .find(|candidate| side.interface(candidate) == name);
        let fact = match (with, paired) {
            (Some(with), _) => Fact::Taken { with: with.clone() },
            (None, Some(candidate)) => Fact::Paired {
                candidate: candidate.clone(),
                state: self.state(candidate.id()).clone(),
                next_best: self.next_best(side, candidate).cloned().map(Box::new),
            },
            (None, None) => Fact::LeftOut(self.why_left_out(side, interface, plan, taken)),
        };
        Explanation {
            side,
            interface: interface.name.clone(),
            fact,
        }
    }

    fn next_best(&self, side: Side, chosen: &Candidate) -> Option<&Candidate> {
        let may_work = |candidate: &Candidate| match self.state(candidate.id()) {
            CandidateState::Untried => candidate.preference != Preference::LinkLocal,
            state => state.failure().is_none(),
        };
        let is_other = |candidate: &&Candidate| {
            side.interface(candidate) == side.interface(chosen)
                && candidate.id() != chosen.id()
                && may_work(candidate)
        };
        // `max_by_key` returns the last of several equal candidates. `rev` makes the best candidate
        // the last.
        self.candidates()
            .filter(is_other)
            .rev()
            .max_by_key(|candidate| self.offer(candidate).worth(0, 0))
    }

    fn why_left_out(
        &self,
        side: Side,
        interface: &PeerInterface,
        plan: &[Candidate],
        taken: &[(String, String)],
    ) -> LeftOut {
        let is_of_it = |candidate: &&Candidate| side.interface(candidate) == interface.name;
        if !interface.candidate {
            return LeftOut::NoCandidateHere;
        }
        if !self.candidates.iter().any(|candidate| is_of_it(&candidate)) {
            return LeftOut::NothingInCommon;
        }
        let permitted: Vec<&Candidate> = self.candidates().filter(is_of_it).collect();
        let failure = |candidate: &&Candidate| {
            Some((
                (*candidate).clone(),
                self.state(candidate.id()).failure()?.clone(),
            ))
        };
        let failed: Vec<(Candidate, Failure)> = permitted.iter().filter_map(failure).collect();
        let is_idle =
            |candidate: &Candidate| is_free(candidate, taken) && has_room(candidate, plan.iter());
        let sharing = permitted.first().and_then(|own| {
            let mut links = plan.iter().map(|link| side.end().of(link));
            links.find(|link| link.cable() == side.end().of(own).cable())
        });
        if let Some(link) = sharing.filter(|_| failed.len() < permitted.len()) {
            return LeftOut::SharesCable(link.interface.clone());
        }
        match permitted.len() {
            0 => LeftOut::NotPermitted,
            all if all == failed.len() => LeftOut::Failed(failed),
            _ if self.unprobed(taken).iter().any(is_of_it) => LeftOut::AwaitsProbe,
            // The untried candidates need an interface that carries a better link; the failed
            // candidates do not.
            _ if failed.iter().any(|(candidate, _)| is_idle(candidate)) => LeftOut::Failed(failed),
            _ => LeftOut::PeerHasNoMore,
        }
    }
}

impl Side {
    fn end(self) -> End {
        match self {
            Self::Local => End::Local,
            Self::Remote => End::Remote,
        }
    }

    /// Returns the name of the interface at this machine's end of the candidate.
    fn interface(self, candidate: &Candidate) -> &str {
        &self.end().of(candidate).interface
    }
}
