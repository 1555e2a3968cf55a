//! Tests of the first connection if the kernel routes it through an interface that cannot reach the
//! peer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_lab::{Direction, Host, Lab, LinkSpec, Transport};
use nicstripe_testkit::{Daemon, content, tests, trial::Test};

use crate::hosts::{Hosts, MIB, Rights, introduce, side};

pub(crate) const TESTS: &[Test] = tests![
    with_our_own_first_cable_unplugged_the_second_reaches_the_peer,
    with_our_own_first_cable_silent_the_second_reaches_the_peer,
    with_the_cable_of_the_named_address_unplugged_a_remembered_one_is_met,
    of_several_addresses_a_silent_one_costs_a_second,
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

fn with_our_own_first_cable_unplugged_the_second_reaches_the_peer() {
    let hosts = Hosts::in_lab(switch(), Rights::None, Rights::None);
    hosts.client.write("source", content(16 * MIB));
    hosts.lab.set_plugged_at(Host::A, 0, false).unwrap();
    copies(&hosts, "10.9.0.21:target");
}

fn with_our_own_first_cable_silent_the_second_reaches_the_peer() {
    let hosts = Hosts::in_lab(switch(), Rights::None, Rights::None);
    hosts.client.write("source", content(16 * MIB));
    // No packets arrive at the local eth1.
    hosts.lab.drop_silently(0, Direction::BToA).unwrap();
    copies(&hosts, "10.9.0.22:target");
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
    let (client, server) = (
        side(&lab, Host::A, Rights::None),
        side(&lab, Host::B, Rights::None),
    );
    introduce(&client, &server);
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
