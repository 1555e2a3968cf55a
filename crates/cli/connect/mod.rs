//! Connection to the peer: where it is, the options and the setup.

pub(crate) mod arguments;
pub(crate) mod location;
pub(crate) mod place;
pub(crate) mod setup;
pub(crate) mod ssh;
mod ssh_path;
