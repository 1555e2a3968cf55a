//! Threads for blocking file work.
//!
//! Dedicated threads with positional reads and writes moved 3.2 GB/s at 0.34 to 0.41 CPU seconds per GB here; one `spawn_blocking` a
//! mebibyte 2.3 to 2.6 GB/s, `tokio::fs` 0.2.

mod turns;

use std::{
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

pub(crate) use self::turns::Owner;
use self::turns::Turns;

type Job = Box<dyn FnOnce() + Send>;

/// Fewest and most threads for one owner: reading and writing overlap from two on, and beyond eight no disk here gained.
const THREADS: (usize, usize) = (2, 8);

/// Threads that no single owner can take: while the jobs of one wait for a slow disk, those of another run.
const SPARE_THREADS: usize = 1;

/// Threads for background work.
const BACKGROUND_THREADS: usize = 2;

/// Added to the nice value of background threads: the scheduler gives them a tenth of a core that other threads want (picked by eye).
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// A fixed set of threads, whose owners take turns. They end when the last handle is dropped and the queue is empty.
///
/// The queue is not bounded itself: its users have at most their credit of chunks, and a few syncs, in it.
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

/// Threads with a queue, which is closed when this is dropped.
#[derive(Debug)]
struct Crew(Arc<Queue>);

/// Jobs that wait for a thread.
///
/// A thread without a job sleeps at once. A channel whose receivers first spin and yield takes the CPU from the threads that decrypt: two
/// calls of sched_yield a chunk, on a machine that four gigabit cables keep busy.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    turns: Turns<Job>,
    idle: usize,
    /// Whether one of those that are idle was woken and has not looked yet: it wakes the next one, if there is more.
    is_woken: bool,
    is_closed: bool,
}

impl State {
    /// Whether a thread is to be woken: there is an idle one, and none is on its way.
    fn wakes_another(&mut self) -> bool {
        let wakes = self.idle > 0 && !self.is_woken;
        self.is_woken |= wakes;
        wakes
    }
}

impl IoPool {
    /// Starts as many threads as the machine has cores, within bounds.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (fewest, most) = THREADS;
        let count = thread::available_parallelism().map_or(fewest, NonZero::get).clamp(fewest, most);
        let io = Crew::start("nicstripe-io", count + SPARE_THREADS, count, || {})?;
        let background = Crew::start("nicstripe-later", BACKGROUND_THREADS, BACKGROUND_THREADS, yield_to_others)?;
        Ok(Self { crews: Arc::new(Crews { io, background }), owner: Owner::default() })
    }

    /// Returns the same threads for work of another owner: a peer's key. Owners get the same time of the threads, as far as they have work.
    pub(crate) fn of(&self, owner: Owner) -> Self {
        Self { crews: self.crews.clone(), owner }
    }

    /// Runs `job` on one of the threads, in no particular order with others.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.crews.io.0.push(self.owner, Box::new(job));
    }

    /// Runs `job`, which only computes, on a thread that leaves the processor to others.
    pub(crate) fn run_in_background(&self, job: impl FnOnce() + Send + 'static) {
        self.crews.background.0.push(self.owner, Box::new(job));
    }

    /// Runs `job` on one of the threads and returns what it returned. Cancel safe: a cancelled call's job still runs.
    pub(crate) async fn call<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.run(move || drop(done.send(job())));
        result.await.ok()
    }
}

impl Crew {
    /// Starts `threads`, of which one owner has at most `most_each`; each calls `prepare` first.
    fn start(name: &str, threads: usize, most_each: usize, prepare: fn()) -> std::io::Result<Self> {
        let state = State { turns: Turns::new(most_each), idle: 0, is_woken: false, is_closed: false };
        let crew = Self(Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new() }));
        for index in 0..threads {
            let queue = crew.0.clone();
            thread::Builder::new().name(format!("{name}-{index}")).spawn(move || {
                prepare();
                queue.work();
            })?;
        }
        Ok(crew)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Queue {
    fn push(&self, owner: Owner, job: Job) {
        let mut state = self.lock();
        let may_run = state.turns.push(owner, job);
        let wakes = may_run && state.wakes_another();
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Runs jobs until there will be no more.
    fn work(&self) {
        let mut done = None;
        while let Some((owner, job)) = self.next(done) {
            let begun = Instant::now();
            // A job that panics tells its session so by what it drops; the others go on.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("work on a file ended by a fault in this program");
            }
            done = Some((owner, begun.elapsed()));
        }
    }

    /// Accounts for the job that was `done`, and waits for another; `None` when there will be no more.
    fn next(&self, done: Option<(Owner, std::time::Duration)>) -> Option<(Owner, Job)> {
        let mut state = self.lock();
        if let Some((owner, took)) = done {
            state.turns.finish(owner, took);
        }
        loop {
            if let Some(next) = state.turns.pop() {
                // An owner that had all the threads it may have may have another one.
                let wakes = state.turns.may_pop() && state.wakes_another();
                drop(state);
                if wakes {
                    self.changed.notify_one();
                }
                return Some(next);
            }
            if state.is_closed && state.turns.is_empty() {
                // A thread may wait for the job before the last to leave room.
                self.changed.notify_all();
                return None;
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            state.is_woken = false;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.lock().turns.len()).finish_non_exhaustive()
    }
}

/// Makes this thread, and no other, one of low priority.
fn yield_to_others() {
    // Without it the work is done as well, only sooner. Linux counts a nice value for each thread, others for the process.
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
            assert_eq!(pool.call(|| -> u32 { panic!("a fault, for this test") }).await, None);
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
            pool.of([1; 32]).run(move || _ = disk.lock().unwrap().recv());
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
