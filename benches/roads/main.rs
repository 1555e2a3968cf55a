//! Speedup of existing tools with nicstripe: two cables with nicstripe versus one cable without.
//!
//! `cargo bench --bench roads -- --size 2G --runs 3 --roads
//! backup,restore,rsync,scp,borg,git,iperf3`
//!
//! Without nicstripe, a tool has one gigabit cable, because it cannot use more; with nicstripe, it
//! has two. restic uses `serve restic` with nicstripe and sftp without. iperf3 uses `forward`. All
//! other tools use ssh with `dial` as the ProxyCommand. Runs are interleaved, files are in memory,
//! and each run has new hosts and cables. The result is compared with the source, or checked by the
//! tool that stores it. Both hosts share the CPUs of one machine; the output shows whether the CPUs
//! are the bottleneck.
//!
//! Needs memory for five times `--size`, and the tools. Tools that are not installed are skipped.
//! ssh logs in to the other host as the current user, with a temporary key and configuration.
#![forbid(unsafe_code)]

mod limiter;
mod rig;
mod road;
mod ssh;

use std::{
    fs::{self, File},
    path::Path,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::Args;
use nicstripe_lab::Host;
use nicstripe_testkit::bench::{Place, Result, Shape, Spread, Table, circumstances, parse_size};

use self::{
    limiter::limiter,
    rig::{Measured, Rig, Way},
    road::Road,
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Total size of the source files in bytes, each 16 MiB without repeated content
    #[arg(long, default_value = "2G", value_parser = parse_size)]
    size: u64,

    /// Number of runs per tool and configuration
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Tools to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "backup,restore,rsync,scp,borg,git,iperf3"
    )]
    roads: Vec<Road>,

    /// Configurations to compare; `twice` is the tool alone with two cables, which it cannot use;
    /// `unshaped` is the tool alone with one cable limited only by the CPUs, the maximum on this
    /// machine
    #[arg(long, value_enum, value_delimiter = ',', default_value = "alone,road")]
    ways: Vec<Way>,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

/// Measured runs of one tool in one configuration, or the error of a failed run.
struct Series {
    road: Road,
    way: Way,
    runs: Result<Vec<Measured>>,
}

fn bench(arguments: Arguments) -> Result<()> {
    let (roads, missing): (Vec<Road>, Vec<Road>) = arguments
        .roads
        .iter()
        .partition(|road| road.missing_programs().is_empty());
    for road in missing {
        println!(
            "{road} skipped: not installed: {}",
            road.missing_programs().join(", ")
        );
    }
    let place = Place::in_memory(5 * arguments.size)?;
    let files = arguments.size.div_ceil(FILE_SIZE);
    let source = place.files(Host::A).join(road::SOURCE);
    Shape {
        files,
        size: arguments.size / files,
        per_directory: 16,
    }
    .plant(&source)?;
    age(&source)?;
    let pairs = roads
        .iter()
        .flat_map(|road| arguments.ways.iter().map(|way| (*road, *way)));
    let mut all: Vec<Series> = pairs
        .map(|(road, way)| Series {
            road,
            way,
            runs: Ok(Vec::new()),
        })
        .collect();
    for round in 1..=arguments.runs {
        for series in &mut all {
            series.run(round, &place, arguments.size);
        }
    }
    println!(
        "\n{}{}",
        circumstances(&[]),
        road::versions(&roads).join(", ")
    );
    println!(
        "Median (least–greatest), {} runs each.\n\n{}",
        arguments.runs,
        table(&all)
    );
    match all.iter().filter(|series| series.runs.is_err()).count() {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} failed", all.len()).into()),
    }
}

impl Series {
    /// Measures one more run, unless an earlier run failed.
    fn run(&mut self, round: u32, place: &Place, size: u64) {
        let Ok(runs) = &mut self.runs else { return };
        let Self { road, way, .. } = *self;
        match Rig::build(place, road.dials(), way, size).and_then(|rig| road.run(&rig)) {
            Ok(measured) => {
                eprintln!(
                    "{road} {way}, run {round}: {:.2} s",
                    measured.wall.as_secs_f64()
                );
                runs.push(measured);
            }
            Err(error) => {
                eprintln!("{road} {way}, run {round}: {error}");
                self.runs = Err(error);
            }
        }
    }

    fn rates(&self) -> Option<Spread> {
        self.runs
            .as_ref()
            .ok()
            .map(|runs| Spread::of(runs, |run| run.rate() / 1e6))
    }
}

fn table(all: &[Series]) -> Table {
    let mut table = Table::new(&[
        "tool",
        "way",
        "s",
        "Mbit/s",
        "× alone",
        "% of cables",
        "CPUs near",
        "far",
        "others",
        "limited by",
    ]);
    for series in all {
        let first = [series.road.to_string(), series.way.to_string()];
        let (Ok(runs), Some(rates)) = (&series.runs, series.rates()) else {
            table.row(first.into_iter().chain(["failed".to_owned()]));
            continue;
        };
        let alone = all
            .iter()
            .find(|other| other.road == series.road && other.way == Way::Alone)
            .and_then(Series::rates);
        let middle = |value: fn(&Measured) -> f64| Spread::of(runs, value).middle(2);
        table.row(first.into_iter().chain([
            Spread::of(runs, |run| run.wall.as_secs_f64()).print(2),
            rates.print(0),
            alone.map_or_else(String::new, |alone| {
                format!("{:.2}", rates.median() / alone.median())
            }),
            Spread::of(runs, |run| 100.0 * run.fullness()).middle(1),
            middle(|run| run.cpus()[0]),
            middle(|run| run.cpus()[1]),
            middle(|run| run.cpus()[2]),
            limiter(runs).to_string(),
        ]));
    }
    table
}

/// Sets the modification times of all files to the same whole second, because scp truncates
/// fractions.
fn age(path: &Path) -> Result<()> {
    if path.is_dir() {
        fs::read_dir(path)?.try_for_each(|entry| age(&entry?.path()))?;
    }
    Ok(File::open(path)?
        .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))?)
}

/// Size of each source file in bytes. Several files are needed because backup tools read them
/// concurrently.
const FILE_SIZE: u64 = 16 << 20;
