//! BLAKE3 of a file from chunks in any order.
//!
//! BLAKE3 is a binary tree over 1 KiB blocks, and a chunk of the [`Grid`] is a subtree of it. The chaining value of a chunk is the
//! chunk's checksum on the wire, the entry in the resume journal, and the leaf from which [`HashTree`] joins the digest of the whole
//! file, the one that `b3sum` prints. So every byte is hashed once and no byte is read twice.
//!
//! The tree over chunks: level 0 are the chunks, a node of level *l* covers 2^*l* chunks that start at a multiple of 2^*l*, and a node
//! without a right sibling goes up a level unchanged (the file ends there). In the last merge, into the root, BLAKE3 sets a flag; the
//! value of a subtree that covers the whole file is therefore the digest, and that of a file's only chunk as well.
//!
//! The values are unkeyed: they show damage and bind to a digest, and are no proof of who sent them. That is the connection's work.
//!
//! `blake3::hazmat` leaves it to its caller to respect the tree; the tests compare with `blake3::hash` over random sizes and orders.

use std::{collections::BTreeMap, fmt, str::FromStr};

use blake3::{
    Hasher,
    hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root},
};
use minicbor::{Decode, Encode};

use crate::{
    extent::{ChunkId, ChunkRange},
    grid::Grid,
    hole::Zeros,
};

/// BLAKE3 digest of a whole file, as `b3sum` prints it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Digest(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

/// Prints 64 lower-case hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Reads 64 hexadecimal digits of either case.
impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Digest, ParseDigestError> {
        if let Some((index, found)) = text.chars().enumerate().find(|(_, found)| !found.is_ascii_hexdigit()) {
            return Err(ParseDigestError::Character { index, found });
        }
        let mut digest = [0; 32];
        if text.len() != 2 * digest.len() {
            return Err(ParseDigestError::Length { found: text.len() });
        }
        for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digits.iter().fold(0, |value, &digit| value << 4 | hex_value(digit));
        }
        Ok(Digest(digest))
    }
}

/// Why a text is no [`Digest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseDigestError {
    /// The text has too few or too many digits.
    #[error("invalid digest: {found} digits, expected 64")]
    Length {
        /// Digits found.
        found: usize,
    },
    /// A character is no hexadecimal digit.
    #[error("invalid digest: {found:?} at position {index}, expected a hexadecimal digit")]
    Character {
        /// Position of the character, counted in characters from 0.
        index: usize,
        /// The character.
        found: char,
    },
}

/// BLAKE3 value of a subtree, for one that covers the whole file the digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChainingValue(pub [u8; 32]);

impl fmt::Debug for ChainingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChainingValue(")?;
        write_hex(f, &self.0)?;
        f.write_str(")")
    }
}

/// Returns the chaining value of one chunk.
///
/// # Errors
///
/// [`ChunkError`] if the file has no such chunk or `bytes` is not exactly as long as the chunk.
pub fn chunk_value(grid: Grid, chunk: ChunkId, bytes: &[u8]) -> Result<ChainingValue, ChunkError> {
    let Some(extent) = grid.extent_of(chunk) else {
        return Err(ChunkError::OutOfRange { chunk, chunk_count: grid.chunk_count() });
    };
    if bytes.len() as u64 != extent.len {
        return Err(ChunkError::Length { chunk, found: bytes.len() as u64, expected: extent.len });
    }
    if extent.len == grid.size {
        return Ok(ChainingValue(blake3::hash(bytes).into()));
    }
    Ok(ChainingValue(Hasher::new().set_input_offset(extent.offset).update(bytes).finalize_non_root()))
}

