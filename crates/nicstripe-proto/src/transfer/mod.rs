//! The two halves of a transfer, and their parts for `--delta`.

pub(crate) mod delta_receiver;
mod delta_sender;
pub mod receiver;
pub mod sender;
