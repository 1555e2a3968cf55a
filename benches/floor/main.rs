//! The physical limit of a copy on this machine: the cost of each step alone, and a minimal program
//! that does only these steps, against nicstripe and other programs in the same run.
//!
//! `cargo bench --bench floor -- --size 1G --runs 5 --links unshaped-1,unshaped-2,1,2,4 --direction
//! put --tools nicstripe,aria2,rsync`
//!
//! - The case `steps` measures each step alone, in one thread and in memory: read a chunk of 256
//!   KiB from a tmpfs, hash it, seal it, copy it to a socket, copy it from the socket, open it,
//!   write it. CPU time is user and system time of the thread. The sending thread processes most
//!   packets, also for the receiver: "copy to socket" contains most of the network's cost. Buffers
//!   stay in the processor's cache, files do not.
//! - The case `pair` measures the minimal program, the floor: sender and receiver in two processes
//!   on the two hosts, with one connection and one thread per cable at each end. It encrypts and
//!   hashes as nicstripe does, without a handshake and with a fixed key, and has no journal, resume,
//!   progress or sync. "× floor" is the ratio of a program's figure to that of the floor in the
//!   same round, so that other load on the machine affects both.
//!
//! Source and target are in memory. The first copy by each program is a warm-up. Needs memory for
//! three times `--size` per cable.
#![forbid(unsafe_code)]

mod pair;
mod record;
mod steps;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use nicstripe_testkit::bench::{
    Cables, Cell, Comparison, Contender, Copied, Place, Result, Series, Spread, Way, cell,
    circumstances, parse_size,
};

use self::pair::Part;

#[derive(Debug, Args)]
struct Arguments {
    /// Parts of the bench
    #[arg(long, value_enum, value_delimiter = ',', default_value = "steps,pair")]
    case: Vec<Case>,

    /// File size in bytes: per cable if all are shaped and equal, otherwise in total
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    size: u64,

    /// Bytes of each measurement of a step
    #[arg(long, default_value = "512M", value_parser = parse_size)]
    step_size: u64,

    /// Number of measurements of each kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Directions of the copies
    #[arg(long, value_enum, value_delimiter = ',', default_value = "put")]
    direction: Vec<Way>,

    /// Sets of cables: a number of cables of 1 Gbit/s, their rates in Mbit/s, or a number of
    /// unshaped ones
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "unshaped-1,unshaped-2,1,2,4"
    )]
    links: Vec<Cables>,

    /// Programs to compare with the floor; those that are not installed are skipped
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "nicstripe,aria2,rsync"
    )]
    tools: Vec<Contender>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    Steps,
    Pair,
}

fn main() -> ExitCode {
    match Part::of_this_process() {
        Some(part) => part.play(),
        None => nicstripe_testkit::bench::run(bench),
    }
}

fn bench(arguments: Arguments) -> Result<()> {
    if arguments.case.contains(&Case::Steps) {
        steps(&arguments)?;
    }
    if arguments.case.contains(&Case::Pair) {
        pair(&arguments)?;
    }
    Ok(())
}

fn steps(arguments: &Arguments) -> Result<()> {
    let place = Place::in_memory(2 * arguments.step_size)?;
    let table = steps::bench(&place, arguments.step_size, arguments.runs)?;
    println!(
        "\n{}\nSteps alone; median (least–greatest), {} runs each.\n\n{table}",
        circumstances(&[FLOOR]),
        arguments.runs
    );
    Ok(())
}

fn pair(arguments: &Arguments) -> Result<()> {
    let contenders = [vec![FLOOR], Contender::installed(&arguments.tools)].concat();
    let sizes = arguments.links.iter();
    let most = sizes.map(|cables| arguments.size_over(cables)).max();
    let place = Place::in_memory(3 * most.unwrap_or(0))?;
    let mut comparison = Comparison {
        place: &place,
        contenders: &contenders,
        runs: arguments.runs,
        warm_ups: 1,
        failures: Vec::new(),
    };
    let table = comparison.table(
        &arguments.links,
        &arguments.direction,
        |cables| arguments.size_over(cables),
        row,
    )?;
    println!(
        "\n{}\nMedian (least–greatest), {} runs each.\n\n{table}",
        circumstances(&contenders),
        arguments.runs
    );
    comparison.verdict()
}

impl Arguments {
    /// Returns the file size in bytes: `--size` per cable if all cables are shaped and equal,
    /// otherwise `--size` in total.
    fn size_over(&self, cables: &Cables) -> u64 {
        if cables.theory().is_some() && cables.are_equal() {
            self.size * cables.count() as u64
        } else {
            self.size
        }
    }
}

const FLOOR: Contender = Contender::Floor;

fn row(Series { runs, .. }: &Series, all: &[Series], cables: &Cables) -> Vec<Cell> {
    let floor = all.iter().find(|series| series.contender == FLOOR);
    let floor = floor.map_or(&[] as &[Copied], |series| series.runs.as_slice());
    let both = |run: &Copied| run.cpu_per_gb()[2];
    let of_theory = cables.theory().map_or_else(String::new, |theory| {
        Spread::of(runs, |run| 100.0 * run.goodput() / theory).print(1)
    });
    let [sender, receiver, _] = Copied::cpu_cells(runs, Spread::middle);
    let seconds = |run: &Copied| run.wall.as_secs_f64();
    vec![
        cell("s", Copied::seconds(runs).print(3)),
        cell("× floor", ratio(runs, floor, seconds)),
        cell(
            "GB/s",
            Spread::of(runs, |run| run.goodput() / 8e9).middle(2),
        ),
        cell("% of theory", of_theory),
        sender,
        receiver,
        cell("both", Spread::of(runs, both).print(2)),
        cell("both × floor", ratio(runs, floor, both)),
        cell("others, CPUs", Spread::of(runs, Copied::others).middle(2)),
    ]
}

/// Returns the ratio of a program's figure to the floor's, round by round.
fn ratio(runs: &[Copied], floor: &[Copied], figure: impl Fn(&Copied) -> f64) -> String {
    let rounds: Vec<[f64; 2]> = runs
        .iter()
        .zip(floor)
        .map(|(run, floor)| [figure(run), figure(floor)])
        .collect();
    match rounds.is_empty() {
        true => String::new(),
        false => Spread::of(&rounds, |[run, floor]| run / floor).print(2),
    }
}
