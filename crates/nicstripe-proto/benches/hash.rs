//! Benchmarks of chunk hashing, the hash tree and the journal (CPU time): `cargo bench -p
//! nicstripe-proto --bench hash`.
//!
//! The benchmark hashes one chunk repeatedly. The chunk is therefore in a CPU cache, like a chunk
//! that has just been received.
#![forbid(unsafe_code)]

mod timing;

use std::hint::black_box;

use nicstripe_proto::{
    ChainingValue, ChunkId, ChunkSize, Grid, HashTree, SourceIdentity, Subtree,
    hash_tree::chunk_value,
    journal::{Header, JournalId, Record, replay},
};
use timing::{Stopwatch, print, print_head, sample};

fn main() {
    if !timing::is_wanted() {
        return;
    }
    print_head();
    for (name, log2) in [
        ("4 KiB", 12),
        ("64 KiB", 16),
        ("256 KiB", 18),
        ("4 MiB", 22),
    ] {
        let Ok(chunk_size) = ChunkSize::from_log2(log2) else {
            continue;
        };
        let bar = if chunk_size == ChunkSize::DEFAULT {
            HASH_BAR
        } else {
            ""
        };
        print(
            &format!("chunk_value, chunks of {name}"),
            sample(|| hash(chunk_size)),
            "GB/s",
            bar,
        );
    }
    for (name, order) in orders() {
        print(
            &format!("tree insert, {name}"),
            sample(|| insert(&order).nanoseconds()),
            "ns/chunk",
            BAR,
        );
    }
    for (name, order) in orders() {
        let journal = journal(&order);
        print(
            &format!("journal replay, {name}"),
            sample(|| read(&journal, &order).nanoseconds()),
            "ns/record",
            REPLAY_BAR,
        );
    }
    print(
        "journal record, laid out",
        sample(|| lay_out().nanoseconds()),
        "ns/record",
        BAR,
    );
}

/// Measures the hashing of a file's chunks. Returns the rate in GB/s.
fn hash(chunk_size: ChunkSize) -> f64 {
    let bytes = vec![0x5a; usize::try_from(chunk_size.bytes()).unwrap_or(0)];
    // The file has one chunk more than are hashed, so that no chunk is a whole file.
    let chunks = HASHED_BYTES / chunk_size.bytes();
    let grid = Grid::new((chunks + 1) * chunk_size.bytes(), chunk_size);
    let mut stopwatch = Stopwatch::default();
    stopwatch.time(chunks * chunk_size.bytes(), || {
        for chunk in 0..chunks {
            black_box(chunk_value(grid, ChunkId(chunk), black_box(&bytes)).ok());
        }
    });
    1.0 / stopwatch.nanoseconds()
}

/// Returns arrival orders of chunks: a name, and the sequence of chunk indices.
fn orders() -> [(&'static str, Vec<u64>); 3] {
    let four_paths = (0..CHUNKS / 128).flat_map(|round| {
        (0..32).flat_map(move |step| (0..4).map(move |path| round * 128 + path * 32 + step))
    });
    // An odd multiplier visits all residues of a power of two.
    let scattered = (0..CHUNKS).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % CHUNKS);
    [
        ("in order", (0..CHUNKS).collect()),
        ("by four paths, 32 chunks each", four_paths.collect()),
        ("scattered", scattered.collect()),
    ]
}

fn subtree(chunk: u64) -> Subtree {
    let mut value = [0x5a; 32];
    value[..8].copy_from_slice(&chunk.to_le_bytes());
    Subtree::of_chunk(ChunkId(chunk), ChainingValue(value))
}

fn insert(order: &[u64]) -> Stopwatch {
    let (mut tree, mut stopwatch) = (HashTree::new(GRID), Stopwatch::default());
    stopwatch.time(order.len() as u64, || {
        for chunk in order {
            black_box(tree.insert(subtree(*chunk)).is_ok());
        }
    });
    assert!(tree.root().is_some(), "not all chunks went in");
    stopwatch
}

fn journal(order: &[u64]) -> Vec<u8> {
    let header = Header {
        grid: GRID,
        source: SourceIdentity::default(),
        peer_key: [7; 32],
        id: ID,
    };
    let records = order.iter().flat_map(|chunk| {
        Record {
            subtree: subtree(*chunk),
        }
        .encode(ID)
    });
    header.encode().into_iter().chain(records).collect()
}

fn read(journal: &[u8], order: &[u64]) -> Stopwatch {
    let mut stopwatch = Stopwatch::default();
    let replayed = stopwatch.time(order.len() as u64, || replay(journal));
    assert!(
        replayed.is_ok_and(|replayed| replayed.tree.is_complete()),
        "not all records were believed"
    );
    stopwatch
}

fn lay_out() -> Stopwatch {
    let mut stopwatch = Stopwatch::default();
    stopwatch.time(CHUNKS, || {
        for chunk in 0..CHUNKS {
            black_box(
                Record {
                    subtree: subtree(chunk),
                }
                .encode(ID),
            );
        }
    });
    stopwatch
}

/// Number of bytes hashed per measurement. A measurement takes about 0.1 s.
const HASHED_BYTES: u64 = 256 << 20;

/// Number of chunks of the simulated file, which has 16 GiB.
const CHUNKS: u64 = 1 << 16;
const GRID: Grid = Grid::new(CHUNKS * ChunkSize::DEFAULT.bytes(), ChunkSize::DEFAULT);
const ID: JournalId = JournalId([3; 16]);

/// Threshold for hashing in GB/s. Both ends hash. The CPU budget of a copy is 1.05 s/GB for both
/// ends (picked by eye).
const HASH_BAR: &str = "≥ 5: 0.4 of 1.05 CPU s/GB of both ends";

/// Threshold per chunk or record in nanoseconds: 1 % of the 210 µs that 256 KiB take at 10 Gbit/s
/// (picked by eye).
const BAR: &str = "≤ 2100: 1 % of a core at 10 Gbit/s";

/// Threshold per replayed journal record in nanoseconds. A file of 1 TiB has 4.2 million chunks,
/// and its replay may take 1 s (picked by eye).
const REPLAY_BAR: &str = "≤ 238: 1 s for a file of 1 TiB";
