//! BLAKE3 digest of a file from chunks in any order.
//!
//! BLAKE3 is a binary tree over 1 KiB blocks, and each chunk of the [`Grid`] is a subtree of this
//! tree. The chaining value of a chunk is its checksum on the wire, its entry in the resume
//! journal, and a leaf of [`HashTree`]. The tree yields the digest of the whole file, as `b3sum`
//! prints it. Every byte is read once and hashed once.
//!
//! In the tree over chunks, the chunks are level 0. A node of level *l* covers 2^*l* chunks from a
//! multiple of 2^*l*. A node without a right sibling, at the end of the file, rises one level
//! unchanged. The last merge sets BLAKE3's root flag. The value of a subtree that covers the whole
//! file is therefore the digest, even if the file has only one chunk.
//!
//! The values are unkeyed. They detect damage and bind chunks to a digest, but do not authenticate
//! the sender; TLS authenticates the sender.
//!
//! `blake3::hazmat` requires its caller to respect the tree structure. The tests therefore compare
//! the results with `blake3::hash` for random sizes and orders.

use std::{collections::BTreeMap, fmt, str::FromStr};

use blake3::{
    Hasher,
    hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root},
};
use minicbor::{Decode, Encode};

use super::{
    extent::{ChunkId, ChunkRange},
    grid::Grid,
    hole::Zeros,
};

/// BLAKE3 digest of a whole file, as `b3sum` prints it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Digest(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

impl Digest {
    /// Placeholder digest of a transfer without a digest, such as a tree.
    pub const NONE: Self = Self([0; 32]);
}

/// Formats 64 lower-case hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Parses 64 hexadecimal digits of either case. Returns an error for any other text.
impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Digest, ParseDigestError> {
        blake3::Hash::from_hex(text)
            .map(|digest| Digest(digest.into()))
            .map_err(ParseDigestError)
    }
}

/// Error for a text that is not a [`Digest`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("invalid digest: {0}")]
pub struct ParseDigestError(blake3::HexError);

/// BLAKE3 chaining value: the hash of a subtree. Equals the digest if the subtree is the whole
/// file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ChainingValue(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

impl fmt::Debug for ChainingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChainingValue({})", Digest(self.0))
    }
}

/// Returns the chaining value of one chunk.
///
/// # Errors
///
/// Returns [`ChunkError`] if the file has no such chunk, or if the length of `bytes` differs from
/// the chunk's length.
pub fn chunk_value(grid: Grid, chunk: ChunkId, bytes: &[u8]) -> Result<ChainingValue, ChunkError> {
    let Some(extent) = grid.extent_of(chunk) else {
        return Err(ChunkError::OutOfRange {
            chunk,
            chunk_count: grid.chunk_count(),
        });
    };
    if bytes.len() as u64 != extent.len {
        return Err(ChunkError::Length {
            chunk,
            found: bytes.len() as u64,
            expected: extent.len,
        });
    }
    Ok(value_at(extent.offset, bytes, extent.len == grid.size))
}

/// Returns the chaining value of the chunk at `offset`. The value is the digest if the chunk is the
/// whole file.
pub(super) fn value_at(offset: u64, bytes: &[u8], is_whole: bool) -> ChainingValue {
    ChainingValue(match is_whole {
        true => blake3::hash(bytes).into(),
        false => Hasher::new()
            .set_input_offset(offset)
            .update(bytes)
            .finalize_non_root(),
    })
}

/// Returns the subtree of 2^`level` chunks of zeros from `first`, with its chaining value. The
/// subtree has fewer chunks at the end of the file.
///
/// # Errors
///
/// Returns [`SubtreeError::OutOfRange`] or [`SubtreeError::Misaligned`] if the file has no such
/// subtree.
pub fn zeros_subtree(grid: Grid, Zeros { first, level }: Zeros) -> Result<Subtree, SubtreeError> {
    let subtree = Subtree {
        first,
        level,
        value: ChainingValue([0; 32]),
    };
    let extent = grid
        .extent_of_range(subtree.chunks(grid)?)
        .unwrap_or_default();
    let mut hasher = Hasher::new();
    if extent.offset > 0 {
        hasher.set_input_offset(extent.offset);
    }
    let mut left = extent.len;
    while left > 0 {
        let len = left.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..len as usize]);
        left -= len;
    }
    let value = if extent.len == grid.size {
        hasher.finalize().into()
    } else {
        hasher.finalize_non_root()
    };
    Ok(Subtree {
        value: ChainingValue(value),
        ..subtree
    })
}

