//! Discovery: which daemons are on the cables of this machine, without an address, a name server or any setting.
//!
//! A [`Search`] asks on each interface by multicast, and tells each daemon that answered as [`Heard`]; [`discover`] waits for all of them.
//! A running [`Daemon`](crate::Daemon) answers, and by this a peer's name is enough for
//! [`ClientBuilder::connect`](crate::ClientBuilder::connect). What is sent is in [`nicstripe_proto::discovery`]: everything is signed, and
//! nothing is believed before its signature has been checked.
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

pub use self::search::{Heard, Search, SearchOptions, discover};
pub(crate) use self::{
    lookup::{Lookup, resolved},
    responder::{Responder, ResponderConfig},
};
