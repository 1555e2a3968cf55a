//! Interface properties that only sysfs reports, verified to be of the right network namespace.
//!
//! A mounted sysfs shows the namespace in which it was mounted. That may not be the caller's, and
//! may have interfaces of the same names. Each function here therefore compares the interface index
//! first.

use std::{fs, path::PathBuf};

use crate::interface::{InterfaceIndex, name::InterfaceName};

/// Device type of an interface (`DEVTYPE`), and its wireless flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceType {
    /// Value of `DEVTYPE`: `wlan`, `wwan`, `bridge` …; empty for ordinary cards, and if it cannot
    /// be read.
    pub(crate) name: String,
    /// True if the interface is a Wi-Fi device.
    pub(crate) wireless: bool,
}

/// Reads the device type of an interface; the default if sysfs is absent or shows another
/// namespace.
pub(crate) fn device_type(name: InterfaceName, index: InterfaceIndex) -> DeviceType {
    let read = || {
        let directory = directory(name)?;
        let uevent = fs::read_to_string(directory.join("uevent")).ok()?;
        let name = device_type_of(&uevent, index)?;
        let wireless = name == "wlan"
            || directory.join("phy80211").exists()
            || directory.join("wireless").exists();
        Some(DeviceType { name, wireless })
    };
    read().unwrap_or_default()
}

/// Reads the negotiated rate of an interface in Mbit/s, as its driver reports it.
pub(crate) fn speed(name: InterfaceName, index: InterfaceIndex) -> Option<u32> {
    let directory = directory(name)?;
    let read = |attribute| fs::read_to_string(directory.join(attribute)).ok();
    let same = read("ifindex")?.trim().parse() == Ok(index.0);
    let megabits = || read("speed")?.trim().parse().ok();
    same.then(megabits)?
}

/// Returns the `DEVTYPE` (empty if missing) in the text of a `uevent` file, if the file describes
/// interface `index`.
pub(crate) fn device_type_of(uevent: &str, index: InterfaceIndex) -> Option<String> {
    let value = |key: &str| {
        uevent
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    let same = value("IFINDEX")?.parse() == Ok(index.0);
    same.then(|| value("DEVTYPE").unwrap_or_default().to_owned())
}

fn directory(name: InterfaceName) -> Option<PathBuf> {
    let name = str::from_utf8(name.as_bytes()).ok()?;
    Some(PathBuf::from("/sys/class/net").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_type_counts_only_with_our_index() {
        let uevent = "DEVTYPE=wlan\nINTERFACE=wlan0\nIFINDEX=3\n";
        assert_eq!(
            device_type_of(uevent, InterfaceIndex(3)).as_deref(),
            Some("wlan")
        );
        assert_eq!(device_type_of(uevent, InterfaceIndex(30)), None);
        assert_eq!(
            device_type_of("INTERFACE=eth0\nIFINDEX=3\n", InterfaceIndex(3)).as_deref(),
            Some("")
        );
        assert_eq!(device_type_of("", InterfaceIndex(3)), None);
    }
}
