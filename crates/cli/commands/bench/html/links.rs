//! Bar charts of links: the total and the theoretical rate, each link alone and together, and
//! round-trip times.

use nicstripe::bench::{BenchLink, Limiter, Phase, Spread, median};

use super::{
    colour,
    svg::{Scale, Svg, WIDTH, decades, text_width, ticks},
};
use crate::{
    commands::bench::{
        reading::{Reading, limiter_text, phase_text, ways},
        unit::{milliseconds, percent},
    },
    text::known,
};

pub(super) fn total(reading: Reading<'_>, phase: Phase) -> Option<String> {
    let total = reading.total(phase)?;
    let theory = reading.report.summary.theory_bps;
    let theory = theory.map(|theory| theory * ways(phase));
    let most = theory.unwrap_or(0).max(total.median_bps) as f64;
    let scale = Scale::linear([0.0, most], [1.0, WIDTH - 2.0]);
    let mut svg = Svg::new(if theory.is_some() { 70.0 } else { 50.0 });
    svg.rect("faint", [1.0, 18.0, WIDTH - 3.0, 28.0], "");
    let mut x = 0.0;
    for link in &reading.report.links {
        let Some(part) = reading.part(phase, link) else {
            continue;
        };
        let from = scale.coordinate(x);
        x += part.median_bps as f64;
        let width = scale.coordinate(x) - from;
        let name = reading.name(link);
        let note = format!("{name}: {}", reading.unit.rate(part.median_bps));
        let class = format!("fill {}", colour(link.id));
        svg.rect(&class, [from, 18.0, width, 28.0], &note);
        if text_width(&name) + 10.0 < width {
            svg.text("", [from, 12.0], name);
        }
    }
    if let Some(theory) = theory {
        let at = scale.coordinate(theory as f64);
        svg.line("mark", [at, 14.0], [at, 51.0]);
        let text = format!("theory {}", reading.unit.rate(theory));
        svg.text("soft end", [at, 64.0], text);
    }
    Some(svg.finish("All links together versus theory"))
}

pub(super) fn rates(reading: Reading<'_>) -> Option<String> {
    let links = &reading.report.links;
    let phases: Vec<Phase> = reading.whole_phases().map(|(phase, _)| phase).collect();
    let groups: Groups<'_, Bar> = links
        .iter()
        .map(|link| (link, bars(reading, link, &phases)))
        .collect();
    let all = || groups.iter().flat_map(|(_, bars)| bars);
    let theories = links.iter().filter_map(|link| link.theory_bps);
    let greatest = all().map(|bar| bar.spread.max_bps).max()?;
    let greatest = theories.fold(greatest, u64::max);
    let unit = reading.unit;
    let scale = Scale::linear([0.0, unit.of(greatest)], [LABEL, WIDTH - VALUE]);
    let height = height(&groups);
    let mut svg = Svg::new(height + AXIS);
    svg.columns(scale, &ticks(unit.of(greatest), 5), [0.0, height]);
    svg.text("soft end", [WIDTH, height + 14.0], unit.name());
    for (link, bars, top) in placed(&groups) {
        draw_name(&mut svg, reading, link, top);
        let mut y = top;
        for bar in bars {
            rate_bar(&mut svg, reading, link, bar, y, scale);
            y += BAR;
        }
        if let Some(theory) = link.theory_bps {
            let at = scale.coordinate(unit.of(theory));
            svg.line("mark", [at, top - 3.0], [at, y]);
        }
    }
    Some(svg.finish("Rates per link, alone and with all"))
}

/// Rows of a chart, by link.
type Groups<'a, R> = Vec<(&'a BenchLink, Vec<R>)>;

fn height<R>(groups: &Groups<'_, R>) -> f64 {
    let of = |(_, rows): &(_, Vec<R>)| NAME + rows.len() as f64 * BAR + GAP;
    groups.iter().map(of).sum()
}

/// Returns each link with its rows and the y coordinate of the first.
fn placed<'a, R>(groups: &'a Groups<'a, R>) -> impl Iterator<Item = (&'a BenchLink, &'a [R], f64)> {
    let mut y = 0.0;
    groups.iter().map(move |(link, rows)| {
        let top = y + NAME;
        y = top + rows.len() as f64 * BAR + GAP;
        (*link, &rows[..], top)
    })
}

