//! TCP sockets bound to an interface, and the arrival interface of a connection.
//!
//! Sockets bind to a device instead of an address. On Linux neither the source address nor
//! `IP_UNICAST_IF` selects the interface of a TCP connection. `SO_BINDTODEVICE` does, without
//! privileges if it is set only once per socket.
//!
//! `tune` sets the options of a TCP connection and `tcp_info` reads its statistics, `multicast`
//! opens the sockets of discovery. `icmp` reads why a connection attempt failed. `sockopt` is the
//! system call for options that libraries lack.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener},
    os::fd::AsFd,
};

use nicstripe_netlink::u32_at;
use rustix::net::netdevice::index_to_name_inlined;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::interface::name::InterfaceName;

pub(crate) mod icmp;
pub(crate) mod multicast;
pub(crate) mod sockopt;
pub(crate) mod tcp_info;
pub(crate) mod tune;

/// Opens a nonblocking TCP listener that accepts only connections through `interface`, or through
/// any interface if it is `None`.
///
/// Accepted sockets inherit the device, so their replies use it too. Port 0 selects a free port. An
/// IPv6 listener accepts IPv6 only; open a second listener for IPv4. Listeners on different
/// interfaces can share a port.
///
/// # Errors
///
/// `ENODEV` if the interface does not exist, `EADDRINUSE` or `EADDRNOTAVAIL` for the address, and
/// `EACCES` for ports below 1024.
pub fn listen(
    interface: Option<&InterfaceName>,
    address: SocketAddr,
    backlog: u32,
) -> io::Result<TcpListener> {
    let socket = stream_socket(address)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Set before bind, otherwise the port counts as in use on all interfaces.
    pin(&socket, interface)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Opens a nonblocking TCP socket, ready to connect to `remote`. It uses only `interface` (any if
/// `None`) and the source address `local` (the kernel's choice if `None`).
///
/// Sends nothing yet. Callers can still set options that must precede the connection
/// (`tune` with a maximum segment size).
///
/// # Errors
///
/// `ENODEV` if the interface does not exist, `EADDRNOTAVAIL` if `local` is not a local address,
/// `EINVAL` if its family differs from that of `remote`.
pub fn pinned_socket(
    interface: Option<&InterfaceName>,
    local: Option<IpAddr>,
    remote: SocketAddr,
) -> io::Result<Socket> {
    let socket = stream_socket(remote)?;
    pin(&socket, interface)?;
    if let Some(local) = local {
        socket.bind(&source(local, remote)?.into())?;
    }
    Ok(socket)
}

/// Returns the arrival interface of a TCP connection: the device that its socket is bound to, or
/// else the interface of its first packet. Returns `None` if the kernel does not know it, as for
/// outgoing connections that are not bound to a device.
///
/// Needs no privileges. Supports IPv4, IPv6 and IPv4-mapped addresses.
pub fn arrival_interface(socket: &impl AsFd) -> io::Result<Option<InterfaceName>> {
    if let Some(name) = SockRef::from(socket).device()? {
        return Ok(InterfaceName::new(&name).ok());
    }
    let Some(index) = arrival_index(socket)? else {
        return Ok(None);
    };
    let name = index_to_name_inlined(socket, index)?;
    Ok(name.as_str().parse().ok())
}

fn stream_socket(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )
}

fn pin(socket: &Socket, interface: Option<&InterfaceName>) -> io::Result<()> {
    interface.map_or(Ok(()), |name| socket.bind_device(Some(name.as_bytes())))
}

/// Returns the socket address to bind for `local`, with port 0. A link-local address gets the scope
/// of the remote address, because both are on the same link.
fn source(local: IpAddr, remote: SocketAddr) -> io::Result<SocketAddr> {
    match (local, remote) {
        (IpAddr::V4(_), SocketAddr::V4(_)) => Ok(SocketAddr::new(local, 0)),
        (IpAddr::V6(local), SocketAddr::V6(remote)) => {
            let scope = if local.is_unicast_link_local() {
                remote.scope_id()
            } else {
                0
            };
            Ok(SocketAddrV6::new(local, 0, 0, scope).into())
        }
        _ => {
            let text = format!(
                "local address {local} is of another family than the remote address {remote}"
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// Returns the index of the interface on which a connection's first packet arrived, which the
/// kernel keeps for `IP_PKTINFO`.
fn arrival_index(socket: &impl AsFd) -> io::Result<Option<u32>> {
    let source = match SockRef::from(socket).local_addr()?.as_socket() {
        Some(SocketAddr::V6(local)) if !is_mapped(*local.ip()) => PACKET_INFO_V6,
        Some(_) => PACKET_INFO_V4,
        None => return Ok(None),
    };
    sockopt::set_int(socket, source.level, source.enable, 1)?;
    let mut buffer = [0; CONTROL_LEN];
    let index = sockopt::read(socket, source.level, source.options, &mut buffer)
        .map(|control| source.index(control));
    // If this stayed on, the kernel would copy the headers of each IPv6 packet for no reader.
    sockopt::set_int(socket, source.level, source.enable, 0)?;
    index.map(|index| index.filter(|index| *index != 0))
}

fn is_mapped(ip: Ipv6Addr) -> bool {
    ip.to_ipv4_mapped().is_some()
}

/// Socket options for querying the packet information of a TCP connection in one IP version, and
/// the position of the interface index in the result.
struct PacketInfo {
    level: libc::c_int,
    enable: libc::c_int,
    options: libc::c_int,
    /// Type of the control message that contains the interface index.
    message: libc::c_int,
    /// Offset in bytes of the index in that message.
    offset: usize,
}

impl PacketInfo {
    fn index(&self, control: &[u8]) -> Option<u32> {
        u32_at(
            control_message(control, self.level, self.message)?,
            self.offset,
        )
    }
}

/// Finds the control message of a level and type (cmsg(3)), and returns its data.
pub(crate) fn control_message(
    mut control: &[u8],
    wanted_level: libc::c_int,
    wanted_kind: libc::c_int,
) -> Option<&[u8]> {
    loop {
        let len = usize::from_ne_bytes(*control.first_chunk()?);
        let level = u32_at(control, WORD)?.cast_signed();
        let kind = u32_at(control, WORD + 4)?.cast_signed();
        let data = control.get(CONTROL_HEADER_LEN..len)?;
        if level == wanted_level && kind == wanted_kind {
            return Some(data);
        }
        control = control.get(len.next_multiple_of(WORD)..)?;
    }
}

const WORD: usize = size_of::<usize>();

/// Length of a control message's header, in bytes.
pub(crate) const CONTROL_HEADER_LEN: usize = size_of::<libc::cmsghdr>().next_multiple_of(WORD);

/// Packet information of IPv4: `struct in_pktinfo`, which begins with the interface index.
const PACKET_INFO_V4: PacketInfo = PacketInfo {
    level: libc::IPPROTO_IP,
    enable: libc::IP_PKTINFO,
    options: libc::IP_PKTOPTIONS,
    message: libc::IP_PKTINFO,
    offset: 0,
};

/// Packet information of IPv6: `struct in6_pktinfo`, where the interface index follows the address
/// of 16 bytes.
const PACKET_INFO_V6: PacketInfo = PacketInfo {
    level: libc::IPPROTO_IPV6,
    enable: libc::IPV6_RECVPKTINFO,
    options: libc::IPV6_2292PKTOPTIONS,
    message: libc::IPV6_PKTINFO,
    offset: 16,
};

/// Capacity in bytes for the control messages of a TCP socket; one message is expected.
const CONTROL_LEN: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_of_the_other_family_is_refused_by_name() {
        let error =
            source("10.0.0.1".parse().unwrap(), "[fe80::1]:1".parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("10.0.0.1"), "{error}");
    }

    #[test]
    fn a_link_local_source_takes_the_scope_of_the_far_side() {
        let remote = SocketAddrV6::new("fe80::2".parse().unwrap(), 7747, 0, 9);
        let local = source("fe80::1".parse().unwrap(), remote.into()).unwrap();
        assert_eq!(
            local,
            SocketAddrV6::new("fe80::1".parse().unwrap(), 0, 0, 9).into()
        );
    }

    #[test]
    fn control_messages_are_walked_and_cut_ones_end_the_walk() {
        let message = |kind: i32, data: &[u8]| {
            let len = 16 + data.len();
            let mut bytes = len.to_ne_bytes().to_vec();
            bytes.extend_from_slice(&libc::IPPROTO_IP.to_ne_bytes());
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(data);
            bytes.resize(len.next_multiple_of(8), 0);
            bytes
        };
        let control = [
            message(1, &[9]),
            message(libc::IP_PKTINFO, &[5, 0, 0, 0, 1, 2, 3, 4]),
        ]
        .concat();
        if cfg!(target_pointer_width = "64") {
            assert_eq!(
                PACKET_INFO_V4.index(&control),
                Some(u32::from_ne_bytes([5, 0, 0, 0]))
            );
        }
        for cut in 0..control.len() {
            let _ = PACKET_INFO_V4.index(&control[..cut]);
        }
        assert_eq!(
            PACKET_INFO_V4.index(&[0; 64]),
            None,
            "a message of length zero ends the walk"
        );
    }

    #[test]
    fn a_listener_without_an_interface_tells_where_a_connection_arrived() {
        let listener = listen(None, "127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(
            arrival_interface(&accepted).unwrap().unwrap().to_string(),
            "lo"
        );
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        let name: InterfaceName = "nosuch0".parse().unwrap();
        let error = listen(Some(&name), "127.0.0.1:0".parse().unwrap(), 8).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
