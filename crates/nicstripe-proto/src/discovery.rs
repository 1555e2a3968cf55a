//! Discovery: how two machines find each other on a cable before either has an address that means anything.
//!
//! Whoever looks for daemons sends a [`Question`] to [`GROUP`] on each interface; a daemon that may answer sends an [`Answer`] back to the
//! address that asked. Both are signed, and a datagram is taken apart into an [`Unverified`] message, which shows what it claims and gives
//! the message itself only to whoever has the signature checked. Keys and signatures are bytes here; the mathematics is the caller's.
//!
//! A datagram, in either direction, has [`DATAGRAM_LEN`] bytes, integers little-endian:
//!
//! ```text
//! offset  size  field               question                       answer
//!      0     8  magic               "NICSTRD\n"                    the same
//!      8     1  version             1                              the same
//!      9     1  kind                1                              2
//!     10     2  port                0                              TCP port of the daemon
//!     12     4  index               0                              index of the daemon's interface
//!     16    32  nonce               random, new for each question  that of the question
//!     48    32  key                 public key of who asks         public key of the daemon
//!     80    16  address             link-local, of who asks        link-local, of the daemon
//!     96    32  asker's key         0                              key of the question
//!    128    16  asker's address     0                              address of the question
//!    144    16  interface           0                              name of the daemon's interface, padded with 0
//!    160    64  host                0                              name of the daemon's host, padded with 0
//!    224    64  signature           Ed25519, by the key at 48, of DOMAIN and the 224 bytes before
//! ```
//!
//! Why it is so:
//! - Question and answer have one length, so that no daemon sends more than it got, wherever the question's source was forged to.
//! - The addresses are signed and compared with the datagram's own: a question that was overheard cannot be asked again from elsewhere, and
//!   nobody can put an address of his own under a daemon's answer.
//! - The asker's key and nonce are in the answer: it is believed by the one who asked, for the question that he asked, and by nobody else.
//! - [`DOMAIN`] begins with a letter. What TLS 1.3 signs with the same keys begins with 64 blanks, so neither can pass for the other.

mod limiter;

use std::net::Ipv6Addr;

pub use self::limiter::{Limiter, TokenBucket};

/// Where questions go: the link-local, transient (RFC 4291) multicast group of nicstripe.
///
/// The group's number is "nics" with its first bit set, as for all groups that nobody registered (RFC 3307, section 4.3).
pub const GROUP: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0xee69, 0x6373);

/// Bytes of a question, and of an answer.
pub const DATAGRAM_LEN: usize = TEXT_LEN + SIGNATURE_LEN;

/// Most bytes of a host's name in an answer.
pub const MOST_HOST: usize = 64;

/// What precedes the datagram's own bytes in the text that is signed.
pub const DOMAIN: &[u8] = b"nicstripe discovery, version 1\0";

/// An Ed25519 public key (RFC 8032).
pub type Key = [u8; 32];

/// An Ed25519 signature (RFC 8032).
pub type Signature = [u8; SIGNATURE_LEN];

/// Random bytes by which an answer is known to belong to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 32]);

/// "Who is there?", on one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Drawn anew for each question.
    pub nonce: Nonce,
    /// Who asks.
    pub key: Key,
    /// Link-local address that it is asked from, and answered to.
    pub address: Ipv6Addr,
}

impl Question {
    /// Lays the question out, signed. `sign` gets the text; `None` where it cannot sign.
    pub fn encode(&self, sign: impl FnOnce(&[u8]) -> Option<Signature>) -> Option<[u8; DATAGRAM_LEN]> {
        let mut datagram = Layout::new(Kind::Question);
        datagram.set(NONCE, &self.nonce.0);
        datagram.set(KEY, &self.key);
        datagram.set(ADDRESS, &self.address.octets());
        datagram.signed(sign)
    }

    /// Reads a question. `None` for any other datagram, and for one that says what a question has no place for.
    pub fn decode(datagram: &[u8]) -> Option<Unverified<Self>> {
        let read = Layout::read(datagram, Kind::Question)?;
        let blank = [PORT, INDEX, ASKER_KEY, ASKER_ADDRESS, INTERFACE, HOST];
        if blank.into_iter().any(|field| read.get(field).iter().any(|byte| *byte != 0)) {
            return None;
        }
        let key = read.array(KEY);
        let question = Self { nonce: Nonce(read.array(NONCE)), key, address: read.address(ADDRESS)? };
        Some(Unverified { message: question, key, layout: read })
    }
}

