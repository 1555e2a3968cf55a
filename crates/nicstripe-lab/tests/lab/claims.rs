//! Tests of the documented behaviour of cables, hosts and privileges.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Completion;
use nicstripe_lab::{Access, BitRate, Direction, Host, Lab, LabError, LinkSpec, access};
use nicstripe_testkit::{
    tests,
    traffic::Pair,
    trial::{Test, amount},
};

pub(crate) const TESTS: &[Test] = tests![
    a_cut_takes_the_carrier_at_both_hosts_and_heal_returns_it,
    a_silent_drop_leaves_the_carrier_and_loses_one_direction,
    hosts_have_the_promised_settings,
    links_that_do_not_exist_are_refused,
    a_command_runs_in_its_host_with_rights,
    an_unprivileged_command_has_no_capability,
    a_child_dies_with_the_thread_that_spawned_it,
    no_descriptor_or_interface_remains,
    the_kernel_lets_go_of_the_namespaces,
    all_of_this_holds_without_root,
];

fn a_cut_takes_the_carrier_at_both_hosts_and_heal_returns_it() {
    let lab = two_links();
    let mut pairs = [0, 1].map(|link| Pair::new(&lab, link));
    for _ in 0..3 {
        lab.cut(1).unwrap();
        assert_eq!(carriers(&lab), [[true, true], [false, false]]);
        pairs[0].expect([true, true]);
        pairs[1].expect([false, false]);
        for host in Host::ALL {
            let dev = fs_in(&lab, host, "/proc/thread-self/net/if_inet6");
            assert!(
                dev.contains("eth2"),
                "{host} lost its address with the carrier:\n{dev}"
            );
            lab.on(host, || TcpListener::bind((lab.address(host, 1), 0)))
                .unwrap()
                .unwrap();
        }
        lab.heal(1).unwrap();
        assert_eq!(carriers(&lab), [[true, true]; 2]);
        pairs[1].expect([true, true]);
    }
}

fn a_silent_drop_leaves_the_carrier_and_loses_one_direction() {
    let lab = two_links();
    let mut pairs = [0, 1].map(|link| Pair::new(&lab, link));
    let mut expect = |passes| {
        pairs[0].expect([true, true]);
        pairs[1].expect(passes);
        assert_eq!(carriers(&lab), [[true, true]; 2]);
    };
    for (direction, left) in [
        (Direction::AToB, [false, true]),
        (Direction::BToA, [true, false]),
        (Direction::Both, [false, false]),
    ] {
        lab.drop_silently(1, direction).unwrap();
        expect(left);
        lab.pass(1).unwrap();
        expect([true, true]);
    }
    // A repeated drop is no error, the directions add up, and replugging does not end a drop.
    lab.drop_silently(1, Direction::AToB).unwrap();
    lab.drop_silently(1, Direction::AToB).unwrap();
    lab.drop_silently(1, Direction::BToA).unwrap();
    lab.cut(1).unwrap();
    lab.heal(1).unwrap();
    expect([false, false]);
    lab.pass(1).unwrap();
    lab.pass(1).unwrap();
    expect([true, true]);
}

fn hosts_have_the_promised_settings() {
    let lab = two_links();
    for host in Host::ALL {
        let read = |name: &str| {
            fs_in(&lab, host, &format!("/proc/sys/net/{name}"))
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(read("ipv4/tcp_rmem"), "4096 131072 6291456");
        assert_eq!(read("ipv4/tcp_wmem"), "4096 16384 4194304");
        for name in [
            "rp_filter",
            "arp_ignore",
            "arp_announce",
            "arp_filter",
            "forwarding",
        ] {
            let read = ["all", "default", "eth1"]
                .map(|interface| read(&format!("ipv4/conf/{interface}/{name}")));
            assert_eq!(read, ["0"; 3], "{name}");
        }
        if read("ipv4/tcp_allowed_congestion_control").contains("cubic") {
            assert_eq!(read("ipv4/tcp_congestion_control"), "cubic");
        }
    }
}

fn links_that_do_not_exist_are_refused() {
    let lab = two_links();
    for result in [
        lab.cut(2),
        lab.heal(2),
        lab.drop_silently(2, Direction::Both),
        lab.pass(2),
        lab.set_rate(2, None),
    ] {
        let error = result.unwrap_err();
        assert!(
            matches!(error, LabError::NoSuchLink { link: 2, links: 2 }),
            "{error}"
        );
    }
    let error = lab.set_rate(0, BitRate::mbit(0)).unwrap_err();
    assert!(matches!(error, LabError::Invalid(_)), "{error}");
    let error = Lab::builder()
        .links([LinkSpec::gigabit(); 255])
        .build()
        .unwrap_err();
    assert_eq!(error.to_string(), "255 links exceed the limit of 254");
}

fn a_command_runs_in_its_host_with_rights() {
    let lab = two_links();
    let listed = lab
        .command(Host::A, "cat")
        .args(["/proc/net/fib_trie", "/proc/self/status"])
        .output()
        .unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(
        text.contains("10.77.1.1") && text.contains("10.77.2.1"),
        "{text}"
    );
    // CAP_NET_ADMIN is bit 12 (capabilities(7)).
    assert_ne!(effective_capabilities(&text) & (1 << 12), 0, "{text}");
}

fn an_unprivileged_command_has_no_capability() {
    let lab = two_links();
    let listed = lab
        .unprivileged_command(Host::B, "cat")
        .args(["/proc/net/fib_trie", "/proc/self/status"])
        .output()
        .unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains("10.77.1.2"), "{text}");
    assert_eq!(effective_capabilities(&text), 0, "{text}");
}

