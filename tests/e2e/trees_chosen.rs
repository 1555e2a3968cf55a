//! Tests of entry selection, target paths and deletion in tree copies. No other entries are copied
//! or deleted.

use std::fs;

use nicstripe_testkit::{
    Process, Side, number,
    pair::Pair,
    tree::{Aspects, Tree, age, plant},
};

#[derive(Clone, Copy, Debug)]
enum Way {
    Put,
    Get,
}

impl Way {
    const BOTH: [Self; 2] = [Self::Put, Self::Get];

    fn from(self, pair: &Pair) -> &Side {
        match self {
            Self::Put => &pair.client,
            Self::Get => &pair.server,
        }
    }

    fn to(self, pair: &Pair) -> &Side {
        match self {
            Self::Put => &pair.server,
            Self::Get => &pair.client,
        }
    }

    /// Returns the `cp` arguments for these sources and this target, in this direction.
    fn words(self, sources: &[&str], target: &str) -> Vec<String> {
        let remote = |path: &str| format!("127.0.0.1:{path}");
        let local = |path: &str| {
            if path.is_empty() {
                ".".to_owned()
            } else {
                path.to_owned()
            }
        };
        match self {
            Self::Put => sources
                .iter()
                .map(|source| local(source))
                .chain([remote(target)])
                .collect(),
            Self::Get => sources
                .iter()
                .map(|source| remote(source))
                .chain([local(target)])
                .collect(),
        }
    }

    fn cp(
        self,
        pair: &Pair,
        options: &[&str],
        sources: &[&str],
        target: &str,
    ) -> nicstripe_testkit::Outcome {
        let words = self.words(sources, target);
        let words: Vec<&str> = options
            .iter()
            .copied()
            .chain(words.iter().map(String::as_str))
            .collect();
        pair.cp(&words)
    }
}

fn paths(side: &Side) -> Vec<String> {
    Tree::read(&side.files(), Aspects::NONE).paths()
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
            (
                &[][..],
                &["-r"][..],
                &["src"][..],
                "dst",
                &["dst", "dst/f"][..],
            ),
            (
                &["dst/"],
                &["-r"],
                &["src"],
                "dst",
                &["dst", "dst/src", "dst/src/f"],
            ),
            (
                &[],
                &["-r"],
                &["src"],
                "dst/",
                &["dst", "dst/src", "dst/src/f"],
            ),
            (
                &["dst/"],
                &["-r"],
                &["src"],
                "dst/",
                &["dst", "dst/src", "dst/src/f"],
            ),
            (&[], &["-r"], &["src"], "", &["src", "src/f"]),
            (&[], &["-r"], &["src/"], "dst", &["dst", "dst/f"]),
            (&["dst/"], &["-r"], &["src/"], "dst", &["dst", "dst/f"]),
            (&[], &["-r"], &["src/"], "dst/", &["dst", "dst/f"]),
            (&[], &["-r"], &["src/"], "", &["f"]),
            (
                &[],
                &["-r"],
                &["src", "g"],
                "dst",
                &["dst", "dst/g", "dst/src", "dst/src/f"],
            ),
            (&[], &[], &["g", "h"], "dst", &["dst", "dst/g", "dst/h"]),
            (&[], &["-u"], &["g"], "dst", &["dst"]),
            (&["dst/"], &["-u"], &["g"], "dst", &["dst", "dst/g"]),
            (&[], &["-r"], &["g"], "dst", &["dst"]),
            (&[], &["-r"], &["src"], "a/b", &["a", "a/b", "a/b/f"]),
        ] {
            let pair = Pair::new();
            plant_all(way.from(&pair), &["src/f", "g", "h"]);
            plant_all(way.to(&pair), there_before);
            let outcome = way.cp(&pair, options, sources, target).expect(0);
            assert_eq!(
                paths(way.to(&pair)),
                expected,
                "{way:?} {there_before:?} {options:?} {sources:?} {target:?}\n{outcome}"
            );
        }
    }
}

#[test]
fn the_daemons_root_means_what_is_in_it() {
    let pair = Pair::new();
    plant_all(&pair.server, &["a", "dir/b"]);
    pair.cp(&["-r", "127.0.0.1:", "dst"]).expect(0);
    assert_eq!(
        Tree::read(&pair.client.path("dst"), Aspects::NONE).paths(),
        ["a", "dir", "dir/b"]
    );
}

