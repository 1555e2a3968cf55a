//! TCP connection options that nicstripe sets if the kernel supports them.

use std::{
    io,
    os::fd::AsFd,
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use nicstripe_netlink::text;
use socket2::SockRef;
use thiserror::Error;
use tracing::info;

use super::sockopt;

/// TCP option that could not be set; the connection works without it.
#[derive(Debug, Error)]
#[error("the system rejects {option}")]
pub struct NotTaken {
    /// Name of the socket option that the system rejected.
    pub option: &'static str,
    /// Error of the system call: `ENOPROTOOPT` if the kernel lacks the option, `EINVAL` for a value.
    pub source: io::Error,
}

/// Sets the options of a TCP socket, connected or not, and returns those that the system rejected:
/// no delay, at most 128 KiB of unsent data, a user timeout of one minute. Leaves the buffer sizes
/// to the kernel's auto-tuning.
///
/// `max_segment` is the maximum segment size in bytes (`TCP_MAXSEG`), set before connecting. Useful
/// with a switch that silently drops larger packets. The kernel accepts 88 to 32767.
///
/// Logs each rejected option once per process.
pub fn tune(socket: &impl AsFd, max_segment: Option<u32>) -> Vec<NotTaken> {
    let socket = SockRef::from(socket);
    let results = [
        // Sends small writes at once.
        ("TCP_NODELAY", socket.set_tcp_nodelay(true)),
        (
            "TCP_NOTSENT_LOWAT",
            socket.set_tcp_notsent_lowat(NOTSENT_LOWAT),
        ),
        (
            "TCP_USER_TIMEOUT",
            socket.set_tcp_user_timeout(Some(USER_TIMEOUT)),
        ),
        (
            "TCP_MAXSEG",
            max_segment.map_or(Ok(()), |bytes| socket.set_tcp_mss(bytes)),
        ),
    ];
    let mut not_taken = Vec::new();
    for (number, (option, result)) in results.into_iter().enumerate() {
        let Err(source) = result else { continue };
        let bit = 1 << number;
        if LOGGED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            info!(%option, error = %source, "the system rejects a TCP option");
        }
        not_taken.push(NotTaken { option, source });
    }
    not_taken
}

/// Changes the congestion control of a TCP socket, connected or not, and returns the name of the
/// previous one.
///
/// # Errors
///
/// `ENOENT` if the kernel lacks the congestion control, `EPERM` if it is not in
/// `net.ipv4.tcp_allowed_congestion_control` and this process is unprivileged.
pub fn change_congestion(socket: &impl AsFd, name: &str) -> io::Result<String> {
    let socket = SockRef::from(socket);
    let before = socket.tcp_congestion()?;
    socket.set_tcp_congestion(name.as_bytes())?;
    Ok(text(&before))
}

/// Sets the limit of unsent data in bytes, above which a TCP socket is not writable
/// (`TCP_NOTSENT_LOWAT`). [`tune`] sets 128 KiB.
///
/// # Errors
///
/// `ENOPROTOOPT` if the kernel lacks the option (before Linux 3.12).
pub fn limit_unsent(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(bytes)
}

