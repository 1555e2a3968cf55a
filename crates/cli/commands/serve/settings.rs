//! Settings of `serve`. The command line takes precedence over the configuration file, and the file
//! over the defaults.

use std::{fmt::Display, net::SocketAddr, path::PathBuf};

use nicstripe::{
    BenchLimits, DEFAULT_PORT, Limits,
    trust::{Access, Home},
};

use super::{
    arguments::{Options, Serve},
    config,
    listen::Listen,
};
use crate::{
    commands::trust,
    connect::arguments::Routes,
    failure::Failure,
    output::{
        logging::{LogFilter, LogFormat},
        terminal::Terminal,
    },
    text::shown,
};

/// Settings of `serve`, complete and valid.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    /// Path of the configuration file, if one was read.
    pub(super) file: Option<PathBuf>,
    pub(super) root: PathBuf,
    pub(super) listen: Vec<Listen>,
    pub(super) interface: Vec<String>,
    pub(super) port: u16,
    /// Maximum access of any peer, whatever its rights in the peers file.
    pub(super) access: Access,
    pub(super) routes: Routes,
    pub(super) announce: bool,
    pub(super) metrics: Option<SocketAddr>,
    /// True if the lines of the start and the end are not printed.
    pub(super) quiet: bool,
    pub(super) log_filter: LogFilter,
    pub(super) log_format: LogFormat,
    pub(super) limits: Limits,
    pub(super) bench: BenchLimits,
}

impl Settings {
    /// Merges the command line with the configuration file: that of `--config`, otherwise
    /// `config.toml` in the configuration directory if it exists.
    pub(super) fn load(args: &Serve, home: &Home) -> Result<Self, Failure> {
        let file = args
            .options
            .config
            .clone()
            .or_else(|| Some(home.config_file()).filter(|path| path.exists()));
        let config = file
            .as_deref()
            .map(config::load)
            .transpose()?
            .unwrap_or_default();
        Self::of(args, config, file)
    }

    fn of(args: &Serve, config: Options, file: Option<PathBuf>) -> Result<Self, Failure> {
        let (args, dir) = (&args.options, &args.dir);
        let is_placed = !args.listen.is_empty() || !args.interface.is_empty();
        let (listen, interface) = match is_placed {
            true => (args.listen.clone(), args.interface.clone()),
            false => (config.listen, config.interface),
        };
        let is_restricted = args.read_only || args.append_only;
        let (read_only, append_only) = match is_restricted {
            true => (args.read_only, args.append_only),
            false => (config.read_only, config.append_only),
        };
        let metrics = args.metrics.as_ref().or(config.metrics.as_ref());
        Ok(Self {
            root: args
                .root
                .clone()
                .or_else(|| dir.clone())
                .or(config.root)
                .unwrap_or_else(|| ".".into()),
            listen,
            interface,
            port: args.port.or(config.port).unwrap_or(DEFAULT_PORT),
            access: access(read_only, append_only)?,
            routes: args.routes.or(config.routes).unwrap_or(Routes::Auto),
            announce: args.announce || config.announce,
            metrics: match metrics.filter(|text| *text != METRICS_OFF) {
                Some(text) => Some(metrics_address(
                    text,
                    args.metrics_any || config.metrics_any,
                )?),
                None => None,
            },
            quiet: args.quiet,
            log_filter: LogFilter::from_env().unwrap_or(LogFilter {
                key: "log.filter",
                text: match args.quiet {
                    true => "warn".into(),
                    false => config.log.filter,
                },
            }),
            log_format: args.log_format.unwrap_or(config.log.format),
            limits: config.limits,
            bench: config.bench,
            file,
        })
    }

    /// Prints a line of the start or the end, unless the user wants none.
    pub(super) fn say(&self, terminal: &Terminal, line: impl Display) {
        if !self.quiet {
            terminal.say(line);
        }
    }

    /// Returns the path of the configuration file for messages, or `no configuration file` if none
    /// was read.
    pub(super) fn shown_file(&self) -> String {
        self.file
            .as_deref()
            .map_or_else(|| "no configuration file".to_owned(), shown)
    }

    /// Returns the names of settings that differ in `new` and that only a restart can change.
    pub(super) fn fixed_that_differ(&self, new: &Self) -> Vec<&'static str> {
        let (old, limits) = (&self.limits, &new.limits);
        let differs = [
            ("root", self.root != new.root),
            ("listen", self.listen != new.listen),
            ("interface", self.interface != new.interface),
            ("port", self.port != new.port),
            ("read-only or append-only", self.access != new.access),
            ("routes", self.routes != new.routes),
            ("announce", self.announce != new.announce),
            ("metrics", self.metrics != new.metrics),
            ("log.format", self.log_format != new.log_format),
            ("limits.greetings", old.greetings != limits.greetings),
            (
                "limits.greetings-per-address",
                old.greetings_per_address != limits.greetings_per_address,
            ),
            (
                "limits.handshakes-per-second",
                old.handshakes_per_second != limits.handshakes_per_second,
            ),
            ("limits.paths", old.paths != limits.paths),
            (
                "limits.refusals-logged",
                old.refusals_logged != limits.refusals_logged,
            ),
        ];
        differs
            .into_iter()
            .filter_map(|(name, differs)| differs.then_some(name))
            .collect()
    }
}

