//! Tracer of a program's system calls on the files of one directory. It can make one call fail or
//! write less, or kill the program at the start of that call.
//!
//! Uses ptrace(2) like strace(1). The fault injection of strace counts the calls of each thread
//! separately, and cannot select files with random names. This tracer numbers the calls of all
//! threads in the order of their starts, from 1.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Write,
    os::unix::{ffi::OsStrExt, fs::FileExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::Outcome;

use nix::{
    errno::Errno,
    libc,
    sys::{
        ptrace::{self, Options},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tempfile::TempDir;

/// Fault to inject into a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Kills the program when the call begins.
    Kill,
    /// Skips the call and returns this error.
    Fail(Errno),
    /// Skips the call and returns this error. Later writes, syncs and calls that create files fail
    /// likewise.
    FailFrom(Errno),
    /// Halves the length of a write. Other calls are unaffected.
    Short,
}

/// System calls that the tracer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All calls on files of the traced directory.
    All,
    /// Calls that change a file or a directory.
    Changes,
    /// Calls that make data durable, such as fsync(2).
    Syncs,
    /// Calls with exactly this printed form: the call's name, a space and the file.
    Shown(&'static str),
}

/// Fault, and the system call into which the tracer injects it.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub which: Which,
    /// Position of the call among the counted calls, from 1; 0 injects no fault.
    pub at: usize,
    pub fault: Fault,
}

/// System calls seen by the tracer.
#[derive(Debug, Default)]
pub struct Seen {
    /// Printed form of each counted call: its name and file.
    pub calls: Vec<String>,
    /// Printed form of the call into which the fault was injected; `None` if no call was reached.
    pub hit: Option<String>,
}

/// Traced program. Dropping the value kills the program.
pub struct Traced {
    pid: Pid,
    command: String,
    output: TempDir,
    tracer: Option<JoinHandle<(Seen, ExitStatus)>>,
}

impl Traced {
    /// Starts a program, and traces its system calls on files in `folder`.
    pub fn spawn(command: Command, folder: &Path, plan: Plan) -> Self {
        let (text, output) = (format!("{command:?}"), tempfile::tempdir().unwrap());
        let (told, pid) = mpsc::channel();
        let [stdout, stderr] =
            [STDOUT, STDERR].map(|name| File::create(output.path().join(name)).unwrap());
        let folder = folder.canonicalize().unwrap();
        // The kernel reports the stops of a tracee only to the thread that traces it.
        let tracer = thread::spawn(move || {
            let child = waiting(&command, stdout.into(), stderr.into()).unwrap();
            let leader = Pid::from_raw(child.id() as i32);
            told.send(leader).unwrap();
            Tracer {
                folder,
                plan,
                leader,
                seen: Seen::default(),
                threads: HashMap::new(),
            }
            .run(child)
        });
        let pid = pid.recv().unwrap();
        Self {
            pid,
            command: text,
            output,
            tracer: Some(tracer),
        }
    }

    /// Waits for a line on standard error that contains `part`. Returns `None` if the program exits
    /// first.
    pub fn await_stderr(&self, part: &str) -> Option<String> {
        let until = Instant::now() + DEADLINE;
        loop {
            let has_ended = self.tracer.as_ref().is_none_or(JoinHandle::is_finished);
            let text = fs::read_to_string(self.output.path().join(STDERR)).unwrap();
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            if let Some(line) = whole.lines().find(|line| line.contains(part)) {
                return Some(line.to_owned());
            }
            if has_ended {
                return None;
            }
            assert!(
                Instant::now() < until,
                "{} did not say {part:?}\n{text}",
                self.command
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends SIGKILL to the traced program.
    pub fn kill(&self) {
        if self
            .tracer
            .as_ref()
            .is_some_and(|tracer| !tracer.is_finished())
        {
            let _ = nix::sys::signal::kill(self.pid, nix::sys::signal::Signal::SIGKILL);
        }
    }

    pub fn has_ended(&self) -> bool {
        self.tracer.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the program exits. Returns its output and the traced calls.
    pub fn finish(mut self) -> (Outcome, Seen) {
        let until = Instant::now() + DEADLINE;
        while !self.has_ended() {
            assert!(
                Instant::now() < until,
                "{} did not end\n{}",
                self.command,
                self.said(STDERR)
            );
            thread::sleep(Duration::from_millis(2));
        }
        let (seen, status) = self.tracer.take().unwrap().join().unwrap();
        let (stdout, stderr) = (self.said(STDOUT), self.said(STDERR));
        (
            Outcome {
                command: self.command.clone(),
                status,
                stdout,
                stderr,
            },
            seen,
        )
    }

    /// Kills the program if it is still running. Returns the traced calls.
    pub fn end(self) -> Seen {
        self.kill();
        self.finish().1
    }

    fn said(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.output.path().join(name)).unwrap()).into_owned()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.kill();
        if let Some(tracer) = self.tracer.take() {
            let _ = tracer.join();
        }
    }
}

/// Returns the reason why this machine cannot trace; `None` if it can.
pub fn obstacle() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("calls are only known as x86-64 has them".into());
    }
    let mut child = waiting(&Command::new("true"), Stdio::null(), Stdio::null()).ok()?;
    let seized = ptrace::seize(Pid::from_raw(child.id() as i32), Options::empty());
    let _ = child.kill();
    let _ = child.wait();
    seized
        .err()
        .map(|error| format!("ptrace is not allowed here: {error}"))
}

/// Starts a shell that waits for a line of input and then executes the program. The tracer attaches
/// to the shell before it sends the line.
fn waiting(command: &Command, stdout: Stdio, stderr: Stdio) -> std::io::Result<Child> {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "read -r go; exec \"$0\" \"$@\" </dev/null"])
        .arg(command.get_program())
        .args(command.get_args());
    shell.env_clear().envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    shell
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
}

