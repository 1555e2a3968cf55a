//! Traffic counters of a lab's links.

use crate::host::Host;

/// Bytes that one host has sent and received on a link since the lab was built.
///
/// The host's interface counts them (`IFLA_STATS64`), with the Ethernet header. A superpacket of up
/// to 64 KiB, which segmentation offload leaves whole, counts one header, so the sum is up to 5 %
/// below that of the frames on a real cable. Sent bytes count when they leave the shaper, so queued
/// bytes are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of bytes that the host has sent.
    pub sent_bytes: u64,
    /// Number of bytes that the host has received; less than the peer's `sent_bytes` if the cable
    /// dropped frames.
    pub received_bytes: u64,
}

/// Traffic of both hosts on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Bytes that host A has sent and received.
    pub a: Traffic,
    /// Bytes that host B has sent and received.
    pub b: Traffic,
}

impl LinkCounters {
    /// Returns the traffic of one host on this link.
    pub fn at(&self, host: Host) -> Traffic {
        match host {
            Host::A => self.a,
            Host::B => self.b,
        }
    }

    /// Returns the traffic on this link since the earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            a: self.a.since(earlier.a),
            b: self.b.since(earlier.b),
        }
    }
}

impl Traffic {
    fn since(self, earlier: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
        }
    }
}
