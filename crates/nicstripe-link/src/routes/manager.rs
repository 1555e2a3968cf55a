//! nicstripe's host routes in the kernel's routing table: installation, records, removal, and
//! cleanup after dead owners.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tracing::info;

use crate::{
    ledger::{self, Ledger, Owner, Recorded, SHARED_STATE_DIR, namespace},
    routes::{
        HostRoute, MAX_RECORDS, MAX_ROUTES, RouteError,
        table::{self, protocol_name},
    },
};

/// Manager of host routes, which are removed at the latest after their owner has ended.
///
/// Each route carries nicstripe's protocol number. A file in the state directory records it with its owning
/// process *before* the installation. After a kill at any point, [`clean`](Self::clean) removes the
/// remaining routes. A route with two owners is removed with the last one. Routes of other programs
/// are never replaced or removed.
///
/// All processes that install routes on a machine must share a state directory, preferably
/// [`SHARED_STATE_DIR`]: a route without a record there counts as left over.
///
/// Changes need `CAP_NET_ADMIN`; listing does not. A change takes 0.2 to 0.5 ms with the state
/// directory on tmpfs, and 2 to 5 ms on ext4, which starts to write a replaced file at once
/// (`tests/kernel`, unoptimised build). It waits at most 2 s for another process that holds the
/// lock. Each call acts on the calling thread's network namespace.
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
    const FILE: &'static str = "routes.jsonl";
}

impl Routes {
    /// Opens the state directory, which it creates if missing.
    pub fn open(state_dir: &Path) -> Result<Self, RouteError> {
        Ok(Self {
            directory: state_dir.to_owned(),
            owner: ledger::enter(state_dir)?,
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
        if ledger.records.len() >= MAX_RECORDS {
            ledger.records.retain(|record| record.owner.is_alive());
        }
        if own >= MAX_ROUTES || ledger.records.len() >= MAX_RECORDS {
            return Err(RouteError::TooMany {
                destination: route.destination,
            });
        }
        ledger.records.push(record);
        ledger.save()?;
        let installed = install(route, &ledger.records);
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
        let ledger = Ledger::<RouteRecord>::open(&self.directory)?;
        if !ledger.records.contains(&self.record(*route)?) {
            return Ok(false);
        }
        install(route, &ledger.records).map(|()| true)
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
        let deleted = !is_wanted(route, &ledger.records)? && delete(route)?;
        ledger.save()?;
        Ok(deleted)
    }

    /// Deletes nicstripe's routes without a live owner, and returns them. Every nicstripe process
    /// calls this at startup.
    ///
    /// Considers only host routes with nicstripe's protocol number in the calling thread's network
    /// namespace. Owners recorded in [`SHARED_STATE_DIR`] count too.
    pub fn clean(&self) -> Result<Vec<HostRoute>, RouteError> {
        let mut ledger = Ledger::<RouteRecord>::open(&self.directory)?;
        let recorded = ledger.records.len();
        ledger.records.retain(|record| record.owner.is_alive());
        let shared = ledger::read(Path::new(SHARED_STATE_DIR))?;
        let mut removed = Vec::new();
        for route in self.list_ours()? {
            if !is_wanted(&route, &ledger.records)?
                && !is_wanted(&route, &shared)?
                && delete(&route)?
            {
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
        let ledger = Ledger::<RouteRecord>::open(&self.directory)?;
        let namespace = namespace()?;
        let wants = |record: &&RouteRecord| record.route == *route && record.namespace == namespace;
        let records = ledger
            .records
            .iter()
            .filter(wants)
            .filter(|record| record.owner.is_alive());
        let mut pids: Vec<_> = records.map(|record| record.owner.pid).collect();
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
/// conflicting one that has no live owner in `records`.
fn install(route: &HostRoute, records: &[RouteRecord]) -> Result<(), RouteError> {
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
    if is_wanted(&existing, records)? {
        let (wanted, held) = (route.interface, existing.interface);
        return Err(RouteError::HeldElsewhere {
            destination: route.destination,
            wanted,
            held,
        });
    }
    delete(&existing)?;
    table::add(route).map_err(|source| refused(route, source))
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

/// Returns true if `records` name a live process as owner of this route in the current network
/// namespace.
fn is_wanted(route: &HostRoute, records: &[RouteRecord]) -> Result<bool, RouteError> {
    let namespace = namespace()?;
    let wants = |record: &&RouteRecord| record.route == *route && record.namespace == namespace;
    Ok(records
        .iter()
        .filter(wants)
        .any(|record| record.owner.is_alive()))
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
        Some(libc::EPERM | libc::EACCES) => RouteError::NotPermitted { destination },
        Some(libc::ENODEV | libc::ENETDOWN) => RouteError::NoInterface {
            destination,
            interface,
        },
        _ => RouteError::kernel(route, source),
    }
}
