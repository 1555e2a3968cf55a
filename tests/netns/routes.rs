//! Host routes: there while a copy runs that wants them, gone afterwards, and those of others never touched.

use nicstripe_lab::{Host, LinkSpec};

use crate::{
    harness::{content, number},
    hosts::{Hosts, MIB, Way},
    kernel_routes::{self, KernelRoute},
};

pub(crate) const TESTS: &[(&str, fn())] = tests![
    routes_are_there_while_a_copy_runs_and_gone_afterwards,
    routes_of_a_killed_copy_are_listed_and_cleaned,
    routes_of_a_killed_copy_go_at_the_next_start,
    an_interrupted_copy_leaves_no_route,
    a_route_that_is_not_ours_is_not_replaced,
    without_the_right_to_it_always_is_an_error,
    without_being_asked_no_route_is_installed,
];

/// The number that marks routes of nicstripe.
const OURS: u8 = 83;
/// What `ip route add` marks its routes with.
const BOOT: u8 = 3;

fn hosts() -> Hosts {
    let hosts = Hosts::with_rights_of_the_client(&[LinkSpec::mbit(200); 2]);
    // Somebody else's, to an address that the copy does not use.
    let decoy = decoy(&hosts);
    hosts.lab.on(Host::A, || kernel_routes::add(decoy)).unwrap();
    hosts
}

fn decoy(hosts: &Hosts) -> KernelRoute {
    KernelRoute { destination: [10, 77, 2, 99].into(), interface: hosts.lab.interface_index(Host::A, 1), protocol: BOOT }
}

/// The routes that a copy over both cables wants, and the decoy.
fn with_ours(hosts: &Hosts) -> Vec<KernelRoute> {
    let ours = |link| KernelRoute {
        destination: hosts.lab.address(Host::B, link),
        interface: hosts.lab.interface_index(Host::A, link),
        protocol: OURS,
    };
    vec![ours(0), ours(1), decoy(hosts)]
}

fn present(hosts: &Hosts) -> Vec<KernelRoute> {
    hosts.lab.on(Host::A, kernel_routes::host_routes).unwrap()
}

const COPY: [&str; 5] = ["--routes", "always", "--json-stream", "source", "10.77.1.2:target"];

fn routes_are_there_while_a_copy_runs_and_gone_afterwards() {
    let hosts = hosts();
    let bytes = content(32 * MIB);
    Way::Put.prepare(&hosts, &bytes);
    let cp = hosts.start_cp(&COPY);
    cp.await_bytes(MIB as u64);
    assert_eq!(present(&hosts), with_ours(&hosts));
    let listed = hosts.client.run(["routes", "list"]).expect(0).stdout;
    let owner = format!("in use by process {}", cp.id());
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines, [format!("10.77.1.2/32 dev eth1  {owner}"), format!("10.77.2.2/32 dev eth2  {owner}")]);
    // Those in use stay.
    hosts.client.run(["routes", "clean"]).expect(0);
    assert_eq!(present(&hosts), with_ours(&hosts));

    let report = cp.finish().expect(0).document();
    assert_eq!(number(&report, "routes_installed"), 2);
    Way::Put.check(&hosts, &bytes, &report);
    assert_eq!(present(&hosts), [decoy(&hosts)]);
}

fn killed(hosts: &Hosts) {
    Way::Put.prepare(hosts, &content(32 * MIB));
    let cp = hosts.start_cp(&COPY);
    cp.await_bytes(MIB as u64);
    cp.kill();
    assert_eq!(present(hosts), with_ours(hosts));
}

fn routes_of_a_killed_copy_are_listed_and_cleaned() {
    let hosts = hosts();
    killed(&hosts);
    let listed = hosts.client.run(["routes", "list"]).expect(0).stdout;
    assert_eq!(listed.matches("left over").count(), 2, "{listed}");
    let cleaned = hosts.client.run(["routes", "clean"]).expect(0).stdout;
    assert_eq!(cleaned.lines().collect::<Vec<_>>(), ["removed 10.77.1.2/32 dev eth1", "removed 10.77.2.2/32 dev eth2"]);
    assert_eq!(present(&hosts), [decoy(&hosts)]);
}

fn routes_of_a_killed_copy_go_at_the_next_start() {
    let hosts = hosts();
    killed(&hosts);
    // One that installs none itself.
    hosts.cp(&["source", "10.77.1.2:target"]).expect(0);
    assert_eq!(present(&hosts), [decoy(&hosts)]);
}

fn an_interrupted_copy_leaves_no_route() {
    let hosts = hosts();
    Way::Put.prepare(&hosts, &content(32 * MIB));
    let cp = hosts.start_cp(&COPY);
    cp.await_bytes(MIB as u64);
    cp.signal(rustix::process::Signal::INT);
    cp.finish().expect(130);
    assert_eq!(present(&hosts), [decoy(&hosts)]);
}

fn a_route_that_is_not_ours_is_not_replaced() {
    let hosts = hosts();
    hosts.client.write("source", b"bytes");
    let theirs = KernelRoute { destination: [10, 77, 2, 2].into(), ..decoy(&hosts) };
    hosts.lab.on(Host::A, || kernel_routes::add(theirs)).unwrap();
    let outcome = hosts.cp(&COPY);
    assert!(!outcome.status.success(), "{outcome}");
    outcome.error(&["10.77.2.2"]);
    assert_eq!(present(&hosts), [theirs, decoy(&hosts)]);
}

fn without_the_right_to_it_always_is_an_error() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
    hosts.client.write("source", b"bytes");
    let outcome = hosts.cp(&COPY);
    assert!(!outcome.status.success(), "{outcome}");
    outcome.error(&["route", "CAP_NET_ADMIN"]);
    assert!(!hosts.server.has("target") && present(&hosts).is_empty());
}

fn without_being_asked_no_route_is_installed() {
    let hosts = hosts();
    let bytes = content(16 * MIB);
    Way::Put.prepare(&hosts, &bytes);
    for policy in ["auto", "never"] {
        let cp = hosts.start_cp(&["-f", "--routes", policy, "--json-stream", "source", "10.77.1.2:target"]);
        cp.await_bytes(MIB as u64);
        assert_eq!(present(&hosts), [decoy(&hosts)], "{policy}");
        let report = cp.finish().expect(0).document();
        assert_eq!(number(&report, "routes_installed"), 0, "{policy}");
    }
}
