//! The command line of nicstripe: it parses arguments into settings, calls the library and prints
//! all output.
//!
//! Its modules; each may use those below it:
//!
//! - `args`: the list of the subcommands; `habits`: those of other programs
//! - `commands`: the subcommands, one file or folder each
//! - `connect`: the options for the connection to a peer, and its setup
//! - `output`: standard output and error, JSON, the log
//! - `process`: runtimes and signals
//! - `failure`: errors, exit codes, hints, panics
//! - `text`: quantities, tables, names of links, command lines
//!
//! Scheduling and transfer are in the `nicstripe` library.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod commands;
mod connect;
#[cfg(test)]
mod documents;
mod failure;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod habits;
mod output;
mod places;
mod process;
mod text;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{
    args::Args,
    commands::cp,
    failure::{Failure, exit::Exit, panics},
    output::{stdout, terminal::Terminal},
    text::invocation::Invocation,
};

/// Runs the command of this process, and returns its exit code.
///
/// Must be the first call in `main`, while the process has one thread: `demo` may enter a user
/// namespace, which the kernel allows only to single-threaded processes. Usage errors end the
/// process inside this function, as in clap.
pub fn main() -> ExitCode {
    if let Some(code) = commands::exec::guard::main() {
        return code;
    }
    panics::end_on_panic();
    // Cannot fail on Linux; without it, only a file beyond the limit of file sizes ends the command.
    let _ = nicstripe_link::ignore_file_size_signal();
    let terminal = Terminal::default();
    let result = match Args::try_parse() {
        Ok(args) => args.command.run(&terminal),
        Err(error) if error.use_stderr() => return usage(&error, &terminal),
        // The text of `--help` or `--version`.
        Err(asked) => stdout::write(|| asked.print()).map_err(Failure::Output),
    };
    match result {
        Ok(()) => Exit::Done.into(),
        // The reader closed standard output (as `head` does), which is not a failure.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Exit::Done.into()
        }
        // The sender of the signal expects it, and the daemon has logged its end.
        Err(Failure::Stopped(stop)) => stop.exit().into(),
        // The command has said why.
        Err(Failure::Exited(code)) => ExitCode::from(code),
        Err(failure) => {
            report(&failure, &terminal);
            failure.exit().into()
        }
    }
}

/// Prints clap's usage error, with a hint if the command or option belongs to another program.
fn usage(error: &clap::Error, terminal: &Terminal) -> ExitCode {
    let invocation = Invocation::of_this_process();
    let Some(hint) = habits::hint(error, &invocation) else {
        error.exit()
    };
    let text = error.to_string();
    let lines = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(str::trim);
    terminal.error(
        lines
            .collect::<Vec<_>>()
            .join(" ")
            .trim_start_matches("error: "),
    );
    terminal.hint(&hint);
    Exit::Usage.into()
}

/// Prints a failure: an `error:` line, its details, and a `hint:` line if there is advice.
fn report(failure: &Failure, terminal: &Terminal) {
    terminal.error(&failure.one_line());
    failure
        .details()
        .iter()
        .for_each(|line| terminal.say(format_args!("  {line}")));
    if let Some(hint) = cp::hint(failure, &Invocation::of_this_process()) {
        terminal.hint(&hint);
    }
}
