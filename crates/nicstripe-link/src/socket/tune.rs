//! TCP connection options that nicstripe sets if the kernel supports them.

use std::{
    fmt, io,
    os::fd::AsFd,
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tracing::info;

/// Options of a TCP connection, except buffer sizes: setting one ([`set_buffers`]) disables the
/// kernel's auto-tuning.
///
/// Defaults: no delay, at most 128 KiB of unsent data, a user timeout of one minute; otherwise the
/// system's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Disables Nagle's algorithm, so that small writes are sent at once (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Limit of unsent data in bytes, above which the socket is not writable (`TCP_NOTSENT_LOWAT`);
    /// `None` keeps the system's value.
    ///
    /// Bounds the data committed to a slow link. 64 to 128 KiB cost a fast one nothing at LAN
    /// round-trip times: 1 Gbit/s + 10 Mbit/s improved from 1.50 × ideal to 1.08 ×, 2 × 1 Gbit/s
    /// did not change (256 MiB, 2 links, veth and tbf).
    pub notsent_lowat: Option<u32>,
    /// Time without an acknowledgement after which the kernel closes the connection
    /// (`TCP_USER_TIMEOUT`); `None` keeps the system's value.
    pub user_timeout: Option<UserTimeout>,
    /// Timing of keepalive probes; `None` leaves them disabled.
    pub keepalive: Option<Keepalive>,
    /// Kernel name of the congestion control (`TCP_CONGESTION`). Unprivileged processes may use
    /// those in `net.ipv4.tcp_allowed_congestion_control`; if the name is rejected, the system's
    /// default stays.
    pub congestion: Option<String>,
    /// Maximum segment size in bytes (`TCP_MAXSEG`), set before connecting. Useful with a switch
    /// that silently drops larger packets. The kernel accepts 88 to 32767.
    pub max_segment: Option<u32>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            no_delay: true,
            notsent_lowat: Some(128 * 1024),
            user_timeout: Some(UserTimeout(2 * MIN_USER_TIMEOUT)),
            keepalive: None,
            congestion: None,
            max_segment: None,
        }
    }
}

/// Value of `TCP_USER_TIMEOUT`, at least [`MIN_USER_TIMEOUT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserTimeout(Duration);

impl UserTimeout {
    /// Creates a user timeout, or returns an error if it is below [`MIN_USER_TIMEOUT`].
    pub fn new(timeout: Duration) -> Result<Self, UserTimeoutTooShort> {
        if timeout < MIN_USER_TIMEOUT {
            Err(UserTimeoutTooShort { timeout })
        } else {
            Ok(Self(timeout))
        }
    }

    /// Returns the timeout, which is at least [`MIN_USER_TIMEOUT`].
    pub fn get(self) -> Duration {
        self.0
    }
}

/// TCP user timeout that is shorter than [`MIN_USER_TIMEOUT`], and could therefore close healthy
/// connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("TCP user timeout of {} s is under the minimum of {} s", timeout.as_secs_f64(), MIN_USER_TIMEOUT.as_secs_f64())]
pub struct UserTimeoutTooShort {
    /// Rejected timeout, below the minimum.
    pub timeout: Duration,
}

/// Timing of TCP keepalive probes. A user timeout overrides `probes` (`tcp_keepalive_timer`,
/// net/ipv4/tcp_timer.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe, in whole seconds.
    pub idle: Duration,
    /// Time between probes, in whole seconds.
    pub interval: Duration,
    /// Number of unanswered probes after which the kernel closes the connection.
    pub probes: u32,
}

/// One of the [`StreamOptions`], printed as the name of its socket option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamOption {
    /// `TCP_NODELAY`.
    NoDelay,
    /// `TCP_NOTSENT_LOWAT` (Linux 3.12).
    NotsentLowat,
    /// `TCP_USER_TIMEOUT`.
    UserTimeout,
    /// `SO_KEEPALIVE` and the options for its timing.
    Keepalive,
    /// `TCP_CONGESTION`.
    Congestion,
    /// `TCP_MAXSEG`.
    MaxSegment,
}

