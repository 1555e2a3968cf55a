//! TCP connection statistics from the kernel (`TCP_INFO`).

use std::{io, mem::offset_of, os::fd::AsFd, time::Duration};

use libc::tcp_info as Raw;
use nicstripe_netlink::{u32_at, u64_at};

use crate::socket::sockopt;

/// Statistics of a TCP connection at one moment, as the kernel reports them.
///
/// Counters start with the connection. Values that an older kernel does not report are `None`,
/// never zero; each field names the first version that does. Byte counts are of TCP payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// Smoothed round-trip time; zero before the first sample.
    pub rtt: Duration,
    /// Maximum segment size for sending, in bytes of payload.
    pub mss: u32,
    /// Congestion window, in segments.
    pub snd_cwnd: u32,
    /// Number of acknowledged bytes, including one for the SYN (Linux 4.1).
    pub bytes_acked: Option<u64>,
    /// Number of bytes sent, including retransmissions (Linux 4.19).
    pub bytes_sent: Option<u64>,
    /// Number of retransmitted bytes (Linux 4.19).
    pub bytes_retrans: Option<u64>,
    /// Time during which the connection had data to send, at the resolution of the kernel's timer
    /// tick of 1 to 10 ms (Linux 4.9). Includes [`rwnd_limited`](Self::rwnd_limited) and
    /// [`sndbuf_limited`](Self::sndbuf_limited).
    pub busy: Option<Duration>,
    /// Time during which the receive window limited sending (Linux 4.9): the receiving application,
    /// usually its disk, is the bottleneck.
    pub rwnd_limited: Option<Duration>,
    /// Time during which the local send buffer limited sending (Linux 4.9).
    pub sndbuf_limited: Option<Duration>,
    /// Send window in bytes: how much the receiver accepts beyond the acknowledged bytes (Linux
    /// 5.4).
    pub snd_wnd: Option<u32>,
}

/// Reads the statistics of a TCP socket, connected or not. Needs no privileges; takes about a
/// microsecond.
pub fn tcp_info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    // Longer than the answer of any kernel, which is thus never truncated.
    let mut buffer = [0; 512];
    let bytes = sockopt::read(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut buffer)?;
    parse(bytes).ok_or_else(|| {
        let text = format!(
            "TCP_INFO of {} bytes is shorter than the {} of Linux 2.6.10",
            bytes.len(),
            SHORTEST_LEN
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

pub(crate) fn parse(bytes: &[u8]) -> Option<TcpInfo> {
    let word = |offset: usize| u32_at(bytes, offset);
    let long = |offset: usize| u64_at(bytes, offset);
    let micros = |offset: usize| long(offset).map(Duration::from_micros);
    if bytes.len() < SHORTEST_LEN {
        return None;
    }
    Some(TcpInfo {
        rtt: Duration::from_micros(word(offset_of!(Raw, tcpi_rtt))?.into()),
        mss: word(offset_of!(Raw, tcpi_snd_mss))?,
        snd_cwnd: word(offset_of!(Raw, tcpi_snd_cwnd))?,
        bytes_acked: long(offset_of!(Raw, tcpi_bytes_acked)),
        bytes_sent: long(offset_of!(Raw, tcpi_bytes_sent)),
        bytes_retrans: long(offset_of!(Raw, tcpi_bytes_retrans)),
        busy: micros(offset_of!(Raw, tcpi_busy_time)),
        rwnd_limited: micros(offset_of!(Raw, tcpi_rwnd_limited)),
        sndbuf_limited: micros(offset_of!(Raw, tcpi_sndbuf_limited)),
        snd_wnd: word(offset_of!(Raw, tcpi_snd_wnd)),
    })
}

/// Minimum length of a `tcp_info` in bytes: up to `tcpi_total_retrans`, which every kernel since
/// 2.6.10 reports.
const SHORTEST_LEN: usize = offset_of!(Raw, tcpi_total_retrans) + size_of::<u32>();

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parsed answer of a kernel that fills `len` bytes, all set to 1 so that each
    /// reported field is nonzero.
    fn answer(len: usize) -> Option<TcpInfo> {
        parse(&vec![1; len])
    }

    #[test]
    fn what_an_older_kernel_does_not_report_is_absent() {
        assert_eq!(answer(SHORTEST_LEN - 1), None);
        let oldest = answer(SHORTEST_LEN).unwrap();
        assert!(oldest.snd_cwnd > 0);
        assert_eq!((oldest.bytes_acked, oldest.busy), (None, None));
        // Linux 4.9 ends with tcpi_sndbuf_limited. It has all times, but no tcpi_bytes_sent.
        let middle = answer(offset_of!(Raw, tcpi_delivered)).unwrap();
        assert!(middle.sndbuf_limited.is_some());
        assert_eq!((middle.bytes_sent, middle.snd_wnd), (None, None));
        assert!(answer(size_of::<Raw>()).unwrap().snd_wnd.is_some());
    }

    #[test]
    fn a_newer_kernel_may_report_more() {
        assert_eq!(answer(512), answer(size_of::<Raw>()));
    }
}
