//! Charts of sweeps over one parameter: the rate as a function of the swept value.

use nicstripe::bench::{Sweep, SweepKind, SweepPoint};

use super::svg::{Scale, Svg, WIDTH, text_width, ticks};
use crate::commands::bench::{
    reading::Reading,
    unit::{size, swept},
};

pub(super) fn draw(reading: Reading<'_>, sweep: &Sweep) -> Option<String> {
    let points: Vec<(u64, &SweepPoint)> = sweep
        .points
        .iter()
        .filter_map(|point| Some((point.size?.max(1), point)))
        .collect();
    let sizes = || points.iter().map(|(size, _)| *size);
    let (least, most) = (sizes().min()?, sizes().max()?);
    let highest = sweep.points.iter().map(|point| point.rate.max_bps).max()?;
    let unit = reading.unit;
    let top = unit.of(highest) * 1.05;
    let chart = Chart {
        x: Scale::logarithmic([least as f64, most as f64], [LEFT + 8.0, WIDTH - 14.0]),
        y: Scale::linear([0.0, top], [BOTTOM, TOP]),
        unit: unit.bits(),
    };
    let mut svg = Svg::new(BOTTOM + 36.0);
    svg.rows(chart.y, &ticks(top, 5), [LEFT, WIDTH]);
    axis(&mut svg, sweep.kind, &points, chart);
    marks(&mut svg, sweep, [least, most], chart);
    chart.line(&mut svg, &points);
    chart.points(&mut svg, sweep, &points, reading);
    svg.text("soft end", [WIDTH, BOTTOM + 32.0], axis_text(sweep.kind));
    svg.text("soft", [0.0, BOTTOM + 32.0], unit.name());
    Some(svg.finish(&format!("Rate by {}", axis_text(sweep.kind))))
}

fn axis_text(kind: SweepKind) -> &'static str {
    match kind {
        SweepKind::Message => "message size, bytes",
        SweepKind::Buffer => "requested socket buffer",
        SweepKind::Streams => "connections per link",
        SweepKind::Grid => "buffers and connections",
        SweepKind::Mtu => "MTU, bytes",
    }
}

/// Draws the ticks and labels of the horizontal axis: all packet sizes, or the powers of two of
/// another parameter. Omits labels that would overlap.
fn axis(svg: &mut Svg, kind: SweepKind, points: &[(u64, &SweepPoint)], chart: Chart) {
    let mut values: Vec<u64> = points.iter().map(|(size, _)| *size).collect();
    values.sort_unstable();
    values.dedup();
    if kind != SweepKind::Mtu {
        values.retain(|size| size.is_power_of_two());
    }
    let mut free = LEFT - 20.0;
    for value in values {
        let text = swept(kind, value);
        let (at, half) = (chart.x.coordinate(value as f64), text_width(&text) / 2.0);
        let at_edge = at.min(WIDTH - half);
        if at_edge - half > free {
            svg.line("rule", [at, BOTTOM], [at, BOTTOM + 4.0]);
            svg.text("soft middle", [at_edge, BOTTOM + 16.0], text);
            free = at_edge + half + 8.0;
        }
    }
}

/// Draws the reference lines of a sweep: half the rate, the bandwidth-delay product, and the
/// kernel's default.
fn marks(svg: &mut Svg, sweep: &Sweep, range: [u64; 2], chart: Chart) {
    let upright = [
        (sweep.half_size_bytes, "half the rate"),
        (sweep.bdp_bytes, "bandwidth × delay"),
    ];
    for (value, name) in upright {
        let Some(value) = value.filter(|value| (range[0]..=range[1]).contains(value)) else {
            continue;
        };
        let x = chart.x.coordinate(value as f64);
        svg.line("dot", [x, TOP], [x, BOTTOM]);
        let text = format!("{name} {}", size(value));
        // Places the label where the curve leaves space: to the right below a risen curve,
        // otherwise to the left.
        match x + text_width(&text) + 6.0 < WIDTH {
            true => svg.text("halo", [x + 6.0, BOTTOM - 8.0], text),
            false => svg.text("halo end", [x - 6.0, (TOP + BOTTOM) / 2.0], text),
        }
    }
    if let Some(own) = sweep.points.iter().find(|point| point.size.is_none()) {
        let y = chart.y.coordinate(own.rate.median_bps as f64 / chart.unit);
        svg.line("dash", [LEFT, y], [WIDTH, y]);
        svg.text("halo", [LEFT + 6.0, y + 17.0], "kernel default");
    }
}

#[derive(Clone, Copy)]
struct Chart {
    x: Scale,
    y: Scale,
    unit: f64,
}

impl Chart {
    fn point(self, size: u64, bps: u64) -> [f64; 2] {
        [
            self.x.coordinate(size as f64),
            self.y.coordinate(bps as f64 / self.unit),
        ]
    }

    fn line(self, svg: &mut Svg, points: &[(u64, &SweepPoint)]) {
        let mut line: Vec<[f64; 2]> = points
            .iter()
            .map(|(size, point)| self.point(*size, point.rate.median_bps))
            .collect();
        line.sort_by(|[one, _], [other, _]| one.total_cmp(other));
        svg.points("polyline", "stroke c1", &line);
    }

    fn points(
        self,
        svg: &mut Svg,
        sweep: &Sweep,
        points: &[(u64, &SweepPoint)],
        reading: Reading<'_>,
    ) {
        let radius = if points.len() > 14 { 2.6 } else { 4.0 };
        for (size, point) in points {
            let at = self.point(*size, point.rate.median_bps);
            let [low, high] =
                [point.rate.min_bps, point.rate.max_bps].map(|bps| self.point(*size, bps));
            svg.line("thin c1", low, high);
            let label = swept(sweep.kind, *size);
            let note = format!("{label}: {}", reading.unit.rate(point.rate.median_bps));
            match point {
                _ if point.dropout => {
                    svg.circle("ring", at, 5.0, &note);
                    let text = format!("dropout {label}");
                    svg.text("badtext", [at[0] + 9.0, at[1] + 13.0], text);
                }
                _ if sweep.plateau == point.size => {
                    svg.circle("fill c1", at, 7.0, &note);
                    let text = format!("enough: {label}");
                    let half = text_width(&text) / 2.0;
                    let (x, class) = match at[0] + half < WIDTH {
                        true => (at[0], "halo middle"),
                        false => (WIDTH, "halo end"),
                    };
                    svg.text(class, [x.max(LEFT + half), at[1] + 26.0], text);
                }
                _ if point.computed => {
                    svg.circle("hollow c1", at, 4.5, &format!("{note} (computed)"));
                }
                _ => svg.circle("fill c1", at, radius, &note),
            }
        }
    }
}

const LEFT: f64 = 52.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 210.0;
