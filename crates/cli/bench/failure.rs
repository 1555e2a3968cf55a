//! Errors of a bench and of its reports.

use std::{io, path::PathBuf};

/// Error of a bench, or of processing a report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("cannot read {path:?}")]
    Read { path: PathBuf, source: io::Error },
    /// A file is not a report.
    #[error("{path:?} is not a bench report of this version")]
    NoReport {
        path: PathBuf,
        source: serde_json::Error,
    },
    /// No single report has this name.
    #[error(
        "{text:?} is neither a file nor the prefix of one report id: {count} match in `nicstripe bench list`"
    )]
    Unknown {
        text: String,
        /// Number of reports whose ID begins with the text.
        count: usize,
    },
    #[error("{percent:.1} % slower than {id}, noise is {noise:.1} %")]
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
    #[error("cannot check the floor: {why}")]
    NoFloor { why: &'static str },
}
