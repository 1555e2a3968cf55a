//! How a client meets its daemon: the first contact, the plan of the other paths, the session.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use nicstripe_link::{Change, Changes, Interface, interfaces, route_to};
use nicstripe_proto::{PathId, Role, SessionConfig, message::PeerInterface};

use tokio::sync::mpsc;

use super::{EventSlot, Inner, LiveSession};
use crate::{
    connect::{Connector, FirstContact, arrived_rightly},
    discovery::Lookup,
    error::Error,
    event::Event,
    link::Family,
    path_routes::RouteKeeper,
    plan::{Facts, described, direct, local_interface, socket_address},
    session::{Access, Capacity, Command, Driver, DriverConfig, Input, PathPlan, SessionHandle},
};

impl Inner {
    pub(super) async fn establish(&self, wanted: Option<&mpsc::Sender<Event>>) -> Result<LiveSession, Error> {
        let routes = self.settings.session_routes();
        let here = interfaces().map_err(|error| Error::System { what: "list the interfaces", source: std::io::Error::other(error) })?;
        let local = described(&here, &self.settings.excluded);
        let connector = Arc::new(Connector::new(&self.identity, &self.peers, &self.host));

        let (mut first, contact) = self.first_contact(&connector, &here, &local).await?;
        let FirstContact { mut established, remote_interfaces, key, arrival } = contact;
        let facts = Facts { local: &local, remote: &remote_interfaces, port: self.settings.port, family: self.settings.family };
        facts.complete(&mut first);
        let rest = self.plan_rest(&facts, &here, &mut first)?;
        established.verified = arrived_rightly(first.peer_interface.as_deref(), arrival.as_deref());

        let routes = hold_routes(routes, &first, &rest, &here).await?;
        let events = EventSlot::new(std::sync::Mutex::new(wanted.cloned()));
        let session = SessionConfig { patience: self.settings.patience, rate_limit: self.settings.bandwidth, ..SessionConfig::default() };
        let handle = Driver::start(DriverConfig {
            role: Role::Client,
            access: Access::Client,
            host: self.host.clone(),
            session,
            pool: self.pool.clone(),
            buffers: self.buffers.clone(),
            connector: Some(connector),
            events: events.clone(),
        });
        let one = Input::Connected { path: FIRST_PATH, plan: Some(first.clone()), established: Box::new(established) };
        let _ = handle.inputs.send(one).await;
        handle.command(Command::AddPaths(self.numbered(&first, rest))).await;
        watch_carriers(handle.clone(), &here);
        Ok(LiveSession { handle, key, events, routes })
    }

