//! Handmade benchmark reports for tests.

use crate::report::*;

pub(crate) const THEORY: u64 = 941_482_444;
/// Length of the measurement windows, in microseconds.
pub(crate) const WINDOW_US: u64 = 3_000_000;

/// Returns a gigabit link from `eth<id>` to `enp<id>`.
pub(crate) fn link(id: u32) -> BenchLink {
    let end = |name: String| InterfaceFacts {
        name,
        mtu: Some(1500),
        line_bps: Some(1_000_000_000),
        ..InterfaceFacts::default()
    };
    BenchLink {
        id,
        ends: Ends {
            client: end(format!("eth{}", id - 1)),
            daemon: end(format!("enp{}", id - 1)),
        },
        addresses: Ends {
            client: format!("10.0.{id}.1"),
            daemon: format!("10.0.{id}.2"),
        },
        theory_bps: Some(THEORY),
        theory: Some(TheoryInputs {
            line_bps: 1_000_000_000,
            mtu: 1500,
            ip: 4,
            timestamps: true,
            vlan_tags: 0,
        }),
        rtt_idle: Some(RoundTrips {
            count: 100,
            min_us: 40.0,
            avg_us: 50.0,
            max_us: 90.0,
            std_us: 5.0,
            p50_us: 49.0,
            p99_us: 80.0,
        }),
        verified: Some(true),
    }
}

/// Returns a gigabit link whose line rate neither end knows.
pub(crate) fn link_of_unknown_rate(id: u32) -> BenchLink {
    let mut link = link(id);
    (link.theory_bps, link.theory) = (None, None);
    link
}

/// Returns the flow of a link at `mbit` Mbit/s, limited only by the cable.
pub(crate) fn flow(link: u32, mbit: f64) -> Flow {
    let bytes = (mbit * 1e6 / 8.0 * WINDOW_US as f64 / 1e6) as u64;
    Flow {
        link,
        bytes,
        goodput_bps: (mbit * 1e6) as u64,
        tcp: Some(TcpUse {
            sent_bytes: Some(bytes),
            retransmitted_bytes: Some(0),
            busy_us: Some(WINDOW_US),
            rwnd_limited_us: Some(0),
            sndbuf_limited_us: Some(0),
            rtt_avg_us: Some(2_300),
            ..TcpUse::default()
        }),
        ..Flow::default()
    }
}

/// Returns a flow at `mbit` Mbit/s with TCP counters modified by `change`.
pub(crate) fn flow_with(link: u32, mbit: f64, change: impl Fn(&mut TcpUse)) -> Flow {
    let mut flow = flow(link, mbit);
    flow.tcp.iter_mut().for_each(change);
    flow
}

pub(crate) fn run(phase: Phase, repeat: u32, mut flows: Vec<Flow>) -> Run {
    let cpu = CpuUse {
        user_us: 100_000,
        system_us: 150_000,
        softirq_us: 50_000,
        process_us: 200_000,
        worst_core_pct: Some(20.0),
        ..CpuUse::default()
    };
    if phase == Phase::Reverse {
        flows
            .iter_mut()
            .for_each(|flow| flow.way = Direction::ToClient);
    }
    Run {
        phase,
        repeat,
        window_us: WINDOW_US,
        stable: true,
        total_bps: flows.iter().map(|flow| flow.goodput_bps).sum(),
        flows,
        cpu: Ends {
            client: Some(cpu),
            daemon: Some(cpu),
        },
        other_transfers: Some(0),
        ..Run::default()
    }
}

/// Returns six repeats of loads with these flows: each link alone, and all links together.
pub(crate) fn runs(alone: &[Flow], together: &[Flow]) -> Vec<Run> {
    let mut runs = Vec::new();
    for repeat in 1..=6 {
        runs.extend(
            alone
                .iter()
                .map(|flow| run(Phase::Solo, repeat, vec![flow.clone()])),
        );
        runs.push(run(Phase::Together, repeat, together.to_vec()));
    }
    runs
}

pub(crate) fn report(links: Vec<BenchLink>, runs: Vec<Run>) -> BenchReport {
    let host = |name: &str| HostFacts {
        name: Some(name.into()),
        cpu_mhz: Some(3000),
        cores: Some(2),
        ..HostFacts::default()
    };
    BenchReport {
        schema: SCHEMA.into(),
        id: "0123456789abcdef0123456789abcdef".into(),
        started: "2026-11-22T06:00:00Z".into(),
        elapsed_s: 120.0,
        complete: true,
        versions: Ends {
            client: "0.1.0".into(),
            daemon: "0.1.0".into(),
        },
        plan: PlanSummary {
            phases: vec![Phase::Idle, Phase::Solo, Phase::Together],
            load_ms: 10_000,
            warm_up_ms: 1000,
            interval_ms: 100,
            repeats: [6, 12],
            streams: 1,
            message_bytes: 262_144,
            ..PlanSummary::default()
        },
        hosts: Ends {
            client: host("hostA"),
            daemon: host("hostB"),
        },
        links,
        runs,
        ..BenchReport::default()
    }
}

/// Returns a report with its summary, computed by `conclude`.
pub(crate) fn concluded(links: Vec<BenchLink>, runs: Vec<Run>) -> BenchReport {
    let mut report = report(links, runs);
    super::conclude(&mut report);
    report
}
