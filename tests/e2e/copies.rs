//! Tests that files arrive complete and under the right name, in both directions.

use std::fs;

use nicstripe_testkit::{
    content, digest, is_same, link, number,
    pair::{MIB, Pair},
    text,
};

#[test]
fn a_file_arrives_whole_and_both_ends_agree_on_its_digest() {
    let pair = Pair::new();
    let bytes = content(20 * MIB + 4097);
    pair.client.write("source", &bytes);
    let report = pair
        .cp(&["--json", "source", "127.0.0.1:target"])
        .expect(0)
        .document();
    pair.server.check("target", &bytes, &report);
    pair.daemon.process.await_stderr(&digest(&bytes));
    assert_eq!(pair.server.names(), ["target"]);
}

#[test]
fn a_file_is_fetched_whole_and_both_ends_agree_on_its_digest() {
    let pair = Pair::new();
    let bytes = content(20 * MIB + 4097);
    pair.server.write("source", &bytes);
    let report = pair
        .cp(&["--json", "127.0.0.1:source", "target"])
        .expect(0)
        .document();
    pair.client.check("target", &bytes, &report);
    assert_eq!(pair.client.names(), ["target"]);
}

#[test]
fn both_links_carry_data_both_ways() {
    let pair = Pair::new();
    let bytes = content(32 * MIB);
    pair.client.write("here", &bytes);
    pair.server.write("there", &bytes);
    for arguments in [
        ["--json", "here", "127.0.0.1:copy"],
        ["--json", "127.0.0.1:there", "copy"],
    ] {
        let report = pair.cp(&arguments).expect(0).document();
        let links = report["links"].as_array().unwrap();
        assert_eq!(links.len(), 2, "{report:#}");
        assert!(
            links
                .iter()
                .all(|link| number(link, "bytes") > 0 && link["verified"] == true),
            "{report:#}"
        );
        assert!(
            links
                .iter()
                .all(|link| number(link, "interface_bytes") >= number(link, "bytes")),
            "{report:#}"
        );
        assert_eq!(
            links.iter().map(|link| number(link, "bytes")).sum::<u64>(),
            bytes.len() as u64
        );
    }
}

#[test]
fn files_of_no_and_one_byte_arrive() {
    let pair = Pair::new();
    for len in [0, 1] {
        let bytes = content(len);
        pair.client.write("source", &bytes);
        let report = pair
            .cp(&["-f", "--json", "source", "127.0.0.1:target"])
            .expect(0)
            .document();
        pair.server.check("target", &bytes, &report);
    }
}

#[test]
fn without_a_link_option_the_host_is_reached_as_the_kernel_would() {
    let pair = Pair::new();
    pair.client.write("source", content(MIB));
    let port = pair.daemon.port.to_string();
    for target in ["127.0.0.1:target", "localhost:target", "[::1]:target"] {
        let outcome = pair
            .client
            .run(["cp", "-f", "-P", &port, "--json", "source", target])
            .expect(0);
        pair.server
            .check("target", &content(MIB), &outcome.document());
    }
}

#[test]
fn a_url_names_host_port_and_path() {
    let pair = Pair::new();
    pair.client.write("source", content(MIB));
    let target = format!("nicstripe://127.0.0.1:{}/a%20name", pair.daemon.port);
    pair.client.run(["cp", "source", &target]).expect(0);
    assert!(is_same(&pair.server.read("a name"), &content(MIB)));
}

#[test]
fn a_directory_takes_the_file_under_its_own_name() {
    let pair = Pair::new();
    pair.client.write("source", b"bytes");
    pair.server.make_dir("dir");
    for (target, name) in [("127.0.0.1:", "source"), ("127.0.0.1:dir/", "dir/source")] {
        pair.cp(&["source", target]).expect(0);
        assert_eq!(pair.server.read(name), b"bytes", "{target}");
    }
    // As with cp(1), the slash is optional.
    pair.server.make_dir("other");
    pair.cp(&["source", "127.0.0.1:other"]).expect(0);
    assert_eq!(pair.server.read("other/source"), b"bytes");
}

#[test]
fn a_fetched_file_goes_into_a_directory_under_its_own_name() {
    let pair = Pair::new();
    pair.server.make_dir("dir");
    pair.server.write("dir/source", b"bytes");
    pair.cp(&["127.0.0.1:dir/source", "."]).expect(0);
    assert_eq!(pair.client.read("source"), b"bytes");
    pair.client.make_dir("into");
    pair.cp(&["127.0.0.1:./dir/source", "into/"]).expect(0);
    assert_eq!(pair.client.read("into/source"), b"bytes");
}

#[test]
fn the_closing_line_names_what_was_made() {
    let pair = Pair::new();
    pair.client.write("f", "bytes");
    pair.client.make_dir("d");
    pair.client.write("d/x", "x");
    pair.server.make_dir("tree");
    pair.server.make_dir("tree/sub");
    pair.server.write("tree/sub/f1", "bytes");
    for (words, made) in [
        (&["f", "127.0.0.1:tree"][..], "→ 127.0.0.1:tree/f  "),
        (&["-r", "d", "127.0.0.1:tree"], "→ 127.0.0.1:tree/d  "),
        (&["-r", "d", "127.0.0.1:new"], "→ 127.0.0.1:new  "),
        (&["-r", "127.0.0.1:tree/sub", "new"], "→ new  "),
        (&["-r", "127.0.0.1:tree/sub", "d"], "→ d/sub  "),
        (&["127.0.0.1:tree/sub/f*", "."], "→ ./f1  "),
        (&["127.0.0.1:~/tree/sub/f1", "g"], "→ g  "),
    ] {
        let outcome = pair.cp(words).expect(0);
        assert!(outcome.stderr.contains(made), "{words:?}: {outcome}");
    }
}

