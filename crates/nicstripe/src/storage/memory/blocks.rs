//! Sparse file content in memory. Blocks that were never written take no memory.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

/// Memory quota of a [`MemoryStorage`](super::MemoryStorage), in bytes.
#[derive(Debug)]
pub(super) struct Space {
    most: u64,
    used: AtomicU64,
}

impl Space {
    pub(super) fn of(most: u64) -> Self {
        Self {
            most,
            used: AtomicU64::new(0),
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Returns an error if allocating `bytes` bytes would exceed the quota.
    pub(super) fn check(&self, bytes: u64) -> io::Result<()> {
        let free = self.most.saturating_sub(self.used());
        if bytes <= free {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("{bytes} bytes needed, {free} free"),
        ))
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.most);
        let taken = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
        taken
            .map(drop)
            .map_err(|_| io::Error::new(io::ErrorKind::StorageFull, "the storage is full"))
    }

    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// Sparse content of one file. Unwritten bytes read as zeros, also past the end.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Blocks by index, each as long as the data written to it.
    blocks: BTreeMap<u64, Vec<u8>>,
    /// Total length of the blocks in bytes.
    bytes: u64,
    space: Arc<Space>,
}

impl Blocks {
    pub(super) fn new(space: Arc<Space>) -> Self {
        Self {
            blocks: BTreeMap::new(),
            bytes: 0,
            space,
        }
    }

    /// Returns the memory used by the content, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the content and leaves an empty one.
    pub(super) fn take(&mut self) -> Self {
        let space = self.space.clone();
        std::mem::replace(self, Self::new(space))
    }

    /// Writes bytes at `offset`. Copies them without holding the lock, so that concurrent writers do
    /// not wait for each other.
    pub(super) fn write(shared: &Mutex<Self>, bytes: &[u8], offset: u64) -> io::Result<()> {
        pieces(offset, bytes.len()).try_for_each(|piece| {
            let copied = bytes[piece.range()].to_vec();
            shared.lock().write_piece(&piece, copied)
        })
    }

    fn write_piece(&mut self, piece: &Piece, bytes: Vec<u8>) -> io::Result<()> {
        let end = piece.within + piece.len;
        let found = self.blocks.get(&piece.block).map_or(0, Vec::len);
        let more = end.saturating_sub(found) as u64;
        self.space.take(more)?;
        self.bytes += more;
        let block = self.blocks.entry(piece.block).or_default();
        if piece.within == 0 && block.len() <= piece.len {
            *block = bytes;
        } else {
            block.resize(block.len().max(end), 0);
            block[piece.within..end].copy_from_slice(&bytes);
        }
        Ok(())
    }

    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) {
        for piece in pieces(offset, bytes.len()) {
            let to = &mut bytes[piece.range()];
            let block = self
                .blocks
                .get(&piece.block)
                .and_then(|block| block.get(piece.within..))
                .unwrap_or_default();
            let stored_len = block.len().min(to.len());
            to[..stored_len].copy_from_slice(&block[..stored_len]);
            to[stored_len..].fill(0);
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.space.release(self.bytes);
    }
}

/// Part of a byte range to write that lies in one block.
struct Piece {
    block: u64,
    /// Offset of the part in the block, in bytes.
    within: usize,
    /// Offset of the part in the byte range, in bytes.
    from: usize,
    len: usize,
}

impl Piece {
    fn range(&self) -> std::ops::Range<usize> {
        self.from..self.from + self.len
    }
}

/// Splits a range of `len` bytes at file offset `offset` at block boundaries.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = offset + from as u64;
        let within = (at % BLOCK) as usize;
        let piece = Piece {
            block: at / BLOCK,
            within,
            from,
            len: (BLOCK as usize - within).min(len - from),
        };
        from += piece.len;
        (piece.len > 0).then_some(piece)
    })
}

/// Block size in bytes. Equal to the chunk size, so that a chunk is stored in one piece.
const BLOCK: u64 = 256 << 10;
