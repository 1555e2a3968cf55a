//! Tests of entry selection, target paths and deletion in tree copies. No other entries are copied
//! or deleted.

use std::fs;

use nicstripe_testkit::{
    Process, Side, number,
    pair::Pair,
    tree::{Aspects, Tree, age, plant},
};

use crate::way::Way;

fn paths(side: &Side) -> Vec<String> {
    Tree::read(&side.files(), Aspects::NONE).paths()
}

/// Returns the words of a row.
fn words(row: &str) -> Vec<&str> {
    row.split_whitespace().collect()
}

fn plant_all(side: &Side, names: &[&str]) {
    names.iter().for_each(|name| match name.strip_suffix('/') {
        Some(directory) => fs::create_dir_all(side.path(directory)).unwrap(),
        None => plant(&side.files(), name, name),
    });
}

#[test]
fn slashes_and_existing_directories_decide_on_names_as_with_scp_and_rsync() {
    for way in Way::BOTH {
        for (there_before, options, sources, target, expected) in [
            ("", "-r", "src", "dst", "dst dst/f"),
            ("dst/", "-r", "src", "dst", "dst dst/src dst/src/f"),
            ("", "-r", "src", "dst/", "dst dst/src dst/src/f"),
            ("dst/", "-r", "src", "dst/", "dst dst/src dst/src/f"),
            ("", "-r", "src", "", "src src/f"),
            ("", "-r", "src/", "dst", "dst dst/f"),
            // What is there besides stays. `tree/receiver/tests/surplus.rs` of the library has --delete.
            ("dst/o", "-r", "src/", "dst", "dst dst/f dst/o"),
            ("", "-r", "src/", "dst/", "dst dst/f"),
            ("", "-r", "src/", "", "f"),
            ("", "-r", "src g", "dst", "dst dst/g dst/src dst/src/f"),
            ("", "", "g h", "dst", "dst dst/g dst/h"),
            ("", "-u", "g", "dst", "dst"),
            ("dst/", "-u", "g", "dst", "dst dst/g"),
            ("", "-r", "g", "dst", "dst"),
            ("", "-r", "src", "a/b", "a a/b a/b/f"),
        ] {
            let pair = Pair::new();
            plant_all(way.from(&pair), &["src/f", "g", "h"]);
            plant_all(way.to(&pair), &words(there_before));
            let outcome = way.cp(&pair, &words(options), &words(sources), target);
            let outcome = outcome.expect(0);
            let context = format!("{way:?} {there_before:?} {options} {sources} {target:?}");
            assert_eq!(
                paths(way.to(&pair)),
                words(expected),
                "{context}\n{outcome}"
            );
        }
    }
}

/// The rules are tested in `tree/filter.rs` of the library.
#[test]
fn patterns_of_options_and_files_count_in_their_order() {
    let all = "src/a.c src/a.o src/build/x src/lib/a.o src/lib/build/y src/keep.o src/notes";
    for way in Way::BOTH {
        for (options, expected) in [
            (
                "--exclude build/ --exclude *.o --include keep.o",
                "a.c keep.o lib notes",
            ),
            (
                "--exclude-from patterns --include keep.o",
                "a.c keep.o lib notes",
            ),
            ("--exclude * --exclude !*.c", "a.c"),
        ] {
            let pair = Pair::new();
            plant_all(way.from(&pair), &words(all));
            let list = pair.client.home().join("patterns");
            fs::write(&list, "# what is made\n*.o\nbuild/\n").unwrap();
            let options = options.replace("patterns", list.to_str().unwrap());
            let options = [&["-r"], &words(&options)[..]].concat();
            let outcome = way.cp(&pair, &options, &["src"], "dst").expect(0);
            let found = Tree::read(&way.to(&pair).path("dst"), Aspects::NONE).paths();
            assert_eq!(found, words(expected), "{way:?} {options:?}\n{outcome}");
        }
    }
}

#[test]
fn a_list_names_what_is_copied_with_the_directories_that_lead_there() {
    for way in Way::BOTH {
        for (list, options) in [
            ("a\n./deep/b/c\n", &["--files-from", "-"][..]),
            ("a\0deep/b/c\0", &["-0", "--files-from", "-"]),
        ] {
            let pair = Pair::new();
            let all = ["src/a", "src/b", "src/deep/b/c", "src/deep/b/d"];
            plant_all(way.from(&pair), &all);
            let ends = way.words(&["src"], "dst");
            let ends: Vec<&str> = ends.iter().map(String::as_str).collect();
            let command = pair.cp_command(&[options, &ends].concat());
            let outcome = Process::spawn_fed(command, list.into()).finish().expect(0);
            let found = Tree::read(&way.to(&pair).path("dst"), Aspects::NONE).paths();
            let expected = ["a", "deep", "deep/b", "deep/b/c"];
            assert_eq!(found, expected, "{way:?} {list:?}\n{outcome}");
        }
    }
}

