//! Copies with both ends confined to few cores: how far from linear the rate is.
//!
//! `cargo bench --bench cores -- --size 1G --runs 3 --links 2 --direction put,get`
//!
//! The cables are unshaped. Client and daemon may run on 1, 2, 4 … up to all cores of this machine:
//! both on the same ones ("shared"), and, with enough cores, each on its own ("disjoint"). A core is
//! a processor as Linux numbers them, and may share its units with another one. The program sees
//! only its cores, so it starts as many threads as for a machine of that size. "% of linear"
//! compares the rate with that of one core, for the same kind of ends. Work of the kernel outside
//! the processes is not confined.
//!
//! `cargo bench --bench cores -- --cage 25`
//!
//! gives each end a share of a core instead, by a control group for each, and compares with scp over
//! one cable in equal groups. It needs the right to make control groups with the cpu controller.
//!
//! Source and target are in memory, which must hold three times `--size`. The first copy of each
//! kind is a warm-up.
#![forbid(unsafe_code)]

use std::{
    ops::ControlFlow,
    process::{Command, ExitCode},
    time::Instant,
};

use clap::Args;
use nicstripe_lab::{CpuQuota, Host};
use nicstripe_testkit::bench::{
    Cables, Cell, Contender, Copied, Copies, Place, Result, Sample, Scene, Spread, Table, Watch,
    Way, cell, circumstances, failed, measure_watched, parse_size,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[derive(Debug, Args)]
struct Arguments {
    /// Size of the file in bytes
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    size: u64,

    #[command(flatten)]
    copies: Copies,

    /// Number of cables
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    links: u8,

    /// Instead of whole cores: percent of a core for each end
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    cage: Option<u32>,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let place = Place::in_memory(3 * arguments.size)?;
    let mut stand = Stand {
        sample: place.sample(arguments.size)?,
        cables: Cables::unshaped(usize::from(arguments.links)),
        place: &place,
        copies: &arguments.copies,
        all: sched_getaffinity(None)?,
    };
    let (contenders, table) = match arguments.cage {
        None => (vec![Contender::Nicstripe], stand.by_cores()?),
        Some(percent) => {
            if let Err(error) = CpuQuota::new(10 * percent) {
                println!("skipped: {}", nicstripe::chain(&error));
                return Ok(());
            }
            let contenders = Contender::installed(&[Contender::Nicstripe, Contender::Scp]);
            let table = stand.in_cages(percent, &contenders)?;
            (contenders, table)
        }
    };
    println!(
        "\n{}\n{}; median (least–greatest), {} runs each.\n\n{table}",
        circumstances(&contenders),
        stand.cables,
        arguments.copies.runs
    );
    Ok(())
}

/// Conditions that all copies share.
struct Stand<'a> {
    sample: Sample,
    cables: Cables,
    place: &'a Place,
    copies: &'a Copies,
    /// All cores of this machine that the bench may use.
    all: CpuSet,
}

impl Stand<'_> {
    /// Measures nicstripe on more and more cores.
    fn by_cores(&mut self) -> Result<Table> {
        let layouts = Layout::all(&self.all);
        let mut table = Table::default();
        for way in self.copies.direction.clone() {
            let mut series: Vec<Vec<Copied>> = layouts.iter().map(|_| Vec::new()).collect();
            for round in 0..=self.copies.runs {
                for (layout, runs) in layouts.iter().zip(&mut series) {
                    let mut limits = Limits {
                        cores: layout.cores,
                        all: self.all,
                        cages: None,
                    };
                    let copied = self.copy(Contender::Nicstripe, way, &mut limits)?;
                    runs.extend((round > 0).then_some(copied));
                }
            }
            for (layout, runs) in layouts.iter().zip(&series) {
                let of_one = layouts
                    .iter()
                    .zip(&series)
                    .find(|(one, _)| one.count == 1 && one.is_shared == layout.is_shared)
                    .map(|(_, runs)| rate(runs).median());
                table.row(layout.row(way, runs, of_one.unwrap_or(f64::NAN)));
            }
        }
        Ok(table)
    }

    /// Measures programs with `percent` of a core for each end. A failure of nicstripe is an error;
    /// another program that fails is excluded from the later rounds.
    fn in_cages(&mut self, percent: u32, contenders: &[Contender]) -> Result<Table> {
        let mut table = Table::default();
        for way in self.copies.direction.clone() {
            let mut series: Vec<Option<Vec<Copied>>> =
                contenders.iter().map(|_| Some(Vec::new())).collect();
            for round in 0..=self.copies.runs {
                for (contender, slot) in contenders.iter().zip(&mut series) {
                    let Some(runs) = slot else { continue };
                    let mut limits = Limits {
                        cores: [self.all; 2],
                        all: self.all,
                        cages: Some([CpuQuota::new(10 * percent)?, CpuQuota::new(10 * percent)?]),
                    };
                    match self.copy(*contender, way, &mut limits) {
                        Ok(copied) => runs.extend((round > 0).then_some(copied)),
                        Err(error) if *contender == Contender::Nicstripe => return Err(error),
                        Err(error) => {
                            eprintln!("{contender}: {error}");
                            *slot = None;
                        }
                    }
                }
            }
            for (contender, runs) in contenders.iter().zip(&series) {
                let first = [cell("way", way.name()), cell("program", contender)];
                let cells = runs.as_ref().map(|runs| caged_cells(percent, runs));
                let cells = cells.unwrap_or_else(|| vec![failed()]);
                table.row(first.into_iter().chain(cells));
            }
        }
        Ok(table)
    }

    /// Makes one copy within limits, and compares it with the source.
    fn copy(&mut self, contender: Contender, way: Way, limits: &mut Limits) -> Result<Copied> {
        let scene = Scene::build(&self.cables, self.place, &mut self.sample, way.from())?;
        let copied = measure_watched(contender, &scene, limits);
        sched_setaffinity(None, &self.all)?;
        let copied = copied?;
        eprintln!(
            "{}, {contender}: {:.3} s",
            way.name(),
            copied.wall.as_secs_f64()
        );
        Ok(copied)
    }
}

