//! Why a command failed.

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

/// Why a command failed. [`Exit`](crate::exit::Exit) gives each its code, [`hint`](crate::hint::hint) what can be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A source or target of `cp` cannot be read as one.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// Arguments of `cp` do not go together.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// `NICSTRIPE_LOG`, or `log.filter` of the configuration file, is no filter.
    #[error("{key} is {text:?}: expected a level, or targets with levels such as nicstripe=debug")]
    LogFilter {
        /// Where it was set.
        key: &'static str,
        /// Its value.
        text: String,
        /// What the parser said.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The configuration file of `serve`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Settings of `serve` that do not go together.
    #[error("{key}: {why}")]
    Setting {
        /// The option or key.
        key: &'static str,
        /// What is wrong, and what is allowed.
        why: String,
    },
    /// Where the metrics are to be had cannot be listened on.
    #[error("cannot listen on {address} for metrics")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// An address that was typed cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// As it was typed.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The line given to `trust add` is none.
    #[error(transparent)]
    PeerLine(#[from] LineError),
    /// The line given to `trust add` is that of this machine.
    #[error("{fingerprint} is this machine's own key: expected that of the other machine")]
    OwnKey {
        /// The key in short.
        fingerprint: String,
    },
    /// The daemon's root contains what decides who may do what.
    #[error("cannot serve {path:?}: it contains {place:?}, where this machine's key and list of peers are")]
    RootOfKeys {
        /// The directory.
        path: PathBuf,
        /// What is in it.
        place: PathBuf,
    },
    /// The source of a copy cannot be opened.
    #[error("cannot open {path:?}")]
    Source {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The source of a copy is a directory, here.
    #[error("{path:?} is a directory, which is copied with -r only")]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The source of a copy is a FIFO, which has no size and may never have a writer.
    #[error("{path:?} is a FIFO, which is not a file")]
    Fifo {
        /// The FIFO.
        path: PathBuf,
    },
    /// Something stands against one file at its place.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The target of a copy ends with a slash, and there is no such directory here.
    #[error("{path:?} is not a directory")]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// A list that an option of `cp` names.
    #[error(transparent)]
    List(#[from] ListError),
    /// A part of a tree did not arrive; the rest is there.
    #[error(transparent)]
    Shortfall(Box<Shortfall>),
    /// The daemon's root is missing or no directory.
    #[error("cannot serve {path:?}")]
    Root {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An interface named in an address does not exist.
    #[error("there is no interface called {name:?}")]
    NoInterface {
        /// Its name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// An interface that is to be left out does not exist.
    #[error("there is no interface {name:?} here to leave out; there are {here}")]
    Excluded {
        /// Its name, as it was typed.
        name: String,
        /// The names that there are.
        here: String,
    },
    /// The library's own.
    #[error(transparent)]
    Library(Box<nicstripe::Error>),
    /// Where the configuration is cannot be told.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// This machine's key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The trusted peers.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// Host routes.
    #[error(transparent)]
    Routes(#[from] RouteError),
    /// `bench`.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// MTUs.
    #[error(transparent)]
    Mtus(#[from] MtuError),
    /// `demo`.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// A connection to a service at the peer was reset, or its session ended.
    #[error("the connection to {target} broke")]
    Tunnel {
        /// The service.
        target: String,
        /// What the system says to it.
        source: io::Error,
    },
    /// A signal ended the command.
    #[error("interrupted")]
    Interrupted {
        /// Which.
        stop: Stop,
        /// Whether the same command goes on from what has arrived.
        resumable: bool,
    },
    /// A signal ended the daemon, in order.
    #[error("ended")]
    Stopped(Stop),
    /// There is no manual page of that name.
    #[error("there is no command {name:?}: expected one that `nicstripe --help` lists")]
    NoPage {
        /// The command asked for.
        name: String,
    },
    /// Standard output takes nothing.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// A folder cannot be written to.
    #[error("cannot write {path:?}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no threads.
    #[error("cannot start threads")]
    Runtime(#[source] io::Error),
    /// The system gives no signal handlers.
    #[error("cannot take over signals")]
    Signals(#[source] io::Error),
}

impl From<nicstripe::Error> for Failure {
    fn from(error: nicstripe::Error) -> Self {
        Self::Library(Box::new(error))
    }
}

impl Failure {
    /// Returns the failure and its causes, joined by `: `.
    pub(crate) fn one_line(&self) -> String {
        nicstripe::chain(self)
    }

    /// Tells whether running the same command again goes on from what has arrived.
    pub(crate) fn is_resumable(&self) -> bool {
        match self {
            Self::Library(error) => error.is_resumable(),
            Self::Interrupted { resumable, .. } => *resumable,
            // What is there already is not sent again.
            Self::Shortfall(_) => true,
            _ => false,
        }
    }

    /// Returns what belongs below the line of the error.
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

    /// A failure at a file of this machine.
    pub(crate) fn file_error(code: FailCode, kind: io::ErrorKind) -> nicstripe::Error {
        FileError { operation: "write", name: "a.bin".into(), code, resumable: code == FailCode::NoSpace, source: kind.into() }.into()
    }

    #[test]
    fn the_causes_follow_in_one_line() {
        let failure = Failure::from(file_error(FailCode::NoSpace, io::ErrorKind::StorageFull));
        assert_eq!(failure.one_line(), "cannot write \"a.bin\": no storage space");
        assert!(failure.is_resumable());
    }
}
