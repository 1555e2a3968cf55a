//! Tests of cables that are cut, or that silently drop all packets, during a copy.

use std::{io::Write, net::TcpStream, thread::sleep, time::Duration};

use nicstripe_lab::{Direction, Host, Lab, LinkSpec};
use nicstripe_testkit::{Process, content, link, number, tests, text, trial::Test};
use serde_json::Value;

use crate::hosts::{Hosts, MIB, Way};

pub(crate) const TESTS: &[Test] = tests![
    a_cable_that_is_cut_costs_its_share_and_half_a_second,
    a_cable_that_drops_everything_silently_costs_little_more,
    a_cable_that_is_cut_and_healed_is_told_down_and_up_once,
    a_bench_with_all_cables_cut_says_so,
    an_upload_of_restic_with_all_cables_cut_says_so,
];

/// Returns two cables of 50 Mbit/s. Even a busy machine sustains this rate, so these tests can
/// measure times.
fn links() -> [LinkSpec; 2] {
    [LinkSpec::mbit(50); 2]
}

/// Returns the transmission time of one payload byte on one of the two cables, in seconds.
fn seconds_a_byte() -> f64 {
    8.0 / links()[0].goodput().unwrap().bits_per_second() as f64
}

fn a_cable_that_is_cut_costs_its_share_and_half_a_second() {
    // The first cable has the connection of the first contact.
    for (way, link, name) in [(Way::Put, 1, "eth2"), (Way::Get, 0, "eth1")] {
        loses(way, |lab| lab.cut(link).unwrap(), name, 0.5);
    }
}

fn a_cable_that_drops_everything_silently_costs_little_more() {
    // One direction alone loses data or acknowledgements.
    for (way, direction) in [
        (Way::Get, Direction::Both),
        (Way::Put, Direction::AToB),
        (Way::Put, Direction::BToA),
    ] {
        let lose = |lab: &Lab| lab.drop_silently(1, direction).unwrap();
        loses(way, lose, "eth2", 1.5);
    }
}

/// Copies over two cables, and lets `lose` disable one of them after a quarter. Panics unless the
/// rest arrives over the other cable, at most twice `allowed` seconds later than ideal.
///
/// The rest takes over 3 s, twice the period of silence after which a path counts as lost.
#[track_caller]
fn loses(way: Way, lose: impl FnOnce(&Lab), interface: &str, allowed: f64) {
    let hosts = Hosts::joined_by(&links());
    let bytes = content(24 * MIB);
    let ends = way.prepare(&hosts, &bytes);
    let cp = hosts.start_cp(&[&["--json-stream"], &ends[..]].concat());
    let quarter = bytes.len() / 4;
    cp.await_bytes(quarter as u64);
    lose(&hosts.lab);
    let report = cp.finish().expect(0).document();
    way.check(&hosts, &bytes, &report);
    assert!(number(&report, "failovers") >= 1, "{report:#}");
    let lost = link(&report, interface);
    assert!(
        number(lost, "failures") >= 1 && text(lost, "state") != "up",
        "{report:#}"
    );
    assert_eq!(text(&report, "limited_by"), "link_down", "{report:#}");
    // The maximum time that the design guarantees, doubled for a busy machine.
    within(&report, quarter, 2.0 * allowed);
}

/// Panics if the copy took longer than 1.1 times the ideal time plus `allowed` seconds. The ideal
/// time assumes that two cables carry `over_both` bytes and one cable carries the rest.
#[track_caller]
fn within(report: &Value, over_both: usize, allowed: f64) {
    let over_one = number(report, "bytes") as f64 - over_both as f64;
    let ideal = (over_both as f64 / 2.0 + over_one) * seconds_a_byte();
    let took = report["elapsed_s"].as_f64().unwrap();
    assert!(
        took <= 1.1 * ideal + allowed,
        "{took} s where {ideal} s are ideal: {report:#}"
    );
}

fn a_cable_that_is_cut_and_healed_is_told_down_and_up_once() {
    for (link, name) in [(0, "eth1"), (1, "eth2")] {
        let hosts = Hosts::joined_by(&links());
        let bytes = content(32 * MIB);
        let ends = Way::Put.prepare(&hosts, &bytes);
        let cp = hosts.start_cp(&[&["--progress=always", "-v"], &ends[..]].concat());
        sleep(Duration::from_secs(1));
        hosts.lab.cut(link).unwrap();
        cp.await_stderr(&format!("{name} is down"));
        sleep(Duration::from_millis(300));
        hosts.lab.heal(link).unwrap();
        let outcome = cp.finish().expect(0);
        let told = |text: &str| outcome.stderr.matches(text).count();
        let counts = [" is down", " is up again", "lost once", "lost "].map(told);
        assert_eq!(counts, [1; 4], "{outcome}");
    }
}

fn a_bench_with_all_cables_cut_says_so() {
    let hosts = Hosts::joined_by(&links());
    let port = hosts.daemon.port.to_string();
    let bench = hosts.client.start([
        "bench",
        "10.77.1.2",
        "-p",
        &port,
        "--json-stream",
        "--no-history",
    ]);
    bench.await_event("sample", |_| true);
    let told = "10.77.1.2 does not answer on eth1, eth2; still trying, ^C ends";
    cut_all_and_await(told, &hosts, &bench);
    bench.kill();
}

fn an_upload_of_restic_with_all_cables_cut_says_so() {
    let hosts = Hosts::joined_by(&links());
    let port = hosts.daemon.port.to_string();
    let words = [
        "serve",
        "restic",
        "--port",
        &port,
        "--no-password",
        "--addr",
    ];
    let server = hosts
        .client
        .start([&words[..], &["127.0.0.1:0", "10.77.1.2:repo"]].concat());
    let line = server.await_stderr("Serving restic REST API on http://");
    let address = line.split('/').nth(2).unwrap().to_owned();
    let upload = hosts.lab.on(Host::A, || TcpStream::connect(&address));
    let mut upload = upload.unwrap().unwrap();
    upload
        .write_all(b"POST /config HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nbegun")
        .unwrap();
    let told = "10.77.1.2 is unreachable on eth1, eth2; trying for 10 min, ^C ends";
    cut_all_and_await(told, &hosts, &server);
    server.kill();
}

fn cut_all_and_await(told: &str, hosts: &Hosts, process: &Process) {
    (0..2).for_each(|link| hosts.lab.cut(link).unwrap());
    process.await_stderr(told);
}
