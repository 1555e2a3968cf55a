//! Power cuts, simulated: what the disk has then of the files whose copy was acknowledged, and of what the journals claim.
//!
//! `cargo bench --bench powercuts -- --cuts 1000 --control 100 --fs ext4,xfs,btrfs --seed 1`
//!
//! A daemon and clients receive files and trees of many kinds, side by side, on a file system whose disk is this program: it logs each
//! write and each flush. Then the log is cut at a random place or right behind an acknowledgement, the disk is made what it may be when
//! its power fails there (all that was written before the last flush, and of the writes after it none, the first, or any half), and the
//! file system is mounted again. Looked for, of all names there ever were:
//!
//! - lost: a copy was acknowledged (`cp` had ended with code 0) and is gone, or what it replaced is back;
//! - wrong: what has the name of an acknowledged copy was never copied there;
//! - partial: the same while it was being copied or replaced, but for `--inplace`;
//! - false claim: a journal says that chunks are durable, and by their hash values the hidden file does not have them.
//!
//! Now and then, and where journals claim something, the copies that the cut interrupted are run again on that disk: they must succeed,
//! and leave what they should.
//!
//! The control is the same with a receiver whose syncs do nothing (by strace(1)): it must lose something in 30 % of the cuts at least,
//! else this would find nothing. `--skip fsync,fdatasync,syncfs` shows what each of these is needed for.
//!
//! Only root may do this: it mounts, in namespaces of its own, with loop devices and FUSE, all of which vanish with it. Fails when
//! anything is lost, wrong, partial or claimed falsely, when a copy that is run again fails, and when the control does not.
#![forbid(unsafe_code)]

#[path = "../bench_support/mod.rs"]
mod bench_support;
mod cuts;
mod disk;
mod history;
mod inspection;
mod namespaces;
mod room;
mod volume;
mod workload;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use bench_support::{CommandLine, Contender, Place, Result, Table, circumstances, parse_size};
use clap::{Args, Parser};
use nicstripe_sim::Rng;

use self::{
    cuts::{Outcome, Plan},
    room::{Room, Skipped},
    volume::Kind,
    workload::Amount,
};

#[derive(Debug, Args)]
struct Arguments {
    /// Power cuts on each file system
    #[arg(long, default_value_t = 1000)]
    cuts: u32,

    /// Power cuts of the control on each file system; 0 for none
    #[arg(long, default_value_t = 100)]
    control: u32,

    /// Which syncs the controls skip; the bar is that of all
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    skip: Vec<Skipped>,

    /// The file systems
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ext4,xfs,btrfs")]
    fs: Vec<Kind>,

    /// What is copied, and where the power fails; when is not the same twice
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Power cuts in what was logged once
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    per_log: u32,

    /// What was interrupted is run again after every so many cuts, and where a journal claims something; 0 for never
    #[arg(long, default_value_t = 10)]
    again: usize,

    /// Bytes on the disk after which no further copy begins
    #[arg(long, default_value = "96M", value_parser = parse_size)]
    log: u64,

    /// Seconds after which none begins either
    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// Copy one of each kind each time, instead of many at random
    #[arg(long)]
    each_once: bool,

    /// What the bench passes to itself in its namespaces
    #[arg(long, hide = true)]
    within: Option<PathBuf>,
}

