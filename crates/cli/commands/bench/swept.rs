//! Sweeps of a bench as text: one line with the conclusions, followed by the measured points.

use std::{collections::BTreeSet, time::Duration};

use nicstripe::{
    bench::{Sweep, SweepKind, SweepPoint},
    printable,
};

use super::{
    reading::Reading,
    table::kind_text,
    unit::{RateUnit, size},
};
use crate::text::table::aligned_rows;

/// Returns the lines of all sweeps in a report. With `wide`, the rates of buffer, connection and
/// MTU sweeps have ranges.
pub(crate) fn lines(reading: Reading<'_>, wide: bool) -> Vec<String> {
    reading
        .report
        .sweeps
        .iter()
        .flat_map(|sweep| std::iter::once(found(reading, sweep)).chain(points(sweep, wide)))
        .collect()
}

/// Returns the conclusions of a sweep as one line.
fn found(reading: Reading<'_>, sweep: &Sweep) -> String {
    let dropouts: Vec<String> = sweep
        .points
        .iter()
        .filter(|point| point.dropout)
        .filter_map(|point| point.size)
        .map(size)
        .collect();
    // The advice on messages repeats these numbers, and that on a grid names its best point, which
    // is its plateau.
    let (is_message, is_grid) = (
        sweep.kind == SweepKind::Message,
        sweep.kind == SweepKind::Grid,
    );
    let unit = unit_of(sweep);
    let parts = [
        sweep.latency_us.map(|us| format!("latency {us:.1} µs")),
        sweep
            .half_size_bytes
            .map(|bytes| format!("half the rate at {}", size(bytes))),
        sweep
            .plateau
            .filter(|_| !is_grid)
            .map(|plateau| format!("plateau from {}", name(sweep.kind, plateau))),
        sweep
            .bdp_bytes
            .map(|bytes| format!("bandwidth × delay {}", size(bytes))),
        sweep
            .top_decile_bps
            .map(|bps| format!("top decile {} {}", unit.text(bps), unit.name())),
        (!dropouts.is_empty()).then(|| format!("dropouts at {}", dropouts.join(", "))),
        Some(printable(sweep.advice.as_bytes())).filter(|advice| !advice.is_empty() && !is_message),
        Some(printable(sweep.stopped.as_bytes()))
            .filter(|why| !EXPECTED.contains(&why.as_str()))
            .map(|why| format!("({why})")),
    ];
    let over = sweep
        .link
        .map_or_else(String::new, |link| format!(" on {}", reading.name_of(link)));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let text = if sweep.points.is_empty() {
        "nothing was measured".to_owned()
    } else {
        parts.join("   ")
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
    let mut rows = vec![
        [head, unit.name(), "", "given", "CPU s/Gbit", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(sweep.points.iter().map(|point| {
        vec![
            point.size.map_or_else(
                || "kernel default".to_owned(),
                |size| name(sweep.kind, size),
            ),
            unit.text(point.rate.median_bps),
            if wide {
                unit.range(&point.rate)
            } else {
                String::new()
            },
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
    let counts: BTreeSet<u32> = sweep
        .points
        .iter()
        .filter_map(|point| point.streams)
        .collect();
    let sizes: BTreeSet<Option<u64>> = sweep.points.iter().map(|point| point.size).collect();
    let found = |bytes: Option<u64>, count: u32| {
        let point = sweep
            .points
            .iter()
            .find(|point| (point.size, point.streams) == (bytes, Some(count)));
        point.map_or_else(|| "-".to_owned(), |point| unit.text(point.rate.median_bps))
    };
    // An empty last column, since the last is left-aligned.
    let ending = |cells: Vec<String>| cells.into_iter().chain([String::new()]).collect::<Vec<_>>();
    let mut rows = vec![ending(
        std::iter::once(unit.name().to_owned())
            .chain(counts.iter().map(|count| format!("× {count}")))
            .collect(),
    )];
    rows.extend(sizes.into_iter().map(|bytes| {
        let name = bytes.map_or_else(|| "kernel default".to_owned(), size);
        ending(
            std::iter::once(name)
                .chain(counts.iter().map(|count| found(bytes, *count)))
                .collect(),
        )
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

/// Returns the swept value of a point as text: a size, or a number of connections.
fn name(kind: SweepKind, bytes: u64) -> String {
    match kind {
        SweepKind::Streams => bytes.to_string(),
        SweepKind::Mtu => format!("{bytes} B"),
        _ => size(bytes),
    }
}

/// Returns the unit for the rates of a sweep. Those of small messages are too low for Gbit/s.
fn unit_of(sweep: &Sweep) -> RateUnit {
    let most = sweep
        .points
        .iter()
        .map(|point| point.rate.median_bps)
        .max()
        .unwrap_or_default();
    if sweep.kind == SweepKind::Message {
        RateUnit::Megabits
    } else {
        RateUnit::for_most(most)
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
    let time = Duration::from_secs_f64((micros / 1e6).clamp(0.0, 1e6));
    match micros {
        micros if micros < 99.95 => format!("{micros:.1} µs"),
        micros if micros < 999.5 => format!("{micros:.0} µs"),
        micros if micros < 99_950.0 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.0} ms", time.as_secs_f64() * 1e3),
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
