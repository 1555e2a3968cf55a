//! Results of a session's jobs on the I/O threads.

use nicstripe_proto::{ChainingValue, ChunkId, DataHeader, Digest, PathId, Subtree, TransferId};

use crate::{
    file::{ChunkBuffer, FileError, WriteError},
    report::error::Error,
};

#[derive(Debug)]
pub(crate) enum IoResult {
    Read {
        path: PathId,
        transfer: TransferId,
        chunk: ChunkId,
        result: Result<(ChainingValue, ChunkBuffer), FileError>,
    },
    Hashed {
        transfer: TransferId,
        chunk: ChunkId,
        result: Result<ChainingValue, FileError>,
    },
    ZerosHashed {
        transfer: TransferId,
        result: Result<Subtree, FileError>,
    },
    HolesMade {
        transfer: TransferId,
        result: Result<(), FileError>,
    },
    Compared {
        transfer: TransferId,
        chunk: ChunkId,
        result: Result<Option<ChainingValue>, FileError>,
    },
    Written {
        path: PathId,
        header: DataHeader,
        result: Result<(), WriteError>,
    },
    Verified {
        path: PathId,
        header: DataHeader,
        buffer: ChunkBuffer,
        result: Result<(), WriteError>,
    },
    /// A sink has consumed all data, or failed.
    Drained {
        transfer: TransferId,
        result: Result<(), FileError>,
    },
    Synced {
        transfer: TransferId,
        result: Result<(), FileError>,
    },
    Checked {
        transfer: TransferId,
        result: Result<(), FileError>,
    },
    Committed {
        transfer: TransferId,
        digest: Digest,
        result: Result<(), FileError>,
    },
    /// A failed transfer's written data is synced, as far as possible.
    Flushed {
        transfer: TransferId,
        error: Box<Error>,
    },
}
