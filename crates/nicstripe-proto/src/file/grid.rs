//! Fixed chunk grid of a file. A chunk is addressed only by its index, and each end computes the
//! chunk's offset.
//!
//! Both ends agree on the file size and the chunk size once. No offset or length from the peer then
//! determines where bytes are written. All chunks have the same size except the last, which ends
//! with the file.

use std::fmt;

use super::extent::{ChunkId, ChunkRange, Extent};

/// Size of a chunk in bytes: a power of two from 4 KiB to 4 MiB.
///
/// A power of two makes each chunk a subtree of the BLAKE3 tree. The minimum of 4 KiB aligns chunks
/// for direct writes. The maximum of 4 MiB limits the cost of retransmitting a damaged chunk (0.03
/// s at 1 Gbit/s).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkSize {
    /// Base-2 logarithm of the size in bytes. Invariant: in `MIN.log2..=MAX.log2`.
    log2: u8,
}

impl ChunkSize {
    /// Minimum chunk size: 4 KiB.
    pub const MIN: ChunkSize = ChunkSize { log2: 12 };

    /// Maximum chunk size: 4 MiB.
    pub(crate) const MAX: ChunkSize = ChunkSize { log2: 22 };

    /// Default chunk size: 256 KiB.
    ///
    /// A frame carries at most 256 KiB, so a chunk is one frame. An assignment can end after any
    /// frame without leaving part of a chunk on an abandoned path. A chunk takes 0.2 s on a 10
    /// Mbit/s link, the slowest link of practical use.
    pub const DEFAULT: ChunkSize = ChunkSize { log2: 18 };

    /// Returns the chunk size of 2^`log2` bytes. The logarithm is the form on the wire and in the
    /// journal.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidChunkSize`] unless `log2` is from 12 to 22.
    pub const fn from_log2(log2: u8) -> Result<ChunkSize, InvalidChunkSize> {
        if log2 >= ChunkSize::MIN.log2 && log2 <= ChunkSize::MAX.log2 {
            return Ok(ChunkSize { log2 });
        }
        Err(InvalidChunkSize(log2))
    }

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.log2
    }

    /// Returns the base-2 logarithm of the size in bytes, from 12 to 22.
    pub const fn log2(self) -> u8 {
        self.log2
    }
}

/// Returns [`ChunkSize::DEFAULT`].
impl Default for ChunkSize {
    fn default() -> ChunkSize {
        ChunkSize::DEFAULT
    }
}

/// Formats the size in bytes.
impl fmt::Display for ChunkSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.bytes(), f)
    }
}

impl fmt::Debug for ChunkSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkSize({})", self.bytes())
    }
}

/// Chunk size that is out of range. Contains the size's base-2 logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid chunk size 2^{0}: expected 2^12 to 2^22")]
pub struct InvalidChunkSize(pub(crate) u8);

/// Chunk grid of one file: file size and chunk size.
///
/// Any file size is valid with any chunk size. An empty file has no chunks.
///
/// ```
/// use nicstripe_proto::extent::{ChunkId, Extent};
/// use nicstripe_proto::grid::{ChunkSize, Grid};
///
/// let grid = Grid::new(600_000, ChunkSize::DEFAULT);
/// assert_eq!(grid.chunk_count(), 3);
/// assert_eq!(grid.extent_of(ChunkId(2)), Some(Extent { offset: 524_288, len: 75_712 }));
/// assert_eq!(grid.extent_of(ChunkId(3)), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Size of the file in bytes.
    pub size: u64,
    /// Size of every chunk except the last, which ends with the file.
    pub chunk_size: ChunkSize,
}

impl Grid {
    /// Returns the grid of a file with `size` bytes.
    pub const fn new(size: u64, chunk_size: ChunkSize) -> Grid {
        Grid { size, chunk_size }
    }

    /// Returns an open grid: the grid of a transfer of unknown length.
    pub const fn open(chunk_size: ChunkSize) -> Grid {
        Grid {
            size: MOST_SIZE,
            chunk_size,
        }
    }

    /// Returns true if the length of the transfer is unknown.
    pub const fn is_open(self) -> bool {
        self.size == MOST_SIZE
    }

    /// Returns the number of chunks in the file, at most 2⁵².
    pub const fn chunk_count(self) -> u64 {
        self.size.div_ceil(self.chunk_size.bytes())
    }

    /// Returns the range of all chunks of the file. The range is empty for an empty file.
    pub(crate) const fn all_chunks(self) -> ChunkRange {
        ChunkRange {
            first: ChunkId(0),
            count: self.chunk_count(),
        }
    }

    /// Returns the extent of `chunk`; `None` if the file has no such chunk.
    ///
    /// The extent is never empty and never extends beyond the end of the file.
    pub fn extent_of(self, chunk: ChunkId) -> Option<Extent> {
        self.extent_of_range(chunk.into())
    }

    /// Returns the extent of `range`; `None` if the range is empty or the file lacks some of its
    /// chunks.
    pub fn extent_of_range(self, range: ChunkRange) -> Option<Extent> {
        let end = range.first.0.checked_add(range.count)?;
        if range.count == 0 || end > self.chunk_count() {
            return None;
        }
        // The offset is below the size, because the first chunk exists. The end of the last chunk
        // may exceed the size, and even 64 bits.
        let offset = range.first.0 << self.chunk_size.log2;
        let len = range
            .count
            .saturating_mul(self.chunk_size.bytes())
            .min(self.size - offset);
        Some(Extent { offset, len })
    }

