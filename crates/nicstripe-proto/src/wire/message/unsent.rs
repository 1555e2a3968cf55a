//! Messages about chunks that are not sent: holes of a sparse file, and chunks that the receiver
//! already has (`--delta`).

use minicbor::{Decode, Encode};

use crate::{
    file::extent::{ChunkRange, Extent},
    id::TransferId,
};

/// Sender's list of the holes in a sparse file. A long list has several messages. Body of
/// [`crate::Message::Holes`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Holes {
    /// ID of the file's transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Holes in ascending order, also across messages. At most [`crate::hole::HOLES_PER_MESSAGE`]
    /// per message and `crate::hole::MAX_HOLES` per file.
    #[n(1)]
    pub extents: Vec<Extent>,
    /// True in the last message about the file's holes.
    #[n(2)]
    pub last: bool,
}

/// Maximum number of hashes in one [`Values`]. They take 51 KiB: 32 bytes each and, in the worst
/// case, a range of 19 bytes each.
pub(crate) const MAX_VALUES: usize = 1024;

/// Maximum number of ranges in one [`Keep`].
pub(crate) const MAX_KEEP: usize = 1024;

/// Receiver's hashes of chunks in its existing file, for a delta transfer. Body of
/// [`crate::Message::Values`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Values {
    /// ID of the file's transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Hashed chunks, as ranges in ascending order: index of the first chunk, and number of chunks.
    #[n(1)]
    pub ranges: Vec<ChunkRange>,
    /// BLAKE3 chaining values of these chunks, 32 bytes each. At most `MAX_VALUES`. A value of
    /// zeros marks a chunk that the receiver could not read and that the sender must send.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub values: Vec<u8>,
}

/// Sender's list of chunks that are equal in the receiver's existing file. Body of
/// [`crate::Message::Keep`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Keep {
    /// ID of the file's transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Chunks to keep, as ranges: index of the first chunk, and number of chunks. At most
    /// `MAX_KEEP` ranges.
    #[n(1)]
    pub ranges: Vec<ChunkRange>,
}
