//! Batches: the chunks of a tree transfer. A batch is a sequence of records.
//!
//! Each record is a header of 16 bytes and a body.
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 1 | kind: 1 entry, 2 end of a directory, 3 piece of a file, 4 abandoned file, 5 trouble, 6 special |
//! | 1 | 1 | flags; see the kinds |
//! | 2 | 2 | 0 |
//! | 4 | 4 | bytes of the body, at most the rest of the batch |
//! | 8 | 8 | ID of the entry |
//!
//! - Entry: its CBOR.
//! - End: no body. Flag 1 means that the sender could read the whole directory.
//! - Piece: its offset in the file (8 bytes), then its content. Flag 1 marks the last piece of the
//!   file.
//! - Abandoned file: the CBOR of a [`Reason`]. No more content follows, and the receiver discards
//!   the pieces that it has.
//! - Trouble: the CBOR of a [`Trouble`], with ID 0.
//! - Special: the CBOR of a [`Special`], with ID 0.

use minicbor::{Decode, Encode};

use super::{
    entry::{Entry, EntryId},
    share::LargeFile,
};
use crate::{failure::FailCode, file::name::Name};

/// Decoded record of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// Entry of the tree: an object that the sender's walk found.
    Entry(Box<Entry>),
    /// End of a directory. The directory's last entry precedes this record.
    EndDirectory {
        /// ID of the directory's entry.
        id: EntryId,
        /// True if the sender could read the whole directory. If false, the receiver must not
        /// delete surplus objects in its copy of the directory.
        complete: bool,
    },
    /// Piece of the content of a file that the receiver wants. The pieces of a file are in order
    /// and without gaps.
    Piece {
        /// ID of the file's entry.
        id: EntryId,
        /// Offset of the piece in the file, in bytes.
        offset: u64,
        /// True for the last piece of the file.
        last: bool,
        /// Content of the piece. Empty only for an empty file.
        bytes: &'a [u8],
    },
    /// Failure of a file that the receiver wants. No more content follows.
    Abandoned {
        /// ID of the file's entry.
        id: EntryId,
        /// Reason of the failure: the source cannot be read, or it changed during the read.
        reason: Reason,
    },
    /// Object that cannot be sent as an entry.
    Trouble(Box<Trouble>),
    /// FIFO, socket or device that is not copied.
    Special(Box<Special>),
}

/// Reason why an object is not sent.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Reason {
    /// Machine-readable category of the failure.
    #[n(0)]
    pub code: FailCode,
    /// Human-readable error: the operation and the object, in one line of at most 1 KiB. The end
    /// that displays the text must escape it.
    #[n(1)]
    pub text: String,
}

/// Object that the sender found in its walk and cannot send.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Trouble {
    /// Path of the object relative to the target; `None` if the path is not a valid name.
    #[n(0)]
    pub name: Option<Name>,
    /// Reason why the object is not sent.
    #[n(1)]
    pub reason: Reason,
    /// Display name of an object without a valid name, at most 1 KiB; `None` if `name` is present.
    /// The end that displays the text must escape it.
    #[n(2)]
    pub label: Option<String>,
}

/// FIFO, socket or device that the sender found in its walk and does not send, or a large file that is sent
/// in pieces.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Special {
    /// Path of the object relative to the target.
    #[n(0)]
    pub name: Name,
    /// Pieces of a large file, which are not part of the tree; `None` for other objects.
    #[n(1)]
    pub large: Option<LargeFile>,
}

/// Length of a record's header in bytes.
pub const RECORD_HEADER: usize = 16;

/// Length in bytes of a [`Record::Piece`] without its content.
pub const PIECE_HEADER: usize = RECORD_HEADER + 8;

/// Encoder of a batch into a buffer of fixed size.
#[derive(Debug)]
pub struct BatchWriter<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> BatchWriter<'a> {
    /// Returns an encoder that appends records after the first `len` bytes of `buffer`.
    pub fn new(buffer: &'a mut [u8], len: usize) -> Self {
        let len = len.min(buffer.len());
        Self { buffer, len }
    }

    /// Returns the current length of the batch in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the batch has no records.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of free bytes in the buffer.
    pub(crate) fn room(&self) -> usize {
        self.buffer.len() - self.len
    }

    /// Appends a record. Returns false and leaves the batch unchanged if the record does not fit.
    pub fn push(&mut self, record: &Record<'_>) -> bool {
        match record {
            Record::Entry(entry) => self.put_cbor(KIND_ENTRY, entry.id, entry),
            Record::EndDirectory { id, complete } => {
                self.put(KIND_END, u8::from(*complete), *id, &[])
            }
            Record::Piece {
                id,
                offset,
                last,
                bytes,
            } => self.put(
                KIND_PIECE,
                u8::from(*last),
                *id,
                &[&offset.to_le_bytes(), bytes],
            ),
            Record::Abandoned { id, reason } => self.put_cbor(KIND_ABANDONED, *id, reason),
            Record::Special(special) => self.put_cbor(KIND_SPECIAL, EntryId(0), special),
            Record::Trouble(trouble) => self.put_cbor(KIND_TROUBLE, EntryId(0), trouble),
        }
    }

    fn put_cbor(&mut self, kind: u8, id: EntryId, body: &impl Encode<()>) -> bool {
        // Encoding into a vector cannot fail.
        let body = minicbor::to_vec(body).unwrap_or_default();
        self.put(kind, 0, id, &[&body])
    }

    fn put(&mut self, kind: u8, flags: u8, id: EntryId, body: &[&[u8]]) -> bool {
        let len: usize = body.iter().map(|part| part.len()).sum();
        if RECORD_HEADER + len > self.room() {
            return false;
        }
        self.append(&[kind, flags, 0, 0]);
        self.append(&(len as u32).to_le_bytes());
        self.append(&id.0.to_le_bytes());
        body.iter().for_each(|part| self.append(part));
        true
    }

    fn append(&mut self, bytes: &[u8]) {
        self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Decoder of a batch: an iterator over its records.
#[derive(Debug)]
pub struct BatchReader<'a>(&'a [u8]);

