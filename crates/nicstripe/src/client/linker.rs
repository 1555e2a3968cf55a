//! Which paths a session has: planned at its start, and again whenever an interface, or what is known of a path, changes.
//!
//! A [`Planner`] decides; this task asks the kernel and the peer what it wants to know, and has the paths made and ended.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use nicstripe_link::{Change, Changes, Interface, interfaces};
use nicstripe_proto::{
    LAST_PATH, PathId,
    message::{CloseCode, PeerInterface},
    pairing::{Candidate, CandidateId, Failure, Pairing, Planner, State, Step},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    claims,
    numbers::Numbers,
    probes::Probes,
    survey::{self, LinkSurvey},
};
use crate::{
    connect::Connector,
    error::Error,
    event::LinkState,
    link::{Family, RoutePolicy},
    path_routes::RouteKeeper,
    plan::{Facts, described},
    session::{Command, Input, LinkNews, PathPlan, SessionHandle, sleep_until},
};

/// What a session's paths are planned from.
pub(super) struct LinkerConfig {
    pub(super) port: u16,
    pub(super) family: Option<Family>,
    /// Interfaces left out by name.
    pub(super) excluded: Vec<String>,
    /// Connections a link, where the user said how many.
    pub(super) streams: Option<u8>,
    /// Whether links are found; otherwise those that the session begins with are all.
    pub(super) automatic: bool,
    /// Whether the peer is told of connections that it may need routes for.
    pub(super) announces: bool,
    pub(super) routes: Option<Arc<RouteKeeper>>,
    /// Proves the peer's addresses.
    pub(super) connector: Option<Arc<Connector>>,
}

/// Plans the paths of one session.
pub(super) struct Linker {
    config: LinkerConfig,
    session: SessionHandle,
    here: Vec<Interface>,
    local: Vec<PeerInterface>,
    remote: Vec<PeerInterface>,
    planner: Planner,
    paths: BTreeMap<PathId, Linked>,
    numbers: Numbers,
    probes: Probes,
    /// What the peer has told of its interfaces and is not yet planned with, and when it will be.
    told: Option<Vec<PeerInterface>>,
    apply_told: Option<Instant>,
    last_applied: Option<Instant>,
    /// Announced to the peer, which answers when they may be made; and when they are made anyway.
    awaiting: Vec<(PathPlan, Option<Candidate>)>,
    answer_by: Option<Instant>,
    /// How often they were announced again.
    reminders: u32,
    /// Whether a path other than the first has had a connection.
    has_worked: bool,
}

/// A path, and what is known of it.
#[derive(Debug, Clone)]
pub(super) struct Linked {
    pub(super) plan: PathPlan,
    /// What it was made from, where links are found.
    pub(super) candidate: Option<Candidate>,
    pub(super) state: LinkState,
    /// Whether it had a connection once.
    pub(super) opened: bool,
    pub(super) verified: Option<bool>,
    pub(super) path_mtu: Option<u32>,
}

impl Linked {
    fn is_up(&self) -> bool {
        matches!(self.state, LinkState::Up | LinkState::Suspect)
    }
}

/// What a session's owner may ask.
pub(super) type SurveyRequest = oneshot::Sender<LinkSurvey>;

impl Linker {
    pub(super) fn new(config: LinkerConfig, session: SessionHandle, here: Vec<Interface>, remote: Vec<PeerInterface>) -> Self {
        let local = described(&here, &config.excluded);
        let mut pairing = Pairing::new(local.clone(), remote.clone());
        match config.family {
            Some(Family::V4) => pairing.restrict(IpAddr::is_ipv4),
            Some(Family::V6) => pairing.restrict(IpAddr::is_ipv6),
            None => {}
        }
        Self {
            probes: Probes::new(config.port, Instant::now()),
            config,
            session,
            here,
            local,
            remote,
            planner: Planner::new(pairing),
            paths: BTreeMap::new(),
            numbers: Numbers::default(),
            told: None,
            apply_told: None,
            last_applied: None,
            awaiting: Vec::new(),
            answer_by: None,
            reminders: 0,
            has_worked: false,
        }
    }

