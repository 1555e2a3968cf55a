//! Tests of a lab on the running kernel.
//!
//! Run with `cargo test -p nicstripe-lab --test lab`, as root or as a user who may create
//! namespaces. Otherwise every test is listed as ignored, with the reason. As root, all tests run a
//! second time as uid 65534.
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

use libtest_mimic::{Arguments, Trial};

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
    use nicstripe_testkit::trial::{Group, none, trials_in_a_lab};

    let groups: [Group; 5] = [
        (claims::TESTS, none),
        (setups::TESTS, none),
        (faults::TESTS, none),
        (limits::TESTS, none),
        (rates::TESTS, none),
    ];
    trials_in_a_lab(only_listed, groups)
}
