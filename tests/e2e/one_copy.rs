//! Tests of one copy by a code: `nicstripe receive` and `nicstripe send`, over loopback.

use std::{
    fs,
    io::Write as _,
    process::ChildStdin,
    time::{Duration, Instant},
};

use nicstripe_testkit::{Process, Side, content, number};
use rustix::process::Signal;

use crate::pairing::Inviter;

/// Waiting receiver, and the pipe for the answer of its user.
struct Receiver {
    process: Process,
    answer: ChildStdin,
    host: String,
    code: String,
}

impl Receiver {
    fn start(side: &Side, words: &[&str]) -> Self {
        let mut command = side.command(env!("CARGO_BIN_EXE_nicstripe"));
        command.arg("receive").args(words);
        let (process, answer) = Process::spawn_open(command);
        let Inviter {
            process,
            host,
            code,
        } = Inviter::of(process);
        Self {
            process,
            answer,
            host,
            code,
        }
    }

    fn send(&self, side: &Side, words: &[&str]) -> Process {
        side.start([&["send", "--host", &*self.host], words, &[&*self.code]].concat())
    }
}

/// Asserts that no key, list of peers or address is left.
fn expect_nothing_left(side: &Side) {
    for name in ["identity", "peers", "addresses"] {
        assert!(!side.home().join(name).exists(), "{name}");
    }
}

#[test]
fn files_and_directories_arrive_after_a_yes_and_nothing_is_left() {
    let (from, to) = (Side::here(), Side::here());
    let bytes = content(3 << 20);
    from.write("a:b", &bytes);
    from.make_dir("dir");
    from.write("dir/file", "inside");
    let mut receiver = Receiver::start(&to, &[]);
    let sending = receiver.send(&from, &["a:b", "dir/", "--json"]);
    receiver
        .process
        .await_stderr("wants to send 2 files (3.0 MiB):");
    receiver.process.await_stderr("  a:b  3.0 MiB");
    receiver.process.await_stderr("  dir/  1 file (6 B)");
    receiver.process.await_stderr("[y/N]");
    assert!(to.names().is_empty(), "before the answer");
    receiver.answer.write_all(b"y\n").unwrap();
    let report = sending.finish().expect(0).document();
    let received = receiver.process.finish().expect(0);
    assert!(
        received.stderr.contains("received 2 files (3.0 MiB) from "),
        "{received}"
    );
    assert_eq!(number(&report, "size_bytes"), bytes.len() as u64 + 6);
    assert_eq!(to.names(), ["a:b", "dir"]);
    assert!(to.read("a:b") == bytes && to.read("dir/file") == b"inside");
    expect_nothing_left(&from);
    expect_nothing_left(&to);
}

#[test]
fn without_a_yes_nothing_is_written() {
    let (from, to) = (Side::here(), Side::here());
    from.write("a", "bytes");
    for answer in ["n\n", "\n", ""] {
        let mut receiver = Receiver::start(&to, &[]);
        let sending = receiver.send(&from, &["a"]);
        receiver.process.await_stderr("[y/N]");
        receiver.answer.write_all(answer.as_bytes()).unwrap();
        drop(receiver.answer);
        sending.finish().expect(5).error(&["declined the files"]);
        receiver
            .process
            .finish()
            .expect(5)
            .error(&["nothing was written"]);
    }
    // The sender goes away while the user thinks.
    let receiver = Receiver::start(&to, &[]);
    let sending = receiver.send(&from, &["a"]);
    receiver.process.await_stderr("[y/N]");
    sending.signal(Signal::INT);
    sending.finish().expect(130);
    receiver
        .process
        .finish()
        .expect(30)
        .error(&["ended during the exchange"]);
    assert!(to.names().is_empty());
}

#[test]
fn a_copy_whose_sender_was_killed_resumes_with_a_new_code() {
    let (from, to) = (Side::here(), Side::here());
    let bytes = content(24 << 20);
    from.write("a", &bytes);
    let receiver = Receiver::start(&to, &["--yes"]);
    let sending = receiver.send(&from, &["a", "--bwlimit=6M", "--json-stream"]);
    sending.await_bytes(8 << 20);
    sending.kill();
    let begun = Instant::now();
    let ended = receiver.process.finish().expect(30);
    assert!(begun.elapsed() < Duration::from_secs(10), "{ended}");
    ended
        .error(&["has gone before it said that all is sent"])
        .hint(&["`nicstripe send` with the new code"]);
    assert!(!to.has("a"));

    let receiver = Receiver::start(&to, &["--yes"]);
    let sending = receiver.send(&from, &["a", "--json"]);
    let report = sending.finish().expect(0).document();
    receiver.process.finish().expect(0);
    assert!(number(&report, "resumed_bytes") >= 4 << 20, "{report:#}");
    assert!(to.read("a") == bytes);
    assert_eq!(
        fs::read_dir(to.files()).unwrap().count(),
        1,
        "no partial file"
    );
}

