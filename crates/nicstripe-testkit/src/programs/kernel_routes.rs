//! Access to the kernel's IPv4 routes by plain rtnetlink(7), independent of nicstripe's own code.

use std::{io, net::Ipv4Addr, os::fd::OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink::SocketAddrNetlink,
    recvfrom, sendto, socket_with,
};

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
    let answers = talk(RTM_GETROUTE, NLM_F_DUMP, &route_message(0, 0, 0), &[]);
    let mut routes: Vec<KernelRoute> = answers
        .iter()
        .filter_map(|answer| host_route(answer))
        .collect();
    routes.sort();
    routes
}

/// Parses an RTM_NEWROUTE message. `None` unless it is a host route of the main table.
fn host_route(body: &[u8]) -> Option<KernelRoute> {
    let (header, attributes) = body.split_at(ROUTE_MESSAGE);
    let [family, bits, _, _, table, protocol, ..] = header[..] else {
        panic!("short message: {body:?}")
    };
    if (u16::from(family), bits, table) != (AddressFamily::INET.as_raw(), 32, RT_TABLE_MAIN) {
        return None;
    }
    let (mut destination, mut interface) = (None, None);
    for (kind, value) in attributes_of(attributes) {
        let value = <[u8; 4]>::try_from(value).ok();
        match kind {
            RTA_DST => destination = value.map(Ipv4Addr::from),
            RTA_OIF => interface = value.map(u32::from_ne_bytes),
            _ => {}
        }
    }
    Some(KernelRoute {
        destination: destination.unwrap(),
        interface: interface.unwrap(),
        protocol,
    })
}

/// Netlink socket that receives all changes of a host's IPv4 routes, also of short-lived ones.
pub struct Watch(OwnedFd);

impl Watch {
    /// Starts to monitor the routes of the calling thread's host.
    pub fn begin() -> Self {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        bind(&socket, &SocketAddrNetlink::new(0, RTMGRP_IPV4_ROUTE)).unwrap();
        Self(socket)
    }

    /// Returns the host routes added to the main table since the last call.
    pub fn added(&self) -> Vec<KernelRoute> {
        let mut added = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, _, _)) = recvfrom(&self.0, &mut buffer[..], RecvFlags::DONTWAIT) {
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
                if u16::from_ne_bytes([rest[4], rest[5]]) == RTM_NEWROUTE {
                    added.extend(host_route(&rest[HEADER..length]));
                }
                rest = &rest[aligned(length).min(rest.len())..];
            }
        }
        added
    }
}

/// Reads all IPv4 routes of all tables of the calling thread's host, in the kernel's format and
/// sorted.
pub fn tables() -> Vec<Vec<u8>> {
    let mut routes = talk(RTM_GETROUTE, NLM_F_DUMP, &route_message(0, 0, 0), &[]);
    routes.sort();
    routes
}

/// Adds a host route to the main table of the calling thread's host.
pub fn add(route: KernelRoute) {
    add_prefix(route, 32);
}

/// Adds a route to the prefix of `bits` bits at the route's destination.
pub fn add_prefix(route: KernelRoute, bits: u8) {
    let mut attributes = attribute(RTA_DST, &route.destination.octets());
    attributes.extend(attribute(RTA_OIF, &route.interface.to_ne_bytes()));
    talk(
        RTM_NEWROUTE,
        NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK,
        &route_message(bits, RT_TABLE_MAIN, route.protocol),
        &attributes,
    );
}

/// Adds a route to a prefix with `gateway` as its next hop.
pub fn add_gateway(prefix: Ipv4Addr, bits: u8, gateway: Ipv4Addr) {
    let attributes = [
        attribute(RTA_DST, &prefix.octets()),
        attribute(RTA_GATEWAY, &gateway.octets()),
    ]
    .concat();
    let mut body = route_message(bits, RT_TABLE_MAIN, RTPROT_BOOT);
    body[SCOPE] = RT_SCOPE_UNIVERSE;
    talk(
        RTM_NEWROUTE,
        NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK,
        &body,
        &attributes,
    );
}

/// Brings an interface of the calling thread's host up or down.
pub fn switch(interface: u32, on: bool) {
    let number = |value: u32| value.to_ne_bytes();
    let body = [
        number(0),
        number(interface),
        number(u32::from(on)),
        number(IFF_UP),
    ]
    .concat();
    talk(RTM_NEWLINK, NLM_F_ACK, &body, &[]);
}

