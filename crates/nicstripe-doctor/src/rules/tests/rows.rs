//! Changes of the healthy case, and the expected findings.

use nicstripe_bench::{
    BenchReport, DiskReport, Limiter, LinkSummary, Phase, RoundTrips, Sweep, SweepKind, SweepPoint,
    TcpUse,
};
use nicstripe_link::facts::{BusHop, Facts, InterfaceFacts, QdiscFacts};

use super::fixture::{BYTES, WINDOW_US, spread};
use crate::case::{Case, LinkState, Machine};

/// Rule, claim, change of the healthy case, and all findings as `rule:severity`, by rule.
pub(super) type Row = (u8, &'static str, fn(&mut Case), &'static str);

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    (1, "a failed link beside a strict filter", |case| { one_subnet(case, 1); fail(case, LinkState::Silent) }, "1:warning 1:warning"),
    (2, "a failed link without one", |case| { one_subnet(case, 0); fail(case, LinkState::Silent) }, "2:bad 2:bad"),
    (2, "two subnets", |_| (), ""),

    (5, "a card inside the processor that names one slow lane", |case| { let card = card(case, 0); card.speed_mbps = Some(10_000); card.modes = None; lanes(card, 2500, 1) }, ""),
    (5, "a card on a conventional bus of a virtual machine", |case| { case.here.facts.processors.hypervisor = Some("VMware".into()); below_bridge(card(case, 0)) }, ""),
    (5, "the same of a real one", |case| below_bridge(card(case, 0)), "5:bad"),

    (13, "Wi-Fi with an address", |case| card(case, 0).kind = Some("wi-fi".into()), "13:info"),
    (45, "an enabled card without a carrier", |case| card(case, 0).carrier = Some(false), "45:info"),
    (45, "one that is switched off", |case| { card(case, 0).carrier = Some(false); card(case, 0).up = Some(false) }, ""),

    (4, "two cables that carry 61 % of their sum share a bottleneck", |case| scale(case, 0.61), "4:bad"),
    (4, "a tenth less is noted", |case| scale(case, 0.9), "4:note"),
    (4, "noise", |case| scale(case, 0.96), ""),
    (4, "a link that is slow alone as well", slow_alone, ""),

    (6, "a disk that writes a third", |case| disk(case, 4000, 600), "6:bad"),
    (6, "a disk that reads less than a tenth faster than the network", |case| disk(case, 2000, 4000), "6:bad"),
    (6, "disks that are faster", |case| disk(case, 2100, 4000), ""),

    (7, "a full core below theory", |case| { scale(case, 0.6); fill_core(case) }, "7:bad"),
    (7, "a core that is full only while all links are loaded", |case| { scale(case, 0.6); fill_core(case); in_runs(case, Phase::Solo, 50.0) }, "7:bad"),
    (7, "full cables with a busy core", |case| { fill_core(case); limit(case, Limiter::Cable) }, ""),
    (7, "a control group's quota", |case| { fill_core(case); throttle(case, WINDOW_US / 10) }, "41:bad"),

    (14, "a port that rejects on one link", |case| { case.links[1].state = LinkState::Rejected; case.links[1].neighbour = Some(true) }, "14:bad"),
    (14, "a machine that rejects is there, whatever the neighbour table says", |case| case.links[1].state = LinkState::Rejected, "14:bad"),
    (14, "a daemon that does not listen on one card", |case| case.links[1].state = LinkState::Refused, "14:bad"),
    (14, "a filter of the own machine", |case| case.links[1].state = LinkState::FilteredHere, "14:bad"),
    (14, "a port that rejects on all links", |case| case.links.iter_mut().for_each(|link| link.state = LinkState::Rejected), ""),

    (15, "damaged frames under load", |case| grow(case, 0, "rx_crc_errors", 40), "15:bad"),
    (15, "damaged frames that the driver counts", |case| grow(case, 0, "mac.FrameCheckSequenceErrors", 40), "15:bad"),
    (15, "a few damaged frames under load", |case| grow(case, 0, "rx_crc_errors", 9), ""),
    (15, "they explain a loss", |case| { grow(case, 0, "rx_crc_errors", 40); lose(case, 1, 5_000) }, "15:bad"),
    (15, "they explain no loss of another link", |case| { grow(case, 1, "rx_crc_errors", 40); lose(case, 1, 5_000) }, "15:bad 16:warning"),
    (15, "those of long ago explain no great loss", |case| { since_start(case, "rx_crc_errors", 100_000); lose(case, 1, 20_000) }, "15:warning 16:bad"),

    (16, "half a percent lost", |case| lose(case, 1, 5_000), "16:warning"),
    (16, "two percent lost on each link", |case| { lose(case, 1, 20_000); lose(case, 2, 20_000) }, "16:bad 16:bad"),
    (16, "one packet of 2000 lost", |case| lose(case, 1, 500), ""),
    (16, "a queue that overflows only under the load of all links", |case| { scale(case, 0.9); lose(case, 1, 5_000); lose_nothing_alone(case) }, "4:note"),

    (17, "a flap under load", |case| card_later(case, 0).carrier_changes = Some(8), "17:bad"),
    (17, "a flap explains a loss", |case| { card_later(case, 0).carrier_changes = Some(8); lose(case, 1, 5_000) }, "17:bad"),
    (17, "a cable that was unplugged a few times", |case| since(case, |facts| facts.interfaces[0].carrier_changes = Some(18)), ""),

    (18, "EEE with jitter", |case| { sleepy(case); jitter(case) }, "18:warning"),
    (18, "EEE with half a percent lost", |case| { sleepy(case); lose(case, 1, 5_000) }, "18:warning"),
    (18, "EEE with 0.15 % lost", |case| { sleepy(case); lose(case, 1, 1_500) }, "18:warning"),
    (18, "EEE without loss and jitter", sleepy, ""),
    (18, "jitter without EEE", jitter, ""),

    (20, "a buffer that was cut", |case| { ask(case, 8 << 20); grant(case, 425_984) }, "20:note"),
    (20, "a buffer that was granted", |case| { ask(case, 131_072); grant(case, 262_144) }, ""),
    (20, "small buffers that were not requested", |case| grant(case, 131_072), ""),

    (21, "a window of 64 KiB that limits a direct cable", |case| { small_window(case); summary(case, 1).limiter = Some(Limiter::Window) }, "21:bad"),
    (21, "default windows over 50 ms", |case| { far(case, 50_000.0) }, "21:warning 21:warning"),
    (21, "a full direct cable with a small window", small_window, ""),
    (21, "default windows over 5 ms", |case| far(case, 5_000.0), ""),
    (21, "a size that the program asked for", |case| { far(case, 50_000.0); ask(case, 131_072) }, ""),
    (21, "it explains the receiver", |case| { small_window(case); wait_for_receiver(case); summary(case, 1).limiter = Some(Limiter::ReceiveBuffer) }, "21:bad"),

    (22, "a slow reader", |case| { wait_for_receiver(case); summary(case, 1).limiter = Some(Limiter::Receiver) }, "22:bad"),
    (22, "a full cable with full windows", wait_for_receiver, ""),
    (22, "a full core explains it", |case| { wait_for_receiver(case); fill_core(case); summary(case, 1).limiter = Some(Limiter::Receiver) }, "7:bad"),

    (23, "a sender that sleeps", |case| { pause_sending(case); summary(case, 1).limiter = Some(Limiter::Sender) }, "23:bad"),
    (23, "a full cable", |case| { pause_sending(case); set(case, "net.ipv4.tcp_slow_start_after_idle", "0") }, ""),

    (24, "pause frames that cost a tenth", |case| { grow(case, 0, "pause.rx", 12_000); scale(case, 0.9) }, "24:warning"),
    (24, "pause frames that cost a third", |case| { grow(case, 0, "pause.rx", 12_000); scale(case, 0.66) }, "24:bad"),
    (24, "pause frames that cost nothing", |case| grow(case, 0, "pause.rx", 12_000), ""),

    (25, "a ring that was full under load", |case| grow(case, 0, "rx_missed_errors", 1), "25:bad"),
    (25, "it explains a loss", |case| { grow(case, 0, "rx_fifo_errors", 300); lose(case, 1, 5_000) }, "25:bad"),
    (25, "a few missed frames at the start", |case| since_start(case, "rx_missed_errors", 9), ""),

    (26, "drops before TCP", |case| count(case, "softnet.dropped", 5), "26:bad"),
    (26, "they explain a loss on any link", |case| { count(case, "softnet.dropped", 5); lose(case, 2, 5_000) }, "26:bad"),
    (26, "squeezed without drops", |case| count(case, "softnet.squeezed", 5_000), ""),

    (27, "segmentation that its driver may have left off", |case| card(case, 0).offloads.as_mut().unwrap().retain(|name| name != "tso"), "27:note"),
    (27, "merging that is off", |case| card(case, 0).offloads.as_mut().unwrap().retain(|name| name != "gro"), "27:warning"),

    (28, "one core has all interrupts, and is full", |case| { fill_core(case); one_sided(case) }, "28:bad"),
    (28, "one core has all interrupts, and is not full", one_sided, ""),
    (28, "interrupts on both cores", fill_core, "7:bad"),
    (28, "queues distributed by software", |case| { fill_core(case); one_sided(case); distribute(case) }, "7:bad"),

    (30, "heat under load", |case| later(case).processors.thermal_throttles = Some(10), "30:bad"),
    (30, "heat of long ago", |case| since(case, |facts| facts.processors.thermal_throttles = Some(99)), ""),

    (31, "a shaper on a card of unknown rate", |case| { shape(case, 0, 100); card(case, 0).speed_mbps = None }, "31:warning"),
    (31, "no shaper on a card of unknown rate", |case| card(case, 0).speed_mbps = None, ""),

    (32, "a send queue that overflows", |case| drop_sent(case, 1_000), "32:warning"),
    (32, "it explains a loss", |case| { drop_sent(case, 1_000); lose(case, 1, 5_000) }, "32:warning"),
    (32, "one packet of 30,000 dropped", |case| drop_sent(case, 100), ""),
    (32, "a shaper", |case| { shape(case, 0, 100); drop_sent(case, 1_000) }, "31:bad"),

    (33, "an algorithm for other networks", |case| set(case, "net.ipv4.tcp_congestion_control", "vegas"), "33:note"),
    (33, "bbr without fq", |case| set(case, "net.ipv4.tcp_congestion_control", "bbr"), "33:info"),
    (33, "bbr with fq", |case| { set(case, "net.ipv4.tcp_congestion_control", "bbr"); set(case, "net.core.default_qdisc", "fq") }, ""),
    (33, "reno", |case| set(case, "net.ipv4.tcp_congestion_control", "reno"), ""),

    (35, "pauses, and a slow start after each", |case| { pause_sending(case); limit(case, Limiter::Unknown) }, "35:note"),
    (35, "a window that is kept", |case| { pause_sending(case); limit(case, Limiter::Unknown); set(case, "net.ipv4.tcp_slow_start_after_idle", "0") }, ""),

    (36, "memory pressure", |case| count(case, "TcpExt.TCPMemoryPressures", 1), "36:bad"),
    (36, "drops for lack of memory explain a loss", |case| { count(case, "TcpExt.TCPBacklogDrop", 9); lose(case, 1, 5_000) }, "36:bad"),
    (36, "pruned buffers", |case| { count(case, "TcpExt.PruneCalled", 40); count(case, "TcpExt.TCPRcvCollapsed", 40) }, ""),

    // 50 MB in 2 s are 200 Mbit/s; 0.1 MB 0.4; 1.2 MB 4.8, less than 1 % of a gigabit.
    (37, "a fifth of the cable in use", |case| use_idle(case, 50_000_000), "37:warning"),
    (37, "a video beside it", |case| use_idle(case, 5_000_000), "37:note"),
    (37, "housekeeping", |case| use_idle(case, 100_000), ""),
    (37, "half a percent of the cable in use", |case| use_idle(case, 1_200_000), ""),

    (38, "one link is a hundred times farther", |case| trips(case, 2, 5_000.0, 50.0), "38:warning"),
    (38, "round trips that vary", |case| { trips(case, 1, 2_000.0, 600.0); trips(case, 2, 2_000.0, 600.0) }, "38:warning 38:warning"),
    (38, "links that are equally far", |case| far(case, 2_000.0), ""),
    (38, "microseconds of jitter", |case| trips(case, 1, 50.0, 40.0), ""),
    (38, "EEE explains it", |case| { sleepy(case); far(case, 2_000.0); jitter(case); trips_vary(case) }, "18:warning"),

    (39, "jumbo frames that halve the work", |case| sweep(case, 0.8, 0.4, false), "39:note"),
    (39, "jumbo frames that save little", |case| sweep(case, 0.8, 0.75, false), "39:info"),
    (39, "points that were computed", |case| sweep(case, 0.8, 0.4, true), ""),
    (39, "a link that has 9000 already", |case| { sweep(case, 0.8, 0.4, false); jumbo(case) }, ""),

    (41, "a quota that stops the load", |case| throttle(case, WINDOW_US / 10), "41:bad"),
    (41, "a quota that stops it for a moment", |case| throttle(case, WINDOW_US / 50), ""),

    (43, "a driver in the table on a slow link", |case| { drive(case, "e1000e"); summary(case, 1).efficiency = Some(0.8) }, "43:note"),
    (43, "a driver in the table on a link that loses packets", |case| { drive(case, "e1000e"); lose(case, 1, 5_000) }, "16:warning 43:note"),
    (43, "the same card without a symptom", |case| drive(case, "e1000e"), ""),
    (43, "the driver at another rate", |case| { drive(case, "r8169"); summary(case, 1).efficiency = Some(0.8) }, ""),

    (44, "other kernels", |case| peer(case).facts.host.kernel = Some("5.15.0".into()), "44:info"),
    (44, "a kernel that is not known", |case| peer(case).facts.host.kernel = None, ""),

    (47, "an address that another machine has too", |case| card(case, 0).duplicates = vec!["fe80::1".parse().unwrap()], "47:warning"),
    (47, "no other address", |case| { card(case, 0).duplicates = vec!["fe80::1".parse().unwrap()]; card(case, 0).addresses.clear() }, "47:bad"),
    (46, "cached destinations", |case| case.here.facts.cached_destinations = Some(3), "46:info"),
];

