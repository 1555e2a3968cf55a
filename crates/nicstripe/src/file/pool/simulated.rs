//! Pool without threads, for tests in virtual time: each job is a task of the test's runtime.

mod volatile;

use std::{
    cell::RefCell,
    collections::BTreeSet,
    io,
    os::fd::BorrowedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    time::Duration,
};

use nicstripe_sim::Rng;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use tokio::time::{Instant, sleep_until};

pub(crate) use self::volatile::Image;
use self::volatile::{Durable, is_folder, is_journal};
use super::{Crew, Crews, IoPool, Owner, Task};

/// Simulated disk: reads and writes real files, and delays each job in virtual time. Its calls can
/// fail, and its power can be cut.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    delay: Duration,
    /// Duration of every fifth job; that of the others if it is zero.
    slow: Duration,
    stalled_until: Option<Instant>,
    started: u64,
    waiting: u64,
    most_waiting: u64,
    /// Number of bytes that can still be written; unlimited if `None`.
    free: Option<u64>,
    failing: BTreeSet<(DiskCall, u64)>,
    calls: [u64; 3],
    durable: Option<Durable>,
    /// Inodes whose sync failed.
    poisoned: BTreeSet<u64>,
    has_retried_sync: bool,
}

/// Kind of system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DiskCall {
    Read,
    Write,
    Sync,
}

thread_local! {
    /// Disk of the job that is running.
    static CURRENT: RefCell<Option<SimulatedDisk>> = const { RefCell::new(None) };
}

impl IoPool {
    /// Returns a pool whose jobs run in the current runtime, with the delays of `disk`.
    pub(crate) fn simulated(disk: &SimulatedDisk) -> Self {
        let crew = || Crew::Simulated(disk.clone());
        Self {
            crews: Arc::new(Crews {
                io: crew(),
                background: crew(),
                jobs: Arc::default(),
            }),
            owner: Owner::default(),
        }
    }
}

impl SimulatedDisk {
    /// Sets the duration of each job.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Sets the duration of every fifth job, which other jobs then overtake.
    pub(crate) fn slow_every_fifth(&self, delay: Duration) {
        self.lock().slow = delay;
    }

    /// Stalls all jobs from `after` to `until`, both measured from now.
    pub(crate) fn stall(&self, after: Duration, until: Duration) {
        let (disk, now) = (self.clone(), Instant::now());
        tokio::spawn(async move {
            sleep_until(now + after).await;
            disk.lock().stalled_until = Some(now + until);
        });
    }

    /// Sets the number of bytes that can still be written.
    pub(crate) fn set_free(&self, free: Option<u64>) {
        self.lock().free = free;
    }

    /// Makes one call of this kind fail, after `succeeding` others.
    pub(crate) fn fail(&self, call: DiskCall, succeeding: u64) {
        let mut state = self.lock();
        let number = state.calls[call as usize] + succeeding;
        state.failing.insert((call, number));
    }

    /// Takes what is in `folder` as durable, and notes from now on what syncs add to it.
    pub(crate) fn watch(&self, folder: &Path) {
        self.lock().durable = Some(Durable::of(folder));
    }

    /// Returns the content of the watched folder after a power cut at this moment.
    pub(crate) fn cut_power(&self, rng: &mut Rng) -> Image {
        let state = self.lock();
        state
            .durable
            .as_ref()
            .expect("a watched folder")
            .after_cut(rng)
    }

    /// Returns the largest number of jobs that waited at the same time.
    pub(crate) fn most_waiting(&self) -> u64 {
        self.lock().most_waiting
    }

    /// Returns true if a file was synced again after a sync of it had failed.
    pub(crate) fn has_retried_sync(&self) -> bool {
        self.lock().has_retried_sync
    }

    /// Counts a call of the running job. Fails as the test has ordered.
    pub(in crate::file) fn attempt(call: DiskCall, bytes: u64) -> io::Result<()> {
        let Some(disk) = Self::current() else {
            return Ok(());
        };
        let mut state = disk.lock();
        let number = state.calls[call as usize];
        state.calls[call as usize] += 1;
        if state.failing.remove(&(call, number)) {
            return Err(Errno::IO.into());
        }
        match state.free {
            Some(free) if free < bytes => return Err(Errno::NOSPC.into()),
            Some(free) => state.free = Some(free - bytes),
            None => {}
        }
        Ok(())
    }

    /// Like [`attempt`](Self::attempt), for the sync of a file or directory.
    pub(in crate::file) fn attempt_sync(of: BorrowedFd<'_>) -> io::Result<()> {
        let Some(disk) = Self::current() else {
            return Ok(());
        };
        let inode = rustix::fs::fstat(of)?.st_ino;
        if disk.lock().poisoned.contains(&inode) {
            disk.lock().has_retried_sync = true;
        }
        Self::attempt(DiskCall::Sync, 0).inspect_err(|_| {
            // The next transfer reads a journal again, and makes names again.
            if !is_journal(of) && !is_folder(of) {
                disk.lock().poisoned.insert(inode);
            }
        })
    }

    /// Notes what the running job has made durable.
    pub(in crate::file) fn on_synced(of: BorrowedFd<'_>) {
        if let Some(disk) = Self::current()
            && let Some(durable) = &mut disk.lock().durable
        {
            durable.on_synced(of);
        }
    }

    fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(super) fn run(&self, job: Task) {
        let (disk, began) = (self.clone(), Instant::now());
        let delay = self.begin();
        tokio::spawn(async move {
            while let Some(at) = disk.busy_until(began + delay) {
                sleep_until(at).await;
            }
            disk.lock().waiting -= 1;
            CURRENT.set(Some(disk));
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("file job panicked");
            }
            CURRENT.set(None);
        });
    }

    /// Counts a job that waits from now on. Returns its duration.
    fn begin(&self) -> Duration {
        let mut state = self.lock();
        state.waiting += 1;
        state.most_waiting = state.most_waiting.max(state.waiting);
        state.started += 1;
        if state.started.is_multiple_of(5) {
            state.delay.max(state.slow)
        } else {
            state.delay
        }
    }

    /// Returns the time at which a job that takes until `at` may finish; `None` if it may finish
    /// now.
    fn busy_until(&self, at: Instant) -> Option<Instant> {
        let at = self.lock().stalled_until.max(Some(at))?;
        (at > Instant::now()).then_some(at)
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock()
    }
}
