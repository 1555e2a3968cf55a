//! Tests of the output of `cp`: its streams and its JSON form.

use nicstripe_testkit::{
    Side, content, digest, number,
    pair::{MIB, Pair},
    text,
};

#[test]
fn the_document_has_every_field_of_the_contract() {
    let pair = Pair::new();
    pair.client.write("source", content(4 * MIB));
    let outcome = pair.cp(&["--json", "source", "127.0.0.1:"]).expect(0);
    let document = outcome.document();
    for field in OF_A_REPORT.split(' ') {
        assert!(
            document.get(field).is_some(),
            "{field} is missing: {document:#}"
        );
    }
    for field in OF_A_LINK.split(' ') {
        assert!(
            document["links"][0].get(field).is_some(),
            "{field} is missing: {document:#}"
        );
    }
    // The rate of a loopback interface is unknown. Reports omit unknown values.
    for field in ["theory_bps", "efficiency", "error"] {
        assert!(document.get(field).is_none(), "{field}: {document:#}");
    }
    assert_eq!(outcome.stdout.lines().count(), 1, "{outcome}");
}

#[test]
fn the_document_is_printed_after_every_failure() {
    let pair = Pair::new();
    pair.client.write("source", content(MIB));
    let (usage, missing) = (
        ["--json", "source", "copy"],
        ["--json", "127.0.0.1:missing", "."],
    );
    for (arguments, code) in [(usage, 2), (missing, 11)] {
        let outcome = pair.cp(&arguments).expect(code);
        let document = outcome.document();
        assert_eq!(document["resumable"], false, "{document:#}");
        assert_eq!(text(&document, "error"), outcome.labelled("error: ", &[]));
    }
}

#[test]
fn a_stream_is_events_a_line_each_and_the_document_last() {
    let pair = Pair::new();
    pair.client.write("source", content(8 * MIB));
    let outcome = pair
        .cp(&["--bwlimit", "16M", "--json-stream", "source", "127.0.0.1:"])
        .expect(0);
    let names: Vec<String> = outcome
        .events()
        .iter()
        .map(|event| text(event, "event").to_owned())
        .collect();
    assert_eq!(names[0], "start");
    for name in ["connected", "started", "progress"] {
        assert!(
            names.iter().any(|other| other == name),
            "{name} is not in {names:?}"
        );
    }
    let events = outcome.events();
    let times: Vec<f64> = events
        .iter()
        .map(|event| event["time_s"].as_f64().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let moved: Vec<u64> = events
        .iter()
        .filter(|event| event["event"] == "progress")
        .map(|event| number(event, "bytes"))
        .collect();
    assert!(moved.is_sorted(), "{moved:?}");
    let document = outcome.document();
    assert_eq!(text(&document, "blake3"), digest(&content(8 * MIB)));
}

#[test]
fn a_reader_that_goes_away_does_not_end_the_copy() {
    let pair = Pair::new();
    let bytes = content(8 * MIB);
    pair.client.write("source", &bytes);
    let mut command = pair.client.command("/bin/sh");
    let script = "{ \"$0\" \"$@\"; echo \"exit $?\" >&2; } | head -c 1 >/dev/null";
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_nicstripe")])
        .env("PATH", std::env::var_os("PATH").unwrap());
    command.args(pair.cp_arguments(&[
        "--bwlimit",
        "16M",
        "--json-stream",
        "source",
        "127.0.0.1:target",
    ]));
    let outcome = nicstripe_testkit::Process::spawn(command).finish();
    assert!(outcome.stderr.contains("exit 0"), "{outcome}");
    assert!(nicstripe_testkit::is_same(
        &pair.server.read("target"),
        &bytes
    ));
}

#[test]
fn the_digest_and_each_link_are_printed_when_asked_for() {
    let pair = Pair::new();
    let bytes = content(4 * MIB);
    pair.client.write("source", &bytes);
    let outcome = pair
        .cp(&["-v", "--stats", "source", "127.0.0.1:"])
        .expect(0);
    assert!(outcome.stderr.contains(&digest(&bytes)), "{outcome}");
    let links = outcome
        .stderr
        .lines()
        .filter(|line| line.trim_start().starts_with("lo ") && line.trim_end().ends_with(" up"));
    assert_eq!(links.count(), 2, "{outcome}");
    assert!(
        outcome.stderr.contains("Total file size: 4,194,304 bytes"),
        "{outcome}"
    );
}

#[test]
fn quiet_is_silent_unless_something_is_wrong() {
    let pair = Pair::new();
    pair.client.write("source", content(MIB));
    let outcome = pair.cp(&["-q", "source", "127.0.0.1:"]).expect(0);
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
    let again = pair.cp(&["-q", "source", "127.0.0.1:"]).expect(0);
    assert_eq!((again.stdout.as_str(), again.stderr.as_str()), ("", ""));
    pair.client.write("source", content(5));
    pair.cp(&["-q", "--no-replace", "source", "127.0.0.1:"])
        .expect(11)
        .error(&["source"]);
}

#[test]
fn a_wrong_log_filter_is_a_usage_error() {
    let side = Side::here();
    let mut command = side.command(env!("CARGO_BIN_EXE_nicstripe"));
    command
        .args(["cp", "source", "127.0.0.1:"])
        .env("NICSTRIPE_LOG", "nicstripe=loudly");
    nicstripe_testkit::Process::spawn(command)
        .finish()
        .expect(2)
        .error(&["NICSTRIPE_LOG", "loudly"]);
}

/// Fields that every JSON report of `cp` has (`docs/DESIGN.md`, section 7), beside those that its
/// schema requires.
const OF_A_REPORT: &str = "bytes goodput_bps blake3 resumed_bytes resent_bytes wire_bytes \
                           failovers routes_installed limited_by";

const OF_A_LINK: &str = "peer_interface local goodput_bps retransmitted_bytes rtt_us verified \
                         interface_bytes busy_us rwnd_limited_us sndbuf_limited_us";
