//! Tests of copies interrupted by signals and kills: no target has its final name too early, and a
//! rerun resumes.

use std::{
    thread,
    time::{Duration, Instant},
};

use nicstripe_testkit::{
    Daemon, Process, Side, content, number,
    pair::{LOOPBACK, MIB, Pair},
    text,
};
use rustix::process::Signal;

/// Size in bytes of a file whose copy takes 2 s at [`PACE`].
const LEN: usize = 32 * MIB;
const HALF: u64 = LEN as u64 / 2;
/// Progress in bytes after 1.5 s of a copy. The receiver syncs every second and has therefore
/// synced once.
const PAST_A_SYNC: u64 = LEN as u64 * 3 / 4;
const PACE: [&str; 3] = ["--bwlimit", "16M", "--json-stream"];

#[derive(Clone, Copy)]
enum Way {
    Put,
    Get,
}

impl Way {
    const BOTH: [Self; 2] = [Self::Put, Self::Get];

    /// Creates the source file. Returns the `cp` arguments for source and target.
    fn prepare(self, pair: &Pair, bytes: &[u8]) -> [&'static str; 2] {
        match self {
            Self::Put => pair.client.write("source", bytes),
            Self::Get => pair.server.write("source", bytes),
        }
        match self {
            Self::Put => ["source", "127.0.0.1:target"],
            Self::Get => ["127.0.0.1:source", "target"],
        }
    }

    /// Returns the side that receives the file.
    fn side(self, pair: &Pair) -> &Side {
        match self {
            Self::Put => &pair.server,
            Self::Get => &pair.client,
        }
    }

    fn has_target(self, pair: &Pair) -> bool {
        self.side(pair).has("target")
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
        let side = self.side(pair);
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
    for way in Way::BOTH {
        let pair = Pair::new();
        let bytes = content(LEN);
        let arguments = way.prepare(&pair, &bytes);
        let cp = pair.start_cp(&paced(&arguments));
        cp.await_bytes(HALF);
        cp.signal(Signal::INT);
        let outcome = cp.finish().expect(130);
        assert_eq!(outcome.document()["resumable"], true, "{outcome}");
        outcome
            .error(&["interrupted"])
            .hint(&["same command again", &arguments.join(" ")]);
        assert!(!way.has_target(&pair));
        way.rerun(&pair, arguments, &bytes);
    }
}

#[test]
fn a_terminated_copy_ends_with_143_and_a_rerun_goes_on() {
    let pair = Pair::new();
    let bytes = content(LEN);
    let arguments = Way::Put.prepare(&pair, &bytes);
    let cp = pair.start_cp(&paced(&arguments));
    cp.await_bytes(HALF);
    cp.signal(Signal::TERM);
    cp.finish().expect(143).hint(&["same command again"]);
    assert!(!Way::Put.has_target(&pair));
    Way::Put.rerun(&pair, arguments, &bytes);
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
fn a_status_signal_prints_how_far_it_is_and_ends_nothing() {
    let pair = Pair::new();
    let bytes = content(LEN / 2);
    let arguments = Way::Put.prepare(&pair, &bytes);
    let cp = pair.start_cp(&paced(&arguments));
    cp.await_bytes(1);
    cp.signal(Signal::USR1);
    cp.await_stderr(" of 16.0 MiB (");
    let report = cp.finish().expect(0).document();
    pair.server.check("target", &bytes, &report);
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
fn a_waiting_client_goes_on_by_itself_when_a_killed_daemon_is_back() {
    for way in Way::BOTH {
        goes_on_by_itself(way, Signal::KILL);
    }
}

#[test]
fn a_waiting_client_goes_on_by_itself_when_a_daemon_that_ended_is_back() {
    for way in Way::BOTH {
        goes_on_by_itself(way, Signal::TERM);
    }
}

/// Ends the daemon with a signal during a copy, then restarts the daemon. Panics unless the running
/// client completes the copy.
#[track_caller]
fn goes_on_by_itself(way: Way, signal: Signal) {
    let pair = Pair::new();
    let bytes = content(LEN);
    let arguments = way.prepare(&pair, &bytes);
    let cp = pair.start_cp(&paced(&arguments));
    cp.await_bytes(PAST_A_SYNC);
    let Pair {
        client,
        server,
        daemon: Daemon { process, port },
    } = pair;
    process.signal(signal);
    process.finish();
    cp.await_event("waiting", |_| true);
    // Longer than the client's pause between two attempts, so that at least one attempt fails.
    thread::sleep(Duration::from_secs(1));
    let daemon = Daemon::start_on(&server, port, &LOOPBACK);
    let report = cp.finish().expect(0).document();
    let pair = Pair {
        client,
        server,
        daemon,
    };
    way.side(&pair).check("target", &bytes, &report);
}

#[test]
fn a_daemon_that_is_told_to_end_keeps_what_arrived() {
    ends_in_order(|pair, words| pair.start_cp(words));
}

#[test]
fn a_daemon_reached_without_named_links_keeps_what_arrived_too() {
    ends_in_order(|pair, words| {
        let port = pair.daemon.port.to_string();
        pair.client.start([&["cp", "-P", &port], words].concat())
    });
}

/// Shuts the daemon down during a copy. Panics unless the client reports a resumable failure and a
/// rerun resumes.
#[track_caller]
fn ends_in_order(start: impl FnOnce(&Pair, &[&str]) -> Process) {
    let pair = Pair::new();
    let bytes = content(LEN);
    let arguments = Way::Put.prepare(&pair, &bytes);
    let cp = start(
        &pair,
        &[&["--timeout", "500ms"], &paced(&arguments)[..]].concat(),
    );
    cp.await_bytes(HALF / 2);
    let Pair {
        client,
        server,
        daemon: Daemon { process, port },
    } = pair;
    process.signal(Signal::TERM);
    process.finish().expect(143);
    let outcome = cp.finish();
    assert_eq!(outcome.document()["resumable"], true, "{outcome}");
    let daemon = Daemon::start_on(&server, port, &LOOPBACK);
    let pair = Pair {
        client,
        server,
        daemon,
    };
    // After half a second of data, no periodic sync has run. The orderly shutdown made the data
    // durable.
    Way::Put.rerun(&pair, arguments, &bytes);
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

#[test]
fn a_daemon_that_stalls_for_a_while_costs_only_that_while() {
    let pair = Pair::new();
    let bytes = content(LEN / 2);
    let arguments = Way::Put.prepare(&pair, &bytes);
    let cp = pair.start_cp(&paced(&arguments));
    cp.await_bytes(LEN as u64 / 8);
    pair.daemon.process.signal(Signal::STOP);
    // Longer than the period of silence after which a path counts as lost.
    thread::sleep(Duration::from_millis(2500));
    pair.daemon.process.signal(Signal::CONT);
    let report = cp.finish().expect(0).document();
    pair.server.check("target", &bytes, &report);
    assert_eq!(text(&report, "peer_name"), "nas");
}
