//! Measured tools, and the task of each tool.

use std::{
    fmt, fs,
    path::Path,
    process::{Command, Stdio},
};

use nicstripe_lab::Host;
use nicstripe_testkit::{
    bench::{Process, Result, differences},
    program,
    trial::is_installed,
};
use serde_json::Value;

use crate::{
    rig::{IPERF3_PORT, Measured, Rig, Way},
    ssh::SSHD,
};

/// Tool, together with the measured task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Road {
    /// First backup with restic to a repository on host B.
    Backup,
    /// Complete restore with restic from a repository on host B.
    Restore,
    /// Copy of a tree to host B with rsync.
    Rsync,
    /// Copy of a tree to host B with scp.
    Scp,
    /// First archive with borg.
    Borg,
    /// Clone of a repository on host B with git.
    Git,
    /// One TCP connection to host B for 10 s with iperf3.
    Iperf3,
}

impl Road {
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Backup | Self::Restore => &["restic", "ssh", SSHD],
            Self::Rsync => &["rsync", "ssh", SSHD],
            Self::Scp => &["scp", "ssh", SSHD],
            Self::Borg => &["borg", "ssh", SSHD],
            Self::Git => &["git", "ssh", SSHD],
            Self::Iperf3 => &["iperf3", SSHD],
        }
    }

    /// Returns the required programs that are not installed.
    pub(crate) fn missing_programs(self) -> Vec<&'static str> {
        self.programs()
            .iter()
            .copied()
            .filter(|program| !is_installed(program))
            .collect()
    }

    /// Returns true if the tool reaches host B by `nicstripe dial` or `nicstripe forward`.
    pub(crate) fn dials(self) -> bool {
        !matches!(self, Self::Backup | Self::Restore)
    }

    /// Measures the task once. Returns an error unless its result is correct.
    pub(crate) fn run(self, rig: &Rig<'_>) -> Result<Measured> {
        rig.clear_scratch()?;
        match self {
            Self::Backup => backup(rig),
            Self::Restore => restore(rig),
            Self::Rsync => rsync(rig),
            Self::Scp => scp(rig),
            Self::Borg => borg(rig),
            Self::Git => git(rig),
            Self::Iperf3 => iperf3(rig),
        }
    }
}

/// Returns the name and version of each tool, without duplicates.
pub(crate) fn versions(roads: &[Road]) -> Vec<String> {
    let mut programs: Vec<&str> = roads
        .iter()
        .map(|road| road.programs()[0])
        .filter(|program| *program != "scp")
        .chain(["ssh"])
        .collect();
    programs.dedup();
    let version = |program: &&str| {
        // restic prints the version with a command, ssh prints it on standard error. Uses the first
        // line with a digit.
        let flag = match *program {
            "restic" => "version",
            "ssh" => "-V",
            _ => "--version",
        };
        let output = Command::new(program)
            .arg(flag)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let line = text
            .lines()
            .find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
        Some(
            line.split([',', '('])
                .next()?
                .split(" compiled")
                .next()?
                .trim()
                .to_owned(),
        )
    };
    let mut found: Vec<String> = programs.iter().filter_map(version).collect();
    found.dedup();
    found
}

fn restic(rig: &Rig<'_>, words: &[&str]) -> Command {
    let mut command = rig.command("restic");
    command
        .env("RESTIC_PASSWORD", "secret")
        .arg("--cache-dir")
        .arg(rig.scratch().join("cache"));
    match rig.way {
        Way::Road => {
            command.args([
                "-o",
                &format!("rclone.program={}", program()),
                "-r",
                &format!("rclone:{}:{REPOSITORY}", rig.peer()),
            ]);
        }
        Way::Alone | Way::Twice | Way::Unshaped => {
            let there = rig.there(REPOSITORY);
            command.args([
                "-o",
                &format!("sftp.command={} {} -s sftp", rig.ssh.command(), rig.peer()),
            ]);
            command.args(["-r", &format!("sftp:{}:{}", rig.peer(), there.display())]);
        }
    }
    command.args(words);
    command
}

fn backup(rig: &Rig<'_>) -> Result<Measured> {
    rig.prepare(restic(rig, &["init"]), "restic-init")?;
    let (measured, _) = rig.measure(restic(rig, &["backup", "-q", SOURCE]), &[], &[])?;
    rig.prepare(restic(rig, &["check"]), "restic-check")?;
    Ok(measured)
}

fn restore(rig: &Rig<'_>) -> Result<Measured> {
    rig.prepare(restic(rig, &["init"]), "restic-init")?;
    rig.prepare(restic(rig, &["backup", "-q", SOURCE]), "restic-backup")?;
    let target = rig.scratch().join("restored");
    let words = [
        "restore",
        "-q",
        "latest",
        "--target",
        target.to_str().ok_or("the folder's name is not UTF-8")?,
    ];
    let (measured, _) = rig.measure(restic(rig, &words), &[], &[])?;
    same(rig, &target.join(SOURCE))?;
    Ok(measured)
}

fn rsync(rig: &Rig<'_>) -> Result<Measured> {
    let mut command = rig.command("rsync");
    command
        .args(["-a", "--whole-file", "-e", &rig.ssh.command(), SOURCE])
        .arg(remote(rig));
    let (measured, _) = rig.measure(command, &[], &[])?;
    same(rig, &rig.there(SOURCE))?;
    Ok(measured)
}

