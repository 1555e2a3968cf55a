//! TLS 1.3 record layer after the handshake: one key per direction, sealing and opening single
//! records, and the queue of sealed ones.
//!
//! rustls runs the handshake and derives the keys. Its own record layer allocates and copies each
//! record, twice when sending and once when receiving, and one more copy brings it to its chunk:
//! 5 % more CPU for a whole copy over an unshaped cable (DESIGN, section 3). The ciphers are those
//! of ring, whose AES-GCM uses VAES without AVX-512, too.
//!
//! The wire format is that of RFC 8446, section 5.

use ring::aead::{self, Aad, LessSafeKey, UnboundKey};
use ring::error::Unspecified;
use rustls::crypto::cipher::{AeadKey, Iv, Nonce, make_tls13_aad};
use rustls::{ConnectionTrafficSecrets, ContentType};

/// Length of a record header in bytes: type, version, length (RFC 8446, section 5.2).
pub(crate) const HEADER_LEN: usize = 5;
/// Maximum number of plaintext bytes in one record (RFC 8446, section 5.1).
pub(crate) const MAX_PLAINTEXT: usize = 1 << 14;
/// Maximum value of a record's length field in bytes (RFC 8446, section 5.2).
const MAX_CIPHERTEXT: usize = MAX_PLAINTEXT + 256;
/// Size of the authentication tag in bytes, for both AES-GCM and ChaCha20-Poly1305.
const TAG_LEN: usize = 16;
/// Overhead of a record written by [`Sealer`] in bytes: header, content type and tag.
pub(crate) const RECORD_OVERHEAD: usize = HEADER_LEN + 1 + TAG_LEN;
/// Maximum length of a received record in bytes, including its header.
pub(crate) const MAX_RECORD: usize = HEADER_LEN + MAX_CIPHERTEXT;

/// Describes the first bytes of another protocol.
fn spoken(one: u8, two: u8) -> String {
    match [one, two] {
        [b'S', b'S'] => "it answers as ssh does".to_owned(),
        [b'H', b'T'] => "it answers as HTTP does".to_owned(),
        _ => format!("starts with {one:#04x} {two:#04x}"),
    }
}

/// Defect of a received record. Each of them ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// The first bytes are no content type and version of TLS: the peer speaks another protocol.
    #[error("not a TLS record: {}", spoken(*.0, *.1))]
    NotTls(u8, u8),
    /// The length field exceeds the limit of RFC 8446.
    #[error("record of {0} bytes exceeds the limit of {MAX_CIPHERTEXT}")]
    TooLong(usize),
    /// The plaintext exceeds the limit of RFC 8446.
    #[error("record of {0} plaintext bytes exceeds the limit of {MAX_PLAINTEXT}")]
    PlaintextTooLong(usize),
    /// The record is not encrypted although the keys are established.
    #[error("record of type {0} is not encrypted")]
    Unprotected(u8),
    /// The authentication tag does not match: the bytes were altered, or sealed with another key.
    #[error("record fails authentication")]
    Forged,
    /// The plaintext is all zeros: the content type is missing.
    #[error("record has no content type")]
    Untyped,
}

/// Returns the length of the first record in `bytes`, including its header; `None` if the header is
/// incomplete.
///
/// The length is at most [`MAX_RECORD`]. The record itself may be incomplete.
pub(crate) fn record_len(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    if let [kind, major, ..] = *bytes
        && !((20..=23).contains(&kind) && major == 3)
    {
        return Err(RecordError::NotTls(kind, major));
    }
    let [_, _, _, high, low, ..] = *bytes else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > MAX_CIPHERTEXT {
        return Err(RecordError::TooLong(len));
    }
    Ok(Some(HEADER_LEN + len))
}

/// Encrypts the records of one direction under one key.
pub(crate) struct Sealer {
    key: LessSafeKey,
    iv: Iv,
    /// Sequence number of the next record. Only grows: no two records share a nonce.
    next: u64,
}

