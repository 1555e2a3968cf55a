//! Tunnels: connections of other programs, carried over a session.
//!
//! `nicstripe_proto::tunnel` makes the decisions. [`mux`] is one end of the multiplexer with its
//! waiting tasks. [`stream`] is one connection as seen by a program. In a daemon, [`dialer`] connects
//! to targets, whose names [`resolver`] resolves, and [`listeners`] listens for the client.
//! [`local_stream`] and [`local_listener`] are the TCP ports and socket files of this machine.

mod dialer;
mod listeners;
mod local_listener;
mod local_stream;
mod mux;
mod resolver;
mod stream;

pub(crate) use self::{
    dialer::Dialer,
    listeners::{FreeUp, Listeners},
    mux::TunnelMux,
    resolver::Resolver,
};
pub use self::{local_listener::LocalListener, local_stream::LocalStream, stream::Tunnel};
