//! Enumeration of interfaces and their addresses with two netlink dumps, plus further queries for
//! details.

use std::{io, net::IpAddr};

use nicstripe_netlink::{
    Attributes, Message, Netlink, Request, ip, text, u16_at, u32_at, until_nul,
};
use thiserror::Error;

use crate::interface::{
    Interface, InterfaceIndex, InterfaceKind, LineRate,
    address::InterfaceAddress,
    bond::Bond,
    egress_limit::{egress_limits, is_limiter},
    line_rate::LineRates,
    name::{InterfaceName, MacAddress},
    sysfs::{self, DeviceType},
};

/// Lists the interfaces of the calling thread's network namespace with their properties, in order
/// of index.
///
/// Needs no privileges. Took 0.1 ms with 4 interfaces and 0.25 ms with 17 (`tests/kernel`,
/// unoptimised build), and 0.01 ms more if one has a rate limiter. Blocks only while another
/// process holds the kernel's RTNL lock, and at most 5 s per query.
pub fn interfaces() -> Result<Vec<Interface>, InterfacesError> {
    let mut netlink = Netlink::route().map_err(InterfacesError::Open)?;
    let links = links(&mut netlink).map_err(InterfacesError::Links)?;
    let addresses = addresses(&mut netlink).map_err(InterfacesError::Addresses)?;
    let limits = if links.iter().any(|link| link.limited) {
        egress_limits(&mut netlink)
    } else {
        Vec::new()
    };
    let mut rates = LineRates::default();
    let mut interfaces: Vec<_> = links
        .into_iter()
        .map(|link| link.into_interface(&mut rates))
        .collect();
    for interface in &mut interfaces {
        let own = addresses.iter().filter(|found| {
            found.interface == interface.index && found.usability == Usability::Usable
        });
        interface.addresses = own.map(|found| found.address).collect();
        let twice = addresses.iter().filter(|found| {
            found.interface == interface.index && found.usability == Usability::Duplicate
        });
        interface.duplicates = twice.map(|found| found.address.ip).collect();
        let limit = limits.iter().find(|(index, _)| *index == interface.index);
        interface.egress_limit = limit.map(|(_, limit)| *limit);
    }
    join_bonds(&mut interfaces);
    rate_bonds(&mut interfaces, &mut rates);
    rate_vlans(&mut interfaces);
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

/// Fills in the members of each bond, from the `master` of each interface.
fn join_bonds(interfaces: &mut [Interface]) {
    let ports: Vec<_> = interfaces
        .iter()
        .filter_map(|port| Some((port.master?, port.name, port.carrier)))
        .collect();
    for interface in interfaces {
        let Some(bond) = &mut interface.bond else {
            continue;
        };
        let members = ports
            .iter()
            .filter(|(master, ..)| *master == interface.index);
        bond.carrying = members.clone().filter(|(.., carrier)| *carrier).count();
        bond.members = members.map(|(_, name, _)| *name).collect();
    }
}

/// Queries the rate of each bond that has a member with a known rate. The kernel derives a bond's
/// rate from its members, and virtual members report invented rates.
fn rate_bonds(interfaces: &mut [Interface], rates: &mut LineRates) {
    let rated: Vec<_> = interfaces
        .iter()
        .filter(|port| port.speed.is_some())
        .filter_map(|port| port.master)
        .collect();
    let bonds = interfaces
        .iter_mut()
        .filter(|one| one.kind == InterfaceKind::Bond && rated.contains(&one.index));
    for bond in bonds {
        bond.speed = rates.read(bond.name, bond.index);
    }
}

/// Sets a VLAN's rate to that of its lower interface.
fn rate_vlans(interfaces: &mut [Interface]) {
    for position in 0..interfaces.len() {
        if interfaces[position].kind == InterfaceKind::Vlan {
            interfaces[position].speed = shared_rate(&interfaces[position], interfaces);
        }
    }
}

fn shared_rate(vlan: &Interface, all: &[Interface]) -> Option<LineRate> {
    let mut current = vlan;
    for _ in 0..VLAN_DEPTH {
        let lower = current.lower?;
        current = all.iter().find(|interface| interface.index == lower)?;
        if current.kind != InterfaceKind::Vlan {
            return current.speed;
        }
    }
    None
}

/// Error of [`interfaces`]: a netlink socket or one of two queries failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InterfacesError {
    /// A netlink socket cannot be opened, for example in a sandbox without `AF_NETLINK` or without
    /// free file descriptors.
    #[error("cannot open a netlink socket to list interfaces")]
    Open(#[source] io::Error),
    /// The query for interfaces (`RTM_GETLINK`) failed.
    #[error("cannot list interfaces")]
    Links(#[source] io::Error),
    /// The query for addresses (`RTM_GETADDR`) failed.
    #[error("cannot list the addresses of interfaces")]
    Addresses(#[source] io::Error),
}

pub(crate) fn links(netlink: &mut Netlink) -> io::Result<Vec<LinkMessage>> {
    let request = Request::new(libc::RTM_GETLINK, &[0; IFINFO_LEN])
        .attribute(libc::IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    netlink.dump(&request, LinkMessage::parse)
}

/// Lists the addresses of all interfaces, including those that are not usable.
pub(crate) fn addresses(netlink: &mut Netlink) -> io::Result<Vec<AddressMessage>> {
    netlink.dump(
        &Request::new(libc::RTM_GETADDR, &[0; IFADDR_LEN]),
        AddressMessage::parse,
    )
}

/// Fields of an `RTM_NEWLINK` or `RTM_DELLINK` message that this crate uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkMessage {
    pub(crate) index: InterfaceIndex,
    pub(crate) link: Link,
    pub(crate) up: bool,
    alternative_names: Vec<String>,
    mac: Option<MacAddress>,
    lower: Option<InterfaceIndex>,
    /// True if the root queueing discipline is of a kind that can limit the rate (tbf, htb).
    limited: bool,
    /// Settings of a kernel bond. Its members are not included: their own messages name the bond as
    /// master.
    bond: Bond,
    device: Device,
    pub(crate) details: LinkDetails,
}

/// Fields of an `RTM_NEWLINK` message for the facts about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkDetails {
    /// Kind of the root queueing discipline.
    pub(crate) qdisc: Option<String>,
    pub(crate) mtu_max: Option<u32>,
    pub(crate) carrier_changes: Option<u64>,
}

/// Fields of a link whose changes are reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: InterfaceName,
    pub(crate) mtu: u32,
    pub(crate) master: Option<InterfaceIndex>,
    pub(crate) carrier: bool,
}

impl LinkMessage {
    /// Parses an `RTM_NEWLINK` or `RTM_DELLINK` message. Returns `None` for other messages, for a
    /// bridge's messages about its ports, and for interfaces without a valid name.
    pub(crate) fn parse(message: &Message<'_>) -> Option<Self> {
        if !matches!(message.kind, libc::RTM_NEWLINK | libc::RTM_DELLINK) {
            return None;
        }
        let (header, attributes) = message.split(IFINFO_LEN)?;
        // Bridges send such messages about their ports too. A port that leaves its bridge still
        // exists.
        if *header.first()? != libc::AF_UNSPEC as u8 {
            return None;
        }
        let index = InterfaceIndex(u32_at(header, 4)?);
        let flags = u32_at(header, 8)?;
        let number = |kind| attributes.find(kind).and_then(|value| u32_at(value, 0));
        let info = Attributes::new(attributes.find(libc::IFLA_LINKINFO).unwrap_or_default());
        let kind = info
            .find(libc::IFLA_INFO_KIND)
            .map(text)
            .unwrap_or_default();
        // An index of another network namespace is meaningless here.
        let lower = if attributes.find(libc::IFLA_LINK_NETNSID).is_none() {
            number(libc::IFLA_LINK)
        } else {
            None
        };
        Some(Self {
            index,
            link: Link {
                name: InterfaceName::new(until_nul(attributes.find(libc::IFLA_IFNAME)?)).ok()?,
                mtu: number(libc::IFLA_MTU).unwrap_or(0),
                master: number(libc::IFLA_MASTER)
                    .filter(|master| *master != 0)
                    .map(InterfaceIndex),
                carrier: flags & OPERATIONAL == OPERATIONAL,
            },
            up: flags & IFF_UP != 0,
            alternative_names: alternative_names(attributes),
            mac: attributes.find(libc::IFLA_ADDRESS).and_then(mac),
            lower: lower
                .filter(|lower| *lower != 0)
                .map(InterfaceIndex)
                .filter(|lower| *lower != index),
            limited: attributes.find(libc::IFLA_QDISC).is_some_and(is_limiter),
            bond: bond(info, &kind),
            device: Device {
                hardware: u16_at(header, 2)?,
                loopback: flags & IFF_LOOPBACK != 0,
                kind,
                bus: attributes.find(libc::IFLA_PARENT_DEV_BUS_NAME).map(text),
            },
            details: LinkDetails {
                qdisc: attributes.find(libc::IFLA_QDISC).map(text),
                // 0 means that the driver has no own limit.
                mtu_max: number(libc::IFLA_MAX_MTU).filter(|mtu| *mtu > 0),
                carrier_changes: number(libc::IFLA_CARRIER_CHANGES).map(u64::from),
            },
        })
    }

    fn into_interface(self, rates: &mut LineRates) -> Interface {
        let Link {
            name,
            mtu,
            master,
            carrier,
        } = self.link;
        let kind = self
            .device
            .interface_kind(|| sysfs::device_type(name, self.index));
        let tells_its_rate = self.device.tells_its_rate(kind);
        Interface {
            alternative_names: self.alternative_names,
            mac: self.mac,
            mtu,
            up: self.up,
            carrier,
            master,
            // For a veth this attribute is its other end, not an interface it sends through.
            lower: self.lower.filter(|_| kind != InterfaceKind::Veth),
            speed: tells_its_rate
                .then(|| rates.read(name, self.index))
                .flatten(),
            bond: (kind == InterfaceKind::Bond).then_some(self.bond),
            ..Interface::new(self.index, name, kind)
        }
    }
}

/// Properties that determine the [`InterfaceKind`] of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Device {
    /// Hardware type of the link layer, `ARPHRD_*`.
    hardware: u16,
    loopback: bool,
    /// Driver kind (`IFLA_INFO_KIND`), such as `veth`; empty for most hardware.
    kind: String,
    /// Bus of the parent device (`pci`, `usb`, `virtio` …); `None` without one, and before Linux
    /// 5.14.
    bus: Option<String>,
}

