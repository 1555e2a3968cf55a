//! Tests of the hash tree. The digest must equal `blake3::hash` for many sizes, orders and subtree
//! levels, and invalid subtrees must be rejected.

use proptest::prelude::*;

use super::*;
use crate::file::grid::ChunkSize;

proptest! {
    #[test]
    fn chunks_in_any_order_give_the_digest(size in sizes(), seed in any::<u64>()) {
        let file = bytes(size);
        let grid = Grid::new(size, ChunkSize::MIN);
        let mut tree = HashTree::new(grid);
        for subtree in shuffled(leaves(&file, grid), seed) {
            prop_assert_eq!(tree.root(), None);
            tree.insert(subtree).unwrap();
        }
        prop_assert_eq!(tree.root(), Some(digest_of(&file)));
        prop_assert!(tree.is_complete() && tree.subtrees().len() <= 1);
    }

    #[test]
    fn a_mix_of_chunks_and_larger_subtrees_gives_the_digest(size in sizes(), seed in any::<u64>()) {
        let file = bytes(size);
        let grid = Grid::new(size, ChunkSize::MIN);
        let mut tree = HashTree::new(grid);
        for subtree in shuffled(mixed(&file, grid, seed), seed ^ 1) {
            tree.insert(subtree).unwrap();
        }
        prop_assert_eq!(tree.root(), Some(digest_of(&file)));
    }

    #[test]
    fn merging_keeps_the_chunks_and_leaves_no_siblings(size in sizes(), keep in any::<u64>(), seed in any::<u64>()) {
        let file = bytes(size);
        let grid = Grid::new(size, ChunkSize::MIN);
        let (kept, rest): (Vec<_>, Vec<_>) = leaves(&file, grid).into_iter().partition(|leaf| keep >> (leaf.first.0 % 64) & 1 == 1);
        let merged = merge_siblings(grid, shuffled(kept.clone(), seed)).unwrap();
        let chunks: Vec<ChunkId> = merged.iter().flat_map(|subtree| subtree.chunks(grid).unwrap().chunks()).collect();
        prop_assert_eq!(chunks, kept.iter().map(|leaf| leaf.first).collect::<Vec<_>>());
        for subtree in &merged {
            prop_assert_eq!(subtree.value, value_of(&file, grid, subtree.first.0, subtree.level));
        }
        prop_assert_eq!(merged.len(), fewest(grid, &kept));
        let mut tree = HashTree::new(grid);
        for subtree in shuffled([merged, rest].concat(), seed) {
            tree.insert(subtree).unwrap();
        }
        prop_assert_eq!(tree.root(), Some(digest_of(&file)));
    }

    #[test]
    fn overlapping_lists_are_absorbed(size in sizes(), seed in any::<u64>()) {
        let file = bytes(size);
        let grid = Grid::new(size, ChunkSize::MIN);
        let lists = [leaves(&file, grid), mixed(&file, grid, seed), mixed(&file, grid, seed ^ 2)].concat();
        let mut tree = HashTree::new(grid);
        for subtree in shuffled(lists, seed ^ 3) {
            let before = tree.covered_chunks();
            prop_assert_eq!(tree.absorb(subtree), Ok(tree.covered_chunks() - before));
            prop_assert_eq!(tree.insert(subtree).is_err(), true);
        }
        prop_assert_eq!(tree.root(), Some(digest_of(&file)));
    }

    #[test]
    fn any_numbers_are_accepted(
        size in prop_oneof![sizes(), any::<u64>()],
        subtrees in prop::collection::vec((prop_oneof![0..70_u64, any::<u64>()], prop_oneof![0..8_u8, any::<u8>()], 0..2_u8), 0..60),
    ) {
        let grid = Grid::new(size, ChunkSize::MIN);
        let mut strict = HashTree::new(grid);
        let mut tolerant = HashTree::new(grid);
        for (first, level, value) in subtrees {
            let subtree = Subtree { first: ChunkId(first), level, value: ChainingValue([value; 32]) };
            let _ = strict.insert(subtree);
            let _ = tolerant.absorb(subtree);
            for tree in [&strict, &tolerant] {
                let covered: u64 = tree.subtrees().map(|subtree| subtree.chunks(grid).unwrap().count).sum();
                prop_assert_eq!(covered, tree.covered_chunks());
            }
        }
    }
}

