//! Tests through the C interface: the header, and programs in C and Go against a daemon in this
//! process. A test that lacks a tool is listed as ignored, with the reason.

#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod header;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let trials = vec![Trial::test("header", || {
        Ok(header::the_header_is_that_of_the_source())
    })];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
