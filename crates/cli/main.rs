//! The binary; everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    nicstripe_cli::main()
}
