//! Charts of sweeps over two parameters, with one cell per buffer size and number of connections.

use std::collections::BTreeSet;

use nicstripe::bench::{Sweep, SweepPoint};

use super::svg::{Svg, WIDTH};
use crate::commands::bench::{reading::Reading, unit::size};

pub(super) fn draw(reading: Reading<'_>, sweep: &Sweep) -> Option<String> {
    let columns = sorted(sweep.points.iter().map(column));
    let rows = sorted(sweep.points.iter().map(row));
    let rates = sweep.points.iter().map(|point| point.rate.median_bps);
    let best = rates.max().filter(|best| *best > 0)?;
    let width = (WIDTH - LEFT - 2.0) / columns.len().max(1) as f64;
    let last = rows.len() as f64 * ROW + TOP;
    let frame = best_tenth(sweep);
    let mut svg = Svg::new(last + 36.0);
    svg.text("soft end", [LEFT - 8.0, 12.0], "conn.");
    for (index, row) in rows.iter().enumerate() {
        svg.text(
            "end",
            [LEFT - 10.0, TOP + index as f64 * ROW + ROW / 2.0 + 4.0],
            row,
        );
    }
    let every = (columns.len() as f64 * 52.0 / (WIDTH - LEFT))
        .ceil()
        .max(1.0) as usize;
    for (index, column) in columns.iter().enumerate().step_by(every) {
        svg.text(
            "soft middle",
            [LEFT + (index as f64 + 0.5) * width, last + 16.0],
            if *column == OWN {
                "auto".to_owned()
            } else {
                size(*column)
            },
        );
    }
    for point in &sweep.points {
        let (Ok(column), Ok(row)) = (
            columns.binary_search(&column(point)),
            rows.binary_search(&row(point)),
        ) else {
            continue;
        };
        let area = [
            LEFT + column as f64 * width,
            TOP + row as f64 * ROW,
            width - 2.0,
            ROW - 2.0,
        ];
        let part = point.rate.median_bps as f64 / best as f64;
        let text = format!("{:.0}", reading.unit.of(point.rate.median_bps));
        cell(&mut svg, area, part, &text);
        if frame.is_some_and(|least| point.rate.median_bps >= least) {
            svg.rect(
                "best",
                [area[0] + 1.5, area[1] + 1.5, area[2] - 3.0, area[3] - 3.0],
                "in the top decile",
            );
        }
    }
    svg.text(
        "soft end",
        [WIDTH, last + 31.0],
        format!("socket buffer; cells in {}", reading.unit.name()),
    );
    Some(svg.finish("Rates by buffer and number of connections"))
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    BTreeSet::from_iter(values).into_iter().collect()
}

/// Returns the buffer size of a point in bytes; 0 for the kernel's default, so that it sorts first.
fn column(point: &SweepPoint) -> u64 {
    point.size.unwrap_or(OWN)
}

fn row(point: &SweepPoint) -> u32 {
    point.streams.unwrap_or(1)
}

/// Draws a cell with a bar whose height shows the rate, so that the chart is readable without
/// colours and on paper.
fn cell(svg: &mut Svg, area: [f64; 4], part: f64, text: &str) {
    let [x, y, width, height] = area;
    svg.rect("faint", area, "");
    svg.rect(
        "pale c1",
        [x, y + height * (1.0 - part), width, height * part],
        "",
    );
    svg.text(
        "halo middle",
        [x + width / 2.0, y + height / 2.0 + 4.5],
        text,
    );
}

/// Returns the lowest rate among the fastest tenth of the points, in bits per second.
fn best_tenth(sweep: &Sweep) -> Option<u64> {
    let mut rates: Vec<u64> = sweep
        .points
        .iter()
        .map(|point| point.rate.median_bps)
        .collect();
    rates.sort_unstable_by(|one, other| other.cmp(one));
    rates.get(rates.len().div_ceil(10).checked_sub(1)?).copied()
}

/// Column key of the kernel's default buffer size. No requested buffer has 0 bytes.
const OWN: u64 = 0;
const LEFT: f64 = 48.0;
const TOP: f64 = 20.0;
const ROW: f64 = 36.0;
