//! The MTU of an interface: changed for a while, recorded before it is, and put back whoever dies.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tracing::info;

use crate::{
    enumerate::{IFINFO_LEN, IFLA_MTU, RTM_NEWLINK, interfaces},
    interface::{Interface, InterfaceIndex, InterfaceKind},
    netlink::{Netlink, Request},
    route_ledger::{self, Ledger, LedgerError, Owner, Recorded, namespace},
};

/// Changes MTUs and sees to it that none stays changed past its owner.
///
/// What an interface had is recorded in the state directory, with the process that changes it, *before* the kernel is asked, so that
/// whatever is killed when, [`clean`](Self::clean) finds what is left. An MTU that somebody else has changed meanwhile is left as it is.
///
/// Changing one needs `CAP_NET_ADMIN`. Each call acts on the calling thread's network namespace, takes about a millisecond, and waits at
/// most 2 s for another process in the middle of one; drivers of some cards take the link down for a moment. Only one owner may change an
/// interface at a time. For what outlives a kill at once there is [`RouteHelper::set_mtu`](crate::RouteHelper::set_mtu).
#[derive(Debug)]
pub struct Mtus {
    directory: PathBuf,
    owner: Owner,
}

/// An interface whose MTU is changed, or was left so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedMtu {
    /// Which one.
    pub interface: InterfaceIndex,
    /// Its name.
    pub name: String,
    /// What it has at present, or had until it was put back.
    pub now: u32,
    /// What it had before.
    pub was: u32,
    /// The process that changed it; `None` once that is gone.
    pub owner: Option<u32>,
}

/// One changed interface and the process that changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MtuRecord {
    owner: Owner,
    /// Inode of the network namespace that the interface is in.
    namespace: u64,
    interface: InterfaceIndex,
    /// Index and namespace may be given again; with its name and address it is the same interface.
    name: String,
    mac: Option<String>,
    /// What is put back.
    was: u32,
    /// What we set: at most the last and the one before, as the record is written before the kernel is asked.
    set: Vec<u32>,
}

impl Recorded for MtuRecord {
    const FILE: &'static str = "mtus.jsonl";
    const NEW_FILE: &'static str = "mtus.jsonl.new";
}

impl Mtus {
    /// Opens the state directory, which is created if it is missing.
    pub fn open(state_dir: &Path) -> Result<Self, MtuError> {
        Ok(Self { directory: state_dir.to_owned(), owner: route_ledger::enter(state_dir)? })
    }

    /// Whether anything is recorded in a state directory, which may be missing. Cheap, for every start of a program.
    pub fn any_recorded(state_dir: &Path) -> bool {
        route_ledger::read::<MtuRecord>(state_dir).is_ok_and(|records| !records.is_empty())
    }

    /// Gives an interface another MTU, and returns the one that it had before this process changed it.
    ///
    /// Between [`MIN_MTU`] and [`MAX_MTU`], on cables only: see [`MtuError`] for what is refused.
    pub fn set(&self, interface: InterfaceIndex, mtu: u32) -> Result<u32, MtuError> {
        let mut ledger = Ledger::<MtuRecord>::open(&self.directory)?;
        let namespace = namespace()?;
        // What a dead process left is not what the interface had.
        settle(&mut ledger, namespace)?;
        let all = listed()?;
        let found = may_set(interface, mtu, &all)?;
        let before = ledger.records.clone();
        let position = ledger.records.iter().position(|record| record.namespace == namespace && record.is_about(found));
        let is_full = ledger.records.len() >= MAX_RECORDS;
        let was = match position.and_then(|position| ledger.records.get_mut(position)) {
            Some(record) if record.owner != self.owner => return Err(MtuError::HeldElsewhere { interface }),
            Some(record) => {
                record.set = record.set.last().copied().into_iter().chain([mtu]).collect();
                record.was
            }
            None if is_full => return Err(MtuError::TooMany { interface }),
            None => {
                ledger.records.push(self.record(namespace, found, mtu));
                found.mtu
            }
        };
        ledger.save()?;
        let changed = set_link(interface, mtu);
        if changed.is_err() {
            ledger.records = before;
            ledger.save()?;
        }
        changed.map(|()| was)
    }

