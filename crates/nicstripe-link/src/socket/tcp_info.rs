//! TCP connection statistics from the kernel (`TCP_INFO`).

use std::{io, mem::offset_of, os::fd::AsFd, time::Duration};

use libc::tcp_info as Raw;

use crate::socket::sockopt;

/// Statistics of a TCP connection at one moment, as the kernel reports them.
///
/// Counters start with the connection. Values that an older kernel does not report are `None`,
/// never zero; each field names the first version that does. Byte counts are of TCP payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// True if the connection is in the state `ESTABLISHED`.
    pub established: bool,
    /// Smoothed round-trip time; zero before the first sample.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_var: Duration,
    /// Minimum round-trip time of the last minutes (Linux 4.9); absent before the first sample.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Maximum segment size for sending, in bytes of payload.
    pub mss: u32,
    /// Path MTU of the connection, in bytes.
    pub path_mtu: u32,
    /// Congestion window, in segments.
    pub snd_cwnd: u32,
    /// Number of segments in flight: sent and not acknowledged.
    pub unacked: u32,
    /// Number of segments presumed lost.
    pub lost: u32,
    /// Number of consecutive unanswered retransmissions of the oldest segment: 3 take about 1.5 s
    /// on a LAN.
    pub retransmits: u8,
    /// Number of retransmitted segments since the start of the connection. Pairs with
    /// [`bytes_retrans`](Self::bytes_retrans).
    pub total_retrans: u32,
    /// Time since the last received acknowledgement, in whole milliseconds. The path is suspect
    /// over 500 ms if [`unacked`](Self::unacked) is above zero: healthy paths, even with
    /// bufferbloat, stayed under 60 ms.
    pub last_ack_recv: Duration,
    /// Time since the last received payload, in whole milliseconds.
    pub last_data_recv: Duration,
    /// Most recent delivery rate, in bytes per second (Linux 4.9).
    pub delivery_rate_bytes_per_second: Option<u64>,
    /// True if the delivery rate was limited by a lack of data to send (Linux 4.9). Such a rate
    /// must not lower an estimate of the capacity.
    pub delivery_rate_app_limited: Option<bool>,
    /// Pacing rate in bytes per second (Linux 3.15); `None` also if the kernel does not pace.
    pub pacing_rate_bytes_per_second: Option<u64>,
    /// Number of acknowledged bytes, including one for the SYN (Linux 4.1).
    pub bytes_acked: Option<u64>,
    /// Number of bytes received in order (Linux 4.1).
    pub bytes_received: Option<u64>,
    /// Number of bytes sent, including retransmissions (Linux 4.19).
    pub bytes_sent: Option<u64>,
    /// Number of retransmitted bytes (Linux 4.19).
    pub bytes_retrans: Option<u64>,
    /// Number of bytes written to the socket but not yet sent (Linux 4.6).
    pub notsent_bytes: Option<u32>,
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
    let byte = |offset: usize| bytes.get(offset).copied();
    let word = |offset: usize| Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
    let long = |offset: usize| Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
    let micros = |offset: usize| word(offset).map(u64::from).map(Duration::from_micros);
    let millis = |offset: usize| word(offset).map(u64::from).map(Duration::from_millis);
    let long_micros = |offset: usize| long(offset).map(Duration::from_micros);
    // A rate of all ones means no limit, a minimum time of all ones no sample.
    let rate = |offset: usize| long(offset).filter(|rate| *rate != u64::MAX);
    let min_rtt =
        word(offset_of!(Raw, tcpi_min_rtt)).filter(|least| *least != u32::MAX && *least != 0);
    let app_limited =
        byte(DELIVERY_RATE_FLAGS).filter(|_| long(offset_of!(Raw, tcpi_delivery_rate)).is_some());
    Some(TcpInfo {
        established: byte(offset_of!(Raw, tcpi_state))? == TCP_ESTABLISHED,
        rtt: micros(offset_of!(Raw, tcpi_rtt))?,
        rtt_var: micros(offset_of!(Raw, tcpi_rttvar))?,
        min_rtt: min_rtt.map(u64::from).map(Duration::from_micros),
        rto: micros(offset_of!(Raw, tcpi_rto))?,
        mss: word(offset_of!(Raw, tcpi_snd_mss))?,
        path_mtu: word(offset_of!(Raw, tcpi_pmtu))?,
        snd_cwnd: word(offset_of!(Raw, tcpi_snd_cwnd))?,
        unacked: word(offset_of!(Raw, tcpi_unacked))?,
        lost: word(offset_of!(Raw, tcpi_lost))?,
        retransmits: byte(offset_of!(Raw, tcpi_retransmits))?,
        total_retrans: word(offset_of!(Raw, tcpi_total_retrans))?,
        last_ack_recv: millis(offset_of!(Raw, tcpi_last_ack_recv))?,
        last_data_recv: millis(offset_of!(Raw, tcpi_last_data_recv))?,
        delivery_rate_bytes_per_second: long(offset_of!(Raw, tcpi_delivery_rate)),
        delivery_rate_app_limited: app_limited.map(|flags| flags & APP_LIMITED != 0),
        pacing_rate_bytes_per_second: rate(offset_of!(Raw, tcpi_pacing_rate)),
        bytes_acked: long(offset_of!(Raw, tcpi_bytes_acked)),
        bytes_received: long(offset_of!(Raw, tcpi_bytes_received)),
        bytes_sent: long(offset_of!(Raw, tcpi_bytes_sent)),
        bytes_retrans: long(offset_of!(Raw, tcpi_bytes_retrans)),
        notsent_bytes: word(offset_of!(Raw, tcpi_notsent_bytes)),
        busy: long_micros(offset_of!(Raw, tcpi_busy_time)),
        rwnd_limited: long_micros(offset_of!(Raw, tcpi_rwnd_limited)),
        sndbuf_limited: long_micros(offset_of!(Raw, tcpi_sndbuf_limited)),
        snd_wnd: word(offset_of!(Raw, tcpi_snd_wnd)),
    })
}

