//! Statistics of small samples: repeats of a rate, RTTs, points of a sweep.
//!
//! All functions ignore values that are not finite, and never panic. They return `None` for an
//! empty sample.

use nicstripe_proto::BitRate;

/// Returns the arithmetic mean.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    let values = sorted(values);
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the population standard deviation (divided by n, not n − 1), like `mdev` of ping.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    let values = sorted(values);
    let mean = mean(&values)?;
    Some(
        (values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / values.len() as f64)
            .sqrt(),
    )
}

/// Returns the median of the finite values; `None` without one.
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 50.0)
}

/// Returns a percentile, linearly interpolated between neighbors. `percent` is clamped to 0 to 100.
pub(crate) fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let values = sorted(values);
    let last = values
        .len()
        .checked_sub(1)
        .filter(|_| percent.is_finite())?;
    let position = (percent / 100.0).clamp(0.0, 1.0) * last as f64;
    let below = (position.floor() as usize).min(last);
    let above = (below + 1).min(last);
    Some(values[below] + (values[above] - values[below]) * (position - below as f64))
}

/// Returns the median absolute deviation (MAD), not scaled: for a normal distribution it is 0.67 of
/// the standard deviation.
pub(crate) fn median_absolute_deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let distances: Vec<f64> = sorted(values)
        .iter()
        .map(|value| (value - middle).abs())
        .collect();
    median(&distances)
}

/// Returns the mean of the largest tenth of the values, at least of one value. Reported as the
/// maximum of a sweep over window and streams.
pub(crate) fn top_decile(values: &[f64]) -> Option<f64> {
    let values = sorted(values);
    mean(&values[values.len() - values.len().div_ceil(10)..])
}

/// Returns Jain's fairness index `(Σx)² / (n × Σx²)`, from 1/n to 1; `None` if all values are 0.
///
/// Jain, Chiu and Hawe, "A quantitative measure of fairness and discrimination for resource
/// allocation in shared computer systems", 1984.
pub(crate) fn jain(values: &[f64]) -> Option<f64> {
    let values = sorted(values);
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

/// Returns a confidence interval of the median of at least 95 %, for any distribution; `None` for
/// fewer than 6 values.
///
/// By order statistics, the k-th smallest and k-th greatest of n values enclose the median with
/// probability 1 − 2 × P(fewer than k of n tosses are heads). For 6 values these are the minimum
/// and the maximum, with 96.9 %: the smallest number with such an interval.
pub(crate) fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let values = sorted(values);
    let rank = interval_rank(values.len())?;
    Some((*values.get(rank - 1)?, *values.get(values.len() - rank)?))
}

/// Returns the largest k for which the k-th smallest and greatest of `n` values are an interval
/// with [`CONFIDENCE`]; `None` if there is none.
fn interval_rank(n: usize) -> Option<usize> {
    if n > MOST_EXACT {
        // Normal approximation: 0.98 × √n from the middle, rounded outwards.
        return Some(n / 2 - (n as f64).sqrt() as usize);
    }
    let mut term = 0.5_f64.powi(n as i32);
    let (mut below, mut rank) = (term, 0);
    while 1.0 - 2.0 * below >= CONFIDENCE && rank < n / 2 {
        rank += 1;
        term *= (n - rank + 1) as f64 / rank as f64;
        below += term;
    }
    (rank > 0).then_some(rank)
}

/// Returns true if the rates of at least two repeats agree.
///
/// They agree if maximum and minimum differ by at most 2 % of the median, or if the 95 % confidence
/// interval of the median (of 6 repeats and more) lies within ± 2.5 % of it, as netperf requires.
pub(crate) fn agree(rates: &[BitRate]) -> bool {
    let values = as_values(rates);
    let Some(middle) = median(&values).filter(|middle| *middle > 0.0 && values.len() > 1) else {
        return false;
    };
    let extent = values.iter().copied().fold(0.0, f64::max)
        - values.iter().copied().fold(f64::INFINITY, f64::min);
    let is_within = |(low, high): (f64, f64)| {
        middle - low <= HALF_INTERVAL * middle && high - middle <= HALF_INTERVAL * middle
    };
    extent <= MOST_EXTENT * middle || median_interval(&values).is_some_and(is_within)
}

