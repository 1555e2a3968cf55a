//! Which paths a session has: planned at its start, and again whenever an interface, or what is known of a path, changes.
//!
//! [`Pairing`] decides; this task asks the kernel and the peer what it wants to know, and has the paths made and ended.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use nicstripe_link::{Change, Changes, Interface, interfaces};
use nicstripe_proto::{
    LAST_PATH, PathId,
    message::{CloseCode, Expected, PeerInterface},
    pairing::{Candidate, CandidateId, Failure, Pairing, Preference},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    probes::Probes,
    survey::{self, LinkSurvey},
};
use crate::{
    error::Error,
    event::LinkState,
    link::Family,
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
}

/// Plans the paths of one session.
pub(super) struct Linker {
    config: LinkerConfig,
    session: SessionHandle,
    here: Vec<Interface>,
    local: Vec<PeerInterface>,
    remote: Vec<PeerInterface>,
    pairing: Pairing,
    paths: BTreeMap<PathId, Linked>,
    /// Number of the next path.
    next: u16,
    probes: Probes,
    /// What the peer has told of its interfaces and is not yet planned with, and when it will be.
    told: Option<Vec<PeerInterface>>,
    apply_told: Option<Instant>,
    last_applied: Option<Instant>,
    /// Announced to the peer, which answers when they may be made; and when they are made anyway.
    awaiting: Vec<(PathPlan, Option<Candidate>)>,
    answer_by: Option<Instant>,
    /// When those that did not answer are asked again, and how often that was done since the last change.
    again: Option<Instant>,
    rounds: usize,
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
            pairing,
            paths: BTreeMap::new(),
            next: FIRST_PATH.0 + 1,
            told: None,
            apply_told: None,
            last_applied: None,
            awaiting: Vec::new(),
            answer_by: None,
            again: None,
            rounds: 0,
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
        let candidate = self.pairing.candidates().find(|candidate| is_plan_of(candidate, first)).filter(|_| !first.contact_only).cloned();
        if let Some(candidate) = &candidate {
            self.pairing.verified(candidate.id());
        }
        let more = if first.contact_only { 0 } else { usize::from(self.streams_of(first)) - 1 };
        let mut plans: Vec<(PathPlan, Option<Candidate>)> = std::iter::repeat_n((first.clone(), candidate.clone()), more).collect();
        let linked = Linked { plan: first.clone(), candidate, state: LinkState::Up, opened: true, verified, path_mtu };
        self.paths.insert(FIRST_PATH, linked);
        for plan in named {
            let streams = usize::from(self.streams_of(&plan));
            plans.extend(std::iter::repeat_n((plan, None), streams));
        }
        if let Some((beyond, _)) = plans.get(self.free_paths()) {
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
                () = sleep_until(self.answer_by) => self.connect_awaiting().await,
                request = requests.recv() => {
                    let Some(request) = request else { break };
                    let _ = request.send(self.survey());
                    continue;
                }
                change = next_change(&mut changes) => self.on_change(change).await,
                Some((candidate, answered)) = self.probes.next() => self.on_probed(candidate, answered),
                () = sleep_until(self.again) => self.probe_again(),
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
            LinkNews::Lost { path, why } => self.on_lost(path, why),
            LinkNews::Astray { path, arrived, why } => self.on_astray(path, arrived, &why),
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
            self.pairing.verified(candidate.id());
        }
    }

    fn on_lost(&mut self, path: PathId, why: String) {
        let Some(linked) = self.paths.get_mut(&path) else { return };
        linked.state = LinkState::Down(why);
        let candidate = linked.candidate.as_ref().map(Candidate::id);
        // A link that has worked, be it by another of its connections, is tried again by the session for as long as it takes.
        if let Some(candidate) = candidate.filter(|id| !self.streams_over(*id).any(|linked| linked.opened)) {
            self.pairing.failed(candidate, Failure::Unreachable);
        }
    }

    fn on_astray(&mut self, path: PathId, arrived: Option<String>, why: &str) {
        let Some(linked) = self.paths.remove(&path) else { return };
        tracing::info!(interface = %linked.plan.interface, why = %crate::logged::logged(why), "not a link");
        let failure = arrived.map_or(Failure::Other, |arrived| Failure::WrongInterface { arrived });
        if let Some(candidate) = &linked.candidate {
            self.pairing.failed(candidate.id(), failure);
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
        self.pairing.update(self.local.clone(), self.remote.clone());
        self.rounds = 0;
        self.probe();
    }

    /// Ends the paths whose interface is not there any more; what comes back under its name has another index.
    async fn retire_gone(&mut self) {
        let is_gone = |linked: &Linked| !self.here.iter().any(|interface| interface.is_called(&linked.plan.interface));
        let gone: Vec<PathId> = self.paths.iter().filter(|(_, linked)| is_gone(linked)).map(|(path, _)| *path).collect();
        for path in gone {
            self.paths.remove(&path);
            self.session.command(Command::Gone(path)).await;
        }
    }

    /// Asks at the link-local addresses that may be at the other end of one of our cables, as many as may be asked at once.
    fn probe(&mut self) {
        if !self.config.automatic {
            return;
        }
        let now = Instant::now();
        let wanted = self.pairing.to_probe(&self.taken());
        let asked = wanted.iter().filter(|candidate| self.probes.start(candidate, now)).count();
        // Those that had to wait are asked when an answer is there, at the latest in a while.
        let pause = if asked < wanted.len() { Some(&BUSY_PAUSE) } else { PROBE_PAUSES.get(self.rounds) };
        self.again = pause.map(|pause| now + *pause);
    }

    /// The two ends of a cable learn of it, give themselves addresses and begin to listen at their own pace.
    fn probe_again(&mut self) {
        // A round ends when all were asked: with many interfaces that takes more than one look.
        if self.pairing.to_probe(&self.taken()).is_empty() {
            self.rounds += 1;
            self.pairing.forgive();
        }
        self.probe();
    }

    fn on_probed(&mut self, candidate: CandidateId, answered: bool) {
        self.judge_probe(candidate, answered);
        while let Some((candidate, answered)) = self.probes.next_now() {
            self.judge_probe(candidate, answered);
        }
        self.probe_rest();
    }

    fn judge_probe(&mut self, candidate: CandidateId, answered: bool) {
        if answered {
            self.pairing.reached(candidate);
        } else {
            self.pairing.failed(candidate, Failure::Unreachable);
        }
    }

    /// Asks those that had to wait.
    fn probe_rest(&mut self) {
        let now = Instant::now();
        for candidate in self.pairing.to_probe(&self.taken()) {
            self.probes.start(&candidate, now);
        }
    }

    /// Makes the paths that are planned and not there, and ends those that are in the way of planned ones.
    async fn replan(&mut self) -> Result<(), Error> {
        let wanted = self.pairing.plan(&self.taken());
        let losers: Vec<PathId> = self.paths.iter().filter(|(_, linked)| self.loses(linked, &wanted)).map(|(path, _)| *path).collect();
        for path in losers {
            self.retire(path).await;
        }
        // What was announced for a plan that is no more is not made.
        self.awaiting.retain(|(_, candidate)| candidate.as_ref().is_none_or(|candidate| has(&wanted, candidate)));
        let made = self.paths.values().map(|linked| &linked.candidate);
        let known: Vec<Candidate> = made.chain(self.awaiting.iter().map(|(_, candidate)| candidate)).flatten().cloned().collect();
        // Over link-local addresses a shared subnet is no gamble: whether they answer is known in a moment.
        let may_be_made = |candidate: &Candidate| candidate.preference != Preference::SharedSubnet || self.probes.is_empty();
        let new: Vec<Candidate> = wanted.into_iter().filter(|candidate| !has(&known, candidate) && may_be_made(candidate)).collect();
        let free = self.free_paths();
        if new.is_empty() || free == 0 {
            return Ok(());
        }
        let facts = self.facts();
        let mut plans: Vec<(PathPlan, Option<Candidate>)> = new
            .into_iter()
            .flat_map(|candidate| {
                let plan = facts.plan_of(&candidate, false);
                let streams = usize::from(self.streams_of(&plan));
                std::iter::repeat_n((plan, Some(candidate)), streams)
            })
            .collect();
        if plans.len() > free {
            plans.truncate(free);
            tracing::warn!("this session can have no more than these links: it has had {} connections", LAST_PATH.0 + 1);
        }
        self.add(plans).await
    }

    /// Path numbers that are left. A number is used once: what is on its way of the path that had it must not be taken for the new one's.
    fn free_paths(&self) -> usize {
        usize::from((LAST_PATH.0 + 1).saturating_sub(self.next)).saturating_sub(self.awaiting.len())
    }

    /// Returns what ends the session: the peer was met over an interface that is left out, and all else was tried in vain.
    fn given_up(&self) -> Option<Error> {
        let contact = self.paths.get(&FIRST_PATH).filter(|contact| contact.plan.no_data)?;
        let is_trying = self.again.is_some() || !self.probes.is_empty() || !self.awaiting.is_empty();
        if !self.config.automatic || self.has_worked || is_trying || !self.pairing.plan(&self.taken()).is_empty() {
            return None;
        }
        let why = "it is left out as asked, and no other link reaches the peer".into();
        Some(Error::Link { link: contact.plan.interface.clone(), why })
    }

    /// Whether a path that is not planned any more uses an interface of one that is, and does not work or is not needed for it to.
    fn loses(&self, linked: &Linked, wanted: &[Candidate]) -> bool {
        let Some(own) = linked.candidate.as_ref().filter(|own| !has(wanted, own)) else { return false };
        let is_up = |linked: &Linked| matches!(linked.state, LinkState::Up | LinkState::Suspect);
        let works = |candidate: &Candidate| self.streams_over(candidate.id()).any(is_up);
        let shares = |other: &&Candidate| other.local.interface == own.local.interface || other.remote.interface == own.remote.interface;
        wanted.iter().filter(shares).any(|other| !is_up(linked) || works(other))
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

    /// Makes these paths, with the host routes that they need.
    ///
    /// # Errors
    ///
    /// A route that the user wants cannot be had; nothing is made then.
    async fn add(&mut self, plans: Vec<(PathPlan, Option<Candidate>)>) -> Result<(), Error> {
        if let Some(routes) = &self.config.routes {
            let plans: Vec<&PathPlan> = plans.iter().map(|(plan, _)| plan).collect();
            routes.hold_all(&plans, &self.here).await?;
        }
        let (announced, plain): (Vec<_>, Vec<_>) = plans.into_iter().partition(|plan| self.expected(plan).is_some());
        if !announced.is_empty() {
            let expected = announced.iter().filter_map(|plan| self.expected(plan)).collect();
            self.session.command(Command::Expect(expected)).await;
            self.awaiting.extend(announced);
            self.answer_by = Some(Instant::now() + ANSWER_TIMEOUT);
        }
        self.connect(plain).await;
        Ok(())
    }

    /// The peer has let in what was announced, or does not answer.
    async fn connect_awaiting(&mut self) {
        self.answer_by = None;
        let plans = std::mem::take(&mut self.awaiting);
        self.connect(plans).await;
    }

    async fn connect(&mut self, plans: Vec<(PathPlan, Option<Candidate>)>) {
        let mut numbered = Vec::new();
        for (plan, candidate) in plans {
            let path = PathId(self.next);
            self.next += 1;
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
    fn expected(&self, (plan, candidate): &(PathPlan, Option<Candidate>)) -> Option<Expected> {
        let candidate = candidate.as_ref().filter(|candidate| candidate.preference == Preference::SharedSubnet)?;
        // Who may install no routes here, or shall not, asks for none there.
        if !self.config.announces {
            return None;
        }
        let is_strict = |interface: &PeerInterface| interface.settings.is_some_and(|settings| settings.rp_filter == 1);
        let strict = self.local.iter().chain(&self.remote).any(is_strict);
        strict.then_some(Expected { from: plan.local?, interface: candidate.remote.index })
    }

    async fn restore_routes(&self, interface: u32) {
        let Some(routes) = &self.config.routes else { return };
        if let Err(error) = routes.interface_up(interface).await {
            tracing::warn!(error = %crate::logged::logged_error(&error), "host routes were not put back");
        }
    }

    async fn retire(&mut self, path: PathId) {
        if self.paths.remove(&path).is_some() {
            self.session.command(Command::Retire(path)).await;
        }
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
            pairing: &self.pairing,
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

/// Whether a candidate is in a list. What it would carry and how good it is may have changed: it is the same way all the same.
fn has(list: &[Candidate], candidate: &Candidate) -> bool {
    list.iter().any(|other| other.id() == candidate.id())
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

/// Pause until addresses are asked at which had to wait.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// How long the peer may take to let in what was announced; it changes a route or two.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Pauses after which those that did not answer are asked again: duplicate address detection takes the kernel 1 to 2 s.
const PROBE_PAUSES: [Duration; 4] =
    [Duration::from_millis(700), Duration::from_millis(700), Duration::from_millis(1500), Duration::from_secs(5)];

#[cfg(test)]
mod tests;