impl<'a> BatchReader<'a> {
    /// Returns a decoder at the first record of `batch`.
    pub fn new(batch: &'a [u8]) -> Self {
        Self(batch)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], BatchError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BatchError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn record(&mut self) -> Result<Record<'a>, BatchError> {
        let header = self.take(RECORD_HEADER)?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let id = EntryId(u64::from(word(8)) | u64::from(word(12)) << 32);
        let (kind, flags) = (header[0], header[1]);
        if header[2..4] != [0, 0] || flags > u8::from(matches!(kind, KIND_END | KIND_PIECE)) {
            return Err(BatchError::Reserved);
        }
        let body = self.take(word(4) as usize)?;
        match kind {
            KIND_ENTRY => {
                let entry: Entry = decode("entry", body)?;
                if entry.id != id {
                    return Err(BatchError::Number {
                        header: id.0,
                        body: entry.id.0,
                    });
                }
                Ok(Record::Entry(Box::new(entry)))
            }
            KIND_PIECE => {
                let (offset, bytes) = body
                    .split_first_chunk()
                    .ok_or_else(|| malformed("piece of a file", "shorter than its offset"))?;
                Ok(Record::Piece {
                    id,
                    offset: u64::from_le_bytes(*offset),
                    last: flags == 1,
                    bytes,
                })
            }
            KIND_END if !body.is_empty() => Err(malformed("end of a directory", "not empty")),
            KIND_END => Ok(Record::EndDirectory {
                id,
                complete: flags == 1,
            }),
            KIND_ABANDONED => Ok(Record::Abandoned {
                id,
                reason: decode("reason of an abandoned file", body)?,
            }),
            KIND_TROUBLE => decode("report of trouble", body).map(Record::Trouble),
            KIND_SPECIAL => decode("special file", body).map(Record::Special),
            kind => Err(BatchError::Kind(kind)),
        }
    }
}

/// Decodes the CBOR body of a record. `what` is the kind of content in the error text. Returns an
/// error if the body is malformed.
fn decode<'a, T: Decode<'a, ()>>(what: &'static str, body: &'a [u8]) -> Result<T, BatchError> {
    minicbor::decode(body).map_err(|error| malformed(what, error))
}

fn malformed(what: &'static str, error: impl ToString) -> BatchError {
    BatchError::Body {
        what,
        error: error.to_string(),
    }
}

/// Iterates over the records of the batch. Ends after the last record or the first error.
impl<'a> Iterator for BatchReader<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.0 = &[];
        }
        Some(record)
    }
}

/// Reason why a batch is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The last record extends beyond the end of the batch.
    #[error("peer sent a batch with a truncated last record")]
    Short,
    /// A record has a nonzero reserved byte or an unknown flag.
    #[error("peer sent a batch with reserved bits set")]
    Reserved,
    /// The kind of a record is unknown.
    #[error("peer sent a batch with a record of kind {0}, expected 1 to 6")]
    Kind(u8),
    /// The body of a record is not valid for its kind.
    #[error("peer sent a batch with a malformed {what}: {error}")]
    Body {
        /// Kind of the malformed content, for the error text.
        what: &'static str,
        /// Reason why the body is invalid.
        error: String,
    },
    /// The entry ID in a record's body differs from the ID in its header.
    #[error("peer sent entry {body} under number {header}")]
    Number {
        /// Entry ID in the record's header.
        header: u64,
        /// Entry ID in the record's body.
        body: u64,
    },
}

const KIND_ENTRY: u8 = 1;
const KIND_END: u8 = 2;
const KIND_PIECE: u8 = 3;
const KIND_ABANDONED: u8 = 4;
const KIND_TROUBLE: u8 = 5;
const KIND_SPECIAL: u8 = 6;
