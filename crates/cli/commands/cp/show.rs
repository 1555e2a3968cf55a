//! Output of a running copy, for users and for programs.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use nicstripe::{EntryOutcome, Event, Name, Report};
use serde_json::value::{RawValue, to_raw_value};

use super::{
    arguments::{OutputArgs, Progress},
    bars::Bars,
    closing::Ends,
    document::{End, document},
    event, listing,
    lookup::hint,
    view::{Notice, Shape, View},
};
use crate::{
    failure::Failure,
    output::{
        json::{EventStream, Object, print_document},
        terminal::Terminal,
    },
    text::invocation::Invocation,
};

impl OutputArgs {
    /// Returns the destination of the lines for tree entries. For a dry run they are the result,
    /// otherwise messages.
    fn list(self) -> List {
        match (self.quiet, self.dry_run, self.json) {
            (true, ..) => List::Nowhere,
            (false, true, false) => List::Results,
            _ if self.verbose > 0 => List::Messages,
            _ => List::Nowhere,
        }
    }

    pub(super) fn draws_bars(self, terminal: &Terminal) -> bool {
        self.drawing(Screen::of(terminal)) == Drawing::Bars
    }

    /// Returns the form of progress output. An explicit `--progress` takes precedence over `-q` and
    /// `--json`, which suppress only the default.
    fn drawing(self, screen: Screen) -> Drawing {
        match (self.progress, screen) {
            (Progress::Never, _) => Drawing::Nothing,
            (Progress::Auto, _) if self.quiet || self.json => Drawing::Nothing,
            (_, Screen::Terminal) => Drawing::Bars,
            (_, Screen::Dumb) => Drawing::Lines(BETWEEN_LINES_SEEN),
            (Progress::Always, Screen::None) => Drawing::Lines(BETWEEN_LINES),
            (Progress::Auto, Screen::None) => Drawing::Nothing,
        }
    }
}

/// Capability of standard error to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Screen {
    Terminal,
    /// Terminal that cannot redraw lines (`TERM=dumb`).
    Dumb,
    None,
}

impl Screen {
    fn of(terminal: &Terminal) -> Self {
        match (terminal.is_interactive(), terminal.can_redraw()) {
            (true, true) => Self::Terminal,
            (true, false) => Self::Dumb,
            (false, _) => Self::None,
        }
    }
}

/// Form of progress output on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drawing {
    Bars,
    /// One line of progress per interval.
    Lines(Duration),
    Nothing,
}

/// Destination of the lines for tree entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Results,
    Messages,
    Nowhere,
}

/// Printer of the events of one copy, according to the output options.
#[derive(Debug)]
pub(crate) struct Show {
    terminal: Terminal,
    wishes: OutputArgs,
    view: View,
    bars: Option<Bars>,
    lines: Option<Lines>,
    stream: Option<EventStream>,
    /// Result of the lines on standard output. After an error no more are printed, and the copy
    /// continues.
    printed: Result<(), Failure>,
    /// True if the transfer is that of a single file, so that its total size is known from the
    /// start.
    sized: bool,
    started_at: Instant,
    /// Last progress as JSON, for `nicstripe status`.
    pub(super) last_progress: LastProgress,
}

/// Last progress of a copy as JSON; `None` before the first.
pub(super) type LastProgress = Arc<Mutex<Option<Box<RawValue>>>>;

impl Show {
    /// Starts the output of a copy. `start` is the first event of the JSON stream.
    pub(crate) fn new(
        terminal: &Terminal,
        wishes: OutputArgs,
        start: impl FnOnce() -> Object,
    ) -> Self {
        Self {
            terminal: terminal.clone(),
            wishes,
            view: View::default(),
            bars: None,
            lines: None,
            stream: wishes
                .json_stream
                .then(|| EventStream::start(event::SCHEMA, start())),
            printed: Ok(()),
            sized: true,
            started_at: Instant::now(),
            last_progress: LastProgress::default(),
        }
    }

    /// Starts the progress output of a transfer from a source of this name.
    pub(crate) fn begin(&mut self, name: String, shape: Shape) {
        self.sized = shape == Shape::File;
        self.view.is_pipe = shape == Shape::Pipe;
        match self.wishes.drawing(Screen::of(&self.terminal)) {
            Drawing::Bars => self.bars = Some(Bars::new(&self.terminal, name)),
            Drawing::Lines(pause) => {
                let last = Instant::now();
                self.lines = Some(Lines { last, pause });
            }
            Drawing::Nothing => {}
        }
    }

    pub(crate) fn on_event(&mut self, event: &Event) {
        if let Some(stream) = &mut self.stream {
            stream.write(Some(event::fields(event, self.sized)));
        }
        if let Event::Progress(_) = event
            && let Ok(progress) = to_raw_value(event)
        {
            *self
                .last_progress
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(progress);
        }
        if let Event::Entry { name, outcome } = event {
            return self.list(name, outcome);
        }
        let notice = self.view.apply(event);
        match notice {
            Some(Notice::Warning(text)) if !self.wishes.quiet => self.terminal.warning(&text),
            Some(Notice::Told(text)) if !self.wishes.quiet => self.terminal.say(text),
            Some(Notice::Detail(text)) if self.wishes.verbose > 1 => self.terminal.say(text),
            _ => {}
        }
        self.draw();
    }

