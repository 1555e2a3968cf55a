//! Bottleneck of a run.

use std::{fmt, thread};

use crate::{bench_support::Spread, rig::Measured};

/// The exhausted resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    /// The cables were full.
    Cables,
    /// Both hosts' shared processors were busy.
    Cpu,
    /// Other load on the machine: measure again.
    Others,
    /// None of these: the tool waits for something else, or one of its threads is busy.
    Tool,
}

/// Determines the bottleneck from the median of each value.
pub(crate) fn limiter(runs: &[Measured]) -> Limiter {
    let cpus = thread::available_parallelism().map_or(1, usize::from) as f64;
    let others = Spread::of(runs, |run| run.cpus()[2]).median();
    if Spread::of(runs, Measured::fullness).median() >= FULL {
        Limiter::Cables
    } else if others >= DISTURBED {
        Limiter::Others
    } else if Spread::of(runs, |run| run.cpus().iter().sum()).median() >= BUSY * cpus {
        Limiter::Cpu
    } else {
        Limiter::Tool
    }
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cables => "cables",
            Self::Cpu => "CPU of both hosts",
            Self::Others => "other load",
            Self::Tool => "the tool",
        })
    }
}

/// Share of the cables' capacity, over the whole time of the command, start and end included.
const FULL: f64 = 0.93;

/// Processors kept busy by other work; kernel work for the cables outside any process is a third of
/// one at 2 Gbit/s.
const DISTURBED: f64 = 0.6;

/// Share of the processors; the rest is lost to scheduling.
const BUSY: f64 = 0.9;
