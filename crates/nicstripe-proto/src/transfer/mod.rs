//! The two halves of a transfer, and their parts for `--delta`.

mod delta_receiver;
mod delta_sender;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod stats;
