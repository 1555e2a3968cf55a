//! Tests of a trusted peer that cannot be reached: complete output and exit code of a copy.
//!
//! The daemon uses its default port, which some cases block by a firewall. Each case therefore
//! needs a separate lab, and the cases run in parallel.

use std::{sync::Arc, thread};

use nicstripe_lab::{Direction, Lab, LinkSpec, Transport};
use nicstripe_testkit::{Daemon, Outcome, Side, tests, trial::Test};

use crate::hosts::acquainted;

pub(crate) const TESTS: &[Test] = tests![
    a_peer_that_is_not_reached_is_told_with_what_was_tried_and_what_to_check,
    every_command_says_after_2_seconds_that_a_peer_does_not_answer,
];

/// Obstacle to a copy, with the expected output and exit code.
struct Case {
    against: &'static str,
    make: fn(&Scene) -> Option<Daemon>,
    /// True if the client has connected to the peer before the obstacle appears.
    is_met: bool,
    arguments: &'static [&'static str],
    code: i32,
    /// Expected output lines. `[..]` matches any text, and `[ADD]` matches the command that makes
    /// the peer trust the local key.
    printed: &'static [&'static str],
}

/// Two hosts that are joined by two cables and trust each other.
struct Scene {
    lab: Arc<Lab>,
    client: Side,
    server: Side,
}

const TO_NAME: &[&str] = &["source", "b:target"];
const TO_ADDRESS: &[&str] = &["source", "10.77.1.2:target"];
const WAITING: &str = "warning: b does not answer on eth1, eth2; still trying, ^C ends";
const SILENT: &str = "error: b is in the list of peers, but nothing answered on eth1, eth2 (port 7747); resolver: [..]";
const CHECKS: &str = "hint: on b, start the daemon: nicstripe serve; trust this key: [ADD]; open port 7747 for TCP and UDP in the \
                      firewall; if it listens on another port: --port PORT";
const REFUSED: &str = "error: b is in the list of peers, but nothing answered on eth1, eth2 (port 7747); fe80::[..] over eth1: \
                       Connection refused (os error 111); resolver: [..]";
const START: &str = "hint: nothing listens on port 7747 there; on b: nicstripe serve; if it listens on another port: --port PORT";

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { against: "a firewall", make: firewall, is_met: false, arguments: TO_NAME, code: 10, printed: &[WAITING, SILENT, CHECKS] },
    Case { against: "a firewall", make: firewall, is_met: true, arguments: TO_NAME, code: 10, printed: &[
        WAITING,
        "error: b is in the list of peers, but nothing answered on eth1, eth2 (port 7747); fe80::[..] over eth1: timed out; resolver: [..]",
        CHECKS,
    ] },
    Case { against: "a firewall", make: firewall, is_met: false, arguments: TO_ADDRESS, code: 10, printed: &[
        "warning: 10.77.1.2 does not answer on eth1; still trying, ^C ends",
        "error: cannot connect to 10.77.1.2:7747: timed out",
        "hint: check that the machine is on, the cable plugged in, and TCP port 7747 open in its firewall",
    ] },
    Case { against: "a firewall for TCP", make: tcp_firewall, is_met: false, arguments: TO_NAME, code: 10, printed: &[
        WAITING,
        "error: b answers on eth1, eth2, but does not accept connections (TCP port 7747); fe80::[..] over eth1: timed out; fe80::[..] over eth2: timed out",
        "hint: check that TCP port 7747 is open in the firewall of b",
    ] },
    Case { against: "a firewall for UDP", make: udp_firewall, is_met: false, arguments: TO_NAME, code: 10, printed: &[WAITING, SILENT, CHECKS] },
    Case { against: "a firewall for UDP", make: udp_firewall, is_met: true, arguments: TO_NAME, code: 0, printed: &["source → b:target[..]"] },
    Case { against: "no daemon", make: |_| None, is_met: false, arguments: TO_NAME, code: 10, printed: &[WAITING, SILENT, CHECKS] },
    Case { against: "no daemon", make: |_| None, is_met: true, arguments: TO_NAME, code: 10, printed: &[WAITING, REFUSED, START] },
    Case { against: "no daemon", make: |_| None, is_met: false, arguments: TO_ADDRESS, code: 10, printed: &[
        "error: cannot connect to 10.77.1.2:7747: Connection refused (os error 111)",
        "hint: nothing listens there; start the daemon on that machine: nicstripe serve; if it listens on another port: --port PORT",
    ] },
    Case { against: "distrust", make: distrust, is_met: false, arguments: TO_NAME, code: 10, printed: &[WAITING, SILENT, CHECKS] },
    Case { against: "distrust", make: distrust, is_met: true, arguments: TO_NAME, code: 5, printed: &[
        "error: b does not trust our key nicstripe-ed25519 [..]", "hint: on b: [ADD]",
    ] },
    Case { against: "another port", make: another_port, is_met: false, arguments: TO_NAME, code: 10, printed: &[WAITING, SILENT, CHECKS] },
    Case { against: "another port", make: another_port, is_met: true, arguments: TO_NAME, code: 10, printed: &[WAITING, REFUSED, START] },
    Case { against: "another port", make: another_port, is_met: false, arguments: &["--port", "7748", "source", "b:target"], code: 0, printed: &[
        "source → b:target[..]",
    ] },
    Case { against: "IPv4 alone", make: served, is_met: false, arguments: &["-4", "source", "b:target"], code: 10, printed: &[
        "error: b is in the list of peers, but cannot be reached by IPv4 (port 7747); resolver: [..]",
        "hint: without -4, the cables are searched as well; on b, start the daemon: nicstripe serve; trust this key: [ADD]; \
         open port 7747 for TCP and UDP in the firewall; if it listens on another port: --port PORT",
    ] },
    Case { against: "pulled cables", make: pulled, is_met: false, arguments: TO_NAME, code: 10, printed: &[
        "warning: b does not answer; still trying, ^C ends",
        "error: b is in the list of peers, but cannot be reached (port 7747): no interface to search on: none is up with a carrier and an IPv6 link-local address; resolver: [..]",
        "hint: plug in a cable, or exclude fewer interfaces; list them with the reasons: nicstripe links",
    ] },
];

