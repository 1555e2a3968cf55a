//! Tests of one copy by a code: `nicstripe receive` and `nicstripe send`, over loopback.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::Path,
    process::ChildStdin,
    time::{Duration, Instant},
};

use nicstripe::{
    Client, CopyOptions, Name, TreeOptions,
    bootstrap::{Call, Wishes},
    invitation::{Item, JoinOptions, Purpose, join},
    trust::Identity,
};
use nicstripe_testkit::{
    Process, Side, content, number,
    tree::{Aspects, Tree},
};
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
fn a_directory_without_room_is_told_before_the_question_and_one_that_takes_no_file_before_the_code()
{
    let (from, to) = (Side::here(), Side::here());
    let refused = to.run(["receive", "/proc"]).expect(11);
    refused.error(&["cannot write", "/proc"]);
    // A hole, which is larger than any disk of a test.
    let large = fs::File::create(from.path("a")).unwrap();
    large.set_len(7 << 40).unwrap();
    let receiver = Receiver::start(&to, &[]);
    let sending = receiver.send(&from, &["a"]);
    receiver.process.await_stderr(" free, 7.00 TiB are offered");
    receiver.process.await_stderr("[y/N]");
    drop(receiver.answer);
    receiver.process.finish().expect(5);
    sending.finish().expect(5);
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
    from.write("b", "bytes");
    to.write("a", "old");
    let receiver = Receiver::start(&to, &["--yes"]);
    let sending = receiver.send(&from, &["a", "b"]);
    let sent = sending.finish().expect(23).hint(&["move it away there"]);
    assert!(sent.stderr.contains("\"a\" exists and differs"), "{sent}");
    let received = receiver.process.finish().expect(30);
    assert!(
        received
            .stderr
            .contains("(exists, and will not be replaced)"),
        "{received}"
    );
    assert_eq!(
        (to.read("a"), to.read("b")),
        (b"old".to_vec(), b"bytes".to_vec())
    );
}

#[test]
fn an_offer_of_which_nothing_can_be_received_is_told_at_both_ends_without_a_question() {
    let (from, to) = (Side::here(), Side::here());
    for name in ["a", "b"] {
        from.write(name, "new");
        to.write(name, "old");
    }
    for options in [&[][..], &["--yes"]] {
        let receiver = Receiver::start(&to, options);
        let sent = receiver.send(&from, &["a", "b"]).finish().expect(11);
        sent.error(&["has files of all these names already"]);
        let received = receiver.process.finish().expect(11);
        assert!(!received.stderr.contains("[y/N]"), "{received}");
        received.error(&["nothing to receive: ", " has all names that "]);
        assert_eq!(
            (to.read("a"), to.read("b")),
            (b"old".to_vec(), b"old".to_vec())
        );
    }
}

#[test]
fn names_that_may_surprise_are_listed_first_and_all_others_on_request() {
    let (from, to) = (Side::here(), Side::here());
    let mut names: Vec<String> = (0..30).map(|index| format!("file{index:02}")).collect();
    names.extend([".bash_profile".into(), "there".into(), "zz".into()]);
    names.iter().for_each(|name| from.write(name, "bytes"));
    fs::create_dir_all(from.path("zz.d")).unwrap();
    fs::create_dir_all(from.path(".ssh2")).unwrap();
    symlink("/etc/shadow", from.path("zz.link")).unwrap();
    to.write("there", "old");
    names.extend([".ssh2".into(), "zz.d".into(), "zz.link".into()]);
    names.sort_unstable_by(|one, other| other.cmp(one));
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut receiver = Receiver::start(&to, &[]);
    let sending = receiver.send(&from, &words);
    let question = receiver.process.await_stderr("[y/N]");
    assert!(question.contains("[y/N], l lists all"), "{question}");
    receiver.answer.write_all(b"l\n").unwrap();
    receiver.process.await_lines("[y/N]", 2);
    receiver.answer.write_all(b"n\n").unwrap();
    sending.finish().expect(5);
    let told = receiver.process.finish().expect(5).stderr;
    let (before, after) = told.split_once("[y/N], l lists all").unwrap();
    let first: Vec<&str> = before
        .lines()
        .filter(|line| line.starts_with("  "))
        .collect();
    for (line, part) in [
        "  zz.link  symbolic link",
        "  zz.d/  0 files (0 B)",
        "  there  5 B  (exists, and will not be replaced)",
        "  .ssh2/  0 files (0 B)  (hidden)",
        "  .bash_profile  5 B  (hidden)",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(first[line], *part, "{told}");
    }
    assert_eq!(first.len(), 21, "{told}");
    assert!(
        first[20].starts_with("  and 16 more names: 16 files"),
        "{told}"
    );
    for name in &names {
        assert!(after.contains(&format!("  {name}")), "{name}: {told}");
    }
    assert_eq!(to.names(), ["there"]);
}

