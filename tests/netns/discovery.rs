//! Tests of `nicstripe discover` over several cables.

use std::{fs, sync::Arc};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{Daemon, Outcome, Side, number, tests, text, trial::Test};
use serde_json::Value;

use crate::hosts::{Hosts, Rights, acquainted, side};

pub(crate) const TESTS: &[Test] = tests![
    a_trusted_daemon_is_found_on_each_cable_without_any_right,
    a_daemon_that_announces_itself_is_shown_to_strangers_as_unknown,
    a_daemon_is_heard_on_the_interfaces_that_it_listens_on,
    a_cable_that_gets_its_address_later_is_answered_on,
];

fn links() -> [LinkSpec; 2] {
    [LinkSpec::mbit(200); 2]
}

fn a_trusted_daemon_is_found_on_each_cable_without_any_right() {
    let hosts = Hosts::joined_by(&links());
    let found = discovered(&hosts.client, hosts.daemon.port, &[]);
    let [peer] = &peers(&found)[..] else {
        panic!("{found:#}")
    };
    assert_eq!(
        (text(peer, "name"), &peer["trusted"]),
        ("b", &true.into()),
        "{found:#}"
    );
    assert!(
        hosts.server.key().starts_with(text(peer, "key")),
        "{found:#}"
    );
    assert_eq!(
        cables(peer),
        [("eth1", "eth1"), ("eth2", "eth2")],
        "{found:#}"
    );
    for (link, cable) in peer["cables"].as_array().unwrap().iter().enumerate() {
        assert!(text(cable, "address").starts_with("fe80::"), "{found:#}");
        assert_eq!(
            number(cable, "port"),
            u64::from(hosts.daemon.port),
            "{found:#}"
        );
        assert_eq!(
            number(cable, "scope"),
            u64::from(hosts.lab.interface_index(Host::A, link)),
            "{found:#}"
        );
        assert!(number(cable, "rtt_us") < 1_000_000, "{found:#}");
    }
}

fn a_daemon_that_announces_itself_is_shown_to_strangers_as_unknown() {
    let lab = Arc::new(Lab::builder().links(links()).build().unwrap());
    let server = side(&lab, Host::B, Rights::None);
    let daemon = Daemon::start(&server, &["--announce"]);
    let stranger = stranger(&lab);
    let found = discovered(&stranger, daemon.port, &[]);
    let [peer] = &peers(&found)[..] else {
        panic!("{found:#}")
    };
    assert_eq!(
        (&peer["trusted"], peer.get("name")),
        (&false.into(), None),
        "{found:#}"
    );
    assert!(server.key().starts_with(text(peer, "key")), "{found:#}");
    assert_eq!(cables(peer).len(), 2, "{found:#}");
    // The daemon is visible but not usable.
    stranger.write("source", b"bytes");
    stranger.trust(&server, "b", "");
    stranger
        .run(["cp", "--port", &daemon.port.to_string(), "source", "b:"])
        .expect(5)
        .error(&["does not trust our key"]);
}

fn a_daemon_is_heard_on_the_interfaces_that_it_listens_on() {
    let lab = Arc::new(Lab::builder().links(links()).build().unwrap());
    let (client, server) = acquainted(&lab);
    let daemon = Daemon::start(&server, &["--interface", "eth2"]);
    let found = discovered(&client, daemon.port, &[]);
    assert_eq!(cables(&found["peers"][0]), [("eth2", "eth2")], "{found:#}");
    let elsewhere = discovered(&client, daemon.port, &["--interface", "eth1"]);
    assert!(peers(&elsewhere).is_empty(), "{elsewhere:#}");
}

fn a_cable_that_gets_its_address_later_is_answered_on() {
    let lab = Arc::new(Lab::builder().links(links()).build().unwrap());
    let (client, server) = acquainted(&lab);
    let ipv6_on_eth2 = |off: &str| {
        lab.on(Host::B, || {
            fs::write("/proc/sys/net/ipv6/conf/eth2/disable_ipv6", off).unwrap();
        })
        .unwrap();
    };
    ipv6_on_eth2("1");
    let daemon = Daemon::start(&server, &[]);
    let found = discovered(&client, daemon.port, &[]);
    assert_eq!(cables(&found["peers"][0]), [("eth1", "eth1")], "{found:#}");
    for (off, expected) in [("0", 2), ("1", 1), ("0", 2)] {
        ipv6_on_eth2(off);
        let found = discovered(&client, daemon.port, &[]);
        assert_eq!(cables(&found["peers"][0]).len(), expected, "{found:#}");
    }
}

/// Creates a side on host A whose key the daemon does not trust.
fn stranger(lab: &Arc<Lab>) -> Side {
    side(lab, Host::A, Rights::None)
}

fn discover(from: &Side, port: u16, options: &[&str]) -> Outcome {
    let port = port.to_string();
    from.run([&["discover", "--timeout", "1", "--port", &port], options].concat())
}

fn discovered(from: &Side, port: u16, options: &[&str]) -> Value {
    let outcome = discover(from, port, &[&["--json"], options].concat()).expect(0);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}\n{outcome}"))
}

fn peers(document: &Value) -> Vec<Value> {
    document["peers"].as_array().unwrap().clone()
}

/// Returns the local and the remote interface of each cable from a peer's entry in the JSON output.
fn cables(peer: &Value) -> Vec<(&str, &str)> {
    let cables = peer["cables"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    cables
        .iter()
        .map(|cable| (text(cable, "interface"), text(cable, "peer_interface")))
        .collect()
}