    /// Takes the first connection into account, then makes the paths that need no probing; named ones are given.
    pub(super) async fn begin(
        &mut self,
        first: &PathPlan,
        verified: Option<bool>,
        path_mtu: Option<u32>,
        named: Vec<PathPlan>,
    ) -> Result<(), Error> {
        let candidate =
            self.planner.pairing().candidates().find(|candidate| is_plan_of(candidate, first)).filter(|_| !first.contact_only).cloned();
        if let Some(candidate) = &candidate {
            self.planner.adopt(candidate.clone());
        }
        let more = if first.contact_only { 0 } else { usize::from(self.streams_of(first)) - 1 };
        let mut plans: Vec<(PathPlan, Option<Candidate>)> = std::iter::repeat_n((first.clone(), candidate.clone()), more).collect();
        let linked = Linked { plan: first.clone(), candidate, state: LinkState::Up, opened: true, verified, path_mtu };
        self.paths.insert(FIRST_PATH, linked);
        for plan in named {
            let streams = usize::from(self.streams_of(&plan));
            plans.extend(std::iter::repeat_n((plan, None), streams));
        }
        if let Some((beyond, _)) = plans.get(self.numbers.unused()) {
            let why = format!("a session has {} connections at most, and these would be {}", LAST_PATH.0 + 1, plans.len() + 1);
            return Err(Error::Link { link: beyond.interface.clone(), why });
        }
        if let Some(routes) = self.config.routes.as_ref().filter(|_| !first.contact_only) {
            routes.hold_all(&[first], &self.here).await?;
        }
        self.add(plans).await?;
        self.probe();
        if self.config.automatic { self.replan().await } else { Ok(()) }
    }

    /// Runs as long as the session, and ends it when nobody can ask for it any more: every handle of it is gone.
    pub(super) async fn run(mut self, mut news: mpsc::Receiver<LinkNews>, mut requests: mpsc::Receiver<SurveyRequest>) {
        let mut changes = open_changes();
        self.catch_up().await;
        loop {
            tokio::select! {
                () = self.session.ended.cancelled() => return,
                Some(news) = news.recv() => {
                    if !self.on_news(news).await {
                        continue;
                    }
                }
                () = sleep_until(self.apply_told) => self.take_told(Instant::now()),
                () = sleep_until(self.answer_by) => self.on_unanswered().await,
                request = requests.recv() => {
                    let Some(request) = request else { break };
                    let _ = request.send(self.survey());
                    continue;
                }
                change = next_change(&mut changes) => self.on_change(change).await,
                Some((candidate, answered)) = self.probes.next() => self.on_probed(candidate, answered),
                () = sleep_until(self.planner.poll_timeout().map(Into::into)) => self.probe_again(),
            }
            if self.config.automatic
                && let Err(error) = self.replan().await
            {
                tracing::warn!(error = %crate::logged::logged_error(&error), "a link was not made");
            }
            if let Some(error) = self.given_up() {
                self.session.command(Command::GiveUp(Box::new(error))).await;
                return;
            }
        }
        self.session.command(Command::Close(CloseCode::Done)).await;
    }

    /// Says whether there may be something to plan.
    async fn on_news(&mut self, news: LinkNews) -> bool {
        match news {
            LinkNews::Opened { path, verified, path_mtu } => self.on_opened(path, verified, path_mtu),
            LinkNews::Lost { path, why } => self.on_lost(path, why).await,
            LinkNews::Astray { path, arrived, why } => self.on_astray(path, arrived, &why).await,
            LinkNews::PeerInterfaces(interfaces) => {
                self.on_told(interfaces, Instant::now());
                // It is also the answer to what was announced.
                self.connect_awaiting().await;
                return false;
            }
        }
        self.retire_contact().await;
        true
    }

    fn on_opened(&mut self, path: PathId, verified: Option<bool>, path_mtu: Option<u32>) {
        self.has_worked |= path != FIRST_PATH;
        let Some(linked) = self.paths.get_mut(&path) else { return };
        (linked.state, linked.opened, linked.verified, linked.path_mtu) = (LinkState::Up, true, verified, path_mtu);
        if let Some(candidate) = &linked.candidate {
            self.planner.handle_opened(candidate.id());
        }
    }

