//! What tests of whole processes are made of: two sides with files and keys, the daemon on one of them, and what a process said.
//!
//! Every wait has a deadline, after which the test fails with all that the process has printed. No child outlives its handle, the
//! environment is empty but for what a test sets, and each side has folders of its own, so that tests run beside each other.

mod content;
mod example;
mod outcome;
mod process;
#[allow(dead_code, reason = "only some of the tests that share this run restic")]
pub(crate) mod restic;
#[path = "../../../crates/cli/json/schema.rs"]
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
