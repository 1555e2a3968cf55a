//! An interface as the operating system reports it, and the rule about which interfaces are used unasked.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bond::Bond;

/// An interface of this machine, as the kernel reported it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// The kernel's number for it; never used twice until the machine restarts, so it survives a change of name.
    pub index: InterfaceIndex,
    /// The name that `ip link` shows.
    pub name: InterfaceName,
    /// Further names (`altname` of `ip link`) by which users may call it.
    pub alternative_names: Vec<String>,
    /// Hardware address; absent where there is none of six bytes (tunnels, loopback).
    pub mac: Option<MacAddress>,
    /// Largest IP packet it sends, in bytes.
    pub mtu: u32,
    /// What it is.
    pub kind: InterfaceKind,
    /// Whether the administrator has switched it on.
    pub up: bool,
    /// Whether it is on and operational: cable in, far side there. Always `false` while it is not [`up`](Self::up).
    pub carrier: bool,
    /// The bridge, bond or VRF it is a port of.
    pub master: Option<InterfaceIndex>,
    /// The interface it sends through (a VLAN's, a macvlan's): both share one cable. Absent for a veth, and where that
    /// interface is in another namespace.
    pub lower: Option<InterfaceIndex>,
    /// Its addresses that can be used; tentative, deprecated and duplicate IPv6 addresses are left out.
    pub addresses: Vec<InterfaceAddress>,
    /// Negotiated rate. `None` is "unknown": many virtual interfaces have none, or invent one, which is not repeated here.
    pub speed: Option<LineRate>,
    /// What a rate limiter on its root queueing discipline lets out, in bits per second of Ethernet frames: each counted with
    /// its header of 14 bytes, but without preamble, checksum and gap.
    ///
    /// `None` is "none, or unknown". Known are tbf, and htb if all its leaf classes may send at the same rate and the default
    /// class is one of them. A limiter on the interface it sends through ([`lower`](Self::lower)), or on its ports, is theirs.
    pub egress_limit: Option<LineRate>,
    /// What it is made of, for a bond ([`InterfaceKind::Bond`]); its [`speed`](Self::speed) is then what the kernel makes of
    /// its members': the sum of those that carry, or that of the active one.
    pub bond: Option<Bond>,
}

impl Interface {
    /// Describes an interface that is up, with carrier and an MTU of 1500, and of which nothing else is known.
    ///
    /// For tests and simulations; [`interfaces`](crate::interfaces) reads the real ones.
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
            speed: None,
            egress_limit: None,
            bond: None,
        }
    }

    /// Says whether a session uses this interface unasked, or why not. `all` is the list it came from.
    ///
    /// What it *is* comes before what state it is in, so that a Wi-Fi interface is told to be Wi-Fi even while it is down.
    /// An interface the user named needs only [`usable`](Self::usable).
    pub fn candidate(&self, all: &[Interface]) -> Result<(), LeftOut> {
        match self.kind {
            InterfaceKind::Loopback => return Err(LeftOut::Loopback),
            InterfaceKind::Tunnel => return Err(LeftOut::Tunnel),
            InterfaceKind::WiFi => return Err(LeftOut::WiFi),
            InterfaceKind::Vrf | InterfaceKind::Other => return Err(LeftOut::NoCable),
            InterfaceKind::Bridge if !has_physical_port(self.index, all, BRIDGE_DEPTH) => {
                return Err(LeftOut::BridgeWithoutPhysicalPort);
            }
            InterfaceKind::Ethernet | InterfaceKind::Veth | InterfaceKind::Bridge | InterfaceKind::Bond | InterfaceKind::Vlan => {}
        }
        if let Some(master) = self.speaker(all) {
            return Err(LeftOut::PortOf(master.name));
        }
        self.usable()
    }

    /// Says whether the interface can carry anything at this moment, or why not.
    pub fn usable(&self) -> Result<(), LeftOut> {
        if !self.up {
            return Err(LeftOut::Down);
        }
        if !self.carrier {
            return Err(LeftOut::NoCarrier);
        }
        if self.addresses.is_empty() {
            return Err(LeftOut::NoAddress);
        }
        Ok(())
    }

    /// Whether `name` is its name or one of its alternative names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.as_bytes() == name.as_bytes() || self.alternative_names.iter().any(|other| other == name)
    }

    /// Whether `address` is one of its own.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.ip == address)
    }

    /// Whether `remote` can be reached on this interface without a router: it is in one of its prefixes. For an IPv6
    /// link-local address that is so on each interface that has such an address itself.
    pub fn is_on_link(&self, remote: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.is_on_link(remote))
    }

    /// The bridge or bond that speaks for it. A VRF does not: its ports keep their own addresses.
    fn speaker<'a>(&self, all: &'a [Interface]) -> Option<&'a Interface> {
        let master = find(self.master?, all)?;
        (master.kind != InterfaceKind::Vrf).then_some(master)
    }
}

