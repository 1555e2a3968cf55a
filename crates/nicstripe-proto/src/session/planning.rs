//! Planning of a client's links: which paths exist. Facts about the interfaces of both machines,
//! probes, routes and connections come in; steps for the driver go out as events.
//!
//! The set of paths is the only record of links: what is taken, connected, lost or announced is a
//! question to it. A [`Pairing`] keeps what was found out about each address pair, whether or not a
//! path uses it.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use super::{
    event::Event,
    links::{LinkTerms, Links},
    state::Session,
};
use crate::{
    id::{LAST_PATH, PathId},
    pairing::{Candidate, CandidateId, CandidateState, Explanation, Failure, Obstacle, Pairing},
    path::{
        machine::{Cause, Path, PathState},
        plan::{Origin, PathPlan},
    },
    wire::message::{Idle, PeerInterface},
};

/// Path of the first connection of a session.
pub const FIRST_PATH: PathId = PathId(0);

/// Answer of the driver to [`Event::HoldRoutes`] for one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// The route is installed, or is not needed, or its lack will show in the connection.
    Held,
    /// The route would divert traffic, and the peer does not answer at its address.
    Unproved,
    /// The route is mandatory and cannot be installed.
    Failed,
}

/// Knowledge of a client about its links, for a survey.
#[derive(Debug, Clone)]
pub struct LinksView {
    /// Interfaces of both machines, and what was found out about their address pairs.
    pub pairing: Pairing,
    /// Paths that are planned, with their plans and states.
    pub paths: Vec<PathView>,
    /// Outcome for each interface.
    pub explanations: Vec<Explanation>,
    /// True unless the user named the links.
    pub is_automatic: bool,
    /// True while probes run, or while paths wait for a route or for the peer's answer.
    pub is_probing: bool,
}

/// Path in a [`LinksView`].
#[derive(Debug, Clone)]
pub struct PathView {
    /// Plan of the path.
    pub plan: PathPlan,
    /// State of the path, for users.
    pub status: crate::path::PathStatus,
    /// True if the path has been connected since it was planned.
    pub was_open: bool,
    /// True if the latest connection arrived at the intended interface; `None` if unknown.
    pub verified: Option<bool>,
    /// Path MTU in bytes; `None` if it equals the interface's MTU.
    pub path_mtu: Option<u32>,
}

/// The named link with which the limit of paths is exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooManyPaths {
    /// Local interface of the link.
    pub interface: String,
    /// Number of paths that were asked for.
    pub count: usize,
}

/// Facts.
impl Session {
    /// Records that an interface of this machine has lost its carrier, before the list of interfaces
    /// tells.
    pub(super) fn on_carrier_lost(&mut self, interface: &str, now: Instant) {
        let Some(links) = &self.links else { return };
        let mut local = links.pairing.local().to_vec();
        for own in local.iter_mut().filter(|own| own.name == interface) {
            (own.candidate, own.idle) = (false, Some(Idle::NoCarrier));
        }
        let remote = links.pairing.remote().to_vec();
        self.update_pairing(local, remote, now);
    }

    /// Begins to plan the links of a client, whose first connection is open. `named` are the links
    /// that the user named, except that of the first connection.
    ///
    /// # Errors
    ///
    /// The named links need more paths than a session has. Nothing has changed then.
    pub fn begin_links(
        &mut self,
        terms: LinkTerms,
        pairing: Pairing,
        named: Vec<PathPlan>,
        now: Instant,
    ) -> Result<(), TooManyPaths> {
        let links = Links::new(terms, pairing, now);
        let mut plans = Vec::new();
        if let Some(first) = self.paths.get(FIRST_PATH).map(Path::plan)
            && !first.origin.is_contact_only()
        {
            let more = links.streams_of(first) - 1;
            plans.extend(std::iter::repeat_n(first.clone(), more));
        }
        for plan in named {
            let streams = links.streams_of(&plan);
            plans.extend(std::iter::repeat_n(plan, streams));
        }
        if let Some(beyond) = plans.get(usize::from(LAST_PATH.0)) {
            return Err(TooManyPaths {
                interface: beyond.interface.clone(),
                count: plans.len() + 1,
            });
        }
        self.links = Some(links);
        self.verify_connected();
        self.adopt_contact();
        let first = self.paths.get(FIRST_PATH).map(Path::plan);
        let mut to_route = Vec::new();
        if first.is_some_and(|first| !first.origin.is_contact_only()) {
            to_route.push(FIRST_PATH);
        }
        for plan in plans {
            to_route.extend(self.add_planned(plan, now));
        }
        to_route.extend(self.add_and_retire(now));
        self.route(to_route, now);
        Ok(())
    }

