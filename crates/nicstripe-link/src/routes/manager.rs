//! nicstripe's host routes in the kernel's routing table: installation, records, removal, and
//! cleanup after dead owners.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tracing::info;

use crate::{
    ledger::{self, Ledger, Owner, Recorded, SHARED_STATE_DIR, Seen, Tidy, namespace},
    routes::{
        HostRoute, MAX_RECORDS, MAX_ROUTES, RouteError,
        table::{self, protocol_name},
    },
};

/// Manager of host routes, which are removed at the latest after their owner has ended.
///
/// Each route carries nicstripe's protocol number. The user's file in the state directory records
/// it with its owning process *before* the installation. After a kill at any point, [`clean`](Self::clean) removes the
/// remaining routes. A route with two owners is removed with the last one. Routes of other programs
/// are never replaced or removed.
///
/// All processes that install routes on a machine must share a state directory, preferably
/// [`SHARED_STATE_DIR`]: a route without a record there counts as left over.
///
/// Changes need `CAP_NET_ADMIN`; listing does not. A change takes 0.2 to 0.5 ms with the state
/// directory on tmpfs, and 2 to 5 ms on ext4, which starts to write a replaced file at once
/// (`tests/kernel`, unoptimised build). It waits at most 2 s for another process of the same user
/// that holds the lock, and never for other users. Each call acts on the calling thread's network
/// namespace.
///
/// Callers must check [`may_install`](crate::may_install) first;
/// [`RouteHelper`](crate::RouteHelper) does so itself.
#[derive(Debug)]
pub struct Routes {
    directory: PathBuf,
    owner: Owner,
}

/// Record of an installed host route and the process that owns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RouteRecord {
    pub(crate) owner: Owner,
    /// Inode number of the route's network namespace.
    pub(crate) namespace: u64,
    #[serde(flatten)]
    pub(crate) route: HostRoute,
}

impl Recorded for RouteRecord {
    const KIND: &'static str = "routes";
}

impl Routes {
    /// Opens the state directory, which the first change creates if it is missing.
    pub fn open(state_dir: &Path) -> Result<Self, RouteError> {
        Ok(Self {
            directory: state_dir.to_owned(),
            owner: ledger::this_process()?,
        })
    }

    /// Records and installs a route with this process as owner. Each `add` needs one
    /// [`remove`](Self::remove).
    ///
    /// # Errors
    ///
    /// [`RouteError::Occupied`] if another program has a route to the same address with the same
    /// metric, which stays unchanged. See [`RouteError`] for others.
    pub fn add(&self, route: &HostRoute) -> Result<(), RouteError> {
        let mut ledger = Ledger::<RouteRecord>::open(&self.directory)?;
        let record = self.record(*route)?;
        let own = ledger
            .records
            .iter()
            .filter(|known| known.owner == self.owner)
            .count();
        let is_full = |ledger: &Ledger<'_, RouteRecord>| {
            ledger.records.len() + ledger.others.records.len() >= MAX_RECORDS
        };
        if is_full(&ledger) {
            let is_alive = |record: &RouteRecord| record.owner.is_alive();
            ledger.records.retain(is_alive);
            ledger.others.records.retain(is_alive);
        }
        if own >= MAX_ROUTES || is_full(&ledger) {
            return Err(RouteError::TooMany(route.destination));
        }
        ledger.records.push(record);
        ledger.save()?;
        let installed = install(route, &mut ledger);
        if installed.is_err() {
            ledger.records.pop();
            ledger.save()?;
        }
        installed
    }

    /// Reinstalls a route of this process that the kernel dropped, for example because the
    /// interface went down. Does nothing if the route exists.
    ///
    /// Returns false, and installs nothing, if this process has not added the route.
    pub fn restore(&self, route: &HostRoute) -> Result<bool, RouteError> {
        let mut ledger = Ledger::<RouteRecord>::open(&self.directory)?;
        if !ledger.records.contains(&self.record(*route)?) {
            return Ok(false);
        }
        install(route, &mut ledger).map(|()| true)
    }

    /// Undoes one [`add`](Self::add), and deletes the route from the kernel's table if no other
    /// owner remains.
    ///
    /// Returns true if it deleted the route, and false if the route was already gone, has another
    /// owner, or belongs to another program.
    pub fn remove(&self, route: &HostRoute) -> Result<bool, RouteError> {
        let mut ledger = Ledger::<RouteRecord>::open(&self.directory)?;
        let record = self.record(*route)?;
        let Some(position) = ledger.records.iter().position(|known| *known == record) else {
            return Ok(false);
        };
        ledger.records.remove(position);
        ledger.save()?;
        let deleted = delete_unwanted(route, &mut ledger);
        if deleted.is_err() {
            ledger.records.push(record);
            ledger.save()?;
        }
        deleted
    }

    /// Deletes nicstripe's routes without a live owner, and returns them. Every nicstripe process
    /// calls this at startup.
    ///
    /// Considers only host routes with nicstripe's protocol number in the calling thread's network
    /// namespace. Owners recorded in [`SHARED_STATE_DIR`] count too.
    pub fn clean(&self) -> Result<Vec<HostRoute>, RouteError> {
        // The list comes before the records: a route that is listed here was recorded earlier.
        let listed = self.list_ours()?;
        if listed.is_empty() && !self.directory.exists() {
            return Ok(Vec::new());
        }
        let _tidy = Tidy::new(&self.directory);
        let shared = Seen::<RouteRecord>::read(Path::new(SHARED_STATE_DIR), None)?;
        let mut ledger = Ledger::<RouteRecord>::open(&self.directory)?;
        let recorded = ledger.records.len();
        ledger.records.retain(|record| record.owner.is_alive());
        let mut removed = Vec::new();
        for route in listed {
            let is_shared = !shared.is_complete || has_owner(&route, &shared.records)?;
            if !is_shared && delete_unwanted(&route, &mut ledger)? {
                info!(destination = %route.destination, interface = %route.interface, "removed a route of a dead process");
                removed.push(route);
            }
        }
        if ledger.records.len() != recorded {
            ledger.save()?;
        }
        Ok(removed)
    }

    /// Lists the kernel's host routes with nicstripe's protocol number, of all owners and in order of
    /// destination.
    pub fn list_ours(&self) -> Result<Vec<HostRoute>, RouteError> {
        table::ours().map_err(RouteError::List)
    }

    /// Returns the IDs of the live processes that own a route.
    pub fn owners(&self, route: &HostRoute) -> Result<Vec<u32>, RouteError> {
        let seen = Seen::<RouteRecord>::read(&self.directory, None)?;
        let namespace = namespace()?;
        let records = seen
            .records
            .iter()
            .filter(|record| record.route == *route && record.namespace == namespace)
            .filter(|record| record.owner.is_alive());
        let mut pids: Vec<_> = records.map(|record| record.owner.pid).collect();
        if pids.is_empty() {
            seen.check_complete(&self.directory)?;
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    fn record(&self, route: HostRoute) -> Result<RouteRecord, RouteError> {
        Ok(RouteRecord {
            owner: self.owner.clone(),
            namespace: namespace()?,
            route,
        })
    }
}

/// Installs a route in the kernel's table. Accepts an identical nicstripe route, and replaces a
/// conflicting one that has no live owner.
fn install(route: &HostRoute, ledger: &mut Ledger<'_, RouteRecord>) -> Result<(), RouteError> {
    let first = match table::add(route) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => error,
        result => return result.map_err(|source| refused(route, source)),
    };
    let collides =
        |ours: &HostRoute| ours.destination == route.destination && ours.metric == route.metric;
    let ours = table::ours().map_err(RouteError::List)?;
    let Some(existing) = ours.into_iter().find(collides) else {
        return Err(occupied(route, first));
    };
    if existing == *route {
        return Ok(());
    }
    if !delete_unwanted(&existing, ledger)? && is_wanted(&existing, ledger)? {
        let (wanted, held) = (route.interface, existing.interface);
        return Err(RouteError::HeldElsewhere {
            destination: route.destination,
            wanted,
            held,
        });
    }
    table::add(route).map_err(|source| refused(route, source))
}

