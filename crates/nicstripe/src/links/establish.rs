//! Creation of a client's session: first contact, then planning of all paths, first of those that
//! the user named.

use std::sync::Arc;

use nicstripe_link::Interface;
use nicstripe_proto::{
    SessionConfig,
    message::CloseCode,
    pairing::{Candidate, Preference},
};
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};

use super::{
    connect::{Connector, FirstContact, PeerProgram, Retries, arrived_rightly},
    contact::Contact,
    linker::{FIRST_PATH, Linker, LinkerConfig, SurveyRequest},
    local,
    plan::{Facts, described, matches_request},
    probes::Probes,
    request::{LinkRequest, SessionSettings},
    route_keeper::RouteKeeper,
};
use crate::{
    file::{BufferPool, IoPool},
    report::{error::Error, event::Event},
    session::{Audience, Command, Driver, DriverConfig, Fault, Input, PathPlan, SessionHandle},
    trust::PublicKey,
    tunnel::TunnelMux,
};

/// Request for a session: the host, the settings of its links, and resources shared with other
/// sessions.
pub(crate) struct SessionRequest<'a> {
    pub(crate) contact: Contact<'a>,
    pub(crate) routes: Option<RouteKeeper>,
    pub(crate) pool: IoPool,
    pub(crate) buffers: BufferPool,
    /// Event channel of a transfer that receives the session's link events from the start.
    pub(crate) subscriber: Option<mpsc::Sender<Event>>,
    /// Event channel that receives [`Event::Unreachable`] during the first contact.
    pub(crate) told: Option<mpsc::Sender<Event>>,
}

/// Session of a client, with the task of its linker. It may have ended in the meantime.
#[derive(Debug, Clone)]
pub(crate) struct LinkedSession {
    pub(crate) handle: SessionHandle,
    pub(crate) key: PublicKey,
    pub(crate) peer: PeerProgram,
    /// Subscribers to the link events of the session: the running transfers.
    pub(crate) audience: Audience,
    /// Host routes of the session, removed when the last clone is dropped.
    pub(crate) routes: Option<Arc<RouteKeeper>>,
    /// Channel on which the linker receives requests for a survey.
    pub(crate) survey: mpsc::Sender<SurveyRequest>,
    /// Tunnel multiplexer of the session; `None` until first used.
    pub(crate) mux: Arc<Mutex<Option<Arc<TunnelMux>>>>,
}

impl SessionRequest<'_> {
    /// Connects to the host and starts a session, with a linker that plans its other paths.
    pub(crate) async fn establish(self) -> Result<LinkedSession, Error> {
        let routes = self.routes.map(Arc::new);
        let interfaces = local::listed()?;
        let named = self.contact.settings.links.iter();
        let settings = &SessionSettings {
            links: named.map(|link| link.by_name(&interfaces)).collect(),
            ..self.contact.settings.clone()
        };
        let contact = &Contact {
            settings,
            ..self.contact
        };
        let local = described(&interfaces, &settings.excluded);
        let connector = Arc::new(Connector::new(
            contact.identity,
            contact.peers,
            contact.host,
            settings,
        ));

        let events = self.subscriber.clone().or(settings.events.clone());
        let trying = contact.trying.clone();
        let mut retries = Retries::new(
            contact.host,
            settings.patience,
            settings.queues,
            events,
            trying.clone(),
        );
        let (mut first, first_contact) = tokio::select! {
            met = contact.meet(&connector, &interfaces, &local, &mut retries) => met?,
            never = trying.tell(contact.host, self.told) => match never {},
        };
        contact.remember(first_contact.key, &first);
        let FirstContact {
            mut established,
            remote_interfaces,
            key,
            arrival,
            peer,
        } = first_contact;
        // An address may have become usable during the first contact.
        let interfaces = local::listed()?;
        let facts = Facts {
            local: described(&interfaces, &settings.excluded),
            remote: remote_interfaces,
            port: settings.port,
            family: settings.family,
        };
        facts.complete(&mut first);
        established.verified = arrived_rightly(first.peer_interface.as_deref(), arrival.as_deref());
        let named = contact.named(&facts, &interfaces, &first).await?;
        contact.judge(&facts, &interfaces, established.verified, &mut first)?;

        let audience = Audience::default();
        self.subscriber
            .iter()
            .for_each(|events| audience.join(events));
        let (planner, news) = mpsc::channel(NEWS);
        let handle = Driver::start(DriverConfig {
            service: None,
            host: contact.host.to_owned(),
            session: SessionConfig {
                patience: settings.patience,
                rate_limit: settings.bandwidth,
                ..SessionConfig::default()
            },
            pool: self.pool,
            buffers: self.buffers,
            share: None,
            connector: Some(connector.clone()),
            planner: Some(planner),
            audience: audience.clone(),
            events: settings.events.clone(),
        });
        let (verified, path_mtu) = (established.verified, established.path_mtu);
        let one = Input::Connected {
            path: FIRST_PATH,
            plan: Some(first.clone()),
            established: Box::new(established),
        };
        let _ = handle.inputs.send(one).await;
        let config = LinkerConfig {
            settings: settings.clone(),
            announces: routes.is_some(),
            routes: routes.clone(),
            connector: Some(connector.clone()),
        };
        let mut linker = Linker::new(config, handle.clone(), interfaces, facts);
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
        Ok(LinkedSession {
            handle,
            key,
            peer,
            audience,
            routes,
            survey,
            mux: Arc::default(),
        })
    }
}

