//! Bar charts of links: the total and the theoretical rate, each link alone and together, and
//! round-trip times.

use nicstripe::bench::{BenchLink, Phase, Spread};

use super::{
    colour,
    svg::{Anchor, Scale, Svg, WIDTH, decades, text_width, tick_text, ticks},
};
use crate::commands::bench::{
    reading::{Reading, phase_text},
    unit::{milliseconds, percent},
};

/// Draws the total rate of a phase, stacked by link, with a mark at the theoretical rate.
pub(super) fn total(reading: Reading<'_>, phase: Phase) -> Option<String> {
    let total = reading.total(phase)?;
    let ways = if phase == Phase::Both { 2 } else { 1 };
    let theory = reading
        .report
        .summary
        .theory_bps
        .map(|theory| theory * ways);
    let most = theory.unwrap_or(0).max(total.median_bps) as f64;
    let scale = Scale::linear([0.0, most], [1.0, WIDTH - 2.0]);
    let mut svg = Svg::new(if theory.is_some() { 70.0 } else { 50.0 });
    svg.rect("faint", [1.0, 18.0, WIDTH - 3.0, 28.0], "");
    let mut x = 0.0;
    for link in &reading.report.links {
        let Some(part) = reading.part(phase, link) else {
            continue;
        };
        let from = scale.place(x);
        x += part.median_bps as f64;
        let width = scale.place(x) - from;
        let note = format!(
            "{}: {} {}",
            reading.name(link),
            reading.unit.text(part.median_bps),
            reading.unit.name()
        );
        svg.rect(
            &format!("fill {}", colour(link)),
            [from, 18.0, width, 28.0],
            &note,
        );
        let name = reading.name(link);
        if text_width(&name) + 10.0 < width {
            svg.text("", [from, 12.0], Anchor::Start, name);
        }
    }
    if let Some(theory) = theory {
        let at = scale.place(theory as f64);
        svg.line("mark", [at, 14.0], [at, 51.0]);
        let text = format!(
            "theory {} {}",
            reading.unit.text(theory),
            reading.unit.name()
        );
        svg.text("soft", [at, 64.0], Anchor::End, text);
    }
    Some(svg.finish("All links together versus theory"))
}

/// Draws the rate of each link, alone and in each phase that loads all links, with a mark at its
/// theoretical rate.
pub(super) fn rates(reading: Reading<'_>) -> Option<String> {
    let report = reading.report;
    let phases: Vec<Phase> = reading.whole_phases().map(|(phase, _)| phase).collect();
    let bars: Vec<(&BenchLink, Vec<Bar>)> = report
        .links
        .iter()
        .map(|link| (link, bars(reading, link, &phases)))
        .collect();
    let greatest = bars
        .iter()
        .flat_map(|(link, bars)| {
            bars.iter()
                .map(|bar| bar.spread.max_bps)
                .chain(link.theory_bps)
        })
        .max()?;
    if bars.iter().all(|(_, bars)| bars.is_empty()) {
        return None;
    }
    let unit = reading.unit;
    let scale = Scale::linear([0.0, unit.of(greatest)], [LABEL, WIDTH - VALUE]);
    let height: f64 = bars
        .iter()
        .map(|(_, bars)| NAME + bars.len() as f64 * BAR + GAP)
        .sum();
    let mut svg = Svg::new(height + AXIS);
    for tick in ticks(unit.of(greatest), 5) {
        svg.line(
            "rule",
            [scale.place(tick), 0.0],
            [scale.place(tick), height],
        );
        svg.text(
            "soft",
            [scale.place(tick), height + 14.0],
            Anchor::Middle,
            tick_text(tick),
        );
    }
    svg.text("soft", [WIDTH, height + 14.0], Anchor::End, unit.name());
    let mut y = 0.0;
    for (link, bars) in bars {
        svg.text(
            "strong halo",
            [0.0, y + 14.0],
            Anchor::Start,
            format!("{} {}", link.id, reading.name(link)),
        );
        let top = y + NAME;
        y = top;
        for bar in &bars {
            rate_bar(&mut svg, reading, link, bar, y, scale);
            y += BAR;
        }
        if let Some(theory) = link.theory_bps {
            let at = scale.place(unit.of(theory));
            svg.line("mark", [at, top - 3.0], [at, y]);
        }
        y += GAP;
    }
    Some(svg.finish("Rates per link, alone and with all"))
}

struct Bar {
    name: &'static str,
    class: &'static str,
    spread: Spread,
}

