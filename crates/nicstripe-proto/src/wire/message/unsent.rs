//! Messages about chunks that are not sent: holes of a sparse file, and chunks that the receiver
//! already has (`--delta`).

use minicbor::{Decode, Encode};

use crate::{
    file::extent::{ChunkRange, Extent},
    id::TransferId,
};

/// Sender's list of holes in a sparse file, possibly in several messages. Body of
/// [`crate::Message::Holes`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Holes {
    /// ID of the file's transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Holes in ascending order across messages. At most
    /// [`crate::hole::HOLES_PER_MESSAGE`] per message and `crate::hole::MAX_HOLES` per file.
    #[n(1)]
    pub extents: Vec<Extent>,
    /// True in the last message about the file.
    #[n(2)]
    pub last: bool,
}

/// Maximum number of hashes in one [`Values`]: 51 KiB, at 32 bytes each and at worst one range of
/// 19 bytes each.
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
    /// Chunks that are hashed, as ranges in ascending order: index of the first chunk and number of
    /// chunks.
    #[n(1)]
    pub ranges: Vec<ChunkRange>,
    /// BLAKE3 chaining values of these chunks, 32 bytes each, at most `MAX_VALUES`. A value of
    /// zeros marks an unreadable chunk, which the sender has to send.
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
    /// Chunks to keep, as at most `MAX_KEEP` ranges: index of the first chunk and number of
    /// chunks.
    #[n(1)]
    pub ranges: Vec<ChunkRange>,
}
