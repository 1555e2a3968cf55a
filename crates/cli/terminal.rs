//! Standard error: messages for a person, above the bars where there are any.

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

/// Standard error, shared by messages, logs and bars so that none tears another. Clones are the same terminal.
///
/// Nothing here fails: whoever closed standard error does not want to know.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    bars: MultiProgress,
    voice: Arc<AtomicU8>,
}

impl Default for Terminal {
    fn default() -> Self {
        let voice = if is_journal() { Voice::Journal } else { Voice::Plain };
        Self { bars: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()), voice: Arc::new(AtomicU8::new(voice as u8)) }
    }
}

impl Terminal {
    /// Whether a person sees it as it changes.
    pub(crate) fn is_interactive(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Whether lines on it can be drawn anew: a terminal that is called dumb, or has no name, takes text only.
    pub(crate) fn can_redraw(&self) -> bool {
        self.is_interactive() && env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb")
    }

    /// Columns of the terminal, where it tells.
    pub(crate) fn columns(&self) -> Option<u16> {
        let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
        Some(size.ws_col).filter(|columns| *columns > 0)
    }

    /// Returns where bars are drawn; hidden until [`Terminal::show_bars`].
    pub(crate) fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Lets bars appear, drawn at most [`REDRAWS_PER_SECOND`] times a second.
    pub(crate) fn show_bars(&self) {
        self.bars.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND));
    }

    /// How messages are worded.
    pub(crate) fn voice(&self) -> Voice {
        match self.voice.load(Ordering::Relaxed) {
            number if number == Voice::Journal as u8 => Voice::Journal,
            number if number == Voice::Records as u8 => Voice::Records,
            _ => Voice::Plain,
        }
    }

    /// Words messages like this from here on.
    pub(crate) fn speak(&self, voice: Voice) {
        self.voice.store(voice as u8, Ordering::Relaxed);
    }

    /// Prints a line.
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

    /// Prints a line of a result on standard output; whoever closed that does not want to know, either.
    pub(crate) fn result(&self, line: impl Display) {
        self.bars.suspend(|| {
            let _ = writeln!(anstream::stdout().lock(), "{line}");
        });
    }

    /// Prints what went wrong and ends the command.
    pub(crate) fn error(&self, text: &str) {
        self.labelled(Priority::Error, ERROR, "error:", text);
    }

    /// Prints what went wrong and does not end the command.
    pub(crate) fn warning(&self, text: &str) {
        self.labelled(Priority::Warning, WARNING, "warning:", text);
    }

    /// Prints what to do about it.
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

/// How messages are worded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Voice {
    /// For a person.
    Plain,
    /// For a person who reads the journal of systemd, which knows priorities and the time.
    Journal,
    /// As records of the log, for programs that read it.
    Records,
}

/// How urgent a line of the journal is; printed as sd-daemon(3) has it.
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

/// Whether standard error is the journal of systemd: `JOURNAL_STREAM` names its device and inode. That it is set is not enough, as a child
/// may have inherited it and write elsewhere.
fn is_journal() -> bool {
    let Some(named) = env::var("JOURNAL_STREAM").ok() else { return false };
    rustix::fs::fstat(io::stderr()).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
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
