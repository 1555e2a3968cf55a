//! Cost of faults: a cable that is cut, goes silent, loses frames, corrupts them, flaps or slows
//! down; machines that reboot or stop; a stalled disk; all cables lost; little memory.
//!
//! `cargo bench --bench faults -- --case cut,silent,oneway-there,oneway-back,loss,heal,flap,slow
//! --size 1G --runs 3 --direction put,get`
//!
//! | case | event | value and threshold |
//! | --- | --- | --- |
//! | none | none | s over ideal |
//! | cut | the second cable loses its carrier at half of the file | ≤ 0.5 s over ideal on the other cable |
//! | silent, oneway-there, oneway-back | the second cable silently drops all frames at half: in both directions, the data, the acknowledgements | ≤ 1.5 s |
//! | loss | the second cable drops 0.5 % of the frames, in both directions, from the start | ≥ 98 % of both cables' goodput |
//! | heal | the second cable is cut for 2 s; the file is twice `--size` | data on it ≤ 2 s later, the other's rate dips ≤ 5 % |
//! | flap | the second cable is cut and healed repeatedly, a second each | ≤ 0.5 s over ideal on the other cable |
//! | slow | the second cable's rate falls to 1 % at half | ≤ 0.5 s over ideal on the rest |
//! | corrupt | both cables corrupt data in a way that TCP does not detect, until 1,000 frames are corrupted; 8 connections each | every copy is correct |
//! | reboot-daemon, reboot-client | all traffic of the machine is dropped, the process is killed, and returns 3 s later | s over ideal |
//! | stop-daemon, stop-client | the process gets no CPU for 5 s (SIGSTOP) | s over ideal |
//! | dark | both cables are cut for 60 s | ≤ 2 s over ideal |
//! | stall | the receiver's disk stalls for 30 s (fsfreeze) | full rate again ≤ 1 s later; no connection is abandoned, memory stays constant |
//! | opposite | two interfaces of each machine at one switch; one end of each of the two links is cut at half | ≤ 2 s over ideal |
//! | crossed | like opposite, then both ends are plugged in again, so that the pairs cross; then a cable of each machine is cut; the file is twice `--size` | ≤ 2 s |
//! | strangers | 10,000 strangers connect to the daemon again and again | ≥ 95 % of both cables' goodput, a new client in ≤ 1 s |
//! | narrow | 4 cables, client and daemon each in a memory cgroup of 128 MiB, files on a disk | the copy succeeds |
//!
//! The ideal time ends when the remaining cables, counted from the last event, could have carried
//! the rest of the file at their theoretical goodput. All cables are gigabit cables. Fails if a
//! copy is wrong or does not end, or if a connection is abandoned because of a stall. The output
//! marks a missed threshold of speed or memory. Cases that the kernel or machine does not support
//! (eBPF, a loop device, fsfreeze, a memory cgroup) are skipped, with the reason.
#![forbid(unsafe_code)]

mod cases;
mod disk;
mod play;
mod strangers;

use std::process::ExitCode;

use clap::Args;
use nicstripe_testkit::bench::{
    Cell, Contender, Copies, Result, Spread, Table, Way, cell, circumstances, parse_size, verdict,
};

use crate::cases::{Case, Outcome};

#[derive(Debug, Args)]
struct Arguments {
    /// Size of the file in bytes
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    size: u64,

    #[command(flatten)]
    copies: Copies,

    /// Faults to inject
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Case::ALL)]
    case: Vec<Case>,

    /// Additional options of `nicstripe cp`, as one word: --options=--streams=4
    #[arg(long, value_delimiter = ' ')]
    options: Vec<String>,
}

fn main() -> ExitCode {
    if let Some(strangers) = strangers::Strangers::of_this_process() {
        return strangers.play();
    }
    // In a separate mount namespace, so that the mounts are private and end with the process.
    disk::enter_own_mounts();
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let mut table = Table::default();
    let mut failures = Vec::new();
    for case in &arguments.case {
        if let Some(obstacle) = case.obstacle() {
            println!("{} skipped: {obstacle}", case.name());
            continue;
        }
        for way in &arguments.copies.direction {
            match cases::run(
                *case,
                *way,
                arguments.size,
                arguments.copies.runs,
                &arguments.options,
            ) {
                Ok(runs) => table.row(row(*case, *way, &runs)),
                Err(error) => {
                    let failure = format!("{}, {}: {error}", case.name(), way.name());
                    eprintln!("{failure}");
                    failures.push(failure);
                    table.row([
                        cell("case", case.name()),
                        cell("way", way.name()),
                        cell("s over ideal", "FAILED"),
                    ]);
                }
            }
        }
    }
    let size = arguments.size >> 20;
    println!("\n{}", circumstances(&[Contender::Nicstripe]));
    println!(
        "{size} MiB; median (least–greatest), {} runs each; all copies checked byte by byte.\n\n{table}",
        arguments.copies.runs
    );
    verdict(&failures)
}

fn row(case: Case, way: Way, runs: &[Outcome]) -> [Cell; 11] {
    let over = Spread::of(runs, |run| run.over_ideal);
    let marked = |text: String, missed: bool| {
        if missed {
            format!("{text} MISSED")
        } else {
            text
        }
    };
    let over_bar = case.over_bar();
    let also = case.also().iter().enumerate().map(|(index, also)| {
        let value = Spread::of(runs, |run| run.also.get(index).copied().unwrap_or(f64::NAN));
        let missed = !also.is_met_by(value.median());
        [
            marked(value.print(also.decimals), missed),
            also.bar(),
            also.of_it.to_owned(),
        ]
    });
    let also: Vec<[String; 3]> = also.collect();
    let [value, bar, of_it] = [0, 1, 2].map(|column| {
        let cells = also.iter().map(|cells| cells[column].as_str());
        cells.collect::<Vec<_>>().join("; ")
    });
    let memory_bar = case.memory_bar();
    let [client, daemon] = [0, 1].map(|end| {
        let peak = Spread::of(runs, |run| run.peaks[end].resident as f64 / MIB);
        marked(peak.print(1), peak.median() > memory_bar)
    });
    let is_late = over_bar.is_some_and(|bar| over.median() > bar);
    let over_bar = over_bar.map(|bar| format!("≤ {bar}"));
    let failovers = Spread::of(runs, |run| run.failovers as f64);
    [
        cell("case", case.name()),
        cell("way", way.name()),
        cell("s over ideal", marked(over.print(2), is_late)),
        cell("bar", over_bar.unwrap_or_default()),
        cell("also", value),
        cell("bar", bar),
        cell("of it", of_it),
        cell("connections lost", failovers.print(0)),
        cell("client, MiB", client),
        cell("daemon, MiB", daemon),
        cell("memory bar", format!("≤ {memory_bar}")),
    ]
}

const MIB: f64 = 1_048_576.0;