#[test]
fn a_file_in_the_way_of_a_directory_is_left() {
    for way in Way::BOTH {
        let pair = Pair::new();
        plant_all(way.from(&pair), &["src/f", "src/g", "h"]);
        plant_all(way.to(&pair), &["dst"]);
        let outcome = way.cp(&pair, &["-rf"], &["src", "h"], "dst");
        assert_ne!(outcome.status.code(), Some(0), "{outcome}");
        assert_eq!(way.to(&pair).read("dst"), b"dst");
    }
}

#[test]
fn patterns_are_those_of_gitignore_and_the_last_that_matches_counts() {
    let all = [
        "src/a.c",
        "src/a.o",
        "src/build/x",
        "src/lib/a.c",
        "src/lib/a.o",
        "src/lib/build/y",
        "src/keep.o",
        "src/notes",
    ];
    for way in Way::BOTH {
        for (options, expected) in [
            (
                &["--exclude", "*.o"][..],
                &[
                    "a.c",
                    "build",
                    "build/x",
                    "lib",
                    "lib/a.c",
                    "lib/build",
                    "lib/build/y",
                    "notes",
                ][..],
            ),
            (
                &["--exclude", "/build"],
                &[
                    "a.c",
                    "a.o",
                    "keep.o",
                    "lib",
                    "lib/a.c",
                    "lib/a.o",
                    "lib/build",
                    "lib/build/y",
                    "notes",
                ],
            ),
            (
                &[
                    "--exclude",
                    "build/",
                    "--exclude",
                    "*.o",
                    "--include",
                    "keep.o",
                ],
                &["a.c", "keep.o", "lib", "lib/a.c", "notes"],
            ),
            (
                &[
                    "--exclude",
                    "*.o",
                    "--include",
                    "keep.o",
                    "--exclude",
                    "k*",
                    "--exclude",
                    "lib",
                    "--exclude",
                    "build",
                ],
                &["a.c", "notes"],
            ),
            (
                &["--exclude", "*", "--include", "*/", "--include", "*.c"],
                &["a.c", "build", "lib", "lib/a.c", "lib/build"],
            ),
            (&["--exclude", "*", "--exclude", "!*.c"], &["a.c"]),
            (
                &["--exclude-from", "patterns", "--include", "keep.o"],
                &["a.c", "keep.o", "lib", "lib/a.c", "notes"],
            ),
        ] {
            let pair = Pair::new();
            plant_all(way.from(&pair), &all);
            let list = tempfile::tempdir().unwrap();
            let list = list.path().join("patterns");
            fs::write(&list, "# what is made\n*.o\nbuild/\n").unwrap();
            let options: Vec<&str> = ["-r"]
                .iter()
                .chain(options)
                .map(|word| {
                    if *word == "patterns" {
                        list.to_str().unwrap()
                    } else {
                        *word
                    }
                })
                .collect();
            let outcome = way.cp(&pair, &options, &["src"], "dst").expect(0);
            let found = Tree::read(&way.to(&pair).path("dst"), Aspects::NONE).paths();
            assert_eq!(found, expected, "{way:?} {options:?}\n{outcome}");
        }
    }
}

#[test]
fn what_is_no_pattern_is_a_usage_error() {
    let pair = Pair::new();
    plant_all(&pair.client, &["src/a"]);
    for options in [
        &["--exclude", "[z-a]"][..],
        &["--exclude", ""],
        &["--include", "*.c", "--exclude", "*"],
    ] {
        pair.cp(&[&["-r"], options, &["src", "127.0.0.1:"]].concat())
            .expect(2)
            .error(&["\""]);
    }
    assert!(paths(&pair.server).is_empty());
}

