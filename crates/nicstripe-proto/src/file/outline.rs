//! Outline of a file: the BLAKE3 chaining values of its pieces of 1 MiB.
//!
//! The values of all pieces make the digest of the file. So an outline whose digest is known to be right
//! tells of each piece whether it is, whoever says the outline.

use std::ops::Range;

use super::{
    extent::ChunkId,
    grid::{ChunkSize, Grid},
    hash_tree::{ChainingValue, Digest, HashTree, Subtree, value_at},
};

/// Bytes of each piece but the last.
pub const PIECE: u64 = PIECE_SIZE.bytes();

const PIECE_SIZE: ChunkSize = match ChunkSize::from_log2(20) {
    Ok(size) => size,
    Err(_) => ChunkSize::MAX,
};

/// Returns the number of pieces of a file of `size` bytes.
pub const fn count_of(size: u64) -> u64 {
    grid_of(size).chunk_count()
}

/// Returns the division of a file of `size` bytes into pieces.
pub const fn grid_of(size: u64) -> Grid {
    Grid::new(size, PIECE_SIZE)
}

/// Returns the value of the piece of this index, whose bytes are all given, in a file of `size` bytes.
pub fn value_of(size: u64, index: u64, bytes: &[u8]) -> ChainingValue {
    value_at(index.saturating_mul(PIECE), bytes, size <= PIECE)
}

/// Size of a file and the values of all its pieces, with the digest that they make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    size: u64,
    values: Vec<ChainingValue>,
    digest: Digest,
}

impl Outline {
    /// Returns the outline of a file of `size` bytes; `None` if it has another number of pieces.
    ///
    /// ```
    /// use nicstripe_proto::outline::{Outline, PIECE, value_of};
    ///
    /// let file = vec![7; 3_000_000];
    /// let pieces = file.chunks(PIECE as usize).enumerate();
    /// let values = pieces.map(|(index, bytes)| value_of(3_000_000, index as u64, bytes));
    /// let outline = Outline::new(3_000_000, values.collect());
    /// let digest = outline.map(|outline| outline.digest().to_string());
    /// assert_eq!(digest, Some(blake3::hash(&file).to_string()));
    /// ```
    pub fn new(size: u64, values: Vec<ChainingValue>) -> Option<Self> {
        let mut tree = HashTree::new(grid_of(size));
        for (index, value) in (0..).zip(&values) {
            tree.insert(Subtree::of_chunk(ChunkId(index), *value))
                .ok()?;
        }
        let digest = tree.root()?;
        Some(Self {
            size,
            values,
            digest,
        })
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the values of the pieces.
    pub fn values(&self) -> &[ChainingValue] {
        &self.values
    }

    /// Returns the BLAKE3 digest of the file.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the bytes of a piece; empty if the file has none of this index.
    pub fn range_of(&self, index: u64) -> Range<u64> {
        let at = |index: u64| index.saturating_mul(PIECE).min(self.size);
        at(index)..at(index.saturating_add(1))
    }

    /// Returns the ranges of this file in which the other one differs, or which it does not have, in
    /// ascending order.
    pub fn differing(&self, other: &Self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (index, value) in (0..).zip(&self.values) {
            let range = self.range_of(index);
            let is_same =
                other.values.get(index as usize) == Some(value) && other.range_of(index) == range;
            match ranges.last_mut() {
                _ if is_same => {}
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(file: &[u8]) -> Outline {
        let size = file.len() as u64;
        let pieces = file.chunks(PIECE as usize).zip(0..);
        let values = pieces.map(|(bytes, index)| value_of(size, index, bytes));
        Outline::new(size, values.collect()).unwrap()
    }

    #[test]
    fn the_values_of_all_pieces_make_the_digest() {
        for size in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE, 6 * PIECE + 7] {
            let file: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let digest = Digest(*blake3::hash(&file).as_bytes());
            assert_eq!(outline(&file).digest(), digest, "{size}");
        }
    }

    #[test]
    fn another_number_of_values_is_none_of_the_file() {
        let file = outline(&vec![1; 3 << 20]);
        for size in [0, 1, 2 << 20, (3 << 20) + 1] {
            assert_eq!(Outline::new(size, file.values().to_vec()), None, "{size}");
        }
    }

    #[test]
    fn pieces_that_differ_are_named_and_neighbours_joined() {
        let right = vec![0; (5 << 20) + 9];
        let mut wrong = right.clone();
        for at in [1 << 20, (2 << 20) + 5, 5 << 20] {
            wrong[at] = 1;
        }
        let (right, wrong) = (outline(&right), outline(&wrong));
        let expected = [1 << 20..3 << 20, 5 << 20..(5 << 20) + 9];
        assert_eq!(right.differing(&wrong), expected);
        assert_eq!(right.differing(&right), []);
        let short = outline(&vec![0; 4 << 20]);
        let missing = 4 << 20..(5 << 20) + 9;
        assert_eq!(right.differing(&short), [missing]);
    }
}