impl fmt::Display for StreamOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDelay => "TCP_NODELAY",
            Self::NotsentLowat => "TCP_NOTSENT_LOWAT",
            Self::UserTimeout => "TCP_USER_TIMEOUT",
            Self::Keepalive => "SO_KEEPALIVE",
            Self::Congestion => "TCP_CONGESTION",
            Self::MaxSegment => "TCP_MAXSEG",
        })
    }
}

/// TCP option that could not be set; the connection works without it.
#[derive(Debug, Error)]
#[error("the system rejects {option}")]
pub struct NotTaken {
    /// Option that the system rejected.
    pub option: StreamOption,
    /// Error of the system call: `ENOPROTOOPT` if the kernel lacks the option, `EPERM` or `ENOENT`
    /// for a congestion control, `EINVAL` for a value.
    pub source: io::Error,
}

/// Sets the options of a TCP socket, connected or not, and returns those that the system rejected.
///
/// Logs each rejected option once per process.
pub fn tune(socket: &impl AsFd, options: &StreamOptions) -> Vec<NotTaken> {
    let socket = SockRef::from(socket);
    let mut not_taken = Vec::new();
    let mut note = |option, result: io::Result<()>| {
        not_taken.extend(result.err().map(|source| NotTaken { option, source }));
    };
    note(
        StreamOption::NoDelay,
        socket.set_tcp_nodelay(options.no_delay),
    );
    if let Some(bytes) = options.notsent_lowat {
        note(
            StreamOption::NotsentLowat,
            socket.set_tcp_notsent_lowat(bytes),
        );
    }
    if let Some(timeout) = options.user_timeout {
        note(
            StreamOption::UserTimeout,
            socket.set_tcp_user_timeout(Some(timeout.get())),
        );
    }
    if let Some(Keepalive {
        idle,
        interval,
        probes,
    }) = options.keepalive
    {
        let times = TcpKeepalive::new()
            .with_time(idle)
            .with_interval(interval)
            .with_retries(probes);
        note(StreamOption::Keepalive, socket.set_tcp_keepalive(&times));
    }
    if let Some(name) = &options.congestion {
        note(
            StreamOption::Congestion,
            socket.set_tcp_congestion(name.as_bytes()),
        );
    }
    if let Some(bytes) = options.max_segment {
        note(StreamOption::MaxSegment, socket.set_tcp_mss(bytes));
    }
    not_taken.iter().for_each(log_once);
    not_taken
}

/// Changes the congestion control of a TCP socket, connected or not, and returns the name of the
/// previous one.
///
/// # Errors
///
/// `ENOENT` or `EPERM` if this process may not use the congestion control, see
/// [`StreamOptions::congestion`].
pub fn change_congestion(socket: &impl AsFd, name: &str) -> io::Result<String> {
    let socket = SockRef::from(socket);
    let before = socket.tcp_congestion()?;
    socket.set_tcp_congestion(name.as_bytes())?;
    // The kernel pads the name with zeros.
    let len = before
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(before.len());
    Ok(String::from_utf8_lossy(&before[..len]).into_owned())
}

/// Socket buffer sizes, in the units of setsockopt(2).
///
/// The kernel doubles the requested size, because half of it goes to its own metadata (socket(7)),
/// and getsockopt(2) returns the doubled size. The sizes here are halved again, so that they can be
/// compared with the requested ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Size of the send buffer in bytes.
    pub send: u64,
    /// Size of the receive buffer in bytes.
    pub receive: u64,
}

/// Sets the send and receive buffers of a TCP socket to `bytes`, and returns the actual sizes. The
/// kernel silently caps them at `net.core.wmem_max` and `rmem_max`, and has a minimum of a few
/// kilobytes.
///
/// Disables the kernel's auto-tuning. The part of a receive buffer beyond the connection's window
/// scale stays unused. The window scale is fixed at connection setup, by the limits or by a buffer
/// set before.
pub fn set_buffers(socket: &impl AsFd, bytes: u64) -> io::Result<BufferSizes> {
    let borrowed = SockRef::from(socket);
    // The kernel takes a signed integer, and its limits are far lower.
    let size = usize::try_from(bytes.min(i32::MAX as u64 / 2)).unwrap_or(usize::MAX);
    borrowed.set_send_buffer_size(size)?;
    borrowed.set_recv_buffer_size(size)?;
    buffers(socket)
}