    /// Records the interfaces of this machine: those to announce and pair, and the names of all that
    /// exist. Paths of interfaces that are gone are retired.
    pub fn handle_interfaces(
        &mut self,
        interfaces: Vec<PeerInterface>,
        names: &BTreeSet<String>,
        now: Instant,
    ) {
        let Some(links) = &mut self.links else { return };
        let remote = links.pairing.remote().to_vec();
        self.update_pairing(interfaces, remote, now);
        let is_gone = |path: &Path| !path.is_retired() && !names.contains(&path.plan().interface);
        for id in self.paths.ids(is_gone) {
            self.retire_gone(id, now);
        }
        self.plan_links(now);
    }

    /// Records the interfaces that the peer announces. Only the latest are applied, at most once per
    /// 0.1 s: planning takes time, and the peer decides how often it sends.
    pub fn handle_peer_interfaces(&mut self, interfaces: Vec<PeerInterface>, now: Instant) {
        let Some(links) = &mut self.links else { return };
        links.told = Some(interfaces).filter(|told| *told != links.pairing.remote());
        let earliest = links.applied_at.map_or(now, |last| last + TOLD_PAUSE);
        links.apply_at = links.told.as_ref().map(|_| earliest.max(now));
        // This message also answers an announcement.
        self.connect_announced(now);
        self.apply_told(now);
    }

    /// Records the end of a probe: it was answered, or what stood against it.
    pub fn handle_probed(&mut self, id: CandidateId, answer: Result<(), Obstacle>, now: Instant) {
        let Some(links) = &mut self.links else { return };
        links.probes.on_ended(id);
        match answer {
            Ok(()) => {
                links.pairing.reached(id);
                links.plan_at.get_or_insert(now + SETTLING);
                let is_up = self.paths.is_up(id);
                for path in self.paths.over_mut(id) {
                    path.is_overtaken = !is_up;
                }
            }
            Err(_) if *links.pairing.state(id) == CandidateState::Verified => {}
            Err(obstacle) => links.pairing.failed(id, Failure::Unreachable(obstacle)),
        }
        self.plan_links(now);
    }

    /// Records what became of the host routes of paths, after [`Event::HoldRoutes`].
    pub fn handle_routed(&mut self, routed: &[(PathId, Routed)], now: Instant) {
        let mut announced = false;
        for (id, result) in routed {
            announced |= self.on_routed(*id, *result, now);
        }
        if announced {
            self.announce(now);
        }
        self.plan_links(now);
    }

    /// Continues with the paths of one link. Returns true if they await an announcement.
    fn on_routed(&mut self, id: PathId, result: Routed, now: Instant) -> bool {
        let is_heard = self.is_connected();
        let (Some(links), Some(path)) = (&mut self.links, self.paths.get(id)) else {
            return false;
        };
        // The path itself may be connected, and wait for no route.
        let plan = path.plan().clone();
        let is_planned = plan.origin == Origin::Planned;
        if let Some(candidate) = plan
            .candidate()
            .filter(|_| is_planned && result != Routed::Held)
        {
            let pair = candidate.id();
            links.pairing.failed(pair, Failure::Unrouted);
            self.retire_link(pair, now);
            return false;
        }
        let is_announced = is_heard && links.expected(&plan).is_some();
        let streams = self
            .paths
            .ids(|other| other.state() == PathState::Routing && other.plan().is_one_link(&plan));
        for id in streams {
            if is_announced {
                self.paths.get_mut(id).map(Path::on_announced);
            } else {
                self.begin_connection(id, now);
            }
        }
        is_announced
    }
}

