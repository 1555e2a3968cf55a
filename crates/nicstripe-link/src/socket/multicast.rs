//! Link-local UDP: multicast groups, and datagrams that are verified to come from a neighbour.
//!
//! Every socket here is bound to one device, uses IPv6 link-local addresses, and sends with a hop
//! limit of 255. Routers decrement the hop limit. A datagram that arrives with 255 therefore comes
//! from the same link, whatever its source address (RFC 5082).

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    net::{IpAddr, Ipv6Addr, SocketAddrV6, UdpSocket},
    os::fd::AsFd,
};

use nicstripe_netlink::u32_at;
use socket2::{
    Domain, MaybeUninitSlice, MsgHdr, MsgHdrMut, Protocol, SockAddr, SockRef, Socket, Type,
};

use crate::{
    interface::{Interface, InterfaceIndex},
    socket::{CONTROL_HEADER_LEN, control_message},
};

impl Interface {
    /// Returns the first usable IPv6 link-local address of the interface.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        self.addresses.iter().find_map(|own| match own.ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(ip),
            _ => None,
        })
    }
}

/// Opens a nonblocking UDP socket that receives only datagrams to a link-local multicast group and
/// port on this interface.
///
/// Sockets on different interfaces can share a port. Ports from 1024 on need no privileges.
///
/// # Errors
///
/// `ENODEV` if the interface does not exist, `EADDRINUSE` if the port is in use on it, `EACCES` for
/// ports below 1024, and `EINVAL` if `group` is not a multicast address.
pub fn multicast_listener(
    interface: &Interface,
    group: Ipv6Addr,
    port: u16,
) -> io::Result<UdpSocket> {
    listener(interface, group, port, false)
}

/// Like [`multicast_listener`], but several sockets on the interface may have the port, if all are
/// opened by this function. Each of them receives every datagram to the group.
///
/// # Errors
///
/// As for [`multicast_listener`].
pub fn shared_multicast_listener(
    interface: &Interface,
    group: Ipv6Addr,
    port: u16,
) -> io::Result<UdpSocket> {
    listener(interface, group, port, true)
}

fn listener(
    interface: &Interface,
    group: Ipv6Addr,
    port: u16,
    is_shared: bool,
) -> io::Result<UdpSocket> {
    let socket = link_socket(interface, group, port, is_shared)?;
    socket.join_multicast_v6(&group, interface.index.0)?;
    Ok(socket.into())
}

/// Opens a nonblocking UDP socket that is bound to a link-local address of this interface and a
/// free port.
///
/// This machine does not receive its own multicasts.
///
/// # Errors
///
/// `ENODEV` if the interface does not exist, and `EADDRNOTAVAIL` if it does not have the address.
pub fn multicast_sender(interface: &Interface, local: Ipv6Addr) -> io::Result<UdpSocket> {
    let socket = link_socket(interface, local, 0, false)?;
    socket.set_multicast_if_v6(interface.index.0)?;
    socket.set_multicast_loop_v6(false)?;
    Ok(socket.into())
}

/// Receives one datagram into `buffer`, and returns its length in bytes and the address of the
/// neighbour that sent it.
///
/// Returns `None` if the datagram must be ignored: its hop limit is not 255, its source is not
/// link-local, or it does not fit.
///
/// # Errors
///
/// `WouldBlock` if no datagram is available.
pub fn receive_from_neighbour(
    socket: &impl AsFd,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, SocketAddrV6)>> {
    let mut source = SockAddr::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
    let mut control = [0; CONTROL_LEN];
    let mut buffers = [MaybeUninitSlice::new(as_uninit(buffer))];
    let mut message = MsgHdrMut::new()
        .with_addr(&mut source)
        .with_buffers(&mut buffers)
        .with_control(as_uninit(&mut control));
    let len = SockRef::from(socket).recvmsg(&mut message, 0)?;
    let (truncated, control_len) = (message.flags().is_truncated(), message.control_len());
    let control = control.get(..control_len).unwrap_or_default();
    let neighbour = source
        .as_socket_ipv6()
        .filter(|source| source.ip().is_unicast_link_local());
    let whole = !truncated && hop_limit(control) == Some(HOPS);
    Ok(neighbour
        .filter(|_| whole)
        .map(|neighbour| (len, neighbour)))
}

