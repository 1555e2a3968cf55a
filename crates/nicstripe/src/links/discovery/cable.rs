//! Sending and receiving of discovery datagrams on one interface.

use std::{
    io,
    net::{Ipv6Addr, SocketAddrV6},
};

use nicstripe_link::{
    Interface, InterfaceIndex, InterfaceName, receive_from_neighbour, send_to_neighbour,
};
use tokio::{io::Interest, net::UdpSocket};

/// Interface and its link-local address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cable {
    pub(super) index: InterfaceIndex,
    pub(super) name: InterfaceName,
    pub(super) address: Ipv6Addr,
}

impl Cable {
    /// Returns the interface with its link-local address; `None` if it has none.
    pub(super) fn of(interface: &Interface) -> Option<Self> {
        Some(Self {
            index: interface.index,
            name: interface.name,
            address: interface.link_local()?,
        })
    }

    /// Sends a datagram. Drops it if the send buffer is full, as a network may do.
    pub(super) fn send(
        &self,
        socket: &UdpSocket,
        datagram: &[u8],
        to: SocketAddrV6,
    ) -> io::Result<()> {
        send_to_neighbour(socket, datagram, self.address, self.index, to)
    }
}

/// Waits for a datagram. Returns its bytes in `buffer` and its sender, or `None` if the sender is
/// not a neighbour.
pub(super) async fn receive<'a>(
    socket: &UdpSocket,
    buffer: &'a mut [u8],
) -> io::Result<Option<(&'a [u8], SocketAddrV6)>> {
    let received = socket
        .async_io(Interest::READABLE, || {
            receive_from_neighbour(socket, buffer)
        })
        .await?;
    Ok(received.map(|(len, from)| (buffer.get(..len).unwrap_or_default(), from)))
}