fn scp(rig: &Rig<'_>) -> Result<Measured> {
    let mut command = rig.command("scp");
    command
        .args(["-rpq", "-F"])
        .arg(&rig.ssh.config)
        .arg(SOURCE)
        .arg(remote(rig));
    let (measured, _) = rig.measure(command, &[], &[])?;
    same(rig, &rig.there(SOURCE))?;
    Ok(measured)
}

fn borg(rig: &Rig<'_>) -> Result<Measured> {
    let repository = format!(
        "ssh://{}:{}{}",
        rig.peer(),
        crate::ssh::PORT,
        rig.there(REPOSITORY).display()
    );
    let borg = |words: &[&str]| {
        let mut command = rig.command("borg");
        command
            .env("BORG_RSH", rig.ssh.command())
            .env("BORG_BASE_DIR", rig.scratch())
            .env("BORG_REPO", &repository);
        command
            .env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes")
            .env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes")
            .args(words);
        command
    };
    rig.prepare(borg(&["init", "-e", "none"]), "borg-init")?;
    let (measured, _) = rig.measure(
        borg(&["create", "--compression", "none", "::first", SOURCE]),
        &[],
        &[],
    )?;
    rig.prepare(borg(&["check", "--repository-only"]), "borg-check")?;
    Ok(measured)
}

/// Measures the clone of a repository with one commit of all files, in a pack that git sends
/// unchanged.
fn git(rig: &Rig<'_>) -> Result<Measured> {
    let repository = rig.there("source.git");
    let source = rig.place.files(Host::A).join(SOURCE);
    let git = |words: &[&str]| {
        let mut command = rig.command("git");
        command.args([
            "-c",
            "core.compression=0",
            "-c",
            "core.bigFileThreshold=1M",
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@localhost",
        ]);
        command
            .args(["-c", "safe.directory=*", "-c", "gc.auto=0"])
            .args(words);
        command
            .env("GIT_DIR", &repository)
            .env("GIT_WORK_TREE", &source)
            .current_dir(&source);
        command
    };
    for words in [
        &["init", "-q"][..],
        &["add", "."],
        &["commit", "-q", "-m", "all"],
        &["repack", "-adq"],
    ] {
        rig.prepare(git(words), "git-prepare")?;
    }
    let mut command = rig.command("git");
    let url = format!(
        "ssh://{}:{}{}",
        rig.peer(),
        crate::ssh::PORT,
        repository.display()
    );
    command
        .env("GIT_SSH_COMMAND", rig.ssh.command())
        .args(["clone", "-q", "--no-checkout", &url])
        .arg(rig.scratch().join("clone"));
    let (measured, _) = rig.measure(command, &[], &[])?;
    let mut check = rig.command("git");
    check.arg("-C").arg(rig.scratch().join("clone")).args([
        "rev-parse",
        "--verify",
        "-q",
        "HEAD^{tree}",
    ]);
    rig.prepare(check, "git-check")?;
    Ok(measured)
}

fn iperf3(rig: &Rig<'_>) -> Result<Measured> {
    let logs = rig.place.logs();
    let port = IPERF3_PORT.to_string();
    let mut server = rig.lab.command(Host::B, "iperf3");
    server.args(["-s", "-1", "-p", &port]);
    let server = Process::spawn(server, "iperf3-server", &logs)?;
    server.await_listener(IPERF3_PORT)?;
    let forward = match rig.way {
        Way::Road => {
            let mut command = rig.nicstripe("forward");
            command.args([
                "-L",
                &format!("127.0.0.1:{port}:{}:{port}", rig.peer()),
                &rig.peer(),
            ]);
            let forward = Process::spawn(command, "forward", &logs)?;
            forward.await_listener(IPERF3_PORT)?;
            Some(forward)
        }
        Way::Alone | Way::Twice | Way::Unshaped => None,
    };
    let target = if forward.is_some() {
        "127.0.0.1".to_owned()
    } else {
        rig.peer()
    };
    let mut command = rig.command("iperf3");
    command.args(["-c", &target, "-p", &port, "-t", "10", "-J"]);
    let helpers: Vec<&Process> = forward.iter().collect();
    let (mut measured, client) = rig.measure(command, &helpers, &[&server])?;
    let report: Value = serde_json::from_str(&client.output()?)?;
    let number = |path: &str| {
        report
            .pointer(path)
            .and_then(Value::as_f64)
            .ok_or("iperf3 reports no rate")
    };
    measured.bytes =
        (number("/end/sum_received/bits_per_second")? / 8.0 * measured.wall.as_secs_f64()) as u64;
    Ok(measured)
}

/// Returns host B's folder of files as a remote path for rsync and scp.
fn remote(rig: &Rig<'_>) -> String {
    format!("{}:{}/", rig.peer(), rig.place.files(Host::B).display())
}

/// Compares a received tree with the source, then removes the received tree.
///
/// # Errors
///
/// The trees differ.
fn same(rig: &Rig<'_>, target: &Path) -> Result<()> {
    let found = differences(&rig.place.files(Host::A).join(SOURCE), target)?;
    fs::remove_dir_all(target)?;
    if found.is_empty() {
        Ok(())
    } else {
        Err(format!("received data differs: {}", found.join("; ")).into())
    }
}

impl fmt::Display for Road {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backup => "restic backup",
            Self::Restore => "restic restore",
            Self::Rsync => "rsync",
            Self::Scp => "scp",
            Self::Borg => "borg create",
            Self::Git => "git clone",
            Self::Iperf3 => "iperf3",
        })
    }
}

/// Name of the source tree in host A's folder.
pub(crate) const SOURCE: &str = "source";

/// Name of the backup repository in host B's folder.
const REPOSITORY: &str = "repository";
