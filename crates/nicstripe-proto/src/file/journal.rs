//! Resume journal: durable subtrees of a file, in a format that survives a kill or a power cut at
//! any byte.
//!
//! This module encodes and decodes. The receiver must write and sync in this order: data,
//! `fdatasync` of the file, then [`Record`]s of the synced data. A record is therefore never ahead
//! of its data, and a lost record only costs some retransmissions.
//!
//! To resume, [`Header::decode`] reads the first [`HEADER_LEN`] bytes, and [`Replay`] reads the
//! rest in pieces of any length. The receiver truncates the journal to [`Replayed::valid_len`]
//! before it appends.

use std::time::{Duration, SystemTime};

use minicbor::{Decode, Encode};

use super::{
    extent::ChunkId,
    grid::{ChunkSize, Grid, InvalidChunkSize},
    hash_tree::{ChainingValue, HashTree, Subtree},
};

/// Length of a [`Header`] in bytes.
pub const HEADER_LEN: usize = 128;

/// Length of a [`Record`] in bytes.
pub const RECORD_LEN: usize = 64;

/// Version of the journal layout. Journals of other versions are neither written nor read.
pub const VERSION: u16 = 1;

/// Header of a journal: identifies the file, its source and the peer.
///
/// Little-endian, 128 bytes:
///
/// ```text
/// offset  size  field
///      0     8  magic              "NICSTRJ\n"
///      8     2  version            1
///     10     1  chunk size         binary logarithm of the bytes, 12 to 22
///     11     5  reserved           0
///     16     8  file size          bytes
///     24     8  source size        bytes, as stat(2) gives it
///     32     8  source mtime       whole seconds since 1970, signed
///     40     8  source ctime       whole seconds since 1970, signed
///     48     4  source mtime       nanoseconds
///     52     4  source ctime       nanoseconds
///     56     8  source inode
///     64     8  source device
///     72    32  peer key           public key of the other end
///    104    16  journal id         random
///    120     4  reserved           0
///    124     4  checksum           CRC-32C of the 124 bytes before
/// ```
///
/// Magic and version have the same place in all versions, so that every version can identify any
/// other; the other fields may move. The checksum is last and covers all bytes before it. Integers
/// are aligned. File size and source size differ if stat(2) does not report the size, as for a
/// block device. The length is a multiple of [`RECORD_LEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Size of the file and of its chunks.
    pub grid: Grid,
    /// Identity of the source file at the first attempt.
    pub source: SourceIdentity,
    /// Public key of the sender. Only this peer may resume the file.
    pub peer_key: [u8; 32],
    /// Random ID. The checksum of each record includes this ID.
    pub id: JournalId,
}

/// Random ID that binds records to their journal.
///
/// A file system may reuse blocks of a deleted journal. The checksums of the old records include
/// another ID, so a reader rejects these records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JournalId(pub [u8; 16]);

/// Identity of a source file, to detect changes between two attempts of a transfer.
///
/// The sender reads the identity with stat(2). Other machines may only compare two identities for
/// equality. The identity includes the change time, because the modification time can be set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(map)]
pub struct SourceIdentity {
    /// Size of the file in bytes.
    #[n(0)]
    pub size: u64,
    /// Modification time of the source (`st_mtim`).
    #[n(1)]
    pub mtime: Timestamp,
    /// Change time of the source's content or attributes (`st_ctim`).
    #[n(2)]
    pub ctime: Timestamp,
    /// Inode number of the file (`st_ino`).
    #[n(3)]
    pub inode: u64,
    /// Number of the device that contains the file (`st_dev`).
    #[n(4)]
    pub device: u64,
}

impl SourceIdentity {
    /// Compares this recorded identity with the current identity `found`.
    ///
    /// # Errors
    ///
    /// Returns [`SourceChanged`] with the first difference: size, modification time, change time,
    /// then inode and device.
    pub fn check(&self, found: &SourceIdentity) -> Result<(), SourceChanged> {
        let recorded = *self;
        if recorded.size != found.size {
            return Err(SourceChanged::Size {
                recorded: recorded.size,
                found: found.size,
            });
        }
        if recorded.mtime != found.mtime {
            return Err(SourceChanged::Modified);
        }
        if recorded.ctime != found.ctime {
            return Err(SourceChanged::Attributes);
        }
        if (recorded.inode, recorded.device) != (found.inode, found.device) {
            return Err(SourceChanged::Replaced {
                recorded: recorded.inode,
                found: found.inode,
            });
        }
        Ok(())
    }
}

