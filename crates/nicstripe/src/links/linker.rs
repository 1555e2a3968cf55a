//! Path planning of a session, at its start and after each change of an interface or path.
//!
//! A [`Planner`] decides. The linker's task passes it facts from the kernel and the peer, and adds
//! and retires the paths.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use nicstripe_link::{Change, Changes, Interface, interface_for, interfaces};
use nicstripe_proto::{
    LAST_PATH, PathId,
    message::{CloseCode, PeerInterface},
    pairing::{Candidate, CandidateId, CandidateState, Failure, Obstacle, Planner, Step},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    address_proof,
    connect::Connector,
    local,
    plan::{Facts, described},
    probes::Probes,
    request::{MOST_STREAMS, RoutePolicy, SessionSettings},
    route_keeper::RouteKeeper,
    survey,
};
use crate::{
    report::{error::Error, event::LinkState, survey::LinkSurvey},
    session::{Command, Input, LinkNews, PathPlan, SessionHandle},
    wire::clock::sleep_until,
};

pub(crate) struct LinkerConfig {
    /// Settings of the session. Unless they are automatic, the linker keeps the initial links only.
    pub(crate) settings: SessionSettings,
    /// True to announce connections for which the peer may need host routes.
    pub(crate) announces: bool,
    pub(crate) routes: Option<Arc<RouteKeeper>>,
    /// Connector that verifies that an address belongs to the peer; `None` if addresses cannot be
    /// verified.
    pub(crate) connector: Option<Arc<Connector>>,
}

pub(crate) struct Linker {
    config: LinkerConfig,
    session: SessionHandle,
    interfaces: Vec<Interface>,
    facts: Facts,
    planner: Planner,
    paths: BTreeMap<PathId, Linked>,
    numbers: Numbers,
    probes: Probes,
    /// Interfaces announced by the peer and not yet applied, and the time to apply them.
    announced: Option<Vec<PeerInterface>>,
    apply_announced_at: Option<Instant>,
    last_applied: Option<Instant>,
    /// Paths announced to the peer and not yet connected, and the time to stop waiting for its
    /// answer.
    awaiting: Vec<(PathPlan, Option<Candidate>)>,
    answer_by: Option<Instant>,
    /// Number of times that the current announcement has been repeated.
    reminders: u32,
    /// True once a path other than the first has connected.
    has_worked: bool,
}

/// Path with its plan and its connection state.
#[derive(Debug, Clone)]
pub(crate) struct Linked {
    pub(crate) plan: PathPlan,
    /// Address pair from which the path was planned; `None` for named links.
    pub(crate) candidate: Option<Candidate>,
    pub(crate) state: LinkState,
    /// True once the path has connected for the first time.
    pub(crate) opened: bool,
    pub(crate) verified: Option<bool>,
    pub(crate) path_mtu: Option<u32>,
}

impl Linked {
    fn is_up(&self) -> bool {
        matches!(self.state, LinkState::Up | LinkState::Suspect)
    }
}

pub(crate) type SurveyRequest = oneshot::Sender<LinkSurvey>;

impl Linker {
    pub(crate) fn new(
        config: LinkerConfig,
        session: SessionHandle,
        interfaces: Vec<Interface>,
        facts: Facts,
    ) -> Self {
        let pairing = facts.pairing();
        Self {
            probes: Probes::new(facts.port, Instant::now()),
            config,
            session,
            interfaces,
            facts,
            planner: Planner::new(pairing),
            paths: BTreeMap::new(),
            numbers: Numbers::default(),
            announced: None,
            apply_announced_at: None,
            last_applied: None,
            awaiting: Vec::new(),
            answer_by: None,
            reminders: 0,
            has_worked: false,
        }
    }

