//! Logs on standard error, filtered by `NICSTRIPE_LOG`.
//!
//! Each record is one line. The library truncates and escapes text from a peer. The text format
//! escapes every value again and quotes it if it has spaces, so that no value looks like a separate
//! field.

use std::{env, fmt, io::IsTerminal as _};

use clap::ValueEnum;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    layer::SubscriberExt as _,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt as _,
};

use super::terminal::{MessageFormat, Priority, Terminal};
use crate::failure::{Failure, usage};

/// Format of log records on standard error, chosen by the daemon's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text, suited to its destination: without times and with priorities for the systemd journal
    Auto,
    /// Text with times
    Text,
    /// One JSON object per line
    Json,
}

/// Starts the log of an interactive command: warnings and errors, without the time.
pub(crate) fn start(terminal: &Terminal) -> Result<(), Failure> {
    start_at("warn", terminal)
}

/// Like [`start`], with this level unless `NICSTRIPE_LOG` is set.
pub(crate) fn start_at(level: &str, terminal: &Terminal) -> Result<(), Failure> {
    let filter = match LogFilter::from_env() {
        Some(filter) => filter.parse()?,
        // The command itself says which certificate is wrong.
        None => EnvFilter::new(format!("{level},rustls_platform_verifier=off")),
    };
    let lines = Lines {
        time: false,
        journal: terminal.format() == MessageFormat::Journal,
    };
    let layer = tracing_subscriber::fmt::layer()
        .event_format(lines)
        .with_writer(terminal.clone())
        .with_ansi(is_coloured());
    // Fails if a subscriber is set already, which happens in tests only.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .try_init();
    Ok(())
}

/// Starts the log of a daemon, and returns a handle that can change its filter later.
pub(crate) fn start_daemon(
    filter: &LogFilter,
    format: LogFormat,
    terminal: &Terminal,
) -> Result<LogControl, Failure> {
    let (filter, handle) = reload::Layer::new(filter.parse()?);
    let layer = tracing_subscriber::fmt::layer().with_writer(terminal.clone());
    let layer = match format {
        LogFormat::Json => {
            terminal.set_format(MessageFormat::Records);
            layer
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .with_target(false)
                .boxed()
        }
        LogFormat::Text | LogFormat::Auto => {
            if format == LogFormat::Text {
                terminal.set_format(MessageFormat::Plain);
            }
            let journal = terminal.format() == MessageFormat::Journal;
            let lines = Lines {
                time: !journal,
                journal,
            };
            layer.event_format(lines).with_ansi(is_coloured()).boxed()
        }
    };
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .try_init();
    Ok(LogControl(handle))
}

/// Handle that changes the log filter of a running daemon.
#[derive(Debug)]
pub(crate) struct LogControl(reload::Handle<EnvFilter, Registry>);

impl LogControl {
    /// Replaces the filter of the running log. If it is invalid, the old one stays in force.
    pub(crate) fn set(&self, filter: &LogFilter) -> Result<(), Failure> {
        let filter = filter.parse()?;
        // Fails only after the log has ended.
        let _ = self.0.reload(filter);
        Ok(())
    }
}

/// Filter of log records, and the setting it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogFilter {
    /// Environment variable or configuration key that holds the filter.
    pub(crate) key: &'static str,
    /// Filter as typed: a level, or targets with levels such as `nicstripe=debug`.
    pub(crate) text: String,
}

impl LogFilter {
    pub(crate) fn from_env() -> Option<Self> {
        let text = env::var(LOG_VARIABLE)
            .ok()
            .filter(|text| !text.is_empty())?;
        let key = LOG_VARIABLE;
        Some(Self { key, text })
    }

    pub(crate) fn parse(&self) -> Result<EnvFilter, Failure> {
        let Self { key, text } = self;
        // A bare level applies to this program only: messages of rustls about each handshake
        // require an explicit target.
        let is_level = text.parse::<Level>().is_ok();
        let filter = if is_level {
            format!("{text},rustls=warn")
        } else {
            text.clone()
        };
        let expected = "expected a level, or targets with levels such as nicstripe=debug";
        let wrong = |error| usage(format!("{key} is {text:?}: {expected}")).because(error);
        Ok(EnvFilter::try_new(filter).map_err(wrong)?)
    }
}

/// Environment variable that holds the log filter.
const LOG_VARIABLE: &str = "NICSTRIPE_LOG";

fn is_coloured() -> bool {
    std::io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Formatter of log records as lines of text: time, level, message, fields.
struct Lines {
    time: bool,
    /// True if each line gets an sd-daemon(3) priority prefix, and no time, since the journal adds
    /// it.
    journal: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if self.journal {
            write!(writer, "{}", priority(level))?;
        }
        if self.time {
            SystemTime.format_time(&mut writer)?;
            writer.write_char(' ')?;
        }
        if !self.journal {
            write_level(&mut writer, level)?;
        }
        let mut values = Values::default();
        event.record(&mut values);
        writeln!(writer, "{}{}", values.message, values.fields)
    }
}

