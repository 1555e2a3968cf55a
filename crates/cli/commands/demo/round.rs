//! One copy of the demo: a daemon in host B, `nicstripe cp` in host A, and the outcome.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use nicstripe::BitRate;
use nicstripe_lab::{Host, LinkCounters};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    net::UnixDatagram,
    process::{Child, ChildStderr, Command},
    time::timeout,
};

use super::{
    failed,
    folders::Folders,
    sample::{Sample, digest_of},
    stage::Stage,
};
use crate::{
    failure::{Failure, Fault, exit::Exit},
    output::{stdout, terminal::Terminal},
    text::quantity::{Size, Speed},
};

#[derive(Debug)]
pub(super) struct Round<'a> {
    pub(super) stage: &'a Stage,
    pub(super) folders: &'a Folders,
    pub(super) sample: &'a Sample,
}

#[derive(Debug)]
pub(super) struct Outcome {
    /// Size of the copied file in bytes.
    size: u64,
    /// Time from the start of `nicstripe cp` to its end.
    elapsed: Duration,
    /// Total capacity of the cables; `None` if nothing limits them.
    expected: Option<BitRate>,
    /// Bottleneck that the report of `cp` names.
    limited_by: Option<String>,
    /// Name of each cable, bytes that host A sent on it, bytes that host B received.
    cables: Vec<(String, u64, Option<u64>)>,
    /// BLAKE3 digest of the received file.
    digest: nicstripe::Digest,
}

impl Round<'_> {
    /// Runs one copy with its daemon. Dropping the future kills both processes.
    pub(super) async fn run(&self, terminal: &Terminal) -> Result<Outcome, Failure> {
        let mut daemon = Daemon::start(self).await?;
        stdout::line(format_args!(
            "  $ nicstripe cp {} {}:",
            self.sample.file_name().display(),
            self.stage.daemon_address()
        ))?;
        let before = self.stage.counters()?;
        let started_at = Instant::now();
        let copied = self.copy(terminal).await;
        let elapsed = started_at.elapsed();
        let after = self.stage.counters()?;
        daemon.stop().await;
        let report = copied.inspect_err(|_| daemon.print_all(terminal))?;

        let received = self.folders.received().join(self.sample.file_name());
        let (sent, digest) = (self.sample.digest, digest_of(&received)?);
        if digest != sent {
            let text = format!(
                "the received file differs from the sent one: BLAKE3 {sent} sent, {digest} received"
            );
            return Err(Fault::new(Exit::Digest, text).into());
        }
        let cables = match (before, after) {
            (Some(before), Some(after)) => counted(&before, &after),
            _ => report
                .links
                .into_iter()
                .map(|link| (link.local.unwrap_or(link.interface), link.bytes, None))
                .collect(),
        };
        Ok(Outcome {
            size: self.sample.size,
            elapsed,
            expected: self.stage.expected(),
            limited_by: report.limited_by,
            cables,
            digest,
        })
    }

    /// Runs `nicstripe cp`, which draws its own progress bars, and returns its report.
    async fn copy(&self, terminal: &Terminal) -> Result<Report, Fault> {
        let progress = match terminal.is_interactive() {
            true => "always",
            false => "never",
        };
        let mut command = self.nicstripe(Host::A, "cp", "a")?;
        command
            .args(["--quiet", "--json", "--progress", progress])
            .args(self.stage.cp_options());
        command
            .arg(&self.sample.path)
            .arg(format!("{}:", self.stage.daemon_address()));
        let not_started = failed("cannot start nicstripe cp");
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(not_started)?;
        let mut json = Vec::new();
        if let Some(stdout) = &mut child.stdout {
            stdout.read_to_end(&mut json).await.map_err(not_started)?;
        }
        let status = child.wait().await.map_err(not_started)?;
        if !status.success() {
            // `cp` has printed its error.
            let cables = self.stage.cables();
            let text = format!("the copy over {cables} cables failed: {status}");
            return Err(Fault::new(Exit::Failed, text));
        }
        serde_json::from_slice(&json).map_err(failed("the copy's report cannot be read"))
    }

    /// Returns a nicstripe command that runs in a host. It gets its own process group, so that only
    /// the demo receives the signals of the terminal.
    fn nicstripe(&self, host: Host, command: &'static str, home: &str) -> Result<Command, Fault> {
        use std::os::unix::process::CommandExt as _;
        let process = self.stage.nicstripe(host);
        let mut process = process.map_err(failed(&format!("cannot start nicstripe {command}")))?;
        process
            .arg(command)
            .env("NICSTRIPE_HOME", self.folders.home(home).config())
            .stdin(Stdio::null())
            .process_group(0);
        let mut process = Command::from(process);
        process.kill_on_drop(true);
        Ok(process)
    }
}

/// Fields of `cp`'s JSON report that the demo prints.
#[derive(Debug, Deserialize)]
struct Report {
    limited_by: Option<String>,
    links: Vec<ReportLink>,
}

#[derive(Debug, Deserialize)]
struct ReportLink {
    interface: String,
    local: Option<String>,
    bytes: u64,
}

