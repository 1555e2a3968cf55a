//! Comparison of a benchmark report with an earlier one. Does no I/O.

use nicstripe_proto::BitRate;

use crate::{
    change,
    report::{BenchLink, BenchReport, Comparison, Phase, Spread, Verdict},
};

/// Compares a report with an earlier one by the rate of all links together. Falls back to reverse,
/// then to both directions, if either report lacks a phase.
///
/// Reports are not comparable if links, packet sizes, directions or the document version differ. A
/// baseline without such a load counts as a spread of zero repeats. See `change.rs` for the noise.
/// A slower line, other buffers, connection counts or machines do not prevent a comparison, because
/// it is meant to show their effect.
///
/// ```
/// # fn example(now: &nicstripe_bench::BenchReport, before: &nicstripe_bench::BenchReport) {
/// println!("{:?}", nicstripe_bench::compare(now, before).verdict);
/// # }
/// ```
pub fn compare(report: &BenchReport, baseline: &BenchReport) -> Comparison {
    let phase = common_phase(report, baseline);
    let rates = |report: &BenchReport| phase.map(|phase| totals(report, phase)).unwrap_or_default();
    let change = change::compare(&rates(report), &rates(baseline));
    let spread = Spread::of(&rates(baseline)).unwrap_or(NOTHING);
    let no_rate = || {
        change
            .is_none()
            .then(|| "no load was measured in the same direction by both".to_owned())
    };
    let why = obstacle(report, baseline).or_else(no_rate);
    let verdict = change
        .filter(|_| why.is_none())
        .map_or(Verdict::NotComparable, |change| change.verdict);
    Comparison {
        id: baseline.id.clone(),
        baseline: spread,
        change_pct: change.map_or(0.0, |change| change.percent),
        noise_pct: change.map_or(change::LEAST_NOISE_PERCENT, |change| change.noise_percent),
        verdict,
        why,
    }
}

fn common_phase(report: &BenchReport, baseline: &BenchReport) -> Option<Phase> {
    let has = |report: &BenchReport, phase: Phase| report.runs.iter().any(|run| run.phase == phase);
    [Phase::Together, Phase::Reverse, Phase::Both]
        .into_iter()
        .find(|phase| has(report, *phase) && has(baseline, *phase))
}

fn totals(report: &BenchReport, phase: Phase) -> Vec<BitRate> {
    report
        .runs
        .iter()
        .filter(|run| run.phase == phase)
        .map(|run| BitRate(run.total_bps))
        .collect()
}

/// Returns the reason why two reports are not comparable; `None` if they are.
fn obstacle(report: &BenchReport, baseline: &BenchReport) -> Option<String> {
    if report.schema != baseline.schema {
        return Some(format!(
            "schemas differ: {} and {}",
            report.schema, baseline.schema
        ));
    }
    let (current, earlier) = (names(report), names(baseline));
    if current != earlier {
        return Some(format!(
            "links differ: {}, baseline {}",
            listed(&current),
            listed(&earlier)
        ));
    }
    report.links.iter().find_map(|link| {
        let before = baseline
            .links
            .iter()
            .find(|before| name(before) == name(link))?;
        let (now, before) = (mtu(link)?, mtu(before)?);
        (now != before).then(|| {
            format!(
                "MTU of {} differs: {now}, baseline {before}",
                link.ends.client.name
            )
        })
    })
}

fn name(link: &BenchLink) -> (&str, &str) {
    (&link.ends.client.name, &link.ends.daemon.name)
}

fn names(report: &BenchReport) -> Vec<String> {
    let mut names: Vec<String> = report
        .links
        .iter()
        .map(|link| format!("{}={}", link.ends.client.name, link.ends.daemon.name))
        .collect();
    names.sort();
    names
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}

/// Returns the path MTU of a link in bytes, or the smaller interface MTU if the path MTU is
/// unknown.
fn mtu(link: &BenchLink) -> Option<u32> {
    let ends = || {
        link.ends
            .client
            .mtu
            .into_iter()
            .chain(link.ends.daemon.mtu)
            .min()
    };
    link.theory.map(|theory| theory.mtu).or_else(ends)
}

/// Placeholder for a rate that was not measured: zero repeats.
const NOTHING: Spread = Spread {
    median_bps: 0,
    min_bps: 0,
    max_bps: 0,
    n: 0,
    stable: false,
};

#[cfg(test)]
mod tests;
