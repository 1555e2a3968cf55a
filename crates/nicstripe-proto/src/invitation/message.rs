//! Messages of an invitation's connection, and their framing.
//!
//! A message travels as the length of its body (2 bytes, little-endian, 1 to [`MAX_BODY`], later
//! [`MAX_PROVED_BODY`]) and the body, in CBOR. As in [`crate::message`], maps have small integers as keys and unknown keys are
//! ignored.

use minicbor::{Decode, Encode};

use crate::failure::truncate;

/// Maximum length of a message's body in bytes, up to the cards.
pub const MAX_BODY: usize = 512;

/// Maximum length of a message's body in bytes, once both ends have proved the code.
pub const MAX_PROVED_BODY: usize = u16::MAX as usize;

/// Maximum length of a [`Done`]'s name in bytes.
pub const MOST_NAME: usize = 255;

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
    /// Report that the sender has stored the peer's key, or that its copy is complete.
    #[n(3)]
    Done(#[n(0)] Done),
    /// Report that the sender ends the exchange.
    #[n(4)]
    Refuse(#[n(0)] Refuse),
    /// Files that the joiner wants to send in one copy.
    #[n(5)]
    Offer(#[n(0)] Offer),
    /// Consent of the inviter to an offer.
    #[n(6)]
    Accept(#[n(0)] Accept),
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

/// End of the sender's part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Done {
    /// Name under which the sender has stored the peer's key, at most [`MOST_NAME`] bytes; empty
    /// for none. It must be escaped for display.
    #[n(0)]
    pub name: String,
}

/// Offer of the joiner, and its part of the [bootstrap](crate::bootstrap).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Offer {
    /// Encoded [`bootstrap::Request`](crate::bootstrap::Request).
    #[cbor(n(0), with = "minicbor::bytes")]
    pub request: Vec<u8>,
    /// Files and directories, by the names that they are to have.
    #[n(1)]
    pub items: Vec<Item>,
}

impl Offer {
    /// Returns true if the offer fits into a message.
    pub fn fits(&self) -> bool {
        let body = Message::Offer(self.clone());
        minicbor::to_vec(&body).is_ok_and(|body| body.len() <= MAX_PROVED_BODY)
    }
}

/// File or directory of an [`Offer`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Item {
    /// Name, one component of a path. It must be escaped for display.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// True for a directory.
    #[n(1)]
    pub is_dir: bool,
    /// Number of files in it; 1 for a file. A claim.
    #[n(2)]
    pub files: u64,
    /// Bytes of these files. A claim.
    #[n(3)]
    pub bytes: u64,
    /// True for a symbolic link.
    #[cbor(n(4), default, skip_if = "std::ops::Not::not")]
    pub is_link: bool,
}

/// Inviter's part of the [bootstrap](crate::bootstrap).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Accept {
    /// Encoded [`bootstrap::Reply`](crate::bootstrap::Reply).
    #[cbor(n(0), with = "minicbor::bytes")]
    pub reply: Vec<u8>,
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
    /// The sender's user does not want the offer.
    Declined = 5,
    /// The sender has files of all offered names.
    Exists = 6,
}

impl Refusal {
    /// Returns the reason with this number; `None` if it is unknown.
    pub fn from_number(number: u32) -> Option<Self> {
        [
            Self::WrongCode,
            Self::OtherNumber,
            Self::OtherPurpose,
            Self::Stopped,
            Self::Declined,
            Self::Exists,
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
    #[error("message of {0} bytes: expected 1 to {MAX_BODY}, or {MAX_PROVED_BODY} after the cards")]
    Length(usize),
    /// The body is not the CBOR of a message.
    #[error("malformed message")]
    Malformed,
    /// The host name is too long.
    #[error("host name of {0} bytes exceeds the limit of {MOST_HOST}")]
    Host(usize),
    /// The name of a peer is too long.
    #[error("name of {0} bytes exceeds the limit of {MOST_NAME}")]
    Name(usize),
}

/// Returns the bytes of a message, with its length. A host or peer name that is too long is cut.
/// An offer must [fit](Offer::fits).
pub fn encode(message: &Message) -> Vec<u8> {
    let mut message = message.clone();
    match &mut message {
        Message::Card(card) => truncate(&mut card.host, MOST_HOST),
        Message::Done(done) => truncate(&mut done.name, MOST_NAME),
        _ => {}
    }
    // Writing to a vector cannot fail.
    let body = minicbor::to_vec(&message).unwrap_or_default();
    debug_assert!((1..=MAX_PROVED_BODY).contains(&body.len()));
    let len = u16::try_from(body.len()).unwrap_or_default();
    [&len.to_le_bytes()[..], &body].concat()
}

/// Decoder of the messages of one connection. Buffers at most one message.
#[derive(Debug)]
pub struct Reader {
    buffer: Vec<u8>,
    most: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            buffer: Vec::new(),
            most: MAX_BODY,
        }
    }
}

impl Reader {
    /// Accepts bodies of up to [`MAX_PROVED_BODY`] bytes from then on.
    pub fn proved(&mut self) {
        self.most = MAX_PROVED_BODY;
    }

    /// Consumes bytes of `input` up to the end of a message, and returns the message; `None` if
    /// the input ends before. After an error the connection must be closed.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Message>, MessageError> {
        if !self.fill(LENGTH_LEN, input) {
            return Ok(None);
        }
        let len = usize::from(u16::from_le_bytes([self.buffer[0], self.buffer[1]]));
        if !(1..=self.most).contains(&len) {
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
        Message::Done(done) if done.name.len() > MOST_NAME => {
            Err(MessageError::Name(done.name.len()))
        }
        _ => Ok(message),
    }
}

/// Length of a message's length in bytes.
const LENGTH_LEN: usize = 2;
