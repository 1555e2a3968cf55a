//! rtnetlink messages that create and connect a lab's interfaces, and read their state. No I/O.

use std::net::{IpAddr, Ipv6Addr};

use nicstripe_netlink::{Attributes, Message, Request, attribute, ip, u8_at, u32_at, u64_at};

use crate::{address::Assigned, counters::Traffic, kernel::namespace::Namespace};

/// Name and index of a lab's interface. The lab assigns the indexes itself, so that it never has to
/// look one up.
///
/// The two interfaces of a veth pair need different indexes, even in different namespaces. The
/// kernel treats a device whose peer has its own index as one without a peer, and reports its
/// carrier up to a second late (`net/core/link_watch.c`).
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) name: String,
    pub(crate) index: u32,
}

/// Returns the request that creates a veth pair; each interface comes with its MTU in bytes. `near`
/// is created in the socket's namespace, `far` in `far_namespace`, or in the same one if it is
/// `None`.
pub(crate) fn add_veth(
    near: (&End, u32),
    far: (&End, u32),
    far_namespace: Option<&Namespace>,
) -> Request {
    let (name, mtu) = (text(&far.0.name), far.1.to_ne_bytes());
    let mut peer = [
        &header(far.0.index)[..],
        &attribute(libc::IFLA_IFNAME, &name),
        &attribute(libc::IFLA_MTU, &mtu),
    ]
    .concat();
    if let Some(namespace) = far_namespace {
        let descriptor = namespace.as_raw_fd().to_ne_bytes();
        peer.extend(attribute(libc::IFLA_NET_NS_FD, &descriptor));
    }
    add(
        near.0,
        &header(near.0.index),
        "veth",
        &attribute(VETH_INFO_PEER, &peer),
    )
    .attribute(libc::IFLA_MTU, &near.1.to_ne_bytes())
}

/// Returns the request that creates a bridge and sets it up, with STP, forward delay and multicast
/// snooping disabled. The bridge drops frames larger than the MTU of the egress port. Its own MTU
/// applies only to its own traffic, and it has none.
pub(crate) fn add_bridge(bridge: &End) -> Request {
    let settings = [
        attribute(IFLA_BR_STP_STATE, &0u32.to_ne_bytes()),
        attribute(IFLA_BR_FORWARD_DELAY, &0u32.to_ne_bytes()),
        attribute(IFLA_BR_MCAST_SNOOPING, &[0]),
    ];
    add(
        bridge,
        &header_up(bridge.index, true),
        "bridge",
        &settings.concat(),
    )
}

/// Returns the request that creates an ifb, which queues redirected frames and returns them, and
/// sets it up. Its MTU limits nothing.
pub(crate) fn add_ifb(ifb: &End) -> Request {
    add(ifb, &header_up(ifb.index, true), "ifb", &[])
}

fn add(end: &End, header: &[u8], kind: &str, data: &[u8]) -> Request {
    let info = [
        attribute(libc::IFLA_INFO_KIND, &text(kind)),
        attribute(libc::IFLA_INFO_DATA, data),
    ];
    Request::new(libc::RTM_NEWLINK, header)
        .attribute(libc::IFLA_IFNAME, &text(&end.name))
        .attribute(libc::IFLA_LINKINFO, &info.concat())
}

pub(crate) fn remove(index: u32) -> Request {
    Request::new(libc::RTM_DELLINK, &header(index))
}

pub(crate) fn join_bridge(index: u32, bridge: u32) -> Request {
    Request::new(libc::RTM_SETLINK, &header(index))
        .attribute(libc::IFLA_MASTER, &bridge.to_ne_bytes())
}

pub(crate) fn set_up(index: u32, up: bool) -> Request {
    Request::new(libc::RTM_SETLINK, &header_up(index, up))
}

pub(crate) fn set_mtu(index: u32, mtu: u32) -> Request {
    Request::new(libc::RTM_SETLINK, &header(index)).attribute(libc::IFLA_MTU, &mtu.to_ne_bytes())
}

/// Returns the request that makes an interface send each packet as a separate frame, so that no
/// frame is larger than its MTU.
///
/// By default a veth passes superpackets of up to 64 KiB whole, and its peer accepts them whatever
/// its MTU (`__is_skb_forwardable`, `include/linux/netdevice.h`).
pub(crate) fn forbid_superpackets(index: u32) -> Request {
    Request::new(libc::RTM_SETLINK, &header(index))
        .attribute(libc::IFLA_GSO_MAX_SEGS, &1u32.to_ne_bytes())
}

/// Returns the query for the state of an interface; parse its answer with [`LinkState::parse`].
pub(crate) fn get(index: u32) -> Request {
    Request::new(libc::RTM_GETLINK, &header(index))
}

/// Administrative state, carrier, bridge port state and traffic of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// True if the interface is administratively up (`IFF_UP`).
    pub(crate) up: bool,
    /// True if the interface is up with carrier (`IFF_RUNNING`).
    pub(crate) running: bool,
    /// True if the interface is a bridge port in forwarding state.
    pub(crate) forwarding: bool,
    /// Bytes that the interface has carried; `None` if the kernel does not report them.
    pub(crate) traffic: Option<Traffic>,
}