/// Whether a cable is behind this bridge, at most `depth` bridges further down.
fn has_physical_port(bridge: InterfaceIndex, all: &[Interface], depth: usize) -> bool {
    all.iter().filter(|port| port.master == Some(bridge)).any(|port| match port.kind {
        InterfaceKind::Ethernet | InterfaceKind::Bond => true,
        InterfaceKind::Bridge => depth > 0 && has_physical_port(port.index, all, depth - 1),
        // A VLAN of a bridge is as physical as that bridge; one whose lower interface is elsewhere has to be believed.
        InterfaceKind::Vlan => match port.lower.and_then(|lower| find(lower, all)) {
            Some(lower) if lower.kind == InterfaceKind::Bridge => depth > 0 && has_physical_port(lower.index, all, depth - 1),
            Some(lower) => matches!(lower.kind, InterfaceKind::Ethernet | InterfaceKind::Bond | InterfaceKind::Vlan),
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

/// The kernel's number of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InterfaceIndex(pub u32);

impl fmt::Display for InterfaceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of an interface: 1 to 15 bytes that the kernel accepts as one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceName {
    /// Padded with zeros.
    bytes: [u8; NAME_LEN],
    /// Range: 1..=15.
    len: u8,
}

impl InterfaceName {
    /// Checks a name by the kernel's rule (`dev_valid_name`, net/core/dev.c).
    pub fn new(name: &[u8]) -> Result<Self, InvalidName> {
        let forbidden = |byte: &u8| matches!(byte, 0 | b'/' | b':' | 0x0b | 0xa0) || byte.is_ascii_whitespace();
        if name.is_empty() || name.len() > NAME_LEN || name == b"." || name == b".." || name.iter().any(forbidden) {
            return Err(InvalidName { name: String::from_utf8_lossy(name).into_owned() });
        }
        let mut bytes = [0; NAME_LEN];
        bytes[..name.len()].copy_from_slice(name);
        Ok(Self { bytes, len: name.len() as u8 })
    }

    /// Returns the name as the kernel spells it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl FromStr for InterfaceName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        Self::new(name.as_bytes())
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.as_bytes()), f)
    }
}

/// A text that cannot be the name of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid interface name {name:?}: expected 1 to 15 bytes without spaces, '/' or ':'")]
pub struct InvalidName {
    /// What was given.
    pub name: String,
}

/// A hardware address of six bytes, printed as `52:54:00:12:34:56`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A rate in bits per second, never zero: what was negotiated, or what a limiter lets out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineRate(pub u64);

/// What an interface is, as far as it matters for choosing cables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InterfaceKind {
    /// `lo`.
    Loopback,
    /// A network card: physical, virtio or another hypervisor's; InfiniBand (IPoIB); a port of a switch chip (DSA).
    Ethernet,
    /// One end of a pair inside this machine (veth, netkit): what containers and labs have for a network card.
    Veth,
    /// A bridge. Its ports are cables, or the machines and containers inside.
    Bridge,
    /// Several interfaces that work as one (bond, team, HSR).
    Bond,
    /// Another interface's cable under a second name: VLAN, macvlan, ipvlan, MACsec. See [`Interface::lower`].
    Vlan,
    /// Packets inside packets, or handed to a program: tun, tap, WireGuard, GRE, VXLAN, PPP and the like.
    Tunnel,
    /// Wireless LAN.
    WiFi,
    /// A routing domain; its ports are the interfaces.
    Vrf,
    /// Anything else (dummy, ifb, CAN, WWAN …).
    Other,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// The address itself.
    pub ip: IpAddr,
    /// Length of its prefix in bits: at most 32 (IPv4) or 128 (IPv6).
    pub prefix_len: u8,
    /// The far end of a point-to-point interface, to which the prefix belongs then.
    pub peer: Option<IpAddr>,
    /// Whether it is an IPv6 privacy address (RFC 8981), which the system will replace within hours.
    pub temporary: bool,
}