/// Returns a subtree whose bytes are all zeros, with its value: 2^`level` chunks from `first` on, or fewer where the file ends.
///
/// # Errors
///
/// [`SubtreeError::OutOfRange`] or [`SubtreeError::Misaligned`] if it is no subtree of that file.
pub fn zeros_subtree(grid: Grid, Zeros { first, level }: Zeros) -> Result<Subtree, SubtreeError> {
    let subtree = Subtree { first, level, value: ChainingValue([0; 32]) };
    let extent = grid.extent_of_range(subtree.chunks(grid)?).unwrap_or_default();
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
    let value = if extent.len == grid.size { hasher.finalize().into() } else { hasher.finalize_non_root() };
    Ok(Subtree { value: ChainingValue(value), ..subtree })
}

/// What all zeros are hashed from; small enough for a core's second cache.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Returns the chaining value of one chunk of a transfer whose length may not be known; `last` says that nothing follows.
///
/// The only chunk of a file has the file's digest for a value, so whoever sends the first must know whether it is the last as well.
///
/// # Errors
///
/// As [`chunk_value`]; where the length is not known, a chunk may be shorter than the full size.
pub fn piece_value(grid: Grid, chunk: ChunkId, bytes: &[u8], last: bool) -> Result<ChainingValue, ChunkError> {
    let len = bytes.len() as u64;
    match grid.extent_of(chunk) {
        Some(extent) if grid.is_open() && len > 0 && len <= extent.len => {
            // A grid that ends with this chunk, or somewhere behind it.
            let size = extent.offset + if last { len } else { extent.len + 1 };
            let bytes_of = Grid::new(size, grid.chunk_size);
            match last || len == extent.len {
                true => chunk_value(bytes_of, chunk, bytes),
                false => Ok(ChainingValue(Hasher::new().set_input_offset(extent.offset).update(bytes).finalize_non_root())),
            }
        }
        _ => chunk_value(grid, chunk, bytes),
    }
}

/// Why bytes are no chunk of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The file has no chunk of this number.
    #[error("chunk {chunk} does not exist: the file has {chunk_count} chunks")]
    OutOfRange {
        /// The number asked for.
        chunk: ChunkId,
        /// How many chunks the file has.
        chunk_count: u64,
    },
    /// There are too few or too many bytes.
    #[error("chunk {chunk} has {found} bytes, expected {expected}")]
    Length {
        /// The chunk.
        chunk: ChunkId,
        /// Bytes found.
        found: u64,
        /// Bytes of the chunk.
        expected: u64,
    },
}

/// A subtree of a file's hash tree: 2^`level` chunks from `first` on, or fewer where the file ends, and their BLAKE3 value.
///
/// Any numbers may stand here, as they come from a peer or a disk; [`HashTree`] accepts only those that are a subtree of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subtree {
    /// First chunk; a multiple of 2^`level`.
    pub first: ChunkId,
    /// Binary logarithm of the number of chunks.
    pub level: u8,
    /// Value of the subtree; the digest if it covers the whole file.
    pub value: ChainingValue,
}

impl Subtree {
    /// Returns the subtree that is one chunk.
    pub const fn of_chunk(chunk: ChunkId, value: ChainingValue) -> Subtree {
        Subtree { first: chunk, level: 0, value }
    }

    /// Returns the chunks that the subtree covers.
    ///
    /// # Errors
    ///
    /// [`SubtreeError::OutOfRange`] or [`SubtreeError::Misaligned`] if it is no subtree of that file.
    pub fn chunks(&self, grid: Grid) -> Result<ChunkRange, SubtreeError> {
        let &Subtree { first, level, .. } = self;
        let chunk_count = grid.chunk_count();
        if first.0 >= chunk_count || level > root_level(chunk_count) {
            return Err(SubtreeError::OutOfRange { first, level, chunk_count });
        }
        // Not beyond 52, the root level of the largest file.
        let count = 1 << level;
        if first.0 & (count - 1) != 0 {
            return Err(SubtreeError::Misaligned { first, level });
        }
        Ok(ChunkRange { first, count: count.min(chunk_count - first.0) })
    }
}

