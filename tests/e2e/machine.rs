//! End-to-end tests with requirements that not every machine meets: a program such as rsync or
//! strace, a privilege, or an unprivileged user. A test with a missing requirement is listed as
//! ignored, with the reason.
//!
//! Run by `cargo test --test machine`. One module per subject; each lists its tests.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

/// Lists the named test functions, which return nothing or a
/// [`Completion`](libtest_mimic::Completion).
#[cfg(target_os = "linux")]
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((concat!(module_path!(), "::", stringify!($name)), || crate::Ending::completion($name()))),*] };
}

#[cfg(target_os = "linux")]
mod crashes;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "crashes/tests_of_calls.rs"]
mod crashes_at_calls;
#[cfg(target_os = "linux")]
#[path = "crashes/tests.rs"]
mod crashes_at_random;
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
mod service;
#[cfg(target_os = "linux")]
mod threads;
#[cfg(target_os = "linux")]
mod trees_real;
#[cfg(target_os = "linux")]
mod users;

use std::{env, os::unix::fs::PermissionsExt as _};

use libtest_mimic::{Arguments, Completion, Trial};

type Test = (&'static str, fn() -> Completion);

/// Return type of a test function that does not panic.
trait Ending {
    fn completion(self) -> Completion;
}

impl Ending for () {
    fn completion(self) -> Completion {
        Completion::Completed
    }
}

impl Ending for Completion {
    fn completion(self) -> Completion {
        self
    }
}

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
    let modules = [
        crashes_at_random::TESTS,
        service::TESTS,
        threads::TESTS,
        trees_real::TESTS,
        users::TESTS,
    ];
    let mut trials: Vec<Trial> = modules
        .into_iter()
        .flatten()
        .map(|test| trial(test, None))
        .collect();
    #[cfg(target_arch = "x86_64")]
    {
        let obstacle = if only_listed {
            None
        } else {
            crashes::tracer::obstacle()
        };
        trials.extend(
            crashes_at_calls::TESTS
                .iter()
                .map(|test| trial(test, obstacle.clone())),
        );
    }
    trials
}

fn trial(&(name, test): &Test, obstacle: Option<String>) -> Trial {
    let (_, name) = name.split_once("::").unwrap();
    Trial::ignorable_test(name, move || {
        Ok(obstacle.map_or_else(test, Completion::ignored_with))
    })
}

/// Returns the completion of an ignored test if one of these programs is not in the search path.
fn lacks(programs: &[&str]) -> Option<Completion> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_program = |file: std::path::PathBuf| {
        file.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let is_here =
        |program: &str| env::split_paths(&path).any(|folder| is_program(folder.join(program)));
    let missing = programs.iter().find(|program| !is_here(program))?;
    Some(Completion::ignored_with(format!(
        "this machine has no {missing}"
    )))
}
