//! Cases with generated trees: many small files, a second run over unchanged files, many empty
//! files.

use std::path::PathBuf;

use nicstripe_lab::Host;
use nicstripe_testkit::bench::{
    Cables, Contender, Contents, Measured, Peak, Place, Result, Shape, Spread, Stage, Table, Way,
    cell,
};

use crate::{Arguments, Figures, as_text, check_same, percent_of_theory, time_limit};

/// Measures copies of many small files into an empty directory. Returns the table of results.
pub(crate) fn small(arguments: &Arguments) -> Figures {
    let shape = Shape {
        files: arguments.files,
        size: arguments.size,
        per_directory: PER_DIRECTORY,
    };
    let mut table = Table::default();
    for way in &arguments.direction {
        // Source, target and ballast.
        let place = arguments.place(3 * shape.room())?;
        shape.plant(&source(&place, *way))?;
        let contents = Contents::of(&source(&place, *way))?;
        let series = Comparison {
            arguments,
            place: &place,
            contents,
            way: *way,
            into: Into::Nothing,
        }
        .run()?;
        for (contender, runs) in &series {
            let cables = arguments.cables_of(*contender);
            let seconds = Spread::of(runs, |run| run.wall.as_secs_f64());
            let is_ours = *contender == Contender::Nicstripe;
            let of_theory = Spread::of(runs, |run| {
                percent_of_theory(contents.bytes, run.wall, &cables)
            });
            table.row([
                cell("way", way.name()),
                cell("program", shown(*contender, &cables)),
                cell("s", seconds.print(2)),
                cell("% of theory", of_theory.middle(1)),
                cell("bar", if is_ours { "≥ 70" } else { "" }),
                cell(
                    "files/s",
                    format!("{:.0}", contents.files as f64 / seconds.median()),
                ),
                cell(
                    "MB/s",
                    format!("{:.1}", contents.bytes as f64 / 1e6 / seconds.median()),
                ),
                cell(
                    "× rsync",
                    beside_rsync(&series, *contender, |ours, rsyncs| rsyncs / ours),
                ),
                cell("bar", if is_ours { "≥ 1.5" } else { "" }),
                cell(
                    "CPU s, both",
                    Spread::of(runs, |run| run.cpu.as_secs_f64()).middle(2),
                ),
            ]);
        }
    }
    Ok(table)
}

/// Measures a second copy over an unchanged target. Returns the table of results.
pub(crate) fn unchanged(arguments: &Arguments) -> Figures {
    let shape = Shape {
        files: arguments.many,
        size: 100,
        per_directory: PER_DIRECTORY,
    };
    let mut table = Table::default();
    for way in &arguments.direction {
        let place = arguments.place(2 * shape.room())?;
        shape.plant(&source(&place, *way))?;
        let contents = Contents::of(&source(&place, *way))?;
        let comparison = Comparison {
            arguments,
            place: &place,
            contents,
            way: *way,
            into: Into::SameTree,
        };
        // First copy. The measured runs find its files unchanged.
        comparison.copy(Contender::Nicstripe)?;
        let series = comparison.run()?;
        for (contender, runs) in &series {
            let seconds = Spread::of(runs, |run| run.wall.as_secs_f64());
            let is_ours = *contender == Contender::Nicstripe;
            let wire = Spread::of(runs, |run| run.wire_bytes() as f64 / 1e6);
            let times = beside_rsync(&series, *contender, |ours, rsyncs| ours / rsyncs);
            table.row([
                cell("way", way.name()),
                cell(
                    "program",
                    shown(*contender, &arguments.cables_of(*contender)),
                ),
                cell("s", seconds.print(2)),
                cell(
                    "files/s",
                    format!("{:.0}", contents.files as f64 / seconds.median()),
                ),
                cell("time ÷ rsync's", times),
                cell("bar", if is_ours { "≤ 2" } else { "" }),
                cell("MB on the cables", wire.middle(2)),
                cell(
                    "CPU s, both",
                    Spread::of(runs, |run| run.cpu.as_secs_f64()).middle(2),
                ),
            ]);
        }
    }
    Ok(table)
}

/// Measures the memory of client and daemon while they copy many empty files. Returns the table of
/// results.
pub(crate) fn empty(arguments: &Arguments) -> Figures {
    let shape = Shape {
        files: arguments.many,
        size: 0,
        per_directory: PER_DIRECTORY,
    };
    let mut table = Table::default();
    for way in &arguments.direction {
        let place = arguments.place(2 * shape.room())?;
        shape.plant(&source(&place, *way))?;
        let contents = Contents::of(&source(&place, *way))?;
        let comparison = Comparison {
            arguments,
            place: &place,
            contents,
            way: *way,
            into: Into::Nothing,
        };
        let runs = (0..arguments.runs)
            .map(|_| comparison.copy(Contender::Nicstripe))
            .collect::<Result<Vec<_>>>()?;
        for (end, name) in ["client", "daemon"].into_iter().enumerate() {
            let mib =
                |of: fn(&Peak) -> u64| Spread::of(&runs, |run| of(&run.peaks[end]) as f64 / MIB);
            table.row([
                cell("way", way.name()),
                cell("end", name),
                cell("peak resident, MiB", mib(|peak| peak.resident).print(1)),
                cell("private, MiB", mib(|peak| peak.own).print(1)),
                cell("bar, MiB", "≤ 64"),
                cell(
                    "s",
                    Spread::of(&runs, |run| run.wall.as_secs_f64()).middle(2),
                ),
            ]);
        }
    }
    Ok(table)
}

