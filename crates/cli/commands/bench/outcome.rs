//! Checks of a report against a baseline and a minimum rate, which determine the exit code.

use std::{io, path::PathBuf};

use nicstripe::bench::{BenchReport, Comparison, Phase, Verdict};

use super::reading::{Reading, obstacle, short_id};
use crate::failure::{CommandError, exit::Exit};

/// Returns an error if the report is slower than its baseline, or cannot be compared with it.
pub(crate) fn check_comparison(comparison: &Comparison) -> Result<(), BenchError> {
    let id = short_id(&comparison.id);
    match comparison.verdict {
        Verdict::Same | Verdict::Better => Ok(()),
        Verdict::Regression => Err(BenchError::Regression {
            id,
            percent: -comparison.change_pct,
            noise: comparison.noise_pct,
        }),
        Verdict::NotComparable => {
            let why = obstacle(comparison).to_owned();
            Err(BenchError::NotComparable { id, why })
        }
    }
}

/// Returns an error if all links together reach less than `floor` of the theoretical rate, a share
/// from 0 to 1. Checks the median of each one-way load.
pub(crate) fn check_floor(report: &BenchReport, floor: f64) -> Result<(), BenchError> {
    let reading = Reading::of(report);
    let phases = reading.whole_phases().map(|(phase, _)| phase);
    let reached = phases
        .filter(|phase| *phase != Phase::Both)
        .map(|phase| reading.whole_efficiency(phase))
        .collect::<Option<Vec<f64>>>()
        .ok_or(BenchError::NoFloor {
            why: "a line rate is unknown, so no theoretical rate",
        })?;
    match reached.into_iter().min_by(f64::total_cmp) {
        None => Err(BenchError::NoFloor {
            why: "no load of all links in one direction",
        }),
        Some(least) if least < floor => Err(BenchError::Floor {
            reached: least * 100.0,
            floor: floor * 100.0,
        }),
        Some(_) => Ok(()),
    }
}

/// Error of a bench, or of reading, storing or comparing a report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("cannot read {path:?}")]
    Read { path: PathBuf, source: io::Error },
    /// The file is not a bench report, or has another schema version.
    #[error("{path:?} is not a bench report of this version")]
    NoReport {
        path: PathBuf,
        source: serde_json::Error,
    },
    /// The text is neither a file nor the prefix of exactly one report ID.
    #[error(
        "{text:?} is neither a file nor the prefix of one report id: {count} match in `nicstripe bench list`"
    )]
    Unknown {
        text: String,
        /// Number of stored reports whose ID begins with the text.
        count: usize,
    },
    #[error("{percent:.1} % slower than {id}, noise is {noise:.1} %")]
    Regression {
        /// Abbreviated ID of the baseline report.
        id: String,
        percent: f64,
        noise: f64,
    },
    /// The baseline report cannot be compared with the new one.
    #[error("cannot be compared with {id}: {why}")]
    NotComparable {
        /// Abbreviated ID of the baseline report.
        id: String,
        why: String,
    },
    #[error("{reached:.1} % of theory is below the floor of {floor:.1} %")]
    Floor {
        /// Measured share of the theoretical rate, in per cent.
        reached: f64,
        /// Minimum share of the theoretical rate (`--assert-floor`), in per cent.
        floor: f64,
    },
    #[error("cannot check the floor: {why}")]
    NoFloor { why: &'static str },
}

impl CommandError for BenchError {
    fn exit(&self) -> Exit {
        match self {
            Self::Regression { .. } | Self::Floor { .. } => Exit::Slower,
            Self::Read { .. } | Self::NoReport { .. } | Self::Unknown { .. } => Exit::Files,
            Self::NotComparable { .. } | Self::NoFloor { .. } => Exit::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    #[test]
    fn a_floor_is_of_theory_and_counts_both_ways() {
        assert!(check_floor(&samples::good(), 0.97).is_ok());
        assert!(
            matches!(check_floor(&samples::shared(), 0.97), Err(BenchError::Floor { reached, .. }) if (60.0..62.0).contains(&reached))
        );
        let mut slow_back = samples::good();
        slow_back.summary.reverse.as_mut().unwrap().median_bps /= 2;
        assert!(matches!(
            check_floor(&slow_back, 0.97),
            Err(BenchError::Floor { .. })
        ));
        assert!(matches!(
            check_floor(&samples::jumbo(), 0.95),
            Err(BenchError::Floor { .. })
        ));
    }

    #[test]
    fn a_floor_without_theory_is_not_reached_in_silence() {
        assert!(matches!(
            check_floor(&samples::partial(), 0.5),
            Err(BenchError::NoFloor { .. })
        ));
        let mut unknown = samples::good();
        unknown.summary.theory_bps = None;
        assert!(matches!(
            check_floor(&unknown, 0.5),
            Err(BenchError::NoFloor { .. })
        ));
    }

    #[test]
    fn only_a_regression_and_what_cannot_be_compared_fail() {
        let comparison = |verdict| Comparison {
            verdict,
            ..samples::with_disk().baseline.unwrap()
        };
        assert!(check_comparison(&comparison(Verdict::Same)).is_ok());
        assert!(check_comparison(&comparison(Verdict::Better)).is_ok());
        let error = check_comparison(&comparison(Verdict::Regression)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "11.4 % slower than 0badcafe, noise is 3.0 %"
        );
        assert!(matches!(
            check_comparison(&comparison(Verdict::NotComparable)),
            Err(BenchError::NotComparable { .. })
        ));
    }
}
