//! nicstripe's host routes in the kernel's table: installation, records, removal, and cleanup after
//! dead owners.

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

/// On-link route to one address through one interface, in the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostRoute {
    /// Destination address: a /32 or /128.
    pub destination: IpAddr,
    /// Egress interface.
    pub interface: InterfaceIndex,
    /// Source address for sockets that are not bound to one.
    pub prefer_source: Option<IpAddr>,
    /// Kernel metric; the lowest of all routes to an address wins. Never zero, which IPv6 treats as
    /// 1024.
    pub metric: NonZeroU32,
}

impl HostRoute {
    /// Default metric: before those of DHCP clients (100 and up), after routes that an
    /// administrator adds without a metric (0).
    pub const DEFAULT_METRIC: NonZeroU32 = NonZeroU32::new(50).expect("50 is not zero");
}

/// Manager of host routes, none of which outlives its owner.
///
/// Each route carries [`ROUTE_PROTOCOL`]. A file in the state directory records it with its owning
/// process *before* the installation. After a kill at any point, [`clean`](Self::clean) finds and
/// removes what is left. A route with two owners is removed with the last one. Routes of other
/// programs are never replaced or removed.
///
/// All processes that install routes on a machine must share a state directory, preferably
/// [`SHARED_STATE_DIR`]: a route without a record there counts as left over.
///
/// Changes need `CAP_NET_ADMIN`; listing does not. A change takes 0.2 to 0.5 ms with the state
/// directory on tmpfs, and 2 to 5 ms on ext4, which starts to write a replaced file at once
/// (`tests/kernel`, unoptimised). It waits at most 2 s for another process that holds the lock.
/// Each call acts on the calling thread's network namespace.
///
/// Callers must check [`may_install`](crate::may_install) first;
/// [`RouteHelper`](crate::RouteHelper) does so itself.
#[derive(Debug)]
pub struct Routes {
    directory: PathBuf,
    owner: Owner,
}

impl Routes {
    /// Opens the state directory, and creates it if it is missing.
    pub fn open(state_dir: &Path) -> Result<Self, RouteError> {
        Ok(Self {
            directory: state_dir.to_owned(),
            owner: route_ledger::enter(state_dir)?,
        })
    }

    /// Records and installs a route for this process.
    ///
    /// Each `add` needs one [`remove`](Self::remove). A route of another program to the same
    /// address is left alone: [`RouteError::Occupied`].
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

    /// Reinstalls a route of this process that the kernel dropped, for example when the interface
    /// went down.
    ///
    /// Does nothing if the route exists. Returns `false`, and installs nothing, if this process has
    /// no such route.
    pub fn restore(&self, route: &HostRoute) -> Result<bool, RouteError> {
        let ledger = Ledger::<Record>::open(&self.directory)?;
        if !ledger.records.contains(&self.record(*route)?) {
            return Ok(false);
        }
        install(route, &ledger.records).map(|()| true)
    }

    /// Undoes one [`add`](Self::add); the last owner's removal deletes the kernel's route.
    ///
    /// Returns true if that deleted it. It may be gone already, have another owner, or belong to
    /// another program.
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
    /// Covers only host routes with [`ROUTE_PROTOCOL`] in the calling thread's network namespace.
    /// Records in [`SHARED_STATE_DIR`] count as well.
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

    /// Lists the kernel's host routes with [`ROUTE_PROTOCOL`], by destination and for all owners.
    pub fn list_ours(&self) -> Result<Vec<HostRoute>, RouteError> {
        route_table::ours().map_err(RouteError::List)
    }

    /// Returns the process IDs of a route's live owners.
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

/// Error of a route change or listing, by who must act.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The process lacks the privilege; the administrator can grant it.
    #[error(
        "cannot change the route to {destination}: CAP_NET_ADMIN is missing; an administrator can grant it \
         (`setcap cap_net_admin+ep` on nicstripe-routes, or `AmbientCapabilities=CAP_NET_ADMIN` in a systemd unit)"
    )]
    NotPermitted {
        /// The address of the route.
        destination: IpAddr,
    },
    /// A route of another program exists there; the user decides which is right.
    #[error(
        "cannot add a route to {destination} with metric {metric}: a foreign route (protocol {protocol}) exists"
    )]
    Occupied {
        /// The address of the route.
        destination: IpAddr,
        /// Metric of the route.
        metric: NonZeroU32,
        /// Protocol of the existing route, as in `ip route`.
        protocol: String,
    },
    /// A live owner routes the same address through another interface.
    #[error(
        "cannot add a route to {destination} by interface {wanted}: another session has it by interface {held}"
    )]
    HeldElsewhere {
        /// The address of the route.
        destination: IpAddr,
        /// The requested interface.
        wanted: InterfaceIndex,
        /// The interface of the existing route.
        held: InterfaceIndex,
    },
    /// Limit on routes reached.
    #[error(
        "cannot add a route to {destination}: limit of {MAX_ROUTES} routes per process or {MAX_RECORDS} in total reached"
    )]
    TooMany {
        /// The address of the route.
        destination: IpAddr,
    },
    /// The interface is down or gone.
    #[error("cannot add a route to {destination}: interface {interface} is down or gone")]
    NoInterface {
        /// The address of the route.
        destination: IpAddr,
        /// The requested interface.
        interface: InterfaceIndex,
    },
    /// The kernel refused for another reason.
    #[error("cannot change the route to {destination} by interface {interface}")]
    Kernel {
        /// The address of the route.
        destination: IpAddr,
        /// Interface of the route.
        interface: InterfaceIndex,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Rejected by the policy.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The route helper does not run, or has ended.
    #[error("the route helper does not answer")]
    Helper {
        /// Error of the operating system.
        source: io::Error,
    },
    /// Cannot read the kernel's table.
    #[error("cannot list routes")]
    List(#[source] io::Error),
    /// Cannot read or write the record file. Without a record no route is installed.
    #[error("cannot keep the record of routes in {}", path.display())]
    Ledger {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another process holds the lock on the records, and is stopped or hangs.
    #[error("cannot lock the record of routes {} within {} s: another process holds it", path.display(), waited.as_secs_f64())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Time spent waiting.
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

/// Installs a route that is recorded in `records`. Shares an identical nicstripe route, and
/// replaces a conflicting one without a live owner.
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

/// Deletes a route; `false` if it is already gone.
fn delete(route: &HostRoute) -> Result<bool, RouteError> {
    match route_table::delete(route) {
        // ESRCH: no such route. ENODEV: the interface is gone, and its routes with it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => Ok(false),
        result => result
            .map(|()| true)
            .map_err(|source| refused(route, source)),
    }
}

/// Returns true if a live process owns this route in this namespace.
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

/// Protocol number of nicstripe's routes: 83 (0x53), which neither the kernel nor iproute2 assigns.
pub const ROUTE_PROTOCOL: u8 = 83;

/// Maximum number of routes per process, so that a hostile peer cannot fill the table (picked by
/// eye: four sessions with four cables).
pub const MAX_ROUTES: usize = 16;

/// Maximum number of routes of all processes of a machine, so that no user can fill the table
/// (picked by eye).
const MAX_RECORDS: usize = 256;
