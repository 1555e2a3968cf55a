//! Runs a test with many seeds, on all CPUs.
//!
//! `NICSTRIPE_LONG=1` runs twenty times as many. `NICSTRIPE_SEEDS=N` runs N seeds and prints their rate. `NICSTRIPE_FIRST=K` starts at seed K
//! instead of 0, and `NICSTRIPE_SEED=K` runs only seed K. A failing seed prints the command that
//! repeats it. 100,000 of each kind:
//!
//! ```text
//! NICSTRIPE_SEEDS=100000 cargo test --release -p nicstripe-proto --test session whatever_happens \
//!     -- --nocapture --test-threads=1
//! ```

use std::{
    env, panic,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use nicstripe_testkit::trial::amount;

use crate::harness::Seed;

/// Runs the seeds in `once_failed`, and then `usual` seeds or the requested number. Reads the real
/// clock to print their rate.
#[allow(clippy::disallowed_methods)]
pub(crate) fn run_all(what: &str, once_failed: &[u64], usual: u64, run: fn(Seed)) {
    let seeds = seeds(once_failed, usual);
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let began = Instant::now();
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            if panic::catch_unwind(|| run(Seed(*seed))).is_err() {
                eprintln!(
                    "seed {seed} failed; repeat with: NICSTRIPE_SEED={seed} cargo test -p nicstripe-proto --test session {what}"
                );
                failed.lock().unwrap().push(*seed);
            }
        }
    };
    thread::scope(|scope| (0..threads()).for_each(|_| drop(scope.spawn(work))));
    let took = began.elapsed().as_secs_f64();
    println!(
        "{what}: {} seeds in {took:.1} s, {:.0} a second",
        seeds.len(),
        seeds.len() as f64 / took
    );
    let failed = failed.into_inner().unwrap();
    assert!(
        failed.is_empty(),
        "{} of {} seeds failed: {failed:?}",
        failed.len(),
        seeds.len()
    );
}

fn seeds(once_failed: &[u64], usual: u64) -> Vec<u64> {
    if let Some(seed) = number("NICSTRIPE_SEED") {
        return vec![seed];
    }
    let first = number("NICSTRIPE_FIRST").unwrap_or(0);
    let count = number("NICSTRIPE_SEEDS").unwrap_or(amount(usual, 20 * usual));
    once_failed
        .iter()
        .copied()
        .chain(first..first + count)
        .collect()
}

fn threads() -> usize {
    let all = thread::available_parallelism().map_or(1, usize::from);
    number("NICSTRIPE_THREADS").map_or(all, |count| count as usize)
}

pub(crate) fn number(name: &str) -> Option<u64> {
    Some(env::var(name).ok()?.parse().unwrap())
}
