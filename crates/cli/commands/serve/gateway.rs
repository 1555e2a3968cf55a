//! Arguments of the servers for other protocols: a folder at a daemon, and a pair of variables.

use std::{env, ffi::OsStr};

use crate::{
    connect::{
        location::{Location, Remote},
        setup::Connected,
    },
    failure::Failure,
};

/// Parses the peer and the directory that were typed, as in `example`. `peer` finds out where the directory
/// is, once it is known.
pub(super) fn address(
    typed: &OsStr,
    peer: Option<&Connected>,
    example: &str,
) -> Result<Remote, Failure> {
    let inside = peer.map_or(Ok(None), |peer| peer.inside(typed))?;
    match Location::parse(inside.as_deref().unwrap_or(typed))? {
        Location::Remote(remote) => Ok(remote),
        _ => Err(Failure::Setting {
            key: "HOST:PATH",
            why: format!("no host in {typed:?}, expected HOST:PATH as in {example}"),
        }),
    }
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
