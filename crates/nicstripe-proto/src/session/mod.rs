//! Session: an association of two authenticated peers over any number of paths. A session outlives
//! each of its paths.
//!
//! A [`Session`] does no I/O. The [`handle_*`](Session::handle_frame) methods take its inputs.
//! [`poll_transmit`](Session::poll_transmit) returns data to send, and
//! [`poll_event`](Session::poll_event) returns all other actions. After calls of `handle_*`, poll
//! events until `None`, then poll each path whose connection can accept more data. Then sleep until
//! [`poll_timeout`](Session::poll_timeout) at the latest, and call
//! [`handle_timeout`](Session::handle_timeout).

mod asks;
mod bench;
mod chunks;
mod config;
mod connections;
mod error;
mod event;
mod exchange;
mod links;
mod messages;
mod paths;
mod planning;
mod request;
mod requests;
mod round_robin;
mod state;
mod transfers;
mod unsent;

pub use self::{
    config::SessionConfig,
    error::PathError,
    event::{Event, Incoming, Transmit},
    links::{LinkTerms, MOST_STREAMS},
    planning::{FIRST_PATH, LinksView, PathView, Routed, TooManyPaths},
    request::Request,
    state::Session,
    transfers::{Acceptance, Offering},
};
pub use crate::wire::message::failure;
