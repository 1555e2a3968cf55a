//! Tests of tree copies in which some entries fail or change, or which are interrupted. The other
//! entries are copied, and failures are reported.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
};

use nicstripe_testkit::{
    Outcome, Process, content, number,
    pair::{MIB, Pair},
    text,
    tree::{Aspects, Tree, age, assert_same_tree, finished_files, plant},
};
use rustix::process::Signal;

#[test]
fn a_source_that_has_been_removed_fails_and_nothing_is_deleted() {
    let pair = Pair::new();
    plant(&pair.server.path("d"), "kept", "bytes");
    for options in ["-r", "-r --delete"] {
        let copy = format!("$cp {options} . 127.0.0.1:d");
        let script = format!("mkdir s && cd s && rmdir ../s && exec {copy}");
        let outcome = Process::spawn(pair.shell(&script)).finish();
        assert!(!outcome.status.success(), "{outcome}");
        assert!(
            outcome.stderr.contains("the directory has been removed"),
            "{outcome}"
        );
        assert_eq!(pair.server.read("d/kept"), b"bytes");
    }
}

#[test]
fn with_no_replace_what_differs_fails_by_name_and_the_rest_is_copied() {
    let pair = Pair::new();
    for name in ["a", "b", "dir/c"] {
        plant(
            &pair.client.path("src"),
            name,
            format!("{name} of the client"),
        );
    }
    plant(&pair.server.path("src"), "b", "of the server");
    let outcome = pair
        .cp(&["-r", "--no-replace", "--json", "src", "127.0.0.1:"])
        .expect(23);
    let document = outcome.document();
    let tree = &document["tree"];
    assert_eq!(
        (number(tree, "files"), number(tree, "failed")),
        (2, 1),
        "{document:#}"
    );
    assert_eq!(text(&tree["failures"][0], "code"), "exists");
    assert!(text(&tree["failures"][0], "name").ends_with('b'));
    assert_eq!(
        (text(&document, "error"), &document["resumable"]),
        ("1 of 3 files failed", &true.into())
    );
    let outcome = outcome
        .error(&["1 of 3 files failed"])
        .hint(&["to replace it: "]);
    assert!(
        outcome
            .stderr
            .lines()
            .any(|line| line.starts_with("  ") && line.contains("b\"")),
        "{outcome}"
    );
    assert_eq!(pair.server.read("src/b"), b"of the server");
    assert_eq!(pair.server.read("src/dir/c"), b"dir/c of the client");

    pair.cp(&["-r", "src", "127.0.0.1:"]).expect(0);
    assert_same_tree(
        &pair.client.path("src"),
        &pair.server.path("src"),
        Aspects::NONE,
    );
    // Repeats the copy in the other direction.
    pair.client.write("src/a", "changed here");
    pair.cp(&["-r", "--no-replace", "127.0.0.1:src", "."])
        .expect(23)
        .error(&["1 of 3 files failed"]);
    assert_eq!(pair.client.read("src/a"), b"changed here");
}

#[test]
fn the_first_twenty_failures_are_shown_and_all_with_v() {
    let pair = Pair::new();
    for index in 0..30 {
        plant(
            &pair.client.path("src"),
            &format!("file-{index:02}"),
            "here",
        );
        plant(
            &pair.server.path("src"),
            &format!("file-{index:02}"),
            "there",
        );
        age(
            &pair.server.path(format!("src/file-{index:02}")),
            1_000_000_000,
        );
    }
    let named = |outcome: &Outcome| {
        outcome
            .stderr
            .lines()
            .filter(|line| line.starts_with("  ") && line.contains("file-"))
            .count()
    };
    let outcome = pair
        .cp(&["-r", "--no-replace", "src", "127.0.0.1:"])
        .expect(23)
        .error(&["30 of 30 files failed"]);
    assert_eq!(named(&outcome), 20, "{outcome}");
    assert!(
        outcome.stderr.contains("and 10 more; -v shows them"),
        "{outcome}"
    );
    let outcome = pair
        .cp(&["-rv", "--no-replace", "src", "127.0.0.1:"])
        .expect(23);
    assert_eq!(named(&outcome), 30, "{outcome}");
    // Only the error remains to report.
    let outcome = pair
        .cp(&["-rq", "--no-replace", "src", "127.0.0.1:"])
        .expect(23)
        .error(&["30 of 30"]);
    assert!(outcome.stderr.starts_with("error: "), "{outcome}");
}