    async fn on_lost(&mut self, path: PathId, why: String) {
        let Some(linked) = self.paths.get_mut(&path) else { return };
        linked.state = LinkState::Down(why);
        let Linked { plan, candidate: Some(candidate), .. } = linked.clone() else { return };
        let id = candidate.id();
        if self.streams_over(id).any(Linked::is_up) {
            return;
        }
        if !self.streams_over(id).any(|linked| linked.opened) && self.expected(&(plan, Some(candidate))).is_some() {
            // The announcement, or what proves it, may have been lost: both are made again.
            self.retire_all(id).await;
            self.planner.handle_unrouted(id);
        } else {
            self.planner.handle_lost(id);
        }
        self.probe();
    }

    async fn on_astray(&mut self, path: PathId, arrived: Option<String>, why: &str) {
        let Some(linked) = self.remove(path) else { return };
        tracing::info!(interface = %linked.plan.interface, why = %crate::logged::logged(why), "not a link");
        let failure = arrived.map_or(Failure::Other, |arrived| Failure::WrongInterface { arrived });
        if let Some(candidate) = &linked.candidate {
            self.planner.handle_astray(candidate.id(), failure);
            self.retire_all(candidate.id()).await;
        }
    }

    /// The paths that were made from a candidate.
    fn streams_over(&self, id: CandidateId) -> impl Iterator<Item = &Linked> {
        self.paths.values().filter(move |linked| linked.candidate.as_ref().is_some_and(|candidate| candidate.id() == id))
    }

    /// The peer tells its interfaces. Only what it told last counts, and that ten times a second at most: a plan takes time, and this is
    /// for the peer to ask for.
    fn on_told(&mut self, interfaces: Vec<PeerInterface>, now: Instant) {
        self.told = Some(interfaces).filter(|interfaces| *interfaces != self.remote);
        let earliest = self.last_applied.map_or(now, |last| last + TOLD_PAUSE);
        self.apply_told = self.told.as_ref().map(|_| earliest.max(now));
    }

    fn take_told(&mut self, now: Instant) {
        self.apply_told = None;
        if let Some(interfaces) = self.told.take() {
            self.remote = interfaces;
            self.last_applied = Some(now);
            self.changed();
        }
    }

    async fn on_change(&mut self, change: Option<Change>) {
        let Some(change) = change else { return };
        if let Change::Carrier { index, up } = change {
            if let Some(interface) = self.here.iter().find(|interface| interface.index == index) {
                let _ = self.session.inputs.send(Input::Carrier { interface: interface.name.to_string(), up }).await;
            }
            if up {
                self.restore_routes(index.0).await;
            }
        }
        let Ok(here) = interfaces() else { return };
        self.look(here).await;
    }

    /// Takes in what has changed here since the first contact was planned, before changes were listened to.
    async fn catch_up(&mut self) {
        match interfaces() {
            Ok(here) if here != self.here => self.look(here).await,
            _ => self.changed(),
        }
    }

    async fn look(&mut self, here: Vec<Interface>) {
        self.here = here;
        self.local = described(&self.here, &self.config.excluded);
        self.changed();
        self.retire_gone().await;
    }

    /// The interfaces of one end are others.
    fn changed(&mut self) {
        self.planner.update(self.local.clone(), self.remote.clone());
        self.probe();
    }

    /// Ends the paths whose interface is not there any more; what comes back under its name has another index.
    async fn retire_gone(&mut self) {
        let is_gone = |linked: &Linked| !self.here.iter().any(|interface| interface.is_called(&linked.plan.interface));
        let gone: Vec<PathId> = self.paths.iter().filter(|(_, linked)| is_gone(linked)).map(|(path, _)| *path).collect();
        for path in gone {
            if let Some(candidate) = self.remove(path).and_then(|linked| linked.candidate) {
                self.planner.forget(candidate.id());
            }
            self.session.command(Command::Gone(path)).await;
        }
    }

    /// Asks at the addresses that may be at the other end of one of our cables, as many as may be asked at once.
    fn probe(&mut self) {
        if !self.config.automatic {
            return;
        }
        let (taken, now) = (self.taken(), Instant::now());
        self.planner.probe(&taken, now.into_std(), |candidate| self.probes.start(candidate, now));
    }

