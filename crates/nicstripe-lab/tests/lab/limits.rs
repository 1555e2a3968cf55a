//! Tests of transfer limits other than the cables' rates: a shared bus, a long delay, a CPU quota.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::claims::{in_first_user_namespace, two_links};

use libtest_mimic::Completion;
use nicstripe_lab::{BitRate, CpuQuota, Direction, Host, Lab, LabError, LinkSpec};
use nicstripe_testkit::{
    tests,
    traffic::{Flow, Pair, carry, goodput},
    trial::Test,
};

pub(crate) const TESTS: &[Test] = tests![
    links_that_share_a_bus_carry_less_together_than_alone,
    a_bus_leaves_what_its_host_sends_and_other_links_alone,
    a_bus_stays_when_the_faults_of_its_links_end,
    a_bus_that_makes_no_sense_is_refused,
    a_frame_on_a_cable_with_a_delay_takes_its_time_each_way,
    a_cable_with_a_delay_carries_what_it_is_given,
    a_cable_with_a_delay_is_cut_and_lost_on_like_any_other,
    a_lab_that_is_dropped_takes_its_relays_along,
    a_switch_has_no_delay,
    a_process_with_a_quota_is_held_back_until_the_quota_is_dropped,
];

fn links_that_share_a_bus_carry_less_together_than_alone() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(100); 2])
        .build()
        .unwrap();
    lab.share_bus(Host::B, &[0, 1], BUS).unwrap();
    for link in [0, 1] {
        let alone = [Flow::start(&lab, link, Host::A)];
        // 94 Mbit/s fit into a bus of 120 Mbit/s.
        reaches("one alone", 85e6, &alone);
    }
    let both = [0, 1].map(|link| Flow::start(&lab, link, Host::A));
    reaches("both together", 85e6, &both);
    let most = (0..3).map(|_| total(&both)).fold(0.0, f64::max);
    // 115 Mbit/s of payload; without a bus, 188 Mbit/s. A measurement may include some queued
    // bytes.
    assert!(most < 130e6, "{most:.0} bit/s through a bus of {BUS}");
    lab.share_bus(Host::B, &[0, 1], None).unwrap();
    reaches("both without a bus", 150e6, &both);
}

fn a_bus_leaves_what_its_host_sends_and_other_links_alone() {
    let lab = Lab::builder()
        .links([LinkSpec::mbit(100); 3])
        .build()
        .unwrap();
    lab.share_bus(Host::B, &[0, 1], BitRate::mbit(20)).unwrap();
    lab.share_bus(Host::A, &[2], BitRate::mbit(20)).unwrap();
    let free = [
        Flow::start(&lab, 0, Host::B),
        Flow::start(&lab, 1, Host::B),
        Flow::start(&lab, 2, Host::A),
    ];
    reaches("three links", 230e6, &free);
}

fn a_bus_stays_when_the_faults_of_its_links_end() {
    let lab = two_links();
    let mut pairs = [0, 1].map(|link| Pair::new(&lab, link));
    lab.share_bus(Host::B, &[0, 1], BitRate::mbit(8)).unwrap();
    lab.lose(0, Direction::AToB, 1.0).unwrap();
    pairs[0].expect([false, true]);
    pairs[1].expect([true, true]);
    lab.pass(0).unwrap();
    pairs[0].expect([true, true]);
    lab.drop_silently(0, Direction::AToB).unwrap();
    pairs[0].expect([false, true]);
    lab.pass(0).unwrap();
    // 300 full frames take 454 ms at 8 Mbit/s, less 17 ms for a burst.
    let took = pairs[0].train(300, 1472);
    assert!(took > Duration::from_millis(300), "300 frames in {took:?}");
}

fn a_bus_that_makes_no_sense_is_refused() {
    let lab = two_links();
    assert!(matches!(
        lab.share_bus(Host::B, &[0, 2], BUS),
        Err(LabError::NoSuchLink { .. })
    ));
    let error = lab
        .share_bus(Host::B, &[0], BitRate::from_bits_per_second(1))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "rate of the bus of 1 bit/s is below the least, 8 kbit/s"
    );
    // A second bus replaces the first. Removing a missing bus is no error.
    for rate in [None, Some(BUS), Some(BUS), None, None] {
        lab.share_bus(Host::B, &[0, 1], rate).unwrap();
    }
}

fn a_frame_on_a_cable_with_a_delay_takes_its_time_each_way() {
    let lab = Lab::builder()
        .link(LinkSpec::gigabit().with_delay(DELAY))
        .link(LinkSpec::gigabit())
        .build()
        .unwrap();
    let pair = Pair::new(&lab, 0);
    let [a, b] = pair.sockets();
    let mut bytes = [0; 8];
    let mut trip = || {
        let start = Instant::now();
        for (from, to) in [(a, b), (b, a)] {
            let begun = Instant::now();
            from.send(&bytes).unwrap();
            to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            to.recv(&mut bytes).unwrap();
            assert!(begun.elapsed() >= DELAY, "{:?} one way", begun.elapsed());
        }
        start.elapsed()
    };
    let shortest = (0..10).map(|_| trip()).min().unwrap();
    // At least one of ten round trips takes less than twice the minimum, even on a busy machine.
    assert!(shortest < DELAY * 4, "{shortest:?} there and back");
}