#[test]
fn a_missing_source_fails_and_the_others_are_copied() {
    let pair = Pair::new();
    for side in [&pair.client, &pair.server] {
        side.write("here", "bytes");
        side.make_dir("dst");
    }
    pair.cp(&["here", "missing", "127.0.0.1:dst"])
        .expect(23)
        .error(&["1 of 2 files failed"]);
    assert_eq!(pair.server.read("dst/here"), b"bytes");
    pair.cp(&["127.0.0.1:missing", "127.0.0.1:here", "dst"])
        .expect(23)
        .error(&["1 of 2 files failed"]);
    assert_eq!(pair.client.read("dst/here"), b"bytes");
    pair.cp(&["-r", "missing", "127.0.0.1:"])
        .expect(11)
        .error(&["\"missing\"", "No such file"]);
    let alone = pair.cp(&["-r", "127.0.0.1:missing", "dst"]);
    assert!(matches!(alone.status.code(), Some(11 | 23)), "{alone}");
}

#[test]
fn a_directory_among_several_sources_fails_unless_r_is_given() {
    let pair = Pair::new();
    for side in [&pair.client, &pair.server] {
        plant(&side.path("tree"), "f", "bytes");
        side.write("g", "bytes");
        side.make_dir("dst");
    }
    for words in [
        ["tree", "g", "127.0.0.1:dst"],
        ["127.0.0.1:tree", "127.0.0.1:g", "dst"],
    ] {
        pair.cp(&words)
            .expect(23)
            .error(&["1 of 2 files failed"])
            .hint(&["cp -r "]);
    }
    for side in [&pair.client, &pair.server] {
        assert_eq!(Tree::read(&side.path("dst"), Aspects::NONE).paths(), ["g"]);
    }
}

/// Creates a tree of 5 files of 6 MiB and 50 small files. A copy takes about 2.5 s at [`PACE`].
fn plant_large(root: &Path) {
    (0..5).for_each(|index| plant(root, &format!("large-{index}"), content(6 * MIB + index)));
    (0..50).for_each(|index| plant(root, &format!("small-{index:02}"), content(100 + index)));
}

const PACE: [&str; 3] = ["--bwlimit", "12M", "--json-stream"];

#[test]
fn a_file_that_grows_while_it_is_read_fails_with_24_and_the_rest_is_copied() {
    for (put, words) in [
        (true, ["-r", "src", "127.0.0.1:"]),
        (false, ["-r", "127.0.0.1:src", "."]),
    ] {
        let pair = Pair::new();
        let (from, to) = if put {
            (&pair.client, &pair.server)
        } else {
            (&pair.server, &pair.client)
        };
        plant_large(&from.path("src"));
        let cp = pair.start_cp(&[&PACE[..], &words].concat());
        cp.await_bytes(MIB as u64);
        // Changes all files, because the test does not know which files are being read. Completed
        // files are unaffected.
        for index in 0..5 {
            let mut file = OpenOptions::new()
                .append(true)
                .open(from.path(format!("src/large-{index}")))
                .unwrap();
            file.write_all(b"more").unwrap();
        }
        let outcome = cp.finish().expect(24);
        let document = outcome.document();
        let failed = number(&document["tree"], "failed");
        assert!((1..=5).contains(&failed), "{document:#}");
        assert_eq!(
            number(&document["tree"], "files") + failed,
            55,
            "{document:#}"
        );
        assert_eq!(
            text(&document["tree"]["failures"][0], "code"),
            "source_changed"
        );
        outcome
            .error(&["changed or vanished while they were read"])
            .hint(&["--allow-changing"]);
        let copied = Tree::read(&to.path("src"), Aspects::NONE).paths();
        assert_eq!(
            copied
                .iter()
                .filter(|path| path.starts_with("small-"))
                .count(),
            50,
            "{copied:?}"
        );
    }
}

#[test]
fn a_file_that_vanishes_before_it_is_read_fails_with_24_and_the_rest_is_copied() {
    let pair = Pair::new();
    plant_large(&pair.client.path("src"));
    (5..20).for_each(|index| {
        plant(
            &pair.client.path("src"),
            &format!("large-{index:02}"),
            content(5 * MIB + index),
        );
    });
    let cp = pair.start_cp(&[
        "--bwlimit",
        "32M",
        "--json-stream",
        "-r",
        "src",
        "127.0.0.1:",
    ]);
    cp.await_bytes(MIB as u64);
    fs::remove_file(pair.client.path("src/large-19")).unwrap();
    let outcome = cp
        .finish()
        .expect(24)
        .error(&["1 of 70 files changed or vanished"]);
    assert_eq!(
        text(&outcome.document()["tree"]["failures"][0], "code"),
        "source_changed"
    );
    assert!(!pair.server.has("src/large-19") && pair.server.has("src/large-18"));
}

