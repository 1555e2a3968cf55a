//! Tests that drop futures of the library at arbitrary await points. Nothing may leak, and
//! interrupted work must be resumable.
//!
//! The environment variable `NICSTRIPE_CANCELS` sets the number of dropped transfers, 400 by
//! default.

#![allow(clippy::unwrap_used)]

mod harness;

use std::{
    fs,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use harness::{REPLACE, Served, content, digest, finished, leftovers, name};
use nicstripe::Client;
use nicstripe_testkit::trial::amount;
use tempfile::TempDir;

/// Default of the environment variable `NICSTRIPE_CANCELS`: the number of dropped transfers.
const USUAL: usize = 400;

/// Number of dropped transfers between two checks for leaks.
const ROUND: usize = 100;

/// Number of target names. The number is small, so that transfers find part files of earlier
/// transfers.
const NAMES: usize = 8;

/// State of a linear congruential pseudo-random number generator with Knuth's constants.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Polls a future until it is ready, at most `times + 1` times, then drops it. Returns the future's
/// output; `None` if the future was not ready.
async fn polled<T>(future: impl Future<Output = T>, times: u64) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Number of tokio tasks, open files and threads of the process, to detect leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resources {
    tasks: usize,
    files: usize,
    threads: usize,
}

impl Resources {
    fn now() -> Self {
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        Self {
            tasks: tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks(),
            files: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }

    /// Waits up to 30 s until the process has no more resources than `self`.
    async fn back_to(self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let now = Self::now();
            if now.tasks <= self.tasks && now.files <= self.files && now.threads <= self.threads {
                return;
            }
            assert!(Instant::now() < deadline, "{now:?} after {self:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Returns the anonymous resident memory of the process, in bytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

/// Creates a temporary directory, in `/dev/shm` if possible, because the receiver syncs every
/// completed file.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_dropped_at_any_await_point_leave_nothing_but_what_a_rerun_goes_on_with() {
    let count = std::env::var("NICSTRIPE_CANCELS")
        .map_or(amount(USUAL, 10 * USUAL), |count| count.parse().unwrap());
    let served = Served::start_in(folder()).await;
    let client = served.client(2).await;
    let here = folder();
    let bytes = content(3 << 20);
    fs::write(here.path().join("source"), &bytes).unwrap();
    fs::write(served.path("source"), &bytes).unwrap();
    let mut dice = Dice(1);
    // The first round creates long-lived resources, such as threads and buffers.
    drop_some(&client, &here, &mut dice).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (held, before) = (Resources::now(), memory());
    for _ in 0..count.div_ceil(ROUND) {
        drop_some(&client, &here, &mut dice).await;
        held.back_to().await;
        let (there, back) = (leftovers(served.root.path()), leftovers(here.path()));
        // At most a journal and a part file per name.
        assert!(
            there.len() <= 2 * NAMES && back.len() <= 2 * NAMES,
            "{there:?} {back:?}"
        );
    }
    let grown = memory().saturating_sub(before);
    assert!(
        grown < 32 << 20,
        "{grown} bytes more after {count} transfers"
    );
    rerun(&served, &client, &here, digest(&bytes)).await;
}

/// Starts [`ROUND`] transfers in random directions, and drops each at a random point.
async fn drop_some(client: &Client, here: &TempDir, dice: &mut Dice) {
    for _ in 0..ROUND {
        let target = format!("target-{}", dice.below(NAMES as u64));
        let mut transfer = match dice.below(2) {
            0 => client.put(here.path().join("source"), Some(name(&target)), REPLACE),
            _ => client.get(name("source"), here.path().join(&target), REPLACE),
        };
        // Each event is another point at which the transfer can be dropped.
        for _ in 0..dice.below(6) {
            let _ = polled(transfer.next_event(), dice.below(3)).await;
        }
        match dice.below(4) {
            0 => drop(polled(transfer.finish(), dice.below(4)).await),
            1 => tokio::time::sleep(Duration::from_micros(dice.below(8_000))).await,
            _ => drop(transfer),
        }
    }
}

/// Copies the source to every target name in both directions. Panics if a digest is wrong or a
/// temporary file remains.
async fn rerun(served: &Served, client: &Client, here: &TempDir, expected: nicstripe::Digest) {
    for target in (0..NAMES).map(|number| format!("target-{number}")) {
        let put =
            finished(client.put(here.path().join("source"), Some(name(&target)), REPLACE)).await;
        let get = finished(client.get(name("source"), here.path().join(&target), REPLACE)).await;
        assert_eq!((put.digest, get.digest), (Some(expected), Some(expected)));
    }
    assert_eq!(
        (leftovers(served.root.path()), leftovers(here.path())),
        (Vec::new(), Vec::new())
    );
}