/// Buffer of zeros to hash. 64 KiB fit into a core's L2 cache.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Returns the chaining value of one chunk, including chunks of a transfer of unknown length.
/// `last` marks the final chunk.
///
/// The value of a file's only chunk is the digest. The sender of the first chunk must therefore
/// know whether it is also the last.
///
/// # Errors
///
/// Returns [`ChunkError`] like [`chunk_value`]. A chunk may be shorter than the full size if the
/// length is unknown.
pub fn piece_value(
    grid: Grid,
    chunk: ChunkId,
    bytes: &[u8],
    last: bool,
) -> Result<ChainingValue, ChunkError> {
    let len = bytes.len() as u64;
    match grid.extent_of(chunk) {
        Some(extent) if grid.is_open() && len > 0 && len <= extent.len => {
            let is_whole = last && extent.offset == 0;
            Ok(value_at(extent.offset, bytes, is_whole))
        }
        _ => chunk_value(grid, chunk, bytes),
    }
}

/// Reason why [`chunk_value`] rejects a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The chunk index is beyond the end of the file.
    #[error("chunk {chunk} does not exist: the file has {chunk_count} chunks")]
    OutOfRange {
        /// Rejected chunk index.
        chunk: ChunkId,
        /// Number of chunks in the file.
        chunk_count: u64,
    },
    /// The length of the data differs from the length of the chunk.
    #[error("chunk {chunk} has {found} bytes, expected {expected}")]
    Length {
        /// Index of the chunk.
        chunk: ChunkId,
        /// Length of the data in bytes.
        found: u64,
        /// Length of the chunk in bytes.
        expected: u64,
    },
}

/// Subtree of a file's hash tree: 2^`level` chunks from `first`, with their chaining value. The
/// subtree has fewer chunks at the end of the file.
///
/// Any field values are allowed, because they come from a peer or a disk. [`HashTree`] accepts only
/// valid subtrees of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Subtree {
    /// First chunk; a multiple of 2^`level`.
    #[n(0)]
    pub first: ChunkId,
    /// Base-2 logarithm of the number of chunks.
    #[n(1)]
    pub level: u8,
    /// Chaining value of the subtree. Equals the digest if the subtree covers the whole file.
    #[n(2)]
    pub value: ChainingValue,
}

impl Subtree {
    /// Returns the subtree that consists of a single chunk.
    pub const fn of_chunk(chunk: ChunkId, value: ChainingValue) -> Subtree {
        Subtree {
            first: chunk,
            level: 0,
            value,
        }
    }

    /// Returns the chunks that the subtree covers.
    ///
    /// # Errors
    ///
    /// Returns [`SubtreeError::OutOfRange`] or [`SubtreeError::Misaligned`] if the file has no such
    /// subtree.
    pub fn chunks(&self, grid: Grid) -> Result<ChunkRange, SubtreeError> {
        let &Subtree { first, level, .. } = self;
        let chunk_count = grid.chunk_count();
        if first.0 >= chunk_count || level > root_level(chunk_count) {
            return Err(SubtreeError::OutOfRange {
                first,
                level,
                chunk_count,
            });
        }
        // The level is at most 52, the root level of the largest file.
        let count = 1 << level;
        if first.0 & (count - 1) != 0 {
            return Err(SubtreeError::Misaligned(*self));
        }
        Ok(ChunkRange {
            first,
            count: count.min(chunk_count - first.0),
        })
    }
}

/// Reason why a [`Subtree`] was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubtreeError {
    /// The subtree extends beyond the end of the file.
    #[error("subtree of level {level} at chunk {first} exceeds the file's {chunk_count} chunks")]
    OutOfRange {
        /// First chunk of the subtree.
        first: ChunkId,
        /// Level of the subtree.
        level: u8,
        /// Number of chunks in the file.
        chunk_count: u64,
    },
    /// The first chunk is not a multiple of the subtree's number of chunks.
    #[error(
        "subtree of level {level} cannot start at chunk {first}: expected a multiple of 2^{level}",
        level = .0.level, first = .0.first
    )]
    Misaligned(Subtree),
    /// The subtree that was passed to [`HashTree::insert`] has chunks that are already in the tree.
    #[error("subtree of level {} at chunk {} covers chunks that are in the tree already", .0.level, .0.first)]
    Overlap(Subtree),
    /// The subtree's value differs from the tree's value for the same chunks.
    #[error("subtree of level {} at chunk {} differs from the value in the tree", .0.level, .0.first)]
    Conflict(Subtree),
}

