//! Host routes of a session's links, installed as needed or requested and removed when the session
//! ends. Also temporary MTU changes, made by the same helper.
//!
//! Only the helper changes routes and decides if it may: the program `nicstripe-routes`, or its
//! code in a thread if that program is missing. This module decides which routes to request.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nicstripe_link::{
    HelperError, HostRoute, Interface, InterfaceIndex, MtuError, RouteError, RouteHelper, Routes,
    give_up_routes, ipv4_setting, may_change_routes, route_to,
};
use nicstripe_proto::path::PathPlan;
use parking_lot::Mutex;

use super::{local, request::RoutePolicy, routes};
use crate::report::error::Error;

/// Keeper of the host routes of one session, which removes them when dropped. After a kill, the
/// helper or the next start of any nicstripe process removes them.
///
/// The keeper starts the helper for the first route, unless it was started
/// [before](Self::start_dedicated). Dropping a keeper blocks until its routes are removed:
/// milliseconds, or seconds while another process holds the lock of the route records.
#[derive(Debug)]
pub struct RouteKeeper {
    policy: RoutePolicy,
    shared: Arc<Mutex<Shared>>,
    /// Held while a thread works with `shared`.
    turn: Arc<tokio::sync::Mutex<()>>,
    held: Mutex<Vec<HostRoute>>,
    /// Interfaces whose MTU this keeper has changed and not restored.
    mtus: Mutex<BTreeSet<InterfaceIndex>>,
    /// True once the keeper is dropped; MTU changes that have not begun are then skipped.
    is_gone: Arc<AtomicBool>,
}

impl RouteKeeper {
    /// Creates a keeper. Removes routes and restores MTUs that killed processes left, if permitted.
    ///
    /// `state_dir` holds the records of routes. With [`RoutePolicy::Never`] the keeper installs
    /// none.
    pub fn start(policy: RoutePolicy, state_dir: impl Into<PathBuf>) -> Self {
        let state_dir = state_dir.into();
        sweep(&state_dir);
        let shared = Shared {
            state_dir,
            helper: None,
            holders: BTreeMap::new(),
            mtus: BTreeSet::new(),
        };
        Self::sharing(policy, Arc::new(Mutex::new(shared)))
    }

    /// Creates a keeper like [`start`](Self::start), for a process that drops `CAP_NET_ADMIN`
    /// before it uses the network. Starts the helper at once and drops the capability.
    ///
    /// Call it while the process has one thread. If the helper program is missing and the policy
    /// allows routes, the process keeps the capability and a thread changes the routes.
    pub fn start_dedicated(policy: RoutePolicy, state_dir: impl Into<PathBuf>) -> Self {
        let keeper = Self::start(policy, state_dir);
        if !may_change_routes() {
            return keeper;
        }
        if policy != RoutePolicy::Never {
            let started = keeper.shared.lock().start_process();
            if let Err(error) = started {
                tracing::debug!(%error, "no route helper; this process changes routes itself");
                return keeper;
            }
        }
        if let Err(error) = give_up_routes() {
            tracing::warn!(%error, "cannot drop CAP_NET_ADMIN");
        }
        keeper
    }

    /// Creates a keeper for another session, with the same policy and helper.
    pub(crate) fn another(&self) -> Self {
        let mut keeper = Self::sharing(self.policy, self.shared.clone());
        keeper.turn = self.turn.clone();
        keeper
    }

    fn sharing(policy: RoutePolicy, shared: Arc<Mutex<Shared>>) -> Self {
        Self {
            policy,
            shared,
            turn: Arc::default(),
            held: Mutex::default(),
            mtus: Mutex::default(),
            is_gone: Arc::default(),
        }
    }

    /// Installs a route to `destination` through `interface` if the policy requires one.
    /// Idempotent.
    ///
    /// [`RoutePolicy::Auto`] requires one if [`needs_route`] returns true. Cancel safe, but a
    /// cancelled call may still install the route; it is removed with the keeper, at the latest
    /// when the process ends.
    ///
    /// # Errors
    ///
    /// Process and helper lack the permission, the address is not allowed as a destination, or
    /// another route conflicts.
    pub async fn hold(
        &self,
        destination: IpAddr,
        interface: u32,
        prefer_source: Option<IpAddr>,
    ) -> Result<(), RouteError> {
        if !self.wants(destination, interface) {
            return Ok(());
        }
        let route = host_route(destination, interface, prefer_source);
        // Recorded before the request, so that dropping the keeper removes it in any case.
        self.held.lock().push(route);
        let added = self.call(move |shared| shared.add(&route)).await;
        if added.is_err() {
            self.held.lock().retain(|held| *held != route);
        }
        added
    }