/// Sends one datagram to a neighbour, with the source address `from` of the socket's interface,
/// which may differ from the bound one.
///
/// # Errors
///
/// `EINVAL` if `from` is not an address of that interface, `WouldBlock` if the send buffer is full,
/// and network errors.
pub fn send_to_neighbour(
    socket: &impl AsFd,
    datagram: &[u8],
    from: Ipv6Addr,
    interface: InterfaceIndex,
    to: SocketAddrV6,
) -> io::Result<()> {
    let to = SockAddr::from(SocketAddrV6::new(*to.ip(), to.port(), 0, interface.0));
    let control = source_message(from, interface);
    let buffers = [IoSlice::new(datagram)];
    let message = MsgHdr::new()
        .with_addr(&to)
        .with_buffers(&buffers)
        .with_control(&control);
    SockRef::from(socket).sendmsg(&message, 0).map(drop)
}

fn link_socket(
    interface: &Interface,
    address: Ipv6Addr,
    port: u16,
    is_shared: bool,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(is_shared)?;
    // Set before bind, otherwise the port counts as in use on all interfaces.
    socket.bind_device(Some(interface.name.as_bytes()))?;
    socket.set_unicast_hops_v6(HOPS)?;
    socket.set_multicast_hops_v6(HOPS)?;
    socket.set_recv_hoplimit_v6(true)?;
    socket.bind(&SocketAddrV6::new(address, port, 0, interface.index.0).into())?;
    Ok(socket)
}

/// Returns the hop limit of a datagram from its control messages (`IPV6_HOPLIMIT`, an int).
fn hop_limit(control: &[u8]) -> Option<u32> {
    u32_at(
        control_message(control, libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT)?,
        0,
    )
}

/// Encodes the control message that sets a datagram's source address and interface (`IPV6_PKTINFO`,
/// `struct in6_pktinfo`).
fn source_message(from: Ipv6Addr, interface: InterfaceIndex) -> Vec<u8> {
    let data = [&from.octets()[..], &interface.0.to_ne_bytes()].concat();
    let mut message = (CONTROL_HEADER_LEN + data.len()).to_ne_bytes().to_vec();
    message.extend(libc::IPPROTO_IPV6.to_ne_bytes());
    message.extend(libc::IPV6_PKTINFO.to_ne_bytes());
    message.resize(CONTROL_HEADER_LEN, 0);
    message.extend(data);
    message.resize(message.len().next_multiple_of(size_of::<usize>()), 0);
    message
}

fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and the borrow is as exclusive and as long
    // as before. The holder of the slice must not write uninitialised bytes: both callers in this
    // module pass it to recvmsg(2), and the kernel writes initialised ones.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}

/// Hop limit of sent datagrams, and the required hop limit of received ones.
const HOPS: u32 = 255;

/// Capacity in bytes for the control messages of a datagram; one message of 24 bytes is expected.
const CONTROL_LEN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{InterfaceKind, tests::interface};

    #[test]
    fn the_first_link_local_address_is_the_one_to_speak_from() {
        let two = interface(
            2,
            "eth0",
            InterfaceKind::Ethernet,
            &["10.0.0.1/24", "fd00::1/64", "fe80::2/64", "fe80::1/64"],
        );
        assert_eq!(two.link_local(), Some("fe80::2".parse().unwrap()));
        assert_eq!(
            interface(
                3,
                "eth1",
                InterfaceKind::Ethernet,
                &["10.0.0.1/24", "fd00::1/64"]
            )
            .link_local(),
            None
        );
    }

    #[test]
    fn the_source_of_a_datagram_is_laid_out_as_the_kernel_reads_it() {
        let message = source_message("fe80::1".parse().unwrap(), InterfaceIndex(7));
        let data = control_message(&message, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO).unwrap();
        assert_eq!(data[..16], "fe80::1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(u32_at(data, 16), Some(7));
        assert_eq!(message.len() % size_of::<usize>(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn several_listeners_share_a_port_only_if_all_are_willing() {
        let loopback = interface(1, "lo", InterfaceKind::Loopback, &[]);
        let group = "ff12::ee69:6373".parse().unwrap();
        let Ok(first) = shared_multicast_listener(&loopback, group, 0) else {
            // Binding to a device needs privileges before Linux 5.7, and IPv6 may be off.
            return;
        };
        let port = first.local_addr().unwrap().port();
        assert!(shared_multicast_listener(&loopback, group, port).is_ok());
        let error = multicast_listener(&loopback, group, port).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn an_interface_that_is_not_there_is_an_error() {
        let nowhere = interface(9999, "nosuch0", InterfaceKind::Ethernet, &["fe80::1/64"]);
        let error = multicast_sender(&nowhere, "fe80::1".parse().unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
