//! Tests of automatic link setup: hosts in one subnet, interfaces without addresses, cables that
//! are added later, and dropped packets.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Outcome, StandIns, content,
    kernel_routes::{self, KernelRoute},
    link, number, tests, text,
    trial::Test,
};
use serde_json::Value;

use crate::hosts::{Hosts, MIB, Rights, ip};

pub(crate) const TESTS: &[Test] = tests![
    one_subnet_on_a_switch_uses_both_cables_by_link_local,
    without_ipv6_the_flux_is_told_and_its_remedy_makes_both_cables_work,
    a_strict_reverse_path_filter_is_met_with_routes_that_go_afterwards,
    packets_that_vanish_cost_a_second_and_are_told,
    a_cable_that_is_plugged_in_joins_the_running_copy,
    links_shows_the_plan_and_changes_nothing,
];

pub(crate) const TESTS_WITH_IP: &[Test] = tests![no_claimed_name_reaches_a_shell_by_a_hint];

const RATE: u64 = 200;

fn in_one_subnet() -> nicstripe_lab::LabBuilder {
    Lab::builder().links([LinkSpec::mbit(RATE); 2]).one_subnet()
}

/// Copies a file in each direction. Returns the JSON reports of both copies.
fn both_ways(hosts: &Hosts, address: &str, bytes: &[u8]) -> [Value; 2] {
    hosts.client.write("there", bytes);
    hosts.server.write("back", bytes);
    let put = hosts
        .cp(&["--json", "there", &format!("{address}:")])
        .expect(0)
        .document();
    hosts.server.check("there", bytes, &put);
    let get = hosts
        .cp(&["--json", &format!("{address}:back"), "."])
        .expect(0)
        .document();
    hosts.client.check("back", bytes, &get);
    std::fs::remove_file(hosts.server.path("there")).unwrap();
    std::fs::remove_file(hosts.client.path("back")).unwrap();
    [put, get]
}

/// Panics unless the link on each interface is up, verified and joined to the peer's interface of
/// the same name, and carried at least half of an equal share. On a busy machine the links take
/// turns for the processors; `benches/throughput` measures the exact shares.
#[track_caller]
fn shared(report: &Value, interfaces: &[&str]) {
    let size = number(report, "bytes") as f64;
    for interface in interfaces {
        let link = link(report, interface);
        assert_eq!(
            (text(link, "state"), &link["verified"]),
            ("up", &Value::Bool(true)),
            "{report:#}"
        );
        assert_eq!(text(link, "peer_interface"), *interface, "{report:#}");
        let part = number(link, "bytes") as f64 / size * interfaces.len() as f64;
        assert!(
            part >= 0.5,
            "{interface} carried {part} of its share: {report:#}"
        );
    }
}

fn one_subnet_on_a_switch_uses_both_cables_by_link_local() {
    let hosts = Hosts::in_lab(in_one_subnet().build().unwrap(), Rights::None, Rights::None);
    let bytes = content(64 * MIB);
    let (reports, carried) = hosts.carried(|| both_ways(&hosts, "10.9.0.21", &bytes));
    for report in &reports {
        shared(report, &["eth1", "eth2"]);
        for interface in ["eth1", "eth2"] {
            assert!(
                text(link(report, interface), "remote").starts_with("fe80::"),
                "{report:#}"
            );
        }
    }
    // By the counters of both hosts, each cable carried its part of the data in each direction.
    for counters in &carried {
        for host in Host::ALL {
            let part = counters.at(host).sent_bytes as f64 / (bytes.len() as f64 / 2.0);
            assert!(part >= 0.5, "{carried:#?}");
        }
    }
}

fn without_ipv6_the_flux_is_told_and_its_remedy_makes_both_cables_work() {
    let bytes = content(24 * MIB);
    // Several interfaces race to answer an ARP request, so ARP flux does not occur each time.
    let (hosts, outcome) = (0..10)
        .map(|_| {
            let hosts = Hosts::in_lab(
                in_one_subnet().without_ipv6().build().unwrap(),
                Rights::None,
                Rights::None,
            );
            hosts.client.write("source", &bytes);
            let outcome = hosts.cp(&["--json", "source", "10.9.0.21:first"]).expect(0);
            (hosts, outcome)
        })
        .find(|(_, outcome)| outcome.document()["links"].as_array().unwrap().len() < 2)
        .expect("no ARP flux in ten labs");
    let report = outcome.document();
    assert!(
        !report["failed"].as_array().unwrap().is_empty(),
        "{outcome}"
    );
    let told = outcome.labelled("warning:", &["ARP"]);
    assert!(told.contains("was not used"), "{told}");
    let hints: Vec<&str> = outcome
        .stderr
        .lines()
        .filter(|line| line.starts_with("hint: "))
        .collect();
    assert_eq!(hints.len(), 2, "one for each machine: {outcome}");
    let commands = [
        "net.ipv4.conf.eth1.arp_ignore=1",
        "net.ipv4.conf.eth2.arp_announce=2",
        "to undo: sysctl -w net.ipv4.conf.eth1.arp_ignore=0",
    ];
    for (place, hint) in ["on the peer", "here"].iter().zip(&hints) {
        for part in [&[*place], &commands[..]].concat() {
            assert!(hint.contains(part), "{part}: {hint}");
        }
    }

    for host in Host::ALL {
        for interface in ["eth1", "eth2"] {
            hosts
                .lab
                .set_sysctl(host, &format!("net/ipv4/conf/{interface}/arp_ignore"), "1")
                .unwrap();
            hosts
                .lab
                .set_sysctl(
                    host,
                    &format!("net/ipv4/conf/{interface}/arp_announce"),
                    "2",
                )
                .unwrap();
        }
    }
    flush_neighbours(&hosts);
    for report in both_ways(&hosts, "10.9.0.21", &bytes) {
        shared(&report, &["eth1", "eth2"]);
    }
}

