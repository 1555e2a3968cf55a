//! Host routes: one address through one interface.
//!
//! `lookup` asks the kernel for its route to an address, `table` changes and lists routes, `policy`
//! protects existing ones, `neighbours` deletes stale neighbour entries. `manager` records each
//! route with its owner, so that none is left behind.

use std::{io, net::IpAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{interface::InterfaceIndex, ledger::LedgerError, routes::refusal::Refusal};

pub(crate) mod lookup;
pub(crate) mod manager;
pub(crate) mod neighbours;
pub(crate) mod policy;
pub(crate) mod refusal;
pub(crate) mod table;

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

/// Error of a route change or listing; each variant has its own remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The process lacks `CAP_NET_ADMIN`, which the administrator can grant.
    #[error(
        "cannot change the route to {0}: CAP_NET_ADMIN is missing; an administrator can grant it \
         (`setcap cap_net_admin+ep` on nicstripe-routes, or `AmbientCapabilities=CAP_NET_ADMIN` in a systemd unit)"
    )]
    NotPermitted(IpAddr),
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
        "cannot add a route to {0}: limit of {MAX_ROUTES} routes per process or {MAX_RECORDS} in total reached"
    )]
    TooMany(IpAddr),
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
    Helper(#[source] io::Error),
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

impl RouteError {
    pub(crate) fn kernel(route: &HostRoute, source: io::Error) -> Self {
        Self::Kernel {
            destination: route.destination,
            interface: route.interface,
            source,
        }
    }
}

impl From<LedgerError> for RouteError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Io { path, source } => Self::Ledger { path, source },
            LedgerError::Locked { path, waited } => Self::Locked { path, waited },
        }
    }
}

/// Protocol number that marks nicstripe's routes: 83 (0x53), which neither the kernel nor iproute2
/// assigns.
pub(crate) const ROUTE_PROTOCOL: u8 = 83;

/// Maximum number of routes of one process, so that a hostile peer cannot fill the routing table
/// (picked by eye: four sessions with four cables).
pub const MAX_ROUTES: usize = 16;

/// Maximum number of routes of all processes on a machine, so that no user can fill the routing
/// table (picked by eye).
pub(crate) const MAX_RECORDS: usize = 256;
