//! Sweeps that inject a fault at each system call of a copy, one call per run.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use nicstripe_testkit::crashes::{
    calls::{Sweep, Swept},
    case::{CASES, Case},
    field::Field,
    tracer::{Fault, Which, obstacle},
};
use nix::errno::Errno;

use super::{Arguments, Trial};

/// System calls and fault of `--case calls`: SIGKILL at each call that changes a file.
const KILLS: &[(Which, Fault)] = &[(Which::Changes, Fault::Kill)];

/// System calls and faults of `--case errors`: error codes and short writes.
const ERRORS: &[(Which, Fault)] = &[
    (Which::All, Fault::Fail(Errno::EIO)),
    (Which::Changes, Fault::Fail(Errno::ENOSPC)),
    (Which::Changes, Fault::FailFrom(Errno::ENOSPC)),
    (Which::Changes, Fault::Fail(Errno::EINTR)),
    (Which::Changes, Fault::Short),
];

/// Injects each fault at each system call of each copy case. Returns the number of failed sweeps.
pub(super) fn run(arguments: &Arguments) -> u32 {
    let faults = if arguments.case == Trial::Calls {
        KILLS
    } else {
        ERRORS
    };
    if let Some(obstacle) = obstacle() {
        eprintln!("error: {obstacle}");
        return 1;
    }
    let cases: Vec<Case> = CASES
        .iter()
        .filter(|case| {
            arguments
                .only
                .as_ref()
                .is_none_or(|only| case.name.contains(only))
        })
        .copied()
        .collect();
    let jobs: Mutex<Vec<_>> = Mutex::new(
        cases
            .iter()
            .flat_map(|case| {
                faults
                    .iter()
                    .map(move |(which, fault)| (*case, *which, *fault))
            })
            .rev()
            .collect(),
    );
    let failed = AtomicU64::new(0);
    let next = || jobs.lock().unwrap().pop();
    let work = || {
        while let Some((case, which, fault)) = next() {
            let begun = Instant::now();
            let swept = catch_unwind(AssertUnwindSafe(|| {
                Sweep {
                    case,
                    which,
                    fault,
                    field: &mut Field::new(),
                    is_told: true,
                }
                .run(arguments.step)
            }));
            match swept {
                Ok(Swept {
                    calls,
                    hits,
                    failed,
                }) => println!(
                    "{:14} {fault:?} {which:?}: {calls} calls, {hits} hit, {failed} copies failed and were rerun; {:.0?}",
                    case.name,
                    begun.elapsed()
                ),
                Err(_) => {
                    println!("{:14} {fault:?} {which:?}: FAILED", case.name);
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| (0..arguments.jobs).for_each(|_| drop(scope.spawn(work))));
    failed.into_inner() as u32
}
