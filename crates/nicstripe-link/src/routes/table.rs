//! Adds, deletes and lists host routes in the kernel's routing tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroU32,
};

use nicstripe_netlink::{
    Attributes, Message, NLM_F_CREATE, NLM_F_EXCL, Netlink, Request, ip, u16_at, u32_at,
};

use crate::{
    interface::InterfaceIndex,
    routes::{HostRoute, ROUTE_PROTOCOL},
    socket::sockopt,
};

/// Adds a route to the main table. Never replaces an existing one.
///
/// # Errors
///
/// `EEXIST` if a route with the same destination and metric exists.
pub(crate) fn add(route: &HostRoute) -> io::Result<()> {
    Netlink::route()?.command(
        &request(libc::RTM_NEWROUTE, route),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

/// Deletes nicstripe's route with this destination, interface, metric and source.
///
/// # Errors
///
/// `ESRCH` if no such route exists.
pub(crate) fn delete(route: &HostRoute) -> io::Result<()> {
    Netlink::route()?.command(&request(libc::RTM_DELROUTE, route), 0)
}

/// Lists nicstripe's host routes (protocol [`ROUTE_PROTOCOL`]), in order of destination.
pub(crate) fn ours() -> io::Result<Vec<HostRoute>> {
    let mut routes = dump(ROUTE_PROTOCOL, |entry| entry.as_ours())?;
    routes.sort();
    Ok(routes)
}

/// Reads the gateways of all routing tables, and the destinations of other programs' host routes,
/// each with the route's protocol number.
pub(crate) fn survey() -> io::Result<(BTreeSet<IpAddr>, BTreeMap<IpAddr, u8>)> {
    let (mut gateways, mut host_routes) = (BTreeSet::from_iter(next_hops()), BTreeMap::new());
    dump(ANY_PROTOCOL, |entry| {
        gateways.extend(&entry.gateways);
        if let Some(destination) = entry.host().filter(|_| entry.protocol != ROUTE_PROTOCOL) {
            host_routes.insert(destination, entry.protocol);
        }
        None::<()>
    })?;
    Ok((gateways, host_routes))
}

/// Returns the protocol number of the existing host route with this destination and metric in the
/// main table.
pub(crate) fn occupant(destination: IpAddr, metric: NonZeroU32) -> io::Result<Option<u8>> {
    let found = dump(ANY_PROTOCOL, |entry| {
        let same = entry.table == libc::RT_TABLE_MAIN
            && entry.host() == Some(destination)
            && entry.metric == metric.get();
        same.then_some(entry.protocol)
    })?;
    Ok(found.into_iter().next())
}

/// Returns the name of a route's protocol number, as `ip route` prints it.
pub(crate) fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        12 => "bird",
        16 => "dhcp",
        ROUTE_PROTOCOL => "nicstripe",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        _ => return protocol.to_string(),
    };
    name.to_owned()
}

/// Returns the protocol number that [`protocol_name`] prints as `name`, or zero if there is none.
pub(crate) fn protocol_number(name: &str) -> u8 {
    (0..=u8::MAX)
        .find(|number| protocol_name(*number) == name)
        .unwrap_or(0)
}

fn request(kind: u16, route: &HostRoute) -> Request {
    let mut header = host_header(route.destination);
    header[4] = libc::RT_TABLE_MAIN;
    header[5] = ROUTE_PROTOCOL;
    header[6] = libc::RT_SCOPE_LINK;
    header[7] = libc::RTN_UNICAST;
    let request = Request::new(kind, &header)
        .address(libc::RTA_DST, route.destination)
        .attribute(libc::RTA_OIF, &route.interface.0.to_ne_bytes())
        .attribute(libc::RTA_PRIORITY, &route.metric.get().to_ne_bytes());
    match route.prefer_source {
        Some(source) => request.address(libc::RTA_PREFSRC, source),
        None => request,
    }
}