impl Contact<'_> {
    /// Plans the paths of the links that the user named, except the one of the first connection.
    async fn named(
        &self,
        facts: &Facts,
        interfaces: &[Interface],
        first: &PathPlan,
    ) -> Result<Vec<PathPlan>, Error> {
        let requests = self
            .settings
            .links
            .get(usize::from(first.named)..)
            .unwrap_or_default();
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let reached = self.reached(facts, requests).await;
        facts.named(requests, interfaces, first, &reached)
    }

    /// Returns the address pairs that match the named links. Pairs of link-local addresses must
    /// answer a probe.
    async fn reached(&self, facts: &Facts, requests: &[LinkRequest]) -> Vec<Candidate> {
        let is_wanted = |candidate: &Candidate| {
            requests
                .iter()
                .any(|request| matches_request(request, candidate))
        };
        let is_unsure = |candidate: &Candidate| candidate.preference == Preference::LinkLocal;
        let mut candidates: Vec<Candidate> =
            facts.candidates().into_iter().filter(is_wanted).collect();
        let unsure: Vec<Candidate> = candidates
            .iter()
            .filter(|candidate| is_unsure(candidate))
            .cloned()
            .collect();
        let answering = Probes::new(self.settings.port, Instant::now())
            .answering(&unsure)
            .await;
        candidates.retain(|candidate| !is_unsure(candidate) || answering.contains(&candidate.id()));
        candidates
    }

    /// Decides if the first connection carries data or only serves to reach the peer.
    ///
    /// # Errors
    ///
    /// Its interface is excluded and there is no other candidate.
    fn judge(
        &self,
        facts: &Facts,
        interfaces: &[Interface],
        verified: Option<bool>,
        first: &mut PathPlan,
    ) -> Result<(), Error> {
        if first.named || !self.settings.is_automatic() {
            return Ok(());
        }
        let is_candidate = facts
            .local
            .iter()
            .any(|interface| interface.name == first.interface && interface.candidate);
        let candidates = facts.candidates();
        if is_candidate && verified != Some(false) && !has_better(first, &candidates) {
            return Ok(());
        }
        let interface = local::find(interfaces, &first.interface);
        let left_out =
            interface.is_some_and(|interface| local::is_among(interface, &self.settings.excluded));
        let has_others = !candidates.is_empty();
        if left_out && !has_others {
            let why = "excluded by option, and no other link reaches the peer";
            return Err(Error::link(&first.interface, why));
        }
        first.contact_only = has_others;
        first.no_data = left_out;
        Ok(())
    }
}

/// Returns true if the two interfaces of the first connection also have a more preferred address
/// pair. A peer found on a cable has an IPv6 address, and an address in a shared subnet may work by
/// chance.
fn has_better(first: &PathPlan, candidates: &[Candidate]) -> bool {
    let is_same_pair = |candidate: &&Candidate| {
        candidate.local.interface == first.interface
            && Some(&candidate.remote.interface) == first.peer_interface.as_ref()
    };
    let mut same_pair = candidates.iter().filter(is_same_pair);
    let own = same_pair
        .clone()
        .find(|candidate| candidate.remote.address == first.remote.ip());
    own.is_some_and(|own| same_pair.any(|other| other.preference < own.preference))
}

/// Capacity of the path planner's event channel.
const NEWS: usize = 1024;
