//! Temporary MTU changes: their errors and limits. `manager` makes, records and undoes them.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

use crate::{interface::InterfaceIndex, ledger::LedgerError};

pub(crate) mod manager;

/// Temporary MTU change of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedMtu {
    /// Index of the changed interface.
    pub interface: InterfaceIndex,
    /// Name of the changed interface.
    pub name: String,
    /// Changed MTU in bytes: the current one or, after a restore, the one that was replaced.
    pub now: u32,
    /// MTU in bytes before nicstripe changed it.
    pub was: u32,
    /// ID of the process that made the change; `None` if it has ended.
    pub owner: Option<u32>,
}

/// Error of an MTU change or restore; each variant has its own remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MtuError {
    /// The process lacks `CAP_NET_ADMIN`, or the helper's caller does.
    #[error("cannot change the MTU of interface {0}: root or CAP_NET_ADMIN required")]
    NotPermitted(InterfaceIndex),
    /// No interface has the requested index.
    #[error("cannot change the MTU of interface {0}: no such interface")]
    NoInterface(InterfaceIndex),
    /// The interface has no cable: loopback, bridge, tunnel, Wi-Fi and similar.
    #[error("cannot change the MTU of interface {0}: not a physical interface")]
    NotACable(InterfaceIndex),
    /// The change would affect other interfaces: this one is a port, or others are on top of it.
    #[error("cannot change the MTU of interface {0}: other interfaces use it")]
    Shared(InterfaceIndex),
    /// The MTU is outside [`MIN_MTU`] to [`MAX_MTU`], or outside the driver's range.
    #[error(
        "invalid MTU {mtu} of interface {interface}: expected {MIN_MTU} to {MAX_MTU}, and at most the card's maximum"
    )]
    OutOfRange {
        /// Index of the interface whose MTU was to be changed.
        interface: InterfaceIndex,
        /// Requested MTU in bytes.
        mtu: u32,
    },
    /// Another live process has changed the MTU of this interface.
    #[error("cannot change the MTU of interface {0}: another session has changed it")]
    HeldElsewhere(InterfaceIndex),
    /// The maximum number of interfaces with a changed MTU is reached.
    #[error("cannot change the MTU of interface {0}: limit of {MAX_RECORDS} in total reached")]
    TooMany(InterfaceIndex),
    /// The helper is shutting down and makes no more changes.
    #[error("cannot change the MTU of interface {0}: the helper is ending")]
    Ending(InterfaceIndex),
    /// The kernel rejected the MTU for another reason.
    #[error("cannot give interface {interface} an MTU of {mtu}")]
    Kernel {
        /// Index of the interface whose MTU was to be changed.
        interface: InterfaceIndex,
        /// Requested MTU in bytes.
        mtu: u32,
        /// Error that the kernel returned.
        source: io::Error,
    },
    /// The interfaces cannot be listed.
    #[error("cannot list interfaces to change an MTU")]
    List(#[source] io::Error),
    /// The record file cannot be read or written. No MTU is changed without a record.
    #[error("cannot keep the record of MTUs in {}", path.display())]
    Ledger {
        /// Path of the record file or of its directory.
        path: PathBuf,
        /// I/O error that the operating system returned.
        source: io::Error,
    },
    /// Another process holds the lock on the records; it is probably stopped or hangs.
    #[error("cannot lock the record of MTUs {} within {} s: another process holds it", path.display(), waited.as_secs_f64())]
    Locked {
        /// Path of the lock file.
        path: PathBuf,
        /// Time that this process waited for the lock.
        waited: Duration,
    },
    /// The helper does not run, has ended, or has an incompatible version.
    #[error("the MTU helper does not answer")]
    Helper(#[source] io::Error),
}

impl From<LedgerError> for MtuError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Io { path, source } => Self::Ledger { path, source },
            LedgerError::Locked { path, waited } => Self::Locked { path, waited },
        }
    }
}

/// Minimum MTU in bytes. With a smaller one the kernel removes an interface's IPv6 addresses
/// (`addrconf_notify`, net/ipv6/addrconf.c; RFC 8200).
pub const MIN_MTU: u32 = 1280;

/// Maximum MTU in bytes: the length of the largest IPv4 packet.
pub const MAX_MTU: u32 = 65_535;

/// Maximum number of interfaces on a machine with a changed MTU (picked by eye).
pub(crate) const MAX_RECORDS: usize = 64;
