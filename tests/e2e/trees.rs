//! Tests that trees arrive unchanged in both directions.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use nicstripe_testkit::{
    number,
    pair::Pair,
    text,
    tree::{Aspects, Tree, assert_same_tree, plant, plant_everything},
};

#[test]
fn a_tree_with_everything_in_it_goes_there_and_back_unchanged() {
    let pair = Pair::new();
    let source = pair.client.path("src");
    plant_everything(&source);
    let there = pair
        .cp(&["-a", "--json", "src", "127.0.0.1:copy"])
        .expect(0)
        .document();
    assert_same_tree(&source, &pair.server.path("copy"), Aspects::ALL);
    let back = pair
        .cp(&["-a", "--json", "127.0.0.1:copy", "back"])
        .expect(0)
        .document();
    assert_same_tree(&source, &pair.client.path("back"), Aspects::ALL);
    for report in [there, back] {
        let tree = &report["tree"];
        // 5 plain names, one with spaces, one with control characters, 300 small files and the
        // sparse one. The two other names of one file are hard links.
        assert_eq!(number(tree, "files"), 308, "{report:#}");
        assert_eq!(number(&report, "files"), 308);
        assert_eq!(
            (number(tree, "symlinks"), number(tree, "hard_links")),
            (3, 2),
            "{report:#}"
        );
        // The directories are the tree itself, deep, deep/a, deep/a/b, deep/a/b/c, many and
        // `nothing in it`.
        assert_eq!(number(tree, "directories"), 7, "{report:#}");
        assert_eq!(number(tree, "failed"), 0);
        assert_eq!(tree["dry_run"], false);
        assert!(report.get("blake3").is_none());
    }
    assert!(no_leftovers(&Tree::read(
        &pair.server.files(),
        Aspects::NONE
    )));
    assert!(no_leftovers(&Tree::read(
        &pair.client.files(),
        Aspects::NONE
    )));
}

#[test]
fn times_are_always_kept_and_modes_attributes_and_hard_links_when_asked_for() {
    let pair = Pair::new();
    plant_everything(&pair.client.path("src"));
    pair.cp(&["-r", "src", "127.0.0.1:"]).expect(0);
    assert_same_tree(
        &pair.client.path("src"),
        &pair.server.path("src"),
        Aspects {
            holes: true,
            ..Aspects::NONE
        },
    );
    let copy = pair.server.path("src");
    assert_eq!(fs::metadata(copy.join("small")).unwrap().nlink(), 1);
    // As for a single file: the mode of the source, reduced by the receiver's umask.
    assert_eq!(
        fs::metadata(copy.join("many/file-001")).unwrap().mode() & 0o7777,
        0o400
    );

    let none = Aspects::NONE;
    for (option, aspects) in [
        (
            "-p",
            Aspects {
                modes: true,
                ..none
            },
        ),
        // The mask of an ACL is the group bits of the mode, which the umask would otherwise reduce.
        (
            "-Xp",
            Aspects {
                xattrs: true,
                modes: true,
                ..none
            },
        ),
        (
            "-H",
            Aspects {
                hard_links: true,
                ..none
            },
        ),
    ] {
        let target = format!("127.0.0.1:with{option}");
        pair.cp(&["-r", option, "src", &target]).expect(0);
        assert_same_tree(
            &pair.client.path("src"),
            &pair.server.path(format!("with{option}")),
            aspects,
        );
    }
}

