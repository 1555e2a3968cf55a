//! Bandwidth-delay product, and the socket buffers that follow from it.

use std::time::Duration;

use nicstripe_proto::BitRate;

/// Returns the bandwidth-delay product in bytes, rounded down: the bytes in flight on a full link
/// (RFC 6349, 3.1).
pub(crate) fn bdp(rate: BitRate, round_trip: Duration) -> u64 {
    rate.bytes_in(round_trip)
}

/// Returns the socket buffer in bytes to request so that it does not limit a link: four times the
/// bandwidth-delay product, at least 256 KiB.
///
/// `round_trip` is the RTT under load. One factor of two is for the bookkeeping of Linux, the other
/// for variation. The minimum is the plateau of a cable without delay (measured: 64 KiB give 874
/// and 256 KiB 941 of 941.5 Mbit/s).
pub(crate) fn buffer_to_ask_for(rate: BitRate, round_trip: Duration) -> u64 {
    bdp(rate, round_trip)
        .saturating_mul(4)
        .max(SUFFICIENT_BUFFER_BYTES)
}

/// Socket buffer in bytes below which even a cable without delay loses goodput, see
/// [`buffer_to_ask_for`].
pub(crate) const SUFFICIENT_BUFFER_BYTES: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: BitRate = BitRate::from_gbit(1);

    #[test]
    fn bandwidth_times_delay_is_what_the_table_says() {
        let ten = BitRate::from_gbit(10);
        for (line, micros, bytes) in [
            (GIGABIT, 100, 12_500),
            (GIGABIT, 200, 25_000),
            (GIGABIT, 1000, 125_000),
            (GIGABIT, 50_000, 6_250_000),
            (ten, 200, 250_000),
        ] {
            let round_trip = Duration::from_micros(micros);
            assert_eq!(bdp(line, round_trip), bytes);
        }
    }

    #[test]
    fn a_buffer_to_ask_for_is_four_times_that_and_not_below_256_kib() {
        assert_eq!(
            buffer_to_ask_for(GIGABIT, Duration::from_micros(100)),
            262_144
        );
        assert_eq!(
            buffer_to_ask_for(GIGABIT, Duration::from_millis(10)),
            5_000_000
        );
    }
}