/// The peer's second interface has a name that is a command to a shell. What `cp` prints for root
/// has the commands for this machine, and none with that name.
fn no_claimed_name_reaches_a_shell_by_a_hint() {
    let strange = "e';id>P;'";
    // As above, not each lab has ARP flux.
    let copied = (0..10).map(|_| {
        let lab = in_one_subnet().without_ipv6().build().unwrap();
        for change in [
            "eth2 down",
            &format!("eth2 name {strange}"),
            &format!("{strange} up"),
        ] {
            ip(&lab, Host::B, &format!("link set {change}"));
        }
        let hosts = Hosts::in_lab(lab, Rights::None, Rights::None);
        hosts.client.write("source", content(24 * MIB));
        hosts.cp(&["source", "10.9.0.21:target"]).expect(0)
    });
    let copied = { copied }
        .find(|copied| copied.stderr.contains("as root: "))
        .expect("no ARP flux in ten labs");
    let stand_ins = StandIns::of(&["ip", "sysctl", "id"]);
    let hints = copied
        .stderr
        .lines()
        .filter(|line| line.starts_with("hint: "));
    for hint in hints {
        let Some((_, commands)) = hint.split_once(", as root: ") else {
            continue;
        };
        let (run, undo) = commands.split_once("; to undo: ").unwrap();
        for commands in [run, undo] {
            let words = commands
                .split("; ")
                .map(|one| shell_words::split(one).unwrap());
            let mut words: Vec<Vec<String>> = words.collect();
            words.sort();
            assert_eq!(stand_ins.run(commands, &[]), words, "{hint}");
            assert!(!commands.contains('\''), "{hint}");
        }
    }
}

/// Sets all interfaces down and up, to discard ARP entries that the hosts learned earlier.
fn flush_neighbours(hosts: &Hosts) {
    for host in Host::ALL {
        for link in 0..2 {
            hosts.lab.set_up(host, link, false).unwrap();
            hosts.lab.set_up(host, link, true).unwrap();
        }
    }
}

