//! Tests of the copy of a single file over an existing target: reruns, dry runs, missing
//! directories.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use nicstripe_testkit::{Side, content, pair::Pair};

use crate::way::Way;

/// Sets the modification time of a file to 12 January 1970, so that it differs from the copy's.
fn age(side: &Side, name: &str) {
    let file = fs::File::options()
        .write(true)
        .open(side.path(name))
        .unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000))
        .unwrap();
}

#[test]
fn the_same_command_again_is_a_success_that_says_unchanged() {
    for way in Way::BOTH {
        let pair = Pair::new();
        let (from, to) = (way.from(&pair), way.to(&pair));
        from.write("a", content(100_000));
        age(from, "a");
        for options in [&[][..], &["-p"]] {
            let name = format!("copy{}", options.len());
            way.cp(&pair, options, &["a"], &name).expect(0);
            let written = fs::metadata(to.path(&name)).unwrap().modified().unwrap();
            let again = way.cp(&pair, options, &["a"], &name).expect(0);
            assert!(again.stderr.contains("1 unchanged"), "{again}");
            let document = way
                .cp(&pair, &[options, &["--json"]].concat(), &["a"], &name)
                .expect(0)
                .document();
            assert_eq!(document["tree"]["unchanged"], 1, "{document:#}");
            assert_eq!(
                fs::metadata(to.path(&name)).unwrap().modified().unwrap(),
                written
            );
        }
    }
}

#[test]
fn a_file_that_differs_is_replaced_or_stays_as_the_dry_run_said() {
    for way in Way::BOTH {
        for (there, why) in [
            (content(100_000), "of the same size"),
            (content(5), "of another size"),
        ] {
            let pair = Pair::new();
            let (from, to) = (way.from(&pair), way.to(&pair));
            let mut other = there.clone();
            other[0] ^= 1;
            from.write("a", content(100_000));
            to.write("a", &other);
            // File timestamps have a granularity of some milliseconds.
            age(to, "a");
            let said: Vec<String> = [&["-n", "--no-replace"][..], &["--no-clobber"]]
                .map(|options| {
                    way.cp(&pair, options, &["a"], "a")
                        .expect(11)
                        .hint(&["to replace it: "])
                        .labelled("error: ", &["\"a\" exists and differs"])
                        .to_owned()
                })
                .into();
            assert_eq!(said[0], said[1], "{why}");
            assert_eq!(to.read("a"), other);
            for options in [&[][..], &["-f"]] {
                let dry = [&["-n"], options].concat();
                let foretold = way.cp(&pair, &dry, &["a"], "a").expect(0);
                assert_eq!(foretold.stdout, "would replace a\n");
                assert_eq!(to.read("a"), other);
            }
            way.cp(&pair, &[], &["a"], "a").expect(0);
            assert_eq!(to.read("a"), content(100_000));
        }
    }
}

#[test]
fn a_dry_run_tells_what_the_same_command_does_without_it() {
    for way in Way::BOTH {
        let pair = Pair::new();
        let (from, to) = (way.from(&pair), way.to(&pair));
        from.write("a", content(1000));
        to.make_dir("dir");
        for target in ["b", "dir"] {
            let foretold = way.cp(&pair, &["-n"], &["a"], target).expect(0);
            assert_eq!(foretold.stdout, "would copy a\n", "{foretold}");
            assert!(
                foretold.stderr.contains("would copy 1 file")
                    && foretold.stderr.ends_with("dry run: nothing was changed\n"),
                "{foretold}"
            );
        }
        assert_eq!(to.names(), ["dir"]);
        assert!(!to.has("dir/a"));
        way.cp(&pair, &[], &["a"], "dir").expect(0);
        age(to, "dir/a");
        let foretold = way.cp(&pair, &["-n"], &["a"], "dir").expect(0);
        assert!(
            foretold.stdout.is_empty() && foretold.stderr.contains("1 unchanged"),
            "{foretold}"
        );
        way.cp(&pair, &[], &["a"], "dir").expect(0);
        // Both ends also report a missing source.
        way.cp(&pair, &["-n"], &["missing"], "dir")
            .expect(11)
            .error(&["missing"]);
    }
}

