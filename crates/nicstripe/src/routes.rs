//! The host routes that nicstripe has installed, for whoever looks after them.

use std::path::Path;

use nicstripe_link::Routes;
pub use nicstripe_link::{HostRoute, RouteError};

/// Returns our routes (protocol 83) in the kernel's table, each with the processes that still want it.
pub fn list(state_dir: &Path) -> Result<Vec<(HostRoute, Vec<u32>)>, RouteError> {
    let routes = Routes::open(state_dir)?;
    routes.list_ours()?.into_iter().map(|route| Ok((route, routes.owners(&route)?))).collect()
}

/// Removes those of our routes that no living process wants; returns them.
pub fn clean(state_dir: &Path) -> Result<Vec<HostRoute>, RouteError> {
    Routes::open(state_dir)?.clean()
}
