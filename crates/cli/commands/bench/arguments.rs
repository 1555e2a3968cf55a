//! Command-line arguments of `bench`.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use nicstripe::{
    LinkRequest, Name,
    bench::{DiskPlan, Phase, SweepKind},
};

use crate::{
    connect::{
        arguments::{LinkArgs, Routes, parse_link},
        peer::Peer,
    },
    text::quantity::{QuantityError, parse_size, parse_time},
};

/// Measure the throughput of the cables to a machine, alone and together, and name the bottleneck
///
/// Memory to memory, encrypted, over the links that a copy would use: idle round trips, each link
/// alone, all together, the reverse direction, and both directions at once, each repeated until the
/// numbers agree. Counts bytes received, by the receiver's clock; the total is the sum of all links
/// in the same window. Requires `nicstripe serve` on HOST. Short options match iperf3.
#[derive(Debug, Args)]
#[command(
    override_usage = "nicstripe bench [OPTIONS] <HOST>\n       nicstripe bench list\n       nicstripe bench compare <A> <B>",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = AFTER,
)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) stored: Option<Stored>,

    #[command(flatten)]
    pub(crate) measure: Measure,
}

/// Commands on stored reports.
#[derive(Debug, Subcommand)]
pub(crate) enum Stored {
    /// List the stored reports, the newest last
    List,
    /// Compare a report with an earlier one; exit code 41 if it is significantly slower
    Compare(Compare),
}

/// Arguments of `bench compare`.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Earlier report: a file, or an id prefix from `bench list`
    pub(crate) a: PathBuf,

    /// Later report, likewise
    pub(crate) b: PathBuf,

    /// Print the second report with its comparison as one JSON document
    /// (docs/schema/nicstripe-bench-report-1.json)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of a measurement: loads, repeats, links and outputs.
#[derive(Debug, Args)]
#[command(
    mut_arg("port", |port| port.short('p').value_parser(parse_port)),
    mut_arg("link", |link| link.help(LINK).value_name("LOCAL[=REMOTE]").value_parser(parse_whole_link))
)]
pub(crate) struct Measure {
    /// Machine that runs `nicstripe serve`, by name or address; USER@HOST for ssh; or the URL of a
    /// file at a web server, for its rates only
    #[arg(value_name = "HOST", required = true)]
    pub(crate) host: Option<Peer>,

    /// Set the maximum time of one load; it ends earlier once the rate has settled
    #[arg(short = 't', long = "time", value_name = "SECS", default_value = "10", value_parser = within(parse_time, LOAD, "expected 1 s to 1 h"))]
    pub(crate) load: Duration,

    /// Ignore the first SECS of each load
    #[arg(short = 'O', long, value_name = "SECS", default_value = "1", value_parser = parse_time)]
    pub(crate) omit: Duration,

    /// Set the time between two samples
    #[arg(short = 'i', long, value_name = "SECS", default_value = "0.5", value_parser = within(parse_time, INTERVAL, "expected 50 ms to 10 s"))]
    pub(crate) interval: Duration,

    /// Measure only the direction from HOST
    #[arg(short = 'R', long)]
    pub(crate) reverse: bool,

    /// Measure only both directions at once
    #[arg(long)]
    pub(crate) bidir: bool,

    /// Open N TCP connections per link, also --parallel [default: 1; over a bond, as many as its
    /// members need]
    #[arg(short = 'P', long, visible_alias = "parallel", value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) streams: Option<u8>,

    /// Set the socket buffers at both ends [default: the kernel's choice, best in nearly all cases]
    #[arg(short = 'w', long, value_name = "SIZE", value_parser = within(parse_size, BUFFER, "expected 4 KiB to 1 GiB"))]
    pub(crate) window: Option<u64>,

    /// Set the bytes of one message
    #[arg(short = 'l', long, value_name = "SIZE", default_value = "256K", value_parser = within(parse_size, MESSAGE, "expected 1 byte to 256 KiB"))]
    pub(crate) length: u64,

    /// Repeat each load N times [default: 6, up to 12 until the repeats agree]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,

