//! Tests of `nicstripe serve s3` with boto3, the Python library of AWS.
//!
//! Run by `cargo test --test s3`; without boto3, its tests are listed as ignored, with the reason.
//! `crates/nicstripe-s3` tests all operations without it.
#![cfg_attr(not(all(target_os = "linux", feature = "s3")), allow(unused))]
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", feature = "s3"))]
mod gateway;

use libtest_mimic::{Arguments, Trial};

fn main() {
    libtest_mimic::run(&Arguments::from_args(), trials()).exit();
}

#[cfg(not(all(target_os = "linux", feature = "s3")))]
fn trials() -> Vec<Trial> {
    Vec::new()
}

#[cfg(all(target_os = "linux", feature = "s3"))]
fn trials() -> Vec<Trial> {
    use nicstripe_testkit::trial;

    trial::trials([
        (gateway::TESTS_WITH_BOTO3, gateway::obstacle as fn() -> _),
        (gateway::TESTS, trial::none),
    ])
}
