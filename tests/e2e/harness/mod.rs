//! Test harness for whole processes: two sides with files and keys, a daemon on one of them, and
//! the output of processes.
//!
//! Every wait has a deadline, after which the test fails with all output of the process. No child
//! outlives its handle. The environment is empty except for the variables that a test sets. Each
//! side has separate directories, so that tests can run in parallel.

mod content;
mod example;
mod outcome;
mod process;
#[allow(
    dead_code,
    reason = "only some of the tests that share this run restic"
)]
pub(crate) mod restic;
#[path = "../../../crates/cli/output/json/schema.rs"]
mod schema;
mod side;
pub(crate) mod tree;

pub(crate) use self::{
    content::{content, digest, is_same},
    example::example,
    outcome::Outcome,
    process::Process,
    side::{Daemon, Side, link, number, text},
};
