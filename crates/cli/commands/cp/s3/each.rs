//! Copies of many files: small ones side by side, others one after the other, each over all links.

use nicstripe::{CancellationToken, Event};
use nicstripe_web::WebError;
use tokio::task::JoinSet;

use crate::{
    commands::cp::{watch::Tell, web::run::failed},
    failure::Failure,
};

/// Copies of files: those side by side, and those one after the other.
#[derive(Debug)]
pub(super) struct Queue<W> {
    small: Vec<W>,
    large: Vec<W>,
}

impl<W> Queue<W> {
    /// Sorts the work by the size of its file in bytes.
    pub(super) fn new(work: impl IntoIterator<Item = (u64, W)>) -> Self {
        let mut queue = Self {
            small: Vec::new(),
            large: Vec::new(),
        };
        for (size, work) in work {
            match size < SMALL {
                true => queue.small.push(work),
                false => queue.large.push(work),
            }
        }
        queue
    }

    /// Carries out all work. Returns the results in no order.
    ///
    /// # Errors
    ///
    /// The copy was stopped, or a task panicked: its file must not count as copied.
    pub(super) async fn run<T, F>(
        self,
        stop: &CancellationToken,
        start: impl Fn(W) -> F,
    ) -> Result<Vec<T>, Failure>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut done = Vec::new();
        for (most, all) in [(SIDE_BY_SIDE, self.small), (1, self.large)] {
            let mut running = JoinSet::new();
            for work in all {
                if running.len() >= most
                    && let Some(ended) = running.join_next().await
                {
                    done.push(ended?);
                }
                if stop.is_cancelled() {
                    break;
                }
                running.spawn(start(work));
            }
            while let Some(ended) = running.join_next().await {
                done.push(ended?);
            }
        }
        match stop.is_cancelled() {
            true => Err(failed(WebError::Cancelled { resumable: true })),
            false => Ok(done),
        }
    }
}

/// Passes on the events of one file. Of files side by side, the progress of each would hide that of the
/// others.
pub(super) fn telling(size: u64, tell: Tell) -> impl Fn(Event) + Send + Sync + 'static {
    let is_alone = size >= SMALL;
    move |event| match event {
        Event::Progress(_) if is_alone => tell(event),
        Event::Link { .. } => tell(event),
        _ => {}
    }
}

/// Files below this size are copied side by side: each is one request.
const SMALL: u64 = 8 << 20;

const SIDE_BY_SIDE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(queue: Queue<u64>) -> Result<Vec<u64>, Failure> {
        let work = |number: u64| async move {
            assert!(number != 7, "this task panics");
            number
        };
        queue.run(&CancellationToken::new(), work).await
    }

    #[tokio::test]
    async fn every_file_has_a_result_and_a_panic_is_none() {
        let all = |most: u64| (0..most).map(|number| (number << 20, number));
        let mut done = run(Queue::new(all(7))).await.unwrap();
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3, 4, 5, 6]);
        assert!(run(Queue::new(all(40))).await.is_err());
        let stop = CancellationToken::new();
        stop.cancel();
        let stopped = Queue::new(all(3)).run(&stop, |number| async move { number });
        assert!(stopped.await.is_err());
    }
}