fn access(read_only: bool, append_only: bool) -> Result<Access, Failure> {
    match read_only && append_only {
        true => Err(Failure::Setting {
            key: "append-only",
            why: "cannot be combined with read-only".into(),
        }),
        false => Ok(trust::access(read_only, append_only)),
    }
}

/// Value of `metrics` that disables the Prometheus endpoint.
const METRICS_OFF: &str = "off";

/// Parses the address of the Prometheus endpoint. An address that other machines can reach requires
/// `any`, because the endpoint has no authentication.
fn metrics_address(text: &str, any: bool) -> Result<SocketAddr, Failure> {
    let wrong = |why: String| Failure::Setting {
        key: "metrics",
        why,
    };
    let address: SocketAddr = text.parse().map_err(|_| {
        wrong(format!(
            "{text:?} is not ADDRESS:PORT, [IPV6]:PORT or \"{METRICS_OFF}\""
        ))
    })?;
    match any || address.ip().is_loopback() {
        true => Ok(address),
        false => Err(wrong(format!(
            "{address} can be reached by other machines without authentication: add metrics-any to allow it"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        serve: Serve,
    }

    fn settings(words: &[&str], config: &str) -> Result<Settings, Failure> {
        let typed = Typed::parse_from([&["serve"], words].concat());
        Settings::of(&typed.serve, toml::from_str(config).unwrap(), None)
    }

    #[test]
    fn the_command_line_counts_more_than_the_file() {
        let config = "port = 1\nroot = '/a'\nroutes = 'never'\nlisten = ['10.0.0.1']\ninterface = ['eth1']\nappend-only = true";
        let from_file = settings(&[], config).unwrap();
        assert_eq!(
            (from_file.port, from_file.routes, from_file.access),
            (1, Routes::Never, Access::AppendOnly)
        );
        assert_eq!((from_file.listen.len(), from_file.interface.len()), (1, 1));
        let words = "--port 2 --root /b --routes always --interface eth2 --read-only";
        let words: Vec<&str> = words.split(' ').collect();
        let typed = settings(&words, config).unwrap();
        assert_eq!(
            (typed.port, typed.routes, typed.access),
            (2, Routes::Always, Access::ReadOnly)
        );
        assert_eq!(
            (typed.root, typed.listen, typed.interface),
            ("/b".into(), Vec::new(), vec!["eth2".to_owned()])
        );
    }

    #[test]
    fn the_example_has_every_key_with_its_default() {
        let text = include_str!("../../../../packaging/config.toml");
        assert_eq!(settings(&[], text).unwrap(), settings(&[], "").unwrap());
        let defaults = format!("{:?}", settings(&[], "").unwrap());
        let table: toml::Table = text.parse().unwrap();
        let limits = table["limits"].as_table().unwrap();
        // One key per field: in Debug output, a colon follows each field name.
        let fields = defaults
            .split("Limits {")
            .nth(1)
            .unwrap()
            .split('}')
            .next()
            .unwrap()
            .matches(": ")
            .count();
        assert_eq!(limits.len(), fields, "{limits:?} {defaults}");
        assert_eq!(table["log"].as_table().unwrap().len(), 2);
        assert_eq!(table["bench"].as_table().unwrap().len(), 3);
        assert_eq!(table.len(), 13);
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        let typed = Typed::parse_from(["serve"]);
        let without_file = Settings::of(&typed.serve, Options::default(), None).unwrap();
        let settings = settings(&[], "").unwrap();
        assert_eq!(settings, without_file);
        assert_eq!(
            (settings.port, settings.metrics, settings.limits),
            (DEFAULT_PORT, None, Limits::default())
        );
    }

    #[test]
    fn metrics_are_for_this_machine_unless_it_is_said_otherwise() {
        let metrics = |words: &[&str], config: &str| {
            settings(words, config).map(|settings| settings.metrics.map(|at| at.to_string()))
        };
        for (words, config, address) in [
            (
                &["--metrics", "127.0.0.1:9747"][..],
                "",
                Some("127.0.0.1:9747"),
            ),
            (&["--metrics", "[::1]:9747"], "", Some("[::1]:9747")),
            (
                &["--metrics", "[::]:1"],
                "metrics-any = true",
                Some("[::]:1"),
            ),
            (&["--metrics", "off"], "metrics = '127.0.0.1:1'", None),
        ] {
            assert_eq!(metrics(words, config).unwrap().as_deref(), address);
        }
        for (words, config, said) in [
            (&["--metrics", "0.0.0.0:9747"][..], "", "metrics-any"),
            (&[], "metrics = '[::]:1'", "metrics-any"),
            (&["--metrics", "9747"], "", "is not ADDRESS:PORT"),
        ] {
            let error = metrics(words, config).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_takes_a_restart_is_named() {
        let (old, new) = (
            settings(&[], "").unwrap(),
            settings(&[], "port = 1\n[limits]\nsessions = 1\npaths = 1").unwrap(),
        );
        assert_eq!(old.fixed_that_differ(&new), ["port", "limits.paths"]);
        assert!(settings(&[], "read-only = true\nappend-only = true").is_err());
    }
}
