//! Planner of links: decides which candidates to probe, which connections to make and close, and
//! when.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{
    candidate::{Candidate, CandidateId, Preference},
    machine::Pairing,
    matching::has_room,
    state::{CandidateState, Failure, Obstacle},
};
use crate::wire::message::PeerInterface;

/// Planner of a session's links. Tracks the connections of a [`Pairing`], and pairs interfaces
/// again after a loss.
///
/// After each input, call [`probe`](Self::probe), then [`poll_step`](Self::poll_step) until `None`.
/// Call [`handle_timeout`](Self::handle_timeout) at [`poll_timeout`](Self::poll_timeout). The
/// caller retries lost connections until a step [retires](Step::Retire) them.
#[derive(Debug, Clone)]
pub struct Planner {
    pairing: Pairing,
    made: BTreeMap<CandidateId, Made>,
    probing: BTreeSet<CandidateId>,
    /// Time of the next round of probes; `None` if no round is planned.
    again: Option<Instant>,
    /// Number of rounds of probes since the last change.
    rounds: usize,
}

/// Candidate whose connections were requested or adopted, with the state of the connections.
#[derive(Debug, Clone)]
struct Made {
    candidate: Candidate,
    is_up: bool,
    was_up: bool,
    /// True if a probe was answered during a connection attempt that may have begun before the
    /// cable was plugged in. A failure of that attempt is then ignored.
    is_overtaken: bool,
}

impl Made {
    fn new(candidate: Candidate) -> Self {
        Self {
            candidate,
            is_up: false,
            was_up: false,
            is_overtaken: false,
        }
    }
}

/// Action for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Open the connections of a new link.
    Connect(Candidate),
    /// Close the connections of a link, and do not retry them.
    Retire(CandidateId),
}

impl Planner {
    /// Returns the planner of a session without links.
    pub fn new(pairing: Pairing) -> Self {
        Self {
            pairing,
            made: BTreeMap::new(),
            probing: BTreeSet::new(),
            again: None,
            rounds: 0,
        }
    }

    /// Returns the pairing: the candidates and their states.
    pub fn pairing(&self) -> &Pairing {
        &self.pairing
    }

    /// Replaces the lists of interfaces after a change on either machine.
    pub fn update(&mut self, local: Vec<PeerInterface>, remote: Vec<PeerInterface>) {
        self.pairing.update(local, remote);
        // The pairing has discarded the state of a candidate that had disappeared.
        let up = self
            .made
            .iter()
            .filter(|(_, made)| made.is_up)
            .map(|(id, _)| *id);
        up.for_each(|id| self.pairing.verified(id));
        self.rounds = 0;
    }

    /// Adds a candidate whose connection the planner did not request, such as the session's first
    /// connection.
    pub fn adopt(&mut self, candidate: Candidate) {
        let id = candidate.id();
        self.made.insert(id, Made::new(candidate));
        self.handle_opened(id);
    }

    /// Records that a connection of a candidate is open and arrived at the intended interface.
    pub fn handle_opened(&mut self, id: CandidateId) {
        if let Some(made) = self.made.get_mut(&id) {
            (made.is_up, made.was_up, made.is_overtaken) = (true, true, false);
            self.pairing.verified(id);
        }
    }

    /// Records that a candidate has lost its connection or could not connect. The caller retries
    /// the connection.
    pub fn handle_lost(&mut self, id: CandidateId, obstacle: Obstacle) {
        let Some(made) = self.made.get_mut(&id) else {
            return;
        };
        let is_news = std::mem::take(&mut made.is_up);
        if is_news {
            self.rounds = 0;
            self.pairing.lost(id);
        } else if !std::mem::take(&mut made.is_overtaken) {
            self.pairing.failed(id, Failure::Unreachable(obstacle));
        }
    }

    /// Records the failure of a candidate's connection with the reason `why`, for example because
    /// the connection used the wrong interface. The planner no longer retries the candidate. A
    /// candidate that lacks a host route is planned again after the next round of probes.
    pub fn handle_astray(&mut self, id: CandidateId, why: Failure) {
        self.made.remove(&id);
        self.pairing.failed(id, why);
    }

    /// Removes a candidate whose connections were closed or could not be made.
    pub fn forget(&mut self, id: CandidateId) {
        self.made.remove(&id);
        self.pairing.closed(id);
    }

    /// Records the end of a probe: it was answered, or what stood against it.
    pub fn handle_probed(&mut self, id: CandidateId, answer: Result<(), Obstacle>) {
        self.probing.remove(&id);
        match answer {
            Ok(()) => {
                self.pairing.reached(id);
                if let Some(made) = self.made.get_mut(&id) {
                    made.is_overtaken = !made.is_up;
                }
            }
            Err(_) if *self.pairing.state(id) == CandidateState::Verified => {}
            Err(obstacle) => self.pairing.failed(id, Failure::Unreachable(obstacle)),
        }
    }

