//! Directories of configuration and state.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use nicstripe::{
    routes::SHARED_STATE_DIR,
    trust::{Home, HomeError},
};
use nix::unistd::User;
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

/// Returns the home directory of this process's user.
pub(crate) fn own_home() -> PathBuf {
    let named = env::var_os("HOME").map(PathBuf::from);
    named
        .filter(|home| home.is_absolute())
        .or_else(listed_home)
        .unwrap_or_else(|| "/".into())
}

/// Returns the home directory that the system lists for this process's user.
fn listed_home() -> Option<PathBuf> {
    let user = User::from_uid(geteuid().as_raw().into()).ok()??;
    Some(user.dir)
}

/// Returns the home directories of all local accounts and of this process's user.
pub(crate) fn account_homes() -> Vec<PathBuf> {
    // A comment of another encoding hides no account.
    let accounts = fs::read("/etc/passwd").unwrap_or_default();
    let accounts = String::from_utf8_lossy(&accounts);
    let home = |line: &str| line.split(':').nth(5).map(PathBuf::from);
    let listed = accounts.lines().filter_map(home).chain(listed_home());
    // System accounts live in `/`, `/bin` and the like, and nothing there is read at a log-in.
    let is_home = |home: &PathBuf| home.is_absolute() && home.parent().is_some();
    listed.filter(is_home).chain([own_home()]).collect()
}

/// Directory of keys, peers, settings and state of the service: `NICSTRIPE_HOME` in its unit.
pub(crate) const SERVICE_HOME: &str = "/var/lib/nicstripe";
