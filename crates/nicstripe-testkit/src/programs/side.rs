//! Simulated machine: its files, its key, and the commands that run on it.

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
};

use nicstripe_lab::take_ignored_signals;

use super::{outcome::Outcome, process::Process, program::program};
use crate::content::{digest, is_same};

use nicstripe::trust::{Peers, PublicLine};
use serde_json::Value;
use tempfile::TempDir;

/// Simulated machine: a directory of files, in which commands run, and a directory of keys and
/// configuration.
pub struct Side {
    folder: TempDir,
    start: Box<dyn Fn(&OsStr) -> Command>,
}

impl Side {
    /// Creates a side whose commands run as plain child processes, with its files in the system's
    /// temporary directory.
    pub fn here() -> Self {
        Self::of(tempfile::tempdir().unwrap(), |program| {
            Command::new(program)
        })
    }

    /// Creates a side with its files in `folder`. `start` creates the side's commands.
    pub fn of(folder: TempDir, start: impl Fn(&OsStr) -> Command + 'static) -> Self {
        for (name, mode) in [(FILES, 0o755), (HOME, 0o700)] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(mode)).unwrap();
        }
        Self {
            folder,
            start: Box::new(start),
        }
    }

    /// Returns a command that runs in the directory of files. Its environment contains only the
    /// directories of this side.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        take_ignored_signals();
        let mut command = (self.start)(program.as_ref());
        command.env_clear().current_dir(self.files());
        command
            .env("NICSTRIPE_HOME", self.home())
            .env("HOME", self.folder.path())
            // Otherwise a host without a daemon would be tried by the ssh of this machine.
            .env("NICSTRIPE_SSH", "")
            .env("LANG", "C.UTF-8")
            .env("USER", "tester");
        command
    }

    pub fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Process {
        let mut command = self.command(program());
        command.args(arguments);
        Process::spawn(command)
    }

    /// Runs nicstripe with these arguments until it exits.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Outcome {
        self.start(arguments).finish()
    }

    /// Returns the directory of files, which is the working directory of all commands.
    pub fn files(&self) -> PathBuf {
        self.folder.path().join(FILES)
    }

    /// Returns the directory of key, peers file and configuration (`NICSTRIPE_HOME`).
    pub fn home(&self) -> PathBuf {
        self.folder.path().join(HOME)
    }

    /// Returns the path of the file that lists the trusted peers.
    pub fn peers_file(&self) -> PathBuf {
        self.home().join("peers")
    }

    /// Writes the configuration file of `serve`.
    pub fn configure(&self, text: &str) {
        self.write_guarded(self.home().join("config.toml"), text);
    }

    /// Writes a file that only its owner may change, independent of the umask.
    pub fn write_guarded(&self, name: impl AsRef<Path>, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.files().join(name)
    }

    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub fn make_dir(&self, name: &str) {
        fs::create_dir(self.path(name)).unwrap();
    }

    #[track_caller]
    pub fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns true if the name exists. A broken symbolic link counts.
    pub fn has(&self, name: impl AsRef<Path>) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// Returns all names in the directory of files, including hidden ones.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.files()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Returns the public key line that `nicstripe key` prints.
    pub fn key(&self) -> String {
        let outcome = self.run(["key"]).expect(0);
        let [line] = outcome.stdout.lines().collect::<Vec<_>>()[..] else {
            panic!("{outcome}")
        };
        line.to_owned()
    }

    /// Adds the key of another side to the peers file. `options` are the rights of the other side;
    /// may be empty.
    pub fn trust(&self, other: &Self, name: &str, options: &str) {
        let line = other.key();
        self.run(["trust", "add", &line, "--name", name]).expect(0);
        if !options.is_empty() {
            let line: PublicLine = line.parse().unwrap();
            let options = options.parse().unwrap();
            Peers::edit(self.peers_file(), |peers| {
                peers.set_options(&line.key, options)
            })
            .unwrap();
        }
    }

    /// Panics unless a file has the expected content and the JSON report has the matching digest.
    #[track_caller]
    pub fn check(&self, name: impl AsRef<Path>, expected: &[u8], report: &Value) {
        let name = name.as_ref();
        assert!(
            is_same(&self.read(name), expected),
            "{} is not what was sent",
            name.display()
        );
        assert_eq!(
            text(report, "blake3"),
            digest(expected),
            "{}",
            name.display()
        );
        assert_eq!(number(report, "bytes"), expected.len() as u64);
    }
}

/// Process of `nicstripe serve` on a side. Dropping the value kills the process.
pub struct Daemon {
    pub process: Process,
    pub port: u16,
}

impl Daemon {
    /// Starts a daemon with these options on a free port, and waits until it listens.
    pub fn start(side: &Side, options: &[&str]) -> Self {
        Self::start_on(side, free_port(), options)
    }

    /// Starts a daemon on this port, and waits until it listens.
    pub fn start_on(side: &Side, port: u16, options: &[&str]) -> Self {
        let port = port.to_string();
        Self::listening(side.start(["serve", "--port", &port].iter().chain(options)))
    }

    /// Waits until a started `nicstripe serve` listens, and parses the port from its output.
    pub fn listening(process: Process) -> Self {
        let line = process.await_stderr("listening on ");
        let address = line.split(" (").next().unwrap();
        let mut parts = address.rsplit(|c: char| !c.is_ascii_digit());
        let digits = parts.next().unwrap();
        Self {
            port: digits
                .parse()
                .unwrap_or_else(|_| panic!("no port at the end of {line:?}")),
            process,
        }
    }
}

/// Returns a free TCP port, which no other caller in this process gets. It is none that the kernel
/// gives to clients, so that a daemon can start again on it.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Processes of tests that run at once are apart.
        let number = process::id() * 997 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + (number % PORTS) as u16;
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
}

/// Ports below those of clients, which begin at 32768 (`ip_local_port_range` in ip(7)).
const FIRST_PORT: u16 = 11_000;
const PORTS: u32 = 21_000;

/// Returns a numeric field of a JSON document. Panics if it is missing.
#[track_caller]
pub fn number(document: &Value, field: &str) -> u64 {
    document[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {field} in {document:#}"))
}

/// Returns a text field of a JSON document. Panics if it is missing.
#[track_caller]
pub fn text<'a>(document: &'a Value, field: &str) -> &'a str {
    document[field]
        .as_str()
        .unwrap_or_else(|| panic!("no text {field} in {document:#}"))
}

/// Returns the entry for the link on a local interface in a JSON report. Panics if it is missing.
#[track_caller]
pub fn link<'a>(document: &'a Value, interface: &str) -> &'a Value {
    let mut links = document["links"].as_array().unwrap().iter();
    links
        .find(|link| link["interface"] == interface)
        .unwrap_or_else(|| panic!("no link {interface} in {document:#}"))
}

const FILES: &str = "files";
const HOME: &str = "home";
