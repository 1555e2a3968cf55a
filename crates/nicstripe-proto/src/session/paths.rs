//! Paths of a session: lookup, selection, and rate limits.

use std::{collections::BTreeMap, time::Instant};

use crate::{
    id::{LAST_PATH, PathId},
    pairing::{Candidate, CandidateId, Pairing},
    path::{
        machine::{Path, PathState},
        pace::Pace,
        plan::{Origin, PathPlan},
    },
    units::BitRate,
};

/// Paths of a session by ID, and the rate limits of their data.
#[derive(Debug)]
pub(super) struct Paths {
    paths: BTreeMap<PathId, Path>,
    /// Rate limit of all paths together; `None` for no limit.
    pub(super) pace: Option<Pace>,
    /// Earliest time at which a rate limit permits another chunk; `None` if no limit forbids one.
    pub(super) paced_until: Option<Instant>,
}

impl Paths {
    pub(super) fn new(rate_limit: Option<BitRate>, now: Instant) -> Self {
        Self {
            paths: BTreeMap::new(),
            pace: rate_limit.map(|rate| Pace::new(rate, now)),
            paced_until: None,
        }
    }

    pub(super) fn get(&self, id: PathId) -> Option<&Path> {
        self.paths.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.paths.get_mut(&id)
    }

