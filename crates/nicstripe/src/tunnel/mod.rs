//! Tunnels: TCP connections of other programs, carried over a session.
//!
//! `nicstripe_proto::tunnel` makes the decisions. [`trunk`] is one end of the multiplexer with its
//! waiting tasks. [`stream`] is one connection as seen by a program. [`dialer`] connects to targets
//! in a daemon.

mod dialer;
mod stream;
mod trunk;

pub use self::stream::Tunnel;
pub(crate) use self::{dialer::Dialer, trunk::Trunk};
