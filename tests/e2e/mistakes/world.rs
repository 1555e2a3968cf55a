//! The two simulated machines of a transcript, and its placeholders.

use std::{ffi::OsString, fs, net::TcpListener, path::Path};

use nicstripe::trust::PublicKey;
use nicstripe_testkit::{Outcome, Process, Side, pair::Pair};

use super::block::Block;

/// The two machines of a transcript, and the values of its placeholders.
pub(super) struct World {
    pair: Pair,
    placeholders: Vec<(&'static str, String)>,
}

impl World {
    /// Creates both machines, and starts the daemon on `nas`. `trusting` contains the rights of
    /// `laptop` in the peers file of `nas`.
    pub(super) fn new(trusting: &str) -> Self {
        let pair = Pair::serving(&[], trusting);
        let (client, server) = (&pair.client, &pair.server);
        client.write("notes.txt", b"notes\n");
        client.make_dir("photos");
        client.write("photos/one.jpg", b"one\n");
        server.write("report.pdf", b"report\n");
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
        let key = |side: &Side| side.key().split(' ').take(2).collect::<Vec<_>>().join(" ");
        let fingerprint = |side: &Side| {
            key(side)
                .parse::<PublicKey>()
                .unwrap()
                .fingerprint()
                .to_string()
        };
        // A value that contains another value must come first.
        let placeholders = vec![
            ("[LAPTOP-KEY]", key(client)),
            ("[NAS-KEY]", key(server)),
            ("[LAPTOP-FINGERPRINT]", fingerprint(client)),
            ("[NAS-FINGERPRINT]", fingerprint(server)),
            ("[LAPTOP-HOME]", text(client.home())),
            ("[NAS-HOME]", text(server.home())),
            ("[LAPTOP]", text(client.files())),
            ("[NAS]", text(server.files())),
            ("[PORT]", pair.daemon.port.to_string()),
            ("[FREE]", free.to_string()),
            // Together with the option, because the name alone may be a word of a message.
            (
                "--name [HOSTNAME]",
                format!(
                    "--name {}",
                    rustix::system::uname().nodename().to_str().unwrap()
                ),
            ),
        ];
        Self { pair, placeholders }
    }

    pub(super) fn run(&self, block: &Block) -> Block {
        let Outcome {
            status,
            stdout,
            stderr,
            ..
        } = self.shell(&block.machine, &self.filled(&block.typed));
        let stdout = stdout.lines().map(|line| format!("> {line}"));
        let printed = stderr
            .lines()
            .map(str::to_owned)
            .chain(stdout)
            .map(|line| self.emptied(line))
            .collect();
        block.ran(printed, status.code())
    }

    /// Runs a command line in the folder of a machine.
    pub(super) fn shell(&self, machine: &str, typed: &str) -> Outcome {
        let side = match machine {
            "nas" => &self.pair.server,
            _ => &self.pair.client,
        };
        let mut command = side.command("/bin/sh");
        command.env("PATH", search_path()).args(["-c", typed]);
        Process::spawn(command).finish()
    }

    pub(super) fn filled(&self, line: &str) -> String {
        self.placeholders
            .iter()
            .fold(line.to_owned(), |line, (name, value)| {
                line.replace(name, value)
            })
    }

    fn emptied(&self, line: String) -> String {
        self.placeholders.iter().fold(line, |line, (name, value)| {
            line.replace(value.as_str(), name)
        })
    }
}

/// Returns a search path that begins with the directory of the program under test.
fn search_path() -> OsString {
    let program = fs::canonicalize(env!("CARGO_BIN_EXE_nicstripe")).unwrap();
    let folders = [
        program.parent().unwrap(),
        Path::new("/usr/bin"),
        Path::new("/bin"),
    ];
    std::env::join_paths(folders).unwrap()
}
