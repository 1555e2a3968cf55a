//! Arguments of the servers for other protocols: a folder at a daemon, and a pair of variables.

use std::{
    env,
    ffi::{OsStr, OsString},
    sync::Arc,
};

use nicstripe::{Name, routes::RouteKeeper};

use crate::{
    connect::{
        connect_arguments::ConnectArgs,
        location::{Location, Remote},
        setup::{Connected, Needs},
    },
    failure::Failure,
    process::signals::Signals,
};

/// Parses the peer and the directory that were typed, as in `example`.
pub(super) fn address(typed: &OsStr, example: &str) -> Result<Remote, Failure> {
    match Location::parse(typed)? {
        Location::Remote(remote) => Ok(remote),
        _ => Err(Failure::Setting {
            key: "HOST:PATH",
            why: format!("no host in {typed:?}, expected HOST:PATH as in {example}"),
        }),
    }
}

/// Connects to the peer of a typed directory, unless a signal arrives before. Returns the name of the
/// directory, too; `None` for the root.
pub(super) async fn connect(
    connect: &ConnectArgs,
    (typed, remote): (&OsString, Remote),
    keeper: Arc<RouteKeeper>,
    signals: &mut Signals,
) -> Result<(Connected, Option<Name>), Failure> {
    let needs = Needs {
        paths: std::slice::from_ref(typed),
        ..Needs::default()
    };
    let connected = tokio::select! {
        connected = connect.connect(&remote.place, &needs, keeper) => connected?,
        stop = signals.stop() => return Err(Failure::Stopped(stop)),
    };
    let remote = connected.located(typed)?.unwrap_or(remote);
    Ok((connected, remote.path.name().cloned()))
}

/// Reads two variables of the environment; `None` if neither is set.
///
/// # Errors
///
/// Only one of them is set, or one is not UTF-8.
pub(super) fn pair(
    first: &'static str,
    second: &'static str,
) -> Result<Option<(String, String)>, Failure> {
    let failed = |why: String| Failure::Setting { key: first, why };
    let read = |name| match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(failed(format!("{name} is not UTF-8"))),
    };
    match (read(first)?, read(second)?) {
        (None, None) => Ok(None),
        (Some(first), Some(second)) => Ok(Some((first, second))),
        _ => Err(failed(format!("expected {first} and {second}, or neither"))),
    }
}
