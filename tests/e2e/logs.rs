//! Tests of the log of `serve` in each format: one line per record, even if a peer sends malicious
//! file names.

use std::{fs, os::unix::ffi::OsStrExt, path::Path};

use nicstripe_testkit::{
    Daemon, Outcome, Process, Side, content,
    pair::{LOOPBACK, MIB, Pair},
};
use rustix::process::Signal;
use serde_json::Value;

/// Malicious file names with control characters, or with text that imitates log records.
const EVIL: [&[u8]; 5] = [
    b"x\n2026-01-01T00:00:00Z ERROR disk on fire",
    b"x\"} \n{\"level\":\"ERROR\",\"message\":\"disk on fire\"}",
    b"\x1b[2J\x1b]0;owned\x07 \x9b31m \x7f \xff\xfe",
    "x\u{85}y\u{2028}z\u{202e}gnp.exe\u{61c}".as_bytes(),
    b"x result=done error=none \r\rINFO",
];

/// Sends files with all malicious names to a daemon with a log in JSON. Returns the daemon's log. A
/// second copy to each name fails.
fn log_in_json() -> Outcome {
    let pair = Pair::with("", |server| {
        let process = serve(server, &["--log-format", "json"]);
        let line = process.await_stderr("listening on ");
        let (_, after) = line.split_once(',').unwrap();
        let digits: String = after.chars().filter(char::is_ascii_digit).collect();
        let port = digits.parse().unwrap();
        Daemon { process, port }
    });
    for name in EVIL {
        let name = Path::new(std::ffi::OsStr::from_bytes(name));
        pair.client.write(name, content(1000));
        let copy = |arguments: [&Path; 2]| {
            let mut command = pair.cp_command(&[]);
            command.args(arguments);
            Process::spawn(command).finish()
        };
        copy([&Path::new("./").join(name), Path::new("127.0.0.1:")]).expect(0);
        let mut command = pair.cp_command(&["--no-replace", "-"]);
        command.arg(std::ffi::OsStr::from_bytes(
            &[b"127.0.0.1:", name.as_os_str().as_bytes()].concat(),
        ));
        Process::spawn_fed(command, vec![0]).finish().expect(11);
        pair.server.write("only-here", b"bytes");
    }
    let name = "n".repeat(250);
    pair.client.write(&name, content(MIB));
    pair.cp(&[&name, &format!("127.0.0.1:{name}")]).expect(0);
    let Pair {
        daemon: Daemon { process, .. },
        server,
        ..
    } = pair;
    // A session ends a moment after its client exits.
    (0..11).for_each(|_| drop(process.await_stderr("session ends")));
    std::thread::sleep(std::time::Duration::from_millis(500));
    process.signal(Signal::TERM);
    let outcome = process.finish().expect(143);
    assert!(fs::read_dir(server.files()).unwrap().count() >= EVIL.len());
    outcome
}

/// Texts that must not appear in the log of a successful copy: warnings, and Rust's debug format.
const ODD: [&str; 14] = [
    "WARN",
    "ERROR",
    "lost its connection",
    "misbehaved",
    "refused",
    "UnknownSession",
    "=Down",
    "=LeftOut",
    "=Up\n",
    "Some(",
    "Err(",
    "Ok(",
    " { ",
    "panicked",
];

#[test]
fn a_good_copy_leaves_nothing_in_the_log_that_looks_like_a_fault() {
    for level in ["info", "debug"] {
        let pair = Pair::with("", |server| {
            let mut command = server.command(env!("CARGO_BIN_EXE_nicstripe"));
            command
                .env("NICSTRIPE_LOG", level)
                .args([&["serve", "--port", "0"], &LOOPBACK[..]].concat());
            Daemon::listening(Process::spawn(command))
        });
        pair.client.write("f", content(5 * MIB));
        pair.client.make_dir("t");
        pair.client.write("t/g", content(1000));
        let copies: [&[&str]; 4] = [
            &["f", "127.0.1.2:"],
            &["127.0.1.2:f", "back"],
            &["-r", "t", "127.0.1.2:"],
            &["-r", "t", "127.0.1.2:"],
        ];
        for words in copies {
            let mut command = pair.cp_command(words);
            command.env("NICSTRIPE_LOG", level);
            let client = Process::spawn(command).finish().expect(0);
            let odd = ODD.iter().find(|odd| client.stderr.contains(**odd));
            assert_eq!(odd, None, "{client}");
        }
        let Pair {
            daemon: Daemon { process, .. },
            ..
        } = pair;
        process.await_lines("session ends", copies.len());
        process.signal(Signal::TERM);
        let daemon = process.finish().expect(143);
        assert!(daemon.stderr.contains("state=up"), "{daemon}");
        let odd = ODD.iter().find(|odd| daemon.stderr.contains(**odd));
        assert_eq!(odd, None, "{daemon}");
    }
}

