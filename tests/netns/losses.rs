//! Tests of interfaces that fail until no link remains, although each host has one working interface.
//! The interfaces that still work must be paired again.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use nicstripe_lab::{Direction, Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Daemon, Process, Side, Sshd, content, number, program, tests,
    trial::{Test, amount},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    hosts::{Hosts, MIB, Rights, introduce, ip, side},
    pairing::shown_by,
};

pub(crate) const TESTS: &[Test] = tests![
    with_strict_filters_the_pair_that_comes_back_first_carries_again,
    a_blocked_port_closes_no_link_that_works,
    at_a_switch_every_pair_that_is_left_carries_again,
    at_a_switch_without_ipv6_every_pair_that_is_left_carries_again,
    in_separate_subnets_every_cable_that_is_left_carries_again,
    without_addresses_every_cable_that_is_left_carries_again,
    begun_by_code_every_pair_that_is_left_carries_again,
];

pub(crate) const TESTS_WITH_IP: &[Test] =
    tests![begun_by_name_before_addresses_are_usable_every_pair_that_is_left_carries_again];

/// Tests with a real ssh.
pub(crate) const TESTS_WITH_SSH: &[Test] =
    tests![begun_by_ssh_every_pair_that_is_left_carries_again];

const RATE: u64 = 100;

/// Size of the copied file in bytes. One link needs 4.2 s for it.
const SIZE: usize = 48 * MIB;

/// Rate of the cables in Mbit/s in the tests of all subsets.
const FAST: u64 = 200;

/// Send rate of their copies, so that several run at once on a machine with two cores.
const SLOW: &str = "4MB";

/// Size of their file in bytes. The copy takes 6 s.
const SLOW_SIZE: usize = 24 * MIB;

/// Number of their labs that run at once.
const SUBSETS_AT_ONCE: usize = 3;

/// Returns a lab with two interfaces per host at one switch. All are in one subnet.
fn switch() -> Lab {
    Lab::builder()
        .links([LinkSpec::mbit(RATE); 2])
        .one_subnet()
        .build()
        .unwrap()
}

/// Returns true if each of the local `interfaces` has carried at least 1 MiB, by a progress event.
fn carried(progress: &Value, interfaces: &[&str]) -> bool {
    let has_carried = |name: &&str| {
        let links = progress["links"].as_array().unwrap();
        links.iter().any(|link| {
            link["interface"] == **name && link["bytes"].as_u64().unwrap() >= MIB as u64
        })
    };
    interfaces.iter().all(has_carried)
}

/// Panics unless host B receives 1 MiB within `bound` plus 0.5 s.
fn flows_again(lab: &Lab, case: &str, bound: Duration) {
    let received = || {
        lab.counters()
            .unwrap()
            .iter()
            .map(|link| link.at(Host::B).received_bytes)
            .sum::<u64>()
    };
    let begun = Instant::now();
    let before = received();
    while received() < before + MIB as u64 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{case}: no data for 20 s"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let taken = begun.elapsed();
    println!("{case}: data again after {taken:.2?}");
    // 1 MiB takes 0.1 s. The rest is a margin for a busy machine.
    assert!(
        taken < bound + Duration::from_millis(500),
        "{case}: {taken:?}"
    );
}

/// Returns the number of runs per case, set by the environment variable `NICSTRIPE_LOSSES`.
fn runs() -> u32 {
    std::env::var("NICSTRIPE_LOSSES")
        .ok()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(amount(1, 4))
}

