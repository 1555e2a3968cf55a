//! Thread pool for blocking file work.
//!
//! Measured: dedicated threads with positional I/O moved 3.2 GB/s at 0.34 to 0.41 CPU seconds per
//! GB. One `spawn_blocking` per MiB moved 2.3 to 2.6 GB/s, `tokio::fs` 0.2 GB/s.

mod fair_queue;
#[cfg(test)]
mod simulated;

use std::{
    collections::BTreeMap,
    mem,
    num::NonZero,
    ops::{ControlFlow, RangeInclusive},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use self::fair_queue::FairQueue;
#[cfg(test)]
pub(crate) use self::simulated::{DiskCall, Image, SimulatedDisk};
use super::shares::Owner;

type Task = Box<dyn FnOnce() + Send>;

/// Minimum and maximum number of I/O threads that a single owner uses. Reads and writes overlap
/// from two on; beyond eight no tested disk gained.
const THREADS: (usize, usize) = (2, 8);

/// Number of slots per thread that a single owner uses: it never takes more than it leaves free.
const SLOTS_EACH: usize = 2;

/// Number of threads at the start that a single owner does not use. Others start when needed.
const SPARE_THREADS: usize = 1;

/// Maximum number of I/O threads, including those that replace threads with long jobs.
const MOST_THREADS: usize = 64;

/// Duration after which a job leaves its slot to others. Jobs take milliseconds unless a file
/// system stalls.
const LONG_JOB: Duration = Duration::from_secs(1);

const BACKGROUND_THREADS: usize = 2;

/// Number of bytes that one job reads, hashes or writes before other jobs run: 5 ms at 1.5 GB/s.
pub(crate) const TURN: u64 = 8 << 20;

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
    /// Cloned into each job, to count those that have not ended.
    jobs: Arc<()>,
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
    name: &'static str,
    /// Called first by each thread.
    prepare: fn(),
    /// Maximum number of threads without those that run long jobs.
    most: usize,
    state: Mutex<Work>,
    changed: Condvar,
    /// Signalled if a job begins while the watching thread waits for one.
    begun: Condvar,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    number: u64,
    owner: Owner,
    started_at: Instant,
}

struct Work {
    fair_queue: FairQueue<Task>,
    /// Start times of the running jobs that have a slot, by number.
    begun: BTreeMap<u64, Instant>,
    next: u64,
    /// Number of running jobs that have given their slot back.
    long: usize,
    threads: usize,
    idle: usize,
    /// True if the watching thread looks at the running jobs again without a signal.
    is_watched: bool,
    /// True from the wake-up of a thread until it runs. That thread wakes the next one if more jobs
    /// wait.
    is_woken: bool,
    is_closed: bool,
}

impl Work {
    /// Returns true if the caller must wake a thread, and marks it as woken: one is idle and no
    /// wake-up is pending.
    fn wakes_another(&mut self) -> bool {
        let wakes = self.idle > 0 && !self.is_woken;
        self.is_woken |= wakes;
        wakes
    }

    /// Takes the next job that may run.
    fn begin(&mut self) -> Option<(Running, Task)> {
        let (owner, job) = self.fair_queue.pop()?;
        let (number, started_at) = (self.next, Instant::now());
        self.next += 1;
        self.begun.insert(number, started_at);
        let running = Running {
            number,
            owner,
            started_at,
        };
        Some((running, job))
    }

    /// Gives back the slot of a running job.
    fn set_aside(&mut self, number: u64) {
        self.begun.remove(&number);
        self.long += 1;
        self.fair_queue.give_back_slot();
    }

    fn finish(&mut self, job: Running, took: Duration) {
        if self.begun.remove(&job.number).is_some() {
            self.fair_queue.finish(job.owner, took);
        } else {
            self.long -= 1;
            self.fair_queue.finish_long(job.owner, took);
        }
    }
}

