//! Proof of the code by both ends of a connection, and the exchange of their cards.
//!
//! The PAKE is SPAKE2 on Ed25519. Its password is the whole code, its identities are the two public
//! keys. The joiner confirms first. Until then the inviter has sent only its half of the PAKE, which
//! reveals nothing of the code, so that a connection that ends there was no guess.

use std::net::SocketAddr;

use nicstripe_proto::invitation::{
    Card, Code, Confirm, Confirmation, Message, Pake, Parties, Purpose, Refusal, Refuse, Side,
};
use spake2::{Ed25519Group, Identity as PakeIdentity, Password, Spake2};

use super::{
    Paired,
    channel::{Channel, ChannelError},
    error::InvitationError,
};
use crate::{text::shown_name, trust::PublicKey};

/// Content of the card of this end.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) purpose: Purpose,
    /// TCP port of the daemon of this machine; 0 for none.
    pub(super) port: u16,
}

impl Offer {
    fn card(&self) -> Message {
        let system = rustix::system::uname();
        Message::Card(Card {
            purpose: self.purpose.number(),
            host: system.nodename().to_string_lossy().into_owned(),
            port: self.port,
        })
    }
}

/// Connection on which the code is being proved.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) channel: Channel,
    pub(super) remote: SocketAddr,
    pub(super) interface: Option<String>,
    pub(super) ours: PublicKey,
}

/// Connection of an inviter on which a confirmation has arrived: a guess, right or wrong.
#[derive(Debug)]
pub(super) struct Guess {
    exchange: Exchange,
    keys: Secret,
    received: [u8; 32],
}

/// Secret of a PAKE, with the keys and the connection that it is bound to.
struct Secret {
    secret: Vec<u8>,
    parties: Parties,
}

impl Exchange {
    /// Runs the inviter's part up to the joiner's confirmation, which is not checked.
    pub(super) async fn await_guess(mut self, code: Code) -> Result<Guess, InvitationError> {
        let theirs = match self.receive().await? {
            Message::Pake(pake) => pake,
            other => return Err(self.unexpected(&other)),
        };
        if theirs.number != code.number().get() {
            self.channel.refuse(Refusal::OtherNumber).await;
            return Err(InvitationError::OtherNumber {
                address: self.remote,
            });
        }
        let (pake, parties) = self.start(Side::Inviter, code).await?;
        let keys = self.secret(pake, parties, &theirs)?;
        let received = match self.receive().await? {
            Message::Confirm(confirm) => confirm.mac,
            other => return Err(self.unexpected(&other)),
        };
        Ok(Guess {
            exchange: self,
            keys,
            received,
        })
    }

    /// Runs the joiner's part.
    pub(super) async fn join(
        mut self,
        code: Code,
        offer: &Offer,
    ) -> Result<Paired, InvitationError> {
        let (pake, parties) = self.start(Side::Joiner, code).await?;
        let theirs = match self.receive().await? {
            Message::Pake(pake) => pake,
            other => return Err(self.unexpected(&other)),
        };
        let keys = self.secret(pake, parties, &theirs)?;
        self.send(&keys.confirm(Side::Joiner)).await?;
        let received = match self.receive().await? {
            Message::Confirm(confirm) => confirm.mac,
            other => return Err(self.unexpected(&other)),
        };
        if !keys.is_confirmed(Side::Inviter, &received) {
            self.channel.refuse(Refusal::WrongCode).await;
            return Err(InvitationError::WrongCode);
        }
        let (card, purpose) = self.await_card(offer).await?;
        self.send(&offer.card()).await?;
        self.paired(&card, purpose)
    }

    /// Sends this end's half of the PAKE.
    async fn start(
        &mut self,
        side: Side,
        code: Code,
    ) -> Result<(Spake2<Ed25519Group>, Parties), InvitationError> {
        let parties = self.parties(side).map_err(|error| self.lost(error))?;
        let password = Password::new(code.to_text());
        let joiner = PakeIdentity::new(&parties.joiner);
        let inviter = PakeIdentity::new(&parties.inviter);
        let (pake, message) = match side {
            Side::Joiner => Spake2::start_a(&password, &joiner, &inviter),
            Side::Inviter => Spake2::start_b(&password, &joiner, &inviter),
        };
        let message = Pake {
            number: code.number().get(),
            message: message
                .try_into()
                .map_err(|_| self.broken("no PAKE message"))?,
        };
        self.send(&Message::Pake(message)).await?;
        Ok((pake, parties))
    }

