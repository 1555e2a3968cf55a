//! Tests of MTUs that the route helper changes for `nicstripe bench`. The original MTUs must be
//! restored, whichever process is killed.
//!
//! The helper is the real program. The tests act as its client and encode the requests themselves.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use nicstripe_lab::{Host, LinkSpec};
use nicstripe_testkit::{Process, tests, trial::Test};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::hosts::{Hosts, Rights, side};

pub(crate) const TESTS: &[Test] = tests![
    an_mtu_is_put_back_when_its_helper_is_told_to_end,
    an_mtu_whose_helper_was_killed_is_listed_and_cleaned,
    an_mtu_whose_user_and_helper_were_killed_is_put_back_at_the_next_start,
    without_the_right_to_it_a_left_mtu_is_an_error,
    what_a_helper_refuses_changes_nothing,
    a_bench_measures_other_sizes_of_packets_and_puts_back_what_there_was,
    a_bench_that_is_killed_in_the_middle_of_its_sizes_leaves_the_mtu_as_it_was,
];

const HELPER: &str = env!("CARGO_BIN_EXE_nicstripe-routes");

struct Changed {
    hosts: Hosts,
    user: Child,
    helper: Child,
}

impl Changed {
    fn new() -> Self {
        let hosts = Hosts::with_rights_of_the_client(&[LinkSpec::mbit(200); 2]);
        let (mut pipe, helper) = start_helper(&hosts);
        assert_eq!(
            ask(&mut pipe, &set(hosts.lab.interface_index(Host::A, 0), 4000)),
            [1, DONE, 0, 0, 0xdc, 0x05, 0, 0],
            "1500 before"
        );
        let user = hosts
            .client
            .command("sleep")
            .arg("600")
            .stdin(OwnedFd::from(pipe))
            .spawn()
            .unwrap();
        assert_eq!([mtu(&hosts, "eth1"), mtu(&hosts, "eth2")], [4000, 1500]);
        Self {
            hosts,
            user,
            helper,
        }
    }

