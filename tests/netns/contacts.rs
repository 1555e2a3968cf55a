//! Tests of the first connection if the kernel routes it through an interface that cannot reach the
//! peer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_lab::{Direction, Host, Lab, LinkSpec, Transport};
use nicstripe_testkit::{Daemon, content, tests, trial::Test};

use crate::hosts::{Hosts, MIB, Rights, acquainted, ip, prohibit};

pub(crate) const TESTS: &[Test] = tests![
    with_our_own_first_cable_unplugged_or_silent_the_second_reaches_the_peer,
    with_the_cable_of_the_named_address_unplugged_a_remembered_one_is_met,
    of_several_addresses_a_silent_one_costs_a_second,
];

/// Tests that change routes and rules with `ip`.
pub(crate) const TESTS_WITH_IP: &[Test] = tests![
    routes_and_rules_that_lead_elsewhere_do_not_hide_the_interface_in_the_subnet,
    an_address_that_no_interface_shares_fails_at_once_and_says_why,
    a_filter_on_the_way_is_told_apart_from_silence,
    what_stands_against_a_second_cable_is_told_apart,
    an_address_of_both_machines_is_named_as_the_reason,
];

/// Maximum time until the first data of a copy. The connection timeout is longer than this, because
/// a host may have to wake up.
const SOON: Duration = Duration::from_secs(4);

/// Returns a lab with two interfaces per host at one switch. All are in one IPv4 subnet.
fn switch() -> Lab {
    Lab::builder()
        .links([LinkSpec::mbit(200); 2])
        .one_subnet()
        .without_ipv6()
        .build()
        .unwrap()
}

/// Copies a file to `target`. Panics if the first data takes [`SOON`] or longer.
fn copies(hosts: &Hosts, target: &str) {
    let begun = Instant::now();
    let cp = hosts.start_cp(&["--json-stream", "-f", "source", target]);
    cp.await_bytes(1);
    let taken = begun.elapsed();
    assert!(taken < SOON, "it took {taken:?}");
    println!("{target}: data after {taken:.2?}");
    let report = cp.finish().expect(0).document();
    hosts.server.check("target", &content(16 * MIB), &report);
}

fn with_our_own_first_cable_unplugged_or_silent_the_second_reaches_the_peer() {
    let unplugged: fn(&Lab) = |lab| lab.set_plugged_at(Host::A, 0, false).unwrap();
    // No packets arrive at the local eth1.
    let silent: fn(&Lab) = |lab| lab.drop_silently(0, Direction::BToA).unwrap();
    for (spoil, target) in [
        (unplugged, "10.9.0.21:target"),
        (silent, "10.9.0.22:target"),
    ] {
        let hosts = Hosts::in_lab(switch(), Rights::None, Rights::None);
        hosts.client.write("source", content(16 * MIB));
        spoil(&hosts.lab);
        copies(&hosts, target);
    }
}

fn with_the_cable_of_the_named_address_unplugged_a_remembered_one_is_met() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(200); 2])
        .one_subnet()
        .without_ipv6();
    // Each interface answers ARP only for its own address.
    let lab = lab
        .sysctl(Host::B, "net/ipv4/conf/all/arp_ignore", "1")
        .build()
        .unwrap();
    let hosts = Hosts::in_lab(lab, Rights::None, Rights::None);
    hosts.client.write("source", content(16 * MIB));
    ["10.9.0.22:target", "10.9.0.21:target"]
        .iter()
        .for_each(|target| copies(&hosts, target));
    hosts.lab.set_plugged_at(Host::B, 0, false).unwrap();
    copies(&hosts, "b:target");
}

fn of_several_addresses_a_silent_one_costs_a_second() {
    let lab = Arc::new(
        Lab::builder()
            .links([LinkSpec::mbit(200); 2])
            .build()
            .unwrap(),
    );
    let (client, server) = acquainted(&lab);
    client.write("source", content(16 * MIB));
    let daemon = Daemon::start(&server, &[]);
    // The peer answers discovery on that cable, but TCP connections over it fail.
    lab.block(0, Direction::AToB, Transport::Tcp, daemon.port)
        .unwrap();
    copies(
        &Hosts {
            lab,
            client,
            server,
            daemon,
        },
        "b:target",
    );
}

/// Returns hosts that are joined by two cables, with a source file, after `ip` changed the
/// client's host.
fn changed_by(changes: &[&str]) -> Hosts {
    let lab = Lab::builder().links([LinkSpec::mbit(200); 2]);
    let hosts = Hosts::in_lab(lab.build().unwrap(), Rights::None, Rights::None);
    changes
        .iter()
        .for_each(|change| ip(&hosts.lab, Host::A, change));
    hosts.client.write("source", content(16 * MIB));
    hosts
}

