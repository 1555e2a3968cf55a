//! Discovery: finds daemons on the cables of this machine, without an address, a name server or any
//! setting.
//!
//! A [`Search`] sends multicast questions on each interface, and returns each daemon that answered
//! as [`DiscoveredPeer`]; [`discover`] collects them all. A running [`Daemon`](crate::Daemon) answers. So
//! [`ClientBuilder::connect`](crate::ClientBuilder::connect) needs only a peer's name.
//! [`nicstripe_proto::discovery`] defines the messages. Every message is signed, and is ignored
//! unless its signature is valid.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{discovery::{SearchOptions, discover}, trust::{Home, Identity, Peers}};
//!
//! let home = Home::from_env()?;
//! let identity = Identity::load_or_create(&home.identity_file())?;
//! for heard in discover(&identity, &Peers::load(&home.peers_file())?, SearchOptions::default()).await? {
//!     println!("{} is on {} as {}", heard.key.fingerprint(), heard.interface, heard.address);
//! }
//! # Ok(())
//! # }
//! ```

mod lookup;
mod responder;
mod search;
mod signature;

pub use self::search::{DiscoveredPeer, Search, SearchOptions, discover};
pub(crate) use self::{
    lookup::{Lookup, resolved},
    responder::{Responder, ResponderConfig},
};