/// Sets the number of received bytes from which a TCP socket is readable (`SO_RCVLOWAT`).
///
/// Linux reports a socket readable with fewer bytes if the peer has closed it or if there is no room
/// for more. It enlarges the receive buffer to twice the number, at most to the limit in
/// `net.ipv4.tcp_rmem`, if no one has set its size.
///
/// # Errors
///
/// `ENOPROTOOPT` or `EINVAL` if the system rejects the option or the number.
pub fn set_low_water(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    sockopt::set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// Sets the send and receive buffers of a TCP socket to `bytes`, in the units of setsockopt(2). The
/// kernel silently caps them at `net.core.wmem_max` and `rmem_max`, and has a minimum of a few
/// kilobytes. It doubles the size, because half of it goes to its own metadata (socket(7)).
///
/// Disables the kernel's auto-tuning. The part of a receive buffer beyond the connection's window
/// scale stays unused. The window scale is fixed at connection setup, by the limits or by a buffer
/// set before.
pub fn set_buffers(socket: &impl AsFd, bytes: u64) -> io::Result<()> {
    let socket = SockRef::from(socket);
    // The kernel takes a signed integer, and its limits are far lower.
    let size = usize::try_from(bytes.min(i32::MAX as u64 / 2)).unwrap_or(usize::MAX);
    socket.set_send_buffer_size(size)?;
    socket.set_recv_buffer_size(size)
}

/// Rejected options that were logged, a bit for each.
static LOGGED: AtomicU8 = AtomicU8::new(0);

/// Limit of unsent data in bytes, above which the socket is not writable (`TCP_NOTSENT_LOWAT`).
///
/// Bounds the data committed to a slow link: 0.1 s at 10 Mbit/s. A fast link does not starve between
/// two wake-ups (measured without loss down to 16 KiB at LAN round trips). 64 to 128 KiB cost a fast
/// one nothing: 1 Gbit/s + 10 Mbit/s improved from 1.50 × ideal to 1.08 ×, 2 × 1 Gbit/s did not
/// change (256 MiB, 2 links, veth and tbf).
const NOTSENT_LOWAT: u32 = 128 * 1024;

/// Time without an acknowledgement after which the kernel closes the connection
/// (`TCP_USER_TIMEOUT`). A timeout of 2 s closed a healthy link whose receiver's disk stalled for
/// 2.3 s, because the kernel counts a zero window like silence. The option is only a backstop.
const USER_TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pinned_socket;

    fn socket() -> socket2::Socket {
        pinned_socket(None, None, "127.0.0.1:1".parse().unwrap()).unwrap()
    }

    #[test]
    fn what_is_asked_for_is_set() {
        let socket = socket();
        let not_taken = tune(&socket, Some(1448));
        assert!(not_taken.is_empty(), "{not_taken:?}");
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), 131_072);
        assert_eq!(
            socket.tcp_user_timeout().unwrap(),
            Some(Duration::from_secs(60))
        );
    }

    #[test]
    fn limits_of_readiness_are_set_again() {
        let socket = socket();
        limit_unsent(&socket, 1 << 19).unwrap();
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), 1 << 19);
        for bytes in [100_000, 1] {
            set_low_water(&socket, bytes).unwrap();
            let mut buffer = [0; 4];
            let set = sockopt::read(&socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &mut buffer);
            assert_eq!(set.unwrap(), bytes.to_ne_bytes());
        }
    }

    #[test]
    fn buffers_are_given_as_asked_for_and_cut_where_the_system_has_its_limit() {
        let socket = socket();
        // The kernel reports twice the value.
        let set = |bytes| {
            set_buffers(&socket, bytes).unwrap();
            let sizes = (socket.send_buffer_size(), socket.recv_buffer_size());
            (sizes.0.unwrap() as u64 / 2, sizes.1.unwrap() as u64 / 2)
        };
        assert_eq!(set(65_536), (65_536, 65_536));
        let cut = set(u64::MAX);
        let limit = |name| {
            std::fs::read_to_string(format!("/proc/sys/net/core/{name}"))
                .ok()?
                .trim()
                .parse::<u64>()
                .ok()
        };
        assert!(
            limit("wmem_max").is_none_or(|limit| cut.0 == limit),
            "{cut:?}"
        );
        assert!(
            limit("rmem_max").is_none_or(|limit| cut.1 == limit),
            "{cut:?}"
        );
        // Minimums: SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF.
        let raised = set(1);
        assert!(raised.0 > 500 && raised.1 > 500, "{raised:?}");
    }

    #[test]
    fn a_congestion_control_is_changed_and_changed_back() {
        let socket = socket();
        let first = change_congestion(&socket, "reno").unwrap();
        assert_eq!(change_congestion(&socket, &first).unwrap(), "reno");
        change_congestion(&socket, "nosuch").unwrap_err();
        assert_eq!(change_congestion(&socket, "reno").unwrap(), first);
    }

    #[test]
    fn what_the_system_refuses_is_returned_and_the_rest_is_set() {
        let socket = socket();
        let not_taken = tune(&socket, Some(1));
        let refused: Vec<_> = not_taken.iter().map(ToString::to_string).collect();
        assert_eq!(refused, ["the system rejects TCP_MAXSEG"]);
        assert!(socket.tcp_nodelay().unwrap());
    }
}