/// State of a thread of the traced program.
#[derive(Debug, Clone, Copy)]
enum Doing {
    /// The thread is in no system call. Its next stop is the start of one.
    Nothing,
    /// The thread is in a system call. Its next stop is the end of the call.
    Calling { fails: Option<Errno> },
}

struct Tracer {
    folder: PathBuf,
    plan: Plan,
    leader: Pid,
    seen: Seen,
    threads: HashMap<Pid, Doing>,
}

impl Tracer {
    /// Traces the program until it exits.
    fn run(mut self, mut child: Child) -> (Seen, ExitStatus) {
        ptrace::seize(
            self.leader,
            Options::PTRACE_O_TRACESYSGOOD
                | Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_EXITKILL,
        )
        .unwrap();
        ptrace::interrupt(self.leader).unwrap();
        let mut go = child.stdin.take();
        loop {
            // Waits only for the tracees of this thread: other threads of this process wait for
            // their own children.
            let status = waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD));
            match status {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.leader => {
                    return (self.seen, ExitStatus::from_raw(code << 8));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.leader => {
                    return (self.seen, ExitStatus::from_raw(signal as i32));
                }
                Ok(WaitStatus::PtraceSyscall(thread)) => {
                    self.on_stop(thread);
                    Self::go_on(thread, None);
                }
                Ok(WaitStatus::Stopped(thread, signal)) => Self::go_on(thread, Some(signal)),
                Ok(WaitStatus::PtraceEvent(thread, ..)) => {
                    Self::go_on(thread, None);
                    if let Some(mut go) = go.take() {
                        go.write_all(b"go\n").unwrap();
                    }
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => panic!("lost the program that is watched: {error}"),
            }
        }
    }

    /// Resumes a stopped thread until its next system call. Ignores a thread that has been killed
    /// meanwhile.
    fn go_on(thread: Pid, signal: Option<nix::sys::signal::Signal>) {
        let _ = ptrace::syscall(thread, signal);
    }

    /// Handles a stop of a thread at the start or end of a system call.
    fn on_stop(&mut self, thread: Pid) {
        match self.threads.remove(&thread).unwrap_or(Doing::Nothing) {
            Doing::Nothing => {
                let fails = self.on_call(thread);
                self.threads.insert(thread, Doing::Calling { fails });
            }
            Doing::Calling { fails: Some(errno) } => change(thread, |registers| {
                registers.rax = (-i64::from(errno as i32)) as u64;
            }),
            Doing::Calling { fails: None } => {}
        }
    }