    /// Returns true if the policy requires a host route for `destination` that this keeper does not
    /// hold.
    pub(crate) fn wants(&self, destination: IpAddr, interface: u32) -> bool {
        let is_wanted = match self.policy {
            RoutePolicy::Never => false,
            RoutePolicy::Always => true,
            RoutePolicy::Auto => needs_route(&RouteFacts::read(destination, interface)),
        };
        is_wanted && is_routable(destination) && self.find(destination, interface).is_none()
    }

    /// Returns true if a route required by the policy would divert traffic to `destination` from
    /// its current interface or gateway.
    ///
    /// Such a route requires proof that this traffic reaches the peer.
    pub(crate) fn diverts(&self, destination: IpAddr, interface: u32) -> bool {
        let goes_there = || {
            route_to(destination)
                .is_ok_and(|way| way.interface.0 == interface && way.gateway.is_none())
        };
        self.wants(destination, interface) && !goes_there()
    }

    /// Deletes the kernel's neighbour entry of `destination` before the peer must prove that the
    /// address is its own. ARP traffic on another interface may have left the wrong MAC address in
    /// it. On failure the entry stays, and the proof may take longer.
    pub(crate) async fn refresh_neighbour(&self, destination: IpAddr, interface: u32) {
        let route = host_route(destination, interface, None);
        let request =
            self.call(move |shared| shared.ask(|helper| helper.forget_neighbour(&route).map(drop)));
        if let Err(error) = request.await {
            tracing::debug!(%destination, error = %crate::text::logged::logged_error(&error), "cannot delete neighbour entry");
        }
    }

    /// Releases the route to `destination` through `interface`. Does nothing if this keeper does
    /// not hold it.
    ///
    /// # Errors
    ///
    /// The route cannot be removed; the helper's exit or the next start will remove it.
    pub async fn release(&self, destination: IpAddr, interface: u32) -> Result<(), RouteError> {
        let Some(route) = self.find(destination, interface) else {
            return Ok(());
        };
        self.held.lock().retain(|held| *held != route);
        self.call(move |shared| shared.remove(&route)).await
    }

    /// Reinstalls the routes that the kernel removed when an interface went down. The helper also
    /// does this when the interface is up again; this call waits until it is done.
    ///
    /// # Errors
    ///
    /// The interface is down again, or a route is no longer allowed.
    pub async fn interface_up(&self, index: u32) -> Result<(), RouteError> {
        let interface = InterfaceIndex(index);
        if !self
            .held
            .lock()
            .iter()
            .any(|route| route.interface == interface)
        {
            return Ok(());
        }
        self.call(move |shared| shared.ask(|helper| helper.restore(interface)))
            .await
    }

    /// Does the same as [`interface_up`](Self::interface_up), and logs an error.
    pub(crate) async fn reinstall(&self, index: u32) {
        if let Err(error) = self.interface_up(index).await {
            tracing::warn!(error = %crate::text::logged::logged_error(&error), "cannot restore host routes");
        }
    }

    /// Sets the MTU of an interface for at most `longest`, independent of the route policy; returns
    /// the previous MTU in bytes. The helper restores it even if this process is killed (see
    /// [`RouteHelper::set_mtu`]), and the keeper restores it when dropped. Cancel safe like
    /// [`hold`](Self::hold).
    ///
    /// # Errors
    ///
    /// Process and helper lack the permission, the interface's MTU may not be changed, or another
    /// keeper has changed it.
    pub async fn set_mtu(
        &self,
        interface: u32,
        mtu: u32,
        longest: Duration,
    ) -> Result<u32, MtuError> {
        let interface = InterfaceIndex(interface);
        // Recorded before the request, so that dropping the keeper restores it in any case.
        let is_new = self.mtus.lock().insert(interface);
        let is_gone = self.is_gone.clone();
        let set = self
            .call(move |shared| shared.set_mtu(interface, mtu, longest, is_new, &is_gone))
            .await;
        if is_new && set.is_err() {
            self.mtus.lock().remove(&interface);
        }
        set
    }

