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
    Cables, Comparison, Contender, Copied, Copies, Place, Result, Sample, Series, Spread, Table,
    Way, circumstances, parse_size,
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
    let mut sample = Sample::incompressible(
        place.files(Way::Put.from()).join("sample.bin"),
        arguments.size,
    )?;
    let mut comparison = Comparison {
        place: &place,
        contenders: &contenders,
        runs: arguments.copies.runs,
        warm_ups: 1,
        failures: Vec::new(),
    };
    let mut table = Table::new(&HEADINGS);
    for cables in arguments
        .links
        .iter()
        .map(|count| Cables::unshaped(usize::from(*count)))
    {
        for way in &arguments.copies.direction {
            for series in comparison.over(&cables, *way, &mut sample) {
                table.row(row(&series, &cables, *way));
            }
        }
    }
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

const HEADINGS: [&str; 11] = [
    "cables",
    "way",
    "program",
    "GB/s",
    "Gbit/s",
    "bar, GB/s",
    "CPU s/GB sender",
    "receiver",
    "both",
    "bar, CPU s/GB",
    "others, CPUs",
];

fn row(series: &Series, cables: &Cables, way: Way) -> Vec<String> {
    let Series { contender, runs } = series;
    let first = [
        cables.to_string(),
        way.name().to_owned(),
        contender.to_string(),
    ];
    if runs.is_empty() {
        return [&first[..], &["failed".to_owned()]].concat();
    }
    let [sender, receiver, both] =
        [0, 1, 2].map(|end| Spread::of(runs, |run| run.cpu_per_gb()[end]).print(2));
    let [rate_bar, cpu_bar] = if *contender == Contender::Nicstripe {
        BARS
    } else {
        [""; 2]
    };
    let values = [
        Spread::of(runs, |run| run.goodput() / 8e9).print(2),
        Spread::of(runs, |run| run.goodput() / 1e9).middle(2),
        rate_bar.to_owned(),
        sender,
        receiver,
        both,
        cpu_bar.to_owned(),
        Spread::of(runs, Copied::others).middle(2),
    ];
    [&first[..], &values].concat()
}

/// Thresholds of nicstripe on two cores as table cells: goodput in GB/s, and CPU time of both ends
/// in seconds per GB (docs/DESIGN.md, section 9).
const BARS: [&str; 2] = ["≥ 1.5", "≤ 1.05"];
