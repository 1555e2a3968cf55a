//! `nicstripe bench` without anybody to measure: what is kept, what fails, and how programs hear of it.

use crate::harness::Side;

#[test]
fn a_bench_that_reaches_nobody_says_so_in_one_document() {
    let side = Side::here();
    // Nothing listens on the port of `discard`.
    let bench = ["bench", "127.0.0.1", "-p", "9", "--routes", "never"];
    let outcome = side.run([&bench[..], &["--json"]].concat());
    let document = outcome.document_of("nicstripe-bench-event-1");
    assert_eq!((&document["event"], &document["exit_code"]), (&"failed".into(), &10.into()), "{outcome}");
    outcome.expect(10).error(&["127.0.0.1:9"]);
    let outcome = side.run([&bench[..], &["--json-stream"]].concat());
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains(r#""event":"start""#) && lines[1].contains(r#""event":"failed""#), "{outcome}");
}

#[test]
fn a_place_that_cannot_be_written_to_ends_a_bench_before_it_connects() {
    let side = Side::here();
    side.run(["bench", "127.0.0.1", "-p", "9", "--html", "none/r.html"]).expect(11).error(&["none/r.html"]);
    side.run(["bench", "127.0.0.1", "-p", "9", "--baseline", "none.json"]).expect(11).error(&["none.json"]);
}

#[test]
fn nothing_is_listed_before_anything_was_measured() {
    let side = Side::here();
    let outcome = side.run(["bench", "list"]);
    assert_eq!(outcome.stdout, "", "{outcome}");
    outcome.expect(0);
    side.run(["bench", "compare", "0badcafe", "feedface"]).expect(11).error(&["0badcafe", "bench list"]);
}
