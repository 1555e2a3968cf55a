//! Comparison of a benchmark report with an earlier one, to detect a regression beyond noise. Does
//! no I/O.

use nicstripe_proto::BitRate;

use crate::{
    report::{BaselineVerdict, BenchLink, BenchReport, Comparison, Phase, Spread},
    statistics::{as_values, median, median_absolute_deviation},
};

/// Compares a report with an earlier one by the rate of all links together. Falls back to reverse,
/// then to both directions, if either report lacks a phase.
///
/// Reports are not comparable if links, packet sizes, directions or the document version differ. A
/// baseline without such a load counts as a spread of zero repeats.
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
    let earlier = rates(baseline);
    let change = change(&rates(report), &earlier);
    let no_rate = || {
        change
            .is_none()
            .then(|| "no load was measured in the same direction by both".to_owned())
    };
    let why = obstacle(report, baseline).or_else(no_rate);
    let (change_pct, noise_pct, verdict) =
        change.unwrap_or((0.0, LEAST_NOISE_PERCENT, BaselineVerdict::NotComparable));
    Comparison {
        id: baseline.id.clone(),
        baseline: Spread::of(&earlier).unwrap_or_default(),
        change_pct,
        noise_pct,
        verdict: if why.is_none() {
            verdict
        } else {
            BaselineVerdict::NotComparable
        },
        why,
    }
}

/// Compares new repeats of a rate with earlier ones: the change of the median and the noise in
/// percent of the earlier median, and the verdict. Returns `None` if either list is empty, or if
/// the earlier median is 0.
///
/// A difference is significant if the medians differ by more than the noise and the ranges do not
/// overlap. The noise is [`LEAST_NOISE_PERCENT`] or three times the larger median absolute
/// deviation, whichever is larger. Simulated with 6 repeats each: noise of 1 % is never reported as
/// a regression, and a drop of 10 % always is (tests below).
fn change(now: &[BitRate], earlier: &[BitRate]) -> Option<(f64, f64, BaselineVerdict)> {
    let (values, before) = (as_values(now), as_values(earlier));
    let base = median(&before).filter(|base| *base > 0.0)?;
    let percent = (median(&values)? - base) / base * 100.0;
    let scatter = median_absolute_deviation(&values)?.max(median_absolute_deviation(&before)?);
    let noise = (3.0 * scatter / base * 100.0).max(LEAST_NOISE_PERCENT);
    let verdict = match percent {
        _ if percent < -noise && now.iter().max() < earlier.iter().min() => {
            BaselineVerdict::Regression
        }
        _ if percent > noise && now.iter().min() > earlier.iter().max() => BaselineVerdict::Better,
        _ => BaselineVerdict::Same,
    };
    Some((percent, noise, verdict))
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

/// Minimum noise in percent, even if the repeats agree: earlier load on the machine affects a run.
const LEAST_NOISE_PERCENT: f64 = 3.0;

#[cfg(test)]
mod tests;
