//! Tests of disks that are full, fill up, reject writes, or stall for seconds. The daemon's files are on
//! a tmpfs or an ext4 image, which is mounted in a private mount namespace.
//!
//! The tests need unshare(1) and mount(8), and are ignored if these are missing or not permitted.
//! Other processes cannot see the mount, which disappears when the daemon exits.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Daemon, Process, content, digest, is_same, link, number, tests, text, trial::Test,
};

use crate::hosts::{Hosts, MIB, Rights, introduce, side};

pub(crate) const TESTS: &[Test] = tests![
    a_file_that_cannot_fit_is_refused_before_it_is_sent,
    a_disk_that_fills_up_keeps_what_arrived_and_a_rerun_goes_on,
    a_file_system_without_inodes_keeps_nothing,
];

/// Tests that need an ext4 image.
pub(crate) const TESTS_WITH_EXT4: &[Test] = tests![
    space_that_a_part_file_has_taken_is_not_asked_for_again,
    a_disk_that_loses_what_it_took_is_never_believed,
];

/// Tests that need fsfreeze(8) and an ext4 image.
pub(crate) const TESTS_WITH_FREEZING: &[Test] =
    tests![a_disk_that_takes_nothing_for_5_seconds_is_no_dead_link];

/// Returns the reason why the tests with a tmpfs cannot run on this machine; `None` if they can.
pub(crate) fn obstacle() -> Option<String> {
    obstacle_to("mount -t tmpfs nicstripe .")
}

/// Like [`obstacle`], of the tests with an ext4 image.
pub(crate) fn obstacle_to_ext4() -> Option<String> {
    obstacle_to(EXT4)
}

/// Like [`obstacle`], of the tests with a frozen disk.
pub(crate) fn obstacle_to_freezing() -> Option<String> {
    obstacle_to(&format!(
        "{EXT4} && cd \"$PWD\" && fsfreeze -f . && fsfreeze -u ."
    ))
}

fn obstacle_to(mount: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", mount])
        .current_dir(folder.path())
        .stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "no private mounts here: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Some(format!("no unshare(1) here: {error}")),
    }
}

/// Shell script that creates an ext4 image of 64 MiB in the current directory and mounts the image
/// over that directory.
const EXT4: &str = "truncate -s 64M image && mkfs.ext4 -q -F -m 0 image && mount -o loop image .";

/// Creates two hosts with a daemon on host B. The daemon's files are on a tmpfs with the mount
/// options `options`.
fn hosts(options: &str) -> Hosts {
    hosts_on(one(), &format!("mount -t tmpfs -o {options} nicstripe ."))
}

/// Copy of 32 MiB that takes 2 s.
const SLOWLY: [&str; 5] = [
    "--bwlimit",
    "16M",
    "--json-stream",
    "source",
    "10.77.1.2:target",
];

fn one() -> [LinkSpec; 1] {
    [LinkSpec::mbit(400)]
}

/// Creates two hosts with a daemon on host B. The shell script `mount` mounts a file system over
/// the daemon's directory.
fn hosts_on<const N: usize>(links: [LinkSpec; N], mount: &str) -> Hosts {
    let lab = Arc::new(Lab::builder().links(links).build().unwrap());
    let (client, server) = (
        side(&lab, Host::A, Rights::None),
        side(&lab, Host::B, Rights::All),
    );
    introduce(&client, &server);
    let mut command = server.command("unshare");
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let script = format!("{mount} && cd \"$PWD\" && exec \"$@\"");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    command.args([env!("CARGO_BIN_EXE_nicstripe"), "serve", "--port", "0"]);
    let daemon = Daemon::listening(Process::spawn(command));
    Hosts {
        lab,
        client,
        server,
        daemon,
    }
}

/// Returns the path, through `/proc`, of a file in the daemon's mount namespace.
fn inside(hosts: &Hosts, name: &str) -> PathBuf {
    let files = hosts.server.files();
    let root = PathBuf::from(format!("/proc/{}/root", hosts.daemon.process.id()));
    root.join(files.strip_prefix("/").unwrap()).join(name)
}

