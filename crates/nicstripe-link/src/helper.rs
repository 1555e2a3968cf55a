//! Route helper: the process, or thread, that changes routes and MTUs for nicstripe.
//!
//! `client` starts it and asks, `server` checks each request against the policy and carries it out,
//! `protocol` is what they say. `held_mtus` undoes MTU changes in time, `rights` handles the one
//! capability that the helper keeps.

pub(crate) mod client;
mod held_mtus;
pub(crate) mod protocol;
pub(crate) mod rights;
pub(crate) mod server;
