//! The host routes that nicstripe has installed, and the MTUs that it has changed, for whoever looks after them.

use std::{io, path::Path};

pub use nicstripe_link::{ChangedMtu, HostRoute, MtuError, RouteError, SHARED_STATE_DIR};
use nicstripe_link::{Mtus, RouteHelper, Routes};

pub use crate::path_routes::{RouteFacts, RouteKeeper, needs_route};

/// Returns our routes (protocol 83) in the kernel's table, each with the processes that still want it; `None` where the record of
/// that may not be read.
///
/// ```no_run
/// for (route, owners) in nicstripe::routes::list("/var/lib/backup-tool".as_ref())? {
///     println!("{} of {owners:?}", route.destination);
/// }
/// # Ok::<(), nicstripe::routes::RouteError>(())
/// ```
#[expect(clippy::type_complexity, reason = "a list of pairs")]
pub fn list(state_dir: &Path) -> Result<Vec<(HostRoute, Option<Vec<u32>>)>, RouteError> {
    let routes = Routes::open(state_dir)?;
    let owners = |route| match routes.owners(&route) {
        Err(RouteError::Ledger { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok((route, None)),
        owners => owners.map(|owners| (route, Some(owners))),
    };
    routes.list_ours()?.into_iter().map(owners).collect()
}

/// Removes those of our routes that no living process wants; returns them.
///
/// Where this process may not, the helper is asked (`nicstripe-routes`, which may have been given the right).
///
/// ```no_run
/// let removed = nicstripe::routes::clean("/var/lib/backup-tool".as_ref())?;
/// println!("{} routes removed", removed.len());
/// # Ok::<(), nicstripe::routes::RouteError>(())
/// ```
pub fn clean(state_dir: &Path) -> Result<Vec<HostRoute>, RouteError> {
    let routes = Routes::open(state_dir)?;
    match routes.clean() {
        Err(refused @ RouteError::NotPermitted { .. }) => {
            let before = routes.list_ours()?;
            clean_by_helper(state_dir).unwrap_or(Err(refused))?;
            let left = routes.list_ours()?;
            Ok(before.into_iter().filter(|route| !left.contains(route)).collect())
        }
        cleaned => cleaned,
    }
}

/// Returns the interfaces whose MTU is changed, or was left so; none where the record of that may not be read.
pub fn list_mtus(state_dir: &Path) -> Result<Vec<ChangedMtu>, MtuError> {
    match Mtus::open(state_dir)?.list() {
        Err(MtuError::Ledger { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(Vec::new()),
        listed => listed,
    }
}

/// Puts back the MTUs that no living process wants changed; returns them. Where this process may not, the helper is asked.
pub fn clean_mtus(state_dir: &Path) -> Result<Vec<ChangedMtu>, MtuError> {
    if !Mtus::any_recorded(state_dir) {
        return Ok(Vec::new());
    }
    let mtus = Mtus::open(state_dir)?;
    match mtus.clean() {
        Err(refused @ MtuError::NotPermitted { .. }) => {
            let before = mtus.list()?;
            // What it says of routes is heard where those are cleaned.
            let _ = clean_by_helper(state_dir);
            let left = mtus.list()?;
            if left.iter().any(|changed| changed.owner.is_none()) {
                return Err(refused);
            }
            Ok(before.into_iter().filter(|changed| !left.contains(changed)).collect())
        }
        cleaned => cleaned,
    }
}

/// Has the helper clean; `None` where there is none.
pub(crate) fn clean_by_helper(state_dir: &Path) -> Option<Result<u32, RouteError>> {
    let program = RouteHelper::program()?;
    Some(RouteHelper::spawn(&program, state_dir).map_err(|source| RouteError::Helper { source }).and_then(|mut helper| helper.clean()))
}
