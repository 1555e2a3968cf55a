//! Chart of the CPU time per gigabit at both machines.

use nicstripe::bench::{Phase, SweepKind};

use super::svg::{Scale, Svg, WIDTH, ticks};
use crate::commands::bench::reading::{Reading, phase_text};

pub(super) fn draw(reading: Reading<'_>) -> Option<String> {
    let mut bars = loads(reading);
    bars.extend(packets(reading));
    let most = bars
        .iter()
        .map(|bar| bar.parts.iter().map(|(_, part)| part).sum())
        .max_by(f64::total_cmp)
        .filter(|most: &f64| *most > 0.0)?;
    // Milliseconds, since seconds would begin with zeros.
    let scale = Scale::linear([0.0, most * 1e3], [1.0, WIDTH - 60.0]);
    let last = TOP + bars.len() as f64 * (NAME + BAR);
    let mut svg = Svg::new(last + 36.0);
    let names = ["user", "kernel", "interrupts"];
    svg.legend(
        12.0,
        &std::array::from_fn::<_, 3, _>(|kind| (KINDS[kind].to_owned(), names[kind].to_owned())),
    );
    svg.columns(scale, &ticks(most * 1e3, 5), [TOP, last]);
    svg.text(
        "soft end",
        [WIDTH, last + 30.0],
        "ms of one core per gigabit, including other load of the machine",
    );
    for (index, bar) in bars.iter().enumerate() {
        bar.draw(&mut svg, TOP + index as f64 * (NAME + BAR), scale);
    }
    Some(svg.finish("Processor time per gigabit"))
}

/// Bar of the chart. Each part has a CSS class and a length in CPU seconds per gigabit.
struct Bar {
    name: String,
    parts: Vec<(&'static str, f64)>,
}

impl Bar {
    fn draw(&self, svg: &mut Svg, y: f64, scale: Scale) {
        svg.text("halo", [0.0, y + 14.0], &self.name);
        let mut sum = 0.0;
        for (class, part) in &self.parts {
            let from = scale.coordinate(sum * 1e3);
            sum += part;
            svg.rect(
                class,
                [
                    from,
                    y + NAME,
                    scale.coordinate(sum * 1e3) - from,
                    BAR - 6.0,
                ],
                &format!("{:.2} ms", part * 1e3),
            );
        }
        svg.text(
            "strong",
            [scale.coordinate(sum * 1e3) + 6.0, y + NAME + 12.0],
            format!("{:.1}", sum * 1e3),
        );
    }
}

fn loads(reading: Reading<'_>) -> Vec<Bar> {
    let machines = reading.machines();
    let of = |phase: Phase| {
        let parts = reading.cpu_parts(phase).into_iter().zip(&machines);
        parts
            .filter_map(move |(parts, name)| {
                Some(Bar {
                    name: format!("{name}, {}", phase_text(phase)),
                    parts: KINDS.into_iter().zip(parts?).collect(),
                })
            })
            .collect::<Vec<_>>()
    };
    reading
        .whole_phases()
        .flat_map(|(phase, _)| of(phase))
        .collect()
}

/// Returns one bar per packet size, for both machines together, because a sweep records only their
/// sum.
fn packets(reading: Reading<'_>) -> Vec<Bar> {
    let sweeps = reading
        .report
        .sweeps
        .iter()
        .filter(|sweep| sweep.kind == SweepKind::Mtu);
    let points = sweeps
        .flat_map(|sweep| &sweep.points)
        .filter(|point| !point.computed);
    points
        .filter_map(|point| {
            Some(Bar {
                name: format!("both ends, MTU {}", point.size?),
                parts: vec![("fill c5", point.cpu_s_per_gbit?)],
            })
        })
        .collect()
}

/// CSS classes for CPU time in user space, kernel and interrupts.
const KINDS: [&str; 3] = ["fill c1", "pale c1", "hollow c1"];
const TOP: f64 = 24.0;
const NAME: f64 = 19.0;
const BAR: f64 = 22.0;
