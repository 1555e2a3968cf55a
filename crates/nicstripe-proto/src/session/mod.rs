//! Session: an association of two authenticated peers over any number of paths. It outlives each
//! path.
//!
//! A [`Session`] does no I/O. [`handle_*`](Session::handle_frame) calls are its inputs,
//! [`poll_transmit`](Session::poll_transmit) returns data to send, and
//! [`poll_event`](Session::poll_event) all other actions. After `handle_*` calls, poll events until
//! `None`, then each path whose connection can take more. Then sleep until
//! [`poll_timeout`](Session::poll_timeout) at the latest and call
//! [`handle_timeout`](Session::handle_timeout).

mod asks;
mod bench;
mod chunks;
mod config;
mod connections;
mod error;
mod event;
mod exchange;
mod messages;
mod paths;
mod requests;
mod round_robin;
mod state;
mod transfers;
mod unsent;

pub use self::{
    config::SessionConfig,
    error::PathError,
    event::{Event, Incoming, Transmit},
    state::Session,
    transfers::{Acceptance, Offering},
};
pub use crate::wire::message::failure;
