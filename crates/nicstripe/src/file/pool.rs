//! Thread pool for blocking file work.
//!
//! Measured: dedicated threads with positional I/O moved 3.2 GB/s at 0.34 to 0.41 CPU seconds per
//! GB. One `spawn_blocking` per MiB moved 2.3 to 2.6 GB/s, `tokio::fs` 0.2 GB/s.

mod round_robin;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod volatile;

use std::{
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Instant,
};

use parking_lot::{Condvar, Mutex};

pub(crate) use self::round_robin::Owner;
use self::round_robin::RoundRobin;
#[cfg(test)]
pub(crate) use self::{
    simulated::{DiskCall, SimulatedDisk},
    volatile::Image,
};

type Task = Box<dyn FnOnce() + Send>;

/// Minimum and maximum number of I/O threads. Reads and writes overlap from two on; beyond eight no
/// tested disk gained.
const THREADS: (usize, usize) = (2, 8);

/// Number of threads that a single owner cannot occupy: another owner's jobs run while one waits
/// for a slow disk.
const SPARE_THREADS: usize = 1;

const BACKGROUND_THREADS: usize = 2;

/// Nice value added to background threads: the scheduler gives them a tenth of a contended core
/// (picked by eye).
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Thread pool for blocking file work, shared fairly between owners. The threads end after the last
/// handle is dropped and the queue is empty.
///
/// The queue is unbounded: the send window and a few syncs bound each user's jobs.
#[derive(Debug, Clone)]
pub(crate) struct IoPool {
    crews: Arc<Crews>,
    owner: Owner,
}

#[derive(Debug)]
struct Crews {
    io: Crew,
    background: Crew,
}

/// Threads that share one queue. The queue is closed on drop.
#[derive(Debug)]
enum Crew {
    Threads(Arc<Queue>),
    /// Tasks on the test's runtime that run the jobs in place of threads.
    #[cfg(test)]
    Simulated(SimulatedDisk),
}

/// Queue of jobs that wait for a thread.
///
/// An idle thread sleeps immediately. With a channel whose receivers spin and yield before
/// sleeping, two `sched_yield` calls per chunk took CPU time from the decrypting threads, on a
/// machine kept busy by four gigabit links.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    round_robin: RoundRobin<Task>,
    idle: usize,
    /// True from the wake-up of a thread until it runs. That thread wakes the next one if more jobs
    /// wait.
    is_woken: bool,
    is_closed: bool,
}

impl State {
    /// Returns true if the caller must wake a thread, and marks it as woken: one is idle and no
    /// wake-up is pending.
    fn wakes_another(&mut self) -> bool {
        let wakes = self.idle > 0 && !self.is_woken;
        self.is_woken |= wakes;
        wakes
    }
}

impl IoPool {
    /// Starts one I/O thread per core, at least 2 and at most 8, one spare thread, and the
    /// background threads.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (fewest, most) = THREADS;
        let count = thread::available_parallelism()
            .map_or(fewest, NonZero::get)
            .clamp(fewest, most);
        let io = Crew::start("nicstripe-io", count + SPARE_THREADS, count, || {})?;
        let background = Crew::start(
            "nicstripe-later",
            BACKGROUND_THREADS,
            BACKGROUND_THREADS,
            yield_to_others,
        )?;
        Ok(Self {
            crews: Arc::new(Crews { io, background }),
            owner: Owner::default(),
        })
    }

    /// Returns a handle to the pool for another owner, identified by the peer's key. Busy owners
    /// get equal thread time.
    pub(crate) fn of(&self, owner: Owner) -> Self {
        Self {
            crews: self.crews.clone(),
            owner,
        }
    }

    /// Queues `job` for a thread. Jobs run in no particular order.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.crews.io.push(self.owner, Box::new(job));
    }

    /// Queues a CPU-bound `job` for a low-priority thread.
    pub(crate) fn run_in_background(&self, job: impl FnOnce() + Send + 'static) {
        self.crews.background.push(self.owner, Box::new(job));
    }

    /// Runs `job` on a thread and returns its result; `None` if it panicked. Cancel safe: the job
    /// of a cancelled call still runs.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.run(move || drop(done.send(job())));
        result.await.ok()
    }
}

