//! Logs on standard error, chosen by `NICSTRIPE_LOG`.

use std::{env, io::IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::{failure::Failure, terminal::Terminal};

/// What is logged when `NICSTRIPE_LOG` is not set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Logs {
    /// Warnings, for a person who watches: without the time.
    Warnings,
    /// What a daemon does, with the time.
    Daemon,
}

/// Starts logging. Errors: `NICSTRIPE_LOG` cannot be read as a filter.
pub(crate) fn start(logs: Logs, terminal: &Terminal) -> Result<(), Failure> {
    let filter = match env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).map_err(|source| Failure::LogFilter { text, source })?,
        _ => EnvFilter::new(match logs {
            Logs::Warnings => "warn",
            Logs::Daemon => "info",
        }),
    };
    let coloured = std::io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(terminal.clone()).with_ansi(coloured).with_target(false);
    // Fails when a subscriber is set already, which only a test does.
    let _ = match logs {
        Logs::Warnings => builder.without_time().try_init(),
        Logs::Daemon => builder.try_init(),
    };
    Ok(())
}

const VARIABLE: &str = "NICSTRIPE_LOG";
