//! The kernel's table of neighbours: which hardware address an address of a cable is at.

use std::{io, net::IpAddr};

use crate::{
    interface::InterfaceIndex,
    lookup::route_to,
    netlink::{Message, Netlink, Request, u16_at},
};

/// Has the kernel ask anew where an on-link address is, by the interface by which it would send there, if it doubts what it knows.
///
/// A machine of several cards in one subnet asks for others under any of its addresses by any of its cards, and whoever hears that takes the
/// address to be at that card. What is sent there is dropped where the card's reverse path filter is strict, and the kernel finds out after
/// 8 s (`delay_first_probe_time`, `ucast_solicit`; neighbour discovery in arp(7)). What was confirmed within the last half minute, and what
/// the administrator has set, stays. Needs `CAP_NET_ADMIN`. Returns whether something was forgotten.
pub(crate) fn forget_doubted(address: IpAddr) -> io::Result<bool> {
    let way = route_to(address)?;
    let mut netlink = Netlink::route()?;
    if way.gateway.is_some() || !netlink.query(&request(RTM_GETNEIGH, address, way.interface), is_doubted)?.unwrap_or(false) {
        return Ok(false);
    }
    netlink.command(&request(RTM_DELNEIGH, address, way.interface), 0)?;
    Ok(true)
}

/// `struct ndmsg` and the address.
fn request(kind: u16, address: IpAddr, interface: InterfaceIndex) -> Request {
    let mut header = [0; HEADER_LEN];
    header[0] = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8;
    header[4..8].copy_from_slice(&interface.0.to_ne_bytes());
    Request::new(kind, &header).address(NDA_DST, address)
}

fn is_doubted(message: &Message<'_>) -> Option<bool> {
    let (header, _) = message.split(HEADER_LEN).filter(|_| message.kind == RTM_NEWNEIGH)?;
    Some(u16_at(header, 8)? & (NUD_STALE | NUD_DELAY | NUD_PROBE) != 0)
}

/// Length of a `struct ndmsg`.
const HEADER_LEN: usize = 12;

// linux/rtnetlink.h, linux/neighbour.h
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const NDA_DST: u16 = 1;
const NUD_STALE: u16 = 0x04;
const NUD_DELAY: u16 = 0x08;
const NUD_PROBE: u16 = 0x10;
