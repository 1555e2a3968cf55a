//! Tests of sources that are missing, are not regular files, or change during the copy.

use std::{fs, fs::OpenOptions, io::Write};

use nicstripe_testkit::{
    Process, content,
    pair::{MIB, Pair},
};

#[test]
fn a_directory_is_not_copied_unless_r_is_given() {
    let pair = Pair::new();
    pair.client.make_dir("tree");
    pair.server.make_dir("tree");
    pair.cp(&["tree", "127.0.0.1:"])
        .expect(11)
        .error(&["\"tree\"", "directory"])
        .hint(&["cp -r ", "tree 127.0.0.1:"]);
    pair.cp(&["127.0.0.1:tree", "copy"])
        .expect(11)
        .error(&["tree"])
        .hint(&["cp -r ", "127.0.0.1:tree copy"]);
    pair.cp(&["127.0.0.1:tree/", "copy"])
        .expect(11)
        .error(&["tree/", "directory"])
        .hint(&["cp -r ", "127.0.0.1:tree/ copy"]);
}

#[test]
fn a_link_that_is_typed_is_followed_to_its_file_and_keeps_its_name() {
    let pair = Pair::new();
    pair.client.write("file", b"bytes");
    for (link, to) in [("link", "file"), ("null", "/dev/null"), ("lost", "nowhere")] {
        std::os::unix::fs::symlink(to, pair.client.path(link)).unwrap();
    }
    pair.cp(&["link", "127.0.0.1:"]).expect(0);
    let copied = pair.server.path("link").symlink_metadata().unwrap();
    assert!(copied.is_file() && pair.server.read("link") == b"bytes");
    // An endless device cannot be copied by any path.
    pair.cp(&["null", "127.0.0.1:"])
        .expect(11)
        .error(&["\"null\" is a character device"]);
    pair.cp(&["lost", "127.0.0.1:"])
        .expect(11)
        .error(&["\"lost\" is a symbolic link to a missing file"]);
    // With -r, the copy contains the link itself.
    pair.cp(&["-r", "lost", "127.0.0.1:"]).expect(0);
    assert_eq!(
        fs::read_link(pair.server.path("lost")).unwrap().as_os_str(),
        "nowhere"
    );
}

#[test]
fn a_source_that_grows_while_it_is_read_makes_no_target() {
    let pair = Pair::new();
    let cp = begin(&pair);
    let source = OpenOptions::new()
        .append(true)
        .open(pair.client.path("source"));
    source.unwrap().write_all(b"more").unwrap();
    let outcome = cp.finish().expect(24);
    outcome.document();
    outcome
        .error(&["source"])
        .hint(&["source 127.0.0.1:target"]);
    assert!(!pair.server.has("target"));
}

#[test]
fn a_file_that_replaces_the_source_by_name_does_not_disturb_the_copy() {
    // The open file keeps its content; only its link count changes.
    let pair = Pair::new();
    let cp = begin(&pair);
    pair.client.write("other", b"other");
    fs::rename(pair.client.path("other"), pair.client.path("source")).unwrap();
    let outcome = cp.finish();
    // Unlinking changes the ctime, so an error about a changed source is also correct. A mixture of
    // contents is not.
    match outcome.status.code() {
        Some(0) => pair
            .server
            .check("target", &content(LEN), &outcome.document()),
        Some(24) => assert!(!pair.server.has("target"), "{outcome}"),
        _ => panic!("{outcome}"),
    }
}

const LEN: usize = 16 * MIB;

/// Starts the copy of a file, and returns it after a quarter.
fn begin(pair: &Pair) -> Process {
    pair.client.write("source", content(LEN));
    let options = ["--bwlimit", "16M", "--json-stream"];
    let cp = pair.start_cp(&[&options[..], &["source", "127.0.0.1:target"]].concat());
    cp.await_bytes(LEN as u64 / 4);
    cp
}