    fn probe_again(&mut self) {
        self.planner.handle_timeout(&self.taken(), Instant::now().into_std());
        self.probe();
    }

    fn on_probed(&mut self, candidate: CandidateId, answered: bool) {
        tracing::debug!(%candidate, answered, "probed");
        self.planner.handle_probed(candidate, answered);
        while let Some((candidate, answered)) = self.probes.next_now() {
            self.planner.handle_probed(candidate, answered);
        }
        self.probe();
    }

    /// Makes the paths that are planned and not there, and ends those that are in the way of planned ones.
    async fn replan(&mut self) -> Result<(), Error> {
        let taken = self.taken();
        let mut plans: Vec<(PathPlan, Option<Candidate>)> = Vec::new();
        while let Some(step) = self.planner.poll_step(&taken) {
            match step {
                Step::Retire(id) => self.retire_all(id).await,
                Step::Connect(candidate) => {
                    let (interface, remote) = (&candidate.local.interface, candidate.remote.address);
                    tracing::debug!(interface, peer_interface = candidate.remote.interface, %remote, "a link is planned");
                    let plan = self.facts().plan_of(&candidate, false);
                    let streams = usize::from(self.streams_of(&plan));
                    plans.extend(std::iter::repeat_n((plan, Some(candidate)), streams));
                }
            }
        }
        let ids: Vec<CandidateId> = plans.iter().filter_map(|(_, candidate)| Some(candidate.as_ref()?.id())).collect();
        let added = self.add(plans).await;
        if added.is_err() {
            ids.into_iter().for_each(|id| self.planner.forget(id));
        }
        added
    }

    /// Returns what ends the session: the peer was met over an interface that is left out, and all else was tried in vain.
    fn given_up(&self) -> Option<Error> {
        let contact = self.paths.get(&FIRST_PATH).filter(|contact| contact.plan.no_data)?;
        let is_trying = self.planner.poll_timeout().is_some() || !self.probes.is_empty() || !self.awaiting.is_empty();
        if !self.config.automatic || self.has_worked || is_trying || !self.planner.pairing().plan(&self.taken()).is_empty() {
            return None;
        }
        let why = "it is left out as asked, and no other link reaches the peer".into();
        Some(Error::Link { link: contact.plan.interface.clone(), why })
    }

    /// Ends the path that only served to meet the peer when another is up. That is for the linker to do, which alone knows whether it keeps
    /// the other.
    async fn retire_contact(&mut self) {
        let is_contact = |linked: &Linked| linked.plan.contact_only;
        let is_replaced = self.paths.values().any(|linked| linked.state == LinkState::Up && !is_contact(linked));
        if is_replaced && self.paths.get(&FIRST_PATH).is_some_and(is_contact) {
            self.retire(FIRST_PATH).await;
        }
    }

    /// Pairs of interfaces that paths outside of the pairing use: those made from names or from the first contact. The peer's has no name
    /// where it did not say, or not that the address is its own (behind a router that rewrites addresses): ours is taken all the same.
    fn taken(&self) -> Vec<(String, String)> {
        let outside = self.paths.values().filter(|linked| linked.candidate.is_none() && !linked.plan.contact_only);
        outside.map(|linked| (linked.plan.interface.clone(), linked.plan.peer_interface.clone().unwrap_or_default())).collect()
    }

    /// Makes these paths, with the host routes that they need. Those of which the peer proves no address have to wait for the next round.
    ///
    /// # Errors
    ///
    /// A route that the user wants cannot be had; nothing is made then.
    async fn add(&mut self, plans: Vec<(PathPlan, Option<Candidate>)>) -> Result<(), Error> {
        let plans = match self.config.routes.clone() {
            Some(routes) => self.routed(plans, &routes).await?,
            None => plans,
        };
        // Without a link nobody hears it.
        let is_heard = self.paths.values().any(Linked::is_up);
        let (announced, plain): (Vec<_>, Vec<_>) = plans.into_iter().partition(|plan| is_heard && self.expected(plan).is_some());
        if !announced.is_empty() {
            self.announce(&announced).await;
            self.awaiting.extend(announced);
        }
        self.connect(plain).await;
        Ok(())
    }

