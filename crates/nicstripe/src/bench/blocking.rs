//! Benchmarks that a thread waits for.

use nicstripe_bench::{BenchEvent, BenchPlan, BenchReport};
use tokio_util::sync::CancellationToken;

use super::handle;
use crate::{
    client::blocking::{Client, waiter::Waiter},
    report::error::Error,
};

/// Running benchmark, like [`crate::Bench`]; see [`Client::bench`]. Dropping it
/// ends the benchmark.
#[derive(Debug)]
pub struct Bench {
    inner: handle::Bench,
    waiter: Waiter,
}

impl Bench {
    /// Waits for the next event; returns `None` once the benchmark has ended.
    pub fn next_event(&mut self) -> Option<BenchEvent> {
        self.waiter.wait(self.inner.next_event())
    }

    /// Ends the benchmark early, like [`crate::Bench::stop`].
    pub fn stop(&self) {
        self.inner.stop();
    }

    /// Returns a token that lets another thread end the benchmark.
    pub fn stop_token(&self) -> CancellationToken {
        self.inner.stop_token()
    }

    /// Waits until the benchmark ends.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Bench::finish`].
    pub fn finish(self) -> Result<BenchReport, Error> {
        let Self { inner, waiter } = self;
        waiter.call(inner.finish())
    }
}

impl Client {
    /// Starts a benchmark, like [`crate::Client::bench`].
    pub fn bench(&self, plan: BenchPlan) -> Bench {
        Bench {
            inner: self.inner.bench(plan),
            waiter: self.waiter.clone(),
        }
    }
}
