//! Events of a running benchmark.

use std::time::Duration;

use super::report::{
    BenchLink, Direction, Interval, Phase, RoundTrips, Run, SweepKind, SweepPoint,
};

/// Event of a running benchmark.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BenchEvent {
    /// The daemon has queued the benchmark.
    Waiting {
        /// Benchmarks ahead, including the running one; 0 means that it waits for copies to end.
        ahead: u32,
        /// Maximum time until they are done.
        wait: Duration,
    },
    /// The links are known.
    Connected {
        /// All links, ordered by id.
        links: Vec<BenchLink>,
    },
    /// Round trips of an idle link were measured.
    Idle {
        /// Link id.
        link: u32,
        /// Statistics of the round trips.
        round_trips: RoundTrips,
    },
    /// Estimated remaining time. Sent before each load; shrinks as loads turn out to be
    /// unnecessary.
    Left(Duration),
    /// A load begins.
    Began {
        /// Kind of load.
        phase: Phase,
        /// Repeat number, from 1.
        repeat: u32,
        /// Ids of its links.
        links: Vec<u32>,
    },
    /// Sample of the current load.
    Sample {
        /// Kind of load.
        phase: Phase,
        /// Repeat number.
        repeat: u32,
        /// Direction.
        way: Direction,
        /// Sample.
        interval: Interval,
        /// Ids of the links, in the order of the interval's values.
        links: Vec<u32>,
    },
    /// A load has ended.
    RunDone(Run),
    /// A sweep point was measured. Sent again with all repeats if the point was measured again.
    Point {
        /// Swept quantity.
        kind: SweepKind,
        /// Measured point.
        point: SweepPoint,
    },
    /// Remark, in one sentence.
    Note(String),
}
