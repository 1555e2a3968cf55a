//! Copies of trees and pipes: nicstripe over all cables, and an rsync daemon over one, because
//! rsync cannot use more.
//!
//! `cargo bench --bench trees -- --case small,unchanged,empty,real,pipe,delta,inplace,sparse --links 2 --runs 3
//! --direction put,get --disk /mnt/disk`
//!
//! | case | measured | data |
//! | --- | --- | --- |
//! | small | time of the whole command, into an empty directory | `--files 10000` files of `--size 10K` |
//! | unchanged | time of a second run without changes | `--many 100000` files of 100 bytes, 100 in a directory |
//! | empty | peak memory of client and daemon | `--many 100000` empty files |
//! | real | `put -a` and `get -a`; every entry compared | each `--tree PATH`, or the Rust toolchain, /usr/share and a clone of this checkout |
//! | pipe | `tar c TREE \| nicstripe cp - host:x.tar` and back; a reader of 20 MB/s | the first `--tree`, or the toolchain |
//! | delta, inplace | `cp --delta` or `--inplace` of a file over an older one, of which 2 % differ: bytes on the cables | `--image 4G` |
//! | sparse | a file with holes: bytes on the cables, the map of holes | 25 times `--image`, with a quarter of `--image` as data |
//!
//! Source and target are in memory, or in `--disk`. The cables are shaped; theory is their
//! theoretical goodput. Each run has new hosts and cables; the programs are interleaved. The bench
//! compares source and target entry by entry. The case `real` also runs `diff -r` and, in both
//! directions, `rsync -n --itemize-changes`, if installed. Fails if anything differs, never because
//! of speed.
#![forbid(unsafe_code)]

mod generated;
mod image;
mod pipe;
mod real;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use clap::Args;
use nicstripe_testkit::{
    bench::{
        Cables, Contender, Contents, Place, Result, Table, Way, circumstances, parse_size, verdict,
    },
    tree::{Aspects, differences},
};

#[derive(Debug, Args)]
struct Arguments {
    /// Cases to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "small,unchanged,empty,real,pipe"
    )]
    case: Vec<Case>,

    /// Cables: a number of cables of 1 Gbit/s, or their rates in Mbit/s
    #[arg(long, default_value = "2")]
    links: Cables,

    /// Number of runs per program and case
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Directions of the trees; real and pipe always run in both
    #[arg(long, value_enum, value_delimiter = ',', default_value = "put")]
    direction: Vec<Way>,

    /// Number of files in the case small
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,

    /// Size of each file in the case small, in bytes
    #[arg(long, default_value = "10K", value_parser = parse_size)]
    size: u64,

    /// Number of files in the cases unchanged and empty
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    many: u64,

    /// Size of the file in the cases delta and inplace, in bytes
    #[arg(long, default_value = "4G", value_parser = parse_size)]
    image: u64,

    /// Tree for the cases real and pipe; may be repeated
    #[arg(long, num_args = 1..)]
    tree: Vec<PathBuf>,

    /// Folder on a disk for source and target [default: memory]
    #[arg(long)]
    disk: Option<PathBuf>,

    /// Programs to compare in the cases small and unchanged; those that are not installed are
    /// skipped
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "nicstripe,rsync"
    )]
    tools: Vec<Contender>,
}

/// Kind of copy to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    Small,
    Unchanged,
    Empty,
    Real,
    Pipe,
    Delta,
    Inplace,
    Sparse,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(mut arguments: Arguments) -> Result<()> {
    arguments.tools = Contender::installed(&arguments.tools);
    if let Some(other) = arguments
        .tools
        .iter()
        .find(|tool| !matches!(tool, Contender::Nicstripe | Contender::Rsync))
    {
        return Err(format!("{other} copies no trees: expected nicstripe, rsync").into());
    }
    let mut failures = Vec::new();
    for case in &arguments.case {
        let result = match case {
            Case::Small => generated::small(&arguments),
            Case::Unchanged => generated::unchanged(&arguments),
            Case::Empty => generated::empty(&arguments),
            Case::Real => real::bench(&arguments),
            Case::Pipe => pipe::bench(&arguments),
            Case::Delta => image::delta(&arguments, "--delta"),
            Case::Inplace => image::delta(&arguments, "--inplace"),
            Case::Sparse => image::sparse(&arguments),
        };
        match result {
            Ok(table) => println!(
                "\n{case:?}, {}, {} runs: median (least–greatest).\n\n{table}",
                arguments.links, arguments.runs
            ),
            Err(error) => {
                eprintln!("{case:?}: {error}");
                failures.push(format!("{case:?}: {error}"));
            }
        }
    }
    println!("\n{}", circumstances(&arguments.tools));
    verdict(&failures)
}