/// Cuts both cables and restores one, with strict reverse-path filtering. The second pair of
/// interfaces needs host routes at both ends. The routes must stay installed, because they cannot
/// be announced while no link exists.
///
/// Measured: 2.25 s, including 0.1 s for the data. Without filters, 0.1 to 2.3 s, depending on the
/// moment of the cable's return.
fn with_strict_filters_the_pair_that_comes_back_first_carries_again() {
    for link in [0, 1].repeat(runs() as usize) {
        let lab = Lab::builder()
            .links([LinkSpec::mbit(RATE); 2])
            .one_subnet()
            .without_ipv6();
        let lab = Host::ALL.into_iter().fold(lab, |lab, host| {
            lab.sysctl(host, "net/ipv4/conf/all/rp_filter", "1")
        });
        let hosts = Hosts::in_lab(lab.build().unwrap(), Rights::All, Rights::All);
        hosts.client.write("source", content(SIZE));
        let cp = hosts.start_cp(&["--json-stream", "source", "10.9.0.21:target"]);
        cp.await_event("progress", |event| carried(event, &["eth1", "eth2"]));
        (0..2).for_each(|link| hosts.lab.cut(link).unwrap());
        cp.await_event("waiting", |event| {
            event["waited_s"].as_f64().unwrap() >= 2.0
        });
        hosts.lab.heal(link).unwrap();
        flows_again(
            &hosts.lab,
            &format!("strict filters, eth{}", link + 1),
            Duration::from_secs(3),
        );
        let report = cp.finish().expect(0).document();
        hosts.server.check("target", &content(SIZE), &report);
    }
}

fn at_a_switch_every_pair_that_is_left_carries_again() {
    any_ends_may_be_lost(&SWITCH, &[Start::Address, Start::Name]);
}

/// Each interface answers ARP requests for its own address only. Otherwise the kernel sends to the
/// lost interface of the peer as long as its neighbour entry is valid, up to 45 s.
fn at_a_switch_without_ipv6_every_pair_that_is_left_carries_again() {
    let without_flux = Cables {
        case: "IPv4",
        lab: || {
            let lab = Lab::builder().links([LinkSpec::mbit(FAST); 2]);
            let lab = lab.one_subnet().without_ipv6();
            let lab = Host::ALL.into_iter().fold(lab, |lab, host| {
                lab.sysctl(host, "net/ipv4/conf/all/arp_ignore", "1")
                    .sysctl(host, "net/ipv4/conf/all/arp_announce", "2")
            });
            lab.build().unwrap()
        },
        ..SWITCH
    };
    any_ends_may_be_lost(&without_flux, &[Start::Address]);
}

fn in_separate_subnets_every_cable_that_is_left_carries_again() {
    any_ends_may_be_lost(&SUBNETS, &[Start::Address, Start::Name]);
}

fn without_addresses_every_cable_that_is_left_carries_again() {
    any_ends_may_be_lost(&BARE, &[Start::Address, Start::Name]);
}

fn begun_by_name_before_addresses_are_usable_every_pair_that_is_left_carries_again() {
    for cables in others() {
        any_ends_may_be_lost(cables, &[Start::EarlyName]);
    }
}

fn begun_by_code_every_pair_that_is_left_carries_again() {
    for cables in others() {
        any_ends_may_be_lost(cables, &[Start::Code]);
    }
}

fn begun_by_ssh_every_pair_that_is_left_carries_again() {
    for cables in others() {
        any_ends_may_be_lost(cables, &[Start::Ssh]);
    }
}

/// Returns the cables of the starts that differ only in how the peer is found.
fn others() -> &'static [&'static Cables] {
    amount(&[&SWITCH], &[&SWITCH, &SUBNETS, &BARE])
}

/// Ends of the cables, in the order of the bits of a subset.
const ENDS: [(Host, usize); 4] = [(Host::A, 0), (Host::A, 1), (Host::B, 0), (Host::B, 1)];

/// Two interfaces at each host.
struct Cables {
    case: &'static str,
    lab: fn() -> Lab,
    /// Returns an address of host B, as typed.
    address: fn(&Lab) -> String,
    /// Returns true if a working pair is left without the ends whose bits are set.
    can_carry: fn(u32) -> bool,
}

const SWITCH: Cables = Cables {
    case: "switch",
    lab: || {
        let lab = Lab::builder().links([LinkSpec::mbit(FAST); 2]);
        lab.one_subnet().build().unwrap()
    },
    address: |lab| lab.address(Host::B, 0).to_string(),
    can_carry: has_an_end_at_each_host,
};

const SUBNETS: Cables = Cables {
    case: "subnets",
    lab: || {
        let lab = Lab::builder().links([LinkSpec::mbit(FAST); 2]);
        lab.build().unwrap()
    },
    address: |lab| lab.address(Host::B, 0).to_string(),
    can_carry: is_a_cable_whole,
};

