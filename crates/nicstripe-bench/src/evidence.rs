//! Evidence about a link's bottleneck from its loads, as input of
//! `limiter.rs`.

use std::time::Duration;

use nicstripe_proto::BitRate;

use crate::{
    limiter::{Buffer, Evidence, Processor},
    report::{
        BenchLink, BenchReport, CpuUse, Direction, Ends, Flow, HostFacts, Phase, Run, TcpUse,
    },
    statistics::{as_values, mean, median},
};

/// Measured loads with their links, machines and buffer setting.
#[derive(Clone, Copy)]
pub(crate) struct Measured<'a> {
    pub(crate) links: &'a [BenchLink],
    pub(crate) runs: &'a [Run],
    /// Facts about both machines, if known.
    pub(crate) hosts: Option<&'a Ends<HostFacts>>,
    /// Requested socket buffer size, in bytes.
    pub(crate) socket_buffer_bytes: Option<u64>,
}

/// Load, with the flow of one link in it.
pub(crate) type Part<'a> = (&'a Run, &'a Flow);

impl<'a> Measured<'a> {
    pub(crate) fn of(report: &'a BenchReport) -> Self {
        Self {
            links: &report.links,
            runs: &report.runs,
            hosts: Some(&report.hosts),
            socket_buffer_bytes: report.plan.socket_buffer_bytes,
        }
    }

    pub(crate) fn of_phase(&self, phase: Phase) -> impl Iterator<Item = &'a Run> + use<'a> {
        self.runs.iter().filter(move |run| run.phase == phase)
    }

    /// Returns all flows of a phase, each with its run.
    pub(crate) fn parts_of(&self, phase: Phase) -> impl Iterator<Item = Part<'a>> + use<'a> {
        self.of_phase(phase)
            .flat_map(|run| run.flows.iter().map(move |flow| (run, flow)))
    }

