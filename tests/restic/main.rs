//! Tests of the real restic on `nicstripe serve restic`. restic must restore the data that it
//! stored, even if the daemon is killed during the backup.
//!
//! Run by `cargo test --test restic`; without restic, its tests are listed as ignored, with the
//! reason. `crates/cli/commands/serve/restic` tests the HTTP interface without restic.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod repository;

use libtest_mimic::{Arguments, Trial};

fn main() {
    libtest_mimic::run(&Arguments::from_args(), trials()).exit();
}

#[cfg(not(target_os = "linux"))]
fn trials() -> Vec<Trial> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn trials() -> Vec<Trial> {
    use nicstripe_testkit::{restic, trial};

    trial::trials([
        (repository::TESTS_WITH_RESTIC, restic::obstacle as fn() -> _),
        (repository::TESTS, trial::none),
    ])
}
