//! Buses between a card and the processor.

use crate::facts::{
    interface::BusHop,
    limits::MOST_HOPS,
    system::System,
    text::{is_numbered, last, number32, plain},
};

/// Lists the devices from a card upwards, at most 16. `device` is the card's path below
/// `/sys/devices`.
pub(crate) fn hops(system: &dyn System, device: &str) -> Vec<BusHop> {
    ancestors(device)
        .filter_map(|path| hop(system, path))
        .take(MOST_HOPS)
        .collect()
}

/// Returns the path of a device and those of the devices above it, below `/sys/devices`.
pub(crate) fn ancestors(device: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(device), |path| Some(path.rsplit_once('/')?.0))
        .take_while(|path| path.starts_with("/sys/devices/"))
        .take(MOST_LEVELS)
}

fn hop(system: &dyn System, path: &str) -> Option<BusHop> {
    let address = last(path);
    let value = |file| system.read(&format!("{path}/{file}"));
    let mut hop = BusHop {
        address: plain(address)?,
        ..BusHop::default()
    };
    if is_pci_function(address) {
        hop.kind = "pci".to_owned();
        hop.lane_mts = value("current_link_speed").and_then(|text| lane_rate(&text));
        hop.lane_max_mts = value("max_link_speed").and_then(|text| lane_rate(&text));
        hop.lanes = value("current_link_width").and_then(|text| lanes(&text));
        hop.lanes_max = value("max_link_width").and_then(|text| lanes(&text));
    } else if let (Some(speed), Some(_)) = (value("speed"), value("busnum")) {
        hop.kind = "usb".to_owned();
        hop.usb_mbps = usb_rate(&speed);
    } else if is_numbered(address, "virtio") {
        hop.kind = "virtio".to_owned();
    } else {
        let subsystem = system.follow(&format!("{path}/subsystem"))?;
        let kind = last(&subsystem);
        hop.kind = OTHER_BUSES.contains(&kind).then(|| kind.to_owned())?;
    }
    Some(hop)
}

/// Returns true for the address of a PCI function, such as `0000:03:00.0`. A domain can have more
/// than four digits.
fn is_pci_function(address: &str) -> bool {
    let is_hex = |text: &str, least| {
        text.len() >= least && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let parts = || {
        let (domain, rest) = address.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        Some([(domain, 4), (bus, 2), (device, 2), (function, 1)])
    };
    parts().is_some_and(|parts| parts.into_iter().all(|(text, least)| is_hex(text, least)))
}

/// Parses the rate of a PCI Express lane, such as `8.0 GT/s PCIe`, into MT/s.
fn lane_rate(text: &str) -> Option<u32> {
    let (rate, unit) = text.trim().split_once(' ')?;
    let rate: f64 = rate.parse().ok()?;
    // The cast saturates, and converts NaN to 0.
    let rate = (rate * 1000.0).round() as u32;
    (unit.starts_with("GT/s") && rate > 0).then_some(rate)
}

/// Parses a number of PCI Express lanes. 0 and 255 mean that it is unknown.
fn lanes(text: &str) -> Option<u32> {
    number32(text).filter(|lanes| (1..255).contains(lanes))
}

/// Parses the rate of a USB device in Mbit/s. `1.5` becomes 1.
fn usb_rate(text: &str) -> Option<u32> {
    let whole = text.trim().split('.').next()?;
    number32(whole).filter(|rate| *rate > 0)
}

/// Runs the parsers of this module on one text, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse(text: &str) {
    let _ = (lane_rate(text), lanes(text), usb_rate(text));
    assert!(!is_pci_function(text) || text.len() >= 12);
    assert!(ancestors(text).count() <= MOST_LEVELS);
}

/// Buses whose devices have no rate in sysfs, by their subsystems.
const OTHER_BUSES: [&str; 6] = [
    "thunderbolt",
    "platform",
    "vmbus",
    "xen",
    "sdio",
    "mdio_bus",
];
/// Maximum number of directories between a card and `/sys/devices` (picked by eye).
const MOST_LEVELS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_lanes_and_ports_are_numbers() {
        for (text, expected) in [
            ("8.0 GT/s PCIe\n", Some(8000)),
            ("2.5 GT/s PCIe\n", Some(2500)),
            ("16 GT/s\n", Some(16_000)),
            ("Unknown\n", None),
            ("Unknown speed\n", None),
            ("nan GT/s", None),
        ] {
            assert_eq!(lane_rate(text), expected, "{text:?}");
        }
        assert_eq!(
            ["4\n", "0\n", "255\n", "x"].map(lanes),
            [Some(4), None, None, None]
        );
        assert_eq!(
            ["5000\n", "1.5\n", "480", ""].map(usb_rate),
            [Some(5000), Some(1), Some(480), None]
        );
    }

    #[test]
    fn pci_functions_are_known_by_their_addresses() {
        assert!(is_pci_function("0000:03:00.0") && is_pci_function("10000:e1:00.0"));
        for other in [
            "pci0000:00",
            "2-1:1.0",
            "0000:03:00",
            "usb1",
            "",
            "0000::00.0",
        ] {
            assert!(!is_pci_function(other), "{other}");
        }
        let up: Vec<_> = ancestors("/sys/devices/a/b").collect();
        assert_eq!(up, ["/sys/devices/a/b", "/sys/devices/a"]);
        assert_eq!(ancestors("/sys/class/net/eth0").count(), 0);
    }
}
