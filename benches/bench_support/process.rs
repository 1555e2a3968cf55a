//! A program that runs on a host: its CPU time, its memory, its end.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open},
};

use super::Result;

/// A program and its descendants; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    pid: Pid,
    /// Readable when the program has ended.
    end: OwnedFd,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts it; `name` is for messages and for the files in `logs` that take what it prints.
    ///
    /// It gets a process group of its own, for its descendants' sake.
    pub(crate) fn spawn(command: Command, name: &str, logs: &Path) -> Result<Self> {
        let output = File::create(Self::stdout_of(name, logs))?;
        Self::spawn_between(command, name, logs, Stdio::null(), output.into())
    }

    /// The same with its standard input from, and its standard output to, something else; `output` then finds nothing.
    pub(crate) fn spawn_between(mut command: Command, name: &str, logs: &Path, input: Stdio, output: Stdio) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let (stdout, stderr) = (Self::stdout_of(name, logs), logs.join(format!("{name}.err")));
        command.stdin(input).stdout(output).stderr(File::create(&stderr)?).process_group(0);
        let child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let pid = Pid::from_child(&child);
        let end = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { name: name.to_owned(), child, pid, end, stdout, stderr })
    }

    /// Its id.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    fn stdout_of(name: &str, logs: &Path) -> PathBuf {
        logs.join(format!("{name}.out"))
    }

    /// Waits until it has ended, at most so long, and tells whether it has. It is not reaped, so that its CPU time can be read.
    pub(crate) fn has_ended_within(&self, time: Duration) -> Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = Timespec::try_from(until.saturating_duration_since(Instant::now()))?;
            match poll(&mut [PollFd::new(&self.end, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until it has ended, without reaping it.
    ///
    /// Errors: it still runs at `deadline`.
    pub(crate) fn await_end(&self, deadline: Instant) -> Result<()> {
        match self.has_ended_within(deadline.saturating_duration_since(Instant::now()))? {
            true => Ok(()),
            false => Err(format!("{} did not end in time{}", self.name, self.said()).into()),
        }
    }

    /// Reaps it after its end; waits for that.
    pub(crate) fn status(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Reaps it after its end. Errors: it did not succeed.
    pub(crate) fn succeeded(&mut self) -> Result<()> {
        match self.status()? {
            status if status.success() => Ok(()),
            status => Err(format!("{} failed: {status}{}", self.name, self.said()).into()),
        }
    }

    /// Kills it, and not its descendants, as `kill -9` does, and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends it, and not its descendants, a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    /// What it has printed on standard output.
    pub(crate) fn output(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.stdout)?)
    }

    /// What it has printed on standard error.
    pub(crate) fn errors(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.stderr)?)
    }

    /// Waits until it has printed a line that begins so, on standard error.
    pub(crate) fn await_line(&self, start: &str) -> Result<()> {
        self.await_start(|| Ok(fs::read_to_string(&self.stderr)?.lines().any(|line| line.starts_with(start))))
    }

    /// Waits until somebody on its host listens on a TCP port.
    pub(crate) fn await_listener(&self, port: u16) -> Result<()> {
        let table = |name: &str| fs::read_to_string(format!("/proc/{}/net/{name}", self.pid));
        self.await_start(|| Ok(has_listener(&table("tcp")?, port) || has_listener(&table("tcp6")?, port)))
    }

    fn await_start(&self, has_started: impl Fn() -> io::Result<bool>) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !has_started()? {
            if self.has_ended_within(Duration::ZERO)? || Instant::now() > deadline {
                return Err(format!("{} did not start{}", self.name, self.said()).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// CPU time so far, with that of its descendants but those whose parents have ended without waiting for them.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stats = all_stats()?;
        let mut family = vec![self.pid.as_raw_nonzero().get()];
        let mut ticks = 0;
        let mut next = 0;
        while let Some(pid) = family.get(next).copied() {
            ticks += stats.get(&pid).map_or(0, |stat| stat.ticks);
            family.extend(stats.iter().filter(|(_, stat)| stat.parent == pid).map(|(child, _)| *child));
            next += 1;
        }
        Ok(Duration::from_secs(ticks) / TICKS_PER_SECOND)
    }

    /// The most memory it ever had resident (VmHWM), and what of its memory is its own now, not a file's (RssAnon), in bytes.
    ///
    /// Nothing after its end.
    pub(crate) fn memory(&self) -> Option<[u64; 2]> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let field = |name: &str| {
            let kib = status.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix("kB")?;
            kib.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Some([field("VmHWM:")?, field("RssAnon:")?])
    }

    /// The last it printed, for a message.
    fn said(&self) -> String {
        let text = fs::read_to_string(&self.stderr).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        last.into_iter().rev().map(|line| format!("\n  {}: {line}", self.name)).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // All of this fails when it has ended and was reaped, which is what is wanted.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid, Signal::TERM);
            let _ = self.has_ended_within(STOP_TIMEOUT);
            let _ = kill_process_group(self.pid, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// The most memory of a process so far, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    /// Resident, the program's code included.
    pub(crate) resident: u64,
    /// Of it what is no file's.
    pub(crate) own: u64,
}

impl Peak {
    /// Takes what the process has at present; nothing when it has ended.
    pub(crate) fn update(&mut self, process: &Process) {
        if let Some([resident, own]) = process.memory() {
            *self = Self { resident: self.resident.max(resident), own: self.own.max(own) };
        }
    }
}

/// What counts of `/proc/PID/stat` (proc_pid_stat(5)).
struct Stat {
    parent: i32,
    /// User and system time, its own and of the children it waited for.
    ticks: u64,
}

fn all_stats() -> io::Result<BTreeMap<i32, Stat>> {
    let pids = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // What ends meanwhile has no entry.
    Ok(pids.filter_map(|pid: i32| Some((pid, parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect())
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name, in brackets, may contain anything; behind it comes field 3.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Stat { parent, ticks })
}

/// CPU time that the whole machine spent on anything since it started.
pub(crate) fn busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> = text.lines().next().unwrap_or_default().split_ascii_whitespace().flat_map(str::parse).collect();
    // user, nice, system, idle, iowait, irq, softirq; idle and iowait are no work.
    let ticks: u64 = fields.iter().take(7).enumerate().filter(|(index, _)| ![3, 4].contains(index)).map(|(_, ticks)| ticks).sum();
    Ok(Duration::from_secs(ticks) / TICKS_PER_SECOND)
}

/// Whether a table of `/proc/net/tcp` has a listener on a port.
fn has_listener(table: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
        matches!(fields[..], [_, local, _, state] if local.ends_with(&end) && state == LISTEN)
    })
}

/// State of a listening socket (`TCP_LISTEN`).
const LISTEN: &str = "0A";

/// `USER_HZ`, which is 100 on every architecture that Rust's standard library is built for.
const TICKS_PER_SECOND: u32 = 100;

/// Servers listen after some milliseconds; a machine under load gets more.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// The same for their end.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
