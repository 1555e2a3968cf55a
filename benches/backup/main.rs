//! Test and measurement of the backup tool in `examples/` with a large tree: traffic of a second
//! backup, restore, and kills.
//!
//! `cargo bench --bench backup -- --size 5G --kills 50`
//!
//! Two gigabit cables join two hosts; files are in memory. The bench backs up a tree, rewrites one
//! file in a hundred, backs up the tree again and restores it. Before each kill, the bench rewrites
//! one file in a hundred. It then kills the tool, or in every third round the tool's daemon, at a
//! random moment of the next backup. The repository must be intact after each kill, and a backup
//! whose daemon was killed must succeed. At the end, the last tree is restored from the surviving
//! repository.
//!
//! Fails if a step fails or restored data differs. Also fails if the second backup sends more than
//! two percent of the tree, by the cables' counters.
#![forbid(unsafe_code)]

mod tree;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use clap::Args;
use nicstripe_lab::{Host, LinkSpec};
use nicstripe_testkit::{
    bench::{
        Cables, Contender, Measured, Place, Process, Result, Stage, Table, circumstances,
        differences, parse_size, time_limit,
    },
    program,
};

use self::tree::{Tree, random};

#[derive(Debug, Args)]
struct Arguments {
    /// Size of the source tree in bytes, in files of 1 MiB without repeated content
    #[arg(long, default_value = "5G", value_parser = parse_size)]
    size: u64,

    /// Number of kills during backups
    #[arg(long, default_value_t = 50)]
    kills: u32,

    /// Seed of the random kill times
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

fn main() -> std::process::ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    build_example()?;
    let rounds = 2 + u64::from(arguments.kills);
    // The tree, its backup and the restored tree.
    let place = Place::in_memory(3 * arguments.size + arguments.size * rounds / 100)?;
    let tree = Tree::plant(&place.files(Host::A).join(SOURCE), arguments.size)?;
    let mut bench = Bench {
        stage: Stage::build(
            &Cables::of("2", [LinkSpec::gigabit(); 2]),
            &place,
            Contender::Nicstripe,
        )?,
        place: &place,
        tree,
    };
    let mut table = Table::new(&["step", "s", "cables MiB", "% of the tree", "the tool says"]);
    bench.step(&mut table, "init", &["init"])?;
    bench.step(&mut table, "first backup", &["backup"])?;
    bench.tree.change(1)?;
    let second = bench.step(&mut table, "1 % changed, second backup", &["backup"])?;
    bench.restore(&mut table, "restore")?;
    let killed = bench.kill_often(&arguments, second.wall)?;
    bench.step(&mut table, "backup after all kills", &["backup"])?;
    bench.step(&mut table, "check --read-data", &["check", "--read-data"])?;
    bench.restore(&mut table, "restore after all kills")?;
    println!("\n{}", circumstances(&[Contender::Nicstripe]));
    println!("{table}");
    println!(
        "{killed} of {} kills hit a running backup (--seed {}); the repository was intact after each.",
        arguments.kills, arguments.seed
    );
    let share = second.wire_bytes() as f64 / arguments.size as f64;
    if share > MOST_AFTER_CHANGE {
        return Err(format!(
            "the second backup sent {:.2} % of the tree, expected at most {:.0} %",
            100.0 * share,
            100.0 * MOST_AFTER_CHANGE
        )
        .into());
    }
    Ok(())
}

/// Setup of the bench: source tree on host A, repository on host B.
struct Bench<'a> {
    stage: Stage<'a>,
    place: &'a Place,
    tree: Tree,
}

impl Bench<'_> {
    /// Runs the backup tool with the arguments `words`. Adds a table row with time, traffic and the
    /// last line of output.
    fn step(&self, table: &mut Table, name: &str, words: &[&str]) -> Result<Measured> {
        let measured = self
            .stage
            .measure(self.tool(words), time_limit(4 * self.tree.size()))?;
        let carried = measured.wire_bytes() as f64;
        table.row([
            name.to_owned(),
            format!("{:.2}", measured.wall.as_secs_f64()),
            format!("{:.1}", carried / f64::from(1 << 20)),
            format!("{:.2}", 100.0 * carried / self.tree.size() as f64),
            measured
                .output
                .lines()
                .last()
                .unwrap_or_default()
                .split_once(": ")
                .map_or("", |(_, said)| said)
                .to_owned(),
        ]);
        eprintln!("{name}: {:.2} s", measured.wall.as_secs_f64());
        Ok(measured)
    }

    /// Restores the latest backup into a temporary folder and compares it with the source tree.
    fn restore(&self, table: &mut Table, name: &str) -> Result<()> {
        let folder = self.place.base().join("restored");
        self.step(
            table,
            name,
            &[
                "restore",
                "latest",
                folder.to_str().ok_or("the folder's name is not UTF-8")?,
            ],
        )?;
        let found = differences(self.tree.root(), &folder)?;
        std::fs::remove_dir_all(&folder)?;
        if found.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "restored data differs from the backup: {}",
                found.join("; ")
            )
            .into())
        }
    }

    /// Kills the tool or the daemon at random moments of backups, and checks the repository after
    /// each kill. Returns the number of kills that hit an incomplete backup.
    fn kill_often(&mut self, arguments: &Arguments, whole: Duration) -> Result<u32> {
        let mut hits = 0;
        for round in 0..arguments.kills {
            let wrong = |error| format!("kill {round} of --seed {}: {error}", arguments.seed);
            self.tree.change(round + 2)?;
            let begun = Instant::now();
            let mut backup = Process::spawn(self.tool(&["backup"]), "backup", &self.place.logs())?;
            let moment = whole.mul_f64(f64::from(random(arguments.seed, round) % 1000) / 1000.0);
            hits += u32::from(!backup.has_ended_within(moment)?);
            if round % 3 == 2 {
                self.stage.restart_daemon()?;
                backup.await_end(Instant::now() + time_limit(self.tree.size()))?;
                backup.succeeded().map_err(wrong)?;
            } else {
                backup.kill()?;
            }
            let ended = begun.elapsed();
            self.stage
                .measure(self.tool(&["check"]), time_limit(self.tree.size()))
                .map_err(wrong)?;
            eprintln!(
                "kill {round}: at {:.2} s, ended at {:.2} s, checked at {:.2} s",
                moment.as_secs_f64(),
                ended.as_secs_f64(),
                begun.elapsed().as_secs_f64()
            );
        }
        Ok(hits)
    }

    fn tool(&self, words: &[&str]) -> Command {
        let mut command = self.stage.lab.command(Host::A, example());
        command
            .env("NICSTRIPE_HOME", self.place.home(Host::A).config())
            .current_dir(self.place.files(Host::A));
        command.arg(words[0]).arg(self.stage.remote("repository"));
        command
            .args((words[0] == "backup").then_some(SOURCE))
            .args(&words[1..]);
        command
    }
}

/// Builds the backup example, because `cargo bench` does not build `examples/`.
fn build_example() -> Result<()> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let mut cargo = nicstripe_testkit::cargo();
    let status = cargo
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--example",
            "backup",
            "--manifest-path",
        ])
        .arg(manifest)
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err("the example cannot be built".into())
    }
}

/// Returns the path of the backup example's executable.
fn example() -> PathBuf {
    Path::new(program())
        .with_file_name("examples")
        .join("backup")
}

/// Name of the source tree in host A's folder.
const SOURCE: &str = "source";

/// Maximum share of the tree that a second backup may send after one file in a hundred has changed.
const MOST_AFTER_CHANGE: f64 = 0.02;
