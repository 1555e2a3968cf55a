//! Records of TLS 1.3 as nicstripe's record layer writes and reads them: AES-GCM from ring, 16 KiB
//! of plaintext each, copied from one buffer into another and sealed or opened there.
//!
//! There is no handshake. The key is fixed and public, for the bench only: it protects nothing.

use std::io;

use ring::{
    aead::{self, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey},
    error::Unspecified,
};

/// Bytes of a chunk.
pub(crate) const CHUNK: usize = 256 << 10;

/// Bytes of the plaintext before a chunk: see [`Head`].
pub(crate) const HEAD: usize = 8 + 8 + 32;

/// Bytes of the records of a chunk.
pub(crate) const RECORDS: usize = CHUNK / PLAINTEXT * (PLAINTEXT + OVERHEAD);

/// Bytes of a head and a chunk on the wire.
pub(crate) const FRAME: usize = HEAD + OVERHEAD + RECORDS;

/// Position and digest of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) offset: u64,
    /// Bytes of the file in the chunk; less than [`CHUNK`] at the end of the file.
    pub(crate) len: u64,
    pub(crate) hash: [u8; 32],
}

impl Head {
    fn encode(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.hash);
        bytes
    }

    fn decode(bytes: &[u8; HEAD]) -> Self {
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let mut hash = [0; 32];
        hash.copy_from_slice(&bytes[16..]);
        Self {
            offset: number(0),
            len: number(8),
            hash,
        }
    }
}

/// Cipher of the records.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cipher {
    /// The first choice of nicstripe on processors with instructions for AES.
    Aes128Gcm,
    Aes256Gcm,
}

impl Cipher {
    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::Aes128Gcm => &aead::AES_128_GCM,
        }
    }

    fn key(self) -> io::Result<LessSafeKey> {
        let key = UnboundKey::new(self.algorithm(), &KEY[..self.algorithm().key_len()]);
        key.map(LessSafeKey::new).map_err(failed)
    }
}

/// Encrypts the records of one connection.
pub(crate) struct Sealer {
    key: LessSafeKey,
    connection: u32,
    next: u64,
}

impl Sealer {
    /// Creates a sealer. No two sealers of a copy may have one `connection`, which is a part of the
    /// nonces.
    pub(crate) fn new(cipher: Cipher, connection: u32) -> io::Result<Self> {
        Ok(Self {
            key: cipher.key()?,
            connection,
            next: 0,
        })
    }

    /// Encrypts a head and a chunk of [`CHUNK`] bytes into `frame`, of [`FRAME`] bytes.
    pub(crate) fn seal_frame(
        &mut self,
        head: Head,
        chunk: &[u8],
        frame: &mut [u8],
    ) -> io::Result<()> {
        let (first, records) = frame.split_at_mut(HEAD + OVERHEAD);
        self.seal(&head.encode(), first).map_err(failed)?;
        self.seal_chunk(chunk, records)
    }

    /// Encrypts a chunk of [`CHUNK`] bytes into `records`, of [`RECORDS`] bytes.
    pub(crate) fn seal_chunk(&mut self, chunk: &[u8], records: &mut [u8]) -> io::Result<()> {
        let records = records.chunks_exact_mut(PLAINTEXT + OVERHEAD);
        for (plaintext, record) in chunk.chunks_exact(PLAINTEXT).zip(records) {
            self.seal(plaintext, record).map_err(failed)?;
        }
        Ok(())
    }

    fn seal(&mut self, plaintext: &[u8], record: &mut [u8]) -> Result<(), Unspecified> {
        let (header, body) = record.split_at_mut(HEADER);
        let (typed, room_for_tag) = body.split_at_mut(plaintext.len() + 1);
        let written = header_of(plaintext.len());
        header.copy_from_slice(&written);
        typed[..plaintext.len()].copy_from_slice(plaintext);
        typed[plaintext.len()] = APPLICATION_DATA;
        let nonce = nonce(self.connection, self.next);
        self.next += 1;
        let aad = Aad::from(written);
        let tag = self.key.seal_in_place_separate_tag(nonce, aad, typed)?;
        room_for_tag.copy_from_slice(tag.as_ref());
        Ok(())
    }
}

