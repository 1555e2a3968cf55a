//! What an interface does for TCP, changed by `SIOCETHTOOL` (`linux/ethtool.h`): netlink of routes has no word for it.

use std::{io, mem, os::fd::AsRawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Has an interface of the calling thread's namespace cut superpackets into frames (`tso on`) or leave that to the kernel just before.
///
/// A veth with this hands superpackets of up to 64 KiB on whole; without, each frame moves by itself, as on a cable. TCP makes superpackets
/// in either case.
pub(crate) fn set_segmentation(interface: &str, on: bool) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut value = Value { command: ETHTOOL_STSO, data: u32::from(on) };
    // SAFETY: all zeros is an ifreq without a name.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names an interface and points at what the command reads; both outlive the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_STSO: u32 = 0x1f;