#[test]
fn a_receiver_that_ends_ends_the_sender() {
    let (from, to) = (Side::here(), Side::here());
    from.write("a", content(24 << 20));
    // One that was killed may be one whose cable was pulled, for 10 s without any link.
    for (signal, code, limit) in [(Signal::INT, 130, 10), (Signal::KILL, -1, 40)] {
        let receiver = Receiver::start(&to, &["--yes"]);
        let sending = receiver.send(&from, &["a", "--bwlimit=6M", "--json-stream"]);
        sending.await_bytes(1 << 20);
        receiver.process.signal(signal);
        let begun = Instant::now();
        let ended = receiver.process.finish();
        assert_eq!(ended.status.code().unwrap_or(-1), code);
        let sent = sending.finish();
        assert_ne!(sent.status.code(), Some(0), "{sent}");
        assert!(begun.elapsed() < Duration::from_secs(limit), "{sent}");
    }
}

#[test]
fn what_exists_is_not_replaced() {
    let (from, to) = (Side::here(), Side::here());
    from.write("a", "newer");
    to.write("a", "old");
    let receiver = Receiver::start(&to, &["--yes"]);
    let sending = receiver.send(&from, &["a"]);
    let sent = sending.finish().expect(23).hint(&["move it away there"]);
    assert!(sent.stderr.contains("\"a\" exists and differs"), "{sent}");
    let received = receiver.process.finish().expect(30);
    assert!(
        received
            .stderr
            .contains("(exists, and will not be replaced)"),
        "{received}"
    );
    assert_eq!(to.read("a"), b"old");

    // Of the same size: it is not taken for the file of the sender.
    from.write("a", "new");
    let old = fs::File::options().write(true).open(to.path("a")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    let receiver = Receiver::start(&to, &["--yes"]);
    receiver.send(&from, &["a"]).finish().expect(23);
    receiver.process.finish().expect(30);
    assert_eq!(to.read("a"), b"old");
}

#[test]
fn the_directory_of_the_keys_is_received_by_nobody() {
    let (from, to) = (Side::here(), Side::here());
    // The directory above has that of the keys, which is called home.
    from.make_dir("home");
    from.write("home/peers", "mine");
    from.write("other", "bytes");
    let receiver = Receiver::start(&to, &["--yes", ".."]);
    receiver.send(&from, &["home"]).finish().expect(5);
    receiver
        .process
        .finish()
        .expect(12)
        .error(&["the directory of this machine's keys"]);
    assert!(!to.peers_file().exists());
    let receiver = Receiver::start(&to, &["--yes", ".."]);
    receiver.send(&from, &["other"]).finish().expect(0);
    receiver.process.finish().expect(0);
    assert_eq!(to.read("../other"), b"bytes");
}

#[test]
fn what_cannot_be_sent_is_told_before_a_code_is_spent() {
    let side = Side::here();
    side.write("a", "bytes");
    let code = "7-crossover-violin";
    for (words, exit, part) in [
        (&["a", "nas"][..], 2, "a number and two words"),
        (&["missing", code], 11, "missing"),
        (&["-", code], 2, "standard input has no name"),
        (&["/", code], 2, "/ has no name"),
        (&["--host", "127.0.0.1:1", "a", code], 10, "still waiting"),
    ] {
        side.run([&["send"], words].concat())
            .expect(exit)
            .error(&[part]);
    }
    side.run(["receive", "missing"])
        .expect(11)
        .error(&["missing"]);
    let waiting = Receiver::start(&side, &[]);
    side.run(["pair", &waiting.host, &waiting.code])
        .expect(5)
        .error(&["another purpose"])
        .hint(&["`receive` with `send FILE... CODE`"]);
    waiting
        .process
        .finish()
        .expect(5)
        .error(&["another purpose"]);
}