/// Sender of its own, which offers `item` and sends `source`.
async fn send_otherwise(host: &str, code: &str, item: Item, source: &Path, as_file: bool) {
    let (host, port) = host.split_once(':').unwrap();
    let options = JoinOptions {
        purpose: Purpose::OneCopy,
        host: Some(host.into()),
        port: Some(port.parse().unwrap()),
        ..JoinOptions::default()
    };
    let identity = Identity::generate().unwrap();
    let paired = join(&identity, code.parse().unwrap(), options)
        .await
        .unwrap();
    let call = Call::new(Wishes::default()).unwrap();
    // Declined if there is nothing that could be received.
    let Ok((peer, _consent)) = paired.offer(call, vec![item.clone()]).await else {
        return;
    };
    let client = Client::builder()
        .introduced(&peer)
        .connect(host)
        .await
        .unwrap();
    let sent = match as_file {
        true => {
            let name = Name::new([&*item.name]).unwrap();
            client
                .put(source, Some(name), CopyOptions::default())
                .finish()
                .await
                .map(drop)
        }
        false => {
            let options = TreeOptions {
                recursive: true,
                ..TreeOptions::default()
            };
            client
                .put_tree([source], None, options)
                .finish()
                .await
                .map(drop)
        }
    };
    client.close().await;
    drop(sent);
}

#[test]
fn a_sender_brings_no_more_than_its_offer_says() {
    let from = Side::here();
    from.write("large", content(3 << 20));
    symlink("/etc/shadow", from.path("link")).unwrap();
    for name in ["dir", "many", "leads", "leads/sub"] {
        from.make_dir(name);
    }
    from.write("dir/file", "x");
    (0..100).for_each(|index| from.write(format!("many/{index:03}"), "x"));
    from.write("leads/file", "x");
    symlink("../../other", from.path("leads/sub/out")).unwrap();
    symlink("/etc/shadow", from.path("leads/out")).unwrap();
    symlink("sub/..", from.path("leads/up")).unwrap();
    symlink("../file", from.path("leads/sub/in")).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let links = Some("--links");
    let inside = "leads leads/file leads/sub leads/sub/in";
    let all = "leads leads/file leads/out leads/sub leads/sub/in leads/sub/out leads/up";
    // Source, offered as a directory, as a link, files, bytes; option; what has arrived.
    for (source, is_dir, is_link, files, bytes, option, arrived) in [
        ("large", false, false, 1, 1, None, ""),
        ("large", false, false, 1, 3 << 20, None, "large"),
        ("link", false, false, 1, 1, None, ""),
        ("link", false, false, 1, 1, links, ""),
        ("link", false, true, 1, 0, None, ""),
        ("link", false, true, 1, 0, links, "link"),
        ("dir", false, false, 1, 1, None, ""),
        ("large", true, false, 1, 3 << 20, None, ""),
        ("leads", true, false, 5, 1, None, inside),
        ("leads", true, false, 5, 1, links, all),
    ] {
        for as_file in [false, true] {
            if as_file && (source != "large" || is_dir) {
                continue;
            }
            let to = Side::here();
            let receiver = Receiver::start(
                &to,
                &["--yes"].into_iter().chain(option).collect::<Vec<_>>(),
            );
            let item = Item {
                name: source.into(),
                is_dir,
                is_link,
                files,
                bytes,
            };
            let (host, code, path) = (&receiver.host, &receiver.code, from.path(source));
            runtime.block_on(send_otherwise(host, code, item.clone(), &path, as_file));
            receiver.process.finish();
            let found = Tree::read(&to.files(), Aspects::NONE).paths();
            let arrived: Vec<&str> = arrived.split_whitespace().collect();
            assert_eq!(found, arrived, "{item:?} {option:?}");
        }
    }
    let to = Side::here();
    let receiver = Receiver::start(&to, &["--yes"]);
    let item = Item {
        name: b"many".to_vec(),
        is_dir: true,
        is_link: false,
        files: 2,
        bytes: 2,
    };
    let (host, code) = (&receiver.host, &receiver.code);
    runtime.block_on(send_otherwise(host, code, item, &from.path("many"), false));
    receiver.process.finish();
    // Two, and 16 that may have come meanwhile.
    assert_eq!(fs::read_dir(to.path("many")).unwrap().count(), 18);
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