/// Minimum length of a `tcp_info` in bytes: up to `tcpi_total_retrans`, which every kernel since
/// 2.6.10 reports.
const SHORTEST_LEN: usize = offset_of!(Raw, tcpi_total_retrans) + size_of::<u32>();

/// State number of an established connection (`include/net/tcp_states.h`).
const TCP_ESTABLISHED: u8 = 1;

/// Byte offset of the `tcpi_delivery_rate_app_limited` bit field. It follows the window scales, and
/// is padding in the libc crate's structure.
const DELIVERY_RATE_FLAGS: usize = offset_of!(Raw, tcpi_snd_rcv_wscale) + 1;

/// Bit of the first bit field in its byte: the lowest one on little-endian machines, the highest
/// one on others.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") {
    0x01
} else {
    0x80
};

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
        assert!(oldest.total_retrans > 0);
        assert_eq!(
            (
                oldest.min_rtt,
                oldest.bytes_acked,
                oldest.delivery_rate_app_limited
            ),
            (None, None, None)
        );
        // Linux 4.9 ends with tcpi_sndbuf_limited. It has all times, but no tcpi_bytes_sent.
        let middle = answer(offset_of!(Raw, tcpi_delivered)).unwrap();
        assert!(middle.sndbuf_limited.is_some() && middle.delivery_rate_app_limited == Some(true));
        assert_eq!((middle.bytes_sent, middle.snd_wnd), (None, None));
        assert!(answer(size_of::<Raw>()).unwrap().snd_wnd.is_some());
    }

    #[test]
    fn a_newer_kernel_may_report_more() {
        assert_eq!(answer(512), answer(size_of::<Raw>()));
    }

    #[test]
    fn no_sample_and_no_limit_are_absent() {
        let info = parse(&[0xff; 512]).unwrap();
        assert_eq!(
            (info.min_rtt, info.pacing_rate_bytes_per_second),
            (None, None)
        );
    }
}
