//! Byte ranges and sets of chunks.
//!
//! An [`Extent`] is a byte range of a file. [`ChunkRange`] and [`ChunkSet`] count chunks of a
//! [`Grid`](crate::grid::Grid), independent of the chunk length. This module never panics on a
//! number, because inputs come from peers and disks.

use std::{collections::BTreeMap, fmt};

use minicbor::{Decode, Encode};

/// Extent of a file: `len` bytes from `offset`.
///
/// Any two numbers are allowed. `end` detects an overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Extent {
    /// Offset of the first byte in the file.
    #[n(0)]
    pub offset: u64,
    /// Length of the extent in bytes.
    #[n(1)]
    pub len: u64,
}

impl Extent {
    /// Returns the offset after the last byte; `None` if it exceeds 64 bits.
    pub(crate) const fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Formats `offset+len`, as in `4194304+65536`.
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset, self.len)
    }
}

/// Index of a chunk in its file, from 0.
///
/// Messages and the journal refer to a chunk only by its index. Both ends compute the chunk's
/// offset from the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ChunkId(#[n(0)] pub u64);

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Range of `count` contiguous chunks from `first`.
///
/// A range that would exceed `u64::MAX` ends there. Only invalid numbers are affected: no file has
/// that many chunks (at most 2⁵² of the minimum size).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ChunkRange {
    /// Index of the first chunk.
    #[n(0)]
    pub first: ChunkId,
    /// Number of chunks in the range.
    #[n(1)]
    pub count: u64,
}

impl ChunkRange {
    /// Returns the range of `count` chunks from `first`.
    pub const fn new(first: ChunkId, count: u64) -> ChunkRange {
        ChunkRange { first, count }
    }

    /// Returns the index after the last chunk, at most `u64::MAX`.
    pub(crate) const fn end(self) -> ChunkId {
        ChunkId(self.first.0.saturating_add(self.count))
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.first.0 == self.end().0
    }

    pub(crate) fn contains(self, chunk: ChunkId) -> bool {
        self.first <= chunk && chunk < self.end()
    }

    /// Returns the chunks of the range in ascending order.
    pub fn chunks(self) -> impl DoubleEndedIterator<Item = ChunkId> + use<> {
        (self.first.0..self.end().0).map(ChunkId)
    }
}

impl From<ChunkId> for ChunkRange {
    fn from(chunk: ChunkId) -> ChunkRange {
        ChunkRange {
            first: chunk,
            count: 1,
        }
    }
}

/// Formats `first..end`, as in `12..20`.
impl fmt::Display for ChunkRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.first, self.end())
    }
}

/// Set of chunks, stored as ranges. Memory grows with the number of gaps, not with the number of
/// chunks.
///
/// Like a [`ChunkRange`], a set ends at `u64::MAX` and never contains that ID.
/// [`insert`](ChunkSet::insert) and `remove` take logarithmic time, plus one step per range that
/// disappears. [`len`](ChunkSet::len) takes constant time.
///
/// ```
/// use nicstripe_proto::extent::{ChunkId, ChunkRange, ChunkSet};
///
/// let mut received = ChunkSet::new();
/// assert_eq!(received.insert(ChunkRange::new(ChunkId(0), 4)), 4);
/// assert_eq!(received.insert(ChunkRange::new(ChunkId(2), 4)), 2);
/// assert_eq!(received.ranges().collect::<Vec<_>>(), [ChunkRange::new(ChunkId(0), 6)]);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ChunkSet {
    /// Ranges, as a map from the first ID to the ID after the last one.
    ///
    /// Invariant: no range is empty, and at least one missing chunk is between two ranges.
    ranges: BTreeMap<u64, u64>,
    /// Number of chunks in the set. Invariant: equals the sum of the lengths of all ranges.
    len: u64,
}

impl ChunkSet {
    /// Returns the empty set.
    pub const fn new() -> ChunkSet {
        ChunkSet {
            ranges: BTreeMap::new(),
            len: 0,
        }
    }

    /// Adds chunks. Returns the number of chunks that were not in the set before.
    pub fn insert(&mut self, range: impl Into<ChunkRange>) -> u64 {
        let range = range.into();
        let (mut first, mut end) = (range.first.0, range.end().0);
        if first == end {
            return 0;
        }
        let mut known = 0;
        // Merges overlapping and adjacent ranges downwards from `end`. The last one may lower
        // `first`.
        while let Some((&at, &its_end)) = self.ranges.range(..=end).next_back() {
            if its_end < first {
                break;
            }
            self.ranges.remove(&at);
            known += its_end - at;
            first = first.min(at);
            end = end.max(its_end);
        }
        self.ranges.insert(first, end);
        let added = end - first - known;
        self.len += added;
        added
    }

    /// Removes chunks. Returns the number of chunks that were in the set.
    pub(crate) fn remove(&mut self, range: impl Into<ChunkRange>) -> u64 {
        let range = range.into();
        let (first, end) = (range.first.0, range.end().0);
        if first == end {
            return 0;
        }
        let mut removed = 0;
        while let Some((&at, &its_end)) = self.ranges.range(..end).next_back() {
            if its_end <= first {
                break;
            }
            self.ranges.remove(&at);
            if its_end > end {
                self.ranges.insert(end, its_end);
            }
            if at < first {
                self.ranges.insert(at, first);
            }
            removed += its_end.min(end) - at.max(first);
        }
        self.len -= removed;
        removed
    }

