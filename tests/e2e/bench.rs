//! Tests of `nicstripe bench`: leftovers, failures, JSON output, and sweeps over loopback.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{Daemon, Process, Side, pair::Pair};
use rustix::process::Signal;

/// Returns true if a process has a deleted file open and the file's name contains `image`.
fn writes_without_a_name(process: &Process) -> bool {
    let Ok(open) = std::fs::read_dir(Path::new("/proc").join(process.id().to_string()).join("fd"))
    else {
        return false;
    };
    let target =
        |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    // The image must be in the daemon's folder, not in memory.
    open.filter_map(target).any(|path| {
        path.to_string_lossy().contains("image") && path.to_string_lossy().ends_with("(deleted)")
    })
}

/// Starts a bench with a disk measurement, and waits until the daemon writes to its disk.
fn start_disks(pair: &Pair) -> Process {
    std::fs::File::create(pair.client.path("image"))
        .unwrap()
        .set_len(2 << 30)
        .unwrap();
    let port = pair.daemon.port.to_string();
    let words = ["bench", "127.0.0.1", "-p", &port, "--routes", "never"];
    let load = ["-t", "1", "--omit", "0", "--repeat", "1"];
    let disk = ["--disk", "image", "--json", "--no-history"];
    let bench = pair.client.start([&words[..], &load, &disk].concat());
    let begun = Instant::now();
    while !writes_without_a_name(&pair.daemon.process) && !bench.has_ended() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it writes nothing"
        );
        thread::sleep(Duration::from_millis(5));
    }
    bench
}

#[test]
fn a_bench_of_disks_leaves_nothing_when_its_client_is_interrupted_or_killed() {
    let pair = Pair::new();
    for signal in [Signal::INT, Signal::KILL] {
        let bench = start_disks(&pair);
        assert_eq!(pair.server.names(), [""; 0]);
        bench.signal(signal);
        let outcome = bench.finish();
        if signal == Signal::INT {
            let report = outcome.document_of("nicstripe-bench-report-1");
            assert!(
                report["complete"] == false && report["disk"]["read"].is_object(),
                "{outcome}"
            );
            outcome.expect(130);
        }
        // The daemon closes the file as well.
        let begun = Instant::now();
        while writes_without_a_name(&pair.daemon.process) {
            assert!(begun.elapsed() < Duration::from_secs(30), "it goes on");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(pair.server.names(), [""; 0]);
    }
}

#[test]
fn a_bench_that_reaches_nobody_says_so_in_one_document() {
    let side = Side::here();
    // Port 9 is `discard`, on which nothing listens.
    let bench = ["bench", "127.0.0.1", "-p", "9", "--routes", "never"];
    let outcome = side.run([&bench[..], &["--json"]].concat());
    let document = outcome.document_of("nicstripe-bench-event-1");
    assert_eq!(
        (&document["event"], &document["exit_code"]),
        (&"failed".into(), &10.into()),
        "{outcome}"
    );
    outcome.expect(10).error(&["127.0.0.1:9"]);
    let outcome = side.run([&bench[..], &["--json-stream"]].concat());
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(
        lines.len() == 2
            && lines[0].contains(r#""event":"start""#)
            && lines[1].contains(r#""event":"failed""#),
        "{outcome}"
    );
}

#[test]
fn nothing_is_listed_before_anything_was_measured() {
    let side = Side::here();
    let outcome = side.run(["bench", "list"]);
    assert_eq!(outcome.stdout, "", "{outcome}");
    outcome.expect(0);
    side.run(["bench", "compare", "0badcafe", "feedface"])
        .expect(11)
        .error(&["0badcafe", "bench list"]);
}

/// Checks the structure of the JSON report, but no rates.
#[test]
fn a_sweep_is_as_the_schema_says() {
    let kind = "streams";
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "b", "");
    server.trust(&client, "a", "");
    let daemon = Daemon::start(&server, &[]);
    let port = daemon.port.to_string();
    let load = [
        "-R", "-t", "1", "-O", "0", "-i", "0.1", "--repeat", "1", "--budget", "6s", "--routes",
        "never",
    ];
    let link = "127.0.0.1=127.0.1.1";
    let bench = ["bench", "127.0.0.1", "-p", &port, "--link", link];
    let sweep = ["--json", "--sweep", kind];
    let outcome = client.run([&bench[..], &sweep, &load].concat()).expect(0);
    let report = outcome.document_of("nicstripe-bench-report-1");
    let [sweep] = &report["sweeps"].as_array().unwrap()[..] else {
        panic!("{report:#}")
    };
    assert_eq!(sweep["kind"], kind, "{sweep:#}");
    assert!(!sweep["points"].as_array().unwrap().is_empty(), "{sweep:#}");
    // Earlier parts of the bench may also have been cut short.
    assert!(
        report["complete"] == false || sweep["stopped"] != "the time was up",
        "{sweep:#}"
    );
}
