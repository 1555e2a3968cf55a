//! Tests of host routes: they exist during a copy that needs them, and are removed afterwards.
//! Foreign routes stay unchanged.

use std::{
    fs,
    io::Write,
    path::Path,
    process::ChildStdin,
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Outcome, Process, content,
    kernel_routes::{self, KernelRoute, NICSTRIPE, Watch},
    link, number, tests,
    trial::Test,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::hosts::{Hosts, MIB, Rights, Way};

pub(crate) const TESTS: &[Test] = tests![
    routes_are_there_while_a_copy_runs_and_gone_afterwards,
    routes_of_a_copy_that_is_killed_or_interrupted_go_at_once,
    routes_of_a_copy_killed_with_its_helper_are_listed_and_cleaned,
    a_copy_whose_helper_was_killed_ends_as_it_should,
    routes_come_back_when_their_interface_does,
    what_speaks_to_the_network_cannot_change_routes,
    where_a_strict_filter_needs_a_route_it_is_installed_unasked,
    where_a_needed_route_may_not_be_installed_the_other_cable_carries_all,
    a_route_that_is_not_ours_is_not_replaced,
    without_the_right_to_it_always_is_an_error,
    without_being_asked_no_route_is_installed,
    a_route_is_installed_to_an_address_of_the_peer_alone,
    a_proof_arrives_where_the_address_was_learned_at_another_card,
];

/// Routing protocol number of routes added by `ip route add`.
const BOOT: u8 = 3;

fn hosts() -> Hosts {
    let hosts = Hosts::with_rights_of_the_client(&[LinkSpec::mbit(200); 2]);
    // Foreign route to an address that the copy does not use.
    let decoy = decoy(&hosts);
    hosts.lab.on(Host::A, || kernel_routes::add(decoy)).unwrap();
    hosts
}

fn decoy(hosts: &Hosts) -> KernelRoute {
    KernelRoute {
        destination: [10, 77, 2, 99].into(),
        interface: hosts.lab.interface_index(Host::A, 1),
        protocol: BOOT,
    }
}

/// Returns the expected host routes during a copy over both cables, including a foreign route.
fn with_ours(hosts: &Hosts) -> Vec<KernelRoute> {
    let ours = |link| KernelRoute {
        destination: hosts.lab.address(Host::B, link),
        interface: hosts.lab.interface_index(Host::A, link),
        protocol: NICSTRIPE,
    };
    vec![ours(0), ours(1), decoy(hosts)]
}

fn present(hosts: &Hosts) -> Vec<KernelRoute> {
    hosts.lab.on(Host::A, kernel_routes::host_routes).unwrap()
}

const COPY: [&str; 5] = [
    "--routes",
    "always",
    "--json-stream",
    "-",
    "10.77.1.2:target",
];

/// Copy of a pipe. It cannot end before [`Held::finish`] writes the second half.
struct Held {
    cp: Process,
    pipe: ChildStdin,
}

impl Held {
    /// Starts a copy and waits until data flows.
    fn start(hosts: &Hosts, arguments: &[&str], half: &[u8]) -> Self {
        let (cp, mut pipe) = Process::spawn_open(hosts.cp_command(arguments));
        pipe.write_all(half).unwrap();
        cp.await_bytes(MIB as u64);
        Self { cp, pipe }
    }

    fn finish(mut self, half: &[u8]) -> Outcome {
        self.pipe.write_all(half).unwrap();
        drop(self.pipe);
        self.cp.finish()
    }
}

fn routes_are_there_while_a_copy_runs_and_gone_afterwards() {
    let hosts = hosts();
    let bytes = content(16 * MIB);
    let (first, second) = bytes.split_at(8 * MIB);
    let copy = Held::start(&hosts, &COPY, first);
    assert_eq!(present(&hosts), with_ours(&hosts));
    let listed = hosts.client.run(["routes", "list"]).expect(0).stdout;
    let owner = format!("in use by process {}", helper_of(&copy.cp).unwrap());
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(
        lines,
        [
            format!("10.77.1.2/32 dev eth1  {owner}"),
            format!("10.77.2.2/32 dev eth2  {owner}")
        ]
    );
    // Cleaning preserves routes in use.
    hosts.client.run(["routes", "clean"]).expect(0);
    assert_eq!(present(&hosts), with_ours(&hosts));

    let report = copy.finish(second).expect(0).document();
    assert_eq!(number(&report, "routes_installed"), 2);
    Way::Put.check(&hosts, &bytes, &report);
    assert_eq!(present(&hosts), [decoy(&hosts)]);
}

/// Returns the process ID of the route helper that a process started; `None` without a helper.
pub(crate) fn helper_of(user: &Process) -> Option<u32> {
    let numbers = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
    let is_helper = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Format: "pid (name) state parent …". The kernel truncates names to 15 bytes.
        let parent = stat
            .split_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        stat.contains("(nicstripe-route") && parent == Some(user.id())
    };
    numbers.into_iter().find(is_helper)
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// Starts a copy and waits until data flows. Panics unless the copy's routes are installed by then.
fn started(hosts: &Hosts) -> Held {
    let copy = Held::start(hosts, &COPY, &content(8 * MIB));
    assert_eq!(present(hosts), with_ours(hosts));
    copy
}

fn routes_of_a_copy_that_is_killed_or_interrupted_go_at_once() {
    for (signal, code) in [(Signal::KILL, None), (Signal::INT, Some(130))] {
        let hosts = hosts();
        let copy = started(&hosts);
        copy.cp.signal(signal);
        // `finish` returns once standard error is closed, by the process and by its helper.
        assert_eq!(copy.cp.finish().status.code(), code);
        assert_eq!(present(&hosts), [decoy(&hosts)]);
    }
}

fn a_copy_whose_helper_was_killed_ends_as_it_should() {
    let hosts = hosts();
    let copy = started(&hosts);
    kill(helper_of(&copy.cp).unwrap());
    copy.finish(&content(MIB)).expect(0);
    // The routes have no owner, and the next start removes them.
    hosts.client.run(["routes", "clean"]).expect(0);
    assert_eq!(present(&hosts), [decoy(&hosts)]);
}

fn routes_come_back_when_their_interface_does() {
    let hosts = hosts();
    let copy = started(&hosts);
    let eth2 = hosts.lab.interface_index(Host::A, 1);
    hosts
        .lab
        .on(Host::A, || kernel_routes::switch(eth2, false))
        .unwrap();
    assert_eq!(
        present(&hosts),
        with_ours(&hosts)[..1],
        "the kernel drops them, the decoy as well"
    );
    hosts
        .lab
        .on(Host::A, || kernel_routes::switch(eth2, true))
        .unwrap();
    let begun = Instant::now();
    while present(&hosts) != with_ours(&hosts)[..2] {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            present(&hosts)
        );
        thread::sleep(Duration::from_millis(5));
    }
    copy.finish(&content(MIB)).expect(0);
    assert_eq!(present(&hosts), []);
}

