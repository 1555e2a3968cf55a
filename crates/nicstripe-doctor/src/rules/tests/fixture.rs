//! Healthy case: two machines, joined by two gigabit cables that a bench found full.

use nicstripe_bench::{
    BenchLink, BenchReport, CpuUse, Ends, Flow, Limiter, LinkSummary, Phase, PlanSummary,
    RoundTrips, Run, SCHEMA, Spread, Summary, TcpUse,
};
use nicstripe_link::facts::{
    AddressFacts, BusHop, EeeFacts, Facts, HostFacts, InterfaceFacts, InterruptFacts, LinkModes,
    PauseFacts, ProcessorFacts, QdiscFacts, RingFacts,
};

use crate::case::{Case, LinkFacts, LinkState, Machine};

/// Length of the measurement windows, in microseconds.
pub(super) const WINDOW_US: u64 = 3_000_000;
/// Bytes of a full gigabit cable in a window: 941 Mbit/s for 3 s.
pub(super) const BYTES: u64 = 352_875_000;
const THEORY: u64 = 941_482_444;
const CABLES: [(u8, &str, &str); 2] = [(1, "eth0", "enp1s0"), (2, "eth1", "enp2s0")];

pub(super) fn healthy() -> Case {
    let links = CABLES.map(|(cable, here, there)| LinkFacts {
        here: here.into(),
        there: Some(there.into()),
        local: Some([10, 0, cable, 1].into()),
        remote: Some([10, 0, cable, 2].into()),
        state: LinkState::Verified,
        port: Some(7420),
        ..LinkFacts::default()
    });
    Case {
        here: machine("alpha", 1, CABLES.map(|(cable, here, _)| (cable, here))),
        there: Some(machine(
            "beta",
            2,
            CABLES.map(|(cable, _, there)| (cable, there)),
        )),
        links: links.into(),
        bench: Some(report()),
    }
}

fn machine(name: &str, host: u8, cards: [(u8, &str); 2]) -> Machine {
    let facts = Facts {
        version: Some("0.1.0".into()),
        host: HostFacts {
            name: Some(name.into()),
            kernel: Some("6.8.0-85-generic".into()),
            cores: Some(2),
            congestion: Some("cubic".into()),
            timestamps: Some(true),
            receive_buffer_max_bytes: Some(212_992),
            send_buffer_max_bytes: Some(212_992),
            ..HostFacts::default()
        },
        processors: ProcessorFacts {
            governors: vec!["performance".into()],
            frequency_driver: Some("intel_pstate".into()),
            mhz_now: Some(3000),
            mhz_max: Some(3000),
            mhz_limit: Some(3000),
            thermal_throttles: Some(7),
            on_battery: Some(false),
            numa_nodes: Some(1),
            throttled_periods: Some(0),
            ..ProcessorFacts::default()
        },
        settings: SETTINGS
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        counters: COUNTERS.map(|name| (name.to_owned(), 0)).into(),
        interfaces: cards
            .map(|(cable, name)| interface(name, cable, host))
            .into(),
        cached_destinations: Some(0),
        ..Facts::default()
    };
    Machine {
        idle: Some((later(&facts, 10), 2_000_000)),
        loaded: Some(later(&facts, 3_000_000)),
        facts,
    }
}

