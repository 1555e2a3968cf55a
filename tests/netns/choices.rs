//! Tests of messages about requested interfaces that cannot be used, and of `nicstripe links HOST`.

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Outcome, content, number, tests, text,
    trial::{Completion, Test},
};
use serde_json::Value;

use crate::hosts::{Hosts, MIB, Rights, ip, side};

pub(crate) const TESTS: &[Test] = tests![
    a_link_that_is_not_there_is_an_error_that_names_those_that_are,
    a_link_that_is_down_is_an_error_that_names_those_that_are_up,
    a_link_without_an_address_is_an_error_that_says_so,
    a_link_to_where_nobody_is_is_an_error_that_names_it,
    serve_refuses_interfaces_and_addresses_that_are_not_there,
    serve_listens_on_an_interface_that_comes_up_later,
    links_of_a_host_that_does_not_trust_us_are_refused,
    links_of_a_host_where_nobody_serves_are_an_error,
    a_cable_that_is_cut_is_shown_as_not_used,
    an_excluded_interface_is_shown_as_left_out,
    a_card_that_carries_nothing_is_named_with_its_reason,
    a_card_without_a_counterpart_is_named_with_its_reason,
    the_version_of_ip_may_be_chosen,
    two_cards_share_one_fast_interface_of_the_peer,
    one_fast_card_serves_two_interfaces_of_the_peer,
    two_named_cards_share_an_interface_of_the_peer,
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

/// Runs `cp` and `links` with the `--link` options `named`. Returns both outcomes. Panics if the
/// copy creates its target.
fn both(hosts: &Hosts, named: &[&str]) -> [Outcome; 2] {
    hosts.client.write("source", b"bytes");
    let options: Vec<&str> = named.iter().flat_map(|link| ["--link", link]).collect();
    let outcomes = [
        hosts.cp(&[&options[..], &["source", "10.77.1.2:"]].concat()),
        links(hosts, &[&options[..], &["10.77.1.2"]].concat()),
    ];
    assert!(!hosts.server.has("source"), "{outcomes:?}");
    outcomes
}

fn a_link_that_is_not_there_is_an_error_that_names_those_that_are() {
    let hosts = Hosts::joined_by(&cables());
    // An unknown interface, the peer's own address, and an unassigned address, each alone and with
    // a valid interface.
    for wrong in ["nosuch0", "10.77.2.2", "10.99.0.1"] {
        for named in [&[wrong][..], &["eth1", wrong]] {
            for outcome in both(&hosts, named) {
                outcome.expect(10).error(&[
                    &format!("link {wrong} "),
                    "no such interface or address",
                    "lo, eth1, eth2",
                ]);
            }
        }
    }
}

fn a_link_that_is_down_is_an_error_that_names_those_that_are_up() {
    let hosts = Hosts::joined_by(&cables());
    hosts.lab.set_up(Host::A, 1, false).unwrap();
    for named in [&["eth2"][..], &["eth1", "eth2"], &["10.77.2.1"]] {
        for outcome in both(&hosts, named) {
            outcome
                .expect(10)
                .error(&[named[named.len() - 1], "it is down", "usable now: eth1"]);
        }
    }
    hosts.lab.set_up(Host::A, 0, false).unwrap();
    for outcome in both(&hosts, &["eth2"]) {
        outcome
            .expect(10)
            .error(&["eth2", "it is down", "no local interface is usable"]);
    }
}

fn a_link_without_an_address_is_an_error_that_says_so() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(200), LinkSpec::mbit(200).bare()])
        .without_ipv6()
        .build()
        .unwrap();
    let hosts = Hosts::in_lab(lab, Rights::None, Rights::None);
    for outcome in both(&hosts, &["eth2"]) {
        outcome
            .expect(10)
            .error(&["eth2", "it has no address", "usable now: eth1"]);
    }
}

fn a_link_to_where_nobody_is_is_an_error_that_names_it() {
    let hosts = Hosts::joined_by(&cables());
    for (named, part) in [
        (&["eth2=10.77.2.99"][..], "10.77.2.99"),
        (&["eth2=nosuch0"], "nosuch0"),
        (&["eth1", "eth2=nosuch0"], "nosuch0"),
    ] {
        for outcome in both(&hosts, named) {
            outcome.expect(10).error(&["eth2", part]);
        }
    }
    // If one link works, the failure shows only when the kernel gives up on ARP after 3 s. This
    // copy takes 5.7 s.
    hosts.client.write("large", content(128 * MIB));
    let outcome = hosts
        .cp(&[
            "--link",
            "eth1",
            "--link",
            "eth2=10.77.2.99",
            "large",
            "10.77.1.2:",
        ])
        .expect(10);
    outcome.error(&["eth2"]);
    assert!(!hosts.server.has("large"));
}