#[test]
fn a_list_names_what_is_copied_with_the_directories_that_lead_there() {
    for way in Way::BOTH {
        for (list, from0, expected) in [
            (
                "a\n./deep/b/c\n",
                false,
                &["a", "deep", "deep/b", "deep/b/c"][..],
            ),
            ("a\0deep/b/c\0", true, &["a", "deep", "deep/b", "deep/b/c"]),
            ("a\r\n\n", false, &["a"]),
            ("", false, &[]),
            ("\u{feff}a\n", false, &["a"]),
            (
                "/a\n/deep/b/c\n",
                false,
                &["a", "deep", "deep/b", "deep/b/c"],
            ),
            (".\n", false, &[]),
        ] {
            let pair = Pair::new();
            plant_all(
                way.from(&pair),
                &["src/a", "src/b", "src/deep/b/c", "src/deep/b/d"],
            );
            let words = way.words(&["src"], "dst");
            let options: &[&str] = if from0 {
                &["-0", "--files-from", "-"]
            } else {
                &["--files-from", "-"]
            };
            let words: Vec<&str> = options
                .iter()
                .copied()
                .chain(words.iter().map(String::as_str))
                .collect();
            let outcome = Process::spawn_fed(pair.cp_command(&words), list.into())
                .finish()
                .expect(0);
            let target = way.to(&pair).path("dst");
            let found = if target.exists() {
                Tree::read(&target, Aspects::NONE).paths()
            } else {
                Vec::new()
            };
            assert_eq!(found, expected, "{way:?} {list:?}\n{outcome}");
        }
    }
}