/// Consequences of connections.
impl Session {
    /// Continues after a path has connected at the intended interface.
    pub(super) fn on_link_open(&mut self, id: PathId, now: Instant) {
        let (Some(links), Some(path)) = (&mut self.links, self.paths.get(id)) else {
            return;
        };
        links.has_worked |= id != FIRST_PATH;
        if let Some(candidate) = path.plan().candidate() {
            links.pairing.verified(candidate.id());
        }
        let is_contact = |path: &Path| path.plan().origin.is_contact_only();
        let is_link = !is_contact(path);
        let is_replaced = is_link && self.paths.get(FIRST_PATH).is_some_and(is_contact);
        if is_replaced {
            self.retire_path(FIRST_PATH, Cause::ContactOnly, now);
        }
        self.plan_links(now);
    }

    /// Continues after a path has lost its connection, or could not connect because of `obstacle`.
    pub(super) fn on_link_lost(
        &mut self,
        id: PathId,
        was_connected: bool,
        obstacle: Obstacle,
        now: Instant,
    ) {
        let (Some(links), Some(path)) = (&mut self.links, self.paths.get_mut(id)) else {
            return;
        };
        let is_overtaken = std::mem::take(&mut path.is_overtaken);
        let plan = path.plan().clone();
        let pair = plan.candidate().map(Candidate::id);
        if was_connected && pair.is_none() {
            links.probes.restart();
            links.pairing.discard_failures_of_idle_pairs();
        }
        if let Some(pair) = pair.filter(|pair| !self.paths.is_up(*pair)) {
            let was_open = self.paths.over(pair).any(|(_, path)| path.was_open());
            if !was_open && links.expected(&plan).is_some() {
                // The announcement or its proof may have been lost; both are repeated.
                links.pairing.failed(pair, Failure::Unrouted);
                self.retire_link(pair, now);
            } else if was_connected {
                links.probes.restart();
                links.pairing.lost(pair);
            } else if !is_overtaken {
                links.pairing.failed(pair, Failure::Unreachable(obstacle));
            }
        }
        self.plan_links(now);
    }

    /// Ends a path that cannot be a link, and the other connections of its address pair.
    pub(super) fn on_link_astray(&mut self, id: PathId, why: Failure, cause: Cause, now: Instant) {
        let Some(plan) = self.paths.get(id).map(Path::plan) else {
            return;
        };
        let pair = plan.candidate().map(Candidate::id);
        self.retire_path(id, cause, now);
        if let (Some(links), Some(pair)) = (&mut self.links, pair) {
            links.pairing.failed(pair, why);
            self.retire_link(pair, now);
        }
        self.plan_links(now);
    }

    /// Retires all paths over an address pair, in favour of others.
    fn retire_link(&mut self, pair: CandidateId, now: Instant) {
        let paths: Vec<PathId> = self.paths.over(pair).map(|(id, _)| id).collect();
        for id in paths {
            self.retire_path(id, Cause::Replaced, now);
        }
    }

    fn retire_gone(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.get(id) else {
            return;
        };
        let was_connected = path.state().is_connected();
        let pair = path.plan().candidate().map(Candidate::id);
        self.lose_for_good(id, now);
        // Of an interface that was renamed the pair is still there.
        if let (Some(links), Some(pair)) = (&mut self.links, pair)
            && was_connected
            && !self.paths.is_up(pair)
        {
            links.pairing.lost(pair);
        }
    }
}

/// Planning.
impl Session {
    pub(super) fn links_timeout(&self) -> Option<Instant> {
        let links = self.links.as_ref()?;
        let probes = links
            .probes
            .poll_timeout()
            .filter(|_| links.terms.is_automatic);
        probes
            .into_iter()
            .chain(links.apply_at)
            .chain(links.plan_at)
            .chain(links.answer_by)
            .min()
    }

