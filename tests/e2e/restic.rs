//! Tests of the real restic on `nicstripe serve restic`: it gets back the data it stored, even if
//! the daemon fails meanwhile.
//!
//! Run by `cargo test --test restic`; without restic its tests are listed as ignored, with the
//! reason. `crates/cli/commands/serve/restic` tests the HTTP interface without restic.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with the other tests of processes, which use more of it"
)]
mod harness;
#[cfg(target_os = "linux")]
#[allow(
    dead_code,
    reason = "shared with the other tests of processes, which use more of it"
)]
mod pair;
#[cfg(target_os = "linux")]
#[path = "restic/repository.rs"]
mod repository;

use libtest_mimic::{Arguments, Completion, Trial};

fn main() {
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials(arguments.list)).exit();
}

#[cfg(not(target_os = "linux"))]
fn trials(_: bool) -> Vec<Trial> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn trials(only_listed: bool) -> Vec<Trial> {
    let obstacle = if only_listed {
        None
    } else {
        harness::restic::obstacle()
    };
    let trial = |&(name, test): &(&'static str, fn()), obstacle: Option<String>| {
        let run = move || {
            test();
            Completion::Completed
        };
        Trial::ignorable_test(name, move || {
            Ok(obstacle.map_or_else(run, Completion::ignored_with))
        })
    };
    let with_restic = repository::TESTS_WITH_RESTIC
        .iter()
        .map(|test| trial(test, obstacle.clone()));
    with_restic
        .chain(repository::TESTS.iter().map(|test| trial(test, None)))
        .collect()
}
