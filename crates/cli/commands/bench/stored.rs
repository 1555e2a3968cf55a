//! `bench list` and `bench compare`, which work on stored reports.

use nicstripe::bench::compare;

use super::{
    arguments::{Compare, Stored},
    history::{self, History},
    outcome,
    reading::Reading,
    versus,
};
use crate::{
    failure::Failure,
    output::{json::print_document, stdout, terminal::Terminal},
};

pub(crate) fn run(stored: &Stored, history: &History, terminal: &Terminal) -> Result<(), Failure> {
    match stored {
        Stored::List => list(history, terminal),
        Stored::Compare(arguments) => compare_two(arguments, history),
    }
}

fn list(history: &History, terminal: &Terminal) -> Result<(), Failure> {
    let reports = history.list()?;
    if reports.is_empty() {
        terminal.say("no stored reports");
        return Ok(());
    }
    history::table(&reports).iter().try_for_each(stdout::line)
}

/// Prints two reports side by side. The last line and the exit code give the verdict.
fn compare_two(arguments: &Compare, history: &History) -> Result<(), Failure> {
    let before = history.find(&arguments.a)?;
    let mut after = history.find(&arguments.b)?;
    let comparison = compare(&after, &before);
    after.baseline = Some(comparison.clone());
    if arguments.json {
        print_document(&after)?;
    } else {
        let lines = versus::lines(&before, &after).into_iter();
        lines
            .chain(Reading::of(&after).compared())
            .try_for_each(stdout::line)?;
    }
    Ok(outcome::check_comparison(&comparison)?)
}
