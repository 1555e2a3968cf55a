//! Errors of the demo.

use std::{io, path::PathBuf, process::ExitStatus};

use nicstripe::{
    Digest,
    trust::{IdentityError, PeersError},
};
use nicstripe_lab::LabError;

use crate::{
    failure::{CommandError, exit::Exit},
    text::quantity::Size,
};

/// The demo could not build its network, or one of its copies failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    /// The network namespaces or virtual cables cannot be created.
    #[error("cannot create the demo's hosts and cables")]
    Lab(#[from] LabError),
    /// No file system has enough free space for the files. Sizes are in bytes.
    #[error("{} of free space are needed, {} has {}: expected a smaller --size", Size(*.needed), path.display(), Size(*.free))]
    Room {
        needed: u64,
        /// Directory that was to hold the files.
        path: PathBuf,
        free: u64,
    },
    /// A part of the demo cannot be set up: its folders, its port, or the file to copy.
    #[error("{what}")]
    Setup {
        what: &'static str,
        source: io::Error,
    },
    /// The file to copy or the received file cannot be read.
    #[error("cannot read {path:?}")]
    File { path: PathBuf, source: io::Error },
    /// No program or library of this machine is readable, so that no sample can be built.
    #[error("no readable file to build the sample from: expected --file")]
    NothingToRead,
    /// The key of a simulated host cannot be created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The peers file of a simulated host cannot be written.
    #[error(transparent)]
    Peers(#[from] PeersError),
    #[error("cannot start nicstripe {command}")]
    Start {
        command: &'static str,
        source: io::Error,
    },
    /// The daemon ended before it listened, or did not listen in time.
    #[error("the daemon does not listen: {said}")]
    Daemon {
        /// Last line that the daemon printed.
        said: String,
    },
    /// `nicstripe cp` failed, and has printed its error.
    #[error("the copy over {cables} cables failed: {status}")]
    Copy { cables: usize, status: ExitStatus },
    #[error("the copy's report cannot be read")]
    Report(#[source] serde_json::Error),
    /// The received file differs from the sent one.
    #[error("the received file differs from the sent one: BLAKE3 {sent} sent, {received} received")]
    Digest {
        /// Digest of the sent file.
        sent: Digest,
        /// Digest of the received file.
        received: Digest,
    },
}

impl CommandError for DemoError {
    fn exit(&self) -> Exit {
        match self {
            Self::Digest { .. } => Exit::Digest,
            _ => Exit::Failed,
        }
    }
}
