//! Simulated power cuts: checks the files of acknowledged copies and the records of the journals.
//!
//! `cargo bench --bench powercuts -- --cuts 1000 --control 100 --fs ext4,xfs,btrfs --seed 1`
//!
//! A daemon and clients concurrently receive files and trees of many kinds, on a file system with a
//! simulated disk. This program simulates the disk and logs each write and flush. The bench then
//! cuts the log at a random position or right after an acknowledgement. It gives the disk a content
//! that a power failure at that position may leave: all writes before the last flush, and of the
//! later writes none, the first ones, or a random half. It mounts the file system again and checks
//! all paths that ever existed for these violations:
//!
//! - lost: an acknowledged copy (`cp` had exited with code 0) is missing, or the replaced file has
//!   reappeared;
//! - wrong: the path of an acknowledged copy has content that was never copied to it;
//! - partial: wrong content while it was being copied or replaced, except with `--inplace`;
//! - false claim: a journal records chunks as durable that the part file does not have, by their
//!   hashes.
//!
//! The interrupted copies are rerun on that disk after every few cuts, and after each cut with a
//! journal that records durable chunks. The reruns must succeed with the correct result.
//!
//! The control is a receiver whose syncs do nothing, by strace(1). At least 30 % of the control's
//! cuts must show a violation; otherwise the bench could not detect a loss. `--skip
//! fsync,fdatasync,syncfs` shows the purpose of each call.
//!
//! Requires root, because the bench mounts file systems with loop devices and FUSE. The mounts are
//! in private namespaces and disappear when the bench exits. Fails on any violation, if a rerun
//! fails, or if the control shows too few violations.
#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser};
use nicstripe_sim::Rng;
use nicstripe_testkit::{
    bench::{Cell, CommandLine, Contender, Place, Result, Table, cell, circumstances, parse_size},
    powercuts::{
        cuts::{Outcome, Plan},
        namespaces,
        room::{Room, Skipped},
        volume::Kind,
        workload::Amount,
    },
};

#[derive(Debug, Args)]
struct Arguments {
    /// Number of power cuts per file system
    #[arg(long, default_value_t = 1000)]
    cuts: u32,

    /// Number of power cuts of the control per file system; 0 for none
    #[arg(long, default_value_t = 100)]
    control: u32,

    /// Sync calls that each control skips; only `all` has a threshold
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    skip: Vec<Skipped>,

    /// File systems to test
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "ext4,xfs,btrfs"
    )]
    fs: Vec<Kind>,

    /// Seed of the copies and the cut positions; timing still varies
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Number of power cuts per recorded log
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    per_log: u32,

    /// Interval, in cuts, at which interrupted copies are rerun, in addition to cuts where a
    /// journal claims durable chunks; 0 for never
    #[arg(long, default_value_t = 10)]
    again: usize,

    /// Bytes written to the disk after which no new copy starts
    #[arg(long, default_value = "96M", value_parser = parse_size)]
    log: u64,

    /// Seconds of recording after which no new copy starts
    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// Make one copy of each kind per log, instead of many at random
    #[arg(long)]
    each_once: bool,

    /// Folder that the bench passes to itself in its namespaces
    #[arg(long, hide = true)]
    within: Option<PathBuf>,
}

fn main() -> ExitCode {
    let CommandLine {
        arguments,
        bench: is_wanted,
    } = CommandLine::<Arguments>::parse();
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

/// Reruns this program in new mount and PID namespaces. All mounts disappear when the program
/// exits.
fn in_namespaces(arguments: &Arguments) -> Result<ExitCode> {
    let strace = (arguments.control > 0).then_some("strace");
    if let Some(obstacle) = namespaces::obstacle(&arguments.fs, strace) {
        return Err(format!("cannot cut power: {obstacle}").into());
    }
    // Log, image, overlay, sources, and a reserve of the same size.
    let place = Place::in_memory(arguments.log * 6)?;
    let mut command = namespaces::command(&std::env::current_exe()?);
    let status = command
        .args(std::env::args_os().skip(1))
        .arg("--within")
        .arg(place.base())
        .status();
    let status = status.map_err(|error| format!("cannot start setpriv: {error}"))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn bench(arguments: &Arguments, room: &Room) -> Result<ExitCode> {
    let until = Amount::Until {
        bytes: arguments.log,
        time: Duration::from_secs(arguments.seconds),
    };
    let amount = if arguments.each_once {
        Amount::EachOnce
    } else {
        until
    };
    let mut rng = Rng::new(arguments.seed);
    let mut table = Table::default();
    let mut failures = Vec::new();
    for kind in &arguments.fs {
        let controls = arguments
            .skip
            .iter()
            .map(|skipped| (*skipped, arguments.control));
        for (skipped, cuts) in controls
            .chain([(Skipped::None, arguments.cuts)])
            .filter(|(_, cuts)| *cuts > 0)
        {
            let again_every = if skipped == Skipped::None {
                arguments.again
            } else {
                0
            };
            let plan = Plan {
                room,
                kind: *kind,
                skipped,
                cuts,
                per_log: arguments.per_log,
                amount,
                again_every,
            };
            let outcome = plan.carry_out(&mut rng)?;
            failures.extend(failures_of(&plan, &outcome));
            table.row(row(&plan, &outcome));
        }
    }
    println!(
        "\n{}; seed {}\n\n{table}",
        circumstances(&[Contender::Nicstripe]),
        arguments.seed
    );
    for failure in &failures {
        eprintln!("error: {failure}");
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn failures_of(plan: &Plan<'_>, outcome: &Outcome) -> Vec<String> {
    let of = format!("of {} power cuts on {}", outcome.cuts, plan.kind);
    match plan.skipped {
        Skipped::None => {
            let shown = outcome.findings.notes.iter().take(MOST_SHOWN);
            shown
                .cloned()
                .chain(
                    (outcome.bad_cuts > 0)
                        .then(|| format!("{} {of} show a fault", outcome.bad_cuts)),
                )
                .collect()
        }
        Skipped::All if outcome.bad_share() < LEAST_BAD_SHARE => {
            vec![format!(
                "without syncs only {} {of} show a fault",
                outcome.bad_cuts
            )]
        }
        _ => Vec::new(),
    }
}

fn row(plan: &Plan<'_>, outcome: &Outcome) -> [Cell; 14] {
    let Outcome { cuts, findings, .. } = outcome;
    let syncs = match plan.skipped {
        Skipped::None => "none".to_owned(),
        Skipped::All => "all; bar ≥ 30 %".to_owned(),
        some => some.calls().to_owned(),
    };
    let with_fault = format!(
        "{} ({:.1} %)",
        outcome.bad_cuts,
        100.0 * outcome.bad_share()
    );
    let [lost, all] = outcome.blocks;
    [
        cell("file system", plan.kind),
        cell("syncs skipped", syncs),
        cell("cuts", cuts),
        cell("blocks lost", format!("{lost} of {all}")),
        cell("acknowledged names checked", findings.acknowledged),
        cell("lost", findings.lost),
        cell("wrong", findings.wrong),
        cell("partial", findings.partial),
        cell("chunks in journals", findings.claimed),
        cell("false claims", findings.false_claims),
        cell("copies rerun", outcome.again),
        cell("failed", outcome.again_failed),
        cell("resumed, MiB", outcome.kept >> 20),
        cell("cuts with a fault", with_fault),
    ]
}

/// Minimum share of the control's cuts that must show a violation, 0 to 1.
const LEAST_BAD_SHARE: f64 = 0.3;

/// Maximum number of printed violations.
const MOST_SHOWN: usize = 10;
