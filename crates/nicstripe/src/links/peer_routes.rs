//! Host routes that a daemon's session installs for connections announced by the peer.
//!
//! A route that would divert traffic requires proof that the address is the peer's. A route over
//! which no connection arrives is removed after its probation.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use nicstripe_link::{interfaces, route_to};
use nicstripe_proto::message::{Expected, PeerAddress};
use parking_lot::Mutex;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
};

use super::{
    address_proof::{self, Budgets, Claims},
    plan::described,
    probation::{Probations, RouteEnds},
    route_keeper::RouteKeeper,
};
use crate::{
    session::{Command, SessionHandle},
    text::logged::logged_error,
    trust::PublicKey,
};

/// Limits of the host routes that peers request, shared by all sessions of a daemon.
#[derive(Debug, Default)]
pub(crate) struct RouteLimits {
    /// Rate limits of the address proofs that peers may request.
    tokens: Budgets,
    /// Host routes installed for peers and not yet confirmed by a connection.
    probations: Probations,
}

/// Host routes that a daemon installs for one session; removed when dropped.
#[derive(Debug)]
pub(crate) struct PeerRoutes {
    key: PublicKey,
    /// Keeper of the routes; `None` if the daemon installs none.
    keeper: Option<RouteKeeper>,
    limits: Arc<RouteLimits>,
    /// Addresses of the peer's interfaces, as its hello announced them; unproved.
    claimed: Vec<IpAddr>,
    /// Source addresses of this session's connections, each with the local interface.
    arrivals: Mutex<HashSet<RouteEnds>>,
    /// Tokens sent to prove that the peer owns its addresses.
    claims: Mutex<Claims>,
    /// Permits for announcements whose connections have not all arrived yet.
    announcements: Arc<Semaphore>,
}

