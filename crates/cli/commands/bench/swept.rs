//! Sweeps of a bench as text: one line with the conclusions, followed by the measured points.

use std::collections::BTreeSet;

use nicstripe::{
    bench::{Sweep, SweepKind, SweepPoint},
    printable,
};

use super::{
    reading::{Reading, kind_text},
    unit::{RateUnit, size, swept},
};
use crate::text::table::aligned_rows;

/// Returns the lines of all sweeps in a report. With `wide`, the rates of buffer, connection and
/// MTU sweeps have ranges.
pub(crate) fn lines(reading: Reading<'_>, wide: bool) -> Vec<String> {
    let sweeps = reading.report.sweeps.iter();
    sweeps
        .flat_map(|sweep| std::iter::once(found(reading, sweep)).chain(points(sweep, wide)))
        .collect()
}

fn found(reading: Reading<'_>, sweep: &Sweep) -> String {
    let dropouts = sweep.points.iter().filter(|point| point.dropout);
    let dropouts: Vec<String> = dropouts.filter_map(|point| point.size).map(size).collect();
    // The advice on messages repeats these numbers, and that on a grid names its best point, which
    // is its plateau.
    let (is_message, is_grid) = (
        sweep.kind == SweepKind::Message,
        sweep.kind == SweepKind::Grid,
    );
    let advice = printable(sweep.advice.as_bytes());
    let stopped = printable(sweep.stopped.as_bytes());
    let plateau = sweep.plateau.filter(|_| !is_grid);
    let rate = |bps| unit_of(sweep).rate(bps);
    let parts = [
        (sweep.latency_us).map(|us| format!("latency {us:.1} µs")),
        (sweep.half_size_bytes).map(|bytes| format!("half the rate at {}", size(bytes))),
        plateau.map(|plateau| format!("plateau from {}", name(sweep.kind, plateau))),
        (sweep.bdp_bytes).map(|bytes| format!("bandwidth × delay {}", size(bytes))),
        (sweep.top_decile_bps).map(|bps| format!("top decile {}", rate(bps))),
        (!dropouts.is_empty()).then(|| format!("dropouts at {}", dropouts.join(", "))),
        (!advice.is_empty() && !is_message).then_some(advice),
        (!EXPECTED.contains(&&*stopped)).then(|| format!("({stopped})")),
    ];
    let over = sweep
        .link
        .map_or_else(String::new, |link| format!(" on {}", reading.name_of(link)));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let text = match sweep.points.is_empty() {
        true => "nothing was measured".to_owned(),
        false => parts.join("   "),
    };
    format!("{}{over}: {text}", kind_text(sweep.kind))
}

/// Returns the measured points of a sweep: one line each, for message sizes a selection, for a grid
/// one line per buffer size.
fn points(sweep: &Sweep, wide: bool) -> Vec<String> {
    let unit = unit_of(sweep);
    match sweep.kind {
        _ if sweep.points.is_empty() => Vec::new(),
        SweepKind::Grid => grid(sweep, unit),
        SweepKind::Message => messages(sweep, unit),
        SweepKind::Buffer | SweepKind::Streams | SweepKind::Mtu => loads(sweep, unit, wide),
    }
}

