//! Reports as benches give them, made by a small model, for tests and for looking at what is drawn of them.

use nicstripe::bench::{
    BenchLink, BenchReport, Comparison, CpuUse, DiskReport, Ends, Flow, HostFacts, InterfaceFacts, Interval, Limiter, LinkSummary, Phase,
    PlanSummary, RoundTrips, Run, SCHEMA, Spread, Summary, Sweep, SweepKind, SweepPoint, TcpUse, TheoryInputs, Verdict, Way,
};

use super::reading::{Reading, median};

/// One cable of the model.
#[derive(Debug, Clone)]
pub(crate) struct Cable {
    names: [&'static str; 2],
    line_bps: u64,
    mtu: u32,
    alone_bps: u64,
    together_bps: u64,
    loaded_us: u64,
    lost: f64,
    limiter: Limiter,
}

impl Cable {
    /// A gigabit cable that does all that theory allows.
    pub(crate) fn gigabit(ours: &'static str, theirs: &'static str) -> Self {
        let bps = 940_600_000;
        Self {
            names: [ours, theirs],
            line_bps: 1_000_000_000,
            mtu: 1500,
            alone_bps: bps,
            together_bps: bps - 400_000,
            loaded_us: 2300,
            lost: 0.0,
            limiter: Limiter::Cable,
        }
    }

    fn theory(&self) -> u64 {
        (self.line_bps as f64 * f64::from(self.mtu - 52) / f64::from(self.mtu + 38)).round() as u64
    }
}

/// What a sample is made of.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    cables: Vec<Cable>,
    phases: Vec<Phase>,
    repeats: u32,
    noise: f64,
    limiter: Limiter,
    sentence: &'static str,
    seed: u64,
}

