//! Why the plan is as it is, interface by interface: facts, for others to put into words.

use super::{
    Pairing,
    candidate::{Candidate, Preference},
    matching::is_free,
    state::{Failure, State},
};
use crate::message::PeerInterface;

/// What became of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Whose interface it is.
    pub side: Side,
    /// Its name there.
    pub interface: String,
    /// What became of it.
    pub fact: Fact,
}

/// One of the two machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// This one.
    Local,
    /// The peer.
    Remote,
}

/// What became of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// It has a link in the plan.
    Paired {
        /// The link.
        candidate: Candidate,
        /// What is known of it.
        state: State,
        /// What is worth most of its other candidates that may be planned, to the same interface of the peer or another, used there or not.
        next_best: Option<Box<Candidate>>,
    },
    /// It was taken before there was a plan.
    Taken {
        /// The other machine's interface that it was taken with.
        with: String,
    },
    /// It has no link.
    LeftOut(LeftOut),
}

/// Why an interface has no link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftOut {
    /// The machine that it is in does not use it unasked.
    NoCandidateHere,
    /// No interface that the other machine uses is in a subnet with it or, if it has a link-local address, has one too.
    NothingInCommon,
    /// All its candidates are restricted away.
    NotPermitted,
    /// It has candidates that wait for a probe.
    AwaitsProbe,
    /// All of the other machine's interfaces that it could be paired with have links that are as good or better, or were taken.
    PeerHasNoMore,
    /// All its candidates failed, or all to interfaces that are free. The list has those that failed, best first.
    Failed(Vec<(Candidate, Failure)>),
}

impl Pairing {
    /// Says what [`plan`](Self::plan) would make of each of our interfaces, and why each of the peer's that is left over is.
    pub fn explain(&self, taken: &[(String, String)]) -> Vec<Explanation> {
        let plan = self.plan(taken);
        let local = self.local.iter().map(|interface| self.explain_one(Side::Local, interface, &plan, taken));
        let remote = self.remote.iter().map(|interface| self.explain_one(Side::Remote, interface, &plan, taken));
        let left_over = remote.filter(|explanation| matches!(explanation.fact, Fact::LeftOut(_)));
        local.chain(left_over).collect()
    }

    fn explain_one(&self, side: Side, interface: &PeerInterface, plan: &[Candidate], taken: &[(String, String)]) -> Explanation {
        let name = interface.name.as_str();
        let with = taken.iter().find_map(|(ours, theirs)| match side {
            Side::Local => (ours == name).then_some(theirs),
            Side::Remote => (theirs == name).then_some(ours),
        });
        let paired = plan.iter().find(|candidate| side.interface(candidate) == name);
        let fact = match (with, paired) {
            (Some(with), _) => Fact::Taken { with: with.clone() },
            (None, Some(candidate)) => Fact::Paired {
                candidate: candidate.clone(),
                state: self.state(candidate.id()).clone(),
                next_best: self.next_best(side, candidate).cloned().map(Box::new),
            },
            (None, None) => Fact::LeftOut(self.why_left_out(side, interface, plan, taken)),
        };
        Explanation { side, interface: interface.name.clone(), fact }
    }

    fn next_best(&self, side: Side, chosen: &Candidate) -> Option<&Candidate> {
        let may_work = |candidate: &Candidate| match self.state(candidate.id()) {
            State::Untried => candidate.preference != Preference::LinkLocal,
            state => state.failure().is_none(),
        };
        let is_other = |candidate: &&Candidate| {
            side.interface(candidate) == side.interface(chosen) && candidate.id() != chosen.id() && may_work(candidate)
        };
        // The last of equals is what `max_by_key` returns; the first is the better one.
        self.candidates().filter(is_other).rev().max_by_key(|candidate| self.offer(candidate).worth(0, 0))
    }

    fn why_left_out(&self, side: Side, interface: &PeerInterface, plan: &[Candidate], taken: &[(String, String)]) -> LeftOut {
        let is_of_it = |candidate: &&Candidate| side.interface(candidate) == interface.name;
        if !interface.candidate {
            return LeftOut::NoCandidateHere;
        }
        if !self.candidates.iter().any(|candidate| is_of_it(&candidate)) {
            return LeftOut::NothingInCommon;
        }
        let permitted: Vec<&Candidate> = self.candidates().filter(is_of_it).collect();
        let failure = |candidate: &&Candidate| Some(((*candidate).clone(), self.state(candidate.id()).failure()?.clone()));
        let failed: Vec<(Candidate, Failure)> = permitted.iter().filter_map(failure).collect();
        let is_idle = |candidate: &Candidate| is_free(candidate, taken) && !plan.iter().any(|other| other.shares_an_end(candidate));
        match permitted.len() {
            0 => LeftOut::NotPermitted,
            all if all == failed.len() => LeftOut::Failed(failed),
            _ if self.unprobed(taken).iter().any(is_of_it) => LeftOut::AwaitsProbe,
            // What it has left would need an interface that carries a better link; these would not have.
            _ if failed.iter().any(|(candidate, _)| is_idle(candidate)) => LeftOut::Failed(failed),
            _ => LeftOut::PeerHasNoMore,
        }
    }
}

impl Side {
    /// Returns the name of its end's interface.
    fn interface(self, candidate: &Candidate) -> &str {
        match self {
            Self::Local => &candidate.local.interface,
            Self::Remote => &candidate.remote.interface,
        }
    }
}
