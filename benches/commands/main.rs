//! Commands at a peer over shaped cables: rates of `nicstripe exec`, and faults at random moments.
//!
//! `cargo bench --bench commands -- --case out,in,rsync,borg,kill-client,kill-daemon,kill-command,cut,stop
//! --size 2G --runs 3 --links 2 --attempts 100 --seed 1`
//!
//! | case | measured |
//! | --- | --- |
//! | out | `exec PEER -- dd if=FILE` into a file here |
//! | in | `exec PEER -- dd of=FILE` from a file here |
//! | rsync | `rsync -e 'nicstripe exec'` over all cables, and `rsync -e ssh` over the first one |
//! | borg | `borg create --rsh 'nicstripe exec'` and `--rsh ssh` likewise, without compression and encryption |
//! | kill-client, kill-daemon, kill-command | SIGKILL of the client, of the daemon (which is started again), of the command |
//! | cut | both cables are cut for 5 s |
//! | stop | client, daemon and command in turn get no CPU for 20 s (SIGSTOP) |
//!
//! Rates are of the whole command, in percent of the cables' theoretical goodput, and source and
//! target are in memory. A fault strikes `--attempts` commands, of which ten run at a time. Each is
//! `exec PEER -- tee COPY`, from a file into a file. After it, the bench fails if the exit code is 0
//! and a byte is missing in the copy or the output, if either is no prefix of the input, or if a
//! process of the command is left 5 s after the end of the client.
#![forbid(unsafe_code)]

mod faults;
mod rates;

use std::{fs, process::ExitCode};

use clap::Args;
use nicstripe_lab::Host;
use nicstripe_testkit::bench::{Cables, Contender, Place, Result, circumstances, parse_size};

#[derive(Debug, Args)]
struct Arguments {
    /// Cases to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "out,in,rsync,borg,kill-client,kill-daemon,kill-command,cut,stop"
    )]
    case: Vec<Case>,

    /// Bytes that a measured command carries
    #[arg(long, default_value = "2G", value_parser = parse_size)]
    size: u64,

    /// Number of measured runs per case
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Cables: a number of cables of 1 Gbit/s, or their rates in Mbit/s
    #[arg(long, default_value = "2")]
    links: Cables,

    /// Number of commands that a fault strikes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,

    /// Seed of the moments at which faults strike
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    Out,
    In,
    Rsync,
    Borg,
    KillClient,
    KillDaemon,
    KillCommand,
    Cut,
    Stop,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let (rates, faults): (Vec<Case>, Vec<Case>) = arguments
        .case
        .iter()
        .partition(|case| matches!(case, Case::Out | Case::In | Case::Rsync | Case::Borg));
    println!("{}", circumstances(&[Contender::Nicstripe]));
    if !rates.is_empty() {
        println!("\n{}", rates::bench(&arguments, &rates)?);
    }
    if !faults.is_empty() {
        println!("\n{}", faults::bench(&arguments, &faults)?);
    }
    Ok(())
}

/// Creates the folders of both hosts, in memory. Host A may run every command on host B.
fn place(room: u64) -> Result<Place> {
    let place = Place::in_memory(room)?;
    let peers = place.home(Host::B).peers_file();
    let line = fs::read_to_string(&peers)?;
    fs::write(&peers, format!("exec=* {line}"))?;
    Ok(place)
}
