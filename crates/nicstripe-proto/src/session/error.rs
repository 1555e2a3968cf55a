//! Protocol violations by the peer.

use super::config::MAX_OPEN_TRANSFERS;
use crate::{
    file::{grid::MOST_SIZE, hole::HoleError},
    path::reliable::ReliableError,
    transfer::receiver::ArrivalError,
};

/// Protocol violation by the peer on a path. The driver must end the path; the session continues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Invalid sequence number of a control message or acknowledgement.
    #[error(transparent)]
    Reliable(#[from] ReliableError),
    /// Invalid chunk, or invalid end of a transfer.
    #[error(transparent)]
    Arrival(#[from] ArrivalError),
    /// Invalid list of holes.
    #[error(transparent)]
    Holes(#[from] HoleError),
    /// Message about a chunk that is not being compared, or whose comparison is complete.
    #[error("peer sent {what} of chunk {chunk}, which is not being compared")]
    Compared {
        /// Kind of message, for the error text.
        what: &'static str,
        /// Index of the chunk.
        chunk: u64,
    },
    /// Frame or message that is not allowed at this point of a connection.
    #[error("peer sent {0} in the middle of a connection")]
    Unexpected(&'static str),
    /// Control message that cannot be decoded.
    #[error("peer sent a control message that cannot be read: {0}")]
    Message(String),
    /// Data frame that exceeds the credit granted on the connection.
    #[error("peer sent a chunk beyond its credit")]
    Credit,
    /// Message about a transfer in the wrong state.
    #[error("peer sent {what} for transfer {transfer}, which is not {expected}")]
    Transfer {
        /// Kind of message, for the error text.
        what: &'static str,
        /// ID of the transfer.
        transfer: u32,
        /// State that the message requires, for the error text.
        expected: &'static str,
    },
    /// Acknowledgement of a chunk that was never sent.
    #[error("peer acknowledged chunk {chunk} of transfer {transfer}, which was never sent")]
    NeverSent {
        /// ID of the chunk's transfer.
        transfer: u32,
        /// Index of the chunk.
        chunk: u64,
    },
    /// Transfer that exceeds the limit of concurrent transfers.
    #[error("peer exceeded the limit of {MAX_OPEN_TRANSFERS} open transfers")]
    TooManyTransfers,
    /// Unsupported chunk size, given as its base-2 logarithm.
    #[error("peer offered a file with chunks of 2^{0} bytes, expected 2^12 to 2^18")]
    ChunkSize(u8),
    /// Request about a file or directory that is not allowed now.
    #[error("peer sent request {id} {what}")]
    Ask {
        /// ID of the request.
        id: u32,
        /// Kind of violation, for the error text.
        what: &'static str,
    },
    /// Answer that does not match any request.
    #[error("peer answered request {id} {what}")]
    Answer {
        /// ID of the request in the answer.
        id: u32,
        /// Kind of violation, for the error text.
        what: &'static str,
    },
    /// File larger than the protocol's limit. Contains the file's size in bytes.
    #[error("peer offered a file of {0} bytes, the limit is {MOST_SIZE}")]
    FileSize(u64),
}
