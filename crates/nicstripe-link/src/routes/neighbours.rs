//! The kernel's neighbour table, which maps on-link addresses to hardware addresses.

use std::{io, net::IpAddr};

use nicstripe_netlink::{Message, Netlink, Request, u16_at};

use crate::{
    interface::InterfaceIndex,
    routes::{lookup::route_to, table::family},
};

/// Deletes the neighbour entry of an on-link address if it is stale, so that the kernel resolves
/// the address again. Returns true if an entry was deleted.
///
/// A machine with several cards in one subnet may send ARP requests from any of its addresses on
/// any card. Receivers then learn the address with the MAC address of the wrong card. Strict
/// reverse-path filtering drops packets sent to that card, and the kernel detects this only after 8
/// s (`delay_first_probe_time`, `ucast_solicit`; neighbour discovery in arp(7)).
///
/// Acts on the interface of the kernel's route to the address. Keeps entries that the kernel has
/// confirmed within the last half minute or that the administrator has set. Needs `CAP_NET_ADMIN`.
pub(crate) fn forget_doubted(address: IpAddr) -> io::Result<bool> {
    let route = route_to(address)?;
    let mut netlink = Netlink::route()?;
    let entry = |kind| request(kind, address, route.interface);
    let is_doubted = match netlink.query(&entry(libc::RTM_GETNEIGH), is_doubted) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => false,
        found => found?.unwrap_or(false),
    };
    if route.gateway.is_some() || !is_doubted {
        return Ok(false);
    }
    netlink.command(&entry(libc::RTM_DELNEIGH), 0)?;
    Ok(true)
}

/// Returns true if a machine has answered for an on-link address on this interface (ARP, neighbour
/// discovery), false if none did, and `None` if the kernel has not asked lately.
pub fn is_neighbour(interface: InterfaceIndex, address: IpAddr) -> Option<bool> {
    let mut netlink = Netlink::route().ok()?;
    let query = request(libc::RTM_GETNEIGH, address, interface);
    netlink.query(&query, answered).ok().flatten().flatten()
}

/// Returns the outcome of the kernel's question; `None` for another message.
fn answered(message: &Message<'_>) -> Option<Option<bool>> {
    let (header, _) = message.split_if(libc::RTM_NEWNEIGH, HEADER_LEN)?;
    let state = u16_at(header, 8)?;
    const KNOWN: u16 = libc::NUD_REACHABLE
        | libc::NUD_STALE
        | libc::NUD_DELAY
        | libc::NUD_PROBE
        | libc::NUD_PERMANENT;
    Some(if state & KNOWN != 0 {
        Some(true)
    } else {
        (state & (libc::NUD_FAILED | libc::NUD_INCOMPLETE) != 0).then_some(false)
    })
}

fn request(kind: u16, address: IpAddr, interface: InterfaceIndex) -> Request {
    let mut header = [0; HEADER_LEN];
    header[0] = family(address);
    header[4..8].copy_from_slice(&interface.0.to_ne_bytes());
    Request::new(kind, &header).address(libc::NDA_DST, address)
}

fn is_doubted(message: &Message<'_>) -> Option<bool> {
    let (header, _) = message.split_if(libc::RTM_NEWNEIGH, HEADER_LEN)?;
    Some(u16_at(header, 8)? & (libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE) != 0)
}

/// Length of `struct ndmsg`, the header of neighbour messages, in bytes.
const HEADER_LEN: usize = 12;
