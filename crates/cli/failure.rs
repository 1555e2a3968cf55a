//! Failures of commands.

use std::{io, net::SocketAddr, path::PathBuf};

use nicstripe::{
    routes::{MtuError, RouteError},
    trust::{HomeError, IdentityError, LineError, PeersError},
};

use crate::{
    bench::BenchError,
    cp::{ListError, LocationError, PlaceError, PlanError, Shortfall},
    demo::DemoError,
    serve::ConfigError,
    signals::Stop,
};

/// Failure of a command. [`Exit`](crate::exit::Exit) gives each its code,
/// [`hint`](crate::hint::hint) the advice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A source or target of `cp` is invalid.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// Arguments of `cp` contradict each other.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// `NICSTRIPE_LOG`, or `log.filter` of the configuration file, is not a filter.
    #[error("{key} is {text:?}: expected a level, or targets with levels such as nicstripe=debug")]
    LogFilter {
        /// Variable or key that holds it.
        key: &'static str,
        text: String,
        source: tracing_subscriber::filter::ParseError,
    },
    /// The configuration file of `serve`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Settings of `serve` contradict each other.
    #[error("{key}: {why}")]
    Setting {
        key: &'static str,
        /// Problem, and the allowed values.
        why: String,
    },
    /// The metrics endpoint cannot listen.
    #[error("cannot listen on {address} for metrics")]
    Metrics {
        address: SocketAddr,
        source: io::Error,
    },
    /// A typed address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen { address: String, source: io::Error },
    /// The line given to `trust add` is invalid.
    #[error(transparent)]
    PeerLine(#[from] LineError),
    /// The line given to `trust add` is that of this machine.
    #[error("{fingerprint} is this machine's own key: expected the other machine's key")]
    OwnKey { fingerprint: String },
    /// The daemon's root contains the identity or the peers file, which grant rights.
    #[error("cannot serve {path:?}: it contains this machine's key or peers file: {place:?}")]
    RootOfKeys {
        path: PathBuf,
        /// The file or directory inside the root.
        place: PathBuf,
    },
    /// The source of a copy cannot be opened.
    #[error("cannot open {path:?}")]
    Source { path: PathBuf, source: io::Error },
    /// The local source of a copy is a directory.
    #[error("{path:?} is a directory: copying it needs -r")]
    Directory { path: PathBuf },
    /// The source of a copy is a FIFO, which has no size and may never have a writer.
    #[error("{path:?} is a FIFO: expected a file")]
    Fifo { path: PathBuf },
    /// The target of a single file is not usable.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The local target of a copy ends with a slash and is not a directory.
    #[error("{path:?} is not a directory")]
    NotADirectory { path: PathBuf },
    /// A list file named by an option of `cp` is invalid.
    #[error(transparent)]
    List(#[from] ListError),
    /// A part of a tree failed; the rest arrived.
    #[error(transparent)]
    Shortfall(Box<Shortfall>),
    /// The daemon's root is missing or not a directory.
    #[error("cannot serve {path:?}")]
    Root { path: PathBuf, source: io::Error },
    /// An interface named in an address does not exist.
    #[error("no interface {name:?}")]
    NoInterface { name: String, source: io::Error },
    /// An interface to exclude does not exist.
    #[error("cannot exclude interface {name:?}, which does not exist: expected one of {here}")]
    Excluded {
        name: String,
        /// Existing interfaces.
        here: String,
    },
    /// Error of the library.
    #[error(transparent)]
    Library(Box<nicstripe::Error>),
    /// The configuration directory cannot be determined.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The identity of this machine cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The list of trusted peers cannot be used.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// Host routes cannot be read or changed.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// `bench` failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// MTUs cannot be restored.
    #[error(transparent)]
    Mtus(#[from] MtuError),
    /// `demo` failed.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// A forwarded connection was reset, or its session ended.
    #[error("connection to {target} lost")]
    Tunnel { target: String, source: io::Error },
    /// A signal ended the command.
    #[error("interrupted")]
    Interrupted {
        stop: Stop,
        /// True if the same command resumes from the received data.
        resumable: bool,
    },
    /// A signal ended the daemon by an orderly shutdown.
    #[error("ended")]
    Stopped(Stop),
    /// There is no manual page of this name.
    #[error("no command {name:?}: expected one listed by `nicstripe --help`")]
    NoPage { name: String },
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// A file or folder cannot be written.
    #[error("cannot write {path:?}")]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot start threads")]
    Runtime(#[source] io::Error),
    #[error("cannot install signal handlers")]
    Signals(#[source] io::Error),
}

impl From<nicstripe::Error> for Failure {
    fn from(error: nicstripe::Error) -> Self {
        Self::Library(Box::new(error))
    }
}

impl Failure {
    /// Returns the failure and its source chain, joined by `: `.
    pub(crate) fn one_line(&self) -> String {
        nicstripe::chain(self)
    }

    /// Returns true if running the same command again resumes from the received data.
    pub(crate) fn is_resumable(&self) -> bool {
        match self {
            Self::Library(error) => error.is_resumable(),
            Self::Interrupted { resumable, .. } => *resumable,
            // Complete files are not transferred again.
            Self::Shortfall(_) => true,
            _ => false,
        }
    }

    /// Returns the lines below the error line.
    pub(crate) fn details(&self) -> &[String] {
        match self {
            Self::Shortfall(shortfall) => shortfall.lines(),
            _ => &[],
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use nicstripe::{FailCode, FileError};

    use super::*;

    /// A failure at a local file.
    pub(crate) fn file_error(code: FailCode, kind: io::ErrorKind) -> nicstripe::Error {
        FileError {
            operation: "write",
            name: "a.bin".into(),
            code,
            resumable: code == FailCode::NoSpace,
            source: kind.into(),
        }
        .into()
    }

    #[test]
    fn the_causes_follow_in_one_line() {
        let failure = Failure::from(file_error(FailCode::NoSpace, io::ErrorKind::StorageFull));
        assert_eq!(
            failure.one_line(),
            "cannot write \"a.bin\": no storage space"
        );
        assert!(failure.is_resumable());
    }
}
