//! Tests of benchmarks between a client and a daemon in one process, with loopback addresses as
//! links.

pub(crate) mod disks;
mod loads;
mod queue;
mod sweeps;

use std::time::Duration;

use nicstripe::{BenchPlan, bench::Phase};

/// Returns a benchmark plan with the given phases and short loads, because the tests ignore the
/// rates.
pub(crate) fn quick(phases: &[Phase]) -> BenchPlan {
    BenchPlan {
        phases: phases.to_vec(),
        load: Duration::from_millis(600),
        warm_up: Duration::from_millis(200),
        interval: Duration::from_millis(100),
        repeats: 1..=1,
        settle: false,
        pings: 20,
        ..BenchPlan::default()
    }
}

/// Like [`quick`], with more repeats than a test waits for.
pub(crate) fn long(phases: &[Phase]) -> BenchPlan {
    BenchPlan {
        repeats: 12..=12,
        ..quick(phases)
    }
}