/// Why a [`Subtree`] was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubtreeError {
    /// The file does not have these chunks.
    #[error("subtree of level {level} at chunk {first} is outside of the file's {chunk_count} chunks")]
    OutOfRange {
        /// First chunk of the subtree.
        first: ChunkId,
        /// Level of the subtree.
        level: u8,
        /// How many chunks the file has.
        chunk_count: u64,
    },
    /// The first chunk is no multiple of the number of chunks.
    #[error("subtree of level {level} cannot start at chunk {first}: expected a multiple of 2^{level}")]
    Misaligned {
        /// First chunk of the subtree.
        first: ChunkId,
        /// Level of the subtree.
        level: u8,
    },
    /// Some of the chunks are in the tree already.
    #[error("subtree of level {level} at chunk {first} covers chunks that are in the tree already")]
    Overlap {
        /// First chunk of the subtree.
        first: ChunkId,
        /// Level of the subtree.
        level: u8,
    },
    /// The same chunks are in the tree with another value.
    #[error("subtree of level {level} at chunk {first} has another value than the one in the tree")]
    Conflict {
        /// First chunk of the subtree.
        first: ChunkId,
        /// Level of the subtree.
        level: u8,
    },
}

/// The hash tree of a file in the making: subtrees go in, in any order, and the digest comes out.
///
/// Siblings are merged at once, so memory is about the number of gaps and not the number of chunks (chunks of 256 KiB in the order in
/// which paths deliver them: about as many nodes as chunks in flight).
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
    /// First chunk → subtree from there on.
    /// Invariant: disjoint subtrees of the file, each at the lowest level that covers its chunks, no two of them siblings,
    /// but for the first in an open grid.
    nodes: BTreeMap<u64, Node>,
    /// Chunks covered by all nodes.
    covered: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    level: u8,
    value: ChainingValue,
}

impl HashTree {
    /// Returns the tree of a file of which nothing is known yet.
    pub const fn new(grid: Grid) -> HashTree {
        HashTree { grid, nodes: BTreeMap::new(), covered: 0 }
    }

    /// Adds a subtree none of whose chunks is in the tree.
    ///
    /// # Errors
    ///
    /// [`SubtreeError`] if it is no subtree of the file or covers chunks that are in the tree. The tree is then as it was before.
    pub fn insert(&mut self, subtree: Subtree) -> Result<(), SubtreeError> {
        let chunks = subtree.chunks(self.grid)?;
        if self.enclosing(chunks.first).is_some() || self.nodes.range(chunks.first.0..chunks.end().0).next().is_some() {
            return Err(SubtreeError::Overlap { first: subtree.first, level: subtree.level });
        }
        self.add(chunks, subtree.value);
        Ok(())
    }