impl Sealer {
    /// Creates a sealer from fresh keys; the first record has sequence number 0.
    pub(crate) fn new(secrets: ConnectionTrafficSecrets) -> Result<Self, Unspecified> {
        let (algorithm, key, iv) = parts(secrets)?;
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref())?);
        Ok(Self { key, iv, next: 0 })
    }

    /// Returns the number of records sealed under this key.
    pub(crate) fn sealed(&self) -> u64 {
        self.next
    }

    /// Encrypts `plaintext` into `record`.
    ///
    /// `plaintext` has at most [`MAX_PLAINTEXT`] bytes, and `record` exactly `RECORD_OVERHEAD`
    /// more. Otherwise fails and encrypts nothing.
    pub(crate) fn seal(
        &mut self,
        content: ContentType,
        plaintext: &[u8],
        record: &mut [u8],
    ) -> Result<(), Unspecified> {
        if record.len() != plaintext.len() + RECORD_OVERHEAD {
            return Err(Unspecified);
        }
        record[HEADER_LEN..][..plaintext.len()].copy_from_slice(plaintext);
        self.seal_in_place(content, record)
    }

    /// Encrypts the plaintext that `record` already holds from [`HEADER_LEN`] on.
    ///
    /// `record` is `RECORD_OVERHEAD` bytes longer than the plaintext, as for [`Sealer::seal`].
    pub(crate) fn seal_in_place(
        &mut self,
        content: ContentType,
        record: &mut [u8],
    ) -> Result<(), Unspecified> {
        let len = record.len().checked_sub(RECORD_OVERHEAD);
        let len = len.filter(|len| *len <= MAX_PLAINTEXT).ok_or(Unspecified)?;
        // Taken before anything can fail, so that a nonce is never reused.
        let nonce = aead_nonce(&self.iv, self.next);
        self.next = self.next.checked_add(1).ok_or(Unspecified)?;
        let header = make_tls13_aad(len + 1 + TAG_LEN);
        let (head, body) = record.split_at_mut(HEADER_LEN);
        head.copy_from_slice(&header);
        let (inner, tag) = body.split_at_mut(len + 1);
        inner[len] = u8::from(content);
        let aad = Aad::from(header);
        let made = self.key.seal_in_place_separate_tag(nonce, aad, inner)?;
        tag.copy_from_slice(made.as_ref());
        Ok(())
    }
}

/// Nonce, associated data (the header) and the record's bytes after the header.
type Begun<'a> = (aead::Nonce, Aad<[u8; HEADER_LEN]>, &'a mut [u8]);

/// Decrypts the records of one direction under one key.
pub(crate) struct Opener {
    key: LessSafeKey,
    iv: Iv,
    next: u64,
}

impl Opener {
    /// Creates an opener from fresh keys; the first record has sequence number 0.
    pub(crate) fn new(secrets: ConnectionTrafficSecrets) -> Result<Self, Unspecified> {
        let (algorithm, key, iv) = parts(secrets)?;
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref())?);
        Ok(Self { key, iv, next: 0 })
    }

    /// Decrypts `record` in place. `record` is one whole record as measured by [`record_len`].
    pub(crate) fn open<'a>(
        &mut self,
        record: &'a mut [u8],
    ) -> Result<(ContentType, &'a [u8]), RecordError> {
        let (nonce, aad, body) = self.begin(record)?;
        let padded = self.key.open_in_place(nonce, aad, body);
        let padded = padded.map_err(|_| RecordError::Forged)?;
        let (content, len) = typed(padded)?;
        Ok((content, &padded[..len]))
    }

    /// Decrypts the record of `len` bytes, as measured by [`record_len`], that begins at `at`, to the
    /// front of `bytes`. Returns the type and the length of the data; the bytes behind it have no
    /// meaning.
    ///
    /// After an error nothing in `bytes` may be used.
    pub(crate) fn open_to_front(
        &mut self,
        bytes: &mut [u8],
        at: usize,
        len: usize,
    ) -> Result<(ContentType, usize), RecordError> {
        let record = bytes.get_mut(at..at + len).ok_or(RecordError::Forged)?;
        let (nonce, aad, body) = self.begin(record)?;
        let tag = *body.last_chunk::<TAG_LEN>().ok_or(RecordError::Forged)?;
        let ciphertext = at + HEADER_LEN..at + len - TAG_LEN;
        let padded = self.key.open_in_place_separate_tag(
            nonce,
            aad,
            tag.into(),
            &mut bytes[..ciphertext.end],
            ciphertext.start..,
        );
        typed(padded.map_err(|_| RecordError::Forged)?)
    }

    /// Checks the header, takes the next nonce and returns the remainder of the record.
    fn begin<'a>(&mut self, record: &'a mut [u8]) -> Result<Begun<'a>, RecordError> {
        let (header, body) = record
            .split_at_mut_checked(HEADER_LEN)
            .ok_or(RecordError::Forged)?;
        if header[0] != u8::from(ContentType::ApplicationData) {
            return Err(RecordError::Unprotected(header[0]));
        }
        let nonce = aead_nonce(&self.iv, self.next);
        self.next = self.next.checked_add(1).ok_or(RecordError::Forged)?;
        Ok((nonce, Aad::from(make_tls13_aad(body.len())), body))
    }
}

