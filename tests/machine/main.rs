//! End-to-end tests with requirements that not every machine meets: a program such as rsync or
//! strace, a privilege, or an unprivileged user. A test with a missing requirement is listed as
//! ignored, with the reason.
//!
//! Run by `cargo test --test machine`. There is one module per subject, which lists its tests.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod crashes_at_calls;
#[cfg(target_os = "linux")]
mod crashes_at_random;
#[cfg(target_os = "linux")]
mod odd_disks;
#[cfg(target_os = "linux")]
mod packages;
#[cfg(target_os = "linux")]
mod recipes;
#[cfg(target_os = "linux")]
mod rsync_suite;
#[cfg(target_os = "linux")]
mod service;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod threads;
#[cfg(target_os = "linux")]
mod trees_real;
#[cfg(target_os = "linux")]
mod users;

use libtest_mimic::Trial;

fn main() {
    libtest_mimic::run(&nicstripe_testkit::trial::waiting(), trials()).exit();
}

#[cfg(not(target_os = "linux"))]
fn trials() -> Vec<Trial> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn trials() -> Vec<Trial> {
    use nicstripe_testkit::trial::{self, Group, none};

    let groups: &[Group] = &[
        (crashes_at_random::TESTS, none),
        (odd_disks::TESTS, odd_disks::obstacle),
        (packages::TESTS, packages::obstacle),
        (recipes::TESTS, none),
        (rsync_suite::TESTS, none),
        (service::TESTS, none),
        (terminal::TESTS, terminal::obstacle),
        (threads::TESTS, none),
        (trees_real::TESTS, none),
        (users::TESTS, none),
        #[cfg(target_arch = "x86_64")]
        (
            crashes_at_calls::TESTS,
            nicstripe_testkit::crashes::tracer::obstacle,
        ),
    ];
    trial::trials(groups.iter().copied())
}
