//! Tests of the distribution of data over cables, and of the selection of cables.

use std::{thread, time::Duration};

use nicstripe_lab::{Direction, LinkSpec};
use nicstripe_testkit::{Process, content, link, number, tests, text, trial::Test};
use serde_json::Value;

use crate::hosts::{Hosts, MIB, Way};

pub(crate) const TESTS: &[Test] = tests![
    two_cables_carry_their_shares_both_ways,
    a_named_link_and_one_beside_excluded_or_unplugged_ones_is_the_only_one_used,
    a_link_that_only_met_the_peer_carries_no_data,
];

/// Copies a file without link options.
fn two_cables_carry_their_shares_both_ways() {
    let links = &[LinkSpec::mbit(200); 2];
    let hosts = Hosts::joined_by(links);
    // Takes 2.1 s at 400 Mbit/s.
    let bytes = content(96 * MIB);
    for way in Way::BOTH {
        let ends = way.prepare(&hosts, &bytes);
        let (outcome, carried) = hosts.carried(|| hosts.cp(&[&["--json"], &ends[..]].concat()));
        let report = outcome.expect(0).document();
        way.check(&hosts, &bytes, &report);

        let share = bytes.len() as f64 / links.len() as f64;
        for (index, counters) in carried.iter().enumerate() {
            let (sender, receiver) = (way.sender(), way.sender().peer());
            // On a busy machine a cable may wait for the processors; `benches/throughput` measures
            // the exact shares.
            for (end, counted) in [
                ("sent", counters.at(sender).sent_bytes),
                ("received", counters.at(receiver).received_bytes),
            ] {
                let part = counted as f64 / share;
                assert!(
                    part >= 0.5,
                    "link {index} {end} {part} of its share: {carried:#?}\n{report:#}"
                );
            }
            // Acknowledgements return over the same cable, as a few per cent of the data.
            assert!(
                counters.at(receiver).sent_bytes > 10_000,
                "link {index}: {carried:#?}"
            );
            paired(link(&report, &hosts.lab.interface(index)));
        }
        assert_eq!(
            report["links"].as_array().unwrap().len(),
            links.len(),
            "{report:#}"
        );
        told_beside_theory(&report, links);
    }
}

/// Panics unless a link is up, is verified, and joins two interfaces of the same name.
#[track_caller]
fn paired(link: &Value) {
    assert_eq!(
        (text(link, "state"), &link["verified"]),
        ("up", &Value::Bool(true)),
        "{link:#}"
    );
    assert_eq!(text(link, "peer_interface"), text(link, "interface"));
}

#[track_caller]
fn told_beside_theory(report: &Value, links: &[LinkSpec]) {
    let theory: u64 = links
        .iter()
        .map(|spec| spec.goodput().unwrap().bits_per_second())
        .sum();
    let got = number(report, "bytes") as f64 * 8.0 / report["elapsed_s"].as_f64().unwrap();
    let efficiency = got / theory as f64;
    // `benches/throughput` measures the difference from theory, which depends on the load of the
    // machine.
    assert!(
        efficiency <= 1.01,
        "{efficiency} of {theory} bit/s: {report:#}"
    );
    // The reported efficiency and theory match the cables.
    let (told, expected) = (
        report["efficiency"].as_f64().unwrap(),
        number(report, "theory_bps") as f64,
    );
    assert!(
        (told - efficiency).abs() < 0.01 && (expected / theory as f64 - 1.0).abs() < 0.01,
        "{theory} bit/s: {report:#}"
    );
}

fn a_named_link_and_one_beside_excluded_or_unplugged_ones_is_the_only_one_used() {
    for (options, is_cut) in [
        (&["--link", "eth1"][..], false),
        (&["--exclude-link", "eth2"], false),
        (&[], true),
    ] {
        let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
        if is_cut {
            hosts.lab.cut(1).unwrap();
        }
        only_used(&hosts, options, "10.77.1.2", 0, |_| ());
    }
}

fn a_link_that_only_met_the_peer_carries_no_data() {
    for (options, address, used) in [
        (["--exclude-link", "eth1"], "10.77.1.2", 1),
        (["--link", "eth1"], "10.77.2.2", 0),
    ] {
        let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
        // The link that carries data comes up later than the link of the first contact.
        hosts.lab.drop_silently(used, Direction::Both).unwrap();
        let late = |cp: &Process| {
            cp.await_event("connected", |_| true);
            thread::sleep(Duration::from_millis(300));
            hosts.lab.pass(used).unwrap();
        };
        only_used(&hosts, &options, address, used, late);
    }
}

/// Copies to an address, and calls `happens` after the start of the copy. Panics unless only the cable with
/// index `used` carried data.
#[track_caller]
fn only_used(
    hosts: &Hosts,
    options: &[&str],
    address: &str,
    used: usize,
    happens: impl FnOnce(&Process),
) {
    let bytes = content(24 * MIB);
    hosts.client.write("source", &bytes);
    let target = format!("{address}:target");
    let (outcome, carried) = hosts.carried(|| {
        let cp = hosts.start_cp(&[options, &["--json-stream", "source", &target]].concat());
        happens(&cp);
        cp.finish()
    });
    let report = outcome.expect(0).document();
    hosts.server.check("target", &bytes, &report);
    for (index, counters) in carried.iter().enumerate() {
        let sent = counters.a.sent_bytes;
        // The first contact needs some KiB.
        let is_right = if index == used {
            sent >= bytes.len() as u64
        } else {
            sent < 256 << 10
        };
        assert!(is_right, "link {index}: {carried:#?}\n{report:#}");
    }
}
