//! Guard of a peer's command: a process of its own that starts the command, ends with its status,
//! and kills the command's process group when the daemon's process has gone, however it ended.

use std::{
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, ExitCode},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, getpgrp, getppid, kill_process_group, pidfd_open},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

/// First argument of the process. It is no command for users.
pub(crate) const NAME: &str = "exec-guard";

/// Runs the guard, if this process is one.
pub(crate) fn main() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_none_or(|word| word != NAME) {
        return None;
    }
    let parent = words.next().and_then(|word| word.to_str()?.parse().ok());
    let words: Vec<OsString> = words.collect();
    Some(match (parent.and_then(Pid::from_raw), words.is_empty()) {
        (Some(parent), false) => guard(parent, &words),
        _ => ExitCode::from(2),
    })
}

fn guard(parent: Pid, words: &[OsString]) -> ExitCode {
    thread::spawn(move || end_with(parent));
    let mut child = match start(words) {
        Ok(child) => child,
        Err(error) => {
            eprintln!("nicstripe: {}: {error}", words[0].display());
            return ExitCode::from(match error.kind() {
                io::ErrorKind::NotFound => 127,
                _ => 126,
            });
        }
    };
    // Otherwise the streams would not end with the command.
    if let Ok(nothing) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = (
            dup2_stdin(&nothing),
            dup2_stdout(&nothing),
            dup2_stderr(&nothing),
        );
    }
    match child.wait() {
        Ok(status) => {
            let signalled = status.signal().map(|signal| 128 + signal);
            ExitCode::from(status.code().or(signalled).unwrap_or(1) as u8)
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Starts the command, which is searched in PATH. `sftp-server` is also searched where packages of
/// OpenSSH install it.
fn start(words: &[OsString]) -> io::Result<Child> {
    let named = |program: &OsStr| Command::new(program).args(&words[1..]).spawn();
    named(&words[0]).or_else(|error| {
        let is_elsewhere = error.kind() == io::ErrorKind::NotFound && words[0] == SFTP_SERVER;
        let mut folders = SFTP_FOLDERS.iter().filter(|_| is_elsewhere);
        let started =
            folders.find_map(|folder| named(Path::new(folder).join(SFTP_SERVER).as_os_str()).ok());
        started.ok_or(error)
    })
}

/// Waits for the end of the daemon's process, then kills the process group.
fn end_with(parent: Pid) {
    if let Ok(process) = pidfd_open(parent, PidfdFlags::empty()) {
        // Another process may have taken its number before.
        while getppid() == Some(parent) {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            let _ = poll(&mut ended, None);
        }
    }
    let _ = kill_process_group(getpgrp(), Signal::KILL);
}

/// Program of the subsystem `sftp`.
pub(crate) const SFTP_SERVER: &str = "sftp-server";

/// Folders of [`SFTP_SERVER`] outside PATH: those of Debian and Ubuntu, Fedora, Arch and Alpine.
const SFTP_FOLDERS: &[&str] = &[
    "/usr/lib/openssh",
    "/usr/libexec/openssh",
    "/usr/lib/ssh",
    "/usr/libexec",
];
