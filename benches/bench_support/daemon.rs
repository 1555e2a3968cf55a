//! Start of nicstripe's daemon, until it is reachable.

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

/// Starts a daemon and waits until it listens.
///
/// # Errors
///
/// The daemon ends before that, or does not listen in time.
pub(crate) fn start_daemon(command: Command, place: &Place) -> Result<Process> {
    start_daemon_as(command, "serve", &place.logs())
}

/// Like [`start_daemon`], with another process name than `serve` for [`Process::spawn`], for
/// several daemons.
pub(crate) fn start_daemon_as(command: Command, name: &str, logs: &Path) -> Result<Process> {
    let daemon = Process::spawn(command, name, logs)?;
    daemon.await_line(LISTENING)?;
    Ok(daemon)
}

/// Prefix of the line that a listening daemon prints on standard error.
pub(crate) const LISTENING: &str = "listening on";