    /// Returns true if `chunk` is in the set.
    pub fn contains(&self, chunk: ChunkId) -> bool {
        self.ranges
            .range(..=chunk.0)
            .next_back()
            .is_some_and(|(_, &end)| chunk.0 < end)
    }

    /// Returns the number of chunks in the set.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the set has no chunks.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the chunk with the lowest ID; `None` if the set is empty.
    pub(crate) fn first(&self) -> Option<ChunkId> {
        self.ranges
            .first_key_value()
            .map(|(&first, _)| ChunkId(first))
    }

    /// Returns the chunk with the highest ID; `None` if the set is empty.
    pub(crate) fn last(&self) -> Option<ChunkId> {
        self.ranges
            .last_key_value()
            .map(|(_, &end)| ChunkId(end - 1))
    }

    /// Returns the ranges of the set in ascending order. Adjacent chunks are in one range.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = ChunkRange> + DoubleEndedIterator {
        self.ranges
            .iter()
            .map(|(&first, &end)| from_bounds(first, end))
    }

    /// Returns the parts of `within` that are not in the set, in ascending order.
    pub fn gaps(&self, within: ChunkRange) -> impl Iterator<Item = ChunkRange> {
        let (first, end) = (within.first.0, within.end().0);
        let before = self.ranges.range(..=first).next_back();
        let next = before.map_or(first, |(_, &its_end)| its_end.max(first));
        let ranges = self.ranges.range(first..end);
        let starts = std::iter::once(next).chain(ranges.clone().map(|(_, &its_end)| its_end));
        let ends = ranges.map(|(&its_first, _)| its_first).chain([end]);
        starts
            .zip(ends)
            .filter(|(start, end)| start < end)
            .map(|(start, end)| from_bounds(start, end))
    }

    /// Removes and returns the first contiguous chunks of the set, at most `max_count`; `None` if
    /// the set is empty or `max_count` is 0.
    pub(crate) fn take_first(&mut self, max_count: u64) -> Option<ChunkRange> {
        if max_count == 0 {
            return None;
        }
        let (first, end) = self.ranges.pop_first()?;
        let cut = first.saturating_add(max_count).min(end);
        if cut < end {
            self.ranges.insert(cut, end);
        }
        self.len -= cut - first;
        Some(from_bounds(first, cut))
    }
}

impl<R: Into<ChunkRange>> Extend<R> for ChunkSet {
    fn extend<I: IntoIterator<Item = R>>(&mut self, ranges: I) {
        for range in ranges {
            self.insert(range);
        }
    }
}

impl<R: Into<ChunkRange>> FromIterator<R> for ChunkSet {
    fn from_iter<I: IntoIterator<Item = R>>(ranges: I) -> ChunkSet {
        let mut set = ChunkSet::new();
        set.extend(ranges);
        set
    }
}

/// Formats the ranges, as in `{0..4, 6..8}`.
impl fmt::Debug for ChunkSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.ranges().map(|range| range.first.0..range.end().0))
            .finish()
    }
}

/// Returns the range `first..end`. The caller guarantees `first <= end`.
const fn from_bounds(first: u64, end: u64) -> ChunkRange {
    ChunkRange {
        first: ChunkId(first),
        count: end - first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_ranges_become_one() {
        let mut set: ChunkSet = [range(0, 2), range(4, 2)].into_iter().collect();
        assert_eq!(set.ranges().len(), 2);
        assert_eq!(set.insert(range(2, 2)), 2);
        assert_eq!(set.ranges().collect::<Vec<_>>(), [range(0, 6)]);
    }

    #[test]
    fn a_range_is_cut_at_the_greatest_id() {
        let mut set = ChunkSet::new();
        assert_eq!(set.insert(range(u64::MAX - 2, u64::MAX)), 2);
        assert_eq!(set.insert(ChunkId(u64::MAX)), 0);
        assert_eq!(set.last(), Some(ChunkId(u64::MAX - 1)));
        assert!(!set.contains(ChunkId(u64::MAX)));
        assert_eq!(set.insert(EVERYTHING), u64::MAX - 2);
        assert_eq!(set.gaps(EVERYTHING).next(), None);
    }

    #[test]
    fn the_end_of_an_extent_is_checked() {
        assert_eq!(Extent { offset: 5, len: 6 }.end(), Some(11));
        let beyond = Extent {
            offset: u64::MAX,
            len: 1,
        };
        assert_eq!(beyond.end(), None);
        assert_eq!(beyond.to_string(), "18446744073709551615+1");
    }

    fn range(first: u64, count: u64) -> ChunkRange {
        ChunkRange::new(ChunkId(first), count)
    }

    const EVERYTHING: ChunkRange = ChunkRange {
        first: ChunkId(0),
        count: u64::MAX,
    };
}
