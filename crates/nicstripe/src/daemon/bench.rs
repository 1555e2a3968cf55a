//! Benchmarks that peers run against a daemon.

use std::sync::atomic::AtomicBool;

use nicstripe_bench::{Answer, BenchLimits, Desk, Ticket};
use nicstripe_proto::message::{BenchAsk, BenchBody, BenchRefused, DiskDone, DiskOrder};

use super::{builder::DaemonBuilder, handle::DaemonHandle, service::Service};
use crate::{
    file::{FileError, stages},
    session::{BenchInput, Command, SessionHandle},
};

impl Answer for SessionHandle {
    async fn answer(&self, body: BenchBody) {
        self.command(Command::Bench(BenchInput::Answer(body))).await;
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
        self.shared.benches.limits()
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
        self.shared.benches.set_limits(limits);
    }
}

impl Service {
    /// Queues the peer for a benchmark. Returns its ticket in the queue, or the reason for a
    /// rejection. The queue sends later answers through `session`.
    pub(crate) fn ask_bench(
        &self,
        ask: &BenchAsk,
        session: SessionHandle,
    ) -> Result<Ticket<SessionHandle>, BenchRefused> {
        if let Some(why) = self.bench_refusal() {
            return Err(BenchRefused {
                why,
                retry_after_ms: None,
            });
        }
        let shared = self.shared.clone();
        let key = *self.key().as_bytes();
        self.shared
            .benches
            .queue
            .ask(key, ask, session, move || Desk {
                limits: shared.benches.limits(),
                copies: shared.meters.jobs().running(),
            })
    }

    /// Runs a disk test for a benchmark: reads files like a sender, or writes like a receiver and
    /// then discards the data. Blocks until done or until `stop` is set.
    pub(crate) fn work_for_bench(
        &self,
        order: &DiskOrder,
        stop: &AtomicBool,
    ) -> Result<DiskDone, FileError> {
        if !order.read {
            self.check_writable(&"a bench")?;
        }
        stages::serve(
            self.served().root("measure", &"the disk")?,
            *self.key().as_bytes(),
            order,
            stop,
        )
    }
}