fn write_level(writer: &mut Writer<'_>, level: Level) -> fmt::Result {
    let colour = match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    };
    match writer.has_ansi_escapes() {
        true => write!(writer, "\u{1b}[{colour}m{level:>5}\u{1b}[0m "),
        false => write!(writer, "{level:>5} "),
    }
}

fn priority(level: Level) -> Priority {
    match level {
        Level::ERROR => Priority::Error,
        Level::WARN => Priority::Warning,
        Level::INFO => Priority::Info,
        Level::DEBUG | Level::TRACE => Priority::Debug,
    }
}

/// Message and fields of one log record, escaped.
#[derive(Default)]
struct Values {
    message: String,
    fields: String,
}

impl Values {
    fn add(&mut self, field: &Field, text: &str) {
        let text = nicstripe::printable(text.as_bytes());
        match field.name() {
            "message" => self.message = text,
            // Source locations of records of the `log` crate do not help users.
            name if name.starts_with("log.") => {}
            name => {
                let bare = !text.is_empty() && !text.contains([' ', '"', '=']);
                let value = if bare {
                    text
                } else {
                    format!("\"{}\"", text.replace('"', "\\\""))
                };
                self.fields.push_str(&format!(" {name}={value}"));
            }
        }
    }
}

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::args::tests::sources;

    const PLAIN: Lines = Lines {
        time: false,
        journal: false,
    };

    /// Returns the log text of the records that `log` emits.
    fn written(lines: Lines, log: impl FnOnce()) -> String {
        #[derive(Clone, Default)]
        struct Memory(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Memory {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let memory = Memory::default();
        let writer = memory.clone();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(lines)
            .with_writer(move || writer.clone())
            .with_ansi(false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        String::from_utf8(memory.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_record_is_one_line_whatever_is_in_it() {
        let evil = "a\nERROR b\r\u{1b}[2J\u{85}\u{202e}\u{2028}";
        let log = || tracing::info!(name = %evil, other = evil, debug = ?evil, "what");
        let text = written(PLAIN, log);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let controls = text
            .trim_end()
            .chars()
            .filter(|c| c.is_control() || matches!(c, '\u{202e}' | '\u{2028}'));
        assert_eq!(controls.count(), 0, "{text}");
    }

    #[test]
    fn no_value_looks_like_another_field() {
        let log = || tracing::info!(name = %"x result=done\" y=\"z", count = 3, empty = "", address = "[::]:7", "transfer failed");
        assert_eq!(
            written(PLAIN, log),
            " INFO transfer failed name=\"x result=done\\\" y=\\\"z\" count=3 empty=\"\" address=[::]:7\n"
        );
    }

    #[test]
    fn the_journal_gets_priorities_and_no_time() {
        let log = || {
            tracing::error!("one");
            tracing::warn!("two");
            tracing::info!("three");
            tracing::debug!("four");
        };
        let lines = Lines {
            journal: true,
            ..PLAIN
        };
        assert_eq!(written(lines, log), "<3>one\n<4>two\n<6>three\n<7>four\n");
    }

    #[test]
    fn a_level_is_of_this_program_and_what_tls_says_is_asked_for_by_name() {
        let filter = |text: &str| {
            let (key, text) = (LOG_VARIABLE, text.into());
            LogFilter { key, text }.parse()
        };
        assert!(filter("debug").unwrap().to_string().contains("rustls=warn"));
        assert_eq!(filter("rustls=debug").unwrap().to_string(), "rustls=debug");
        assert!(filter("a=b=c").is_err());
    }

    /// Searches the sources for `?value` in log records: it prints Rust's debug format, which only
    /// developers understand.
    #[test]
    fn no_record_has_a_value_as_rust_writes_it() {
        let folders = [
            "crates/cli",
            "crates/nicstripe/src",
            "crates/nicstripe-proto/src",
            "crates/nicstripe-link/src",
        ];
        let mut records = 0;
        for (path, text) in sources(&folders) {
            let product = text.split("\n#[cfg(test)]").next().unwrap_or_default();
            let calls = product.split("tracing::").skip(1);
            let calls = calls.filter_map(|rest| rest.split_once("!("));
            for (_, call) in calls.filter(|(level, _)| level.len() < 6) {
                let call = call.split(['\n', ';']).next().unwrap_or_default();
                let call = call.split("),").next().unwrap_or_default();
                let is_odd =
                    call.starts_with('?') || [" ?", ":?}"].iter().any(|odd| call.contains(odd));
                assert!(!is_odd, "{}: {call}", path.display());
                records += 1;
            }
        }
        assert!(records > 50, "{records} records found: expected more");
    }
}
