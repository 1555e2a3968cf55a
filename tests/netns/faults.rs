//! Tests of faults other than cuts: lost and corrupted frames, flapping links, a reboot, a stopped
//! process.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Direction, Lab, LinkSpec, can_corrupt};
use nicstripe_testkit::{Daemon, Process, content, link, number, tests, text, trial::Test};
use rustix::process::Signal;

use crate::hosts::{Hosts, MIB, Way};

pub(crate) const TESTS: &[Test] = tests![
    a_cable_that_comes_and_goes_every_second_is_used_and_takes_no_other_along,
    a_cable_that_loses_frames_is_used_and_not_given_up,
    a_client_goes_on_when_the_daemons_machine_was_switched_off_and_on,
    a_daemon_that_stands_still_for_5_seconds_is_waited_for,
];

pub(crate) const LONG_TESTS: &[Test] = tests![
    a_copy_goes_on_when_the_clients_machine_was_switched_off_and_on,
    a_client_that_stands_still_for_5_seconds_goes_on,
];

/// Tests that load eBPF programs into the kernel to corrupt frames.
pub(crate) const CORRUPTING_TESTS: &[Test] =
    tests![what_one_cable_corrupts_is_noticed_and_sent_again,];

/// Returns the reason why [`CORRUPTING_TESTS`] cannot run; `None` if they can.
pub(crate) fn obstacle() -> Option<String> {
    can_corrupt().err().map(|error| nicstripe::chain(&error))
}

fn links() -> [LinkSpec; 2] {
    [LinkSpec::mbit(200); 2]
}

fn a_cable_that_comes_and_goes_every_second_is_used_and_takes_no_other_along() {
    let hosts = Hosts::joined_by(&links());
    let bytes = content(160 * MIB);
    let ends = Way::Put.prepare(&hosts, &bytes);
    let cp = hosts.start_cp(&[&["--json-stream"], &ends[..]].concat());
    cp.await_bytes(8 * MIB as u64);
    let done = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        scope.spawn(|| flap(&hosts.lab, &done));
        let outcome = cp.finish();
        done.store(true, Ordering::Relaxed);
        outcome.expect(0).document()
    });
    Way::Put.check(&hosts, &bytes, &report);
    assert!(number(&report, "failovers") >= 2, "{report:#}");
    assert_eq!(number(link(&report, "eth1"), "failures"), 0, "{report:#}");
    // `benches/faults` measures the cost, and nicstripe-proto measures it in virtual time.
    assert!(
        number(link(&report, "eth2"), "bytes") > 8 * MIB as u64,
        "{report:#}"
    );
}