/// File time, as in stat(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC. Negative for earlier times.
    #[n(0)]
    pub seconds: i64,
    /// Nanoseconds within the second.
    #[n(1)]
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Returns the time; `None` if [`SystemTime`] cannot represent it.
    pub fn to_system_time(self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.seconds.unsigned_abs());
        let whole = match self.seconds {
            0.. => SystemTime::UNIX_EPOCH.checked_add(seconds),
            _ => SystemTime::UNIX_EPOCH.checked_sub(seconds),
        };
        whole?.checked_add(Duration::from_nanos(
            self.nanoseconds.min(999_999_999).into(),
        ))
    }
}

/// Difference between a source file and its recorded identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceChanged {
    /// The size of the source differs.
    #[error("source has another size: {recorded} recorded, {found} found")]
    Size {
        /// Recorded size of the source in bytes.
        recorded: u64,
        /// Current size of the source in bytes.
        found: u64,
    },
    /// The modification time of the source differs.
    #[error("source was modified since")]
    Modified,
    /// The change time of the source differs: the content changed, or an attribute such as the mode
    /// or the link count.
    #[error("content or attributes of the source changed since")]
    Attributes,
    /// The inode or device of the source differs: another file now has the name.
    #[error("source was replaced by another file: inode {recorded} recorded, {found} found")]
    Replaced {
        /// Recorded inode number of the source.
        recorded: u64,
        /// Current inode number. Equals the recorded one if only the device differs.
        found: u64,
    },
}

impl Header {
    /// Encodes the header, including its checksum.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let Header {
            grid,
            source,
            peer_key,
            id,
        } = self;
        let mut bytes = [0; HEADER_LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, VERSION.to_le_bytes());
        put(&mut bytes, 10, [grid.chunk_size.log2()]);
        put(&mut bytes, 16, grid.size.to_le_bytes());
        put(&mut bytes, 24, source.size.to_le_bytes());
        put(&mut bytes, 32, source.mtime.seconds.to_le_bytes());
        put(&mut bytes, 40, source.ctime.seconds.to_le_bytes());
        put(&mut bytes, 48, source.mtime.nanoseconds.to_le_bytes());
        put(&mut bytes, 52, source.ctime.nanoseconds.to_le_bytes());
        put(&mut bytes, 56, source.inode.to_le_bytes());
        put(&mut bytes, 64, source.device.to_le_bytes());
        put(&mut bytes, 72, *peer_key);
        put(&mut bytes, 104, id.0);
        let checksum = crc32c::crc32c(&bytes[..HEADER_CRC]);
        put(&mut bytes, HEADER_CRC, checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header at the start of a journal. Ignores the bytes after the header.
    ///
    /// # Errors
    ///
    /// Returns [`HeaderError`] if the bytes do not start with a complete and valid header of this
    /// version. The journal is then unusable, and the transfer must start from the beginning.
    pub fn decode(journal: &[u8]) -> Result<Header, HeaderError> {
        let Some(bytes) = journal.first_chunk::<HEADER_LEN>() else {
            return Err(HeaderError::Torn { len: journal.len() });
        };
        if take::<8>(bytes, 0) != MAGIC {
            return Err(HeaderError::Magic {
                found: take(bytes, 0),
            });
        }
        let version = u16::from_le_bytes(take(bytes, 8));
        if version != VERSION {
            return Err(HeaderError::Version { found: version });
        }
        let (recorded, computed) = (
            u32::from_le_bytes(take(bytes, HEADER_CRC)),
            crc32c::crc32c(&bytes[..HEADER_CRC]),
        );
        if recorded != computed {
            return Err(HeaderError::Checksum { recorded, computed });
        }
        let u64_at = |at| u64::from_le_bytes(take(bytes, at));
        let timestamp_at = |seconds, nanoseconds| Timestamp {
            seconds: i64::from_le_bytes(take(bytes, seconds)),
            nanoseconds: u32::from_le_bytes(take(bytes, nanoseconds)),
        };
        Ok(Header {
            grid: Grid::new(u64_at(16), ChunkSize::from_log2(bytes[10])?),
            source: SourceIdentity {
                size: u64_at(24),
                mtime: timestamp_at(32, 48),
                ctime: timestamp_at(40, 52),
                inode: u64_at(56),
                device: u64_at(64),
            },
            peer_key: take(bytes, 72),
            id: JournalId(take(bytes, 104)),
        })
    }
}

