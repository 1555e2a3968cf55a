//! Why a bench, or what is made of its report, failed.

use std::{io, path::PathBuf};

/// Why a bench, or what is made of its report, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A report cannot be read.
    #[error("cannot read {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is no report.
    #[error("{path:?} is no report of a bench of this version")]
    NoReport {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// Nothing has that name.
    #[error("{text:?} is neither a file nor the beginning of the id of one report: `nicstripe bench list` shows {count} that begin so")]
    Unknown {
        /// What was typed.
        text: String,
        /// How many reports begin so.
        count: usize,
    },
    /// Slower than the earlier report.
    #[error("slower by {percent:.1} % than {id}, and no more than {noise:.1} % may be chance")]
    Regression {
        /// The beginning of the earlier report's id.
        id: String,
        /// By how much.
        percent: f64,
        /// What may be chance.
        noise: f64,
    },
    /// The earlier report says nothing about this one.
    #[error("cannot be compared with {id}: {why}")]
    NotComparable {
        /// The beginning of its id.
        id: String,
        /// Why.
        why: String,
    },
    /// Below what was asked for.
    #[error("{reached:.1} % of theory is below the floor of {floor:.1} %")]
    Floor {
        /// What was reached, in percent.
        reached: f64,
        /// What was asked for.
        floor: f64,
    },
    /// Whether it is below cannot be told.
    #[error("whether the floor is reached cannot be told: {why}")]
    NoFloor {
        /// Why.
        why: &'static str,
    },
}