#[test]
fn what_a_list_names_and_is_not_there_fails_and_the_rest_is_copied() {
    let pair = Pair::new();
    plant_all(&pair.client, &["src/a", "list"]);
    pair.client.write("list", "missing\na\n");
    let outcome = pair.cp(&["--files-from", "list", "src", "127.0.0.1:dst"]);
    assert!(matches!(outcome.status.code(), Some(23 | 24)), "{outcome}");
    assert_eq!(
        Tree::read(&pair.server.path("dst"), Aspects::NONE).paths(),
        ["a"]
    );
    pair.client.write("list", "a\n../../etc/passwd\n");
    pair.cp(&["--files-from", "list", "src", "127.0.0.1:dst"])
        .expect(2)
        .error(&["\"list\", name 2", "\"..\""]);
    pair.cp(&["--files-from", "no-list", "src", "127.0.0.1:dst"])
        .expect(11)
        .error(&["no-list"]);
}

#[test]
fn a_dry_run_lists_what_would_be_done_and_does_nothing() {
    for way in Way::BOTH {
        let pair = Pair::new();
        plant_all(
            way.from(&pair),
            &["src/new", "src/dir/new", "src/changed", "src/same"],
        );
        plant_all(way.to(&pair), &["dst/changed", "dst/surplus/f", "dst/same"]);
        for (side, root) in [(way.from(&pair), "src"), (way.to(&pair), "dst")] {
            age(&side.path(root).join("same"), 1_000_000_000);
        }
        way.from(&pair).write("src/changed", "longer than before");
        let before = Tree::read(&way.to(&pair).files(), Aspects::ALL);
        let outcome = way
            .cp(&pair, &["-rnf", "--delete"], &["src/"], "dst")
            .expect(0);
        let mut lines: Vec<&str> = outcome.stdout.lines().collect();
        lines.sort_unstable();
        for line in ["would copy ", "would delete ", "would replace "] {
            assert!(
                lines.iter().any(|other| other.starts_with(line)),
                "{way:?} {line:?}\n{outcome}"
            );
        }
        for name in ["dir/new", "surplus", "changed"] {
            assert!(
                lines.iter().any(|line| line.ends_with(name)),
                "{way:?} {name:?}\n{outcome}"
            );
        }
        assert!(
            outcome
                .stderr
                .lines()
                .last()
                .unwrap()
                .starts_with("dry run"),
            "{outcome}"
        );
        let report = way
            .cp(&pair, &["-rnf", "--delete", "--json"], &["src/"], "dst")
            .expect(0)
            .document();
        let tree = &report["tree"];
        assert_eq!(
            (&tree["dry_run"], number(tree, "files")),
            (&true.into(), 3),
            "{report:#}"
        );
        assert!(number(tree, "deleted") >= 1, "{report:#}");
        assert!(
            before == Tree::read(&way.to(&pair).files(), Aspects::ALL),
            "{way:?}: something changed"
        );

        // The run does what the dry run has announced.
        way.cp(&pair, &["-rf", "--delete"], &["src/"], "dst")
            .expect(0);
        assert_eq!(
            Tree::read(&way.to(&pair).path("dst"), Aspects::NONE).paths(),
            ["changed", "dir", "dir/new", "new", "same"]
        );
    }
}

#[test]
fn a_daemon_that_is_append_only_deletes_and_replaces_nothing() {
    let pair = Pair::serving(&[], "append-only");
    plant_all(&pair.client, &["src/f", "src/new"]);
    plant_all(&pair.server, &["src/f", "src/old"]);
    // With equal times, -u would replace nothing. A fast machine makes both in one tick of the kernel.
    age(&pair.server.path("src/f"), 1_000_000_000);
    pair.client.write("src/f", "changed");
    for options in [&["-r", "--delete"][..], &["-rf"], &["-ru"]] {
        let words: Vec<&str> = options
            .iter()
            .chain(&["src", "127.0.0.1:"])
            .copied()
            .collect();
        let outcome = pair.cp(&words);
        assert!(matches!(outcome.status.code(), Some(5 | 23)), "{outcome}");
        assert_eq!(
            (pair.server.read("src/f"), pair.server.read("src/old")),
            (b"src/f".to_vec(), b"src/old".to_vec())
        );
    }
}
