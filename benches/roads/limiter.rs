//! Diagnosis of the bottleneck of a measured tool.

use std::{fmt, thread};

use nicstripe_testkit::bench::Spread;

use crate::rig::Measured;

/// Resource that limits a tool's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    /// Capacity of the cables between the hosts.
    Cables,
    /// CPUs of the machine, which both hosts share.
    Cpu,
    /// Other load on the machine. The measurement should be repeated.
    Others,
    /// The tool itself, which waits for something other than cables and CPUs, or has a thread that
    /// uses a whole CPU.
    Tool,
}

/// Returns the bottleneck, determined from the medians of several runs.
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

/// Minimum share of the cables' capacity, 0 to 1, at which the cables count as full. Averaged over
/// the whole command.
const FULL: f64 = 0.93;

/// Number of CPUs kept busy by other load above which a measurement counts as disturbed. The
/// kernel's work for the cables, outside any process, takes a third of one CPU at 2 Gbit/s.
const DISTURBED: f64 = 0.6;

/// Minimum share of all CPUs, 0 to 1, at which the CPUs count as busy. Scheduling loses the rest.
const BUSY: f64 = 0.9;