#[test]
fn hard_links_that_are_there_count_as_unchanged() {
    let pair = Pair::new();
    plant(&pair.client.path("src"), "one", "bytes");
    for name in ["src/two", "src/three"] {
        fs::hard_link(pair.client.path("src/one"), pair.client.path(name)).unwrap();
    }
    for words in [["src/", "127.0.0.1:there"], ["127.0.0.1:there/", "back"]] {
        let cp = |option| pair.cp(&[&[option][..], &words].concat()).expect(0).stderr;
        assert!(cp("-a").contains("1 file (5 B), "));
        // The second and third run, and a dry run before and after.
        for option in ["-an", "-a", "-a", "-an", "-ac"] {
            let said = cp(option);
            let is_so = said.contains("3 unchanged") && !said.contains("hard link");
            assert!(is_so, "{option} {words:?}: {said}");
        }
    }
    fs::remove_file(pair.server.path("there/two")).unwrap();
    let said = pair.cp(&["-a", "src/", "127.0.0.1:there"]).expect(0).stderr;
    assert!(said.contains("1 hard link copied; 2 unchanged"), "{said}");
}

#[test]
fn set_user_id_is_a_peers_to_give_only_with_special_modes() {
    for (option, kept) in [("", false), ("special-modes", true)] {
        let pair = Pair::serving(&[], option);
        plant(&pair.client.path("src"), "program", b"bytes");
        fs::create_dir(pair.client.path("src/shared")).unwrap();
        let mode = |path: std::path::PathBuf, bits: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
        };
        mode(pair.client.path("src/program"), 0o6755);
        mode(pair.client.path("src/shared"), 0o2775);
        let outcome = pair.cp(&["-a", "--json", "src/", "127.0.0.1:copy"]);
        let outcome = outcome.expect(0);
        let stripped = number(&outcome.document()["tree"], "stripped");
        assert_eq!(stripped, if kept { 0 } else { 2 }, "{outcome}");
        let is_told = outcome.stderr.contains("2 without all attributes");
        assert_ne!(is_told, kept, "{outcome}");
        let found = |path: &str| fs::metadata(pair.server.path(path)).unwrap().mode() & 0o7777;
        let expected = if kept {
            (0o6755, 0o2775)
        } else {
            (0o755, 0o775)
        };
        assert_eq!((found("copy/program"), found("copy/shared")), expected);
    }
}

#[test]
fn names_that_no_terminal_should_see_are_escaped_everywhere() {
    let pair = Pair::new();
    plant_everything(&pair.client.path("src"));
    let listed = pair.cp(&["-rv", "src", "127.0.0.1:"]).expect(0);
    let dry = pair
        .cp(&["-rnvv", "--progress", "always", "src", "127.0.0.1:other"])
        .expect(0);
    let stream = pair
        .cp(&["-rvv", "--json-stream", "src", "127.0.0.1:"])
        .expect(0);
    // A newer target that differs is rejected. Its name appears in the list of failures.
    plant(&pair.server.path("src"), "wild\n", b"");
    plant(&pair.client.path("src"), "wild\n", b"differs");
    let failed = pair
        .cp(&["-rv", "--no-replace", "--json", "src", "127.0.0.1:"])
        .expect(23);
    for outcome in [&listed, &dry, &stream, &failed] {
        for text in [&outcome.stdout, &outcome.stderr] {
            assert!(
                !text.contains(|c: char| c.is_control() && c != '\n'),
                "{text:?}"
            );
        }
        assert!(
            !outcome
                .stderr
                .lines()
                .chain(outcome.stdout.lines())
                .any(|line| line.starts_with("\u{1b}")),
            "{outcome}"
        );
    }
    let escaped = r"wild\n\u{1b}[2J\xff";
    assert!(
        listed.stderr.contains(&format!("copied src/{escaped}")),
        "{listed}"
    );
    assert!(dry.stdout.contains(escaped), "{dry}");
    let events = stream.events();
    let wild = events
        .iter()
        .find(|event| {
            event["event"] == "entry" && event["name"].as_str().unwrap().ends_with(escaped)
        })
        .unwrap();
    assert_eq!(
        (text(wild, "outcome"), text(wild, "name_base64")),
        ("unchanged", "c3JjL3dpbGQKG1sySv8=")
    );
    failed.document();
}

fn no_leftovers(tree: &Tree) -> bool {
    tree.paths()
        .iter()
        .all(|path| !path.contains("nicstripe-part") && !path.contains("nicstripe-journal"))
}
