//! Where configuration and state are.

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

/// Sets up a client with this machine's key, the peers it trusts, and where they were met.
pub(crate) fn client(home: &Home) -> Result<ClientBuilder, Failure> {
    Ok(Client::builder()
        .identity(Identity::load_or_create(&home.identity_file())?)
        .peers(Peers::load(&home.peers_file())?)
        .address_book(AddressBook::at(home.addresses_file())))
}

/// Finds where host routes are recorded: where all users of this machine do so, if there is such a place, else in the user's state.
pub(crate) fn routes_dir(home: &Home) -> PathBuf {
    let shared = Path::new(SHARED_STATE_DIR);
    if shared.is_dir() { shared.to_owned() } else { home.state().to_owned() }
}
