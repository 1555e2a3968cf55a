//! First connection of a session: finding the peer's addresses and connecting to one.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_link::{Interface, InterfaceKind, interfaces, route_to};
use nicstripe_proto::{
    message::PeerInterface,
    path::{Origin, PathPlan, socket_address},
    session::FIRST_PATH,
};
use tokio::task::JoinSet;

use super::{
    connect::{
        CONNECT_TIMEOUT, Connector, FIRST_CONNECT_TIMEOUT, FirstContact, GREETING_TIMEOUT, Retries,
        touch,
    },
    discovery::{Search, SearchOptions},
    local,
    lookup::{first_of, resolved},
    plan::{direct, local_interface},
    request::{Family, SessionSettings},
    trying::Trying,
};
use crate::{
    report::error::{
        Error,
        unreachable::{Attempt, CableSearch, Unreachable},
    },
    trust::{Identity, Peers, PublicKey, SeenAt, Sighting},
};

/// Parameters of the first connection to a host.
pub(crate) struct Contact<'a> {
    pub(crate) host: &'a str,
    pub(crate) identity: &'a Identity,
    pub(crate) peers: &'a Arc<Peers>,
    pub(crate) settings: &'a SessionSettings,
    pub(crate) trying: Arc<Trying>,
}

impl Contact<'_> {
    /// Establishes the first connection. Uses the first named link if both its ends are given,
    /// otherwise the kernel's route. Falls back to other interfaces in the subnet of the host's
    /// address, also if the kernel has no route.
    pub(crate) async fn meet(
        &self,
        connector: &Connector,
        interfaces: &[Interface],
        local: &[PeerInterface],
        retries: &mut Retries,
    ) -> Result<(PathPlan, FirstContact), Error> {
        let direct = self
            .settings
            .links
            .first()
            .map(|request| direct(request, interfaces, self.settings.port))
            .transpose()?
            .flatten();
        for request in &self.settings.links {
            local_interface(request, interfaces)?;
        }
        let introduced = self.settings.introduced.as_ref();
        let mut attempts = Attempts {
            connector,
            goes_past_strangers: introduced.is_some(),
            interfaces,
            local,
            excluded: &self.settings.excluded,
            retries,
            contact_only: !self.settings.links.is_empty(),
            trying: &self.trying,
            tried: Vec::new(),
            failure: None,
        };
        if let Some(plan) = direct {
            self.trying.on([&plan.interface]);
            return match attempts.connect(&plan, FIRST_CONNECT_TIMEOUT).await {
                Ok(contact) => Ok((plan, contact)),
                Err(error) if is_final(&error) => Err(error),
                Err(error) => Err(Error::link(plan.interface, crate::text::chain(&error))),
            };
        }
        let is_address = self.host.parse::<IpAddr>().is_ok();
        let listed = self.peers.by_name(self.host).filter(|_| !is_address);
        let key = introduced.map(|peer| peer.key);
        match key.or(listed.map(|peer| peer.key)) {
            Some(key) => self.meet_peer(key, attempts).await,
            None => match attempts.each(&self.resolve().await?).await? {
                Some(contact) => Ok(contact),
                None => Err(attempts.error(self, CableSearch::NoPeer, None)),
            },
        }
    }

    /// Connects to a known peer. Searches for its key on the cables, resolves its name, and tries
    /// the addresses in the address book.
    async fn meet_peer(
        &self,
        key: PublicKey,
        mut attempts: Attempts<'_>,
    ) -> Result<(PathPlan, FirstContact), Error> {
        let asks_cables = self
            .settings
            .family
            .is_none_or(|family| family == Family::V6);
        let known = first_known(
            resolved(self.resolver()),
            self.try_known_addresses(&key, attempts.interfaces),
        );
        let found = match asks_cables {
            true => first_of(self.on_cables(key), known).await,
            false => known
                .await
                .map(|known| (Vec::new(), known))
                .map_err(|why| (CableSearch::Ipv4Only, why)),
        };
        let (mut on_cables, known) = match found {
            Ok(found) => found,
            Err((cables, (resolver, tried))) => {
                attempts.tried.extend(tried);
                return Err(attempts.error(self, cables, Some(resolver)));
            }
        };
        if let Some(contact) = attempts.each(&[&on_cables[..], &known].concat()).await? {
            return Ok(contact);
        }
        // Resolver and address book may be outdated, and the cables had little time to answer.
        let mut cables = CableSearch::Ipv4Only;
        if asks_cables && on_cables.is_empty() {
            match self.on_cables(key).await {
                Ok(addresses) => on_cables = addresses,
                Err(silence) => cables = silence,
            }
        }
        match self.try_known_addresses(&key, attempts.interfaces).await {
            Ok(addresses) => on_cables.extend(addresses),
            Err(tried) => attempts.add_tried(tried),
        }
        if let Some(contact) = attempts.each(&on_cables).await? {
            return Ok(contact);
        }
        let answering = attempts.interfaces_of(&on_cables);
        let cables = if answering.is_empty() {
            cables
        } else {
            CableSearch::Answered(answering)
        };
        Err(attempts.error(self, cables, None))
    }

    /// Searches for a peer on every cable, and collects the answers within [`SETTLING`] after the
    /// first.
    async fn on_cables(&self, key: PublicKey) -> Result<Vec<SocketAddr>, CableSearch> {
        let excluded = &self.settings.excluded;
        let options = SearchOptions {
            port: self.settings.port,
            excluded: excluded.clone(),
            duration: PATIENCE,
            ..SearchOptions::default()
        };
        let search = Search::for_key(self.identity, self.peers, options, key);
        let mut search = search.map_err(|error| CableSearch::Unfit(crate::text::chain(&error)))?;
        let first = loop {
            match tokio::time::timeout(RELISTING, search.next()).await {
                Ok(first) => break first,
                // An interface may come up during the search.
                Err(_) => self.trying.on(&search.interfaces()),
            }
        };
        let Some(first) = first else {
            let silence = || CableSearch::Silent(search.interfaces());
            let left_out = match &excluded[..] {
                [] => String::new(),
                names => format!("; excluded by option: {}", names.join(", ")),
            };
            return Err(search.obstacle().map_or_else(silence, |error| {
                CableSearch::Unfit(crate::text::chain(&error) + &left_out)
            }));
        };
        let mut answers = vec![first];
        let settled = Instant::now() + SETTLING;
        while let Ok(Some(more)) = tokio::time::timeout_at(settled.into(), search.next()).await {
            answers.push(more);
        }
        let searched = search.interfaces();
        answers.sort_by_key(|peer| searched.iter().position(|name| *name == peer.interface));
        let addresses = answers.into_iter().map(|peer| peer.address.into());
        Ok(addresses.collect())
    }

    /// Resolves a host that is not in the peers file into addresses.
    async fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let error = |source| Error::Resolve {
            host: self.host.to_owned(),
            source,
        };
        if let Some((address, zone)) = self.host.split_once('%')
            && let Ok(ip) = address.parse::<IpAddr>()
        {
            let interfaces = interfaces().map_err(|cause| error(io::Error::other(cause)))?;
            let interface = interfaces.iter().find(|interface| {
                interface.is_called(zone) || interface.index.0.to_string() == zone
            });
            let interface =
                interface.ok_or_else(|| error(io::Error::other(format!("no interface {zone}"))))?;
            return Ok(vec![socket_address(
                ip,
                self.settings.port,
                interface.index.0,
            )]);
        }
        if let Ok(IpAddr::V6(address)) = self.host.parse()
            && address.is_unicast_link_local()
        {
            let interfaces = local::listed()?;
            let names: Vec<String> = interfaces
                .iter()
                .filter(|one| one.link_local().is_some())
                .map(|one| one.name.to_string())
                .collect();
            let why = format!(
                "link-local address without interface: expected {address}%INTERFACE, with one of {}",
                names.join(", ")
            );
            return Err(error(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        self.resolver().await.map_err(error)
    }

    /// Returns the addresses of the host: those that it sent, or those of its name.
    async fn resolver(&self) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<SocketAddr> = match &self.settings.introduced {
            Some(peer) => {
                let told = peer.addresses.iter();
                told.map(|ip| SocketAddr::new(*ip, self.settings.port))
                    .collect()
            }
            None => tokio::net::lookup_host((self.host, self.settings.port))
                .await?
                .collect(),
        };
        let addresses: Vec<SocketAddr> = found
            .into_iter()
            .filter(|address| self.is_wanted(address.ip()))
            .collect();
        match addresses.is_empty() {
            true => Err(io::Error::other(
                "it has no address of the requested IP version",
            )),
            false => Ok(addresses),
        }
    }

    /// Tries the peer's addresses in the address book, and returns the first at which a connection
    /// succeeds. This does not prove the peer's identity.
    async fn try_known_addresses(
        &self,
        key: &PublicKey,
        interfaces: &[Interface],
    ) -> Result<Vec<SocketAddr>, Vec<Attempt>> {
        let seen = self
            .settings
            .address_book
            .as_ref()
            .map_or_else(Vec::new, |book| book.of(key));
        let usable = seen.iter().filter(|seen| self.is_wanted(seen.address));
        let addresses =
            usable.filter_map(|seen| seen_address(seen, interfaces, self.settings.port));
        // Recorded addresses without a route belong to another network.
        let plans = addresses
            .filter_map(|address| {
                contact_plans(address, interfaces, &self.settings.excluded, true).ok()
            })
            .flatten();
        let plans: Vec<PathPlan> = plans.collect();
        self.trying.on(plans.iter().map(|plan| &plan.interface));
        let (ways, tried) = first_to_answer(plans, CONNECT_TIMEOUT).await;
        ways.first().map(|plan| vec![plan.remote]).ok_or(tried)
    }

    /// Stores when and at which address a peer proved its key, in the background. If that fails, the
    /// next client searches for the peer again.
    pub(crate) fn remember(&self, key: PublicKey, first: &PathPlan) {
        let (book, sightings) = (
            self.settings.address_book.clone(),
            self.settings.sightings.clone(),
        );
        if book.is_none() && sightings.is_none() {
            return;
        }
        let address = SeenAt {
            address: first.remote.ip(),
            interface: scope_of(first.remote).map(|_| first.interface.clone()),
        };
        let sighting = Sighting::now(key, first.remote.ip(), &first.interface);
        // One thread for both.
        tokio::task::spawn_blocking(move || {
            let noted = book.map_or(Ok(()), |book| book.note(&key, address));
            let seen = sightings.map_or(Ok(()), |file| file.note(&[sighting]));
            for error in [noted, seen].into_iter().filter_map(Result::err) {
                tracing::debug!(error = %crate::text::chain(&error), "cannot store the peer's address");
            }
        });
    }

    fn is_wanted(&self, address: IpAddr) -> bool {
        self.settings
            .family
            .is_none_or(|family| family.has(address))
    }
}

