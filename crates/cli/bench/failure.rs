//! Errors of a bench and of its reports.

use std::{io, path::PathBuf};

/// Error of a bench, or of processing a report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("cannot read {path:?}")]
    Read { path: PathBuf, source: io::Error },
    /// A file is not a report.
    #[error("{path:?} is no report of a bench of this version")]
    NoReport { path: PathBuf, source: serde_json::Error },
    /// No single report has this name.
    #[error("{text:?} is neither a file nor the beginning of the id of one report: `nicstripe bench list` shows {count} that begin so")]
    Unknown {
        text: String,
        /// Number of reports whose ID begins with the text.
        count: usize,
    },
    #[error("slower by {percent:.1} % than {id}, and no more than {noise:.1} % may be chance")]
    Regression {
        /// Prefix of the baseline's ID.
        id: String,
        percent: f64,
        noise: f64,
    },
    /// The baseline cannot be compared with this report.
    #[error("cannot be compared with {id}: {why}")]
    NotComparable {
        /// Prefix of the baseline's ID.
        id: String,
        why: String,
    },
    #[error("{reached:.1} % of theory is below the floor of {floor:.1} %")]
    Floor {
        /// Reached share of the theoretical rate, in per cent.
        reached: f64,
        /// Requested share of the theoretical rate, in per cent.
        floor: f64,
    },
    #[error("whether the floor is reached cannot be told: {why}")]
    NoFloor { why: &'static str },
}
