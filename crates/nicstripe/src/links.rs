//! Links of a client: finding, choosing, connecting and losing them.
//!
//! `request` holds the links that a user names, `local` the interfaces of this machine. `contact`
//! makes the first connection; `linker` plans all others and follows changes, with the results of
//! `probes` and the address proofs of `claims`. `connect` makes one connection, `route_keeper`
//! installs the host routes that it needs. `discovery` finds peers on the cables, `survey`
//! describes the links.

mod claims;
pub(crate) mod connect;
pub(crate) mod contact;
pub(crate) mod discovery;
pub(crate) mod linker;
pub(crate) mod local;
mod named;
mod numbers;
pub(crate) mod plan;
pub(crate) mod probes;
pub(crate) mod request;
pub(crate) mod route_keeper;
pub(crate) mod routes;
pub(crate) mod survey;

pub use self::local::{LocalInterface, local_interfaces};
