//! Guard of a peer's command: a separate process that starts the command and ends with its status.
//!
//! It ends the command, and all that the command has started, on SIGTERM and when the daemon's
//! process has gone, however that ended: SIGTERM to each, and SIGKILL a second later. A process that
//! has left the command's group (setsid) does not escape: orphans become children of the guard.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    io,
    os::unix::{fs::FileTypeExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, ExitCode, exit},
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags, open},
    io::ioctl_fionbio,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group,
        pidfd_open, set_child_subreaper, wait,
    },
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};
use tokio::signal::unix::{SignalKind, signal};

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
    // Without them some descriptors of the daemon's starter, or a process that leaves its group,
    // would stay; the command runs.
    let _ = (
        nicstripe_link::keep_descriptors(),
        set_child_subreaper(Some(getpid())),
    );
    if let Err(error) = end_on_signal() {
        eprintln!("nicstripe: cannot guard {}: {error}", words[0].display());
        return ExitCode::from(126);
    }
    thread::spawn(move || end_with(parent));
    let child = match start(words) {
        Ok(child) => {
            let id = Pid::from_child(&child);
            COMMAND.store(id.as_raw_nonzero().get(), Ordering::SeqCst);
            id
        }
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
    let code = status_of(child);
    if IS_ENDING.load(Ordering::SeqCst) {
        // The ending thread also ends what the command has started, and then this process.
        loop {
            thread::park();
        }
    }
    ExitCode::from(code)
}

/// Waits for the command, and for all orphans that end before it. Returns its exit code, as a shell
/// does.
fn status_of(command: Pid) -> u8 {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((process, status))) if process == command => {
                let signalled = status.terminating_signal().map(|signal| 128 + signal);
                return status.exit_status().or(signalled).unwrap_or(1) as u8;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 1,
        }
    }
}

/// Catches SIGTERM, and ends all on it. A caught signal, unlike an ignored or blocked one, has its
/// usual effect in the command.
fn end_on_signal() -> io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().build()?;
    let mut terminate = {
        let _inside = runtime.enter();
        signal(SignalKind::terminate())?
    };
    thread::spawn(move || {
        runtime.block_on(terminate.recv());
        end();
    });
    Ok(())
}

/// Ends the command and all that it has started, and then this process.
fn end() {
    if IS_ENDING.swap(true, Ordering::SeqCst) {
        return;
    }
    take_outputs();
    signal_group(Signal::TERM);
    for process in descendants().into_iter().filter(|one| !one.is_in_group) {
        let _ = kill_process(process.id, Signal::TERM);
    }
    let since = Instant::now();
    loop {
        let left = descendants();
        // Without /proc nothing is known of them.
        let is_over = left.is_empty() && Path::new("/proc/self/stat").exists();
        if is_over || since.elapsed() > LONGEST_END {
            exit(128 + Signal::TERM.as_raw());
        }
        if since.elapsed() > GRACE {
            signal_group(Signal::KILL);
            for process in left {
                let _ = kill_process(process.id, Signal::KILL);
            }
        }
        thread::sleep(LOOK);
    }
}

/// Reads and drops what the command still prints. The daemon reads no more, and a shell that reports
/// a killed child would die of SIGPIPE before it cleans up.
fn take_outputs() {
    let command = COMMAND.load(Ordering::SeqCst);
    for number in [1, 2] {
        // Such a path of a pipe opens it again, without waiting for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/{command}/fd/{number}");
        let is_pipe = std::fs::metadata(&path).is_ok_and(|found| found.file_type().is_fifo());
        let opened = is_pipe.then(|| open(&path, flags, Mode::empty()));
        if let Some(Ok(pipe)) = opened {
            let mut pipe = File::from(pipe);
            let _ = ioctl_fionbio(&pipe, false);
            thread::spawn(move || io::copy(&mut pipe, &mut io::sink()));
        }
    }
}

fn signal_group(signal: Signal) {
    if let Some(group) = Pid::from_raw(COMMAND.load(Ordering::SeqCst)) {
        let _ = kill_process_group(group, signal);
    }
}

/// Process that the command has started, or the command.
struct Descendant {
    id: Pid,
    /// True if the signals to the command's group reach it.
    is_in_group: bool,
}

fn descendants() -> Vec<Descendant> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten();
    let living: Vec<[i32; 3]> = listed
        .filter_map(|entry| living(entry.ok()?.file_name().to_str()?))
        .collect();
    let mut ahead = vec![getpid().as_raw_nonzero().get()];
    let mut found = Vec::new();
    while let Some(above) = ahead.pop() {
        for [id, _, group] in living.iter().filter(|[_, parent, _]| *parent == above) {
            ahead.push(*id);
            found.extend(Pid::from_raw(*id).map(|id| Descendant {
                id,
                is_in_group: *group == COMMAND.load(Ordering::SeqCst),
            }));
        }
    }
    found
}

/// Returns ID, parent and group of a process that has not ended (proc_pid_stat(5)).
fn living(id: &str) -> Option<[i32; 3]> {
    let id: i32 = id.parse().ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before the last parenthesis may contain anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    let is_living = !matches!(words.next()?, "Z" | "X");
    let (parent, group) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    is_living.then_some([id, parent, group])
}

/// Starts the command, which is searched in PATH. `sftp-server` is also searched where packages of
/// OpenSSH install it.
fn start(words: &[OsString]) -> io::Result<Child> {
    // Its own group: a signal that the command sends to its group is not for the guard.
    let named = |program: &OsStr| {
        let mut command = Command::new(program);
        command.args(&words[1..]).process_group(0).spawn()
    };
    named(&words[0]).or_else(|error| {
        let is_elsewhere = error.kind() == io::ErrorKind::NotFound && words[0] == SFTP_SERVER;
        let mut folders = SFTP_FOLDERS.iter().filter(|_| is_elsewhere);
        let started =
            folders.find_map(|folder| named(Path::new(folder).join(SFTP_SERVER).as_os_str()).ok());
        started.ok_or(error)
    })
}

/// Waits for the end of the daemon's process, then ends all.
fn end_with(parent: Pid) {
    if let Ok(process) = pidfd_open(parent, PidfdFlags::empty()) {
        // Another process may have taken its number before.
        while getppid() == Some(parent) {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            let _ = poll(&mut ended, None);
        }
    }
    end();
}

static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Process ID of the command, and of its group; 0 before its start.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(1);
/// Time after which the rest is left: a process that waits for a dead disk cannot be killed.
pub(super) const LONGEST_END: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

/// Program of the subsystem `sftp`.
pub(crate) const SFTP_SERVER: &str = "sftp-server";

/// Folders of [`SFTP_SERVER`] outside PATH: those of Debian and Ubuntu, Fedora, Arch and Alpine.
const SFTP_FOLDERS: &[&str] = &[
    "/usr/lib/openssh",
    "/usr/libexec/openssh",
    "/usr/lib/ssh",
    "/usr/libexec",
];
