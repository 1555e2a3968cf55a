//! Pool without threads, for tests in virtual time: each job is a task of the test's runtime.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::{Crew, Crews, IoPool, Owner, Task};

/// Simulated disk: reads and writes real files, and delays each job in virtual time.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    delay: Duration,
    stalled_until: Option<Instant>,
    waiting: u64,
    most_waiting: u64,
}

impl IoPool {
    /// Returns a pool whose jobs run in the current runtime, with the delays of `disk`.
    pub(crate) fn simulated(disk: &SimulatedDisk) -> Self {
        let crew = || Crew::Simulated(disk.clone());
        Self {
            crews: Arc::new(Crews {
                io: crew(),
                background: crew(),
            }),
            owner: Owner::default(),
        }
    }
}

impl SimulatedDisk {
    /// Sets the duration of each job.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.0.lock().delay = delay;
    }

    /// Stalls all jobs from `after` to `until`, both measured from now.
    pub(crate) fn stall(&self, after: Duration, until: Duration) {
        let (disk, now) = (self.clone(), Instant::now());
        tokio::spawn(async move {
            sleep_until(now + after).await;
            disk.0.lock().stalled_until = Some(now + until);
        });
    }

    /// Returns the largest number of jobs that waited at the same time.
    pub(crate) fn most_waiting(&self) -> u64 {
        self.0.lock().most_waiting
    }

    pub(super) fn run(&self, job: Task) {
        let (disk, began) = (self.clone(), Instant::now());
        self.count_waiting();
        tokio::spawn(async move {
            while let Some(at) = disk.busy_until(began) {
                sleep_until(at).await;
            }
            disk.0.lock().waiting -= 1;
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("file job panicked");
            }
        });
    }

    fn count_waiting(&self) {
        let mut state = self.0.lock();
        state.waiting += 1;
        state.most_waiting = state.most_waiting.max(state.waiting);
    }

    /// Returns the time at which a job started at `began` may finish; `None` if it may finish now.
    fn busy_until(&self, began: Instant) -> Option<Instant> {
        let state = self.0.lock();
        let at = state.stalled_until.max(Some(began + state.delay))?;
        (at > Instant::now()).then_some(at)
    }
}