fn a_cable_with_a_delay_carries_what_it_is_given() {
    let specs = [
        LinkSpec::gigabit().with_mtu(9000),
        LinkSpec::gigabit(),
        LinkSpec::unshaped(),
    ];
    let lab = Lab::builder()
        .links(specs.map(|spec| spec.with_delay(Duration::from_millis(2))))
        .build()
        .unwrap();
    for (link, from) in [(0, Host::A), (1, Host::B), (2, Host::A)] {
        assert!(
            carry(&lab, link, from, BYTES, PATTERN) == vec![PATTERN; BYTES],
            "link {link} altered data"
        );
    }
    let before = lab.counters().unwrap();
    carry(&lab, 1, Host::A, BYTES, PATTERN);
    let after = lab.counters().unwrap();
    let carried: Vec<u64> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after.since(before).b.received_bytes)
        .collect();
    assert!(
        carried[1] > BYTES as u64 && carried[0] + carried[2] < 10_000,
        "{carried:?}"
    );
}

fn a_cable_with_a_delay_is_cut_and_lost_on_like_any_other() {
    let lab = Lab::builder()
        .link(LinkSpec::gigabit().with_delay(Duration::from_millis(1)))
        .link(LinkSpec::gigabit())
        .build()
        .unwrap();
    let mut pair = Pair::new(&lab, 0);
    for _ in 0..2 {
        lab.cut(0).unwrap();
        assert!(!lab.has_carrier(Host::A, 0).unwrap());
        pair.expect([false, false]);
        lab.heal(0).unwrap();
        pair.expect([true, true]);
    }
    lab.drop_silently(0, Direction::AToB).unwrap();
    pair.expect([false, true]);
    lab.pass(0).unwrap();
    lab.lose(0, Direction::BToA, 1.0).unwrap();
    pair.expect([true, false]);
    lab.pass(0).unwrap();
    lab.share_bus(Host::B, &[0, 1], BUS).unwrap();
    pair.expect([true, true]);
}

fn a_lab_that_is_dropped_takes_its_relays_along() {
    let lab = Lab::builder()
        .links([LinkSpec::gigabit().with_delay(DELAY); 2])
        .build()
        .unwrap();
    // A thread that has just started may not have its name yet.
    await_relays(4);
    drop(lab);
    assert_eq!(relays(), 0);
}

#[track_caller]
fn await_relays(count: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while relays() != count {
        assert!(
            Instant::now() < deadline,
            "{} relays instead of {count}",
            relays()
        );
        thread::sleep(Duration::from_millis(5));
    }
}

fn a_switch_has_no_delay() {
    let error = Lab::builder()
        .link(LinkSpec::gigabit())
        .link(LinkSpec::gigabit().with_delay(DELAY))
        .one_subnet()
        .build()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "link 1: a cable to a switch has no delay"
    );
}

fn a_process_with_a_quota_is_held_back_until_the_quota_is_dropped() -> Completion {
    let quota = match CpuQuota::new(100) {
        Ok(quota) => quota,
        // Only real root may use control groups.
        Err(_) if !in_first_user_namespace() => return Completion::Completed,
        Err(error @ LabError::NoGroups(_)) => return Completion::ignored_with(error.to_string()),
        Err(error) => panic!("{error:?}"),
    };
    let lab = two_links();
    let mut command = lab.command(Host::A, "sh");
    let mut busy = command
        .args(["-c", "while :; do :; done"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    quota.take(busy.id()).unwrap();
    let groups = || fs::read_to_string(format!("/proc/{}/cgroup", busy.id())).unwrap();
    assert!(groups().contains("nicstripe-lab-"), "{}", groups());
    let deadline = Instant::now() + Duration::from_secs(10);
    while quota.throttled().unwrap() < Duration::from_millis(200) {
        assert!(
            Instant::now() < deadline,
            "a busy loop was throttled for {:?}",
            quota.throttled().unwrap()
        );
        thread::sleep(Duration::from_millis(20));
    }
    quota.set(900).unwrap();
    drop(quota);
    assert!(!groups().contains("nicstripe-lab-"), "{}", groups());
    busy.kill().unwrap();
    busy.wait().unwrap();
    let left = Command::new("find")
        .args([
            "/sys/fs/cgroup",
            "-name",
            &format!("nicstripe-lab-{}-*", std::process::id()),
        ])
        .output()
        .unwrap();
    assert!(
        left.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&left.stdout)
    );
    Completion::Completed
}

/// Panics unless the total goodput of the flows reaches `least` bits per second in one of several
/// measurements.
fn reaches(what: &str, least: f64, flows: &[Flow]) {
    let seen: Vec<f64> = (0..ATTEMPTS)
        .map(|_| total(flows))
        .take_while(|rate| *rate < least)
        .collect();
    assert!(
        seen.len() < ATTEMPTS,
        "{what}: {seen:?} bit/s, expected {least:.0}"
    );
}

fn total(flows: &[Flow]) -> f64 {
    goodput(flows, Duration::from_millis(700)).iter().sum()
}

fn relays() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .filter(|task| {
            fs::read_to_string(task.path().join("comm"))
                .is_ok_and(|name| name.trim() == "lab-relay")
        })
        .count()
}

const BUS: BitRate = BitRate::mbit(120);
const DELAY: Duration = Duration::from_millis(20);
const BYTES: usize = 16 << 20;
const PATTERN: u8 = 0x5a;
const ATTEMPTS: usize = 8;
