//! Tests of a lab on the running kernel.
//!
//! Run with `cargo test -p nicstripe-lab --test lab`, as root or as a user who may create
//! namespaces. Otherwise every test is listed as ignored, with the reason. As root, all tests run a
//! second time as uid 65534. The tests of rates and limits do so only with `NICSTRIPE_LONG=1`.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![allow(clippy::unwrap_used)]

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

use libtest_mimic::Trial;

fn main() {
    let mut arguments = nicstripe_testkit::trial::waiting();
    let (alone, together) = trials(arguments.list)
        .into_iter()
        .partition(|trial| is_run_alone(trial.name()));
    let threads = arguments.test_threads.replace(1);
    let of_alone = libtest_mimic::run(&arguments, alone);
    arguments.test_threads = threads;
    libtest_mimic::run(&arguments, together).exit_if_failed();
    of_alone.exit();
}

/// Returns true for a test that must run alone: it measures a rate, which a machine with few cores
/// would distort, or it counts resources that all labs share.
fn is_run_alone(name: &str) -> bool {
    let counting = [
        "claims::all_of_this_holds_without_root",
        "claims::no_descriptor_or_interface_remains",
        "claims::the_kernel_lets_go_of_the_namespaces",
    ];
    name.starts_with("rates::") || name.starts_with("limits::") || counting.contains(&name)
}

#[cfg(not(target_os = "linux"))]
fn trials(_: bool) -> Vec<Trial> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn trials(only_listed: bool) -> Vec<Trial> {
    use nicstripe_testkit::trial::{Group, none, trials_in_a_lab};

    let groups: [Group; 5] = [
        (claims::TESTS, none),
        (setups::TESTS, none),
        (faults::TESTS, none),
        (limits::TESTS, none),
        (rates::TESTS, none),
    ];
    trials_in_a_lab(only_listed, groups, [])
}