/// Incremental hash tree of a file: accepts subtrees in any order and yields the digest.
///
/// Siblings are merged at once, so memory grows with the number of gaps, not with the number of
/// chunks. If chunks of 256 KiB arrive in order, the tree has about as many nodes as chunks are in
/// flight.
///
/// ```
/// use nicstripe_proto::extent::ChunkId;
/// use nicstripe_proto::grid::{ChunkSize, Grid};
/// use nicstripe_proto::hash_tree::{HashTree, Subtree, chunk_value};
///
/// let file = vec![7; 10_000];
/// let grid = Grid::new(10_000, ChunkSize::MIN);
/// let mut tree = HashTree::new(grid);
/// for (chunk, bytes) in file.chunks(4096).enumerate().rev() {
///     let chunk = ChunkId(chunk as u64);
///     tree.insert(Subtree::of_chunk(chunk, chunk_value(grid, chunk, bytes)?))?;
/// }
/// assert_eq!(tree.root().map(|digest| digest.to_string()), Some(blake3::hash(&file).to_string()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct HashTree {
    grid: Grid,
    /// Subtrees by the index of their first chunk.
    ///
    /// Invariant: the subtrees are disjoint, and each has the lowest level that covers its chunks.
    /// No two subtrees are siblings, except that an open grid does not merge the first subtree.
    nodes: BTreeMap<u64, Node>,
    /// Number of chunks that the subtrees in `nodes` cover.
    covered: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    level: u8,
    value: ChainingValue,
}

impl HashTree {
    /// Returns an empty tree for a file with this grid.
    pub const fn new(grid: Grid) -> HashTree {
        HashTree {
            grid,
            nodes: BTreeMap::new(),
            covered: 0,
        }
    }

    /// Adds a subtree whose chunks are not in the tree yet.
    ///
    /// # Errors
    ///
    /// Returns [`SubtreeError`] and leaves the tree unchanged if the subtree is invalid or overlaps
    /// with the tree.
    pub fn insert(&mut self, subtree: Subtree) -> Result<(), SubtreeError> {
        let chunks = subtree.chunks(self.grid)?;
        if self.enclosing(chunks.first).is_some()
            || self
                .nodes
                .range(chunks.first.0..chunks.end().0)
                .next()
                .is_some()
        {
            return Err(SubtreeError::Overlap(subtree));
        }
        self.add(chunks, subtree.value);
        Ok(())
    }

    /// Adds a subtree that may overlap with the tree. Returns the number of added chunks.
    ///
    /// Serves lists with overlapping entries, such as a resumed journal. Two subtrees of a file are
    /// either nested or disjoint. Skips a subtree inside an existing one. A subtree around existing
    /// ones replaces them.
    ///
    /// # Errors
    ///
    /// Returns [`SubtreeError`] and leaves the tree unchanged if the subtree is invalid, or if the
    /// tree has another value for the same chunks.
    pub(crate) fn absorb(&mut self, subtree: Subtree) -> Result<u64, SubtreeError> {
        let chunks = subtree.chunks(self.grid)?;
        if let Some((range, node)) = self.enclosing(chunks.first)
            && range.end() >= chunks.end()
        {
            if range == chunks && node.value != subtree.value {
                return Err(SubtreeError::Conflict(subtree));
            }
            return Ok(0);
        }
        let before = self.covered;
        while let Some((&first, node)) = self.nodes.range(chunks.first.0..chunks.end().0).next() {
            self.covered -= self.width(first, node.level);
            self.nodes.remove(&first);
        }
        self.add(chunks, subtree.value);
        Ok(self.covered - before)
    }

    /// Replaces an open grid by `grid` once the length is known.
    ///
    /// # Errors
    ///
    /// Returns [`SubtreeError`] and leaves the tree unchanged if the tree has a subtree outside the
    /// file.
    pub(crate) fn close(&mut self, grid: Grid) -> Result<(), SubtreeError> {
        let mut closed = HashTree::new(grid);
        self.subtrees()
            .try_for_each(|subtree| closed.insert(subtree))?;
        *self = closed;
        Ok(())
    }

    /// Returns the digest of the file; `None` while chunks are missing. An empty file always has a
    /// digest.
    pub fn root(&self) -> Option<Digest> {
        if self.grid.size == 0 {
            return Some(Digest(blake3::hash(&[]).into()));
        }
        if !self.is_complete() {
            return None;
        }
        self.nodes.get(&0).map(|node| Digest(node.value.0))
    }

    /// Returns true if all chunks of the file are in the tree.
    pub const fn is_complete(&self) -> bool {
        self.covered == self.grid.chunk_count()
    }

    /// Returns the number of chunks in the tree.
    pub const fn covered_chunks(&self) -> u64 {
        self.covered
    }