fn draw_name(svg: &mut Svg, reading: Reading<'_>, link: &BenchLink, top: f64) {
    let name = format!("{} {}", link.id, reading.name(link));
    svg.text("strong halo", [0.0, top - 6.0], name);
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
        // For both ways, the caption says that it is the mean of a direction.
        let name = phase_text(*phase);
        let class = match phase {
            Phase::Together => "fill",
            _ => "pale",
        };
        let spread = divided(reading.part(*phase, link)?, ways(*phase));
        Some(Bar {
            name,
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
fn divided(spread: Spread, ways: u64) -> Spread {
    Spread {
        median_bps: spread.median_bps / ways,
        min_bps: spread.min_bps / ways,
        max_bps: spread.max_bps / ways,
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
    let Spread {
        median_bps: median,
        min_bps: min,
        max_bps: max,
        ..
    } = bar.spread;
    let [least, end, most] = [min, median, max].map(|bps| scale.coordinate(unit.of(bps)));
    let rate = unit.text(median);
    let note = format!("{} {}", unit.rate(median), unit.range(&bar.spread));
    let class = format!("{} {}", bar.class, colour(link.id));
    svg.text("soft", [0.0, y + 13.0], bar.name);
    svg.rect(&class, [LABEL, y, end - LABEL, BAR - 4.0], &note);
    if most - least > 2.0 {
        let middle = y + BAR / 2.0 - 2.0;
        svg.line("axis", [least, middle], [most, middle]);
    }
    svg.text("strong end", [WIDTH, y + 13.0], rate);
}

pub(super) fn round_trips(reading: Reading<'_>) -> Option<String> {
    let links = reading.report.links.iter();
    let groups: Groups<'_, Trip> = links
        .map(|link| (link, link_trips(reading, link)))
        .collect();
    let all = || groups.iter().flat_map(|(_, trips)| trips);
    let least = all().map(|trip| trip.least).min_by(f64::total_cmp)?;
    let most = all().map(|trip| trip.most).max_by(f64::total_cmp)?;
    let decades = decades(least / 1e3, most / 1e3);
    let scale = Scale::logarithmic([*decades.first()?, *decades.last()?], [8.0, WIDTH - 8.0]);
    let height = height(&groups);
    let mut svg = Svg::new(height + AXIS);
    svg.columns(scale, &decades, [0.0, height]);
    let unit = "ms, logarithmic scale";
    svg.text("soft end", [WIDTH, height + 29.0], unit);
    for (link, trips, top) in placed(&groups) {
        draw_name(&mut svg, reading, link, top);
        for (index, trip) in trips.iter().enumerate() {
            draw_trip(&mut svg, link, trip, top + index as f64 * BAR + 9.0, scale);
        }
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
            let mut same_way = run.flows.iter().filter(|flow| flow.way == interval.way);
            let position = same_way.position(|flow| flow.link == link.id);
            let rtt = position.and_then(|position| interval.rtt_us.get(position));
            samples.extend(rtt.map(|us| *us as f64));
        }
    }
    samples.retain(|us| *us > 0.0);
    let least = samples.iter().copied().min_by(f64::total_cmp);
    let most = samples.iter().copied().max_by(f64::total_cmp);
    let reported = reading.rtt_loaded(phase, link).filter(|us| *us > 0.0);
    let middle = reported.or_else(|| median(&samples))?;
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
        [trip.least, trip.middle, trip.most].map(|us| scale.coordinate(us / 1e3));
    let colour = colour(link.id);
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
        true => svg.text("halo", [most + 9.0, y + 4.5], text),
        false => svg.text("halo end", [least - 9.0, y + 4.5], text),
    }
}

pub(super) fn table(reading: Reading<'_>, phase: Phase) -> Vec<Vec<String>> {
    let unit = reading.unit;
    let rate = |spread: Option<Spread>| known(spread.map(|spread| unit.text(spread.median_bps)));
    let resent = |part: f64| match part > 0.0 {
        false => "0".to_owned(),
        true => format!("{:.3} %", part * 100.0),
    };
    let limiter = |limiter: Option<Limiter>| limiter.map_or("", limiter_text).to_owned();
    let links = &reading.report.links;
    let has_alone = links.iter().any(|link| reading.alone(link).is_some());
    let row = |first: String, alone: String, rest: [String; 4]| -> Vec<String> {
        let alone = has_alone.then_some(alone);
        std::iter::once(first).chain(alone).chain(rest).collect()
    };
    let heads = [phase_text(phase), "of theory", "resent", "limited by"].map(str::to_owned);
    let mut rows = vec![row("link".into(), "alone".into(), heads)];
    for link in links {
        let summary = reading.summary_of(link);
        let again = reading.sent_again(phase, link);
        let rest = [
            rate(reading.part(phase, link)),
            known(reading.efficiency(phase, link).map(percent)),
            known(again.map(|(_, part)| resent(part))),
            limiter(summary.and_then(|summary| summary.limiter)),
        ];
        let name = format!("{} {}", link.id, reading.name(link));
        rows.push(row(name, rate(reading.alone(link)), rest));
    }
    let alone = reading.alone_sum().filter(|sum| *sum > 0);
    let rest = [
        rate(reading.total(phase)),
        known(reading.whole_efficiency(phase).map(percent)),
        String::new(),
        limiter(reading.report.summary.limiter),
    ];
    let alone = known(alone.map(|sum| unit.text(sum)));
    rows.push(row("total".into(), alone, rest));
    rows
}

/// Widths of the label before a bar and of the number after it, in units of the drawing.
pub(super) const LABEL: f64 = 104.0;
const VALUE: f64 = 58.0;
const NAME: f64 = 20.0;
const BAR: f64 = 20.0;
const GAP: f64 = 12.0;
const AXIS: f64 = 34.0;