#[test]
fn an_interrupted_tree_leaves_whole_files_and_a_rerun_brings_the_rest() {
    for (put, words) in [
        (true, ["-a", "src", "127.0.0.1:"]),
        (false, ["-a", "127.0.0.1:src", "."]),
    ] {
        let pair = Pair::new();
        let (from, to) = if put {
            (&pair.client, &pair.server)
        } else {
            (&pair.server, &pair.client)
        };
        plant_large(&from.path("src"));
        let cp = pair.start_cp(&[&PACE[..], &words].concat());
        cp.await_bytes(12 * MIB as u64);
        cp.signal(Signal::INT);
        let outcome = cp.finish().expect(130);
        assert_eq!(outcome.document()["resumable"], true, "{outcome}");
        outcome
            .error(&["interrupted"])
            .hint(&["same command again", &words.join(" ")]);
        for path in finished_files(&to.files()) {
            assert_eq!(
                fs::read(from.path(&path)).unwrap(),
                fs::read(to.path(&path)).unwrap(),
                "{path:?}"
            );
        }
        let report = pair
            .cp(&[&["--json"], &words[..]].concat())
            .expect(0)
            .document();
        assert!(
            number(&report["tree"], "files") < 55 || number(&report, "resumed_bytes") > 0,
            "{report:#}"
        );
        assert_same_tree(&from.path("src"), &to.path("src"), Aspects::ALL);
        assert!(
            to.names().iter().all(|name| !name.contains("nicstripe")),
            "{:?}",
            to.names()
        );
    }
}

#[test]
fn a_tree_goes_on_when_its_daemon_comes_back() {
    let pair = Pair::new();
    plant_large(&pair.client.path("src"));
    let cp = pair.start_cp(&[&PACE[..], &["-a", "src", "127.0.0.1:"]].concat());
    cp.await_bytes(8 * MIB as u64);
    let pair = pair.restart_daemon();
    cp.finish().expect(0).document();
    assert_same_tree(
        &pair.client.path("src"),
        &pair.server.path("src"),
        Aspects::ALL,
    );
}

#[test]
fn a_status_signal_tells_files_as_well() {
    let pair = Pair::new();
    plant_large(&pair.client.path("src"));
    let cp = pair.start_cp(&[&PACE[..], &["-r", "src", "127.0.0.1:"]].concat());
    cp.await_event("progress", |event| {
        event["open"] == false && event["files_found"] == 55
    });
    cp.signal(Signal::USR1);
    cp.await_stderr("/55 files, ");
    cp.finish().expect(0);
}

#[test]
fn a_directory_copied_into_itself_fails_with_a_sentence() {
    let pair = Pair::new();
    let files = pair.server.files();
    let path = |name: &str| files.join(name).to_str().unwrap().to_owned();
    for (contents, target, shown) in [
        ("", "in", "src/in/src"),
        ("/", "in", "in"),
        ("", "", "src/src"),
        ("", "in/deeper", "src/in/deeper/src"),
    ] {
        // The daemon's receiver, then the client's.
        for pull in [false, true] {
            let src = "src";
            plant(&files.join(src), "a", "a");
            let inside = format!("{src}/{target}");
            let place = match contents {
                "" => files.join(&inside).join(src),
                _ => files.join(&inside),
            };
            fs::create_dir_all(&place).unwrap();
            let (from, to) = match pull {
                false => (path(src) + contents, format!("127.0.0.1:{inside}")),
                true => (format!("127.0.0.1:{src}{contents}"), path(&inside)),
            };
            let outcome = pair.cp(&["-r", &from, &to]).expect(11);
            let sentence = format!(
                "cannot copy \"{shown}\": it is the target, and a directory cannot be copied into itself"
            );
            assert!(outcome.stderr.contains(&sentence), "{outcome}");

            let excluded = format!("--exclude=/{}", shown.trim_start_matches("src/"));
            pair.cp(&["-r", &excluded, &from, &to]).expect(0);
            assert!(place.join("a").exists());
            fs::remove_dir_all(files.join(src)).unwrap();
        }
    }
}
