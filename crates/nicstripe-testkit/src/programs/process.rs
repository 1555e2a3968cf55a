//! Running program whose output is captured by threads.

use std::{
    fs,
    io::{Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::take_ignored_signals;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::outcome::Outcome;

/// Child process with its captured output. Dropping the value kills the process.
pub struct Process {
    child: Child,
    output: Arc<Output>,
    command: String,
}

impl Process {
    /// Starts a process whose standard input is `/dev/null`.
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Self::start(command)
    }

    /// Starts a process. Also returns the pipe to its standard input.
    pub fn spawn_open(mut command: Command) -> (Self, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut process = Self::start(command);
        let stdin = process.child.stdin.take().unwrap();
        (process, stdin)
    }

    /// Starts a process that receives `bytes` on standard input.
    pub fn spawn_fed(command: Command, bytes: Vec<u8>) -> Self {
        let (process, mut stdin) = Self::spawn_open(command);
        // Fails if the process exits before it has read all bytes.
        thread::spawn(move || stdin.write_all(&bytes));
        process
    }

    fn start(mut command: Command) -> Self {
        take_ignored_signals();
        let text = format!("{command:?}");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let output = Arc::new(Output::default());
        output.follow(child.stdout.take().unwrap(), |captured| {
            &mut captured.stdout
        });
        output.follow(child.stderr.take().unwrap(), |captured| {
            &mut captured.stderr
        });
        Self {
            child,
            output,
            command: text,
        }
    }

    /// Waits until at least `count` lines on standard error contain `part`.
    pub fn await_lines(&self, part: &str, count: usize) {
        let found = self.output.await_some(|captured| {
            let text = String::from_utf8_lossy(&captured.stderr);
            (text.lines().filter(|line| line.contains(part)).count() >= count).then_some(())
        });
        found.unwrap_or_else(|captured| {
            self.fail(&format!("{count} lines with {part:?}"), &captured)
        });
    }

    /// Waits for a line on standard output that contains `part`, and returns it.
    pub fn await_stdout(&self, part: &str) -> String {
        self.await_line(
            |captured| &captured.stdout,
            &format!("{part:?} on standard output"),
            |line| line.contains(part).then(|| line.to_owned()),
        )
    }

    /// Waits for a line on standard error that contains `part`, and returns it.
    pub fn await_stderr(&self, part: &str) -> String {
        self.await_line(
            |captured| &captured.stderr,
            &format!("{part:?} on standard error"),
            |line| line.contains(part).then(|| line.to_owned()),
        )
    }

    /// Waits for a JSON event of this name for which `is_it` returns true, and returns it.
    pub fn await_event(&self, name: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        self.await_line(
            |captured| &captured.stdout,
            &format!("an event {name:?}"),
            |line| {
                let event: Value = serde_json::from_str(line).ok()?;
                (event["event"] == name && is_it(&event)).then_some(event)
            },
        )
    }

    /// Waits until a copy with `--json-stream` reports at least this many bytes.
    pub fn await_bytes(&self, bytes: u64) {
        self.await_event("progress", |event| {
            event["bytes"].as_u64().unwrap() >= bytes
        });
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills the process with SIGKILL. Returns its output.
    pub fn kill(self) -> Outcome {
        self.signal(Signal::KILL);
        self.finish()
    }

    pub fn finish(self) -> Outcome {
        let (outcome, stdout) = self.finish_raw();
        Outcome {
            stdout: String::from_utf8(stdout).unwrap(),
            ..outcome
        }
    }

    /// Waits until the process exits. Returns standard output separately as bytes, because it may
    /// not be text.
    pub fn finish_raw(mut self) -> (Outcome, Vec<u8>) {
        self.output
            .await_end()
            .unwrap_or_else(|captured| self.fail("the end", &captured));
        let status = self.child.wait().unwrap();
        let captured = self.output.captured.lock().unwrap();
        let stderr = String::from_utf8(captured.stderr.clone()).unwrap();
        (
            Outcome {
                command: self.command.clone(),
                status,
                stdout: String::new(),
                stderr,
            },
            captured.stdout.clone(),
        )
    }

    /// Returns the peak resident set size of the process in bytes (`VmHWM`).
    pub fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim()
            .strip_suffix("kB")
            .unwrap()
            .trim()
            .parse::<u64>()
            .unwrap()
            * 1024
    }

    pub fn has_ended(&self) -> bool {
        self.output.captured.lock().unwrap().ended == 2
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn await_line<T>(
        &self,
        stream: fn(&Captured) -> &Vec<u8>,
        wanted: &str,
        find: impl Fn(&str) -> Option<T>,
    ) -> T {
        let found = self.output.await_some(|captured| {
            let bytes = stream(captured);
            let whole = bytes
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |end| end + 1);
            String::from_utf8_lossy(&bytes[..whole])
                .lines()
                .find_map(&find)
        });
        found.unwrap_or_else(|captured| self.fail(wanted, &captured))
    }

    fn fail(&self, wanted: &str, captured: &str) -> ! {
        panic!(
            "{} did not show {wanted} within {DEADLINE:?}\n{captured}",
            self.command
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Captured output of a process, and a condition variable for changes.
#[derive(Default)]
struct Output {
    captured: Mutex<Captured>,
    changed: Condvar,
}

#[derive(Default)]
struct Captured {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Number of output streams that have ended, 0 to 2.
    ended: usize,
}

impl Output {
    fn follow(
        self: &Arc<Self>,
        mut from: impl Read + Send + 'static,
        into: fn(&mut Captured) -> &mut Vec<u8>,
    ) {
        let output = self.clone();
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                let read = from.read(&mut buffer).unwrap_or(0);
                let mut captured = output.captured.lock().unwrap();
                into(&mut captured).extend_from_slice(&buffer[..read]);
                captured.ended += usize::from(read == 0);
                output.changed.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
    }

    /// Waits until `find` returns a value for the captured output.
    ///
    /// # Errors
    ///
    /// Returns the captured output if the process exited or the deadline passed.
    fn await_some<T>(&self, find: impl Fn(&Captured) -> Option<T>) -> Result<T, String> {
        let deadline = Instant::now() + DEADLINE;
        let mut captured = self.captured.lock().unwrap();
        loop {
            if let Some(found) = find(&captured) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || captured.ended == 2 {
                return Err(captured.shown());
            }
            captured = self.changed.wait_timeout(captured, left).unwrap().0;
        }
    }

    fn await_end(&self) -> Result<(), String> {
        self.await_some(|captured| (captured.ended == 2).then_some(()))
    }
}

impl Captured {
    fn shown(&self) -> String {
        let [stdout, stderr] =
            [&self.stdout, &self.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        format!("standard output:\n{stdout}\nstandard error:\n{stderr}")
    }
}

/// Timeout of every wait: several times the duration of the slowest test on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
