//! Start of `nicstripe serve`, including the wait until the daemon listens.

use std::{path::Path, process::Command};

use nicstripe_lab::{Host, Lab};

use super::{
    contender::{LISTENING, as_daemon},
    error::Result,
    place::Place,
    process::Process,
};
use crate::program;

/// Starts the daemon of host B in a lab, as root, and waits until the daemon listens.
pub fn serve_in(lab: &Lab, place: &Place) -> Result<Process> {
    start_daemon(as_daemon(lab.command(Host::B, program()), place), place)
}

/// Starts a daemon and waits until it listens.
///
/// # Errors
///
/// The daemon exits before it listens, or does not listen in time.
pub fn start_daemon(command: Command, place: &Place) -> Result<Process> {
    start_daemon_as(command, "serve", &place.logs())
}

/// Like [`start_daemon`], with a process name and a log folder, for benches with several daemons.
pub fn start_daemon_as(command: Command, name: &str, logs: &Path) -> Result<Process> {
    let daemon = Process::spawn(command, name, logs)?;
    daemon.await_line(LISTENING)?;
    Ok(daemon)
}
