//! Output of a bench while it runs and at its end.

use std::time::Instant;

use nicstripe::bench::{BenchEvent, BenchReport};

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
pub(crate) struct Show {
    terminal: Terminal,
    wishes: Wishes,
    started_at: Instant,
    live: Live,
    bars: Option<Bars>,
    stream: Option<EventStream>,
}

#[derive(Debug, Clone, Copy)]
struct Wishes {
    quiet: bool,
    plain: bool,
    json: bool,
}

impl Show {
    /// Starts the output of a bench of `host`.
    pub(crate) fn new(terminal: &Terminal, measure: &Measure, host: &str) -> Self {
        let wishes = Wishes {
            quiet: measure.quiet,
            plain: measure.plain,
            json: measure.is_for_programs(),
        };
        let has_bars = terminal.is_interactive() && !wishes.quiet && !wishes.plain && !wishes.json;
        Self {
            terminal: terminal.clone(),
            wishes,
            started_at: Instant::now(),
            live: Live::default(),
            bars: has_bars.then(|| Bars::new(terminal)),
            stream: measure
                .json_stream
                .then(|| EventStream::start(stream::SCHEMA, stream::start(host))),
        }
    }

    pub(crate) fn on_event(&mut self, event: &BenchEvent) {
        if let Some(stream) = &mut self.stream {
            stream.write(stream::fields(event));
        }
        if let Some(text) = self.live.apply(event).filter(|_| !self.wishes.quiet) {
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

    pub(crate) fn end_bars(&mut self) {
        if let Some(mut bars) = self.bars.take() {
            bars.finish();
        }
    }

    /// Prints the report as JSON, as one line or as a table.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
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

    /// Prints the failure as a JSON document in place of a report, with `--json` or
    /// `--json-stream`.
    pub(crate) fn failure(mut self, failure: &Failure) -> Result<(), Failure> {
        self.end_bars();
        if !self.wishes.json {
            return Ok(());
        }
        self.stream.take().map_or(Ok(()), EventStream::finish)?;
        let failed = stream::failed(failure, failure.hint(&Invocation::of_this_process()));
        print_document(&json::line(
            stream::SCHEMA,
            self.started_at.elapsed(),
            failed,
        ))
    }
}

/// Prints the table and the conclusions of a report. Colours are stripped unless the terminal
/// supports them.
pub(crate) fn print_table(report: &BenchReport, plain: bool) -> Result<(), Failure> {
    let lines = table::lines(report, stdout_width());
    lines.iter().try_for_each(|line| {
        if plain {
            stdout::line(&line.text)
        } else {
            stdout::line(line.styled())
        }
    })
}
