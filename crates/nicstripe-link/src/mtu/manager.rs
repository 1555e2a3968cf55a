//! Temporary MTU changes, recorded in advance so that they are restored even if their owner is
//! killed.

use std::{
    io,
    path::{Path, PathBuf},
    slice,
};

use nicstripe_netlink::{Netlink, Request};
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::{
    interface::{
        Interface, InterfaceIndex, InterfaceKind,
        enumerate::{IFINFO_LEN, interfaces},
    },
    ledger::{self, Ledger, Owner, Recorded, Seen, namespace},
    mtu::{ChangedMtu, MAX_MTU, MAX_RECORDS, MIN_MTU, MtuError},
};

/// Manager of temporary MTU changes, which are restored at the latest after their owner has ended.
///
/// The state directory records the original MTU and the owning process *before* each change. After
/// a kill at any point, [`clean`](Self::clean) of the same user or of root restores the remaining
/// changes. If another program has changed the MTU since, it keeps that MTU.
///
/// Changes need `CAP_NET_ADMIN`. Each call acts on the calling thread's network namespace and takes
/// about a millisecond. It waits at most 2 s for another process of the same user that holds the
/// lock, and never for other users. Some drivers take the link down briefly. Only one owner may
/// change an interface at a time. For a change that is restored immediately after a kill, use
/// [`RouteHelper::set_mtu`](crate::RouteHelper::set_mtu).
#[derive(Debug)]
pub struct Mtus {
    directory: PathBuf,
    owner: Owner,
}

/// Record of one interface with a changed MTU, and of the process that changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MtuRecord {
    owner: Owner,
    /// Inode number of the interface's network namespace.
    namespace: u64,
    interface: InterfaceIndex,
    /// Name of the interface. Index and namespace can be reused; name and MAC address confirm that
    /// it is the same interface.
    name: String,
    mac: Option<String>,
    /// Original MTU in bytes, to be restored.
    was: u32,
    /// MTUs in bytes that the owner has set: at most the last two, because the record is written
    /// before the change.
    set: Vec<u32>,
}

impl Recorded for MtuRecord {
    const KIND: &'static str = "mtus";
}

impl Mtus {
    /// Opens the state directory, which the first change creates if it is missing.
    pub fn open(state_dir: &Path) -> Result<Self, MtuError> {
        Ok(Self {
            directory: state_dir.to_owned(),
            owner: ledger::this_process()?,
        })
    }

    /// Returns true if the state directory holds a record of an MTU change, and false if the
    /// directory is missing. Cheap enough for every program start.
    pub fn any_recorded(state_dir: &Path) -> bool {
        Seen::<MtuRecord>::read(state_dir, None).is_ok_and(|seen| !seen.records.is_empty())
    }

    /// Changes the MTU of an interface, and returns its original MTU, from before this process's
    /// first change. Both are in bytes.
    ///
    /// # Errors
    ///
    /// [`MtuError::OutOfRange`] outside [`MIN_MTU`] to [`MAX_MTU`], [`MtuError::NotACable`] for an
    /// interface without a cable, and other variants of [`MtuError`].
    pub fn set(&self, interface: InterfaceIndex, mtu: u32) -> Result<u32, MtuError> {
        let mut ledger = Ledger::<MtuRecord>::open(&self.directory)?;
        let namespace = namespace()?;
        // Restore first: an MTU left by a dead process is not the original one.
        settle(&mut ledger, namespace)?;
        // A failure concerns another interface, or shows below as a change that is still held.
        let _ = self.settle_others(namespace);
        ledger.read_others()?;
        let all = listed()?;
        let found = may_set(interface, mtu, &all)?;
        if is_held(&ledger, namespace, found) {
            return Err(MtuError::HeldElsewhere(interface));
        }
        let before = ledger.records.clone();
        let position = ledger
            .records
            .iter()
            .position(|record| record.namespace == namespace && record.is_about(found));
        let others = ledger.others.records.iter();
        let others = others.filter(|record| record.owner.is_alive()).count();
        let is_full = ledger.records.len() + others >= MAX_RECORDS;
        let was = match position.and_then(|position| ledger.records.get_mut(position)) {
            Some(record) if record.owner != self.owner => {
                return Err(MtuError::HeldElsewhere(interface));
            }
            Some(record) => {
                let last = record.set.last().copied();
                record.set = last.into_iter().chain([mtu]).collect();
                record.was
            }
            None if is_full => return Err(MtuError::TooMany(interface)),
            None => {
                ledger.records.push(self.record(namespace, found, mtu));
                found.mtu
            }
        };
        ledger.save()?;
        let changed = match position {
            Some(_) => Ok(()),
            None => confirm(&mut ledger, namespace, found),
        };
        let changed = changed.and_then(|()| set_link(interface, mtu));
        if changed.is_err() {
            ledger.records = before;
            ledger.save()?;
        }
        changed.map(|()| was)
    }

