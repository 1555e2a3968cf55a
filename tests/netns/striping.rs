//! Tests of the distribution of data over cables, and of the selection of cables.

use std::{thread, time::Duration};

use nicstripe_lab::{Direction, Host, LinkSpec};
use nicstripe_testkit::{Process, content, link, number, tests, text, trial::Test};
use serde_json::Value;

use crate::hosts::{Hosts, MIB, Way};

pub(crate) const TESTS: &[Test] = tests![
    two_cables_carry_their_shares_both_ways,
    four_cables_carry_their_shares_both_ways,
    the_daemon_listens_on_every_interface,
    any_address_of_the_peer_finds_all_cables,
    a_slow_cable_does_not_set_the_pace_of_a_fast_one,
    a_named_link_is_the_only_one_used,
    named_links_are_paired_by_their_interfaces,
    an_excluded_link_carries_nothing,
    a_link_that_only_met_the_peer_carries_no_data,
    a_cable_without_carrier_is_left_out,
    a_named_link_without_carrier_is_an_error,
    an_address_behind_a_cut_cable_is_an_error_that_names_it,
    a_links_limit_holds_for_that_link_alone,
];

fn two_cables_carry_their_shares_both_ways() {
    carry_their_shares(&[LinkSpec::mbit(200); 2]);
}

fn four_cables_carry_their_shares_both_ways() {
    carry_their_shares(&[LinkSpec::mbit(100); 4]);
}

/// Copies a file without link options. Panics unless each cable carries its share.
fn carry_their_shares(links: &[LinkSpec]) {
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

fn the_daemon_listens_on_every_interface() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 3]);
    for interface in ["lo", "eth1", "eth2", "eth3"] {
        hosts.daemon.process.await_stderr(&format!(
            "listening on {interface}, port {}",
            hosts.daemon.port
        ));
    }
    // Each of the daemon's interfaces accepts connections at its own address.
    hosts.client.write("source", b"bytes");
    for index in 0..3 {
        let address = hosts.lab.address(Host::B, index);
        let link = format!("{}={address}", hosts.lab.interface(index));
        hosts
            .cp(&[
                "--link",
                &link,
                "source",
                &format!("{address}:target{index}"),
            ])
            .expect(0);
    }
}

fn any_address_of_the_peer_finds_all_cables() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(16 * MIB);
    hosts.client.write("source", &bytes);
    let report = hosts
        .cp(&["--json", "source", "10.77.2.2:target"])
        .expect(0)
        .document();
    hosts.server.check("target", &bytes, &report);
    for interface in ["eth1", "eth2"] {
        let link = link(&report, interface);
        paired(link);
        assert!(number(link, "bytes") > 0, "{report:#}");
    }
}

fn a_slow_cable_does_not_set_the_pace_of_a_fast_one() {
    let links = [LinkSpec::mbit(200), LinkSpec::mbit(10)];
    let hosts = Hosts::joined_by(&links);
    let bytes = content(48 * MIB);
    let theory: u64 = links
        .iter()
        .map(|spec| spec.goodput().unwrap().bits_per_second())
        .sum();
    let ideal = bytes.len() as f64 * 8.0 / theory as f64;
    for way in Way::BOTH {
        let ends = way.prepare(&hosts, &bytes);
        let report = hosts
            .cp(&[&["--json"], &ends[..]].concat())
            .expect(0)
            .document();
        way.check(&hosts, &bytes, &report);
        let took = report["elapsed_s"].as_f64().unwrap();
        // Ideally 2.04 s. If the rest were split in halves, the slow cable would need 20 s.
        assert!(
            took <= 2.0 * ideal + 1.0,
            "{took} s where {ideal} s are ideal: {report:#}"
        );
        assert!(number(link(&report, "eth2"), "bytes") > 0, "{report:#}");
    }
}

fn a_named_link_is_the_only_one_used() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
    only_used(&hosts, &["--link", "eth1"], "10.77.1.2", 0);
}

fn named_links_are_paired_by_their_interfaces() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 3]);
    hosts.client.write("source", content(16 * MIB));
    let arguments = [
        "--link",
        "eth3",
        "--link",
        "eth1=eth1",
        "--json",
        "source",
        "10.77.1.2:",
    ];
    let report = hosts.cp(&arguments).expect(0).document();
    for interface in ["eth1", "eth3"] {
        paired(link(&report, interface));
    }
    assert_eq!(report["links"].as_array().unwrap().len(), 2, "{report:#}");
    // No cable joins these two interfaces.
    let refused = hosts
        .cp(&[
            "-f",
            "--link",
            "eth1=eth2",
            "--json",
            "source",
            "10.77.1.2:",
        ])
        .expect(10);
    refused.error(&["eth1=eth2", "10.77.1.1"]);
}

fn an_excluded_link_carries_nothing() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
    only_used(&hosts, &["--exclude-link", "eth2"], "10.77.1.2", 0);
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
        only_used_after(&hosts, &options, address, used, late);
    }
}

/// Copies to an address. Panics unless only the cable with index `used` carried data.
#[track_caller]
fn only_used(hosts: &Hosts, options: &[&str], address: &str, used: usize) {
    only_used_after(hosts, options, address, used, |_| ());
}

/// Like [`only_used`], but calls `happens` after the start of the copy.
#[track_caller]
fn only_used_after(
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

fn a_cable_without_carrier_is_left_out() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
    hosts.lab.cut(1).unwrap();
    only_used(&hosts, &[], "10.77.1.2", 0);
}

fn a_named_link_without_carrier_is_an_error() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
    hosts.client.write("source", b"bytes");
    hosts.lab.cut(1).unwrap();
    let outcome = hosts
        .cp(&[
            "--link",
            "eth1",
            "--link",
            "eth2",
            "--json",
            "source",
            "10.77.1.2:",
        ])
        .expect(10);
    outcome.document();
    outcome.error(&["eth2", "no carrier"]);
    assert!(!hosts.server.has("source"));
}

fn an_address_behind_a_cut_cable_is_an_error_that_names_it() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
    hosts.client.write("source", b"bytes");
    hosts.lab.cut(0).unwrap();
    hosts
        .cp(&["source", "10.77.1.2:"])
        .expect(10)
        .error(&["10.77.1.2"])
        .hint(&["cable"]);
    // Another address of the daemon is reachable.
    hosts.cp(&["source", "10.77.2.2:"]).expect(0);
}

fn a_links_limit_holds_for_that_link_alone() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(100); 2]);
    let bytes = content(24 * MIB);
    hosts.client.write("source", &bytes);
    let arguments = [
        "--link",
        "eth1",
        "--link",
        "eth2@20Mbit",
        "--json",
        "source",
        "10.77.1.2:target",
    ];
    let report = hosts.cp(&arguments).expect(0).document();
    hosts.server.check("target", &bytes, &report);
    let rate = |interface| number(link(&report, interface), "goodput_bps") as f64 / 1e6;
    assert!(
        rate("eth2") <= 22.0 && rate("eth1") >= 2.0 * rate("eth2"),
        "{report:#}"
    );
}
