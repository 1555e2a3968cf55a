//! Futures of the library that are dropped at any await point: nothing stays behind, and what was begun can be gone on with.
//!
//! `NICSTRIPE_CANCELS=100000` makes it that many; a usual run has a few hundred.

#![allow(clippy::unwrap_used)]

mod harness;

use std::{
    fs,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use harness::{Served, content, digest, leftovers, name, within};
use nicstripe::{Client, CopyOptions};
use tempfile::TempDir;

/// Transfers that are dropped in a usual run.
const USUAL: usize = 400;

/// How many are begun before it is looked at what they have left.
const ROUND: usize = 100;

/// Names that are written to, so that transfers meet what others have left.
const NAMES: usize = 8;

/// Numbers that repeat from run to run (a linear congruential generator; Knuth's constants).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Polls a future so often at most, then drops it; says what it came to if it was ready by then.
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

/// What a process has that could leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    tasks: usize,
    files: usize,
    threads: usize,
}

impl Held {
    fn now() -> Self {
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        Self {
            tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
            files: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }

    /// Waits until there is no more than there was.
    async fn back_to(self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let now = Self::now();
            if now.tasks <= self.tasks && now.files <= self.files && now.threads <= self.threads {
                return;
            }
            assert!(Instant::now() < deadline, "{now:?} where there was {self:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Bytes of memory that the process has for itself.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// In memory where there is such a file system: each file that is given its name is made durable.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_dropped_at_any_await_point_leave_nothing_but_what_a_rerun_goes_on_with() {
    let count = std::env::var("NICSTRIPE_CANCELS").map_or(USUAL, |count| count.parse().unwrap());
    let served = Served::start_in(folder()).await;
    let client = within(served.connect(2)).await.unwrap();
    let here = folder();
    let bytes = content(3 << 20);
    fs::write(here.path().join("source"), &bytes).unwrap();
    fs::write(served.path("source"), &bytes).unwrap();
    let mut dice = Dice(1);
    // What is there once, such as threads and buffers, is there after the first round.
    drop_some(&client, &here, &mut dice).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (held, before) = (Held::now(), memory());
    for _ in 0..count.div_ceil(ROUND) {
        drop_some(&client, &here, &mut dice).await;
        held.back_to().await;
        let (there, back) = (leftovers(served.root.path()), leftovers(here.path()));
        // A journal and a part of each name, if that.
        assert!(there.len() <= 2 * NAMES && back.len() <= 2 * NAMES, "{there:?} {back:?}");
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more after {count} transfers");
    rerun(&served, &client, &here, digest(&bytes)).await;
}

/// Begins transfers both ways and drops each after some polls of what waits for it.
async fn drop_some(client: &Client, here: &TempDir, dice: &mut Dice) {
    for _ in 0..ROUND {
        let target = format!("target-{}", dice.below(NAMES as u64));
        let options = CopyOptions { replace: true, ..CopyOptions::default() };
        let mut transfer = match dice.below(2) {
            0 => client.put(&here.path().join("source"), Some(name(&target)), options),
            _ => client.get(name("source"), &here.path().join(&target), options),
        };
        // An event is told for each thing that happens, so that they are as many moments.
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

/// Each name gets its file now, whatever was left of it, and nothing else is there.
async fn rerun(served: &Served, client: &Client, here: &TempDir, expected: nicstripe::Digest) {
    let options = CopyOptions { replace: true, ..CopyOptions::default() };
    for target in (0..NAMES).map(|number| format!("target-{number}")) {
        let put = within(client.put(&here.path().join("source"), Some(name(&target)), options).finish()).await.unwrap();
        let get = within(client.get(name("source"), &here.path().join(&target), options).finish()).await.unwrap();
        assert_eq!((put.digest, get.digest), (Some(expected), Some(expected)));
    }
    assert_eq!((leftovers(served.root.path()), leftovers(here.path())), (Vec::new(), Vec::new()));
}
