//! Arguments of `serve`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use nicstripe::{BenchLimits, Limits};
use serde::Deserialize;

#[cfg(feature = "s3")]
use super::s3::S3;
use super::{
    limits::{BenchTable, LimitsTable, choice, some_choice},
    listen::{Listen, parse_listen},
    restic::Restic,
};
use crate::{connect::arguments::Routes, output::logging::LogFormat};

/// Serve a directory to trusted peers, over every cable
///
/// Listens on each interface separately, so that replies leave over the cable of the request.
/// Accepts only keys listed by `nicstripe trust`, which may change at run time. The first SIGINT or
/// SIGTERM ends copies in order, so that they can resume; the second exits at once. SIGHUP reloads
/// the configuration file and the peers file, SIGUSR1 prints a status line.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Serve {
    #[command(subcommand)]
    pub(super) instead: Option<Instead>,

    /// Same as --root DIR; write ./restic for a directory named restic, ./s3 for one named s3
    #[arg(value_name = "DIR", conflicts_with = "root")]
    pub(super) dir: Option<PathBuf>,

    #[command(flatten)]
    pub(super) options: Options,
}

/// Options of `serve`, on the command line and, under the same names, in the configuration file.
/// An absent value has its default, which [`Settings`](super::settings::Settings) sets.
///
/// `packaging/config.toml` lists all keys with their defaults.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Options {
    /// Directory that peers see as / [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(super) root: Option<PathBuf>,

    /// Listen on this address only, 0.0.0.0 or [::] for those of every interface; may be repeated
    /// [default: every address of every interface that is up]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_listen)]
    pub(super) listen: Vec<Listen>,

    /// Listen on this interface only; may be repeated [default: every interface that is up]
    #[arg(long, value_name = "NAME")]
    pub(super) interface: Vec<String>,

    /// TCP port; 0 for any free one [default: 7747]
    #[arg(long, value_parser = parse_own_port)]
    pub(super) port: Option<u16>,

    /// Deny all writes, regardless of the peers file
    #[arg(long)]
    pub(super) read_only: bool,

    /// Let peers add new files but not replace any
    #[arg(long, conflicts_with = "read_only")]
    pub(super) append_only: bool,

    /// Install host routes to peers, removed with their session: if their packets would be dropped,
    /// always, or never [default: auto]
    #[arg(long, value_name = "WHEN")]
    #[serde(deserialize_with = "some_choice")]
    pub(super) routes: Option<Routes>,

    /// Answer `nicstripe discover` of every machine on the same cable, not only of trusted ones
    #[arg(long)]
    pub(super) announce: bool,

    /// Configuration file, overridden by the command line [default: config.toml next to the peers
    /// file, if it exists]
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(super) config: Option<PathBuf>,

    /// Check the configuration and exit
    #[arg(long)]
    #[serde(skip)]
    pub(super) check_config: bool,

    /// Serve metrics for Prometheus at http://ADDR:PORT/metrics, or `off` [default: off]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(super) metrics: Option<String>,

    /// Let other machines read the metrics: allow any address for --metrics
    #[arg(long)]
    pub(super) metrics_any: bool,

    /// Print warnings and errors only, unless NICSTRIPE_LOG says otherwise
    #[arg(short, long)]
    #[serde(skip)]
    pub(super) quiet: bool,

    /// Format of the log [default: auto]
    #[arg(
        long,
        value_name = "FORMAT",
        env = "NICSTRIPE_LOG_FORMAT",
        hide_env_values = true
    )]
    #[serde(skip)]
    pub(super) log_format: Option<LogFormat>,

    #[arg(skip)]
    pub(super) log: LogTable,

    #[arg(skip)]
    #[serde(with = "LimitsTable")]
    pub(super) limits: Limits,

    #[arg(skip)]
    #[serde(with = "BenchTable")]
    pub(super) bench: BenchLimits,
}

/// Table `[log]` of the configuration file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct LogTable {
    pub(super) filter: String,
    #[serde(deserialize_with = "choice")]
    pub(super) format: LogFormat,
}

impl Default for LogTable {
    fn default() -> Self {
        Self {
            filter: "info".into(),
            format: LogFormat::Auto,
        }
    }
}

fn parse_own_port(text: &str) -> Result<u16, &'static str> {
    text.parse().map_err(|_| "not a port: expected 0 to 65535")
}

/// Subcommand of `serve`, which serves something else than a local directory.
#[derive(Debug, Subcommand)]
pub(super) enum Instead {
    Restic(Box<Restic>),
    #[cfg(feature = "s3")]
    S3(Box<S3>),
}
