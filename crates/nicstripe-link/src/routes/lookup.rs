//! Route lookup in the kernel, without sending a packet.

use std::{io, net::IpAddr};

use nicstripe_netlink::{Message, Netlink, Request, ip, u32_at};

use crate::{
    interface::{Interface, InterfaceIndex},
    routes::table::{ROUTE_HEADER_LEN, gateway, host_header},
};

/// Route that the kernel selects for packets to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteTo {
    /// Index of the egress interface (`lo` for local addresses).
    pub interface: InterfaceIndex,
    /// Source address that the kernel selects for an unbound socket.
    pub local: Option<IpAddr>,
    /// Address of the next-hop router; `None` if the destination is on-link.
    pub gateway: Option<IpAddr>,
}

/// Queries the kernel's route from an unbound socket to `remote`. Needs no privileges and sends
/// nothing.
///
/// An IPv6 link-local address exists on every interface; the kernel then selects an arbitrary one.
///
/// # Errors
///
/// `ENETUNREACH` without a route, `EACCES` for a prohibited one: the errors that a socket would
/// get.
pub fn route_to(remote: IpAddr) -> io::Result<RouteTo> {
    let request =
        Request::new(libc::RTM_GETROUTE, &host_header(remote)).address(libc::RTA_DST, remote);
    let answer = Netlink::route()?.query(&request, parse)?;
    answer.ok_or_else(|| io::ErrorKind::HostUnreachable.into())
}

/// Returns the egress interface of the kernel's route to `remote`, if it is one of `interfaces`.
pub fn interface_for(remote: IpAddr, interfaces: &[Interface]) -> Option<&Interface> {
    let route = route_to(remote).ok()?;
    interfaces
        .iter()
        .find(|interface| interface.index == route.interface)
}

pub(crate) fn parse(message: &Message<'_>) -> Option<RouteTo> {
    let (_, attributes) = message.split_if(libc::RTM_NEWROUTE, ROUTE_HEADER_LEN)?;
    Some(RouteTo {
        interface: InterfaceIndex(u32_at(attributes.find(libc::RTA_OIF)?, 0)?),
        local: attributes.find(libc::RTA_PREFSRC).and_then(ip),
        gateway: gateway(attributes),
    })
}
