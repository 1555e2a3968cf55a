//! Holes: ranges of a sparse file without storage, which are read as zeros (lseek(2), `SEEK_HOLE`).
//!
//! A chunk that lies entirely in holes is not sent. BLAKE3 binds each value to its position, so
//! both ends must hash the zeros, in pieces of `ZEROS_AT_ONCE`. The receiver stores no zeros for a
//! hole within a sent chunk.

use super::{
    extent::{ChunkId, ChunkRange, ChunkSet, Extent},
    grid::Grid,
};

/// Maximum number of holes that a sender announces per file. Further holes are sent as data.
pub(crate) const MAX_HOLES: usize = 65_536;

/// Maximum number of holes in one message: 38 KiB at up to 19 bytes per hole.
pub const HOLES_PER_MESSAGE: usize = 2_000;

/// Maximum number of zero bytes that one call hashes. 4 MiB take about 1 ms (5 GB/s per core,
/// measured).
pub(crate) const ZEROS_AT_ONCE: u64 = 4 << 20;

/// Holes of one file.
///
/// Invariants: the extents are in ascending order, not empty, not adjacent, and within the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoleMap {
    extents: Vec<Extent>,
}

/// Reason why a peer's list of holes is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoleError {
    /// The hole is empty, is out of order, or extends beyond the end of the file.
    #[error(
        "peer sent invalid hole {extent}: empty, out of order or beyond the file's {size} bytes"
    )]
    Extent {
        /// Offset and length of the rejected hole.
        extent: Extent,
        /// Size of the file in bytes.
        size: u64,
    },
    /// The file has more than `MAX_HOLES` holes.
    #[error("peer announced more than {MAX_HOLES} holes of a file")]
    TooMany,
    /// The sender offered the file as one without holes, or has already completed its list of
    /// holes.
    #[error("peer sent holes without announcing them")]
    NotAnnounced,
}

impl HoleMap {
    /// Returns the memory of the map in bytes.
    pub fn memory(&self) -> usize {
        self.extents.capacity() * size_of::<Extent>()
    }

    /// Adds the next hole of a file with `size` bytes. Merges the hole with the previous one if
    /// both are adjacent.
    ///
    /// # Errors
    ///
    /// Returns [`HoleError`] and leaves the map unchanged if the hole is invalid or the map has
    /// `MAX_HOLES` holes.
    pub fn push(&mut self, extent: Extent, size: u64) -> Result<(), HoleError> {
        let before = self.extents.last().and_then(|last| last.end()).unwrap_or(0);
        let end = extent
            .end()
            .filter(|end| *end <= size && !extent.is_empty() && extent.offset >= before);
        let end = end.ok_or(HoleError::Extent { extent, size })?;
        let is_full = self.extents.len() >= MAX_HOLES;
        match self.extents.last_mut() {
            Some(last) if before == extent.offset => last.len = end - last.offset,
            _ if is_full => return Err(HoleError::TooMany),
            _ => self.extents.push(extent),
        }
        Ok(())
    }

    /// Returns the holes in ascending order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Returns true if there are no holes.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Returns the total size of the holes in bytes.
    pub fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.len).sum()
    }

    /// Returns the chunks that lie entirely in holes.
    pub fn chunks(&self, grid: Grid) -> ChunkSet {
        let log2 = grid.chunk_size.log2();
        let whole = |extent: &Extent| {
            let end = extent.offset + extent.len;
            let first = extent.offset.div_ceil(grid.chunk_size.bytes());
            let last = if end >= grid.size {
                grid.chunk_count()
            } else {
                end >> log2
            };
            ChunkRange::new(ChunkId(first), last.saturating_sub(first))
        };
        self.extents
            .iter()
            .map(whole)
            .filter(|range| !range.is_empty())
            .collect()
    }

    /// Returns the parts of the holes that are within `extent`, in ascending order.
    pub fn within(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let end = extent.offset.saturating_add(extent.len);
        let from = self
            .extents
            .partition_point(|hole| hole.offset + hole.len <= extent.offset);
        self.extents[from..]
            .iter()
            .take_while(move |hole| hole.offset < end)
            .map(move |hole| {
                let offset = hole.offset.max(extent.offset);
                Extent {
                    offset,
                    len: (hole.offset + hole.len).min(end) - offset,
                }
            })
    }

    /// Returns the extents between the holes of a file with `size` bytes, in ascending order.
    pub fn data(&self, size: u64) -> impl Iterator<Item = Extent> + '_ {
        let starts =
            std::iter::once(0).chain(self.extents.iter().map(|hole| hole.offset + hole.len));
        let ends = self.extents.iter().map(|hole| hole.offset).chain([size]);
        starts
            .zip(ends)
            .filter(|(start, end)| start < end)
            .map(|(start, end)| Extent {
                offset: start,
                len: end - start,
            })
    }
}

