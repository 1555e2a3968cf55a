//! Handle of a running benchmark.

use nicstripe_bench::{BenchEvent, BenchPlan, BenchReport, Runner};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::client::BenchClient;
use crate::{client::Client, report::error::Error};

/// Handle of a running benchmark. Dropping it ends the benchmark.
#[derive(Debug)]
pub struct Bench {
    events: mpsc::Receiver<BenchEvent>,
    stop: CancellationToken,
    task: Result<JoinHandle<Result<BenchReport, Error>>, Error>,
}

impl Bench {
    pub(super) fn start(client: Client, plan: BenchPlan) -> Self {
        let runtime = client.runtime().clone();
        let (events, receiver) = mpsc::channel(EVENTS);
        let stop = CancellationToken::new();
        let id = crate::trust::random::random_bytes();
        let usable = client.require_open();
        let runner = Runner::new(BenchClient(client), id, plan, events, stop.clone());
        Self {
            events: receiver,
            stop,
            task: usable.map(|()| runtime.spawn(runner.run())),
        }
    }

    /// Returns the next event, or `None` once the benchmark has ended. Cancel safe. At most 4096
    /// unread events are queued; further ones are dropped.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut bench = client.bench(nicstripe::BenchPlan::default());
    /// while let Some(event) = bench.next_event().await {
    ///     println!("{event:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next_event(&mut self) -> Option<BenchEvent> {
        self.events.recv().await
    }

    /// Ends the benchmark early. The report contains the results measured so far.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let bench = client.bench(nicstripe::BenchPlan::default());
    /// bench.stop();
    /// println!("{:?}", bench.finish().await.map(|report| report.summary.sentence));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns a token that lets another task end the benchmark.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let bench = client.bench(nicstripe::BenchPlan::default());
    /// let stop = bench.stop_token();
    /// let report = tokio::spawn(bench.finish());
    /// stop.cancel();
    /// println!("{:?}", report.await?.map(|report| report.summary.sentence));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the benchmark ends.
    ///
    /// ```no_run
    /// # async fn example(client: nicstripe::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let report = client.bench(nicstripe::BenchPlan::default()).finish().await?;
    /// println!("{}", report.summary.sentence);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The benchmark ended before any measurement: the daemon is not reachable, or rejects it. A
    /// later failure yields an incomplete report and a [`BenchEvent::Note`].
    pub async fn finish(mut self) -> Result<BenchReport, Error> {
        self.events.close();
        let task = std::mem::replace(&mut self.task, Err(Error::Closed))?;
        match task.await {
            Ok(result) => result,
            Err(error) if error.is_cancelled() => Err(Error::RuntimeEnded),
            Err(error) => Err(Error::failed("run the bench", error)),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Maximum number of unread [`BenchEvent`]s in the queue.
const EVENTS: usize = 4096;
