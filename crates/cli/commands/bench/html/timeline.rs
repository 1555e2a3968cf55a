//! Chart of one load over time: rates stacked by link, retransmissions, and links without traffic.

use nicstripe::bench::{BenchLink, Direction, Interval, Phase, Run};

use super::{
    colour_of,
    svg::{Anchor, Scale, Svg, WIDTH, text_width, tick_text, ticks},
};
use crate::commands::bench::reading::Reading;

/// Draws the rates of a run over time, in one direction.
pub(super) fn draw(reading: Reading<'_>, run: &Run, way: Direction) -> Option<String> {
    let intervals: Vec<&Interval> = run
        .intervals
        .iter()
        .filter(|interval| interval.way == way && interval.dt_us > 0)
        .collect();
    let links: Vec<u32> = run
        .flows
        .iter()
        .filter(|flow| flow.way == way)
        .map(|flow| flow.link)
        .collect();
    let last: &Interval = intervals.last().copied()?;
    let theory = theory(reading, &links);
    let highest = intervals
        .iter()
        .map(|interval| rate(interval, interval.bytes.iter().sum()))
        .max_by(f64::total_cmp)?;
    let unit = reading.unit;
    // A single sample that drained a buffer must not determine the scale: it is drawn to the top.
    let most = theory.map_or(highest, |theory| {
        highest.clamp(theory, theory * MOST_OF_THEORY)
    }) / unit.bits()
        * 1.04;
    let chart = Chart {
        x: Scale::linear(
            [0.0, (last.t_us + last.dt_us) as f64 / 1e6],
            [LEFT, WIDTH - 4.0],
        ),
        y: Scale::linear([0.0, most], [BOTTOM, TOP]),
        unit: unit.bits(),
        intervals,
        links,
    };
    let strips = chart.strips();
    let below = BOTTOM + 8.0 + strips.len() as f64 * STRIP;
    let mut svg = Svg::new(below + 34.0);
    let seconds = (last.t_us + last.dt_us) as f64 / 1e6;
    axes(&mut svg, &chart, most, seconds, below);
    warm_up(&mut svg, reading, &chart, seconds);
    chart.stack(&mut svg, reading);
    if let Some(theory) = theory {
        let y = chart.y.coordinate(theory / unit.bits());
        svg.line("dash", [LEFT, y], [WIDTH - 4.0, y]);
        svg.text("halo", [WIDTH - 8.0, y + 16.0], Anchor::End, "theory");
    }
    for (index, link) in strips.iter().enumerate() {
        chart.strip(&mut svg, *link, BOTTOM + 8.0 + (index as f64 + 1.0) * STRIP);
    }
    Some(svg.finish(&format!("Rate over time, in {}", unit.name())))
}

/// Returns the caption for the chart of a run.
pub(super) fn caption(reading: Reading<'_>, run: &Run, way: Direction) -> String {
    let [ours, theirs] = reading.machines();
    let (from, to) = if way == Direction::ToDaemon {
        (ours, theirs)
    } else {
        (theirs, ours)
    };
    let phase = match run.phase {
        Phase::Solo => "one link alone",
        Phase::Pair => "a pair of links",
        Phase::Both => "both ways at once",
        _ => "all links",
    };
    let again = match run
        .intervals
        .iter()
        .any(|interval| interval.retransmitted_bytes.iter().any(|bytes| *bytes > 0))
    {
        true => "; below, retransmissions",
        false => "",
    };
    let settled = if run.stable { "" } else { "; not settled" };
    format!(
        "{from} to {to}: {phase}, repeat {}, in {}{again}{settled}",
        run.repeat,
        reading.unit.name()
    )
}

/// Returns the links that a run loaded, for the legend.
pub(super) fn linked<'a>(reading: Reading<'a>, run: &Run) -> Vec<&'a BenchLink> {
    let is_there = |link: &&BenchLink| run.flows.iter().any(|flow| flow.link == link.id);
    reading.report.links.iter().filter(is_there).collect()
}

fn theory(reading: Reading<'_>, links: &[u32]) -> Option<f64> {
    let of = |id: &u32| {
        reading
            .report
            .links
            .iter()
            .find(|link| link.id == *id)?
            .theory_bps
    };
    links
        .iter()
        .map(of)
        .sum::<Option<u64>>()
        .filter(|sum| *sum > 0)
        .map(|sum| sum as f64)
}

fn rate(interval: &Interval, bytes: u64) -> f64 {
    bytes as f64 * 8e6 / interval.dt_us as f64
}

fn axes(svg: &mut Svg, chart: &Chart<'_>, most: f64, seconds: f64, below: f64) {
    svg.rows(chart.y, &ticks(most, 5), [LEFT, WIDTH - 4.0]);
    for tick in ticks(seconds, 8) {
        svg.text(
            "soft",
            [chart.x.coordinate(tick), below + 16.0],
            Anchor::Middle,
            tick_text(tick),
        );
    }
    svg.text("soft", [WIDTH, below + 31.0], Anchor::End, "seconds");
}

