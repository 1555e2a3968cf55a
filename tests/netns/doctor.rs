//! Faults staged on simulated cables, and the findings of `nicstripe doctor` for each: the right
//! rule first, and no wrong one.
//!
//! The middle shapes the cables, because a shaper inside a host is a fault of its own (rule 31).
//! The loads are light enough for a busy machine. Recorded facts (`crates/nicstripe-doctor/tests`)
//! stand in for faults that virtual cables do not have:
//!
//! - Half duplex and slow links (rules 3 and 19): a veth has one fixed mode. A TAP's can be set, but
//!   a TAP is a tunnel, and names no modes that it supports.
//! - A bond (rule 11), because small kernels lack it.
//! - Buses, interrupts, rings, damaged frames, pause frames, energy-efficient Ethernet.

use std::{
    collections::BTreeSet,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{BitRate, CpuQuota, Direction, Host, Lab, LabBuilder, LinkSpec, Transport};
use nicstripe_testkit::{
    Daemon, Outcome, Process, content, tests, text,
    trial::{Test, is_installed},
};
use serde_json::Value;

use crate::hosts::{Hosts, MIB, Rights, acquainted};

pub(crate) const TESTS: &[Test] = tests![
    faults_that_show_without_a_load_are_named,
    a_switch_that_drops_jumbo_frames_is_told_and_different_mtus_are_a_note,
    one_subnet_whose_links_work_is_a_note,
    a_copy_and_links_name_the_rule_that_explains_the_rate,
    arp_flux_is_told_and_not_the_subnet_that_permits_it,
    clean_cables_have_no_finding_under_load,
    loss_is_told_of_the_cable_that_loses,
    a_carrier_that_is_lost_during_the_bench_is_told,
    windows_too_small_for_the_round_trip_are_told,
    a_cable_with_a_delay_is_told_beside_a_direct_one,
    a_bus_that_two_cables_share_is_told_and_no_loss,
];

/// Tests that need control groups.
pub(crate) const TESTS_WITH_A_QUOTA: &[Test] =
    tests![a_quota_of_the_daemon_is_told_and_no_slow_receiver];

/// Tests that need strace(1).
pub(crate) const TESTS_WITH_STRACE: &[Test] = tests![a_disk_slower_than_the_network_is_told];

/// Returns the reason why [`TESTS_WITH_STRACE`] cannot run; `None` if they can.
pub(crate) fn obstacle_to_strace() -> Option<String> {
    (!is_installed("strace")).then(|| "strace is not installed".to_owned())
}

/// Returns the reason why [`TESTS_WITH_A_QUOTA`] cannot run; `None` if they can.
pub(crate) fn obstacle_to_quotas() -> Option<String> {
    let refused = CpuQuota::new(1000).err();
    refused.map(|error| nicstripe::chain(&error))
}

/// Fault in a running lab whose second cable is `eth2`: its name, how it begins and ends, and the
/// findings meanwhile.
struct Fault {
    name: &'static str,
    begin: fn(&Hosts),
    end: fn(&Hosts),
    findings: &'static [&'static str],
}

const FAULTS: [Fault; 4] = [
    Fault {
        name: "none",
        begin: |_| (),
        end: |_| (),
        findings: &[],
    },
    Fault {
        name: "a firewall on the port of one cable",
        begin: |hosts| {
            let port = hosts.daemon.port;
            let blocked = hosts.lab.block(1, Direction::AToB, Transport::Tcp, port);
            blocked.unwrap();
        },
        end: |hosts| hosts.lab.pass(1).unwrap(),
        findings: &["bad 14 eth2"],
    },
    Fault {
        name: "a shaper of 100 Mbit/s that was left on a card",
        begin: |hosts| hosts.lab.set_rate(1, BitRate::mbit(100)).unwrap(),
        end: |hosts| hosts.lab.set_rate(1, None).unwrap(),
        findings: &["warning 31 eth2"],
    },
    Fault {
        name: "crossed cables",
        begin: |hosts| cross(&hosts.lab),
        end: |_| (),
        findings: &["warning 12 eth1 eth2"],
    },
];