    /// Registers the first connection and adds the named paths, then all paths that need no probe.
    pub(crate) async fn begin(
        &mut self,
        first: &PathPlan,
        verified: Option<bool>,
        path_mtu: Option<u32>,
        named: Vec<PathPlan>,
    ) -> Result<(), Error> {
        let candidate = self.candidate_of(first);
        if let Some(candidate) = &candidate {
            self.planner.adopt(candidate.clone());
        }
        let more = if first.contact_only {
            0
        } else {
            usize::from(self.streams_of(first)) - 1
        };
        let mut plans: Vec<(PathPlan, Option<Candidate>)> =
            std::iter::repeat_n((first.clone(), candidate.clone()), more).collect();
        let linked = Linked {
            plan: first.clone(),
            candidate,
            state: LinkState::Up,
            opened: true,
            verified,
            path_mtu,
        };
        self.paths.insert(FIRST_PATH, linked);
        for plan in named {
            let streams = usize::from(self.streams_of(&plan));
            plans.extend(std::iter::repeat_n((plan, None), streams));
        }
        if let Some((beyond, _)) = plans.get(self.numbers.unused()) {
            let why = format!(
                "{} connections exceed the limit of {} per session",
                plans.len() + 1,
                LAST_PATH.0 + 1
            );
            return Err(Error::link(&beyond.interface, why));
        }
        if let Some(routes) = self.config.routes.as_ref().filter(|_| !first.contact_only) {
            routes.hold_all(&[first], &self.interfaces).await?;
        }
        self.add(plans).await?;
        self.probe();
        if self.config.settings.is_automatic() {
            self.replan().await
        } else {
            Ok(())
        }
    }