impl Model {
    fn of(cables: Vec<Cable>, sentence: &'static str) -> Self {
        let phases = vec![Phase::Idle, Phase::Solo, Phase::Together, Phase::Reverse, Phase::Both];
        Self { cables, phases, repeats: 6, noise: 0.004, limiter: Limiter::Cable, sentence, seed: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Makes the report.
    pub(crate) fn report(mut self) -> BenchReport {
        let links: Vec<BenchLink> = self.cables.iter().zip(1..).map(|(cable, id)| link(cable, id)).collect();
        let runs = self.runs();
        let mut report = BenchReport {
            schema: SCHEMA.into(),
            id: id_of(self.sentence),
            started: "2026-05-17T09:41:07Z".into(),
            elapsed_s: short(1.2 + runs.iter().map(|run| run.window_us as f64 / 1e6 + 1.3).sum::<f64>()),
            complete: true,
            versions: ends("0.2.0".into(), "0.2.0".into()),
            plan: self.plan(),
            hosts: ends(host("laptop", "13th Gen Intel(R) Core(TM) i7-1360P", 16), host("nas", "Intel(R) N100", 4)),
            links,
            runs,
            sweeps: Vec::new(),
            disk: None,
            summary: Summary::default(),
            baseline: None,
        };
        report.summary = self.summary(&report);
        report
    }

    fn plan(&self) -> PlanSummary {
        PlanSummary {
            phases: self.phases.clone(),
            load_ms: 10_000,
            warm_up_ms: 1000,
            interval_ms: 500,
            repeats: [self.repeats.min(6), self.repeats.max(6)],
            streams: 1,
            message_bytes: 262_144,
            socket_buffer_bytes: None,
        }
    }

    fn runs(&mut self) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut began_us = 1_200_000;
        for repeat in 1..=self.repeats {
            for phase in self.phases.clone() {
                for loaded in self.loads(phase) {
                    let run = self.run(phase, repeat, began_us, &loaded);
                    began_us += run.window_us + 1_300_000;
                    runs.push(run);
                }
            }
        }
        runs
    }

    /// Which links each load of a kind has.
    fn loads(&self, phase: Phase) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.cables.len()).collect();
        match phase {
            Phase::Idle | Phase::Pair => Vec::new(),
            Phase::Solo => all.into_iter().map(|index| vec![index]).collect(),
            Phase::Together | Phase::Reverse | Phase::Both => vec![all],
        }
    }

    fn run(&mut self, phase: Phase, repeat: u32, began_us: u64, loaded: &[usize]) -> Run {
        let ways: &[Way] = match phase {
            Phase::Both => &[Way::ToDaemon, Way::ToClient],
            Phase::Reverse => &[Way::ToClient],
            _ => &[Way::ToDaemon],
        };
        let mut intervals = Vec::new();
        let mut flows = Vec::new();
        let repeat_noise = 1.0 + self.noise * (self.random() - 0.5);
        for way in ways {
            let rates: Vec<f64> = loaded.iter().map(|index| self.rate(phase, *index) * repeat_noise).collect();
            let part = self.intervals(*way, loaded, &rates);
            let counted =
                |position: usize| part.iter().filter(|interval| interval.t_us >= WARM_UP_US).map(|interval| interval.bytes[position]).sum();
            flows.extend(loaded.iter().enumerate().map(|(position, index)| self.flow(phase, *index, *way, counted(position))));
            intervals.extend(part);
        }
        let total: u64 = flows.iter().map(|flow| flow.bytes).sum();
        let bps = |bytes: u64| (bytes as f64 * 8e6 / WINDOW_US as f64) as u64;
        let cpu = ends(Some(cpu(total, 0.011)), Some(cpu(total, 0.019)));
        Run {
            phase,
            repeat,
            began_us,
            window_us: WINDOW_US,
            stable: true,
            flows,
            total_bps: bps(total),
            cpu,
            intervals,
            other_transfers: Some(0),
        }
    }

    fn rate(&self, phase: Phase, index: usize) -> f64 {
        let cable = &self.cables[index];
        match phase {
            Phase::Solo => cable.alone_bps as f64,
            Phase::Both => cable.together_bps as f64 * 0.985,
            _ => cable.together_bps as f64,
        }
    }

    fn intervals(&mut self, way: Way, loaded: &[usize], rates: &[f64]) -> Vec<Interval> {
        let mut intervals = Vec::new();
        for step in 0..(WARM_UP_US + WINDOW_US) / STEP_US {
            // The first interval has the burst that fills queues, and connections that are not up to speed.
            let shape = if step == 0 { 0.82 } else { 1.0 };
            let mut bytes = Vec::new();
            let mut resent = Vec::new();
            let mut rtt_us = Vec::new();
            for (index, rate) in loaded.iter().zip(rates) {
                let noise = 1.0 + 2.0 * self.noise * (self.random() - 0.5);
                let arrived = rate * shape * noise * STEP_US as f64 / 8e6;
                bytes.push(arrived as u64);
                let lost = self.cables[*index].lost * 2.0 * self.random();
                resent.push((arrived * lost / 1448.0) as u64 * 1448);
                let spread = 0.8 + 0.4 * self.random();
                rtt_us.push((self.cables[*index].loaded_us as f64 * spread) as u64);
            }
            intervals.push(Interval { way, t_us: step * STEP_US, dt_us: STEP_US, bytes, retransmitted_bytes: resent, rtt_us });
        }
        intervals
    }

    fn flow(&self, phase: Phase, index: usize, way: Way, bytes: u64) -> Flow {
        let cable = &self.cables[index];
        let retransmitted = (bytes as f64 * cable.lost) as u64;
        let framed = (bytes as f64 * f64::from(cable.mtu + 14) / f64::from(cable.mtu - 52)) as u64;
        Flow {
            link: index as u32 + 1,
            way,
            bytes,
            goodput_bps: (bytes as f64 * 8e6 / WINDOW_US as f64) as u64,
            interface_sent_bytes: Some(framed + retransmitted),
            interface_received_bytes: Some(framed),
            tcp: Some(TcpUse {
                sent_bytes: Some(bytes + retransmitted),
                retransmitted_bytes: Some(retransmitted),
                busy_us: Some(WINDOW_US - 4000),
                rwnd_limited_us: Some(0),
                sndbuf_limited_us: Some(0),
                cwnd_bytes: Some(cable.together_bps / 8 * cable.loaded_us / 1_000_000),
                rtt_avg_us: Some(cable.loaded_us),
                rtt_max_us: Some(cable.loaded_us * 6 / 5),
                send_buffer_bytes: Some(4 << 20),
                receive_buffer_bytes: Some(6 << 20),
            }),
            limiter: if phase == Phase::Solo && cable.limiter == Limiter::Shared { Limiter::Cable } else { cable.limiter },
        }
    }

    fn summary(&self, report: &BenchReport) -> Summary {
        let totals = |phase| self.spread(report.runs.iter().filter(|run| run.phase == phase).map(|run| run.total_bps).collect());
        let links: Vec<LinkSummary> =
            report.links.iter().zip(&self.cables).map(|(link, cable)| self.link_summary(report, link, cable)).collect();
        let theory: Option<u64> = report.links.iter().map(|link| link.theory_bps).sum();
        let together = totals(Phase::Together);
        let alone: Option<u64> = links.iter().map(|link| Some(link.alone?.median_bps)).sum();
        let shares: Vec<f64> = links.iter().filter_map(|link| link.efficiency).collect();
        let rate = together.map(|total| total.median_bps as f64);
        Summary {
            links,
            together,
            reverse: totals(Phase::Reverse),
            both: totals(Phase::Both),
            top_decile_bps: rate.map(|rate| (rate * 1.003) as u64),
            theory_bps: theory,
            efficiency: rate.zip(theory).map(|(rate, theory)| short(rate / theory as f64)),
            scaling: rate.zip(alone).map(|(rate, alone)| short(rate / alone as f64)),
            fairness: together.map(|_| short(jain(&shares))),
            tcp_efficiency_pct: rate
                .map(|_| short(100.0 - 100.0 * self.cables.iter().map(|cable| cable.lost).sum::<f64>() / shares.len().max(1) as f64)),
            transfer_time_ratio: rate.zip(theory).map(|(rate, theory)| short(theory as f64 / rate)),
            buffer_delay_pct: rate.map(|_| 5509.8),
            cpu_s_per_gbit: ends(Some(0.011), Some(0.019)),
            cpu_mhz_per_mbps: ends(Some(0.029), Some(0.032)),
            limiter: Some(self.limiter),
            sentence: self.sentence.into(),
        }
    }

    fn link_summary(&self, report: &BenchReport, link: &BenchLink, cable: &Cable) -> LinkSummary {
        let rates = |phase| {
            let runs = report.runs.iter().filter(|run| run.phase == phase);
            self.spread(runs.flat_map(|run| run.flows.iter().filter(|flow| flow.link == link.id)).map(|flow| flow.goodput_bps).collect())
        };
        let together = rates(Phase::Together);
        LinkSummary {
            link: link.id,
            alone: rates(Phase::Solo),
            together,
            efficiency: together.zip(link.theory_bps).map(|(together, theory)| short(together.median_bps as f64 / theory as f64)),
            retransmitted_bytes: Reading::of(report).sent_again(Phase::Together, link).map(|(bytes, _)| bytes),
            rtt_loaded_us: together.map(|_| cable.loaded_us),
            limiter: Some(cable.limiter),
        }
    }

    fn spread(&self, rates: Vec<u64>) -> Option<Spread> {
        let (min_bps, max_bps, n) = (*rates.iter().min()?, *rates.iter().max()?, rates.len() as u32);
        let median_bps = median(rates.into_iter().map(|rate| rate as f64).collect())? as u64;
        Some(Spread { median_bps, min_bps, max_bps, n, stable: ((max_bps - min_bps) as f64) < 0.02 * median_bps as f64 })
    }

    /// A number in 0..1 (xorshift).
    fn random(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn link(cable: &Cable, id: u32) -> BenchLink {
    let interface = |name: &str, driver: &str| InterfaceFacts {
        name: name.into(),
        mtu: Some(cable.mtu),
        line_bps: Some(cable.line_bps),
        driver: Some(driver.into()),
        duplex: Some("full".into()),
        offloads: Some(["tso", "gso", "gro", "tx-checksum", "rx-checksum", "sg"].map(str::to_owned).into()),
    };
    BenchLink {
        id,
        ends: ends(interface(cable.names[0], "r8152"), interface(cable.names[1], "igc")),
        addresses: ends(format!("10.0.{id}.1"), format!("10.0.{id}.2")),
        theory_bps: Some(cable.theory()),
        theory: Some(TheoryInputs { line_bps: cable.line_bps, mtu: cable.mtu, ip: 4, timestamps: true, vlan_tags: 0 }),
        rtt_idle: Some(RoundTrips { count: 200, min_us: 38.0, avg_us: 41.3, max_us: 97.0, std_us: 6.2, p50_us: 40.1, p99_us: 71.4 }),
        verified: Some(true),
    }
}

fn host(name: &str, cpu: &str, cores: u32) -> HostFacts {
    HostFacts {
        name: Some(name.into()),
        os: Some("Debian GNU/Linux 13".into()),
        kernel: Some("6.18.2".into()),
        cpu: Some(cpu.into()),
        cores: Some(cores),
        cpu_mhz: Some(2600),
        congestion: Some("cubic".into()),
        receive_buffer_max_bytes: Some(4 << 20),
        send_buffer_max_bytes: Some(4 << 20),
        cpu_quota_millicores: None,
    }
}

fn cpu(bytes: u64, seconds_a_gigabit: f64) -> CpuUse {
    let all = bytes as f64 * 8.0 / 1e9 * seconds_a_gigabit * 1e6;
    let part = |part: f64| (all * part) as u64;
    CpuUse {
        user_us: part(0.3),
        system_us: part(0.5),
        softirq_us: part(0.2),
        process_us: part(0.7),
        worst_core_pct: Some(31.0),
        throttled_us: None,
    }
}

/// Gives each sample an id of its own.
fn id_of(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}a5e3c1b09f876543")
}

