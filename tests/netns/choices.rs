//! Tests of messages about requested interfaces that cannot be used, and of `nicstripe links HOST`.

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Outcome, content, number, tests, text,
    trial::{Completion, Test},
};
use serde_json::Value;

use crate::hosts::{Hosts, MIB, Rights, ip};

pub(crate) const TESTS: &[Test] = tests![
    a_card_that_carries_nothing_is_named_with_its_reason,
    a_card_without_a_counterpart_is_named_with_its_reason,
    the_version_of_ip_may_be_chosen,
    two_cards_share_one_fast_interface_of_the_peer,
    one_fast_card_serves_two_interfaces_of_the_peer,
    a_card_that_shares_an_interface_of_the_peer_may_be_lost_and_return,
];

/// Tests that change interfaces with `ip`.
pub(crate) const TESTS_WITH_IP: &[Test] = tests![
    an_alternative_name_names_the_interface_at_both_ends,
    the_unspecified_address_is_listened_on_at_every_interface,
    macvlans_of_one_card_are_one_cable,
];

fn macvlans_of_one_card_are_one_cable() -> Completion {
    let lab = Lab::builder().links(cables()).build().unwrap();
    let mut first = lab.command(Host::A, "ip");
    first.args([
        "link", "add", "link", "eth1", "name", "mac0", "type", "macvlan",
    ]);
    if !first.status().unwrap().success() {
        return Completion::ignored_with("the kernel has no macvlan");
    }
    for (host, end) in [(Host::A, 1), (Host::B, 2)] {
        for subnet in [3, 4] {
            let name = format!("mac{subnet}");
            let link = format!("link add link eth2 name {name} type macvlan mode bridge");
            ip(&lab, host, &link);
            ip(
                &lab,
                host,
                &format!("address add 10.77.{subnet}.{end}/24 dev {name}"),
            );
            ip(&lab, host, &format!("link set {name} up"));
        }
    }
    let hosts = Hosts::in_lab(lab, Rights::None, Rights::None);
    hosts.client.write("source", content(32 * MIB));
    let copied = hosts.cp(&["--json", "source", "10.77.1.2:"]).expect(0);
    let report = copied.document();
    let used = report["links"].as_array().unwrap();
    assert_eq!(used.len(), 2, "{report:#}");
    let listed = links(&hosts, &["10.77.1.2"]).expect(0).stdout;
    assert!(listed.contains("shares the cable of "), "{listed}");
    assert!(listed.contains("\n2 links, "), "{listed}");
    Completion::Completed
}

fn an_alternative_name_names_the_interface_at_both_ends() {
    let lab = Lab::builder().links(cables()).build().unwrap();
    for host in [Host::A, Host::B] {
        ip(&lab, host, "link property add dev eth2 altname lan0");
    }
    let hosts = Hosts::serving_with(lab, &["--interface", "lan0", "--interface", "eth2"]);
    hosts.client.write("source", b"bytes");
    for options in [&["--link", "lan0"][..], &["--link", "lan0=10.77.2.2"]] {
        let cp = [options, &["--json", "-f", "source", "10.77.2.2:"]].concat();
        let report = hosts.cp(&cp).expect(0).document();
        let links = report["links"].as_array().unwrap();
        let used: Vec<&str> = links.iter().map(|link| text(link, "interface")).collect();
        assert_eq!(used, ["eth2"], "{options:?}: {report:#}");
    }
    let twice = hosts.cp(&["--link", "lan0", "--link", "eth2", "source", "10.77.2.2:"]);
    twice.expect(10).error(&["link eth2 "]);
}

fn the_unspecified_address_is_listened_on_at_every_interface() {
    for (listen, reached, other) in [
        (
            &["--listen", "0.0.0.0"][..],
            &["10.77.1.2:", "10.77.2.2:"][..],
            Some("b:"),
        ),
        (&["--listen", "[::]"], &["b:"], Some("10.77.1.2:")),
        (
            &["--listen", "0.0.0.0", "--listen", "[::]"],
            &["b:", "10.77.1.2:", "10.77.2.2:"],
            None,
        ),
    ] {
        let lab = Lab::builder().links(cables()).build().unwrap();
        let hosts = Hosts::serving_with(lab, listen);
        hosts.client.write("source", b"bytes");
        // Refused at first, so that no address is remembered.
        if let Some(target) = other {
            hosts.cp(&["source", target]).expect(10);
        }
        for target in reached {
            hosts.cp(&["-f", "source", target]).expect(0);
        }
    }
}

