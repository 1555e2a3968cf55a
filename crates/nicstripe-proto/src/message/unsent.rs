//! Chunks that are not sent: holes of a sparse file, and chunks that the receiver already has
//! (`--delta`).

use minicbor::{Decode, Encode};

use crate::session::TransferId;

/// Body of [`crate::Message::Holes`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Holes {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Offset and length of each hole in bytes, in ascending order across messages. At most
    /// [`crate::hole::HOLES_PER_MESSAGE`] per message and [`crate::hole::MAX_HOLES`] per file.
    #[n(1)]
    pub extents: Vec<(u64, u64)>,
    /// True in the last message of the file.
    #[n(2)]
    pub last: bool,
}

/// Most values in one [`Values`]: 51 KiB, at 32 bytes each and at worst one range of 19 bytes each.
pub const MAX_VALUES: usize = 1024;

/// Most ranges in one [`Keep`].
pub const MAX_KEEP: usize = 1024;

/// Body of [`crate::Message::Values`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Values {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// First chunk and number of chunks of each range, in ascending order.
    #[n(1)]
    pub ranges: Vec<(u64, u64)>,
    /// Hashes of these chunks, 32 bytes each, at most [`MAX_VALUES`]. A hash of zeros marks a chunk
    /// without a value, which the sender has to send.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub values: Vec<u8>,
}

/// Body of [`crate::Message::Keep`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Keep {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// First chunk and number of chunks of each range, at most [`MAX_KEEP`].
    #[n(1)]
    pub ranges: Vec<(u64, u64)>,
}
