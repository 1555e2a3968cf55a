//! Comparison of a rate with earlier results, to detect a regression beyond noise.

use nicstripe_proto::BitRate;

use crate::{
    report::Verdict,
    statistics::{as_values, median, median_absolute_deviation},
};

/// Difference between new and earlier repeats of a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// Change of the median in percent of the earlier median; negative if slower.
    pub(crate) percent: f64,
    /// Noise in percent of the earlier median, at least [`LEAST_NOISE_PERCENT`].
    pub(crate) noise_percent: f64,
    /// Conclusion from change and noise.
    pub(crate) verdict: Verdict,
}

/// Compares new repeats of a rate with earlier ones. Returns `None` if either list is empty, or if
/// the earlier median is 0.
///
/// A difference is significant if the medians differ by more than the noise and the ranges do not
/// overlap. The noise is [`LEAST_NOISE_PERCENT`] or three times the larger median absolute
/// deviation, whichever is larger. Simulated with 6 repeats each: noise of 1 % is never reported as
/// a regression, and a drop of 10 % always is (tests below).
pub(crate) fn compare(now: &[BitRate], earlier: &[BitRate]) -> Option<Change> {
    let (values, before) = (as_values(now), as_values(earlier));
    let base = median(&before).filter(|base| *base > 0.0)?;
    let percent = (median(&values)? - base) / base * 100.0;
    let scatter = median_absolute_deviation(&values)?.max(median_absolute_deviation(&before)?);
    let noise_percent = (3.0 * scatter / base * 100.0).max(LEAST_NOISE_PERCENT);
    let verdict = match percent {
        _ if percent < -noise_percent && now.iter().max() < earlier.iter().min() => {
            Verdict::Regression
        }
        _ if percent > noise_percent && now.iter().min() > earlier.iter().max() => Verdict::Better,
        _ => Verdict::Same,
    };
    Some(Change {
        percent,
        noise_percent,
        verdict,
    })
}

/// Minimum noise in percent, even if the repeats agree: earlier load on the machine affects a run.
pub(crate) const LEAST_NOISE_PERCENT: f64 = 3.0;

#[cfg(test)]
mod tests {
    use nicstripe_sim::Rng;

    use super::*;
    use crate::repeat::RepeatRule;

    fn mbit(rates: &[u64]) -> Vec<BitRate> {
        rates.iter().copied().map(BitRate::from_mbit).collect()
    }

    #[test]
    fn what_a_shared_bus_costs_is_a_regression() {
        let change = compare(
            &mbit(&[1147, 1144, 1150, 1146, 1148, 1147]),
            &mbit(&[1863, 1860, 1866, 1862, 1864, 1863]),
        )
        .unwrap();
        assert_eq!(change.verdict, Verdict::Regression);
        assert!((change.percent + 38.4).abs() < 0.1, "{change:?}");
        assert_eq!(change.noise_percent, LEAST_NOISE_PERCENT);
    }

    #[test]
    fn the_same_the_other_way_round_is_better() {
        let change = compare(&mbit(&[626, 630, 620]), &mbit(&[134, 130, 140])).unwrap();
        assert_eq!(change.verdict, Verdict::Better);
    }

    #[test]
    fn three_percent_are_chance_and_so_are_ranges_that_overlap() {
        assert_eq!(
            compare(&mbit(&[912; 6]), &mbit(&[940; 6])).unwrap().verdict,
            Verdict::Same
        );
        assert_eq!(
            compare(&mbit(&[911; 6]), &mbit(&[940; 6])).unwrap().verdict,
            Verdict::Regression
        );
        assert_eq!(
            compare(&mbit(&[850, 851, 850, 851, 850, 945]), &mbit(&[940; 6]))
                .unwrap()
                .verdict,
            Verdict::Same
        );
    }

    #[test]
    fn repeats_that_scatter_hide_a_difference_as_large_as_their_scatter() {
        // Median 900, median absolute deviation 50: 150 of 1000 are noise.
        let change = compare(&mbit(&[800, 850, 900, 950, 999]), &mbit(&[1000; 5])).unwrap();
        assert_eq!(
            (change.noise_percent, change.verdict),
            (15.0, Verdict::Same)
        );
    }

    #[test]
    fn nothing_is_compared_with_nothing() {
        assert_eq!(compare(&[], &mbit(&[1])), None);
        assert_eq!(compare(&mbit(&[1]), &[]), None);
        assert_eq!(compare(&mbit(&[1]), &mbit(&[0])), None);
    }

    /// Simulates repeats of a rate with normal noise of 1 %, as many as the default rule requires.
    fn repeats(rng: &mut Rng, mbit: f64) -> Vec<BitRate> {
        let rule = RepeatRule::default();
        let mut found = Vec::new();
        while !rule.is_met(&found) {
            // The sum of 12 uniform numbers has a deviation of 1.
            let normal = (0..12)
                .map(|_| rng.below(1 << 32) as f64 / (1_u64 << 32) as f64)
                .sum::<f64>()
                - 6.0;
            found.push(BitRate((mbit * 1e6 * (1.0 + 0.01 * normal)) as u64));
        }
        found
    }

    fn verdicts(now_mbit: f64, verdict: Verdict) -> usize {
        let mut rng = Rng::new(20_261_122);
        let compared = (0..1000).map(|_| {
            let earlier = repeats(&mut rng, 1880.0);
            compare(&repeats(&mut rng, now_mbit), &earlier).unwrap()
        });
        compared.filter(|change| change.verdict == verdict).count()
    }

    #[test]
    fn noise_of_one_percent_is_no_regression_in_1000_of_1000_comparisons() {
        assert_eq!(verdicts(1880.0, Verdict::Same), 1000);
    }

    #[test]
    fn a_tenth_less_is_a_regression_in_1000_of_1000_comparisons() {
        assert_eq!(verdicts(1880.0 * 0.9, Verdict::Regression), 1000);
    }
}