fn loads(sweep: &Sweep, unit: RateUnit, wide: bool) -> Vec<String> {
    let head = match sweep.kind {
        SweepKind::Streams => "connections",
        SweepKind::Mtu => "MTU",
        _ => "buffer",
    };
    let heads = [head, unit.name(), "", "given", "CPU s/Gbit", ""];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(sweep.points.iter().map(|point| {
        let range = wide.then(|| unit.range(&point.rate));
        vec![
            requested(sweep.kind, point.size),
            unit.text(point.rate.median_bps),
            range.unwrap_or_default(),
            point.got_bytes.map_or_else(String::new, size),
            point.cpu_s_per_gbit.map_or_else(String::new, seconds),
            remark(sweep, point).to_owned(),
        ]
    }));
    // Drops columns without values, except the first and the last, which are left-aligned.
    for column in (1..5).rev() {
        if rows[1..].iter().all(|row| row[column].is_empty()) {
            rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    aligned_rows(&rows)
}

/// Returns the lines for message sizes that are powers of four, and for points with a remark. JSON
/// and HTML have all message sizes.
fn messages(sweep: &Sweep, unit: RateUnit) -> Vec<String> {
    let is_shown = |point: &&SweepPoint| {
        let is_power_of_4 = point
            .size
            .is_some_and(|size| size.is_power_of_two() && size.trailing_zeros().is_multiple_of(2));
        is_power_of_4 || !remark(sweep, point).is_empty()
    };
    let mut rows = vec![["message", unit.name(), "time", ""].map(str::to_owned)];
    rows.extend(sweep.points.iter().filter(is_shown).map(|point| {
        [
            point.size.map_or_else(String::new, size),
            unit.text(point.rate.median_bps),
            point.time_us.map_or_else(String::new, micros),
            remark(sweep, point).to_owned(),
        ]
    }));
    aligned_rows(&rows)
}

fn grid(sweep: &Sweep, unit: RateUnit) -> Vec<String> {
    let points = || sweep.points.iter();
    let counts: BTreeSet<u32> = points().filter_map(|point| point.streams).collect();
    let sizes: BTreeSet<Option<u64>> = points().map(|point| point.size).collect();
    let found = |bytes: Option<u64>, count: u32| {
        let point = points().find(|point| (point.size, point.streams) == (bytes, Some(count)));
        point.map_or_else(|| "-".to_owned(), |point| unit.text(point.rate.median_bps))
    };
    // An empty last column, since the last is left-aligned.
    let row = |first: String, cell: &dyn Fn(u32) -> String| -> Vec<String> {
        let cells = counts.iter().map(|count| cell(*count));
        let cells = std::iter::once(first).chain(cells);
        cells.chain([String::new()]).collect()
    };
    let heads = row(unit.name().to_owned(), &|count| format!("× {count}"));
    let mut rows = vec![heads];
    rows.extend(sizes.into_iter().map(|bytes| {
        let name = requested(sweep.kind, bytes);
        row(name, &|count| found(bytes, count))
    }));
    aligned_rows(&rows)
}

fn remark(sweep: &Sweep, point: &SweepPoint) -> &'static str {
    match point {
        point if point.computed => "computed",
        point if point.dropout => "slower than its neighbours",
        point if point.size.is_some() && point.size == sweep.plateau => "plateau",
        _ => "",
    }
}

fn requested(kind: SweepKind, value: Option<u64>) -> String {
    value.map_or_else(|| "kernel default".to_owned(), |value| name(kind, value))
}

fn name(kind: SweepKind, value: u64) -> String {
    match kind {
        SweepKind::Mtu => format!("{value} B"),
        kind => swept(kind, value),
    }
}

/// Returns the unit for the rates of a sweep. Those of small messages are too low for Gbit/s.
fn unit_of(sweep: &Sweep) -> RateUnit {
    let rates = sweep.points.iter().map(|point| point.rate.median_bps);
    match sweep.kind {
        SweepKind::Message => RateUnit::Megabits,
        _ => RateUnit::for_most(rates.max().unwrap_or_default()),
    }
}

/// Formats CPU time in seconds with three significant digits.
fn seconds(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.9995 => format!("{seconds:.4}"),
        seconds if seconds < 99.95 => format!("{seconds:.2}"),
        _ => format!("{seconds:.0}"),
    }
}

/// Formats microseconds with three significant digits.
fn micros(micros: f64) -> String {
    match micros {
        micros if micros < 99.95 => format!("{micros:.1} µs"),
        micros if micros < 999.5 => format!("{micros:.0} µs"),
        micros if micros < 99_950.0 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.0} ms", micros / 1e3),
    }
}

/// Normal reasons for ending a sweep, which are not printed.
const EXPECTED: [&str; 2] = [
    "all points were measured",
    "the rate does not rise any more",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    fn text() -> String {
        lines(Reading::of(&samples::swept()), true).join("\n")
    }

    #[test]
    fn what_was_found_stands_above_its_points() {
        let text = text();
        for part in [
            "latency 21.4 µs",
            "half the rate at 2517 B",
            "dropouts at 32 KiB",
            "plateau from 2 MiB",
            "plateau from 1 ",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        for row in [
            "  kernel default ",
            "  1500 B ",
            "  32 KiB ",
            "Mbit/s     × 1    × 2",
        ] {
            assert!(text.contains(row), "{row} in {text}");
        }
        let of = |start: &str, end: &str| {
            text.lines()
                .any(|line| line.trim_start().starts_with(start) && line.ends_with(end))
        };
        assert!(
            of("32 KiB", "slower than its neighbours")
                && of("9000 B", "computed")
                && of("2 MiB", "plateau"),
            "{text}"
        );
    }

    #[test]
    fn points_stand_below_each_other() {
        let text = text();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
        assert!(
            rows.len() > 30 && rows.iter().all(|row| row.chars().count() < 100),
            "{text}"
        );
    }

    #[test]
    fn a_sweep_of_nothing_says_so() {
        let mut report = samples::swept();
        report.sweeps.truncate(1);
        report.sweeps[0].points.clear();
        assert!(
            lines(Reading::of(&report), false)
                .iter()
                .all(|line| line.ends_with("nothing was measured"))
        );
    }
}
