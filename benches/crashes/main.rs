//! Crash tests in any number: `kill -9` at random moments, and a kill or an error at each system
//! call that changes a file.
//!
//! ```text
//! cargo bench --bench crashes -- --count 1000 --jobs 2        kills at random moments
//! cargo bench --bench crashes -- --seed 42 --count 1          one of them again
//! cargo bench --bench crashes -- --case calls                 a kill at each call
//! cargo bench --bench crashes -- --case errors                errors and short writes
//! ```
//!
//! Runs a real client and daemon on the loopback interface, with two links. Needs no privilege.
//! After each kill, every final name must have its old content or the complete new content. After
//! the rerun, the target must be correct and no temporary file may remain. Fails on any violation,
//! and prints the seed. The files are in TMPDIR, which must be on a disk for meaningful results
//! about syncs.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod sweeps;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use clap::Parser;
use nicstripe_sim::Rng;
use nicstripe_testkit::crashes::{
    case::{CASES, Case, VAST},
    kills::{Figures, Round, Runner},
    random,
};

#[derive(Debug, Parser)]
struct Arguments {
    /// Kind of fault to inject
    #[arg(long, value_enum, default_value = "kills")]
    case: Trial,

    /// Minimum number of kills that hit client or daemon
    #[arg(long, default_value_t = 1000)]
    count: u32,

    /// Seed of the first round; random by default
    #[arg(long)]
    seed: Option<u64>,

    /// Number of rounds or copies to run concurrently
    #[arg(long, default_value_t = 1)]
    jobs: usize,

    /// Run only the copies whose names contain this text
    #[arg(long)]
    only: Option<String>,

    /// Inject the fault only at every n-th system call
    #[arg(long, default_value_t = 1)]
    step: usize,

    /// Run the crash tests; `cargo bench` passes this
    #[arg(long)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Trial {
    /// SIGKILL at random moments
    Kills,
    /// SIGKILL at each system call that changes a file
    Calls,
    /// Error codes and short writes, at each system call
    Errors,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.bench {
        println!("nothing tried: run it by `cargo bench`, or with --bench");
        return ExitCode::SUCCESS;
    }
    let failures = match arguments.case {
        Trial::Kills => kill_at_random(&arguments),
        #[cfg(target_arch = "x86_64")]
        Trial::Calls | Trial::Errors => sweeps::run(&arguments),
        #[cfg(not(target_arch = "x86_64"))]
        Trial::Calls | Trial::Errors => {
            eprintln!("error: system calls are known for x86-64 only");
            1
        }
    };
    match failures {
        0 => ExitCode::SUCCESS,
        failures => {
            eprintln!("error: {failures} failed");
            ExitCode::FAILURE
        }
    }
}

/// Kills clients and daemons at random moments, in rounds with consecutive seeds, until `--count`
/// kills have hit a running process. Returns the number of failed rounds.
fn kill_at_random(arguments: &Arguments) -> u32 {
    let first = arguments.seed.unwrap_or_else(random::seed);
    let all = CASES.iter().chain(VAST);
    let only: Vec<Case> = all
        .filter(|case| {
            arguments
                .only
                .as_ref()
                .is_some_and(|only| case.name.contains(only))
        })
        .copied()
        .collect();
    let (next, all, failed) = (
        AtomicU64::new(first),
        Mutex::new(Figures::default()),
        AtomicU64::new(0),
    );
    let begun = Instant::now();
    println!("first seed: {first}");
    let work = || {
        let mut runner = Runner::new();
        while all.lock().unwrap().kills() < arguments.count {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let case =
                (!only.is_empty()).then(|| random::choose(&mut Rng::new(seed ^ u64::MAX), &only));
            let round = Round::of(seed, case);
            // The panic has already printed the error.
            if catch_unwind(AssertUnwindSafe(|| runner.run(&round))).is_err() {
                println!("FAILED: --seed {seed} --count 1: {round:?}");
                failed.fetch_add(1, Ordering::Relaxed);
                all.lock().unwrap().add(&runner.figures);
                runner = Runner::new();
            }
            let mut all = all.lock().unwrap();
            all.add(&std::mem::take(&mut runner.figures));
            if all.rounds % 50 == 0 {
                println!("{} kills in {:.0?}: {all:?}", all.kills(), begun.elapsed());
            }
        }
    };
    thread::scope(|scope| (0..arguments.jobs).for_each(|_| drop(scope.spawn(work))));
    let (all, failed) = (all.into_inner().unwrap(), failed.into_inner() as u32);
    println!(
        "{} kills (client {}, daemon {}) in {} rounds, {:.0?}: {failed} failed; {} reruns resumed, {} copies continued, {} were complete \
         already; most received data lost: {:.1} MiB",
        all.kills(),
        all.clients,
        all.daemons,
        all.rounds,
        begun.elapsed(),
        all.resumed,
        all.continued,
        all.unheard,
        all.lost as f64 / f64::from(1 << 20),
    );
    failed
}
