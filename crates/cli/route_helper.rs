//! Helper process that changes host routes with the privileges that the main process drops. Its
//! code is in nicstripe-link.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use std::process::ExitCode;

fn main() -> ExitCode {
    nicstripe_link::route_helper_main(std::env::args_os())
}
