//! Interfaces as the kernel reports them, and the rule that selects those used by default.
//!
//! `enumerate` lists them and `events` follows their changes, both over netlink; `egress_limit`,
//! `line_rate`, `ethtool`, `ethtool_messages` and `sysfs` add what those messages lack. `sysctls` reads the settings
//! that matter with several cables in one subnet.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::interface::{
    address::InterfaceAddress,
    bond::Bond,
    enumerate::VLAN_DEPTH,
    name::{InterfaceName, MacAddress},
};

pub(crate) mod address;
pub(crate) mod bond;
pub(crate) mod counters;
pub(crate) mod egress_limit;
pub(crate) mod enumerate;
pub(crate) mod ethtool;
pub(crate) mod ethtool_messages;
pub(crate) mod ethtool_modes;
pub(crate) mod events;
pub(crate) mod genl;
mod line_rate;
pub(crate) mod name;
pub(crate) mod sysctls;
pub(crate) mod sysfs;

/// Interface of this machine, as the kernel reported it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// Kernel index. A rename does not change it, and the kernel does not reuse it until reboot.
    pub index: InterfaceIndex,
    /// Name of the interface, as `ip link` shows it.
    pub name: InterfaceName,
    /// Alternative names (`altname` of `ip link`), which users may type instead of the name.
    pub alternative_names: Vec<String>,
    /// MAC address; `None` if the hardware address is not six bytes long (tunnels) or is zero
    /// (loopback).
    pub mac: Option<MacAddress>,
    /// MTU: length of the largest IP packet that the interface sends, in bytes.
    pub mtu: u32,
    /// Kind of device: network card, bridge, tunnel and so on.
    pub kind: InterfaceKind,
    /// True if the administrator has enabled the interface (`ip link set up`).
    pub up: bool,
    /// True if the interface is [`up`](Self::up) and operational: a cable is plugged in and its far
    /// end is up.
    pub carrier: bool,
    /// Index of the bridge, bond or VRF that has this interface as a port.
    pub master: Option<InterfaceIndex>,
    /// Index of the lower interface of a VLAN or macvlan, with which it shares a cable. `None` for
    /// a veth, and if the lower interface is in another namespace.
    pub lower: Option<InterfaceIndex>,
    /// Usable addresses of the interface. Tentative, deprecated and duplicate IPv6 addresses are
    /// omitted.
    pub addresses: Vec<InterfaceAddress>,
    /// IPv6 addresses that duplicate address detection found at another machine (RFC 4862, section
    /// 5.4). The kernel does not use them.
    pub duplicates: Vec<IpAddr>,
    /// Negotiated line rate. `None` if unknown: many virtual interfaces have no rate, or report an
    /// arbitrary one, which is ignored.
    pub speed: Option<LineRate>,
    /// Rate limit of the root queueing discipline, in bits per second of Ethernet frames. Each
    /// frame counts with its header of 14 bytes, but without preamble, checksum and gap.
    ///
    /// `None` if there is no limit or it is unknown. Supports tbf, and htb if all leaf classes have
    /// one limit and the default class is a leaf. A limiter on a lower interface
    /// ([`lower`](Self::lower)) or on a port is reported for that interface.
    pub egress_limit: Option<LineRate>,
    /// Members and settings of a bond ([`InterfaceKind::Bond`]). The kernel derives the bond's
    /// [`speed`](Self::speed) from its members: the sum of the rates of those with carrier, or the
    /// rate of the active one.
    pub bond: Option<Bond>,
}

impl Interface {
    /// Creates the description of an interface that is up, with carrier and an MTU of 1500, and
    /// without other properties.
    ///
    /// For tests and simulations; [`interfaces`](crate::interfaces) reads real ones.
    pub fn new(index: InterfaceIndex, name: InterfaceName, kind: InterfaceKind) -> Self {
        Self {
            index,
            name,
            alternative_names: Vec::new(),
            mac: None,
            mtu: 1500,
            kind,
            up: true,
            carrier: true,
            master: None,
            lower: None,
            addresses: Vec::new(),
            duplicates: Vec::new(),
            speed: None,
            egress_limit: None,
            bond: None,
        }
    }