    /// Puts back what an interface had before [`set`](Self::set). Returns whether there was something to put back: it may be gone, have
    /// its MTU already, or one that somebody else gave it.
    pub fn restore(&self, interface: InterfaceIndex) -> Result<bool, MtuError> {
        let mut ledger = Ledger::<MtuRecord>::open(&self.directory)?;
        let namespace = namespace()?;
        let is_it = |record: &MtuRecord| (&record.owner, record.namespace, record.interface) == (&self.owner, namespace, interface);
        let Some(position) = ledger.records.iter().position(is_it) else { return Ok(false) };
        let changed = put_back(&ledger.records[position], &listed()?)?;
        ledger.records.remove(position);
        ledger.save()?;
        Ok(changed.is_some())
    }

    /// Puts back what dead processes have left in the calling thread's network namespace, and returns it. For the start of any nicstripe.
    pub fn clean(&self) -> Result<Vec<ChangedMtu>, MtuError> {
        let mut ledger = Ledger::<MtuRecord>::open(&self.directory)?;
        settle(&mut ledger, namespace()?)
    }

    /// Lists the interfaces of the calling thread's network namespace that are recorded as changed and are.
    pub fn list(&self) -> Result<Vec<ChangedMtu>, MtuError> {
        let namespace = namespace()?;
        let records = route_ledger::read::<MtuRecord>(&self.directory)?;
        let all = listed()?;
        let here = records.iter().filter(|record| record.namespace == namespace && !record.owner.is_of_another_boot());
        Ok(here.filter_map(|record| record.found_changed(&all)).collect())
    }

    fn record(&self, namespace: u64, found: &Interface, mtu: u32) -> MtuRecord {
        let (name, mac) = (found.name.to_string(), found.mac.map(|mac| mac.to_string()));
        MtuRecord { owner: self.owner.clone(), namespace, interface: found.index, name, mac, was: found.mtu, set: vec![mtu] }
    }
}

impl MtuRecord {
    fn is_about(&self, interface: &Interface) -> bool {
        let mac = interface.mac.map(|mac| mac.to_string());
        (self.interface, &self.name, &self.mac) == (interface.index, &interface.name.to_string(), &mac)
    }

    /// The interface, if it is there and has an MTU that was set by us and is not its own.
    fn found_changed(&self, all: &[Interface]) -> Option<ChangedMtu> {
        let found = all.iter().find(|interface| self.is_about(interface))?;
        let is_changed = found.mtu != self.was && self.set.contains(&found.mtu);
        is_changed.then(|| ChangedMtu {
            interface: self.interface,
            name: self.name.clone(),
            now: found.mtu,
            was: self.was,
            owner: self.owner.is_alive().then_some(self.owner.pid),
        })
    }
}

/// Puts back what dead owners have left in this namespace. What cannot be put back stays recorded, and is an error.
fn settle(ledger: &mut Ledger<'_, MtuRecord>, namespace: u64) -> Result<Vec<ChangedMtu>, MtuError> {
    let (dead, mut kept): (Vec<_>, Vec<_>) = ledger.records.drain(..).partition(|record| !record.owner.is_alive());
    if dead.is_empty() {
        ledger.records = kept;
        return Ok(Vec::new());
    }
    let all = listed()?;
    let (mut restored, mut failed) = (Vec::new(), None);
    for record in dead {
        if record.owner.is_of_another_boot() {
            continue;
        }
        if record.namespace != namespace {
            // For whoever starts there; namespaces end without a word, so not for ever.
            if kept.len() < MAX_RECORDS / 2 {
                kept.push(record);
            }
            continue;
        }
        match put_back(&record, &all) {
            Ok(changed) => restored.extend(changed),
            Err(error) => {
                failed.get_or_insert(error);
                kept.push(record);
            }
        }
    }
    ledger.records = kept;
    ledger.save()?;
    for ChangedMtu { name, now, was, .. } in &restored {
        info!(interface = name, now, was, "put back an MTU whose owner is gone");
    }
    failed.map_or(Ok(restored), Err)
}

/// Puts back what a record says, where it is still as the record says. Returns what was changed.
fn put_back(record: &MtuRecord, all: &[Interface]) -> Result<Option<ChangedMtu>, MtuError> {
    let Some(changed) = record.found_changed(all) else { return Ok(None) };
    match set_link(record.interface, record.was) {
        Err(MtuError::NoInterface { .. }) => Ok(None),
        done => done.map(|()| Some(changed)),
    }
}

