//! Cases with real trees, copied in both directions and compared by all available programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nicstripe_lab::Host;
use nicstripe_testkit::{
    bench::{Cell, Contender, Contents, Measured, Place, Result, Spread, Stage, Table, cell},
    trial::is_installed,
};

use crate::{Arguments, Figures, as_text, check_same, copy_aside, percent_of_theory, time_limit};

/// Measures copies of each tree with `put -a`, and of the received tree with `get -a`. Returns the
/// table of results.
pub(crate) fn bench(arguments: &Arguments) -> Figures {
    let mut table = Table::default();
    let means = Means::installed();
    let aside = tempfile::tempdir()?;
    for tree in arguments.trees(aside.path())? {
        let weighed = Contents::of(&tree)?;
        // The reference tree, both copies and the ballast. Small files use more space in blocks
        // than they have bytes.
        let place = arguments.place(4 * (weighed.bytes + 4096 * weighed.files))?;
        let scene = Scene::set(&tree, &place)?;
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..arguments.runs {
            for (runs, measured) in runs.iter_mut().zip(scene.run(arguments, &means)?) {
                runs.push(measured);
            }
        }
        for (way, runs) in ["put -a", "get -a"].into_iter().zip(&runs) {
            table.row(row(arguments, &scene, way, runs));
        }
    }
    Ok(table)
}

/// Source tree of one measurement: a copy of a real tree on host A.
#[derive(Debug)]
struct Scene<'a> {
    shown: String,
    place: &'a Place,
    source: PathBuf,
    contents: Contents,
}

impl<'a> Scene<'a> {
    fn set(tree: &Path, place: &'a Place) -> Result<Self> {
        let source = place.files(Host::A).join(TREE);
        copy_aside(tree, &source)?;
        let contents = Contents::of(&source)?;
        Ok(Self {
            shown: tree.display().to_string(),
            place,
            source,
            contents,
        })
    }

    /// Copies the tree to the daemon and back. Compares each copy with the source. Returns the
    /// measurements of both copies.
    fn run(&self, arguments: &Arguments, means: &Means) -> Result<[Measured; 2]> {
        let (there, back) = (
            self.place.files(Host::B).join(TREE),
            self.place.files(Host::A).join("back"),
        );
        self.place.clear(Host::B)?;
        if back.exists() {
            fs::remove_dir_all(&back)?;
        }
        let put = |stage: &Stage<'_>| Ok([as_text(&self.source)?.to_owned(), stage.remote("")]);
        let put = self.copy(arguments, put)?;
        means.check(&self.source, &there)?;
        let get = |stage: &Stage<'_>| Ok([stage.remote(TREE), as_text(&back)?.to_owned()]);
        let get = self.copy(arguments, get)?;
        means.check(&self.source, &back)?;
        eprintln!(
            "{}: there {:.2} s, back {:.2} s",
            self.shown,
            put.wall.as_secs_f64(),
            get.wall.as_secs_f64()
        );
        Ok([put, get])
    }

    fn copy(
        &self,
        arguments: &Arguments,
        words: impl FnOnce(&Stage<'_>) -> Result<[String; 2]>,
    ) -> Result<Measured> {
        let stage = Stage::build(&arguments.links, self.place, Contender::Nicstripe)?;
        let words = words(&stage)?;
        let ballast = self.place.ballast(self.contents.bytes.max(1))?;
        let client = stage.client(&["-a", "--quiet", "--json", &words[0], &words[1]]);
        let measured = stage.measure(client, time_limit(&self.contents))?;
        drop(ballast);
        Ok(measured)
    }
}

fn row(arguments: &Arguments, scene: &Scene<'_>, way: &str, runs: &[Measured]) -> [Cell; 9] {
    let contents = &scene.contents;
    let seconds = Spread::of(runs, |run| run.wall.as_secs_f64());
    let cables = &arguments.links;
    let of_theory = Spread::of(runs, |run| {
        percent_of_theory(contents.bytes, run.wall, cables)
    });
    [
        cell("tree", &scene.shown),
        cell("way", way),
        cell("files", contents.files),
        cell(
            "MiB",
            format!("{:.1}", contents.bytes as f64 / f64::from(1 << 20)),
        ),
        cell("s", seconds.print(2)),
        cell(
            "files/s",
            format!("{:.0}", contents.files as f64 / seconds.median()),
        ),
        cell(
            "MB/s",
            format!("{:.1}", contents.bytes as f64 / 1e6 / seconds.median()),
        ),
        cell("% of theory", of_theory.middle(1)),
        // A difference would have ended the case.
        cell("differences", "none"),
    ]
}

/// Installed programs that can compare trees, in addition to this bench.
#[derive(Debug)]
struct Means {
    diff: bool,
    rsync: bool,
}

impl Means {
    fn installed() -> Self {
        let means = Self {
            diff: is_installed("diff"),
            rsync: is_installed("rsync"),
        };
        for (name, is_there) in [("diff", means.diff), ("rsync", means.rsync)] {
            if !is_there {
                println!("{name} not installed: trees are compared without it");
            }
        }
        means
    }

    fn check(&self, one: &Path, other: &Path) -> Result<()> {
        check_same(one, other)?;
        if self.diff {
            let mut diff = Command::new("diff");
            prints_nothing(diff.args(["-r", "--no-dereference"]).args([one, other]))?;
        }
        if self.rsync {
            for (from, to) in [(one, other), (other, one)] {
                // A trailing slash selects the content of the directory.
                let [from, to] = [from, to].map(|path| path.join(""));
                prints_nothing(
                    Command::new("rsync")
                        .args(["-aHAXn", "--itemize-changes", "--delete"])
                        .args([from, to]),
                )?;
            }
        }
        Ok(())
    }
}

/// Runs a command that must not print anything.
///
/// # Errors
///
/// The command failed or printed something. The error contains the command's first output.
fn prints_nothing(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() && text.is_empty() {
        return Ok(());
    }
    let first: Vec<&str> = text.lines().take(10).collect();
    Err(format!(
        "{} finds differences: {}\n  {}",
        command.get_program().display(),
        output.status,
        first.join("\n  ")
    )
    .into())
}

const TREE: &str = "tree";
