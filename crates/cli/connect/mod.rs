//! Connection to the peer: its place, the options and the setup.

pub(crate) mod arguments;
pub(crate) mod by_code;
pub(crate) mod connect_arguments;
pub(crate) mod globs;
pub(crate) mod host;
pub(crate) mod invitation;
pub(crate) mod location;
mod pattern;
pub(crate) mod peer;
pub(crate) mod place;
pub(crate) mod setup;
pub(crate) mod ssh;
mod ssh_path;
#[cfg(feature = "web")]
pub(crate) mod store_arguments;
