//! Errors of all commands.

pub(crate) mod exit;
pub(crate) mod hint;
pub(crate) mod panics;

use std::{io, net::SocketAddr, path::PathBuf};

use nicstripe::{
    routes::{MtuError, RouteError},
    trust::{HomeError, IdentityError, LineError, PeersError},
};

use crate::{
    commands::{
        bench::BenchError,
        cp::{ListError, LocationError, PlaceError, PlanError, Shortfall},
        demo::DemoError,
        serve::ConfigError,
    },
    process::signals::Stop,
};

/// Error that ends a command. [`Exit`](crate::failure::exit::Exit) gives its exit code, and
/// [`hint`](crate::failure::hint::hint) its `hint:` line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A source or target of `cp` is invalid.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The arguments of `cp` contradict each other.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// `NICSTRIPE_LOG`, or `log.filter` in the configuration file, is not a valid log filter.
    #[error("{key} is {text:?}: expected a level, or targets with levels such as nicstripe=debug")]
    LogFilter {
        /// Source of the filter: the environment variable or the configuration key.
        key: &'static str,
        text: String,
        source: tracing_subscriber::filter::ParseError,
    },
    /// The configuration file of `serve` is unreadable or invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A setting of `serve` or an argument of `restic` is invalid, or contradicts another one.
    #[error("{key}: {why}")]
    Setting {
        key: &'static str,
        /// Problem with the setting, and its allowed values.
        why: String,
    },
    /// The Prometheus metrics endpoint of `serve` cannot listen.
    #[error("cannot listen on {address} for metrics")]
    Metrics {
        address: SocketAddr,
        source: io::Error,
    },
    /// A TCP listener cannot be bound to the address given on the command line.
    #[error("cannot listen on {address}")]
    Listen { address: String, source: io::Error },
    /// The public-key line given to `trust add` is invalid.
    #[error(transparent)]
    PeerLine(#[from] LineError),
    /// The key given to `trust add` is the own key of this machine.
    #[error("{fingerprint} is this machine's own key: expected the other machine's key")]
    OwnKey { fingerprint: String },
    /// The directory to serve contains the private key or the peers file. A peer that may write
    /// there could grant itself rights.
    #[error("cannot serve {path:?}: it contains this machine's key or peers file: {place:?}")]
    RootOfKeys {
        path: PathBuf,
        /// Private key or peers file, or its directory, inside the served directory.
        place: PathBuf,
    },
    /// The local source of a copy cannot be opened.
    #[error("cannot open {path:?}")]
    Source { path: PathBuf, source: io::Error },
    /// The local source of a copy is a directory, and `-r` is missing.
    #[error("{path:?} is a directory: copying it needs -r")]
    Directory { path: PathBuf },
    /// The local source of a copy is a FIFO, which has no size and may never have a writer.
    #[error("{path:?} is a FIFO: expected a file")]
    Fifo { path: PathBuf },
    /// The target of a single-file copy exists and differs, is a directory, or has no parent
    /// directory.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The local target of a copy ends with a slash and is not a directory.
    #[error("{path:?} is not a directory")]
    NotADirectory { path: PathBuf },
    /// A file of `--files-from` or `--exclude-from` is invalid.
    #[error(transparent)]
    List(#[from] ListError),
    /// Some entries of a tree copy failed; the others arrived.
    #[error(transparent)]
    Shortfall(Box<Shortfall>),
    /// The directory to serve is missing, not readable, or not a directory.
    #[error("cannot serve {path:?}")]
    Root { path: PathBuf, source: io::Error },
    /// An IPv6 address has a zone (`%eth1`) that is not an interface of this machine.
    #[error("no interface {name:?}")]
    NoInterface { name: String, source: io::Error },
    /// An interface given to `--exclude-link` does not exist.
    #[error("cannot exclude interface {name:?}, which does not exist: expected one of {here}")]
    Excluded {
        name: String,
        /// Names of the existing interfaces, joined by commas.
        here: String,
    },
    /// The `nicstripe` library returned an error.
    #[error(transparent)]
    Library(Box<nicstripe::Error>),
    /// The configuration directory is unknown: `NICSTRIPE_HOME` and `HOME` are unset, or one holds
    /// a relative path.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The private key of this machine cannot be read or created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The peers file cannot be read or changed.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The kernel or the route helper failed to list or change host routes.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// `bench` could not measure, or found a regression.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// MTUs that nicstripe changed cannot be restored.
    #[error(transparent)]
    Mtus(#[from] MtuError),
    /// `demo` could not build its network, or one of its copies failed.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// A tunnelled TCP connection was reset, or its session ended.
    #[error("connection to {target} lost")]
    Tunnel { target: String, source: io::Error },
    /// SIGINT, SIGTERM or SIGHUP ended the command.
    #[error("interrupted")]
    Interrupted {
        stop: Stop,
        /// True if rerunning the command resumes from the received data.
        resumable: bool,
    },
    /// A signal shut the daemon down in order.
    #[error("ended")]
    Stopped(Stop),
    /// `nicstripe man` was asked for a command that does not exist.
    #[error("no command {name:?}: expected one listed by `nicstripe --help`")]
    NoPage { name: String },
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// A local file or directory cannot be written.
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
    /// Returns the error and its source chain, joined by `: `.
    pub(crate) fn one_line(&self) -> String {
        nicstripe::chain(self)
    }

    /// Returns true if rerunning the same command resumes from the received data.
    pub(crate) fn is_resumable(&self) -> bool {
        match self {
            Self::Library(error) => error.is_resumable(),
            Self::Interrupted { resumable, .. } => *resumable,
            // Complete files are not transferred again.
            Self::Shortfall(_) => true,
            _ => false,
        }
    }

    /// Returns the lines to print below the error line: the failed entries of a tree copy.
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

    /// Builds a library error of writing the file `a.bin`.
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