/// Decides whether an interface may be given an MTU at all.
fn may_set(interface: InterfaceIndex, mtu: u32, all: &[Interface]) -> Result<&Interface, MtuError> {
    let found = all.iter().find(|known| known.index == interface).ok_or(MtuError::NoInterface { interface })?;
    // A bridge never again follows its ports once its MTU was set.
    if !matches!(found.kind, InterfaceKind::Ethernet | InterfaceKind::Veth | InterfaceKind::Bond | InterfaceKind::Vlan) {
        return Err(MtuError::NotACable { interface });
    }
    // The kernel changes those along, and would not change them back.
    if found.master.is_some() || all.iter().any(|upper| upper.lower == Some(interface)) {
        return Err(MtuError::Shared { interface });
    }
    if !(MIN_MTU..=MAX_MTU).contains(&mtu) {
        return Err(MtuError::OutOfRange { interface, mtu });
    }
    Ok(found)
}

fn listed() -> Result<Vec<Interface>, MtuError> {
    interfaces().map_err(|error| MtuError::List(io::Error::other(error)))
}

/// Has the kernel change it.
fn set_link(interface: InterfaceIndex, mtu: u32) -> Result<(), MtuError> {
    let mut header = [0; IFINFO_LEN];
    header[4..8].copy_from_slice(&interface.0.to_ne_bytes());
    let request = Request::new(RTM_NEWLINK, &header).attribute(IFLA_MTU, &mtu.to_ne_bytes());
    let changed = Netlink::route().and_then(|mut netlink| netlink.command(&request, 0));
    changed.map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => MtuError::NotPermitted { interface },
        Some(libc::ENODEV) => MtuError::NoInterface { interface },
        // EINVAL: more or less than the driver takes. ERANGE: more than the interface below has.
        Some(libc::EINVAL | libc::ERANGE) => MtuError::OutOfRange { interface, mtu },
        _ => MtuError::Kernel { interface, mtu, source },
    })
}

/// Why an MTU cannot be changed or put back, by who must act.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MtuError {
    /// The process, or the helper for this caller, lacks the right.
    #[error("cannot change the MTU of interface {interface}: that takes root or CAP_NET_ADMIN")]
    NotPermitted {
        /// The interface.
        interface: InterfaceIndex,
    },
    /// The interface is gone.
    #[error("cannot change the MTU of interface {interface}: there is no such interface")]
    NoInterface {
        /// The interface.
        interface: InterfaceIndex,
    },
    /// Loopback, a bridge, a tunnel, Wi-Fi and the like.
    #[error("cannot change the MTU of interface {interface}: it is no cable")]
    NotACable {
        /// The interface.
        interface: InterfaceIndex,
    },
    /// Other interfaces would be changed along: it is a port of one, or others stand on it.
    #[error("cannot change the MTU of interface {interface}: other interfaces go by it")]
    Shared {
        /// The interface.
        interface: InterfaceIndex,
    },
    /// Too small or too large, for us or for the driver.
    #[error("invalid MTU {mtu} of interface {interface}: expected {MIN_MTU} to {MAX_MTU}, and no more than the card takes")]
    OutOfRange {
        /// The interface.
        interface: InterfaceIndex,
        /// What was asked for.
        mtu: u32,
    },
    /// Another living process has changed it.
    #[error("cannot change the MTU of interface {interface}: another session has changed it")]
    HeldElsewhere {
        /// The interface.
        interface: InterfaceIndex,
    },
    /// There are as many changed interfaces as there may be.
    #[error("cannot change the MTU of interface {interface}: {MAX_RECORDS} in all are the most allowed")]
    TooMany {
        /// The interface.
        interface: InterfaceIndex,
    },
    /// The helper was asked to end, and changes nothing any more.
    #[error("cannot change the MTU of interface {interface}: the helper is ending")]
    Ending {
        /// The interface.
        interface: InterfaceIndex,
    },
    /// The kernel refused for another reason.
    #[error("cannot give interface {interface} an MTU of {mtu}")]
    Kernel {
        /// The interface.
        interface: InterfaceIndex,
        /// What it was to have.
        mtu: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The interfaces cannot be listed.
    #[error("cannot list interfaces to change an MTU")]
    List(#[source] io::Error),
    /// The file of records cannot be read or written. Without a record no MTU is changed.
    #[error("cannot keep the record of MTUs in {}", path.display())]
    Ledger {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another process holds the records locked, and is stopped or hangs.
    #[error("cannot lock the record of MTUs {} within {} s: another process holds it", path.display(), waited.as_secs_f64())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The helper does not run, has ended, or is of another version.
    #[error("the helper that changes MTUs does not answer")]
    Helper {
        /// What the operating system said.
        source: io::Error,
    },
}

impl From<LedgerError> for MtuError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Io { path, source } => Self::Ledger { path, source },
            LedgerError::Locked { path, waited } => Self::Locked { path, waited },
        }
    }
}