pub(super) fn card(case: &mut Case, number: usize) -> &mut InterfaceFacts {
    &mut case.here.facts.interfaces[number]
}

fn later(case: &mut Case) -> &mut Facts {
    case.here.loaded.as_mut().unwrap()
}

fn card_later(case: &mut Case, number: usize) -> &mut InterfaceFacts {
    &mut later(case).interfaces[number]
}

fn peer(case: &mut Case) -> &mut Machine {
    case.there.as_mut().unwrap()
}

fn report(case: &mut Case) -> &mut BenchReport {
    case.bench.as_mut().unwrap()
}

fn summary(case: &mut Case, link: u32) -> &mut LinkSummary {
    let mut links = report(case).summary.links.iter_mut();
    links.find(|summary| summary.link == link).unwrap()
}

pub(super) fn set(case: &mut Case, setting: &str, value: &str) {
    let settings = &mut case.here.facts.settings;
    settings.insert(setting.into(), value.into());
}

/// Changes the facts before and after the load.
fn since(case: &mut Case, change: impl Fn(&mut Facts)) {
    change(&mut case.here.facts);
    change(later(case));
}

fn since_start(case: &mut Case, statistic: &str, value: u64) {
    since(case, |facts| {
        let statistics = &mut facts.interfaces[0].statistics;
        statistics.insert(statistic.into(), value);
    });
}

