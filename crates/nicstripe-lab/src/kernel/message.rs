//! rtnetlink messages that create and connect a lab's interfaces. No I/O.

use std::net::IpAddr;

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{
        BridgePortState, BridgeStpState, InfoBridge, InfoBridgePort, InfoData, InfoKind,
        InfoPortData, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    },
};

use crate::{address::Assigned, kernel::namespace::Namespace};

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

impl End {
    fn message(&self, mtu: u32) -> LinkMessage {
        let mut message = interface(self.index);
        message.attributes = vec![
            LinkAttribute::IfName(self.name.clone()),
            LinkAttribute::Mtu(mtu),
        ];
        message
    }
}

/// Returns the request that creates a veth pair; each interface comes with its MTU in bytes. `near`
/// is created in the socket's namespace, `far` in `far_namespace`, or in the same one if it is
/// `None`.
pub(crate) fn add_veth(
    near: (&End, u32),
    far: (&End, u32),
    far_namespace: Option<&Namespace>,
) -> RouteNetlinkMessage {
    let mut peer = far.0.message(far.1);
    peer.attributes
        .extend(far_namespace.map(|namespace| LinkAttribute::NetNsFd(namespace.as_raw_fd())));
    let mut message = near.0.message(near.1);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    RouteNetlinkMessage::NewLink(message)
}

/// Returns the request that creates a bridge and sets it up, with STP, forward delay and multicast
/// snooping disabled. The bridge drops frames larger than the MTU of the egress port. Its own MTU
/// applies only to its own traffic, and it has none.
pub(crate) fn add_bridge(bridge: &End) -> RouteNetlinkMessage {
    let mut message = interface(bridge.index);
    message.attributes = vec![LinkAttribute::IfName(bridge.name.clone())];
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Bridge),
        LinkInfo::Data(InfoData::Bridge(vec![
            InfoBridge::StpState(BridgeStpState::Disabled),
            InfoBridge::ForwardDelay(0),
            InfoBridge::MulticastSnooping(false),
        ])),
    ]));
    RouteNetlinkMessage::NewLink(message)
}

/// Returns the request that creates an ifb, which queues redirected frames and returns them, and
/// sets it up. Its MTU limits nothing.
pub(crate) fn add_ifb(ifb: &End) -> RouteNetlinkMessage {
    let mut message = interface(ifb.index);
    message.attributes = vec![
        LinkAttribute::IfName(ifb.name.clone()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]),
    ];
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    RouteNetlinkMessage::NewLink(message)
}

pub(crate) fn remove(index: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelLink(interface(index))
}

pub(crate) fn join_bridge(index: u32, bridge: u32) -> RouteNetlinkMessage {
    let mut message = interface(index);
    message.attributes = vec![LinkAttribute::Controller(bridge)];
    RouteNetlinkMessage::SetLink(message)
}

pub(crate) fn set_up(index: u32, up: bool) -> RouteNetlinkMessage {
    let mut message = interface(index);
    message.header.flags = if up {
        LinkFlags::Up
    } else {
        LinkFlags::empty()
    };
    message.header.change_mask = LinkFlags::Up;
    RouteNetlinkMessage::SetLink(message)
}

/// Returns the request that makes an interface send each packet as a separate frame, so that no
/// frame is larger than its MTU.
///
/// By default a veth passes superpackets of up to 64 KiB whole, and its peer accepts them whatever
/// its MTU (`__is_skb_forwardable`, `include/linux/netdevice.h`).
pub(crate) fn forbid_superpackets(index: u32) -> RouteNetlinkMessage {
    let mut message = interface(index);
    message.attributes = vec![LinkAttribute::GsoMaxSegs(1)];
    RouteNetlinkMessage::SetLink(message)
}

/// Returns the request that adds an address to an interface. An IPv6 address is usable at once,
/// without duplicate address detection.
pub(crate) fn add_address(index: u32, address: Assigned) -> RouteNetlinkMessage {
    let mut message = address_of(index, address);
    message
        .attributes
        .extend(address.broadcast().map(AddressAttribute::Broadcast));
    if address.address().is_ipv6() {
        message
            .attributes
            .push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    RouteNetlinkMessage::NewAddress(message)
}

pub(crate) fn remove_address(index: u32, address: Assigned) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelAddress(address_of(index, address))
}

/// Returns the IP address in an address message.
pub(crate) fn address(message: &AddressMessage) -> Option<IpAddr> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
}

/// Returns true if the IPv6 address is not usable yet because duplicate address detection is in
/// progress.
pub(crate) fn is_tentative(message: &AddressMessage) -> bool {
    let flags = message.header.flags;
    flags.contains(AddressHeaderFlags::Tentative) && !flags.contains(AddressHeaderFlags::Dadfailed)
}

/// Returns true if the interface is administratively up (`IFF_UP`).
pub(crate) fn is_up(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Up)
}

/// Returns true if the interface is up with carrier (`IFF_RUNNING`).
pub(crate) fn is_running(link: &LinkMessage) -> bool {
    link.header
        .flags
        .contains(LinkFlags::Running | LinkFlags::LowerUp)
}

/// Returns true if the interface is a bridge port in forwarding state.
pub(crate) fn is_forwarding(link: &LinkMessage) -> bool {
    let infos = link
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
    let ports = infos.flatten().filter_map(|info| match info {
        LinkInfo::PortData(InfoPortData::BridgePort(port)) => Some(port),
        _ => None,
    });
    ports
        .flatten()
        .any(|port| matches!(port, InfoBridgePort::State(BridgePortState::Forwarding)))
}

fn address_of(index: u32, address: Assigned) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = if address.address().is_ipv6() {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(address.address()),
        AddressAttribute::Address(address.address()),
    ];
    message
}

fn interface(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}