fn a_strict_reverse_path_filter_is_met_with_routes_that_go_afterwards() {
    let strict = in_one_subnet().without_ipv6();
    let strict = Host::ALL.into_iter().fold(strict, |lab, host| {
        lab.sysctl(host, "net/ipv4/conf/all/rp_filter", "1")
    });
    let hosts = Hosts::in_lab(strict.build().unwrap(), Rights::All, Rights::All);
    let bytes = content(64 * MIB);
    let before = [Host::A, Host::B].map(|host| ours(&hosts.lab, host).len());
    hosts.client.write("source", &bytes);
    let cp = hosts.start_cp(&["--json", "source", "10.9.0.21:target"]);
    let deadline = Instant::now() + Duration::from_secs(5);
    while ours(&hosts.lab, Host::A).is_empty() || ours(&hosts.lab, Host::B).is_empty() {
        assert!(
            Instant::now() < deadline,
            "no routes at both ends within 5 s"
        );
        thread::sleep(Duration::from_millis(10));
    }
    let report = cp.finish().expect(0).document();
    hosts.server.check("target", &bytes, &report);
    shared(&report, &["eth1", "eth2"]);
    let deadline = Instant::now() + Duration::from_secs(2);
    while [Host::A, Host::B].map(|host| ours(&hosts.lab, host).len()) != before {
        assert!(
            Instant::now() < deadline,
            "routes stay: {:?}",
            Host::ALL.map(|host| ours(&hosts.lab, host))
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// Jumbo frames at a switch without them; tunnels and DSL, where less than 1500 passes. One cable or
/// all of them, begun by address and by name.
fn packets_that_vanish_cost_a_second_and_are_told() {
    let whole = LinkSpec::mbit(RATE);
    let narrow = |mtu| whole.with_middle_mtu(mtu);
    let jumbo = whole.with_mtu(9000);
    // Longer than two steps take that wait for packets which vanish, also on a busy machine.
    let bytes = content(128 * MIB);
    // The first is what a copy takes here and now.
    let mut unimpeded = None;
    for (links, expected, told) in [
        ([jumbo, whole], [None, None], ""),
        ([narrow(1450), narrow(1500)], [Some(1450), None], "tunnel"),
        (
            [narrow(1448), narrow(1300)],
            [Some(1400), Some(1280)],
            "tunnel",
        ),
        (
            [jumbo.with_middle_mtu(1500), whole],
            [Some(1500), None],
            "jumbo",
        ),
    ] {
        for host in ["10.77.1.2", "b"] {
            let hosts = Hosts::joined_by(&links);
            hosts.client.write("source", &bytes);
            let target = format!("{host}:target");
            let begun = Instant::now();
            let outcome = hosts.cp(&["--json", "source", &target]).expect(0);
            let took = begun.elapsed();
            let report = outcome.document();
            hosts.server.check("target", &bytes, &report);
            let found = ["eth1", "eth2"].map(|name| link(&report, name)["path_mtu"].as_u64());
            assert_eq!(found, expected, "{host}: {report:#}");
            let both = link(&report, "eth1")["bytes"].as_u64() > Some(1 << 20)
                && link(&report, "eth2")["bytes"].as_u64() > Some(1 << 20);
            assert!(both, "{report:#}");
            if let Some(through) = expected[0] {
                let through = format!("packets above {through} bytes are dropped");
                let is_told = |line: &str| {
                    let is_of_it = line.starts_with("warning: eth1: ");
                    is_of_it && line.contains(&through) && line.contains(told)
                };
                assert!(outcome.stderr.lines().any(is_told), "{told}: {outcome}");
            }
            // Over one cable it takes twice as long.
            let unimpeded = *unimpeded.get_or_insert(took);
            let longest = 2 * unimpeded + Duration::from_secs(6);
            assert!(took < longest, "{host}: {took:?}, unimpeded {unimpeded:?}");
        }
    }
}

fn a_cable_that_is_plugged_in_joins_the_running_copy() {
    let plain = LinkSpec::mbit(RATE);
    let hosts = Hosts::in_lab(
        Lab::builder()
            .links([plain, plain, plain.unplugged()])
            .build()
            .unwrap(),
        Rights::None,
        Rights::None,
    );
    // Takes 3.9 s on two cables.
    let bytes = content(184 * MIB);
    hosts.client.write("source", &bytes);
    let cp = hosts.start_cp(&["--json", "source", "10.77.1.2:target"]);
    thread::sleep(Duration::from_secs(1));
    let before = hosts.lab.counters().unwrap();
    hosts.lab.heal(2).unwrap();
    thread::sleep(Duration::from_secs(2));
    let after = hosts.lab.counters().unwrap();
    let carried = after[2].since(&before[2]).at(Host::B).received_bytes;
    let report = cp.finish().expect(0).document();
    hosts.server.check("target", &bytes, &report);
    assert!(
        carried as usize > MIB,
        "{carried} bytes within 2 s\n{report:#}"
    );
    assert_eq!(
        &link(&report, "eth3")["verified"],
        &Value::Bool(true),
        "{report:#}"
    );
}

fn links_shows_the_plan_and_changes_nothing() {
    let hosts = Hosts::in_lab(in_one_subnet().build().unwrap(), Rights::All, Rights::None);
    let survey = links(&hosts, &["10.9.0.21", "--json"])
        .expect(0)
        .document_of("links");
    assert_eq!(text(&survey, "peer_name"), "b", "{survey:#}");
    let found = survey["links"].as_array().unwrap();
    assert_eq!(found.len(), 2, "{survey:#}");
    // At a switch, either way to pair them is right.
    for end in ["interface", "peer_interface"] {
        let names: BTreeSet<&str> = found.iter().map(|link| text(link, end)).collect();
        assert!(names.into_iter().eq(["eth1", "eth2"]), "{survey:#}");
    }
    for link in found {
        assert_eq!(
            (text(link, "chosen_for"), text(link, "family")),
            ("link_local", "ipv6"),
            "{survey:#}"
        );
        assert_eq!(link["verified"], Value::Bool(true), "{survey:#}");
        assert_eq!(number(link, "mtu"), 1500, "{survey:#}");
    }
    let theory: u64 = found.iter().map(|link| number(link, "theory_bps")).sum();
    assert_eq!(number(&survey, "theory_bps"), theory, "{survey:#}");
    assert!(ours(&hosts.lab, Host::A).is_empty());

    let outcome = links(&hosts, &["10.9.0.21"]).expect(0);
    let text = &outcome.stdout;
    for part in [
        "eth1 → eth",
        "eth2 → eth",
        "IPv6 link-local",
        "verified",
        "2 links,",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Returns the host routes that nicstripe installed on a host.
fn ours(lab: &Lab, host: Host) -> Vec<KernelRoute> {
    let routes = lab.on(host, kernel_routes::host_routes).unwrap();
    routes
        .into_iter()
        .filter(|route| route.protocol == 83)
        .collect()
}

/// Runs `nicstripe links` with these arguments and the daemon's port.
fn links(hosts: &Hosts, arguments: &[&str]) -> Outcome {
    let port = hosts.daemon.port.to_string();
    hosts
        .client
        .run([&["links", "--port", &port], arguments].concat())
}
