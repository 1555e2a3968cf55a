//! Packet socket (packet(7)) that receives and sends the raw frames of one interface.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with},
};

/// Packet socket that receives all frames of an interface, and sends frames through it.
///
/// A `struct virtio_net_hdr` precedes each frame, and describes the offloads that the sender left
/// to the card. Superpackets of up to 64 KiB stay whole, and checksums uncomputed, from one socket
/// to another. Without this header the kernel would deliver superpackets that cannot be sent.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a packet socket on the interface with this index, in the calling thread's namespace.
    pub(crate) fn open(index: u32) -> io::Result<Self> {
        // No protocol yet, otherwise frames of all interfaces would arrive before the bind.
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        for (force, polite) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            // Only real root may force the size; others get at most the machine's limit.
            set(&socket, libc::SOL_SOCKET, force, BUFFER_BYTES)
                .or_else(|_| set(&socket, libc::SOL_SOCKET, polite, BUFFER_BYTES))?;
        }
        let socket = Self(socket);
        socket.bind(index)?;
        Ok(socket)
    }

    /// Reads the next frame, if any, into a buffer of [`MAX_FRAME`] bytes, and returns its length.
    ///
    /// Returns `Some(0)` for an oversized frame, and if the interface went down.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.0, buffer, RecvFlags::TRUNC) {
            Ok((_, len)) if len > MAX_FRAME => Ok(Some(0)),
            Ok((_, len)) => Ok(Some(len)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::NETDOWN | Errno::INTR) => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame that another [`PacketSocket`] has received. Drops it if it cannot be sent at
    /// once, like a cable.
    pub(crate) fn send(&self, frame: &[u8]) {
        let _ = send(&self.0, frame, SendFlags::DONTWAIT);
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET.cast_unsigned() as u16;
        address.sll_protocol = (libc::ETH_P_ALL.cast_unsigned() as u16).to_be();
        address.sll_ifindex = index.cast_signed();
        // SAFETY: address and size match, and the kernel copies the address before the call
        // returns.
        let bound = unsafe {
            libc::bind(
                self.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if bound == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn set(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option's value is an int, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Maximum frame length in bytes: a superpacket of 64 KiB, its Ethernet header of 14 bytes, and the
/// virtio header of 10 bytes.
pub(crate) const MAX_FRAME: usize = (64 << 10) + 14 + 10;

/// Socket option to ignore frames that this machine sends (`linux/if_packet.h`, Linux 4.20).
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// Length of a socket buffer in bytes, for frames that arrive while the relay is not scheduled. It
/// holds 30 ms of a gigabit cable, with headroom because the kernel counts the memory of a frame
/// and not its length.
const BUFFER_BYTES: libc::c_int = 8 << 20;
