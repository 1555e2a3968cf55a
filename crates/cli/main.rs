//! The `nicstripe` binary. All code is in the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    nicstripe_cli::main()
}