fn serve_refuses_interfaces_and_addresses_that_are_not_there() {
    let hosts = Hosts::joined_by(&cables());
    for (options, parts) in [
        (
            ["--interface", "nosuch0"],
            ["link nosuch0 ", "lo, eth1, eth2"],
        ),
        // An address that belongs to the other host.
        (["--listen", "10.77.1.1"], ["link 10.77.1.1 ", "10.77.1.2"]),
        (["--listen", "10.99.0.1"], ["link 10.99.0.1 ", "10.77.2.2"]),
    ] {
        for beside in [&[][..], &["--interface", "eth1"]] {
            let serve = hosts
                .server
                .run([&["serve", "--port", "0"], beside, &options].concat());
            serve.expect(10).error(&parts);
        }
    }
}

fn serve_listens_on_an_interface_that_comes_up_later() {
    let lab = Lab::builder().links(cables()).build().unwrap();
    lab.set_up(Host::B, 1, false).unwrap();
    let hosts = Hosts::serving_with(lab, &["--interface", "eth2"]);
    hosts.client.write("source", b"bytes");
    hosts
        .cp(&["source", "10.77.2.2:"])
        .expect(10)
        .error(&["10.77.2.2"]);
    hosts.lab.set_up(Host::B, 1, true).unwrap();
    hosts.cp(&["source", "10.77.2.2:"]).expect(0);
    hosts
        .cp(&["-f", "source", "10.77.1.2:"])
        .expect(10)
        .error(&["10.77.1.2"]);
}

fn links_of_a_host_that_does_not_trust_us_are_refused() {
    let hosts = Hosts::joined_by(&cables());
    let stranger = side(&hosts.lab, Host::A, Rights::None);
    let look = || {
        stranger
            .run([
                "links",
                "--port",
                &hosts.daemon.port.to_string(),
                "10.77.1.2",
            ])
            .expect(5)
    };
    // First, neither side trusts the other; then only the client trusts the daemon.
    look().error(&["trust"]);
    stranger.trust(&hosts.server, "b", "");
    look().error(&["does not trust our key"]);
}

fn links_of_a_host_where_nobody_serves_are_an_error() {
    let hosts = Hosts::joined_by(&cables());
    links(&hosts, &["10.77.1.99"])
        .expect(10)
        .error(&["10.77.1.99"]);
    let port = hosts.daemon.port.to_string();
    hosts.daemon.process.kill();
    let outcome = hosts
        .client
        .run(["links", "--port", &port, "10.77.1.2"])
        .expect(10);
    assert!(outcome.stdout.is_empty(), "{outcome}");
    outcome.error(&[&format!("10.77.1.2:{port}")]);
}

fn a_cable_that_is_cut_is_shown_as_not_used() {
    let hosts = Hosts::joined_by(&cables());
    hosts.lab.cut(1).unwrap();
    let survey = survey(&hosts, &["10.77.1.2"]);
    assert_eq!(interfaces(&survey), ["eth1"], "{survey:#}");
    assert!(
        why(&survey, "here", "eth2").contains("carrier"),
        "{survey:#}"
    );
    assert!(!why(&survey, "peer", "eth2").is_empty(), "{survey:#}");
    let shown = links(&hosts, &["10.77.1.2"]).expect(0).stdout;
    assert!(
        shown.contains("here eth2: no carrier")
            && shown.lines().last().unwrap().starts_with("1 link,"),
        "{shown}"
    );
    // The first contact to that address needs the cable that is cut.
    hosts.lab.heal(1).unwrap();
    hosts.lab.cut(0).unwrap();
    links(&hosts, &["10.77.1.2"])
        .expect(10)
        .error(&["10.77.1.2"]);
}

fn an_excluded_interface_is_shown_as_left_out() {
    let hosts = Hosts::joined_by(&cables());
    for (excluded, used) in [("eth2", "eth1"), ("eth1", "eth2")] {
        // The first contact may use an excluded interface.
        let survey = survey(&hosts, &["--exclude-link", excluded, "10.77.1.2"]);
        assert_eq!(interfaces(&survey), [used], "{survey:#}");
        assert_eq!(
            why(&survey, "here", excluded),
            "excluded by option",
            "{survey:#}"
        );
    }
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
    put_to_one(&[]);
}

/// Sends a file from two cards to the one of the peer, with these options of `cp`.
fn put_to_one(options: &[&str]) {
    let hosts = against_one(Host::B);
    let bytes = content(48 * MIB);
    hosts.client.write("source", &bytes);
    let report = hosts
        .cp(&[&["--json"], options, &["source", "10.9.0.21:target"]].concat())
        .expect(0)
        .document();
    hosts.server.check("target", &bytes, &report);
    two_links(&report, [("eth2", "eth1"), ("eth3", "eth1")]);
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

fn two_named_cards_share_an_interface_of_the_peer() {
    put_to_one(&["--link", "eth2", "--link", "eth3"]);
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

/// Returns the reason that `nicstripe links` gives for not using an interface. Panics without one.
#[track_caller]
fn why<'a>(survey: &'a Value, side: &str, interface: &str) -> &'a str {
    let mut unused = survey["unused"].as_array().unwrap().iter();
    let found = unused
        .find(|unused| text(unused, "interface") == interface && text(unused, "side") == side);
    text(
        found.unwrap_or_else(|| panic!("{interface} is not unused: {survey:#}")),
        "why",
    )
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