    /// Returns a path that has a connection, even if the path is suspect; `None` if it has none.
    pub(super) fn connected_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.get_mut(id).filter(|path| path.state().is_connected())
    }

    pub(super) fn insert(&mut self, id: PathId, path: Path) {
        self.paths.insert(id, path);
    }

    pub(super) fn ids(&self, is_it: impl Fn(&Path) -> bool) -> Vec<PathId> {
        let found = self.paths.iter().filter(|(_, path)| is_it(path));
        found.map(|(id, _)| *id).collect()
    }

    /// Returns the ID for a new path: that of a retired path of the same link, otherwise one that was
    /// never used. Returns `None` if there is none.
    pub(super) fn id_for(&self, plan: &PathPlan) -> Option<PathId> {
        let is_free = |path: &Path| path.is_retired() && path.plan().is_one_link(plan);
        let had = self.paths.iter().find(|(_, path)| is_free(path));
        had.map(|(id, _)| *id).or_else(|| {
            let next = self.paths.keys().next_back().map_or(0, |last| last.0 + 1);
            (next <= LAST_PATH.0).then_some(PathId(next))
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PathId, &Path)> {
        self.paths.iter().map(|(id, path)| (*id, path))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (PathId, &mut Path)> {
        self.paths.iter_mut().map(|(id, path)| (*id, path))
    }

    /// Iterates over the paths between which the planner chooses, except the retired ones.
    pub(super) fn links(&self) -> impl Iterator<Item = (PathId, &Path)> {
        self.iter()
            .filter(|(_, path)| !path.is_retired() && path.plan().candidate().is_some())
    }

    /// Iterates over the paths of an address pair, except the retired ones.
    pub(super) fn over(&self, pair: CandidateId) -> impl Iterator<Item = (PathId, &Path)> {
        self.iter().filter(move |(_, path)| is_over(path, pair))
    }

    pub(super) fn over_mut(&mut self, pair: CandidateId) -> impl Iterator<Item = &mut Path> {
        let all = self.paths.values_mut();
        all.filter(move |path| is_over(path, pair))
    }

    /// Returns true if a path of the address pair is connected.
    pub(super) fn is_up(&self, pair: CandidateId) -> bool {
        self.over(pair).any(|(_, path)| path.state().is_connected())
    }

    /// Returns the interface pairs (local, peer's) that the planner must leave alone: those of named
    /// links, and of a first contact between unknown ends. The peer's name is empty if unknown, for
    /// example behind NAT; the local interface still counts as used. A path that is down takes
    /// nothing.
    pub(super) fn taken(&self) -> Vec<(String, String)> {
        let takes = |path: &&Path| {
            let plan = path.plan();
            let is_alone = match plan.origin {
                Origin::Named => true,
                Origin::Contact => plan.pair.is_none(),
                Origin::ContactOnly | Origin::Excluded | Origin::Planned => false,
            };
            is_alone && path.holds_interfaces()
        };
        let taken = self.paths.values().filter(takes).map(Path::plan);
        taken
            .map(|plan| {
                (
                    plan.interface.clone(),
                    plan.peer_interface.clone().unwrap_or_default(),
                )
            })
            .collect()
    }

    /// Gives the planned paths the current names of the interfaces at their ends.
    pub(super) fn rename_ends(&mut self, pairing: &Pairing) {
        for path in self.paths.values_mut() {
            let plan = path.plan();
            let Some(pair) = plan.candidate().and_then(|own| pairing.candidate(own.id())) else {
                continue;
            };
            if plan.pair.as_ref() != Some(pair) {
                let plan = path.plan_mut();
                plan.peer_interface = Some(pair.remote.interface.clone());
                plan.pair = Some(pair.clone());
            }
        }
    }

    /// Returns true if a path waits for its host route or for the peer's answer.
    pub(super) fn awaits(&self) -> bool {
        let waits = |path: &Path| matches!(path.state(), PathState::Routing | PathState::Announced);
        self.paths.values().any(waits)
    }

    pub(super) fn is_only_connected(&self, id: PathId) -> bool {
        !self
            .iter()
            .any(|(other, path)| other != id && path.state().is_connected())
    }

    pub(super) fn open(&self) -> u64 {
        self.paths
            .values()
            .filter(|path| path.state() == PathState::Open)
            .count() as u64
    }

    /// Returns the number of connected paths that are not excluded from data.
    pub(super) fn with_data(&self) -> u64 {
        self.paths
            .values()
            .filter(|path| path.state().is_connected() && path.carries_data)
            .count() as u64
    }

    /// Returns true if the path is open and no other open path has a lower expected delay for a
    /// control message. The delay behind two chunks at 10 Mbit/s is 0.4 s.
    pub(super) fn is_best_for_control(&self, id: PathId, now: Instant) -> bool {
        let delay =
            |path: &Path| (path.state() == PathState::Open).then(|| path.control_delay(now));
        let Some(own) = self.get(id).and_then(delay) else {
            return false;
        };
        self.paths
            .values()
            .filter_map(delay)
            .all(|other| own <= other)
    }

    /// Returns true if a path may carry data in either direction. Returns false if the path is
    /// excluded from data. Also returns false if the path is in quarantine while another open path
    /// may carry data.
    pub(super) fn may_carry_data(&self, id: PathId, now: Instant) -> bool {
        let may = |path: &Path| path.carries_data && path.quarantined_until(now).is_none();
        let Some(path) = self.get(id) else {
            return false;
        };
        may(path)
            || (path.carries_data
                && !self
                    .paths
                    .values()
                    .any(|other| other.state() == PathState::Open && may(other)))
    }

    /// Returns the measured rate of a path (`None` if unknown), and true if the path is suspect.
    pub(super) fn rate_of(&self, id: PathId) -> (Option<BitRate>, bool) {
        let path = self.get(id);
        let suspect = path.is_none_or(|path| path.state() != PathState::Open);
        (path.and_then(|path| path.rate.rate), suspect)
    }

    /// Returns true if a rate limit forbids a chunk on `path` now. Records the time at which the
    /// limit will permit a chunk.
    pub(super) fn is_paced(&mut self, path: PathId, now: Instant) -> bool {
        let own = self
            .get(path)
            .and_then(|path| path.pace.as_ref()?.wait(now));
        let wait = own.max(self.pace.as_ref().and_then(|pace| pace.wait(now)));
        if let Some(at) = wait {
            self.paced_until = Some(self.paced_until.map_or(at, |until| until.min(at)));
        }
        wait.is_some()
    }

    /// Charges `bytes`, which are about to be sent on `path`, to the rate limits of the path and
    /// the session.
    pub(super) fn on_paced(&mut self, path: PathId, bytes: u64, now: Instant) {
        self.paces(path).for_each(|pace| pace.on_sent(bytes, now));
    }

    /// Returns charged `bytes`, which compression has saved, to the rate limits of the path and the
    /// session.
    pub(super) fn on_saved(&mut self, path: PathId, bytes: u64) {
        self.paces(path).for_each(|pace| pace.on_saved(bytes));
        self.paced_until = None;
    }

    fn paces(&mut self, path: PathId) -> impl Iterator<Item = &mut Pace> {
        let path = self.paths.get_mut(&path);
        let own = path.and_then(|path| path.pace.as_mut());
        own.into_iter().chain(self.pace.as_mut())
    }
}

fn is_over(path: &Path, pair: CandidateId) -> bool {
    !path.is_retired() && path.plan().candidate().map(Candidate::id) == Some(pair)
}
