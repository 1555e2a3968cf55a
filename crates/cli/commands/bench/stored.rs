//! `bench list` and `bench compare`, which work on stored reports.

use super::{
    arguments::{self, Stored},
    history::{self, History},
    outcome,
    reading::Reading,
    session::Compare,
    versus,
};
use crate::{
    failure::Failure,
    output::{json::print_document, stdout, terminal::Terminal},
};

pub(crate) fn run(
    stored: &Stored,
    history: &History,
    compare: Compare,
    terminal: &Terminal,
) -> Result<(), Failure> {
    match stored {
        Stored::List => list(history, terminal),
        Stored::Compare(arguments) => compare_two(arguments, history, compare),
    }
}

fn list(history: &History, terminal: &Terminal) -> Result<(), Failure> {
    let briefs = history.list()?;
    if briefs.is_empty() {
        terminal.say("no stored reports");
        return Ok(());
    }
    history::table(&briefs).iter().try_for_each(stdout::line)
}

/// Prints two reports side by side. The last line and the exit code give the verdict.
fn compare_two(
    arguments: &arguments::Compare,
    history: &History,
    compare: Compare,
) -> Result<(), Failure> {
    let before = history.find(&arguments.a)?;
    let mut after = history.find(&arguments.b)?;
    let comparison = compare(&after, &before);
    after.baseline = Some(comparison.clone());
    if arguments.json {
        print_document(&after)?;
    } else {
        versus::lines(&before, &after)
            .iter()
            .try_for_each(stdout::line)?;
        Reading::of(&after)
            .compared()
            .iter()
            .try_for_each(stdout::line)?;
    }
    Ok(outcome::check_comparison(&comparison)?)
}
