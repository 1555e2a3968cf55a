//! Pool of reusable chunk buffers, aligned for direct I/O.

use std::sync::Arc;

use parking_lot::Mutex;

/// Alignment of buffers for direct I/O in bytes: a page, which is also the largest common sector
/// size.
const ALIGNMENT: usize = 4096;

/// Size of a buffer in bytes: a chunk, alignment overhead, and room for the overhead of encryption.
const MEMORY: usize = nicstripe_proto::frame::MAX_PAYLOAD + 2 * ALIGNMENT;

/// Maximum number of idle buffers kept: 32 × 256 KiB = 8 MiB, one path's send window.
const MOST_IDLE: usize = 32;

/// Buffer for the bytes of one chunk, at an aligned address. Returned to its pool on drop.
#[derive(Debug)]
pub(crate) struct ChunkBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    pool: Arc<Mutex<Memory>>,
}

#[derive(Debug, Default)]
struct Memory {
    idle: Vec<Vec<u8>>,
    /// Total size of the buffers in use, in bytes.
    in_use: u64,
}

impl ChunkBuffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// Sets the buffer's length to `len` bytes and returns them for overwriting; they contain old
    /// data.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        self.len = len.min(self.memory.len() - self.start);
        &mut self.memory[self.start..self.start + self.len]
    }

    /// Appends bytes to the buffer; returns false if they do not fit.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.room().get_mut(..bytes.len()) else {
            return false;
        };
        room.copy_from_slice(bytes);
        self.fill(bytes.len());
        true
    }

    /// Returns the bytes behind those of the buffer, for overwriting. [`fill`](Self::fill) then makes
    /// them part of it.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.start + self.len..]
    }

    /// Appends the next `len` bytes, which are in the [`room`](Self::room), or as many as fit.
    pub(crate) fn fill(&mut self, len: usize) {
        self.len = (self.len + len).min(self.memory.len() - self.start);
    }

    pub(crate) fn another(&self) -> ChunkBuffer {
        BufferPool(self.pool.clone()).take()
    }
}

impl Drop for ChunkBuffer {
    fn drop(&mut self) {
        let mut pool = self.pool.lock();
        pool.in_use -= self.memory.len() as u64;
        if pool.idle.len() < MOST_IDLE {
            pool.idle.push(std::mem::take(&mut self.memory));
        }
    }
}

/// Pool of chunk buffers. The send window bounds the buffers in use, not the pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct BufferPool(Arc<Mutex<Memory>>);

impl BufferPool {
    /// Returns an empty buffer for a chunk of at most [`nicstripe_proto::frame::MAX_PAYLOAD`]
    /// bytes.
    pub(crate) fn take(&self) -> ChunkBuffer {
        let idle = {
            let mut pool = self.0.lock();
            pool.in_use += MEMORY as u64;
            pool.idle.pop()
        };
        let memory = idle.unwrap_or_else(|| vec![0; MEMORY]);
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        ChunkBuffer {
            memory,
            start,
            len: 0,
            pool: self.0.clone(),
        }
    }

    /// Returns the size of the buffers in use in bytes, without idle ones.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        self.0.lock().in_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_used_again() {
        let pool = BufferPool::default();
        let mut buffer = pool.take();
        let start = buffer.bytes_mut(1).as_ptr().cast::<u8>();
        assert_eq!(start.align_offset(ALIGNMENT), 0);
        assert_eq!(pool.bytes_in_use(), MEMORY as u64);
        drop(buffer);
        assert_eq!((pool.bytes_in_use(), pool.0.lock().idle.len()), (0, 1));
        let _again = pool.take();
        assert!(pool.0.lock().idle.is_empty());
    }

    #[test]
    fn a_chunk_that_does_not_fit_is_refused() {
        let mut buffer = BufferPool::default().take();
        assert!(buffer.append(&[1; nicstripe_proto::frame::MAX_PAYLOAD]));
        assert!(!buffer.append(&[1; 2 * ALIGNMENT + 1]));
        assert_eq!(buffer.bytes().len(), nicstripe_proto::frame::MAX_PAYLOAD);
    }
}
