//! What is known and can be changed of a daemon while it runs.

use std::sync::{Arc, PoisonError};

use super::{Limits, Metrics, Shared};
use crate::bench::BenchLimits;

/// Reads a daemon's numbers and changes its limits. Clones are the same daemon's; it may have ended.
#[derive(Debug, Clone)]
pub struct DaemonHandle {
    shared: Arc<Shared>,
}

impl DaemonHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns the numbers of this moment. Takes microseconds, and holds nobody up.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// println!("{} sessions", handle.metrics().sessions);
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        let mut metrics = self.shared.meters.read();
        metrics.sessions = self.shared.sessions().len() as u64;
        metrics.greetings = self.shared.gate.waiting() as u64;
        metrics.buffer_bytes = self.shared.buffers.bytes_in_use();
        metrics
    }

    /// Returns the limits in force.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// println!("{:?} to end in", handle.limits().shutdown_time);
    /// # }
    /// ```
    pub fn limits(&self) -> Limits {
        (*self.shared.limits()).clone()
    }

    /// Returns what peers may have in benches.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// println!("{:?}", handle.bench_limits());
    /// # }
    /// ```
    pub fn bench_limits(&self) -> BenchLimits {
        self.shared.bench_limits()
    }

    /// Reads the list of peers again, and ends sessions whose key is gone or whose line allows less than it did.
    ///
    /// The daemon does so by itself within 3 s of a change.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// handle.reload_peers();
    /// # }
    /// ```
    pub fn reload_peers(&self) {
        self.shared.end_sessions_without_rights();
    }

    /// Changes what peers may have in benches. Those that wait follow it, and are refused where nobody may bench any more; one that runs keeps
    /// its time.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// handle.set_bench_limits(nicstripe::BenchLimits::default());
    /// # }
    /// ```
    pub fn set_bench_limits(&self, limits: BenchLimits) {
        *self.shared.bench.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Changes the limits that can change while it runs: those of sessions, the greeting time, and the time for the end. The others stay as
    /// they were at the start. Sessions that there are keep what they have, also where that is more than what is allowed now.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// let mut limits = handle.limits();
    /// limits.shutdown_time = std::time::Duration::from_secs(5);
    /// handle.set_limits(limits);
    /// # }
    /// ```
    pub fn set_limits(&self, limits: Limits) {
        let mut current = self.shared.limits.write().unwrap_or_else(PoisonError::into_inner);
        let limits = Limits {
            greetings: current.greetings,
            greetings_per_address: current.greetings_per_address,
            handshakes_per_second: current.handshakes_per_second,
            paths: current.paths,
            refusals_logged: current.refusals_logged,
            ..limits.usable()
        };
        *current = Arc::new(limits);
    }
}