#[test]
fn an_absolute_path_lands_in_the_served_directory_or_is_refused() {
    let pair = Pair::new();
    pair.client.write("f", "bytes");
    pair.server.make_dir("in");
    let root = pair.server.files().display().to_string();
    let remote = |path: &str| format!("127.0.0.1:{root}{path}");
    for (words, made) in [
        (&["f", &remote("")][..], "→ 127.0.0.1:f  "),
        (&["-f", "f", &remote("/")], "→ 127.0.0.1:f  "),
        (&["f", &remote("/in")], "→ 127.0.0.1:in/f  "),
        (&["f", &remote("/in/g")], "→ 127.0.0.1:in/g  "),
        (&[&remote("/in/g*"), "h"], "→ h  "),
        (&["-r", &remote("/in/"), "new"], "→ new  "),
    ] {
        let outcome = pair.cp(words).expect(0);
        assert!(outcome.stderr.contains(made), "{words:?}: {outcome}");
    }
    assert_eq!(pair.server.names(), ["f", "in"]);
    assert_eq!(pair.client.read("h"), b"bytes");
    pair.cp(&["f", "127.0.0.1:/etc/f"])
        .expect(2)
        .error(&[
            "\"/etc/f\" is outside",
            &root,
            "the directory that 127.0.0.1 serves",
        ])
        .hint(&["relative to that directory: 127.0.0.1:etc/f"]);
    assert_eq!(pair.server.names(), ["f", "in"]);
}

#[test]
fn an_existing_target_is_replaced_unless_no_replace_is_given() {
    let pair = Pair::new();
    pair.client.write("source", b"newer");
    pair.server.write("target", b"old");
    let refused = pair
        .cp(&["--no-replace", "source", "127.0.0.1:target"])
        .expect(11)
        .error(&["\"target\"", "exists"]);
    refused.hint(&["to replace it: ", "source 127.0.0.1:target"]);
    assert_eq!(pair.server.read("target"), b"old");
    assert_eq!(pair.server.names(), ["target"]);

    pair.cp(&["source", "127.0.0.1:target"]).expect(0);
    assert_eq!(pair.server.read("target"), b"newer");
}

#[test]
fn an_existing_file_here_is_replaced_unless_no_replace_is_given() {
    let pair = Pair::new();
    pair.server.write("source", b"newer");
    pair.client.write("target", b"old");
    let refused = pair
        .cp(&["--no-clobber", "127.0.0.1:source", "target"])
        .expect(11)
        .error(&["\"target\"", "exists"]);
    refused.hint(&["to replace it: ", "127.0.0.1:source target"]);
    assert_eq!(pair.client.read("target"), b"old");
    assert_eq!(pair.client.names(), ["target"]);

    pair.cp(&["127.0.0.1:source", "target"]).expect(0);
    assert_eq!(pair.client.read("target"), b"newer");
}

#[test]
fn two_clients_copy_different_files_at_once() {
    let pair = Pair::new();
    let bytes = content(16 * MIB);
    let start = |name: &str| {
        pair.client.write(name, &bytes);
        pair.start_cp(&["--bwlimit", "16M", "--json-stream", name, "127.0.0.1:"])
    };
    let (first, second) = (start("first"), start("second"));
    first.await_bytes(1);
    second.await_bytes(1);
    let (first, second) = (
        first.finish().expect(0).document(),
        second.finish().expect(0).document(),
    );
    pair.server.check("first", &bytes, &first);
    pair.server.check("second", &bytes, &second);
}

#[test]
fn of_two_copies_to_one_file_one_finishes_and_one_is_told_so() {
    let pair = Pair::new();
    let bytes = content(32 * MIB);
    pair.client.write("source", &bytes);
    // Takes longer than the 5 s for which the second copy waits for the first.
    let first = pair.start_cp(&[
        "--bwlimit",
        "5M",
        "--json-stream",
        "source",
        "127.0.0.1:target",
    ]);
    first.await_bytes(1);
    let second = pair.cp(&["--json", "source", "127.0.0.1:target"]).expect(5);
    second.document();
    second
        .error(&["\"target\"", "another transfer"])
        .hint(&["other copy"]);
    let report = first.finish().expect(0).document();
    pair.server.check("target", &bytes, &report);
    assert_eq!(pair.server.names(), ["target"]);
}

#[test]
fn the_report_names_each_link_by_its_ends() {
    let pair = Pair::new();
    pair.client.write("source", content(MIB));
    let report = pair
        .cp(&["--json", "source", "127.0.0.1:"])
        .expect(0)
        .document();
    let first = link(&report, "lo");
    assert_eq!(
        (text(first, "local"), text(first, "remote")),
        ("127.0.0.2", "127.0.1.2")
    );
    assert_eq!(text(&report, "peer_name"), "nas");
}

#[test]
fn a_hard_link_and_a_link_to_the_target_keep_what_they_had() {
    // A replacing copy renames a new file to the name and does not write into the old file, nor
    // does one in place if that file has another name.
    for options in [&["-f"][..], &["--inplace"], &["-a", "-H", "--inplace"]] {
        let pair = Pair::new();
        // Another size: both may be of one tick of the file system's clock.
        pair.client.write("source", b"newer");
        pair.server.write("target", b"old");
        fs::hard_link(pair.server.path("target"), pair.server.path("kept")).unwrap();
        pair.cp(&[options, &["source", "127.0.0.1:target"]].concat())
            .expect(0);
        assert_eq!(
            (pair.server.read("target"), pair.server.read("kept")),
            (b"newer".to_vec(), b"old".to_vec()),
            "{options:?}"
        );
    }
}