fn a_peer_that_is_not_reached_is_told_with_what_was_tried_and_what_to_check() {
    let wrong: Vec<String> = thread::scope(|scope| {
        let cases: Vec<_> = CASES
            .iter()
            .map(|case| scope.spawn(|| case.difference()))
            .collect();
        cases
            .into_iter()
            .filter_map(|case| case.join().unwrap())
            .collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn every_command_says_after_2_seconds_that_a_peer_does_not_answer() {
    let scene = Scene::new();
    let _daemon = firewall(&scene);
    let commands: [&[&str]; 6] = [
        &["cp", "source", "b:"],
        &["links", "b"],
        &["bench", "b"],
        &["dial", "b", "localhost:22"],
        &["forward", "-L", "0:localhost:22", "b"],
        &["serve", "restic", "--addr", "127.0.0.1:0", "b:repo"],
    ];
    let started = commands.map(|words| scene.client.start(words));
    for process in started {
        process.await_stderr("b does not answer on eth1, eth2; still trying, ^C ends");
        process.finish().expect(10);
    }
}

impl Case {
    /// Runs the case in a new lab. Returns the deviations from the expected output; `None` if there
    /// are no deviations.
    fn difference(&self) -> Option<String> {
        let scene = Scene::new();
        if self.is_met {
            let _daemon = served(&scene);
            scene.client.run(["cp", "source", "b:"]).expect(0);
        }
        let _daemon = (self.make)(&scene);
        let Outcome { status, stderr, .. } = scene.client.run([&["cp"], self.arguments].concat());
        let key = scene.client.key();
        let line: Vec<&str> = key.split(' ').take(2).collect();
        let add = format!(
            "nicstripe trust add '{}' --name {}",
            line.join(" "),
            rustix::system::uname().nodename().to_str().unwrap()
        );
        let expected: Vec<String> = self
            .printed
            .iter()
            .map(|line| line.replace("[ADD]", &add))
            .collect();
        let lines: Vec<&str> = stderr.lines().collect();
        let is_right = lines.len() == expected.len()
            && expected
                .iter()
                .zip(&lines)
                .all(|(expected, line)| is_like(expected, line));
        (!is_right || status.code() != Some(self.code)).then(|| {
            let (against, is_met) = (self.against, self.is_met);
            format!(
                "{against}, met before: {is_met}: {status}, expected {}\n{stderr}expected:\n{}\n",
                self.code,
                expected.join("\n")
            )
        })
    }
}

impl Scene {
    fn new() -> Self {
        let lab = Arc::new(
            Lab::builder()
                .links([LinkSpec::mbit(200); 2])
                .build()
                .unwrap(),
        );
        let (client, server) = acquainted(&lab);
        client.write("source", b"bytes");
        Self {
            lab,
            client,
            server,
        }
    }

    fn block(&self, transport: Transport) {
        (0..2).for_each(|link| {
            self.lab
                .block(link, Direction::AToB, transport, 7747)
                .unwrap();
        });
    }
}

fn served(scene: &Scene) -> Option<Daemon> {
    Some(Daemon::start_on(&scene.server, 7747, &[]))
}

fn firewall(scene: &Scene) -> Option<Daemon> {
    [Transport::Tcp, Transport::Udp]
        .into_iter()
        .for_each(|transport| scene.block(transport));
    served(scene)
}

fn tcp_firewall(scene: &Scene) -> Option<Daemon> {
    scene.block(Transport::Tcp);
    served(scene)
}

fn udp_firewall(scene: &Scene) -> Option<Daemon> {
    scene.block(Transport::Udp);
    served(scene)
}

fn distrust(scene: &Scene) -> Option<Daemon> {
    scene.server.run(["trust", "remove", "a"]).expect(0);
    served(scene)
}

fn another_port(scene: &Scene) -> Option<Daemon> {
    Some(Daemon::start_on(&scene.server, 7748, &[]))
}

fn pulled(scene: &Scene) -> Option<Daemon> {
    (0..2).for_each(|link| scene.lab.cut(link).unwrap());
    served(scene)
}

/// Returns true if a line matches the expected line, in which `[..]` is a wildcard.
fn is_like(expected: &str, line: &str) -> bool {
    let Some((head, rest)) = expected.split_once("[..]") else {
        return line == expected;
    };
    let Some(line) = line.strip_prefix(head) else {
        return false;
    };
    line.char_indices()
        .map(|(at, _)| &line[at..])
        .chain([""])
        .any(|line| is_like(rest, line))
}
