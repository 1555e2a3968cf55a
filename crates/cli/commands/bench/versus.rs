//! Two bench reports side by side, as text.

use nicstripe::bench::{BenchReport, Spread};

use super::{
    reading::{Reading, phase_text, short_id},
    unit::RateUnit,
};
use crate::text::table::aligned;

/// Returns the values of two reports as lines, the earlier first. A missing value is a question
/// mark.
pub(crate) fn lines(before: &BenchReport, after: &BenchReport) -> Vec<String> {
    let (one, other) = (Reading::of(before), Reading::of(after));
    let unit = if one.unit == RateUnit::Gigabits {
        one.unit
    } else {
        other.unit
    };
    let rate = |spread: Option<Spread>| spread.map(|spread| spread.median_bps as f64 / unit.bits());
    let mut pairs = Vec::new();
    for (phase, _) in other.whole_phases() {
        pairs.push(Pair::of(
            format!("{}, {}", phase_text(phase), unit.name()),
            rate(one.total(phase)),
            rate(other.total(phase)),
        ));
    }
    for link in &after.links {
        let name = other.name(link);
        let same = before
            .links
            .iter()
            .find(|earlier| one.name(earlier) == name);
        let alone = (
            same.and_then(|link| rate(one.alone(link))),
            rate(other.alone(link)),
        );
        pairs.push(Pair::of(
            format!("{name} alone, {}", unit.name()),
            alone.0,
            alone.1,
        ));
        if let Some(phase) = other.main_phase() {
            let part = (
                same.and_then(|link| rate(one.part(phase, link))),
                rate(other.part(phase, link)),
            );
            pairs.push(Pair::of(
                format!("{name} {}, {}", phase_text(phase), unit.name()),
                part.0,
                part.1,
            ));
        }
    }
    let (earlier, later) = (&before.summary, &after.summary);
    pairs.push(Pair::of(
        "share of theory, %".into(),
        hundredfold(earlier.efficiency),
        hundredfold(later.efficiency),
    ));
    pairs.push(Pair::of(
        "scaling, %".into(),
        hundredfold(earlier.scaling),
        hundredfold(later.scaling),
    ));
    let milliseconds = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
    let [ours, theirs] = other.machines();
    let cpu = [
        (
            ours,
            earlier.cpu_s_per_gbit.client,
            later.cpu_s_per_gbit.client,
        ),
        (
            theirs,
            earlier.cpu_s_per_gbit.daemon,
            later.cpu_s_per_gbit.daemon,
        ),
    ];
    pairs.extend(cpu.map(|(name, before, after)| {
        Pair::of(
            format!("processor of {name}, ms per Gbit"),
            milliseconds(before),
            milliseconds(after),
        )
    }));
    let mut rows = vec![[
        String::new(),
        short_id(&before.id),
        short_id(&after.id),
        "change".into(),
    ]];
    rows.extend(
        pairs
            .iter()
            .filter(|pair| pair.before.or(pair.after).is_some())
            .map(Pair::row),
    );
    aligned(&rows)
}

/// Row of the comparison: one value of the earlier and of the later report.
struct Pair {
    name: String,
    before: Option<f64>,
    after: Option<f64>,
}

impl Pair {
    fn of(name: String, before: Option<f64>, after: Option<f64>) -> Self {
        Self {
            name,
            before,
            after,
        }
    }

    fn row(&self) -> [String; 4] {
        let number = |value: Option<f64>| {
            value.map_or_else(|| "?".to_owned(), |value| format!("{value:.1}"))
        };
        let change = match (self.before, self.after) {
            (Some(before), Some(after)) if before > 0.0 => {
                format!("{:+.1} %", (after / before - 1.0) * 100.0)
            }
            _ => String::new(),
        };
        [
            self.name.clone(),
            number(self.before),
            number(self.after),
            change,
        ]
    }
}

fn hundredfold(part: Option<f64>) -> Option<f64> {
    part.map(|part| part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    #[test]
    fn what_both_have_stands_side_by_side_with_its_change() {
        let lines = lines(&samples::good(), &samples::shared());
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
        let text = lines(&samples::partial(), &samples::good()).join("\n");
        assert!(
            text.contains(" ? ") && !text.contains("NaN") && !text.contains("inf"),
            "{text}"
        );
        assert_eq!(lines(&samples::empty(), &samples::empty()).len(), 1);
    }
}
