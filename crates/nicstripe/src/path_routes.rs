//! Host routes of a session's links: installed when the user wants them, removed when the session goes.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use nicstripe_link::{HostRoute, Interface, RouteError, Routes, Surroundings, may_install};

use crate::{error::Error, session::PathPlan};

/// Routes that this session has installed. They go when it is dropped; after a kill, at the next start of any nicstripe.
#[derive(Debug)]
pub(crate) struct SessionRoutes {
    state_dir: PathBuf,
    installed: Vec<HostRoute>,
}

impl SessionRoutes {
    /// Installs a route to the peer's address of each plan by the plan's interface.
    ///
    /// # Errors
    ///
    /// The process may not, or a route would not be ours to install; what was installed before is removed.
    pub(crate) fn install(state_dir: &Path, plans: &[&PathPlan], here: &[Interface]) -> Result<Self, Error> {
        let failed = |error: RouteError| Error::System { what: "install a host route", source: std::io::Error::other(error) };
        let routes = Routes::open(state_dir).map_err(failed)?;
        routes.clean().map_err(failed)?;
        let surroundings = Surroundings::read().map_err(|source| Error::System { what: "read the routing table", source })?;
        let mut session = Self { state_dir: state_dir.to_owned(), installed: Vec::new() };
        for plan in plans.iter().filter(|plan| is_routable(plan.remote.ip())) {
            let Some(interface) = here.iter().find(|interface| interface.is_called(&plan.interface)) else { continue };
            let destination = plan.remote.ip();
            may_install(destination, interface.index, here, &surroundings)
                .map_err(|refusal| Error::Link { link: plan.interface.clone(), why: refusal.to_string() })?;
            let route = HostRoute { destination, interface: interface.index, prefer_source: plan.local, metric: HostRoute::DEFAULT_METRIC };
            if session.installed.contains(&route) {
                continue;
            }
            routes.add(&route).map_err(failed)?;
            session.installed.push(route);
        }
        Ok(session)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.installed.len() as u32
    }
}

impl Drop for SessionRoutes {
    fn drop(&mut self) {
        let Ok(routes) = Routes::open(&self.state_dir) else { return };
        for route in &self.installed {
            if let Err(error) = routes.remove(route) {
                tracing::warn!(destination = %route.destination, error = %crate::chain(&error), "a host route was not removed");
            }
        }
    }
}

/// Removes what a process that was killed has left, where we may. Nothing is left in most cases, which costs one look at the table.
pub(crate) fn sweep(state_dir: &Path) {
    let Ok(routes) = Routes::open(state_dir) else { return };
    if routes.list_ours().is_ok_and(|ours| ours.is_empty()) {
        return;
    }
    match routes.clean() {
        Ok(removed) => removed.iter().for_each(|route| tracing::info!(destination = %route.destination, "stale host route removed")),
        Err(error) => tracing::warn!(error = %crate::chain(&error), "stale host routes stay"),
    }
}

/// A link-local address is on its interface without any route.
fn is_routable(ip: IpAddr) -> bool {
    !ip.is_loopback() && !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}