/// Deletes a route that has no live owner. Returns false if it has one, or is already gone.
///
/// Other users change their records at any time, because users share no lock. None of them loses a
/// route by this: each records it *before* the installation. A new owner is therefore found by the
/// first read, which keeps the route; or by the second, which installs it again; or it installs the
/// route itself, after the deletion.
fn delete_unwanted(
    route: &HostRoute,
    ledger: &mut Ledger<'_, RouteRecord>,
) -> Result<bool, RouteError> {
    ledger.read_others()?;
    if is_wanted(route, ledger)? || !delete(route)? {
        return Ok(false);
    }
    ledger.read_others()?;
    if !is_wanted(route, ledger)? {
        return Ok(true);
    }
    match table::add(route) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(refused(route, error)),
        _ => Ok(false),
    }
}

/// Deletes a route from the kernel's table; returns false if it is already gone.
fn delete(route: &HostRoute) -> Result<bool, RouteError> {
    match table::delete(route) {
        // ESRCH: no such route. ENODEV: the interface is gone, and its routes with it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => Ok(false),
        result => result
            .map(|()| true)
            .map_err(|source| refused(route, source)),
    }
}

/// Returns true if a live process of any user owns this route in the current network namespace, or
/// if the records of some user are unknown.
fn is_wanted(route: &HostRoute, ledger: &Ledger<'_, RouteRecord>) -> Result<bool, RouteError> {
    let records = ledger.records.iter().chain(&ledger.others.records);
    Ok(!ledger.others.is_complete || has_owner(route, records)?)
}

/// Returns true if `records` name a live process as owner of this route in the current network
/// namespace.
fn has_owner<'r>(
    route: &HostRoute,
    records: impl IntoIterator<Item = &'r RouteRecord>,
) -> Result<bool, RouteError> {
    let namespace = namespace()?;
    let mut records = records.into_iter();
    Ok(records.any(|record| {
        record.route == *route && record.namespace == namespace && record.owner.is_alive()
    }))
}

fn occupied(route: &HostRoute, source: io::Error) -> RouteError {
    match table::occupant(route.destination, route.metric) {
        Ok(Some(protocol)) => RouteError::Occupied {
            destination: route.destination,
            metric: route.metric,
            protocol: protocol_name(protocol),
        },
        _ => RouteError::kernel(route, source),
    }
}

fn refused(route: &HostRoute, source: io::Error) -> RouteError {
    let HostRoute {
        destination,
        interface,
        ..
    } = *route;
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RouteError::NotPermitted(destination),
        Some(libc::ENODEV | libc::ENETDOWN) => RouteError::NoInterface {
            destination,
            interface,
        },
        _ => RouteError::kernel(route, source),
    }
}