    /// Derives the secret from the peer's half of the PAKE.
    fn secret(
        &self,
        pake: Spake2<Ed25519Group>,
        parties: Parties,
        theirs: &Pake,
    ) -> Result<Secret, InvitationError> {
        let secret = pake
            .finish(&theirs.message)
            .map_err(|_| self.broken("malformed PAKE message"))?;
        Ok(Secret { secret, parties })
    }

    fn parties(&self, side: Side) -> Result<Parties, ChannelError> {
        let (ours, theirs) = (*self.ours.as_bytes(), *self.channel.peer_key()?.as_bytes());
        let (joiner, inviter) = match side {
            Side::Joiner => (ours, theirs),
            Side::Inviter => (theirs, ours),
        };
        Ok(Parties {
            joiner,
            inviter,
            binding: self.channel.binding()?,
        })
    }

    /// Waits for the peer's card, and refuses one with another purpose.
    async fn await_card(&mut self, offer: &Offer) -> Result<(Card, Purpose), InvitationError> {
        let card = match self.receive().await? {
            Message::Card(card) => card,
            other => return Err(self.unexpected(&other)),
        };
        match Purpose::from_number(card.purpose) {
            Some(purpose) if purpose == offer.purpose => Ok((card, purpose)),
            _ => {
                self.channel.refuse(Refusal::OtherPurpose).await;
                Err(InvitationError::OtherPurpose {
                    address: self.remote,
                })
            }
        }
    }

    fn paired(mut self, card: &Card, purpose: Purpose) -> Result<Paired, InvitationError> {
        self.channel.proved();
        let key = self.channel.peer_key().map_err(|error| self.lost(error))?;
        Ok(Paired {
            key,
            host: shown_name(card.host.clone()),
            address: self.remote,
            interface: self.interface,
            purpose,
            port: Some(card.port).filter(|port| *port != 0),
            channel: self.channel,
        })
    }

    async fn send(&mut self, message: &Message) -> Result<(), InvitationError> {
        let sent = self.channel.send(message).await;
        sent.map_err(|error| self.lost(error))
    }

    async fn receive(&mut self) -> Result<Message, InvitationError> {
        let received = self.channel.receive().await;
        received.map_err(|error| self.lost(error))
    }

    fn unexpected(&self, message: &Message) -> InvitationError {
        unexpected(self.remote, message)
    }

    fn broken(&self, why: &str) -> InvitationError {
        InvitationError::Protocol {
            address: self.remote,
            why: why.to_owned(),
        }
    }

    fn lost(&self, error: ChannelError) -> InvitationError {
        InvitationError::from_channel(self.remote, error)
    }
}

/// Returns the error for a message that is a refusal or out of order.
pub(super) fn unexpected(address: SocketAddr, message: &Message) -> InvitationError {
    let Message::Refuse(Refuse { code }) = message else {
        return InvitationError::Protocol {
            address,
            why: "message out of order".to_owned(),
        };
    };
    match Refusal::from_number(*code) {
        Some(Refusal::WrongCode) => InvitationError::WrongCode,
        Some(Refusal::OtherNumber) => InvitationError::OtherNumber { address },
        Some(Refusal::OtherPurpose) => InvitationError::OtherPurpose { address },
        Some(Refusal::Declined) => InvitationError::Declined { address },
        Some(Refusal::Exists) => InvitationError::Exists { address },
        Some(Refusal::Stopped) | None => InvitationError::Stopped { address },
    }
}

impl Guess {
    pub(super) fn remote(&self) -> SocketAddr {
        self.exchange.remote
    }

    /// Checks the joiner's confirmation. Answers a wrong one with a refusal; otherwise exchanges the
    /// cards.
    pub(super) async fn judge(self, offer: &Offer) -> Result<Paired, InvitationError> {
        let Self {
            mut exchange,
            keys,
            received,
        } = self;
        if !keys.is_confirmed(Side::Joiner, &received) {
            exchange.channel.refuse(Refusal::WrongCode).await;
            return Err(InvitationError::WrongCode);
        }
        exchange.send(&keys.confirm(Side::Inviter)).await?;
        exchange.send(&offer.card()).await?;
        let (card, purpose) = exchange.await_card(offer).await?;
        exchange.paired(&card, purpose)
    }
}

impl Secret {
    fn confirm(&self, side: Side) -> Message {
        Message::Confirm(Confirm {
            mac: Confirmation::of(side, &self.secret, &self.parties).bytes(),
        })
    }

    fn is_confirmed(&self, by: Side, received: &[u8; 32]) -> bool {
        Confirmation::of(by, &self.secret, &self.parties).is(received)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.secret.fill(0);
        // Without a reader the compiler may remove the stores.
        std::hint::black_box(&mut self.secret);
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}