fn what_speaks_to_the_network_cannot_change_routes() {
    let hosts = hosts();
    let copy = started(&hosts);
    let threads = fs::read_dir(format!("/proc/{}/task", copy.cp.id())).unwrap();
    let rights: Vec<u64> = threads
        .map(|thread| effective_rights(&thread.unwrap().path()))
        .collect();
    assert!(
        rights.len() > 1 && rights.iter().all(|rights| rights & NET_ADMIN == 0),
        "{rights:x?}"
    );
    let helper = effective_rights(Path::new(&format!(
        "/proc/{}",
        helper_of(&copy.cp).unwrap()
    )));
    assert_eq!(helper, NET_ADMIN);
    copy.finish(&content(MIB)).expect(0);
}

fn effective_rights(process: &Path) -> u64 {
    let status = fs::read_to_string(process.join("status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

const NET_ADMIN: u64 = 1 << 12;

/// Makes host A route to 10.77.2.2 over the first cable and drop packets from that address on the
/// second cable (strict reverse-path filtering).
fn make_strict(hosts: &Hosts) {
    let astray = KernelRoute {
        destination: hosts.lab.address(Host::B, 1),
        interface: hosts.lab.interface_index(Host::A, 0),
        protocol: BOOT,
    };
    let prepare = || {
        kernel_routes::add_prefix(astray, 31);
        fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").unwrap();
    };
    hosts.lab.on(Host::A, prepare).unwrap();
}

fn where_a_strict_filter_needs_a_route_it_is_installed_unasked() {
    let hosts = hosts();
    make_strict(&hosts);
    let bytes = content(32 * MIB);
    let (first, second) = bytes.split_at(8 * MIB);
    let copy = Held::start(&hosts, &["--json-stream", "-", "10.77.1.2:target"], first);
    // The first cable needs no route.
    let ours = KernelRoute {
        destination: hosts.lab.address(Host::B, 1),
        interface: hosts.lab.interface_index(Host::A, 1),
        protocol: NICSTRIPE,
    };
    assert_eq!(present(&hosts), [ours, decoy(&hosts)]);
    let report = copy.finish(second).expect(0).document();
    assert_eq!(number(&report, "routes_installed"), 1);
    for interface in ["eth1", "eth2"] {
        assert!(
            number(link(&report, interface), "bytes") > (8 * MIB) as u64,
            "{report:#}"
        );
    }
    assert_eq!(present(&hosts), [decoy(&hosts)]);
}

fn where_a_needed_route_may_not_be_installed_the_other_cable_carries_all() {
    for (rights, policy) in [(Rights::All, "never"), (Rights::None, "auto")] {
        // The second cable's link-local address would need no route.
        let lab = Lab::builder()
            .links([LinkSpec::mbit(200); 2])
            .without_ipv6();
        let hosts = Hosts::in_lab(lab.build().unwrap(), rights, Rights::None);
        make_strict(&hosts);
        let bytes = content(8 * MIB);
        Way::Put.prepare(&hosts, &bytes);
        let report = hosts
            .cp(&["--routes", policy, "--json", "source", "10.77.1.2:target"])
            .expect(0)
            .document();
        Way::Put.check(&hosts, &bytes, &report);
        assert_eq!(
            (
                number(&report, "routes_installed"),
                number(link(&report, "eth1"), "bytes")
            ),
            (0, bytes.len() as u64),
            "{report:#}"
        );
    }
}

fn routes_of_a_copy_killed_with_its_helper_are_listed_and_cleaned() {
    let hosts = hosts();
    let copy = started(&hosts);
    kill(helper_of(&copy.cp).unwrap());
    copy.cp.kill();
    assert_eq!(present(&hosts), with_ours(&hosts));
    let listed = hosts.client.run(["routes", "list"]).expect(0).stdout;
    assert_eq!(
        listed.matches("stale, its process has ended").count(),
        2,
        "{listed}"
    );
    let cleaned = hosts.client.run(["routes", "clean"]).expect(0).stdout;
    assert_eq!(
        cleaned.lines().collect::<Vec<_>>(),
        [
            "removed 10.77.1.2/32 dev eth1",
            "removed 10.77.2.2/32 dev eth2"
        ]
    );
    assert_eq!(present(&hosts), [decoy(&hosts)]);
}

fn a_route_that_is_not_ours_is_not_replaced() {
    let hosts = hosts();
    let theirs = KernelRoute {
        destination: [10, 77, 2, 2].into(),
        ..decoy(&hosts)
    };
    hosts
        .lab
        .on(Host::A, || kernel_routes::add(theirs))
        .unwrap();
    let outcome = hosts.cp(&COPY);
    assert!(!outcome.status.success(), "{outcome}");
    outcome.error(&["10.77.2.2"]);
    assert_eq!(present(&hosts), [theirs, decoy(&hosts)]);
}

fn without_the_right_to_it_always_is_an_error() {
    let hosts = Hosts::joined_by(&[LinkSpec::mbit(200); 2]);
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
        let cp = hosts.start_cp(&[
            "-f",
            "--routes",
            policy,
            "--json-stream",
            "source",
            "10.77.1.2:target",
        ]);
        cp.await_bytes(MIB as u64);
        assert_eq!(present(&hosts), [decoy(&hosts)], "{policy}");
        let report = cp.finish().expect(0).document();
        assert_eq!(number(&report, "routes_installed"), 0, "{policy}");
    }
}

/// Runs a copy in which the peer of `holder` claims 10.9.0.99 at eth2, while `holder` routes to
/// that address through eth1. The peer's eth1 also answers for the address if `is_its_own` is set;
/// otherwise the address could belong to a third party. Returns the routes that nicstripe added on
/// `holder`, and the report.
fn claimed(holder: Host, is_its_own: bool) -> (Vec<KernelRoute>, Value) {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(200).bare(); 2])
        .without_ipv6();
    let lab = lab.sysctl(holder, "net/ipv4/conf/all/rp_filter", "1");
    let claimant = holder.peer();
    let lab = if is_its_own {
        lab
    } else {
        lab.sysctl(claimant, "net/ipv4/conf/all/arp_ignore", "1")
    };
    let lab = lab.build().unwrap();
    for (host, link, address) in [
        (holder, 0, "10.9.0.21/24"),
        (holder, 1, "10.9.0.22/24"),
        (claimant, 0, "10.9.0.11/24"),
    ] {
        lab.add_address(host, link, address).unwrap();
    }
    lab.add_address(claimant, 1, "10.9.0.99/24").unwrap();
    let rights = |host| {
        if host == holder {
            Rights::All
        } else {
            Rights::None
        }
    };
    let hosts = Hosts::in_lab(lab, rights(Host::A), rights(Host::B));
    hosts.client.write("source", content(48 * MIB));
    let address = if holder == Host::B {
        "10.9.0.21"
    } else {
        "10.9.0.11"
    };
    let watch = hosts.lab.on(holder, Watch::begin).unwrap();
    let report = hosts
        .cp(&["--json", "source", &format!("{address}:target")])
        .expect(0)
        .document();
    (
        watch
            .added()
            .into_iter()
            .filter(|route| route.protocol == NICSTRIPE)
            .collect(),
        report,
    )
}

