//! Sending and receiving half of a transfer, with their parts for delta transfers (`--delta`).

mod delta_receiver;
mod delta_sender;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod stats;