    /// Prints the progress as one line, as SIGUSR1 requests.
    pub(crate) fn print_status(&self) {
        self.terminal.say(self.view.status());
    }

    /// Prints a message on standard error, except with `-q`.
    pub(super) fn tell(&self, text: impl std::fmt::Display) {
        if !self.wishes.quiet {
            self.terminal.say(text);
        }
    }

    /// Ends the progress output. `report` is `None` if the copy failed.
    pub(crate) fn end(&mut self, report: Option<&Report>) {
        if let Some(report) = report {
            self.view.complete(report);
        }
        if let Some(bars) = &mut self.bars {
            bars.draw(&self.view);
            bars.finish();
        }
    }

    /// Ends the output on standard output: with `--json` or `--json-stream`, prints the JSON document,
    /// alone or as the last line of the stream.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written, or an earlier line could not be.
    pub(crate) fn print_document(
        self,
        done: Option<&(Report, Ends)>,
        failure: Option<&Failure>,
    ) -> Result<(), Failure> {
        self.printed?;
        if !self.wishes.json {
            return Ok(());
        }
        self.stream.map_or(Ok(()), EventStream::finish)?;
        let invocation = Invocation::of_this_process();
        let end = End {
            report: done.map(|(report, _)| report),
            proof: done.map(|(_, ends)| ends.proof()),
            failure,
            elapsed: self.started_at.elapsed(),
            hint: failure.and_then(|failure| hint(failure, &invocation)),
        };
        print_document(&document(end, &self.view, self.wishes.dry_run))
    }

    /// Prints the line of a tree entry. Does not redraw the bars, as there may be thousands of
    /// entries per second.
    fn list(&mut self, name: &Name, outcome: &EntryOutcome) {
        match (
            self.wishes.list(),
            listing::line(self.wishes, name, outcome),
        ) {
            (List::Results, Some(line)) if self.printed.is_ok() => {
                self.printed = self.terminal.result(line);
            }
            (List::Messages, Some(line)) => self.terminal.say(line),
            _ => {}
        }
    }

    /// Redraws the bars, or prints a line if one is due.
    pub(crate) fn draw(&mut self) {
        if let Some(bars) = &mut self.bars {
            bars.draw(&self.view);
        }
        if self.lines.as_mut().is_some_and(Lines::is_due) {
            self.terminal.say(self.view.status());
        }
    }
}

/// Interval between calls of [`Show::on_tick`], equal to the redraw interval of the bars.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Progress as one line per interval, for output that cannot be redrawn.
#[derive(Debug)]
struct Lines {
    last: Instant,
    pause: Duration,
}

impl Lines {
    fn is_due(&mut self) -> bool {
        let due = self.last.elapsed() >= self.pause;
        if due {
            self.last = Instant::now();
        }
        due
    }
}

/// Interval of progress lines in a log, so that an hour's copy adds only 360 lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Interval of progress lines on a dumb terminal, where a user waits for them.
const BETWEEN_LINES_SEEN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(progress: Progress, quiet: bool, json: bool) -> OutputArgs {
        OutputArgs {
            quiet,
            verbose: 0,
            stats: false,
            json,
            json_stream: false,
            progress,
            dry_run: false,
            compares: false,
        }
    }

    #[test]
    fn what_a_dry_run_would_do_is_a_result_unless_that_is_json() {
        for (dry_run, quiet, json, verbose, list) in [
            (true, false, false, 0, List::Results),
            (true, false, true, 0, List::Nowhere),
            (true, false, true, 1, List::Messages),
            (true, true, false, 0, List::Nowhere),
            (false, false, false, 1, List::Messages),
            (false, false, false, 0, List::Nowhere),
        ] {
            let wishes = OutputArgs {
                dry_run,
                verbose,
                ..wishes(Progress::Auto, quiet, json)
            };
            assert_eq!(wishes.list(), list, "{wishes:?}");
        }
    }

    #[test]
    fn progress_is_drawn_where_it_can_be_unless_somebody_wants_less() {
        use Progress::{Always, Auto, Never};
        let (seen, log) = (
            Drawing::Lines(BETWEEN_LINES_SEEN),
            Drawing::Lines(BETWEEN_LINES),
        );
        for (progress, quiet, json, screen, drawing) in [
            (Auto, false, false, Screen::Terminal, Drawing::Bars),
            (Auto, true, false, Screen::Terminal, Drawing::Nothing),
            (Auto, false, true, Screen::Terminal, Drawing::Nothing),
            (Auto, false, false, Screen::None, Drawing::Nothing),
            (Never, false, false, Screen::Terminal, Drawing::Nothing),
            (Always, true, true, Screen::Terminal, Drawing::Bars),
            (Always, false, false, Screen::None, log),
            (Auto, false, false, Screen::Dumb, seen),
            (Auto, true, false, Screen::Dumb, Drawing::Nothing),
            (Never, false, false, Screen::Dumb, Drawing::Nothing),
        ] {
            let drawn = wishes(progress, quiet, json).drawing(screen);
            assert_eq!(drawn, drawing, "{progress:?} {quiet} {json} {screen:?}");
        }
    }
}