/// Cores of both ends.
struct Layout {
    is_shared: bool,
    /// Number of cores of each end.
    count: usize,
    /// Cores of hosts A and B.
    cores: [CpuSet; 2],
}

impl Layout {
    /// Returns the layouts for 1, 2, 4 … and all of these cores.
    fn all(cores: &CpuSet) -> Vec<Self> {
        let numbers = (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core));
        let numbers: Vec<usize> = numbers.collect();
        let most = numbers.len();
        let powers = (0..usize::BITS).map(|power| 1_usize << power);
        let mut counts: Vec<usize> = powers.take_while(|count| *count <= most).collect();
        counts.extend((!most.is_power_of_two()).then_some(most));
        let mut layouts = Vec::new();
        for count in counts {
            let first = set_of(&numbers[..count]);
            layouts.push(Self {
                is_shared: true,
                count,
                cores: [first; 2],
            });
            if let Some(next) = numbers.get(count..2 * count) {
                layouts.push(Self {
                    is_shared: false,
                    count,
                    cores: [first, set_of(next)],
                });
            }
        }
        layouts
    }

    /// Returns the cells of a row. `of_one` is the rate of one core for each end in GB/s.
    fn row(&self, way: Way, runs: &[Copied], of_one: f64) -> Vec<Cell> {
        let (ends, used) = if self.is_shared {
            ("shared", self.count)
        } else {
            ("disjoint", 2 * self.count)
        };
        let rate = rate(runs);
        let linear = of_one * self.count as f64;
        let [sender, receiver, both] = Copied::cpu_cells(runs, Spread::middle);
        vec![
            cell("way", way.name()),
            cell("ends", ends),
            cell("cores of each", self.count),
            cell("GB/s", rate.print(2)),
            cell(
                "GB/s per core",
                format!("{:.2}", rate.median() / used as f64),
            ),
            cell(
                "% of linear",
                format!("{:.0}", 100.0 * rate.median() / linear),
            ),
            sender,
            receiver,
            both,
            cell("others, CPUs", Spread::of(runs, Copied::others).middle(2)),
        ]
    }
}

/// Limits of both ends, in force from the start of each process.
struct Limits {
    /// Cores of hosts A and B.
    cores: [CpuSet; 2],
    /// Cores of the bench itself.
    all: CpuSet,
    /// Control groups of hosts A and B.
    cages: Option<[CpuQuota; 2]>,
}

impl Watch for Limits {
    fn prepare(&mut self, scene: &Scene<'_>, host: Host, command: Command) -> Result<Command> {
        let end = usize::from(host == Host::B);
        sched_setaffinity(None, &self.cores[end])?;
        Ok(match &self.cages {
            Some(cages) => scene.in_group(host, &command, &cages[end].entrance()),
            None => command,
        })
    }

    fn during(&mut self, _scene: &Scene<'_>, _begun: Instant) -> Result<ControlFlow<()>> {
        sched_setaffinity(None, &self.all)?;
        Ok(ControlFlow::Break(()))
    }
}

/// Returns the cells of a program in cages, after its name.
fn caged_cells(percent: u32, runs: &[Copied]) -> Vec<Cell> {
    let [sender, receiver, both] = Copied::cpu_cells(runs, Spread::middle);
    vec![
        cell("% of a core, each end", percent),
        cell("s", Copied::seconds(runs).print(2)),
        cell(
            "MB/s",
            Spread::of(runs, |run| run.goodput() / 8e6).middle(1),
        ),
        sender,
        receiver,
        both,
    ]
}

/// Returns the rates in GB/s.
fn rate(runs: &[Copied]) -> Spread {
    Spread::of(runs, |run| run.goodput() / 8e9)
}

fn set_of(numbers: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for number in numbers {
        set.set(*number);
    }
    set
}