/// Dumps the IPv4 and IPv6 routes of one protocol (of all with [`ANY_PROTOCOL`]), and returns those
/// that `parse` accepts.
fn dump<T>(protocol: u8, mut parse: impl FnMut(&Entry) -> Option<T>) -> io::Result<Vec<T>> {
    let mut netlink = Netlink::route()?;
    // The kernel then filters route dumps by the request header (Linux 4.20). Older kernels ignore
    // this and send all routes.
    let _ = sockopt::set_int(&netlink, libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, 1);
    let mut found = Vec::new();
    for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
        let mut header = [0; ROUTE_HEADER_LEN];
        header[0] = family;
        header[5] = protocol;
        let parse = |message: &Message<'_>| {
            let entry = Entry::parse(message)?;
            let is_requested =
                entry.family == family && (protocol == ANY_PROTOCOL || entry.protocol == protocol);
            if is_requested { parse(&entry) } else { None }
        };
        match netlink.dump(&Request::new(libc::RTM_GETROUTE, &header), parse) {
            Ok(entries) => found.extend(entries),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the gateways of all next-hop objects (Linux 5.3). Routes may reference these objects by
/// ID, without naming the gateway.
fn next_hops() -> Vec<IpAddr> {
    let gateway = |message: &Message<'_>| {
        let (_, attributes) = message.split(NEXT_HOP_HEADER_LEN)?;
        ip(attributes.find(NHA_GATEWAY)?)
    };
    let request = Request::new(RTM_GETNEXTHOP, &[0; NEXT_HOP_HEADER_LEN]);
    // Older kernels reject the request because they have no such objects.
    Netlink::route()
        .and_then(|mut netlink| netlink.dump(&request, gateway))
        .unwrap_or_default()
}

/// Returns true if the error means that the kernel does not support the address family.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENOENT)
    )
}

/// Route in one of the kernel's routing tables.
#[derive(Debug)]
pub(crate) struct Entry {
    family: u8,
    prefix_len: u8,
    table: u8,
    protocol: u8,
    kind: u8,
    cloned: bool,
    destination: Option<IpAddr>,
    interface: Option<InterfaceIndex>,
    source: Option<IpAddr>,
    metric: u32,
    gateways: Vec<IpAddr>,
}

impl Entry {
    pub(crate) fn parse(message: &Message<'_>) -> Option<Self> {
        let (header, attributes) = message.split_if(libc::RTM_NEWROUTE, ROUTE_HEADER_LEN)?;
        let number = |kind| attributes.find(kind).and_then(|value| u32_at(value, 0));
        Some(Self {
            family: *header.first()?,
            prefix_len: *header.get(1)?,
            table: *header.get(4)?,
            protocol: *header.get(5)?,
            kind: *header.get(7)?,
            cloned: u32_at(header, 8)? & libc::RTM_F_CLONED != 0,
            destination: attributes.find(libc::RTA_DST).and_then(ip),
            interface: number(libc::RTA_OIF).map(InterfaceIndex),
            source: attributes.find(libc::RTA_PREFSRC).and_then(ip),
            metric: number(libc::RTA_PRIORITY).unwrap_or(0),
            gateways: gateways(attributes),
        })
    }

    /// Returns the destination if it is a single address and the route is not a cached clone.
    fn host(&self) -> Option<IpAddr> {
        let destination = self.destination?;
        (self.prefix_len == host_prefix_len(destination) && !self.cloned).then_some(destination)
    }

    /// Returns the route if it has the form of nicstripe's: its protocol, main table, unicast, no
    /// gateway, a single destination, an interface and a metric.
    pub(crate) fn as_ours(&self) -> Option<HostRoute> {
        let ours = self.protocol == ROUTE_PROTOCOL
            && self.table == libc::RT_TABLE_MAIN
            && self.kind == libc::RTN_UNICAST
            && self.gateways.is_empty();
        if !ours {
            return None;
        }
        Some(HostRoute {
            destination: self.host()?,
            interface: self.interface?,
            prefer_source: self.source,
            metric: NonZeroU32::new(self.metric)?,
        })
    }
}

fn gateways(attributes: Attributes<'_>) -> Vec<IpAddr> {
    let mut gateways = Vec::from_iter(gateway(attributes));
    let mut hops = attributes.find(libc::RTA_MULTIPATH).unwrap_or_default();
    while let Some(len) = u16_at(hops, 0).map(usize::from) {
        let Some(hop) = hops.get(NEXT_HOP_LEN..len) else {
            break;
        };
        gateways.extend(gateway(Attributes::new(hop)));
        hops = hops.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    gateways
}

/// Returns the gateway of a route with one next hop, or of one of several next hops.
pub(crate) fn gateway(attributes: Attributes<'_>) -> Option<IpAddr> {
    let gateway = attributes.find(libc::RTA_GATEWAY).and_then(ip);
    gateway.or_else(|| attributes.find(RTA_VIA).and_then(via))
}

/// Parses an `RTA_VIA` attribute: a gateway that may be of another address family than the route.
pub(crate) fn via(value: &[u8]) -> Option<IpAddr> {
    ip(value.get(2..)?)
}

/// Returns the `struct rtmsg` of a message about a single address.
pub(crate) fn host_header(address: IpAddr) -> [u8; ROUTE_HEADER_LEN] {
    let mut header = [0; ROUTE_HEADER_LEN];
    header[0] = family(address);
    header[1] = host_prefix_len(address);
    header
}

/// Returns the address family number of an address.
pub(crate) fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    family as u8
}