    pub(super) fn poll_links(&mut self, now: Instant) {
        // Most timeouts of a session concern others.
        if self.links_timeout().is_none_or(|at| now < at) {
            return;
        }
        let taken = self.paths.taken();
        let Some(links) = &mut self.links else { return };
        links.probes.handle_timeout(&mut links.pairing, &taken, now);
        if links.answer_by.is_some_and(|at| now >= at) {
            self.on_unanswered(now);
        }
        self.apply_told(now);
        self.plan_links(now);
    }

    fn apply_told(&mut self, now: Instant) {
        let Some(links) = &mut self.links else { return };
        if links.apply_at.is_none_or(|at| now < at) {
            return;
        }
        links.apply_at = None;
        if let Some(told) = links.told.take() {
            links.applied_at = Some(now);
            let local = links.pairing.local().to_vec();
            self.update_pairing(local, told, now);
            self.plan_links(now);
        }
    }

    fn update_pairing(
        &mut self,
        local: Vec<PeerInterface>,
        remote: Vec<PeerInterface>,
        now: Instant,
    ) {
        let Some(links) = &mut self.links else { return };
        links.pairing.update(local, remote);
        links.probes.restart();
        self.paths.rename_ends(&links.pairing);
        // The pairing has discarded the state of a pair that had disappeared.
        self.verify_connected();
        self.adopt_contact();
        let strays = self.paths.iter().filter_map(|(id, path)| {
            let arrived = path.arrived().filter(|_| path.state().is_connected())?;
            let is_link = path.plan().candidate().is_some();
            let is_astray = is_link && self.is_astray(path.plan(), arrived);
            is_astray.then(|| (id, arrived.to_owned()))
        });
        for (id, arrived) in strays.collect::<Vec<_>>() {
            self.end_astray(id, arrived, now);
        }
    }

    /// Tells the pairing which address pairs are connected.
    fn verify_connected(&mut self) {
        let Some(links) = &mut self.links else { return };
        let connected = self
            .paths
            .links()
            .filter(|(_, path)| path.state().is_connected());
        for (_, path) in connected {
            if let Some(candidate) = path.plan().candidate() {
                links.pairing.verified(candidate.id());
            }
        }
    }

    /// Returns true if a connection has arrived at another interface of the peer than meant. One
    /// whose name the peer has not sent yet may be the intended one under a new name.
    pub(super) fn is_astray(&self, plan: &PathPlan, arrived: &str) -> bool {
        let Some(links) = &self.links else {
            return false;
        };
        let is_other = plan
            .peer_interface
            .as_deref()
            .is_some_and(|meant| meant != arrived);
        let mut known = links.pairing.remote().iter();
        is_other && known.any(|interface| interface.name == arrived)
    }

    /// Finds the address pair of the first connection, if a machine lists one of its addresses only
    /// now, or another one: an IPv6 address is not listed during duplicate address detection.
    fn adopt_contact(&mut self) {
        let Some(links) = &mut self.links else { return };
        let is_unknown = |path: &Path| {
            let plan = path.plan();
            let is_known = |pair: &Candidate| links.pairing.candidate(pair.id()).is_some();
            !path.is_retired()
                && plan.origin == Origin::Contact
                && !plan.pair.as_ref().is_some_and(is_known)
        };
        for id in self.paths.ids(is_unknown) {
            let Some(path) = self.paths.get(id) else {
                continue;
            };
            let mut plan = path.plan().clone();
            plan.complete(&links.pairing);
            // Planned on its own while the first connection was down.
            let is_other = |(_, path): (PathId, &Path)| path.plan().origin == Origin::Planned;
            plan.pair = plan
                .pair
                .filter(|pair| !self.paths.over(pair.id()).any(is_other));
            if let Some(pair) = &plan.pair
                && path.state().is_connected()
            {
                links.pairing.verified(pair.id());
            }
            if let Some(path) = self.paths.get_mut(id) {
                *path.plan_mut() = plan;
            }
        }
    }