    /// Starts the probes that are due by calling `start`, which returns false if too many probes
    /// are in progress. The remaining probes are due after the next input, or after 1 s.
    pub fn probe(
        &mut self,
        taken: &[(String, String)],
        now: Instant,
        mut start: impl FnMut(&Candidate) -> bool,
    ) {
        let unprobed = self.pairing.to_probe(taken);
        let mut all_begun = true;
        for candidate in &unprobed {
            let id = candidate.id();
            let is_begun = self.probing.contains(&id) || start(candidate);
            if is_begun {
                self.probing.insert(id);
            }
            all_begun &= is_begun;
        }
        let pause = if all_begun {
            self.pause()
        } else {
            Some(BUSY_PAUSE)
        };
        self.again = self
            .again
            .into_iter()
            .chain(pause.map(|pause| now + pause))
            .min();
    }

    fn pause(&self) -> Option<Duration> {
        match PAUSES.get(self.rounds) {
            Some(pause) if self.has_links() || !self.pairing.misses_a_link() => Some(*pause),
            Some(pause) => Some(PAUSE_WITHOUT_LINKS.min(*pause)),
            None if self.has_links()
                && (self.pairing.misses_a_link() || self.pairing.lacks_a_route()) =>
            {
                Some(PAUSES[PAUSES.len() - 1])
            }
            None if self.pairing.misses_a_link() => Some(PAUSE_WITHOUT_LINKS),
            None => None,
        }
    }

    fn has_links(&self) -> bool {
        self.made.values().any(|made| made.is_up)
    }

    /// Returns the time of the next round of probes; `None` if no round is planned.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.again
    }

    /// Begins the next round of probes if it is due, by discarding failures that may be obsolete.
    /// Call [`probe`](Self::probe) afterwards.
    pub fn handle_timeout(&mut self, taken: &[(String, String)], now: Instant) {
        if self.again.is_none_or(|at| now < at) {
            return;
        }
        self.again = None;
        // If there are many interfaces, a round may need several calls.
        if self
            .pairing
            .to_probe(taken)
            .iter()
            .all(|candidate| self.probing.contains(&candidate.id()))
        {
            self.rounds += 1;
            self.pairing.forgive();
        }
    }

    /// Returns true if any probe is in progress.
    pub(crate) fn is_probing(&self) -> bool {
        !self.probing.is_empty()
    }

    /// Returns true if a candidate is in the plan. The plan excludes the interface pairs `taken`.
    pub fn is_planned(&self, id: CandidateId, taken: &[(String, String)]) -> bool {
        self.pairing
            .plan(taken)
            .iter()
            .any(|candidate| candidate.id() == id)
    }

    /// Returns the next action for the caller; `None` if the connections agree with the plan.
    pub fn poll_step(&mut self, taken: &[(String, String)]) -> Option<Step> {
        let plan = self.pairing.plan(taken);
        if let Some(id) = self.made.keys().copied().find(|id| self.loses(*id, &plan)) {
            self.forget(id);
            return Some(Step::Retire(id));
        }
        let candidate = plan.into_iter().find(|candidate| {
            !self.made.contains_key(&candidate.id()) && self.may_be_made(candidate)
        })?;
        self.made
            .insert(candidate.id(), Made::new(candidate.clone()));
        Some(Step::Connect(candidate))
    }

    /// Returns false for an untried candidate in a shared subnet while a probe is in progress. The
    /// probe may find a link-local path, which is more robust.
    fn may_be_made(&self, candidate: &Candidate) -> bool {
        candidate.preference != Preference::SharedSubnet
            || *self.pairing.state(candidate.id()) != CandidateState::Untried
            || !self.is_probing()
    }

    /// Returns true if other links replace this one. The link to replace is neither planned nor in
    /// use, and its interfaces have no room for it beside the links that are. A link that has worked
    /// is replaced only by links that are connected.
    fn loses(&self, id: CandidateId, plan: &[Candidate]) -> bool {
        let is_planned = |id: CandidateId| plan.iter().any(|candidate| candidate.id() == id);
        if is_planned(id) || self.pairing.is_in_use(id) {
            return false;
        }
        let own = &self.made[&id];
        let works = |other: CandidateId| self.made.get(&other).is_some_and(|made| made.is_up);
        let in_use = self.made.values().map(|made| &made.candidate);
        let in_use = in_use.filter(|candidate| {
            self.pairing.is_in_use(candidate.id()) && !is_planned(candidate.id())
        });
        let winners = plan.iter().chain(in_use);
        !has_room(
            &own.candidate,
            winners.filter(|other| !own.was_up || works(other.id())),
        )
    }
}

/// Delays before successive rounds of probes. The kernel needs 1 to 2 s for duplicate address
/// detection. The last delay repeats while a link or a route is missing.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(700),
    Duration::from_millis(700),
    Duration::from_millis(1500),
    Duration::from_secs(5),
];

/// Maximum delay between rounds of probes while every link is lost.
const PAUSE_WITHOUT_LINKS: Duration = Duration::from_millis(1500);

/// Delay before a retry of the probes that `start` postponed.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
