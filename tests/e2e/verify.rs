//! Tests of comparisons of files and trees with their copies.

use std::fs;

use nicstripe_testkit::{
    Outcome,
    pair::Pair,
    tree::{Aspects, assert_same_tree, plant},
};

#[test]
fn what_is_missing_or_different_is_named_in_both_directions_and_nothing_is_moved() {
    let pair = Pair::new();
    let src = pair.client.path("src");
    for (name, text) in [("a", "text"), ("dir/b", "other"), ("dir/c", "third")] {
        plant(&src, name, text);
    }
    pair.cp(&["-r", "src", "127.0.0.1:"]).expect(0);
    let dst = pair.server.path("src");
    let verify = |words: &[&str]| {
        let mut words = pair.cp_arguments(words);
        "verify".clone_into(&mut words[0]);
        pair.client.run(words)
    };
    let said = |outcome: Outcome, text: &str| assert!(outcome.stderr.contains(text), "{outcome}");
    for words in [
        ["src", "127.0.0.1:"],
        ["127.0.0.1:src/", "src"],
        ["src/a", "127.0.0.1:src/"],
    ] {
        said(verify(&words).expect(0), "the same");
    }
    // Of the same size and time.
    let time = fs::metadata(dst.join("dir/b")).unwrap().modified().unwrap();
    fs::write(dst.join("dir/b"), "OTHER").unwrap();
    let changed = fs::File::options().write(true).open(dst.join("dir/b"));
    changed.unwrap().set_modified(time).unwrap();
    fs::remove_file(dst.join("dir/c")).unwrap();
    plant(&dst, "dir/extra", "");
    let found = verify(&["src", "127.0.0.1:"]).expect(40);
    let found = found.error(&["2 entries of DST differ from SRC"]);
    let mut lines: Vec<&str> = found.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["different: src/dir/b", "missing: src/dir/c"]);
    said(found, "2 missing or different");
    let extra = verify(&["--extra", "src", "127.0.0.1:"]).expect(40);
    said(extra, "1 extra");
    let back = verify(&["127.0.0.1:src/", "src"]).expect(40);
    said(back, "2 missing or different");
    verify(&["--exclude", "dir", "src", "127.0.0.1:"]).expect(0);
    assert!(!dst.join("dir/c").exists() && dst.join("dir/extra").exists());
    pair.cp(&["-rc", "src", "127.0.0.1:"]).expect(0);
    fs::remove_file(dst.join("dir/extra")).unwrap();
    assert_same_tree(&src.join("dir/b"), &dst.join("dir/b"), Aspects::NONE);
    verify(&["--extra", "src", "127.0.0.1:"]).expect(0);
    verify(&["missing", "127.0.0.1:"]).expect(11);
    verify(&["-", "127.0.0.1:"]).expect(2);
    let s3 = verify(&["s3://bucket/src", "127.0.0.1:"]).expect(2);
    s3.error(&["cannot compare s3://bucket/src: expected a path here"]);
    verify(&["src"]).expect(2);
}
