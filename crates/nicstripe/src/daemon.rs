//! Daemon: listens on each interface, authenticates clients, and runs sessions on the directory it
//! serves.
//!
//! [`builder`] opens what [`running`] serves from, [`shared`] is the state of all connections.
//! [`gate`] limits unauthenticated connections, [`connections`] divides authenticated ones among
//! keys. [`greeting`] authenticates clients and finds their sessions, [`limits`] defines the
//! resource limits, [`served_peer`] holds the rights and quotas of one peer, [`service`] passes its
//! requests to the jobs, such as [`objects`] and [`trees`], and [`watch`] follows interface changes.

#[cfg(feature = "bench")]
mod bench;
#[cfg_attr(not(feature = "bench"), path = "daemon/no_benches.rs")]
mod benches;
mod builder;
mod concats;
mod connections;
mod exec;
mod executor;
mod facts;
pub(crate) mod fetcher;
mod fetches;
mod files;
mod gate;
mod grants;
mod greeting;
mod handle;
mod hashes;
#[cfg(test)]
pub(crate) mod hostile;
mod inbox;
mod limits;
mod objects;
mod refusals;
mod revocation;
mod rights;
mod roots;
mod running;
mod seen;
mod served_peer;
mod service;
mod shared;
#[cfg_attr(not(feature = "trees"), path = "daemon/no_trees.rs")]
mod trees;
mod trusted;
mod tunnels;
mod unfinished;
mod walks;
mod watch;

pub use self::{
    builder::DaemonBuilder,
    executor::{Executor, PeerCommand, StartedCommand},
    handle::DaemonHandle,
    limits::Limits,
    running::Daemon,
};
