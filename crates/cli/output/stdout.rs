//! Standard output, which carries results only.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use nicstripe_link::was_closed_at_start;
use rustix::io::Errno;

use crate::failure::Failure;

/// Prints one line of a result. Styles are stripped unless standard output is a terminal that
/// supports them.
///
/// # Errors
///
/// Returns [`Failure::Output`] if the write fails, also for a closed pipe, which `main` does not
/// report as an error.
pub(crate) fn line(line: impl Display) -> Result<(), Failure> {
    write(|| writeln!(anstream::stdout().lock(), "{line}")).map_err(Failure::Output)
}

pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    write(|| io::stdout().write_all(bytes)).map_err(Failure::Output)
}

/// Runs `print`, which writes to standard output, and flushes what it wrote.
///
/// # Errors
///
/// The write failed, or standard output was closed when the process started: the Rust runtime has
/// opened `/dev/null` in its place, which would lose the result without an error.
pub(crate) fn write(print: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if was_closed_at_start(rustix::stdio::raw_stdout()) {
        return Err(Errno::BADF.into());
    }
    print()?;
    io::stdout().flush()
}
