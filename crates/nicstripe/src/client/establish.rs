//! Session setup of a client: paths planned after the first contact.

use std::sync::Arc;

use nicstripe_link::Interface;
use nicstripe_proto::{
    Role, SessionConfig,
    message::CloseCode,
    pairing::{Candidate, Preference},
};
use tokio::{sync::mpsc, time::Instant};

use super::{
    Inner, LiveSession,
    linker::{FIRST_PATH, Linker, LinkerConfig},
    probes::Probes,
};
use crate::{
    connect::{Connector, FirstContact, Retries, arrived_rightly},
    error::Error,
    event::Event,
    here,
    link::LinkRequest,
    plan::{Facts, described, is_meant},
    session::{Access, Audience, Command, Driver, DriverConfig, Fault, Input, PathPlan},
};

impl Inner {
    pub(super) async fn establish(&self, wanted: Option<&mpsc::Sender<Event>>) -> Result<LiveSession, Error> {
        let routes = self.settings.session_routes().map(Arc::new);
        let here = here::listed()?;
        let local = described(&here, &self.settings.excluded);
        let connector = Arc::new(Connector::new(&self.identity, &self.peers, &self.host).with_socket_buffer(self.settings.socket_buffer));

        let events = wanted.or(self.settings.events.as_ref()).cloned();
        let mut retries = Retries::new(&self.host, self.settings.patience, events).queueing(self.settings.queues);
        let (mut first, contact) = self.first_contact(&connector, &here, &local, &mut retries).await?;
        self.remember(contact.key, &first);
        let FirstContact { mut established, remote_interfaces, key, arrival } = contact;
        let facts = Facts { local: &local, remote: &remote_interfaces, port: self.settings.port, family: self.settings.family };
        facts.complete(&mut first);
        established.verified = arrived_rightly(first.peer_interface.as_deref(), arrival.as_deref());
        let named = self.named(&facts, &here, &first).await?;
        self.judge_contact(&facts, &here, established.verified, &mut first)?;

        let audience = Audience::default();
        wanted.into_iter().for_each(|events| audience.join(events));
        let session = SessionConfig { patience: self.settings.patience, rate_limit: self.settings.bandwidth, ..SessionConfig::default() };
        let (planner, news) = mpsc::channel(NEWS);
        let handle = Driver::start(DriverConfig {
            role: Role::Client,
            access: Access::Client,
            host: self.host.clone(),
            session,
            pool: self.pool.clone(),
            buffers: self.buffers.clone(),
            share: None,
            connector: Some(connector.clone()),
            planner: Some(planner),
            audience: audience.clone(),
        });
        let (verified, path_mtu) = (established.verified, established.path_mtu);
        let one = Input::Connected { path: FIRST_PATH, plan: Some(first.clone()), established: Box::new(established) };
        let _ = handle.inputs.send(one).await;
        let config = LinkerConfig {
            port: self.settings.port,
            family: self.settings.family,
            excluded: self.settings.excluded.clone(),
            streams: self.settings.streams,
            automatic: self.settings.links.is_empty(),
            announces: routes.is_some(),
            routes: routes.clone(),
            connector: Some(connector.clone()),
        };
        let mut linker = Linker::new(config, handle.clone(), here, remote_interfaces);
        if let Err(error) = linker.begin(&first, verified, path_mtu, named).await {
            handle.command(Command::Close(CloseCode::Cancelled)).await;
            return Err(error);
        }
        let (survey, requests) = mpsc::channel(1);
        let fault = Fault::of(&handle.inputs);
        tokio::spawn(async move {
            let _fault = fault;
            linker.run(news, requests).await;
        });
        Ok(LiveSession { handle, key, audience, routes, survey, mux: Arc::default() })
    }

    /// Plans the named links, except the one that made the first contact.
    async fn named(&self, facts: &Facts<'_>, here: &[Interface], first: &PathPlan) -> Result<Vec<PathPlan>, Error> {
        let requests = self.settings.links.get(usize::from(first.named)..).unwrap_or_default();
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let reached = self.reached(facts, requests).await;
        facts.named(requests, here, first, &reached)
    }

    /// Returns the candidates for named links. Link-local ones must answer a probe.
    async fn reached(&self, facts: &Facts<'_>, requests: &[LinkRequest]) -> Vec<Candidate> {
        let is_wanted = |candidate: &Candidate| requests.iter().any(|request| is_meant(request, candidate));
        let is_unsure = |candidate: &Candidate| candidate.preference == Preference::LinkLocal;
        let mut candidates: Vec<Candidate> = facts.candidates().into_iter().filter(is_wanted).collect();
        let unsure: Vec<Candidate> = candidates.iter().filter(|candidate| is_unsure(candidate)).cloned().collect();
        let answering = Probes::new(self.settings.port, Instant::now()).answering(&unsure).await;
        candidates.retain(|candidate| !is_unsure(candidate) || answering.contains(&candidate.id()));
        candidates
    }

    /// Decides if the first connection becomes a link or only serves to reach the peer.
    fn judge_contact(&self, facts: &Facts<'_>, here: &[Interface], verified: Option<bool>, first: &mut PathPlan) -> Result<(), Error> {
        if first.named || !self.settings.links.is_empty() {
            return Ok(());
        }
        let is_candidate = facts.local.iter().any(|interface| interface.name == first.interface && interface.candidate);
        let candidates = facts.candidates();
        if is_candidate && verified != Some(false) && !has_better(first, &candidates) {
            return Ok(());
        }
        let interface = here.iter().find(|interface| interface.is_called(&first.interface));
        let left_out = interface.is_some_and(|interface| here::is_among(interface, &self.settings.excluded));
        let has_others = !candidates.is_empty();
        if left_out && !has_others {
            let why = "excluded by option, and no other link reaches the peer".into();
            return Err(Error::Link { link: first.interface.clone(), why });
        }
        first.contact_only = has_others;
        first.no_data = left_out;
        Ok(())
    }
}

/// Returns true if the interfaces of the first contact have a preferred address pair. A peer found
/// on a cable has an IPv6 address, and an address in a shared subnet may work by chance.
fn has_better(first: &PathPlan, candidates: &[Candidate]) -> bool {
    let is_same_pair = |candidate: &&Candidate| {
        candidate.local.interface == first.interface && Some(&candidate.remote.interface) == first.peer_interface.as_ref()
    };
    let mut same_pair = candidates.iter().filter(is_same_pair);
    let own = same_pair.clone().find(|candidate| candidate.remote.address == first.remote.ip());
    own.is_some_and(|own| same_pair.any(|other| other.preference < own.preference))
}

/// Capacity of the queue to the path planner.
const NEWS: usize = 1024;
