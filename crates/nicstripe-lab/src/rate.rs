//! Rates in bits per second, and the tbf parameters for them.

use std::fmt;

/// Rate in bits per second, decimal: a gigabit is 10⁹.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl BitRate {
    /// Creates a rate of `bits_per_second`.
    pub const fn from_bits_per_second(bits_per_second: u64) -> Self {
        Self(bits_per_second)
    }

    /// Creates a rate of `megabits` × 10⁶ bits per second; saturates.
    pub const fn mbit(megabits: u64) -> Self {
        Self(megabits.saturating_mul(1_000_000))
    }

    /// Creates a rate of `gigabits` × 10⁹ bits per second; saturates.
    pub const fn gbit(gigabits: u64) -> Self {
        Self(gigabits.saturating_mul(1_000_000_000))
    }

    /// Returns the rate in bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the tbf parameters for this rate, which includes Ethernet headers, and for packets
    /// of up to `mtu` bytes.
    pub(crate) fn shaping_of_frames(self, mtu: u32) -> Shaping {
        let bytes_per_second = (self.bits_per_second() / 8).max(1);
        let frame = u64::from(mtu + ETHERNET_HEADER);
        let burst = (bytes_per_second / BURSTS_PER_SECOND)
            .max(MIN_BURST_FRAMES * frame)
            .min(MAX_BURST);
        let queue = (QUEUE_FRAMES * frame).max(2 * burst);
        let [burst_bytes, queue_bytes] =
            [burst, queue].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        Shaping {
            bytes_per_second,
            burst_bytes,
            queue_bytes,
        }
    }

    /// Returns this rate × `numerator` ÷ `denominator`, rounded to the nearest bit per second.
    pub(crate) fn scaled(self, numerator: u32, denominator: u32) -> Self {
        let (numerator, denominator) = (u128::from(numerator), u128::from(denominator));
        let bits = (u128::from(self.0) * numerator + denominator / 2) / denominator;
        Self(u64::try_from(bits).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            1_000_000_000.. => (1e9, "Gbit/s"),
            1_000_000.. => (1e6, "Mbit/s"),
            1_000.. => (1e3, "kbit/s"),
            _ => (1.0, "bit/s"),
        };
        // Thousandths of the unit stay far below 2^53, the limit of exact integers in f64.
        let thousandths = (self.0 as f64 / unit * 1000.0).round();
        write!(f, "{} {name}", thousandths / 1000.0)
    }
}

/// Parameters of a tbf qdisc; all sizes include the Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shaping {
    /// Rate at which the bucket fills, in bytes per second. Never 0.
    pub(crate) bytes_per_second: u64,
    /// Depth of the bucket in bytes: the burst that an idle link may send at once.
    pub(crate) burst_bytes: u32,
    /// Limit of the queue in bytes, above which frames are dropped.
    pub(crate) queue_bytes: u32,
}

/// Number of full bursts per second: the bucket holds 2.1 ms of the rate, 256 KiB at 1 Gbit/s.
///
/// At 1 Gbit/s, superpackets of 64 KiB pass whole. With a depth of 64 KiB, tbf cuts each into
/// frames. TCP then reaches 690 to 830 Mbit/s with bbr and 930 with cubic, at 30 % of a CPU
/// (measured on Linux 6.18). The fraction keeps the burst of an idle slow link small.
const BURSTS_PER_SECOND: u64 = 470;

/// Minimum depth of the bucket, in full frames: 12 ms of a 10 Mbit/s link.
const MIN_BURST_FRAMES: u64 = 10;

/// Maximum depth of the bucket in bytes, reached at 250 Gbit/s, so that twice the depth fits tbf's
/// 32 bits.
const MAX_BURST: u64 = 64 << 20;

/// Length of an egress queue in full frames: `txqueuelen` of an Ethernet card.
const QUEUE_FRAMES: u64 = 1000;

/// Length of the Ethernet header in bytes, which tbf counts.
pub(crate) const ETHERNET_HEADER: u32 = 14;