impl Device {
    fn interface_kind(&self, device_type: impl FnOnce() -> DeviceType) -> InterfaceKind {
        if self.loopback {
            return InterfaceKind::Loopback;
        }
        match self.kind.as_str() {
            "veth" | "netkit" => InterfaceKind::Veth,
            "bridge" => InterfaceKind::Bridge,
            "bond" | "team" | "hsr" => InterfaceKind::Bond,
            "vlan" | "macvlan" | "macvtap" | "ipvlan" | "ipvtap" | "macsec" => InterfaceKind::Vlan,
            "vrf" => InterfaceKind::Vrf,
            "dsa" | "ipoib" | "netdevsim" => InterfaceKind::Ethernet,
            "wlan" | "virt_wifi" | "mac80211_hwsim" => InterfaceKind::WiFi,
            "tun" | "wireguard" | "ovpn" | "ppp" | "gre" | "gretap" | "erspan" | "ip6gre"
            | "ip6gretap" | "ip6erspan" | "ipip" | "ip6tnl" | "sit" | "vti" | "vti6" | "xfrm"
            | "vxlan" | "geneve" | "bareudp" | "gtp" | "amt" | "batadv" => InterfaceKind::Tunnel,
            // Some drivers of physical cards register their own kind.
            "" => self.kind_by_hardware(device_type),
            _ if self.bus.is_some() => self.kind_by_hardware(device_type),
            _ => InterfaceKind::Other,
        }
    }

