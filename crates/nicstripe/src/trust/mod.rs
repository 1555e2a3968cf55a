//! Identity of this machine, trusted peers, and the files of both.
//!
//! Each machine has one Ed25519 key pair, its [`Identity`]. Other machines know it by its
//! [`PublicKey`], exchanged as one line of text ([`PublicLine`]). [`Peers`] is the file of trusted
//! keys and their rights; [`Home`] locates the files. There is no global state: only
//! [`Home::from_env`] reads the environment.

mod addresses;
mod dial;
mod exec_rule;
mod file;
mod home;
mod identity;
mod key;
mod line;
mod listen;
mod mounts;
mod peer;
mod peers;
mod private_group;
pub(crate) mod random;
mod sightings;
mod signature;

pub use addresses::AddressBook;
pub(crate) use addresses::SeenAt;
pub use dial::DialTarget;
pub use exec_rule::ExecRule;
pub use file::{FileError, read_guarded};
#[cfg(test)]
pub(crate) use file::{lock_folder_of, private_folder};
pub use home::{Home, HomeError};
pub use identity::{Identity, IdentityError};
pub use key::{KeyError, PublicKey, PublicLine};
pub use line::LineError;
pub use listen::ListenTarget;
pub use peer::{Access, Peer, PeerName, PeerOptions};
pub use peers::{Added, LineProblem, Peers, PeersError};
pub(crate) use sightings::PAUSE;
pub use sightings::{Sighting, Sightings};
pub(crate) use signature::{is_by, sign};
