//! Offer of files for one copy, over the connection on which the code was proved.

use std::{net::SocketAddr, time::Duration};

use nicstripe_proto::invitation::{Accept, Done, Item, Message, Offer, Refusal};
use tokio::time::timeout;

use super::{
    super::bootstrap::{Call, Called, Introduction, Serving},
    LONGEST_INVITATION, Paired,
    channel::{Channel, ChannelError},
    error::InvitationError,
    exchange::unexpected,
};

/// Offer of a peer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Offered {
    /// Files and directories, with the names that they are to have. Names and sizes are claims:
    /// names must be escaped for display.
    pub items: Vec<Item>,
    /// The peer's part of the bootstrap.
    pub called: Called,
}

/// Connection between two machines during the one copy to which both have agreed.
///
/// Dropping it closes the connection, so that the peer sees that this end has gone.
#[derive(Debug)]
pub struct Consent {
    channel: Channel,
}

/// How the connection of a [`Consent`] has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyEnd {
    /// The peer's copy is complete.
    Complete,
    /// The peer has stopped.
    Stopped,
    /// The connection is lost: the peer was killed, or only the cable of this connection failed.
    Lost,
}

impl Paired {
    /// Offers files to the peer, and waits until its user agrees. Returns how to
    /// [connect](crate::ClientBuilder::introduced).
    ///
    /// # Errors
    ///
    /// [`InvitationError::Declined`] if the user there does not want them,
    /// [`InvitationError::TooMany`] if the names do not fit into one message, and errors of the
    /// connection. Waits at most [`LONGEST_INVITATION`].
    pub async fn offer(
        mut self,
        call: Call,
        items: Vec<Item>,
    ) -> Result<(Introduction, Consent), InvitationError> {
        let offer = Offer {
            request: call.request(),
            items,
        };
        if !offer.fits() {
            self.channel.refuse(Refusal::Stopped).await;
            return Err(InvitationError::TooMany {
                items: offer.items.len(),
            });
        }
        self.send(&Message::Offer(offer)).await?;
        let accept = match self.receive(LONGEST_INVITATION).await? {
            Message::Accept(accept) => accept,
            other => return Err(unexpected(self.address, &other)),
        };
        let peer = call.replied(&accept.reply)?.reached_at(self.address.ip());
        Ok((peer, self.consent()))
    }

    /// Waits for the peer's offer, at most 2 minutes.
    ///
    /// # Errors
    ///
    /// The peer has gone, or sent something else.
    pub async fn offered(&mut self) -> Result<Offered, InvitationError> {
        let offer = match self.receive(OFFER_TIMEOUT).await? {
            Message::Offer(offer) => offer,
            other => return Err(unexpected(self.address, &other)),
        };
        let called = Called::decode(&offer.request)?;
        Ok(Offered {
            items: offer.items,
            called,
        })
    }

    /// Returns the error once the peer has gone, while the user decides. Cancel safe.
    pub async fn gone(&mut self) -> InvitationError {
        let address = self.address;
        match self.channel.receive().await {
            Ok(message) => unexpected(address, &message),
            Err(error) => InvitationError::from_channel(address, error),
        }
    }

    /// Tells the peer where the daemon for its copy listens.
    ///
    /// # Errors
    ///
    /// The interfaces cannot be listed, or the peer has gone.
    pub async fn accept(
        mut self,
        called: &Called,
        served: &Serving<'_>,
    ) -> Result<Consent, InvitationError> {
        let reply = called.answer(served)?.encode();
        self.send(&Message::Accept(Accept { reply })).await?;
        Ok(self.consent())
    }

    /// Tells the peer that the user does not want its files.
    pub async fn decline(mut self) {
        self.channel.refuse(Refusal::Declined).await;
    }

    /// Tells the peer that files of all offered names exist here.
    pub async fn has_all(mut self) {
        self.channel.refuse(Refusal::Exists).await;
    }

    fn consent(self) -> Consent {
        Consent {
            channel: self.channel,
        }
    }

    async fn send(&mut self, message: &Message) -> Result<(), InvitationError> {
        let sent = self.channel.send(message).await;
        sent.map_err(|error| lost(self.address, error))
    }

    async fn receive(&mut self, limit: Duration) -> Result<Message, InvitationError> {
        match timeout(limit, self.channel.receive()).await {
            Ok(received) => received.map_err(|error| lost(self.address, error)),
            Err(_) => Err(InvitationError::TimedOut {
                address: self.address,
                waited: limit,
            }),
        }
    }
}

fn lost(address: SocketAddr, error: ChannelError) -> InvitationError {
    InvitationError::from_channel(address, error)
}

impl Consent {
    /// Tells the peer that the copy is complete, and closes the connection.
    pub async fn complete(mut self) {
        // The copy is verified and durable, whether the peer hears of it or not.
        if self
            .channel
            .send(&Message::Done(Done::default()))
            .await
            .is_ok()
        {
            self.channel.close().await;
        }
    }

    /// Tells the peer that this end stops, and closes the connection.
    pub async fn stop(mut self) {
        self.channel.refuse(Refusal::Stopped).await;
    }

    /// Waits for the end of the connection. Cancel safe.
    pub async fn ended(&mut self) -> CopyEnd {
        match self.channel.receive().await {
            Ok(Message::Done(_)) => CopyEnd::Complete,
            Ok(_) | Err(ChannelError::Closed) => CopyEnd::Stopped,
            Err(_) => CopyEnd::Lost,
        }
    }
}

/// Timeout of the peer's offer, for which it may have to look at many files.
const OFFER_TIMEOUT: Duration = Duration::from_secs(120);
