//! Sending and receiving halves of a transfer, and their parts for delta transfers (`--delta`).

mod delta_receiver;
mod delta_sender;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod stats;