/// Reads the current buffer sizes of a socket, which grow under auto-tuning.
pub fn buffers(socket: &impl AsFd) -> io::Result<BufferSizes> {
    let socket = SockRef::from(socket);
    let half = |doubled: usize| doubled as u64 / 2;
    Ok(BufferSizes {
        send: half(socket.send_buffer_size()?),
        receive: half(socket.recv_buffer_size()?),
    })
}

fn log_once(not_taken: &NotTaken) {
    static LOGGED: AtomicU8 = AtomicU8::new(0);
    let bit = 1 << not_taken.option as u8;
    if LOGGED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        info!(option = %not_taken.option, error = %not_taken.source, "the system rejects a TCP option");
    }
}

/// Minimum `TCP_USER_TIMEOUT`. A timeout of 2 s closed a healthy link whose receiver's disk stalled
/// for 2.3 s, because the kernel counts a zero window like silence. The option is only a backstop.
pub const MIN_USER_TIMEOUT: Duration = Duration::from_secs(30);

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
        let options = StreamOptions {
            keepalive: Some(Keepalive {
                idle: Duration::from_secs(9),
                interval: Duration::from_secs(2),
                probes: 3,
            }),
            congestion: Some("reno".to_owned()),
            max_segment: Some(1448),
            ..StreamOptions::default()
        };
        let not_taken = tune(&socket, &options);
        assert!(not_taken.is_empty(), "{not_taken:?}");
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), 131_072);
        assert_eq!(
            socket.tcp_user_timeout().unwrap(),
            Some(Duration::from_secs(60))
        );
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(9));
        assert!(socket.tcp_congestion().unwrap().starts_with(b"reno"));
    }

    #[test]
    fn buffers_are_given_as_asked_for_and_cut_where_the_system_has_its_limit() {
        let socket = socket();
        assert_eq!(
            set_buffers(&socket, 65_536).unwrap(),
            BufferSizes {
                send: 65_536,
                receive: 65_536
            }
        );
        assert_eq!(
            socket.recv_buffer_size().unwrap(),
            131_072,
            "the kernel reports twice the value"
        );
        let cut = set_buffers(&socket, u64::MAX).unwrap();
        let limit = |name| {
            std::fs::read_to_string(format!("/proc/sys/net/core/{name}"))
                .ok()?
                .trim()
                .parse::<u64>()
                .ok()
        };
        assert!(
            limit("wmem_max").is_none_or(|limit| cut.send == limit),
            "{cut:?}"
        );
        assert!(
            limit("rmem_max").is_none_or(|limit| cut.receive == limit),
            "{cut:?}"
        );
        // Minimums: SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF.
        let raised = set_buffers(&socket, 1).unwrap();
        assert!(raised.send > 500 && raised.receive > 500, "{raised:?}");
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
        let options = StreamOptions {
            congestion: Some("nosuch".to_owned()),
            max_segment: Some(1),
            ..StreamOptions::default()
        };
        let not_taken = tune(&socket, &options);
        let refused: Vec<_> = not_taken.iter().map(|not_taken| not_taken.option).collect();
        assert_eq!(
            refused,
            [StreamOption::Congestion, StreamOption::MaxSegment]
        );
        assert_eq!(
            not_taken[0].to_string(),
            "the system rejects TCP_CONGESTION"
        );
        assert!(socket.tcp_nodelay().unwrap());
    }

    #[test]
    fn a_short_user_timeout_cannot_be_made() {
        let error = UserTimeout::new(Duration::from_secs(2)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "TCP user timeout of 2 s is under the minimum of 30 s"
        );
        assert!(UserTimeout::new(MIN_USER_TIMEOUT).is_ok());
    }
}