/// Decrypts the records of one connection.
pub(crate) struct Opener {
    key: LessSafeKey,
    connection: u32,
    next: u64,
}

impl Opener {
    /// Creates the opener of the records that the sealer of `connection` encrypts.
    pub(crate) fn new(cipher: Cipher, connection: u32) -> io::Result<Self> {
        Ok(Self {
            key: cipher.key()?,
            connection,
            next: 0,
        })
    }

    /// Expects the first record of the connection next.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Decrypts `frame`, of [`FRAME`] bytes, into a head and `chunk`, of [`CHUNK`] and one more
    /// byte.
    pub(crate) fn open_frame(&mut self, frame: &[u8], chunk: &mut [u8]) -> io::Result<Head> {
        let (first, records) = frame.split_at(HEAD + OVERHEAD);
        let mut bytes = [0; HEAD + 1];
        self.open(first, &mut bytes).map_err(failed)?;
        let mut head = [0; HEAD];
        head.copy_from_slice(&bytes[..HEAD]);
        self.open_chunk(records, chunk)?;
        Ok(Head::decode(&head))
    }

    /// Decrypts `records`, of [`RECORDS`] bytes, into `chunk`, of [`CHUNK`] and one more byte.
    pub(crate) fn open_chunk(&mut self, records: &[u8], chunk: &mut [u8]) -> io::Result<()> {
        // The plaintext of each record ends with its content type, over which the next one begins.
        let starts = (0..CHUNK).step_by(PLAINTEXT);
        for (start, record) in starts.zip(records.chunks_exact(PLAINTEXT + OVERHEAD)) {
            let plaintext = &mut chunk[start..=start + PLAINTEXT];
            self.open(record, plaintext).map_err(failed)?;
        }
        Ok(())
    }

    /// Decrypts a record into `plaintext`, with one byte more for the content type.
    fn open(&mut self, record: &[u8], plaintext: &mut [u8]) -> Result<(), Unspecified> {
        let (header, body) = record.split_at(HEADER);
        let (ciphertext, tag) = body.split_last_chunk::<TAG>().ok_or(Unspecified)?;
        let nonce = nonce(self.connection, self.next);
        self.next += 1;
        plaintext.copy_from_slice(ciphertext);
        self.key.open_in_place_separate_tag(
            nonce,
            Aad::from(header),
            (*tag).into(),
            plaintext,
            0..,
        )?;
        match plaintext.last() {
            Some(&APPLICATION_DATA) => Ok(()),
            _ => Err(Unspecified),
        }
    }
}

/// Returns the header of a record with `len` bytes of plaintext (RFC 8446, section 5.2).
fn header_of(len: usize) -> [u8; HEADER] {
    let [.., high, low] = (len + 1 + TAG).to_be_bytes();
    [APPLICATION_DATA, 3, 3, high, low]
}

fn nonce(connection: u32, number: u64) -> Nonce {
    let mut nonce = [0; aead::NONCE_LEN];
    nonce[..4].copy_from_slice(&connection.to_be_bytes());
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn failed(_: Unspecified) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "AES-GCM failed")
}

/// Fixed key. AES-128 uses its first half.
const KEY: [u8; 32] = *b"fixed key of a bench, not secret";

/// Bytes of plaintext in a record: the most that RFC 8446, section 5.1, allows.
const PLAINTEXT: usize = 16 << 10;

/// Bytes of a record in addition to its plaintext: header, content type, tag.
const OVERHEAD: usize = HEADER + 1 + TAG;
const HEADER: usize = 5;
const TAG: usize = 16;

/// Content type of a record with data.
const APPLICATION_DATA: u8 = 23;
