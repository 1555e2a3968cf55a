//! Route helper: the process, or thread, that changes routes and MTUs for nicstripe.
//!
//! `client` starts the helper and sends requests; `server` checks each request against the policy
//! and executes it. `protocol` defines their messages. `held_mtus` restores changed MTUs in time,
//! and `rights` handles the one capability that the helper keeps.

pub(crate) mod client;
mod held_mtus;
pub(crate) mod protocol;
pub(crate) mod rights;
pub(crate) mod server;
