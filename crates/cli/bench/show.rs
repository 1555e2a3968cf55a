//! What a person and a program see while a bench runs, and when it is done.

use std::time::Instant;

use nicstripe::bench::{BenchEvent, BenchReport};

use super::{
    arguments::Measure,
    bars::Bars,
    live::Live,
    stream::{EventStream, print_failure},
    table,
};
use crate::{failure::Failure, hint::hint, invocation::Invocation, json::print_document, stdout, table::stdout_width, terminal::Terminal};

/// Takes the events of one bench and shows them as is wished.
#[derive(Debug)]
pub(crate) struct Show {
    terminal: Terminal,
    wishes: Wishes,
    begun: Instant,
    live: Live,
    bars: Option<Bars>,
    stream: Option<EventStream>,
}

/// How much is said.
#[derive(Debug, Clone, Copy)]
struct Wishes {
    quiet: bool,
    plain: bool,
    json: bool,
}

impl Show {
    /// Begins to show the bench of this machine.
    pub(crate) fn new(terminal: &Terminal, measure: &Measure, host: &str) -> Self {
        let wishes = Wishes { quiet: measure.quiet, plain: measure.plain, json: measure.is_for_programs() };
        let has_bars = terminal.is_interactive() && !wishes.quiet && !wishes.plain && !wishes.json;
        Self {
            terminal: terminal.clone(),
            wishes,
            begun: Instant::now(),
            live: Live::default(),
            bars: has_bars.then(|| Bars::new(terminal)),
            stream: measure.json_stream.then(|| EventStream::start(host)),
        }
    }

    /// Takes an event.
    pub(crate) fn on_event(&mut self, event: &BenchEvent) {
        if let Some(stream) = &mut self.stream {
            stream.write(event);
        }
        if let Some(text) = self.live.apply(event).filter(|_| !self.wishes.quiet) {
            self.terminal.say(text);
        }
        if let Some(bars) = &mut self.bars {
            bars.draw(&self.live);
        }
    }

    /// Prints how far it is, as SIGUSR1 asks.
    pub(crate) fn say_status(&self) {
        self.terminal.say(self.live.status());
    }

    /// Takes the bars away.
    pub(crate) fn end_bars(&mut self) {
        if let Some(mut bars) = self.bars.take() {
            bars.finish();
        }
    }

    /// Prints the report as is wished. Errors: standard output took not everything.
    pub(crate) fn report(mut self, report: &BenchReport) -> Result<(), Failure> {
        self.end_bars();
        match (self.wishes.json, self.wishes.quiet) {
            (true, _) => {
                self.stream.take().map_or(Ok(()), EventStream::finish)?;
                print_document(report)
            }
            (false, true) => stdout::line(table::total_line(report)),
            (false, false) => print_table(report, self.wishes.plain),
        }
    }

    /// Prints, for a program, why there is no report.
    pub(crate) fn failure(mut self, failure: &Failure) -> Result<(), Failure> {
        self.end_bars();
        if !self.wishes.json {
            return Ok(());
        }
        self.stream.take().map_or(Ok(()), EventStream::finish)?;
        print_failure(failure, hint(failure, &Invocation::of_this_process()), self.begun.elapsed())
    }
}

/// Prints the table and what follows from it; colours reach only a terminal that shows them, and only where they are wanted.
pub(crate) fn print_table(report: &BenchReport, plain: bool) -> Result<(), Failure> {
    let lines = table::lines(report, stdout_width());
    lines.iter().try_for_each(|line| if plain { stdout::line(&line.text) } else { stdout::line(line.styled()) })
}