struct Attempts<'a> {
    connector: &'a Connector,
    interfaces: &'a [Interface],
    local: &'a [PeerInterface],
    excluded: &'a [String],
    retries: &'a mut Retries,
    contact_only: bool,
    /// True if another machine may answer at an address, because the peer sent all that it has.
    goes_past_strangers: bool,
    trying: &'a Trying,
    tried: Vec<Attempt>,
    /// Error of a host that answered, reported if all other addresses fail.
    failure: Option<Error>,
}

impl Attempts<'_> {
    /// Connects to the first address that answers, and skips addresses already tried. Returns
    /// `None` if none answers, and an error if the host rejects the connection.
    ///
    /// The first address gets one second; then all are tried in parallel.
    async fn each(
        &mut self,
        addresses: &[SocketAddr],
    ) -> Result<Option<(PathPlan, FirstContact)>, Error> {
        let mut plans = self.plans(addresses);
        self.trying.on(plans.iter().map(|plan| &plan.interface));
        let mut timeout = if plans.len() > 1 {
            CONNECT_TIMEOUT
        } else {
            FIRST_CONNECT_TIMEOUT
        };
        while !plans.is_empty() {
            let plan = plans.remove(0);
            let started_at = Instant::now();
            match self.connect(&plan, timeout).await {
                Ok(contact) => return Ok(Some((plan, contact))),
                // The host has answered; another address would not change its decision.
                Err(error) if is_final(&error) && !self.is_stranger(&error) => return Err(error),
                // Tried again, since the host may be waking up; but not if it accepted the connection
                // and said nothing.
                Err(Error::Connect { source, .. })
                    if timeout == CONNECT_TIMEOUT
                        && source.kind() == io::ErrorKind::TimedOut
                        && started_at.elapsed() < GREETING_TIMEOUT =>
                {
                    plans.insert(0, plan);
                }
                Err(Error::Connect { address, source }) => self.tried.push(Attempt {
                    address,
                    interface: Some(plan.interface),
                    source,
                }),
                Err(error) => self.failure = Some(error),
            }
            timeout = FIRST_CONNECT_TIMEOUT;
            let (ways, tried) = first_to_answer(plans, FIRST_CONNECT_TIMEOUT).await;
            plans = ways;
            self.tried.extend(tried);
        }
        Ok(None)
    }

    async fn connect(&mut self, plan: &PathPlan, timeout: Duration) -> Result<FirstContact, Error> {
        let local = self.local.to_vec();
        self.connector
            .first(FIRST_PATH, plan, local, timeout, self.retries)
            .await
    }

    fn plans(&mut self, addresses: &[SocketAddr]) -> Vec<PathPlan> {
        let mut plans = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            // Cables, resolver and address book may have found the same one.
            if addresses[..index].contains(address)
                || self.tried.iter().any(|tried| tried.address == *address)
            {
                continue;
            }
            match contact_plans(*address, self.interfaces, self.excluded, self.contact_only) {
                Ok(ways) => plans.extend(ways),
                Err(source) => self.tried.push(Attempt {
                    address: *address,
                    interface: None,
                    source,
                }),
            }
        }
        plans
    }

    fn is_stranger(&self, error: &Error) -> bool {
        let is_other = matches!(error, Error::Untrusted { .. } | Error::UntrustedPeer { .. });
        self.goes_past_strangers && is_other
    }

    fn add_tried(&mut self, tried: Vec<Attempt>) {
        let is_known = |one: &Attempt, known: &[Attempt]| {
            known.iter().any(|known| known.address == one.address)
        };
        let new: Vec<Attempt> = tried
            .into_iter()
            .filter(|one| !is_known(one, &self.tried))
            .collect();
        self.tried.extend(new);
    }

    /// Returns the names of the interfaces that are the scopes of the link-local addresses in
    /// `addresses`.
    fn interfaces_of(&self, addresses: &[SocketAddr]) -> Vec<String> {
        let scopes = addresses.iter().filter_map(|address| scope_of(*address));
        scopes
            .filter_map(|scope| self.interfaces.iter().find(|one| one.index.0 == scope))
            .map(|one| one.name.to_string())
            .collect()
    }

    fn error(self, contact: &Contact<'_>, cables: CableSearch, resolver: Option<String>) -> Error {
        if let Some(failure) = self.failure {
            return failure;
        }
        let mut tried = self.tried;
        if cables == CableSearch::NoPeer && tried.len() < 2 {
            return match tried.pop() {
                Some(Attempt {
                    address, source, ..
                }) => Error::Connect { address, source },
                None => Error::Resolve {
                    host: contact.host.to_owned(),
                    source: io::ErrorKind::NotFound.into(),
                },
            };
        }
        let (host, port, ours) = (
            contact.host.to_owned(),
            contact.settings.port,
            contact.identity.public_key(),
        );
        Error::Unreachable(Box::new(Unreachable {
            host,
            port,
            ours,
            cables,
            resolver,
            tried,
        }))
    }
}

