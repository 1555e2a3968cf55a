//! Tests of copies from standard input or to standard output.

use std::{
    fs,
    io::Write,
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{
    Process, content, is_same, number,
    pair::{MIB, Pair},
};
use rustix::process::Signal;

#[test]
fn a_file_goes_to_standard_output_and_nothing_else_does() {
    let pair = Pair::new();
    // The library's tests have more lengths. The last is above the retransmit buffer of a pipe.
    for len in [0, 1, 40 * MIB + 7] {
        let bytes = content(len);
        pair.server.write("source", &bytes);
        let (outcome, stdout) =
            Process::spawn(pair.cp_command(&["-v", "--stats", "127.0.0.1:source", "-"]))
                .finish_raw();
        let outcome = outcome.expect(0);
        assert!(
            is_same(&stdout, &bytes),
            "{len} bytes: {} came\n{outcome}",
            stdout.len()
        );
    }
}

#[test]
fn an_input_that_ends_is_whole_whatever_became_of_its_program() {
    let pair = Pair::new();
    let command = pair.shell("(printf half; exit 1) | $cp - 127.0.0.1:file");
    Process::spawn(command).finish().expect(0);
    assert_eq!(pair.server.read("file"), b"half");
}

#[test]
fn a_target_that_exists_is_replaced_unless_no_replace_is_given() {
    let pair = Pair::new();
    pair.server.write("file", "old");
    let feed =
        |words: &[&str]| Process::spawn_fed(pair.cp_command(words), b"new".to_vec()).finish();
    feed(&["--no-replace", "-", "127.0.0.1:file"])
        .expect(11)
        .error(&["\"file\""])
        .hint(&["to replace it: "]);
    assert_eq!(pair.server.read("file"), b"old");
    feed(&["-", "127.0.0.1:file"]).expect(0);
    assert_eq!(pair.server.read("file"), b"new");
    assert_eq!(pair.server.names(), ["file"]);
}

#[test]
fn what_makes_no_sense_with_a_pipe_is_a_usage_error() {
    let pair = Pair::new();
    pair.server.write("file", "bytes");
    pair.server.make_dir("dir");
    for target in ["127.0.0.1:", "127.0.0.1:dir/"] {
        pair.cp(&["-", target])
            .expect(2)
            .error(&["no name"])
            .hint(&["NAME"]);
    }
    for option in ["-r", "-a", "-n", "-u", "--delta", "--inplace"] {
        pair.cp(&[option, "127.0.0.1:file", "-"])
            .expect(2)
            .error(&[option]);
    }
    for option in ["--json", "--json-stream"] {
        let outcome = pair
            .cp(&[option, "127.0.0.1:file", "-"])
            .expect(2)
            .error(&["standard output"]);
        assert_eq!(outcome.stdout, "");
    }
    // Only the daemon knows that the target is a directory.
    let outcome =
        Process::spawn_fed(pair.cp_command(&["-", "127.0.0.1:dir"]), b"bytes".to_vec()).finish();
    assert_ne!(outcome.status.code(), Some(0), "{outcome}");
    assert!(
        fs::read_dir(pair.server.path("dir"))
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn a_reader_that_has_had_enough_ends_the_copy_with_an_error() {
    let pair = Pair::new();
    pair.server.write("source", content(40 * MIB));
    let script = "{ $cp 127.0.0.1:source -; echo \"exit $?\" >&2; } | head -c 1 >/dev/null";
    let command = pair.shell(script);
    let outcome = Process::spawn(command).finish();
    let exit = outcome
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("exit "))
        .unwrap_or_else(|| panic!("{outcome}"));
    assert!(!matches!(exit, "0" | "101"), "{outcome}");
    assert!(
        outcome.stderr.contains("error: ") && !outcome.stderr.contains("panicked"),
        "{outcome}"
    );
}

#[test]
fn an_interrupt_while_input_is_awaited_ends_it_and_leaves_nothing() {
    let pair = Pair::new();
    let (cp, mut stdin) =
        Process::spawn_open(pair.cp_command(&["--json-stream", "-", "127.0.0.1:file"]));
    stdin.write_all(&content(2 * MIB)).unwrap();
    cp.await_bytes(1);
    let begun = Instant::now();
    cp.signal(Signal::INT);
    let outcome = cp.finish().expect(130);
    // The command must not wait for the end of its input, which stays open.
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    drop(stdin);
    assert_eq!(outcome.document()["resumable"], false, "{outcome}");
    outcome.error(&["interrupted"]);
    await_nothing(&pair);
}

#[test]
fn an_interrupt_while_output_is_not_taken_ends_it() {
    let pair = Pair::new();
    pair.server.write("source", content(40 * MIB));
    // `sleep` does not read, so the pipe fills at once.
    let script = "{ $cp 127.0.0.1:source - & pid=$!; sleep 1; kill -TERM $pid; wait $pid; echo \"exit $?\" >&2; } | sleep 4";
    let command = pair.shell(script);
    let begun = Instant::now();
    let outcome = Process::spawn(command).finish();
    // A shell without job control makes background processes ignore SIGINT, so that it is SIGTERM.
    assert!(outcome.stderr.contains("exit 143"), "{outcome}");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_pipe_is_as_long_as_it_is_and_promises_nothing() {
    let pair = Pair::new();
    let (cp, mut stdin) =
        Process::spawn_open(pair.cp_command(&["--json-stream", "-", "127.0.0.1:file"]));
    stdin.write_all(&content(3 * MIB)).unwrap();
    let progress = cp.await_event("progress", |event| event["bytes"].as_u64().unwrap() > 0);
    assert_eq!(
        (progress.get("size_bytes"), &progress["open"]),
        (None, &true.into()),
        "{progress:#}"
    );
    cp.signal(Signal::USR1);
    let status = cp.await_stderr("B/s");
    assert!(
        !status.contains('%') && !status.contains("left"),
        "{status}"
    );
    drop(stdin);
    let report = cp.finish().expect(0).document();
    assert_eq!(number(&report, "size_bytes"), 3 * MIB as u64);
}

/// Waits up to 10 s until the daemon's directory is empty: the daemon removes the part file of a
/// disconnected client.
#[track_caller]
fn await_nothing(pair: &Pair) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !pair.server.names().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", pair.server.names());
        thread::sleep(Duration::from_millis(20));
    }
}
