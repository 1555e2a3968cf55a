//! Measurement window of a run, in which all paths are loaded and counted.
//!
//! The receiver periodically reads the counters of all paths at one instant. A rate covers the
//! bytes between two such instants, equal for all paths, so that the paths' rates sum up to the
//! total. Averages over different times are never added. Lengths are measured, not nominal.

use std::time::Duration;

use nicstripe_proto::BitRate;

use crate::statistics;

/// Received bytes of all paths at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Time on the receiver's clock, relative to an arbitrary instant that is fixed for the run.
    pub(crate) at: Duration,
    /// Payload bytes received so far on each path. All snapshots of a run have the same paths in
    /// the same order.
    pub(crate) bytes: Vec<u64>,
}

/// Bytes received between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Time of the first snapshot.
    pub(crate) began: Duration,
    /// Time between the two snapshots.
    pub(crate) length: Duration,
    /// Payload bytes received on each path between the two snapshots.
    pub(crate) bytes: Vec<u64>,
}

impl Span {
    /// Creates the span between two snapshots. A counter that decreased counts as 0.
    pub(crate) fn between(from: &Snapshot, to: &Snapshot) -> Span {
        let bytes = from
            .bytes
            .iter()
            .zip(&to.bytes)
            .map(|(from, to)| to.saturating_sub(*from))
            .collect();
        Span {
            began: from.at,
            length: to.at.saturating_sub(from.at),
            bytes,
        }
    }

    /// Returns the begin in microseconds since the load began.
    pub(crate) fn begin_us(&self) -> u64 {
        self.began.as_micros() as u64
    }

    /// Returns the end in microseconds since the load began.
    pub(crate) fn end_us(&self) -> u64 {
        self.begin_us() + self.micros()
    }

    /// Returns the length in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        self.length.as_micros() as u64
    }

    /// Returns the payload bytes received on all paths.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.bytes
            .iter()
            .fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Returns the total rate of all paths.
    pub(crate) fn total(&self) -> BitRate {
        BitRate::from_bytes_over(self.total_bytes(), self.length)
    }
}

/// Returns the spans between consecutive snapshots. Ignores a snapshot that is not later than the
/// previous one.
pub(crate) fn intervals(snapshots: &[Snapshot]) -> Vec<Span> {
    let mut spans = Vec::new();
    let Some(mut last) = snapshots.first() else {
        return spans;
    };
    for snapshot in snapshots
        .iter()
        .filter(|snapshot| snapshot.bytes.len() == last.bytes.len())
    {
        if snapshot.at > last.at {
            spans.push(Span::between(last, snapshot));
            last = snapshot;
        }
    }
    spans
}

/// Returns the window in which all paths were loaded: from the first snapshot with all paths past
/// warm-up, to the last one.
///
/// The first snapshot must precede any load. The warm-up of a path begins at its last snapshot
/// without data. A path without data after twice the warm-up does not delay the window, and counts
/// as 0. Returns `None` while the window is empty.
pub(crate) fn common(snapshots: &[Snapshot], warm_up: Duration) -> Option<Span> {
    let from = snapshots.get(warm_from(snapshots, warm_up)?)?;
    let to = snapshots
        .iter()
        .rfind(|snapshot| snapshot.bytes.len() == from.bytes.len())?;
    (to.at > from.at).then(|| Span::between(from, to))
}

/// Returns the index of the first snapshot at which all paths are past warm-up; `None` if none is.
fn warm_from(snapshots: &[Snapshot], warm_up: Duration) -> Option<usize> {
    let first = snapshots.first()?;
    let waits_until = first.at.saturating_add(warm_up.saturating_mul(2));
    let warm_at = |path: usize| {
        let silent = |snapshot: &&Snapshot| snapshot.bytes.get(path) == first.bytes.get(path);
        let began = snapshots
            .iter()
            .take_while(silent)
            .last()
            .map_or(first.at, |snapshot| snapshot.at);
        began.saturating_add(warm_up).min(waits_until)
    };
    let all_warm = (0..first.bytes.len()).map(warm_at).max()?;
    snapshots
        .iter()
        .position(|snapshot| snapshot.at >= all_warm)
}

/// State of a load, see [`progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The load must continue.
    Going,
    /// The rate has settled; the load may end.
    Settled,
    /// The load has reached its maximum length, but its rate has not settled.
    Unsettled,
}

