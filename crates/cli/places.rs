//! Where configuration and state are.

use std::env;

use nicstripe::trust::Home;
use rustix::process::geteuid;

use crate::failure::Failure;

/// Finds this user's folders.
///
/// `NICSTRIPE_HOME` decides where it is set. Without it root uses `/etc/nicstripe` and `/var/lib/nicstripe` where the first exists, so that
/// `trust add` writes the file that root's daemon reads; else the XDG folders count.
pub(crate) fn home() -> Result<Home, Failure> {
    let named = env::var_os("NICSTRIPE_HOME").is_some_and(|value| !value.is_empty());
    let system = (!named && geteuid().is_root()).then(Home::system).flatten();
    match system {
        Some(home) => Ok(home),
        None => Ok(Home::from_env()?),
    }
}