impl Arguments {
    /// Creates the bench's folders with at least `room` bytes of space, in `--disk` or in memory.
    fn place(&self, room: u64) -> Result<Place> {
        match &self.disk {
            Some(folder) => Place::on_disk(Some(folder), room),
            None => Place::in_memory(room),
        }
    }

    /// Returns the cables that a program uses: all for nicstripe, the first for rsync.
    fn cables_of(&self, contender: Contender) -> Cables {
        match contender {
            Contender::Rsync => Cables::of("1", &self.links.specs[..1]),
            _ => self.links.clone(),
        }
    }

    /// Returns the paths of `--tree`. The default is trees that most machines with this checkout
    /// have. `aside` is a folder for trees to create.
    fn trees(&self, aside: &Path) -> Result<Vec<PathBuf>> {
        if !self.tree.is_empty() {
            return Ok(self.tree.clone());
        }
        Ok(vec![toolchain()?, "/usr/share".into(), checkout(aside)?])
    }
}

/// Clones this checkout's repository into `aside`, without build output. Returns the path of the
/// clone.
fn checkout(aside: &Path) -> Result<PathBuf> {
    let clone = aside.join("checkout");
    let status = Command::new("git")
        .args(["clone", "-q", "--no-hardlinks", env!("CARGO_MANIFEST_DIR")])
        .arg(&clone)
        .status()?;
    if status.success() {
        Ok(clone)
    } else {
        Err(format!("cannot clone this checkout: git {status}").into())
    }
}

/// Returns the folder of the Rust toolchain (`rustc --print sysroot`).
fn toolchain() -> Result<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .stderr(Stdio::inherit())
        .output()?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Copies a tree to `target` with `cp -a`, so that the copied tree does not change during the
/// bench.
fn copy_aside(tree: &Path, target: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    let status = command
        .arg("-a")
        .arg("--")
        .arg(tree)
        .arg(target)
        .stdin(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cannot copy {}: cp {status}", tree.display()).into())
    }
}

/// Compares two trees entry by entry.
///
/// # Errors
///
/// The trees differ. The error lists the first differences.
fn check_same(one: &Path, other: &Path) -> Result<()> {
    let aspects = Aspects {
        holes: false,
        ..Aspects::ALL
    };
    let found = differences(one, other, aspects);
    if found.is_empty() {
        Ok(())
    } else {
        Err(format!("the copy differs:\n  {}", found.join("\n  ")).into())
    }
}

/// Returns the timeout of a copy: 60 s, plus 1 s per 10⁶ bytes and per 500 files.
fn time_limit(contents: &Contents) -> Duration {
    Duration::from_secs(60 + contents.bytes / 1_000_000 + contents.files / 500)
}

/// Returns the goodput of a copy as a percentage of the cables' theoretical goodput.
fn percent_of_theory(bytes: u64, wall: Duration, cables: &Cables) -> f64 {
    100.0 * bytes as f64 * 8.0 / wall.as_secs_f64() / cables.theory().unwrap_or(f64::NAN)
}

/// Returns a path as UTF-8 text, or an error if the path is not UTF-8.
fn as_text(path: &Path) -> Result<&str> {
    path.to_str()
        .ok_or_else(|| format!("the path is not UTF-8: {path:?}").into())
}

/// Table of results of a case.
type Figures = Result<Table>;
