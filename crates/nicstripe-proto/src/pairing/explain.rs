//! Reasons for a plan, interface by interface, as facts for others to word.

use super::{
    Pairing,
    candidate::{Candidate, Preference},
    matching::is_free,
    state::{Failure, State},
};
use crate::message::PeerInterface;

/// Outcome for one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The machine with the interface.
    pub side: Side,
    /// The interface's name on that machine.
    pub interface: String,
    /// The outcome.
    pub fact: Fact,
}

/// One of the two machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The local machine.
    Local,
    /// The peer.
    Remote,
}

/// Outcome of planning for an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// It has a link in the plan.
    Paired {
        /// The link.
        candidate: Candidate,
        /// The link's state.
        state: State,
        /// Best of its other usable candidates, to any interface of the peer, used or idle.
        next_best: Option<Box<Candidate>>,
    },
    /// It was taken before the plan was made.
    Taken {
        /// The other machine's interface that it was paired with.
        with: String,
    },
    /// It has no link.
    LeftOut(LeftOut),
}

/// Reason why an interface has no link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftOut {
    /// Its machine does not use it by default.
    NoCandidateHere,
    /// No enabled interface of the other machine shares a subnet with it, or link-local addressing.
    NothingInCommon,
    /// All its candidates are excluded by [`Pairing::restrict`].
    NotPermitted,
    /// It has candidates that wait for a probe.
    AwaitsProbe,
    /// All matching interfaces of the other machine are taken or have links at least as good.
    PeerHasNoMore,
    /// All its candidates failed, or all those to free interfaces. Lists the failed ones, best
    /// first.
    Failed(Vec<(Candidate, Failure)>),
}

impl Pairing {
    /// Explains [`plan`](Self::plan) for each local interface, and for each of the peer's without a
    /// link.
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
            State::Untried => candidate.preference != Preference::LinkLocal,
            state => state.failure().is_none(),
        };
        let is_other = |candidate: &&Candidate| {
            side.interface(candidate) == side.interface(chosen)
                && candidate.id() != chosen.id()
                && may_work(candidate)
        };
        // `max_by_key` returns the last of equal candidates; `rev` makes that the best one.
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
        let is_idle = |candidate: &Candidate| {
            is_free(candidate, taken) && !plan.iter().any(|other| other.shares_an_end(candidate))
        };
        match permitted.len() {
            0 => LeftOut::NotPermitted,
            all if all == failed.len() => LeftOut::Failed(failed),
            _ if self.unprobed(taken).iter().any(is_of_it) => LeftOut::AwaitsProbe,
            // Its untried candidates need an interface that carries a better link; the failed ones
            // do not.
            _ if failed.iter().any(|(candidate, _)| is_idle(candidate)) => LeftOut::Failed(failed),
            _ => LeftOut::PeerHasNoMore,
        }
    }
}

impl Side {
    /// Returns the name of the candidate's interface on this side.
    fn interface(self, candidate: &Candidate) -> &str {
        match self {
            Self::Local => &candidate.local.interface,
            Self::Remote => &candidate.remote.interface,
        }
    }
}
