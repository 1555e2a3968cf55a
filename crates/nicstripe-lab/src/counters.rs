//! What each cable carried.

use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};

use crate::lab::Host;

/// Bytes through one host's end of a link since the lab was built.
///
/// As the interface counts them (`IFLA_STATS64`): with the Ethernet header, once for each superpacket of up to 64 KiB that
/// segmentation offload leaves whole, so up to 5 % under what the frames on a real cable would add up to. Bytes sent count as they
/// leave the shaper: what still waits in its queue is not in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that left the host.
    pub sent_bytes: u64,
    /// Bytes that came to the host; less than the peer's `sent_bytes` when the cable lost some.
    pub received_bytes: u64,
}

/// Traffic at both ends of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// At host A.
    pub a: Traffic,
    /// At host B.
    pub b: Traffic,
}

impl LinkCounters {
    /// The traffic at one host.
    pub fn at(&self, host: Host) -> Traffic {
        match host {
            Host::A => self.a,
            Host::B => self.b,
        }
    }

    /// What was added since `earlier` was read.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self { a: self.a.since(earlier.a), b: self.b.since(earlier.b) }
    }
}

impl Traffic {
    fn since(self, earlier: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
        }
    }

    /// Reads the counters out of the kernel's description of an interface.
    pub(crate) fn of(link: &LinkMessage) -> Option<Self> {
        link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(Self { sent_bytes: stats.tx_bytes, received_bytes: stats.rx_bytes }),
            _ => None,
        })
    }
}