    /// Restores the MTU from before this process's first [`set`](Self::set), and returns true if
    /// that changed it. Returns false if the interface is gone, already has its original MTU, or
    /// has an MTU that another program set.
    pub fn restore(&self, interface: InterfaceIndex) -> Result<bool, MtuError> {
        let mut ledger = Ledger::<MtuRecord>::open(&self.directory)?;
        let namespace = namespace()?;
        let is_it = |record: &MtuRecord| {
            (&record.owner, record.namespace, record.interface)
                == (&self.owner, namespace, interface)
        };
        let Some(position) = ledger.records.iter().position(is_it) else {
            return Ok(false);
        };
        let changed = put_back(&ledger.records[position], &listed()?)?;
        ledger.records.remove(position);
        ledger.save()?;
        Ok(changed.is_some())
    }

    /// Restores the MTUs that dead processes of this user changed in the calling thread's network
    /// namespace, and returns these changes; as root, those of all users. Every nicstripe process
    /// calls this at startup.
    pub fn clean(&self) -> Result<Vec<ChangedMtu>, MtuError> {
        if !self.directory.exists() {
            return Ok(Vec::new());
        }
        let namespace = namespace()?;
        let own = settle(&mut Ledger::<MtuRecord>::open(&self.directory)?, namespace);
        let others = self.settle_others(namespace);
        let mut restored = own?;
        restored.extend(others?);
        Ok(restored)
    }

