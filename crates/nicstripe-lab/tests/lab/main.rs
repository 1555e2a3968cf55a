//! Tests of a lab on the running kernel.
//!
//! Run with `cargo test -p nicstripe-lab --test lab`, as root or as a user who may create
//! namespaces. Otherwise every test is listed as ignored, with the reason. As root, all tests run a
//! second time as uid 65534.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![allow(clippy::unwrap_used)]

/// Lists functions as tests, with their names. A function returns nothing, or a [`Completion`] if
/// it may find that it cannot run.
#[cfg(target_os = "linux")]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), || crate::Verdict::completion($name()))),*] };
}

#[cfg(target_os = "linux")]
mod claims;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod rates;
#[cfg(target_os = "linux")]
mod setups;
#[cfg(target_os = "linux")]
mod traffic;

use libtest_mimic::{Arguments, Completion, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    // Most tests measure a rate, on a machine that may have few cores.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials(arguments.list)).exit();
}

#[cfg(not(target_os = "linux"))]
fn trials(_: bool) -> Vec<Trial> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn trials(only_listed: bool) -> Vec<Trial> {
    // Before any thread starts, because a process with threads cannot enter a user namespace.
    let obstacle = if only_listed {
        None
    } else {
        nicstripe_lab::gain_access().err().map(explain)
    };
    let trial = |&(name, test): &(&'static str, Test)| {
        let obstacle = obstacle.clone();
        Trial::ignorable_test(name, move || {
            Ok(obstacle.map_or_else(test, Completion::ignored_with))
        })
    };
    claims::TESTS
        .iter()
        .chain(setups::TESTS)
        .chain(faults::TESTS)
        .chain(limits::TESTS)
        .chain(rates::TESTS)
        .map(trial)
        .collect()
}

/// Formats an error with its source chain on one line.
#[cfg(target_os = "linux")]
fn explain(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Test function, which panics on failure.
#[cfg(target_os = "linux")]
type Test = fn() -> Completion;

/// Return type of a test function, convertible to a [`Completion`].
#[cfg(target_os = "linux")]
trait Verdict {
    fn completion(self) -> Completion;
}

#[cfg(target_os = "linux")]
impl Verdict for () {
    fn completion(self) -> Completion {
        Completion::Completed
    }
}

#[cfg(target_os = "linux")]
impl Verdict for Completion {
    fn completion(self) -> Completion {
        self
    }
}