    fn kind_by_hardware(&self, device_type: impl FnOnce() -> DeviceType) -> InterfaceKind {
        match self.hardware {
            libc::ARPHRD_INFINIBAND => InterfaceKind::Ethernet,
            libc::ARPHRD_ETHER => {
                let device_type = device_type();
                match device_type.name.as_str() {
                    _ if device_type.wireless => InterfaceKind::WiFi,
                    "wwan" | "bluetooth" => InterfaceKind::Other,
                    "l2tpeth" => InterfaceKind::Tunnel,
                    _ => InterfaceKind::Ethernet,
                }
            }
            libc::ARPHRD_IEEE80211..=libc::ARPHRD_IEEE80211_RADIOTAP => InterfaceKind::WiFi,
            libc::ARPHRD_PPP
            | libc::ARPHRD_TUNNEL
            | libc::ARPHRD_TUNNEL6
            | libc::ARPHRD_SIT
            | libc::ARPHRD_IPGRE
            | ARPHRD_IP6GRE
            | ARPHRD_RAWIP
            | libc::ARPHRD_NONE => InterfaceKind::Tunnel,
            _ => InterfaceKind::Other,
        }
    }

    /// Returns true if the driver reports a rate that was negotiated on a cable: an Ethernet card
    /// that is not virtio. A veth always reports 10 Gbit/s, a virtio card repeats the host's
    /// configuration, and a bridge has no rate.
    fn tells_its_rate(&self, kind: InterfaceKind) -> bool {
        kind == InterfaceKind::Ethernet && self.bus.as_deref() != Some("virtio")
    }
}