    /// Plans paths until the session ends. Closes the session when all its handles are dropped.
    pub(crate) async fn run(
        mut self,
        mut news: mpsc::Receiver<LinkNews>,
        mut requests: mpsc::Receiver<SurveyRequest>,
    ) {
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
                () = sleep_until(self.apply_announced_at) => self.apply_interfaces(Instant::now()),
                () = sleep_until(self.answer_by) => self.on_unanswered().await,
                request = requests.recv() => {
                    let Some(request) = request else { break };
                    let _ = request.send(self.survey());
                    continue;
                }
                change = next_change(&mut changes) => self.on_change(change).await,
                Some((candidate, answer)) = self.probes.next() => self.on_probed(candidate, answer),
                () = sleep_until(self.planner.poll_timeout().map(Into::into)) => self.probe_again(),
            }
            if self.config.settings.is_automatic()
                && let Err(error) = self.replan().await
            {
                tracing::warn!(error = %crate::text::logged::logged_error(&error), "cannot make link");
            }
            if let Some(error) = self.given_up() {
                self.session.command(Command::GiveUp(Box::new(error))).await;
                return;
            }
        }
        self.session.command(Command::Close(CloseCode::Done)).await;
    }

    /// Handles an event of a path. Returns true if new paths may have to be planned.
    async fn on_news(&mut self, news: LinkNews) -> bool {
        match news {
            LinkNews::Opened {
                path,
                verified,
                path_mtu,
            } => self.on_opened(path, verified, path_mtu),
            LinkNews::Lost {
                path,
                why,
                obstacle,
            } => self.on_lost(path, why, obstacle).await,
            LinkNews::Astray { path, arrived, why } => self.on_astray(path, arrived, &why).await,
            LinkNews::PeerInterfaces(interfaces) => {
                self.on_interfaces_received(interfaces, Instant::now());
                // This message also answers an announcement.
                self.connect_awaiting().await;
                return false;
            }
        }
        self.retire_contact().await;
        true
    }

    fn on_opened(&mut self, path: PathId, verified: Option<bool>, path_mtu: Option<u32>) {
        self.has_worked |= path != FIRST_PATH;
        let Some(linked) = self.paths.get_mut(&path) else {
            return;
        };
        (linked.state, linked.opened) = (LinkState::Up, true);
        (linked.verified, linked.path_mtu) = (verified, path_mtu);
        if let Some(candidate) = &linked.candidate {
            self.planner.handle_opened(candidate.id());
        }
    }

    async fn on_lost(&mut self, path: PathId, why: String, obstacle: Obstacle) {
        let Some(linked) = self.paths.get_mut(&path) else {
            return;
        };
        linked.state = LinkState::Down(why);
        let Linked {
            plan,
            candidate: Some(candidate),
            ..
        } = linked.clone()
        else {
            return;
        };
        let id = candidate.id();
        if self.streams_over(id).any(Linked::is_up) {
            return;
        }
        if !self.streams_over(id).any(|linked| linked.opened)
            && self.expected(&(plan, Some(candidate))).is_some()
        {
            // The announcement or its proof may have been lost; both are repeated.
            self.retire_all(id).await;
            self.planner.handle_astray(id, Failure::Unrouted);
        } else {
            self.planner.handle_lost(id, obstacle);
        }
        self.probe();
    }

    async fn on_astray(&mut self, path: PathId, arrived: Option<String>, why: &str) {
        let Some(linked) = self.remove(path) else {
            return;
        };
        tracing::info!(interface = %linked.plan.interface, why = %crate::text::logged::logged(why), "not a link");
        let failure = arrived.map_or(Failure::Other, |arrived| Failure::WrongInterface {
            arrived,
        });
        if let Some(candidate) = &linked.candidate {
            self.planner.handle_astray(candidate.id(), failure);
            self.retire_all(candidate.id()).await;
        }
    }

    /// Returns the paths over the address pair with this identifier.
    fn streams_over(&self, id: CandidateId) -> impl Iterator<Item = &Linked> {
        let over_it = move |linked: &&Linked| is_over(linked.candidate.as_ref(), id);
        self.paths.values().filter(over_it)
    }

    /// Stores the interfaces that the peer announces. Only the latest are applied, at most once per
    /// [`ANNOUNCED_PAUSE`]: planning takes time, and the peer decides how often it sends.
    fn on_interfaces_received(&mut self, interfaces: Vec<PeerInterface>, now: Instant) {
        self.announced = Some(interfaces).filter(|interfaces| *interfaces != self.facts.remote);
        let earliest = self.last_applied.map_or(now, |last| last + ANNOUNCED_PAUSE);
        self.apply_announced_at = self.announced.as_ref().map(|_| earliest.max(now));
    }

    fn apply_interfaces(&mut self, now: Instant) {
        self.apply_announced_at = None;
        if let Some(interfaces) = self.announced.take() {
            self.facts.remote = interfaces;
            self.last_applied = Some(now);
            self.changed();
        }
    }

    async fn on_change(&mut self, change: Option<Change>) {
        let Some(change) = change else { return };
        if let Change::Carrier { index, up } = change {
            if let Some(interface) = self
                .interfaces
                .iter()
                .find(|interface| interface.index == index)
            {
                let _ = self
                    .session
                    .inputs
                    .send(Input::Carrier {
                        interface: interface.name.to_string(),
                        up,
                    })
                    .await;
            }
            if up && let Some(routes) = &self.config.routes {
                routes.reinstall(index.0).await;
            }
        }
        let Ok(found) = interfaces() else { return };
        self.look(found).await;
    }

    /// Applies interface changes that occurred before the linker subscribed to them.
    async fn catch_up(&mut self) {
        match interfaces() {
            Ok(found) if found != self.interfaces => self.look(found).await,
            _ => self.changed(),
        }
    }

    async fn look(&mut self, interfaces: Vec<Interface>) {
        self.interfaces = interfaces;
        self.facts.local = described(&self.interfaces, &self.config.settings.excluded);
        self.changed();
        self.retire_lost().await;
    }

    /// Passes the interfaces of both ends to the planner after a change, and probes new address
    /// pairs.
    fn changed(&mut self) {
        self.planner
            .update(self.facts.local.clone(), self.facts.remote.clone());
        self.adopt_first();
        self.probe();
    }

    /// Finds the address pair of the first connection, if a machine lists one of its addresses only
    /// now: an IPv6 address is not listed during duplicate address detection.
    fn adopt_first(&mut self) {
        let Some(first) = self.paths.get(&FIRST_PATH) else {
            return;
        };
        let candidate = self.candidate_of(&first.plan);
        let Some(candidate) = candidate.filter(|_| first.candidate.is_none()) else {
            return;
        };
        let (id, own) = (candidate.id(), link(&first.plan));
        // Planned on its own while the first connection was down.
        if self.streams_over(id).next().is_some() {
            return;
        }
        self.planner.adopt(candidate.clone());
        let is_stream =
            |linked: &&mut Linked| linked.candidate.is_none() && link(&linked.plan) == own;
        for stream in self.paths.values_mut().filter(is_stream) {
            stream.candidate = Some(candidate.clone());
        }
        if !self.streams_over(id).any(Linked::is_up) {
            self.planner.handle_lost(id, Obstacle::Silence);
        }
    }

    fn candidate_of(&self, first: &PathPlan) -> Option<Candidate> {
        let mut candidates = self.planner.pairing().candidates();
        let own = candidates.find(|candidate| is_plan_of(candidate, first));
        own.filter(|_| !first.contact_only).cloned()
    }

    /// Retires the paths of interfaces that no longer exist.
    async fn retire_lost(&mut self) {
        let is_lost =
            |linked: &Linked| local::find(&self.interfaces, &linked.plan.interface).is_none();
        let lost: Vec<PathId> = self
            .paths
            .iter()
            .filter(|(_, linked)| is_lost(linked))
            .map(|(path, _)| *path)
            .collect();
        for path in lost {
            if let Some(candidate) = self.remove(path).and_then(|linked| linked.candidate) {
                self.planner.forget(candidate.id());
            }
            self.session.command(Command::Gone(path)).await;
        }
    }

    /// Probes address pairs that may be joined by a cable, within the limits of [`Probes`].
    fn probe(&mut self) {
        if !self.config.settings.is_automatic() {
            return;
        }
        let (taken, now) = (self.taken(), Instant::now());
        self.planner.probe(&taken, now.into_std(), |candidate| {
            self.probes.start(candidate, now)
        });
    }

    fn probe_again(&mut self) {
        self.planner
            .handle_timeout(&self.taken(), Instant::now().into_std());
        self.probe();
    }

    fn on_probed(&mut self, candidate: CandidateId, answer: Result<(), Obstacle>) {
        tracing::debug!(%candidate, answered = answer.is_ok(), "probed");
        self.planner.handle_probed(candidate, answer);
        while let Some((candidate, answer)) = self.probes.next_now() {
            self.planner.handle_probed(candidate, answer);
        }
        self.probe();
    }

    /// Adds and retires paths as the planner decides.
    async fn replan(&mut self) -> Result<(), Error> {
        let taken = self.taken();
        let mut plans: Vec<(PathPlan, Option<Candidate>)> = Vec::new();
        while let Some(step) = self.planner.poll_step(&taken) {
            match step {
                Step::Retire(id) => self.retire_all(id).await,
                Step::Connect(candidate) => {
                    let (interface, remote) =
                        (&candidate.local.interface, candidate.remote.address);
                    tracing::debug!(interface, peer_interface = candidate.remote.interface, %remote, "link planned");
                    let plan = self.facts.plan_of(&candidate, false);
                    let streams = usize::from(self.streams_of(&plan));
                    plans.extend(std::iter::repeat_n((plan, Some(candidate)), streams));
                }
            }
        }
        let ids: Vec<CandidateId> = plans
            .iter()
            .filter_map(|(_, candidate)| Some(candidate.as_ref()?.id()))
            .collect();
        let added = self.add(plans).await;
        if added.is_err() {
            ids.into_iter().for_each(|id| self.planner.forget(id));
        }
        added
    }

    /// Returns an error if only an excluded interface reaches the peer: all other links have failed
    /// and none is being tried.
    fn given_up(&self) -> Option<Error> {
        let contact = self
            .paths
            .get(&FIRST_PATH)
            .filter(|contact| contact.plan.no_data)?;
        let is_trying = self.planner.poll_timeout().is_some()
            || !self.probes.is_empty()
            || !self.awaiting.is_empty();
        if !self.config.settings.is_automatic()
            || self.has_worked
            || is_trying
            || !self.planner.pairing().plan(&self.taken()).is_empty()
        {
            return None;
        }
        let why = "excluded by option, and no other link reaches the peer";
        Some(Error::link(&contact.plan.interface, why))
    }

    /// Retires the contact path, which only serves to reach the peer, once another path is up.
    async fn retire_contact(&mut self) {
        let is_contact = |linked: &Linked| linked.plan.contact_only;
        let is_replaced = self
            .paths
            .values()
            .any(|linked| linked.state == LinkState::Up && !is_contact(linked));
        if is_replaced && self.paths.get(&FIRST_PATH).is_some_and(is_contact) {
            self.retire(FIRST_PATH).await;
        }
    }

    /// Returns the interface pairs (local, peer's) used by paths of named links or by the first
    /// contact. The peer's name is empty if unknown, for example behind NAT; the local interface
    /// still counts as used. A path that is down takes nothing.
    fn taken(&self) -> Vec<(String, String)> {
        let outside = self.paths.values().filter(|linked| {
            let is_planned = linked.candidate.is_some() || linked.plan.contact_only;
            !is_planned && (linked.is_up() || linked.state == LinkState::Connecting)
        });
        outside
            .map(|linked| {
                (
                    linked.plan.interface.clone(),
                    linked.plan.peer_interface.clone().unwrap_or_default(),
                )
            })
            .collect()
    }

    /// Adds paths and the host routes that they need. Announces those that need a route at the
    /// peer, and connects the others.
    ///
    /// # Errors
    ///
    /// A mandatory route cannot be installed. No path is added then.
    async fn add(&mut self, plans: Vec<(PathPlan, Option<Candidate>)>) -> Result<(), Error> {
        let plans = match self.config.routes.clone() {
            Some(routes) => self.routed(plans, &routes).await?,
            None => plans,
        };
        // An announcement needs a working link.
        let is_heard = self.paths.values().any(Linked::is_up);
        let (announced, plain): (Vec<_>, Vec<_>) = plans
            .into_iter()
            .partition(|plan| is_heard && self.expected(plan).is_some());
        if !announced.is_empty() {
            self.announce(&announced).await;
            self.awaiting.extend(announced);
        }
        self.connect(plain).await;
        Ok(())
    }

    /// Installs the host routes that these paths need, and returns the paths that may be added.
    async fn routed(
        &mut self,
        plans: Vec<(PathPlan, Option<Candidate>)>,
        routes: &RouteKeeper,
    ) -> Result<Vec<(PathPlan, Option<Candidate>)>, Error> {
        let (mut proved, mut others) = (Vec::new(), Vec::new());
        for (plan, candidate) in plans {
            let id = candidate.as_ref().map(Candidate::id);
            if id.is_some_and(|id| {
                *self.planner.pairing().state(id) == CandidateState::Failed(Failure::Unrouted)
            }) {
                continue;
            }
            if self.is_the_peers(&plan, routes).await {
                proved.push((plan, candidate));
                continue;
            }
            let why = "peer does not answer at its address, no host route installed";
            if routes.policy() == RoutePolicy::Always {
                return Err(Error::link(plan.interface, why));
            }
            tracing::info!(interface = %plan.interface, address = %plan.remote.ip(), "{why}");
            match id {
                Some(id) => self.planner.handle_astray(id, Failure::Unrouted),
                None => others.push((plan, candidate)),
            }
        }
        routes
            .hold_all(
                &proved.iter().map(|(plan, _)| plan).collect::<Vec<_>>(),
                &self.interfaces,
            )
            .await?;
        proved.append(&mut others);
        Ok(proved)
    }

    /// Returns true if a host route for this path diverts no traffic of other machines: it follows
    /// the existing route, or the peer has proved its key at the address. An address typed by the
    /// user is trusted.
    async fn is_the_peers(&self, plan: &PathPlan, routes: &RouteKeeper) -> bool {
        let is_typed = plan.named && plan.local.is_none();
        let interface = local::find(&self.interfaces, &plan.interface);
        let Some(interface) = interface
            .filter(|interface| !is_typed && routes.diverts(plan.remote.ip(), interface.index.0))
        else {
            return true;
        };
        let Some(connector) = &self.config.connector else {
            return false;
        };
        routes
            .refresh_neighbour(plan.remote.ip(), interface.index.0)
            .await;
        let Some(current) = interface_for(plan.remote.ip(), &self.interfaces) else {
            return false;
        };
        connector.answers_at(&current.name, plan.remote).await
    }

    /// Announces paths to the peer, which may need host routes for them, and starts the timeout of
    /// its answer.
    async fn announce(&mut self, plans: &[(PathPlan, Option<Candidate>)]) {
        let expected = plans
            .iter()
            .filter_map(|plan| self.expected(plan))
            .collect();
        self.session
            .command(Command::Expect(
                address_proof::announced(expected, &self.session).await,
            ))
            .await;
        self.answer_by = Some(Instant::now() + ANSWER_TIMEOUT);
    }

    /// Repeats the announcement after a timeout: a token or an ARP request may have been lost.
    /// Connects without an answer after [`MOST_REMINDERS`] repetitions.
    async fn on_unanswered(&mut self) {
        if self.reminders == MOST_REMINDERS {
            return self.connect_awaiting().await;
        }
        self.reminders += 1;
        let awaiting = self.awaiting.clone();
        self.announce(&awaiting).await;
    }

    /// Connects the announced paths that are still planned, and forgets the others.
    async fn connect_awaiting(&mut self) {
        (self.answer_by, self.reminders) = (None, 0);
        let taken = self.taken();
        // Drops paths that are no longer planned.
        let is_planned = |candidate: &Candidate| self.planner.is_planned(candidate.id(), &taken);
        let (plans, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.awaiting)
            .into_iter()
            .partition(|(_, candidate)| candidate.as_ref().is_none_or(is_planned));
        others
            .into_iter()
            .filter_map(|(_, candidate)| candidate)
            .for_each(|candidate| self.planner.forget(candidate.id()));
        self.connect(plans).await;
    }

    async fn connect(&mut self, plans: Vec<(PathPlan, Option<Candidate>)>) {
        let mut numbered = Vec::new();
        for (plan, candidate) in plans {
            let Some(path) = self.numbers.take(&plan) else {
                tracing::warn!(interface = %plan.interface, "no further link: the session has used its {} connections", LAST_PATH.0 + 1);
                continue;
            };
            let linked = Linked {
                plan: plan.clone(),
                candidate,
                state: LinkState::Connecting,
                opened: false,
                verified: None,
                path_mtu: None,
            };
            self.paths.insert(path, linked);
            numbered.push((path, plan));
        }
        if !numbered.is_empty() {
            self.session.command(Command::AddPaths(numbered)).await;
        }
    }

    /// Returns the connection to announce (local address, the peer's interface index) if the peer's
    /// kernel would drop or misroute its packets without a host route; `None` otherwise.
    fn expected(&self, (plan, candidate): &(PathPlan, Option<Candidate>)) -> Option<(IpAddr, u32)> {
        // A client that must not install routes does not request them from the peer.
        let candidate = candidate.as_ref().filter(|candidate| {
            self.config.announces && self.planner.pairing().is_filtered(candidate)
        })?;
        Some((plan.local?, candidate.remote.index))
    }

    async fn retire(&mut self, path: PathId) {
        if self.remove(path).is_some() {
            self.session.command(Command::Retire(path)).await;
        }
    }

    /// Retires all paths over an address pair, including those not yet connected.
    async fn retire_all(&mut self, id: CandidateId) {
        self.awaiting
            .retain(|(_, candidate)| !is_over(candidate.as_ref(), id));
        let paths: Vec<PathId> = self
            .paths
            .iter()
            .filter(|(_, linked)| is_over(linked.candidate.as_ref(), id))
            .map(|(path, _)| *path)
            .collect();
        for path in paths {
            self.retire(path).await;
        }
    }

    fn remove(&mut self, path: PathId) -> Option<Linked> {
        let linked = self.paths.remove(&path)?;
        self.numbers.release(path, &linked.plan);
        Some(linked)
    }

    /// Returns the number of connections for a link: as the user requested, otherwise as many as
    /// the bonds at its ends need.
    fn streams_of(&self, plan: &PathPlan) -> u8 {
        let of = |side: &[PeerInterface], name: &str| {
            side.iter()
                .find(|interface| interface.name == name)
                .and_then(|interface| interface.streams)
        };
        let theirs = plan
            .peer_interface
            .as_deref()
            .and_then(|name| of(&self.facts.remote, name));
        let needed = of(&self.facts.local, &plan.interface)
            .max(theirs)
            .unwrap_or(1);
        self.config
            .settings
            .streams
            .unwrap_or(needed)
            .clamp(1, MOST_STREAMS)
    }

    fn survey(&self) -> LinkSurvey {
        let mut survey = survey::of(&survey::Known {
            interfaces: &self.interfaces,
            facts: &self.facts,
            pairing: self.planner.pairing(),
            taken: &self.taken(),
            paths: &self.paths,
            config: &self.config,
        });
        survey.is_probing = !self.probes.is_empty() || !self.awaiting.is_empty();
        survey
    }
}