pub(super) fn grow(case: &mut Case, number: usize, statistic: &str, by: u64) {
    let statistics = &mut card_later(case, number).statistics;
    *statistics.get_mut(statistic).unwrap() += by;
}

fn count(case: &mut Case, counter: &str, by: u64) {
    *later(case).counters.get_mut(counter).unwrap() += by;
}

pub(super) fn use_idle(case: &mut Case, bytes: u64) {
    let (later, _) = case.here.idle.as_mut().unwrap();
    let statistics = &mut later.interfaces[0].statistics;
    *statistics.get_mut("rx_bytes").unwrap() += bytes;
}

fn tcp(case: &mut Case, link: u32, change: impl Fn(&mut TcpUse)) {
    let flows = report(case).runs.iter_mut().flat_map(|run| &mut run.flows);
    flows
        .filter(|flow| flow.link == link)
        .filter_map(|flow| flow.tcp.as_mut())
        .for_each(change);
}

/// Loses so many millionths of all bytes that the link carries.
pub(super) fn lose(case: &mut Case, link: u32, millionths: u64) {
    let lost = BYTES * millionths / 1_000_000;
    tcp(case, link, |tcp| tcp.retransmitted_bytes = Some(lost));
    summary(case, link).retransmitted_bytes = Some(lost);
}

