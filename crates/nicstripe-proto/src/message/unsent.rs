//! What spares bytes: holes of a sparse file, and chunks that the receiver's file has already.

use minicbor::{Decode, Encode};

use crate::session::TransferId;

/// Body of [`crate::Message::Holes`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Holes {
    /// The transfer.
    #[n(0)]
    pub transfer: TransferId,
    /// Offset and length of holes, in ascending order from message to message, at most [`crate::hole::HOLES_PER_MESSAGE`] here and
    /// [`crate::hole::MAX_HOLES`] of a file.
    #[n(1)]
    pub extents: Vec<(u64, u64)>,
    /// Whether these were all.
    #[n(2)]
    pub last: bool,
}

/// Most values in one [`Values`]: with 32 bytes each, and a range of 19 for each at worst, 51 KiB.
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
    /// The values of these chunks, 32 bytes each, at most [`MAX_VALUES`]; all zeros where there is none, and the chunk has to be sent.
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