/// Allocator of path identifiers of a session, which has 64 for its lifetime.
///
/// A link that is retired and added again reuses its identifiers. This keeps per-path counters with
/// their link, and a flapping link does not exhaust the identifiers.
#[derive(Debug, Default)]
struct Numbers {
    /// Greatest identifier used so far, at first [`FIRST_PATH`].
    last: u16,
    /// Released identifiers, by local interface and remote address.
    free: BTreeMap<(String, IpAddr), Vec<PathId>>,
}

impl Numbers {
    /// Returns the number of identifiers that were never used.
    fn unused(&self) -> usize {
        usize::from(LAST_PATH.0 - self.last)
    }

    /// Allocates the identifier of a new path. Returns `None` if other links have used all
    /// identifiers.
    fn take(&mut self, plan: &PathPlan) -> Option<PathId> {
        let had = self.free.get_mut(&link(plan)).and_then(Vec::pop);
        had.or_else(|| {
            self.last = (self.last < LAST_PATH.0).then_some(self.last + 1)?;
            Some(PathId(self.last))
        })
    }

    fn release(&mut self, path: PathId, plan: &PathPlan) {
        self.free.entry(link(plan)).or_default().push(path);
    }

    #[cfg(test)]
    fn use_up(&mut self) {
        self.last = LAST_PATH.0;
    }
}