/// Subtree of zeros that has yet to be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zeros {
    /// Index of the first chunk; a multiple of 2^`level`.
    pub first: ChunkId,
    /// Base-2 logarithm of the number of chunks.
    pub level: u8,
}

impl Zeros {
    /// Removes from `set` the largest subtree at its start that has at most [`ZEROS_AT_ONCE`]
    /// bytes; `None` if the set is empty.
    pub(crate) fn take(set: &mut ChunkSet, grid: Grid) -> Option<Self> {
        let range = set.ranges().next()?;
        let most = (ZEROS_AT_ONCE >> grid.chunk_size.log2()).max(1).ilog2();
        let level = range
            .first
            .0
            .trailing_zeros()
            .min(range.count.ilog2())
            .min(most);
        set.remove(ChunkRange::new(range.first, 1 << level));
        Some(Self {
            first: range.first,
            level: level as u8,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::grid::ChunkSize;

    const SIZE: u64 = 10 * 4096 + 5;

    fn grid() -> Grid {
        Grid::new(SIZE, ChunkSize::MIN)
    }

    fn map(extents: &[(u64, u64)]) -> HoleMap {
        let mut map = HoleMap::default();
        extents.iter().for_each(|(offset, len)| {
            map.push(
                Extent {
                    offset: *offset,
                    len: *len,
                },
                SIZE,
            )
            .unwrap();
        });
        map
    }

    fn ranges(set: &ChunkSet) -> Vec<(u64, u64)> {
        set.ranges()
            .map(|range| (range.first.0, range.count))
            .collect()
    }

    #[test]
    fn only_chunks_wholly_in_a_hole_count() {
        assert_eq!(ranges(&map(&[(4096, 4096)]).chunks(grid())), [(1, 1)]);
        assert_eq!(ranges(&map(&[(4095, 4098)]).chunks(grid())), [(1, 1)]);
        assert_eq!(ranges(&map(&[(4097, 8190)]).chunks(grid())), []);
        assert_eq!(ranges(&map(&[(100, 5)]).chunks(grid())), []);
    }

    #[test]
    fn a_last_chunk_in_a_hole_counts_although_it_is_shorter() {
        assert_eq!(
            ranges(&map(&[(8 * 4096, 2 * 4096 + 5)]).chunks(grid())),
            [(8, 3)]
        );
        assert_eq!(
            ranges(&map(&[(8 * 4096, 2 * 4096 + 4)]).chunks(grid())),
            [(8, 2)]
        );
    }

    #[test]
    fn holes_that_touch_are_one_and_others_must_be_in_order() {
        let mut map = map(&[(0, 4000), (4000, 96)]);
        assert_eq!(
            map.extents(),
            [Extent {
                offset: 0,
                len: 4096
            }]
        );
        for (offset, len) in [
            (5000, 0),
            (0, 1),
            (4095, 2),
            (SIZE, 1),
            (SIZE - 1, 2),
            (u64::MAX, 2),
            (5000, u64::MAX),
        ] {
            let extent = Extent { offset, len };
            assert_eq!(
                map.push(extent, SIZE),
                Err(HoleError::Extent { extent, size: SIZE })
            );
        }
    }

    #[test]
    fn more_holes_than_are_told_are_refused() {
        let mut map = HoleMap::default();
        let push = |map: &mut HoleMap, index: u64| {
            map.push(
                Extent {
                    offset: 2 * index,
                    len: 1,
                },
                u64::MAX,
            )
        };
        (0..MAX_HOLES as u64).for_each(|index| push(&mut map, index).unwrap());
        assert_eq!(push(&mut map, MAX_HOLES as u64), Err(HoleError::TooMany));
    }

    proptest! {
        #[test]
        fn pieces_of_zeros_are_subtrees_and_cover_the_set(first in 0..5000_u64, count in 1..5000_u64) {
            let grid = Grid::new(u64::MAX, ChunkSize::DEFAULT);
            let mut set = ChunkSet::new();
            set.insert(ChunkRange::new(ChunkId(first), count));
            let mut next = first;
            while let Some(zeros) = Zeros::take(&mut set, grid) {
                prop_assert_eq!(zeros.first.0, next);
                prop_assert!(zeros.first.0.is_multiple_of(1 << zeros.level) && zeros.level <= 4);
                next += 1 << zeros.level;
            }
            prop_assert_eq!(next, first + count);
        }
    }
}
