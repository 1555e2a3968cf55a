//! Events of a running benchmark.

use std::time::Duration;

use crate::report::{
    BenchLink, Direction, Interval, Phase, RoundTrips, Run, SweepKind, SweepPoint,
};

/// Event of a running benchmark.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BenchEvent {
    /// The daemon has queued the benchmark behind others or behind copies.
    Waiting {
        /// Number of benchmarks ahead, including the running one; 0 if the benchmark waits for
        /// copies to end.
        ahead: u32,
        /// Maximum time until the benchmarks ahead have ended.
        wait: Duration,
    },
    /// The session is connected and its links are known.
    Connected {
        /// Links of the session, ordered by id.
        links: Vec<BenchLink>,
    },
    /// The round trips of a link without load were measured.
    Idle {
        /// Id of the measured link.
        link: u32,
        /// Statistics of the link's round-trip times, in microseconds.
        round_trips: RoundTrips,
    },
    /// Estimated remaining time of the benchmark. Sent before each load; shrinks as loads turn out
    /// to be unnecessary.
    Left(Duration),
    /// A load has begun.
    Began {
        /// Links and directions that carry the load.
        phase: Phase,
        /// Index of the repeat of this load, from 1.
        repeat: u32,
        /// Ids of the loaded links.
        links: Vec<u32>,
    },
    /// A sample of the current load was taken.
    Sample {
        /// Links and directions that carry the load.
        phase: Phase,
        /// Index of the repeat of this load, from 1.
        repeat: u32,
        /// Direction of the sampled data.
        way: Direction,
        /// Received bytes, retransmissions and RTT per link since the previous sample.
        interval: Interval,
        /// Ids of the links, in the order of the interval's values.
        links: Vec<u32>,
    },
    /// A load has ended with these results.
    RunDone(Run),
    /// A sweep point was measured. Sent again with all repeats if the point was measured again.
    Point {
        /// Quantity that the sweep varies.
        kind: SweepKind,
        /// Size or connection count of the point, and its results.
        point: SweepPoint,
    },
    /// Remark about the benchmark, in one sentence, such as a skipped part.
    Note(String),
}