    /// Returns the flows of a link in one direction in all loads of a phase.
    pub(crate) fn parts(&self, phase: Phase, link: u32, way: Direction) -> Vec<Part<'a>> {
        self.parts_of(phase)
            .filter(|(_, flow)| flow.link == link && flow.way == way)
            .collect()
    }

    /// Returns the flows of a link without other load. If it is the only link, includes those of
    /// the loads over all links.
    pub(crate) fn alone(&self, link: u32, way: Direction) -> Vec<Part<'a>> {
        if self.links.len() == 1 {
            self.least_loaded(link, way)
        } else {
            self.parts(Phase::Solo, link, way)
        }
    }

    /// Returns the flows of a link without other load; falls back to those of the loads over all
    /// links.
    pub(crate) fn least_loaded(&self, link: u32, way: Direction) -> Vec<Part<'a>> {
        let solo = self.parts(Phase::Solo, link, way);
        if solo.is_empty() {
            self.parts(way.phase(), link, way)
        } else {
            solo
        }
    }

    /// Returns the evidence about one link and direction from these flows.
    pub(crate) fn evidence(
        &self,
        link: &BenchLink,
        way: Direction,
        parts: &[Part<'a>],
    ) -> Evidence {
        let is_solo = parts.iter().all(|(run, _)| run.phase == Phase::Solo);
        let alone = if is_solo || self.links.len() == 1 {
            Vec::new()
        } else {
            self.alone(link.id, way)
        };
        let (sender, receiver) = self.processors(way, parts);
        let busy = ratio(parts, |run, tcp| Some((tcp.busy_us?, run.window_us)));
        let idle = link.rtt_idle.map(|trips| trips.min_us / 1e6);
        Evidence {
            goodput: median_rate(parts).unwrap_or_default(),
            theory: link.theory_bps.map(BitRate),
            alone: median_rate(&alone),
            busy,
            rwnd_limited: ratio(parts, |_, tcp| Some((tcp.rwnd_limited_us?, tcp.busy_us?))),
            sndbuf_limited: ratio(parts, |_, tcp| Some((tcp.sndbuf_limited_us?, tcp.busy_us?))),
            loss: loss(parts),
            loss_alone: loss(&alone),
            round_trip: idle.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            loaded_round_trip: mean(&round_trips(parts))
                .and_then(|micros| Duration::try_from_secs_f64(micros / 1e6).ok()),
            sender,
            receiver,
            send_buffer: self.buffer(parts, |tcp| tcp.send_buffer_bytes),
            receive_buffer: self.buffer(parts, |tcp| tcp.receive_buffer_bytes),
        }
    }

    /// Returns the processor use of the sender and of the receiver.
    fn processors(&self, way: Direction, parts: &[Part<'a>]) -> (Processor, Processor) {
        let hosts = self.hosts;
        let ends = Ends {
            client: processor(parts, |cpu| cpu.client, hosts.map(|hosts| &hosts.client)),
            daemon: processor(parts, |cpu| cpu.daemon, hosts.map(|hosts| &hosts.daemon)),
        };
        ends.by(way)
    }

    /// Returns the smallest socket buffer of the loads. Falls back to twice the requested size,
    /// because the kernel doubles it.
    fn buffer(&self, parts: &[Part<'a>], of: impl Fn(&TcpUse) -> Option<u64>) -> Option<Buffer> {
        let reported = parts
            .iter()
            .filter_map(|(_, flow)| of(flow.tcp.as_ref()?))
            .min();
        let requested = || {
            self.socket_buffer_bytes
                .map(|bytes| bytes.saturating_mul(2))
        };
        reported.or_else(requested).map(|bytes| Buffer {
            bytes,
            is_fixed: self.socket_buffer_bytes.is_some(),
        })
    }
}

/// Returns the retransmitted bytes as a fraction of the sent bytes.
fn loss(parts: &[Part<'_>]) -> Option<f64> {
    ratio(parts, |_, tcp| {
        Some((tcp.retransmitted_bytes?, tcp.sent_bytes?))
    })
}

/// Returns the sum of a TCP counter over the loads; `None` if no load has it.
pub(crate) fn sum(parts: &[Part<'_>], of: impl Fn(&TcpUse) -> Option<u64>) -> Option<u64> {
    let values: Vec<u64> = parts
        .iter()
        .filter_map(|(_, flow)| of(flow.tcp.as_ref()?))
        .collect();
    (!values.is_empty()).then(|| values.into_iter().fold(0, u64::saturating_add))
}

pub(crate) fn rates(parts: &[Part<'_>]) -> Vec<BitRate> {
    parts
        .iter()
        .map(|(_, flow)| BitRate(flow.goodput_bps))
        .collect()
}

/// Returns the mean RTT of each load under load, in microseconds.
pub(crate) fn round_trips(parts: &[Part<'_>]) -> Vec<f64> {
    parts
        .iter()
        .filter_map(|(_, flow)| Some(flow.tcp?.rtt_avg_us? as f64))
        .collect()
}

pub(crate) fn median_rate(parts: &[Part<'_>]) -> Option<BitRate> {
    median(&as_values(&rates(parts))).map(|rate| BitRate(rate.round() as u64))
}

/// Returns the ratio of the sums of two values, over the loads that have both.
fn ratio(parts: &[Part<'_>], of: impl Fn(&Run, &TcpUse) -> Option<(u64, u64)>) -> Option<f64> {
    let (above, below) = totals(parts, of);
    (below > 0).then(|| above as f64 / below as f64)
}

/// Returns the sums of two counters over the flows in which both are known.
pub(crate) fn totals(
    parts: &[Part<'_>],
    of: impl Fn(&Run, &TcpUse) -> Option<(u64, u64)>,
) -> (u64, u64) {
    let pairs = parts
        .iter()
        .filter_map(|(run, flow)| of(run, flow.tcp.as_ref()?));
    pairs.fold((0, 0), |(a, b), (c, d)| {
        (a.saturating_add(c), b.saturating_add(d))
    })
}

fn processor(
    parts: &[Part<'_>],
    of: impl Fn(&Ends<Option<CpuUse>>) -> Option<CpuUse>,
    host: Option<&HostFacts>,
) -> Processor {
    let uses: Vec<(u64, CpuUse)> = parts
        .iter()
        .filter_map(|(run, _)| Some((run.window_us, of(&run.cpu)?)))
        .collect();
    let window: f64 = uses.iter().map(|(window, _)| *window as f64).sum();
    let part = |micros: &dyn Fn(&CpuUse) -> Option<u64>| {
        let known: Vec<u64> = uses.iter().filter_map(|(_, cpu)| micros(cpu)).collect();
        (!known.is_empty() && window > 0.0)
            .then(|| known.iter().map(|micros| *micros as f64).sum::<f64>() / window)
    };
    let worst: Vec<f64> = uses
        .iter()
        .filter_map(|(_, cpu)| Some(cpu.worst_core_pct? / 100.0))
        .collect();
    Processor {
        worst_core: median(&worst),
        process_cores: part(&|cpu| Some(cpu.process_us)),
        throttled: part(&|cpu| cpu.throttled_us),
        quota_cores: host
            .and_then(|host| host.cpu_quota_millicores)
            .map(|quota| quota as f64 / 1000.0),
    }
}