/// Returns the addresses of the resolver or those of the address book, whichever arrive first.
/// Fails with both errors.
async fn first_known(
    resolver: impl Future<Output = Result<Vec<SocketAddr>, String>>,
    known: impl Future<Output = Result<Vec<SocketAddr>, Vec<Attempt>>>,
) -> Result<Vec<SocketAddr>, (String, Vec<Attempt>)> {
    let (mut resolver, mut known) = (pin!(resolver), pin!(known));
    tokio::select! {
        found = &mut resolver => match found {
            Ok(addresses) => Ok(addresses),
            Err(why) => known.await.map_err(|tried| (why, tried)),
        },
        found = &mut known => match found {
            Ok(addresses) => Ok(addresses),
            Err(tried) => resolver.await.map_err(|why| (why, tried)),
        },
    }
}

/// Returns the socket address of an entry in the address book, or `None` if its interface no longer
/// exists.
fn seen_address(seen: &SeenAt, interfaces: &[Interface], port: u16) -> Option<SocketAddr> {
    let scope = match &seen.interface {
        Some(name) => local::find(interfaces, name)?.index.0,
        None => 0,
    };
    Some(socket_address(seen.address, port, scope))
}

/// Returns the interface index that is the scope of a link-local address.
fn scope_of(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(address) => Some(address.scope_id()).filter(|scope| *scope != 0),
        SocketAddr::V4(_) => None,
    }
}

