//! Tunnels: TCP connections of other programs, carried over a session.
//!
//! `nicstripe_proto::tunnel` makes the decisions. [`mux`] is one end of the multiplexer with its
//! waiting tasks. [`stream`] is one connection as seen by a program. [`dialer`] connects to targets
//! in a daemon, whose names [`resolver`] resolves.

mod dialer;
mod mux;
mod resolver;
mod stream;

pub use self::stream::Tunnel;
pub(crate) use self::{dialer::Dialer, mux::TunnelMux, resolver::Resolver};
