//! Tests of `nicstripe discover` over several cables.

use std::{fs, sync::Arc, time::Instant};

use nicstripe_lab::{Direction, Host, Lab, LinkSpec};
use nicstripe_testkit::{Daemon, Outcome, Side, number, tests, text, trial::Test};
use serde_json::Value;

use crate::hosts::{Hosts, Rights, introduce, side};

pub(crate) const TESTS: &[Test] = tests![
    a_trusted_daemon_is_found_on_each_cable_without_any_right,
    a_stranger_finds_nobody,
    a_daemon_that_announces_itself_is_shown_to_strangers_as_unknown,
    a_cable_that_is_cut_is_not_shown,
    a_cable_that_passes_only_questions_is_not_shown,
    a_daemon_is_heard_on_the_interfaces_that_it_listens_on,
    a_cable_that_gets_its_address_later_is_answered_on,
    a_peers_name_is_enough_to_copy,
    a_name_that_nobody_answers_to_is_an_error_that_says_what_was_tried,
    another_daemon_with_a_trusted_key_is_not_taken_for_the_one_that_was_named,
    the_table_is_for_people_and_says_what_to_do_about_strangers,
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

fn a_stranger_finds_nobody() {
    let hosts = Hosts::joined_by(&links());
    let stranger = stranger(&hosts.lab);
    // The stranger trusts the daemon's key, but the daemon does not trust the stranger.
    stranger.trust(&hosts.server, "b", "");
    let found = discovered(&stranger, hosts.daemon.port, &[]);
    assert!(peers(&found).is_empty(), "{found:#}");
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

fn a_cable_that_is_cut_is_not_shown() {
    let hosts = Hosts::joined_by(&links());
    hosts.lab.cut(0).unwrap();
    let found = discovered(&hosts.client, hosts.daemon.port, &[]);
    assert_eq!(cables(&found["peers"][0]), [("eth2", "eth2")], "{found:#}");
    hosts.lab.heal(0).unwrap();
    let found = discovered(&hosts.client, hosts.daemon.port, &[]);
    assert_eq!(cables(&found["peers"][0]).len(), 2, "{found:#}");
}

fn a_cable_that_passes_only_questions_is_not_shown() {
    let hosts = Hosts::joined_by(&links());
    hosts.lab.drop_silently(1, Direction::BToA).unwrap();
    let found = discovered(&hosts.client, hosts.daemon.port, &[]);
    assert_eq!(cables(&found["peers"][0]), [("eth1", "eth1")], "{found:#}");
}

fn a_daemon_is_heard_on_the_interfaces_that_it_listens_on() {
    let lab = Arc::new(Lab::builder().links(links()).build().unwrap());
    let (client, server) = (
        side(&lab, Host::A, Rights::None),
        side(&lab, Host::B, Rights::None),
    );
    introduce(&client, &server);
    let daemon = Daemon::start(&server, &["--interface", "eth2"]);
    let found = discovered(&client, daemon.port, &[]);
    assert_eq!(cables(&found["peers"][0]), [("eth2", "eth2")], "{found:#}");
    let elsewhere = discovered(&client, daemon.port, &["--interface", "eth1"]);
    assert!(peers(&elsewhere).is_empty(), "{elsewhere:#}");
}

fn a_cable_that_gets_its_address_later_is_answered_on() {
    let lab = Arc::new(Lab::builder().links(links()).build().unwrap());
    let (client, server) = (
        side(&lab, Host::A, Rights::None),
        side(&lab, Host::B, Rights::None),
    );
    introduce(&client, &server);
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

fn a_peers_name_is_enough_to_copy() {
    let hosts = Hosts::joined_by(&links());
    hosts.client.write("source", b"bytes");
    let report = hosts
        .cp(&["--json", "source", "b:target"])
        .expect(0)
        .document();
    assert_eq!(hosts.server.read("target"), b"bytes");
    assert_eq!(text(&report, "peer_name"), "b");
}

fn a_name_that_nobody_answers_to_is_an_error_that_says_what_was_tried() {
    let hosts = Hosts::joined_by(&links());
    hosts.client.write("source", b"bytes");
    hosts.daemon.process.signal(rustix::process::Signal::KILL);
    let begun = Instant::now();
    let outcome = hosts.cp(&["source", "b:target"]).expect(10);
    outcome
        .error(&["b is in the list of peers", "eth1, eth2", "resolver"])
        .hint(&["serve"]);
    // 3 s for the cables and at most 7 s for the resolver, doubled for a busy machine.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

fn another_daemon_with_a_trusted_key_is_not_taken_for_the_one_that_was_named() {
    let hosts = Hosts::joined_by(&links());
    let elsewhere = Side::here();
    hosts.client.trust(&elsewhere, "far", "");
    hosts.client.write("source", b"bytes");
    hosts.cp(&["source", "far:target"]).expect(10).error(&[
        "far is in the list of peers",
        "nothing answered on eth1, eth2",
    ]);
    assert!(!hosts.server.has("target"));
}

fn the_table_is_for_people_and_says_what_to_do_about_strangers() {
    let lab = Arc::new(Lab::builder().links(links()).build().unwrap());
    let server = side(&lab, Host::B, Rights::None);
    let daemon = Daemon::start(&server, &["--announce"]);
    let outcome = discover(&stranger(&lab), daemon.port, &[]).expect(0);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{outcome}");
    assert!(
        lines[0].starts_with("NAME")
            && lines[1].contains("unknown key")
            && lines[1].contains("eth1 → eth1"),
        "{outcome}"
    );
    let key = server.key();
    let key = key.split(' ').take(2).collect::<Vec<_>>().join(" ");
    outcome.hint(&[&format!("trust add '{key}' --name NAME")]);

    let alone = discover(&stranger(&lab), daemon.port + 1, &[]).expect(0);
    assert_eq!(alone.stdout, "", "{alone}");
    alone.hint(&["--announce"]);
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