    /// Returns the minimal subtrees that cover the chunks in the tree, in ascending order.
    ///
    /// Each subtree has the lowest level that covers its chunks: the last chunk of a file has level
    /// 0 if its sibling is missing.
    pub fn subtrees(&self) -> impl ExactSizeIterator<Item = Subtree> + '_ {
        self.nodes.iter().map(|(&first, node)| Subtree {
            first: ChunkId(first),
            level: node.level,
            value: node.value,
        })
    }

    /// Returns the subtree in the tree that covers `chunk`, and the subtree's chunks; `None` if the
    /// tree lacks the chunk.
    fn enclosing(&self, chunk: ChunkId) -> Option<(ChunkRange, Node)> {
        let (&first, &node) = self.nodes.range(..=chunk.0).next_back()?;
        let range = ChunkRange {
            first: ChunkId(first),
            count: self.width(first, node.level),
        };
        range.contains(chunk).then_some((range, node))
    }

    /// Adds a subtree that does not overlap with the tree, and merges the subtree with its sibling
    /// as often as possible.
    fn add(&mut self, chunks: ChunkRange, mut value: ChainingValue) {
        self.covered += chunks.count;
        let mut first = chunks.first.0;
        let mut level = root_level(chunks.count);
        while let Some(sibling) = self.take_sibling(first, level) {
            let (left, right) = match sibling {
                Sibling::Left(left) => (left, value),
                Sibling::Right(right) => (value, right),
                Sibling::Absent => {
                    level += 1;
                    continue;
                }
            };
            level += 1;
            first &= !((1 << level) - 1);
            value = self.merge(level, left, right);
        }
        // The node may have risen a level without a sibling, and has no sibling in the tree at the
        // higher level.
        let level = root_level(self.width(first, level));
        self.nodes.insert(first, Node { level, value });
    }

    /// Removes and returns the sibling of a node. Returns `None` if the tree lacks the sibling or
    /// the node is the root. Also returns `None` if both nodes together may be the whole file of an
    /// open grid.
    fn take_sibling(&mut self, first: u64, level: u8) -> Option<Sibling> {
        let chunk_count = self.grid.chunk_count();
        if level >= root_level(chunk_count) {
            return None;
        }
        let sibling = first ^ (1 << level);
        // Both nodes together may be the whole file. The final merge sets the root flag and must
        // therefore wait until the length is known.
        if self.grid.is_open() && first.min(sibling) == 0 {
            return None;
        }
        if sibling >= chunk_count {
            return Some(Sibling::Absent);
        }
        let node = self.nodes.get(&sibling)?;
        if self.width(sibling, node.level) != self.width(sibling, level) {
            return None;
        }
        let value = self.nodes.remove(&sibling)?.value;
        Some(if sibling < first {
            Sibling::Left(value)
        } else {
            Sibling::Right(value)
        })
    }

    fn merge(&self, level: u8, left: ChainingValue, right: ChainingValue) -> ChainingValue {
        if level == root_level(self.grid.chunk_count()) {
            return ChainingValue(merge_subtrees_root(&left.0, &right.0, Mode::Hash).into());
        }
        ChainingValue(merge_subtrees_non_root(&left.0, &right.0, Mode::Hash))
    }

    /// Returns the number of chunks that the node of `level` at chunk `first` covers.
    fn width(&self, first: u64, level: u8) -> u64 {
        (1 << level).min(self.grid.chunk_count() - first)
    }
}

/// Returns the minimal subtrees that cover the same chunks as `subtrees`, in ascending order.
///
/// Used for the journal and for the list of chunks that a receiver already has. Entries may overlap
/// as in `HashTree::absorb`.
///
/// # Errors
///
/// Returns [`SubtreeError`] if an entry is invalid, or if two entries have different values for the
/// same chunks.
pub fn merge_siblings(grid: Grid, subtrees: Vec<Subtree>) -> Result<Vec<Subtree>, SubtreeError> {
    let mut tree = HashTree::new(grid);
    for subtree in subtrees {
        tree.absorb(subtree)?;
    }
    Ok(tree.subtrees().collect())
}

enum Sibling {
    Left(ChainingValue),
    Right(ChainingValue),
    /// The node has no right sibling, because the file ends before it.
    Absent,
}

/// Returns the lowest level at which one node covers `chunk_count` chunks.
const fn root_level(chunk_count: u64) -> u8 {
    // The level is at most 52 for the chunks of a file.
    match chunk_count {
        0 | 1 => 0,
        _ => ((chunk_count - 1).ilog2() + 1) as u8,
    }
}

#[cfg(test)]
mod tests;
