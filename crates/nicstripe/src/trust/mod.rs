//! Who we are, whom we trust and where both are kept.
//!
//! A machine has one Ed25519 key pair, its [`Identity`]; another machine knows it by the [`PublicKey`], exchanged as one line of text
//! ([`PublicLine`]). [`Peers`] is the file of the keys that are spoken to and what each may do; [`Home`] says where the files are.
//! Nothing here has global state: the environment is read only by [`Home::from_env`].

mod addresses;
mod file;
mod home;
mod identity;
mod key;
mod peer;
mod peers;
mod private_group;

pub use addresses::AddressBook;
pub(crate) use addresses::SeenAt;
#[cfg(test)]
pub(crate) use file::private_folder;
pub use file::{FileError, read_guarded};
pub use home::{Home, HomeError};
pub use identity::{Identity, IdentityError};
pub use key::{KeyError, PublicKey, PublicLine};
pub use peer::{Access, DialTarget, LineError, Peer, PeerName, PeerOptions};
pub use peers::{Added, LineProblem, Peers, PeersError};
