//! Discovery of daemons on the cables; `crate::discovery` is its public API. [`search`] finds one
//! peer or all daemons; [`responder`] answers.

mod cable;
mod responder;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use self::responder::{Responder, ResponderConfig};
pub use self::search::{DiscoveredPeer, Search, SearchOptions, discover};