impl InterfaceAddress {
    /// Describes an ordinary address.
    pub fn new(ip: IpAddr, prefix_len: u8) -> Self {
        Self { ip, prefix_len, peer: None, temporary: false }
    }

    /// Whether it is an IPv6 link-local address, which means nothing without its interface (RFC 4007).
    pub fn is_link_local(&self) -> bool {
        matches!(self.ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
    }

    /// Whether `remote` is in this address's prefix.
    pub fn is_on_link(&self, remote: IpAddr) -> bool {
        network(self.peer.unwrap_or(self.ip), self.prefix_len) == network(remote, self.prefix_len)
    }

    /// Whether `remote` is the network or the broadcast address of this prefix (IPv4 only).
    pub fn is_broadcast(&self, remote: IpAddr) -> bool {
        let (IpAddr::V4(remote), true) = (remote, self.prefix_len < 31 && self.is_on_link(remote)) else {
            return false;
        };
        let host_bits = u32::MAX.checked_shr(u32::from(self.prefix_len)).unwrap_or(0);
        let host = remote.to_bits() & host_bits;
        host == 0 || host == host_bits
    }
}

/// Returns the address with all bits after the prefix cleared; a longer prefix than the address has is the whole address.
fn network(ip: IpAddr, prefix_len: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let host_bits = u32::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & !host_bits).into()
        }
        IpAddr::V6(ip) => {
            let host_bits = u128::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & !host_bits).into()
        }
    }
}

/// Why an interface is not used unasked; each prints as one line for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeftOut {
    /// It joins the machine to itself.
    #[error("loopback")]
    Loopback,
    /// A bridge or bond speaks for it.
    #[error("a port of {0}, which speaks for it")]
    PortOf(InterfaceName),
    /// All ports of the bridge are inside this machine.
    #[error("a bridge without a physical port")]
    BridgeWithoutPhysicalPort,
    /// It runs over other interfaces, which are used themselves.
    #[error("a tunnel")]
    Tunnel,
    /// It shares the air with everything else.
    #[error("Wi-Fi")]
    WiFi,
    /// There is no cable behind an interface of its kind.
    #[error("not a kind of interface that has a cable")]
    NoCable,
    /// The administrator switched it off.
    #[error("down")]
    Down,
    /// No cable, or nothing at its far end.
    #[error("no carrier")]
    NoCarrier,
    /// Neither IPv4 nor IPv6, not even a link-local address.
    #[error("no address")]
    NoAddress,
}

/// `IFNAMSIZ` without the terminator (include/uapi/linux/if.h).
const NAME_LEN: usize = 15;

