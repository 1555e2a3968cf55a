//! The part of nicstripe that changes routes; everything is in nicstripe-link.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::process::ExitCode;

fn main() -> ExitCode {
    nicstripe_link::route_helper_main(std::env::args_os())
}
