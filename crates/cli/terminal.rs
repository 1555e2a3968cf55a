//! Standard error: messages for a person, above the bars where there are any.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write},
};

use clap::builder::styling::{AnsiColor, Style};
use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing_subscriber::fmt::MakeWriter;

/// Standard error, shared by messages, logs and bars so that none tears another. Clones are the same terminal.
///
/// Nothing here fails: whoever closed standard error does not want to know.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    bars: MultiProgress,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { bars: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()) }
    }
}

impl Terminal {
    /// Whether a person sees it as it changes.
    pub(crate) fn is_interactive(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Returns where bars are drawn; hidden until [`Terminal::show_bars`].
    pub(crate) fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Lets bars appear, drawn at most [`REDRAWS_PER_SECOND`] times a second.
    pub(crate) fn show_bars(&self) {
        self.bars.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND));
    }

    /// Prints a line.
    pub(crate) fn say(&self, line: impl Display) {
        self.bars.suspend(|| {
            let _ = writeln!(anstream::stderr().lock(), "{line}");
        });
    }

    /// Prints a line of a result on standard output; whoever closed that does not want to know, either.
    pub(crate) fn result(&self, line: impl Display) {
        self.bars.suspend(|| {
            let _ = writeln!(anstream::stdout().lock(), "{line}");
        });
    }

    /// Prints what went wrong and ends the command.
    pub(crate) fn error(&self, text: &str) {
        self.labelled(ERROR, "error:", text);
    }

    /// Prints what went wrong and does not end the command.
    pub(crate) fn warning(&self, text: &str) {
        self.labelled(WARNING, "warning:", text);
    }

    /// Prints what to do about it.
    pub(crate) fn hint(&self, text: &str) {
        self.labelled(HINT, "hint:", text);
    }

    fn labelled(&self, style: Style, label: &str, text: &str) {
        self.say(format_args!("{style}{label}{style:#} {text}"));
    }
}

/// Logs go the same way as messages.
impl<'a> MakeWriter<'a> for Terminal {
    type Writer = LogWriter<'a>;

    fn make_writer(&'a self) -> LogWriter<'a> {
        LogWriter { terminal: self }
    }
}

/// Writes one log line; the subscriber hands each over in one piece. Never fails: the subscriber would complain on the same standard
/// error, and panic there.
pub(crate) struct LogWriter<'a> {
    terminal: &'a Terminal,
}

impl Write for LogWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.terminal.bars.suspend(|| {
            let _ = io::stderr().write_all(bytes);
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// Fast enough to look alive, slow enough to cost nothing (nextest and jj draw as often).
const REDRAWS_PER_SECOND: u8 = 10;