    /// Restores the MTU from before [`set_mtu`](Self::set_mtu). Returns true if this call changed
    /// the MTU.
    ///
    /// # Errors
    ///
    /// The MTU cannot be restored; the helper retries when it exits, and so does the next start.
    pub async fn restore_mtu(&self, interface: u32) -> Result<bool, MtuError> {
        let interface = InterfaceIndex(interface);
        if !self.mtus.lock().contains(&interface) {
            return Ok(false);
        }
        let restored = self.call(move |shared| shared.restore_mtu(interface)).await;
        if restored.is_ok() {
            self.mtus.lock().remove(&interface);
        }
        restored
    }

    /// Returns the policy for installing host routes.
    pub fn policy(&self) -> RoutePolicy {
        self.policy
    }

    /// Returns the number of routes that this keeper holds.
    pub fn count(&self) -> u32 {
        self.held.lock().len() as u32
    }

    /// Installs the routes that the planned paths need. The caller must first obtain proof of each
    /// address for which [`diverts`](Self::diverts) returns true.
    ///
    /// # Errors
    ///
    /// Under [`RoutePolicy::Always`] the first route that cannot be installed. Otherwise none: a
    /// link without its required route fails to connect and reports this in its state.
    pub(crate) async fn hold_all(
        &self,
        plans: &[&PathPlan],
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        for plan in plans {
            let Some(interface) = local::find(interfaces, &plan.interface) else {
                continue;
            };
            let held = self
                .hold(plan.remote.ip(), interface.index.0, plan.local)
                .await;
            match (held, self.policy) {
                (Ok(()), _) => {}
                (Err(RouteError::Refused(refusal)), RoutePolicy::Always) => {
                    return Err(Error::link(&plan.interface, refusal));
                }
                (Err(error), RoutePolicy::Always) => {
                    return Err(Error::failed("install a host route", error));
                }
                (Err(error), _) => {
                    tracing::info!(interface = plan.interface, error = %crate::text::logged::logged_error(&error), "no host route");
                }
            }
        }
        Ok(())
    }

    /// Runs the blocking function `work` on a blocking thread of the runtime.
    async fn call<T: Send + 'static, E: HelperError>(
        &self,
        work: impl FnOnce(&mut Shared) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        // One thread at a time waits for the helper, however many requests there are.
        let turn = self.turn.clone().lock_owned().await;
        let shared = self.shared.clone();
        let worked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&mut shared.lock())
        })
        .await;
        worked.unwrap_or_else(|error| Err(E::of_helper(io::Error::other(error))))
    }

    fn find(&self, destination: IpAddr, interface: u32) -> Option<HostRoute> {
        let held = self.held.lock();
        held.iter()
            .find(|route| {
                route.destination == destination && route.interface == InterfaceIndex(interface)
            })
            .copied()
    }
}

impl Drop for RouteKeeper {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Release);
        for interface in std::mem::take(&mut *self.mtus.lock()) {
            if let Err(error) = self.shared.lock().restore_mtu(interface) {
                tracing::warn!(%interface, error = %crate::text::logged::logged_error(&error), "cannot restore MTU");
            }
        }
        for route in self.held.get_mut().drain(..) {
            if let Err(error) = self.shared.lock().remove(&route) {
                tracing::warn!(destination = %route.destination, error = %crate::text::logged::logged_error(&error), "cannot remove host route");
            }
        }
    }
}

fn host_route(destination: IpAddr, interface: u32, prefer_source: Option<IpAddr>) -> HostRoute {
    HostRoute {
        destination,
        interface: InterfaceIndex(interface),
        prefer_source,
        metric: HostRoute::DEFAULT_METRIC,
    }
}

/// State shared by all keepers with one helper.
#[derive(Debug)]
struct Shared {
    state_dir: PathBuf,
    /// Running helper, which removes its routes when dropped.
    helper: Option<RouteHelper>,
    /// Number of keepers that hold each route.
    holders: BTreeMap<HostRoute, u32>,
    /// Interfaces whose MTU a keeper has changed and not restored.
    mtus: BTreeSet<InterfaceIndex>,
}

