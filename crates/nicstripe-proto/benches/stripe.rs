//! Benchmarks of the striper's decisions (CPU time): `cargo bench -p nicstripe-proto --bench
//! stripe`.
//!
//! Chunks have 256 KiB, and each path has one full assignment of 32 chunks in flight. A gigabit
//! link needs 477 chunks per second, and a 10 Gbit/s link needs 4768. A budget of 1 % of a core is
//! 21 µs or 2.1 µs per chunk.
#![forbid(unsafe_code)]

mod timing;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use nicstripe_proto::{
    BitRate, ChunkId, ChunkRange, ChunkSet, PathId,
    stripe::{LARGEST_ASSIGNMENT, PathLoad, Striper},
};
use timing::{Stopwatch, now, print, print_head, sample};

fn main() {
    if !timing::is_wanted() {
        return;
    }
    print_head();
    for paths in [1, 4, 64] {
        let what = |decision: &str| {
            format!(
                "{decision}, {paths} path{}",
                if paths == 1 { "" } else { "s" }
            )
        };
        let assign = sample(|| steady(paths).assign.nanoseconds());
        print(&what("assign"), assign, "ns/chunk", BAR);
        print(
            &what("assign"),
            reversed(assign.map(|ns| 1e3 / ns)),
            "M chunk/s",
            "",
        );
        print(
            &what("acknowledge"),
            sample(|| steady(paths).acknowledge.nanoseconds()),
            "ns/chunk",
            BAR,
        );
        print(
            &what("acknowledge, a chunk at a time"),
            sample(|| steady(paths).acknowledge_single.nanoseconds()),
            "ns/chunk",
            BAR,
        );
        if paths > 1 {
            print(
                &what("hedge"),
                sample(|| hedges(paths, LATE).nanoseconds()),
                "ns/chunk",
                HEDGE_BAR,
            );
            print(
                &what("hedge that finds nothing promising"),
                sample(|| hedges(paths, SOON).nanoseconds()),
                "ns",
                HEDGE_BAR,
            );
            print(
                &what("when to hedge"),
                sample(|| hedge_times(paths).nanoseconds()),
                "ns",
                HEDGE_BAR,
            );
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Steady {
    assign: Stopwatch,
    acknowledge: Stopwatch,
    acknowledge_single: Stopwatch,
}

/// Measures steady transfers. Each round acknowledges the assignment of every path and assigns the
/// next chunks.
fn steady(paths: u16) -> Steady {
    let now = now();
    let (mut striper, mut carried) = full(paths, ROUNDS, now);
    let mut steady = Steady::default();
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            let chunks = carried.iter().map(|range| range.count).sum();
            steady.acknowledge.time(chunks, || {
                carried
                    .iter()
                    .for_each(|range| drop(black_box(striper.acknowledge(*range))));
            });
        } else {
            let chunks: Vec<ChunkId> = carried.iter().flat_map(|range| range.chunks()).collect();
            let single = &mut steady.acknowledge_single;
            single.time(chunks.len() as u64, || {
                chunks
                    .iter()
                    .for_each(|chunk| drop(black_box(striper.acknowledge((*chunk).into()))));
            });
        }
        carried.clear();
        let chunks = u64::from(paths) * LARGEST_ASSIGNMENT;
        steady.assign.time(chunks, || {
            carried.extend(
                (0..paths).filter_map(|path| striper.assign(PathId(path), LARGEST_ASSIGNMENT, now)),
            );
        });
    }
    steady
}

/// Measures hedges that the only idle path makes at the end of a transfer.
fn hedges(paths: u16, later: Duration) -> Stopwatch {
    let mut stopwatch = Stopwatch::default();
    let begun = now();
    for _ in 0..ENDS {
        let (mut striper, carried) = full(paths, 0, begun);
        striper.acknowledge(carried[0]);
        stopwatch.time(HEDGES, || {
            for _ in 0..HEDGES {
                black_box(striper.hedge(
                    PathId(0),
                    CHUNK_BYTES,
                    Duration::ZERO,
                    load,
                    begun + later,
                ));
            }
        });
    }
    stopwatch
}

/// Measures the query for the time at which the only idle path may hedge.
fn hedge_times(paths: u16) -> Stopwatch {
    let mut stopwatch = Stopwatch::default();
    let (mut striper, carried) = full(paths, 0, now());
    striper.acknowledge(carried[0]);
    stopwatch.time(ENDS * HEDGES, || {
        for _ in 0..ENDS * HEDGES {
            black_box(striper.hedge_at(PathId(0), load));
        }
    });
    stopwatch
}

/// Creates a striper in which each path has one assignment in flight. Chunks for `rounds` more
/// assignments are queued. Returns the striper and the assignments.
fn full(paths: u16, rounds: u64, now: Instant) -> (Striper, Vec<ChunkRange>) {
    let mut chunks = ChunkSet::new();
    chunks.insert(ChunkRange::new(
        ChunkId(0),
        (rounds + 1) * u64::from(paths) * LARGEST_ASSIGNMENT,
    ));
    let mut striper = Striper::new(chunks);
    let carried = (0..paths)
        .filter_map(|path| striper.assign(PathId(path), LARGEST_ASSIGNMENT, now))
        .collect();
    (striper, carried)
}

/// Returns the load of a path. Path 0 is idle and slow, so that it hedges only late chunks. The
/// other paths are gigabit links with a full assignment in flight.
fn load(path: PathId) -> PathLoad {
    let (in_flight, rate) = if path.0 == 0 {
        (0, BitRate::from_mbit(1))
    } else {
        (LARGEST_ASSIGNMENT * CHUNK_BYTES, BitRate::from_gbit(1))
    };
    PathLoad {
        in_flight,
        rate: Some(rate),
        suspect: false,
    }
}

/// Reverses ascending times to ascending rates: the longest time gives the lowest rate.
fn reversed<const N: usize>(mut values: [f64; N]) -> [f64; N] {
    values.reverse();
    values
}

const CHUNK_BYTES: u64 = 256 * 1024;

/// Number of rounds in a transfer: 2 GiB per path.
const ROUNDS: u64 = 256;

/// Number of simulated ends of a transfer. Each end has hedges for the chunks of one assignment.
const ENDS: u64 = 64;
const HEDGES: u64 = LARGEST_ASSIGNMENT;

/// Ages of the chunks in flight: at `LATE` all chunks count as late, at `SOON` none.
const LATE: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(1);

/// Threshold per chunk in nanoseconds: 0.1 % of the 210 µs that a chunk takes at 10 Gbit/s (picked
/// by eye).
const BAR: &str = "≤ 210: 0.1 % of a core at 10 Gbit/s";

/// Threshold per hedge in nanoseconds: 1 % of the 2.1 ms that a chunk takes at 1 Gbit/s (picked by
/// eye).
const HEDGE_BAR: &str = "≤ 21000: 1 % of a chunk at 1 Gbit/s";
