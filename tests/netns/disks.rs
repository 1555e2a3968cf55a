//! Tests of disks that are full, fill up, or reject writes. The daemon's files are on a tmpfs or an
//! ext4 image, which is mounted in a private mount namespace.
//!
//! The tests need unshare(1) and mount(8), and are ignored if these are missing or not permitted.
//! Other processes cannot see the mount, which disappears when the daemon exits.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Daemon, Process, content, digest, is_same, number, tests, text, trial::Test,
};

use crate::hosts::{Hosts, MIB, Rights, introduce, side};

pub(crate) const TESTS: &[Test] = tests![
    a_file_that_cannot_fit_is_refused_before_it_is_sent,
    a_disk_that_fills_up_keeps_what_arrived_and_a_rerun_goes_on,
    a_file_system_that_takes_nothing_is_an_error,
    a_file_system_without_inodes_keeps_nothing,
];

/// Tests that need an ext4 image.
pub(crate) const TESTS_WITH_EXT4: &[Test] = tests![
    space_that_a_part_file_has_taken_is_not_asked_for_again,
    a_bench_of_a_small_disk_leaves_nothing_whether_or_not_it_fits,
    a_disk_that_loses_what_it_took_is_never_believed,
];

/// Returns the reason why the tests with a tmpfs cannot run on this machine; `None` if they can.
pub(crate) fn obstacle() -> Option<String> {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", "mount -t tmpfs nicstripe /tmp"])
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

/// Returns the reason why the tests with an ext4 image cannot run on this machine; `None` if they
/// can.
pub(crate) fn obstacle_to_ext4() -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", EXT4])
        .current_dir(folder.path())
        .stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "no ext4 can be made here: {}",
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
    hosts_on(&format!("mount -t tmpfs -o {options} nicstripe ."))
}

/// Creates two hosts with a daemon on host B. The shell script `mount` mounts a file system over
/// the daemon's directory.
fn hosts_on(mount: &str) -> Hosts {
    let lab = Arc::new(Lab::builder().link(LinkSpec::mbit(400)).build().unwrap());
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
    assert!(is_same(
        &fs::read(inside(&hosts, "small")).unwrap(),
        &content(4 * MIB)
    ));
}

fn a_disk_that_fills_up_keeps_what_arrived_and_a_rerun_goes_on() {
    let hosts = hosts("size=40m");
    let bytes = content(32 * MIB);
    hosts.client.write("source", &bytes);
    let cp = hosts.start_cp(&[
        "--bwlimit",
        "16M",
        "--json-stream",
        "source",
        "10.77.1.2:target",
    ]);
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
    assert!(is_same(
        &fs::read(inside(&hosts, "target")).unwrap(),
        &bytes
    ));
    assert_eq!(names_inside(&hosts), ["target"]);
}

/// Writes to a file until the disk is full.
fn fill(path: &PathBuf) {
    let mut file = fs::File::create(path).unwrap();
    let zeros = [0; 4096];
    while file.write_all(&zeros).is_ok() {}
}

fn a_file_system_that_takes_nothing_is_an_error() {
    let hosts = hosts("ro");
    hosts.client.write("source", b"bytes");
    let outcome = hosts
        .cp(&["--json", "source", "10.77.1.2:target"])
        .expect(11);
    outcome.document();
    outcome.error(&["\"target\"", "Read-only file system"]);
    assert_eq!(names_inside(&hosts), Vec::<String>::new());
    hosts.client.make_dir("src");
    hosts.client.write("src/file", b"bytes");
    let outcome = hosts.cp(&["-r", "src", "10.77.1.2:"]).expect(23);
    assert!(
        outcome
            .stderr
            .contains("cannot make directory \"src\": Read-only file system"),
        "{outcome}"
    );
}

fn space_that_a_part_file_has_taken_is_not_asked_for_again() {
    let hosts = hosts_on(EXT4);
    let bytes = content(32 * MIB);
    hosts.client.write("source", &bytes);
    let cp = hosts.start_cp(&[
        "--bwlimit",
        "16M",
        "--json-stream",
        "source",
        "10.77.1.2:target",
    ]);
    cp.await_bytes(20 * MIB as u64);
    cp.kill();
    // Fills the space that the part file has not allocated.
    fill(&inside(&hosts, "filler"));
    let report = hosts
        .cp(&["--json", "source", "10.77.1.2:target"])
        .expect(0)
        .document();
    assert!(number(&report, "resumed_bytes") > 0, "{report:#}");
    assert!(is_same(
        &fs::read(inside(&hosts, "target")).unwrap(),
        &bytes
    ));
}

fn a_bench_of_a_small_disk_leaves_nothing_whether_or_not_it_fits() {
    let hosts = hosts_on(EXT4);
    let before = names_inside(&hosts);
    let port = hosts.daemon.port.to_string();
    let words = [
        "bench",
        "10.77.1.2",
        "-p",
        &port,
        "--disk",
        "source",
        "-t",
        "1",
        "--omit",
        "0",
        "--repeat",
        "1",
        "--no-history",
        "--json",
    ];
    for (size, fits) in [(24 * MIB + 5, true), (100 * MIB, false)] {
        hosts.client.write("source", vec![5; size]);
        let outcome = hosts.client.run(words);
        let report = outcome.document_of("nicstripe-bench-report-1");
        // The report omits the file system of a disk that was not written.
        let on_ext4 = report["disk"]["file_systems"]["daemon"] == "ext4";
        assert_eq!(
            (
                report["disk"]["write"].is_object(),
                on_ext4,
                report["complete"].as_bool()
            ),
            (fits, fits, Some(fits)),
            "{outcome}"
        );
        assert_eq!(
            outcome.stderr.contains("104857600 bytes needed"),
            !fits,
            "{outcome}"
        );
        assert_eq!(names_inside(&hosts), before, "{outcome}");
    }
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
    let hosts = hosts_on(&format!(
        "{disk} && mkfs.ext4 -q -F -m 0 -O ^has_journal disk/image && mount -o loop disk/image ."
    ));
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
