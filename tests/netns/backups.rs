//! The backup tool of `examples/` over two cables, of which it loses one.

use std::{
    fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use nicstripe_lab::{Direction, Lab, LinkSpec};

use crate::{
    harness::{
        Outcome, Process, content, example,
        tree::{Aspects, Tree},
    },
    hosts::{Hosts, MIB},
};

pub(crate) const TESTS: &[(&str, fn())] =
    tests![a_backup_and_a_restore_survive_a_cable_that_is_cut, a_backup_and_a_restore_survive_a_silent_cable];

fn a_backup_and_a_restore_survive_a_cable_that_is_cut() {
    survives(|lab, cable| lab.cut(cable).unwrap());
}

fn a_backup_and_a_restore_survive_a_silent_cable() {
    survives(|lab, cable| lab.drop_silently(cable, Direction::Both).unwrap());
}

/// Loses the cable of the first contact in the middle of a backup, and the other in the middle of a restore.
#[track_caller]
fn survives(lose: impl Fn(&Lab, usize)) {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(50); 2]);
    let folder = hosts.client.path("tree");
    fs::create_dir(&folder).unwrap();
    for (number, bytes) in content(16 * MIB).chunks(MIB).enumerate() {
        fs::write(folder.join(number.to_string()), bytes).unwrap();
    }
    run(&hosts, &["init", REPO]);
    let backup = start(&hosts, &["backup", REPO, "tree"]);
    await_files(&hosts.server.path("repo/packs"), 8);
    lose(&hosts.lab, 0);
    backup.finish().expect(0);

    // Whoever comes anew is told the address of this cable.
    hosts.lab.heal(0).unwrap();
    hosts.lab.pass(0).unwrap();
    await_reached(&hosts);
    run(&hosts, &["check", REPO, "--read-data"]);
    let restore = start(&hosts, &["restore", REPO, "latest", "restored"]);
    await_files(&hosts.client.path("restored"), 4);
    lose(&hosts.lab, 1);
    restore.finish().expect(0);
    let [tree, restored] = ["tree", "restored"].map(|name| Tree::read(&hosts.client.path(name), Aspects { modes: true, ..Aspects::NONE }));
    assert!(tree == restored);
}

/// Starts the tool, with packs so small that there are many.
fn start(hosts: &Hosts, arguments: &[&str]) -> Process {
    let mut command = hosts.client.command(example("backup"));
    command.args(arguments).args(["--port", &hosts.daemon.port.to_string(), "--pack-size", "262144"]);
    Process::spawn(command)
}

/// Runs it to its good end.
#[track_caller]
fn run(hosts: &Hosts, arguments: &[&str]) -> Outcome {
    start(hosts, arguments).finish().expect(0)
}

/// Waits until the daemon is reached again: the kernel asks for a neighbour that did not answer once a second.
fn await_reached(hosts: &Hosts) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !start(hosts, &["list", REPO]).finish().status.success() {
        assert!(Instant::now() < deadline, "the daemon was not reached again within a minute");
    }
}

/// Waits until there are so many files in a folder.
fn await_files(folder: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_dir(folder).map_or(0, Iterator::count) < count {
        assert!(Instant::now() < deadline, "no {count} files in {folder:?} within a minute");
        sleep(Duration::from_millis(2));
    }
}

const REPO: &str = "10.77.1.2:repo";
