//! Errors of `serve`.

use std::{io, net::SocketAddr, path::PathBuf};

use nicstripe::trust::FileError;

use crate::{
    failure::{CommandError, exit::Exit},
    text::{invocation::Invocation, shown},
};

/// The configuration file or the directory to serve is invalid, or an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    /// The configuration file cannot be read, or other users can change it.
    #[error(transparent)]
    File(#[from] FileError),
    /// A key of the configuration file is unknown, or a value is invalid.
    #[error("{}, line {line}: {what}", shown(path))]
    Config {
        path: PathBuf,
        line: usize,
        /// Key and value, with the allowed values.
        what: String,
    },
    /// The Prometheus metrics endpoint cannot listen.
    #[error("cannot listen on {address} for metrics")]
    Metrics {
        address: SocketAddr,
        source: io::Error,
    },
    /// The directory to serve contains the private key, the peers file or the settings. A peer that
    /// may write there could grant itself rights.
    #[error(
        "cannot serve {path:?}: it contains this machine's key, peers file or settings: {file:?}"
    )]
    RootOfKeys {
        path: PathBuf,
        /// Private key, peers file or settings, or their directory, inside the served directory.
        file: PathBuf,
    },
    /// The directory to serve is missing, not readable, or not a directory.
    #[error("cannot serve {path:?}")]
    Root { path: PathBuf, source: io::Error },
    /// An IPv6 address has a zone (`%eth1`) that is not an interface of this machine.
    #[error("no interface {name:?}")]
    NoInterface { name: String, source: io::Error },
}

impl CommandError for ServeError {
    fn exit(&self) -> Exit {
        match self {
            Self::File(error) => Exit::of_config(error.io().is_some()),
            Self::Config { .. } | Self::RootOfKeys { .. } | Self::NoInterface { .. } => Exit::Usage,
            Self::Root { .. } => Exit::Files,
            Self::Metrics { .. } => Exit::Failed,
        }
    }

    fn hint(&self, invocation: &Invocation) -> Option<String> {
        let program = invocation.program();
        matches!(self, Self::RootOfKeys { .. })
            .then(|| format!("serve another directory: {program} serve DIR"))
    }
}