fn bars(reading: Reading<'_>, link: &BenchLink, phases: &[Phase]) -> Vec<Bar> {
    let alone = reading.alone(link).map(|spread| Bar {
        name: "alone",
        class: "hollow",
        spread,
    });
    let part = |phase: &Phase| {
        let (class, ways) = match phase {
            Phase::Together => ("fill", 1),
            Phase::Both => ("pale", 2),
            _ => ("pale", 1),
        };
        let spread = halved(reading.part(*phase, link)?, ways);
        Some(Bar {
            name: if ways == 2 {
                "both, per direction"
            } else {
                phase_text(*phase)
            },
            class,
            spread,
        })
    };
    alone
        .into_iter()
        .chain(phases.iter().filter_map(part))
        .collect()
}

/// Returns the mean rate per direction. The sum of both directions would exceed the theoretical
/// rate of one.
fn halved(spread: Spread, ways: u64) -> Spread {
    let Spread {
        median_bps,
        min_bps,
        max_bps,
        ..
    } = spread;
    Spread {
        median_bps: median_bps / ways,
        min_bps: min_bps / ways,
        max_bps: max_bps / ways,
        ..spread
    }
}

fn rate_bar(
    svg: &mut Svg,
    reading: Reading<'_>,
    link: &BenchLink,
    bar: &Bar,
    y: f64,
    scale: Scale,
) {
    let unit = reading.unit;
    let end = scale.place(unit.of(bar.spread.median_bps));
    let note = format!(
        "{} {} {}",
        unit.text(bar.spread.median_bps),
        unit.name(),
        unit.range(&bar.spread)
    );
    svg.text("soft", [0.0, y + 13.0], Anchor::Start, bar.name);
    svg.rect(
        &format!("{} {}", bar.class, colour(link)),
        [LABEL, y, end - LABEL, BAR - 4.0],
        &note,
    );
    let (least, most) = (
        scale.place(unit.of(bar.spread.min_bps)),
        scale.place(unit.of(bar.spread.max_bps)),
    );
    if most - least > 2.0 {
        svg.line(
            "axis",
            [least, y + BAR / 2.0 - 2.0],
            [most, y + BAR / 2.0 - 2.0],
        );
    }
    svg.text(
        "strong",
        [WIDTH, y + 13.0],
        Anchor::End,
        unit.text(bar.spread.median_bps),
    );
}

/// Draws the round-trip times of each link with and without load, on a logarithmic scale.
pub(super) fn round_trips(reading: Reading<'_>) -> Option<String> {
    let trips: Vec<(&BenchLink, Vec<Trip>)> = reading
        .report
        .links
        .iter()
        .map(|link| (link, link_trips(reading, link)))
        .collect();
    let values = || {
        trips
            .iter()
            .flat_map(|(_, trips)| trips.iter().flat_map(|trip| [trip.least, trip.most]))
    };
    let (least, most) = (
        values().min_by(f64::total_cmp)?,
        values().max_by(f64::total_cmp)?,
    );
    let decades = decades(least / 1e3, most / 1e3);
    let scale = Scale::logarithmic([*decades.first()?, *decades.last()?], [8.0, WIDTH - 8.0]);
    let height: f64 = trips
        .iter()
        .map(|(_, trips)| NAME + trips.len() as f64 * BAR + GAP)
        .sum();
    let mut svg = Svg::new(height + AXIS);
    for decade in &decades {
        svg.line(
            "rule",
            [scale.place(*decade), 0.0],
            [scale.place(*decade), height],
        );
        let anchor = match decade {
            first if first == &decades[0] => Anchor::Start,
            last if Some(last) == decades.last() => Anchor::End,
            _ => Anchor::Middle,
        };
        svg.text(
            "soft",
            [scale.place(*decade), height + 14.0],
            anchor,
            tick_text(*decade),
        );
    }
    svg.text(
        "soft",
        [WIDTH, height + 29.0],
        Anchor::End,
        "ms, logarithmic scale",
    );
    let mut y = 0.0;
    for (link, trips) in trips {
        svg.text(
            "strong halo",
            [0.0, y + 14.0],
            Anchor::Start,
            format!("{} {}", link.id, reading.name(link)),
        );
        y += NAME;
        for trip in &trips {
            draw_trip(&mut svg, link, trip, y + 9.0, scale);
            y += BAR;
        }
        y += GAP;
    }
    Some(svg.finish("Round trips per link, idle and loaded"))
}

/// Round-trip times of a link in microseconds, with or without load.
struct Trip {
    name: &'static str,
    class: &'static str,
    least: f64,
    middle: f64,
    most: f64,
}

