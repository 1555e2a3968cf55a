//! The rtnetlink messages that wire a lab: pure, what to say and not when.

use std::net::IpAddr;

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{
        BridgePortState, BridgeStpState, InfoBridge, InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoVeth, LinkAttribute, LinkFlags,
        LinkInfo, LinkMessage,
    },
};

use crate::{address::Assigned, namespace::Namespace};

/// One end of a veth pair. Indexes are chosen here, not by the kernel, so that nothing has to be looked up.
///
/// The two ends of a pair must differ in index even though they live in different namespaces: the kernel takes a device whose
/// peer has its own index for one without a peer and reports its carrier up to a second late (`net/core/link_watch.c`).
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) name: String,
    pub(crate) index: u32,
}

impl End {
    fn message(&self, mtu: u32) -> LinkMessage {
        let mut message = interface(self.index);
        message.attributes = vec![LinkAttribute::IfName(self.name.clone()), LinkAttribute::Mtu(mtu)];
        message
    }
}

/// Makes a veth pair, each end with its MTU: `near` in the namespace of the socket, `far` in another one, or in the same for `None`.
pub(crate) fn add_veth(near: (&End, u32), far: (&End, u32), far_namespace: Option<&Namespace>) -> RouteNetlinkMessage {
    let mut peer = far.0.message(far.1);
    peer.attributes.extend(far_namespace.map(|namespace| LinkAttribute::NetNsFd(namespace.as_raw_fd())));
    let mut message = near.0.message(near.1);
    message
        .attributes
        .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer)))]));
    RouteNetlinkMessage::NewLink(message)
}

/// Makes a bridge that forwards at once and does nothing else, and sets it up. It refuses what is larger than the MTU of the port it
/// would leave by; an MTU of its own it has for what it sends itself, which is nothing.
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

/// Makes an ifb, which queues what is redirected to it and hands it back, and sets it up. Its MTU bounds nothing.
pub(crate) fn add_ifb(ifb: &End) -> RouteNetlinkMessage {
    let mut message = interface(ifb.index);
    message.attributes = vec![LinkAttribute::IfName(ifb.name.clone()), LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)])];
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    RouteNetlinkMessage::NewLink(message)
}

/// Removes an interface that was made.
pub(crate) fn remove(index: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelLink(interface(index))
}

/// Puts an interface into a bridge.
pub(crate) fn join_bridge(index: u32, bridge: u32) -> RouteNetlinkMessage {
    let mut message = interface(index);
    message.attributes = vec![LinkAttribute::Controller(bridge)];
    RouteNetlinkMessage::SetLink(message)
}

/// Sets an interface administratively up or down.
pub(crate) fn set_up(index: u32, up: bool) -> RouteNetlinkMessage {
    let mut message = interface(index);
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    message.header.change_mask = LinkFlags::Up;
    RouteNetlinkMessage::SetLink(message)
}

/// Has an interface send each packet as one frame, so that none is larger than its MTU.
///
/// Left alone, a veth hands superpackets of up to 64 KiB on whole, and its peer takes them whatever its MTU is
/// (`__is_skb_forwardable`, `include/linux/netdevice.h`).
pub(crate) fn forbid_superpackets(index: u32) -> RouteNetlinkMessage {
    let mut message = interface(index);
    message.attributes = vec![LinkAttribute::GsoMaxSegs(1)];
    RouteNetlinkMessage::SetLink(message)
}

/// Gives an interface an address. An IPv6 address is usable at once: no duplicate is looked for.
pub(crate) fn add_address(index: u32, address: Assigned) -> RouteNetlinkMessage {
    let mut message = address_of(index, address);
    message.attributes.extend(address.broadcast().map(AddressAttribute::Broadcast));
    if address.address().is_ipv6() {
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    RouteNetlinkMessage::NewAddress(message)
}

/// Takes an address from an interface.
pub(crate) fn remove_address(index: u32, address: Assigned) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelAddress(address_of(index, address))
}

/// The address in a message about one.
pub(crate) fn address(message: &AddressMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    })
}

/// Whether duplicates of an IPv6 address are still looked for, so that nobody may use it yet.
pub(crate) fn is_tentative(message: &AddressMessage) -> bool {
    let flags = message.header.flags;
    flags.contains(AddressHeaderFlags::Tentative) && !flags.contains(AddressHeaderFlags::Dadfailed)
}

/// Whether an interface is administratively up.
pub(crate) fn is_up(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Up)
}

/// Whether an interface is up and has a carrier, as a program asks for it (`IFF_RUNNING`).
pub(crate) fn is_running(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Running | LinkFlags::LowerUp)
}

/// Whether an interface is a bridge port that forwards.
pub(crate) fn is_forwarding(link: &LinkMessage) -> bool {
    let infos = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    let ports = infos.flatten().filter_map(|info| match info {
        LinkInfo::PortData(InfoPortData::BridgePort(port)) => Some(port),
        _ => None,
    });
    ports.flatten().any(|port| matches!(port, InfoBridgePort::State(BridgePortState::Forwarding)))
}

fn address_of(index: u32, address: Assigned) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = if address.address().is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Local(address.address()), AddressAttribute::Address(address.address())];
    message
}

fn interface(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}