/// Checks the closing line of a copy, and the lines of `links`, for a second card of either machine
/// that carries nothing.
fn a_card_that_carries_nothing_is_named_with_its_reason() {
    let down: fn(&Lab, Host) = |lab, host| lab.set_up(host, 1, false).unwrap();
    let unplugged: fn(&Lab, Host) = |lab, host| lab.set_plugged_at(host, 1, false).unwrap();
    let bare: fn(&Lab, Host) = |lab, host| {
        let own = ["10.77.2.1/24", "10.77.2.2/24"][usize::from(host == Host::B)];
        lab.remove_address(host, 1, own).unwrap();
    };
    let moved: fn(&Lab, Host) = |lab, host| {
        lab.add_address(host, 1, "10.99.0.1/24").unwrap();
        lab.remove_address(host, 1, "10.77.2.1/24").unwrap();
    };
    let apart = "no subnet shared with the peer, no link-local addresses at both ends";
    for (spoil, host, here, there) in [
        (
            down,
            Host::A,
            "down: ip link set eth2 up",
            "no free interface here",
        ),
        (
            down,
            Host::B,
            "no free interface at the peer",
            "down; there: ip link set eth2 up",
        ),
        (unplugged, Host::A, "no carrier", "no free interface here"),
        (
            unplugged,
            Host::B,
            "no free interface at the peer",
            "no carrier",
        ),
        (bare, Host::A, "no address", "no free interface here"),
        (bare, Host::B, "no free interface at the peer", "no address"),
        (moved, Host::A, apart, apart),
    ] {
        let said = format!("eth2 ({here}), peer's eth2 ({there})");
        let lab = Lab::builder().links(cables()).without_ipv6();
        let lab = lab.build().unwrap();
        spoil(&lab, host);
        let hosts = Hosts::in_lab(lab, Rights::None, Rights::None);
        hosts.client.write("source", content(32 * MIB));
        let copied = hosts.cp(&["source", "10.77.1.2:"]).expect(0);
        let mut closing = copied.stderr.lines();
        let end = format!("; not used: {said}");
        assert!(closing.any(|line| line.ends_with(&end)), "{said}: {copied}");
        let listed = links(&hosts, &["10.77.1.2"]).expect(0);
        for line in [
            format!("  here eth2: {here}"),
            format!("  there eth2: {there}"),
        ] {
            assert!(listed.stdout.contains(&line), "{line}: {listed}");
        }
        let one = hosts.cp(&["--link", "eth1", "-f", "source", "10.77.1.2:"]);
        assert!(!one.expect(0).stderr.contains("not used"), "{said}");
    }
}

/// Checks the closing line if one machine has a card more than the other, and if one is excluded.
fn a_card_without_a_counterpart_is_named_with_its_reason() {
    for (more, said) in [
        (Host::A, "eth2 (no free interface at the peer)"),
        (Host::B, "peer's eth2 (no free interface here)"),
    ] {
        let links = [LinkSpec::mbit(200), LinkSpec::mbit(200).only_on(more)];
        let lab = Lab::builder().links(links).one_subnet().build().unwrap();
        let hosts = Hosts::in_lab(lab, Rights::None, Rights::None);
        hosts.client.write("source", content(32 * MIB));
        let copied = hosts.cp(&["source", "10.9.0.21:"]).expect(0);
        let mut closing = copied.stderr.lines();
        let end = format!("; not used: {said}");
        assert!(closing.any(|line| line.ends_with(&end)), "{copied}");
    }
    let hosts = Hosts::joined_by(&cables());
    hosts.client.write("source", content(32 * MIB));
    let excluded = hosts.cp(&["--exclude-link", "eth2", "source", "10.77.1.2:"]);
    let closing = excluded.expect(0).stderr;
    assert!(
        closing.contains("; not used: peer's eth2 (no free interface here)\n"),
        "{closing}"
    );
}

fn cables() -> [LinkSpec; 2] {
    [LinkSpec::mbit(200); 2]
}