    /// Checks that a session may use this interface by default, and returns the reason if not.
    /// `all` is the list of interfaces that contains it.
    ///
    /// Checks the kind before the state, so that a Wi-Fi interface is reported as Wi-Fi even while
    /// it is down. An interface named by the user needs only [`usable`](Self::usable).
    pub fn candidate(&self, all: &[Interface]) -> Result<(), LeftOut> {
        match self.kind {
            InterfaceKind::Loopback => return Err(LeftOut::Loopback),
            InterfaceKind::Tunnel => return Err(LeftOut::Tunnel),
            InterfaceKind::WiFi => return Err(LeftOut::WiFi),
            InterfaceKind::Vrf | InterfaceKind::Other => return Err(LeftOut::NoCable),
            InterfaceKind::Bridge if !has_physical_port(self.index, all, BRIDGE_DEPTH) => {
                return Err(LeftOut::BridgeWithoutPhysicalPort);
            }
            InterfaceKind::Ethernet
            | InterfaceKind::Veth
            | InterfaceKind::Bridge
            | InterfaceKind::Bond
            | InterfaceKind::Vlan => {}
        }
        if let Some(master) = self.speaker(all) {
            return Err(LeftOut::PortOf(master.name));
        }
        self.usable()
    }

    /// Checks that the interface can carry IP traffic now: it is up, with carrier and an address.
    /// Returns the reason if not.
    pub fn usable(&self) -> Result<(), LeftOut> {
        if !self.up {
            return Err(LeftOut::Down);
        }
        if !self.carrier {
            return Err(LeftOut::NoCarrier);
        }
        if self.addresses.is_empty() {
            return Err(match self.duplicates.first() {
                Some(address) => LeftOut::Duplicate(*address),
                None => LeftOut::NoAddress,
            });
        }
        Ok(())
    }

    /// Returns the lowest interface below this VLAN or macvlan, whose cable it shares; `None` if
    /// there is none in `all`.
    pub fn card<'a>(&self, all: &'a [Interface]) -> Option<&'a Interface> {
        let below = |interface: &Interface| find(interface.lower?, all);
        let mut card = below(self)?;
        for _ in 0..VLAN_DEPTH {
            match below(card) {
                Some(lower) => card = lower,
                None => break,
            }
        }
        Some(card)
    }

    /// Returns true if `name` is the interface's name or one of its alternative names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.as_bytes() == name.as_bytes()
            || self.alternative_names.iter().any(|other| other == name)
    }

    /// Returns true if the interface has this address.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.ip == address)
    }

    /// Returns true if `remote` is on-link: it is in a prefix of this interface, so no router is
    /// needed. An IPv6 link-local address is on-link on every interface that has a link-local
    /// address.
    pub fn is_on_link(&self, remote: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.is_on_link(remote))
    }

    /// Returns the bridge or bond that owns the addresses of this port. Returns `None` for a port
    /// of a VRF, which keeps its own addresses.
    fn speaker<'a>(&self, all: &'a [Interface]) -> Option<&'a Interface> {
        let master = find(self.master?, all)?;
        (master.kind != InterfaceKind::Vrf).then_some(master)
    }
}

/// Returns true if the bridge has a physical port, directly or through at most `depth` nested
/// bridges.
fn has_physical_port(bridge: InterfaceIndex, all: &[Interface], depth: usize) -> bool {
    all.iter()
        .filter(|port| port.master == Some(bridge))
        .any(|port| match port.kind {
            InterfaceKind::Ethernet | InterfaceKind::Bond => true,
            InterfaceKind::Bridge => depth > 0 && has_physical_port(port.index, all, depth - 1),
            // A VLAN of a bridge depends on that bridge. A VLAN with an unknown lower interface is
            // assumed physical.
            InterfaceKind::Vlan => match port.lower.and_then(|lower| find(lower, all)) {
                Some(lower) if lower.kind == InterfaceKind::Bridge => {
                    depth > 0 && has_physical_port(lower.index, all, depth - 1)
                }
                Some(lower) => matches!(
                    lower.kind,
                    InterfaceKind::Ethernet | InterfaceKind::Bond | InterfaceKind::Vlan
                ),
                None => true,
            },
            InterfaceKind::Loopback
            | InterfaceKind::Veth
            | InterfaceKind::Tunnel
            | InterfaceKind::WiFi
            | InterfaceKind::Vrf
            | InterfaceKind::Other => false,
        })
}

