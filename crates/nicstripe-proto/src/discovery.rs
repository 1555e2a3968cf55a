//! Discovery of daemons and inviters on a link, before either machine has a usable address.
//!
//! A client multicasts a [`Question`] (a query) to [`GROUP`] on each interface. A daemon that has
//! the right to answer sends a [`Response`] to the query's source address. Both messages are signed.
//! Decoding yields an [`Unverified`] message: its claims are readable at once, the message itself
//! only after a check of the signature. Keys and signatures are plain bytes; the caller provides
//! the cryptography.
//!
//! A client that joins an [`invitation`](crate::invitation) asks for its number with datagrams of
//! other kinds. Daemons do not answer these, and an inviter answers no others.
//!
//! A datagram of either kind has [`DATAGRAM_LEN`] bytes, little-endian:
//!
//! ```text
//! offset  size  field               question                       answer
//!      0     8  magic               "NICSTRD\n"                    the same
//!      8     1  version             1                              the same
//!      9     1  kind                1; 3 for an invitation        2; 4 for an invitation
//!     10     2  port                0; number of an invitation     TCP port of the daemon
//!     12     4  index               0                              index of daemon's interface
//!     16    32  nonce               random, new for each question  that of the question
//!     48    32  key                 public key of the client       public key of the daemon
//!     80    16  address             link-local, of the client      link-local, of the daemon
//!     96    32  asker's key         0                              key of the question
//!    128    16  asker's address     0                              address of the question
//!    144    16  interface           0                              name of daemon's interface
//!    160    64  host                0                              name of the daemon's host
//!    224    64  signature           Ed25519, by the key at 48, of DOMAIN and the 224 bytes before
//! ```
//!
//! Names are padded with 0.
//!
//! Design:
//! - Queries and answers have equal length, so a daemon cannot amplify traffic to a forged source.
//! - The signed addresses are compared with the addresses of the datagram. A recorded query can
//!   therefore not be replayed from another address, and a daemon's answer cannot contain a foreign
//!   address.
//! - The answer contains the key of the client and the nonce. It is valid only for this client and
//!   this query.
//! - `DOMAIN` begins with a letter. TLS 1.3 signatures with the same keys begin with 64 spaces, so
//!   no signature is valid for both purposes.

mod limiter;

use std::net::Ipv6Addr;

pub use self::limiter::Limiter;
use crate::invitation::Number;

/// Destination of queries: nicstripe's link-local, transient (RFC 4291) multicast group.
///
/// The group ID is "nics" with its first bit set, as required for unregistered groups (RFC 3307,
/// section 4.3).
pub const GROUP: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0xee69, 0x6373);

/// Length of a query or an answer in bytes.
pub const DATAGRAM_LEN: usize = TEXT_LEN + SIGNATURE_LEN;

/// Maximum length of a host name in an answer, in bytes.
pub(crate) const MOST_HOST: usize = 64;

/// Prefix of the signed text, which separates it from other uses of the key. The first 224 bytes of
/// the datagram follow.
pub(crate) const DOMAIN: &[u8] = b"nicstripe discovery, version 1\0";

/// Ed25519 public key (RFC 8032).
pub type Key = [u8; 32];

/// Ed25519 signature (RFC 8032).
pub type Signature = [u8; SIGNATURE_LEN];

/// Random bytes that bind an answer to its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 32]);

/// Client's query for daemons, or for the inviter with a number, on one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Random value, new for each query.
    pub nonce: Nonce,
    /// Ed25519 public key of the client.
    pub key: Key,
    /// Link-local address of the client. The client sends from this address, and daemons answer to
    /// it.
    pub address: Ipv6Addr,
    /// Number of the invitation that the client searches for; `None` for daemons.
    pub invitation: Option<Number>,
}

impl Question {
    /// Encodes the query and signs it with `sign`; `None` if signing fails.
    pub fn encode(
        &self,
        sign: impl FnOnce(&[u8]) -> Option<Signature>,
    ) -> Option<[u8; DATAGRAM_LEN]> {
        let mut datagram = Layout::new(Kind::of_question(self.invitation.is_some()));
        let number = self.invitation.map_or(0, Number::get);
        datagram.set(PORT, &number.to_le_bytes());
        datagram.set(NONCE, &self.nonce.0);
        datagram.set(KEY, &self.key);
        datagram.set(ADDRESS, &self.address.octets());
        datagram.signed(sign)
    }