fn the_version_of_ip_may_be_chosen() {
    let hosts = Hosts::joined_by(&cables());
    for (option, host, family) in [("-4", "10.77.1.2", "ipv4"), ("-6", "b", "ipv6")] {
        let survey = survey(&hosts, &[option, host]);
        assert_eq!(
            interfaces(&survey),
            ["eth1", "eth2"],
            "{option} {host}: {survey:#}"
        );
        for link in survey["links"].as_array().unwrap() {
            assert_eq!(text(link, "family"), family, "{option} {host}: {survey:#}");
            assert_eq!(
                text(link, "remote").contains(':'),
                family == "ipv6",
                "{option} {host}: {survey:#}"
            );
        }
    }
    links(&hosts, &["-6", "10.77.1.2"])
        .expect(10)
        .error(&["10.77.1.2", "IP version"]);
    let port = hosts.daemon.port.to_string();
    hosts
        .client
        .run(["links", "--port", &port, "-4", "-6", "b"])
        .expect(2);
}

/// Returns hosts at one switch. `fast` has one interface at 1 Gbit/s, eth1; the other has eth2 and
/// eth3 at 200 Mbit/s.
fn against_one(fast: Host) -> Hosts {
    let slow = LinkSpec::mbit(200).only_on(fast.peer());
    let links = [LinkSpec::gigabit().only_on(fast), slow, slow];
    let lab = Lab::builder().links(links).one_subnet().build().unwrap();
    Hosts::in_lab(lab, Rights::None, Rights::None)
}

/// Panics unless a copy carried a quarter of its bytes or more over each of two links between these
/// ends.
#[track_caller]
fn two_links(report: &Value, expected: [(&str, &str); 2]) {
    let links = report["links"].as_array().unwrap();
    let mut ends: Vec<(&str, &str)> = links
        .iter()
        .map(|link| (text(link, "interface"), text(link, "peer_interface")))
        .collect();
    ends.sort_unstable();
    assert_eq!(ends, expected, "{report:#}");
    for link in links {
        let part = number(link, "bytes") as f64 / number(report, "bytes") as f64;
        assert!(part >= 0.25, "{part}: {report:#}");
    }
}

fn two_cards_share_one_fast_interface_of_the_peer() {
    for options in [&[][..], &["--link", "eth2", "--link", "eth3"]] {
        let hosts = against_one(Host::B);
        let bytes = content(48 * MIB);
        hosts.client.write("source", &bytes);
        let words = [&["--json"], options, &["source", "10.9.0.21:target"]].concat();
        let report = hosts.cp(&words).expect(0).document();
        hosts.server.check("target", &bytes, &report);
        two_links(&report, [("eth2", "eth1"), ("eth3", "eth1")]);
    }
}

fn a_card_that_shares_an_interface_of_the_peer_may_be_lost_and_return() {
    let hosts = against_one(Host::B);
    let bytes = content(96 * MIB);
    hosts.client.write("source", &bytes);
    let cp = hosts.start_cp(&["--json-stream", "source", "10.9.0.21:target"]);
    cp.await_bytes(16 * MIB as u64);
    hosts.lab.set_plugged_at(Host::A, 2, false).unwrap();
    cp.await_event("link", |event| {
        event["interface"] == "eth3" && event["state"] == "down"
    });
    hosts.lab.set_plugged_at(Host::A, 2, true).unwrap();
    cp.await_event("link", |event| {
        event["interface"] == "eth3" && event["state"] == "up"
    });
    let report = cp.finish().expect(0).document();
    hosts.server.check("target", &bytes, &report);
    let share = report["efficiency"].as_f64().unwrap();
    assert!(share <= 1.02, "{report:#}");
    for link in report["links"].as_array().unwrap() {
        assert_eq!(text(link, "state"), "up", "{report:#}");
    }
}

fn one_fast_card_serves_two_interfaces_of_the_peer() {
    let hosts = against_one(Host::A);
    let bytes = content(48 * MIB);
    hosts.server.write("source", &bytes);
    let report = hosts
        .cp(&["--json", "10.9.0.22:source", "target"])
        .expect(0)
        .document();
    hosts.client.check("target", &bytes, &report);
    two_links(&report, [("eth1", "eth2"), ("eth1", "eth3")]);
}

fn interfaces(survey: &Value) -> Vec<&str> {
    let mut interfaces: Vec<&str> = survey["links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| text(link, "interface"))
        .collect();
    interfaces.sort();
    interfaces
}

fn survey(hosts: &Hosts, arguments: &[&str]) -> Value {
    links(hosts, &[&["--json"], arguments].concat())
        .expect(0)
        .document_of("links")
}

/// Runs `nicstripe links` with these arguments and the daemon's port.
fn links(hosts: &Hosts, arguments: &[&str]) -> Outcome {
    let port = hosts.daemon.port.to_string();
    hosts
        .client
        .run([&["links", "--port", &port], arguments].concat())
}