fn link_trips(reading: Reading<'_>, link: &BenchLink) -> Vec<Trip> {
    let idle = link.rtt_idle.map(|rtt| Trip {
        name: "idle",
        class: "hollow",
        least: rtt.min_us,
        middle: rtt.p50_us,
        most: rtt.max_us,
    });
    let loaded = reading
        .main_phase()
        .and_then(|phase| loaded_trip(reading, phase, link));
    idle.into_iter().chain(loaded).collect()
}

fn loaded_trip(reading: Reading<'_>, phase: Phase, link: &BenchLink) -> Option<Trip> {
    let mut samples = Vec::new();
    for run in reading.runs(phase) {
        for interval in &run.intervals {
            let same_way = run.flows.iter().filter(|flow| flow.way == interval.way);
            let position = same_way.into_iter().position(|flow| flow.link == link.id);
            samples.extend(
                position
                    .and_then(|position| interval.rtt_us.get(position))
                    .map(|us| *us as f64),
            );
        }
    }
    samples.retain(|us| *us > 0.0);
    let (least, most) = (
        samples.iter().copied().min_by(f64::total_cmp),
        samples.iter().copied().max_by(f64::total_cmp),
    );
    let told = reading.rtt_loaded(phase, link).filter(|us| *us > 0.0);
    let middle = told.or_else(|| crate::commands::bench::reading::median(samples))?;
    Some(Trip {
        name: "loaded",
        class: "fill",
        least: least.unwrap_or(middle).min(middle),
        middle,
        most: most.unwrap_or(middle).max(middle),
    })
}

fn draw_trip(svg: &mut Svg, link: &BenchLink, trip: &Trip, y: f64, scale: Scale) {
    let [least, middle, most] =
        [trip.least, trip.middle, trip.most].map(|us| scale.place(us / 1e3));
    let colour = colour(link);
    svg.line(&format!("stroke {colour}"), [least, y], [most, y]);
    let [from, to] = [trip.least, trip.most].map(milliseconds);
    svg.circle(
        &format!("{} {colour}", trip.class),
        [middle, y],
        5.5,
        &format!("{from} to {to} ms"),
    );
    let text = format!("{} {} ms", trip.name, milliseconds(trip.middle));
    let width = text_width(&text) + 9.0;
    match most + width < WIDTH {
        true => svg.text("halo", [most + 9.0, y + 4.5], Anchor::Start, text),
        false => svg.text("halo", [least - 9.0, y + 4.5], Anchor::End, text),
    }
}

/// Returns the rows of the table below the bars, with the header first.
pub(super) fn table(reading: Reading<'_>, phase: Phase) -> Vec<Vec<String>> {
    let unknown = || "?".to_owned();
    let rate = |spread: Option<Spread>| {
        spread.map_or_else(unknown, |spread| reading.unit.text(spread.median_bps))
    };
    let has_alone = reading
        .report
        .links
        .iter()
        .any(|link| reading.alone(link).is_some());
    let row = |first: String, alone: String, rest: [String; 4]| -> Vec<String> {
        let alone = has_alone.then_some(alone);
        std::iter::once(first).chain(alone).chain(rest).collect()
    };
    let heads = [phase_text(phase), "of theory", "resent", "limited by"].map(str::to_owned);
    let mut rows = vec![row("link".into(), "alone".into(), heads)];
    for link in &reading.report.links {
        let again = reading.sent_again(phase, link);
        let limiter = reading.summary_of(link).and_then(|summary| summary.limiter);
        let rest = [
            rate(reading.part(phase, link)),
            reading
                .efficiency(phase, link)
                .map_or_else(unknown, percent),
            again.map_or_else(unknown, |(_, part)| {
                if part == 0.0 {
                    "0".into()
                } else {
                    format!("{:.3} %", part * 100.0)
                }
            }),
            limiter.map_or("", super::limiter_text).to_owned(),
        ];
        rows.push(row(
            format!("{} {}", link.id, reading.name(link)),
            rate(reading.alone(link)),
            rest,
        ));
    }
    let alone = reading
        .alone_sum()
        .filter(|sum| *sum > 0)
        .map_or_else(unknown, |sum| reading.unit.text(sum));
    let whole = reading
        .whole_efficiency(phase)
        .map_or_else(unknown, percent);
    let limiter = reading
        .report
        .summary
        .limiter
        .map_or("", super::limiter_text);
    rows.push(row(
        "total".into(),
        alone,
        [
            rate(reading.total(phase)),
            whole,
            String::new(),
            limiter.into(),
        ],
    ));
    rows
}

/// Widths of the label before a bar and of the number after it, in units of the drawing.
const LABEL: f64 = 104.0;
const VALUE: f64 = 58.0;
const NAME: f64 = 20.0;
const BAR: f64 = 20.0;
const GAP: f64 = 12.0;
const AXIS: f64 = 34.0;