    /// Installs the routes that these need, and returns those of the paths that may be made.
    async fn routed(
        &mut self,
        plans: Vec<(PathPlan, Option<Candidate>)>,
        routes: &RouteKeeper,
    ) -> Result<Vec<(PathPlan, Option<Candidate>)>, Error> {
        let (mut proved, mut others) = (Vec::new(), Vec::new());
        for (plan, candidate) in plans {
            let id = candidate.as_ref().map(Candidate::id);
            if id.is_some_and(|id| *self.planner.pairing().state(id) == State::Failed(Failure::Unrouted)) {
                continue;
            }
            if self.is_the_peers(&plan, routes).await {
                proved.push((plan, candidate));
                continue;
            }
            let why = "the peer does not answer at its address there, so that no host route is installed";
            if routes.policy() == RoutePolicy::Always {
                return Err(Error::Link { link: plan.interface, why: why.into() });
            }
            tracing::info!(interface = %plan.interface, address = %plan.remote.ip(), "{why}");
            match id {
                Some(id) => self.planner.handle_unrouted(id),
                None => others.push((plan, candidate)),
            }
        }
        routes.hold_all(&proved.iter().map(|(plan, _)| plan).collect::<Vec<_>>(), &self.here).await?;
        proved.append(&mut others);
        Ok(proved)
    }

    /// Whether a route for this path takes nothing from anybody else: what goes to the address now goes the same way, or arrives at the peer.
    /// Who typed the address answers for it.
    async fn is_the_peers(&self, plan: &PathPlan, routes: &RouteKeeper) -> bool {
        let is_typed = plan.named && plan.local.is_none();
        let interface = self.here.iter().find(|interface| interface.is_called(&plan.interface));
        let Some(interface) = interface.filter(|interface| !is_typed && routes.diverts(plan.remote.ip(), interface.index.0)) else {
            return true;
        };
        let Some(connector) = &self.config.connector else { return false };
        routes.ask_anew(plan.remote.ip(), interface.index.0).await;
        connector.answers_at(plan.remote).await
    }

    /// Tells the peer of connections that are about to be made, and waits for its answer.
    async fn announce(&mut self, plans: &[(PathPlan, Option<Candidate>)]) {
        let expected = plans.iter().filter_map(|plan| self.expected(plan)).collect();
        self.session.command(Command::Expect(claims::announced(expected, &self.session).await)).await;
        self.answer_by = Some(Instant::now() + ANSWER_TIMEOUT);
    }

    /// A proof that goes beside the session's own data may be lost in its queue, and what asks for a hardware address, too.
    async fn on_unanswered(&mut self) {
        if self.reminders == MOST_REMINDERS {
            return self.connect_awaiting().await;
        }
        self.reminders += 1;
        let awaiting = self.awaiting.clone();
        self.announce(&awaiting).await;
    }

    /// The peer has let in what was announced, or does not answer.
    async fn connect_awaiting(&mut self) {
        (self.answer_by, self.reminders) = (None, 0);
        let taken = self.taken();
        // What was announced for a plan that is no more is not made.
        let is_planned = |candidate: &Candidate| self.planner.is_planned(candidate.id(), &taken);
        let (plans, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.awaiting).into_iter().partition(|(_, candidate)| candidate.as_ref().is_none_or(is_planned));
        others.into_iter().filter_map(|(_, candidate)| candidate).for_each(|candidate| self.planner.forget(candidate.id()));
        self.connect(plans).await;
    }

    async fn connect(&mut self, plans: Vec<(PathPlan, Option<Candidate>)>) {
        let mut numbered = Vec::new();
        for (plan, candidate) in plans {
            let Some(path) = self.numbers.take(&plan) else {
                tracing::warn!(interface = %plan.interface, "no further link: the session has had {} connections", LAST_PATH.0 + 1);
                continue;
            };
            let linked =
                Linked { plan: plan.clone(), candidate, state: LinkState::Connecting, opened: false, verified: None, path_mtu: None };
            self.paths.insert(path, linked);
            numbered.push((path, plan));
        }
        if !numbered.is_empty() {
            self.session.command(Command::AddPaths(numbered)).await;
        }
    }