impl IoPool {
    /// Starts one I/O thread per core, at least 2 and at most 8, one spare thread, and the
    /// background threads. Further I/O threads start if several owners need them.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (fewest, most) = THREADS;
        let count = thread::available_parallelism()
            .map_or(fewest, NonZero::get)
            .clamp(fewest, most);
        Self::with(count, LONG_JOB)
    }

    /// Starts a pool in which a single owner uses up to `count` I/O threads. A job that runs for
    /// longer than `long` leaves its slot to others.
    fn with(count: usize, long: Duration) -> std::io::Result<Self> {
        let slots = SLOTS_EACH * count;
        let first = count + SPARE_THREADS;
        let io = Crew::start("nicstripe-io", first..=slots, slots, || {})?;
        io.watch(long)?;
        let background = Crew::start(
            "nicstripe-later",
            BACKGROUND_THREADS..=BACKGROUND_THREADS,
            // Its jobs are short. So a single owner uses all threads.
            SLOTS_EACH * BACKGROUND_THREADS,
            yield_to_others,
        )?;
        Ok(Self {
            crews: Arc::new(Crews {
                io,
                background,
                jobs: Arc::default(),
            }),
            owner: Owner::default(),
        })
    }

    /// Starts a pool in which an owner's jobs run one after the other.
    #[cfg(test)]
    pub(crate) fn one_by_one() -> std::io::Result<Self> {
        Self::with(1, Duration::from_secs(3600))
    }

    /// Returns the number of I/O jobs that wait for a thread.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        match &self.crews.io {
            Crew::Threads(queue) => queue.state.lock().fair_queue.len(),
            Crew::Simulated(_) => 0,
        }
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
        self.crews.io.push(self.owner, self.counted(job));
    }

    /// Returns true if any job of the pool waits or runs.
    pub(crate) fn is_busy(&self) -> bool {
        Arc::strong_count(&self.crews.jobs) > 1
    }

    /// Boxes a job that counts as one of the pool until it has ended.
    fn counted(&self, job: impl FnOnce() + Send + 'static) -> Task {
        let counted = self.crews.jobs.clone();
        Box::new(move || {
            let _counted = counted;
            job();
        })
    }

    /// Runs a long job in turns, each of at most [`TURN`] bytes, until `turn` breaks or fails. The
    /// jobs of all owners run between two turns. Passes the result to `done`; `None` once
    /// `is_stopped` is true.
    pub(crate) fn run_in_turns<T: 'static, E: 'static>(
        &self,
        is_stopped: Arc<AtomicBool>,
        mut turn: impl FnMut() -> Result<ControlFlow<T>, E> + Send + 'static,
        done: impl FnOnce(Option<Result<T, E>>) + Send + 'static,
    ) {
        let pool = self.clone();
        self.run(move || {
            let result = if is_stopped.load(Ordering::Relaxed) {
                None
            } else {
                match turn() {
                    Ok(ControlFlow::Continue(())) => {
                        return pool.run_in_turns(is_stopped, turn, done);
                    }
                    Ok(ControlFlow::Break(result)) => Some(Ok(result)),
                    Err(error) => Some(Err(error)),
                }
            };
            // Releases the job's files before anybody learns of the end.
            drop(turn);
            done(result);
        });
    }

    /// Runs a long job in turns, like [`IoPool::run_in_turns`], and returns its result; `None` if
    /// it was stopped or panicked. Cancel safe: the job of a cancelled call still runs.
    pub(crate) async fn call_in_turns<T: Send + 'static, E: Send + 'static>(
        &self,
        is_stopped: Arc<AtomicBool>,
        turn: impl FnMut() -> Result<ControlFlow<T>, E> + Send + 'static,
    ) -> Option<Result<T, E>> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.run_in_turns(is_stopped, turn, move |ended| drop(done.send(ended)));
        result.await.ok().flatten()
    }

    /// Queues a CPU-bound `job` for a low-priority thread.
    pub(crate) fn run_in_background(&self, job: impl FnOnce() + Send + 'static) {
        self.crews.background.push(self.owner, self.counted(job));
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
    /// Starts the least number of `threads`, which each call `prepare` first, and others up to the
    /// greatest when needed. The owners share `slots`.
    fn start(
        name: &'static str,
        threads: RangeInclusive<usize>,
        slots: usize,
        prepare: fn(),
    ) -> std::io::Result<Self> {
        let state = Work {
            fair_queue: FairQueue::new(slots),
            begun: BTreeMap::new(),
            next: 0,
            long: 0,
            threads: 0,
            idle: 0,
            is_watched: false,
            is_woken: false,
            is_closed: false,
        };
        let queue = Arc::new(Queue {
            name,
            prepare,
            most: *threads.end(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            begun: Condvar::new(),
        });
        let crew = Self::Threads(queue.clone());
        for _ in 0..*threads.start() {
            queue.start_thread(&mut queue.state.lock())?;
        }
        Ok(crew)
    }

    /// Starts the thread that takes the slots of jobs that run for longer than `long`.
    fn watch(&self, long: Duration) -> std::io::Result<()> {
        match self {
            Self::Threads(queue) => {
                let queue = queue.clone();
                thread::Builder::new()
                    .name("nicstripe-watch".to_owned())
                    .spawn(move || queue.watch(long))?;
            }
            #[cfg(test)]
            Self::Simulated(_) => {}
        }
        Ok(())
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
                queue.begun.notify_all();
            }
            #[cfg(test)]
            Self::Simulated(_) => {}
        }
    }
}

