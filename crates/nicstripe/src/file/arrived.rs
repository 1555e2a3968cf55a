//! A chunk that has arrived, until it is written or kept.

use nicstripe_proto::{DataHeader, Grid, PathId, hash_tree::piece_value};

use super::{ChunkBuffer, FileError, compress::unpack};

/// A chunk on its way to the file, or to whoever takes what is kept in memory.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) path: PathId,
    pub(crate) header: DataHeader,
    pub(crate) buffer: ChunkBuffer,
}

/// Why a chunk was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Its bytes do not have the value that was sent with them.
    #[error("chunk is damaged")]
    Damaged,
    #[error(transparent)]
    File(#[from] FileError),
}

impl Arrived {
    /// Unpacks a chunk that came compressed, and compares its bytes with the value that was sent with them.
    ///
    /// # Errors
    ///
    /// [`WriteError::Damaged`]; the buffer is then worth nothing.
    pub(crate) fn verify(&mut self, grid: Grid) -> Result<(), WriteError> {
        if self.header.raw_len > 0 {
            let room = self.buffer.another();
            self.buffer = unpack(self.buffer.bytes(), self.header.raw_len, room).map_err(|_| WriteError::Damaged)?;
        }
        let value = piece_value(grid, self.header.chunk, self.buffer.bytes(), self.header.last);
        if value == Ok(self.header.value) { Ok(()) } else { Err(WriteError::Damaged) }
    }
}
