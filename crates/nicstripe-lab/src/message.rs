//! The rtnetlink messages that wire a lab: pure, what to say and not when.

use std::net::{IpAddr, Ipv4Addr};

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{
        BridgePortState, BridgeStpState, InfoBridge, InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoVeth, LinkAttribute, LinkFlags,
        LinkInfo, LinkMessage,
    },
};

use crate::namespace::Namespace;

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

/// Makes a veth pair: `near` in the namespace of the socket, `far` in another one, or in the same for `None`.
pub(crate) fn add_veth(near: &End, far: &End, far_namespace: Option<&Namespace>, mtu: u32) -> RouteNetlinkMessage {
    let mut peer = far.message(mtu);
    peer.attributes.extend(far_namespace.map(|namespace| LinkAttribute::NetNsFd(namespace.as_raw_fd())));
    let mut message = near.message(mtu);
    message
        .attributes
        .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer)))]));
    RouteNetlinkMessage::NewLink(message)
}

/// Makes a bridge that forwards at once and does nothing else, and sets it up.
pub(crate) fn add_bridge(bridge: &End, mtu: u32) -> RouteNetlinkMessage {
    let mut message = bridge.message(mtu);
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

/// Gives an interface an address in a /24.
pub(crate) fn add_address(index: u32, address: Ipv4Addr) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = 24;
    message.header.index = index;
    let [a, b, c, _] = address.octets();
    message.attributes = vec![
        AddressAttribute::Local(IpAddr::V4(address)),
        AddressAttribute::Address(IpAddr::V4(address)),
        AddressAttribute::Broadcast(Ipv4Addr::new(a, b, c, 255)),
    ];
    RouteNetlinkMessage::NewAddress(message)
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

fn interface(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}