/// Exchanges the addresses of host B's interfaces, as if the cables were exchanged.
fn cross(lab: &Lab) {
    let addresses = ["10.77.1.2/24", "10.77.2.2/24"];
    for (link, address) in addresses.into_iter().enumerate() {
        lab.remove_address(Host::B, link, address).unwrap();
    }
    for (link, address) in addresses.into_iter().enumerate() {
        lab.add_address(Host::B, 1 - link, address).unwrap();
    }
}

fn faults_that_show_without_a_load_are_named() {
    let hosts = hosts(Lab::builder().links([LinkSpec::unshaped(); 2]));
    for fault in &FAULTS {
        (fault.begin)(&hosts);
        expect(&doctor(&hosts, &[]), fault.name, fault.findings);
        (fault.end)(&hosts);
    }
    // Without IPv6 the crossed cables become links only as far as ARP leads to them.
    for host in Host::ALL {
        let name = "net/ipv6/conf/all/disable_ipv6";
        hosts.lab.set_sysctl(host, name, "1").unwrap();
    }
    let outcome = doctor(&hosts, &[]);
    let told = findings(&outcome);
    let is_crossed = told.len() == 1 && told[0].contains(" 12 ");
    assert!(is_crossed, "{outcome}");
}

fn a_switch_that_drops_jumbo_frames_is_told_and_different_mtus_are_a_note() {
    let narrow = LinkSpec::unshaped().with_mtu(9000).with_middle_mtu(1500);
    let hosts = hosts(Lab::builder().links([LinkSpec::unshaped(), narrow]));
    expect(&doctor(&hosts, &[]), "a narrow middle", &["bad 10 eth2"]);
    hosts.lab.set_mtu(Host::B, 1, 1500).unwrap();
    expect(&doctor(&hosts, &[]), "different MTUs", &["note 9 eth2"]);
}

fn one_subnet_whose_links_work_is_a_note() {
    let hosts = hosts(Lab::builder().links([LinkSpec::unshaped(); 2]).one_subnet());
    expect(&doctor(&hosts, &[]), "one subnet", ONE_SUBNET);
}

fn a_copy_and_links_name_the_rule_that_explains_the_rate() {
    // The hosts shape these cables.
    let hosts = hosts(Lab::builder().link(LinkSpec::mbit(100)));
    hosts.client.write("source", content(24 * MIB));
    let address = hosts.lab.address(Host::B, 0).to_string();
    let port = hosts.daemon.port.to_string();
    let copied = hosts.cp(&["source", &format!("{address}:")]).expect(0);
    let links = hosts
        .client
        .run(["links", &address, "--port", &port])
        .expect(0);
    for text in [&copied.stderr, &links.stdout] {
        let line = text
            .lines()
            .find(|line| line.contains("nicstripe doctor --explain 31"));
        assert!(line.is_some_and(|line| line.contains("eth1 on")), "{text}");
    }
}

const ONE_SUBNET: &[&str] = &["note 1 eth1 eth2"];

fn arp_flux_is_told_and_not_the_subnet_that_permits_it() {
    // Several interfaces race to answer an ARP request, so ARP flux does not occur each time.
    let has_flux = (0..10).any(|_| {
        let links = Lab::builder().links([LinkSpec::unshaped(); 2]);
        let hosts = hosts(links.one_subnet().without_ipv6());
        let outcome = doctor(&hosts, &[]);
        let told = findings(&outcome);
        assert!(
            told == ["bad 2 eth1 eth2"] || told == ONE_SUBNET,
            "{outcome}"
        );
        told != ONE_SUBNET
    });
    assert!(has_flux, "no ARP flux in ten labs");
}

