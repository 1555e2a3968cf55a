//! Environment of the bench: folders, daemons and client commands.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use nicstripe::trust::Home;
use nicstripe_lab::Host;

use super::history::Copy;
use crate::{
    bench::{LISTENING, Process, Result, Way, start_daemon_as},
    program,
};

/// Folders of the bench, with keys that trust each other.
#[derive(Clone, Debug)]
pub struct Room {
    base: PathBuf,
}

/// Sync system calls of the receiver that strace(1) skips, reporting success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Skipped {
    None,
    /// All system calls that make data durable, including those below.
    All,
    /// fsync(2), which makes a file durable before its rename, and the file's directory afterwards.
    Fsync,
    /// fdatasync(2), which makes data and journal durable during reception.
    Fdatasync,
    /// syncfs(2), which makes many small files and all names of a tree durable.
    Syncfs,
}

impl Skipped {
    /// Returns the names of the system calls to skip, in strace's syntax.
    pub fn calls(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "fsync,fdatasync,syncfs,sync,sync_file_range,msync",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::Syncfs => "syncfs",
        }
    }
}

impl Room {
    pub fn at(base: &Path) -> Self {
        Self {
            base: base.to_owned(),
        }
    }

    /// Returns the path of the disk's image, which at first contains an empty file system.
    pub fn image(&self) -> PathBuf {
        self.base.join("image")
    }

    /// Returns the mount point of the FUSE file system that serves the disk.
    pub fn disk(&self) -> PathBuf {
        self.base.join("disk")
    }

    /// Returns the mount point of the file system under test, which is the target folder.
    pub fn targets(&self) -> PathBuf {
        self.base.join("targets")
    }

    /// Returns the source folder of the copies.
    pub fn sources(&self) -> PathBuf {
        self.base.join("sources")
    }

    /// Empties or creates the source folder.
    pub fn clear_sources(&self) -> Result<()> {
        if self.sources().exists() {
            fs::remove_dir_all(self.sources())?;
        }
        Ok(fs::create_dir(self.sources())?)
    }

    /// Returns the folder for the output of daemons and clients.
    pub fn logs(&self) -> PathBuf {
        self.base.join("logs")
    }

    /// Returns a nicstripe command with the keys of a host. The command runs under strace if sync
    /// calls are skipped.
    fn nicstripe(&self, host: Host, skipped: Skipped) -> Command {
        let mut command = match skipped {
            Skipped::None => Command::new(program()),
            _ => {
                let mut command = Command::new("strace");
                command.args([
                    "-f",
                    "-qq",
                    "--seccomp-bpf",
                    "-o",
                    "/dev/null",
                    "-e",
                    &format!("inject={}:retval=0", skipped.calls()),
                    program(),
                ]);
                command
            }
        };
        command
            .env(
                "NICSTRIPE_HOME",
                Home::at(self.base.join(format!("home-{host}"))).config(),
            )
            .env_remove("RUST_LOG");
        command
    }
}

/// Running daemons: one receives from clients, the other sends to clients.
#[derive(Debug)]
pub struct Daemons<'a> {
    room: &'a Room,
    skipped: Skipped,
    receiver: Daemon,
    sender: Daemon,
}

#[derive(Debug)]
struct Daemon {
    _process: Process,
    port: u16,
}

impl<'a> Daemons<'a> {
    /// Starts both daemons on loopback, the receiver under strace(1) if sync calls are skipped.
    pub fn start(room: &'a Room, skipped: Skipped) -> Result<Self> {
        let receiver = Daemon::start(room, skipped, &room.targets(), "receiver")?;
        let sender = Daemon::start(room, Skipped::None, &room.sources(), "sender")?;
        Ok(Self {
            room,
            skipped,
            receiver,
            sender,
        })
    }

    /// Returns true if strace skips sync calls of the receiver.
    pub fn are_traced(&self) -> bool {
        self.skipped != Skipped::None
    }

    /// Returns the `nicstripe cp` command of a copy.
    pub fn client(&self, copy: &Copy) -> Command {
        let remote = |name: &str| format!("{PEER}:{name}");
        let (daemon, from, to, skipped) = match copy.way {
            // The client only reads.
            Way::Put => (
                &self.receiver,
                local(&self.room.sources(), &copy.source),
                remote(&copy.target),
                Skipped::None,
            ),
            Way::Get => (
                &self.sender,
                remote(&copy.source),
                local(&self.room.targets(), &copy.target),
                self.skipped,
            ),
        };
        let mut command = self.room.nicstripe(Host::A, skipped);
        command
            .args(["cp", "--json", "-P", &daemon.port.to_string()])
            .args(LINKS.iter().flat_map(|link| ["--link", link]));
        command.args(&copy.options).args([from, to]);
        command
    }
}

impl Daemon {
    fn start(room: &Room, skipped: Skipped, root: &Path, name: &str) -> Result<Self> {
        let mut command = room.nicstripe(Host::B, skipped);
        command
            .args(["serve", "--interface", "lo", "--port", "0", "--root"])
            .arg(root);
        let process = start_daemon_as(command, name, &room.logs())?;
        let said = process.errors()?;
        let port = said
            .lines()
            .find(|line| line.starts_with(LISTENING))
            .and_then(|line| line.split(", port ").nth(1));
        let digits: String = port
            .unwrap_or_default()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        Ok(Self {
            port: digits
                .parse()
                .map_err(|_| format!("{name} did not print its port: {said:?}"))?,
            _process: process,
        })
    }
}

fn local(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}

/// Links of each copy, as pairs of local and remote address. All addresses of 127.0.0.0/8 are on
/// the loopback interface.
const LINKS: [&str; 2] = ["127.0.0.2=127.0.1.2", "127.0.0.3=127.0.1.3"];
const PEER: &str = "127.0.1.2";
