//! Client and daemon that trust each other, joined by two links on loopback.

use std::process::Command;

use rustix::process::Signal;

use super::{
    outcome::Outcome,
    process::Process,
    program::program,
    side::{Daemon, Side},
};

pub struct Pair {
    pub client: Side,
    pub server: Side,
    pub daemon: Daemon,
}

impl Pair {
    /// Creates two sides, and starts a daemon that serves the server's files to the client.
    pub fn new() -> Self {
        Self::serving(&[], "")
    }

    /// Like `new`, with additional options of `serve`. `trusting` is the client's rights in the
    /// server's peers file.
    pub fn serving(options: &[&str], trusting: &str) -> Self {
        Self::with(trusting, |server| {
            Daemon::start(server, &[&LOOPBACK, options].concat())
        })
    }

    /// Like `serving`, with a daemon that `start` starts at the server.
    pub fn with(trusting: &str, start: impl FnOnce(&Side) -> Daemon) -> Self {
        let (client, server) = (Side::here(), Side::here());
        client.trust(&server, "nas", "");
        server.trust(&client, "laptop", trusting);
        let daemon = start(&server);
        Self {
            client,
            server,
            daemon,
        }
    }

    /// Starts `nicstripe cp` over both links.
    pub fn start_cp(&self, arguments: &[&str]) -> Process {
        self.client.start(self.cp_arguments(arguments))
    }

    /// Runs `nicstripe cp` over both links and waits until it exits.
    pub fn cp(&self, arguments: &[&str]) -> Outcome {
        self.start_cp(arguments).finish()
    }

    /// Returns a command for `nicstripe cp` over both links, without starting it.
    pub fn cp_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.client.command(program());
        command.args(self.cp_arguments(arguments));
        command
    }

    /// Returns a shell command in which `$cp` stands for `nicstripe cp` over both links.
    pub fn shell(&self, script: &str) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut command = self.client.command("/bin/sh");
        let words = self.cp_arguments(&[]).join(" ");
        command
            .env("PATH", &path)
            .env("cp", format!("{} {words}", program()))
            .args(["-c", script]);
        command
    }

    /// Returns the command-line arguments of a `nicstripe cp` over both links.
    pub fn cp_arguments(&self, arguments: &[&str]) -> Vec<String> {
        let port = self.daemon.port.to_string();
        let first = ["cp", "-P", &port, "--link", LINKS[0], "--link", LINKS[1]];
        first
            .iter()
            .chain(arguments)
            .map(|word| (*word).to_owned())
            .collect()
    }

    /// Kills the daemon and restarts it on the same port.
    pub fn restart_daemon(self) -> Self {
        self.restart_daemon_after(Signal::KILL, || ())
    }

    /// Ends the daemon with a signal, calls `meanwhile`, and restarts the daemon on the same port.
    pub fn restart_daemon_after(mut self, signal: Signal, meanwhile: impl FnOnce()) -> Self {
        let Daemon { process, port } = self.daemon;
        process.signal(signal);
        process.finish();
        meanwhile();
        self.daemon = Daemon::start_on(&self.server, port, &LOOPBACK);
        self
    }
}

/// Options of a daemon that listens on loopback only, so that no other machine can reach it.
pub const LOOPBACK: [&str; 2] = ["--interface", "lo"];

/// Two address pairs that form two links. Every address of 127.0.0.0/8 is on the loopback
/// interface.
pub const LINKS: [&str; 2] = ["127.0.0.2=127.0.1.2", "127.0.0.3=127.0.1.3"];

pub const MIB: usize = 1 << 20;
