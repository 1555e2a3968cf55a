//! Frames as they are, from and to one interface: packet(7).

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with},
};

/// A packet socket that takes every frame that comes to an interface, and sends what it is told to by the same one.
///
/// Frames have a `struct virtio_net_hdr` in front, which tells what the sender has left to offloads: superpackets of up to 64 KiB stay
/// whole, and checksums uncomputed, from one socket to another. Without it the kernel would hand over superpackets that nobody may send.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens one for the interface with this index, in the calling thread's namespace.
    pub(crate) fn open(index: u32) -> io::Result<Self> {
        // No protocol yet: else frames of all interfaces would come until it is bound.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        for (force, polite) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            // Real root's alone; others get what the machine's limit leaves of it.
            set(&socket, libc::SOL_SOCKET, force, BUFFER_BYTES).or_else(|_| set(&socket, libc::SOL_SOCKET, polite, BUFFER_BYTES))?;
        }
        let socket = Self(socket);
        socket.bind(index)?;
        Ok(socket)
    }

    /// Reads the next frame, if there is one, into a buffer of [`MAX_FRAME`] bytes.
    ///
    /// Gives `Some(0)` for a frame that was too long, and for the news that the interface has gone down.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.0, buffer, RecvFlags::TRUNC) {
            Ok((_, len)) if len > MAX_FRAME => Ok(Some(0)),
            Ok((_, len)) => Ok(Some(len)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::NETDOWN | Errno::INTR) => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame that another such socket has read. A frame that cannot be sent at once is lost, as on any cable.
    pub(crate) fn send(&self, frame: &[u8]) {
        let _ = send(&self.0, frame, SendFlags::DONTWAIT);
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET.cast_unsigned() as u16;
        address.sll_protocol = (libc::ETH_P_ALL.cast_unsigned() as u16).to_be();
        address.sll_ifindex = index.cast_signed();
        // SAFETY: the address and its size belong together, and the kernel copies it before the call returns.
        let bound = unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t) };
        if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn set(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option's value is an int, which outlives the call.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The greatest frame that an interface hands over: a superpacket of 64 KiB, its Ethernet header, and the 10 bytes in front.
pub(crate) const MAX_FRAME: usize = (64 << 10) + 14 + 10;

/// `linux/if_packet.h`; the kernel has it since 4.20.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// What waits while a relay gets no processor: 30 ms of a gigabit cable, and more, since the kernel counts what a frame occupies.
const BUFFER_BYTES: libc::c_int = 8 << 20;
