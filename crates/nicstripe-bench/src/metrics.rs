//! Metrics that relate measured to ideal values. Undefined or unknown values are `None`.

use nicstripe_proto::BitRate;

use crate::statistics::jain;

/// Returns the share of sent bytes that were not retransmitted, in percent: `(sent − retransmitted)
/// / sent × 100` (RFC 6349, 4.2).
///
/// `sent` includes retransmissions, as `tcpi_bytes_sent` does.
pub(crate) fn tcp_efficiency_pct(sent_bytes: u64, retransmitted_bytes: u64) -> Option<f64> {
    (sent_bytes > 0)
        .then(|| sent_bytes.saturating_sub(retransmitted_bytes) as f64 / sent_bytes as f64 * 100.0)
}

/// Returns the actual duration of a transfer divided by its ideal duration (RFC 6349, 4.1); 1 is
/// perfect. For loads of fixed duration it is the inverse of their efficiency.
pub(crate) fn transfer_time_ratio(actual: BitRate, ideal: BitRate) -> Option<f64> {
    efficiency(ideal, actual)
}

/// Returns the increase of the RTT under load in percent: `(loaded − baseline) / baseline × 100`
/// (RFC 6349, 4.3).
///
/// The baseline is the minimum RTT without load. On a cable thousands of percent are normal and
/// harmless, so both times must be reported as well.
pub(crate) fn buffer_delay_pct(loaded_us: f64, baseline_us: f64) -> Option<f64> {
    let delay = (loaded_us - baseline_us) / baseline_us * 100.0;
    (baseline_us > 0.0 && delay.is_finite()).then_some(delay)
}

/// Returns goodput divided by its theoretical maximum; above 1 if `theory` is wrong, `None` if it
/// is 0.
pub(crate) fn efficiency(goodput: BitRate, theory: BitRate) -> Option<f64> {
    (theory.0 > 0).then(|| goodput.0 as f64 / theory.0 as f64)
}

/// Returns the total rate of links under simultaneous load, divided by the sum of their rates when
/// loaded alone.
pub(crate) fn scaling(together: BitRate, alone: impl IntoIterator<Item = BitRate>) -> Option<f64> {
    efficiency(together, alone.into_iter().sum())
}

/// Returns Jain's fairness index of the links' efficiencies: 1 if all are equal, 1/n if one gets
/// everything. Each link is a pair of goodput and theoretical maximum.
///
/// Efficiencies are compared, because with plain rates 100 Mbit/s next to a gigabit would look
/// unfair. Returns `None` without links, if a link's maximum is 0, or if all rates are 0.
pub(crate) fn fairness(links: &[(BitRate, BitRate)]) -> Option<f64> {
    let shares: Option<Vec<f64>> = links
        .iter()
        .map(|(goodput, theory)| efficiency(*goodput, *theory))
        .collect();
    jain(&shares?)
}

/// Returns the CPU time in seconds per transferred gigabit; `None` if nothing was transferred.
pub(crate) fn cpu_seconds_per_gbit(busy_seconds: f64, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| busy_seconds / (bytes as f64 * 8.0 / 1e9))
}

/// Returns CPU clock in MHz per Mbit/s; the old rule of thumb is 1. `mhz` is the frequency of a
/// core.
pub(crate) fn cpu_mhz_per_mbps(cpu_seconds_per_gbit: f64, mhz: u32) -> f64 {
    // Seconds per gigabit equal cores at 1 Gbit/s, of `mhz` each; 1 Gbit/s is 1000 Mbit/s.
    cpu_seconds_per_gbit * f64::from(mhz) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(rate: u64) -> BitRate {
        BitRate::from_mbit(rate)
    }

    fn near(found: Option<f64>, expected: f64) {
        assert!(
            found.is_some_and(|found| (found - expected).abs() < 0.005),
            "{found:?} is not {expected}"
        );
    }

    #[test]
    fn the_three_metrics_of_rfc_6349_give_its_examples() {
        // 4.2: 100,000 bytes sent, 2000 of them retransmitted, 102,000 in all; 4.1: 12 s where 8 s
        // are ideal; 4.3: 32 ms of 25 ms.
        near(tcp_efficiency_pct(102_000, 2_000), 98.04);
        near(transfer_time_ratio(BitRate(8), BitRate(12)), 1.5);
        near(buffer_delay_pct(32.0, 25.0), 28.0);
        near(buffer_delay_pct(2200.0, 100.0), 2100.0);
    }

    #[test]
    fn two_gigabit_cables_on_one_bus_scale_to_0_61() {
        let together = mbit(1147);
        near(scaling(together, [mbit(940), mbit(940)]), 0.61);
        let theory = BitRate(941_482_444);
        near(efficiency(together, theory.saturating_add(theory)), 0.609);
        near(
            transfer_time_ratio(together, theory.saturating_add(theory)),
            1.64,
        );
        near(fairness(&[(mbit(657), theory), (mbit(490), theory)]), 0.979);
    }

    #[test]
    fn a_slow_line_beside_a_fast_one_is_fair_where_both_are_full() {
        near(
            fairness(&[(mbit(94), mbit(94)), (mbit(941), mbit(941))]),
            1.0,
        );
        near(
            fairness(&[(mbit(94), mbit(941)), (mbit(941), mbit(941))]),
            0.599,
        );
    }

    #[test]
    fn the_processor_that_a_gigabit_takes_is_told_in_seconds_and_in_megahertz() {
        let seconds = cpu_seconds_per_gbit(1.0, 1_250_000_000);
        near(seconds, 0.1);
        // A core of 3000 MHz that is one tenth busy at 1000 Mbit/s: 0.3 MHz per Mbit/s.
        near(seconds.map(|seconds| cpu_mhz_per_mbps(seconds, 3000)), 0.3);
    }

    #[test]
    fn what_nothing_is_known_of_has_no_figure() {
        assert_eq!(tcp_efficiency_pct(0, 0), None);
        assert_eq!(transfer_time_ratio(BitRate::ZERO, mbit(1)), None);
        assert_eq!(buffer_delay_pct(1.0, 0.0), None);
        assert_eq!(scaling(mbit(1), []), None);
        assert_eq!(fairness(&[]), None);
        assert_eq!(fairness(&[(mbit(1), BitRate::ZERO)]), None);
        assert_eq!(cpu_seconds_per_gbit(1.0, 0), None);
    }
}
