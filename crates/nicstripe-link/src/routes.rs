//! nicstripe's host routes in the kernel's routing table: installation, records, removal, and
//! cleanup after dead owners.

use std::{
    io,
    net::IpAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tracing::info;

use crate::{
    interface::InterfaceIndex,
    route_ledger::{self, Ledger, LedgerError, Owner, Record, namespace},
    route_policy::Refusal,
    route_server::SHARED_STATE_DIR,
    route_table::{self, protocol_name},
};

/// On-link route to a single address through one interface, in the main routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostRoute {
    /// Destination address of the /32 or /128 route.
    pub destination: IpAddr,
    /// Index of the egress interface.
    pub interface: InterfaceIndex,
    /// Preferred source address, for sockets that are not bound to one.
    pub prefer_source: Option<IpAddr>,
    /// Metric of the route; the kernel selects the route with the lowest one. Never zero, which
    /// IPv6 treats as 1024.
    pub metric: NonZeroU32,
}

impl HostRoute {
    /// Default metric: preferred to the routes of DHCP clients (100 and up), but not to routes that
    /// an administrator adds without a metric (0).
    pub const DEFAULT_METRIC: NonZeroU32 = NonZeroU32::new(50).expect("50 is not zero");
}

/// Manager of host routes, which are removed at the latest after their owner has ended.
///
/// Each route carries [`ROUTE_PROTOCOL`]. A file in the state directory records it with its owning
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

impl Routes {
    /// Opens the state directory, which it creates if missing.
    pub fn open(state_dir: &Path) -> Result<Self, RouteError> {
        Ok(Self {
            directory: state_dir.to_owned(),
            owner: route_ledger::enter(state_dir)?,
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
        let mut ledger = Ledger::<Record>::open(&self.directory)?;
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
        let ledger = Ledger::<Record>::open(&self.directory)?;
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
        let mut ledger = Ledger::<Record>::open(&self.directory)?;
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
    /// Considers only host routes with [`ROUTE_PROTOCOL`] in the calling thread's network
    /// namespace. Owners recorded in [`SHARED_STATE_DIR`] count too.
    pub fn clean(&self) -> Result<Vec<HostRoute>, RouteError> {
        let mut ledger = Ledger::<Record>::open(&self.directory)?;
        let recorded = ledger.records.len();
        ledger.records.retain(|record| record.owner.is_alive());
        let shared = route_ledger::read(Path::new(SHARED_STATE_DIR))?;
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

    /// Lists the kernel's host routes with [`ROUTE_PROTOCOL`], of all owners and in order of
    /// destination.
    pub fn list_ours(&self) -> Result<Vec<HostRoute>, RouteError> {
        route_table::ours().map_err(RouteError::List)
    }

    /// Returns the IDs of the live processes that own a route.
    pub fn owners(&self, route: &HostRoute) -> Result<Vec<u32>, RouteError> {
        let ledger = Ledger::<Record>::open(&self.directory)?;
        let namespace = namespace()?;
        let wants = |record: &&Record| record.route == *route && record.namespace == namespace;
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

    fn record(&self, route: HostRoute) -> Result<Record, RouteError> {
        Ok(Record {
            owner: self.owner.clone(),
            namespace: namespace()?,
            route,
        })
    }
}

/// Error of a route change or listing; each variant has its own remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The process lacks `CAP_NET_ADMIN`, which the administrator can grant.
    #[error(
        "cannot change the route to {destination}: CAP_NET_ADMIN is missing; an administrator can grant it \
         (`setcap cap_net_admin+ep` on nicstripe-routes, or `AmbientCapabilities=CAP_NET_ADMIN` in a systemd unit)"
    )]
    NotPermitted {
        /// Destination address of the route.
        destination: IpAddr,
    },
    /// Another program has a route with the same destination and metric; the user must decide which
    /// one to keep.
    #[error(
        "cannot add a route to {destination} with metric {metric}: a foreign route (protocol {protocol}) exists"
    )]
    Occupied {
        /// Destination address of the route.
        destination: IpAddr,
        /// Metric that both routes have.
        metric: NonZeroU32,
        /// Protocol of the existing route, as `ip route` prints it.
        protocol: String,
    },
    /// Another live process routes the same address through another interface.
    #[error(
        "cannot add a route to {destination} by interface {wanted}: another session has it by interface {held}"
    )]
    HeldElsewhere {
        /// Destination address of the route.
        destination: IpAddr,
        /// Index of the interface of the requested route.
        wanted: InterfaceIndex,
        /// Index of the interface of the existing route.
        held: InterfaceIndex,
    },
    /// The maximum number of routes is reached, of this process or of the machine.
    #[error(
        "cannot add a route to {destination}: limit of {MAX_ROUTES} routes per process or {MAX_RECORDS} in total reached"
    )]
    TooMany {
        /// Destination address of the route.
        destination: IpAddr,
    },
    /// The interface of the requested route is down, or does not exist.
    #[error("cannot add a route to {destination}: interface {interface} is down or gone")]
    NoInterface {
        /// Destination address of the route.
        destination: IpAddr,
        /// Index of the interface of the requested route.
        interface: InterfaceIndex,
    },
    /// The kernel rejected the change for another reason.
    #[error("cannot change the route to {destination} by interface {interface}")]
    Kernel {
        /// Destination address of the route.
        destination: IpAddr,
        /// Index of the route's interface.
        interface: InterfaceIndex,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The policy rejected the route.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The route helper does not run, has ended, or gave an invalid answer.
    #[error("the route helper does not answer")]
    Helper {
        /// Error of the connection to the helper.
        source: io::Error,
    },
    /// The interfaces or the kernel's routing tables cannot be read.
    #[error("cannot list routes")]
    List(#[source] io::Error),
    /// The record file cannot be read or written. No route is installed without a record.
    #[error("cannot keep the record of routes in {}", path.display())]
    Ledger {
        /// Path of the record file or of its directory.
        path: PathBuf,
        /// I/O error that the operating system returned.
        source: io::Error,
    },
    /// Another process holds the lock on the records; it is probably stopped or hangs.
    #[error("cannot lock the record of routes {} within {} s: another process holds it", path.display(), waited.as_secs_f64())]
    Locked {
        /// Path of the lock file.
        path: PathBuf,
        /// Time that this process waited for the lock.
        waited: Duration,
    },
}

impl From<LedgerError> for RouteError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Io { path, source } => Self::Ledger { path, source },
            LedgerError::Locked { path, waited } => Self::Locked { path, waited },
        }
    }
}

