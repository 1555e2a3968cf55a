//! Standard output, which carries results only.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use crate::failure::Failure;

/// Prints one line of a result. Styles are stripped unless standard output is a terminal that
/// supports them.
///
/// # Errors
///
/// Returns [`Failure::Output`] if the write fails, also for a closed pipe, which `main` does not
/// report as an error.
pub(crate) fn line(line: impl Display) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .map_err(Failure::Output)
}

pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(Failure::Output)
}
