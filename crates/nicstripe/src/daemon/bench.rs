//! Benchmarks that peers run against a daemon.

use std::sync::atomic::AtomicBool;

use nicstripe_bench::{BenchLimits, Desk, QueueChannel, Ticket};
use nicstripe_proto::message::{
    BenchAsk, BenchBody, BenchRefusal, BenchRefused, DiskDone, DiskOrder,
};

use super::{builder::DaemonBuilder, handle::DaemonHandle, service::Service};
use crate::{
    file::{FileError, stages},
    session::{BenchInput, Command, ServeBench, SessionHandle},
};

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
        self.shared.bench.limits.read().clone()
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
        *self.shared.bench.limits.write() = limits;
    }
}

impl ServeBench for Service {
    fn ask_bench(
        &self,
        ask: &BenchAsk,
        session: SessionHandle,
    ) -> Result<Ticket<SessionHandle>, BenchRefused> {
        let peer = &self.peer;
        let why = match () {
            () if peer.rights.options().no_bench => Some(BenchRefusal::NotPermitted),
            () if peer.shared.ending.is_cancelled() => Some(BenchRefusal::ShuttingDown),
            () => None,
        };
        if let Some(why) = why {
            let retry_after_ms = None;
            return Err(BenchRefused {
                why,
                retry_after_ms,
            });
        }
        let shared = peer.shared.clone();
        let queue = &peer.shared.bench.queue;
        queue.ask(peer.key(), ask, session, move || Desk {
            limits: shared.bench.limits.read().clone(),
            copies: shared.meters.jobs().running(),
        })
    }

    fn work_for_bench(&self, order: &DiskOrder, stop: &AtomicBool) -> Result<DiskDone, FileError> {
        let peer = &self.peer;
        if !order.read {
            peer.check_writable("write", &"a bench")?;
        }
        let root = peer.served.root("measure", &"the disk")?;
        stages::serve(root, peer.key(), order, stop)
    }
}

impl QueueChannel for SessionHandle {
    async fn send(&self, body: BenchBody) {
        self.command(Command::Bench(BenchInput::Message(body)))
            .await;
    }
}
