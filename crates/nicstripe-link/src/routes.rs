//! Host routes of ours in the kernel's table: installed, recorded, removed, and swept when their owner died.

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

/// A route to one address by one interface, on-link, in the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostRoute {
    /// Where to: a /32 or /128.
    pub destination: IpAddr,
    /// Which way.
    pub interface: InterfaceIndex,
    /// Source address for sockets that have none.
    pub prefer_source: Option<IpAddr>,
    /// The kernel's priority of it; lower wins, among routes to the same address. Never zero, which IPv6 takes as 1024.
    pub metric: NonZeroU32,
}

impl HostRoute {
    /// The metric where there is no reason for another: before what DHCP clients use (100 and up), after what an
    /// administrator adds without a metric (0).
    pub const DEFAULT_METRIC: NonZeroU32 = NonZeroU32::new(50).expect("50 is not zero");
}

/// Installs host routes and sees to it that none outlives its owner.
///
/// Each route carries [`ROUTE_PROTOCOL`] and is recorded, with the process that wants it, in a file of the state directory
/// *before* the kernel is asked, so that whatever is killed when, [`clean`](Self::clean) finds what is left. A route that two
/// owners want is installed once and goes with the last. Routes that are not ours are never replaced nor removed.
///
/// All processes that install routes on a machine must use one state directory, best [`SHARED_STATE_DIR`]: a route without a
/// record there counts as left over.
///
/// Changing routes needs `CAP_NET_ADMIN`; listing needs nothing. A change takes 0.2 to 0.5 ms with the state directory on
/// tmpfs and 2 to 5 ms on ext4, which starts writing a replaced file at once (`tests/kernel`, unoptimised); another process in
/// the middle of one is waited for, at most 2 s. Each call acts on the calling thread's network namespace. Whether a route may
/// be installed at all is [`may_install`](crate::may_install)'s question, to be asked first; [`RouteHelper`](crate::RouteHelper)
/// asks it.
#[derive(Debug)]
pub struct Routes {
    directory: PathBuf,
    owner: Owner,
}

impl Routes {
    /// Opens the state directory, which is created if it is missing.
    pub fn open(state_dir: &Path) -> Result<Self, RouteError> {
        Ok(Self { directory: state_dir.to_owned(), owner: route_ledger::enter(state_dir)? })
    }