    #[track_caller]
    fn await_mtu(&self, expected: u32) {
        let begun = Instant::now();
        while mtu(&self.hosts, "eth1") != expected {
            assert!(
                begun.elapsed() < DEADLINE,
                "{} and not {expected}",
                mtu(&self.hosts, "eth1")
            );
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        for child in [&mut self.user, &mut self.helper] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the helper for the client. Also returns the socket to it.
fn start_helper(hosts: &Hosts) -> (UnixStream, Child) {
    let (pipe, theirs) = UnixStream::pair().unwrap();
    pipe.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut helper = hosts.client.command(HELPER);
    helper
        .arg(hosts.client.home())
        .stdin(OwnedFd::from(theirs.try_clone().unwrap()))
        .stdout(Stdio::from(OwnedFd::from(theirs)));
    (pipe, helper.spawn().unwrap())
}

/// Returns the IPv6 MTU of an interface of host A, which follows the interface's MTU.
/// `/proc/sys/net` shows the network namespace of the reader, while `/sys` does not.
fn mtu(hosts: &Hosts, interface: &str) -> u32 {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/mtu");
    hosts
        .lab
        .on(Host::A, || fs::read_to_string(&path).unwrap())
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

/// Builds a helper request to set the MTU of an interface for one minute.
fn set(interface: u32, mtu: u32) -> [u8; 44] {
    let mut request = [0; 44];
    request[..2].copy_from_slice(&[1, 5]);
    for (place, value) in [(4, interface), (8, mtu), (12, 60)] {
        request[place..place + 4].copy_from_slice(&value.to_le_bytes());
    }
    request
}

/// Sends a request to the helper, and returns the first 8 bytes of its response.
fn ask(pipe: &mut UnixStream, request: &[u8; 44]) -> [u8; 8] {
    pipe.write_all(request).unwrap();
    let mut answer = [0; 28];
    pipe.read_exact(&mut answer).unwrap();
    *answer.first_chunk().unwrap()
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn an_mtu_is_put_back_when_its_helper_is_told_to_end() {
    let changed = Changed::new();
    kill_process(
        Pid::from_raw(changed.helper.id().cast_signed()).unwrap(),
        Signal::TERM,
    )
    .unwrap();
    changed.await_mtu(1500);
}

fn an_mtu_whose_helper_was_killed_is_listed_and_cleaned() {
    let mut changed = Changed::new();
    let client = &changed.hosts.client;
    let owner = changed.helper.id();
    let listed = client.run(["routes", "list"]).expect(0).stdout;
    assert_eq!(
        listed,
        format!("eth1 has MTU 4000, to be restored to 1500  in use by process {owner}\n")
    );
    client.run(["routes", "clean"]).expect(0);
    assert_eq!(
        mtu(&changed.hosts, "eth1"),
        4000,
        "one that is in use stays"
    );

    kill(&mut changed.helper);
    assert_eq!(mtu(&changed.hosts, "eth1"), 4000);
    let listed = client.run(["routes", "list"]).expect(0).stdout;
    assert_eq!(
        listed,
        "eth1 has MTU 4000, to be restored to 1500  stale, its process has ended\n"
    );
    let cleaned = client.run(["routes", "clean"]).expect(0).stdout;
    assert_eq!(cleaned, "restored MTU 1500 of eth1, which was 4000\n");
    assert_eq!(mtu(&changed.hosts, "eth1"), 1500);
    assert_eq!(client.run(["routes", "clean"]).expect(0).stdout, "");
}

fn an_mtu_whose_user_and_helper_were_killed_is_put_back_at_the_next_start() {
    let mut changed = Changed::new();
    kill(&mut changed.helper);
    kill(&mut changed.user);
    assert_eq!(mtu(&changed.hosts, "eth1"), 4000);
    changed.hosts.client.write("source", b"bytes");
    // This copy itself changes no MTU.
    changed.hosts.cp(&["source", "10.77.1.2:target"]).expect(0);
    assert_eq!(mtu(&changed.hosts, "eth1"), 1500);
}

fn without_the_right_to_it_a_left_mtu_is_an_error() {
    let mut changed = Changed::new();
    kill(&mut changed.helper);
    let user = side(&changed.hosts.lab, Host::A, Rights::None);
    // Both sides run as the user of the tests.
    let records = format!("mtus.{}.jsonl", geteuid().as_raw());
    fs::copy(
        changed.hosts.client.home().join(&records),
        user.home().join(&records),
    )
    .unwrap();
    let outcome = user.run(["routes", "clean"]);
    assert!(!outcome.status.success(), "{outcome}");
    outcome.error(&["MTU", "CAP_NET_ADMIN"]);
    assert_eq!(mtu(&changed.hosts, "eth1"), 4000);
}

fn what_a_helper_refuses_changes_nothing() {
    let hosts = Hosts::with_rights_of_the_client(&[LinkSpec::mbit(200)]);
    let (mut pipe, mut child) = start_helper(&hosts);
    let eth1 = hosts.lab.interface_index(Host::A, 0);
    for (interface, mtu, status) in [
        (1, 9000, 20),
        (4242, 9000, 5),
        (eth1, 1279, 22),
        (eth1, 65_536, 22),
    ] {
        assert_eq!(
            ask(&mut pipe, &set(interface, mtu))[..2],
            [1, status],
            "{interface} {mtu}"
        );
    }
    assert_eq!(mtu(&hosts, "eth1"), 1500);
    drop(pipe);
    assert!(child.wait().unwrap().success());
}

/// Creates hosts with two cables that carry jumbo frames. The client may change MTUs.
fn jumbo() -> Hosts {
    Hosts::with_rights_of_the_client(&[LinkSpec::mbit(200).with_mtu(9000); 2])
}

/// Starts `nicstripe bench` with a sweep of packet sizes. Each load has the minimum duration.
fn start_bench(hosts: &Hosts, arguments: &[&str]) -> Process {
    let port = hosts.daemon.port.to_string();
    let bench = [
        "bench",
        "10.77.1.2",
        "-p",
        &port,
        "-R",
        "-t",
        "1",
        "-O",
        "0",
    ];
    let sweep = ["-i", "0.1", "--repeat", "1", "--sweep", "mtu"];
    hosts.client.start([&bench[..], &sweep, arguments].concat())
}

fn both(hosts: &Hosts) -> [u32; 2] {
    ["eth1", "eth2"].map(|interface| mtu(hosts, interface))
}

#[track_caller]
fn await_both(hosts: &Hosts, is_it: impl Fn([u32; 2]) -> bool, within: Duration) {
    let begun = Instant::now();
    while !is_it(both(hosts)) {
        assert!(begun.elapsed() < within, "{:?}", both(hosts));
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the points of the only sweep in a report: the packet size in bytes, and true if the rate
/// was computed rather than measured.
fn points(report: &serde_json::Value) -> Vec<(u64, bool)> {
    let points = report["sweeps"][0]["points"].as_array().unwrap();
    points
        .iter()
        .map(|point| (point["size"].as_u64().unwrap(), point["computed"] == true))
        .collect()
}

fn a_bench_measures_other_sizes_of_packets_and_puts_back_what_there_was() {
    let hosts = jumbo();
    let bench = start_bench(&hosts, &["--json"]);
    for size in [1500, 4000] {
        await_both(&hosts, |found| found == [size; 2], BENCH);
    }
    let outcome = bench.finish().expect(0);
    let report = outcome.document_of("nicstripe-bench-report-1");
    assert_eq!(
        points(&report),
        [(1500, false), (4000, false), (9000, false)],
        "{report:#}"
    );
    assert_eq!(
        (both(&hosts), &report["complete"]),
        ([9000; 2], &true.into())
    );
    // Each change writes a record file. None may remain.
    assert_eq!(hosts.client.run(["routes", "list"]).expect(0).stdout, "");
}

fn a_bench_that_is_killed_in_the_middle_of_its_sizes_leaves_the_mtu_as_it_was() {
    let hosts = jumbo();
    let bench = start_bench(&hosts, &[]);
    await_both(&hosts, |found| found == [4000; 2], BENCH);
    bench.kill();
    await_both(&hosts, |found| found == [9000; 2], DEADLINE);
    assert_eq!(hosts.client.run(["routes", "list"]).expect(0).stdout, "");
}

/// Maximum time until a bench sets an MTU: one second per measured point, doubled for a busy
/// machine.
const BENCH: Duration = Duration::from_secs(40);
const DONE: u8 = 0;
const DEADLINE: Duration = Duration::from_secs(5);
