//! What the benches share: the two hosts, the programs that are compared on them, what is measured of each, and how it is printed.
//!
//! [`arguments`] is what one may type, [`cables`] what joins the hosts, [`place`] where the files are and [`sample`] the file to copy;
//! [`scene`] puts these together. [`contender`] tells how nicstripe and each rival is started, [`daemon`] starts nicstripe's and waits
//! until it listens, [`process`] watches over what was started, [`copy`] measures one copy and [`comparison`] many. What is no single file
//! is measured on a [`stage`], and [`tree`] makes and compares trees. [`ballast`] keeps memory warm for them. [`spread`] and [`table`]
//! print.
//!
//! All benches run in a lab (nicstripe-lab) with the real `serve` and `cp`. They fail when a copy is wrong, never for speed: that is for
//! a reader to judge, who sees the bar beside the value.
//!
//! # CPU
//!
//! CPU time is user and system time of a program and its descendants, from `/proc/PID/stat`, which cuts each number to 10 ms: a copy of
//! 2 GiB appears to cost up to 0.02 s/GB less than it does, small ones mean little. What the kernel does in the context of nobody (ksoftirqd)
//! shows in the column "others", with all else that the machine did meanwhile: where it is far from 0, measure again.

// Each bench is a crate of its own and uses a part of this.
#![allow(dead_code, unused_imports)]

mod arguments;
mod ballast;
mod cables;
mod comparison;
mod contender;
mod copy;
mod daemon;
mod place;
mod process;
mod sample;
mod scene;
mod spread;
mod stage;
mod table;
mod tree;

use std::process::ExitCode;

use clap::Parser as _;

pub(crate) use self::{
    arguments::{CommandLine, Copies, Way, parse_size},
    cables::Cables,
    comparison::{Comparison, Series},
    contender::{Contender, CpReport, LinkReport, NICSTRIPE, TreeReport, as_nicstripe, cp, serve},
    copy::{Copied, Watch, measure, measure_watched, time_limit},
    daemon::{LISTENING, serve_in, start_daemon, start_daemon_as},
    place::Place,
    process::{Peak, Process, busy},
    sample::{Sample, gib},
    scene::{Rights, Scene},
    spread::Spread,
    stage::{Measured, Stage},
    table::Table,
    tree::{Contents, Shape, differences, is_installed},
};

/// What went wrong, as a sentence for whoever runs the bench.
pub(crate) type Error = Box<dyn std::error::Error>;

/// The result of a step of a bench.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Runs a bench: gains the rights for a lab, reads the command line, and turns an error into an exit code.
///
/// Without `--bench`, which `cargo bench` passes and `cargo test --all-targets` does not, nothing is measured.
pub(crate) fn run<A: clap::Args>(bench: impl FnOnce(A) -> Result<()>) -> ExitCode {
    let CommandLine { arguments, bench: is_wanted } = CommandLine::<A>::parse();
    if !is_wanted {
        println!("nothing measured: run it by `cargo bench`, or with --bench");
        return ExitCode::SUCCESS;
    }
    // First of all: a process with threads may not enter a user namespace.
    match nicstripe_lab::gain_access().map_err(Error::from).and_then(|()| bench(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", nicstripe::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Describes machine and programs, for the line above a table.
pub(crate) fn circumstances(contenders: &[Contender]) -> String {
    let kernel = rustix::system::uname();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let versions: Vec<String> = contenders.iter().map(|contender| contender.version()).collect();
    format!("Linux {}, {cpus} CPUs for both hosts; {}", kernel.release().to_string_lossy(), versions.join(", "))
}