    /// Limit the total time; skip and report what is unfinished by then
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) budget: Option<Duration>,

    /// Sweep this parameter as well; may be repeated
    #[arg(long, value_name = "KIND")]
    pub(crate) sweep: Vec<Sweep>,

    /// Measure the stages of a copy as well: reading the local FILE, the network, writing to NAME's
    /// directory on HOST, and all together; with --reverse from HOST to here. Written data is
    /// deleted
    #[arg(long, value_name = "FILE[=NAME]", value_parser = parse_disk)]
    pub(crate) disk: Option<DiskPlan>,

    #[command(flatten)]
    pub(crate) links: LinkArgs,

    /// Install host routes to the peer, removed at the end: if a link needs one, always, or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) routes: Routes,

    /// Print only the total
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Print no bars and no colours
    #[arg(long)]
    pub(crate) plain: bool,

    /// Print the report as one JSON document on standard output
    /// (docs/schema/nicstripe-bench-report-1.json)
    #[arg(short = 'J', long)]
    pub(crate) json: bool,

    /// Print one JSON event per line while running (docs/schema/nicstripe-bench-event-1.json), and
    /// the report as the last line; also --json-lines
    #[arg(long, visible_alias = "json-lines", conflicts_with = "json")]
    pub(crate) json_stream: bool,

    /// Write the report to FILE as a self-contained HTML page with graphs, without scripts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write the report to FILE as metrics for node_exporter's textfile collector (which reads
    /// *.prom)
    #[arg(long, value_name = "FILE")]
    pub(crate) prom: Option<PathBuf>,

    /// Compare with an earlier report: a file written by --json, or an id prefix from `bench list`;
    /// exit code 41 if significantly slower
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,

    /// Exit with code 41 if all links together reach less than this share of theory
    #[arg(long, value_name = "PCT%", value_parser = parse_floor)]
    pub(crate) assert_floor: Option<f64>,

    /// Do not store the report
    #[arg(long)]
    pub(crate) no_history: bool,
}

impl Measure {
    pub(crate) fn is_for_programs(&self) -> bool {
        self.json || self.json_stream
    }

    /// Returns the load phases to measure, in the order of their first run.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        let all = !self.reverse && !self.bidir;
        let phases = [
            (true, Phase::Idle),
            (all, Phase::Solo),
            (all, Phase::Together),
            (all || self.reverse, Phase::Reverse),
            (all || self.bidir, Phase::Both),
        ];
        let chosen = phases.into_iter().filter(|(is_chosen, _)| *is_chosen);
        chosen.map(|(_, phase)| phase).collect()
    }

    #[cfg(feature = "web")]
    /// Returns the first option that means nothing for a web server.
    pub(super) fn first_option_without_web(&self) -> Option<&'static str> {
        let options = [
            (self.reverse, "-R"),
            (self.bidir, "--bidir"),
            (self.window.is_some(), "-w"),
            (self.repeat.is_some(), "--repeat"),
            (self.budget.is_some(), "--budget"),
            (!self.sweep.is_empty(), "--sweep"),
            (self.disk.is_some(), "--disk"),
            (self.routes != Routes::Auto, "--routes"),
            (self.json_stream, "--json-stream"),
            (self.html.is_some(), "--html"),
            (self.prom.is_some(), "--prom"),
            (self.baseline.is_some(), "--baseline"),
            (self.assert_floor.is_some(), "--assert-floor"),
        ];
        let mut options = options.into_iter();
        options.find_map(|(is_given, name)| is_given.then_some(name))
    }

    pub(crate) fn repeats(&self) -> RangeInclusive<u32> {
        self.repeat
            .map_or(FEWEST_REPEATS..=MOST_REPEATS, |count| count..=count)
    }

    pub(crate) fn sweeps(&self) -> Vec<SweepKind> {
        let mut kinds = Vec::new();
        for kind in self.sweep.iter().copied().map(SweepKind::from) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }
}

/// Parameter to sweep (`--sweep`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sweep {
    /// Message sizes: latency, the size that reaches half the rate, dropouts
    Message,
    /// Socket buffer sizes, until the rate stops rising
    Buffer,
    /// Connections per link
    Streams,
    /// Buffer sizes × connections
    Grid,
    /// Packet sizes; changes the MTU of both ends for the run, if permitted
    Mtu,
}

