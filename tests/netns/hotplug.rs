//! Tests of interfaces that appear, disappear and change while a daemon listens or a copy runs.

use std::{thread, time::Duration};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{content, link, number, tests, text, trial::Test};
use serde_json::Value;

use crate::{
    hosts::{Hosts, MIB, Rights},
    kernel_links::{plug_in, pull_out},
};

pub(crate) const TESTS: &[Test] = tests![
    an_interface_that_appears_is_listened_on_until_it_is_gone,
    a_named_interface_is_listened_on_again_when_it_is_back,
    a_copy_survives_an_interface_that_comes_back_with_another_index,
    a_link_whose_addresses_change_carries_on_with_the_new_ones,
];

const RATE: u64 = 200;
const GONE: &str = "stopped listening: interface removed";

fn an_interface_that_appears_is_listened_on_until_it_is_gone() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(RATE)]);
    hosts.client.write("source", b"bytes");
    for (name, indices) in [("late0", [9001, 9002]), ("late1", [9003, 9004])] {
        plug_in(&hosts.lab, name, indices);
        await_log(&hosts, "listening", name);
        // Names the link, so that nicstripe uses only this interface.
        let copied = hosts
            .cp(&["-f", "--link", name, "--json", "source", "10.77.1.2:target"])
            .expect(0)
            .document();
        assert_eq!(
            text(link(&copied, name), "peer_interface"),
            name,
            "{copied:#}"
        );
        pull_out(&hosts.lab, indices[0]);
        await_log(&hosts, GONE, name);
        hosts
            .cp(&["-f", "--link", name, "source", "10.77.1.2:target"])
            .expect(10)
            .error(&[name, "no such interface", "eth1"]);
    }
    hosts.cp(&["-f", "source", "10.77.1.2:target"]).expect(0);
}

fn a_named_interface_is_listened_on_again_when_it_is_back() {
    let lab = Lab::builder().link(LinkSpec::mbit(RATE)).build().unwrap();
    plug_in(&lab, "late0", [9001, 9002]);
    let hosts = Hosts::serving_with(lab, &["--interface", "late0"]);
    hosts.client.write("source", b"bytes");
    hosts.cp(&["source", "10.77.1.2:target"]).expect(10);
    pull_out(&hosts.lab, 9001);
    await_log(&hosts, GONE, "late0");
    plug_in(&hosts.lab, "late0", [9003, 9004]);
    await_log(&hosts, "listening", "late0");
    hosts.cp(&["source", "b:target"]).expect(0);
}

/// Waits until the daemon logs `what` for the IPv6 address of an interface. The daemon handles IPv6
/// after IPv4.
#[track_caller]
fn await_log(hosts: &Hosts, what: &str, interface: &str) {
    hosts
        .daemon
        .process
        .await_stderr(&format!("{what} interface={interface} address=[::]"));
}

fn a_copy_survives_an_interface_that_comes_back_with_another_index() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(RATE)]);
    plug_in(&hosts.lab, "late0", [9001, 9002]);
    // Takes 4 s.
    let bytes = content(160 * MIB);
    hosts.client.write("source", &bytes);
    let cp = hosts.start_cp(&[
        "--bwlimit",
        "40MB",
        "--json-stream",
        "source",
        "10.77.1.2:target",
    ]);
    cp.await_bytes(16 * MIB as u64);
    pull_out(&hosts.lab, 9001);
    cp.await_event("link", |event| {
        event["interface"] == "late0" && event["state"] != "up"
    });
    thread::sleep(Duration::from_millis(300));
    plug_in(&hosts.lab, "late0", [9003, 9004]);
    cp.await_event("link", |event| {
        event["interface"] == "late0" && event["state"] == "up"
    });
    let report = cp.finish().expect(0).document();
    hosts.server.check("target", &bytes, &report);
    let [link] = &links_on(&report, "late0")[..] else {
        panic!("{report:#}")
    };
    assert_eq!(
        (text(link, "state"), number(link, "failures") as u32),
        ("up", 1),
        "{report:#}"
    );
    // Unknown, because the kernel's counters disappeared with the interface.
    assert_eq!(
        (link.get("verified"), link.get("interface_bytes")),
        (None, None),
        "{report:#}"
    );
    assert!(number(link, "bytes") as usize > 32 * MIB, "{report:#}");
}

fn links_on(report: &Value, interface: &str) -> Vec<Value> {
    report["links"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|link| link["interface"] == interface)
        .cloned()
        .collect()
}

fn a_link_whose_addresses_change_carries_on_with_the_new_ones() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(RATE); 2])
        .without_ipv6()
        .build()
        .unwrap();
    let hosts = Hosts::in_lab(lab, Rights::None, Rights::None);
    // Takes 4.1 s on two cables.
    let bytes = content(192 * MIB);
    hosts.client.write("source", &bytes);
    let cp = hosts.start_cp(&["--json-stream", "source", "10.77.1.2:target"]);
    cp.await_bytes(16 * MIB as u64);
    for (host, old, new) in [
        (Host::A, "10.77.2.1/24", "10.88.0.1/24"),
        (Host::B, "10.77.2.2/24", "10.88.0.2/24"),
    ] {
        hosts.lab.remove_address(host, 1, old).unwrap();
        hosts.lab.add_address(host, 1, new).unwrap();
    }
    let (outcome, carried) = hosts.carried(|| cp.finish());
    let report = outcome.expect(0).document();
    hosts.server.check("target", &bytes, &report);
    let after = carried[1].at(Host::A).sent_bytes;
    assert!(
        after as usize > 16 * MIB,
        "{after} bytes over the new addresses: {report:#}"
    );
    let [new] = &links_on(&report, "eth2")[..] else {
        panic!("{report:#}")
    };
    assert_eq!(
        (text(new, "local"), text(new, "remote"), text(new, "state")),
        ("10.88.0.1", "10.88.0.2", "up"),
        "{report:#}"
    );
}