/// How many bridges on top of each other are looked through; the kernel allows eight devices (`MAX_NEST_DEV`).
const BRIDGE_DEPTH: usize = 8;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An interface that is up, has a cable and the addresses given as `ip/len`.
    pub(crate) fn interface(index: u32, name: &str, kind: InterfaceKind, addresses: &[&str]) -> Interface {
        let addresses = addresses.iter().map(|text| {
            let (ip, prefix_len) = text.split_once('/').unwrap();
            InterfaceAddress::new(ip.parse().unwrap(), prefix_len.parse().unwrap())
        });
        Interface { addresses: addresses.collect(), ..Interface::new(InterfaceIndex(index), name.parse().unwrap(), kind) }
    }

    fn port(index: u32, name: &str, kind: InterfaceKind, master: u32) -> Interface {
        Interface { master: Some(InterfaceIndex(master)), ..interface(index, name, kind, &["10.1.0.1/24"]) }
    }

    #[test]
    fn cards_and_plain_veths_are_used_unasked() {
        for kind in [InterfaceKind::Ethernet, InterfaceKind::Veth, InterfaceKind::Bond, InterfaceKind::Vlan] {
            let one = interface(2, "eth0", kind, &["10.0.0.1/24"]);
            assert_eq!(one.candidate(std::slice::from_ref(&one)), Ok(()), "{kind:?}");
        }
    }

    #[test]
    fn interfaces_without_a_cable_are_left_out_with_the_reason() {
        let reason = |kind| interface(2, "x", kind, &["10.0.0.1/24"]).candidate(&[]).unwrap_err().to_string();
        assert_eq!(reason(InterfaceKind::Loopback), "loopback");
        assert_eq!(reason(InterfaceKind::Tunnel), "a tunnel");
        assert_eq!(reason(InterfaceKind::WiFi), "Wi-Fi");
        assert_eq!(reason(InterfaceKind::Other), "not a kind of interface that has a cable");
        assert_eq!(reason(InterfaceKind::Bridge), "a bridge without a physical port");
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
    fn a_bridge_with_a_card_is_used_and_its_ports_are_not() {
        let bridge = interface(5, "br0", InterfaceKind::Bridge, &["10.0.0.1/24"]);
        let all = [bridge, port(2, "eth0", InterfaceKind::Ethernet, 5), port(3, "veth1", InterfaceKind::Veth, 5)];
        assert_eq!(all[0].candidate(&all), Ok(()));
        assert_eq!(all[1].candidate(&all), Err(LeftOut::PortOf(all[0].name)));
        assert_eq!(all[1].candidate(&all).unwrap_err().to_string(), "a port of br0, which speaks for it");
    }

    #[test]
    fn a_bridge_of_containers_and_virtual_machines_is_left_out() {
        let bridge = interface(5, "docker0", InterfaceKind::Bridge, &["172.17.0.1/16"]);
        let all = [bridge, port(3, "veth1", InterfaceKind::Veth, 5), port(4, "vnet0", InterfaceKind::Tunnel, 5)];
        assert_eq!(all[0].candidate(&all), Err(LeftOut::BridgeWithoutPhysicalPort));
    }

    #[test]
    fn bridges_that_are_ports_of_each_other_do_not_hang() {
        let all = [port(5, "br0", InterfaceKind::Bridge, 6), port(6, "br1", InterfaceKind::Bridge, 5)];
        assert_eq!(all[0].candidate(&all), Err(LeftOut::BridgeWithoutPhysicalPort));
    }

    #[test]
    fn a_port_of_a_vrf_speaks_for_itself() {
        let vrf = interface(9, "red", InterfaceKind::Vrf, &["10.9.0.1/32"]);
        let all = [vrf, port(2, "eth0", InterfaceKind::Ethernet, 9)];
        assert_eq!(all[0].candidate(&all), Err(LeftOut::NoCable));
        assert_eq!(all[1].candidate(&all), Ok(()));
    }

    #[test]
    fn names_follow_the_kernels_rule() {
        for good in ["eth0", "a", "enp0s31f6.4094", "br-01234567890a", "-"] {
            assert_eq!(good.parse::<InterfaceName>().unwrap().to_string(), good);
        }
        for bad in ["", ".", "..", "a b", "a/b", "a:b", "a\0b", "sixteen-bytes-xx", "\x0b"] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn prefixes_decide_what_is_on_link() {
        let on_link = |own: &str, len, remote: &str| InterfaceAddress::new(own.parse().unwrap(), len).is_on_link(remote.parse().unwrap());
        assert!(on_link("10.0.0.1", 24, "10.0.0.255"));
        assert!(!on_link("10.0.0.1", 24, "10.0.1.1"));
        assert!(on_link("10.0.0.1", 0, "8.8.8.8"));
        assert!(!on_link("10.0.0.1", 32, "10.0.0.2"));
        assert!(on_link("fe80::1", 64, "fe80::2"));
        assert!(!on_link("fe80::1", 64, "10.0.0.1"));
        assert!(!on_link("10.0.0.1", 200, "10.0.0.2"), "a prefix longer than the address is the whole address");
    }

    #[test]
    fn the_first_and_last_address_of_a_prefix_are_broadcasts() {
        let own = InterfaceAddress::new("10.0.0.5".parse().unwrap(), 30);
        let broadcasts: Vec<_> = (0..10).filter(|last| own.is_broadcast(Ipv4Addr::new(10, 0, 0, *last).into())).collect();
        assert_eq!(broadcasts, [4, 7]);
        let pair = InterfaceAddress::new("10.0.0.4".parse().unwrap(), 31);
        assert!(!pair.is_broadcast("10.0.0.5".parse().unwrap()), "a /31 has none (RFC 3021)");
    }
}
