//! Benchmarks that peers run against a daemon.

use nicstripe_bench::{BenchLimits, QueueChannel};
use nicstripe_proto::message::BenchBody;

use super::{builder::DaemonBuilder, handle::DaemonHandle};
use crate::session::{BenchInput, Command, SessionHandle};

impl QueueChannel for SessionHandle {
    async fn send(&self, body: BenchBody) {
        self.command(Command::Bench(BenchInput::Message(body)))
            .await;
    }
}

impl DaemonBuilder {
    /// Sets the limits of benchmarks that peers run against this daemon.
    ///
    /// ```
    /// let builder = nicstripe::Daemon::builder().bench(nicstripe::BenchLimits::default());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bench(mut self, limits: BenchLimits) -> Self {
        self.bench = limits;
        self
    }
}

impl DaemonHandle {
    /// Returns the current limits of benchmarks that peers run.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// println!("{:?}", handle.bench_limits());
    /// # }
    /// ```
    pub fn bench_limits(&self) -> BenchLimits {
        self.shared.bench_limits.read().clone()
    }

    /// Changes the limits of benchmarks that peers run. They apply to queued benchmarks, which are
    /// rejected if no longer allowed. A running benchmark keeps its granted time.
    ///
    /// ```no_run
    /// # fn example(handle: nicstripe::DaemonHandle) {
    /// handle.set_bench_limits(nicstripe::BenchLimits::default());
    /// # }
    /// ```
    pub fn set_bench_limits(&self, limits: BenchLimits) {
        *self.shared.bench_limits.write() = limits;
    }
}