/// Cable of a bench: slow, so that neither processors nor other tests limit it.
fn cable() -> LinkSpec {
    LinkSpec::mbit(RATE).shaped_in_the_middle()
}

const RATE: u64 = 40;

fn clean_cables_have_no_finding_under_load() {
    let hosts = hosts(Lab::builder().links([cable(); 2]));
    expect_measured("none", &[], || doctor(&hosts, &["--bench"]));
}

fn loss_is_told_of_the_cable_that_loses() {
    let hosts = hosts(Lab::builder().links([cable(); 2]));
    // 4 times the least that is bad, and far more than the deviation of 10,000 packets.
    hosts.lab.lose(1, Direction::Both, 0.04).unwrap();
    expect_measured("loss", &["bad 16 eth2"], || doctor(&hosts, &["--bench"]));
}

fn a_carrier_that_is_lost_during_the_bench_is_told() {
    let flap = || {
        let hosts = hosts(Lab::builder().links([cable(); 2]));
        let doctor = start_doctor(&hosts, &["--bench"]);
        // The load of the first cable alone has begun, the second idles.
        let begun = Instant::now();
        while hosts.lab.counters().unwrap()[0].a.sent_bytes < MIB as u64 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(20));
        }
        hosts.lab.cut(1).unwrap();
        hosts.lab.heal(1).unwrap();
        doctor.finish()
    };
    expect_measured("a flap", &["bad 17 eth2"], flap);
}

fn windows_too_small_for_the_round_trip_are_told() {
    let mut lab = Lab::builder().links([cable().with_delay(4 * DELAY); 2]);
    for host in Host::ALL {
        // Carries 16 KiB each 40 ms: a twelfth of the rate.
        for name in ["tcp_rmem", "tcp_wmem"] {
            lab = lab.sysctl(host, format!("net/ipv4/{name}"), "4096 16384 32768");
        }
    }
    let hosts = hosts(lab);
    let expected = ["bad 21 eth1 eth2"];
    expect_measured("small windows", &expected, || doctor(&hosts, &["--bench"]));
}

fn a_cable_with_a_delay_is_told_beside_a_direct_one() {
    let hosts = hosts(Lab::builder().links([cable(), cable().with_delay(DELAY)]));
    expect_measured("a delay", &["warning 38 eth2"], || {
        doctor(&hosts, &["--bench"])
    });
}

/// Delay in each direction: a hundred times the round trip of a direct cable.
const DELAY: Duration = Duration::from_millis(5);

fn a_bus_that_two_cables_share_is_told_and_no_loss() {
    let hosts = hosts(Lab::builder().links([cable(); 2]));
    // Both cables together need 80 Mbit/s.
    let bus = BitRate::mbit(RATE + 10);
    hosts.lab.share_bus(Host::B, &[0, 1], bus).unwrap();
    expect_measured("a bus", &["bad 4 eth1 eth2"], || {
        doctor(&hosts, &["--bench"])
    });
}

fn a_quota_of_the_daemon_is_told_and_no_slow_receiver() {
    let hosts = hosts(Lab::builder().link(LinkSpec::unshaped()));
    // Far less than the cable takes, and enough for the answers to the bench.
    let quota = CpuQuota::new(150).unwrap();
    quota.take(hosts.daemon.process.id()).unwrap();
    expect_measured("a quota", &["bad 41"], || doctor(&hosts, &["--bench"]));
}

fn a_disk_slower_than_the_network_is_told() {
    let link = LinkSpec::mbit(100).shaped_in_the_middle();
    let hosts = with_slow_syncs(Lab::builder().link(link));
    hosts.client.write("source", content(8 * MIB));
    expect_measured("a slow disk", &["bad 6"], || {
        doctor(&hosts, &["--disk", "source"])
    });
}

