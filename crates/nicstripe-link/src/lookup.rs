//! Which way the kernel would send a packet: its own answer, without sending one.

use std::{io, net::IpAddr};

use crate::{
    interface::{Interface, InterfaceIndex},
    netlink::{Message, Netlink, Request, ip, u32_at},
    route_table::{ROUTE_HEADER_LEN, RTA_DST, RTA_GATEWAY, RTA_OIF, RTA_PREFSRC, RTA_VIA, RTM_GETROUTE, RTM_NEWROUTE, host_header, via},
};

/// The kernel's way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteTo {
    /// The interface it would leave by (`lo` for own addresses).
    pub interface: InterfaceIndex,
    /// The source address an unbound socket would get.
    pub local: Option<IpAddr>,
    /// The router it would go to; `None` when the address is on-link.
    pub gateway: Option<IpAddr>,
}

/// Asks the kernel which way it would send to `remote` from an unbound socket. Needs no rights, sends nothing.
///
/// The error is the one a socket would get: `ENETUNREACH` without a route, `EACCES` for a prohibited one. An IPv6
/// link-local address is on each interface; the kernel names any one of them.
pub fn route_to(remote: IpAddr) -> io::Result<RouteTo> {
    let request = Request::new(RTM_GETROUTE, &host_header(remote)).address(RTA_DST, remote);
    let answer = Netlink::route()?.query(&request, parse)?;
    answer.ok_or_else(|| io::ErrorKind::HostUnreachable.into())
}

/// Returns which of `interfaces` the kernel would use to send to `remote`, if any.
pub fn interface_for(remote: IpAddr, interfaces: &[Interface]) -> Option<&Interface> {
    let route = route_to(remote).ok()?;
    interfaces.iter().find(|interface| interface.index == route.interface)
}

pub(crate) fn parse(message: &Message<'_>) -> Option<RouteTo> {
    if message.kind != RTM_NEWROUTE {
        return None;
    }
    let (_, attributes) = message.split(ROUTE_HEADER_LEN)?;
    let gateway = attributes.find(RTA_GATEWAY).and_then(ip).or_else(|| attributes.find(RTA_VIA).and_then(via));
    Some(RouteTo {
        interface: InterfaceIndex(u32_at(attributes.find(RTA_OIF)?, 0)?),
        local: attributes.find(RTA_PREFSRC).and_then(ip),
        gateway,
    })
}