#[test]
fn a_list_that_names_the_source_copies_all_of_it_recursively() {
    for way in Way::BOTH {
        for list in [".\n", "/\n", "./\n", "a\n.\n"] {
            let pair = Pair::new();
            plant_all(way.from(&pair), &["src/a", "src/deep/b"]);
            fs::write(pair.client.path("list"), list).unwrap();
            let outcome = way
                .cp(&pair, &["-r", "--files-from", "list"], &["src"], "dst")
                .expect(0);
            assert_eq!(
                Tree::read(&way.to(&pair).path("dst"), Aspects::NONE).paths(),
                ["a", "deep", "deep/b"],
                "{way:?} {list:?}\n{outcome}"
            );
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
fn a_dry_run_makes_not_even_the_target() {
    for way in Way::BOTH {
        let pair = Pair::new();
        plant_all(way.from(&pair), &["src/f", "g"]);
        way.cp(&pair, &["-rn"], &["src"], "dst").expect(0);
        way.cp(&pair, &["-n"], &["g"], "other").expect(0);
        assert!(
            paths(way.to(&pair)).is_empty(),
            "{way:?}: {:?}",
            paths(way.to(&pair))
        );
    }
}

#[test]
fn deleted_is_what_the_source_lacks_in_directories_that_it_has_and_nothing_else() {
    let before = [
        "dst/other",
        "dst/src/f",
        "dst/src/old",
        "dst/src/dir/old",
        "dst/src/gone/deep/x",
        "outside",
    ];
    for way in Way::BOTH {
        for (options, sources, target, gone) in [
            // Deletes nothing without the option.
            (&["-rf"][..], &["src"][..], "dst", &[][..]),
            (
                &["-rf", "--delete"],
                &["src"],
                "dst",
                &["dst/src/dir/old", "dst/src/gone", "dst/src/old"],
            ),
            (
                &["-rf", "--delete"],
                &["src"],
                "dst/",
                &["dst/src/dir/old", "dst/src/gone", "dst/src/old"],
            ),
            (
                &["-rf", "--delete"],
                &["src/"],
                "dst",
                &["dst/other", "dst/src"],
            ),
            (
                &["-rf", "--delete"],
                &["src/"],
                "dst/src",
                &["dst/src/dir/old", "dst/src/gone", "dst/src/old"],
            ),
            (
                &["-rf", "--delete"],
                &["src", "second"],
                "dst",
                &["dst/src/dir/old", "dst/src/gone", "dst/src/old"],
            ),
            (
                &["-rf", "--delete", "--exclude", "old"],
                &["src"],
                "dst",
                &["dst/src/gone"],
            ),
            (
                &["-rf", "--delete", "--exclude", "gone"],
                &["src/"],
                "dst/src",
                &["dst/src/dir/old", "dst/src/old"],
            ),
            // A new target has no entries to delete.
            (&["-rf", "--delete"], &["src"], "fresh", &[]),
        ] {
            let pair = Pair::new();
            plant_all(way.from(&pair), &["src/f", "src/dir/g", "second/h"]);
            plant_all(way.to(&pair), &before);
            let was = paths(way.to(&pair));
            let outcome = way.cp(&pair, options, sources, target).expect(0);
            let is = paths(way.to(&pair));
            let is_gone = |path: &String| {
                gone.iter()
                    .any(|gone| path == gone || path.starts_with(&format!("{gone}/")))
            };
            for path in &was {
                assert_eq!(
                    is.contains(path),
                    !is_gone(path),
                    "{way:?} {options:?} {sources:?} {target:?}: {path}\n{outcome}"
                );
            }
        }
    }
}

#[test]
fn nothing_is_deleted_where_a_source_is_missing() {
    for way in Way::BOTH {
        let pair = Pair::new();
        plant_all(way.from(&pair), &["unrelated"]);
        plant_all(way.to(&pair), &["dst/a", "dst/src/b"]);
        for sources in [&["src"][..], &["src/"], &["src", "unrelated"]] {
            let outcome = way.cp(&pair, &["-r", "--delete"], sources, "dst");
            assert_ne!(outcome.status.code(), Some(0), "{outcome}");
        }
        let found = paths(way.to(&pair));
        for path in ["dst/a", "dst/src/b"] {
            assert!(
                found.iter().any(|other| other == path),
                "{way:?}: {path} is gone of {found:?}"
            );
        }
    }
}

#[test]
fn a_daemon_that_is_append_only_deletes_and_replaces_nothing() {
    let pair = Pair::serving(&[], "append-only");
    plant_all(&pair.client, &["src/f", "src/new"]);
    plant_all(&pair.server, &["src/f", "src/old"]);
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

#[test]
fn update_replaces_what_is_older_and_leaves_what_is_newer() {
    for way in Way::BOTH {
        let pair = Pair::new();
        for (side, root, older, newer) in [
            (way.from(&pair), "src", 1_000_000_000, 1_200_000_000),
            (way.to(&pair), "dst", 1_100_000_000, 1_100_000_000),
        ] {
            plant_all(side, &[&format!("{root}/older"), &format!("{root}/newer")]);
            age(&side.path(root).join("older"), older);
            age(&side.path(root).join("newer"), newer);
        }
        way.from(&pair).write("src/newer", "this is newer");
        age(&way.from(&pair).path("src/newer"), 1_200_000_000);
        let outcome = way
            .cp(&pair, &["-ruvv", "--json"], &["src/"], "dst")
            .expect(0);
        let report = outcome.document();
        assert_eq!(
            (
                number(&report["tree"], "files"),
                number(&report["tree"], "newer")
            ),
            (1, 1),
            "{way:?} {outcome}"
        );
        assert_eq!(way.to(&pair).read("dst/newer"), b"this is newer");
        assert_eq!(way.to(&pair).read("dst/older"), b"dst/older");
        assert!(outcome.stderr.contains("newer there: "), "{outcome}");
    }
}

#[test]
fn checksums_find_what_times_hide_and_hide_what_times_show() {
    for way in Way::BOTH {
        let pair = Pair::new();
        for (side, root) in [(way.from(&pair), "src"), (way.to(&pair), "dst")] {
            plant(&side.path(root), "touched", b"the same");
            plant(&side.path(root), "forged", b"bytes1");
            age(&side.path(root).join("forged"), 1_000_000_000);
        }
        way.from(&pair).write("src/forged", b"bytes2");
        age(&way.from(&pair).path("src/forged"), 1_000_000_000);
        age(&way.from(&pair).path("src/touched"), 1_000_000_001);

        let times = way
            .cp(&pair, &["-rnf", "--json"], &["src/"], "dst")
            .expect(0)
            .document();
        assert_eq!(number(&times["tree"], "files"), 1, "{way:?} {times:#}");
        let report = way
            .cp(&pair, &["-rcf", "--json"], &["src/"], "dst")
            .expect(0)
            .document();
        assert_eq!(
            (
                number(&report["tree"], "files"),
                number(&report["tree"], "unchanged")
            ),
            (1, 1),
            "{way:?} {report:#}"
        );
        assert_eq!(way.to(&pair).read("dst/forged"), b"bytes2");
    }
}
