//! Values that several rules read from a bench, and their names.

use nicstripe_bench::{
    BenchLink, BenchReport, CpuUse, Direction, Ends, FULL_CORE, Flow, GOOD_SCALING, Limiter,
    LinkSummary, OWN_CORE, Phase, Run, THROTTLED_FROM, TcpUse,
};

use crate::{
    case::{Case, Side, sides},
    command::quoted,
};

/// Returns the name of a link for sentences: `eth1 → enp2s0`.
pub(super) fn spoken(link: &BenchLink) -> String {
    let [here, there] = [&link.ends.client.name, &link.ends.daemon.name].map(|name| quoted(name));
    format!("{here} → {there}")
}

/// Returns the rate that a link lacks to what is expected of it.
pub(super) fn lost(link: &BenchLink, summary: &LinkSummary) -> Option<u64> {
    let expected = link
        .theory_bps
        .or(summary.alone.map(|rate| rate.median_bps))?;
    Some(expected.saturating_sub(summary.together?.median_bps))
}

/// Returns the ratio of the sums of two times over the loads of all links, which the limiter is of.
pub(super) fn part_of(
    report: &BenchReport,
    link: u32,
    of: impl Fn(&Run, &Flow, &TcpUse) -> Option<(u64, u64)>,
) -> Option<f64> {
    let (mut above, mut below) = (0_u64, 0_u64);
    let is_whole = |run: &&Run| !matches!(run.phase, Phase::Idle | Phase::Solo | Phase::Pair);
    let has_whole = report.runs.iter().any(|run| is_whole(&run));
    for run in report.runs.iter().filter(|run| is_whole(run) || !has_whole) {
        for flow in run.flows.iter().filter(|flow| flow.link == link) {
            if let Some((part, whole)) = flow.tcp.as_ref().and_then(|tcp| of(run, flow, tcp)) {
                above = above.saturating_add(part);
                below = below.saturating_add(whole);
            }
        }
    }
    (below > 0).then(|| above as f64 / below as f64)
}

/// Returns the sender's and the receiver's side of a link's first load.
pub(super) fn way_of(report: &BenchReport, link: u32) -> Option<(Side, Side)> {
    let mut flows = report.runs.iter().flat_map(|run| &run.flows);
    flows
        .find(|flow| flow.link == link)
        .map(|flow| sides(flow.way))
}

/// Returns true if a full core of this side is what limits the links.
///
/// If the rate of the cables is unknown, they may be full as well. Then the core must be full of
/// this bench.
pub(super) fn is_core_full(report: &BenchReport, side: Side) -> bool {
    let uses_it = |run: &Run| {
        of(&run.cpu, side)
            .is_some_and(|cpu| cpu.process_us as f64 >= OWN_CORE * run.window_us as f64)
    };
    let is_ours = || report.runs.iter().any(uses_it);
    let is_limit = report.summary.limiter == Some(Limiter::Cpu);
    has_full_core(report, side) && is_limit && (report.summary.theory_bps.is_some() || is_ours())
}

/// Returns true if a core of this side was full under load, of whatever program.
pub(super) fn has_full_core(report: &BenchReport, side: Side) -> bool {
    worst_core(report, side).is_some_and(|worst| worst >= FULL_CORE * 100.0)
}

/// Returns the median of the busiest core's load in percent, over the loads of all links, which the
/// limiter is of; without those, over all loads.
pub(super) fn worst_core(report: &BenchReport, side: Side) -> Option<f64> {
    let is_whole = |run: &&Run| matches!(run.phase, Phase::Together | Phase::Reverse | Phase::Both);
    let has_whole = report.runs.iter().any(|run| is_whole(&run));
    let runs = report.runs.iter().filter(|run| is_whole(run) || !has_whole);
    let mut loads: Vec<f64> = runs
        .filter_map(|run| of(&run.cpu, side)?.worst_core_pct)
        .collect();
    loads.sort_by(f64::total_cmp);
    loads.get(loads.len() / 2).copied()
}

fn of(cpu: &Ends<Option<CpuUse>>, side: Side) -> Option<CpuUse> {
    match side {
        Side::Here => cpu.client,
        Side::There => cpu.daemon,
    }
}

/// Returns true if a quota stopped the bench for more than 5 % of the time.
pub(super) fn is_throttled(case: &Case, side: Side) -> bool {
    let runs = case.bench.iter().flat_map(|report| &report.runs);
    let loaded = runs.filter(|run| run.phase != Phase::Idle);
    let throttled = |run: &Run| {
        let stopped = of(&run.cpu, side)?.throttled_us?;
        Some(stopped as f64 > THROTTLED_FROM * run.window_us as f64)
    };
    loaded.filter_map(throttled).any(|throttled| throttled)
}

/// Returns true for at least [`MANY`] errors, and more than one in 10⁶ frames.
pub(super) fn is_frequent(errors: u64, frames: u64) -> bool {
    errors >= MANY && errors > frames / 1_000_000
}

/// Number of errors below which plugging a cable may be the cause (picked by eye).
const MANY: u64 = 10;

/// Scaling below which it costs more than noise may.
pub(super) const BAD_SCALING: f64 = 0.85;

/// Returns the ratio of retransmitted to sent bytes of a link, in the worse direction.
pub(super) fn loss(report: &BenchReport, link: u32) -> Option<f64> {
    worse_loss(report, link).map(|(loss, _)| loss)
}

/// Like [`loss`], with the direction. Counts only loads of one link if all together share a
/// bottleneck, whose queue overflows.
pub(super) fn worse_loss(report: &BenchReport, link: u32) -> Option<(f64, Direction)> {
    let scaling = report.summary.scaling;
    let is_shared = scaling.is_some_and(|scaling| scaling < GOOD_SCALING);
    let of = |way| {
        let loads = report.runs.iter();
        let loads = loads.filter(|run| !is_shared || run.flows.len() == 1);
        let flows = loads.flat_map(|run| &run.flows);
        let counted = flows.filter(|flow| flow.link == link && flow.way == way);
        let counted = counted.filter_map(|flow| {
            let tcp = flow.tcp?;
            Some((tcp.retransmitted_bytes?, tcp.sent_bytes?))
        });
        let (again, sent) = counted.fold((0, 0), |(a, b): (u64, u64), (c, d)| {
            (a.saturating_add(c), b.saturating_add(d))
        });
        (sent > 0).then(|| (again as f64 / sent as f64, way))
    };
    let ways = [Direction::ToDaemon, Direction::ToClient];
    ways.into_iter()
        .filter_map(of)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
}
