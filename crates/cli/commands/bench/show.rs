//! Output of a bench while it runs and at its end.

use std::time::Instant;

use nicstripe::bench::{BenchEvent, BenchReport};
use serde::Serialize;

use super::{arguments::Measure, bars::Bars, live::Live, stream, table};
use crate::{
    failure::Failure,
    output::{
        json::{self, EventStream, print_document},
        stdout,
        terminal::Terminal,
    },
    text::{invocation::Invocation, table::stdout_width},
};

/// Printer of the events and the report of one bench, according to the output options.
#[derive(Debug)]
pub(crate) struct Show<'a> {
    terminal: &'a Terminal,
    measure: &'a Measure,
    started_at: Instant,
    live: Live,
    bars: Option<Bars>,
    stream: Option<EventStream>,
}

impl<'a> Show<'a> {
    pub(crate) fn new(terminal: &'a Terminal, measure: &'a Measure, host: &str) -> Self {
        let is_silent = measure.quiet || measure.plain || measure.is_for_programs();
        let has_bars = terminal.is_interactive() && !is_silent;
        let start = || EventStream::start(stream::SCHEMA, stream::start(host));
        Self {
            terminal,
            measure,
            started_at: Instant::now(),
            live: Live::default(),
            bars: has_bars.then(|| Bars::new(terminal)),
            stream: measure.json_stream.then(start),
        }
    }

    pub(crate) fn on_event(&mut self, event: &BenchEvent) {
        if let Some(stream) = &mut self.stream {
            stream.write(stream::fields(event));
        }
        if let Some(text) = self.live.apply(event).filter(|_| !self.measure.quiet) {
            self.terminal.say(text);
        }
        if let Some(bars) = &mut self.bars {
            bars.draw(&self.live);
        }
    }

    /// Prints the progress as one line, as SIGUSR1 requests.
    pub(crate) fn print_status(&self) {
        self.terminal.say(self.live.status());
    }

    fn end_bars(&mut self) {
        if let Some(mut bars) = self.bars.take() {
            bars.finish();
        }
    }

    /// Prints the report as JSON, as one line or as a table.
    pub(crate) fn report(mut self, report: &BenchReport) -> Result<(), Failure> {
        self.end_bars();
        match (self.measure.is_for_programs(), self.measure.quiet) {
            (true, _) => self.print_last(report),
            (false, true) => stdout::line(table::total_line(report)),
            (false, false) => print_table(report, self.measure.plain),
        }
    }

    /// Prints the failure as a JSON document in place of a report, with `--json` or
    /// `--json-stream`.
    pub(crate) fn failure(mut self, failure: &Failure) -> Result<(), Failure> {
        self.end_bars();
        if !self.measure.is_for_programs() {
            return Ok(());
        }
        let failed = stream::failed(failure, failure.hint(&Invocation::of_this_process()));
        let line = json::line(stream::SCHEMA, self.started_at.elapsed(), failed);
        self.print_last(&line)
    }

    fn print_last(self, document: &impl Serialize) -> Result<(), Failure> {
        self.stream.map_or(Ok(()), EventStream::finish)?;
        print_document(document)
    }
}

/// Prints the table and the conclusions of a report. Colours are stripped unless the terminal
/// supports them.
fn print_table(report: &BenchReport, plain: bool) -> Result<(), Failure> {
    let lines = table::lines(report, stdout_width());
    lines.iter().try_for_each(|line| match plain {
        true => stdout::line(&line.text),
        false => stdout::line(line.styled()),
    })
}
