//! Bandwidth-delay product, and the buffers and rates that follow from it.

use std::time::Duration;

use nicstripe_proto::BitRate;

/// Returns the bandwidth-delay product in bytes, rounded down: the bytes in flight on a full link
/// (RFC 6349, 3.1).
pub fn bdp(rate: BitRate, round_trip: Duration) -> u64 {
    rate.bytes_in(round_trip)
}

/// Returns the maximum rate with at most `window_bytes` in flight: `W × 8 / RTT` (RFC 6349, 3.3.1).
pub fn window_limited_rate(window_bytes: u64, round_trip: Duration) -> BitRate {
    BitRate::from_bytes_over(window_bytes, round_trip)
}

/// Returns the socket buffer in bytes to request so that it does not limit a link: four times the
/// bandwidth-delay product, at least 256 KiB.
///
/// `round_trip` is the RTT under load. One factor of two is for the bookkeeping of Linux, the other
/// for variation. The minimum is the plateau of a cable without delay (measured: 64 KiB give 874
/// and 256 KiB 941 of 941.5 Mbit/s).
pub fn buffer_to_ask_for(rate: BitRate, round_trip: Duration) -> u64 {
    bdp(rate, round_trip)
        .saturating_mul(4)
        .max(SUFFICIENT_BUFFER_BYTES)
}

/// Returns the maximum rate of TCP Reno with the packet loss probability `loss` (0 to 1): `1.22 ×
/// MSS × 8 / (RTT × √p)` (Mathis, Semke, Mahdavi and Ott, "The macroscopic behavior of the TCP
/// congestion avoidance algorithm", 1997).
///
/// Saturates if the loss or the RTT is 0.
pub fn loss_limited_rate(segment_bytes: u64, round_trip: Duration, loss: f64) -> BitRate {
    // A float that is too large, or a division by 0, saturates.
    BitRate(
        (1.22 * segment_bytes as f64 * 8.0 / (round_trip.as_secs_f64() * loss.max(0.0).sqrt()))
            as u64,
    )
}

/// Socket buffer in bytes below which even a cable without delay loses goodput, see
/// [`buffer_to_ask_for`].
pub const SUFFICIENT_BUFFER_BYTES: u64 = 256 * 1024;

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
            assert_eq!(window_limited_rate(bytes, round_trip), line);
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

    #[test]
    fn one_packet_in_a_thousand_lost_at_lan_round_trips_still_allows_2_2_gbit() {
        let rate = loss_limited_rate(1448, Duration::from_micros(200), 1e-3);
        assert_eq!(rate.to_string(), "2.23 Gbit/s");
        assert_eq!(
            loss_limited_rate(1448, Duration::ZERO, 1e-3),
            BitRate(u64::MAX)
        );
        assert_eq!(
            loss_limited_rate(1448, Duration::from_millis(1), 0.0),
            BitRate(u64::MAX)
        );
    }
}
