//! Errors of `bench` and of its stored reports.

use std::{io, path::PathBuf};

use crate::failure::{CommandError, exit::Exit};

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