#[test]
fn an_empty_file_has_its_digest_at_once() {
    let tree = HashTree::new(Grid::new(0, ChunkSize::DEFAULT));
    let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    assert_eq!(tree.root().unwrap().to_string(), empty);
    assert_eq!(tree.subtrees().len(), 0);
}

#[test]
fn a_subtree_of_the_whole_file_is_the_digest() {
    let file = bytes(5 * 4096);
    let grid = Grid::new(file.len() as u64, ChunkSize::MIN);
    let merged = merge_siblings(grid, leaves(&file, grid)).unwrap();
    assert_eq!(
        merged,
        [Subtree {
            first: ChunkId(0),
            level: 3,
            value: ChainingValue(digest_of(&file).0)
        }]
    );
    let mut tree = HashTree::new(grid);
    tree.insert(merged[0]).unwrap();
    assert_eq!(tree.root(), Some(digest_of(&file)));
}

#[test]
fn a_lone_last_chunk_may_come_at_any_level_and_leaves_at_level_0() {
    // Chunk 4 of 5 has no sibling at levels 0 and 1.
    let file = bytes(5 * 4096);
    let grid = Grid::new(file.len() as u64, ChunkSize::MIN);
    let leaf = leaves(&file, grid)[4];
    for level in 0..=2 {
        assert_eq!(
            merge_siblings(grid, vec![Subtree { level, ..leaf }]),
            Ok(vec![leaf])
        );
    }
    let too_high = Subtree { level: 3, ..leaf };
    assert_eq!(
        too_high.chunks(grid),
        Err(SubtreeError::Misaligned(too_high))
    );
}

#[test]
fn what_is_no_subtree_or_in_the_tree_already_is_an_error() {
    let grid = Grid::new(6 * 4096, ChunkSize::MIN);
    let at = |first, level| Subtree {
        first: ChunkId(first),
        level,
        value: ChainingValue([first as u8; 32]),
    };
    let mut tree = HashTree::new(grid);
    tree.insert(at(2, 1)).unwrap();
    for (first, level) in [(2, 1), (2, 0), (3, 0), (0, 2), (0, 3)] {
        let subtree = at(first, level);
        assert_eq!(tree.insert(subtree), Err(SubtreeError::Overlap(subtree)));
    }
    for (first, level) in [(6, 0), (0, 4), (0, 64), (0, 255), (u64::MAX, 0)] {
        let first = ChunkId(first);
        assert_eq!(
            tree.insert(at(first.0, level)),
            Err(SubtreeError::OutOfRange {
                first,
                level,
                chunk_count: 6
            })
        );
    }
    assert_eq!(
        tree.insert(at(1, 1)),
        Err(SubtreeError::Misaligned(at(1, 1)))
    );
    let other = Subtree {
        value: ChainingValue([9; 32]),
        ..at(2, 1)
    };
    assert_eq!(tree.absorb(other), Err(SubtreeError::Conflict(other)));
    assert_eq!(tree.subtrees().collect::<Vec<_>>(), [at(2, 1)]);
}

#[test]
fn bytes_that_are_no_chunk_are_an_error() {
    let grid = Grid::new(5000, ChunkSize::MIN);
    let error = chunk_value(grid, ChunkId(1), &[0; 4096]).unwrap_err();
    assert_eq!(
        error,
        ChunkError::Length {
            chunk: ChunkId(1),
            found: 4096,
            expected: 904
        }
    );
    assert_eq!(error.to_string(), "chunk 1 has 4096 bytes, expected 904");
    for chunk in [2, u64::MAX].map(ChunkId) {
        assert_eq!(
            chunk_value(grid, chunk, &[]),
            Err(ChunkError::OutOfRange {
                chunk,
                chunk_count: 2
            })
        );
    }
}