/// The least MTU: below it the kernel takes an interface's IPv6 addresses away (`addrconf_notify`, net/ipv6/addrconf.c; RFC 8200).
pub const MIN_MTU: u32 = 1280;
/// The greatest MTU: the largest IPv4 packet.
pub const MAX_MTU: u32 = 65_535;

/// How many interfaces may be changed at a time on a machine (picked by eye).
const MAX_RECORDS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, kind: InterfaceKind) -> Interface {
        Interface::new(InterfaceIndex(index), format!("eth{index}").parse().unwrap(), kind)
    }

    fn refusal(mtu: u32, change: impl FnOnce(&mut Interface)) -> String {
        let mut changed = interface(1, InterfaceKind::Ethernet);
        change(&mut changed);
        may_set(InterfaceIndex(1), mtu, &[changed]).unwrap_err().to_string()
    }

    #[test]
    fn only_cables_that_nothing_else_goes_by_are_changed() {
        let cable = [interface(1, InterfaceKind::Ethernet)];
        assert!(may_set(InterfaceIndex(1), 9000, &cable).is_ok());
        assert!(refusal(9000, |changed| changed.kind = InterfaceKind::Bridge).ends_with("no cable"));
        assert!(refusal(9000, |changed| changed.kind = InterfaceKind::Loopback).ends_with("no cable"));
        assert!(refusal(9000, |changed| changed.master = Some(InterfaceIndex(2))).ends_with("go by it"));
        assert!(refusal(9000, |changed| changed.index = InterfaceIndex(2)).ends_with("no such interface"));
        let vlan = Interface { lower: Some(InterfaceIndex(1)), ..interface(2, InterfaceKind::Vlan) };
        let both = [cable[0].clone(), vlan];
        assert!(matches!(may_set(InterfaceIndex(1), 9000, &both), Err(MtuError::Shared { .. })));
        assert!(may_set(InterfaceIndex(2), 1400, &both).is_ok());
    }

    #[test]
    fn ipv6_is_never_taken_from_an_interface() {
        for mtu in [0, 68, MIN_MTU - 1, MAX_MTU + 1, u32::MAX] {
            assert!(refusal(mtu, |_| ()).contains(&format!("invalid MTU {mtu}")));
        }
        assert!(may_set(InterfaceIndex(1), MIN_MTU, &[interface(1, InterfaceKind::Veth)]).is_ok());
    }

    #[test]
    fn what_somebody_else_changed_is_not_ours_to_put_back() {
        let record = MtuRecord {
            owner: Owner::current().unwrap(),
            namespace: 1,
            interface: InterfaceIndex(1),
            name: "eth1".to_owned(),
            mac: None,
            was: 1500,
            set: vec![4000, 9000],
        };
        let with = |mtu| Interface { mtu, ..interface(1, InterfaceKind::Ethernet) };
        let changed = |found: Interface| record.found_changed(&[found]).map(|changed| changed.now);
        // Killed between the record and the kernel, the interface has the one or the other.
        assert_eq!([1500, 4000, 9000, 2000].map(|mtu| changed(with(mtu))), [None, Some(4000), Some(9000), None]);
        assert_eq!(changed(Interface { name: "eth9".parse().unwrap(), ..with(9000) }), None);
        let mac = Some(crate::MacAddress([2; 6]));
        assert_eq!(changed(Interface { mac, ..with(9000) }), None, "another card in its place");
    }
}