fn serve(side: &Side, options: &[&str]) -> Process {
    side.start([&["serve", "--port", "0"], &LOOPBACK[..], options].concat())
}

#[test]
fn a_quiet_daemon_prints_only_warnings_and_errors() {
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "nas", "");
    server.trust(&client, "laptop", "");
    client.write("source", b"bytes");
    let port = Daemon::start(&Side::here(), &LOOPBACK).port.to_string();
    let process = server.start([&["serve", "-q", "--port", &port], &LOOPBACK[..]].concat());
    let copy = ["cp", "-P", &port, "source", "127.0.0.1:"];
    let since = std::time::Instant::now();
    while !client.run(copy).status.success() {
        assert!(since.elapsed().as_secs() < 30, "it does not listen");
    }
    process.signal(Signal::USR1);
    process.await_stderr("session");
    process.signal(Signal::TERM);
    let printed = process.finish().expect(143).stderr;
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let lonely = Side::here();
    let process = serve(&lonely, &["-q"]);
    process.await_stderr("warning: no trusted peers yet");
}

#[track_caller]
fn no_controls(text: &str) {
    let bad =
        |c: &char| c.is_control() && *c != '\n' || matches!(c, '\u{61c}' | '\u{2028}' | '\u{202e}');
    assert_eq!(text.chars().find(bad), None, "{text}");
}

#[test]
fn a_record_in_json_is_an_object_with_units_in_its_names() {
    let outcome = log_in_json();
    no_controls(&outcome.stderr);
    let records: Vec<Value> = outcome
        .stderr
        .lines()
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\n{outcome}"))
        })
        .collect();
    for record in &records {
        assert!(
            record["timestamp"].is_string()
                && record["level"].is_string()
                && record["message"].is_string(),
            "{record}"
        );
        assert_ne!(record["message"], "disk on fire");
        for value in record
            .as_object()
            .unwrap()
            .values()
            .filter_map(Value::as_str)
        {
            assert!(value.len() <= 256, "{record}");
        }
    }
    let with = |message: &str| {
        records
            .iter()
            .filter(|record| record["message"] == message)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (with("session begins").len(), with("session ends").len()),
        (11, 11),
        "{outcome}"
    );
    assert_eq!(
        (
            with("transfer begins").len(),
            with("transfer done").len(),
            with("target exists").len()
        ),
        (6, 6, 5),
        "{outcome}"
    );
    for done in with("transfer done") {
        assert!(
            done["rate_bps"].is_u64() && done["links"].is_u64(),
            "{done}"
        );
    }
    let done = with("transfer done")[5];
    assert_eq!(
        (&done["peer"], &done["size_bytes"], &done["direction"]),
        (&"laptop".into(), &(MIB as u64).into(), &"receive".into())
    );
    assert!(
        done["seconds"].is_number() && done["blake3"].is_string(),
        "{done}"
    );
    assert_eq!(with("target exists")[0]["result"], "exists");
    let ends = with("session ends")[10];
    assert!(
        ends["received_bytes"].as_u64().unwrap() >= MIB as u64 && ends["seconds"].is_number(),
        "{ends}"
    );
    assert_eq!(
        records.last().unwrap()["message"],
        "shutting down; received data is kept"
    );
}

#[test]
fn an_error_has_the_priority_of_one_in_the_journal() {
    let side = Side::here();
    let mut command = side.command("/bin/sh");
    let script = "JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2); export JOURNAL_STREAM; exec \"$0\" \"$@\"";
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.args([
        "-c",
        script,
        env!("CARGO_BIN_EXE_nicstripe"),
        "serve",
        "--root",
        "missing",
    ]);
    let outcome = Process::spawn(command).finish().expect(11);
    assert!(
        outcome
            .stderr
            .lines()
            .any(|line| line.starts_with("<3>error: ")),
        "{outcome}"
    );
}

#[test]
fn the_format_may_come_from_the_environment() {
    let side = Side::here();
    let mut command = side.command(env!("CARGO_BIN_EXE_nicstripe"));
    command
        .env("NICSTRIPE_LOG_FORMAT", "json")
        .args(["serve", "--root", "missing"]);
    let outcome = Process::spawn(command).finish().expect(11);
    let line = outcome.stderr.lines().next().unwrap();
    assert!(
        serde_json::from_str::<Value>(line).unwrap()["message"]
            .as_str()
            .unwrap()
            .contains("missing"),
        "{outcome}"
    );
    let mut command = side.command(env!("CARGO_BIN_EXE_nicstripe"));
    command.env("NICSTRIPE_LOG_FORMAT", "xml").arg("serve");
    Process::spawn(command).finish().expect(2);
}