impl PeerRoutes {
    /// Creates the routes of a new session with the peer of this key, which announces `addresses`.
    pub(crate) fn new<'a>(
        key: PublicKey,
        keeper: Option<&RouteKeeper>,
        limits: Arc<RouteLimits>,
        addresses: impl Iterator<Item = &'a PeerAddress>,
    ) -> Self {
        Self {
            key,
            keeper: keeper.map(RouteKeeper::another),
            limits,
            claimed: addresses
                .map(|address| address.ip)
                .take(MOST_CLAIMED)
                .collect(),
            arrivals: Mutex::default(),
            claims: Mutex::default(),
            announcements: Arc::new(Semaphore::new(MOST_ANNOUNCEMENTS)),
        }
    }

    /// Records the source address and local interface of a connection. Ignores addresses that the
    /// peer's hello did not announce.
    pub(crate) fn on_arrival(&self, from: IpAddr, interface: &str) {
        if !self.claimed.contains(&from) {
            return;
        }
        let way = (from, interface.to_owned());
        self.limits.probations.made(self.key, &way, Instant::now());
        self.arrivals.lock().insert(way);
    }

    /// Installs host routes for connections that the peer announces, because reverse-path filtering
    /// would drop their packets otherwise. A route that diverts traffic requires proof that the
    /// address is the peer's. Answers the peer once it may connect or gets no route. Does not
    /// answer if it has sent a token or too many announcements are pending.
    pub(crate) fn expect(self: &Arc<Self>, connections: Vec<Expected>, session: SessionHandle) {
        let Ok(permit) = self.announcements.clone().try_acquire_owned() else {
            tracing::debug!("announcement ignored: too many pending");
            return;
        };
        let (routes, limits, key) = (Arc::downgrade(self), self.limits.clone(), self.key);
        tokio::spawn(async move {
            let _permit = permit;
            let Some((held, has_asked)) =
                async { Some(routes.upgrade()?.install(connections).await) }.await
            else {
                return;
            };
            if !has_asked {
                let found = interfaces().unwrap_or_default();
                session
                    .command(Command::SendInterfaces(described(&found, &[])))
                    .await;
            }
            for OnProbation {
                way,
                interface,
                started_at,
                until,
            } in held
            {
                tokio::select! {
                    () = tokio::time::sleep_until(until.into()) => {}
                    () = session.ended.cancelled() => {}
                }
                let now = Instant::now();
                let routes = routes.upgrade();
                let has_arrived = |routes: &Arc<Self>| routes.arrivals.lock().contains(&way);
                if routes.as_ref().is_some_and(has_arrived) {
                    limits.probations.made(key, &way, now);
                    continue;
                }
                limits
                    .probations
                    .used(key, &way, now.saturating_duration_since(started_at), now);
                // The routes of an ended session are removed with it.
                if let Some(routes) = routes.filter(|_| now >= until) {
                    routes.remove(way.0, interface).await;
                }
            }
        });
    }

    /// Installs the host routes of announced connections. Returns them sorted by the end of their
    /// probation, and true if a token was sent for an address that is not proved yet.
    async fn install(&self, connections: Vec<Expected>) -> (Vec<OnProbation>, bool) {
        let (Some(keeper), Ok(found)) = (&self.keeper, interfaces()) else {
            return (Vec::new(), false);
        };
        let (mut held, mut has_asked) = (Vec::new(), false);
        for Expected {
            from,
            interface,
            port,
            token,
        } in connections
        {
            let Some(by) = found
                .iter()
                .find(|known| known.index.0 == interface && known.is_on_link(from))
            else {
                continue;
            };
            if !self.claimed.contains(&from) || !keeper.wants(from, interface) {
                continue;
            }
            let way = (from, by.name.to_string());
            if self
                .limits
                .probations
                .holds_back(self.key, &way, Instant::now())
            {
                tracing::debug!(%from, interface = %by.name, "no host route: the last one was not used");
                continue;
            }
            if keeper.diverts(from, interface)
                && !token
                    .is_some_and(|token| self.claims.lock().is_proved(from, token, Instant::now()))
            {
                has_asked |= token.is_none() && self.ask(from, port, interface, keeper).await;
                continue;
            }
            let Some(left) = self.limits.probations.begin(self.key, &way, Instant::now()) else {
                tracing::debug!(%from, interface = %by.name, "no host route: too many were not used");
                continue;
            };
            let started_at = Instant::now();
            match keeper.hold(from, interface, None).await {
                Ok(()) => held.push(OnProbation {
                    way,
                    interface,
                    started_at,
                    until: started_at + left,
                }),
                Err(error) => {
                    tracing::warn!(%from, interface = %by.name, error = %logged_error(&error), "no host route");
                }
            }
        }
        held.sort_by_key(|held| held.until);
        (held, has_asked)
    }

    /// Sends a token to an address that the kernel reaches without a gateway. Returns true if it
    /// was sent.
    async fn ask(
        &self,
        address: IpAddr,
        port: Option<u16>,
        interface: u32,
        keeper: &RouteKeeper,
    ) -> bool {
        let is_near = route_to(address).is_ok_and(|way| way.gateway.is_none());
        let Some(port) = port.filter(|_| is_near) else {
            return false;
        };
        if !self.limits.tokens.take(self.key, Instant::now()) {
            return false;
        }
        keeper.refresh_neighbour(address, interface).await;
        let token = self.claims.lock().begin(address, Instant::now());
        let sent = address_proof::send(token, SocketAddr::new(address, port)).await;
        sent.inspect_err(|error| tracing::debug!(%address, %error, "token not sent"))
            .is_ok()
    }

    async fn remove(&self, from: IpAddr, interface: u32) {
        let Some(keeper) = &self.keeper else { return };
        if let Err(error) = keeper.release(from, interface).await {
            tracing::warn!(%from, error = %logged_error(&error), "cannot remove host route");
        }
    }

    /// Reinstalls the host routes that the kernel may have dropped while an interface was down.
    pub(crate) async fn interface_up(&self, index: u32) {
        if let Some(keeper) = &self.keeper {
            keeper.reinstall(index).await;
        }
    }
}

impl Drop for PeerRoutes {
    /// Removes the routes, for which the helper is asked: other tasks of this thread continue.
    fn drop(&mut self) {
        let Some(keeper) = self.keeper.take() else {
            return;
        };
        let may_block = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        if may_block {
            tokio::task::block_in_place(|| drop(keeper));
        }
    }
}

/// Host route that is removed unless a connection over it arrives before `until`.
struct OnProbation {
    way: RouteEnds,
    interface: u32,
    started_at: Instant,
    until: Instant,
}

/// Maximum number of announced addresses recorded per session: 8 each for 64 interfaces.
const MOST_CLAIMED: usize = 512;

/// Maximum number of announcements whose connections have not all arrived. An honest client sends
/// one per change of its plan.
const MOST_ANNOUNCEMENTS: usize = 16;
