//! Tests of copies interrupted by signals and kills: no target has its final name too early, and a
//! rerun resumes.

use std::{
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{
    content, number,
    pair::{MIB, Pair},
};
use rustix::process::Signal;

use crate::way::Way;

/// Size in bytes of a file whose copy takes 2 s at [`PACE`].
const LEN: usize = 32 * MIB;
const HALF: u64 = LEN as u64 / 2;
/// Progress in bytes after 1.5 s of a copy. The receiver syncs every second and has therefore
/// synced once.
const PAST_A_SYNC: u64 = LEN as u64 * 3 / 4;
const PACE: [&str; 3] = ["--bwlimit", "16M", "--json-stream"];

impl Way {
    /// Creates the source file. Returns the `cp` arguments for source and target.
    fn prepare(self, pair: &Pair, bytes: &[u8]) -> [&'static str; 2] {
        self.from(pair).write("source", bytes);
        match self {
            Self::Put => ["source", "127.0.0.1:target"],
            Self::Get => ["127.0.0.1:source", "target"],
        }
    }

    fn has_target(self, pair: &Pair) -> bool {
        self.to(pair).has("target")
    }

    /// Repeats the copy without a rate limit. Panics unless the repetition resumes and the target
    /// is correct.
    #[track_caller]
    fn rerun(self, pair: &Pair, arguments: [&str; 2], bytes: &[u8]) {
        let report = pair
            .cp(&[&["--json"], &arguments[..]].concat())
            .expect(0)
            .document();
        assert!(number(&report, "resumed_bytes") > 0, "{report:#}");
        let side = self.to(pair);
        side.check("target", bytes, &report);
        assert!(
            side.names().iter().all(|name| !name.contains("nicstripe")),
            "{:?}",
            side.names()
        );
    }
}

fn paced<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    PACE.iter().chain(arguments).copied().collect()
}

#[test]
fn an_interrupted_copy_says_how_to_go_on_and_a_rerun_does() {
    for (way, signal, code) in [
        (Way::Put, Signal::INT, 130),
        (Way::Get, Signal::INT, 130),
        (Way::Put, Signal::TERM, 143),
    ] {
        let pair = Pair::new();
        let bytes = content(LEN);
        let arguments = way.prepare(&pair, &bytes);
        let cp = pair.start_cp(&paced(&arguments));
        cp.await_bytes(HALF);
        cp.signal(signal);
        let outcome = cp.finish().expect(code);
        assert_eq!(outcome.document()["resumable"], true, "{outcome}");
        let outcome = match signal {
            Signal::INT => outcome.error(&["interrupted"]),
            _ => outcome,
        };
        outcome.hint(&["same command again", &arguments.join(" ")]);
        assert!(!way.has_target(&pair));
        way.rerun(&pair, arguments, &bytes);
    }
}

#[test]
fn the_second_interrupt_ends_the_copy_at_once() {
    let pair = Pair::new();
    let arguments = Way::Get.prepare(&pair, &content(LEN));
    let cp = pair.start_cp(&paced(&arguments));
    cp.await_bytes(HALF / 2);
    // Simulates a user who presses Ctrl-C twice because the daemon does not answer.
    pair.daemon.process.signal(Signal::STOP);
    let begun = Instant::now();
    cp.signal(Signal::INT);
    cp.signal(Signal::INT);
    cp.finish().expect(130);
    let took = begun.elapsed();
    pair.daemon.process.signal(Signal::CONT);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_killed_daemon_leaves_nothing_under_the_final_name_and_a_rerun_goes_on() {
    for way in Way::BOTH {
        let pair = Pair::new();
        let bytes = content(LEN);
        let arguments = way.prepare(&pair, &bytes);
        let cp = pair.start_cp(&[&["--timeout", "500ms"], &paced(&arguments)[..]].concat());
        cp.await_bytes(PAST_A_SYNC);
        pair.daemon.process.signal(Signal::KILL);
        let outcome = cp.finish();
        let document = outcome.document();
        // The daemon does not return while the client waits.
        assert!(matches!(outcome.status.code(), Some(10 | 30)), "{outcome}");
        assert_eq!(document["resumable"], true, "{outcome}");
        assert!(!way.has_target(&pair));
        let pair = pair.restart_daemon();
        way.rerun(&pair, arguments, &bytes);
    }
}

#[test]
fn a_killed_client_leaves_nothing_under_the_final_name_and_a_rerun_goes_on() {
    for way in Way::BOTH {
        let pair = Pair::new();
        let bytes = content(LEN);
        let arguments = way.prepare(&pair, &bytes);
        let cp = pair.start_cp(&paced(&arguments));
        cp.await_bytes(PAST_A_SYNC);
        cp.kill();
        assert!(!way.has_target(&pair));
        way.rerun(&pair, arguments, &bytes);
    }
}

#[test]
fn a_waiting_client_goes_on_by_itself_when_its_daemon_is_back() {
    for (way, signal) in [(Way::Put, Signal::KILL), (Way::Get, Signal::TERM)] {
        let pair = Pair::new();
        let bytes = content(LEN);
        let arguments = way.prepare(&pair, &bytes);
        let cp = pair.start_cp(&paced(&arguments));
        cp.await_bytes(PAST_A_SYNC);
        let pair = pair.restart_daemon_after(signal, || {
            cp.await_event("waiting", |_| true);
            // Longer than the client's pause between two attempts, so that at least one attempt fails.
            thread::sleep(Duration::from_secs(1));
        });
        let report = cp.finish().expect(0).document();
        way.to(&pair).check("target", &bytes, &report);
    }
}

#[test]
fn a_daemon_that_is_told_to_end_keeps_what_arrived_however_it_was_reached() {
    for has_links in [true, false] {
        let pair = Pair::new();
        let bytes = content(LEN);
        let arguments = Way::Put.prepare(&pair, &bytes);
        let words = [&["--timeout", "500ms"], &paced(&arguments)[..]].concat();
        let port = pair.daemon.port.to_string();
        let cp = match has_links {
            true => pair.start_cp(&words),
            false => pair
                .client
                .start([&["cp", "-P", &port], &words[..]].concat()),
        };
        cp.await_bytes(HALF / 2);
        let pair = pair.restart_daemon_after(Signal::TERM, || {
            let outcome = cp.finish();
            assert_eq!(outcome.document()["resumable"], true, "{outcome}");
        });
        // After half a second of data, no periodic sync has run. The orderly shutdown made the data
        // durable.
        Way::Put.rerun(&pair, arguments, &bytes);
    }
}

#[test]
fn no_resume_starts_from_nothing() {
    let pair = Pair::new();
    let bytes = content(LEN);
    let arguments = Way::Put.prepare(&pair, &bytes);
    let cp = pair.start_cp(&paced(&arguments));
    cp.await_bytes(HALF);
    cp.signal(Signal::INT);
    cp.finish().expect(130);
    let report = pair
        .cp(&[&["--no-resume", "--json"], &arguments[..]].concat())
        .expect(0)
        .document();
    assert_eq!(number(&report, "resumed_bytes"), 0);
    pair.server.check("target", &bytes, &report);
    assert_eq!(pair.server.names(), ["target"]);
}