fn a_route_is_installed_to_an_address_of_the_peer_alone() {
    for holder in Host::ALL {
        for is_its_own in [false, true] {
            let (routes, report) = claimed(holder, is_its_own);
            let has_routes = !routes.is_empty();
            assert_eq!(has_routes, is_its_own, "{holder:?}: {routes:?}: {report:#}");
        }
    }
}

/// Checks that a copy uses the second cable despite an ARP entry for the peer's second address on
/// the first interface. The kernel learns such entries from ARP requests. A host with several
/// interfaces in one subnet may send ARP requests from any of them. Strict reverse-path filtering
/// drops packets to the wrong interface until the entry expires after 8 s.
fn a_proof_arrives_where_the_address_was_learned_at_another_card() {
    for holder in Host::ALL {
        let lab = Lab::builder()
            .links([LinkSpec::mbit(200); 2])
            .one_subnet()
            .without_ipv6();
        let lab = Host::ALL.into_iter().fold(lab, |lab, host| {
            lab.sysctl(host, "net/ipv4/conf/all/rp_filter", "1")
        });
        let hosts = Hosts::in_lab(lab.build().unwrap(), Rights::All, Rights::All);
        let (lab, peer) = (&hosts.lab, holder.peer());
        let other = lab
            .on(peer, || {
                kernel_routes::hardware(lab.interface_index(peer, 1))
            })
            .unwrap();
        lab.on(holder, || {
            kernel_routes::learn(lab.address(peer, 1), lab.interface_index(holder, 0), &other);
        })
        .unwrap();
        hosts.client.write("source", content(64 * MIB));
        let report = hosts
            .cp(&["--json", "source", "10.9.0.21:target"])
            .expect(0)
            .document();
        assert!(
            number(link(&report, "eth2"), "bytes") > (16 * MIB) as u64,
            "{holder:?}: {report:#}"
        );
    }
}
