//! Benchmarks that peers run against a daemon.

use std::sync::atomic::AtomicBool;

use nicstripe_bench::{Desk, QueueChannel, Ticket};
use nicstripe_proto::message::{
    BenchAsk, BenchBody, BenchRefusal, BenchRefused, DiskDone, DiskOrder,
};

use super::served_peer::ServedPeer;
use crate::{
    file::{FileError, stages},
    session::{BenchInput, Command, SessionHandle},
};

impl ServedPeer {
    /// Queues the peer for a benchmark.
    pub(super) fn ask_bench(
        &self,
        ask: &BenchAsk,
        session: SessionHandle,
    ) -> Result<Ticket<SessionHandle>, BenchRefused> {
        let why = match () {
            () if self.rights.options().no_bench => Some(BenchRefusal::NotPermitted),
            () if self.shared.ending.is_cancelled() => Some(BenchRefusal::ShuttingDown),
            () => None,
        };
        if let Some(why) = why {
            let retry_after_ms = None;
            return Err(BenchRefused {
                why,
                retry_after_ms,
            });
        }
        let shared = self.shared.clone();
        let queue = &self.shared.bench_queue;
        queue.ask(self.key(), ask, session, move || Desk {
            limits: shared.bench_limits.read().clone(),
            copies: shared.meters.jobs().running(),
        })
    }

    /// Runs a disk test for a benchmark. Blocks the thread until done or until `stop` is set.
    pub(super) fn work_for_bench(
        &self,
        order: &DiskOrder,
        stop: &AtomicBool,
    ) -> Result<DiskDone, FileError> {
        if !order.read {
            self.check_writable(&"a bench")?;
        }
        let root = self.served.root("measure", &"the disk")?;
        stages::serve(root, self.key(), order, stop)
    }
}

impl QueueChannel for SessionHandle {
    async fn send(&self, body: BenchBody) {
        self.command(Command::Bench(BenchInput::Message(body)))
            .await;
    }
}