fn a_child_dies_with_the_thread_that_spawned_it() {
    let lab = two_links();
    let spawn = || {
        lab.command(Host::A, "sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut child = thread::scope(|scope| scope.spawn(spawn).join().unwrap());
    await_until("the child was killed", || {
        child.try_wait().unwrap().is_some()
    });
}

fn no_descriptor_or_interface_remains() {
    let before = (namespaces_held(), interfaces());
    let lab = two_links();
    assert_eq!(
        (namespaces_held(), interfaces()),
        (before.0 + 3, before.1.clone())
    );
    drop(lab);
    assert_eq!((namespaces_held(), interfaces()), before);
}

/// Limits the number of network namespaces in this process's user namespace. The limit shows when
/// the kernel has removed the namespaces of a lab.
fn the_kernel_lets_go_of_the_namespaces() -> Completion {
    if in_first_user_namespace() {
        return Completion::ignored_with(
            "would limit the whole machine's namespaces: tried by all_of_this_holds_without_root",
        );
    }
    /// Previous limit on network namespaces. Restored on drop, even if the test fails, because
    /// later tests also need namespaces.
    struct Limit(String);
    impl Drop for Limit {
        fn drop(&mut self) {
            fs::write(NAMESPACE_LIMIT, self.0.trim()).unwrap();
        }
    }
    let _limit = Limit(fs::read_to_string(NAMESPACE_LIMIT).unwrap());
    fs::write(NAMESPACE_LIMIT, "3").unwrap();
    let build = || Lab::builder().link(LinkSpec::gigabit()).build();
    // The kernel cleans up in the background. Until then, the namespaces of earlier tests count.
    let mut lab = None;
    await_rarely("a first lab fits", || {
        build().map(|built| lab = Some(built)).is_ok()
    });
    assert_eq!(
        build().unwrap_err().to_string(),
        "cannot make a network namespace"
    );
    drop(lab);
    await_rarely("the first lab is gone", || build().is_ok());
    Completion::Completed
}

fn all_of_this_holds_without_root() -> Completion {
    if !in_first_user_namespace() {
        return Completion::ignored_with("runs without root already");
    }
    // The kernel shapes equally for every user, so rates and limits are tested again only in the
    // long form. Started through /proc, because this user may have no access to the program's
    // directory.
    let run = Command::new("/proc/self/exe")
        .args(amount(
            &["--skip", "rates::", "--skip", "limits::"][..],
            &[],
        ))
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(
        run.status.success(),
        "as uid {NOBODY}:\n{text}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    // That run ignores only this test.
    if text.contains("; 1 ignored;") {
        return Completion::Completed;
    }
    println!("{text}");
    Completion::ignored_with("uid 65534 may not build labs here; its reason is printed above")
}

pub(crate) fn two_links() -> Lab {
    assert_eq!(access().unwrap(), Access::Root);
    Lab::builder()
        .link(LinkSpec::gigabit())
        .link(LinkSpec::gigabit())
        .build()
        .unwrap()
}

/// Returns for each link whether host A and host B have carrier.
pub(crate) fn carriers(lab: &Lab) -> Vec<[bool; 2]> {
    (0..lab.links().len())
        .map(|link| Host::ALL.map(|host| lab.has_carrier(host, link).unwrap()))
        .collect()
}

pub(crate) fn fs_in(lab: &Lab, host: Host, path: &str) -> String {
    lab.on(host, || fs::read_to_string(path)).unwrap().unwrap()
}

fn effective_capabilities(status: &str) -> u64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

/// Returns the number of file descriptors of network namespaces that this process has open.
fn namespaces_held() -> usize {
    let target = |entry: fs::DirEntry| fs::read_link(entry.path()).ok();
    let links = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| target(entry.unwrap()));
    links
        .filter(|target| target.to_string_lossy().starts_with("net:["))
        .count()
}

/// Returns the names of the interfaces in this process's own namespace, outside any lab.
fn interfaces() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap();
    table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned())
        .collect()
}

/// Returns true if this process is in the initial user namespace, which maps all users of the
/// machine.
pub(crate) fn in_first_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map")
        .unwrap()
        .split_whitespace()
        .eq(["0", "0", "4294967295"])
}

fn await_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits at most 90 s for a condition, with growing pauses between checks. Used for checks that
/// cost resources: each attempt to build a lab uses free namespaces, which the kernel must also
/// clean up.
fn await_rarely(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut pause = Duration::from_millis(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 90 s: {what}");
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(3));
    }
}

const NAMESPACE_LIMIT: &str = "/proc/sys/user/max_net_namespaces";
const NOBODY: u32 = 65534;
