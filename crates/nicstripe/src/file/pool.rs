//! Threads for blocking file work.
//!
//! Dedicated threads with positional reads and writes moved 3.2 GB/s at 0.34 to 0.41 CPU seconds per GB here; one `spawn_blocking` a
//! mebibyte 2.3 to 2.6 GB/s, `tokio::fs` 0.2.

use std::{num::NonZero, thread};

use crossbeam_channel::{Sender, unbounded};

type Job = Box<dyn FnOnce() + Send>;

/// Fewest and most threads: reading and writing overlap from two on, and beyond eight no disk here gained.
const THREADS: (usize, usize) = (2, 8);

/// A fixed set of threads. They end when the last handle is dropped and the queue is empty.
///
/// The queue is not bounded itself: its users have at most their credit of chunks, and a few syncs, in it.
#[derive(Debug, Clone)]
pub(crate) struct IoPool {
    jobs: Sender<Job>,
}

impl IoPool {
    /// Starts as many threads as the machine has cores, within bounds.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (fewest, most) = THREADS;
        let count = thread::available_parallelism().map_or(fewest, NonZero::get).clamp(fewest, most);
        let (jobs, queue) = unbounded::<Job>();
        for index in 0..count {
            let queue = queue.clone();
            thread::Builder::new().name(format!("nicstripe-io-{index}")).spawn(move || queue.into_iter().for_each(|job| job()))?;
        }
        Ok(Self { jobs })
    }

    /// Runs `job` on one of the threads, in no particular order with others.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The threads live as long as this handle: sending cannot fail.
        let _ = self.jobs.send(Box::new(job));
    }

    /// Runs `job` on one of the threads and returns what it returned. Cancel safe: a cancelled call's job still runs.
    pub(crate) async fn call<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.run(move || drop(done.send(job())));
        result.await.ok()
    }
}
