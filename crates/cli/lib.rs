//! The command line of nicstripe: what is typed becomes settings, the library does the work, and everything that is drawn is drawn here.
//!
//! One file or folder a subcommand. What they share: `quantity` reads and writes sizes, rates and times; `choice` is what is typed about
//! links, and `link_text` what is read about them; `meeting` connects to a peer; `failure` says what went wrong, `exit` which code that is,
//! `hint` what to do about it, and `fault` what happens to a panic; `spelling` finds what was meant; `terminal` is standard error, with or
//! without bars; `table` lines up columns; `json` is what programs read. Nothing here decides how bytes move.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod bench;
mod choice;
mod completions;
mod cp;
mod demo;
mod discover;
mod exit;
mod failure;
mod fault;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod hint;
mod invocation;
mod json;
mod key;
mod link_text;
mod links;
mod logging;
mod man;
mod meeting;
mod own_names;
mod places;
mod quantity;
mod restic;
mod road;
mod routes;
mod runtime;
mod serve;
mod signals;
mod spelling;
mod stdout;
mod table;
mod terminal;
mod trust;
mod tunnel;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{args::Args, exit::Exit, failure::Failure, hint::hint, invocation::Invocation, terminal::Terminal};

/// Runs the command that the process was started with, and returns its exit code.
///
/// To be called first thing in `main`, while the process has one thread: `demo` may have to enter a user namespace, which the kernel allows
/// to no other. Usage errors, `--help` and `--version` end the process from here, as clap does.
pub fn main() -> ExitCode {
    fault::end_on_panic();
    let terminal = Terminal::default();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error, &terminal),
    };
    match args.command.run(&terminal) {
        Ok(()) => Exit::Done.into(),
        // Whoever read our output has had enough; that is no failure worth a word.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done.into(),
        // The signal came from somebody who knows, and the daemon has said that it ends.
        Err(Failure::Stopped(stop)) => Exit::of_stop(stop).into(),
        Err(failure) => {
            report(&failure, &terminal);
            Exit::of(&failure).into()
        }
    }
}

/// Prints what clap says, and of an option that another program has what to type instead.
fn usage(error: &clap::Error, terminal: &Terminal) -> ExitCode {
    let invocation = Invocation::of_this_process();
    let Some(hint) = cp::habit_hint(error, &invocation).filter(|_| invocation.is_of("cp")) else { error.exit() };
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    terminal.error(lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: "));
    terminal.hint(&hint);
    Exit::Usage.into()
}

/// Prints the `error:` line and, where there is something to do about it, the `hint:` line.
fn report(failure: &Failure, terminal: &Terminal) {
    terminal.error(&failure.one_line());
    failure.details().iter().for_each(|line| terminal.say(format_args!("  {line}")));
    if let Some(hint) = hint(failure, &Invocation::of_this_process()) {
        terminal.hint(&hint);
    }
}