#[test]
fn in_striping_order_few_nodes_are_open() {
    // Four paths with runs of 32 chunks, which deliver round-robin.
    let file = bytes(1024 * 4096);
    let grid = Grid::new(file.len() as u64, ChunkSize::MIN);
    let leaves = leaves(&file, grid);
    let mut tree = HashTree::new(grid);
    let mut most = 0;
    for step in 0..1024 {
        let (round, turn) = (step / 128, step % 128);
        tree.insert(leaves[round * 128 + turn % 4 * 32 + turn / 4])
            .unwrap();
        most = most.max(tree.subtrees().len());
    }
    // A run of n chunks has at most log2(n) + 1 nodes. There are four runs of 32 chunks, plus the
    // complete part before them.
    assert!(most <= 4 * 6 + 4, "{most} open nodes");
}

#[test]
fn digests_are_read_as_they_are_printed() {
    let digest = digest_of(b"x");
    let text = digest.to_string();
    assert_eq!(text.parse::<Digest>().unwrap(), digest);
    assert_eq!(text.to_uppercase().parse::<Digest>().unwrap(), digest);
    for bad in ["12", "ab\u{e9}", &text.replacen(&text[..1], "g", 1)] {
        let error = bad.parse::<Digest>().unwrap_err().to_string();
        assert!(error.starts_with("invalid digest: "), "{error}");
    }
}

#[test]
fn a_digest_on_the_wire_is_a_byte_string_of_32() {
    let encoded = minicbor::to_vec(Digest([3; 32])).unwrap();
    assert_eq!(encoded, [&[0x58, 0x20][..], &[3; 32]].concat());
    assert_eq!(
        minicbor::decode::<Digest>(&encoded).unwrap(),
        Digest([3; 32])
    );
    assert!(minicbor::decode::<Digest>(&encoded[..20]).is_err());
}

fn leaves(file: &[u8], grid: Grid) -> Vec<Subtree> {
    let leaf = |(chunk, bytes)| {
        let chunk = ChunkId(chunk as u64);
        Subtree::of_chunk(chunk, chunk_value(grid, chunk, bytes).unwrap())
    };
    file.chunks(grid.chunk_size.bytes() as usize)
        .enumerate()
        .map(leaf)
        .collect()
}

/// Returns disjoint subtrees of random levels that cover the whole file.
fn mixed(file: &[u8], grid: Grid, mut seed: u64) -> Vec<Subtree> {
    let mut subtrees = Vec::new();
    let mut first = 0;
    while first < grid.chunk_count() {
        seed = scramble(seed);
        let most = first
            .trailing_zeros()
            .min(root_level(grid.chunk_count()).into()) as u8;
        let level = (seed % 6).min(most.into()) as u8;
        subtrees.push(Subtree {
            first: ChunkId(first),
            level,
            value: value_of(file, grid, first, level),
        });
        first += 1 << level;
    }
    subtrees
}

/// Returns a subtree's chaining value, computed directly from the subtree's bytes without the code
/// under test.
fn value_of(file: &[u8], grid: Grid, first: u64, level: u8) -> ChainingValue {
    let offset = first * grid.chunk_size.bytes();
    let end = grid.size.min(offset + (grid.chunk_size.bytes() << level));
    let bytes = &file[offset as usize..end as usize];
    if bytes.len() == file.len() {
        return ChainingValue(digest_of(file).0);
    }
    ChainingValue(
        Hasher::new()
            .set_input_offset(offset)
            .update(bytes)
            .finalize_non_root(),
    )
}