/// Returns true if no other address should be tried after this error: the daemon has answered and
/// rejected the client, or has an untrusted key.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::Untrusted { .. }
            | Error::UntrustedPeer { .. }
            | Error::Version { .. }
            | Error::Refused { .. }
            | Error::Full { .. }
    )
}

/// Tries to connect over all paths in parallel and closes each connection. Returns the path that
/// connected first, followed by those that had not failed by then; and the failed attempts.
async fn first_to_answer(plans: Vec<PathPlan>, timeout: Duration) -> (Vec<PathPlan>, Vec<Attempt>) {
    let mut touches = JoinSet::new();
    for (at, plan) in plans.iter().enumerate() {
        let (interface, remote) = (plan.interface.clone(), plan.remote);
        touches.spawn(async move { (at, touch(&interface, remote, timeout).await) });
    }
    let mut ways: BTreeMap<usize, PathPlan> = plans.into_iter().enumerate().collect();
    let (mut answering, mut tried) = (None, BTreeMap::new());
    while let Some(touched) = touches.join_next().await {
        let Ok((at, touched)) = touched else { continue };
        let Some(plan) = ways.remove(&at) else {
            continue;
        };
        match touched {
            Ok(()) => {
                answering = Some(plan);
                break;
            }
            Err(source) => {
                _ = tried.insert(
                    at,
                    Attempt {
                        address: plan.remote,
                        interface: Some(plan.interface),
                        source,
                    },
                );
            }
        }
    }
    (
        answering.into_iter().chain(ways.into_values()).collect(),
        tried.into_values().collect(),
    )
}

