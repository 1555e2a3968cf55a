//! Client and daemon that can be killed and restarted.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use super::case::Case;
#[cfg(target_arch = "x86_64")]
use super::{
    case::Way,
    tracer::{Plan, Traced},
};
use crate::{
    Daemon, Outcome, Process, Side,
    pair::{LINKS, LOOPBACK},
    program,
};

/// Client and daemon that trust each other. The daemon uses the same port after each restart.
pub struct Field {
    pub client: Side,
    pub server: Side,
    daemon: Option<Daemon>,
    port: u16,
}

impl Field {
    pub fn new() -> Self {
        Self::between(Side::here(), Side::here())
    }

    /// Like `new`, but the programs run without the capabilities that let root ignore permission
    /// bits.
    pub fn without_privilege() -> Self {
        let side = || {
            Side::of(tempfile::tempdir().unwrap(), |program| {
                let mut command = Command::new("setpriv");
                command
                    .args([
                        "--inh-caps",
                        "-dac_override,-dac_read_search",
                        "--bounding-set",
                        "-dac_override,-dac_read_search",
                    ])
                    .arg(program);
                command
            })
        };
        Self::between(side(), side())
    }

    fn between(client: Side, server: Side) -> Self {
        client.trust(&server, "nas", "");
        server.trust(&client, "laptop", "");
        let daemon = Daemon::start(&server, &LOOPBACK);
        let port = daemon.port;
        Self {
            client,
            server,
            daemon: Some(daemon),
            port,
        }
    }

    /// Starts the daemon unless the daemon is running.
    pub fn start_daemon(&mut self) {
        if self.daemon.is_none() {
            self.daemon = Some(Daemon::start_on(&self.server, self.port, &LOOPBACK));
        }
    }

    pub fn kill_daemon(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.process.kill();
        }
    }

    /// Restarts the daemon under strace(1), which delays each sync by `time`. Returns `None` if
    /// strace is missing.
    pub fn start_slow_to_sync(&mut self, time: Duration) -> Option<Process> {
        self.kill_daemon();
        Command::new("strace")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .ok()?;
        let mut command = self.server.command("strace");
        let delay = format!("inject=fdatasync:delay_enter={}", time.as_micros());
        // With -D, the child is the daemon, and strace exits with the daemon.
        command.args([
            "-D",
            "-f",
            "--seccomp-bpf",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=fdatasync",
            "-e",
            &delay,
        ]);
        command
            .args([program(), "serve", "--port", &self.port.to_string()])
            .args(LOOPBACK);
        let daemon = Process::spawn(command);
        daemon.await_stderr("listening on");
        Some(daemon)
    }

    pub fn start_cp(&self, case: &Case, options: &[&str]) -> Process {
        self.client.start(self.cp_words(case, options))
    }

    pub fn cp(&self, case: &Case) -> Outcome {
        self.start_cp(case, &["--json"]).finish()
    }

    /// Starts a copy and traces its receiver. Restarts the daemon, and also returns the client, if
    /// the daemon is the receiver.
    #[cfg(target_arch = "x86_64")]
    pub fn start_traced(
        &mut self,
        case: &Case,
        plan: Plan,
        options: &[&str],
    ) -> (Traced, Option<Process>) {
        match case.way() {
            Way::Get => {
                self.start_daemon();
                let command = self.command(&self.client, &self.cp_words(case, options));
                (Traced::spawn(command, &self.client.files(), plan), None)
            }
            Way::Put => {
                self.kill_daemon();
                let port = self.port.to_string();
                let words = ["serve", "--port", &port]
                    .into_iter()
                    .chain(LOOPBACK)
                    .map(str::to_owned);
                let daemon = Traced::spawn(
                    self.command(&self.server, &words.collect::<Vec<_>>()),
                    &self.server.files(),
                    plan,
                );
                let client = daemon
                    .await_stderr("listening on")
                    .map(|_| self.start_cp(case, options));
                (daemon, client)
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn command(&self, side: &Side, words: &[String]) -> Command {
        let mut command = side.command(program());
        command.args(words);
        command
    }

    fn cp_words(&self, case: &Case, options: &[&str]) -> Vec<String> {
        let port = self.port.to_string();
        let first = ["cp", "-P", &port, "--link", LINKS[0], "--link", LINKS[1]];
        first
            .iter()
            .chain(options)
            .copied()
            .map(str::to_owned)
            .chain(case.words().into_iter().map(str::to_owned))
            .collect()
    }
}