    /// Restores, as root, the MTUs that dead processes of other users changed. A user whose lock is
    /// held is left for later.
    fn settle_others(&self, namespace: u64) -> Result<Vec<ChangedMtu>, MtuError> {
        let (mut restored, mut failed) = (Vec::new(), None);
        for mut ledger in Ledger::<MtuRecord>::open_others(&self.directory)? {
            match settle(&mut ledger, namespace) {
                Ok(changed) => restored.extend(changed),
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        failed.map_or(Ok(restored), Err)
    }

    /// Lists the recorded MTU changes in the calling thread's network namespace that are still in
    /// effect.
    pub fn list(&self) -> Result<Vec<ChangedMtu>, MtuError> {
        let namespace = namespace()?;
        let seen = Seen::<MtuRecord>::read(&self.directory, None)?;
        let all = listed()?;
        let own = seen
            .records
            .iter()
            .filter(|record| record.namespace == namespace && !record.owner.is_of_another_boot());
        Ok(own
            .filter_map(|record| record.found_changed(&all))
            .collect())
    }

    fn record(&self, namespace: u64, found: &Interface, mtu: u32) -> MtuRecord {
        let (name, mac) = (found.name.to_string(), found.mac.map(|mac| mac.to_string()));
        MtuRecord {
            owner: self.owner.clone(),
            namespace,
            interface: found.index,
            name,
            mac,
            was: found.mtu,
            set: vec![mtu],
        }
    }
}

impl MtuRecord {
    fn is_about(&self, interface: &Interface) -> bool {
        let mac = interface.mac.map(|mac| mac.to_string());
        (self.interface, &self.name, &self.mac)
            == (interface.index, &interface.name.to_string(), &mac)
    }

    /// Returns the change if it is still in effect: the interface exists, and its MTU is one that
    /// the owner set and differs from the original.
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

/// Returns true if another user holds the MTU of an interface: a live process, or one that has died
/// and whose change is still in effect.
fn is_held(ledger: &Ledger<'_, MtuRecord>, namespace: u64, found: &Interface) -> bool {
    let holds = |record: &MtuRecord| {
        record.namespace == namespace
            && record.is_about(found)
            && !record.owner.is_of_another_boot()
            && (record.owner.is_alive() || record.found_changed(slice::from_ref(found)).is_some())
    };
    !ledger.others.is_complete || ledger.others.records.iter().any(holds)
}

/// Checks, with the new record of an interface written, that no other user holds its MTU.
///
/// Users share no lock. Each writes its own record before it reads those of the others, so that of
/// two users at least one finds the record of the other. The MTU must be the recorded one: another
/// user may have restored it since.
fn confirm(
    ledger: &mut Ledger<'_, MtuRecord>,
    namespace: u64,
    found: &Interface,
) -> Result<(), MtuError> {
    ledger.read_others()?;
    let all = listed()?;
    let is_same = |now: &Interface| now.index == found.index && now.mtu == found.mtu;
    match all.iter().any(is_same) && !is_held(ledger, namespace, found) {
        true => Ok(()),
        false => Err(MtuError::HeldElsewhere(found.index)),
    }
}

/// Restores the MTUs that dead processes of the records' user changed in this namespace, and
/// returns these changes. If a restore fails, its record remains, and the first error is returned.
fn settle(ledger: &mut Ledger<'_, MtuRecord>, namespace: u64) -> Result<Vec<ChangedMtu>, MtuError> {
    let (dead, mut retained): (Vec<_>, Vec<_>) = ledger
        .records
        .drain(..)
        .partition(|record| !record.owner.is_alive());
    if dead.is_empty() {
        ledger.records = retained;
        return Ok(Vec::new());
    }
    let all = listed()?;
    let (mut restored, mut failed) = (Vec::new(), None);
    for record in dead {
        if record.owner.is_of_another_boot() {
            continue;
        }
        if record.namespace != namespace {
            // Keep the record for a process of that namespace. Namespaces end without notice, so
            // limit the number.
            if retained.len() < MAX_RECORDS / 2 {
                retained.push(record);
            }
            continue;
        }
        let is_taken = |other: &MtuRecord| {
            (other.namespace, other.interface) == (namespace, record.interface)
                && other.owner.is_alive()
        };
        // Another user has changed the MTU since, and restores it.
        if ledger.others.records.iter().any(is_taken) {
            continue;
        }
        match put_back(&record, &all) {
            Ok(changed) => restored.extend(changed),
            Err(error) => {
                failed.get_or_insert(error);
                retained.push(record);
            }
        }
    }
    ledger.records = retained;
    ledger.save()?;
    for ChangedMtu { name, now, was, .. } in &restored {
        info!(
            interface = name,
            now, was, "restored an MTU of a dead process"
        );
    }
    failed.map_or(Ok(restored), Err)
}

/// Restores the MTU of a record. Returns the change that it undid; `None` if the interface is gone
/// or no longer has an MTU that the owner set.
fn put_back(record: &MtuRecord, all: &[Interface]) -> Result<Option<ChangedMtu>, MtuError> {
    let Some(changed) = record.found_changed(all) else {
        return Ok(None);
    };
    match set_link(record.interface, record.was) {
        Err(MtuError::NoInterface { .. }) => Ok(None),
        done => done.map(|()| Some(changed)),
    }
}

fn may_set(interface: InterfaceIndex, mtu: u32, all: &[Interface]) -> Result<&Interface, MtuError> {
    let found = all
        .iter()
        .find(|known| known.index == interface)
        .ok_or(MtuError::NoInterface(interface))?;
    // A bridge with an explicit MTU never follows its ports again.
    if !matches!(
        found.kind,
        InterfaceKind::Ethernet | InterfaceKind::Veth | InterfaceKind::Bond | InterfaceKind::Vlan
    ) {
        return Err(MtuError::NotACable(interface));
    }
    // The kernel also changes the MTUs of dependent interfaces, and does not restore those.
    if found.master.is_some() || all.iter().any(|upper| upper.lower == Some(interface)) {
        return Err(MtuError::Shared(interface));
    }
    if !(MIN_MTU..=MAX_MTU).contains(&mtu) {
        return Err(MtuError::OutOfRange { interface, mtu });
    }
    Ok(found)
}

fn listed() -> Result<Vec<Interface>, MtuError> {
    interfaces().map_err(|error| MtuError::List(io::Error::other(error)))
}

fn set_link(interface: InterfaceIndex, mtu: u32) -> Result<(), MtuError> {
    let mut header = [0; IFINFO_LEN];
    header[4..8].copy_from_slice(&interface.0.to_ne_bytes());
    let request =
        Request::new(libc::RTM_NEWLINK, &header).attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
    let changed = Netlink::route().and_then(|mut netlink| netlink.command(&request, 0));
    changed.map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => MtuError::NotPermitted(interface),
        Some(libc::ENODEV) => MtuError::NoInterface(interface),
        // EINVAL: outside the driver's range. ERANGE: above the lower interface's MTU.
        Some(libc::EINVAL | libc::ERANGE) => MtuError::OutOfRange { interface, mtu },
        _ => MtuError::Kernel {
            interface,
            mtu,
            source,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, kind: InterfaceKind) -> Interface {
        Interface::new(
            InterfaceIndex(index),
            format!("eth{index}").parse().unwrap(),
            kind,
        )
    }

    fn refusal(mtu: u32, change: impl FnOnce(&mut Interface)) -> String {
        let mut changed = interface(1, InterfaceKind::Ethernet);
        change(&mut changed);
        may_set(InterfaceIndex(1), mtu, &[changed])
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn only_cables_that_nothing_else_goes_by_are_changed() {
        let cable = [interface(1, InterfaceKind::Ethernet)];
        assert!(may_set(InterfaceIndex(1), 9000, &cable).is_ok());
        assert!(
            refusal(9000, |changed| changed.kind = InterfaceKind::Bridge)
                .ends_with("not a physical interface")
        );
        assert!(
            refusal(9000, |changed| changed.kind = InterfaceKind::Loopback)
                .ends_with("not a physical interface")
        );
        assert!(
            refusal(9000, |changed| changed.master = Some(InterfaceIndex(2))).ends_with("use it")
        );
        assert!(
            refusal(9000, |changed| changed.index = InterfaceIndex(2))
                .ends_with("no such interface")
        );
        let vlan = Interface {
            lower: Some(InterfaceIndex(1)),
            ..interface(2, InterfaceKind::Vlan)
        };
        let both = [cable[0].clone(), vlan];
        assert!(matches!(
            may_set(InterfaceIndex(1), 9000, &both),
            Err(MtuError::Shared { .. })
        ));
        assert!(may_set(InterfaceIndex(2), 1400, &both).is_ok());
    }

    #[test]
    fn ipv6_is_never_taken_from_an_interface() {
        for mtu in [0, 68, MIN_MTU - 1, MAX_MTU + 1, u32::MAX] {
            assert!(refusal(mtu, |_| ()).contains(&format!("invalid MTU {mtu}")));
        }
        assert!(
            may_set(
                InterfaceIndex(1),
                MIN_MTU,
                &[interface(1, InterfaceKind::Veth)]
            )
            .is_ok()
        );
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
        let with = |mtu| Interface {
            mtu,
            ..interface(1, InterfaceKind::Ethernet)
        };
        let changed = |found: Interface| record.found_changed(&[found]).map(|changed| changed.now);
        // If the owner dies between record and change, the interface has one MTU or the other.
        assert_eq!(
            [1500, 4000, 9000, 2000].map(|mtu| changed(with(mtu))),
            [None, Some(4000), Some(9000), None]
        );
        assert_eq!(
            changed(Interface {
                name: "eth9".parse().unwrap(),
                ..with(9000)
            }),
            None
        );
        let mac = Some(crate::MacAddress([2; 6]));
        assert_eq!(
            changed(Interface { mac, ..with(9000) }),
            None,
            "replaced by another card"
        );
    }
}