    /// Decodes a query of either kind; `None` for any other datagram, or if an unused field is not
    /// zero.
    pub fn decode(datagram: &[u8]) -> Option<Unverified<Self>> {
        let (read, is_invitation) = Layout::read(datagram, Kind::of_question)?;
        let number = u16::from_le_bytes(read.array(PORT));
        let invitation = match is_invitation {
            true => Some(Number::new(number)?),
            false if number == 0 => None,
            false => return None,
        };
        let blank = [INDEX, ASKER_KEY, ASKER_ADDRESS, INTERFACE, HOST];
        if blank
            .into_iter()
            .any(|field| read.get(field).iter().any(|byte| *byte != 0))
        {
            return None;
        }
        let key = read.array(KEY);
        let question = Self {
            nonce: Nonce(read.array(NONCE)),
            key,
            address: read.address(ADDRESS)?,
            invitation,
        };
        Some(Unverified {
            message: question,
            key,
            layout: read,
        })
    }
}

/// Response of a daemon or an inviter to a query, with its address, port and names on one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Nonce of the answered query.
    pub nonce: Nonce,
    /// Ed25519 public key of the daemon.
    pub key: Key,
    /// Link-local address of the daemon's interface. The daemon answers from this address.
    pub address: Ipv6Addr,
    /// TCP port on which the daemon listens. Never 0.
    pub port: u16,
    /// Index of the interface on the daemon's machine.
    pub index: u32,
    /// Name of the interface on the daemon's machine: 1 to 16 arbitrary bytes without NUL.
    pub interface: Vec<u8>,
    /// Host name of the daemon: at most `MOST_HOST` bytes without NUL. The daemon chooses the name,
    /// which is unverified and must be escaped for display.
    pub host: Vec<u8>,
    /// Ed25519 public key of the client that sent the query.
    pub asker_key: Key,
    /// Link-local address of the client that sent the query.
    pub asker_address: Ipv6Addr,
    /// True for an inviter's answer to a question with a number. The nonce binds it to that number.
    pub invitation: bool,
}

impl Response {
    /// Encodes the answer and signs it with `sign`; `None` if signing fails. Truncates names that
    /// are too long.
    pub fn encode(
        &self,
        sign: impl FnOnce(&[u8]) -> Option<Signature>,
    ) -> Option<[u8; DATAGRAM_LEN]> {
        let mut datagram = Layout::new(Kind::of_answer(self.invitation));
        datagram.set(PORT, &self.port.to_le_bytes());
        datagram.set(INDEX, &self.index.to_le_bytes());
        datagram.set(NONCE, &self.nonce.0);
        datagram.set(KEY, &self.key);
        datagram.set(ADDRESS, &self.address.octets());
        datagram.set(ASKER_KEY, &self.asker_key);
        datagram.set(ASKER_ADDRESS, &self.asker_address.octets());
        datagram.set(INTERFACE, &self.interface);
        datagram.set(HOST, &self.host);
        datagram.signed(sign)
    }

    /// Decodes an answer of either kind; `None` for any other datagram.
    pub fn decode(datagram: &[u8]) -> Option<Unverified<Self>> {
        let (read, invitation) = Layout::read(datagram, Kind::of_answer)?;
        let key = read.array(KEY);
        let answer = Self {
            nonce: Nonce(read.array(NONCE)),
            key,
            address: read.address(ADDRESS)?,
            port: u16::from_le_bytes(read.array(PORT)),
            index: u32::from_le_bytes(read.array(INDEX)),
            interface: read.padded(INTERFACE)?,
            host: read.padded(HOST)?,
            asker_key: read.array(ASKER_KEY),
            asker_address: read.address(ASKER_ADDRESS)?,
            invitation,
        };
        let whole = answer.port != 0 && !answer.interface.is_empty();
        whole.then_some(Unverified {
            message: answer,
            key,
            layout: read,
        })
    }

    /// Returns true if the answer is of the query's kind and has its nonce, key and address.
    pub fn answers(&self, question: &Question) -> bool {
        self.invitation == question.invitation.is_some()
            && self.nonce == question.nonce
            && self.asker_key == question.key
            && self.asker_address == question.address
    }
}

/// Query or answer whose signature has not been checked.
#[derive(Clone, Debug)]
pub struct Unverified<T> {
    message: T,
    key: Key,
    layout: Layout,
}

impl<T> Unverified<T> {
    /// Returns the unverified content. Use it only to decide whether to check the signature.
    pub fn claims(&self) -> &T {
        &self.message
    }

