//! Throughput over shaped cables: nicstripe compared with other programs, interleaved, by the
//! wall-clock time of the whole command.
//!
//! `cargo bench --bench throughput -- --size 256M --runs 3 --links 1,2,4,1000+100,1000+10
//! --direction put,get --tools nicstripe,iperf3`
//!
//! Source and target are in memory. Each run has new hosts and cables, and compares the received
//! data with the source. Needs memory for three times `--size` per cable.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Args;
use nicstripe_testkit::bench::{
    Cables, Cell, Comparison, Contender, Copied, Copies, Place, Result, Series, Spread, cell,
    circumstances, parse_size,
};

#[derive(Debug, Args)]
struct Arguments {
    /// File size in bytes: per cable if all are equal, otherwise in total
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    size: u64,

    #[command(flatten)]
    copies: Copies,

    /// Sets of cables: a number of cables of 1 Gbit/s, or their rates in Mbit/s
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,1000+100,1000+10")]
    links: Vec<Cables>,

    /// Programs to compare; those that are not installed are skipped
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "nicstripe,iperf3,aria2,axel"
    )]
    tools: Vec<Contender>,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let contenders = Contender::installed(&arguments.tools);
    let most = arguments
        .links
        .iter()
        .map(|cables| arguments.size_over(cables))
        .max()
        .unwrap_or(0);
    let place = Place::in_memory(3 * most)?;
    let mut comparison = Comparison {
        place: &place,
        contenders: &contenders,
        runs: arguments.copies.runs,
        warm_ups: 0,
        failures: Vec::new(),
    };
    let table = comparison.table(
        &arguments.links,
        &arguments.copies.direction,
        |cables| arguments.size_over(cables),
        |series, _, cables| row(series, cables),
    )?;
    println!(
        "\n{}\nMedian (least–greatest), {} runs each.",
        circumstances(&contenders),
        arguments.copies.runs
    );
    println!(
        "iperf3 moves no file, and ends when its last 2 to 4 MB per cable are in the socket, not at the peer.\n\n{table}"
    );
    comparison.verdict()
}

impl Arguments {
    /// Returns the file size in bytes: `--size` per cable if all cables are equal, otherwise
    /// `--size` in total.
    fn size_over(&self, cables: &Cables) -> u64 {
        if cables.are_equal() {
            self.size * cables.count() as u64
        } else {
            self.size
        }
    }
}

fn row(
    Series {
        contender,
        way,
        runs,
    }: &Series,
    cables: &Cables,
) -> Vec<Cell> {
    let theory = cables.theory().unwrap_or(f64::NAN);
    let [sender, receiver, both] = Copied::cpu_cells(runs, Spread::middle);
    let bar = match contender {
        Contender::Nicstripe => bar(cables),
        _ => "",
    };
    let of_theory = Spread::of(runs, |run| 100.0 * run.goodput() / theory);
    let shares = Copied::typical(runs).map(|run| run.shares(way.from()));
    vec![
        cell("s", Copied::seconds(runs).print(2)),
        cell(
            "Mbit/s",
            Spread::of(runs, |run| run.goodput() / 1e6).middle(0),
        ),
        cell("% of theory", of_theory.print(1)),
        cell("from the first byte", from_first_byte(runs, theory)),
        cell("bar", bar),
        sender,
        receiver,
        both,
        cell("MB sent/received by cable", shares.unwrap_or_default()),
        cell("others, CPUs", Spread::of(runs, Copied::others).middle(2)),
    ]
}

/// Returns the percentage of the theoretical goodput between the first byte and the durable file,
/// for programs that report that time.
fn from_first_byte(runs: &[Copied], theory: f64) -> String {
    let moving = |run: &Copied| run.report.as_ref()?.moving_s;
    match runs.iter().all(|run| moving(run).is_some()) {
        true => Spread::of(runs, |run| {
            let seconds = moving(run).unwrap_or(f64::NAN);
            100.0 * run.size as f64 * 8.0 / seconds / theory
        })
        .print(1),
        false => String::new(),
    }
}

/// Returns nicstripe's threshold in percent of the theoretical goodput, for 1 GiB per cable
/// (docs/DESIGN.md, section 9).
fn bar(cables: &Cables) -> &'static str {
    match cables.name() {
        "1" | "2" => "≥ 99.2",
        "4" => "≥ 98.8",
        "1000+100" => "≥ 99",
        // 1.03 times the ideal time.
        "1000+10" => "≥ 97.1",
        _ => "",
    }
}