/// "I am", from one of a daemon's interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// That of the question.
    pub nonce: Nonce,
    /// The daemon.
    pub key: Key,
    /// The daemon's link-local address on this interface, which the answer is sent from.
    pub address: Ipv6Addr,
    /// TCP port that the daemon listens on; never 0.
    pub port: u16,
    /// The daemon's number of its interface.
    pub index: u32,
    /// The daemon's name of its interface: 1 to 16 bytes without a zero, nothing else is promised.
    pub interface: Vec<u8>,
    /// What the daemon's host calls itself: at most [`MOST_HOST`] bytes without a zero. A hint for people; it proves nothing, and whoever
    /// shows it escapes it.
    pub host: Vec<u8>,
    /// Who asked.
    pub asker_key: Key,
    /// Where it was asked from.
    pub asker_address: Ipv6Addr,
}

impl Answer {
    /// Lays the answer out, signed; names that are too long are cut. `sign` gets the text; `None` where it cannot sign.
    pub fn encode(&self, sign: impl FnOnce(&[u8]) -> Option<Signature>) -> Option<[u8; DATAGRAM_LEN]> {
        let mut datagram = Layout::new(Kind::Answer);
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

    /// Reads an answer. `None` for any other datagram.
    pub fn decode(datagram: &[u8]) -> Option<Unverified<Self>> {
        let read = Layout::read(datagram, Kind::Answer)?;
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
        };
        let whole = answer.port != 0 && !answer.interface.is_empty();
        whole.then_some(Unverified { message: answer, key, layout: read })
    }

    /// Whether it was given to this question.
    pub fn answers(&self, question: &Question) -> bool {
        self.nonce == question.nonce && self.asker_key == question.key && self.asker_address == question.address
    }
}

/// A message whose signature nobody has checked.
#[derive(Clone, Debug)]
pub struct Unverified<T> {
    message: T,
    key: Key,
    layout: Layout,
}

impl<T> Unverified<T> {
    /// What it claims; good for deciding whether to check it, and for nothing else.
    pub fn claims(&self) -> &T {
        &self.message
    }

    /// Returns the message if `check` finds that the key made the signature of the text.
    pub fn verified(self, check: impl FnOnce(&Key, &[u8], &Signature) -> bool) -> Option<T> {
        let signature = self.layout.array(SIGNATURE);
        check(&self.key, &self.layout.text(), &signature).then_some(self.message)
    }
}

/// What a datagram is.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Question = 1,
    Answer = 2,
}

/// Where a field begins and how many bytes it has.
#[derive(Clone, Copy)]
struct Field(usize, usize);

/// A datagram, field by field.
#[derive(Clone, Debug)]
struct Layout([u8; DATAGRAM_LEN]);

impl Layout {
    fn new(kind: Kind) -> Self {
        let mut layout = Self([0; DATAGRAM_LEN]);
        layout.set(MAGIC, MAGIC_BYTES);
        layout.set(VERSION_AND_KIND, &[VERSION, kind as u8]);
        layout
    }

    /// Takes a datagram of this length, magic, version and kind.
    fn read(datagram: &[u8], kind: Kind) -> Option<Self> {
        let layout = Self(datagram.try_into().ok()?);
        let fits = layout.get(MAGIC) == MAGIC_BYTES && layout.get(VERSION_AND_KIND) == [VERSION, kind as u8];
        fits.then_some(layout)
    }

    fn get(&self, Field(start, len): Field) -> &[u8] {
        self.0.get(start..start + len).unwrap_or_default()
    }

    fn array<const N: usize>(&self, field: Field) -> [u8; N] {
        self.get(field).try_into().unwrap_or([0; N])
    }

    /// Reads the address of a neighbour; `None` for any that could be elsewhere.
    fn address(&self, field: Field) -> Option<Ipv6Addr> {
        let address = Ipv6Addr::from(self.array::<16>(field));
        address.is_unicast_link_local().then_some(address)
    }

    /// Reads bytes up to the first zero; `None` where others follow it.
    fn padded(&self, field: Field) -> Option<Vec<u8>> {
        let bytes = self.get(field);
        let (text, padding) = bytes.split_at(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        padding.iter().all(|byte| *byte == 0).then(|| text.to_vec())
    }

    /// Writes as much of `value` as fits.
    fn set(&mut self, Field(start, len): Field, value: &[u8]) {
        for (place, byte) in self.0.iter_mut().skip(start).take(len).zip(value) {
            *place = *byte;
        }
    }

    /// What is signed.
    fn text(&self) -> Vec<u8> {
        [DOMAIN, self.get(Field(0, TEXT_LEN))].concat()
    }

    fn signed(mut self, sign: impl FnOnce(&[u8]) -> Option<Signature>) -> Option<[u8; DATAGRAM_LEN]> {
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

/// Bytes before the signature.
const TEXT_LEN: usize = 224;
const SIGNATURE_LEN: usize = 64;

#[cfg(test)]
mod tests;