    /// Handles the start of a system call. Returns the error with which the call must fail; `None`
    /// without a fault.
    fn on_call(&mut self, thread: Pid) -> Option<Errno> {
        let registers = ptrace::getregs(thread).ok()?;
        let call = CALLS
            .iter()
            .find(|call| call.number == registers.orig_rax as i64)?;
        if !call.counts(self.plan.which) {
            return None;
        }
        let path = self.subject(thread, call, &registers)?;
        let shown = format!(
            "{} {}",
            call.name,
            shown(path.strip_prefix(&self.folder).unwrap_or(&path))
        );
        if matches!(self.plan.which, Which::Shown(only) if only != shown) {
            return None;
        }
        self.seen.calls.push(shown.clone());
        let index = self.seen.calls.len();
        let is_it = index == self.plan.at;
        if is_it {
            self.seen.hit = Some(shown);
        }
        match self.plan.fault {
            Fault::Kill if is_it => {
                let _ = nix::sys::signal::kill(self.leader, nix::sys::signal::Signal::SIGKILL);
            }
            Fault::Fail(errno) if is_it => return Some(skip(thread, errno)),
            Fault::FailFrom(errno)
                if is_it || (self.plan.at > 0 && index > self.plan.at && call.adds) =>
            {
                return Some(skip(thread, errno));
            }
            Fault::Short if is_it && call.is_write => {
                change(thread, |registers| registers.rdx = half(registers.rdx));
            }
            _ => {}
        }
        None
    }

    /// Returns the path of the file that a call works on; `None` if the file is not in the traced
    /// directory.
    fn subject(
        &self,
        thread: Pid,
        call: &Call,
        registers: &libc::user_regs_struct,
    ) -> Option<PathBuf> {
        let arguments = [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
        ];
        let of_descriptor = |number: u64| match number as i32 {
            libc::AT_FDCWD => fs::read_link(format!("/proc/{thread}/cwd")),
            number => fs::read_link(format!("/proc/{thread}/fd/{number}")),
        };
        let path = match call.about {
            About::Descriptor(at) => of_descriptor(arguments[at]).ok()?,
            About::Name(at) => {
                let folder = of_descriptor(arguments[at]).ok()?;
                match text_at(thread, arguments[at + 1]) {
                    Some(name) => folder.join(name),
                    // Calls that accept a descriptor without a name.
                    None => folder,
                }
            }
        };
        path.starts_with(&self.folder).then_some(path)
    }
}

/// Makes the kernel skip the system call that a thread is about to enter.
fn skip(thread: Pid, errno: Errno) -> Errno {
    change(thread, |registers| registers.orig_rax = u64::MAX);
    errno
}

fn change(thread: Pid, how: impl FnOnce(&mut libc::user_regs_struct)) {
    if let Ok(mut registers) = ptrace::getregs(thread) {
        how(&mut registers);
        let _ = ptrace::setregs(thread, registers);
    }
}

/// Returns half the length of a write. Rounds the half of a large write down to whole blocks, as
/// direct I/O requires.
fn half(len: u64) -> u64 {
    let half = len / 2;
    if half >= BLOCK {
        half / BLOCK * BLOCK
    } else {
        half.max(1)
    }
}

/// Reads a C string from the memory of the traced program; `None` if the memory cannot be read.
fn text_at(thread: Pid, address: u64) -> Option<PathBuf> {
    let memory = File::open(format!("/proc/{thread}/mem"))
        .ok()
        .filter(|_| address != 0)?;
    let mut bytes = vec![0; 512];
    let len = memory.read_at(&mut bytes, address).ok()?;
    let end = bytes[..len].iter().position(|byte| *byte == 0)?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&bytes[..end])))
}

/// Returns a path without the random parts of temporary names.
fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    match text.rsplit_once(".nicstripe-") {
        Some((name, kind)) => format!(
            "{}*{kind}",
            name.rsplit_once('.').map_or("", |(name, _)| name)
        ),
        None => text.into_owned(),
    }
}

/// System call that works on a file, and its properties.
struct Call {
    number: i64,
    name: &'static str,
    about: About,
    /// True if the call changes a file or a directory.
    changes: bool,
    /// True if the call needs free space or a working disk.
    adds: bool,
    is_write: bool,
}

impl Call {
    const fn looks(number: i64, name: &'static str, about: About) -> Self {
        Self {
            number,
            name,
            about,
            changes: false,
            adds: false,
            is_write: false,
        }
    }

    const fn changes(number: i64, name: &'static str, about: About) -> Self {
        Self {
            changes: true,
            ..Self::looks(number, name, about)
        }
    }