    /// Records and installs a route for this process.
    ///
    /// Each `add` is undone by one [`remove`](Self::remove). A route to the same address that is not ours is left alone:
    /// [`RouteError::Occupied`].
    pub fn add(&self, route: &HostRoute) -> Result<(), RouteError> {
        let mut ledger = Ledger::<Record>::open(&self.directory)?;
        let record = self.record(*route)?;
        let own = ledger.records.iter().filter(|known| known.owner == self.owner).count();
        if ledger.records.len() >= MAX_RECORDS {
            ledger.records.retain(|record| record.owner.is_alive());
        }
        if own >= MAX_ROUTES || ledger.records.len() >= MAX_RECORDS {
            return Err(RouteError::TooMany { destination: route.destination });
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

    /// Installs a route again that this process added and the kernel dropped, as it does when the interface goes down.
    ///
    /// Nothing happens when the route is there. Returns `false`, and installs nothing, when this process has no such route.
    pub fn restore(&self, route: &HostRoute) -> Result<bool, RouteError> {
        let ledger = Ledger::<Record>::open(&self.directory)?;
        if !ledger.records.contains(&self.record(*route)?) {
            return Ok(false);
        }
        install(route, &ledger.records).map(|()| true)
    }

    /// Takes back one [`add`](Self::add); the kernel's route goes with its last owner.
    ///
    /// Returns whether the kernel's route was deleted: it may be gone already, wanted by another owner, or never ours.
    pub fn remove(&self, route: &HostRoute) -> Result<bool, RouteError> {
        let mut ledger = Ledger::<Record>::open(&self.directory)?;
        let record = self.record(*route)?;
        let Some(position) = ledger.records.iter().position(|known| *known == record) else { return Ok(false) };
        ledger.records.remove(position);
        let deleted = !is_wanted(route, &ledger.records)? && delete(route)?;
        ledger.save()?;
        Ok(deleted)
    }

    /// Deletes the routes of ours that no living process wants, and returns them. For the start of any nicstripe.
    ///
    /// Only host routes with our protocol number in the calling thread's network namespace are looked at. What is recorded in
    /// [`SHARED_STATE_DIR`] is wanted, too, whichever directory this is.
    pub fn clean(&self) -> Result<Vec<HostRoute>, RouteError> {
        let mut ledger = Ledger::<Record>::open(&self.directory)?;
        let recorded = ledger.records.len();
        ledger.records.retain(|record| record.owner.is_alive());
        let shared = route_ledger::read(Path::new(SHARED_STATE_DIR))?;
        let mut removed = Vec::new();
        for route in self.list_ours()? {
            if !is_wanted(&route, &ledger.records)? && !is_wanted(&route, &shared)? && delete(&route)? {
                info!(destination = %route.destination, interface = %route.interface, "removed a route whose owner is gone");
                removed.push(route);
            }
        }
        if ledger.records.len() != recorded {
            ledger.save()?;
        }
        Ok(removed)
    }

    /// Lists the host routes in the kernel that carry our protocol number, by destination, whoever owns them.
    pub fn list_ours(&self) -> Result<Vec<HostRoute>, RouteError> {
        route_table::ours().map_err(RouteError::List)
    }

    /// Returns the numbers of the living processes that want a route.
    pub fn owners(&self, route: &HostRoute) -> Result<Vec<u32>, RouteError> {
        let ledger = Ledger::<Record>::open(&self.directory)?;
        let namespace = namespace()?;
        let wants = |record: &&Record| record.route == *route && record.namespace == namespace;
        let records = ledger.records.iter().filter(wants).filter(|record| record.owner.is_alive());
        let mut pids: Vec<_> = records.map(|record| record.owner.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    fn record(&self, route: HostRoute) -> Result<Record, RouteError> {
        Ok(Record { owner: self.owner.clone(), namespace: namespace()?, route })
    }
}

/// Why routes cannot be read or changed, by who must act.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The process lacks the right; the administrator can give it.
    #[error(
        "cannot change the route to {destination}: CAP_NET_ADMIN is missing, which the administrator can give \
         (`setcap cap_net_admin+ep` on nicstripe-routes, or `AmbientCapabilities=CAP_NET_ADMIN` in a systemd unit)"
    )]
    NotPermitted {
        /// The address of the route.
        destination: IpAddr,
    },
    /// Somebody else's route is in the place; the user decides which is right.
    #[error("cannot add a route to {destination} with metric {metric}: one that is not ours (protocol {protocol}) is there")]
    Occupied {
        /// The address of the route.
        destination: IpAddr,
        /// Its metric.
        metric: NonZeroU32,
        /// Who installed the route that is there, as `ip route` spells it.
        protocol: String,
    },
    /// Another living owner routes the same address another way.
    #[error("cannot add a route to {destination} by interface {wanted}: another session has it by interface {held}")]
    HeldElsewhere {
        /// The address of the route.
        destination: IpAddr,
        /// The interface asked for.
        wanted: InterfaceIndex,
        /// The interface of the route that is there.
        held: InterfaceIndex,
    },
    /// There are as many routes as there may be.
    #[error("cannot add a route to {destination}: {MAX_ROUTES} routes a process and {MAX_RECORDS} in all are the most allowed")]
    TooMany {
        /// The address of the route.
        destination: IpAddr,
    },
    /// The interface is down or gone.
    #[error("cannot add a route to {destination}: interface {interface} is down or gone")]
    NoInterface {
        /// The address of the route.
        destination: IpAddr,
        /// The interface asked for.
        interface: InterfaceIndex,
    },
    /// The kernel refused for another reason.
    #[error("cannot change the route to {destination} by interface {interface}")]
    Kernel {
        /// The address of the route.
        destination: IpAddr,
        /// Its interface.
        interface: InterfaceIndex,
        /// What the kernel said.
        source: io::Error,
    },
    /// The policy forbids it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The helper that changes routes does not run, or has ended.
    #[error("the helper that changes routes does not answer")]
    Helper {
        /// What the operating system said.
        source: io::Error,
    },
    /// The kernel's table cannot be read.
    #[error("cannot list routes")]
    List(#[source] io::Error),
    /// The file of records cannot be read or written. Without a record no route is installed.
    #[error("cannot keep the record of routes in {}", path.display())]
    Ledger {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another process holds the records locked, and is stopped or hangs.
    #[error("cannot lock the record of routes {} within {} s: another process holds it", path.display(), waited.as_secs_f64())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
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

/// Installs a route that is recorded in `records`. One of ours that is in the way is shared if it is the same, replaced if
/// no living process wants it.
fn install(route: &HostRoute, records: &[Record]) -> Result<(), RouteError> {
    let first = match route_table::add(route) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => error,
        result => return result.map_err(|source| refused(route, source)),
    };
    let collides = |ours: &HostRoute| ours.destination == route.destination && ours.metric == route.metric;
    let ours = route_table::ours().map_err(RouteError::List)?;
    let Some(there) = ours.into_iter().find(collides) else {
        return Err(occupied(route, first));
    };
    if there == *route {
        return Ok(());
    }
    if is_wanted(&there, records)? {
        let (wanted, held) = (route.interface, there.interface);
        return Err(RouteError::HeldElsewhere { destination: route.destination, wanted, held });
    }
    delete(&there)?;
    route_table::add(route).map_err(|source| refused(route, source))
}

/// Deletes a route; `false` when it is gone already.
fn delete(route: &HostRoute) -> Result<bool, RouteError> {
    match route_table::delete(route) {
        // ESRCH: no such route. ENODEV: the interface is gone, and its routes with it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => Ok(false),
        result => result.map(|()| true).map_err(|source| refused(route, source)),
    }
}

/// Whether a living process wants this route in this namespace.
fn is_wanted(route: &HostRoute, records: &[Record]) -> Result<bool, RouteError> {
    let namespace = namespace()?;
    let wants = |record: &&Record| record.route == *route && record.namespace == namespace;
    Ok(records.iter().filter(wants).any(|record| record.owner.is_alive()))
}

fn occupied(route: &HostRoute, source: io::Error) -> RouteError {
    let HostRoute { destination, interface, metric, .. } = *route;
    match route_table::occupant(destination, metric) {
        Ok(Some(protocol)) => RouteError::Occupied { destination, metric, protocol: protocol_name(protocol) },
        _ => RouteError::Kernel { destination, interface, source },
    }
}

fn refused(route: &HostRoute, source: io::Error) -> RouteError {
    let HostRoute { destination, interface, .. } = *route;
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RouteError::NotPermitted { destination },
        Some(libc::ENODEV | libc::ENETDOWN) => RouteError::NoInterface { destination, interface },
        _ => RouteError::Kernel { destination, interface, source },
    }
}

/// The protocol number that marks a route as ours: 83 (0x53), which neither the kernel nor iproute2 gives to anyone.
pub const ROUTE_PROTOCOL: u8 = 83;

/// How many routes one process may have at a time, so that a hostile peer cannot fill the table (picked by eye: four
/// sessions of four cables).
pub const MAX_ROUTES: usize = 16;

/// How many routes all processes of a machine may have together, so that no user fills the table by starting many (picked by eye).
const MAX_RECORDS: usize = 256;