/// Returns the minimum number of subtrees that cover the chunks `kept`, counted by descent from the
/// root.
fn fewest(grid: Grid, kept: &[Subtree]) -> usize {
    fn descend(chunks: &[bool], level: u8) -> usize {
        if chunks.is_empty() || chunks.iter().all(|&kept| !kept) {
            return 0;
        }
        if chunks.iter().all(|&kept| kept) {
            return 1;
        }
        let (left, right) = chunks.split_at(chunks.len().min(1 << (level - 1)));
        descend(left, level - 1) + descend(right, level - 1)
    }
    let mut chunks = vec![false; grid.chunk_count() as usize];
    kept.iter()
        .for_each(|leaf| chunks[leaf.first.0 as usize] = true);
    descend(&chunks, root_level(grid.chunk_count()))
}

fn shuffled(mut subtrees: Vec<Subtree>, mut seed: u64) -> Vec<Subtree> {
    for left in (1..subtrees.len()).rev() {
        seed = scramble(seed);
        subtrees.swap(left, (seed % (left as u64 + 1)) as usize);
    }
    subtrees
}

fn scramble(seed: u64) -> u64 {
    let mixed = (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32).wrapping_add(0x9e37_79b9_7f4a_7c15)
}

fn bytes(size: u64) -> Vec<u8> {
    (0..size).map(|index| ((index * 31) >> 3) as u8).collect()
}

fn digest_of(bytes: &[u8]) -> Digest {
    Digest(blake3::hash(bytes).into())
}

fn sizes() -> impl Strategy<Value = u64> {
    let near_chunks = (0..40_u64, 0..3_usize)
        .prop_map(|(chunks, which)| around_chunks_of(ChunkSize::MIN)(chunks)[which]);
    prop_oneof![
        Just(0),
        Just(1),
        1023..=1025_u64,
        near_chunks,
        0..200_000_u64
    ]
}

fn around_chunks_of(chunk_size: ChunkSize) -> impl Fn(u64) -> [u64; 3] {
    move |chunks| {
        let size = chunks * chunk_size.bytes();
        [size.saturating_sub(1), size, size + 1]
    }
}

#[test]
fn subtrees_of_zeros_join_to_the_digest_of_zeros() {
    for chunks in [1_u64, 2, 3, 5, 16, 33] {
        for rest in [0, 1, 4095] {
            let size = (chunks * 4096).saturating_sub(rest);
            let grid = Grid::new(size, ChunkSize::MIN);
            let mut set = crate::file::extent::ChunkSet::new();
            set.insert(grid.all_chunks());
            let mut tree = HashTree::new(grid);
            while let Some(zeros) = Zeros::take(&mut set, grid) {
                tree.insert(zeros_subtree(grid, zeros).unwrap()).unwrap();
            }
            let whole = digest_of(&vec![0; size as usize]);
            assert_eq!(tree.root(), Some(whole), "{size} bytes");
        }
    }
    let grid = Grid::new(4096 * 5, ChunkSize::MIN);
    for (first, level) in [(5, 0), (1, 1)] {
        let first = ChunkId(first);
        assert!(zeros_subtree(grid, Zeros { first, level }).is_err());
    }
}

#[test]
fn a_tree_of_unknown_length_has_the_digest_of_the_file_once_it_is_known() {
    let size = ChunkSize::MIN;
    let around = [1, 2, 4, 5, 7, 16, 33].map(around_chunks_of(size));
    for len in around.into_iter().flatten().chain([1]) {
        let file = bytes(len);
        let mut tree = HashTree::new(Grid::open(size));
        let count = file.chunks(4096).count();
        for (chunk, bytes) in file.chunks(4096).enumerate() {
            let chunk_id = ChunkId(chunk as u64);
            let value = piece_value(Grid::open(size), chunk_id, bytes, chunk + 1 == count).unwrap();
            tree.insert(Subtree::of_chunk(chunk_id, value)).unwrap();
        }
        assert_eq!(tree.root(), None, "{len}");
        tree.close(Grid::new(len, size)).unwrap();
        assert_eq!(tree.root(), Some(digest_of(&file)), "{len}");
    }
}