fn interface(name: &str, cable: u8, host: u8) -> InterfaceFacts {
    let offloads = ["tso", "gso", "gro", "sg", "tx-checksum", "rx-checksum"];
    let modes = ["100baseT/Half", "100baseT/Full", "1000baseT/Full"];
    let list = |words: &[&str]| -> Option<Vec<String>> {
        Some(words.iter().map(|&word| word.to_owned()).collect())
    };
    InterfaceFacts {
        name: name.into(),
        mtu: Some(1500),
        line_bps: Some(1_000_000_000),
        driver: Some("igb".into()),
        duplex: Some("full".into()),
        offloads: list(&offloads),
        offloads_possible: list(&offloads),
        kind: Some("ethernet".into()),
        up: Some(true),
        carrier: Some(true),
        mac: Some(format!("de:ad:be:ef:{host:02x}:{cable:02x}")),
        addresses: vec![AddressFacts {
            ip: [10, 0, cable, host].into(),
            prefix_len: 24,
        }],
        speed_mbps: Some(1000),
        modes: Some(LinkModes {
            autoneg: Some(true),
            supported: list(&modes),
            advertised: list(&modes),
            partner: list(&modes),
            partner_autoneg: Some(true),
        }),
        pause: Some(PauseFacts {
            autoneg: Some(true),
            rx: Some(true),
            tx: Some(true),
        }),
        eee: Some(EeeFacts {
            enabled: Some(true),
            active: Some(false),
        }),
        rings: Some(RingFacts {
            rx: Some(256),
            rx_max: Some(4096),
            ..RingFacts::default()
        }),
        statistics: STATISTICS
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
        carrier_changes: Some(6),
        bus: vec![BusHop {
            kind: "pci".into(),
            address: format!("0000:0{cable}:00.0"),
            lane_mts: Some(5000),
            lanes: Some(1),
            lanes_max: Some(1),
            ..BusHop::default()
        }],
        numa_node: Some(0),
        interrupts: vec![InterruptFacts {
            irq: 30 + u32::from(cable),
            counts: vec![1000, 1000],
            affinity: Some("0-1".into()),
        }],
        rps: Some(false),
        qdisc: Some(QdiscFacts {
            kind: "fq_codel".into(),
            dropped: Some(0),
            ..QdiscFacts::default()
        }),
        arp_ignore: Some(0),
        arp_announce: Some(0),
        ..InterfaceFacts::default()
    }
}

/// Returns the facts after each card received and sent this number of packets.
fn later(facts: &Facts, packets: u64) -> Facts {
    let mut facts = facts.clone();
    for interface in &mut facts.interfaces {
        for (name, count) in &mut interface.statistics {
            *count += match name.as_str() {
                "rx_packets" | "tx_packets" => packets,
                "rx_bytes" | "tx_bytes" => packets * 1500,
                _ => 0,
            };
        }
        let interrupts = interface.interrupts.iter_mut();
        interrupts
            .flat_map(|interrupt| &mut interrupt.counts)
            .for_each(|count| *count += packets / 2);
    }
    facts
}

fn report() -> BenchReport {
    BenchReport {
        schema: SCHEMA.into(),
        id: "0123456789abcdef0123456789abcdef".into(),
        started: "2026-11-22T06:00:00Z".into(),
        elapsed_s: 12.0,
        complete: true,
        versions: Ends {
            client: "0.1.0".into(),
            daemon: "0.1.0".into(),
        },
        plan: PlanSummary {
            phases: vec![Phase::Solo, Phase::Together],
            load_ms: 3000,
            warm_up_ms: 500,
            interval_ms: 200,
            repeats: [1, 1],
            streams: 1,
            message_bytes: 262_144,
            ..PlanSummary::default()
        },
        hosts: Ends {
            client: host("alpha"),
            daemon: host("beta"),
        },
        links: CABLES.map(link).into(),
        runs: vec![
            run(Phase::Solo, &[1]),
            run(Phase::Solo, &[2]),
            run(Phase::Together, &[1, 2]),
        ],
        summary: Summary {
            links: vec![full(1), full(2)],
            together: Some(spread(1882)),
            theory_bps: Some(2 * THEORY),
            efficiency: Some(0.999),
            scaling: Some(1.0),
            limiter: Some(Limiter::Cable),
            sentence: "alpha → beta: eth0 and eth1 are full".into(),
            ..Summary::default()
        },
        ..BenchReport::default()
    }
}

fn host(name: &str) -> HostFacts {
    HostFacts {
        name: Some(name.into()),
        ..HostFacts::default()
    }
}

