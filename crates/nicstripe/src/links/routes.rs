//! Administration of the host routes and MTU changes that nicstripe has made.

use std::{io, path::Path};

pub use nicstripe_link::{ChangedMtu, HostRoute, MtuError, RouteError, SHARED_STATE_DIR};
use nicstripe_link::{Mtus, RouteHelper, Routes};

/// Returns nicstripe's routes (protocol 83) in the kernel's table. Each comes with the IDs of the
/// processes that still need it, or `None` if the records are not readable.
///
/// ```no_run
/// for (route, owners) in nicstripe::routes::list("/var/lib/backup-tool")? {
///     println!("{} of {owners:?}", route.destination);
/// }
/// # Ok::<(), nicstripe::routes::RouteError>(())
/// ```
#[expect(clippy::type_complexity, reason = "a list of pairs")]
pub fn list(state_dir: impl AsRef<Path>) -> Result<Vec<(HostRoute, Option<Vec<u32>>)>, RouteError> {
    let state_dir = state_dir.as_ref();
    let routes = Routes::open(state_dir)?;
    let owners = |route| match routes.owners(&route) {
        Err(RouteError::Ledger { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Ok((route, None))
        }
        owners => owners.map(|owners| (route, Some(owners))),
    };
    routes.list_ours()?.into_iter().map(owners).collect()
}

/// Removes the host routes that no running process needs, and returns them.
///
/// Falls back to the helper (`nicstripe-routes`, which may have the privilege) if this process
/// lacks it.
///
/// ```no_run
/// let removed = nicstripe::routes::clean("/var/lib/backup-tool")?;
/// println!("{} routes removed", removed.len());
/// # Ok::<(), nicstripe::routes::RouteError>(())
/// ```
pub fn clean(state_dir: impl AsRef<Path>) -> Result<Vec<HostRoute>, RouteError> {
    let state_dir = state_dir.as_ref();
    let routes = Routes::open(state_dir)?;
    match routes.clean() {
        Err(refused @ RouteError::NotPermitted { .. }) => {
            let before = routes.list_ours()?;
            clean_by_helper(state_dir).unwrap_or(Err(refused))?;
            let left = routes.list_ours()?;
            Ok(before
                .into_iter()
                .filter(|route| !left.contains(route))
                .collect())
        }
        cleaned => cleaned,
    }
}

/// Returns the interfaces whose MTU nicstripe has changed and not restored; empty if the records
/// are not readable.
pub fn list_mtus(state_dir: impl AsRef<Path>) -> Result<Vec<ChangedMtu>, MtuError> {
    let state_dir = state_dir.as_ref();
    match Mtus::open(state_dir)?.list() {
        Err(MtuError::Ledger { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Ok(Vec::new())
        }
        listed => listed,
    }
}

/// Restores the MTUs whose change no running process needs, and returns them. Falls back to the
/// helper if this process lacks the privilege.
pub fn clean_mtus(state_dir: impl AsRef<Path>) -> Result<Vec<ChangedMtu>, MtuError> {
    let state_dir = state_dir.as_ref();
    if !Mtus::any_recorded(state_dir) {
        return Ok(Vec::new());
    }
    let mtus = Mtus::open(state_dir)?;
    match mtus.clean() {
        Err(refused @ MtuError::NotPermitted { .. }) => {
            let before = mtus.list()?;
            // Its result about routes belongs to their own clean-up.
            let _ = clean_by_helper(state_dir);
            let left = mtus.list()?;
            if left.iter().any(|changed| changed.owner.is_none()) {
                return Err(refused);
            }
            Ok(before
                .into_iter()
                .filter(|changed| !left.contains(changed))
                .collect())
        }
        cleaned => cleaned,
    }
}

/// Runs the helper to remove stale routes. Returns the number of removed routes, or `None` if there
/// is no helper.
pub(crate) fn clean_by_helper(state_dir: &Path) -> Option<Result<u32, RouteError>> {
    let program = RouteHelper::program()?;
    Some(
        RouteHelper::spawn(&program, state_dir)
            .map_err(RouteError::Helper)
            .and_then(|mut helper| helper.clean()),
    )
}