fn lose_nothing_alone(case: &mut Case) {
    let runs = report(case).runs.iter_mut();
    let alone = runs.filter(|run| run.phase == Phase::Solo);
    alone
        .flat_map(|run| &mut run.flows)
        .filter_map(|flow| flow.tcp.as_mut())
        .for_each(|tcp| tcp.retransmitted_bytes = Some(0));
}

fn wait_for_receiver(case: &mut Case) {
    tcp(case, 1, |tcp| {
        tcp.rwnd_limited_us = Some(WINDOW_US / 100 * 54);
    });
}

fn pause_sending(case: &mut Case) {
    tcp(case, 1, |tcp| tcp.busy_us = Some(WINDOW_US / 2));
}

fn grant(case: &mut Case, bytes: u64) {
    for link in [1, 2] {
        tcp(case, link, |tcp| {
            (tcp.send_buffer_bytes, tcp.receive_buffer_bytes) = (Some(bytes), Some(bytes));
        });
    }
}

fn ask(case: &mut Case, bytes: u64) {
    report(case).plan.socket_buffer_bytes = Some(bytes);
}

fn small_window(case: &mut Case) {
    let settings = &mut peer(case).facts.settings;
    settings.insert("net.ipv4.tcp_rmem".into(), "4096 65536 65536".into());
}