fn main() -> ExitCode {
    let CommandLine { arguments, bench: is_wanted } = CommandLine::<Arguments>::parse();
    if !is_wanted {
        println!("nothing measured: run it by `cargo bench`, or with --bench");
        return ExitCode::SUCCESS;
    }
    let result = match &arguments.within {
        None => in_namespaces(&arguments),
        Some(base) => bench(&arguments, &Room::at(base)),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", nicstripe::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Runs this program again where no mount outlives it.
fn in_namespaces(arguments: &Arguments) -> Result<ExitCode> {
    let strace = (arguments.control > 0).then_some("strace");
    if let Some(obstacle) = namespaces::obstacle(&arguments.fs, strace) {
        return Err(format!("no power can be cut here: {obstacle}").into());
    }
    // Log, image, what differs from it, sources, and as much to spare.
    let place = Place::in_memory(arguments.log * 6)?;
    let mut command = namespaces::command(&std::env::current_exe()?);
    let status = command.args(std::env::args_os().skip(1)).arg("--within").arg(place.base()).status();
    let status = status.map_err(|error| format!("cannot start setpriv: {error}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn bench(arguments: &Arguments, room: &Room) -> Result<ExitCode> {
    let until = Amount::Until { bytes: arguments.log, time: Duration::from_secs(arguments.seconds) };
    let amount = if arguments.each_once { Amount::EachOnce } else { until };
    let mut rng = Rng::new(arguments.seed);
    let mut table = Table::new(&HEADINGS);
    let mut failures = Vec::new();
    for kind in &arguments.fs {
        let controls = arguments.skip.iter().map(|skipped| (*skipped, arguments.control));
        for (skipped, cuts) in controls.chain([(Skipped::None, arguments.cuts)]).filter(|(_, cuts)| *cuts > 0) {
            let again_every = if skipped == Skipped::None { arguments.again } else { 0 };
            let plan = Plan { room, kind: *kind, skipped, cuts, per_log: arguments.per_log, amount, again_every };
            let outcome = plan.carry_out(&mut rng)?;
            failures.extend(failures_of(&plan, &outcome));
            table.row(row(&plan, &outcome));
        }
    }
    println!("\n{}; seed {}\n\n{table}", circumstances(&[Contender::Nicstripe]), arguments.seed);
    for failure in &failures {
        eprintln!("error: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn failures_of(plan: &Plan<'_>, outcome: &Outcome) -> Vec<String> {
    let of = format!("of {} power cuts on {}", outcome.cuts, plan.kind);
    match plan.skipped {
        Skipped::None => {
            let shown = outcome.findings.notes.iter().take(MOST_SHOWN);
            shown.cloned().chain((outcome.bad_cuts > 0).then(|| format!("{} {of} show a fault", outcome.bad_cuts))).collect()
        }
        Skipped::All if outcome.bad_share() < LEAST_BAD_SHARE => {
            vec![format!("without syncs only {} {of} show a fault", outcome.bad_cuts)]
        }
        _ => Vec::new(),
    }
}

const HEADINGS: [&str; 14] = [
    "file system",
    "syncs skipped",
    "cuts",
    "blocks lost",
    "acknowledged names checked",
    "lost",
    "wrong",
    "partial",
    "chunks claimed by journals",
    "false claims",
    "copies run again",
    "failed",
    "kept of it, MiB",
    "cuts with a fault",
];

fn row(plan: &Plan<'_>, outcome: &Outcome) -> Vec<String> {
    let Outcome { cuts, findings, .. } = outcome;
    let numbers = [
        findings.acknowledged,
        findings.lost,
        findings.wrong,
        findings.partial,
        findings.claimed,
        findings.false_claims,
        outcome.again,
        outcome.again_failed,
        outcome.kept >> 20,
    ];
    let syncs = match plan.skipped {
        Skipped::None => "none".to_owned(),
        Skipped::All => "all; bar ≥ 30 %".to_owned(),
        some => some.calls().to_owned(),
    };
    let mut row = vec![plan.kind.to_string(), syncs, cuts.to_string(), format!("{} of {}", outcome.blocks[0], outcome.blocks[1])];
    row.extend(numbers.map(|number| number.to_string()));
    row.push(format!("{} ({:.1} %)", outcome.bad_cuts, 100.0 * outcome.bad_share()));
    row
}

/// Part of the control's cuts that must show a fault.
const LEAST_BAD_SHARE: f64 = 0.3;

/// Faults that are told one by one.
const MOST_SHOWN: usize = 10;