const BARE: Cables = Cables {
    case: "bare cables",
    lab: || {
        let lab = Lab::builder().links([LinkSpec::mbit(FAST).bare(); 2]);
        lab.build().unwrap()
    },
    address: |lab| {
        let address = lab.link_local(Host::B, 0).unwrap().unwrap();
        format!("[{address}%{}]", lab.interface(0))
    },
    can_carry: is_a_cable_whole,
};

/// Returns true if each host has a working interface without the ends whose bits are set in `lost`.
fn has_an_end_at_each_host(lost: u32) -> bool {
    [0b0011, 0b1100].iter().all(|side| lost & side != *side)
}

/// Returns true if both ends of a cable work without the ends whose bits are set in `lost`.
fn is_a_cable_whole(lost: u32) -> bool {
    [0b0101, 0b1010].iter().any(|cable| lost & cable == 0)
}

/// What the user types for the peer.
#[derive(Clone, Copy, Debug)]
enum Start {
    Address,
    Name,
    /// The name, while the kernel still probes the interfaces' IPv6 addresses for duplicates.
    EarlyName,
    Code,
    Ssh,
}

/// Disables every subset of the four ends that leaves a working pair, each during a copy. Panics
/// unless data flows again within 3 s and the copy is correct.
///
/// The lowest two bits of a subset are the client's interfaces.
fn any_ends_may_be_lost(cables: &Cables, starts: &[Start]) {
    let subsets = (1..0b1111).filter(|lost| (cables.can_carry)(*lost));
    let cases = starts.iter().flat_map(|start| {
        let subsets = subsets.clone();
        subsets.map(move |lost| (*start, lost))
    });
    let cases: Vec<(Start, u32)> = cases.collect();
    for run in 0..runs_of_subsets() {
        for some in cases.chunks(SUBSETS_AT_ONCE) {
            std::thread::scope(|scope| {
                for &(start, lost) in some {
                    let case = format!("{}, {start:?}, {lost:04b}, run {run}", cables.case);
                    scope.spawn(move || loses_ends(&case, cables, start, lost));
                }
            });
        }
    }
}

/// Returns the number of runs per case, set by the environment variable `NICSTRIPE_LOSSES`.
fn runs_of_subsets() -> u32 {
    match std::env::var_os("NICSTRIPE_LOSSES") {
        Some(_) => runs(),
        None => amount(1, 10),
    }
}

/// Disables the ends whose bits are set in `lost` 2 s after the first progress of a copy.
fn loses_ends(case: &str, cables: &Cables, start: Start, lost: u32) {
    let lab = Arc::new((cables.lab)());
    let bytes = content(SLOW_SIZE);
    let copy = Begun::new(&lab, cables.address, start, &bytes);
    copy.process.await_bytes(1);
    // By then all links are made, and the first connection has yielded to a better one.
    std::thread::sleep(Duration::from_secs(2));
    for (bit, (host, link)) in ENDS.into_iter().enumerate() {
        if lost >> bit & 1 == 1 {
            lab.set_plugged_at(host, link, false).unwrap();
        }
    }
    flows_again(&lab, case, Duration::from_millis(2500));
    copy.finish(case, &bytes);
}

/// Copy from host A to host B that has begun.
struct Begun {
    process: Process,
    server: Side,
    _client: Side,
    /// Daemon, sshd or receiver at host B.
    other: Process,
    target: &'static str,
}