fn scale(case: &mut Case, scaling: f64) {
    let summary = &mut report(case).summary;
    summary.scaling = Some(scaling);
    summary.together = Some(spread((1882.0 * scaling) as u64));
    summary.limiter = Some(Limiter::Shared);
}

fn limit(case: &mut Case, limiter: Limiter) {
    let summary = &mut report(case).summary;
    summary.limiter = Some(limiter);
    for link in &mut summary.links {
        link.limiter = Some(limiter);
    }
}

fn slow_alone(case: &mut Case) {
    let slow = summary(case, 2);
    (slow.alone, slow.together) = (Some(spread(94)), Some(spread(94)));
    report(case).summary.together = Some(spread(941 + 94));
}

fn fill_core(case: &mut Case) {
    limit(case, Limiter::Cpu);
    in_runs(case, Phase::Solo, 98.0);
    in_runs(case, Phase::Together, 98.0);
}

fn in_runs(case: &mut Case, phase: Phase, worst_core_pct: f64) {
    let runs = report(case).runs.iter_mut();
    runs.filter(|run| run.phase == phase)
        .filter_map(|run| run.cpu.client.as_mut())
        .for_each(|cpu| cpu.worst_core_pct = Some(worst_core_pct));
}

fn throttle(case: &mut Case, micros: u64) {
    case.here.facts.host.cpu_quota_millicores = Some(1000);
    let runs = report(case).runs.iter_mut();
    runs.filter_map(|run| run.cpu.client.as_mut())
        .for_each(|cpu| cpu.throttled_us = Some(micros));
}

fn one_sided(case: &mut Case) {
    for number in [0, 1] {
        card_later(case, number).interrupts[0].counts = vec![3_000_000, 1_000];
    }
}

fn distribute(case: &mut Case) {
    since(case, |facts| {
        let interfaces = facts.interfaces.iter_mut();
        interfaces.for_each(|interface| interface.rps = Some(true));
    });
}

fn disk(case: &mut Case, read_mbps: u64, write_mbps: u64) {
    report(case).disk = Some(DiskReport {
        bytes: 1 << 30,
        read: Some(spread(read_mbps)),
        network: Some(spread(1882)),
        write: Some(spread(write_mbps)),
        ..DiskReport::default()
    });
}

