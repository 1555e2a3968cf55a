//! Helper process that changes routes; its code is in nicstripe-link.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::process::ExitCode;

fn main() -> ExitCode {
    nicstripe_link::route_helper_main(std::env::args_os())
}