/// Returns the rates in bits per second as floating-point numbers.
pub(crate) fn as_values(rates: &[BitRate]) -> Vec<f64> {
    rates.iter().map(|rate| rate.0 as f64).collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Maximum difference of maximum and minimum in [`agree`], as a share of the median.
const MOST_EXTENT: f64 = 0.02;
/// Maximum distance of the confidence limits from the median in [`agree`], as a share of the
/// median, like netperf's `-I 95,5` for the mean.
const HALF_INTERVAL: f64 = 0.025;

const CONFIDENCE: f64 = 0.95;

/// Maximum number of values for the exact binomial computation: 2⁻ⁿ must not underflow.
const MOST_EXACT: usize = 1000;

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::report::{RoundTrips, Spread};

    fn near(found: Option<f64>, expected: f64) {
        assert!(
            found.is_some_and(|found| (found - expected).abs() < 0.005),
            "{found:?} is not {expected}"
        );
    }

    #[test]
    fn the_middle_of_an_even_number_is_the_mean_of_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn percentiles_lie_between_neighbours() {
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        for percent in [0.0, 12.5, 50.0, 99.0, 100.0] {
            assert_eq!(percentile(&hundred, percent), Some(percent));
        }
        assert_eq!(percentile(&hundred, 250.0), Some(100.0));
        assert_eq!(percentile(&hundred, f64::NAN), None);
    }

    #[test]
    fn deviations_are_those_of_the_textbook() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        near(deviation(&values), 2.0);
        near(mean(&values), 5.0);
        near(
            median_absolute_deviation(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]),
            1.0,
        );
    }

    #[test]
    fn the_best_tenth_of_ten_is_one_and_of_eleven_two() {
        let values: Vec<f64> = (1..=11).map(f64::from).collect();
        assert_eq!(top_decile(&values[..10]), Some(10.0));
        assert_eq!(top_decile(&values), Some(10.5));
        assert_eq!(top_decile(&[]), None);
    }

    #[test]
    fn fairness_is_one_for_equals_and_one_nth_for_a_taker_of_all() {
        near(jain(&[5.0; 8]), 1.0);
        near(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn six_repeats_are_the_fewest_with_an_honest_interval() {
        assert_eq!((1..=5).map(interval_rank).collect::<Vec<_>>(), [None; 5]);
        assert_eq!(
            (6..=12).map(interval_rank).collect::<Vec<_>>(),
            [1, 1, 1, 2, 2, 2, 3].map(Some)
        );
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(median_interval(&values), Some((1.0, 6.0)));
        assert_eq!(median_interval(&values[..5]), None);
    }

    #[test]
    fn a_spread_tells_the_middle_the_ends_and_the_number() {
        let rates = [940, 939, 941, 940, 940, 941].map(BitRate::from_mbit);
        let expected = Spread {
            median_bps: 940_000_000,
            min_bps: 939_000_000,
            max_bps: 941_000_000,
            n: 6,
            stable: true,
        };
        assert_eq!(Spread::of(&rates), Some(expected));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn what_is_not_a_number_is_left_out() {
        let values = [f64::NAN, 1.0, f64::INFINITY, 3.0];
        assert_eq!(median(&values), Some(2.0));
        assert_eq!(
            RoundTrips::of(&values).map(|found| (found.count, found.max_us)),
            Some((2, 3.0))
        );
        assert_eq!(RoundTrips::of(&[f64::NAN]), None);
    }

    proptest! {
        #[test]
        fn every_figure_lies_between_the_least_and_the_greatest(values in vec(-1e12..1e12f64, 1..40)) {
            let found = RoundTrips::of(&values).unwrap();
            for figure in [found.avg_us, found.p50_us, found.p99_us, top_decile(&values).unwrap()] {
                prop_assert!(figure >= found.min_us - 1e-3 && figure <= found.max_us + 1e-3, "{figure} of {found:?}");
            }
            prop_assert!(found.std_us <= (found.max_us - found.min_us) / 2.0 + 1e-3);
            prop_assert!(found.p50_us <= found.p99_us);
        }

        #[test]
        fn the_interval_of_the_median_holds_the_median(values in vec(0.0..1e12f64, 6..40)) {
            let (low, high) = median_interval(&values).unwrap();
            let middle = median(&values).unwrap();
            prop_assert!(low <= middle && middle <= high);
        }

        #[test]
        fn fairness_does_not_depend_on_the_unit(values in vec(1.0..1e9f64, 1..16), unit in 0.001..1000.0f64) {
            let scaled: Vec<f64> = values.iter().map(|value| value * unit).collect();
            let (a, b) = (jain(&values).unwrap(), jain(&scaled).unwrap());
            prop_assert!((a - b).abs() < 1e-9 && a <= 1.0 + 1e-12 && a >= 1.0 / values.len() as f64 - 1e-12);
        }
    }
}