/// Process of `nicstripe serve`, with the lines that it printed.
#[derive(Debug)]
struct Daemon {
    child: Child,
    said: Vec<String>,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Daemon {
    /// Starts the daemon, and returns once it listens.
    async fn start(round: &Round<'_>) -> Result<Self, Fault> {
        let failed = failed("cannot start nicstripe serve");
        let socket = round.folders.notified();
        let notices = UnixDatagram::bind(&socket).map_err(failed)?;
        let mut command = round.nicstripe(Host::B, "serve", "b")?;
        command
            .arg("--root")
            .arg(round.folders.received())
            .args(round.stage.serve_options())
            .env("NOTIFY_SOCKET", &socket);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stderr = child
            .stderr
            .take()
            .ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        let mut daemon = Self {
            child,
            said: Vec::new(),
            lines: BufReader::new(stderr).lines(),
        };
        let is_ready = timeout(START_TIMEOUT, daemon.is_ready(&notices)).await;
        // The next round binds it again. Once it is closed, the daemon's later notices are dropped.
        fs::remove_file(&socket).map_err(failed)?;
        match is_ready {
            Ok(true) => Ok(daemon),
            _ => {
                let text = format!("the daemon does not listen: {}", daemon.said.join("; "));
                Err(Fault::new(Exit::Failed, text))
            }
        }
    }

    /// Reads the daemon's output until it notifies that it is ready (sd_notify(3)). Returns false if
    /// the daemon ends first.
    async fn is_ready(&mut self, notices: &UnixDatagram) -> bool {
        let mut notice = [0; 4096];
        loop {
            tokio::select! {
                line = self.lines.next_line() => match line {
                    Ok(Some(line)) => self.said.push(line),
                    _ => return false,
                },
                received = notices.recv(&mut notice) => match received {
                    Ok(len) if says_ready(&notice[..len]) => return true,
                    Ok(_) => {}
                    Err(_) => return false,
                },
            }
        }
    }

    /// Ends the daemon by a signal. Kills it after [`STOP_TIMEOUT`].
    async fn stop(&mut self) {
        let id = self.child.id();
        if let Some(pid) = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            // Fails only if the daemon has ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                self.said.push(line);
            }
            self.child.wait().await
        };
        if timeout(STOP_TIMEOUT, ended).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    fn print_all(&self, terminal: &Terminal) {
        self.said
            .iter()
            .for_each(|line| terminal.say(format_args!("  serve: {line}")));
    }
}

/// Returns true if a notification of a service says that it is ready.
fn says_ready(notice: &[u8]) -> bool {
    notice
        .split(|byte| *byte == b'\n')
        .any(|state| state == b"READY=1")
}

impl Outcome {
    pub(super) fn lines(&self, cables: usize) -> Vec<String> {
        let mut lines = vec![self.got()];
        let total: u64 = self.cables.iter().map(|(_, bytes, _)| bytes).sum();
        for (name, sent, received) in &self.cables {
            let share = 100.0 * *sent as f64 / total.max(1) as f64;
            let received = received.map_or_else(String::new, |bytes| {
                format!(", B received {:>9}", Size(bytes))
            });
            lines.push(format!(
                "    {name:10} A sent {:>9}{received}  {share:4.1} %",
                Size(*sent)
            ));
        }
        let sum = self.digest.to_string();
        lines.push(format!(
            "  verified: A and B have BLAKE3 {}…{}",
            &sum[..16],
            &sum[sum.len() - 8..]
        ));
        let used = self.cables.len();
        if used != cables {
            lines.push(format!("  note: {used} of {cables} cables were used"));
        }
        lines
    }

    fn got(&self) -> String {
        let rate = BitRate::from_bytes_over(self.size, self.elapsed);
        let seconds = self.elapsed.as_secs_f64();
        let limited = self.limited_by.as_ref().map_or_else(String::new, |word| {
            format!(" (limit: {})", word.replace('_', " "))
        });
        match self.expected {
            Some(expected) => {
                let part = 100.0 * rate.bits_per_second() as f64
                    / expected.bits_per_second().max(1) as f64;
                let expected = Speed(expected);
                let got = Speed(rate).in_unit_of(expected);
                format!("  expected {expected}, got {got} ({part:.1} %) in {seconds:.2} s{limited}")
            }
            None => format!("  got {} in {seconds:.2} s", Speed(rate)),
        }
    }
}

fn counted(
    before: &[(String, LinkCounters)],
    after: &[(String, LinkCounters)],
) -> Vec<(String, u64, Option<u64>)> {
    let pairs = after.iter().zip(before);
    pairs
        .map(|((name, after), (_, before))| {
            let LinkCounters { a, b } = after.since(before);
            (name.clone(), a.sent_bytes, Some(b.received_bytes))
        })
        .collect()
}

/// Time for the daemon to start listening. It takes milliseconds on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Time for the daemon to end after a signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_says_expected_got_and_what_each_cable_carried() {
        let mib = 1024 * 1024;
        let outcome = Outcome {
            size: 512 * mib,
            elapsed: Duration::from_millis(2_294),
            expected: Some(BitRate(1_882_964_000)),
            limited_by: Some("cables".into()),
            cables: vec![
                ("eth1".into(), 268 * mib, Some(268 * mib)),
                ("eth2".into(), 268 * mib, Some(268 * mib)),
            ],
            digest: nicstripe::Digest([0xab; 32]),
        };
        assert_eq!(
            outcome.lines(2),
            [
                "  expected 235.4 MB/s, got 234.0 (99.4 %) in 2.29 s (limit: cables)",
                "    eth1       A sent 268.0 MiB, B received 268.0 MiB  50.0 %",
                "    eth2       A sent 268.0 MiB, B received 268.0 MiB  50.0 %",
                "  verified: A and B have BLAKE3 abababababababab…abababab",
            ]
        );
        assert_eq!(outcome.lines(3).len(), 5);
    }
}
