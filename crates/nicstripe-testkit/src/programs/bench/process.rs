//! Child processes: start, CPU time, memory and termination.

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

use super::error::Result;

/// Child process in its own process group. Dropping the value terminates the group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pid: Pid,
    /// Pidfd of the process, readable after its exit.
    end: OwnedFd,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts a command in a new process group, with its output in files in `logs`. `name` appears
    /// in the names of these files and in messages.
    pub fn spawn(command: Command, name: &str, logs: &Path) -> Result<Self> {
        let output = File::create(Self::stdout_of(name, logs))?;
        Self::spawn_between(command, name, logs, Stdio::null(), output.into())
    }

    /// Like [`spawn`](Self::spawn), with the given standard input and output.
    /// [`output`](Self::output) cannot read the output.
    pub fn spawn_between(
        mut command: Command,
        name: &str,
        logs: &Path,
        input: Stdio,
        output: Stdio,
    ) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let (stdout, stderr) = (
            Self::stdout_of(name, logs),
            logs.join(format!("{name}.err")),
        );
        command
            .stdin(input)
            .stdout(output)
            .stderr(File::create(&stderr)?)
            .process_group(0);
        let child = command
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let pid = Pid::from_child(&child);
        let end = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self {
            name: name.to_owned(),
            child,
            pid,
            end,
            stdout,
            stderr,
        })
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    fn stdout_of(name: &str, logs: &Path) -> PathBuf {
        logs.join(format!("{name}.out"))
    }

    /// Waits up to `time` for the exit, and returns true if the process has exited. Does not reap
    /// the process, so that its CPU time stays readable.
    pub fn has_ended_within(&self, time: Duration) -> Result<bool> {
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

    /// Waits for the exit of the process without reaping it.
    ///
    /// # Errors
    ///
    /// The process still runs at `deadline`.
    pub fn await_end(&self, deadline: Instant) -> Result<()> {
        match self.has_ended_within(deadline.saturating_duration_since(Instant::now()))? {
            true => Ok(()),
            false => Err(format!("{} did not end in time{}", self.name, self.said()).into()),
        }
    }

    /// Waits for the exit of the process and reaps it.
    pub fn status(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Waits for the exit of the process and reaps it.
    ///
    /// # Errors
    ///
    /// The exit status is not success.
    pub fn succeeded(&mut self) -> Result<()> {
        match self.status()? {
            status if status.success() => Ok(()),
            status => Err(format!("{} failed: {status}{}", self.name, self.said()).into()),
        }
    }

    /// Sends SIGKILL to the process, but not to its descendants, and reaps it.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends a signal to the process, but not to its descendants.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    /// Returns the standard output of the process so far.
    pub fn output(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.stdout)?)
    }

    /// Returns the standard error of the process so far.
    pub fn errors(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.stderr)?)
    }

    /// Waits until the process has printed a line with the prefix `start` on standard error.
    ///
    /// # Errors
    ///
    /// The process exits, or does not print the line in 15 s.
    pub fn await_line(&self, start: &str) -> Result<()> {
        self.await_start(|| {
            Ok(fs::read_to_string(&self.stderr)?
                .lines()
                .any(|line| line.starts_with(start)))
        })
    }

    /// Waits until a socket listens on a TCP port in the network namespace of the process.
    ///
    /// # Errors
    ///
    /// The process exits, or no socket listens in 15 s.
    pub fn await_listener(&self, port: u16) -> Result<()> {
        let table = |name: &str| fs::read_to_string(format!("/proc/{}/net/{name}", self.pid));
        self.await_start(|| {
            Ok(has_listener(&table("tcp")?, port) || has_listener(&table("tcp6")?, port))
        })
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

    /// Returns the CPU time that the process and its descendants have used so far. Excludes
    /// descendants whose parents exited without waiting for them.
    pub fn cpu(&self) -> Result<Duration> {
        let stats = all_stats()?;
        let mut family = vec![self.pid.as_raw_nonzero().get()];
        let mut ticks = 0;
        let mut next = 0;
        while let Some(pid) = family.get(next).copied() {
            ticks += stats.get(&pid).map_or(0, |stat| stat.ticks);
            family.extend(
                stats
                    .iter()
                    .filter(|(_, stat)| stat.parent == pid)
                    .map(|(child, _)| *child),
            );
            next += 1;
        }
        Ok(Duration::from_secs(ticks) / TICKS_PER_SECOND)
    }

    /// Returns the peak resident memory (VmHWM) and the current anonymous memory (RssAnon) in
    /// bytes; `None` after the exit.
    pub fn memory(&self) -> Option<[u64; 2]> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let field = |name: &str| {
            let kib = status
                .lines()
                .find_map(|line| line.strip_prefix(name))?
                .trim()
                .strip_suffix("kB")?;
            kib.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Some([field("VmHWM:")?, field("RssAnon:")?])
    }

    /// Returns the last three lines of standard error, for an error message.
    fn said(&self) -> String {
        let text = fs::read_to_string(&self.stderr).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        last.into_iter()
            .rev()
            .map(|line| format!("\n  {}: {line}", self.name))
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process was already reaped, which is harmless.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid, Signal::TERM);
            let _ = self.has_ended_within(STOP_TIMEOUT);
            let _ = kill_process_group(self.pid, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Peak memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    /// Peak resident set size (VmHWM) in bytes. Includes the program's code.
    pub resident: u64,
    /// Peak anonymous memory (RssAnon) in bytes, from samples.
    pub own: u64,
}

impl Peak {
    /// Raises the peaks to the current values; no effect after the exit of the process.
    pub fn update(&mut self, process: &Process) {
        if let Some([resident, own]) = process.memory() {
            *self = Self {
                resident: self.resident.max(resident),
                own: self.own.max(own),
            };
        }
    }
}

/// Fields of `/proc/PID/stat` that the benches use (proc_pid_stat(5)).
struct Stat {
    parent: i32,
    /// User and system time in clock ticks, including children that the process has waited for.
    ticks: u64,
}

fn all_stats() -> io::Result<BTreeMap<i32, Stat>> {
    let pids = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process that has ended meanwhile has no entry.
    Ok(pids
        .filter_map(|pid: i32| {
            Some((
                pid,
                parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?,
            ))
        })
        .collect())
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name, in brackets, may contain anything; field 3 follows it.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks = fields
        .get(11..15)?
        .iter()
        .map(|field| field.parse::<u64>().ok())
        .sum::<Option<u64>>()?;
    Some(Stat { parent, ticks })
}

/// Returns the busy CPU time of the whole machine since boot, from `/proc/stat`.
pub fn busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    let fields: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .flat_map(str::parse)
        .collect();
    // Columns: user, nice, system, idle, iowait, irq, softirq. Idle and iowait are not busy time.
    let ticks: u64 = fields
        .iter()
        .take(7)
        .enumerate()
        .filter(|(index, _)| ![3, 4].contains(index))
        .map(|(_, ticks)| ticks)
        .sum();
    Ok(Duration::from_secs(ticks) / TICKS_PER_SECOND)
}

/// Returns true if a table in the format of `/proc/net/tcp` has a socket that listens on the port.
fn has_listener(table: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
        matches!(fields[..], [_, local, _, state] if local.ends_with(&end) && state == LISTEN)
    })
}

/// State of a listening socket in `/proc/net/tcp` (`TCP_LISTEN`).
const LISTEN: &str = "0A";

/// Clock ticks per second in `/proc` (`USER_HZ`): 100 on every architecture that Rust's standard
/// library supports.
const TICKS_PER_SECOND: u32 = 100;

/// Start-up timeout of a server. A start takes milliseconds, on a loaded machine longer.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Time between SIGTERM and SIGKILL in which a process can exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