impl Shared {
    /// Sets an MTU through the helper and returns the previous one. `is_new` is true if the calling
    /// keeper holds no change of this interface's MTU yet.
    fn set_mtu(
        &mut self,
        interface: InterfaceIndex,
        mtu: u32,
        longest: Duration,
        is_new: bool,
        is_gone: &AtomicBool,
    ) -> Result<u32, MtuError> {
        if is_gone.load(Ordering::Acquire) {
            return Err(MtuError::Ending(interface));
        }
        if is_new && !self.mtus.insert(interface) {
            return Err(MtuError::HeldElsewhere(interface));
        }
        let set = self.ask(|helper| helper.set_mtu(interface, mtu, longest));
        if is_new && set.is_err() {
            self.mtus.remove(&interface);
        }
        set
    }

    fn restore_mtu(&mut self, interface: InterfaceIndex) -> Result<bool, MtuError> {
        let restored = match &mut self.helper {
            Some(helper) => helper.restore_mtu(interface),
            // The MTU was restored when its helper ended.
            None => Ok(false),
        };
        if restored.is_ok() {
            self.mtus.remove(&interface);
        }
        restored
    }

    fn add(&mut self, route: &HostRoute) -> Result<(), RouteError> {
        self.ask(|helper| helper.add(route))?;
        *self.holders.entry(*route).or_default() += 1;
        Ok(())
    }

    fn remove(&mut self, route: &HostRoute) -> Result<(), RouteError> {
        let Some(holders) = self.holders.get_mut(route) else {
            return Ok(());
        };
        *holders -= 1;
        if *holders > 0 {
            return Ok(());
        }
        self.holders.remove(route);
        match &mut self.helper {
            Some(helper) => helper.remove(route).map(drop),
            None => Ok(()),
        }
    }

    /// Sends a request to the helper, and starts it if it is not running. A killed helper is
    /// replaced once: the new one installs all held routes again, and restores the MTUs that the
    /// killed one had changed.
    fn ask<T, E: HelperError>(
        &mut self,
        question: impl Fn(&mut RouteHelper) -> Result<T, E>,
    ) -> Result<T, E> {
        let is_new = self.helper.is_none();
        let answer = question(self.running().map_err(E::of_helper)?);
        if !answer.as_ref().is_err_and(E::is_of_helper) {
            return answer;
        }
        self.helper = None;
        if is_new {
            return answer;
        }
        let held: Vec<HostRoute> = self.holders.keys().copied().collect();
        let helper = self.running().map_err(E::of_helper)?;
        // A route that cannot be reinstalled fails only its own link.
        held.iter().for_each(|route| _ = helper.add(route));
        question(helper)
    }

    fn running(&mut self) -> io::Result<&mut RouteHelper> {
        if self.helper.is_none() && self.start_process().is_err() {
            self.helper = Some(RouteHelper::in_process(&self.state_dir)?);
        }
        self.helper
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn start_process(&mut self) -> io::Result<()> {
        let program = RouteHelper::program().ok_or(io::ErrorKind::NotFound)?;
        self.helper = Some(RouteHelper::spawn(&program, &self.state_dir)?);
        Ok(())
    }
}

/// Facts from the kernel that decide if a link needs a host route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteFacts {
    /// True if the interface has strict reverse-path filtering (`rp_filter=1`): it drops packets if
    /// the kernel's route to their source uses another interface. `None` if unknown, or irrelevant
    /// because the kernel's route uses this interface.
    pub reverse_path_strict: Option<bool>,
    /// Interface index of the link.
    pub interface: u32,
    /// Interface index of the kernel's route to the peer's address; `None` if there is no route.
    pub kernel_takes: Option<u32>,
}

impl RouteFacts {
    /// Reads the facts from the kernel. IPv6 has no reverse-path filtering in Linux.
    pub fn read(destination: IpAddr, interface: u32) -> Self {
        let kernel_takes = route_to(destination).ok().map(|route| route.interface.0);
        let reverse_path_strict = match destination {
            IpAddr::V6(_) => Some(false),
            IpAddr::V4(_) if kernel_takes == Some(interface) => None,
            IpAddr::V4(_) => is_reverse_path_strict(InterfaceIndex(interface)),
        };
        Self {
            reverse_path_strict,
            interface,
            kernel_takes,
        }
    }
}

fn is_reverse_path_strict(interface: InterfaceIndex) -> Option<bool> {
    let interfaces = local::listed().ok()?;
    let name = interfaces
        .iter()
        .find(|known| known.index == interface)?
        .name;
    ipv4_setting(&name, "rp_filter").map(|mode| mode == 1)
}

