//! Shared parts of the benches: the two hosts, the compared programs, measurements and output.
//!
//! `arguments` has command-line arguments, `cables` the cables, `place` the folders and `sample`
//! the file to copy; a `scene` combines them. `contender` has the commands of nicstripe and each
//! rival, `daemon` starts nicstripe's daemon and waits until it listens, `process` supervises the
//! processes, `copy` measures one copy, and `comparison` measures many. A `stage` measures any
//! other command, and `tree` creates and compares trees. `ballast` avoids page faults of the
//! virtual machine. `spread` and `table` print.
//!
//! All benches run in a lab (nicstripe-lab) with the real `serve` and `cp`. A bench fails if a copy
//! is wrong, but never because it is slow: the output shows the threshold next to the value.
//!
//! # CPU
//!
//! CPU time is the user and system time of a program and its descendants, from `/proc/PID/stat`,
//! which truncates each number to 10 ms. A copy of 2 GiB therefore appears up to 0.02 s/GB cheaper
//! than it is; numbers of small copies mean little. Kernel work outside any process (ksoftirqd) is
//! in the column "others", with all other load on the machine. Repeat the measurement if "others"
//! is far from 0.

mod arguments;
mod ballast;
mod cables;
mod comparison;
mod contender;
mod copy;
mod daemon;
mod error;
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

pub use self::{
    arguments::{CommandLine, Copies, Way, parse_size},
    cables::Cables,
    comparison::{Comparison, Series, failed, verdict},
    contender::{
        Contender, CpReport, LISTENING, LinkReport, NGINX_PORT, TreeReport, as_nicstripe, cp,
        nginx, serve, sshd_in,
    },
    copy::{Copied, Watch, measure, measure_watched, time_limit},
    daemon::{serve_in, start_daemon, start_daemon_as},
    error::{Error, Result},
    place::Place,
    process::{Peak, Process, busy},
    sample::{Sample, gib},
    scene::{Rights, Scene},
    spread::Spread,
    stage::{Measured, Stage},
    table::{Cell, Table, cell},
    tree::{Contents, Shape},
};

/// Runs a bench: gains the rights for a lab, parses the command line, and converts an error to an
/// exit code.
///
/// Returns without a measurement unless `--bench` is given, which `cargo bench` passes and `cargo
/// test --all-targets` does not.
pub fn run<A: clap::Args>(bench: impl FnOnce(A) -> Result<()>) -> ExitCode {
    let CommandLine {
        arguments,
        bench: is_wanted,
    } = CommandLine::<A>::parse();
    if !is_wanted {
        println!("nothing measured: run it by `cargo bench`, or with --bench");
        return ExitCode::SUCCESS;
    }
    // Must come first: a process with several threads cannot enter a user namespace.
    match nicstripe_lab::gain_access()
        .map_err(Error::from)
        .and_then(|()| bench(arguments))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", nicstripe::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Formats the kernel version, the number of CPUs and the program versions, for the line above a
/// table.
pub fn circumstances(contenders: &[Contender]) -> String {
    let kernel = rustix::system::uname();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let versions: Vec<String> = contenders
        .iter()
        .map(|contender| contender.version())
        .collect();
    format!(
        "Linux {}, {cpus} CPUs for both hosts; {}",
        kernel.release().to_string_lossy(),
        versions.join(", ")
    )
}