/// Returns the settings in the `IFLA_LINKINFO` attributes of a kernel bond. Other kinds give these
/// attribute numbers another meaning.
fn bond(info: Attributes<'_>, kind: &str) -> Bond {
    match info.find(libc::IFLA_INFO_DATA) {
        Some(data) if kind == "bond" => Bond::parse(Attributes::new(data)),
        _ => Bond::default(),
    }
}

fn alternative_names(attributes: Attributes<'_>) -> Vec<String> {
    let properties = Attributes::new(attributes.find(libc::IFLA_PROP_LIST).unwrap_or_default());
    properties
        .filter(|(kind, _)| *kind == libc::IFLA_ALT_IFNAME)
        .map(|(_, value)| text(value))
        .collect()
}

fn mac(value: &[u8]) -> Option<MacAddress> {
    <[u8; 6]>::try_from(value)
        .ok()
        .filter(|mac| *mac != [0; 6])
        .map(MacAddress)
}

/// Fields of an `RTM_NEWADDR` or `RTM_DELADDR` message that this crate uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressMessage {
    pub(crate) interface: InterfaceIndex,
    pub(crate) address: InterfaceAddress,
    pub(crate) usability: Usability,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usability {
    /// Tentative IPv6 address: duplicate address detection is in progress.
    NotYet,
    Usable,
    /// Deprecated IPv6 address.
    NoMore,
    /// IPv6 address that duplicate address detection found at another machine.
    Duplicate,
}

impl AddressMessage {
    /// Parses an `RTM_NEWADDR` or `RTM_DELADDR` message. Returns `None` for other messages.
    pub(crate) fn parse(message: &Message<'_>) -> Option<Self> {
        if !matches!(message.kind, libc::RTM_NEWADDR | libc::RTM_DELADDR) {
            return None;
        }
        let (header, attributes) = message.split(IFADDR_LEN)?;
        let prefix_len = *header.get(1)?;
        let header_flags = u32::from(*header.get(2)?);
        let flags = attributes
            .find(libc::IFA_FLAGS)
            .and_then(|value| u32_at(value, 0))
            .unwrap_or(header_flags);
        let far = attributes.find(libc::IFA_ADDRESS).and_then(ip);
        let ip = attributes.find(libc::IFA_LOCAL).and_then(ip).or(far)?;
        let address = InterfaceAddress {
            peer: far.filter(|far| *far != ip),
            temporary: ip.is_ipv6() && flags & libc::IFA_F_TEMPORARY != 0,
            ..InterfaceAddress::new(ip, prefix_len)
        };
        let interface = InterfaceIndex(u32_at(header, 4)?);
        Some(Self {
            interface,
            address,
            usability: usability(ip, flags),
        })
    }
}

/// Returns the usability of an address with these `IFA_F_*` flags. An IPv4 address is always
/// usable: duplicate detection and deprecation apply to IPv6.
fn usability(ip: IpAddr, flags: u32) -> Usability {
    if ip.is_ipv4() {
        Usability::Usable
    } else if flags & libc::IFA_F_DADFAILED != 0 {
        Usability::Duplicate
    } else if flags & libc::IFA_F_DEPRECATED != 0 {
        Usability::NoMore
    } else if flags & libc::IFA_F_TENTATIVE != 0 && flags & libc::IFA_F_OPTIMISTIC == 0 {
        Usability::NotYet
    } else {
        Usability::Usable
    }
}

/// Maximum depth of stacked VLANs; the kernel allows eight (`MAX_NEST_DEV`).
pub(crate) const VLAN_DEPTH: usize = 8;

