//! Standard error: messages for users, printed above the progress bars.

use std::{
    env,
    fmt::{self, Display},
    io::{self, IsTerminal as _, Write},
    sync::Arc,
};

use clap::builder::styling::{AnsiColor, Style};
use indicatif::{MultiProgress, ProgressDrawTarget};
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use super::{
    screen::{self, Screen},
    stdout,
};
use crate::failure::Failure;

/// Standard error, shared by messages, logs and progress bars so that their lines do not mix.
/// Clones share the same state.
///
/// Write errors are ignored: a user who closed standard error does not want the output.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    pub(crate) bars: MultiProgress,
    format: Arc<Mutex<MessageFormat>>,
}

impl Default for Terminal {
    fn default() -> Self {
        let format = if is_journal() {
            MessageFormat::Journal
        } else {
            MessageFormat::Plain
        };
        Self {
            bars: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
            format: Arc::new(Mutex::new(format)),
        }
    }
}

impl Terminal {
    pub(crate) fn is_interactive(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Returns true if standard error is a terminal that can redraw lines: `TERM` is set and not
    /// `dumb`.
    pub(crate) fn can_redraw(&self) -> bool {
        self.is_interactive()
            && env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb")
    }

    /// Returns the width of the terminal on standard error in columns, if known.
    pub(crate) fn columns(&self) -> Option<u16> {
        let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
        Some(size.ws_col).filter(|columns| *columns > 0)
    }

    /// Shows the progress bars, and redraws them at most [`REDRAWS_PER_SECOND`] times a second.
    pub(crate) fn show_bars(&self) {
        let screen = Box::new(Screen::new());
        let target = ProgressDrawTarget::term_like_with_hz(screen, REDRAWS_PER_SECOND);
        self.bars.set_draw_target(target);
    }

    /// Leaves the progress bars on the screen as they are. Later output appears below them.
    pub(crate) fn leave_bars(&self) {
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
        screen::leave();
    }

    /// Removes the progress bars from the screen. They appear again if they are drawn.
    pub(crate) fn clear_bars(&self) {
        let _ = self.bars.clear();
        screen::clear();
    }

    pub(crate) fn format(&self) -> MessageFormat {
        *self.format.lock()
    }

    pub(crate) fn set_format(&self, format: MessageFormat) {
        *self.format.lock() = format;
    }

    pub(crate) fn say(&self, line: impl Display) {
        match self.format() {
            MessageFormat::Records => tracing::info!("{line}"),
            MessageFormat::Plain | MessageFormat::Journal => self.print(line),
        }
    }

    fn print(&self, line: impl Display) {
        self.bars.suspend(|| {
            let _ = writeln!(anstream::stderr().lock(), "{line}");
        });
    }

    /// Prints one line of a result on standard output, above the progress bars.
    pub(crate) fn result(&self, line: impl Display) -> Result<(), Failure> {
        self.bars.suspend(|| stdout::line(line))
    }

    pub(crate) fn error(&self, text: &str) {
        self.labelled(Priority::Error, ERROR, "error:", text);
    }

    pub(crate) fn warning(&self, text: &str) {
        self.labelled(Priority::Warning, WARNING, "warning:", text);
    }

    pub(crate) fn hint(&self, text: &str) {
        self.labelled(Priority::Info, HINT, "hint:", text);
    }

    fn labelled(&self, priority: Priority, style: Style, label: &str, text: &str) {
        match (self.format(), priority) {
            (MessageFormat::Plain, _) => self.print(format_args!("{style}{label}{style:#} {text}")),
            (MessageFormat::Journal, _) => self.print(format_args!("{priority}{label} {text}")),
            (MessageFormat::Records, Priority::Error) => tracing::error!("{text}"),
            (MessageFormat::Records, Priority::Warning) => tracing::warn!("{text}"),
            (MessageFormat::Records, Priority::Info | Priority::Debug) => {
                tracing::info!("{label} {text}");
            }
        }
    }
}

/// Format of messages on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageFormat {
    /// Plain text, for a user.
    Plain,
    /// Lines with an sd-daemon(3) priority and without the time, for the systemd journal.
    Journal,
    /// Log records, for programs that read the log.
    Records,
}

/// Priority of a journal line, numbered as in sd-daemon(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    Error = 3,
    Warning = 4,
    Info = 6,
    Debug = 7,
}

impl Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}>", *self as u8)
    }
}

/// Returns true if standard error is the systemd journal: the device and inode in `JOURNAL_STREAM`
/// are those of standard error.
///
/// The variable alone proves nothing, since a child process may inherit it and write elsewhere.
fn is_journal() -> bool {
    let Some(named) = env::var("JOURNAL_STREAM").ok() else {
        return false;
    };
    rustix::fs::fstat(io::stderr())
        .is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

impl<'a> MakeWriter<'a> for Terminal {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

/// Prints log lines above the progress bars. `tracing_subscriber` passes each line in one call.
///
/// Never fails, because the subscriber would report the error on the same standard error and panic.
impl Write for &Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bars.suspend(|| {
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

/// Redraws of the progress bars per second: enough to look live, and too few to cost CPU time (as
/// in nextest and jj).
const REDRAWS_PER_SECOND: u8 = 10;