/// Returns the state of a load from its snapshots so far. It may end once the last samples have a
/// small slope and deviation, as in fio's `steadystate`, or when its window has the `longest`
/// length.
///
/// Only the total rate must settle: links with a shared resource may shift rate between them.
pub(crate) fn progress(snapshots: &[Snapshot], warm_up: Duration, longest: Duration) -> Progress {
    let Some(window) = common(snapshots, warm_up) else {
        return Progress::Going;
    };
    if window.length < SETTLING.min(longest) {
        return Progress::Going;
    }
    match is_settled(&rates(snapshots, window.began)) {
        true => Progress::Settled,
        false if window.length >= longest => Progress::Unsettled,
        false => Progress::Going,
    }
}

/// Returns the total rate of each sample from the time `began`, in bits per second.
fn rates(snapshots: &[Snapshot], began: Duration) -> Vec<f64> {
    let mut ends: Vec<Snapshot> = Vec::new();
    for snapshot in snapshots.iter().filter(|snapshot| snapshot.at >= began) {
        if ends
            .last()
            .is_none_or(|last| snapshot.at >= last.at.saturating_add(LEAST_SAMPLE))
        {
            ends.push(snapshot.clone());
        }
    }
    intervals(&ends)
        .iter()
        .map(|span| span.total().0 as f64)
        .collect()
}

/// Returns true if slope and deviation of the last samples are within the limits. A rate of zero
/// does not count as settled, since data may still arrive.
fn is_settled(rates: &[f64]) -> bool {
    let Some(first) = rates.len().checked_sub(STEADY_SAMPLES) else {
        return false;
    };
    let last = &rates[first..];
    let mean = match statistics::mean(last) {
        Some(mean) if mean > 0.0 => mean,
        _ => return false,
    };
    let rise = slope(last) * (last.len() - 1) as f64;
    let deviation = last
        .iter()
        .map(|rate| (rate - mean).abs())
        .fold(0.0, f64::max);
    rise.abs() < MOST_RISE * mean && deviation < MOST_DEVIATION * mean
}

/// Returns the slope per step of the least-squares line through at least two values.
fn slope(values: &[f64]) -> f64 {
    let middle = (values.len() - 1) as f64 / 2.0;
    let steps = || (0..values.len()).map(|step| step as f64 - middle);
    let rise: f64 = steps().zip(values).map(|(step, value)| step * value).sum();
    rise / steps().map(|step| step * step).sum::<f64>()
}