/// Content of the target directory before a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Into {
    Nothing,
    /// Identical tree from an earlier copy.
    SameTree,
}

/// Copies of one tree by several programs in interleaved rounds.
#[derive(Debug)]
struct Comparison<'a> {
    arguments: &'a Arguments,
    place: &'a Place,
    contents: Contents,
    way: Way,
    into: Into,
}

impl Comparison<'_> {
    fn run(&self) -> Result<Vec<(Contender, Vec<Measured>)>> {
        let mut series: Vec<(Contender, Vec<Measured>)> = self
            .arguments
            .tools
            .iter()
            .map(|contender| (*contender, Vec::new()))
            .collect();
        for _ in 0..self.arguments.runs {
            for (contender, runs) in &mut series {
                let measured = self.copy(*contender)?;
                self.check_work(*contender, &measured)?;
                eprintln!(
                    "{}, {contender}: {:.3} s",
                    self.way.name(),
                    measured.wall.as_secs_f64()
                );
                runs.push(measured);
            }
        }
        Ok(series)
    }

    /// Measures one copy of the tree. Compares the target with the source.
    fn copy(&self, contender: Contender) -> Result<Measured> {
        if self.into == Into::Nothing {
            self.place.clear(self.way.from().peer())?;
        }
        let stage = Stage::build(&self.arguments.cables_of(contender), self.place, contender)?;
        let (here, remote) = (self.place.files(Host::A), stage.remote(""));
        let (tree, here) = (format!("{}/{TREE}", here.display()), as_text(&here)?);
        let remote_tree = stage.remote(TREE);
        let words = match self.way {
            Way::Put => [&tree[..], &remote],
            Way::Get => [&remote_tree[..], here],
        };
        let options: &[&str] = if contender == Contender::Rsync {
            &["-a"]
        } else {
            &["-a", "--quiet", "--json"]
        };
        let ballast = if self.into == Into::Nothing {
            self.place.ballast(self.contents.bytes.max(1))?
        } else {
            None
        };
        let measured = stage.measure(
            stage.client(&[options, &words].concat()),
            time_limit(&self.contents),
        )?;
        drop(ballast);
        check_same(
            &source(self.place, self.way),
            &self.place.files(self.way.from().peer()).join(TREE),
        )?;
        Ok(measured)
    }

    /// Checks the number of files in nicstripe's report. Does nothing for other programs.
    ///
    /// # Errors
    ///
    /// nicstripe copied unchanged files, skipped new ones, or failed to copy some.
    fn check_work(&self, contender: Contender, measured: &Measured) -> Result<()> {
        if contender != Contender::Nicstripe {
            return Ok(());
        }
        let tree = measured.report()?.tree.ok_or("the report has no tree")?;
        let expected = if self.into == Into::Nothing {
            self.contents.files
        } else {
            0
        };
        let copied = tree.files;
        if copied == expected && tree.failed == 0 {
            Ok(())
        } else {
            Err(format!("{copied} files were copied, expected {expected}").into())
        }
    }
}

/// Returns the path of the source tree.
fn source(place: &Place, way: Way) -> PathBuf {
    place.files(way.from()).join(TREE)
}

fn shown(contender: Contender, cables: &Cables) -> String {
    format!("{contender}, {cables}")
}

/// Formats the ratio of nicstripe's and rsync's median times. Empty for programs other than
/// nicstripe, and if rsync was not measured.
fn beside_rsync(
    series: &[(Contender, Vec<Measured>)],
    contender: Contender,
    ratio: fn(f64, f64) -> f64,
) -> String {
    let median = |wanted: Contender| {
        let (_, runs) = series.iter().find(|(contender, _)| *contender == wanted)?;
        Some(Spread::of(runs, |run: &Measured| run.wall.as_secs_f64()).median())
    };
    match (
        contender,
        median(Contender::Nicstripe),
        median(Contender::Rsync),
    ) {
        (Contender::Nicstripe, Some(ours), Some(rsyncs)) => format!("{:.2}", ratio(ours, rsyncs)),
        _ => String::new(),
    }
}

const TREE: &str = "tree";
const PER_DIRECTORY: u64 = 100;
const MIB: f64 = 1_048_576.0;