// include/uapi/linux/rtnetlink.h
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
/// Length of `struct ifinfomsg` in bytes: family, pad, type (u16), index (i32), flags (u32), change
/// (u32).
pub(crate) const IFINFO_LEN: usize = 16;
/// Length of `struct ifaddrmsg` in bytes: family, prefix length, flags, scope, index (u32).
const IFADDR_LEN: usize = 8;

// include/uapi/linux/if.h
const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_RUNNING: u32 = 0x40;
const IFF_LOWER_UP: u32 = 0x1_0000;
/// Flags of an interface that can carry data: up, with carrier, and not waiting for a condition
/// such as 802.1X.
const OPERATIONAL: u32 = IFF_UP | IFF_RUNNING | IFF_LOWER_UP;

// include/uapi/linux/if_arp.h
const ARPHRD_RAWIP: u16 = 519;
const ARPHRD_IP6GRE: u16 = 823;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::tests::interface;
    use nicstripe_netlink::{Messages, push_attribute};

    fn device(hardware: u16, kind: &str, bus: Option<&str>) -> Device {
        Device {
            hardware,
            loopback: false,
            kind: kind.to_owned(),
            bus: bus.map(str::to_owned),
        }
    }

    fn kind_of(device: &Device, device_type: &str, wireless: bool) -> InterfaceKind {
        device.interface_kind(|| DeviceType {
            name: device_type.to_owned(),
            wireless,
        })
    }

    #[test]
    fn the_kernels_kind_decides_before_the_hardware_type() {
        for (kind, expected) in [
            ("veth", InterfaceKind::Veth),
            ("bridge", InterfaceKind::Bridge),
            ("bond", InterfaceKind::Bond),
            ("vlan", InterfaceKind::Vlan),
            ("macvlan", InterfaceKind::Vlan),
            ("tun", InterfaceKind::Tunnel),
            ("wireguard", InterfaceKind::Tunnel),
            ("vrf", InterfaceKind::Vrf),
            ("dummy", InterfaceKind::Other),
            ("something_new", InterfaceKind::Other),
        ] {
            assert_eq!(
                kind_of(&device(libc::ARPHRD_ETHER, kind, None), "", false),
                expected,
                "{kind}"
            );
        }
    }

    #[test]
    fn hardware_has_no_kind_and_wifi_is_told_by_sysfs() {
        let card = device(libc::ARPHRD_ETHER, "", Some("pci"));
        assert_eq!(kind_of(&card, "", false), InterfaceKind::Ethernet);
        assert_eq!(kind_of(&card, "wlan", true), InterfaceKind::WiFi);
        assert_eq!(kind_of(&card, "wwan", false), InterfaceKind::Other);
        assert_eq!(
            kind_of(&device(libc::ARPHRD_NONE, "", None), "", false),
            InterfaceKind::Tunnel
        );
        assert_eq!(
            kind_of(
                &device(libc::ARPHRD_ETHER, "new_card", Some("pci")),
                "",
                false
            ),
            InterfaceKind::Ethernet
        );
    }

    #[test]
    fn invented_rates_are_not_asked_for() {
        assert!(
            device(libc::ARPHRD_ETHER, "", Some("pci")).tells_its_rate(InterfaceKind::Ethernet)
        );
        assert!(
            !device(libc::ARPHRD_ETHER, "", Some("virtio")).tells_its_rate(InterfaceKind::Ethernet)
        );
        assert!(!device(libc::ARPHRD_ETHER, "veth", None).tells_its_rate(InterfaceKind::Veth));
        assert!(!device(libc::ARPHRD_ETHER, "bridge", None).tells_its_rate(InterfaceKind::Bridge));
    }

    #[test]
    fn a_vlan_has_the_rate_of_the_cable_it_shares() {
        let card = Interface {
            speed: Some(LineRate(1_000_000_000)),
            ..interface(2, "eth0", InterfaceKind::Ethernet, &[])
        };
        let over = |index, lower| Interface {
            lower: Some(InterfaceIndex(lower)),
            ..interface(index, &format!("vlan{index}"), InterfaceKind::Vlan, &[])
        };
        // Stacks 4 on 3 on 2, 5 on an interface of another namespace, and 6 and 7 on each other.
        let mut all = [
            over(4, 3),
            over(3, 2),
            card,
            over(5, 99),
            over(6, 7),
            over(7, 6),
        ];
        rate_vlans(&mut all);
        let rates = all.map(|interface| interface.speed.map(|rate| rate.0 / 1_000_000));
        assert_eq!(
            rates,
            [Some(1000), Some(1000), Some(1000), None, None, None]
        );
    }

    #[test]
    fn a_bond_names_its_ports_and_counts_those_that_carry() {
        let port = |index, name: &str, master, carrier| Interface {
            master: Some(InterfaceIndex(master)),
            carrier,
            ..interface(index, name, InterfaceKind::Ethernet, &[])
        };
        let bond = Interface {
            bond: Some(Bond::default()),
            ..interface(9, "bond0", InterfaceKind::Bond, &["10.0.0.1/24"])
        };
        let mut all = [
            port(2, "eth0", 9, true),
            port(3, "eth1", 9, false),
            port(4, "eth2", 8, true),
            bond,
        ];
        join_bonds(&mut all);
        let bond = all[3].bond.as_ref().unwrap();
        assert_eq!(
            (bond.members.as_slice(), bond.carrying),
            (&[all[0].name, all[1].name][..], 1)
        );
        assert_eq!(all[0].bond, None);
    }

    /// Uses the message of `bond0` in the kernel's layout, reduced to the attributes that the
    /// parser reads.
    #[test]
    fn a_link_message_of_a_bond_tells_its_hash() {
        let mut data = Vec::new();
        push_attribute(&mut data, 1, &[4]);
        push_attribute(&mut data, 14, &[0]);
        let mut info = Vec::new();
        push_attribute(&mut info, libc::IFLA_INFO_KIND, b"bond\0");
        push_attribute(&mut info, libc::IFLA_INFO_DATA, &data);
        let mut header = [0; IFINFO_LEN];
        header[4] = 9;
        let message = |kind: &[u8]| {
            let mut info = info.clone();
            info[4..4 + kind.len()].copy_from_slice(kind);
            let request = Request::new(libc::RTM_NEWLINK, &header)
                .attribute(libc::IFLA_IFNAME, b"bond0\0")
                .attribute(libc::IFLA_LINKINFO, &info);
            LinkMessage::parse(&Messages::new(&request.encode(0, 1)).next().unwrap())
                .unwrap()
                .bond
        };
        assert_eq!(message(b"bond"), Bond::parse(Attributes::new(&data)));
        assert_ne!(message(b"bond"), Bond::default());
        // Another kind has its own meaning for these attribute numbers.
        assert_eq!(message(b"team"), Bond::default());
    }

    #[test]
    fn a_link_message_tells_the_discipline_the_largest_mtu_and_the_changes_of_the_carrier() {
        for (mtu, expected) in [(9216_u32, Some(9216)), (0, None)] {
            let bytes = Request::new(libc::RTM_NEWLINK, &[0; IFINFO_LEN])
                .attribute(libc::IFLA_IFNAME, b"eth0\0")
                .attribute(libc::IFLA_QDISC, b"fq_codel\0")
                .attribute(libc::IFLA_MAX_MTU, &mtu.to_ne_bytes())
                .attribute(libc::IFLA_CARRIER_CHANGES, &6_u32.to_ne_bytes())
                .encode(0, 1);
            let read = |bytes: &[u8]| LinkMessage::parse(&Messages::new(bytes).next()?);
            let expected = LinkDetails {
                qdisc: Some("fq_codel".to_owned()),
                mtu_max: expected,
                carrier_changes: Some(6),
            };
            assert_eq!(read(&bytes).unwrap().details, expected);
            assert!((0..bytes.len()).all(|len| read(&bytes[..len]).is_none()));
        }
    }

    #[test]
    fn only_ipv6_addresses_wait_or_expire() {
        let v6 = "fe80::1".parse().unwrap();
        assert_eq!(usability(v6, libc::IFA_F_TENTATIVE), Usability::NotYet);
        assert_eq!(
            usability(v6, libc::IFA_F_TENTATIVE | libc::IFA_F_OPTIMISTIC),
            Usability::Usable
        );
        assert_eq!(
            usability(v6, libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED),
            Usability::Duplicate
        );
        assert_eq!(usability(v6, libc::IFA_F_DEPRECATED), Usability::NoMore);
        assert_eq!(
            usability("10.0.0.1".parse().unwrap(), libc::IFA_F_DEPRECATED),
            Usability::Usable
        );
    }
}