impl Queue {
    fn push(self: &Arc<Self>, owner: Owner, job: Task) {
        let mut state = self.state.lock();
        let may_run = state.fair_queue.push(owner, job);
        let wakes = may_run && self.call_thread(&mut state);
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Starts another thread if all are busy. Returns true if the caller must wake one instead.
    fn call_thread(self: &Arc<Self>, state: &mut Work) -> bool {
        if state.idle == 0 && state.threads < self.most + state.long {
            // If it cannot be started, the job waits until another has ended.
            let _ = self.start_thread(state);
        }
        state.wakes_another()
    }

    fn start_thread(self: &Arc<Self>, state: &mut Work) -> std::io::Result<()> {
        let queue = self.clone();
        thread::Builder::new()
            .name(format!("{}-{}", self.name, state.threads))
            .spawn(move || {
                (queue.prepare)();
                queue.work();
            })?;
        state.threads += 1;
        Ok(())
    }

    /// Takes the slots of jobs that run for longer than `long`, until the queue is closed. Without
    /// this, a few stalled file systems would stop the jobs of all owners.
    fn watch(self: &Arc<Self>, long: Duration) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let now = Instant::now();
            while self.most + state.long < MOST_THREADS
                && let Some((&number, &started_at)) = state.begun.first_key_value()
                && now.saturating_duration_since(started_at) >= long
            {
                state.set_aside(number);
                tracing::debug!(count = state.long, "file job takes long");
            }
            if state.fair_queue.may_pop() && self.call_thread(&mut state) {
                self.changed.notify_one();
            }
            let oldest = state.begun.values().next().copied();
            match oldest.map(|started_at| started_at + long) {
                Some(due) if due > now => _ = self.begun.wait_until(&mut state, due),
                // There are too many long jobs: looks again later.
                Some(_) => _ = self.begun.wait_for(&mut state, long),
                None => {
                    state.is_watched = false;
                    self.begun.wait(&mut state);
                }
            }
        }
    }

    /// Runs jobs until the queue is closed and empty, or the thread is surplus.
    fn work(self: &Arc<Self>) {
        let mut done = None;
        while let Some((running, job)) = self.next(done) {
            // The session notices a panic by the values that the job drops; other jobs continue.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("file job panicked");
            }
            done = Some((running, running.started_at.elapsed()));
        }
    }

    /// Records the time of the finished job `done` and waits for the next job. Returns `None` if
    /// the thread ends: the queue is closed and empty, or there are too many threads after a long
    /// job.
    fn next(self: &Arc<Self>, done: Option<(Running, Duration)>) -> Option<(Running, Task)> {
        let mut state = self.state.lock();
        if let Some((job, took)) = done {
            state.finish(job, took);
        }
        loop {
            if let Some(next) = state.begin() {
                // The finished job may have brought its owner below its limit, so that another job
                // may start.
                let wakes = state.fair_queue.may_pop() && self.call_thread(&mut state);
                let was_watched = mem::replace(&mut state.is_watched, true);
                drop(state);
                if wakes {
                    self.changed.notify_one();
                }
                if !was_watched {
                    self.begun.notify_one();
                }
                return Some(next);
            }
            if state.is_closed && state.fair_queue.is_empty() {
                // Idle threads must notice that the queue has become empty.
                self.changed.notify_all();
                return None;
            }
            if state.threads > self.most + state.long {
                state.threads -= 1;
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
            .field("waiting", &self.state.lock().fair_queue.len())
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
    use std::sync::mpsc;

    use super::*;

    /// Longest wait for a job.
    const PATIENCE: Duration = Duration::from_secs(20);

    const HOUR: Duration = Duration::from_secs(3600);

    /// Queues `count` jobs that run until the returned sender is dropped.
    fn block(pool: &IoPool, owner: u8, count: usize) -> mpsc::Sender<()> {
        let (release, disk) = mpsc::channel::<()>();
        let disk = Arc::new(Mutex::new(disk));
        for _ in 0..count {
            let disk = disk.clone();
            pool.of([owner; 32]).run(move || _ = disk.lock().recv());
        }
        release
    }

    fn runs(pool: &IoPool, owner: u8) -> bool {
        let (ran, heard) = mpsc::channel();
        pool.of([owner; 32]).run(move || ran.send(()).unwrap());
        heard.recv_timeout(PATIENCE).is_ok()
    }

    #[test]
    fn two_owners_with_endless_jobs_leave_a_thread_for_a_third() {
        let pool = IoPool::with(THREADS.0, HOUR).unwrap();
        let released = [1, 2].map(|owner| block(&pool, owner, 100));
        assert!(runs(&pool, 3), "its job waits for those of the others");
        drop(released);
    }

    #[test]
    fn a_job_that_blocks_for_long_keeps_no_other_owner_waiting() {
        let pool = IoPool::with(THREADS.0, Duration::from_millis(20)).unwrap();
        let threads = SLOTS_EACH * THREADS.0;
        let released: Vec<_> = (0..threads as u8)
            .map(|owner| block(&pool, owner, 1))
            .collect();
        assert!(runs(&pool, 200), "its job waits for those of the others");
        drop(released);
        let Crew::Threads(queue) = &pool.crews.io else {
            unreachable!("the pool has threads")
        };
        let until = Instant::now() + PATIENCE;
        while queue.state.lock().threads > threads {
            assert!(Instant::now() < until, "the replacements stay");
            thread::yield_now();
        }
        assert!(runs(&pool, 200));
    }

    #[test]
    fn other_jobs_of_an_owner_run_between_the_turns_of_a_long_one() {
        let pool = IoPool::one_by_one().unwrap();
        let release = block(&pool, 0, 1);
        let (ended, heard) = mpsc::channel();
        let (long, short) = (ended.clone(), ended);
        let mut turns = 0;
        pool.run_in_turns(
            Arc::default(),
            move || {
                turns += 1;
                Ok::<_, ()>(if turns < 3 {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(turns)
                })
            },
            move |turns| long.send(turns).unwrap(),
        );
        pool.run(move || short.send(None).unwrap());
        drop(release);
        let order: Vec<_> = heard.iter().collect();
        assert_eq!(order, [None, Some(Ok(3))]);
    }

    #[tokio::test]
    async fn a_long_job_ends_after_the_turn_in_which_it_is_stopped() {
        let pool = IoPool::one_by_one().unwrap();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (stop, mut turns) = (is_stopped.clone(), 0);
        let endless = move || {
            turns += 1;
            stop.store(turns == 3, Ordering::Relaxed);
            assert!(turns <= 3, "it was stopped");
            Ok::<ControlFlow<()>, ()>(ControlFlow::Continue(()))
        };
        let (done, ended) = mpsc::channel();
        pool.run_in_turns(is_stopped, endless, move |result| {
            done.send(result.is_none()).unwrap();
        });
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(true));
        let failing = || Err::<ControlFlow<()>, _>("a fault");
        let result = pool.call_in_turns(Arc::default(), failing).await;
        assert_eq!(result, Some(Err("a fault")));
    }

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
