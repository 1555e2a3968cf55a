//! Tests that file names never reach a terminal unescaped.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use nicstripe_testkit::{
    Outcome, Process, content, is_same,
    pair::{MIB, Pair},
};

/// File name with a terminal escape sequence, line breaks and a byte that is not valid UTF-8.
const WILD: &[u8] = b"a\x1b[2J\nb\rc\xff d";

/// [`WILD`] as nicstripe prints it.
const ESCAPED: &str = r#""a\u{1b}[2J\nb\rc\xff d""#;

#[test]
fn control_characters_in_names_arrive_in_files_and_never_on_a_terminal() {
    let pair = Pair::new();
    let name = OsStr::from_bytes(WILD);
    pair.client.write(name, content(MIB));
    let cp = |words: &[&OsStr]| {
        let arguments = pair.cp_arguments(&["-v", "--progress", "always"]);
        pair.client.run(
            arguments
                .iter()
                .map(AsRef::as_ref)
                .chain(words.iter().copied()),
        )
    };
    let outcome = cp(&[name, "127.0.0.1:".as_ref()]).expect(0);
    is_plain(&outcome);
    assert!(is_same(&pair.server.read(name), &content(MIB)));

    pair.client.write(name, content(5));
    let exists = cp(&["--no-replace".as_ref(), name, "127.0.0.1:".as_ref()]).expect(11);
    is_plain(&exists);
    // The name is escaped once, when the message is created, and not again when the message is
    // displayed.
    exists.error(&[ESCAPED]);

    let mut missing = WILD.to_vec();
    missing.push(b'!');
    let missing = cp(&[OsStr::from_bytes(&missing), "127.0.0.1:".as_ref()]).expect(11);
    is_plain(&missing);
    missing.error(&[r#""a\u{1b}[2J\nb\rc\x"#]);

    let remote = [b"127.0.0.1:missing", WILD].concat();
    let words = [OsStr::from_bytes(&remote), ".".as_ref()];
    let arguments = pair.cp_arguments(&["--json", "-v"]);
    let outcome = pair
        .client
        .run(arguments.iter().map(AsRef::as_ref).chain(words))
        .expect(11);
    is_plain(&outcome);
    outcome.document();
}

#[test]
fn the_longest_names_there_are_arrive_in_a_tree_and_are_replaced() {
    let pair = Pair::new();
    let [small, large, link, directory] = ["s", "l", "k", "d"].map(|letter| letter.repeat(255));
    pair.client.make_dir("src");
    pair.client.make_dir(&format!("src/{directory}"));
    for (attempt, to) in [(1, "one"), (2, "another")] {
        pair.client
            .write(format!("src/{directory}/{small}"), content(1000 + attempt));
        pair.client
            .write(format!("src/{large}"), content(5 * MIB + attempt));
        let link = pair.client.path(format!("src/{link}"));
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(to, &link).unwrap();
        pair.cp(&["-r", "-f", "src/", "127.0.0.1:there"]).expect(0);
        assert!(is_same(
            &pair.server.read(format!("there/{directory}/{small}")),
            &content(1000 + attempt)
        ));
        assert!(is_same(
            &pair.server.read(format!("there/{large}")),
            &content(5 * MIB + attempt)
        ));
    }
    assert_eq!(
        std::fs::read_link(pair.server.path(format!("there/{link}")))
            .unwrap()
            .as_os_str(),
        "another"
    );
    assert_eq!(
        std::fs::read_dir(pair.server.path("there"))
            .unwrap()
            .count(),
        3
    );
}

#[track_caller]
fn is_plain(outcome: &Outcome) {
    for text in [&outcome.stdout, &outcome.stderr] {
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text:?}"
        );
    }
    // An unescaped newline would start a line in the middle of the name.
    assert!(
        outcome.stderr.lines().all(|line| !line.starts_with('b')),
        "{outcome}"
    );
}

/// Panics if an error has a hint about rights, which would not help, and returns the outcome.
#[track_caller]
fn without_rights(outcome: Outcome) -> Outcome {
    assert!(!outcome.stderr.contains("rights"), "{outcome}");
    outcome
}

#[test]
fn what_no_right_changes_is_not_blamed_on_rights() {
    let pair = Pair::new();
    let reserved = ".x.0123456789abcdef.nicstripe-part";
    pair.client.write("file", "bytes");
    pair.client.write(reserved, "bytes");
    without_rights(pair.cp(&["file", &format!("127.0.0.1:{reserved}")]))
        .expect(5)
        .error(&["reserved for partial files"]);
    pair.client.make_dir("src");
    pair.client.write(format!("src/{reserved}"), "bytes");
    let tree = without_rights(pair.cp(&["-r", "src", "127.0.0.1:"])).expect(23);
    assert!(tree.stderr.contains("reserved for partial files"), "{tree}");

    // 257 components, one more than the limit.
    let mut command = pair.client.command("/bin/sh");
    let deep = "mkdir deep; cd deep; i=0; while [ $i -lt 256 ]; do mkdir d; cd d; i=$((i+1)); done";
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .args(["-c", deep]);
    Process::spawn(command).finish().expect(0);
    let tree = without_rights(pair.cp(&["-r", "deep", "127.0.0.1:"])).expect(23);
    assert!(tree.stderr.contains("257"), "{tree}");
}

#[test]
fn reserved_names_in_a_daemons_tree_are_counted_and_the_rest_arrives() {
    let pair = Pair::new();
    let reserved = [
        ".d.nicstripe-part",
        ".x.12345678.nicstripe-part",
        ".x.nicstripe-journal",
    ];
    pair.server.make_dir("src");
    pair.server.make_dir("src/.d.nicstripe-part");
    for name in ["a", ".d.nicstripe-part/f", reserved[1], reserved[2]] {
        pair.server.write(format!("src/{name}"), "bytes");
    }
    for options in [&["-r"][..], &["-rn"], &["-r", "--delete"]] {
        let words = [options, &["127.0.0.1:src", "."]].concat();
        let got = pair.cp(&words).expect(0);
        let said = "3 special or partial files skipped";
        assert!(got.stderr.contains(said), "{got}");
    }
    assert_eq!(pair.client.read("src/a"), b"bytes");
    let words = ["-r", "--exclude", ".*.nicstripe-*", "127.0.0.1:src", "."];
    pair.cp(&words).expect(0);
    let names = std::fs::read_dir(pair.client.path("src")).unwrap().count();
    assert_eq!(names, 1);
}

#[test]
fn a_file_that_is_too_large_is_not_blamed_on_rights() {
    let pair = Pair::new();
    let file = std::fs::File::create(pair.client.path("huge")).unwrap();
    // Some file systems have no files of this size.
    if file.set_len(i64::MAX as u64).is_ok() {
        without_rights(pair.cp(&["huge", "127.0.0.1:"])).error(&["exceed the limit"]);
    }
}