impl From<Sweep> for SweepKind {
    fn from(sweep: Sweep) -> Self {
        match sweep {
            Sweep::Message => Self::Message,
            Sweep::Buffer => Self::Buffer,
            Sweep::Streams => Self::Streams,
            Sweep::Grid => Self::Grid,
            Sweep::Mtu => Self::Mtu,
        }
    }
}

/// Parses `FILE[=NAME]`. Splits at the last equals sign, since the file name may contain others.
pub(crate) fn parse_disk(text: &str) -> Result<DiskPlan, String> {
    let (source, name) = text.rsplit_once('=').unzip();
    let name = name.map(|name| Name::parse(name.as_bytes())).transpose();
    let name = name.map_err(|error| error.to_string())?;
    match source.unwrap_or(text) {
        "" => Err("no file named: expected FILE or FILE=NAME".into()),
        file => Ok(DiskPlan {
            file: file.into(),
            name,
            reverse: false,
            bytes: DISK_BYTES,
        }),
    }
}

fn parse_port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("not a port: expected 1 to 65535".into()),
        Ok(port) => Ok(port),
    }
}

/// Parses a link, and rejects a rate limit in it, since the bench would measure the limit instead
/// of the link.
fn parse_whole_link(text: &str) -> Result<LinkRequest, String> {
    match parse_link(text)? {
        LinkRequest { cap: Some(_), .. } => {
            Err("unexpected rate limit: expected LOCAL[=REMOTE]".into())
        }
        link => Ok(link),
    }
}

/// Returns a parser that rejects a value outside `range`, with `expected` as the message.
fn within<T: PartialOrd + Clone>(
    parse: fn(&str) -> Result<T, QuantityError>,
    range: RangeInclusive<T>,
    expected: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let value = parse(text).map_err(|error| error.to_string())?;
        match range.contains(&value) {
            true => Ok(value),
            false => Err(expected.to_owned()),
        }
    }
}

/// Parses `--assert-floor`, a share of the theoretical rate: `97%` or `97` becomes 0.97.
fn parse_floor(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err(
            "not a share of theory: expected a percentage above 0 and up to 100, as in 97%".into(),
        ),
    }
}

/// Minimum and maximum repeats of a load. With 6 repeats, [min, max] covers the median in 95 of 100
/// cases (1 − 2⁻⁵ = 96.9 %); with 5 repeats it does not.
const FEWEST_REPEATS: u32 = 6;
const MOST_REPEATS: u32 = 12;

/// Bytes that a disk measurement writes: enough to exceed disk caches, and little of the daemon's
/// free space.
const DISK_BYTES: u64 = 4 << 30;

const LOAD: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(10);
const BUFFER: RangeInclusive<u64> = 4096..=1 << 30;
/// Allowed values of `--length` in bytes. Each message is sent in one frame, which holds up to 256
/// KiB.
const MESSAGE: RangeInclusive<u64> = 1..=256 << 10;

const LINK: &str =
    "Measure only this link; may be repeated [default: every cable that reaches the peer]";

const AFTER: &str = "\
Examples:
  nicstripe bench nas                       full run: 2 to 6 minutes over two cables
  nicstripe bench nas --repeat 1 -t 3       a quick look
  nicstripe bench nas --html report.html    a page with graphs
  nicstripe bench nas --sweep message --sweep buffer
  nicstripe bench nas --disk disk.img       find the bottleneck of a copy
  nicstripe bench nas --json > base.json    store a baseline
  nicstripe bench nas --baseline base.json --assert-floor 97%

