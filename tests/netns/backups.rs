//! Tests of backups over two cables while one of them fails, by `examples/backup` and by restic.

use std::{
    env, fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use nicstripe_lab::{Direction, Lab, LinkSpec};
use nicstripe_testkit::{
    Outcome, Process, content, example, tests,
    tree::{Aspects, Tree},
    trial::Test,
};

use crate::hosts::{Hosts, MIB};

pub(crate) const TESTS: &[Test] = tests![a_backup_and_a_restore_survive_a_cable_that_is_cut];

pub(crate) const LONG_TESTS: &[Test] = tests![a_backup_and_a_restore_survive_a_silent_cable];

pub(crate) const TESTS_WITH_RESTIC: &[Test] = tests![restic_survives_a_cable_that_is_cut];

fn a_backup_and_a_restore_survive_a_cable_that_is_cut() {
    survives(|lab, cable| lab.cut(cable).unwrap());
}

fn a_backup_and_a_restore_survive_a_silent_cable() {
    survives(|lab, cable| lab.drop_silently(cable, Direction::Both).unwrap());
}

/// Calls `lose` with the cable of the first connection during a backup, and with the other cable
/// during a restore. Panics unless both operations succeed.
#[track_caller]
fn survives(lose: impl Fn(&Lab, usize)) {
    let hosts = hosts_with_a_tree();
    run(&hosts, &["init", REPO]);
    let backup = start(&hosts, &["backup", REPO, "tree"]);
    await_files(&hosts.server.path("repo/packs"), 8);
    lose(&hosts.lab, 0);
    backup.finish().expect(0);

    // A new session connects to the address on this cable.
    hosts.lab.heal(0).unwrap();
    hosts.lab.pass(0).unwrap();
    await_reached(&hosts);
    run(&hosts, &["check", REPO, "--read-data"]);
    let restore = start(&hosts, &["restore", REPO, "latest", "restored"]);
    await_files(&hosts.client.path("restored"), 4);
    lose(&hosts.lab, 1);
    restore.finish().expect(0);
    assert!(read(&hosts, "restored") == read(&hosts, "tree"));
}

fn restic_survives_a_cable_that_is_cut() {
    let hosts = hosts_with_a_tree();
    restic(&hosts, &["init"]).finish().expect(0);
    let backup = restic(&hosts, &["backup", "tree"]);
    await_files(&hosts.server.path("repo/data"), 3);
    hosts.lab.cut(1).unwrap();
    backup.finish().expect(0);
    restic(&hosts, &["check", "--read-data"]).finish().expect(0);
    restic(&hosts, &["restore", "latest", "--target", "restored"])
        .finish()
        .expect(0);
    assert!(read(&hosts, "restored/tree") == read(&hosts, "tree"));
}

/// Starts restic with its repository at the daemon, through `nicstripe serve restic`.
fn restic(hosts: &Hosts, arguments: &[&str]) -> Process {
    let mut command = hosts.client.command("restic");
    command
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .env("RESTIC_PASSWORD", "secret");
    command.args([
        "--no-cache",
        "-r",
        &format!("rclone:{REPO}"),
        "-o",
        &format!("rclone.program={}", env!("CARGO_BIN_EXE_nicstripe")),
    ]);
    command
        .args([
            "-o",
            &format!(
                "rclone.args=serve restic --stdio --port {}",
                hosts.daemon.port
            ),
        ])
        .args(arguments);
    Process::spawn(command)
}

/// Creates two hosts joined by two cables, with 16 files of 1 MiB on the client to back up.
fn hosts_with_a_tree() -> Hosts {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(50); 2]);
    let folder = hosts.client.path("tree");
    fs::create_dir(&folder).unwrap();
    for (number, bytes) in content(16 * MIB).chunks(MIB).enumerate() {
        fs::write(folder.join(number.to_string()), bytes).unwrap();
    }
    hosts
}

fn read(hosts: &Hosts, name: &str) -> Tree {
    Tree::read(
        &hosts.client.path(name),
        Aspects {
            modes: true,
            ..Aspects::NONE
        },
    )
}

/// Starts the backup tool with small packs, so that a backup consists of many packs.
fn start(hosts: &Hosts, arguments: &[&str]) -> Process {
    let mut command = hosts.client.command(example("backup"));
    command.args(arguments).args([
        "--port",
        &hosts.daemon.port.to_string(),
        "--pack-size",
        "262144",
    ]);
    Process::spawn(command)
}

#[track_caller]
fn run(hosts: &Hosts, arguments: &[&str]) -> Outcome {
    start(hosts, arguments).finish().expect(0)
}

/// Waits until the backup tool reaches the daemon over a restored cable. The kernel retries a
/// neighbour that does not answer once a second.
fn await_reached(hosts: &Hosts) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !start(hosts, &["list", REPO]).finish().status.success() {
        assert!(
            Instant::now() < deadline,
            "the daemon was not reached again within a minute"
        );
    }
}

/// Waits up to a minute until a directory has at least `count` entries.
fn await_files(folder: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_dir(folder).map_or(0, Iterator::count) < count {
        assert!(
            Instant::now() < deadline,
            "no {count} files in {folder:?} within a minute"
        );
        sleep(Duration::from_millis(2));
    }
}

const REPO: &str = "10.77.1.2:repo";
