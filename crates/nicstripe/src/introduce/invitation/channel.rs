//! Messages of an invitation over one TLS connection.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

use nicstripe_proto::invitation::{Message, MessageError, Reader, Refusal, encode};

use crate::{
    trust::PublicKey,
    wire::tls::{TlsError, TlsStream},
};

/// TLS connection that carries messages of an invitation.
pub(super) struct Channel {
    tls: TlsStream,
    reader: Reader,
    received: VecDeque<Message>,
}

/// Reason why no message arrived.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("peer sent more than {MOST_RECEIVED} messages at once")]
    Flood,
    #[error("closed by the peer")]
    Closed,
}

impl Channel {
    pub(super) fn new(tls: TlsStream) -> Self {
        Self {
            tls,
            reader: Reader::default(),
            received: VecDeque::new(),
        }
    }

    pub(super) fn peer_key(&self) -> Result<PublicKey, ChannelError> {
        Ok(self.tls.peer_key()?)
    }

    /// Returns the secret of this connection that no third party shares.
    pub(super) fn binding(&self) -> Result<[u8; 32], ChannelError> {
        Ok(self.tls.binding()?)
    }

    /// Accepts longer messages, since both ends have proved the code.
    pub(super) fn proved(&mut self) {
        self.reader.proved();
    }

    /// Sends a message. Not cancel safe: close the connection.
    pub(super) async fn send(&mut self, message: &Message) -> Result<(), ChannelError> {
        self.tls.queue(&[&encode(message)])?;
        Ok(self.tls.flush().await?)
    }

    /// Waits for the next message. Cancel safe.
    pub(super) async fn receive(&mut self) -> Result<Message, ChannelError> {
        loop {
            if let Some(message) = self.received.pop_front() {
                return Ok(message);
            }
            self.tls.ready(true, false).await?;
            let (reader, received) = (&mut self.reader, &mut self.received);
            let progress = self.tls.try_receive(|mut plaintext: &[u8]| {
                while let Some(message) = reader.next(&mut plaintext)? {
                    if received.len() == MOST_RECEIVED {
                        return Err(ChannelError::Flood);
                    }
                    received.push_back(message);
                }
                Ok(())
            })?;
            // TLS may have queued an answer, such as a key update.
            self.tls.flush().await?;
            if progress.peer_closed && self.received.is_empty() {
                return Err(ChannelError::Closed);
            }
        }
    }

    /// Sends a refusal and closes the connection, within [`LINGER`].
    pub(super) async fn refuse(&mut self, refusal: Refusal) {
        let refused = async {
            self.send(&refusal.into()).await?;
            // The peer closes. Closing first, with unread bytes, would drop the refusal.
            while self.receive().await.is_ok() {}
            Ok::<(), ChannelError>(())
        };
        // The refusal is a courtesy.
        let _ = tokio::time::timeout(LINGER, refused).await;
    }

    /// Closes the connection, within [`LINGER`].
    pub(super) async fn close(self) {
        let _ = self.tls.finish(Instant::now() + LINGER).await;
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("socket", self.tls.socket())
            .finish_non_exhaustive()
    }
}

/// Maximum number of received messages that wait. An honest peer sends two at once.
const MOST_RECEIVED: usize = 4;

/// Maximum time for the peer to read the last message and close.
const LINGER: Duration = Duration::from_millis(500);
