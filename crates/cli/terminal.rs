//! Standard error: messages for users, printed above the progress bars.

use std::{
    env,
    fmt::{self, Display},
    io::{self, IsTerminal as _, Write},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use clap::builder::styling::{AnsiColor, Style};
use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing_subscriber::fmt::MakeWriter;

/// Standard error, shared by messages, logs and bars so that their lines do not mix. Clones share
/// the terminal.
///
/// Write errors are ignored: a user who closed standard error does not want the output.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    bars: MultiProgress,
    voice: Arc<AtomicU8>,
}

impl Default for Terminal {
    fn default() -> Self {
        let voice = if is_journal() {
            Voice::Journal
        } else {
            Voice::Plain
        };
        Self {
            bars: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
            voice: Arc::new(AtomicU8::new(voice as u8)),
        }
    }
}

impl Terminal {
    /// Returns true if standard error is a terminal.
    pub(crate) fn is_interactive(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Returns true if lines can be redrawn; a terminal called dumb, or without a name, shows plain
    /// text only.
    pub(crate) fn can_redraw(&self) -> bool {
        self.is_interactive()
            && env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb")
    }

    /// Returns the width of the terminal in columns, if known.
    pub(crate) fn columns(&self) -> Option<u16> {
        let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
        Some(size.ws_col).filter(|columns| *columns > 0)
    }

    /// Returns the bars; hidden until [`Terminal::show_bars`].
    pub(crate) fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Shows the bars, redrawn at most [`REDRAWS_PER_SECOND`] times per second.
    pub(crate) fn show_bars(&self) {
        self.bars
            .set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND));
    }

    pub(crate) fn voice(&self) -> Voice {
        match self.voice.load(Ordering::Relaxed) {
            number if number == Voice::Journal as u8 => Voice::Journal,
            number if number == Voice::Records as u8 => Voice::Records,
            _ => Voice::Plain,
        }
    }

    /// Sets the format of later messages.
    pub(crate) fn speak(&self, voice: Voice) {
        self.voice.store(voice as u8, Ordering::Relaxed);
    }

    pub(crate) fn say(&self, line: impl Display) {
        match self.voice() {
            Voice::Records => tracing::info!("{line}"),
            Voice::Plain | Voice::Journal => self.print(line),
        }
    }

    fn print(&self, line: impl Display) {
        self.bars.suspend(|| {
            let _ = writeln!(anstream::stderr().lock(), "{line}");
        });
    }

    /// Prints a line of a result on standard output; write errors are ignored.
    pub(crate) fn result(&self, line: impl Display) {
        self.bars.suspend(|| {
            let _ = writeln!(anstream::stdout().lock(), "{line}");
        });
    }

    /// Prints an error that ends the command.
    pub(crate) fn error(&self, text: &str) {
        self.labelled(Priority::Error, ERROR, "error:", text);
    }

    /// Prints a warning, which does not end the command.
    pub(crate) fn warning(&self, text: &str) {
        self.labelled(Priority::Warning, WARNING, "warning:", text);
    }

    /// Prints advice on the last error.
    pub(crate) fn hint(&self, text: &str) {
        self.labelled(Priority::Info, HINT, "hint:", text);
    }

    fn labelled(&self, priority: Priority, style: Style, label: &str, text: &str) {
        match (self.voice(), priority) {
            (Voice::Plain, _) => self.print(format_args!("{style}{label}{style:#} {text}")),
            (Voice::Journal, _) => self.print(format_args!("{priority}{label} {text}")),
            (Voice::Records, Priority::Error) => tracing::error!("{text}"),
            (Voice::Records, Priority::Warning) => tracing::warn!("{text}"),
            (Voice::Records, Priority::Info | Priority::Debug) => tracing::info!("{label} {text}"),
        }
    }
}

/// Format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Voice {
    /// Plain text for a user.
    Plain,
    /// Lines with a priority and without the time, for the systemd journal.
    Journal,
    /// Log records, for programs.
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

/// Returns true if standard error is the systemd journal: `JOURNAL_STREAM` names its device and
/// inode.
///
/// A set variable alone proves nothing, since a child may inherit it and write elsewhere.
fn is_journal() -> bool {
    let Some(named) = env::var("JOURNAL_STREAM").ok() else {
        return false;
    };
    rustix::fs::fstat(io::stderr())
        .is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Logs are written through the terminal like messages.
impl<'a> MakeWriter<'a> for Terminal {
    type Writer = LogWriter<'a>;

    fn make_writer(&'a self) -> LogWriter<'a> {
        LogWriter { terminal: self }
    }
}

/// Writer of one log line; the subscriber passes each line in one call.
///
/// Never fails, because the subscriber would report the error on the same standard error and panic.
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

/// Fast enough to look alive, slow enough to cost nothing (as in nextest and jj).
const REDRAWS_PER_SECOND: u8 = 10;