fn link((cable, here, there): (u8, &str, &str)) -> BenchLink {
    let end = |name: &str| InterfaceFacts {
        name: name.into(),
        mtu: Some(1500),
        line_bps: Some(1_000_000_000),
        ..InterfaceFacts::default()
    };
    BenchLink {
        id: cable.into(),
        ends: Ends {
            client: end(here),
            daemon: end(there),
        },
        addresses: Ends {
            client: format!("10.0.{cable}.1"),
            daemon: format!("10.0.{cable}.2"),
        },
        theory_bps: Some(THEORY),
        rtt_idle: Some(RoundTrips {
            count: 200,
            min_us: 40.0,
            avg_us: 50.0,
            max_us: 90.0,
            std_us: 5.0,
            p50_us: 49.0,
            p99_us: 80.0,
        }),
        verified: Some(true),
        ..BenchLink::default()
    }
}

fn run(phase: Phase, links: &[u32]) -> Run {
    let cpu = CpuUse {
        worst_core_pct: Some(20.0),
        ..CpuUse::default()
    };
    Run {
        phase,
        repeat: 1,
        window_us: WINDOW_US,
        stable: true,
        flows: links.iter().map(|&link| flow(link)).collect(),
        total_bps: 941_000_000 * links.len() as u64,
        cpu: Ends {
            client: Some(cpu),
            daemon: Some(cpu),
        },
        other_transfers: Some(0),
        ..Run::default()
    }
}

fn flow(link: u32) -> Flow {
    Flow {
        link,
        bytes: BYTES,
        goodput_bps: 941_000_000,
        tcp: Some(TcpUse {
            sent_bytes: Some(BYTES),
            retransmitted_bytes: Some(0),
            busy_us: Some(WINDOW_US),
            rwnd_limited_us: Some(0),
            sndbuf_limited_us: Some(0),
            send_buffer_bytes: Some(4_194_304),
            receive_buffer_bytes: Some(6_291_456),
            ..TcpUse::default()
        }),
        limiter: Limiter::Cable,
        ..Flow::default()
    }
}

fn full(link: u32) -> LinkSummary {
    LinkSummary {
        link,
        alone: Some(spread(941)),
        together: Some(spread(941)),
        efficiency: Some(0.999),
        retransmitted_bytes: Some(0),
        rtt_loaded_us: Some(2000),
        limiter: Some(Limiter::Cable),
    }
}

pub(super) fn spread(mbps: u64) -> Spread {
    let bps = mbps * 1_000_000;
    Spread {
        median_bps: bps,
        min_bps: bps,
        max_bps: bps,
        n: 6,
        stable: true,
    }
}

const SETTINGS: [(&str, &str); 13] = [
    ("net.core.default_qdisc", "fq_codel"),
    ("net.core.netdev_max_backlog", "1000"),
    ("net.core.rmem_max", "212992"),
    ("net.core.wmem_max", "212992"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    ("net.ipv4.tcp_rmem", "4096\t131072\t6291456"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_slow_start_after_idle", "1"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_window_scaling", "1"),
    ("net.ipv4.tcp_wmem", "4096\t16384\t4194304"),
    ("net.netfilter.nf_conntrack_count", "10"),
    ("net.netfilter.nf_conntrack_max", "65536"),
];

const COUNTERS: [&str; 6] = [
    "TcpExt.PruneCalled",
    "TcpExt.TCPBacklogDrop",
    "TcpExt.TCPMemoryPressures",
    "TcpExt.TCPRcvCollapsed",
    "softnet.dropped",
    "softnet.squeezed",
];

const STATISTICS: [(&str, u64); 10] = [
    ("mac.FrameCheckSequenceErrors", 0),
    ("pause.rx", 0),
    ("rx_bytes", 15_000_000_000),
    ("rx_crc_errors", 0),
    ("rx_fifo_errors", 0),
    ("rx_missed_errors", 0),
    ("rx_packets", 10_000_000),
    ("tx_bytes", 15_000_000_000),
    ("tx_carrier_errors", 0),
    ("tx_packets", 10_000_000),
];
