//! `nicstripe bench`: what is kept, what fails, how programs hear of it, and what sweeps over loopback come to.

use crate::harness::{Daemon, Side};

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

/// Sweeps over loopback, as short as it may be. What it measures is not looked at, but the shape of the document.
#[track_caller]
fn sweep(kind: &str) {
    let (client, server) = (Side::here(), Side::here());
    client.trust(&server, "b", "");
    server.trust(&client, "a", "");
    let daemon = Daemon::start(&server, &[]);
    let port = daemon.port.to_string();
    let load = ["-R", "-t", "1", "-O", "0", "-i", "0.1", "--repeat", "1", "--budget", "12s", "--routes", "never"];
    let bench = ["bench", "127.0.0.1", "-p", &port, "--link", "127.0.0.1=127.0.1.1", "--json", "--sweep", kind];
    let outcome = client.run([&bench[..], &load].concat()).expect(0);
    let report = outcome.document_of("nicstripe-bench-report-1");
    let [sweep] = &report["sweeps"].as_array().unwrap()[..] else { panic!("{report:#}") };
    assert_eq!(sweep["kind"], kind, "{sweep:#}");
    assert!(!sweep["points"].as_array().unwrap().is_empty(), "{sweep:#}");
    assert_eq!(report["complete"], sweep["stopped"] != "the time was up", "{sweep:#}");
}

#[test]
fn a_sweep_of_messages_is_as_the_schema_says() {
    sweep("message");
}

#[test]
fn a_sweep_of_buffers_is_as_the_schema_says() {
    sweep("buffer");
}

#[test]
fn a_sweep_of_connections_is_as_the_schema_says() {
    sweep("streams");
}

#[test]
fn a_sweep_of_buffers_and_connections_is_as_the_schema_says() {
    sweep("grid");
}

#[test]
fn a_sweep_of_packets_is_as_the_schema_says() {
    sweep("mtu");
}