impl Crew {
    /// Starts `threads` threads that each call `prepare` first; one owner uses at most `most_each`
    /// of them.
    fn start(name: &str, threads: usize, most_each: usize, prepare: fn()) -> std::io::Result<Self> {
        let state = State {
            round_robin: RoundRobin::new(most_each),
            idle: 0,
            is_woken: false,
            is_closed: false,
        };
        let queue = Arc::new(Queue {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let crew = Self::Threads(queue.clone());
        for index in 0..threads {
            let queue = queue.clone();
            thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || {
                    prepare();
                    queue.work();
                })?;
        }
        Ok(crew)
    }

    fn push(&self, owner: Owner, job: Task) {
        match self {
            Self::Threads(queue) => queue.push(owner, job),
            #[cfg(test)]
            Self::Simulated(disk) => disk.run(job),
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        match self {
            Self::Threads(queue) => {
                queue.state.lock().is_closed = true;
                queue.changed.notify_all();
            }
            #[cfg(test)]
            Self::Simulated(_) => {}
        }
    }
}

impl Queue {
    fn push(&self, owner: Owner, job: Task) {
        let mut state = self.state.lock();
        let may_run = state.round_robin.push(owner, job);
        let wakes = may_run && state.wakes_another();
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Runs jobs until the queue is closed and empty.
    fn work(&self) {
        let mut done = None;
        while let Some((owner, job)) = self.next(done) {
            let started_at = Instant::now();
            // The session notices a panic by the values that the job drops; other jobs continue.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("file job panicked");
            }
            done = Some((owner, started_at.elapsed()));
        }
    }

    /// Records the time of the finished job `done` and waits for the next job. Returns `None` once
    /// the queue is closed and empty.
    fn next(&self, done: Option<(Owner, std::time::Duration)>) -> Option<(Owner, Task)> {
        let mut state = self.state.lock();
        if let Some((owner, took)) = done {
            state.round_robin.finish(owner, took);
        }
        loop {
            if let Some(next) = state.round_robin.pop() {
                // The finished job may have brought its owner below its limit, so that another job
                // may start.
                let wakes = state.round_robin.may_pop() && state.wakes_another();
                drop(state);
                if wakes {
                    self.changed.notify_one();
                }
                return Some(next);
            }
            if state.is_closed && state.round_robin.is_empty() {
                // Idle threads must notice that the queue has become empty.
                self.changed.notify_all();
                return None;
            }
            state.idle += 1;
            self.changed.wait(&mut state);
            state.idle -= 1;
            state.is_woken = false;
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("waiting", &self.state.lock().round_robin.len())
            .finish_non_exhaustive()
    }
}

/// Lowers the scheduling priority of the calling thread.
fn yield_to_others() {
    // A failure only means normal priority. Linux applies a nice value per thread, other systems
    // per process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[tokio::test]
    async fn jobs_that_panic_end_no_thread() {
        let pool = IoPool::start().unwrap();
        for _ in 0..2 * THREADS.1 {
            assert_eq!(
                pool.call(|| -> u32 { panic!("a fault, for this test") })
                    .await,
                None
            );
        }
        assert_eq!(pool.call(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn an_owner_whose_jobs_all_wait_for_a_disk_keeps_no_other_waiting() {
        let pool = IoPool::start().unwrap();
        let (release, disk) = mpsc::channel::<()>();
        let disk = Arc::new(Mutex::new(disk));
        for _ in 0..100 {
            let disk = disk.clone();
            pool.of([1; 32]).run(move || _ = disk.lock().recv());
        }
        let other = pool.of([2; 32]);
        let ran = tokio::time::timeout(Duration::from_secs(20), other.call(|| 7)).await;
        drop(release);
        assert_eq!(ran.expect("its job waits for those of another"), Some(7));
    }

    #[tokio::test]
    async fn what_is_queued_runs_before_the_threads_end() {
        let pool = IoPool::start().unwrap();
        let (sender, receiver) = mpsc::channel();
        for index in 0..100 {
            let sender = sender.clone();
            pool.run(move || sender.send(index).unwrap());
        }
        drop((pool, sender));
        let mut ran: Vec<i32> = receiver.iter().collect();
        ran.sort_unstable();
        assert_eq!(ran, (0..100).collect::<Vec<_>>());
    }
}