    const fn adds(number: i64, name: &'static str, about: About) -> Self {
        Self {
            adds: true,
            ..Self::changes(number, name, about)
        }
    }

    const fn writes(number: i64, name: &'static str) -> Self {
        Self {
            is_write: true,
            ..Self::adds(number, name, About::Descriptor(0))
        }
    }

    fn counts(&self, which: Which) -> bool {
        match which {
            Which::All | Which::Shown(_) => true,
            Which::Changes => self.changes,
            Which::Syncs => self.name.contains("sync"),
        }
    }
}

/// Argument of a call that identifies its file, by the argument's index.
#[derive(Clone, Copy)]
enum About {
    /// File descriptor of the file.
    Descriptor(usize),
    /// File descriptor of a directory. The next argument is the file name in the directory.
    Name(usize),
}

const CALLS: &[Call] = &[
    Call::adds(libc::SYS_openat, "openat", About::Name(0)),
    Call::adds(libc::SYS_openat2, "openat2", About::Name(0)),
    Call::writes(libc::SYS_write, "write"),
    Call::writes(libc::SYS_pwrite64, "pwrite64"),
    Call::adds(libc::SYS_ftruncate, "ftruncate", About::Descriptor(0)),
    Call::adds(libc::SYS_fallocate, "fallocate", About::Descriptor(0)),
    Call::adds(
        libc::SYS_copy_file_range,
        "copy_file_range",
        About::Descriptor(2),
    ),
    Call::adds(libc::SYS_fsync, "fsync", About::Descriptor(0)),
    Call::adds(libc::SYS_fdatasync, "fdatasync", About::Descriptor(0)),
    Call::adds(libc::SYS_syncfs, "syncfs", About::Descriptor(0)),
    Call::adds(
        libc::SYS_sync_file_range,
        "sync_file_range",
        About::Descriptor(0),
    ),
    Call::adds(libc::SYS_renameat, "renameat", About::Name(0)),
    Call::adds(libc::SYS_renameat2, "renameat2", About::Name(0)),
    Call::adds(libc::SYS_linkat, "linkat", About::Name(2)),
    Call::adds(libc::SYS_symlinkat, "symlinkat", About::Name(1)),
    Call::adds(libc::SYS_mkdirat, "mkdirat", About::Name(0)),
    Call::changes(libc::SYS_unlinkat, "unlinkat", About::Name(0)),
    Call::changes(libc::SYS_fchmod, "fchmod", About::Descriptor(0)),
    Call::changes(libc::SYS_fchmodat, "fchmodat", About::Name(0)),
    Call::changes(libc::SYS_fchown, "fchown", About::Descriptor(0)),
    Call::changes(libc::SYS_fchownat, "fchownat", About::Name(0)),
    Call::changes(libc::SYS_fsetxattr, "fsetxattr", About::Descriptor(0)),
    Call::changes(libc::SYS_utimensat, "utimensat", About::Name(0)),
    Call::changes(libc::SYS_flock, "flock", About::Descriptor(0)),
    Call::looks(libc::SYS_newfstatat, "newfstatat", About::Name(0)),
    Call::looks(libc::SYS_statx, "statx", About::Name(0)),
    Call::looks(libc::SYS_fstat, "fstat", About::Descriptor(0)),
    Call::looks(libc::SYS_fstatfs, "fstatfs", About::Descriptor(0)),
    Call::looks(libc::SYS_read, "read", About::Descriptor(0)),
    Call::looks(libc::SYS_pread64, "pread64", About::Descriptor(0)),
    Call::looks(libc::SYS_lseek, "lseek", About::Descriptor(0)),
    Call::looks(libc::SYS_ioctl, "ioctl", About::Descriptor(0)),
    Call::looks(libc::SYS_getdents64, "getdents64", About::Descriptor(0)),
    Call::looks(libc::SYS_readlinkat, "readlinkat", About::Name(0)),
    Call::looks(libc::SYS_fgetxattr, "fgetxattr", About::Descriptor(0)),
    Call::looks(libc::SYS_flistxattr, "flistxattr", About::Descriptor(0)),
    Call::looks(libc::SYS_fadvise64, "fadvise64", About::Descriptor(0)),
];

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";

/// Block size in bytes to which halved writes are rounded. No disk has larger blocks.
const BLOCK: u64 = 4096;

/// Maximum duration of each wait for the traced program.
const DEADLINE: Duration = Duration::from_secs(60);