fn host_prefix_len(address: IpAddr) -> u8 {
    let bits = if address.is_ipv4() {
        Ipv4Addr::BITS
    } else {
        Ipv6Addr::BITS
    };
    bits as u8
}

const ANY_PROTOCOL: u8 = 0;

// include/uapi/linux/rtnetlink.h
const RTM_GETNEXTHOP: u16 = 106;
/// Length of `struct rtmsg` in bytes: family, destination length, source length, TOS, table,
/// protocol, scope, type, flags (u32).
pub(crate) const ROUTE_HEADER_LEN: usize = 12;
/// Length of `struct rtnexthop` in bytes: length (u16), flags, hops, index (i32).
const NEXT_HOP_LEN: usize = 8;
pub(crate) const RTA_VIA: u16 = 18;

// include/uapi/linux/nexthop.h; `struct nhmsg`: family, scope, protocol, reserved, flags (u32).
const NEXT_HOP_HEADER_LEN: usize = 8;
const NHA_GATEWAY: u16 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use nicstripe_netlink::push_attribute;

    fn entry(route: &HostRoute) -> Entry {
        let bytes = request(libc::RTM_NEWROUTE, route).encode(0, 1);
        Entry::parse(&nicstripe_netlink::Messages::new(&bytes).next().unwrap()).unwrap()
    }

    fn route(destination: &str, source: Option<&str>) -> HostRoute {
        HostRoute {
            destination: destination.parse().unwrap(),
            interface: InterfaceIndex(7),
            prefer_source: source.map(|source| source.parse().unwrap()),
            metric: HostRoute::DEFAULT_METRIC,
        }
    }

    #[test]
    fn a_route_of_ours_is_recognised_as_what_was_asked_for() {
        for route in [
            route("10.0.0.2", None),
            route("10.0.0.2", Some("10.0.0.1")),
            route("fd00::2", None),
        ] {
            assert_eq!(entry(&route).as_ours(), Some(route));
        }
    }

    #[test]
    fn every_protocol_number_has_a_name_of_its_own() {
        assert!((0..=u8::MAX).all(|number| protocol_number(&protocol_name(number)) == number));
    }

    #[test]
    fn our_number_alone_does_not_make_a_route_ours() {
        let change = |edit: fn(&mut Entry)| {
            let mut entry = entry(&route("10.0.0.2", None));
            edit(&mut entry);
            entry.as_ours()
        };
        assert!(change(|_| ()).is_some());
        assert_eq!(change(|entry| entry.protocol = 4), None);
        assert_eq!(change(|entry| entry.prefix_len = 24), None);
        assert_eq!(change(|entry| entry.table = 100), None);
        assert_eq!(change(|entry| entry.kind = 6), None);
        assert_eq!(
            change(|entry| entry.gateways = vec![[10, 0, 0, 1].into()]),
            None
        );
        assert_eq!(change(|entry| entry.cloned = true), None);
        assert_eq!(change(|entry| entry.interface = None), None);
    }

    #[test]
    fn gateways_are_found_in_plain_foreign_and_multipath_routes() {
        let mut hop = Vec::new();
        push_attribute(&mut hop, libc::RTA_GATEWAY, &[10, 0, 0, 3]);
        let mut multipath = Vec::new();
        for _ in 0..2 {
            multipath.extend_from_slice(&((NEXT_HOP_LEN + hop.len()) as u16).to_ne_bytes());
            multipath.extend_from_slice(&[0; 6]);
            multipath.extend_from_slice(&hop);
        }
        let mut attributes = Vec::new();
        push_attribute(&mut attributes, RTA_VIA, &[10, 0, 10, 0, 0, 2]);
        push_attribute(&mut attributes, libc::RTA_MULTIPATH, &multipath);
        let found = gateways(Attributes::new(&attributes));
        let expected: Vec<IpAddr> = vec![
            [10, 0, 0, 2].into(),
            [10, 0, 0, 3].into(),
            [10, 0, 0, 3].into(),
        ];
        assert_eq!(found, expected);
    }
}
