//! Standard output: results, and nothing else.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use crate::failure::Failure;

/// Prints one line of a result; styles in it reach only a terminal that shows them.
///
/// Errors: [`Failure::Output`]; a closed pipe among them, for the caller to take as the end.
pub(crate) fn line(line: impl Display) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Prints bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(Failure::Output)
}