impl Begun {
    fn new(lab: &Arc<Lab>, address: fn(&Lab) -> String, start: Start, bytes: &[u8]) -> Self {
        let rights = match start {
            Start::Ssh => Rights::All,
            _ => Rights::None,
        };
        let (client, server) = (side(lab, Host::A, rights), side(lab, Host::B, rights));
        client.write("source", bytes);
        let slow = ["--bwlimit", SLOW, "--json-stream", "source"];
        let (process, other, target) = match start {
            Start::Code => {
                let (receiving, code) = shown_by(&server, &["receive", "--yes"]);
                let sending = client.start([&["send"], &slow[..], &[&code]].concat());
                (sending, receiving, "source")
            }
            Start::Ssh => {
                let sshd = Sshd::in_folder(&client.home(), &server.home(), &server.files());
                let ssh = sshd.client();
                let sshd = Process::spawn(sshd.command(|program| server.command(program)));
                sshd.await_stderr(Sshd::READY);
                let target = server.path("target");
                let target = format!("root@{}:{}", address(lab), target.display());
                let mut command = client.command(program());
                command
                    .env("NICSTRIPE_SSH", &ssh)
                    .env("PATH", "/usr/bin:/bin")
                    .arg("cp")
                    .args(slow)
                    .arg(&target);
                (Process::spawn(command), sshd, "target")
            }
            Start::Address | Start::Name | Start::EarlyName => {
                introduce(&client, &server);
                let Daemon { process, port, .. } = Daemon::start(&server, &[]);
                if let Start::EarlyName = start {
                    for (host, link) in ENDS {
                        let name = lab.interface(link);
                        for value in ["accept_dad", "dad_transmits"] {
                            let name = format!("net/ipv6/conf/{name}/{value}");
                            lab.set_sysctl(host, &name, "1").unwrap();
                        }
                        // Gives the interface a new link-local address.
                        ip(lab, host, &format!("link set {name} down"));
                        ip(lab, host, &format!("link set {name} up"));
                    }
                }
                let host = match start {
                    Start::Address => address(lab),
                    _ => "b".to_owned(),
                };
                let port = port.to_string();
                let target = format!("{host}:target");
                let mut words = vec!["cp", "--port", &port];
                words.extend(slow);
                words.push(&target);
                (client.start(words), process, "target")
            }
        };
        Self {
            process,
            server,
            _client: client,
            other,
            target,
        }
    }

    fn finish(self, case: &str, bytes: &[u8]) {
        let report = self.process.finish().expect(0).document();
        // Counts cables, of which one that was paired again is one still.
        let cables = 2 * LinkSpec::mbit(FAST).goodput().unwrap().bits_per_second();
        let expected = report["theory_bps"].as_u64();
        assert!(expected <= Some(cables), "{case}: {report:#}");
        // sshd does not know that its connection is lost.
        for id in children_of(self.other.id()) {
            let _ = kill_process(id, Signal::KILL);
        }
        assert!(self.server.read(self.target) == bytes, "{case}");
    }
}

/// Returns the processes whose parent has this ID (proc_pid_stat(5)).
fn children_of(parent: u32) -> Vec<Pid> {
    let is_child = |id: &str| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        fields.is_some_and(|fields| fields.split(' ').nth(1) == Some(&parent.to_string()))
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().into_string().ok());
    all.filter(|id| is_child(id))
        .filter_map(|id| Pid::from_raw(id.parse().ok()?))
        .collect()
}

fn a_blocked_port_closes_no_link_that_works() {
    for _ in 0..2 * runs() {
        let hosts = Hosts::in_lab(switch(), Rights::None, Rights::None);
        // Simulates a firewall that drops all traffic to one interface.
        hosts.lab.drop_silently(1, Direction::AToB).unwrap();
        hosts.client.write("source", content(SIZE));
        let outcome = hosts
            .cp(&["--json-stream", "source", "10.9.0.21:target"])
            .expect(0);
        let report = outcome.document();
        // The report lists a link once even if it is closed and reconnected. nicstripe may try and
        // replace another link over eth2.
        let links: Vec<_> = outcome
            .events()
            .into_iter()
            .filter(|event| event["event"] == "link" && event["interface"] == "eth1")
            .collect();
        let has_worked = |of: &Value| {
            links
                .iter()
                .any(|link| link["state"] == "up" && link["remote"] == of["remote"])
        };
        let is_end =
            |link: &Value| link["state"] == "down" || link["reason"] == "replaced by another link";
        let closed: Vec<_> = links
            .iter()
            .filter(|link| is_end(link) && has_worked(link))
            .collect();
        assert!(closed.is_empty(), "{closed:#?}");
        let links = report["links"].as_array().unwrap();
        let carrying: Vec<_> = links
            .iter()
            .filter(|link| number(link, "bytes") > 0)
            .collect();
        // The first contact over IPv4 may have carried data for some milliseconds.
        let used = carrying
            .iter()
            .filter(|link| number(link, "bytes") > 4 * MIB as u64)
            .count();
        assert_eq!((used, number(&report, "failovers")), (1, 0), "{report:#}");
    }
}