/// Plans the first contact over the interface of the kernel's route, and over others in the subnet
/// of the address. Omits the kernel's choice if it lacks a carrier and there are others, since the
/// kernel may route to such an interface.
///
/// The kernel may have no route although a socket bound to an interface connects: addresses without
/// a connected route (`noprefixroute`), or a rule for traffic of unbound sockets (a VPN's kill
/// switch).
///
/// # Errors
///
/// The kernel has no route, and no usable interface is in the subnet.
fn contact_plans(
    remote: SocketAddr,
    interfaces: &[Interface],
    excluded: &[String],
    contact_only: bool,
) -> io::Result<Vec<PathPlan>> {
    let scope = scope_of(remote);
    let index = match scope {
        Some(index) => Ok(index),
        None => route_to(remote.ip()).map(|route| route.interface.0),
    };
    let kernels = index.and_then(|index| {
        let mut all = interfaces.iter();
        all.find(|interface| interface.index.0 == index)
            .ok_or_else(|| io::ErrorKind::NetworkUnreachable.into())
    });
    let is_ours = kernels
        .as_ref()
        .is_ok_and(|kernels| kernels.kind == InterfaceKind::Loopback);
    let is_other = |other: &&Interface| {
        let is_kernels = kernels.as_ref().is_ok_and(|one| one.index == other.index);
        let is_near = scope.is_none() && !is_ours && other.is_on_link(remote.ip());
        is_near
            && !is_kernels
            && other.candidate(interfaces).is_ok()
            && !local::is_among(other, excluded)
    };
    let mut ways: Vec<&Interface> = interfaces.iter().filter(is_other).collect();
    match kernels {
        Ok(kernels) if kernels.carrier || ways.is_empty() => ways.insert(0, kernels),
        Err(error) if ways.is_empty() => return Err(no_way(error)),
        Ok(_) | Err(_) => {}
    }
    let plan = |interface: &Interface| PathPlan {
        origin: if contact_only {
            Origin::Excluded
        } else {
            Origin::Contact
        },
        ..PathPlan::new(interface.name.to_string(), remote)
    };
    Ok(ways.into_iter().map(plan).collect())
}

/// Returns the error for an address to which the kernel has no route and no interface a subnet.
/// The kernel reports blackhole and prohibit routes by errors of other meanings.
fn no_way(error: io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::InvalidInput => "a blackhole route or rule of this machine".to_owned(),
        io::ErrorKind::PermissionDenied => "a prohibit route or rule of this machine".to_owned(),
        _ => crate::text::chain(&error),
    };
    let text = format!("{why}, and no usable interface has an address in its subnet");
    io::Error::new(io::ErrorKind::NetworkUnreachable, text)
}

/// Time for a peer to answer on a cable if its name cannot be resolved. A newly plugged cable needs
/// up to 2 s for duplicate address detection (RFC 4862, section 5.4). The question follows within 1
/// s.
const PATIENCE: Duration = Duration::from_secs(3);

/// Interval at which the interfaces of a search are listed for the message about the wait.
const RELISTING: Duration = Duration::from_millis(500);

/// Time to collect answers on other cables after the first answer.
const SETTLING: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_was_found_in_two_ways_is_tried_once() {
        let identity = Identity::generate().unwrap();
        let connector = Connector::new(
            &identity,
            &Arc::default(),
            "nas",
            &SessionSettings::default(),
        );
        let interfaces = local::listed().unwrap();
        let mut attempts = Attempts {
            connector: &connector,
            interfaces: &interfaces,
            local: &[],
            excluded: &[],
            retries: &mut Retries::new("nas", Duration::ZERO, true, None, Arc::default()),
            contact_only: false,
            goes_past_strangers: false,
            trying: &Trying::default(),
            tried: Vec::new(),
            failure: None,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 7747));
        assert_eq!(attempts.plans(&[address, address]).len(), 1);
    }
}
