//! What runs come to.

use super::report::{BenchLink, LinkSummary, Phase, Run, Spread, Summary};

/// Sums up the loads of a bench.
pub fn summarise(links: &[BenchLink], runs: &[Run]) -> Summary {
    let of = |phase: Phase| runs.iter().filter(move |run| run.phase == phase);
    let totals = |phase: Phase| spread(of(phase).map(|run| run.total_bps).collect());
    let flows = |phase: Phase, link: u32| of(phase).flat_map(|run| &run.flows).filter(move |flow| flow.link == link);
    let links: Vec<LinkSummary> = links
        .iter()
        .map(|link| LinkSummary {
            link: link.id,
            alone: spread(flows(Phase::Solo, link.id).map(|flow| flow.goodput_bps).collect()),
            together: spread(flows(Phase::Together, link.id).map(|flow| flow.goodput_bps).collect()),
            efficiency: None,
            retransmitted_bytes: flows(Phase::Together, link.id).map(|flow| flow.tcp?.retransmitted_bytes).sum(),
            rtt_loaded_us: flows(Phase::Together, link.id).filter_map(|flow| flow.tcp?.rtt_avg_us).max(),
            limiter: flows(Phase::Together, link.id).next_back().map(|flow| flow.limiter),
        })
        .collect();
    let together = totals(Phase::Together);
    let alone: Option<u64> = links.iter().map(|link| Some(link.alone?.median_bps)).sum();
    Summary {
        scaling: together.zip(alone.filter(|sum| *sum > 0)).map(|(together, sum)| together.median_bps as f64 / sum as f64),
        together,
        reverse: totals(Phase::Reverse),
        both: totals(Phase::Both),
        sentence: together.map_or_else(|| "nothing was measured".into(), |spread| format!("together {} bit/s", spread.median_bps)),
        links,
        ..Summary::default()
    }
}

/// The middle and the range of some rates; nothing of none.
pub(crate) fn spread(mut rates: Vec<u64>) -> Option<Spread> {
    rates.sort_unstable();
    let (min_bps, max_bps) = (*rates.first()?, *rates.last()?);
    let middle = rates.len() / 2;
    let median_bps = if rates.len() % 2 == 1 { rates[middle] } else { rates[middle - 1].midpoint(rates[middle]) };
    let stable = rates.len() >= 2 && (max_bps - min_bps) as f64 <= median_bps as f64 * 0.02;
    Some(Spread { median_bps, min_bps, max_bps, n: rates.len() as u32, stable })
}
