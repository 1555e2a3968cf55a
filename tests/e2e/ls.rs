//! Tests of `nicstripe ls`.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant, UNIX_EPOCH},
};

use nicstripe_testkit::{Outcome, Process, pair::Pair, text};
use serde_json::Value;

/// Two machines, and files at the daemon.
fn pair() -> Pair {
    let pair = Pair::new();
    let server = &pair.server;
    server.make_dir("photos");
    server.make_dir("photos/2024");
    server.write("photos/b.jpg", [0; 2000]);
    server.write("photos/a.jpg", b"a");
    server.write("photos/.thumbs", b"");
    server.write("notes.txt", b"notes");
    symlink("photos", server.path("linked")).unwrap();
    pair
}

fn ls(pair: &Pair, arguments: &[&str]) -> Outcome {
    let port = pair.daemon.port.to_string();
    let words = [
        &["ls", "-P", &port, "--link", "127.0.0.2=127.0.1.2"],
        arguments,
    ]
    .concat();
    pair.client.run(words)
}

fn date(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn names_are_listed_as_ls_lists_them() {
    let pair = pair();
    let printed = |arguments: &[&str]| ls(&pair, arguments).expect(0).stdout;
    assert_eq!(printed(&["nas:"]), "linked\nnotes.txt\nphotos/\n");
    assert_eq!(printed(&["nas"]), printed(&["nas:"]));
    assert_eq!(printed(&["nas:photos"]), "2024/\na.jpg\nb.jpg\n");
    assert_eq!(
        printed(&["-a", "nas:photos/"]),
        ".thumbs\n2024/\na.jpg\nb.jpg\n"
    );
    assert_eq!(printed(&["nas:linked"]), printed(&["nas:photos"]));
    assert_eq!(printed(&["nas:photos/2024"]), "");
    assert_eq!(
        printed(&["-d", "nas:{notes,photos/a}*"]),
        "nas:notes.txt\nnas:photos/a.jpg\n"
    );
    assert_eq!(printed(&["nas:photos/a.jpg"]), "nas:photos/a.jpg\n");
    assert_eq!(
        printed(&["-d", "nas:photos", "nas:"]),
        "nas:photos/\nnas:\n"
    );
    let root = pair.server.files();
    assert_eq!(
        printed(&[&format!("nas:{}/photos", root.display())]),
        printed(&["nas:photos"])
    );
    // Files come first, then directories with headings.
    assert_eq!(
        printed(&["nas:photos", "nas:photos/2024", "nas:notes.txt"]),
        "nas:notes.txt\n\nnas:photos:\n2024/\na.jpg\nb.jpg\n\nnas:photos/2024:\n"
    );
}

#[test]
fn long_lines_have_kind_size_and_time_in_columns() {
    let pair = pair();
    for name in [
        "photos/a.jpg",
        "photos/b.jpg",
        "photos/2024",
        "photos/.thumbs",
    ] {
        date(&pair.server.path(name), 1_709_251_199);
    }
    assert_eq!(
        ls(&pair, &["-l", "nas:photos"]).expect(0).stdout,
        "dir                -  2024-02-29 23:59Z  2024/\n\
         file               1  2024-02-29 23:59Z  a.jpg\n\
         file            2000  2024-02-29 23:59Z  b.jpg\n"
    );
    assert_eq!(
        ls(&pair, &["-lah", "nas:photos"]).expect(0).stdout,
        "file          0 B  2024-02-29 23:59Z  .thumbs\n\
         dir             -  2024-02-29 23:59Z  2024/\n\
         file          1 B  2024-02-29 23:59Z  a.jpg\n\
         file      2.0 KiB  2024-02-29 23:59Z  b.jpg\n"
    );
    let linked = ls(&pair, &["-l", "nas:linked"]).expect(0).stdout;
    assert!(
        linked.starts_with("other") && linked.ends_with("nas:linked\n"),
        "{linked}"
    );
}

#[test]
fn a_missing_name_is_said_with_the_one_that_was_meant() {
    let pair = pair();
    let outcome = ls(&pair, &["nas:phtos"]).expect(11);
    assert_eq!(outcome.stdout, "");
    let outcome = outcome.error(&["there is no \"nas:phtos\""]);
    let hint = outcome.labelled("hint: ", &["did you mean: "]);
    assert!(hint.ends_with(" nas:photos"), "{hint}");
    let outcome = ls(&pair, &["nas:photos/nothing.raw"]).expect(11);
    let hint = outcome.labelled("hint: ", &["list what is there: "]);
    assert!(hint.ends_with(" nas:photos/"), "{hint}");
    ls(&pair, &["nas:notes.txt/"])
        .expect(11)
        .error(&["notes.txt"]);
    // The others are listed.
    let outcome = ls(&pair, &["nas:x", "nas:photos/2024", "nas:y"]).expect(11);
    assert_eq!(outcome.stdout, "nas:photos/2024:\n");
    outcome.error(&["2 of 3"]);
    for words in [&["ls"][..], &["ls", "-l"]] {
        pair.client
            .run(words)
            .expect(2)
            .hint(&["nicstripe ls HOST:"]);
    }
    pair.client.run(["ls", "./x"]).expect(2).hint(&["ls HOST:"]);
}

#[test]
fn names_do_not_reach_the_terminal_as_they_are() {
    let pair = pair();
    pair.server.write("photos/2024/a\x1b[2J\nb", b"");
    let printed = ls(&pair, &["nas:photos/2024"]).expect(0).stdout;
    assert_eq!(printed, "a\\u{1b}[2J\\nb\n");
}

#[test]
fn the_document_lists_entries_and_failures() {
    let pair = pair();
    date(&pair.server.path("photos/a.jpg"), 1_709_251_199);
    pair.server.write("photos/2024/a\x1b", b"");
    let document = |code: i32, arguments: &[&str]| {
        let words = [&["--json"], arguments].concat();
        ls(&pair, &words).expect(code).document_of("ls")
    };
    let paths = |document: &Value| -> Vec<String> {
        let entries = document["entries"].as_array().unwrap().iter();
        entries
            .map(|entry| text(entry, "path").to_owned())
            .collect()
    };
    let found = document(0, &["nas:photos"]);
    assert_eq!(
        paths(&found),
        ["photos/2024", "photos/a.jpg", "photos/b.jpg"]
    );
    let (dir, file) = (&found["entries"][0], &found["entries"][1]);
    assert_eq!((text(dir, "kind"), dir.get("size")), ("dir", None));
    assert_eq!((text(file, "host"), &file["size"]), ("nas", &1.into()));
    assert_eq!(text(file, "modified"), "2024-02-29T23:59:59Z");
    let wild = document(0, &["nas:photos/2024"]);
    assert_eq!(wild["entries"][0]["path_base64"], "cGhvdG9zLzIwMjQvYRs=");
    assert_eq!(paths(&document(0, &["-d", "nas:"])), [""]);
    let missing = document(11, &["nas:photos", "nas:x", "nas:y"]);
    assert_eq!(missing["entries"].as_array().unwrap().len(), 3);
    assert_eq!(missing["failures"].as_array().unwrap().len(), 2);
    let one = document(11, &["nas:x"]);
    assert_eq!((&one["ok"], paths(&one).len()), (&false.into(), 0));
    let nobody = pair.client.run(["ls", "-P", "1", "--json", "127.0.0.1:"]);
    let nobody = nobody.expect(10).document_of("ls");
    assert_eq!(nobody["exit_code"], 10);
}

#[test]
fn a_peer_that_may_only_read_lists_its_own_directory() {
    let pair = Pair::serving(&["--read-only"], "read-only");
    pair.server.write("a", b"a");
    assert_eq!(ls(&pair, &["nas:"]).expect(0).stdout, "a\n");
}

/// Requests completions of remote paths from bash. The names are those of a hostile machine.
#[test]
fn remote_paths_are_completed_and_no_part_of_a_name_is_run() {
    let pair = pair();
    pair.server.write("photos/a b", b"");
    pair.server.write("photos/$(touch owned)", b"");
    pair.server.write("photos/x';touch owned;'", b"");
    pair.server.write("photos/two\nlines", b"");
    let port = pair.daemon.port.to_string();
    // Without links, a client on one machine finds the daemon at an address where it was before.
    await_address(&pair);
    let complete = |words: &[&str]| {
        let words = [&["ls", "--complete", "--"], words].concat();
        pair.client.run(words).expect(0).stdout
    };
    assert_eq!(complete(&["nas:ph", "cp", "-P", &port]), "photos/\n");
    assert_eq!(
        complete(&["'nas:photos/a b'", "cp", "-P", &port]),
        "photos/a b\n"
    );
    for nothing in [
        "me@nas:ph",
        "127.0.1.2:ph",
        "nas",
        "ph",
        "./nas:ph",
        "'nas:ph",
    ] {
        assert_eq!(complete(&[nothing, "-P", &port]), "", "{nothing}");
    }
    assert_eq!(complete(&["nas:ph", "-P", "1"]), "");
    let script = pair.client.run(["completions", "bash"]).expect(0).stdout;
    pair.client.write("script.bash", script);
    let program = Path::new(env!("CARGO_BIN_EXE_nicstripe"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let bash = |words: &str, cursor: usize| {
        let run = format!(
            "COMP_WORDS=(nicstripe {words}); COMP_CWORD={cursor}; _nicstripe_and_peers nicstripe x"
        );
        // As the shell does with the completed line.
        let script = format!(
            "source script.bash; {run}; for reply in \"${{COMPREPLY[@]}}\"; do eval \"printf '%s\\n' ${{reply}}\"; done"
        );
        let mut command = pair.client.command("bash");
        command.env("PATH", &path).args(["-c", &script]);
        Process::spawn(command).finish().expect(0).stdout
    };
    assert_eq!(bash(&format!("cp -P {port} nas : ph"), 6), "photos/\n");
    assert_eq!(
        bash(&format!("ls -P {port} nas :"), 5),
        "linked\nnotes.txt\nphotos/\n"
    );
    assert_eq!(
        bash(&format!("ls -P {port} nas : photos/"), 6),
        "photos/$(touch owned)\nphotos/2024/\nphotos/a b\nphotos/a.jpg\nphotos/b.jpg\nphotos/x';touch owned;'\n"
    );
    assert_eq!(
        bash(&format!(r"ls -P {port} nas : 'photos/a\ '"), 6),
        "photos/a b\n"
    );
    // What follows the colon is a port there.
    assert_eq!(bash(&format!("dial -P {port} nas : ph"), 6), "");
    assert!(!pair.client.has("owned"));
}

/// Waits until the client has recorded the daemon's address, at most 10 s. It does so in the
/// background.
fn await_address(pair: &Pair) {
    let begun = Instant::now();
    while !pair.client.home().join("addresses").exists() {
        ls(pair, &["nas:"]).expect(0);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