    /// Connects for the first time, over the first link that is named with both ends, else however the kernel would go.
    async fn first_contact(
        &self,
        connector: &Connector,
        here: &[Interface],
        local: &[PeerInterface],
    ) -> Result<(PathPlan, FirstContact), Error> {
        let mut plans = Vec::new();
        if let Some(request) = self.settings.links.first() {
            plans.extend(direct(request, here, self.settings.port)?);
        }
        for request in &self.settings.links {
            local_interface(request, here)?;
        }
        if plans.is_empty() {
            let contact_only = !self.settings.links.is_empty();
            for address in self.resolve().await? {
                plans.push(contact_plan(address, here, contact_only)?);
            }
        }
        let mut failure = None;
        for plan in plans {
            match connector.first(FIRST_PATH, &plan, local.to_vec()).await {
                Ok(contact) => return Ok((plan, contact)),
                // Somebody is there: another address would not change what it said.
                Err(error @ (Error::Untrusted { .. } | Error::UntrustedPeer { .. } | Error::Refused { .. })) => return Err(error),
                Err(error) if plan.named => {
                    return Err(Error::Link { link: plan.interface.clone(), why: crate::chain(&error) });
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| Error::Resolve { host: self.host.clone(), source: std::io::ErrorKind::NotFound.into() }))
    }

    /// Plans the paths beside the first; may find that the first was only good to meet the peer.
    fn plan_rest(&self, facts: &Facts<'_>, here: &[Interface], first: &mut PathPlan) -> Result<Vec<PathPlan>, Error> {
        if !self.settings.links.is_empty() {
            return facts.named(&self.settings.links[usize::from(first.named)..], here, first);
        }
        let is_candidate = facts.local.iter().any(|interface| interface.name == first.interface && interface.candidate);
        if !is_candidate {
            let others = facts.paths(&PathPlan { contact_only: true, ..first.clone() });
            let left_out = here.iter().any(|interface| {
                interface.is_called(&first.interface) && self.settings.excluded.iter().any(|name| interface.is_called(name))
            });
            if left_out && others.is_empty() {
                let why = "it is left out as asked, and no other link reaches the peer".into();
                return Err(Error::Link { link: first.interface.clone(), why });
            }
            first.contact_only = !others.is_empty();
            first.no_data = left_out;
            return Ok(others);
        }
        Ok(facts.paths(first))
    }

    /// Gives each connection of each link a path number.
    fn numbered(&self, first: &PathPlan, rest: Vec<PathPlan>) -> Vec<(PathId, PathPlan)> {
        let streams = usize::from(self.settings.streams);
        let more_of_first = if first.contact_only { 0 } else { streams - 1 };
        let more_of_first = std::iter::repeat_n(first.clone(), more_of_first);
        let plans = more_of_first.chain(rest.into_iter().flat_map(|plan| std::iter::repeat_n(plan, streams)));
        plans.take(MOST_PATHS).enumerate().map(|(index, plan)| (PathId(index as u16 + 1), plan)).collect()
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let (host, port) = (&self.host, self.settings.port);
        let error = |source| Error::Resolve { host: host.clone(), source };
        if let Some((address, zone)) = host.split_once('%')
            && let Ok(ip) = address.parse::<IpAddr>()
        {
            let here = interfaces().map_err(|cause| error(std::io::Error::other(cause)))?;
            let interface = here.iter().find(|interface| interface.is_called(zone) || interface.index.0.to_string() == zone);
            let interface = interface.ok_or_else(|| error(std::io::Error::other(format!("there is no interface {zone} here"))))?;
            return Ok(vec![socket_address(ip, port, interface.index.0)]);
        }
        let resolver = async {
            let found = tokio::net::lookup_host((host.as_str(), port)).await?;
            let wanted = |address: &SocketAddr| self.settings.family.is_none_or(|family| family.has(address.ip()));
            let addresses: Vec<SocketAddr> = found.filter(wanted).collect();
            match addresses.is_empty() {
                true => Err(std::io::Error::other("it has no address of the wanted IP version")),
                false => Ok(addresses),
            }
        };
        match self.on_cables() {
            Some(lookup) => lookup.find(resolver).await,
            None => resolver.await.map_err(error),
        }
    }

    /// Returns how the host is looked for on the cables: by its key, so it has to be the name of a peer, and over IPv6.
    fn on_cables(&self) -> Option<Lookup<'_>> {
        let peer = self.peers.by_name(&self.host).filter(|_| self.host.parse::<IpAddr>().is_err())?;
        let (port, excluded) = (self.settings.port, &self.settings.excluded[..]);
        let lookup = Lookup { identity: &self.identity, peers: &self.peers, key: peer.key, host: &self.host, port, excluded };
        self.settings.family.is_none_or(|family| family == Family::V6).then_some(lookup)
    }
}

/// Has the host routes that the policy wants, for as long as the session lives.
async fn hold_routes(
    keeper: Option<RouteKeeper>,
    first: &PathPlan,
    rest: &[PathPlan],
    here: &[Interface],
) -> Result<Option<Arc<RouteKeeper>>, Error> {
    let Some(keeper) = keeper else { return Ok(None) };
    let plans: Vec<&PathPlan> = std::iter::once(first).filter(|first| !first.contact_only).chain(rest).collect();
    keeper.hold_all(&plans, here).await?;
    Ok(Some(Arc::new(keeper)))
}

/// Plans the first contact: pinned to the interface that the kernel would take.
fn contact_plan(remote: SocketAddr, here: &[Interface], contact_only: bool) -> Result<PathPlan, Error> {
    let scope = match remote {
        SocketAddr::V6(remote) if remote.scope_id() != 0 => Some(remote.scope_id()),
        _ => None,
    };
    let index = match scope {
        Some(index) => index,
        None => route_to(remote.ip()).map_err(|source| Error::Connect { address: remote, source })?.interface.0,
    };
    let interface = here.iter().find(|interface| interface.index.0 == index);
    let no_interface = || Error::Connect { address: remote, source: std::io::ErrorKind::NetworkUnreachable.into() };
    Ok(PathPlan {
        interface: interface.ok_or_else(no_interface)?.name.to_string(),
        local: None,
        remote,
        peer_interface: None,
        capacity: Capacity::default(),
        cap: None,
        named: false,
        contact_only,
        no_data: contact_only,
    })
}

/// Tells the session when one of the interfaces loses or gets its carrier, as long as the session lives.
fn watch_carriers(handle: SessionHandle, here: &[Interface]) {
    let names: Vec<(u32, String)> = here.iter().map(|interface| (interface.index.0, interface.name.to_string())).collect();
    tokio::spawn(async move {
        let Ok(mut changes) = Changes::open() else { return };
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                () = handle.ended.cancelled() => return,
            };
            let Ok(change) = change else { return };
            let Change::Carrier { index, up, .. } = change else { continue };
            let Some((_, interface)) = names.iter().find(|(known, _)| *known == index.0) else { continue };
            if handle.inputs.send(Input::Carrier { interface: interface.clone(), up }).await.is_err() {
                return;
            }
        }
    });
}

/// Path number of a session's first connection.
const FIRST_PATH: PathId = PathId(0);

/// Most paths of a session beside its first.
const MOST_PATHS: usize = 63;