    /// Retires a first connection between unknown ends if a link has taken its interface: when it was
    /// down, it held nothing.
    fn retire_lost_contact(&mut self, now: Instant) {
        let is_unknown = |path: &Path| {
            let plan = path.plan();
            !path.is_retired() && plan.origin == Origin::Contact && plan.pair.is_none()
        };
        for id in self.paths.ids(is_unknown) {
            let own = self.paths.get(id).map(|path| &path.plan().interface);
            let takes = |(_, path): (PathId, &Path)| {
                path.state().is_connected() && Some(&path.plan().interface) == own
            };
            if self.paths.links().any(takes) {
                self.retire_path(id, Cause::Replaced, now);
            }
        }
    }

    /// Starts the probes that are due, and adds and retires paths until they agree with the plan.
    fn plan_links(&mut self, now: Instant) {
        let to_route = self.add_and_retire(now);
        self.route(to_route, now);
        self.give_up_excluded();
    }

    /// Does the same, and returns the new paths, whose host routes are not installed yet.
    fn add_and_retire(&mut self, now: Instant) -> Vec<PathId> {
        let mut to_route = Vec::new();
        let is_automatic = |links: &Links| links.terms.is_automatic;
        if !self.links.as_ref().is_some_and(is_automatic) {
            return to_route;
        }
        self.retire_lost_contact(now);
        if let Some(links) = &mut self.links {
            let probes = links.probe(&self.paths, now);
            self.events.extend(probes.into_iter().map(Event::Probe));
            let is_settling = links.plan_at.is_some_and(|at| now < at);
            if is_settling && links.probes.are_under_way() {
                return to_route;
            }
            links.plan_at = None;
        }
        while let Some(links) = &mut self.links {
            let plan = links.pairing.plan(&self.paths.taken());
            if let Some(pair) = links.replaced(&self.paths, &plan) {
                links.pairing.closed(pair);
                self.retire_link(pair, now);
                continue;
            }
            let is_new = |candidate: &&Candidate| {
                self.paths.over(candidate.id()).next().is_none() && links.may_be_made(candidate)
            };
            let Some(candidate) = plan.iter().find(is_new) else {
                break;
            };
            let plan = PathPlan::of(candidate, links.terms.port, Origin::Planned, &links.pairing);
            let streams = links.streams_of(&plan);
            let before = to_route.len();
            for _ in 0..streams {
                to_route.extend(self.add_planned(plan.clone(), now));
            }
            if to_route.len() == before
                && let Some(links) = &mut self.links
            {
                links.pairing.failed(candidate.id(), Failure::NoPathLeft);
            }
        }
        to_route
    }

    /// Adds a path for this plan. Returns `None` if other links have used all path IDs.
    ///
    /// A link that is retired and planned again keeps its IDs. This keeps the counters of a path
    /// with its link, and a flapping link does not exhaust the IDs.
    fn add_planned(&mut self, plan: PathPlan, now: Instant) -> Option<PathId> {
        let id = self.paths.id_for(&plan)?;
        let path = match self.paths.get_mut(id) {
            Some(path) => {
                path.on_planned(plan, PathState::Routing, now);
                return Some(id);
            }
            None => Path::routing(plan, now),
        };
        self.paths.insert(id, path);
        Some(id)
    }

    /// Has the host routes installed that these paths may need, one path of each link.
    fn route(&mut self, paths: Vec<PathId>, now: Instant) {
        let mut one_each: Vec<PathId> = Vec::new();
        for id in paths {
            let Some(plan) = self.paths.get(id).map(Path::plan) else {
                continue;
            };
            let is_there = |other: &PathId| {
                let other = self.paths.get(*other).map(Path::plan);
                other.is_some_and(|other| other.is_one_link(plan))
            };
            if !one_each.iter().any(is_there) {
                one_each.push(id);
            }
        }
        if one_each.is_empty() {
            return;
        }
        if self
            .links
            .as_ref()
            .is_some_and(|links| links.terms.has_routes)
        {
            self.events.push_back(Event::HoldRoutes(one_each));
        } else {
            let routed: Vec<_> = one_each.into_iter().map(|id| (id, Routed::Held)).collect();
            for (id, held) in routed {
                self.on_routed(id, held, now);
            }
        }
    }