    /// Returns the message if `check` returns true; otherwise `None`. `check` is called with the
    /// key, the signed text and the signature.
    pub fn verified(self, check: impl FnOnce(&Key, &[u8], &Signature) -> bool) -> Option<T> {
        let signature = self.layout.array(SIGNATURE);
        check(&self.key, &self.layout.text(), &signature).then_some(self.message)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Question = 1,
    Response = 2,
    InvitationQuestion = 3,
    InvitationResponse = 4,
}

impl Kind {
    fn of_question(is_invitation: bool) -> Self {
        match is_invitation {
            false => Self::Question,
            true => Self::InvitationQuestion,
        }
    }

    fn of_answer(is_invitation: bool) -> Self {
        match is_invitation {
            false => Self::Response,
            true => Self::InvitationResponse,
        }
    }
}

/// Position of a field in the datagram: offset and length in bytes.
#[derive(Clone, Copy)]
struct Field(usize, usize);

/// Bytes of a datagram, with accessors for its fields.
#[derive(Clone, Debug)]
struct Layout([u8; DATAGRAM_LEN]);

impl Layout {
    fn new(kind: Kind) -> Self {
        let mut layout = Self([0; DATAGRAM_LEN]);
        layout.set(MAGIC, MAGIC_BYTES);
        layout.set(VERSION_AND_KIND, &[VERSION, kind as u8]);
        layout
    }

    /// Returns a copy of the datagram, and true if it is about an invitation. Returns `None` if its
    /// length, magic or version is wrong, or if its kind is neither of `kind`.
    fn read(datagram: &[u8], kind: fn(bool) -> Kind) -> Option<(Self, bool)> {
        let layout = Self(datagram.try_into().ok()?);
        if layout.get(MAGIC) != MAGIC_BYTES {
            return None;
        }
        let is =
            |invitation: &bool| layout.get(VERSION_AND_KIND) == [VERSION, kind(*invitation) as u8];
        let invitation = [false, true].into_iter().find(is)?;
        Some((layout, invitation))
    }

    fn get(&self, Field(start, len): Field) -> &[u8] {
        self.0.get(start..start + len).unwrap_or_default()
    }

    fn array<const N: usize>(&self, field: Field) -> [u8; N] {
        self.get(field).try_into().unwrap_or([0; N])
    }

    /// Reads an IPv6 address; `None` if the address is not link-local.
    fn address(&self, field: Field) -> Option<Ipv6Addr> {
        let address = Ipv6Addr::from(self.array::<16>(field));
        address.is_unicast_link_local().then_some(address)
    }

    /// Reads a zero-padded text up to the first NUL; `None` if a nonzero byte follows the NUL.
    fn padded(&self, field: Field) -> Option<Vec<u8>> {
        let bytes = self.get(field);
        let (text, padding) = bytes.split_at(
            bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len()),
        );
        padding.iter().all(|byte| *byte == 0).then(|| text.to_vec())
    }

    /// Writes `value`, truncated to the field's length.
    fn set(&mut self, Field(start, len): Field, value: &[u8]) {
        for (target, byte) in self.0.iter_mut().skip(start).take(len).zip(value) {
            *target = *byte;
        }
    }

    fn text(&self) -> Vec<u8> {
        [DOMAIN, self.get(Field(0, TEXT_LEN))].concat()
    }

    fn signed(
        mut self,
        sign: impl FnOnce(&[u8]) -> Option<Signature>,
    ) -> Option<[u8; DATAGRAM_LEN]> {
        let signature = sign(&self.text())?;
        self.set(SIGNATURE, &signature);
        Some(self.0)
    }
}

const MAGIC_BYTES: &[u8] = b"NICSTRD\n";
const VERSION: u8 = 1;

const MAGIC: Field = Field(0, 8);
const VERSION_AND_KIND: Field = Field(8, 2);
const PORT: Field = Field(10, 2);
const INDEX: Field = Field(12, 4);
const NONCE: Field = Field(16, 32);
const KEY: Field = Field(48, 32);
const ADDRESS: Field = Field(80, 16);
const ASKER_KEY: Field = Field(96, 32);
const ASKER_ADDRESS: Field = Field(128, 16);
const INTERFACE: Field = Field(144, 16);
const HOST: Field = Field(160, MOST_HOST);
const SIGNATURE: Field = Field(TEXT_LEN, SIGNATURE_LEN);

/// Length in bytes of the datagram before its signature.
const TEXT_LEN: usize = 224;
const SIGNATURE_LEN: usize = 64;

#[cfg(test)]
mod tests;
