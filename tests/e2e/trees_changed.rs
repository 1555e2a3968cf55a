//! Tests of tree copies in which some entries fail or change, or which are interrupted. The other
//! entries are copied, and failures are reported.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
};

use nicstripe_testkit::{
    content, number,
    pair::{MIB, Pair},
    text,
    tree::{Aspects, Tree, assert_same_tree, finished_files, plant},
};
use rustix::process::Signal;

use crate::way::Way;

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

/// Creates a tree of 5 files of 6 MiB and 50 small files. A copy takes about 2.5 s at [`PACE`].
fn plant_large(root: &Path) {
    (0..5).for_each(|index| plant(root, &format!("large-{index}"), content(6 * MIB + index)));
    (0..50).for_each(|index| plant(root, &format!("small-{index:02}"), content(100 + index)));
}

const PACE: [&str; 4] = ["--bwlimit", "12M", "--json-stream", "-a"];

#[test]
fn a_file_that_grows_while_it_is_read_fails_with_24_and_the_rest_is_copied() {
    for way in Way::BOTH {
        let pair = Pair::new();
        let (from, to) = (way.from(&pair), way.to(&pair));
        plant_large(&from.path("src"));
        let cp = way.start(&pair, &PACE, &["src"], "");
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
fn an_interrupted_tree_leaves_whole_files_and_a_rerun_brings_the_rest() {
    for way in Way::BOTH {
        let pair = Pair::new();
        let (from, to) = (way.from(&pair), way.to(&pair));
        plant_large(&from.path("src"));
        let cp = way.start(&pair, &PACE, &["src"], "");
        cp.await_bytes(12 * MIB as u64);
        cp.signal(Signal::INT);
        let outcome = cp.finish().expect(130);
        assert_eq!(outcome.document()["resumable"], true, "{outcome}");
        outcome.error(&["interrupted"]).hint(&[
            "same command again",
            &format!("-a {}", way.words(&["src"], "").join(" ")),
        ]);
        for path in finished_files(&to.files()) {
            assert_eq!(
                fs::read(from.path(&path)).unwrap(),
                fs::read(to.path(&path)).unwrap(),
                "{path:?}"
            );
        }
        let report = way
            .cp(&pair, &["-a", "--json"], &["src"], "")
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