/// Creates two hosts whose daemon runs under strace(1), which delays each sync by [`SYNC`].
fn with_slow_syncs(lab: LabBuilder) -> Hosts {
    let lab = Arc::new(lab.build().unwrap());
    let (client, server) = acquainted(&lab);
    let mut command = server.command("strace");
    let delay = format!("inject=fdatasync:delay_enter={}", SYNC.as_micros());
    // With -D, the child is the daemon, and strace exits with the daemon.
    let options = ["-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null"];
    command.args(options);
    command.args(["-e", "trace=fdatasync", "-e", &delay]);
    command.args([env!("CARGO_BIN_EXE_nicstripe"), "serve", "--port", "0"]);
    let daemon = Daemon::listening(Process::spawn(command));
    Hosts {
        lab,
        client,
        server,
        daemon,
    }
}

/// Time of a sync: three times what the network takes for the file.
const SYNC: Duration = Duration::from_secs(2);

fn hosts(lab: LabBuilder) -> Hosts {
    Hosts::in_lab(lab.build().unwrap(), Rights::None, Rights::None)
}

fn start_doctor(hosts: &Hosts, options: &[&str]) -> Process {
    let address = hosts.lab.address(Host::B, 0).to_string();
    let port = hosts.daemon.port.to_string();
    let doctor = ["doctor", &address, "--port", &port, "--json"];
    hosts.client.start([&doctor, options].concat())
}

fn doctor(hosts: &Hosts, options: &[&str]) -> Outcome {
    start_doctor(hosts, options).finish()
}

/// Like [`expect`] for a bench, which is made again up to twice: other programs that fill the
/// machine are a fault as well, and rightly found.
#[track_caller]
fn expect_measured(fault: &str, expected: &[&str], measure: impl Fn() -> Outcome) {
    let is_expected =
        |outcome: &Outcome| !outcome.stdout.is_empty() && told_of(outcome, expected) == expected;
    let outcome = (0..2)
        .map(|_| measure())
        .find(is_expected)
        .unwrap_or_else(measure);
    expect(&outcome, fault, expected);
}

/// Panics unless doctor found exactly these in this order, and its exit code agrees.
#[track_caller]
fn expect(outcome: &Outcome, fault: &str, expected: &[&str]) {
    assert_eq!(told_of(outcome, expected), expected, "{fault}: {outcome}");
    let is_ill = expected.iter().any(|told| !told.starts_with("note"));
    let code = if is_ill { 42 } else { 0 };
    assert_eq!(outcome.status.code(), Some(code), "{fault}: {outcome}");
}

/// Like [`findings`]. If a fault is expected, without the warnings that are not: a busy machine delays the
/// relay of the lab, and packets that are late are taken for lost, and cables for far.
fn told_of(outcome: &Outcome, expected: &[&str]) -> Vec<String> {
    let mut told = findings(outcome);
    if expected.iter().any(|told| told.starts_with("bad")) {
        told.retain(|told| !told.starts_with("warning") || expected.contains(&told.as_str()));
    }
    told
}

/// Returns the findings that are more than information, as severity, rule and interfaces: `bad 16
/// eth2`. Findings of one rule are one, because both ends and several cables may have it.
fn findings(outcome: &Outcome) -> Vec<String> {
    let document: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let mut told: Vec<(String, BTreeSet<String>)> = Vec::new();
    for finding in document["findings"].as_array().unwrap() {
        let name = format!("{} {}", text(finding, "severity"), finding["rule"]);
        let subjects = finding["subjects"].as_array().unwrap().iter();
        let interfaces = subjects.filter_map(|subject| subject["interface"].as_str());
        if told.last().is_none_or(|(last, _)| *last != name) {
            told.push((name, BTreeSet::new()));
        }
        let (_, all) = told.last_mut().unwrap();
        all.extend(interfaces.map(str::to_owned));
    }
    told.into_iter()
        .filter(|(name, _)| !name.starts_with("info"))
        .map(|(name, interfaces)| {
            let words = std::iter::once(name).chain(interfaces);
            words.collect::<Vec<_>>().join(" ")
        })
        .collect()
}