/// Reason why a journal's header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The journal ends within the header.
    #[error("journal has {len} bytes, expected at least {HEADER_LEN}")]
    Torn {
        /// Length of the journal in bytes.
        len: usize,
    },
    /// The file does not begin with the journal's magic number.
    #[error("not a journal: it starts with {:?}, expected {:?}", found.escape_ascii().to_string(), MAGIC.escape_ascii().to_string())]
    Magic {
        /// First eight bytes of the file.
        found: [u8; 8],
    },
    /// The journal has an unknown layout version.
    #[error("journal has layout version {found}, expected {VERSION}")]
    Version {
        /// Layout version of the journal.
        found: u16,
    },
    /// The checksum of the header is wrong.
    #[error(
        "journal header is damaged: checksum {recorded:#010x} recorded, {computed:#010x} computed"
    )]
    Checksum {
        /// Checksum stored in the header.
        recorded: u32,
        /// Checksum computed from the header's other bytes.
        computed: u32,
    },
    /// The header is intact, but its chunk size is invalid.
    #[error("journal cannot be used")]
    ChunkSize(#[from] InvalidChunkSize),
}

/// Entry of a journal: a durable subtree and its chaining value.
///
/// Little-endian, 64 bytes:
///
/// ```text
/// offset  size  field
///      0     1  type               1: durable subtree
///      1     1  level              binary logarithm of the number of chunks
///      2     6  reserved           0
///      8     8  first chunk
///     16    32  chaining value
///     48    12  reserved           0
///     60     4  checksum           CRC-32C of the journal id and the 60 bytes before
/// ```
///
/// The nonzero type comes first, because file systems leave zeros at the end of a file after a
/// power cut. Zeros are thus never a record, whatever the checksum. No record of 64 bytes crosses a
/// sector boundary, so a torn write loses whole records. The fixed size makes it easy to find the
/// end of the valid part. Sequence numbers are not needed: each record is valid for the life of the
/// journal, independent of the other records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Subtree of the file that is durable.
    pub subtree: Subtree,
}

impl Record {
    /// Encodes the record, with the checksum for the journal `id`.
    pub fn encode(&self, id: JournalId) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        put(&mut bytes, 0, [TYPE_SUBTREE, self.subtree.level]);
        put(&mut bytes, 8, self.subtree.first.0.to_le_bytes());
        put(&mut bytes, 16, self.subtree.value.0);
        let checksum = record_checksum(&bytes, id);
        put(&mut bytes, RECORD_CRC, checksum.to_le_bytes());
        bytes
    }

    /// Decodes a record of the journal `id`; `None` if the record is damaged or belongs to another
    /// journal.
    ///
    /// Does not check that the subtree fits the file; [`Replay`] does.
    pub(crate) fn decode(bytes: &[u8; RECORD_LEN], id: JournalId) -> Option<Record> {
        let intact = u32::from_le_bytes(take(bytes, RECORD_CRC)) == record_checksum(bytes, id);
        let reserved_is_zero = take::<6>(bytes, 2) == [0; 6] && take::<12>(bytes, 48) == [0; 12];
        if !intact || !reserved_is_zero || bytes[0] != TYPE_SUBTREE {
            return None;
        }
        let first = ChunkId(u64::from_le_bytes(take(bytes, 8)));
        Some(Record {
            subtree: Subtree {
                first,
                level: bytes[1],
                value: ChainingValue(take(bytes, 16)),
            },
        })
    }
}