fn sweep(case: &mut Case, small: f64, large: f64, computed: bool) {
    let point = |size, cpu_s_per_gbit| SweepPoint {
        size: Some(size),
        cpu_s_per_gbit: Some(cpu_s_per_gbit),
        computed,
        ..SweepPoint::default()
    };
    report(case).sweeps = vec![Sweep {
        kind: SweepKind::Mtu,
        points: vec![point(1500, small), point(9000, large)],
        ..Sweep::default()
    }];
}

fn jumbo(case: &mut Case) {
    let all = [&mut case.here, case.there.as_mut().unwrap()];
    let interfaces = all
        .into_iter()
        .flat_map(|machine| &mut machine.facts.interfaces);
    interfaces.for_each(|interface| interface.mtu = Some(9000));
    for link in &mut report(case).links {
        (link.ends.client.mtu, link.ends.daemon.mtu) = (Some(9000), Some(9000));
    }
}

fn trips(case: &mut Case, link: usize, micros: f64, deviation: f64) {
    report(case).links[link - 1].rtt_idle = Some(RoundTrips {
        count: 200,
        min_us: micros,
        avg_us: micros,
        max_us: micros * 2.0,
        std_us: deviation,
        p50_us: micros,
        p99_us: micros * 2.0,
    });
}

fn far(case: &mut Case, micros: f64) {
    for link in [1, 2] {
        trips(case, link, micros, micros / 100.0);
    }
}

fn jitter(case: &mut Case) {
    let trips = report(case).links[0].rtt_idle.as_mut().unwrap();
    trips.p99_us = trips.p50_us * 20.0;
}

fn trips_vary(case: &mut Case) {
    let trips = report(case).links[0].rtt_idle.as_mut().unwrap();
    trips.std_us = trips.avg_us / 2.0;
}

fn sleepy(case: &mut Case) {
    card(case, 0).eee.as_mut().unwrap().active = Some(true);
}

pub(super) fn shape(case: &mut Case, number: usize, mbps: u64) {
    card(case, number).qdisc = Some(QdiscFacts {
        kind: "tbf".into(),
        limit_bps: Some(mbps * 1_000_000),
        burst_bytes: Some(65_536),
        queue_bytes: Some(300_000),
        dropped: Some(0),
    });
}

fn drop_sent(case: &mut Case, packets: u64) {
    card_later(case, 0).qdisc.as_mut().unwrap().dropped = Some(packets);
}

fn drive(case: &mut Case, driver: &str) {
    card(case, 0).driver = Some(driver.into());
}

/// Puts all interfaces into one subnet, with this `rp_filter` at both ends.
fn one_subnet(case: &mut Case, rp_filter: u8) {
    let machines = std::iter::once(&mut case.here).chain(&mut case.there);
    for (end, machine) in machines.enumerate() {
        for (index, interface) in machine.facts.interfaces.iter_mut().enumerate() {
            interface.rp_filter = Some(rp_filter);
            (interface.arp_ignore, interface.arp_announce) = (Some(0), Some(0));
            if let Some(address) = interface.addresses.first_mut() {
                let host = (index * 2 + end + 1) as u8;
                (address.ip, address.prefix_len) = ([10, 9, 0, host].into(), 24);
            }
        }
    }
}

/// Makes the attempt to connect the second link fail.
fn fail(case: &mut Case, state: LinkState) {
    case.links[1].state = state;
}

fn lanes(card: &mut InterfaceFacts, mts: u32, lanes: u32) {
    for hop in &mut card.bus {
        (hop.lane_mts, hop.lane_max_mts) = (Some(mts), Some(mts));
        (hop.lanes, hop.lanes_max) = (Some(lanes), Some(lanes));
    }
}

/// Puts a card on a conventional PCI bus behind a bridge.
fn below_bridge(card: &mut InterfaceFacts) {
    let hop = |address: &str| BusHop {
        kind: "pci".into(),
        address: address.into(),
        ..BusHop::default()
    };
    card.bus = vec![hop("0000:02:01.0"), hop("0000:00:1e.0")];
}