/// Returns the content type and the length of a decrypted record: the type is its last byte that is
/// not zero.
fn typed(padded: &[u8]) -> Result<(ContentType, usize), RecordError> {
    let at = padded
        .iter()
        .rposition(|byte| *byte != 0)
        .ok_or(RecordError::Untyped)?;
    match at > MAX_PLAINTEXT {
        true => Err(RecordError::PlaintextTooLong(at)),
        false => Ok((ContentType::from(padded[at]), at)),
    }
}

/// Returns the cipher, key and IV of one of the suites that `config` offers.
fn parts(
    secrets: ConnectionTrafficSecrets,
) -> Result<(&'static aead::Algorithm, AeadKey, Iv), Unspecified> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => Ok((&aead::AES_128_GCM, key, iv)),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => Ok((&aead::AES_256_GCM, key, iv)),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            Ok((&aead::CHACHA20_POLY1305, key, iv))
        }
        _ => Err(Unspecified),
    }
}

/// Returns the nonce of a record: the IV combined with the sequence number (RFC 8446, section 5.3).
fn aead_nonce(iv: &Iv, number: u64) -> aead::Nonce {
    aead::Nonce::assume_unique_for_key(Nonce::new(iv, number).0)
}

/// Queue of encrypted bytes in one allocation: appended at its end, sent from its front.
///
/// The allocation grows only if the queue exceeds it. Bytes move to the front only if the space
/// behind them is too small. A caller that sends everything before it queues more never pays for a
/// move.
#[derive(Default)]
pub(crate) struct SendBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Total number of bytes removed from the front since creation.
    removed: u64,
}

impl SendBuffer {
    /// Creates an empty buffer of `capacity` bytes, which the kernel zeroes page by page on first
    /// use.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: vec![0; capacity],
            start: 0,
            end: 0,
            removed: 0,
        }
    }

    pub(crate) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns the number of unsent bytes.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes `sent` bytes, at most [`SendBuffer::len`], from the front.
    pub(crate) fn advance(&mut self, sent: usize) {
        let sent = sent.min(self.len());
        self.start += sent;
        self.removed += sent as u64;
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.advance(self.len());
    }

    /// Returns the total number of bytes removed from the queue, sent or dropped. The bytes queued
    /// now have left once this has grown by the current [`SendBuffer::len`].
    pub(crate) fn total_removed(&self) -> u64 {
        self.removed
    }

    /// Returns exactly `len` writable bytes behind the pending ones; [`SendBuffer::commit`] appends
    /// them.
    pub(crate) fn spare(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < len {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let needed = self.end + len;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        &mut self.bytes[self.end..needed]
    }

    /// Appends the first `len` bytes of the last [`SendBuffer::spare`] to the queue.
    pub(crate) fn commit(&mut self, len: usize) {
        self.end = (self.end + len).min(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(buffer: &mut SendBuffer, bytes: &[u8]) {
        buffer.spare(bytes.len()).copy_from_slice(bytes);
        buffer.commit(bytes.len());
    }

    #[test]
    fn bytes_leave_in_the_order_they_came_across_moves_and_growth() {
        let mut buffer = SendBuffer::with_capacity(8);
        push(&mut buffer, b"abcdef");
        buffer.advance(4);
        push(&mut buffer, b"ghij");
        assert_eq!(buffer.pending(), b"efghij");
        push(&mut buffer, b"klmnop");
        assert_eq!(buffer.pending(), b"efghijklmnop");
        buffer.advance(usize::MAX);
        assert!(buffer.is_empty());
        assert_eq!(buffer.total_removed(), 16);
    }
}
