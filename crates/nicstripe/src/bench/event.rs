//! What a bench tells while it runs.

use std::time::Duration;

use super::report::{BenchLink, Interval, Phase, RoundTrips, Run, SweepKind, SweepPoint, Way};

/// What a bench tells while it runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BenchEvent {
    /// The daemon lets others go first.
    Waiting {
        /// How many benches, the one that runs included; 0: it waits for copies to end.
        ahead: u32,
        /// How long they may take at most.
        wait: Duration,
    },
    /// The links are known.
    Connected {
        /// All of them, in the order of their ids.
        links: Vec<BenchLink>,
    },
    /// The round trips of a link without load were measured.
    Idle {
        /// Its id.
        link: u32,
        /// What they were.
        round_trips: RoundTrips,
    },
    /// The time that it will take from now on, about; it is told before each load, and less of what turns out to be needless.
    Left(Duration),
    /// A load begins.
    Began {
        /// Which kind.
        phase: Phase,
        /// Number of its repeat, from 1.
        repeat: u32,
        /// Ids of its links.
        links: Vec<u32>,
    },
    /// A sample of the load that began last.
    Sample {
        /// Which kind.
        phase: Phase,
        /// Number of its repeat.
        repeat: u32,
        /// Which way.
        way: Way,
        /// The sample.
        interval: Interval,
        /// Ids of the links, in the order of the interval's numbers.
        links: Vec<u32>,
    },
    /// A load has ended.
    RunDone(Run),
    /// A point of a sweep was measured; once more if it was measured again, with all its repeats.
    Point {
        /// What is swept.
        kind: SweepKind,
        /// The point.
        point: SweepPoint,
    },
    /// Something worth knowing, in a sentence.
    Note(String),
}
