//! Tests of addresses that a peer must not claim. A real daemon offers addresses of its host in a
//! real session. The client has the right to change routes and is configured to install one per
//! link.

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    kernel_routes::{self, KernelRoute, Watch},
    tests,
    trial::Test,
};

use crate::hosts::{Hosts, Rights};

pub(crate) const TESTS: &[Test] = tests![no_route_goes_to_an_address_that_is_not_a_neighbours];

fn no_route_goes_to_an_address_that_is_not_a_neighbours() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(200); 2])
        .without_ipv6()
        .build()
        .unwrap();
    let hosts = Hosts::in_lab(lab, Rights::All, Rights::None);
    hosts.client.write("source", b"bytes");
    let [eth1, eth2] = [0, 1].map(|link| hosts.lab.interface_index(Host::A, link));
    hosts
        .lab
        .remove_address(Host::B, 1, "10.77.2.2/24")
        .unwrap();
    hosts.lab.add_address(Host::A, 1, "10.88.0.1/16").unwrap();
    let prepare = || {
        kernel_routes::add_gateway([0, 0, 0, 0].into(), 0, [10, 77, 2, 254].into());
        kernel_routes::add_gateway([10, 200, 0, 0].into(), 16, [10, 77, 2, 253].into());
        kernel_routes::add_gateway([10, 201, 0, 7].into(), 32, [10, 88, 0, 252].into());
        kernel_routes::add(KernelRoute {
            destination: [10, 77, 2, 77].into(),
            interface: eth1,
            protocol: 186,
        });
        kernel_routes::add(KernelRoute {
            destination: [10, 88, 0, 77].into(),
            interface: eth2,
            protocol: 16,
        });
        (Watch::begin(), kernel_routes::tables())
    };
    let (watch, before) = hosts.lab.on(Host::A, prepare).unwrap();

    let ours = |address: &str, interface| KernelRoute {
        destination: address.parse().unwrap(),
        interface,
        protocol: 83,
    };
    for (offer, refusal) in OFFERS {
        let outcome = offered(&hosts, offer);
        let added: Vec<KernelRoute> = watch
            .added()
            .into_iter()
            .filter(|route| route.protocol == 83)
            .collect();
        assert!(
            added.iter().all(|route| *route == ours("10.77.1.2", eth1)),
            "{offer}: {added:?}\n{outcome}"
        );
        match (offer.split_once('/'), refusal) {
            (Some((address, _)), Some(why)) => {
                drop(outcome.expect(10).error(&["eth2", address, why]));
            }
            // The copy works without that cable.
            _ => drop(outcome.expect(0)),
        }
        assert_eq!(
            hosts.lab.on(Host::A, kernel_routes::tables).unwrap(),
            before,
            "{offer}"
        );
    }
    // A legitimate address is the control: it shows that the rejections had no other cause.
    offered(&hosts, "10.77.2.9/24").expect(0);
    assert!(watch.added().contains(&ours("10.77.2.9", eth2)));
}

/// Runs a copy while the daemon's host has only `address` on the second cable.
fn offered(hosts: &Hosts, address: &str) -> nicstripe_testkit::Outcome {
    hosts
        .lab
        .add_address(Host::B, 1, address)
        .unwrap_or_else(|error| panic!("{address}: {error:?}"));
    let outcome = hosts.cp(&["-f", "--routes", "always", "source", "10.77.1.2:target"]);
    hosts.lab.remove_address(Host::B, 1, address).unwrap();
    outcome
}

/// Addresses that a hostile host can offer, and the reason why the client's route helper rejects
/// each; `None` if the client rejects the address without a request to the helper.
const OFFERS: [(&str, Option<&str>); 21] = [
    // Gateways: of the default route, of a network, of a single host.
    ("10.77.2.254/24", Some("gateway")),
    ("10.77.2.253/24", Some("gateway")),
    ("10.88.0.252/16", Some("gateway")),
    // The client's own addresses.
    ("10.77.2.1/24", None),
    ("10.88.0.1/16", None),
    // First and last addresses of the client's networks.
    ("10.77.2.0/24", Some("network or broadcast")),
    ("10.77.2.255/24", Some("network or broadcast")),
    ("10.88.0.0/16", Some("network or broadcast")),
    ("10.88.255.255/16", Some("network or broadcast")),
    ("10.77.1.255/24", None),
    // Multicast, broadcast, reserved, loopback, unspecified.
    ("224.0.0.5/24", None),
    ("239.255.255.250/8", None),
    ("240.0.0.1/8", None),
    ("127.0.0.53/8", None),
    ("0.1.2.3/8", None),
    // Not on that cable: on the other cable, or public.
    ("10.77.1.9/24", None),
    ("10.99.0.1/24", None),
    ("8.8.8.8/24", None),
    ("192.0.2.1/24", None),
    // Another routing protocol has installed routes to these addresses.
    ("10.77.2.77/24", Some("foreign route (protocol bgp)")),
    ("10.88.0.77/16", Some("foreign route (protocol dhcp)")),
];
