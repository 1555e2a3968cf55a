//! Access to the kernel's IPv4 routes by plain rtnetlink(7), without the code that installs
//! nicstripe's routes.

use std::net::Ipv4Addr;

use nicstripe_netlink::{
    BUFFER_LEN, Message, Messages, NLM_F_REPLACE, Netlink, NetlinkSocket, u32_at,
};
pub use nicstripe_netlink::{NLM_F_CREATE, NLM_F_EXCL, Request, attribute};
use nix::libc;
use rustix::net::{AddressFamily, SocketFlags};

/// IPv4 host route (/32) in the main routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRoute {
    pub destination: Ipv4Addr,
    pub interface: u32,
    /// Routing protocol that installed the route, as listed in `/etc/iproute2/rt_protos`.
    pub protocol: u8,
}

/// Reads the host routes of the main table of the calling thread's host, sorted.
pub fn host_routes() -> Vec<KernelRoute> {
    let mut routes = dump(host_route);
    routes.sort();
    routes
}

/// Parses an RTM_NEWROUTE message; `None` unless the route is a host route in the main table.
fn host_route(message: &Message<'_>) -> Option<KernelRoute> {
    let (header, attributes) = message.split(ROUTE_MESSAGE).unwrap();
    let [family, bits, _, _, table, protocol, ..] = header[..] else {
        panic!("short message: {header:?}")
    };
    if (u16::from(family), bits, table) != (AddressFamily::INET.as_raw(), 32, libc::RT_TABLE_MAIN) {
        return None;
    }
    let destination: [u8; 4] = attributes.find(libc::RTA_DST)?.try_into().unwrap();
    Some(KernelRoute {
        destination: destination.into(),
        interface: u32_at(attributes.find(libc::RTA_OIF)?, 0)?,
        protocol,
    })
}

/// Netlink socket that receives all changes of a host's IPv4 routes, including short-lived routes.
pub struct Watch(NetlinkSocket);

impl Watch {
    /// Starts to monitor the routes of the calling thread's host.
    pub fn begin() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Self(NetlinkSocket::open(None, flags, RTMGRP_IPV4_ROUTE).unwrap())
    }

    /// Returns the host routes added to the main table since the last call.
    pub fn added(&self) -> Vec<KernelRoute> {
        let mut added = Vec::new();
        let mut buffer = vec![0; BUFFER_LEN];
        while let Ok(datagram) = self.0.receive(&mut buffer) {
            let new = Messages::new(datagram).filter(|message| message.kind == libc::RTM_NEWROUTE);
            added.extend(new.filter_map(|message| host_route(&message)));
        }
        added
    }
}

/// Reads all IPv4 routes of all tables of the calling thread's host, in the kernel's format and
/// sorted.
pub fn tables() -> Vec<Vec<u8>> {
    let mut routes = dump(|message| Some(message.body.to_vec()));
    routes.sort();
    routes
}

/// Adds a host route to the main table on the calling thread's host.
pub fn add(route: KernelRoute) {
    add_prefix(route, 32);
}

/// Adds a route to the prefix of `bits` bits that contains the route's destination.
pub fn add_prefix(route: KernelRoute, bits: u8) {
    let body = route_message(
        bits,
        libc::RT_TABLE_MAIN,
        route.protocol,
        libc::RT_SCOPE_LINK,
    );
    let request = Request::new(libc::RTM_NEWROUTE, &body)
        .address(libc::RTA_DST, route.destination.into())
        .attribute(libc::RTA_OIF, &route.interface.to_ne_bytes());
    command(&request, NLM_F_CREATE | NLM_F_EXCL);
}

/// Adds a route to a prefix with `gateway` as its next hop.
pub fn add_gateway(prefix: Ipv4Addr, bits: u8, gateway: Ipv4Addr) {
    let body = route_message(
        bits,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_UNIVERSE,
    );
    let request = Request::new(libc::RTM_NEWROUTE, &body)
        .address(libc::RTA_DST, prefix.into())
        .address(libc::RTA_GATEWAY, gateway.into());
    command(&request, NLM_F_CREATE | NLM_F_EXCL);
}

/// Brings an interface of the calling thread's host up or down.
pub fn switch(interface: u32, on: bool) {
    let body = words([0, interface, u32::from(on), IFF_UP]);
    command(&Request::new(libc::RTM_NEWLINK, &body), 0);
}

/// Adds a neighbour entry with the given hardware address on the calling thread's host. The kernel
/// adds such an entry after an ARP request from `address`.
pub fn learn(address: Ipv4Addr, interface: u32, hardware: &[u8]) {
    let family = AddressFamily::INET.as_raw().into();
    let body = words([family, interface, libc::NUD_STALE.into()]);
    let request = Request::new(libc::RTM_NEWNEIGH, &body)
        .address(libc::NDA_DST, address.into())
        .attribute(libc::NDA_LLADDR, hardware);
    command(&request, NLM_F_CREATE | NLM_F_REPLACE);
}

/// Reads the hardware address of an interface of the calling thread's host.
pub fn hardware(interface: u32) -> Vec<u8> {
    let body = words([0, interface, 0, 0]);
    let address = |message: &Message<'_>| {
        let (_, attributes) = message.split(body.len())?;
        Some(attributes.find(libc::IFLA_ADDRESS)?.to_vec())
    };
    Netlink::route()
        .unwrap()
        .query(&Request::new(libc::RTM_GETLINK, &body), address)
        .unwrap()
        .unwrap()
}

/// Sends a request from the calling thread's host, and panics unless the kernel acknowledges it.
pub fn command(request: &Request, flags: u16) {
    Netlink::route().unwrap().command(request, flags).unwrap();
}

/// Reads all IPv4 routes of the calling thread's host. Returns the results of `parse` that are not
/// `None`.
fn dump<T>(parse: impl FnMut(&Message<'_>) -> Option<T>) -> Vec<T> {
    let request = Request::new(
        libc::RTM_GETROUTE,
        &route_message(0, 0, 0, libc::RT_SCOPE_LINK),
    );
    Netlink::route().unwrap().dump(&request, parse).unwrap()
}

/// Builds the `struct rtmsg` of a route request.
fn route_message(bits: u8, table: u8, protocol: u8, scope: u8) -> [u8; ROUTE_MESSAGE] {
    let family = u8::try_from(AddressFamily::INET.as_raw()).unwrap();
    let kind = libc::RTN_UNICAST;
    [family, bits, 0, 0, table, protocol, scope, kind, 0, 0, 0, 0]
}

fn words<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.map(u32::to_ne_bytes).concat()
}

/// Length of a `struct rtmsg` in bytes.
const ROUTE_MESSAGE: usize = 12;

// linux/rtnetlink.h
const RTMGRP_IPV4_ROUTE: u32 = 0x40;

/// Routing protocol number (`rtm_protocol`) of routes that nicstripe installs.
pub const NICSTRIPE: u8 = 83;

// linux/if.h
const IFF_UP: u32 = 1;
