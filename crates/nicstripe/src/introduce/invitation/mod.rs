//! Invitations: two machines that do not know each other's keys exchange them by a short code.
//!
//! One machine opens an [`Invitation`] and shows its [`Code`]. The user types the code at the other,
//! which calls [`join`]. It finds the first machine on every cable, or at a given address. Both
//! prove to each other that they have the code, and learn the other's public key and host name, as
//! [`Paired`]. Nothing here writes a file: the caller adds the key to its
//! [`Peers`](crate::trust::Peers), and then calls [`Paired::finish`], which returns once the other
//! machine has done so too.
//!
//! The code's two words have 16 bits. An attacker has one guess in 65,536, once: the first wrong
//! proof ends the invitation, and a recorded exchange does not help to guess. A third party that
//! terminates TLS between the two machines fails as with a wrong code.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use nicstripe::{
//!     invitation::{Invitation, InvitationOptions, JoinOptions, join},
//!     trust::{Home, Identity},
//! };
//!
//! let home = Home::from_env()?;
//! let identity = Identity::load_or_create(&home.identity_file())?;
//! // On one machine:
//! let invitation = Invitation::open(&identity, InvitationOptions::default())?;
//! println!("{}", invitation.code().to_text());
//! let paired = invitation.wait().await?;
//! // On the other:
//! let paired = join(&identity, "7-crossover-violin".parse()?, JoinOptions::default()).await?;
//! // On both: store `paired.key`, then
//! paired.finish("laptop").await?;
//! # Ok(())
//! # }
//! ```

mod channel;
mod error;
mod exchange;
mod joining;
mod one_copy;
mod waiting;

use std::{net::SocketAddr, time::Duration};

pub use nicstripe_proto::invitation::{Code, CodeError, Item, Number, Purpose};
use nicstripe_proto::{
    invitation::{Done, Message, Refusal},
    name::escaped,
};
use tokio::time::Instant;

use self::channel::Channel;
pub use self::{
    error::{FoundInviter, InvitationError},
    joining::{JoinOptions, join},
    one_copy::{Consent, CopyEnd, Offered},
    waiting::{Invitation, InvitationOptions},
};
use crate::trust::PublicKey;

/// TCP port of an inviter if it is free there, and UDP port of the questions for its number.
pub const INVITATION_PORT: u16 = 7746;

/// Longest lifetime of an invitation.
pub const LONGEST_INVITATION: Duration = Duration::from_secs(600);

/// Peer that has proved the code, and the connection to it.
///
/// The caller stores the key and then calls [`Paired::finish`]. Dropping the value closes the
/// connection, and the peer's `finish` fails.
#[derive(Debug)]
#[non_exhaustive]
pub struct Paired {
    /// Public key of the peer.
    pub key: PublicKey,
    /// Host name that the peer reports, escaped; may be empty. The peer is authenticated, but
    /// chooses the name.
    pub host: String,
    /// Address and port of the peer's end of the connection. The port is temporary if the peer has
    /// joined.
    pub address: SocketAddr,
    /// Name of the local interface of the connection; `None` if unknown.
    pub interface: Option<String>,
    /// Purpose of the invitation, equal at both ends.
    pub purpose: Purpose,
    /// TCP port of the peer's daemon; `None` if it reports none.
    pub port: Option<u16>,
    channel: Channel,
}

impl Paired {
    /// Tells the peer that its key is stored here under `name`, and waits until the peer reports the
    /// same. Returns the name that this machine has there, escaped; empty if it has none.
    ///
    /// # Errors
    ///
    /// [`InvitationError::Unfinished`] if the peer does not report it within 2 minutes. It may have
    /// stored this machine's key or not.
    pub async fn finish(mut self, name: &str) -> Result<String, InvitationError> {
        let unfinished = || InvitationError::Unfinished {
            host: self.host.clone(),
        };
        let deadline = Instant::now() + FINISH_TIMEOUT;
        let exchange = async {
            let name = name.to_owned();
            self.channel.send(&Message::Done(Done { name })).await?;
            self.channel.receive().await
        };
        let done = match tokio::time::timeout_at(deadline, exchange).await {
            Ok(Ok(Message::Done(done))) => done,
            Ok(_) | Err(_) => return Err(unfinished()),
        };
        self.channel.close().await;
        Ok(escaped(done.name.as_bytes()))
    }

    /// Tells the peer that its key is not stored here, and closes the connection.
    pub async fn refuse(mut self) {
        self.channel.refuse(Refusal::Stopped).await;
    }
}

/// Timeout of the peer's report that it has stored the key. Its user may have to choose a name.
const FINISH_TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests;
