//! Messages of an invitation's connection, and their framing.
//!
//! A message travels as the length of its body (2 bytes, little-endian, 1 to [`MAX_BODY`]) and the
//! body, in CBOR. As in [`crate::message`], maps have small integers as keys and unknown keys are
//! ignored.

use minicbor::{Decode, Encode};

/// Maximum length of a message's body in bytes.
pub const MAX_BODY: usize = 512;

/// Length of a PAKE message in bytes: SPAKE2 on Ed25519, with the byte that names its side.
pub const PAKE_LEN: usize = 33;

/// Maximum length of a host name in a [`Card`], in bytes (HOST_NAME_MAX of Linux).
pub const MOST_HOST: usize = 64;

/// Message of an invitation's connection.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Message {
    /// First message of either end: its half of the PAKE.
    #[n(0)]
    Pake(#[n(0)] Pake),
    /// Proof that the sender derived the same secret.
    #[n(1)]
    Confirm(#[n(0)] Confirm),
    /// Sender's description of itself, after the peer's confirmation was right.
    #[n(2)]
    Card(#[n(0)] Card),
    /// Report that the sender has stored the peer's key.
    #[n(3)]
    Done,
    /// Report that the sender ends the exchange.
    #[n(4)]
    Refuse(#[n(0)] Refuse),
}

/// Half of the PAKE.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Pake {
    /// Number of the code. An inviter with another number refuses before a guess is spent.
    #[n(0)]
    pub number: u16,
    /// Message of the PAKE.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub message: [u8; PAKE_LEN],
}

/// Confirmation of the secret.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Confirm {
    /// Bytes of the [`Confirmation`](super::Confirmation).
    #[cbor(n(0), with = "minicbor::bytes")]
    pub mac: [u8; 32],
}

/// Description of an end. Its key is the one that it proved in TLS.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Card {
    /// Number of the [`Purpose`].
    #[n(0)]
    pub purpose: u32,
    /// Host name of the end, at most [`MOST_HOST`] bytes. It must be escaped for display.
    #[n(1)]
    pub host: String,
    /// TCP port of the daemon on this machine; 0 for none.
    #[n(2)]
    pub port: u16,
}

/// Purpose of an invitation. Both ends must have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Purpose {
    /// Each end adds the other's key to its trusted peers.
    Pair = 1,
    /// One copy, with keys that are used once.
    OneCopy = 2,
}

impl Purpose {
    /// Returns the purpose with this number; `None` if it is unknown.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Pair, Self::OneCopy]
            .into_iter()
            .find(|purpose| purpose.number() == number)
    }

    /// Returns the number in a [`Card`].
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// Refusal of the exchange.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Refuse {
    /// Number of the [`Refusal`].
    #[n(0)]
    pub code: u32,
}

/// Reason of a [`Refuse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Refusal {
    /// The peer's confirmation is wrong: it has another code, or a third party is in between.
    WrongCode = 1,
    /// The peer's number is not that of this invitation.
    OtherNumber = 2,
    /// The peer's purpose is another one, or unknown.
    OtherPurpose = 3,
    /// The sender cannot store the peer's key, or its user has stopped it.
    Stopped = 4,
}

impl Refusal {
    /// Returns the reason with this number; `None` if it is unknown.
    pub fn from_number(number: u32) -> Option<Self> {
        [
            Self::WrongCode,
            Self::OtherNumber,
            Self::OtherPurpose,
            Self::Stopped,
        ]
        .into_iter()
        .find(|refusal| *refusal as u32 == number)
    }
}

impl From<Refusal> for Message {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(Refuse {
            code: refusal as u32,
        })
    }
}

/// Reason why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The length of a body is 0 or too large.
    #[error("message of {0} bytes: expected 1 to {MAX_BODY}")]
    Length(usize),
    /// The body is not the CBOR of a message.
    #[error("malformed message")]
    Malformed,
    /// The host name is too long.
    #[error("host name of {0} bytes exceeds the limit of {MOST_HOST}")]
    Host(usize),
}

/// Returns the bytes of a message, with its length. A host name that is too long is cut.
pub fn encode(message: &Message) -> Vec<u8> {
    let mut message = message.clone();
    if let Message::Card(card) = &mut message
        && card.host.len() > MOST_HOST
    {
        let fits = |len: &usize| card.host.is_char_boundary(*len);
        let end = (0..=MOST_HOST).rev().find(fits).unwrap_or_default();
        card.host.truncate(end);
    }
    // Writing to a vector cannot fail, and no message exceeds `MAX_BODY`.
    let body = minicbor::to_vec(&message).unwrap_or_default();
    debug_assert!((1..=MAX_BODY).contains(&body.len()));
    let len = u16::try_from(body.len()).unwrap_or_default();
    [&len.to_le_bytes()[..], &body].concat()
}

/// Decoder of the messages of one connection. Buffers at most one message.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    /// Consumes bytes of `input` up to the end of a message, and returns the message; `None` if
    /// the input ends before. After an error the connection must be closed.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Message>, MessageError> {
        if !self.fill(LENGTH_LEN, input) {
            return Ok(None);
        }
        let len = usize::from(u16::from_le_bytes([self.buffer[0], self.buffer[1]]));
        if !(1..=MAX_BODY).contains(&len) {
            return Err(MessageError::Length(len));
        }
        if !self.fill(LENGTH_LEN + len, input) {
            return Ok(None);
        }
        let message = decode(&self.buffer[LENGTH_LEN..]);
        self.buffer.clear();
        message.map(Some)
    }

    /// Fills the buffer up to `len` bytes; returns true if it has them.
    fn fill(&mut self, len: usize, input: &mut &[u8]) -> bool {
        let missing = len.saturating_sub(self.buffer.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        self.buffer.extend_from_slice(taken);
        *input = rest;
        self.buffer.len() >= len
    }
}

fn decode(body: &[u8]) -> Result<Message, MessageError> {
    let message = minicbor::decode(body).map_err(|_| MessageError::Malformed)?;
    match &message {
        Message::Card(card) if card.host.len() > MOST_HOST => {
            Err(MessageError::Host(card.host.len()))
        }
        _ => Ok(message),
    }
}

/// Length of a message's length in bytes.
const LENGTH_LEN: usize = 2;
