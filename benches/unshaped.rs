//! Throughput and CPU cost on unlimited cables: nicstripe compared with other programs,
//! interleaved.
//!
//! `cargo bench --bench unshaped -- --size 2G --runs 3 --links 1,2 --direction put,get --tools
//! nicstripe,iperf3,rsync,gridftp`
//!
//! Both hosts share this machine's CPUs. The rate is therefore the maximum at which one machine can
//! serve both ends, and CPU seconds per GB are the cost of a copy. nicstripe encrypts and hashes;
//! the other programs do neither. The first copy by each program is a warm-up. Source and target
//! are in memory, which must hold three times `--size`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Args;
use nicstripe_testkit::bench::{
    Cables, Cell, Comparison, Contender, Copied, Copies, Place, Result, Series, Spread, cell,
    circumstances, parse_size,
};

#[derive(Debug, Args)]
struct Arguments {
    /// Size of the file in bytes
    #[arg(long, default_value = "2G", value_parser = parse_size)]
    size: u64,

    #[command(flatten)]
    copies: Copies,

    /// Numbers of cables to measure
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u8).range(1..=16))]
    links: Vec<u8>,

    /// Programs to compare; those that are not installed are skipped
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "nicstripe,iperf3,rsync,gridftp"
    )]
    tools: Vec<Contender>,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let contenders = Contender::installed(&arguments.tools);
    let place = Place::in_memory(3 * arguments.size)?;
    let mut comparison = Comparison {
        place: &place,
        contenders: &contenders,
        runs: arguments.copies.runs,
        warm_ups: 1,
        failures: Vec::new(),
    };
    let counts = arguments.links.iter().copied().map(usize::from);
    let table = comparison.table(
        &counts.map(Cables::unshaped).collect::<Vec<_>>(),
        &arguments.copies.direction,
        |_| arguments.size,
        |series, _, _| row(series),
    )?;
    println!(
        "\n{}\nMedian (least–greatest), {} runs each.",
        circumstances(&contenders),
        arguments.copies.runs
    );
    println!(
        "nicstripe's client sends with put and receives with get, its daemon vice versa.\n\n{table}"
    );
    comparison.verdict()
}

fn row(
    Series {
        contender, runs, ..
    }: &Series,
) -> Vec<Cell> {
    let [sender, receiver, both] = Copied::cpu_cells(runs, Spread::print);
    let [rate_bar, cpu_bar] = match contender {
        Contender::Nicstripe => BARS,
        _ => [""; 2],
    };
    vec![
        cell("GB/s", Spread::of(runs, |run| run.goodput() / 8e9).print(2)),
        cell(
            "Gbit/s",
            Spread::of(runs, |run| run.goodput() / 1e9).middle(2),
        ),
        cell("bar, GB/s", rate_bar),
        sender,
        receiver,
        both,
        cell("bar, CPU s/GB", cpu_bar),
        cell("others, CPUs", Spread::of(runs, Copied::others).middle(2)),
    ]
}

/// Thresholds of nicstripe on two cores as table cells: goodput in GB/s, and CPU time of both ends
/// in seconds per GB (docs/DESIGN.md, section 9).
const BARS: [&str; 2] = ["≥ 1.5", "≤ 1.05"];