impl LinkState {
    pub(crate) fn parse(message: &Message<'_>) -> Option<Self> {
        let (header, attributes) = message.split_if(libc::RTM_NEWLINK, IFINFO_LEN)?;
        let flags = u32_at(header, 8)?.cast_signed();
        let has = |wanted| flags & wanted == wanted;
        Some(Self {
            up: has(libc::IFF_UP),
            running: has(libc::IFF_RUNNING | libc::IFF_LOWER_UP),
            forwarding: port_state(attributes) == Some(BR_STATE_FORWARDING),
            traffic: attributes.find(libc::IFLA_STATS64).and_then(traffic),
        })
    }
}

fn port_state(attributes: Attributes<'_>) -> Option<u8> {
    let info = Attributes::new(attributes.find(libc::IFLA_LINKINFO)?);
    let port = Attributes::new(info.find(libc::IFLA_INFO_SLAVE_DATA)?);
    u8_at(port.find(IFLA_BRPORT_STATE)?, 0)
}

/// Parses a `struct rtnl_link_stats64`, which begins with received and sent packets, then bytes.
fn traffic(stats: &[u8]) -> Option<Traffic> {
    Some(Traffic {
        sent_bytes: u64_at(stats, 24)?,
        received_bytes: u64_at(stats, 16)?,
    })
}

/// Returns the request that adds an address to an interface. An IPv6 address is usable at once,
/// without duplicate address detection.
pub(crate) fn add_address(index: u32, address: Assigned) -> Request {
    let request = address_request(libc::RTM_NEWADDR, index, address);
    match address.broadcast() {
        Some(broadcast) => request.address(libc::IFA_BROADCAST, broadcast.into()),
        None if address.address.is_ipv6() => {
            request.attribute(libc::IFA_FLAGS, &libc::IFA_F_NODAD.to_ne_bytes())
        }
        None => request,
    }
}

pub(crate) fn remove_address(index: u32, address: Assigned) -> Request {
    address_request(libc::RTM_DELADDR, index, address)
}

fn address_request(kind: u16, index: u32, address: Assigned) -> Request {
    let family = if address.address.is_ipv6() {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    // struct ifaddrmsg: family, prefix length, flags, scope, index (u32).
    let [i0, i1, i2, i3] = index.to_ne_bytes();
    let header = [family as u8, address.prefix_len, 0, 0, i0, i1, i2, i3];
    Request::new(kind, &header)
        .address(libc::IFA_LOCAL, address.address)
        .address(libc::IFA_ADDRESS, address.address)
}

/// Returns the query for the IPv6 addresses of all interfaces; parse its answers with
/// [`Ipv6Address::parse`].
pub(crate) fn get_ipv6_addresses() -> Request {
    let header = [libc::AF_INET6 as u8, 0, 0, 0, 0, 0, 0, 0];
    Request::new(libc::RTM_GETADDR, &header)
}

/// IPv6 address of an interface, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ipv6Address {
    /// Index of the interface.
    pub(crate) interface: u32,
    pub(crate) address: Ipv6Addr,
    /// True if the address is not usable yet because duplicate address detection is in progress.
    pub(crate) tentative: bool,
}

impl Ipv6Address {
    /// Parses an address. Returns `None` for other families: a kernel without IPv6 returns the
    /// addresses of all families it supports.
    pub(crate) fn parse(message: &Message<'_>) -> Option<Self> {
        let (header, attributes) = message.split_if(libc::RTM_NEWADDR, IFADDR_LEN)?;
        let flags = u32::from(u8_at(header, 2)?);
        match ip(attributes.find(libc::IFA_ADDRESS)?)? {
            IpAddr::V6(address) => Some(Self {
                interface: u32_at(header, 4)?,
                address,
                tentative: flags & (libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED)
                    == libc::IFA_F_TENTATIVE,
            }),
            IpAddr::V4(_) => None,
        }
    }
}

/// Encodes the value of a text attribute, with its NUL terminator.
pub(crate) fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// Encodes a `struct ifinfomsg`: family and padding, type (u16), index (u32), flags (u32), mask of
/// changed flags (u32).
fn header(index: u32) -> [u8; IFINFO_LEN] {
    let mut header = [0; IFINFO_LEN];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

/// Encodes a `struct ifinfomsg` that sets the interface up or down.
fn header_up(index: u32, up: bool) -> [u8; IFINFO_LEN] {
    let mut header = header(index);
    header[8..12].copy_from_slice(&(i32::from(up) * libc::IFF_UP).to_ne_bytes());
    header[12..16].copy_from_slice(&libc::IFF_UP.to_ne_bytes());
    header
}

const IFINFO_LEN: usize = 16;
const IFADDR_LEN: usize = 8;

// include/uapi/linux/veth.h, if_link.h, if_bridge.h
const VETH_INFO_PEER: u16 = 1;
const IFLA_BR_FORWARD_DELAY: u16 = 1;
const IFLA_BR_STP_STATE: u16 = 5;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;
const IFLA_BRPORT_STATE: u16 = 1;
const BR_STATE_FORWARDING: u8 = 3;