/// Marks the warm-up at the start of a load, which the results exclude.
fn warm_up(svg: &mut Svg, reading: Reading<'_>, chart: &Chart<'_>, seconds: f64) {
    let warm_up = (reading.report.plan.warm_up_ms as f64 / 1e3).min(seconds);
    if warm_up > 0.0 {
        let end = chart.x.coordinate(warm_up);
        svg.rect(
            "faint",
            [LEFT, TOP, end - LEFT, BOTTOM - TOP],
            "warm-up, not counted",
        );
        svg.line("dot", [end, TOP - 6.0], [end, BOTTOM]);
        let anchor = if end - LEFT > text_width("warm-up") {
            Anchor::End
        } else {
            Anchor::Start
        };
        svg.text(
            "soft",
            [
                if matches!(anchor, Anchor::End) {
                    end - 4.0
                } else {
                    LEFT + 2.0
                },
                TOP - 4.0,
            ],
            anchor,
            "warm-up",
        );
    }
}

/// Intervals of one run, with the scales of the chart.
struct Chart<'a> {
    x: Scale,
    y: Scale,
    unit: f64,
    intervals: Vec<&'a Interval>,
    links: Vec<u32>,
}

impl Chart<'_> {
    /// Draws one area per link, stacked. Each step is as wide as its interval was long.
    fn stack(&self, svg: &mut Svg, reading: Reading<'_>) {
        for position in 0..self.links.len() {
            let up_to = |interval: &Interval, count: usize| {
                rate(interval, interval.bytes.iter().take(count).sum()) / self.unit
            };
            let mut upper = Vec::new();
            let mut lower = Vec::new();
            for interval in &self.intervals {
                let ends = [interval.t_us, interval.t_us + interval.dt_us]
                    .map(|us| self.x.coordinate(us as f64 / 1e6));
                upper.extend(ends.map(|x| [x, self.y.coordinate(up_to(interval, position + 1))]));
                lower.extend(ends.map(|x| [x, self.y.coordinate(up_to(interval, position))]));
            }
            let (middle, height) = middle_of(&upper, &lower);
            lower.reverse();
            upper.extend(lower);
            svg.polygon(&format!("fill {}", colour_of(self.links[position])), &upper);
            if height > 16.0 {
                svg.text(
                    "halo",
                    [(LEFT + WIDTH) / 2.0, middle + 5.0],
                    Anchor::Middle,
                    reading.name_of(self.links[position]),
                );
            }
        }
        self.silences(svg);
    }

    /// Marks intervals in which a link carried nothing after it had started.
    fn silences(&self, svg: &mut Svg) {
        for (position, _) in self.links.iter().enumerate() {
            let has_begun = |interval: &&&Interval| {
                interval.bytes.get(position).is_some_and(|bytes| *bytes > 0)
            };
            let first = self
                .intervals
                .iter()
                .find(has_begun)
                .map_or(u64::MAX, |interval| interval.t_us);
            for interval in self.intervals.iter().filter(|interval| {
                interval.t_us > first && interval.bytes.get(position) == Some(&0)
            }) {
                let at = self
                    .x
                    .coordinate((interval.t_us + interval.dt_us / 2) as f64 / 1e6);
                svg.text("badtext", [at, BOTTOM - 4.0], Anchor::Middle, "×");
            }
        }
    }

    /// Returns the indexes of the links that retransmitted in the run.
    fn strips(&self) -> Vec<usize> {
        let again = |position: &usize| {
            self.intervals.iter().any(|interval| {
                interval
                    .retransmitted_bytes
                    .get(*position)
                    .is_some_and(|bytes| *bytes > 0)
            })
        };
        (0..self.links.len()).filter(again).collect()
    }

    /// Draws the retransmissions of one link: a bar per interval, whose height is proportional to
    /// the retransmitted bytes.
    fn strip(&self, svg: &mut Svg, position: usize, y: f64) {
        let again = |interval: &Interval| {
            interval
                .retransmitted_bytes
                .get(position)
                .copied()
                .unwrap_or(0)
        };
        let most = self
            .intervals
            .iter()
            .map(|interval| again(interval))
            .max()
            .unwrap_or(0)
            .max(1) as f64;
        svg.text(
            "soft",
            [LEFT - 5.0, y],
            Anchor::End,
            format!("again {}", self.links[position]),
        );
        svg.line("rule", [LEFT, y], [WIDTH - 4.0, y]);
        for interval in self.intervals.iter().filter(|interval| again(interval) > 0) {
            let x = self
                .x
                .coordinate((interval.t_us + interval.dt_us / 2) as f64 / 1e6);
            let height = (again(interval) as f64 / most * (STRIP - 4.0)).max(2.0);
            svg.rect(
                "badfill",
                [x - 1.5, y - height, 3.0, height],
                &format!("{} bytes retransmitted", again(interval)),
            );
        }
    }
}

/// Returns the y coordinate of the middle of an area, and the height of the area at that point.
fn middle_of(upper: &[[f64; 2]], lower: &[[f64; 2]]) -> (f64, f64) {
    match (upper.get(upper.len() / 2), lower.get(lower.len() / 2)) {
        (Some([_, top]), Some([_, bottom])) => ((top + bottom) / 2.0, bottom - top),
        _ => (0.0, 0.0),
    }
}

/// Top of the rate axis, as a multiple of the theoretical rate.
const MOST_OF_THEORY: f64 = 1.2;

const LEFT: f64 = 52.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 230.0;
const STRIP: f64 = 17.0;
