//! What a client may be asked to do besides copying one file.

use std::{fmt, io, path::PathBuf};

use nicstripe_proto::Name;

/// A tree to copy.
#[derive(Debug, Clone)]
pub(super) enum TreeJob {
    Put { sources: Vec<PathBuf>, name: Option<Name>, as_name: bool },
    Get { sources: Vec<(Option<Name>, bool)>, target: PathBuf, as_name: bool },
}

/// Bytes of unknown length to copy.
pub(super) enum PipeJob {
    Put { reader: Box<dyn io::Read + Send>, name: Name },
    Get { name: Name, writer: Box<dyn io::Write + Send> },
}

impl fmt::Debug for PipeJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { name, .. } => f.debug_struct("Put").field("name", name).finish_non_exhaustive(),
            Self::Get { name, .. } => f.debug_struct("Get").field("name", name).finish_non_exhaustive(),
        }
    }
}
