//! Links: finding, choosing, connecting and losing them, at both ends.
//!
//! `request` holds the links that a user names, `local` the interfaces of this machine. `contact`
//! makes the first connection of a session, which `establish` starts, and `trying` reports its
//! wait. The protocol plans all others: `watch` reports changes here, and `steps` carries out what
//! it asks for, with the proofs of `address_proof`. `connect` makes one connection, `route_keeper`
//! installs the host routes that it needs. `discovery` finds peers on the cables, `lookup` by name, `survey` describes the links. At a daemon,
//! `listeners` holds the listening sockets and `peer_routes` the host routes of a session, each on
//! `probation`.

mod address_proof;
pub(crate) mod connect;
pub(crate) mod contact;
#[cfg_attr(not(feature = "discovery"), path = "links/no_discovery.rs")]
pub(crate) mod discovery;
pub(crate) mod establish;
pub(crate) mod listeners;
pub(crate) mod local;
pub(crate) mod lookup;
pub(crate) mod peer_routes;
pub(crate) mod plan;
mod probation;
pub(crate) mod request;
pub(crate) mod route_keeper;
pub(crate) mod routes;
mod steps;
pub(crate) mod survey;
pub(crate) mod trying;
mod watch;

pub use self::local::{LocalInterface, local_interfaces};
