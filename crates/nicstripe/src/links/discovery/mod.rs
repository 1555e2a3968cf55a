//! Discovery of daemons on the cables; `crate::discovery` is its public API. [`lookup`] finds one
//! peer, [`search`] all daemons; [`responder`] answers.

mod cable;
mod lookup;
mod responder;
mod search;
mod signature;

pub use self::search::{DiscoveredPeer, Search, SearchOptions, discover};
pub(crate) use self::{
    lookup::{first_of, resolved},
    responder::{Responder, ResponderConfig},
};