    /// Returns the size of the file in bytes; 0 while the size is unknown.
    pub fn known_size(self) -> u64 {
        if self.is_open() { 0 } else { self.size }
    }

    /// Returns the total length in bytes of the chunks in `range`; 0 if the file lacks some of
    /// them.
    pub(crate) fn range_bytes(self, range: ChunkRange) -> u64 {
        self.extent_of_range(range).map_or(0, |extent| extent.len)
    }
}

/// Placeholder size in bytes of an open grid: 2⁶², half of the range of `off_t`. No file is that
/// large.
pub const MOST_SIZE: u64 = 1 << 62;

/// Kind and layout of a transfer's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Chunks of a file. The size is known at the start.
    File(Grid),
    /// Chunks of a stream. The size is unknown until the stream's end. All chunks but the last have
    /// the full size.
    Pipe(ChunkSize),
    /// Batches of a tree. Each batch has any length up to the full size, and the transfer has no
    /// digest.
    Batches(ChunkSize),
}

impl Shape {
    /// Returns the chunk grid of the transfer. The grid is open if the length is unknown.
    pub(crate) const fn grid(self) -> Grid {
        match self {
            Shape::File(grid) => grid,
            Shape::Pipe(chunk_size) | Shape::Batches(chunk_size) => Grid::open(chunk_size),
        }
    }

    /// Returns true if the receiver checks all data of the transfer against a digest.
    pub(crate) const fn has_digest(self) -> bool {
        !matches!(self, Shape::Batches(_))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chunks_tile_the_file(log2 in 12..=22_u8, chunks in 0..20_u64, rest in any::<u64>()) {
            let chunk_size = ChunkSize::from_log2(log2).unwrap();
            let size = chunks * chunk_size.bytes() + rest % chunk_size.bytes();
            let grid = Grid::new(size, chunk_size);
            let mut offset = 0;
            for chunk in grid.all_chunks().chunks() {
                let extent = grid.extent_of(chunk).unwrap();
                prop_assert_eq!(extent.offset, offset);
                prop_assert!(!extent.is_empty() && extent.len <= chunk_size.bytes());
                offset = extent.end().unwrap();
            }
            prop_assert_eq!(offset, size);
        }

        #[test]
        fn any_numbers_are_accepted(size in any::<u64>(), log2 in 12..=22_u8, first in any::<u64>(), count in any::<u64>()) {
            let grid = Grid::new(size, ChunkSize::from_log2(log2).unwrap());
            for (first, count) in [(first, count), (first, 1), (first >> log2, count >> log2), (0, grid.chunk_count())] {
                let range = ChunkRange::new(ChunkId(first), count);
                let inside = count > 0 && first.checked_add(count).is_some_and(|end| end <= grid.chunk_count());
                let extent = grid.extent_of_range(range);
                prop_assert_eq!(extent.is_some(), inside);
                prop_assert!(extent.is_none_or(|extent| extent.end().is_some_and(|end| end <= size)));
            }
        }
    }

    #[test]
    fn an_empty_file_has_no_chunks() {
        let grid = Grid::new(0, ChunkSize::DEFAULT);
        assert_eq!(grid.chunk_count(), 0);
        assert!(grid.all_chunks().is_empty());
        assert_eq!(grid.extent_of(ChunkId(0)), None);
    }

    #[test]
    fn the_last_chunk_ends_with_the_file() {
        let grid = Grid::new(ChunkSize::DEFAULT.bytes() + 1, ChunkSize::DEFAULT);
        assert_eq!(
            grid.extent_of(ChunkId(1)),
            Some(Extent {
                offset: 262_144,
                len: 1
            })
        );
        assert_eq!(
            grid.extent_of_range(grid.all_chunks()),
            Some(Extent {
                offset: 0,
                len: grid.size
            })
        );
    }

    #[test]
    fn the_greatest_file_has_its_last_chunk() {
        let grid = Grid::new(u64::MAX, ChunkSize::MIN);
        assert_eq!(grid.chunk_count(), 1 << 52);
        let last = ChunkId(grid.chunk_count() - 1);
        assert_eq!(grid.extent_of(last).unwrap().end(), Some(u64::MAX));
    }

    #[test]
    fn only_powers_of_two_from_4_kib_to_4_mib_are_chunk_sizes() {
        for (bytes, log2) in [(4096, 12), (262_144, 18), (4_194_304, 22)] {
            let chunk_size = ChunkSize::from_log2(log2).unwrap();
            assert_eq!((chunk_size.bytes(), chunk_size.log2()), (bytes, log2));
        }
        for log2 in [0, 11, 23, 64, 255] {
            assert_eq!(ChunkSize::from_log2(log2), Err(InvalidChunkSize(log2)));
        }
        assert_eq!(
            ChunkSize::from_log2(30).unwrap_err().to_string(),
            "invalid chunk size 2^30: expected 2^12 to 2^22"
        );
    }
}
