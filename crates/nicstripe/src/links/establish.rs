//! Creation of a client's session: first contact, then planning of all paths, first of those that
//! the user named.

use std::{collections::BTreeSet, sync::Arc};

use nicstripe_link::Interface;
use nicstripe_proto::{
    SessionConfig,
    message::CloseCode,
    pairing::{Candidate, CandidateId, MOST_PROBES, PROBE_BURST, Pairing, Preference},
    path::{Arrival, Origin, PathPlan},
    session::LinkTerms,
};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinSet,
};

use super::{
    connect::{Connector, FirstContact, PeerProgram, Retries},
    contact::Contact,
    local,
    plan::{described, matches_request, named, pairing},
    request::{LinkRequest, SessionSettings},
    route_keeper::RouteKeeper,
    steps::{Steps, answers},
    survey,
    watch::Watch,
};
use crate::{
    file::{BufferPool, IoPool},
    report::{error::Error, event::Event, survey::LinkSurvey},
    session::{Audience, Begin, Command, Driver, DriverConfig, Fault, SessionHandle},
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

/// Session of a client. It may have ended in the meantime.
#[derive(Debug, Clone)]
pub(crate) struct LinkedSession {
    pub(crate) handle: SessionHandle,
    pub(crate) key: PublicKey,
    pub(crate) peer: PeerProgram,
    /// Subscribers to the link events of the session: the running transfers.
    pub(crate) audience: Audience,
    /// Host routes of the session, removed when the last clone is dropped.
    pub(crate) routes: Option<Arc<RouteKeeper>>,
    /// Names of interfaces that the user excluded.
    excluded: Vec<String>,
    /// The session is closed when the last clone is dropped.
    _owner: Arc<oneshot::Sender<()>>,
    /// Tunnel multiplexer of the session; `None` until first used.
    pub(crate) mux: Arc<Mutex<Option<Arc<TunnelMux>>>>,
}

impl SessionRequest<'_> {
    /// Connects to the host and starts a session, which plans its other paths.
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
            established,
            remote_interfaces,
            key,
            peer,
        } = first_contact;
        // An address may have become usable during the first contact.
        let interfaces = local::listed()?;
        let local = described(&interfaces, &settings.excluded);
        let pairing = pairing(local, remote_interfaces, settings.family);
        first.complete(&pairing);
        let named = contact.named(&pairing, &interfaces, &first).await?;
        contact.judge(&pairing, &interfaces, &established.arrival, &mut first)?;

        let audience = Audience::default();
        self.subscriber
            .iter()
            .for_each(|events| audience.join(events));
        let steps = Steps {
            connector,
            routes: routes.clone(),
            port: settings.port,
        };
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
            packs: peer.unpacks(),
            share: None,
            steps: Some(Arc::new(steps)),
            audience: audience.clone(),
            events: settings.events.clone(),
        });
        let (reply, begun) = oneshot::channel();
        let begin = Begin {
            first: (first, established),
            terms: LinkTerms {
                is_automatic: settings.is_automatic(),
                streams: settings.streams,
                has_routes: routes.is_some(),
                port: settings.port,
            },
            pairing,
            named,
            reply,
        };
        handle.command(Command::Begin(Box::new(begin))).await;
        // Without an answer the session has ended, as its first transfer learns.
        if let Ok(Err(error)) = begun.await {
            handle.command(Command::Close(CloseCode::Cancelled)).await;
            return Err(error);
        }
        let (owner, owned) = oneshot::channel();
        let watch = Watch {
            session: handle.clone(),
            known: interfaces,
            excluded: settings.excluded.clone(),
            routes: routes.clone(),
        };
        let fault = Fault::of(&handle.inputs);
        tokio::spawn(async move {
            let _fault = fault;
            watch.run(owned).await;
        });
        Ok(LinkedSession {
            handle,
            key,
            peer,
            audience,
            routes,
            excluded: settings.excluded.clone(),
            _owner: Arc::new(owner),
            mux: Arc::default(),
        })
    }
}

impl LinkedSession {
    /// Returns true if the session takes no more commands.
    pub(crate) fn has_ended(&self) -> bool {
        self.handle.ended.is_cancelled()
    }