/// Installs a route in the kernel's table. Accepts an identical nicstripe route, and replaces a
/// conflicting one that has no live owner in `records`.
fn install(route: &HostRoute, records: &[Record]) -> Result<(), RouteError> {
    let first = match route_table::add(route) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => error,
        result => return result.map_err(|source| refused(route, source)),
    };
    let collides =
        |ours: &HostRoute| ours.destination == route.destination && ours.metric == route.metric;
    let ours = route_table::ours().map_err(RouteError::List)?;
    let Some(there) = ours.into_iter().find(collides) else {
        return Err(occupied(route, first));
    };
    if there == *route {
        return Ok(());
    }
    if is_wanted(&there, records)? {
        let (wanted, held) = (route.interface, there.interface);
        return Err(RouteError::HeldElsewhere {
            destination: route.destination,
            wanted,
            held,
        });
    }
    delete(&there)?;
    route_table::add(route).map_err(|source| refused(route, source))
}

/// Deletes a route from the kernel's table; returns false if it is already gone.
fn delete(route: &HostRoute) -> Result<bool, RouteError> {
    match route_table::delete(route) {
        // ESRCH: no such route. ENODEV: the interface is gone, and its routes with it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => Ok(false),
        result => result
            .map(|()| true)
            .map_err(|source| refused(route, source)),
    }
}

/// Returns true if `records` name a live process as owner of this route in the current network
/// namespace.
fn is_wanted(route: &HostRoute, records: &[Record]) -> Result<bool, RouteError> {
    let namespace = namespace()?;
    let wants = |record: &&Record| record.route == *route && record.namespace == namespace;
    Ok(records
        .iter()
        .filter(wants)
        .any(|record| record.owner.is_alive()))
}

fn occupied(route: &HostRoute, source: io::Error) -> RouteError {
    let HostRoute {
        destination,
        interface,
        metric,
        ..
    } = *route;
    match route_table::occupant(destination, metric) {
        Ok(Some(protocol)) => RouteError::Occupied {
            destination,
            metric,
            protocol: protocol_name(protocol),
        },
        _ => RouteError::Kernel {
            destination,
            interface,
            source,
        },
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
        _ => RouteError::Kernel {
            destination,
            interface,
            source,
        },
    }
}

/// Protocol number that marks nicstripe's routes: 83 (0x53), which neither the kernel nor iproute2
/// assigns.
pub const ROUTE_PROTOCOL: u8 = 83;

/// Maximum number of routes of one process, so that a hostile peer cannot fill the routing table
/// (picked by eye: four sessions with four cables).
pub const MAX_ROUTES: usize = 16;

/// Maximum number of routes of all processes on a machine, so that no user can fill the routing
/// table (picked by eye).
const MAX_RECORDS: usize = 256;