fn link(plan: &PathPlan) -> (String, IpAddr) {
    (plan.interface.clone(), plan.remote.ip())
}

fn is_over(candidate: Option<&Candidate>, id: CandidateId) -> bool {
    candidate.is_some_and(|candidate| candidate.id() == id)
}

fn is_plan_of(candidate: &Candidate, plan: &PathPlan) -> bool {
    candidate.local.interface == plan.interface && candidate.remote.address == plan.remote.ip()
}

fn open_changes() -> Option<Changes> {
    Changes::open()
        .inspect_err(|error| tracing::warn!(%error, "cannot monitor interface changes"))
        .ok()
}

/// Returns the next interface change, or `None` if the kernel stops reporting them because of an
/// error. Later calls wait forever, as they do if `changes` is `None`.
async fn next_change(changes: &mut Option<Changes>) -> Option<Change> {
    match changes {
        Some(open) => match open.next().await {
            Ok(change) => Some(change),
            Err(error) => {
                tracing::warn!(%error, "interface changes are no longer monitored");
                *changes = None;
                None
            }
        },
        None => std::future::pending().await,
    }
}

/// Path of the first connection of a session.
pub(crate) const FIRST_PATH: PathId = PathId(0);

/// Minimum interval between applications of the peer's interface announcements.
const ANNOUNCED_PAUSE: Duration = Duration::from_millis(100);

/// Time to wait for the peer's answer to an announcement. The peer changes one or two routes before
/// it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of times an announcement is repeated before the client connects without an answer.
const MOST_REMINDERS: u32 = 2;

#[cfg(test)]
mod tests;