#[track_caller]
fn has_inside(hosts: &Hosts, name: &str, bytes: &[u8]) {
    assert!(is_same(&fs::read(inside(hosts, name)).unwrap(), bytes));
}

fn names_inside(hosts: &Hosts) -> Vec<String> {
    let entries = fs::read_dir(inside(hosts, "")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn a_file_that_cannot_fit_is_refused_before_it_is_sent() {
    let hosts = hosts("size=8m");
    hosts.client.write("source", content(16 * MIB));
    let outcome = hosts
        .cp(&["--json", "source", "10.77.1.2:target"])
        .expect(11);
    assert_eq!(outcome.document().get("bytes"), None);
    outcome
        .error(&["\"target\"", "16777216 bytes", "free"])
        .hint(&["free space", "source 10.77.1.2:target"]);
    assert_eq!(names_inside(&hosts), Vec::<String>::new());
    // The daemon continues to work.
    hosts.client.write("small", content(4 * MIB));
    hosts.cp(&["small", "10.77.1.2:"]).expect(0);
    has_inside(&hosts, "small", &content(4 * MIB));
}

fn a_disk_that_fills_up_keeps_what_arrived_and_a_rerun_goes_on() {
    let hosts = hosts("size=40m");
    let bytes = content(32 * MIB);
    hosts.client.write("source", &bytes);
    let cp = hosts.start_cp(&SLOWLY);
    // The receiver has synced by then, because it syncs every second.
    cp.await_bytes(20 * MIB as u64);
    fill(&inside(&hosts, "filler"));
    let outcome = cp.finish().expect(11);
    let document = outcome.document();
    assert_eq!(document["resumable"], true, "{outcome}");
    outcome
        .error(&["\"target\"", "No space left"])
        .hint(&["free space", "source 10.77.1.2:target"]);
    assert!(!names_inside(&hosts).contains(&"target".to_owned()));

    fs::remove_file(inside(&hosts, "filler")).unwrap();
    let report = hosts
        .cp(&["--json", "source", "10.77.1.2:target"])
        .expect(0)
        .document();
    assert!(number(&report, "resumed_bytes") > 0, "{report:#}");
    assert_eq!(text(&report, "blake3"), digest(&bytes));
    has_inside(&hosts, "target", &bytes);
    assert_eq!(names_inside(&hosts), ["target"]);
}

/// Writes to a file until the disk is full.
fn fill(path: &PathBuf) {
    let mut file = fs::File::create(path).unwrap();
    let zeros = [0; 4096];
    while file.write_all(&zeros).is_ok() {}
}

fn space_that_a_part_file_has_taken_is_not_asked_for_again() {
    let hosts = hosts_on(one(), EXT4);
    let bytes = content(32 * MIB);
    hosts.client.write("source", &bytes);
    let cp = hosts.start_cp(&SLOWLY);
    cp.await_bytes(20 * MIB as u64);
    cp.kill();
    // Fills the space that the part file has not allocated.
    fill(&inside(&hosts, "filler"));
    let report = hosts
        .cp(&["--json", "source", "10.77.1.2:target"])
        .expect(0)
        .document();
    assert!(number(&report, "resumed_bytes") > 0, "{report:#}");
    has_inside(&hosts, "target", &bytes);
}

fn a_file_system_without_inodes_keeps_nothing() {
    // One inode for the folder and one for the journal.
    let hosts = hosts("size=40m,nr_inodes=2");
    hosts.client.write("source", content(MIB));
    let outcome = hosts
        .cp(&["--json", "source", "10.77.1.2:target"])
        .expect(11);
    outcome.document();
    outcome
        .error(&["\"target\"", "No space left"])
        .hint(&["free space"]);
    assert_eq!(names_inside(&hosts), Vec::<String>::new());
    hosts.client.make_dir("src");
    for name in ["one", "two", "three"] {
        hosts.client.write(format!("src/{name}"), name);
    }
    hosts.cp(&["-r", "src", "10.77.1.2:"]).expect(23);
    assert_eq!(fs::read_dir(inside(&hosts, "src")).unwrap().count(), 0);
}

/// Simulates a disk that loses data. Writes reach the page cache, but the disk has no space for
/// them, and only one sync reports the error. The file system has no journal, because the journal
/// would fail first.
fn a_disk_that_loses_what_it_took_is_never_believed() {
    let disk = "mkdir disk && mount -t tmpfs -o size=24m none disk && truncate -s 96M disk/image";
    let hosts = hosts_on(
        one(),
        &format!(
            "{disk} && mkfs.ext4 -q -F -m 0 -O ^has_journal disk/image && mount -o loop disk/image ."
        ),
    );
    hosts.client.make_dir("src");
    let names: Vec<String> = (0..80).map(|index| format!("src/{index}")).collect();
    names
        .iter()
        .for_each(|name| hosts.client.write(name, content(MIB / 2)));
    // The kernel may report no error for the second sync.
    for _ in 0..2 {
        let outcome = hosts.cp(&["-r", "src", "10.77.1.2:"]);
        assert!(matches!(outcome.status.code(), Some(11 | 23)), "{outcome}");
        for name in &names {
            // Reads from the disk, not from the page cache.
            let Ok(file) = fs::File::open(inside(&hosts, name)) else {
                continue;
            };
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            assert!(
                is_same(&fs::read(inside(&hosts, name)).unwrap(), &content(MIB / 2)),
                "{name}"
            );
        }
    }
}

/// Starts a process that freezes a file system for `time`. The process thaws the file system even
/// if the test process dies.
fn freeze(folder: &Path, time: Duration) -> Child {
    let script = "exec 3< \"$0\"; fsfreeze -f /proc/self/fd/3 && echo && sleep \"$1\"; fsfreeze -u /proc/self/fd/3";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(folder)
        .arg(time.as_secs().to_string());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn a_disk_that_takes_nothing_for_5_seconds_is_no_dead_link() {
    let hosts = hosts_on([LinkSpec::mbit(200); 2], LARGE_EXT4);
    let bytes = content(128 * MIB);
    hosts.client.write("source", &bytes);
    let folder = inside(&hosts, "");

    let cp = hosts.start_cp(&["--json-stream", "source", "10.77.1.2:target"]);
    cp.await_bytes(bytes.len() as u64 / 4);
    let begun = Instant::now();
    let mut frozen = freeze(&folder, STALL);
    // The receiver's buffer pool is full by then.
    thread::sleep(STALL / 2);
    let full = hosts.daemon.process.peak_memory();
    assert!(frozen.wait().unwrap().success());
    assert!(begun.elapsed() >= STALL);
    let thawed = Instant::now();
    assert!(
        hosts.daemon.process.peak_memory() <= full + MIB as u64,
        "memory grew from {full} bytes in a stall"
    );

    let report = cp.finish().expect(0).document();
    assert_eq!(number(&report, "failovers"), 0, "{report:#}");
    for name in ["eth1", "eth2"] {
        assert_eq!(text(link(&report, name), "state"), "up", "{report:#}");
    }
    assert_eq!(text(&report, "blake3"), digest(&bytes));
    assert!(is_same(&fs::read(folder.join("target")).unwrap(), &bytes));
    // At most 96 MiB remained, which both cables carry in 2.2 s. The limit is doubled for a busy
    // machine.
    assert!(
        thawed.elapsed() <= Duration::from_secs(5),
        "{:?} after the stall: {report:#}",
        thawed.elapsed()
    );
}

const STALL: Duration = Duration::from_secs(5);

/// Like [`EXT4`], of 300 MiB.
const LARGE_EXT4: &str =
    "truncate -s 300M image && mkfs.ext4 -q -F -m 0 image && mount -o loop image .";