    /// Adds what is new in a subtree and returns how many chunks that is, 0 if the tree has them all.
    ///
    /// For lists whose entries may overlap, such as a journal that was resumed. Two subtrees of a file are nested or disjoint. One that
    /// lies inside of one in the tree is passed over; one around some in the tree replaces them.
    ///
    /// # Errors
    ///
    /// [`SubtreeError`] if it is no subtree of the file, or covers the same chunks as one in the tree and has another value. The tree is
    /// then as it was before.
    pub fn absorb(&mut self, subtree: Subtree) -> Result<u64, SubtreeError> {
        let chunks = subtree.chunks(self.grid)?;
        if let Some((range, node)) = self.enclosing(chunks.first)
            && range.end() >= chunks.end()
        {
            if range == chunks && node.value != subtree.value {
                return Err(SubtreeError::Conflict { first: subtree.first, level: subtree.level });
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

    /// The file's length is known: what was of an open grid is of this one.
    ///
    /// # Errors
    ///
    /// [`SubtreeError`] if the tree has a subtree that the file does not have. The tree is then as it was before.
    pub fn close(&mut self, grid: Grid) -> Result<(), SubtreeError> {
        let mut closed = HashTree::new(grid);
        self.subtrees().try_for_each(|subtree| closed.insert(subtree))?;
        *self = closed;
        Ok(())
    }

    /// Returns the digest of the file once all chunks are in the tree; that of an empty file at once.
    pub fn root(&self) -> Option<Digest> {
        if self.grid.size == 0 {
            return Some(Digest(blake3::hash(&[]).into()));
        }
        if !self.is_complete() {
            return None;
        }
        self.nodes.get(&0).map(|node| Digest(node.value.0))
    }

    /// Tells whether all chunks of the file are in the tree.
    pub const fn is_complete(&self) -> bool {
        self.covered == self.grid.chunk_count()
    }

    /// Returns how many chunks are in the tree.
    pub const fn covered_chunks(&self) -> u64 {
        self.covered
    }

    /// Returns how many subtrees the tree holds, which is what its memory goes by: at most about 100 bytes each.
    pub fn open_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the fewest subtrees that cover the chunks in the tree, in ascending order.
    ///
    /// Each has the lowest level that covers its chunks: a file's last chunk, if it stands alone, is of level 0.
    pub fn subtrees(&self) -> impl ExactSizeIterator<Item = Subtree> + '_ {
        self.nodes.iter().map(|(&first, node)| Subtree { first: ChunkId(first), level: node.level, value: node.value })
    }

    /// Returns the chunks of the node that has `chunk`, and the node.
    fn enclosing(&self, chunk: ChunkId) -> Option<(ChunkRange, Node)> {
        let (&first, &node) = self.nodes.range(..=chunk.0).next_back()?;
        let range = ChunkRange { first: ChunkId(first), count: self.width(first, node.level) };
        range.contains(chunk).then_some((range, node))
    }

    /// Adds a subtree that overlaps with none, and merges as long as there is a sibling.
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
        // The node may have gone up without a sibling and found none there.
        let level = root_level(self.width(first, level));
        self.nodes.insert(first, Node { level, value });
    }

    /// Takes the sibling of a node out of the tree; nothing if it is not there yet or the node is the root.
    fn take_sibling(&mut self, first: u64, level: u8) -> Option<Sibling> {
        let chunk_count = self.grid.chunk_count();
        if level >= root_level(chunk_count) {
            return None;
        }
        let sibling = first ^ (1 << level);
        // The two may be all there is: then they have to be joined as the root, which shows when the length is known.
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
        Some(if sibling < first { Sibling::Left(value) } else { Sibling::Right(value) })
    }

    fn merge(&self, level: u8, left: ChainingValue, right: ChainingValue) -> ChainingValue {
        if level == root_level(self.grid.chunk_count()) {
            return ChainingValue(merge_subtrees_root(&left.0, &right.0, Mode::Hash).into());
        }
        ChainingValue(merge_subtrees_non_root(&left.0, &right.0, Mode::Hash))
    }

    /// Returns how many chunks of the file a node covers.
    fn width(&self, first: u64, level: u8) -> u64 {
        (1 << level).min(self.grid.chunk_count() - first)
    }
}

/// Returns the fewest subtrees that cover the same chunks as `subtrees`, in ascending order.
///
/// For the journal and for the list of what a receiver has. The entries may overlap as [`HashTree::absorb`] describes.
///
/// # Errors
///
/// [`SubtreeError`] if an entry is no subtree of the file, or two cover the same chunks and differ.
pub fn merge_siblings(grid: Grid, subtrees: Vec<Subtree>) -> Result<Vec<Subtree>, SubtreeError> {
    let mut tree = HashTree::new(grid);
    for subtree in subtrees {
        tree.absorb(subtree)?;
    }
    Ok(tree.subtrees().collect())
}

/// What stands beside a node.
enum Sibling {
    Left(ChainingValue),
    Right(ChainingValue),
    /// The file ends before the right sibling would start.
    Absent,
}

/// Returns the lowest level whose nodes cover so many chunks.
const fn root_level(chunk_count: u64) -> u8 {
    // At most 52 for the chunks of a file.
    match chunk_count {
        0 | 1 => 0,
        _ => ((chunk_count - 1).ilog2() + 1) as u8,
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// `digit` is a hexadecimal digit, by the caller.
const fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests;
