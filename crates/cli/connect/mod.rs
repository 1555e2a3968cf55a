//! Connection to the peer: its options and its setup.

pub(crate) mod arguments;
pub(crate) mod location;
pub(crate) mod setup;