Exit codes:
  0    measured
  1    other failure; or not comparable with the baseline
  2    usage
  5    refused: key, permission, policy, or bench queue full
  10   no link could connect
  11   file, at either end
  12   protocol or version
  41   significantly slower than the baseline, or below the floor
  130  SIGINT; reports the results so far
  143  SIGTERM; likewise";

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    pub(crate) fn parse(words: &[&str]) -> Result<Bench, clap::Error> {
        Line::try_parse_from(["bench"].iter().chain(words)).map(|line| line.bench)
    }

    fn measure(words: &[&str]) -> Measure {
        parse(words).unwrap().measure
    }

    #[test]
    fn letters_are_those_of_iperf3() {
        let typed = measure(&[
            "-t", "5", "-i", "0.25", "-R", "-P", "4", "-w", "4M", "-l", "64K", "-O", "2", "-p",
            "5201", "-4", "-J", "nas",
        ]);
        assert_eq!(
            (
                typed.host.map(|place| place.to_string()),
                typed.load,
                typed.interval
            ),
            (
                Some("nas".into()),
                Duration::from_secs(5),
                Duration::from_millis(250)
            )
        );
        assert_eq!(
            (typed.streams, typed.window, typed.length, typed.links.port),
            (Some(4), Some(4 << 20), 64 << 10, Some(5201))
        );
        assert!(typed.reverse && typed.json && typed.omit == Duration::from_secs(2));
    }

    #[test]
    fn all_loads_are_measured_unless_one_is_asked_for() {
        let all = [
            Phase::Idle,
            Phase::Solo,
            Phase::Together,
            Phase::Reverse,
            Phase::Both,
        ];
        for (words, phases) in [
            (&["nas"][..], &all[..]),
            (&["nas", "-R"], &[Phase::Idle, Phase::Reverse]),
            (&["nas", "--bidir"], &[Phase::Idle, Phase::Both]),
            (
                &["nas", "--bidir", "-R"],
                &[Phase::Idle, Phase::Reverse, Phase::Both],
            ),
        ] {
            assert_eq!(measure(words).phases(), phases);
        }
    }

    #[test]
    fn repeats_are_as_many_as_are_asked_for_or_until_they_agree() {
        assert_eq!(measure(&["nas"]).repeats(), 6..=12);
        assert_eq!(measure(&["nas", "--repeat", "1"]).repeats(), 1..=1);
    }

    #[test]
    fn a_sweep_that_is_named_twice_is_done_once() {
        let typed = measure(&[
            "nas", "--sweep", "grid", "--sweep", "message", "--sweep", "grid",
        ]);
        assert_eq!(typed.sweeps(), [SweepKind::Grid, SweepKind::Message]);
    }

    #[test]
    fn values_out_of_bounds_are_usage_errors() {
        for words in [
            &["nas", "-t", "0"][..],
            &["nas", "-t", "2h"],
            &["nas", "-i", "10ms"],
            &["nas", "-P", "0"],
            &["nas", "-P", "17"],
            &["nas", "-w", "1"],
            &["nas", "-l", "1M"],
            &["nas", "-l", "0"],
            &["nas", "--repeat", "0"],
            &["nas", "--assert-floor", "0%"],
            &["nas", "--assert-floor", "101"],
            &["nas", "--assert-floor", "nan"],
            &["nas", "--link", "eth1@100Mbit"],
            &["nas", "--disk", "=name"],
            &["nas", "--disk", "file=../x"],
            &["nas", "--json", "--json-stream"],
            &["nas", "-p", "0"],
            &[],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        for (typed, floor) in [("97%", 0.97), ("97.5", 0.975)] {
            let typed = measure(&["nas", "--assert-floor", typed]);
            assert_eq!(typed.assert_floor, Some(floor));
        }
    }

    #[test]
    fn a_disk_may_have_a_name_there() {
        let disk = measure(&["nas", "--disk", "a=b=c/d"]).disk.unwrap();
        assert_eq!(
            (disk.file, disk.name),
            ("a=b".into(), Some(Name::parse(b"c/d").unwrap()))
        );
        assert_eq!(measure(&["nas", "--disk", "a"]).disk.unwrap().name, None);
    }

    #[test]
    fn reports_that_are_there_need_no_host() {
        assert!(matches!(
            parse(&["list"]).unwrap().stored,
            Some(Stored::List)
        ));
        let Some(Stored::Compare(Compare { a, b, json })) =
            parse(&["compare", "a.json", "1f2e"]).unwrap().stored
        else {
            panic!()
        };
        assert_eq!((a, b, json), ("a.json".into(), "1f2e".into(), false));
        assert!(parse(&["compare", "a.json"]).is_err());
        assert!(parse(&["list", "-R"]).is_err());
    }
}