    /// What the peer has to know of a connection before it is made: its kernel would drop the packets, or take them by another interface, and
    /// has to be told to let them in.
    fn expected(&self, (plan, candidate): &(PathPlan, Option<Candidate>)) -> Option<(IpAddr, u32)> {
        // Who may install no routes here, or shall not, asks for none there.
        let candidate = candidate.as_ref().filter(|candidate| self.config.announces && self.planner.pairing().is_filtered(candidate))?;
        Some((plan.local?, candidate.remote.index))
    }

    async fn restore_routes(&self, interface: u32) {
        let Some(routes) = &self.config.routes else { return };
        if let Err(error) = routes.interface_up(interface).await {
            tracing::warn!(error = %crate::logged::logged_error(&error), "host routes were not put back");
        }
    }

    async fn retire(&mut self, path: PathId) {
        if self.remove(path).is_some() {
            self.session.command(Command::Retire(path)).await;
        }
    }

    /// Ends the paths that were made from a candidate, and makes none that waits for an answer.
    async fn retire_all(&mut self, id: CandidateId) {
        let is_of_it = |candidate: &Option<Candidate>| candidate.as_ref().is_some_and(|candidate| candidate.id() == id);
        self.awaiting.retain(|(_, candidate)| !is_of_it(candidate));
        let paths: Vec<PathId> = self.paths.iter().filter(|(_, linked)| is_of_it(&linked.candidate)).map(|(path, _)| *path).collect();
        for path in paths {
            self.retire(path).await;
        }
    }

    fn remove(&mut self, path: PathId) -> Option<Linked> {
        let linked = self.paths.remove(&path)?;
        self.numbers.give_back(path, &linked.plan);
        Some(linked)
    }

    /// Connections for a link: as many as the user said, else as many as the bonds at its ends need.
    fn streams_of(&self, plan: &PathPlan) -> u8 {
        let of = |side: &[PeerInterface], name: &str| {
            side.iter().find(|interface| interface.name == name).and_then(|interface| interface.streams)
        };
        let theirs = plan.peer_interface.as_deref().and_then(|name| of(&self.remote, name));
        let needed = of(&self.local, &plan.interface).max(theirs).unwrap_or(1);
        self.config.streams.unwrap_or(needed).clamp(1, MOST_STREAMS)
    }

    fn facts(&self) -> Facts<'_> {
        Facts { local: &self.local, remote: &self.remote, port: self.config.port, family: self.config.family }
    }

    fn survey(&self) -> LinkSurvey {
        let survey = survey::of(&survey::Known {
            here: &self.here,
            local: &self.local,
            remote: &self.remote,
            pairing: self.planner.pairing(),
            taken: &self.taken(),
            paths: &self.paths,
            config: &self.config,
        });
        LinkSurvey { is_probing: !self.probes.is_empty() || !self.awaiting.is_empty(), ..survey }
    }
}

fn is_plan_of(candidate: &Candidate, plan: &PathPlan) -> bool {
    candidate.local.interface == plan.interface && candidate.remote.address == plan.remote.ip()
}

fn open_changes() -> Option<Changes> {
    Changes::open().inspect_err(|error| tracing::warn!(%error, "changes of interfaces are not seen")).ok()
}

/// Returns the next change; waits for ever where the kernel tells none.
async fn next_change(changes: &mut Option<Changes>) -> Option<Change> {
    match changes {
        Some(open) => match open.next().await {
            Ok(change) => Some(change),
            Err(error) => {
                tracing::warn!(%error, "changes of interfaces are not seen any more");
                *changes = None;
                None
            }
        },
        None => std::future::pending().await,
    }
}

/// Path number of a session's first connection.
pub(super) const FIRST_PATH: PathId = PathId(0);

/// Most connections a link.
pub(super) const MOST_STREAMS: u8 = 16;

/// How long an answer over a cable may take; on a LAN it is there within a millisecond.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Least time between two plans for what the peer tells.
const TOLD_PAUSE: Duration = Duration::from_millis(100);

/// How long the peer may take to let in what was announced; it changes a route or two.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How often what is not answered is announced again before it is tried all the same.
const MOST_REMINDERS: u32 = 2;

#[cfg(test)]
mod tests;
