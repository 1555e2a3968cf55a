//! `bench list` and `bench compare`, which work on stored reports.

use nicstripe::bench::{BenchReport, Spread, compare};

use super::{
    arguments::{Compare, Stored},
    history::{self, History},
    outcome,
    reading::{Reading, phase_text, short_id},
    unit::RateUnit,
};
use crate::{
    failure::Failure,
    output::{json::print_document, stdout, terminal::Terminal},
    text::{known, table::aligned},
};

pub(crate) fn run(stored: &Stored, history: &History, terminal: &Terminal) -> Result<(), Failure> {
    match stored {
        Stored::List => list(history, terminal),
        Stored::Compare(arguments) => compare_two(arguments, history),
    }
}

fn list(history: &History, terminal: &Terminal) -> Result<(), Failure> {
    let reports = history.list()?;
    if reports.is_empty() {
        terminal.say("no stored reports");
        return Ok(());
    }
    history::table(&reports).iter().try_for_each(stdout::line)
}

/// Prints two reports side by side. The last line and the exit code give the verdict.
fn compare_two(arguments: &Compare, history: &History) -> Result<(), Failure> {
    let before = history.find(&arguments.a)?;
    let mut after = history.find(&arguments.b)?;
    let comparison = compare(&after, &before);
    after.baseline = Some(comparison.clone());
    if arguments.json {
        print_document(&after)?;
    } else {
        let lines = side_by_side(&before, &after).into_iter();
        lines
            .chain(Reading::of(&after).compared())
            .try_for_each(stdout::line)?;
    }
    Ok(outcome::check_comparison(&comparison)?)
}

/// Returns the values of two reports as lines, the earlier first. A missing value is a question
/// mark.
fn side_by_side(before: &BenchReport, after: &BenchReport) -> Vec<String> {
    let (one, other) = (Reading::of(before), Reading::of(after));
    let unit = match one.unit {
        RateUnit::Gigabits => one.unit,
        RateUnit::Megabits => other.unit,
    };
    let rate = |spread: Option<Spread>| spread.map(|spread| spread.median_bps as f64 / unit.bits());
    let mut rows = Vec::new();
    let mut add = |name: String, before: Option<f64>, after: Option<f64>| {
        let is_known = before.or(after).is_some();
        rows.extend(is_known.then(|| row(name, before, after)));
    };
    for (phase, total) in other.whole_phases() {
        let name = format!("{}, {}", phase_text(phase), unit.name());
        add(name, rate(one.total(phase)), rate(Some(total)));
    }
    for link in &after.links {
        let name = other.name(link);
        let mut links = before.links.iter();
        let same = links.find(|earlier| one.name(earlier) == name);
        let earlier = same.and_then(|link| rate(one.alone(link)));
        let alone = format!("{name} alone, {}", unit.name());
        add(alone, earlier, rate(other.alone(link)));
        if let Some(phase) = other.main_phase() {
            let earlier = same.and_then(|link| rate(one.part(phase, link)));
            let name = format!("{name} {}, {}", phase_text(phase), unit.name());
            add(name, earlier, rate(other.part(phase, link)));
        }
    }
    let (earlier, later) = (&before.summary, &after.summary);
    let [ours, theirs] = other.machines();
    let processor = |machine: String| format!("processor of {machine}, ms per Gbit");
    let (then, now) = (&earlier.cpu_s_per_gbit, &later.cpu_s_per_gbit);
    for (name, factor, before, after) in [
        (
            "share of theory, %".into(),
            100.0,
            earlier.efficiency,
            later.efficiency,
        ),
        ("scaling, %".into(), 100.0, earlier.scaling, later.scaling),
        (processor(ours), 1e3, then.client, now.client),
        (processor(theirs), 1e3, then.daemon, now.daemon),
    ] {
        let scaled = |value: Option<f64>| value.map(|value| value * factor);
        add(name, scaled(before), scaled(after));
    }
    let heads = ["", &short_id(&before.id), &short_id(&after.id), "change"];
    aligned(heads, rows)
}

fn row(name: String, before: Option<f64>, after: Option<f64>) -> [String; 4] {
    let number = |value: Option<f64>| known(value.map(|value| format!("{value:.1}")));
    let change = match (before, after) {
        (Some(before), Some(after)) if before > 0.0 => {
            format!("{:+.1} %", (after / before - 1.0) * 100.0)
        }
        _ => String::new(),
    };
    [name, number(before), number(after), change]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    #[test]
    fn what_both_have_stands_side_by_side_with_its_change() {
        let lines = side_by_side(&samples::good(), &samples::shared());
        let row = |begin: &str| {
            lines
                .iter()
                .find(|line| line.trim_start().starts_with(begin))
                .unwrap_or_else(|| panic!("{begin} in {lines:#?}"))
        };
        assert!(
            row("together, Mbit/s").ends_with(" %") && row("together, Mbit/s").contains("-39."),
            "{}",
            row("together, Mbit/s")
        );
        assert!(
            row("eth1 → enp2s0 alone, Mbit/s").contains("0."),
            "{lines:#?}"
        );
        assert!(row("scaling, %").contains("-39."), "{}", row("scaling, %"));
    }

    #[test]
    fn what_only_one_has_is_unknown_in_the_other() {
        let text = side_by_side(&samples::partial(), &samples::good()).join("\n");
        assert!(
            text.contains(" ? ") && !text.contains("NaN") && !text.contains("inf"),
            "{text}"
        );
        assert_eq!(side_by_side(&samples::empty(), &samples::empty()).len(), 1);
    }
}
