//! Byte counters of an interface, as the kernel reports them.

use std::io;

use nicstripe_netlink::{Message, Netlink, Request, u64_at};

use crate::interface::InterfaceIndex;

/// Bytes that an interface has carried since its creation, Ethernet headers included.
///
/// Each driver decides which frames it counts, so only the difference between two readings is
/// meaningful. Most drivers also count received frames that are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of bytes that the interface has received.
    pub received: u64,
    /// Number of bytes that the interface has sent.
    pub sent: u64,
}

impl Counters {
    /// Returns the bytes carried since the earlier reading. If a counter was reset in between, its
    /// current value counts as the difference.
    pub fn since(&self, earlier: &Self) -> Self {
        let grown = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
        Self {
            received: grown(self.received, earlier.received),
            sent: grown(self.sent, earlier.sent),
        }
    }
}

/// Reads the counters of one interface of the calling thread's network namespace.
///
/// Sends one `RTM_GETSTATS` query (Linux 4.7). Needs no privileges.
///
/// # Errors
///
/// `ENODEV` if the interface does not exist.
pub fn counters(interface: InterfaceIndex) -> io::Result<Counters> {
    let mut header = [0; STATS_HEADER_LEN];
    header[4..8].copy_from_slice(&interface.0.to_ne_bytes());
    header[8..12].copy_from_slice(&STATS_FILTER_LINK_64.to_ne_bytes());
    let answer = Netlink::route()?.query(&Request::new(RTM_GETSTATS, &header), parse)?;
    answer.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

pub(crate) fn parse(message: &Message<'_>) -> Option<Counters> {
    let (_, attributes) = message.split_if(RTM_NEWSTATS, STATS_HEADER_LEN)?;
    let stats = attributes.find(IFLA_STATS_LINK_64)?;
    Some(Counters {
        received: u64_at(stats, RX_BYTES)?,
        sent: u64_at(stats, TX_BYTES)?,
    })
}

// include/uapi/linux/rtnetlink.h
const RTM_NEWSTATS: u16 = 92;
const RTM_GETSTATS: u16 = 94;

// include/uapi/linux/if_link.h
/// Length of `struct if_stats_msg` in bytes: family, pad (3 bytes), index (u32), filter (u32).
const STATS_HEADER_LEN: usize = 12;
const IFLA_STATS_LINK_64: u16 = 1;
/// Filter of a query for the 64-bit byte counters: `IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64)`.
const STATS_FILTER_LINK_64: u32 = 1;
/// Byte offset of the received bytes in `struct rtnl_link_stats64`, which begins with received and
/// sent packets.
const RX_BYTES: usize = 16;
const TX_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn loopback_receives_what_it_sends() {
        let lo = InterfaceIndex(1);
        let before = counters(lo).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .send_to(&[0; 1000], socket.local_addr().unwrap())
            .unwrap();
        let carried = counters(lo).unwrap().since(&before);
        assert!(
            carried.sent >= 1000 && carried.received >= 1000,
            "{carried:?}"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn an_interface_that_is_not_there_is_an_error() {
        assert_eq!(
            counters(InterfaceIndex(0x7fff_ffff))
                .unwrap_err()
                .raw_os_error(),
            Some(libc::ENODEV)
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_counter_that_was_set_back_counts_from_zero() {
        let now = Counters {
            received: 5,
            sent: 300,
        };
        assert_eq!(
            now.since(&Counters {
                received: 9,
                sent: 100
            }),
            Counters {
                received: 5,
                sent: 200
            }
        );
    }
}
