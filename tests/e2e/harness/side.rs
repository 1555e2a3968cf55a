//! One of the two machines: its files, its key, and the commands that run on it.

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

use super::{Outcome, Process, digest};

/// A machine as nicstripe sees it: a folder with files, in which commands start, and one with keys.
pub(crate) struct Side {
    folder: TempDir,
    start: Box<dyn Fn(&OsStr) -> Command>,
}

impl Side {
    /// Creates a side whose commands are plain child processes, with files in the folder for
    /// temporary ones.
    pub(crate) fn here() -> Self {
        Self::of(tempfile::tempdir().unwrap(), |program| {
            Command::new(program)
        })
    }

    /// Creates a side with files in this folder; `start` creates its commands.
    pub(crate) fn of(folder: TempDir, start: impl Fn(&OsStr) -> Command + 'static) -> Self {
        for (name, mode) in [(FILES, 0o755), (HOME, 0o700)] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(mode)).unwrap();
        }
        Self {
            folder,
            start: Box::new(start),
        }
    }

    /// Returns a command that runs in the folder with the files. Its environment has only this
    /// side's folders.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = (self.start)(program.as_ref());
        command.env_clear().current_dir(self.files());
        command
            .env("NICSTRIPE_HOME", self.home())
            .env("HOME", self.folder.path())
            .env("LANG", "C.UTF-8")
            .env("USER", "tester");
        command
    }

    pub(crate) fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Process {
        let mut command = self.command(NICSTRIPE);
        command.args(arguments);
        Process::spawn(command)
    }

    /// Runs nicstripe to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Outcome {
        self.start(arguments).finish()
    }

    /// Returns the folder with the files.
    pub(crate) fn files(&self) -> PathBuf {
        self.folder.path().join(FILES)
    }

    /// Returns the folder with key and peers.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join(HOME)
    }

    /// Returns the path of the list of trusted peers.
    pub(crate) fn peers_file(&self) -> PathBuf {
        self.home().join("peers")
    }

    /// Writes the configuration of `serve`.
    pub(crate) fn configure(&self, text: &str) {
        self.write_guarded(self.home().join("config.toml"), text);
    }

    /// Creates a file that only its owner may change, independent of the umask.
    pub(crate) fn write_guarded(&self, name: impl AsRef<Path>, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.files().join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn make_dir(&self, name: &str) {
        fs::create_dir(self.path(name)).unwrap();
    }

    #[track_caller]
    pub(crate) fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns true if the name exists.
    pub(crate) fn has(&self, name: impl AsRef<Path>) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// Returns the names of all files of this side, including hidden ones.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.files()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Returns the line printed by `nicstripe key`.
    pub(crate) fn key(&self) -> String {
        let outcome = self.run(["key"]).expect(0);
        let [line] = outcome.stdout.lines().collect::<Vec<_>>()[..] else {
            panic!("{outcome}")
        };
        line.to_owned()
    }

    /// Trusts another side. `options` precede the key; may be empty.
    pub(crate) fn trust(&self, other: &Self, name: &str, options: &str) {
        let line = format!("{options} {}", other.key());
        self.run(["trust", "add", line.trim(), "--name", name])
            .expect(0);
    }

    /// Panics unless a file of this side has this content and the report has its digest.
    #[track_caller]
    pub(crate) fn check(&self, name: impl AsRef<Path>, expected: &[u8], report: &Value) {
        let name = name.as_ref();
        assert!(
            super::is_same(&self.read(name), expected),
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

/// `nicstripe serve` on a side's files. Killed on drop.
pub(crate) struct Daemon {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

impl Daemon {
    /// Starts the daemon with these options on a free port, and waits until it listens.
    pub(crate) fn start(side: &Side, options: &[&str]) -> Self {
        Self::start_on(side, 0, options)
    }

    /// Starts the daemon on a port, and waits until it listens.
    pub(crate) fn start_on(side: &Side, port: u16, options: &[&str]) -> Self {
        let port = port.to_string();
        Self::listening(side.start(["serve", "--port", &port].iter().chain(options)))
    }

    /// Waits until a `serve` listens.
    pub(crate) fn listening(process: Process) -> Self {
        let line = process.await_stderr("listening on ");
        let digits = line.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
        Self {
            port: digits
                .parse()
                .unwrap_or_else(|_| panic!("no port at the end of {line:?}")),
            process,
        }
    }
}

/// Returns a required numeric field of a document.
#[track_caller]
pub(crate) fn number(document: &Value, field: &str) -> u64 {
    document[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {field} in {document:#}"))
}

/// Returns a required text field of a document.
#[track_caller]
pub(crate) fn text<'a>(document: &'a Value, field: &str) -> &'a str {
    document[field]
        .as_str()
        .unwrap_or_else(|| panic!("no text {field} in {document:#}"))
}

/// Returns the report's entry for the link on an interface.
#[track_caller]
pub(crate) fn link<'a>(document: &'a Value, interface: &str) -> &'a Value {
    let mut links = document["links"].as_array().unwrap().iter();
    links
        .find(|link| link["interface"] == interface)
        .unwrap_or_else(|| panic!("no link {interface} in {document:#}"))
}

const NICSTRIPE: &str = env!("CARGO_BIN_EXE_nicstripe");
const FILES: &str = "files";
const HOME: &str = "home";