    /// Returns a survey of the session's links, or `None` if the session has ended.
    pub(crate) async fn survey(&self) -> Option<LinkSurvey> {
        let (reply, answer) = oneshot::channel();
        self.handle.command(Command::Survey(reply)).await;
        let view = &answer.await.ok()?;
        let interfaces = &local::listed().unwrap_or_default();
        let excluded = &self.excluded;
        Some(survey::of(&survey::Known {
            view,
            interfaces,
            excluded,
        }))
    }
}

impl Contact<'_> {
    /// Plans the paths of the links that the user named, except the one of the first connection.
    async fn named(
        &self,
        pairing: &Pairing,
        interfaces: &[Interface],
        first: &PathPlan,
    ) -> Result<Vec<PathPlan>, Error> {
        let requests = self
            .settings
            .links
            .get(usize::from(first.origin == Origin::Named)..)
            .unwrap_or_default();
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let reached = self.reached(pairing, requests).await;
        let port = self.settings.port;
        named(pairing, port, requests, interfaces, first, &reached)
    }

    /// Returns the address pairs that match the named links. Pairs of link-local addresses must
    /// answer a probe.
    async fn reached(&self, pairing: &Pairing, requests: &[LinkRequest]) -> Vec<Candidate> {
        let is_wanted = |candidate: &&Candidate| {
            requests
                .iter()
                .any(|request| matches_request(request, candidate))
        };
        let is_unsure = |candidate: &Candidate| candidate.preference == Preference::LinkLocal;
        let mut candidates: Vec<Candidate> =
            pairing.candidates().filter(is_wanted).cloned().collect();
        let unsure: Vec<Candidate> = candidates
            .iter()
            .filter(|candidate| is_unsure(candidate))
            .cloned()
            .collect();
        let answering = answering(&unsure, self.settings.port).await;
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
        pairing: &Pairing,
        interfaces: &[Interface],
        arrival: &Arrival,
        first: &mut PathPlan,
    ) -> Result<(), Error> {
        if first.origin == Origin::Named || !self.settings.is_automatic() {
            return Ok(());
        }
        let is_candidate = pairing
            .local()
            .iter()
            .any(|interface| interface.name == first.interface && interface.candidate);
        let candidates: Vec<&Candidate> = pairing.candidates().collect();
        let is_elsewhere = match (&first.peer_interface, &arrival.interface) {
            (Some(meant), Some(arrived)) => meant != arrived,
            _ => false,
        };
        if is_candidate && !is_elsewhere && !has_better(first, &candidates) {
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
        first.origin = match (left_out, has_others) {
            (true, _) => Origin::Excluded,
            (false, true) => Origin::ContactOnly,
            (false, false) => Origin::Contact,
        };
        Ok(())
    }
}

/// Returns true if the two interfaces of the first connection also have a more preferred address
/// pair. A peer found on a cable has an IPv6 address, and an address in a shared subnet may work by
/// chance.
fn has_better(first: &PathPlan, candidates: &[&Candidate]) -> bool {
    let is_same_pair = |candidate: &&&Candidate| {
        candidate.local.interface == first.interface
            && Some(&candidate.remote.interface) == first.peer_interface.as_ref()
    };
    let mut same_pair = candidates.iter().filter(is_same_pair);
    let own = same_pair
        .clone()
        .find(|candidate| candidate.remote.address == first.remote.ip());
    own.is_some_and(|own| same_pair.any(|other| other.preference < own.preference))
}

/// Probes the first [`PROBE_BURST`] address pairs and returns those that answered. Takes at most 4 s,
/// no matter how many addresses the peer announces.
async fn answering(candidates: &[Candidate], port: u16) -> BTreeSet<CandidateId> {
    let mut waiting = candidates.iter().take(PROBE_BURST as usize).cloned();
    let (mut probes, mut answering) = (JoinSet::new(), BTreeSet::new());
    loop {
        while probes.len() < MOST_PROBES
            && let Some(candidate) = waiting.next()
        {
            probes.spawn(async move {
                let answer = answers(&candidate, port).await;
                answer.is_ok().then(|| candidate.id())
            });
        }
        match probes.join_next().await {
            Some(answered) => answering.extend(answered.ok().flatten()),
            None => return answering,
        }
    }
}
