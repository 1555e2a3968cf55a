//! Tests through the C interface: the header, and programs in C and Go against a daemon in this
//! process. A test that lacks a tool is listed as ignored, with the reason.

#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod header;
mod programs;
mod served;

use std::{env, path::PathBuf};

use libtest_mimic::{Arguments, Completion, Trial};

/// Name of a test, what it needs, and its function.
type Test = (&'static str, &'static [&'static str], fn());

const TESTS: &[Test] = &[
    (
        "the_header_is_that_of_the_source",
        &[],
        header::the_header_is_that_of_the_source,
    ),
    (
        "the_example_uses_each_function",
        &[],
        programs::the_example_uses_each_function,
    ),
    (
        "only_symbols_of_the_interface_are_exported",
        &["nm", "readelf"],
        programs::only_symbols_of_the_interface_are_exported,
    ),
    (
        "a_c_program_backs_up",
        &["cc", "pkg-config", "valgrind"],
        programs::a_c_program_backs_up,
    ),
    (
        "a_static_c_program_backs_up",
        &["cc", "pkg-config"],
        programs::a_static_c_program_backs_up,
    ),
    (
        "a_go_program_backs_up",
        &["cc", "pkg-config", "go"],
        programs::a_go_program_backs_up,
    ),
    (
        "the_program_of_the_readme_compiles",
        &["cc", "pkg-config"],
        programs::the_program_of_the_readme_compiles,
    ),
    (
        "rates_are_measured",
        &["cc", "pkg-config"],
        programs::rates_are_measured,
    ),
    (
        "calls_that_must_fail_do_with_their_codes",
        &["cc", "pkg-config", "valgrind"],
        programs::calls_that_must_fail_do_with_their_codes,
    ),
];

fn main() {
    libtest_mimic::run(&Arguments::from_args(), TESTS.iter().map(trial).collect()).exit();
}

fn trial(&(name, tools, test): &Test) -> Trial {
    Trial::ignorable_test(name, move || {
        Ok(match tools.iter().find(|tool| !is_installed(tool)) {
            Some(tool) => Completion::ignored_with(format!("this machine has no {tool}")),
            None => {
                test();
                Completion::Completed
            }
        })
    })
}

fn is_installed(tool: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder: PathBuf| folder.join(tool).is_file())
}