    /// Announces the paths that await it to the peer, and starts the timeout of its answer.
    fn announce(&mut self, now: Instant) {
        let Some(links) = &mut self.links else { return };
        let announced = self
            .paths
            .iter()
            .filter(|(_, path)| path.state() == PathState::Announced);
        let expected: BTreeSet<(IpAddr, u32)> = announced
            .filter_map(|(_, path)| links.expected(path.plan()))
            .collect();
        links.answer_by = Some(now + ANSWER_TIMEOUT);
        self.events.push_back(Event::Announce(expected));
    }

    /// Repeats the announcement after a timeout: a token or an ARP request may have been lost.
    /// Connects without an answer after [`MOST_REMINDERS`] repetitions.
    fn on_unanswered(&mut self, now: Instant) {
        let Some(links) = &mut self.links else { return };
        if links.reminders == MOST_REMINDERS {
            return self.connect_announced(now);
        }
        links.reminders += 1;
        self.announce(now);
    }

    /// Connects the announced paths that are still planned, and retires the others.
    fn connect_announced(&mut self, now: Instant) {
        let Some(links) = &mut self.links else { return };
        (links.answer_by, links.reminders) = (None, 0);
        let plan = links.pairing.plan(&self.paths.taken());
        for id in self.paths.ids(|path| path.state() == PathState::Announced) {
            let pair = self.paths.get(id).and_then(|path| path.plan().candidate());
            let pair = pair.map(Candidate::id);
            let is_planned = |pair| plan.iter().any(|candidate| candidate.id() == pair);
            if pair.is_none_or(is_planned) {
                self.begin_connection(id, now);
            } else {
                self.retire_path(id, Cause::Replaced, now);
            }
        }
    }

    fn begin_connection(&mut self, id: PathId, now: Instant) {
        if let Some(path) = self.paths.get_mut(id)
            && path.on_retry(now)
        {
            self.events.push_back(Event::Connect(id));
        }
    }

    /// Gives up if only an excluded interface reaches the peer: all other links have failed and none
    /// is being tried.
    fn give_up_excluded(&mut self) {
        let Some(links) = &mut self.links else { return };
        let contact = self.paths.get(FIRST_PATH).filter(|path| !path.is_retired());
        let is_excluded = contact.is_some_and(|path| path.plan().origin == Origin::Excluded);
        let is_trying = links.probes.poll_timeout().is_some()
            || links.probes.are_under_way()
            || self.paths.awaits();
        if is_excluded
            && links.terms.is_automatic
            && !links.has_worked
            && !is_trying
            && links.pairing.plan(&self.paths.taken()).is_empty()
            && !std::mem::replace(&mut links.has_given_up, true)
        {
            self.events.push_back(Event::GivenUp(FIRST_PATH));
        }
    }

    /// Returns what is known of the links; `None` on a daemon.
    pub fn links_view(&self) -> Option<LinksView> {
        let links = self.links.as_ref()?;
        let is_shown = |path: &Path| {
            let state = path.state();
            !path.is_retired() && state != PathState::Routing && state != PathState::Announced
        };
        let shown = self.paths.iter().filter(|(_, path)| is_shown(path));
        let paths = shown.map(|(_, path)| PathView {
            plan: path.plan().clone(),
            status: path.status(),
            was_open: path.was_open(),
            verified: path.verified(),
            path_mtu: path.path_mtu(),
        });
        Some(LinksView {
            paths: paths.collect(),
            explanations: links.pairing.explain(&self.paths.taken()),
            is_automatic: links.terms.is_automatic,
            is_probing: links.probes.are_under_way() || self.paths.awaits(),
            pairing: links.pairing.clone(),
        })
    }
}

/// Minimum interval between applications of the peer's interface announcements.
const TOLD_PAUSE: Duration = Duration::from_millis(100);

/// Time after an answered probe in which others of its round are answered, too. The pairs that work are
/// then known before the first is chosen, so that none is replaced at once.
const SETTLING: Duration = Duration::from_millis(10);

/// Time to wait for the peer's answer to an announcement. The peer changes one or two routes before
/// it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of times an announcement is repeated before the client connects without an answer.
const MOST_REMINDERS: u32 = 2;
