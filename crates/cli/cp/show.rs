//! What a person and a program see while a copy runs.

use std::time::{Duration, Instant};

use nicstripe::{Event, Report};

use super::{
    arguments::{Cp, Progress},
    bars::Bars,
    view::{Notice, View},
};
use crate::{json::EventStream, terminal::Terminal};

/// How much is said, as the arguments ask for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    /// Errors only.
    pub(crate) quiet: bool,
    /// What each link carried; from 2 on also why links are left out.
    pub(crate) verbose: u8,
    /// Totals at the end.
    pub(crate) stats: bool,
    /// A document at the end, on standard output.
    pub(crate) json: bool,
    /// Events on standard output, and the document.
    pub(crate) json_stream: bool,
    /// When progress is shown.
    pub(crate) progress: Progress,
}

impl Wishes {
    /// Takes what concerns the output.
    pub(crate) fn of(cp: &Cp) -> Self {
        Self {
            quiet: cp.quiet,
            verbose: cp.verbose,
            stats: cp.stats,
            json: cp.json || cp.json_stream,
            json_stream: cp.json_stream,
            progress: cp.progress,
        }
    }

    /// Decides how progress is drawn. What is asked for explicitly outranks `-q` and `--json`, which only silence what nobody asked for.
    fn drawing(self, interactive: bool) -> Drawing {
        match (self.progress, interactive) {
            (Progress::Always, true) => Drawing::Bars,
            (Progress::Auto, true) if !self.quiet && !self.json => Drawing::Bars,
            (Progress::Always, false) => Drawing::Lines,
            _ => Drawing::Nothing,
        }
    }
}

/// How progress is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drawing {
    Bars,
    Lines,
    Nothing,
}

/// Takes the events of one copy and shows them as is wished.
#[derive(Debug)]
pub(crate) struct Show {
    terminal: Terminal,
    wishes: Wishes,
    view: View,
    bars: Option<Bars>,
    lines: Option<Lines>,
    stream: Option<EventStream>,
}

impl Show {
    /// Begins to show the copy of a file with this name.
    pub(crate) fn new(terminal: &Terminal, wishes: Wishes, name: String, stream: Option<EventStream>) -> Self {
        let drawing = wishes.drawing(terminal.is_interactive());
        Self {
            terminal: terminal.clone(),
            wishes,
            view: View::default(),
            bars: (drawing == Drawing::Bars).then(|| Bars::new(terminal, name)),
            lines: (drawing == Drawing::Lines).then(Lines::default),
            stream,
        }
    }

    /// Takes an event.
    pub(crate) fn on_event(&mut self, event: &Event) {
        if let Some(stream) = &mut self.stream {
            stream.write(event);
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

    /// Shows what time changes; to be called every [`TICK`].
    pub(crate) fn on_tick(&mut self) {
        self.draw();
    }

    /// Prints how far it is, as SIGUSR1 asks.
    pub(crate) fn say_status(&self) {
        self.terminal.say(self.view.status());
    }

    /// Ends the drawing and returns what is known; `report` is there when the copy succeeded.
    pub(crate) fn finish(mut self, report: Option<&Report>) -> (View, Option<EventStream>) {
        if let Some(report) = report {
            self.view.complete(report);
        }
        if let Some(bars) = &mut self.bars {
            bars.draw(&self.view);
            bars.finish();
        }
        (self.view, self.stream)
    }

    fn draw(&mut self) {
        if let Some(bars) = &mut self.bars {
            bars.draw(&self.view);
        }
        if self.lines.as_mut().is_some_and(Lines::is_due) {
            self.terminal.say(self.view.status());
        }
    }
}

/// How often [`Show::on_tick`] wants to be called: as often as the terminal is drawn.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Progress where there is no terminal: a line now and then.
#[derive(Debug)]
struct Lines {
    last: Instant,
}

impl Default for Lines {
    fn default() -> Self {
        Self { last: Instant::now() }
    }
}

impl Lines {
    fn is_due(&mut self) -> bool {
        let due = self.last.elapsed() >= BETWEEN_LINES;
        if due {
            self.last = Instant::now();
        }
        due
    }
}

/// A log of an hour's copy stays readable.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(progress: Progress, quiet: bool, json: bool) -> Wishes {
        Wishes { quiet, verbose: 0, stats: false, json, json_stream: false, progress }
    }

    #[test]
    fn bars_are_drawn_on_a_terminal_unless_somebody_wants_less() {
        assert_eq!(wishes(Progress::Auto, false, false).drawing(true), Drawing::Bars);
        assert_eq!(wishes(Progress::Auto, true, false).drawing(true), Drawing::Nothing);
        assert_eq!(wishes(Progress::Auto, false, true).drawing(true), Drawing::Nothing);
        assert_eq!(wishes(Progress::Auto, false, false).drawing(false), Drawing::Nothing);
        assert_eq!(wishes(Progress::Never, false, false).drawing(true), Drawing::Nothing);
    }

    #[test]
    fn always_is_obeyed_with_bars_or_lines() {
        assert_eq!(wishes(Progress::Always, true, true).drawing(true), Drawing::Bars);
        assert_eq!(wishes(Progress::Always, false, false).drawing(false), Drawing::Lines);
    }
}
