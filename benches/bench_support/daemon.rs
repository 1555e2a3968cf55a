//! nicstripe's daemon, from its command to the moment from which it can be reached.

use std::{path::Path, process::Command};

use nicstripe_lab::{Host, Lab};

use super::{
    Place, Process, Result,
    contender::{NICSTRIPE, as_daemon},
};

/// Starts host B's daemon in a lab, with all rights.
pub(crate) fn serve_in(lab: &Lab, place: &Place) -> Result<Process> {
    start_daemon(as_daemon(lab.command(Host::B, NICSTRIPE), place), place)
}

/// Starts a daemon and waits until it listens. Errors: it ends before, or does not in time.
pub(crate) fn start_daemon(command: Command, place: &Place) -> Result<Process> {
    start_daemon_as(command, "serve", &place.logs())
}

/// The same under another name than `serve`, as [`Process::spawn`] has it: where there are several.
pub(crate) fn start_daemon_as(command: Command, name: &str, logs: &Path) -> Result<Process> {
    let daemon = Process::spawn(command, name, logs)?;
    daemon.await_line(LISTENING)?;
    Ok(daemon)
}

/// How the line begins that a daemon prints on standard error when it listens.
pub(crate) const LISTENING: &str = "listening on";
