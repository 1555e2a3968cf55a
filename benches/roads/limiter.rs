//! What held a run back.

use std::{fmt, thread};

use crate::{bench_support::Spread, rig::Measured};

/// What there was no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    /// The cables were full.
    Cables,
    /// The processors of the machine that both hosts share were.
    Cpu,
    /// Something else ran on the machine: measure again.
    Others,
    /// Neither: the tool waits for something else, or one thread of it is busy.
    Tool,
}

/// Judges by the median of each.
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
            Self::Others => "other work here",
            Self::Tool => "the tool",
        })
    }
}

/// Of what the cables carry, over the whole time of the command, its start and end included.
const FULL: f64 = 0.93;

/// Processors that others kept busy; what the kernel does for the cables in the context of nobody is a third of one at 2 Gbit/s.
const DISTURBED: f64 = 0.6;

/// Of the processors; the rest is what scheduling leaves.
const BUSY: f64 = 0.9;
