//! Received chunks, which are verified before they are written.

use nicstripe_proto::{DataHeader, Grid, PathId, hash_tree::piece_value};

use super::{buffer::ChunkBuffer, compress::unpack, error::FileError};

/// Received chunk with its header and the path it arrived on.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) path: PathId,
    pub(crate) header: DataHeader,
    pub(crate) buffer: ChunkBuffer,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The bytes of the chunk do not match the hash in its header.
    #[error("chunk is damaged")]
    Damaged,
    #[error(transparent)]
    File(#[from] FileError),
}

impl Arrived {
    /// Decompresses the chunk if it is compressed, and compares its bytes with the hash in its
    /// header.
    ///
    /// # Errors
    ///
    /// [`WriteError::Damaged`] if the compressed frame is invalid or the hash differs. The content
    /// of the buffer is then undefined.
    pub(crate) fn verify(&mut self, grid: Grid) -> Result<(), WriteError> {
        if self.header.raw_len > 0 {
            let room = self.buffer.another();
            self.buffer = unpack(self.buffer.bytes(), self.header.raw_len, room)
                .ok_or(WriteError::Damaged)?;
        }
        let value = piece_value(
            grid,
            self.header.chunk,
            self.buffer.bytes(),
            self.header.last,
        );
        if value == Ok(self.header.value) {
            Ok(())
        } else {
            Err(WriteError::Damaged)
        }
    }
}