fn routes_and_rules_that_lead_elsewhere_do_not_hide_the_interface_in_the_subnet() {
    let none = [
        "address change 10.77.1.1/24 dev eth1 noprefixroute",
        "address change 10.77.2.1/24 dev eth2 noprefixroute",
        "route flush table main",
    ];
    let default = [
        "address change 10.77.1.1/24 dev eth1 noprefixroute",
        "route del 10.77.1.0/24",
        "route add default via 10.77.2.99",
    ];
    let first = &["10.77.1.2:target"][..];
    for (changes, targets) in [
        (
            &none[..],
            &["10.77.1.2:target", "10.77.2.2:target", "b:target"][..],
        ),
        (&default, first),
        // What is not bound to an interface is rejected.
        (&["rule add pref 50 to 10.77.0.0/16 unreachable"], first),
        (&["rule add pref 50 to 10.77.0.0/16 prohibit"], first),
        (&["rule add pref 50 to 10.77.0.0/16 blackhole"], first),
    ] {
        let hosts = changed_by(changes);
        targets.iter().for_each(|target| copies(&hosts, target));
    }
}

fn an_address_that_no_interface_shares_fails_at_once_and_says_why() {
    let hosts = changed_by(&[]);
    let begun = Instant::now();
    hosts.cp(&["source", "192.0.2.9:"]).expect(10).error(&[
        "cannot connect to 192.0.2.9:",
        "Network is unreachable (os error 101), and no usable interface has an address in its subnet",
    ]).hint(&["ip route get 192.0.2.9"]);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// A daemon that listens on one card only, filters at either end, and silence: `links` says which.
fn what_stands_against_a_second_cable_is_told_apart() {
    let lab = || {
        Lab::builder()
            .links([LinkSpec::mbit(200); 2])
            .without_ipv6()
    };
    let reason = |hosts: &Hosts| {
        let port = hosts.daemon.port.to_string();
        let outcome = hosts.client.run(["links", "-P", &port, "10.77.1.2"]);
        let outcome = outcome.expect(0);
        let line = outcome
            .stdout
            .lines()
            .find(|line| line.contains(" here eth2: "));
        line.unwrap_or_else(|| panic!("{outcome}"))
            .trim()
            .to_owned()
    };
    let hosts = Hosts::serving_with(lab().build().unwrap(), &["--interface", "eth1"]);
    assert_eq!(
        reason(&hosts),
        "here eth2: refused: no daemon listens on the peer's eth2"
    );
    let filtered = |host, rule: &str| {
        let hosts = Hosts::in_lab(lab().build().unwrap(), Rights::None, Rights::None);
        hosts
            .lab
            .set_sysctl(Host::B, "net/ipv4/conf/all/forwarding", "1")
            .unwrap();
        for change in ["rule add pref 100 lookup local", "rule del pref 0", rule] {
            ip(&hosts.lab, host, change);
        }
        reason(&hosts)
    };
    assert_eq!(
        filtered(Host::B, "rule add pref 50 iif eth2 ipproto tcp prohibit"),
        "here eth2: rejected by a filter of the peer or on the way"
    );
    let hosts = Hosts::in_lab(lab().build().unwrap(), Rights::None, Rights::None);
    hosts.lab.drop_silently(1, Direction::AToB).unwrap();
    assert_eq!(reason(&hosts), "here eth2: no answer");
}

/// Both cards of a cable have one MAC address, as those of copied virtual machines.
fn an_address_of_both_machines_is_named_as_the_reason() {
    let lab = Lab::builder().links([LinkSpec::mbit(200).bare(); 2]);
    let hosts = Hosts::in_lab(lab.build().unwrap(), Rights::None, Rights::None);
    let name = "net/ipv6/conf/eth2/accept_dad";
    // The second one to come up finds the address in use.
    for host in [Host::B, Host::A] {
        ip(&hosts.lab, host, "link set eth2 down");
        ip(&hosts.lab, host, "link set eth2 address 02:00:5e:00:00:07");
        hosts.lab.set_sysctl(host, name, "1").unwrap();
        ip(&hosts.lab, host, "link set eth2 up");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4)
            && hosts.lab.link_local(host, 1).unwrap().is_none()
        {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let begun = Instant::now();
    let port = hosts.daemon.port.to_string();
    let mut found = false;
    while !found {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "no duplicate is told"
        );
        let outcome = hosts.client.run(["links", "-P", &port, "b"]).expect(0);
        found = outcome.stdout.contains(
            "here eth2: no address: another machine on its cable has fe80::5eff:fe00:7 too; give one of both another MAC address",
        );
    }
    let outcome = hosts.client.run(["doctor"]);
    assert!(outcome.stdout.contains("rule 47"), "{outcome}");
}

/// The peer's kernel rejects connections by ICMP, as a firewall with a `reject` rule does.
fn a_filter_on_the_way_is_told_apart_from_silence() {
    let hosts = changed_by(&[]);
    prohibit(&hosts.lab, &["iif eth1 ipproto tcp"]);
    let link_local = hosts.lab.link_local(Host::B, 0).unwrap().unwrap();
    for host in ["10.77.1.2".to_owned(), format!("[{link_local}%eth1]")] {
        let begun = Instant::now();
        let outcome = hosts.cp(&["source", &format!("{host}:")]).expect(10);
        let outcome = outcome.error(&[" rejects it (ICMP: administratively prohibited)"]);
        outcome.hint(&[
            "allow TCP port",
            "in the firewall of the machine that rejects it",
        ]);
        assert!(begun.elapsed() < SOON, "{host}: {:?}", begun.elapsed());
    }
}
