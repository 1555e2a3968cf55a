//! Tests of `cp` options that change how a file is sent or written.

use std::{
    fs,
    fs::{File, FileTimes, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use nicstripe_testkit::{
    Daemon, Process, Side, content, number,
    pair::{LOOPBACK, MIB, Pair},
};

#[test]
fn the_bandwidth_limit_is_kept_within_a_tenth_both_ways() {
    let pair = Pair::new();
    let bytes = content(12 * MIB);
    pair.client.write("here", &bytes);
    pair.server.write("there", &bytes);
    for ends in [["here", "127.0.0.1:copy"], ["127.0.0.1:there", "copy"]] {
        let report = pair
            .cp(&[&["--bwlimit", "8M", "--json"], &ends[..]].concat())
            .expect(0)
            .document();
        // 8 MiB/s over both links together takes 1.5 s.
        let part = number(&report, "goodput_bps") as f64 / (8 * MIB * 8) as f64;
        assert!(
            (0.9..=1.1).contains(&part),
            "{part} of the limit: {report:#}"
        );
    }
}

#[test]
fn a_links_own_limit_is_kept() {
    let pair = Pair::new();
    pair.client.write("source", content(6 * MIB));
    let port = pair.daemon.port.to_string();
    let cp = [
        "cp",
        "-P",
        &port,
        "--link",
        "127.0.0.2=127.0.1.2@4M",
        "--json",
        "source",
        "127.0.0.1:",
    ];
    let report = pair.client.run(cp).expect(0).document();
    let part = number(&report, "goodput_bps") as f64 / (4 * MIB * 8) as f64;
    assert!(
        (0.9..=1.1).contains(&part),
        "{part} of the limit: {report:#}"
    );
}

#[test]
fn several_streams_a_link_are_one_link_in_the_report() {
    let pair = Pair::new();
    let bytes = content(16 * MIB);
    pair.client.write("source", &bytes);
    let report = pair
        .cp(&["--streams", "3", "--json", "source", "127.0.0.1:target"])
        .expect(0)
        .document();
    pair.server.check("target", &bytes, &report);
    assert_eq!(report["links"].as_array().unwrap().len(), 2, "{report:#}");
}

#[test]
fn otherwise_the_receivers_umask_decides_and_the_time_is_now() {
    let serve = [&["serve", "--port", "0"][..], &LOOPBACK].concat();
    let pair = Pair::with("", |server| {
        Daemon::listening(Process::spawn(under_umask(server, "027", &serve)))
    });
    let begun = SystemTime::now();
    let past = begun - Duration::from_secs(1_000_000);
    for (side, name) in [(&pair.client, "here"), (&pair.server, "there")] {
        side.write(name, b"bytes");
        let file = File::options().write(true).open(side.path(name)).unwrap();
        file.set_times(FileTimes::new().set_modified(past)).unwrap();
        // The copy must not get the set-user-ID bit.
        file.set_permissions(Permissions::from_mode(0o4775))
            .unwrap();
    }
    pair.cp(&["here", "127.0.0.1:copy"]).expect(0);
    assert_eq!(mode(&pair.server.path("copy")), 0o750);
    let get = pair.cp_arguments(&["127.0.0.1:there", "copy"]);
    let get: Vec<&str> = get.iter().map(String::as_str).collect();
    Process::spawn(under_umask(&pair.client, "077", &get))
        .finish()
        .expect(0);
    assert_eq!(mode(&pair.client.path("copy")), 0o700);
    let written = fs::metadata(pair.client.path("copy"))
        .unwrap()
        .modified()
        .unwrap();
    assert!(written > past + Duration::from_secs(1000), "{written:?}");
}

/// Returns a nicstripe command that runs with the given umask. A shell sets the umask, because the
/// test process would need unsafe code.
fn under_umask(side: &Side, umask: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = side.command("/bin/sh");
    command
        .args([
            "-c",
            &format!("umask {umask}; exec \"$0\" \"$@\""),
            env!("CARGO_BIN_EXE_nicstripe"),
        ])
        .args(arguments);
    command
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The limit counts what is sent: chunks as compressed, and no more of a small file than it has.
/// Counted otherwise, each of these copies takes minutes.
#[test]
fn the_rate_limit_counts_what_is_sent() {
    let pair = Pair::new();
    pair.client.write("letter", vec![b'a'; 64 << 20]);
    pair.client.make_dir("small");
    for name in ["a", "b", "c"] {
        pair.client.write(format!("small/{name}"), content(8 << 10));
    }
    for words in [
        &["-z", "--bwlimit", "1M", "letter", "127.0.0.1:"][..],
        &["-r", "--bwlimit", "10K", "small", "127.0.0.1:"],
        &["--bwlimit", "10K", "small/a", "127.0.0.1:one"],
    ] {
        let begun = Instant::now();
        pair.cp(words).expect(0);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{words:?}: {took:?}");
    }
}