/// As many digits as are read back as they were written.
fn short(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn ends<T>(client: T, daemon: T) -> Ends<T> {
    Ends { client, daemon }
}

fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// Two gigabit cables at their best.
pub(crate) fn good() -> BenchReport {
    let cables = vec![Cable::gigabit("eth1", "enp2s0"), Cable::gigabit("eth2", "enp3s0")];
    Model::of(cables, "2 links, 235.1 of 235.4 MB/s (99.9 %), limited by the cables").report()
}

/// Two gigabit cables on one bus of 1.2 Gbit/s.
pub(crate) fn shared() -> BenchReport {
    let on_bus = |name, peer, bps| Cable { together_bps: bps, limiter: Limiter::Shared, ..Cable::gigabit(name, peer) };
    let cables = vec![on_bus("eth1", "enp2s0", 657_200_000), on_bus("eth2", "enp3s0", 489_400_000)];
    let sentence = "limited by something that eth1 and eth2 share, such as a bus or a switch: each is as fast as its cable alone";
    Model { limiter: Limiter::Shared, ..Model::of(cables, sentence) }.report()
}

/// A gigabit cable beside one of 100 Mbit/s which loses packets.
pub(crate) fn mixed() -> BenchReport {
    let slow = Cable {
        line_bps: 100_000_000,
        alone_bps: 93_900_000,
        together_bps: 71_500_000,
        lost: 0.0042,
        limiter: Limiter::Loss,
        loaded_us: 9800,
        ..Cable::gigabit("eth2", "enp3s0")
    };
    let sentence = "limited by the cable of eth1, and on eth2 by lost packets: 0.42 % were sent again";
    Model { noise: 0.03, repeats: 12, limiter: Limiter::Loss, ..Model::of(vec![Cable::gigabit("eth1", "enp2s0"), slow], sentence) }.report()
}

/// Four cables of 10 Gbit/s with jumbo frames, only from the daemon.
pub(crate) fn jumbo() -> BenchReport {
    let cable = |name| Cable {
        line_bps: 10_000_000_000,
        mtu: 9000,
        alone_bps: 9_894_000_000,
        together_bps: 9_120_000_000,
        limiter: Limiter::Cpu,
        ..Cable::gigabit(name, name)
    };
    let cables = ["enp1s0f0", "enp1s0f1", "enp4s0f0", "enp4s0f1"].map(cable).into();
    let phases = vec![Phase::Idle, Phase::Reverse];
    let sentence = "limited by the processor of nas: one core is busy";
    Model { phases, limiter: Limiter::Cpu, ..Model::of(cables, sentence) }.report()
}

/// One load of one link whose rate nobody knows, ended by a signal.
pub(crate) fn partial() -> BenchReport {
    let mut report = Model { phases: vec![Phase::Solo], repeats: 1, ..Model::of(vec![Cable::gigabit("wlan0", "eth0")], "") }.report();
    report.complete = false;
    report.links[0].theory = None;
    report.links[0].theory_bps = None;
    report.links[0].rtt_idle = None;
    report.links[0].verified = None;
    report.hosts = Ends::default();
    report.runs[0].cpu = Ends::default();
    report.runs[0].flows[0].tcp = None;
    report.runs[0].intervals.iter_mut().for_each(|interval| {
        interval.retransmitted_bytes.clear();
        interval.rtt_us.clear();
    });
    let alone = report.summary.links[0].alone;
    let links = vec![LinkSummary {
        link: 1,
        alone,
        together: None,
        efficiency: None,
        retransmitted_bytes: None,
        rtt_loaded_us: None,
        limiter: None,
    }];
    report.summary = Summary { links, sentence: "ended before all links were measured together".into(), ..Summary::default() };
    report
}

/// Nothing but the machines: ended before the first load.
pub(crate) fn empty() -> BenchReport {
    let mut report = partial();
    report.runs.clear();
    report.links.clear();
    report.summary = Summary { sentence: "ended before anything was measured".into(), ..Summary::default() };
    report
}

/// Two good cables, with every sweep.
pub(crate) fn swept() -> BenchReport {
    let sweeps = vec![messages(), buffers(), streams(), grid(), packets()];
    BenchReport { sweeps, ..good() }
}

/// Two good cables and the disks at their ends, slower than an earlier bench.
pub(crate) fn with_disk() -> BenchReport {
    let rate = |mbit: u64| Some(point_rate(mbit as f64 * 1e6, 3));
    let disk = DiskReport {
        way: Way::ToDaemon,
        bytes: 4 << 30,
        read: rate(4_210),
        network: rate(1_881),
        write: rate(1_344),
        all: rate(1_310),
        narrowest: Some("write".into()),
        file_systems: ends(Some("ext4".into()), Some("btrfs".into())),
    };
    let baseline = Comparison {
        id: "0badcafe7b2d48d6a5e3c1b09f876543".into(),
        baseline: point_rate(2_122_000_000.0, 6),
        change_pct: -11.4,
        noise_pct: 3.0,
        verdict: Verdict::Regression,
        why: None,
    };
    BenchReport { disk: Some(disk), baseline: Some(baseline), ..good() }
}

/// Every sample with its name.
pub(crate) fn all() -> Vec<(&'static str, BenchReport)> {
    vec![
        ("good", good()),
        ("shared", shared()),
        ("mixed", mixed()),
        ("jumbo", jumbo()),
        ("partial", partial()),
        ("empty", empty()),
        ("swept", swept()),
        ("disk", with_disk()),
    ]
}

fn point_rate(bps: f64, n: u32) -> Spread {
    Spread { median_bps: bps as u64, min_bps: (bps * 0.99) as u64, max_bps: (bps * 1.008) as u64, n, stable: true }
}

fn point(size: Option<u64>, bps: f64) -> SweepPoint {
    let rate = point_rate(bps, 3);
    SweepPoint { size, streams: None, rate, time_us: None, cpu_s_per_gbit: None, got_bytes: None, dropout: false, computed: false }
}

fn sweep(kind: SweepKind, points: Vec<SweepPoint>, advice: &str, stopped: &str) -> Sweep {
    let (advice, stopped) = (advice.to_owned(), stopped.to_owned());
    let (plateau, bdp_bytes, latency_us, half_size_bytes, top_decile_bps) = (None, None, None, None, None);
    Sweep { kind, link: None, points, plateau, bdp_bytes, latency_us, half_size_bytes, top_decile_bps, advice, stopped }
}

fn messages() -> Sweep {
    let mut sizes: Vec<u64> = (0..=24).map(|power| 1_u64 << power).collect();
    sizes.extend([1447, 1448, 1449, 2895, 2896, 2897, 65_535, 65_537]);
    sizes.sort_unstable();
    let measured = |size: u64| {
        let seconds = 21.4e-6 + size as f64 * 8.0 / 941e6;
        let dropout = size == 32_768;
        let bps = size as f64 * 8.0 / seconds * if dropout { 0.7 } else { 1.0 };
        SweepPoint { time_us: Some(short(seconds * 1e6)), dropout, ..point(Some(size), bps) }
    };
    let advice = "messages of 64 KiB and more reach the full rate; at 32 KiB there is a dropout";
    Sweep {
        link: Some(1),
        latency_us: Some(21.4),
        half_size_bytes: Some(2517),
        plateau: Some(131_072),
        ..sweep(SweepKind::Message, sizes.into_iter().map(measured).collect(), advice, "three doublings in a row changed less than 1 %")
    }
}

fn buffers() -> Sweep {
    let measured = |power: u32| {
        let size = 16_384_u64 << power;
        let bps = (size as f64 * 8.0 / 0.0103).min(936e6);
        SweepPoint {
            got_bytes: Some((size * 2).min(8 << 20)),
            cpu_s_per_gbit: Some(short(0.05 - f64::from(power) * 0.002)),
            ..point(Some(size), bps)
        }
    };
    let mut points = vec![point(None, 931e6)];
    points.extend((0..=9).map(measured));
    Sweep {
        link: Some(1),
        plateau: Some(2 << 20),
        bdp_bytes: Some(1_212_000),
        ..sweep(
            SweepKind::Buffer,
            points,
            "leave it to the kernel: no fixed size is faster by more than 3 %",
            "two doublings brought nothing",
        )
    }
}

fn streams() -> Sweep {
    let points = [(1, 1880e6), (2, 1881e6), (4, 1879e6)].map(|(count, bps)| point(Some(count), bps)).into();
    Sweep {
        plateau: Some(1),
        ..sweep(SweepKind::Streams, points, "one connection a link is enough", "twice as many brought less than 2 %")
    }
}

fn grid() -> Sweep {
    let mut points = Vec::new();
    for streams in [1, 2, 4, 8] {
        for power in 0..6 {
            let size = 32_768_u64 << power;
            let bps = (size as f64 * 8.0 / 0.0103 * f64::from(streams)).min(936e6);
            points.push(SweepPoint { streams: Some(streams), ..point(Some(size), bps) });
        }
    }
    Sweep {
        link: Some(1),
        top_decile_bps: Some(936_000_000),
        ..sweep(SweepKind::Grid, points, "1 MiB with 2 connections is the smallest in the best tenth", "all points were measured")
    }
}

fn packets() -> Sweep {
    let measured = |mtu: u64| {
        let bps = 1e9 * (mtu as f64 - 52.0) / (mtu as f64 + 38.0);
        SweepPoint { cpu_s_per_gbit: Some(short(0.03 * 1500.0 / mtu as f64 + 0.012)), computed: mtu > 1500, ..point(Some(mtu), bps) }
    };
    let points = [1500, 4000, 9000].map(measured).into();
    sweep(SweepKind::Mtu, points, "9000 would bring 5 %", "larger packets were computed, as changing them needs a right")
}

const STEP_US: u64 = 500_000;
const WARM_UP_US: u64 = 1_000_000;
const WINDOW_US: u64 = 4_000_000;
