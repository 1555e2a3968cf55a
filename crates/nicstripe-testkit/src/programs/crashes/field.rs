//! Client and daemon that can be killed and restarted.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use crate::{Daemon, Process, Side, pair::LOOPBACK, program};

/// Client and daemon that trust each other. The daemon uses the same port after each restart.
pub struct Field {
    pub client: Side,
    pub server: Side,
    daemon: Option<Daemon>,
    pub(super) port: u16,
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
}
