//! Threads for blocking file work.
//!
//! Dedicated threads with positional reads and writes moved 3.2 GB/s at 0.34 to 0.41 CPU seconds per GB here; one `spawn_blocking` a
//! mebibyte 2.3 to 2.6 GB/s, `tokio::fs` 0.2.

use std::{
    collections::VecDeque,
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

type Job = Box<dyn FnOnce() + Send>;

/// Fewest and most threads: reading and writing overlap from two on, and beyond eight no disk here gained.
const THREADS: (usize, usize) = (2, 8);

/// A fixed set of threads. They end when the last handle is dropped and the queue is empty.
///
/// The queue is not bounded itself: its users have at most their credit of chunks, and a few syncs, in it.
#[derive(Debug, Clone)]
pub(crate) struct IoPool(Arc<Handle>);

/// Closes the queue when dropped.
#[derive(Debug)]
struct Handle(Arc<Queue>);

/// Jobs in their order of arrival.
///
/// A thread without a job sleeps at once. A channel whose receivers first spin and yield takes the CPU from the threads that decrypt: two
/// calls of sched_yield a chunk, on a machine that four gigabit cables keep busy.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    is_closed: bool,
}

impl IoPool {
    /// Starts as many threads as the machine has cores, within bounds.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (fewest, most) = THREADS;
        let count = thread::available_parallelism().map_or(fewest, NonZero::get).clamp(fewest, most);
        let handle = Handle(Arc::default());
        for index in 0..count {
            let queue = handle.0.clone();
            thread::Builder::new().name(format!("nicstripe-io-{index}")).spawn(move || {
                while let Some(job) = queue.next() {
                    // A job that panics tells its session so by what it drops; the others go on.
                    if catch_unwind(AssertUnwindSafe(job)).is_err() {
                        tracing::error!("work on a file ended by a fault in this program");
                    }
                }
            })?;
        }
        Ok(Self(Arc::new(handle)))
    }

    /// Runs `job` on one of the threads, in no particular order with others.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.0.0.push(Box::new(job));
    }

    /// Runs `job` on one of the threads and returns what it returned. Cancel safe: a cancelled call's job still runs.
    pub(crate) async fn call<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.run(move || drop(done.send(job())));
        result.await.ok()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Queue {
    fn push(&self, job: Job) {
        let mut state = self.lock();
        state.jobs.push_back(job);
        let is_anyone_idle = state.idle > 0;
        drop(state);
        if is_anyone_idle {
            self.changed.notify_one();
        }
    }

    /// Waits for a job; `None` when there will be no more.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.lock().jobs.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn jobs_that_panic_end_no_thread() {
        let pool = IoPool::start().unwrap();
        for _ in 0..2 * THREADS.1 {
            assert_eq!(pool.call(|| -> u32 { panic!("a fault, for this test") }).await, None);
        }
        assert_eq!(pool.call(|| 7).await, Some(7));
    }
}