/// Adds a neighbour entry with this hardware address on the calling thread's host, as the kernel
/// does after an ARP request from `address`.
pub fn learn(address: Ipv4Addr, interface: u32, hardware: &[u8]) {
    let number = |value: u32| value.to_ne_bytes();
    let body = [
        number(AddressFamily::INET.as_raw().into()),
        number(interface),
        number(NUD_STALE),
    ]
    .concat();
    let attributes = [
        attribute(NDA_DST, &address.octets()),
        attribute(NDA_LLADDR, hardware),
    ]
    .concat();
    talk(
        RTM_NEWNEIGH,
        NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK,
        &body,
        &attributes,
    );
}

/// Reads the hardware address of an interface of the calling thread's host.
pub fn hardware(interface: u32) -> Vec<u8> {
    let number = |value: u32| value.to_ne_bytes();
    let body = [number(0), number(interface), number(0), number(0)].concat();
    let answers = talk(RTM_GETLINK, NLM_F_ACK, &body, &[]);
    attributes_of(&answers[0][body.len()..])
        .find(|(kind, _)| *kind == IFLA_ADDRESS)
        .unwrap()
        .1
        .to_vec()
}

/// Sends a netlink request, and returns the bodies of the responses.
pub fn talk(kind: u16, flags: u16, body: &[u8], attributes: &[u8]) -> Vec<Vec<u8>> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let length = u32::try_from(HEADER + body.len() + attributes.len()).unwrap();
    let mut request = length.to_ne_bytes().to_vec();
    request.extend([kind.to_ne_bytes(), (flags | NLM_F_REQUEST).to_ne_bytes()].concat());
    // Sequence number and port are zero: one request per socket.
    request.extend([0; 8]);
    request.extend(body);
    request.extend(attributes);
    sendto(
        &socket,
        &request,
        SendFlags::empty(),
        &SocketAddrNetlink::new(0, 0),
    )
    .unwrap();

    let mut answers = Vec::new();
    loop {
        let mut buffer = vec![0; 1 << 16];
        let (length, _, _) = recvfrom(&socket, &mut buffer[..], RecvFlags::empty()).unwrap();
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
            let (kind, body) = (
                u16::from_ne_bytes([rest[4], rest[5]]),
                &rest[HEADER..length],
            );
            match kind {
                NLMSG_DONE => return answers,
                NLMSG_ERROR => {
                    let errno = i32::from_ne_bytes(body[..4].try_into().unwrap());
                    assert_eq!(errno, 0, "{}", io::Error::from_raw_os_error(-errno));
                    return answers;
                }
                _ => answers.push(body.to_vec()),
            }
            rest = &rest[aligned(length).min(rest.len())..];
        }
    }
}

/// Builds the `struct rtmsg` of a request about routes.
fn route_message(bits: u8, table: u8, protocol: u8) -> [u8; ROUTE_MESSAGE] {
    let family = u8::try_from(AddressFamily::INET.as_raw()).unwrap();
    [
        family,
        bits,
        0,
        0,
        table,
        protocol,
        RT_SCOPE_LINK,
        RTN_UNICAST,
        0,
        0,
        0,
        0,
    ]
}

/// Builds a netlink attribute, padded to the alignment of the next one.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 2 * size_of::<u16>() + value.len();
    let mut bytes = [
        &u16::try_from(length).unwrap().to_ne_bytes()[..],
        &kind.to_ne_bytes(),
        value,
    ]
    .concat();
    bytes.resize(aligned(length), 0);
    bytes
}

fn attributes_of(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().unwrap()));
        let (kind, value) = (u16::from_ne_bytes([bytes[2], bytes[3]]), &bytes[4..length]);
        bytes = &bytes[aligned(length).min(bytes.len())..];
        Some((kind, value))
    })
}

/// Rounds a length up to a multiple of 4 bytes, to which netlink aligns messages and attributes.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// Length of a `struct nlmsghdr` in bytes.
const HEADER: usize = 16;
/// Length of a `struct rtmsg` in bytes.
const ROUTE_MESSAGE: usize = 12;
/// Offset of the scope in a `struct rtmsg`, in bytes.
const SCOPE: usize = 6;

// linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
pub const NLM_F_ACK: u16 = 0x4;
pub const NLM_F_EXCL: u16 = 0x200;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_CREATE: u16 = 0x400;

// linux/rtnetlink.h
pub const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_TABLE_MAIN: u8 = 254;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;

/// Routing protocol number (`rtm_protocol`) of routes that nicstripe installs.
pub const NICSTRIPE: u8 = 83;

// linux/if_link.h, linux/neighbour.h
const IFLA_ADDRESS: u16 = 1;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_STALE: u32 = 0x04;

// linux/if.h
const IFF_UP: u32 = 1;
