//! Tests of a disk that stalls for seconds. The daemon's files are on an ext4 image, which the
//! tests freeze (FIFREEZE) during a copy.
//!
//! The tests need unshare(1), mount(8), mkfs.ext4(8) and fsfreeze(8), and are ignored if one of
//! them is missing or not permitted.

use std::{
    fs,
    path::Path,
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

pub(crate) const TESTS: &[Test] = tests![a_disk_that_takes_nothing_for_5_seconds_is_no_dead_link];

/// Returns the reason why the tests with a frozen disk cannot run on this machine; `None` if they
/// can.
pub(crate) fn obstacle() -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let mount_point = folder.path().join("mount-point");
    fs::create_dir(&mount_point).unwrap();
    let mut command = Command::new("unshare");
    let script = format!("{MOUNT} && fsfreeze -f . && fsfreeze -u .");
    command
        .args(["--mount", "sh", "-c", &script])
        .current_dir(mount_point)
        .stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "no disk to freeze here: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Some(format!("no unshare(1) here: {error}")),
    }
}

/// Creates two hosts with a daemon on host B. The daemon's files are on an ext4 image.
fn hosts() -> Hosts {
    let lab = Arc::new(
        Lab::builder()
            .links([LinkSpec::mbit(200); 2])
            .build()
            .unwrap(),
    );
    let (client, server) = (
        side(&lab, Host::A, Rights::None),
        side(&lab, Host::B, Rights::All),
    );
    introduce(&client, &server);
    let mut command = server.command("unshare");
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.args([
        "--mount",
        "sh",
        "-c",
        &format!("{MOUNT} && exec \"$0\" serve --port 0"),
        env!("CARGO_BIN_EXE_nicstripe"),
    ]);
    let daemon = Daemon::listening(Process::spawn(command));
    Hosts {
        lab,
        client,
        server,
        daemon,
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
    let hosts = hosts();
    let bytes = content(128 * MIB);
    hosts.client.write("source", &bytes);
    let root = Path::new("/proc")
        .join(hosts.daemon.process.id().to_string())
        .join("root");
    let folder = root.join(hosts.server.files().strip_prefix("/").unwrap());

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

/// Shell script that creates an ext4 image of 300 MiB next to the current directory and mounts the
/// image over that directory.
const MOUNT: &str =
    "truncate -s 300M ../disk && mkfs.ext4 -q ../disk && mount -o loop ../disk . && cd \"$PWD\"";
