//! Tests that files arrive complete and under the right name, in both directions.

use std::fs;

use nicstripe_testkit::{
    content, digest, number,
    pair::{MIB, Pair},
    text,
};
use serde_json::Value;

#[test]
fn files_arrive_whole_over_both_links_and_both_ends_agree_on_their_digest() {
    let pair = Pair::new();
    let bytes = content(32 * MIB + 4097);
    for (from, to, words) in [
        (&pair.client, &pair.server, ["source", "127.0.0.1:target"]),
        (&pair.server, &pair.client, ["127.0.0.1:source", "target"]),
    ] {
        from.write("source", &bytes);
        let outcome = pair.cp(&[&["--json"], &words[..]].concat()).expect(0);
        let report = outcome.document();
        to.check("target", &bytes, &report);
        assert_eq!(to.names(), ["target"]);
        assert_eq!(text(&report, "peer_name"), "nas");
        let links = report["links"].as_array().unwrap();
        assert_eq!(links.len(), 2, "{report:#}");
        for link in links {
            let carried = number(link, "bytes");
            let is_so = carried > 0
                && link["verified"] == true
                && number(link, "interface_bytes") >= carried;
            assert!(is_so, "{report:#}");
        }
        let ends = |link: &Value| {
            (
                text(link, "local") == "127.0.0.2",
                text(link, "remote") == "127.0.1.2",
            )
        };
        assert!(
            links.iter().any(|link| ends(link) == (true, true)),
            "{report:#}"
        );
        let sum: u64 = links.iter().map(|link| number(link, "bytes")).sum();
        assert_eq!(sum, bytes.len() as u64);
        fs::remove_file(from.path("source")).unwrap();
        fs::remove_file(to.path("target")).unwrap();
    }
    pair.daemon.process.await_stderr(&digest(&bytes));
}

#[test]
fn without_a_link_option_the_host_is_reached_as_the_kernel_would() {
    let pair = Pair::new();
    pair.client.write("source", content(MIB));
    let port = pair.daemon.port.to_string();
    let url = format!("nicstripe://127.0.0.1:{port}/targ%65t");
    for target in ["127.0.0.1:target", "localhost:target", "[::1]:target", &url] {
        let outcome = pair
            .client
            .run(["cp", "-f", "-P", &port, "--json", "source", target])
            .expect(0);
        pair.server
            .check("target", &content(MIB), &outcome.document());
    }
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
