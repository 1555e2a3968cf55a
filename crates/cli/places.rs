//! Directories of configuration and state.

use std::{
    env,
    path::{Path, PathBuf},
};

use nicstripe::{
    routes::SHARED_STATE_DIR,
    trust::{Home, HomeError},
};
use rustix::process::geteuid;

/// Returns the configuration and state directories of this user.
///
/// `NICSTRIPE_HOME` takes precedence. Without it, root uses `/etc/nicstripe` and
/// `/var/lib/nicstripe` if `/etc/nicstripe` exists, so that `trust add` writes the file that root's
/// daemon reads. Everyone else uses the XDG directories.
pub(crate) fn home() -> Result<Home, HomeError> {
    let named = env::var_os("NICSTRIPE_HOME").is_some_and(|value| !value.is_empty());
    let system = (!named && geteuid().is_root()).then(Home::system).flatten();
    system.map_or_else(Home::from_env, Ok)
}

/// Returns the directory that records installed host routes: the one shared by all users if it
/// exists, otherwise the user's state directory.
pub(crate) fn routes_dir(home: &Home) -> PathBuf {
    let shared = Path::new(SHARED_STATE_DIR);
    if shared.is_dir() {
        shared.to_owned()
    } else {
        home.state().to_owned()
    }
}

/// Directory of keys, peers, settings and state of the service: `NICSTRIPE_HOME` in its unit.
pub(crate) const SERVICE_HOME: &str = "/var/lib/nicstripe";