fn find(index: InterfaceIndex, all: &[Interface]) -> Option<&Interface> {
    all.iter().find(|interface| interface.index == index)
}

/// Index by which the kernel identifies an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InterfaceIndex(pub u32);

impl fmt::Display for InterfaceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Line rate or rate limit of an interface in bits per second, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineRate(pub u64);

/// Kind of an interface, for finding cables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InterfaceKind {
    /// The loopback interface, `lo`.
    Loopback,
    /// Network card: physical, virtio or another hypervisor's; InfiniBand (IPoIB); a port of a
    /// switch chip (DSA).
    Ethernet,
    /// One interface of a virtual pair (veth, netkit), used as network card of containers and test
    /// labs.
    Veth,
    /// Software bridge of physical interfaces, or of local virtual machines and containers.
    Bridge,
    /// Several interfaces combined into one: bond, team, HSR.
    Bond,
    /// Virtual interface on top of another one ([`Interface::lower`]), whose cable it shares: VLAN,
    /// macvlan, ipvlan, MACsec.
    Vlan,
    /// Tunnel: tun, tap, WireGuard, GRE, VXLAN, PPP and similar.
    Tunnel,
    /// Wireless LAN (IEEE 802.11).
    WiFi,
    /// Virtual routing and forwarding (VRF) domain, with interfaces as ports.
    Vrf,
    /// Any other kind (dummy, ifb, CAN, WWAN …).
    Other,
}

/// Reason not to use an interface; each prints as one line for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeftOut {
    /// Loopback interface, which reaches only this machine.
    #[error("loopback")]
    Loopback,
    /// Port of this bridge or bond; nicstripe uses the bridge or bond instead.
    #[error("a port of {0}, which speaks for it")]
    PortOf(InterfaceName),
    /// Bridge whose ports are all virtual and local.
    #[error("a bridge without a physical port")]
    BridgeWithoutPhysicalPort,
    /// Tunnel; nicstripe uses the interfaces below it directly.
    #[error("a tunnel")]
    Tunnel,
    /// Wireless LAN, whose medium is shared with other machines.
    #[error("Wi-Fi")]
    WiFi,
    /// Interface of another kind that has no cable, such as a VRF.
    #[error("not an interface with a cable")]
    NoCable,
    /// Interface that the administrator has disabled (`ip link set down`).
    #[error("down")]
    Down,
    /// Interface without carrier: no cable, or no active device at its far end.
    #[error("no carrier")]
    NoCarrier,
    /// Interface without an IPv4 or IPv6 address, even a link-local one.
    #[error("no address")]
    NoAddress,
    /// Interface whose only address belongs to another machine as well.
    #[error("no address: another machine on its cable has {0} too")]
    Duplicate(IpAddr),
}

