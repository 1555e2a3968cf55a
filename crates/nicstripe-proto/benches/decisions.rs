//! Processor time of single functions: `cargo bench -p nicstripe-proto`.
//!
//! Hashing repeats one chunk, which is in a CPU cache like one that has just arrived. Chunks have
//! 256 KiB; 10 Gbit/s are 4768 a second: one of 210 µs. At 1 % of a core, a step of each chunk
//! may take 2.1 µs.
#![forbid(unsafe_code)]
// Clippy forbids reading the clock in this crate, but a bench must read it.
#![allow(clippy::disallowed_methods)]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use nicstripe_proto::{
    BitRate, ChainingValue, ChunkId, ChunkRange, ChunkSet, ChunkSize, Grid, HashTree, PathId,
    SourceIdentity, Subtree,
    hash_tree::chunk_value,
    journal::{Header, JournalId, Record, replay},
    stripe::{LARGEST_ASSIGNMENT, PathLoad, Striper},
};

criterion_group!(benches, hashing, chunks, striping);
criterion_main!(benches);

/// Bar: 5 GB/s for chunks of 256 KiB, 0.4 of the 1.05 CPU s/GB of both ends.
fn hashing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash a chunk");
    for log2 in [12, 16, 18, 22] {
        let Ok(size) = ChunkSize::from_log2(log2) else {
            continue;
        };
        let bytes = vec![0x5a; 1 << log2];
        // A second chunk, so that the first one is not the whole file.
        let grid = Grid::new(2 * size.bytes(), size);
        group.throughput(Throughput::Bytes(size.bytes()));
        group.bench_function(format!("{} KiB", size.bytes() >> 10), |bencher| {
            bencher.iter(|| chunk_value(grid, ChunkId(0), black_box(&bytes)));
        });
    }
}

/// Bars: 2100 ns a chunk; for a record that is replayed 238 ns, so that a file of 1 TiB takes 1 s.
fn chunks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a file of 16 GiB");
    group
        .sample_size(20)
        .throughput(Throughput::Elements(CHUNKS));
    for (name, order) in orders() {
        group.bench_function(format!("tree, {name}"), |bencher| {
            bencher.iter(|| {
                let mut tree = HashTree::new(GRID);
                let mut inserted = order.iter().map(|chunk| tree.insert(subtree(*chunk)));
                assert!(inserted.all(|result| result.is_ok()));
                tree.root()
            });
        });
        let journal = journal(&order);
        group.bench_function(format!("replay, {name}"), |bencher| {
            bencher.iter(|| replay(black_box(&journal)).is_ok());
        });
    }
}

/// Bars: 210 ns for a chunk, 21 µs for what is asked once a chunk of 1 Gbit/s at the end of a file.
fn striping(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stripe");
    let begun = Instant::now();
    for paths in [1, 4, 64] {
        let chunks = u64::from(paths) * LARGEST_ASSIGNMENT;
        group.throughput(Throughput::Elements(chunks));
        group.bench_function(
            format!("assign and acknowledge, {paths} paths"),
            |bencher| {
                let queued = || full(paths, begun);
                let carry = |(mut striper, carried): (Striper, Vec<ChunkRange>)| {
                    for range in carried {
                        black_box(striper.acknowledge(range));
                    }
                    assign(&mut striper, paths, begun)
                };
                bencher.iter_batched(queued, carry, BatchSize::SmallInput);
            },
        );
        if paths == 1 {
            continue;
        }
        // One path is idle, and all chunks in flight are late, or none.
        let (mut striper, carried) = full(paths, begun);
        striper.acknowledge(carried[0]);
        group.throughput(Throughput::Elements(1));
        for (name, after) in [
            ("late", Duration::from_secs(3600)),
            ("soon", Duration::from_millis(1)),
        ] {
            group.bench_function(format!("hedge what is {name}, {paths} paths"), |bencher| {
                let later = begun + after;
                bencher.iter(|| striper.hedge(PathId(0), CHUNK_BYTES, Duration::ZERO, load, later));
            });
        }
        group.bench_function(format!("when to hedge, {paths} paths"), |bencher| {
            bencher.iter(|| striper.hedge_at(PathId(0), load));
        });
    }
}

/// Returns orders in which chunks arrive, with their names.
fn orders() -> [(&'static str, Vec<u64>); 3] {
    let four_paths = (0..CHUNKS / 128).flat_map(|round| {
        (0..32).flat_map(move |step| (0..4).map(move |path| round * 128 + path * 32 + step))
    });
    // An odd multiplier visits all residues of a power of two.
    let scattered = (0..CHUNKS).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % CHUNKS);
    [
        ("in order", (0..CHUNKS).collect()),
        ("by four paths", four_paths.collect()),
        ("scattered", scattered.collect()),
    ]
}

fn subtree(chunk: u64) -> Subtree {
    let mut value = [0x5a; 32];
    value[..8].copy_from_slice(&chunk.to_le_bytes());
    Subtree::of_chunk(ChunkId(chunk), ChainingValue(value))
}

fn journal(order: &[u64]) -> Vec<u8> {
    let header = Header {
        grid: GRID,
        source: SourceIdentity::default(),
        peer_key: [7; 32],
        id: ID,
    };
    let record = |chunk: &u64| {
        let subtree = subtree(*chunk);
        Record { subtree }.encode(ID)
    };
    let records = order.iter().flat_map(record);
    header.encode().into_iter().chain(records).collect()
}

/// Returns a striper in which each path has one assignment in flight and one queued, and those in flight.
fn full(paths: u16, now: Instant) -> (Striper, Vec<ChunkRange>) {
    let mut chunks = ChunkSet::new();
    let count = 2 * u64::from(paths) * LARGEST_ASSIGNMENT;
    chunks.insert(ChunkRange::new(ChunkId(0), count));
    let mut striper = Striper::new(chunks);
    let carried = assign(&mut striper, paths, now);
    (striper, carried)
}

fn assign(striper: &mut Striper, paths: u16, now: Instant) -> Vec<ChunkRange> {
    let assigned = (0..paths).map(|path| striper.assign(PathId(path), LARGEST_ASSIGNMENT, now));
    assigned.flatten().collect()
}

/// Returns the load of a path: the first is idle and slow, the others are gigabit cables with a full
/// assignment in flight.
fn load(path: PathId) -> PathLoad {
    let (in_flight, rate) = match path.0 {
        0 => (0, BitRate::from_mbit(1)),
        _ => (LARGEST_ASSIGNMENT * CHUNK_BYTES, BitRate::from_gbit(1)),
    };
    PathLoad {
        in_flight,
        rate: Some(rate),
        suspect: false,
    }
}

const CHUNK_BYTES: u64 = 256 << 10;
const CHUNKS: u64 = 1 << 16;
const GRID: Grid = Grid::new(CHUNKS * ChunkSize::DEFAULT.bytes(), ChunkSize::DEFAULT);
const ID: JournalId = JournalId([3; 16]);