/// Cuts and restores the second cable alternately, once a second, until `done` is set.
fn flap(lab: &Lab, done: &AtomicBool) {
    for round in 0.. {
        if round % 2 == 0 {
            lab.cut(1)
        } else {
            lab.heal(1)
        }
        .unwrap();
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            if done.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn a_cable_that_loses_frames_is_used_and_not_given_up() {
    for way in Way::BOTH {
        let hosts = Hosts::joined_by(&links());
        hosts.lab.lose(1, Direction::Both, 0.005).unwrap();
        let bytes = content(64 * MIB);
        let ends = way.prepare(&hosts, &bytes);
        let report = hosts
            .cp(&[&["--json"], &ends[..]].concat())
            .expect(0)
            .document();
        way.check(&hosts, &bytes, &report);
        assert_eq!(number(&report, "failovers"), 0, "{report:#}");
        let lossy = link(&report, "eth2");
        assert!(number(lossy, "bytes") >= 8 * MIB as u64, "{report:#}");
        // At least 100 of at least 20,000 frames were lost.
        assert!(
            number(lossy, "retransmitted_bytes") >= 50 * 1448,
            "{report:#}"
        );
    }
}

fn what_one_cable_corrupts_is_noticed_and_sent_again() {
    for way in Way::BOTH {
        let hosts = Hosts::joined_by(&links());
        let bytes = content(96 * MIB);
        let ends = way.prepare(&hosts, &bytes);
        let cp = hosts.start_cp(&[&["--json-stream"], &ends[..]].concat());
        cp.await_bytes(8 * MIB as u64);
        hosts.lab.corrupt(1, Direction::Both, 0.001).unwrap();
        let report = cp.finish().expect(0).document();
        way.check(&hosts, &bytes, &report);
        let corrupted = hosts.lab.corrupted(1).unwrap();
        assert!(
            corrupted >= 2,
            "{corrupted} frames were corrupted: {report:#}"
        );
        let [sound, corrupting] =
            ["eth1", "eth2"].map(|name| number(link(&report, name), "failures"));
        assert!(
            sound == 0 && corrupting >= 1,
            "{corrupted} frames were corrupted: {report:#}"
        );
        let [sound, damaged] = ["eth1", "eth2"].map(|name| number(link(&report, name), "damaged"));
        assert!(
            sound == 0 && damaged >= 1 && damaged <= corrupting,
            "{corrupted} frames were corrupted: {report:#}"
        );
        assert_eq!(text(&report, "limited_by"), "link_down", "{report:#}");
    }
}

/// Simulates a reboot: cuts all cables silently, runs `kill`, and restores the cables after
/// [`SWITCHED_OFF`].
fn reboot(lab: &Lab, kill: impl FnOnce()) {
    (0..2).for_each(|link| lab.drop_silently(link, Direction::Both).unwrap());
    kill();
    thread::sleep(SWITCHED_OFF);
    (0..2).for_each(|link| lab.pass(link).unwrap());
}

/// Duration of a simulated reboot. Longer than the period of silence after which a connection ends.
const SWITCHED_OFF: Duration = Duration::from_millis(1800);

fn a_client_goes_on_when_the_daemons_machine_was_switched_off_and_on() {
    for way in Way::BOTH {
        let mut hosts = Hosts::joined_by(&links());
        let bytes = content(64 * MIB);
        let ends = way.prepare(&hosts, &bytes);
        let cp = hosts.start_cp(&[&["--json-stream"], &ends[..]].concat());
        // Early, because a busy machine may run this test a second later.
        cp.await_bytes(bytes.len() as u64 / 8);
        reboot(&hosts.lab, || hosts.daemon.process.signal(Signal::KILL));
        assert!(!hosts.server.has("target") && !hosts.client.has("target"));
        hosts.daemon = Daemon::start_on(&hosts.server, hosts.daemon.port, &[]);
        let report = cp.finish().expect(0).document();
        way.check(&hosts, &bytes, &report);
    }
}

fn a_copy_goes_on_when_the_clients_machine_was_switched_off_and_on() {
    for way in Way::BOTH {
        let hosts = Hosts::joined_by(&links());
        let bytes = content(64 * MIB);
        let ends = way.prepare(&hosts, &bytes);
        let cp = hosts.start_cp(&[&["--json-stream"], &ends[..]].concat());
        cp.await_bytes(bytes.len() as u64 / 4);
        // Time for the journal to record received data.
        thread::sleep(Duration::from_millis(500));
        reboot(&hosts.lab, || drop(cp.kill()));
        assert!(!hosts.server.has("target") && !hosts.client.has("target"));
        let report = hosts
            .cp(&[&["--json"], &ends[..]].concat())
            .expect(0)
            .document();
        way.check(&hosts, &bytes, &report);
        assert!(
            number(&report, "resumed_bytes") >= bytes.len() as u64 / 8,
            "{report:#}"
        );
    }
}

fn a_daemon_that_stands_still_for_5_seconds_is_waited_for() {
    stand_still(Way::Put, |hosts, _| &hosts.daemon.process);
}

fn a_client_that_stands_still_for_5_seconds_goes_on() {
    stand_still(Way::Get, |_, cp| cp);
}

/// Stops a process with SIGSTOP for 5 s at half of a copy. Panics unless the copy is correct and
/// ends within 20 s after SIGCONT.
fn stand_still(way: Way, who: impl for<'a> FnOnce(&'a Hosts, &'a Process) -> &'a Process) {
    let hosts = Hosts::joined_by(&links());
    let bytes = content(96 * MIB);
    let ends = way.prepare(&hosts, &bytes);
    let cp = hosts.start_cp(&[&["--json-stream"], &ends[..]].concat());
    cp.await_bytes(bytes.len() as u64 / 2);
    let process = who(&hosts, &cp);
    process.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(5));
    process.signal(Signal::CONT);
    let continued = Instant::now();
    let report = cp.finish().expect(0).document();
    way.check(&hosts, &bytes, &report);
    // Far less than the minutes after which the kernel closes an unresponsive connection.
    assert!(
        continued.elapsed() <= Duration::from_secs(20),
        "{:?}: {report:#}",
        continued.elapsed()
    );
}