/// Maximum depth of stacked bridges; the kernel allows eight (`MAX_NEST_DEV`).
const BRIDGE_DEPTH: usize = 8;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a test interface that is up, with carrier and the addresses given as `ip/len`.
    pub(crate) fn interface(
        index: u32,
        name: &str,
        kind: InterfaceKind,
        addresses: &[&str],
    ) -> Interface {
        let addresses = addresses.iter().map(|text| {
            let (ip, prefix_len) = text.split_once('/').unwrap();
            InterfaceAddress::new(ip.parse().unwrap(), prefix_len.parse().unwrap())
        });
        Interface {
            addresses: addresses.collect(),
            ..Interface::new(InterfaceIndex(index), name.parse().unwrap(), kind)
        }
    }

    fn port(index: u32, name: &str, kind: InterfaceKind, master: u32) -> Interface {
        Interface {
            master: Some(InterfaceIndex(master)),
            ..interface(index, name, kind, &["10.1.0.1/24"])
        }
    }

    #[test]
    fn cards_and_plain_veths_are_used_unasked() {
        for kind in [
            InterfaceKind::Ethernet,
            InterfaceKind::Veth,
            InterfaceKind::Bond,
            InterfaceKind::Vlan,
        ] {
            let one = interface(2, "eth0", kind, &["10.0.0.1/24"]);
            assert_eq!(
                one.candidate(std::slice::from_ref(&one)),
                Ok(()),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn interfaces_without_a_cable_are_left_out_with_the_reason() {
        let reason = |kind| {
            interface(2, "x", kind, &["10.0.0.1/24"])
                .candidate(&[])
                .unwrap_err()
                .to_string()
        };
        assert_eq!(reason(InterfaceKind::Loopback), "loopback");
        assert_eq!(reason(InterfaceKind::Tunnel), "a tunnel");
        assert_eq!(reason(InterfaceKind::WiFi), "Wi-Fi");
        assert_eq!(
            reason(InterfaceKind::Other),
            "not an interface with a cable"
        );
        assert_eq!(
            reason(InterfaceKind::Bridge),
            "a bridge without a physical port"
        );
    }

    #[test]
    fn what_it_is_comes_before_the_state_it_is_in() {
        let mut one = interface(2, "wlan0", InterfaceKind::WiFi, &[]);
        one.up = false;
        assert_eq!(one.candidate(&[]), Err(LeftOut::WiFi));
        assert_eq!(one.usable(), Err(LeftOut::Down));
    }

    #[test]
    fn an_interface_must_be_up_with_carrier_and_an_address() {
        let mut one = interface(2, "eth0", InterfaceKind::Ethernet, &[]);
        assert_eq!(one.candidate(&[]), Err(LeftOut::NoAddress));
        one.carrier = false;
        assert_eq!(one.candidate(&[]), Err(LeftOut::NoCarrier));
        one.up = false;
        assert_eq!(one.candidate(&[]), Err(LeftOut::Down));
    }

    #[test]
    fn a_vlan_shares_the_cable_of_the_lowest_interface_below_it() {
        let over = |index, lower| Interface {
            lower: Some(InterfaceIndex(lower)),
            ..interface(index, &format!("vlan{index}"), InterfaceKind::Vlan, &[])
        };
        let card = interface(2, "eth0", InterfaceKind::Ethernet, &[]);
        let all = [
            card,
            over(3, 2),
            over(4, 3),
            over(5, 99),
            over(6, 7),
            over(7, 6),
        ];
        let cards = all
            .each_ref()
            .map(|one| one.card(&all).map(|card| card.index.0));
        assert_eq!(cards[..4], [None, Some(2), Some(2), None]);
        assert!(cards[4].is_some(), "a circle ends");
    }

    #[test]
    fn a_bridge_with_a_card_is_used_and_its_ports_are_not() {
        let bridge = interface(5, "br0", InterfaceKind::Bridge, &["10.0.0.1/24"]);
        let all = [
            bridge,
            port(2, "eth0", InterfaceKind::Ethernet, 5),
            port(3, "veth1", InterfaceKind::Veth, 5),
        ];
        assert_eq!(all[0].candidate(&all), Ok(()));
        assert_eq!(all[1].candidate(&all), Err(LeftOut::PortOf(all[0].name)));
        assert_eq!(
            all[1].candidate(&all).unwrap_err().to_string(),
            "a port of br0, which speaks for it"
        );
    }

    #[test]
    fn a_bridge_of_containers_and_virtual_machines_is_left_out() {
        let bridge = interface(5, "docker0", InterfaceKind::Bridge, &["172.17.0.1/16"]);
        let all = [
            bridge,
            port(3, "veth1", InterfaceKind::Veth, 5),
            port(4, "vnet0", InterfaceKind::Tunnel, 5),
        ];
        assert_eq!(
            all[0].candidate(&all),
            Err(LeftOut::BridgeWithoutPhysicalPort)
        );
    }

    #[test]
    fn bridges_that_are_ports_of_each_other_do_not_hang() {
        let all = [
            port(5, "br0", InterfaceKind::Bridge, 6),
            port(6, "br1", InterfaceKind::Bridge, 5),
        ];
        assert_eq!(
            all[0].candidate(&all),
            Err(LeftOut::BridgeWithoutPhysicalPort)
        );
    }

    #[test]
    fn a_port_of_a_vrf_speaks_for_itself() {
        let vrf = interface(9, "red", InterfaceKind::Vrf, &["10.9.0.1/32"]);
        let all = [vrf, port(2, "eth0", InterfaceKind::Ethernet, 9)];
        assert_eq!(all[0].candidate(&all), Err(LeftOut::NoCable));
        assert_eq!(all[1].candidate(&all), Ok(()));
    }
}
