//! Which paths a session has: planned at its start, and again whenever an interface, or what is known of a path, changes.
//!
//! [`Pairing`] decides; this task asks the kernel and the peer what it wants to know, and has the paths made and ended.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use nicstripe_link::{Change, Changes, Interface, interfaces};
use nicstripe_proto::{
    PathId,
    message::{Expected, PeerInterface},
    pairing::{Candidate, CandidateId, Failure, Pairing, Preference},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::survey::{self, LinkSurvey};
use crate::{
    connect::answers,
    error::Error,
    event::LinkState,
    link::Family,
    path_routes::RouteKeeper,
    plan::{Facts, described, socket_address},
    session::{Command, Input, LinkNews, PathPlan, SessionHandle},
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
    probes: JoinSet<(CandidateId, bool)>,
    /// Announced to the peer, which answers when they may be made; and when they are made anyway.
    awaiting: Vec<(PathPlan, Option<Candidate>)>,
    answer_by: Option<Instant>,
    /// When those that did not answer are asked again, and how often that was done since the last change.
    again: Option<Instant>,
    rounds: usize,
}

/// A path, and what is known of it.
#[derive(Debug, Clone)]
pub(super) struct Linked {
    pub(super) plan: PathPlan,
    /// What it was made from, where links are found.
    pub(super) candidate: Option<Candidate>,
    pub(super) state: LinkState,
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
            config,
            session,
            here,
            local,
            remote,
            pairing,
            paths: BTreeMap::new(),
            next: FIRST_PATH.0 + 1,
            probes: JoinSet::new(),
            awaiting: Vec::new(),
            answer_by: None,
            again: None,
            rounds: 0,
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
        let linked = Linked { plan: first.clone(), candidate, state: LinkState::Up, verified, path_mtu };
        self.paths.insert(FIRST_PATH, linked);
        let more = if first.contact_only { 0 } else { usize::from(self.streams_of(first)) - 1 };
        let mut plans: Vec<(PathPlan, Option<Candidate>)> = std::iter::repeat_n((first.clone(), None), more).collect();
        for plan in named {
            let streams = usize::from(self.streams_of(&plan));
            plans.extend(std::iter::repeat_n((plan, None), streams));
        }
        if let Some(routes) = self.config.routes.as_ref().filter(|_| !first.contact_only) {
            routes.hold_all(&[first], &self.here).await?;
        }
        self.add(plans).await?;
        if self.config.automatic { self.replan().await } else { Ok(()) }
    }

    /// Runs as long as the session.
    pub(super) async fn run(mut self, mut news: mpsc::Receiver<LinkNews>, mut requests: mpsc::Receiver<SurveyRequest>) {
        let mut changes = Changes::open().ok();
        self.probe();
        loop {
            let again = self.again;
            tokio::select! {
                () = self.session.ended.cancelled() => return,
                Some(news) = news.recv() => {
                    let answered = matches!(news, LinkNews::PeerInterfaces(_));
                    self.on_news(news);
                    if answered {
                        self.connect_awaiting().await;
                    }
                }
                () = sleep_until_some(self.answer_by) => self.connect_awaiting().await,
                Some(request) = requests.recv() => {
                    let _ = request.send(self.survey());
                    continue;
                }
                change = next_change(&mut changes) => self.on_change(change).await,
                Some(Ok((candidate, answered))) = self.probes.join_next() => self.on_probed(candidate, answered),
                () = sleep_until_some(again) => self.probe_again(),
            }
            if self.config.automatic
                && let Err(error) = self.replan().await
            {
                tracing::warn!(error = %crate::chain(&error), "a link was not made");
            }
        }
    }

    fn on_news(&mut self, news: LinkNews) {
        match news {
            LinkNews::Opened { path, verified, path_mtu } => {
                let Some(linked) = self.paths.get_mut(&path) else { return };
                (linked.state, linked.verified, linked.path_mtu) = (LinkState::Up, verified, path_mtu);
                if let Some(candidate) = &linked.candidate {
                    self.pairing.verified(candidate.id());
                }
            }
            LinkNews::Lost { path, why } => {
                let Some(linked) = self.paths.get_mut(&path) else { return };
                let had_worked = linked.verified.is_some() || linked.state == LinkState::Up;
                linked.state = LinkState::Down(why);
                // One that has worked is tried again by the session, for as long as it takes.
                if let Some(candidate) = linked.candidate.as_ref().filter(|_| !had_worked) {
                    self.pairing.failed(candidate.id(), Failure::Unreachable);
                }
            }
            LinkNews::Astray { path, arrived, why } => {
                let Some(linked) = self.paths.remove(&path) else { return };
                tracing::info!(interface = %linked.plan.interface, %why, "not a link");
                if let Some(candidate) = &linked.candidate {
                    self.pairing.failed(candidate.id(), Failure::WrongInterface { arrived });
                }
            }
            LinkNews::PeerInterfaces(interfaces) => {
                self.remote = interfaces;
                self.changed();
            }
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

    /// Asks at all link-local addresses that may be at the other end of one of our cables.
    fn probe(&mut self) {
        if !self.config.automatic {
            return;
        }
        for candidate in self.pairing.to_probe(&self.taken()) {
            let remote = socket_address(candidate.remote.address, self.config.port, candidate.local.index);
            self.probes.spawn(async move {
                let answered = answers(&candidate.local.interface, remote, PROBE_TIMEOUT).await;
                (candidate.id(), answered)
            });
        }
        self.again = PROBE_PAUSES.get(self.rounds).map(|pause| Instant::now() + *pause);
    }

    /// The two ends of a cable learn of it, give themselves addresses and begin to listen at their own pace.
    fn probe_again(&mut self) {
        self.rounds += 1;
        self.pairing.forgive();
        self.probe();
    }

    fn on_probed(&mut self, candidate: CandidateId, answered: bool) {
        if answered {
            self.pairing.reached(candidate);
        } else {
            self.pairing.failed(candidate, Failure::Unreachable);
        }
    }

    /// Makes the paths that are planned and not there, and ends those that are in the way of planned ones.
    async fn replan(&mut self) -> Result<(), Error> {
        let wanted = self.pairing.plan(&self.taken());
        let losers: Vec<PathId> = self.paths.iter().filter(|(_, linked)| self.loses(linked, &wanted)).map(|(path, _)| *path).collect();
        for path in losers {
            self.retire(path).await;
        }
        let made = self.paths.values().map(|linked| &linked.candidate);
        let known: Vec<&Candidate> = made.chain(self.awaiting.iter().map(|(_, candidate)| candidate)).flatten().collect();
        let has = |candidate: &Candidate| known.contains(&candidate);
        let new: Vec<Candidate> = wanted.into_iter().filter(|candidate| !has(candidate)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let facts = self.facts();
        let plans: Vec<(PathPlan, Option<Candidate>)> = new
            .into_iter()
            .flat_map(|candidate| {
                let plan = facts.plan_of(&candidate, false);
                let streams = usize::from(self.streams_of(&plan));
                std::iter::repeat_n((plan, Some(candidate)), streams)
            })
            .collect();
        self.add(plans).await
    }

    /// Whether a path that is not planned any more uses an interface of one that is, and does not work or is not needed for it to.
    fn loses(&self, linked: &Linked, wanted: &[Candidate]) -> bool {
        let Some(own) = linked.candidate.as_ref().filter(|own| !wanted.contains(own)) else { return false };
        let is_up = |linked: &Linked| matches!(linked.state, LinkState::Up | LinkState::Suspect);
        let works = |candidate: &Candidate| self.paths.values().any(|other| other.candidate.as_ref() == Some(candidate) && is_up(other));
        let shares = |other: &&Candidate| other.local.interface == own.local.interface || other.remote.interface == own.remote.interface;
        wanted.iter().filter(shares).any(|other| !is_up(linked) || works(other))
    }

    /// Pairs of interfaces that paths outside of the pairing use: those made from names or from the first contact.
    fn taken(&self) -> Vec<(String, String)> {
        let outside = self.paths.values().filter(|linked| linked.candidate.is_none() && !linked.plan.contact_only);
        outside.filter_map(|linked| Some((linked.plan.interface.clone(), linked.plan.peer_interface.clone()?))).collect()
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
            if self.next > LAST_PATH.0 {
                tracing::warn!(interface = %plan.interface, "no more paths in this session: it has had 64");
                break;
            }
            let path = PathId(self.next);
            self.next += 1;
            let linked = Linked { plan: plan.clone(), candidate, state: LinkState::Connecting, verified: None, path_mtu: None };
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
        let is_strict = |interface: &PeerInterface| interface.settings.is_some_and(|settings| settings.rp_filter == 1);
        let strict = self.local.iter().chain(&self.remote).any(is_strict);
        strict.then_some(Expected { from: plan.local?, interface: candidate.remote.index })
    }

    async fn restore_routes(&self, interface: u32) {
        let Some(routes) = &self.config.routes else { return };
        if let Err(error) = routes.interface_up(interface).await {
            tracing::warn!(error = %crate::chain(&error), "host routes were not put back");
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
        LinkSurvey { is_probing: !self.probes.is_empty(), ..survey }
    }
}

fn is_plan_of(candidate: &Candidate, plan: &PathPlan) -> bool {
    candidate.local.interface == plan.interface && candidate.remote.address == plan.remote.ip()
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

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Path number of a session's first connection.
pub(super) const FIRST_PATH: PathId = PathId(0);

/// Greatest path number.
const LAST_PATH: PathId = PathId(63);

/// Most connections a link.
pub(super) const MOST_STREAMS: u8 = 16;

/// How long an answer over a cable may take; on a LAN it is there within a millisecond.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the peer may take to let in what was announced; it changes a route or two.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Pauses after which those that did not answer are asked again: duplicate address detection takes the kernel 1 to 2 s.
const PROBE_PAUSES: [Duration; 4] =
    [Duration::from_millis(700), Duration::from_millis(700), Duration::from_millis(1500), Duration::from_secs(5)];
