//! Packet sizes of a path: whether those of the interface's MTU arrive in both directions, by a padded
//! greeting, and which smaller ones do.

use std::{net::SocketAddr, time::Duration};

use nicstripe_link::tcp_info;
use nicstripe_proto::{message::MAX_PADDING, path::PathPlan};
use tokio::net::TcpStream;

/// Timeout of authentication and greeting after the TCP handshake; equal at both ends.
pub(crate) const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// Test whether the path carries packets of the interface's MTU, by a padded hello.
#[derive(Debug)]
pub(super) struct PacketProbe {
    /// Padding of the hello in bytes; the hello exceeds one segment.
    pub(super) padding: usize,
    /// Time without an answer after which smaller packets are tried.
    pub(super) timeout: Duration,
    /// Segment size of the connection in bytes, TCP options not included.
    segment: u32,
    remote: SocketAddr,
}

impl PacketProbe {
    /// Returns the probe for a connection with segments that need packets above [`LEAST_MTU`];
    /// `None` for other connections and for loopback.
    pub(super) fn of(tcp: &TcpStream, plan: &PathPlan) -> Option<Self> {
        let info = tcp_info(tcp).ok()?;
        let full = info.mss + TIMESTAMPS;
        let is_large = full > segment(LEAST_MTU, plan.remote) && !plan.remote.ip().is_loopback();
        let is_jumbo = full > segment(USUAL_MTU, plan.remote);
        is_large.then(|| Self {
            padding: (info.mss as usize + MARGIN).min(MAX_PADDING),
            timeout: 4 * info.rtt + if is_jumbo { JUMBO_TIMEOUT } else { TIMEOUT },
            segment: full,
            remote: plan.remote,
        })
    }

    /// Returns how much longer the answer to the padded greeting is awaited after a small one, which
    /// took `small_took`. `None` if the small one was fast: then the size of the packets is the
    /// reason. Wrongly assuming a small MTU would reduce the rate for the whole session.
    pub(super) fn second_timeout(&self, small_took: Duration) -> Option<Duration> {
        (small_took * 2 > self.timeout)
            .then(|| (small_took * 3 + self.timeout).min(GREETING_TIMEOUT))
    }

    /// Returns the smaller packet sizes to try, the largest first.
    pub(super) fn smaller(&self) -> impl Iterator<Item = u32> + use<> {
        let (full, remote) = (self.segment, self.remote);
        let rungs = RUNGS.into_iter();
        rungs.filter(move |mtu| segment(*mtu, remote) < full)
    }
}

/// Returns the timeout of a padded greeting with smaller packets, after an unpadded one that took
/// `small_took`. A size that is taken for too large by mistake costs 2 % of the rate.
pub(super) fn rung_timeout(small_took: Duration) -> Duration {
    (RUNG_TIMEOUT + 4 * small_took).min(GREETING_TIMEOUT)
}

/// Returns the TCP segment size of packets of `mtu` bytes, TCP options included: less 40 bytes for
/// the headers of IPv4 and TCP, or 60 for IPv6 and TCP.
pub(super) fn segment(mtu: u32, remote: SocketAddr) -> u32 {
    mtu - if remote.is_ipv6() { 60 } else { 40 }
}

/// Packet sizes that are tried if those of the interface vanish: standard Ethernet; VXLAN and the
/// like, and DSL; WireGuard and most other tunnels.
const RUNGS: [u32; 3] = [USUAL_MTU, 1450, 1400];

/// MTU of standard Ethernet without jumbo frames, in bytes.
const USUAL_MTU: u32 = 1500;

/// Packet size in bytes that any path carries which can carry IPv6 (RFC 8200, section 5).
pub(super) const LEAST_MTU: u32 = 1280;

/// Bytes by which the padding exceeds one segment, because the start of the TLS record may fill a
/// smaller one.
const MARGIN: usize = 256;

/// Length of the TCP timestamps in each segment, in bytes.
const TIMESTAMPS: u32 = 12;

/// Timeout of the answer to a padded hello, in addition to four round trips. Covers two TCP
/// retransmissions (0.2 s and 0.4 s).
const TIMEOUT: Duration = Duration::from_secs(1);

/// Limit for jumbo frames, which vanish more often. Covers one TCP retransmission.
const JUMBO_TIMEOUT: Duration = Duration::from_millis(500);

/// Time in which a lost packet has been resent.
const RUNG_TIMEOUT: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(segment: u32, remote: &str) -> PacketProbe {
        PacketProbe {
            padding: 9000,
            timeout: Duration::from_millis(500),
            segment,
            remote: remote.parse().unwrap(),
        }
    }

    #[test]
    fn a_slow_daemon_is_waited_for_before_its_link_is_taken_for_narrow() {
        let probe = probe(8960, "10.0.0.1:7747");
        assert_eq!(
            probe.second_timeout(Duration::from_millis(3)),
            None,
            "an answer to a small hello proves nothing for a large one"
        );
        assert_eq!(
            probe.second_timeout(Duration::from_millis(400)),
            Some(Duration::from_millis(1700))
        );
        assert_eq!(
            probe.second_timeout(Duration::from_secs(4)),
            Some(GREETING_TIMEOUT)
        );
    }

    #[test]
    fn sizes_below_that_of_the_interface_are_tried_the_largest_first() {
        for (mtu, sizes) in [
            (9000, &[1500, 1450, 1400][..]),
            (1500, &[1450, 1400]),
            (1450, &[1400]),
            (1400, &[]),
        ] {
            for (headers, remote) in [(40, "10.0.0.1:7747"), (60, "[fd00::1]:7747")] {
                let smaller = probe(mtu - headers, remote).smaller();
                assert!(smaller.eq(sizes.iter().copied()), "{mtu} {remote}");
            }
        }
    }
}