/// Minimum window of a load that may end once its rate has settled, see
/// [`BenchPlan::settle`](crate::BenchPlan::settle).
pub(crate) const SETTLING: Duration = Duration::from_secs(3);
/// Minimum length of a sample: 0.5 s, less a tenth for jitter. Snapshots may be more frequent.
const LEAST_SAMPLE: Duration = Duration::from_millis(450);
/// Number of the last samples that must be steady.
const STEADY_SAMPLES: usize = 5;
/// Maximum rise or fall of the fitted line over all samples, relative to their mean.
const MOST_RISE: f64 = 0.01;
/// Maximum deviation of a sample from the mean, relative to it.
const MOST_DEVIATION: f64 = 0.02;

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SEC: Duration = Duration::from_secs(1);

    /// Creates snapshots every 100 ms, of paths that receive these bytes in each interval.
    fn snapshots(paths: &[Vec<u64>]) -> Vec<Snapshot> {
        let mut bytes = vec![0; paths.len()];
        let mut found = vec![Snapshot {
            at: Duration::ZERO,
            bytes: bytes.clone(),
        }];
        for index in 0..paths[0].len() {
            bytes
                .iter_mut()
                .zip(paths)
                .for_each(|(sum, path)| *sum += path[index]);
            found.push(Snapshot {
                at: (index as u32 + 1) * 100 * MS,
                bytes: bytes.clone(),
            });
        }
        found
    }

    /// Bytes in 100 ms at one gigabit per second.
    const FULL: u64 = 12_500_000;

    #[test]
    fn the_window_begins_when_the_last_path_is_warm() {
        // The second path begins 300 ms after the first.
        let late: Vec<u64> = (0..40)
            .map(|index| if index < 3 { 0 } else { FULL })
            .collect();
        let window = common(&snapshots(&[vec![FULL; 40], late]), SEC).unwrap();
        assert_eq!(
            (window.began, window.began + window.length),
            (1300 * MS, 4000 * MS)
        );
        assert_eq!(window.bytes, [27 * FULL, 27 * FULL]);
        assert_eq!(window.total(), BitRate::from_gbit(2));
    }

    #[test]
    fn a_path_that_brings_nothing_is_waited_for_no_longer_than_twice_the_warm_up() {
        let window = common(&snapshots(&[vec![FULL; 40], vec![0; 40]]), SEC).unwrap();
        assert_eq!((window.began, window.length), (2 * SEC, 2 * SEC));
        assert_eq!(window.bytes, [20 * FULL, 0]);
    }

    #[test]
    fn a_run_that_ends_within_its_warm_up_has_no_window() {
        let run = snapshots(&[vec![FULL; 9]]);
        assert_eq!(common(&run, SEC), None);
        assert_eq!(common(&run[..6], 500 * MS), None);
        assert_eq!(common(&[], SEC), None);
        assert_eq!(
            common(
                &[
                    Snapshot {
                        at: SEC,
                        bytes: Vec::new()
                    },
                    Snapshot {
                        at: 5 * SEC,
                        bytes: Vec::new()
                    }
                ],
                SEC
            ),
            None
        );
    }

    #[test]
    fn intervals_have_the_length_that_they_had() {
        let at = |at, bytes| Snapshot {
            at,
            bytes: vec![bytes],
        };
        let run = [
            at(Duration::ZERO, 0),
            at(137 * MS, 1000),
            at(137 * MS, 1500),
            at(300 * MS, 2000),
        ];
        let found = intervals(&run);
        assert_eq!(
            found
                .iter()
                .map(|span| (span.length, span.bytes[0]))
                .collect::<Vec<_>>(),
            [(137 * MS, 1000), (163 * MS, 1000)]
        );
    }

    #[test]
    fn a_steady_load_settles_after_three_seconds_and_not_before() {
        assert_eq!(
            progress(&snapshots(&[vec![FULL; 39]]), SEC, 10 * SEC),
            Progress::Going
        );
        assert_eq!(
            progress(&snapshots(&[vec![FULL; 40]]), SEC, 10 * SEC),
            Progress::Settled
        );
    }

    #[test]
    fn snapshots_that_come_a_little_early_or_late_are_samples_all_the_same() {
        // Every half second, alternately on time and 2 ms late: every other sample is shorter than
        // half a second.
        let at = |index: u32| index * 500 * MS + index % 2 * 2 * MS;
        let snapshot = |index: u32| Snapshot {
            at: at(index),
            bytes: vec![at(index).as_micros() as u64 * 125],
        };
        let run: Vec<Snapshot> = (0..9).map(snapshot).collect();
        assert_eq!(progress(&run, SEC, 10 * SEC), Progress::Settled);
    }

    #[test]
    fn a_load_that_rises_or_swings_goes_on_until_the_longest_time() {
        let rises: Vec<u64> = (0..110).map(|index| FULL + index * FULL / 1000).collect();
        let swings: Vec<u64> = (0..110)
            .map(|index| {
                if index / 10 % 2 == 0 {
                    FULL
                } else {
                    FULL * 95 / 100
                }
            })
            .collect();
        for load in [rises, swings] {
            let run = snapshots(&[load]);
            assert_eq!(progress(&run[..105], SEC, 10 * SEC), Progress::Going);
            assert_eq!(progress(&run, SEC, 10 * SEC), Progress::Unsettled);
        }
    }

    #[test]
    fn links_that_take_from_each_other_settle_as_their_sum_does() {
        let one: Vec<u64> = (0..40)
            .map(|index| if index / 10 % 2 == 0 { FULL } else { FULL / 2 })
            .collect();
        let other: Vec<u64> = one.iter().map(|bytes| FULL * 3 / 2 - bytes).collect();
        assert_eq!(
            progress(&snapshots(&[one, other]), SEC, 10 * SEC),
            Progress::Settled
        );
    }

    #[test]
    fn a_load_that_brings_nothing_is_never_settled() {
        assert_eq!(
            progress(&snapshots(&[vec![0; 50]]), SEC, 10 * SEC),
            Progress::Going
        );
        assert_eq!(
            progress(&snapshots(&[vec![0; 120]]), SEC, 10 * SEC),
            Progress::Unsettled
        );
    }

    #[test]
    fn a_longest_time_below_the_least_ends_the_load() {
        assert_eq!(
            progress(&snapshots(&[vec![FULL; 20]]), SEC, SEC),
            Progress::Unsettled
        );
    }

    proptest! {
        #[test]
        fn intervals_within_the_window_sum_up_to_it(loads in vec(vec(0..FULL, 30), 1..5), warm in 0..1500u32) {
            let run = snapshots(&loads);
            if let Some(window) = common(&run, warm * MS) {
                prop_assert!(window.began >= warm * MS);
                let mut sum = vec![0; loads.len()];
                for span in intervals(&run) {
                    if span.began >= window.began && span.began + span.length <= window.began + window.length {
                        sum.iter_mut().zip(&span.bytes).for_each(|(sum, bytes)| *sum += bytes);
                    }
                }
                prop_assert_eq!(&sum, &window.bytes);
                prop_assert_eq!(sum.iter().sum::<u64>(), window.total_bytes());
            }
        }
    }
}
