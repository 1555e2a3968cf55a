//! Benchmarks that peers run against a daemon.

use nicstripe_bench::QueueChannel;
use nicstripe_proto::message::BenchBody;

use crate::session::{BenchInput, Command, SessionHandle};

impl QueueChannel for SessionHandle {
    async fn send(&self, body: BenchBody) {
        self.command(Command::Bench(BenchInput::Message(body)))
            .await;
    }
}
