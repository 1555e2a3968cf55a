//! Directories of configuration and state.

use std::{
    env,
    path::{Path, PathBuf},
};

use nicstripe::{
    Client, ClientBuilder,
    routes::SHARED_STATE_DIR,
    trust::{AddressBook, Home, Identity, Peers},
};
use rustix::process::geteuid;

use crate::failure::Failure;

/// Returns the configuration and state directories of this user.
///
/// `NICSTRIPE_HOME` takes precedence. Without it, root uses `/etc/nicstripe` and
/// `/var/lib/nicstripe` if `/etc/nicstripe` exists, so that `trust add` writes the file that root's
/// daemon reads. Everyone else uses the XDG directories.
pub(crate) fn home() -> Result<Home, Failure> {
    let named = env::var_os("NICSTRIPE_HOME").is_some_and(|value| !value.is_empty());
    let system = (!named && geteuid().is_root()).then(Home::system).flatten();
    match system {
        Some(home) => Ok(home),
        None => Ok(Home::from_env()?),
    }
}

/// Returns a client builder with the private key, the trusted peers and the address book of this
/// machine.
pub(crate) fn client(home: &Home) -> Result<ClientBuilder, Failure> {
    Ok(Client::builder()
        .identity(Identity::load_or_create(&home.identity_file())?)
        .peers(Peers::load(&home.peers_file())?)
        .address_book(AddressBook::at(home.addresses_file())))
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
