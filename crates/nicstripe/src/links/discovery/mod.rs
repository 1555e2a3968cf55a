//! Discovery of daemons on the cables: see `crate::discovery`, its public face. [`lookup`] asks for
//! one peer, [`search`] for all; [`responder`] answers.

mod lookup;
mod responder;
mod search;
mod signature;

pub use self::search::{DiscoveredPeer, Search, SearchOptions, discover};
pub(crate) use self::{
    lookup::{Lookup, resolved},
    responder::{Responder, ResponderConfig},
};