/// Reader of a journal's records. The caller passes the bytes after the header in pieces of any
/// length.
///
/// Stops at the first record that is damaged or torn, belongs to another journal, lies outside the
/// file, or contradicts an earlier record. Records may repeat or contain each other, for example
/// after a resume. Memory grows with the number of gaps between durable ranges
/// ([`HashTree::subtrees`]), not with the length of the journal.
#[derive(Clone, Debug)]
pub struct Replay {
    header: Header,
    tree: HashTree,
    /// Incomplete record at the end of the input. Only the first `partial_len` bytes are valid.
    partial: [u8; RECORD_LEN],
    partial_len: usize,
    record_count: u64,
    damaged: bool,
}

impl Replay {
    /// Returns a reader of the records that follow `header`.
    pub const fn new(header: Header) -> Replay {
        Replay {
            header,
            tree: HashTree::new(header.grid),
            partial: [0; RECORD_LEN],
            partial_len: 0,
            record_count: 0,
            damaged: false,
        }
    }

    /// Reads the next bytes of the journal. Returns false after an invalid record; further bytes
    /// are then ignored.
    pub fn feed(&mut self, mut bytes: &[u8]) -> bool {
        while !self.damaged && !bytes.is_empty() {
            let len = bytes.len().min(RECORD_LEN - self.partial_len);
            let (now, later) = bytes.split_at(len);
            self.partial[self.partial_len..][..len].copy_from_slice(now);
            self.partial_len += len;
            bytes = later;
            if self.partial_len == RECORD_LEN {
                self.on_record();
            }
        }
        !self.damaged
    }

    /// Returns the content of the journal up to the first invalid record.
    pub fn finish(self) -> Replayed {
        let valid_len = HEADER_LEN as u64 + self.record_count * RECORD_LEN as u64;
        Replayed {
            header: self.header,
            tree: self.tree,
            valid_len,
            tail_is_torn: self.damaged || self.partial_len > 0,
        }
    }

    fn on_record(&mut self) {
        let record = Record::decode(&self.partial, self.header.id);
        let believed = record.is_some_and(|record| self.tree.absorb(record.subtree).is_ok());
        if believed {
            self.record_count += 1;
            self.partial_len = 0;
        } else {
            self.damaged = true;
        }
    }
}

/// Valid content of a journal, from [`Replay::finish`] or [`replay`].
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Header of the journal.
    pub header: Header,
    /// Hash tree of the durable chunks. The transfer continues with this tree.
    pub tree: HashTree,
    /// Length of the valid part in bytes, including the header. The receiver must truncate the
    /// journal to this length before it appends.
    pub valid_len: u64,
    /// True if bytes follow the valid part, such as a torn or damaged record.
    pub tail_is_torn: bool,
}

impl Replayed {
    /// Returns the minimal subtrees that cover the durable chunks, in ascending order.
    pub fn subtrees(&self) -> Vec<Subtree> {
        self.tree.subtrees().collect()
    }
}

/// Reads a complete journal: the header and the records.
///
/// # Errors
///
/// Returns [`HeaderError`] like [`Header::decode`]. Damaged records are not an error; see
/// [`Replay`].
pub fn replay(journal: &[u8]) -> Result<Replayed, HeaderError> {
    let mut replay = Replay::new(Header::decode(journal)?);
    replay.feed(&journal[HEADER_LEN..]);
    Ok(replay.finish())
}

fn record_checksum(bytes: &[u8; RECORD_LEN], id: JournalId) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&id.0), &bytes[..RECORD_CRC])
}

/// Writes `field` at byte offset `at`. Cannot overrun, because all offsets are constants of this
/// module.
fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// Reads the field at byte offset `at`. Cannot overrun, because all offsets are constants of this
/// module.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

const MAGIC: [u8; 8] = *b"NICSTRJ\n";
const TYPE_SUBTREE: u8 = 1;
/// Byte offset of a header's checksum. The checksum covers all bytes before it.
const HEADER_CRC: usize = HEADER_LEN - 4;
/// Byte offset of a record's checksum. The checksum covers the journal ID and all bytes before it.
const RECORD_CRC: usize = RECORD_LEN - 4;

#[cfg(test)]
mod tests;
