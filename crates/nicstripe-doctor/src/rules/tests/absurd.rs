//! Values that no machine has, but that a peer or a file may claim.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use nicstripe_bench::{
    BenchReport, CpuUse, Direction, DiskReport, Ends, Limiter, LinkSummary, RoundTrips, Spread,
    Sweep, SweepKind, SweepPoint, TcpUse,
};
use nicstripe_link::facts::{
    AddressFacts, BondFacts, BusHop, ChannelFacts, EeeFacts, Facts, HostFacts, InterfaceFacts,
    InterruptFacts, LinkModes, ProcessorFacts, QdiscFacts, RingFacts,
};

use super::fixture::healthy;
use crate::{Case, Diagnosis, LinkState, RULES, examine};

#[test]
fn absurd_values_panic_nowhere_and_are_in_no_command() {
    let mut wrong: BTreeMap<u8, String> = BTreeMap::new();
    for odd in odds() {
        let case = absurd(&odd);
        for rule in RULES {
            if wrong.contains_key(&rule.id) {
                continue;
            }
            let examined = catch_unwind(AssertUnwindSafe(|| examine(&case, &[rule.id])));
            let fault = match &examined {
                Err(_) => Some(format!("panics with {odd:?}")),
                Ok(diagnosis) => unquoted(diagnosis),
            };
            if let Some(fault) = fault {
                wrong.insert(rule.id, fault);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the first command that is no list of words, or has [`HOSTILE`].
fn unquoted(diagnosis: &Diagnosis) -> Option<String> {
    let remedies = diagnosis
        .findings
        .iter()
        .filter_map(|one| one.remedy.as_ref());
    let mut lines = remedies.flat_map(|remedy| remedy.commands.iter().chain(&remedy.undo));
    let is_wrong = |line: &str| shell_words::split(line).is_err() || line.contains(HOSTILE);
    let found = lines.find(|command| is_wrong(command.line.as_str()))?;
    Some(format!("has a strange word: {}", found.line))
}

const HOSTILE: &str = "$(c)";

#[derive(Clone, Copy, Debug)]
struct Odd {
    /// Numbers before the load, and after it.
    before: u64,
    after: u64,
    float: f64,
    limiter: Limiter,
    text: &'static str,
}

fn odds() -> Vec<Odd> {
    let mut all = Vec::new();
    for (before, after) in [
        (0, 0),
        (0, u64::MAX),
        (u64::MAX, 0),
        (u64::MAX, u64::MAX),
        (1, 5000),
    ] {
        for float in [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1.0,
            0.0,
            0.5,
            1e15,
            1e300,
        ] {
            for limiter in [
                Limiter::Cpu,
                Limiter::Window,
                Limiter::ReceiveBuffer,
                Limiter::Sender,
                Limiter::Unknown,
            ] {
                for text in [
                    "",
                    "x",
                    "it's",
                    "a;$(c)",
                    "e';$(c);'",
                    "\\'\n$(c)",
                    "-\"\n\u{1b}[31m",
                ] {
                    all.push(Odd {
                        before,
                        after,
                        float,
                        limiter,
                        text,
                    });
                }
            }
        }
    }
    all
}

fn absurd(odd: &Odd) -> Case {
    let mut case = healthy();
    for machine in [&mut case.here, case.there.as_mut().unwrap()] {
        let (idle, micros) = machine.idle.as_mut().unwrap();
        spoil(&mut machine.facts, odd.before, odd.text);
        spoil(idle, odd.after, odd.text);
        *micros = odd.before;
        spoil(machine.loaded.as_mut().unwrap(), odd.after, odd.text);
    }
    let states = [LinkState::Up, LinkState::Rejected];
    for ((index, link), state) in case.links.iter_mut().enumerate().zip(states) {
        (link.here, link.there) = (name(odd.text, index), Some(name(odd.text, index)));
        link.state = state;
        link.arrived = Some(odd.text.into());
        link.path_mtu = Some(0);
        link.neighbour = Some(true);
        link.port = Some(u16::MAX);
    }
    spoil_report(case.bench.as_mut().unwrap(), odd);
    case
}

fn name(text: &str, index: usize) -> String {
    format!("{text}{index}")
}

fn spoil(facts: &mut Facts, number: u64, text: &str) {
    let small = number as u32;
    facts.host = HostFacts {
        name: Some(text.into()),
        kernel: Some(text.into()),
        cores: Some(small),
        congestion: Some(text.into()),
        receive_buffer_max_bytes: Some(number),
        send_buffer_max_bytes: Some(number),
        cpu_quota_millicores: Some(number),
        ..HostFacts::default()
    };
    facts.processors = ProcessorFacts {
        governors: vec![text.into(), "powersave".into()],
        frequency_driver: Some(text.into()),
        mhz_now: Some(small),
        mhz_max: Some(u32::MAX),
        mhz_limit: Some(small),
        thermal_throttles: Some(number),
        on_battery: Some(true),
        numa_nodes: Some(u32::MAX),
        throttled_periods: Some(number),
        ..ProcessorFacts::default()
    };
    for (setting, value) in &mut facts.settings {
        *value = match setting.as_str() {
            "net.ipv4.tcp_congestion_control" => text.into(),
            "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem" => format!("0 0{text} {number}"),
            _ => number.to_string(),
        };
    }
    facts
        .counters
        .values_mut()
        .for_each(|count| *count = number);
    facts.cached_destinations = Some(small);
    for (index, interface) in facts.interfaces.iter_mut().enumerate() {
        *interface = card(interface, index, number, text);
    }
    facts.interfaces.push(InterfaceFacts {
        name: name(text, 9),
        bond: Some(BondFacts {
            mode: Some("802.3ad".into()),
            hash: Some(text.into()),
            members: Vec::new(),
        }),
        ..InterfaceFacts::default()
    });
}

fn card(healthy: &InterfaceFacts, index: usize, number: u64, text: &str) -> InterfaceFacts {
    let small = number as u32;
    let list = |words: &[&str]| -> Option<Vec<String>> {
        Some(words.iter().map(|&word| word.to_owned()).collect())
    };
    let duplex = if index == 0 { "half" } else { text };
    InterfaceFacts {
        index: Some(small),
        name: name(text, index),
        mtu: Some(if index == 0 { small } else { 9014 }),
        line_bps: Some(number),
        driver: Some("e1000e".into()),
        duplex: Some(duplex.into()),
        offloads: Some(Vec::new()),
        kind: Some("ethernet".into()),
        up: Some(true),
        carrier: Some(true),
        mac: Some(text.into()),
        addresses: vec![AddressFacts {
            ip: [10, 0, 1, 1].into(),
            prefix_len: number as u8,
        }],
        speed_mbps: Some(small),
        modes: Some(LinkModes {
            autoneg: Some(false),
            supported: list(&["", text, "base", "4294967295baseT/Full", "99999999999base"]),
            partner: list(&["2500baseT/Full"]).filter(|_| index == 0),
            ..LinkModes::default()
        }),
        eee: Some(EeeFacts {
            enabled: Some(true),
            active: Some(true),
        }),
        rings: Some(RingFacts {
            rx: Some(small),
            rx_max: Some(u32::MAX),
            ..RingFacts::default()
        }),
        channels: Some(ChannelFacts::default()),
        statistics: healthy
            .statistics
            .keys()
            .map(|name| (name.clone(), number))
            .collect(),
        carrier_changes: Some(number),
        bus: vec![
            BusHop {
                kind: "pci".into(),
                address: text.into(),
                lane_mts: Some(small),
                lanes: Some(small),
                ..BusHop::default()
            },
            BusHop {
                kind: "usb".into(),
                address: text.into(),
                usb_mbps: Some(480),
                ..BusHop::default()
            },
        ],
        numa_node: Some(u32::MAX),
        interrupts: vec![InterruptFacts {
            irq: u32::MAX,
            counts: vec![number, number, 0],
            affinity: Some(text.into()),
        }],
        qdisc: Some(QdiscFacts {
            kind: text.into(),
            limit_bps: Some(number / 2),
            dropped: Some(number),
            ..QdiscFacts::default()
        }),
        arp_ignore: Some(0),
        arp_announce: Some(u8::MAX),
        ..healthy.clone()
    }
}

fn spoil_report(report: &mut BenchReport, odd: &Odd) {
    let (number, float) = (odd.after, odd.float);
    let rate = Spread {
        median_bps: number,
        min_bps: u64::MAX,
        max_bps: 0,
        n: 0,
        stable: false,
    };
    report.plan.socket_buffer_bytes = (odd.limiter == Limiter::Unknown).then_some(number);
    for (index, link) in report.links.iter_mut().enumerate() {
        (link.ends.client.name, link.ends.daemon.name) =
            (name(odd.text, index), name(odd.text, index));
        link.theory_bps = Some(number);
        link.rtt_idle = Some(RoundTrips {
            count: number,
            min_us: float,
            avg_us: float,
            max_us: float,
            std_us: float,
            p50_us: float,
            p99_us: f64::INFINITY,
        });
    }
    for run in &mut report.runs {
        run.window_us = odd.before;
        let cpu = CpuUse {
            worst_core_pct: Some(if float > 0.0 { 100.0 } else { float }),
            throttled_us: Some(number),
            ..CpuUse::default()
        };
        run.cpu = Ends {
            client: Some(cpu),
            daemon: Some(cpu),
        };
        for flow in &mut run.flows {
            flow.tcp = Some(TcpUse {
                sent_bytes: Some(number),
                retransmitted_bytes: Some(number),
                busy_us: Some(number),
                rwnd_limited_us: Some(number),
                sndbuf_limited_us: Some(number),
                send_buffer_bytes: Some(odd.before),
                receive_buffer_bytes: Some(odd.before),
                ..TcpUse::default()
            });
        }
    }
    let point = |size| SweepPoint {
        size: Some(size),
        rate,
        cpu_s_per_gbit: Some(float),
        ..SweepPoint::default()
    };
    report.sweeps = vec![Sweep {
        kind: SweepKind::Mtu,
        points: vec![point(1500), point(9000)],
        ..Sweep::default()
    }];
    report.disk = Some(DiskReport {
        way: Direction::ToClient,
        read: Some(Spread::default()),
        network: Some(rate),
        write: Some(rate),
        narrowest: Some(odd.text.into()),
        file_systems: Ends {
            client: Some(odd.text.into()),
            daemon: None,
        },
        ..DiskReport::default()
    });
    let summary = &mut report.summary;
    summary.together = Some(rate);
    summary.theory_bps = Some(number);
    summary.efficiency = Some(float);
    summary.scaling = Some(float);
    summary.limiter = Some(odd.limiter);
    for link in &mut summary.links {
        *link = LinkSummary {
            link: link.link,
            alone: Some(rate),
            together: Some(Spread::default()),
            efficiency: Some(float),
            retransmitted_bytes: Some(number),
            rtt_loaded_us: Some(number),
            limiter: Some(odd.limiter),
        };
    }
}

#[test]
fn empty_lists_panic_nowhere() {
    let mut case = healthy();
    let report = case.bench.as_mut().unwrap();
    report.runs.clear();
    report.summary.links.clear();
    examine(&case, &[]);
    let report = case.bench.as_mut().unwrap();
    report.links.clear();
    for machine in [&mut case.here, case.there.as_mut().unwrap()] {
        machine.facts.interfaces.clear();
        machine.loaded = Some(Facts::default());
    }
    let findings = examine(&case, &[]).findings;
    assert!(findings.is_empty(), "{findings:?}");
}