#[test]
fn a_missing_directory_is_named_with_the_option_that_makes_it() {
    for way in Way::BOTH {
        let pair = Pair::new();
        let (from, to) = (way.from(&pair), way.to(&pair));
        from.write("a", content(1000));
        to.write("file", b"no directory");
        for options in [&["-n"][..], &[]] {
            let outcome = way.cp(&pair, options, &["a"], "new/er/b").expect(11);
            outcome
                .error(&["cannot write \"new/er/b\": no directory \"new\""])
                .hint(&["to create it: ", "cp --mkpath "]);
            way.cp(&pair, options, &["a"], "file/b")
                .expect(11)
                .error(&["\"file\" is not a directory"]);
        }
        assert_eq!(to.names(), ["file"]);
        assert_eq!(
            way.cp(&pair, &["-n", "--mkpath"], &["a"], "new/er/b")
                .expect(0)
                .stdout,
            "would copy a\n"
        );
        assert_eq!(to.names(), ["file"]);
        way.cp(&pair, &["--mkpath"], &["a"], "new/er/b").expect(0);
        assert_eq!(to.read("new/er/b"), content(1000));
        way.cp(&pair, &["--mkpath"], &["a"], "other/dir/").expect(0);
        assert_eq!(to.read("other/dir/a"), content(1000));
        way.cp(&pair, &["--mkpath"], &["a"], "file/b")
            .expect(11)
            .error(&["file"]);
    }
}

#[test]
fn patterns_in_remote_names_stand_for_what_matches_them() {
    for (sources, expected) in [
        (&["*.img"][..], &["a.img", "b.img"][..]),
        (&["*.iso", "d*/a.raw"], &["a.raw", "c.iso"]),
        (&[r"x\*y"], &["x*y"]),
        (&["-r", "[do]*"], &["dir", "other"]),
    ] {
        let pair = Pair::new();
        for name in ["a.img", "b.img", "c.iso", "x*y", "dir/a.raw", "other/b.raw"] {
            nicstripe_testkit::tree::plant(&pair.server.files(), name, name);
        }
        let remote = |word: &&str| match *word {
            "-r" => "-r".to_owned(),
            source => format!("127.0.0.1:{source}"),
        };
        let sources: Vec<String> = sources.iter().map(remote).collect();
        let words = sources.iter().map(String::as_str).chain(["."]);
        pair.cp(&words.collect::<Vec<_>>()).expect(0);
        assert_eq!(pair.client.names(), expected, "{sources:?}");
    }
}

#[test]
fn a_pattern_that_nothing_matches_or_that_means_too_much_is_said() {
    let pair = Pair::new();
    for name in ["one/a", "two/a", "b"] {
        nicstripe_testkit::tree::plant(&pair.server.files(), name, name);
    }
    for (words, code, said) in [
        (
            &["127.0.0.1:*.img", "."][..],
            11,
            "no file on the daemon matches \"*.img\"",
        ),
        (&["127.0.0.1:b/*", "."], 11, ""),
        (&["127.0.0.1:*/a", "."], 2, "two sources are named \"a\""),
        (&["127.0.0.1:*/a", "-"], 2, "one of several"),
    ] {
        pair.cp(words).expect(code).error(&[said]);
        assert!(pair.client.names().is_empty(), "{words:?}");
    }
}

#[test]
fn files_whose_sizes_say_nothing_are_read_to_their_ends_in_trees_both_ways() {
    let pair = Pair::serving(&["--root", "/proc/sys/kernel"], "");
    let expected = |name: &str| fs::read(format!("/proc/sys/kernel/{name}")).unwrap();
    // The second run replaces nothing, because the contents are equal.
    for (source, options) in [
        ("127.0.0.1:keys", ["-r", "-q"]),
        ("127.0.0.1:keys", ["-rc", "-q"]),
    ] {
        pair.cp(&[&options[..], &[source, "127.0.0.1:ostype", "."]].concat())
            .expect(0);
        assert_eq!(
            (pair.client.read("keys/maxkeys"), pair.client.read("ostype")),
            (expected("keys/maxkeys"), expected("ostype"))
        );
    }
    let pair = Pair::new();
    // A file in /sys reports a size of one page.
    pair.cp(&[
        "-r",
        "/proc/sys/kernel/keys",
        "/sys/class/net/lo/mtu",
        "/proc/sys/kernel/ostype",
        "127.0.0.1:",
    ])
    .expect(0);
    assert_eq!(
        pair.server.read("mtu"),
        fs::read("/sys/class/net/lo/mtu").unwrap()
    );
    assert_eq!(
        (pair.server.read("keys/maxkeys"), pair.server.read("ostype")),
        (expected("keys/maxkeys"), expected("ostype"))
    );
}
