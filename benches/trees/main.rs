//! Trees and pipes: nicstripe over all cables beside an rsync daemon over one, which is all that it can use.
//!
//! `cargo bench --bench trees -- --case small,unchanged,empty,real,pipe --links 2 --runs 3 --direction put,get --disk /mnt/disk`
//!
//! | case | what is measured | of |
//! | --- | --- | --- |
//! | small | time of the whole command, into an empty directory | `--files 10000` files of `--size 10K` |
//! | unchanged | the same command once more, when nothing has changed | `--many 100000` files of 100 bytes, 100 in a directory |
//! | empty | most memory of both ends | `--many 100000` empty files |
//! | real | `put -a` and `get -a`; every thing compared | each `--tree PATH`, or the Rust toolchain, /usr/share and a clone of this checkout |
//! | pipe | `tar c TREE \| nicstripe cp - host:x.tar` and back; a reader of 20 MB/s | the first `--tree`, or the toolchain |
//!
//! Source and target are in memory, or in `--disk`. The cables are shaped; theory is what they carry of files. Each run has hosts and
//! cables of its own, the programs take turns. What arrives is compared thing by thing by this program, in the case `real` by `diff -r`
//! and by `rsync -n --itemize-changes` both ways as well, where they are installed. Fails when anything differs, never for speed.
#![forbid(unsafe_code)]

#[path = "../bench_support/mod.rs"]
mod bench_support;
mod generated;
mod pipe;
mod real;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use bench_support::{Cables, Contender, Contents, Place, Result, Table, Way, circumstances, differences, parse_size};
use clap::Args;

#[derive(Debug, Args)]
struct Arguments {
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "small,unchanged,empty,real,pipe")]
    case: Vec<Case>,

    /// The cables: so many of 1 Gbit/s, or their rates in Mbit/s
    #[arg(long, default_value = "2")]
    links: Cables,

    /// Runs of each program in each case
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Which way trees go; real and pipe go both
    #[arg(long, value_enum, value_delimiter = ',', default_value = "put")]
    direction: Vec<Way>,

    /// Files of small
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,

    /// Bytes of each file of small
    #[arg(long, default_value = "10K", value_parser = parse_size)]
    size: u64,

    /// Files of unchanged and of empty
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    many: u64,

    /// A tree of real and of pipe; may be repeated
    #[arg(long, num_args = 1..)]
    tree: Vec<PathBuf>,

    /// A folder on a disk for source and target [default: memory]
    #[arg(long)]
    disk: Option<PathBuf>,

    /// The programs of small and unchanged; those that are not installed are left out
    #[arg(long, value_enum, value_delimiter = ',', default_value = "nicstripe,rsync")]
    tools: Vec<Contender>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    Small,
    Unchanged,
    Empty,
    Real,
    Pipe,
}

fn main() -> ExitCode {
    bench_support::run(bench)
}

fn bench(mut arguments: Arguments) -> Result<()> {
    arguments.tools = Contender::installed(&arguments.tools);
    if let Some(other) = arguments.tools.iter().find(|tool| !matches!(tool, Contender::Nicstripe | Contender::Rsync)) {
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
        };
        match result {
            Ok(table) => println!("\n{case:?}, {}, {} runs: median (least–greatest).\n\n{table}", arguments.links, arguments.runs),
            Err(error) => {
                eprintln!("{case:?}: {error}");
                failures.push(format!("{case:?}: {error}"));
            }
        }
    }
    println!("\n{}", circumstances(&arguments.tools));
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}

impl Arguments {
    /// Folders with this much room.
    fn place(&self, room: u64) -> Result<Place> {
        match &self.disk {
            Some(folder) => Place::on_disk(Some(folder), room),
            None => Place::in_memory(room),
        }
    }

    /// The cables that a program can use.
    fn cables_of(&self, contender: Contender) -> Cables {
        match contender {
            Contender::Rsync => Cables::of("1", &self.links.specs[..1]),
            _ => self.links.clone(),
        }
    }

    /// The trees that were named, or real ones that most machines with this checkout have; `aside` is a folder for what is made.
    fn trees(&self, aside: &Path) -> Result<Vec<PathBuf>> {
        if !self.tree.is_empty() {
            return Ok(self.tree.clone());
        }
        Ok(vec![toolchain()?, "/usr/share".into(), checkout(aside)?])
    }
}

/// A clone of this checkout, with its `.git` and without what was built in it.
fn checkout(aside: &Path) -> Result<PathBuf> {
    let clone = aside.join("checkout");
    let status = Command::new("git").args(["clone", "-q", "--no-hardlinks", env!("CARGO_MANIFEST_DIR")]).arg(&clone).status()?;
    if status.success() { Ok(clone) } else { Err(format!("cannot clone this checkout: git {status}").into()) }
}

/// The folder of the Rust toolchain.
fn toolchain() -> Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).stderr(Stdio::inherit()).output()?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Copies a tree aside, so that nobody changes it meanwhile, as `target`.
fn copy_aside(tree: &Path, target: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    let status = command.arg("-a").arg("--").arg(tree).arg(target).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("cannot copy {} aside: cp {status}", tree.display()).into()) }
}

/// Errors: the trees differ; names the first differences.
fn check_same(one: &Path, other: &Path) -> Result<()> {
    let found = differences(one, other)?;
    if found.is_empty() { Ok(()) } else { Err(format!("the copy differs:\n  {}", found.join("\n  ")).into()) }
}

/// After so long a copy is given up: a minute, and as long as it takes at 1 MB/s and 500 files a second.
fn time_limit(contents: &Contents) -> Duration {
    Duration::from_secs(60 + contents.bytes / 1_000_000 + contents.files / 500)
}

/// Percent of what the cables carry of files.
fn percent_of_theory(bytes: u64, wall: Duration, cables: &Cables) -> f64 {
    100.0 * bytes as f64 * 8.0 / wall.as_secs_f64() / cables.theory().unwrap_or(f64::NAN)
}

/// A path as an argument of a command of which all arguments are text.
fn as_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| format!("the path is not UTF-8: {path:?}").into())
}

/// A row that ends where its values end.
fn cells(values: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    values.into_iter().map(Into::into).collect()
}

/// What the cases return.
type Figures = Result<Table>;
