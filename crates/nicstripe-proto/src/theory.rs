//! Theoretical maximum of a link's goodput.

use crate::units::{BitRate, saturate};

/// IP version, which determines the length of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4, with headers of 20 bytes.
    V4,
    /// IPv6, with headers of 40 bytes.
    V6,
}

/// Parameters of a link's maximum goodput: TCP over IP over Ethernet, with full packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Theory {
    /// Line rate of the link. Counts all bits on the wire, including preamble and gaps.
    pub line: BitRate,
    /// MTU of the link in bytes.
    pub mtu: u32,
    /// IP version of the packets.
    pub ip: IpVersion,
    /// True if each TCP segment has timestamps (12 bytes), which is the default of Linux.
    pub timestamps: bool,
    /// Number of VLAN tags per frame, 4 bytes each.
    pub vlan_tags: u8,
}

impl Theory {
    /// Creates the parameters that Linux uses by default: IPv4 with timestamps and without VLAN
    /// tags.
    pub const fn usual(line: BitRate, mtu: u32) -> Theory {
        Theory {
            line,
            mtu,
            ip: IpVersion::V4,
            timestamps: true,
            vlan_tags: 0,
        }
    }

    /// Returns the payload of a full segment in bytes: MTU − IP − TCP headers; 0 if the MTU is too
    /// small.
    pub const fn segment_bytes(&self) -> u64 {
        let ip = match self.ip {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        };
        let tcp = if self.timestamps { 32 } else { 20 };
        (self.mtu as u64).saturating_sub(ip + tcp)
    }

    /// Returns the maximum goodput, rounded down: `L × (MTU − IP − TCP) / (MTU + 38 + 4·v)` (RFC
    /// 6349, 4.1).
    ///
    /// The 38 bytes are Ethernet's header (14), checksum (4), preamble (8) and gap (12).
    pub fn goodput(&self) -> BitRate {
        self.share(ETHERNET_BYTES)
    }

    /// Returns the maximum goodput, rounded down, if `line` is the rate of a traffic shaper.
    ///
    /// A shaper (tc-tbf) counts a packet with its Ethernet header of 14 bytes, but without
    /// checksum, preamble and gap.
    pub fn goodput_of_shaper(&self) -> BitRate {
        self.share(HEADER_BYTES)
    }

    /// Converts the rate of a traffic shaper in `line` to the line rate with the same goodput: `R ×
    /// (MTU + 38 + 4·v) / (MTU + 14 + 4·v)`.
    ///
    /// This makes cables and shaped links comparable. The result is rounded up, so that the goodput
    /// is not rounded down twice.
    pub fn line_of_shaper(&self) -> BitRate {
        BitRate(saturate(
            (u128::from(self.line.0) * u128::from(self.wire_bytes(ETHERNET_BYTES)))
                .div_ceil(self.wire_bytes(HEADER_BYTES).into()),
        ))
    }

    fn share(&self, overhead: u64) -> BitRate {
        BitRate(saturate(
            u128::from(self.line.0) * u128::from(self.segment_bytes())
                / u128::from(self.wire_bytes(overhead)),
        ))
    }

    /// Returns the length of a full packet on the wire in bytes, with `overhead` and VLAN tags.
    /// Never 0, because `overhead` is never 0.
    fn wire_bytes(&self, overhead: u64) -> u64 {
        u64::from(self.mtu) + overhead + VLAN_TAG_BYTES * u64::from(self.vlan_tags)
    }
}

/// Ethernet overhead per packet on the wire, in bytes: header 14, checksum 4, preamble 8, gap 12
/// (IEEE 802.3).
const ETHERNET_BYTES: u64 = 38;
/// Ethernet overhead per packet that the kernel's shapers count, in bytes: the header.
const HEADER_BYTES: u64 = 14;
/// Length of a VLAN tag in bytes (IEEE 802.1Q).
const VLAN_TAG_BYTES: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: BitRate = BitRate::from_gbit(1);

    fn mbit(theory: Theory) -> String {
        format!("{:.2}", theory.goodput().0 as f64 / 1e6)
    }

    fn mbytes(line_mbit: u64, mtu: u32) -> f64 {
        Theory::usual(BitRate::from_mbit(line_mbit), mtu)
            .goodput()
            .0 as f64
            / 8e6
    }

    #[test]
    fn a_gigabit_line_carries_what_the_table_of_formulae_says() {
        for (mtu, row) in [
            (1500, ["941.48", "949.28", "939.04", "928.48", "936.28"]),
            (4000, ["977.71", "980.68", "976.74", "972.76", "975.73"]),
            (7000, ["987.21", "988.92", "986.65", "984.37", "986.08"]),
            (9000, ["990.04", "991.37", "989.60", "987.83", "989.16"]),
            (16110, ["994.43", "995.17", "994.18", "993.19", "993.93"]),
        ] {
            let v4 = Theory::usual(GIGABIT, mtu);
            let v6 = Theory {
                ip: IpVersion::V6,
                ..v4
            };
            let found = [
                v4,
                Theory {
                    timestamps: false,
                    ..v4
                },
                Theory { vlan_tags: 1, ..v4 },
                v6,
                Theory {
                    timestamps: false,
                    ..v6
                },
            ];
            assert_eq!(found.map(mbit), row, "MTU {mtu}");
        }
        assert_eq!(Theory::usual(GIGABIT, 1500).goodput(), BitRate(941_482_444));
    }

    #[test]
    fn faster_and_slower_lines_carry_their_share_in_megabytes() {
        for (line, small, jumbo) in [
            (100, 11.77, 12.38),
            (1000, 117.69, 123.76),
            (2500, 294.2, 309.4),
            (5000, 588.4, 618.8),
            (10_000, 1176.9, 1237.6),
        ] {
            assert!(
                (mbytes(line, 1500) - small).abs() < 0.06,
                "{line} {}",
                mbytes(line, 1500)
            );
            assert!(
                (mbytes(line, 9000) - jumbo).abs() < 0.06,
                "{line} {}",
                mbytes(line, 9000)
            );
        }
    }

    #[test]
    fn a_shaper_that_lets_out_what_a_gigabit_line_takes_is_that_line() {
        for (shaper, mtu) in [(984_396_000, 1500), (997_344_000, 9000)] {
            let shaped = Theory::usual(BitRate(shaper), mtu);
            let line = Theory {
                line: shaped.line_of_shaper(),
                ..shaped
            };
            assert!(line.line.0.abs_diff(GIGABIT.0) < 1000, "{}", line.line.0);
            assert!(line.goodput().0.abs_diff(shaped.goodput_of_shaper().0) <= 1);
        }
        assert_eq!(
            Theory::usual(BitRate(984_396_000), 1500).goodput_of_shaper(),
            BitRate(941_483_096)
        );
    }

    #[test]
    fn packets_without_room_for_payload_carry_nothing_and_extreme_values_do_not_overflow() {
        for mtu in [0, 20, 52] {
            assert_eq!(
                Theory::usual(GIGABIT, mtu).goodput(),
                BitRate::ZERO,
                "MTU {mtu}"
            );
        }
        let most = Theory {
            vlan_tags: u8::MAX,
            ..Theory::usual(BitRate(u64::MAX), u32::MAX)
        };
        assert!(most.goodput() < most.line);
        assert_eq!(most.line_of_shaper().0, u64::MAX);
    }
}
