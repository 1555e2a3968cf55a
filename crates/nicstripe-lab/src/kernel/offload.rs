//! Segmentation offload of an interface, set through `SIOCETHTOOL` (`linux/ethtool.h`). rtnetlink
//! has no message for it.

use std::{io, mem, os::fd::AsRawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Enables or disables segmentation offload of an interface in the calling thread's namespace, like
/// `ethtool -K INTERFACE tso on|off`.
///
/// With the offload, a veth passes superpackets of up to 64 KiB whole. Without it the kernel
/// segments them, and each frame moves separately, as on a cable. TCP builds superpackets in both
/// cases.
pub(crate) fn set_segmentation(interface: &str, on: bool) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut value = Value {
        command: ETHTOOL_STSO,
        data: u32::from(on),
    };
    // SAFETY: all zeros is a valid ifreq without a name.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names an interface and points to the structure that the command reads;
    // both outlive the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Argument of the ethtool command, `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_STSO: u32 = 0x1f;