/// Returns true if a socket bound to the interface carries no traffic without a host route: the
/// interface has strict reverse-path filtering, and the kernel's route to the address uses another
/// interface.
///
/// Measured on Linux 6.18 with two cables in one subnet: the connection times out without the
/// route, and both cables carry traffic with it.
pub fn needs_route(facts: &RouteFacts) -> bool {
    facts.reverse_path_strict == Some(true) && facts.kernel_takes != Some(facts.interface)
}

/// Removes routes and restores MTUs that killed processes left, if permitted. Usually there are
/// none, and the cost is one read of the routing table.
pub(crate) fn sweep(state_dir: &Path) {
    if let Err(error) = routes::clean_mtus(state_dir) {
        tracing::debug!(error = %crate::text::logged::logged_error(&error), "cannot clean up MTUs");
    }
    let Ok(routes) = Routes::open(state_dir) else {
        return;
    };
    if routes.list_ours().is_ok_and(|ours| ours.is_empty()) {
        return;
    }
    match routes.clean() {
        Ok(removed) => removed.iter().for_each(
            |route| tracing::info!(destination = %route.destination, "stale host route removed"),
        ),
        // A privileged helper cleans up when it starts; an unprivileged one reports this error as
        // well. The remaining routes belong to another user.
        Err(error @ (RouteError::NotPermitted { .. } | RouteError::Ledger { .. })) => {
            if !matches!(routes::clean_by_helper(state_dir), Some(Ok(_))) {
                tracing::debug!(error = %crate::text::logged::logged_error(&error), "cannot clean up host routes");
            }
        }
        Err(error) => {
            tracing::warn!(error = %crate::text::logged::logged_error(&error), "cannot remove stale host routes");
        }
    }
}

/// Returns true if an address may need a host route. Loopback and link-local addresses do not.
fn is_routable(ip: IpAddr) -> bool {
    !ip.is_loopback() && !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_needed_where_a_strict_filter_meets_another_way() {
        let needs = |reverse_path_strict, kernel_takes| {
            needs_route(&RouteFacts {
                reverse_path_strict,
                interface: 3,
                kernel_takes,
            })
        };
        assert!(needs(Some(true), Some(2)));
        assert!(needs(Some(true), None));
        assert!(!needs(Some(true), Some(3)), "the kernel's own way is right");
        assert!(!needs(Some(false), Some(2)), "pinning alone suffices");
        assert!(!needs(None, Some(2)), "unknown facts cause no action");
    }

    #[test]
    fn where_the_kernel_goes_by_itself_its_filter_is_not_asked_for() {
        let facts = RouteFacts::read("127.0.0.1".parse().unwrap(), 1);
        assert_eq!((facts.reverse_path_strict, facts.interface), (None, 1));
        assert_eq!(facts.kernel_takes, Some(1));
        assert!(!needs_route(&facts));
    }

    #[tokio::test]
    async fn never_is_never_and_an_address_that_needs_no_route_starts_no_helper() {
        let state = tempfile::tempdir().unwrap();
        for (policy, addresses) in [
            (RoutePolicy::Never, &["10.0.0.2"][..]),
            (RoutePolicy::Auto, &["127.0.0.1", "fe80::1", "fd00::1"]),
        ] {
            let keeper = RouteKeeper::start(policy, state.path());
            for address in addresses.iter().map(|address| address.parse().unwrap()) {
                keeper.hold(address, 1, None).await.unwrap();
                keeper.interface_up(1).await.unwrap();
                assert!(keeper.count() == 0 && keeper.shared.lock().helper.is_none());
                keeper.release(address, 1).await.unwrap();
            }
            assert!(keeper.count() == 0 && keeper.shared.lock().helper.is_none());
        }
    }

    #[tokio::test]
    async fn what_is_refused_is_not_counted_and_says_why() {
        let state = tempfile::tempdir().unwrap();
        let keeper = RouteKeeper::start(RoutePolicy::Always, state.path());
        let refused = keeper
            .hold("224.0.0.1".parse().unwrap(), 1, None)
            .await
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "no route to 224.0.0.1: not a unicast address of one machine"
        );
        assert_eq!(keeper.another().count() + keeper.count(), 0);
    }
}
