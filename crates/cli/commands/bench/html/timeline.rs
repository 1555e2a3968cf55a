//! Chart of one load over time: rates stacked by link, retransmissions, and links without traffic.

use nicstripe::bench::{BenchLink, Direction, Interval, Phase, Run};

use super::{
    colour,
    svg::{Scale, Svg, WIDTH, text_width, tick_text, ticks},
};
use crate::commands::bench::reading::Reading;

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
        svg.text("halo end", [WIDTH - 8.0, y + 16.0], "theory");
    }
    for (index, link) in strips.iter().enumerate() {
        chart.strip(&mut svg, *link, BOTTOM + 8.0 + (index as f64 + 1.0) * STRIP);
    }
    Some(svg.finish(&format!("Rate over time, in {}", unit.name())))
}

pub(super) fn caption(reading: Reading<'_>, run: &Run, way: Direction) -> String {
    let [ours, theirs] = reading.machines();
    let (from, to) = match way {
        Direction::ToDaemon => (ours, theirs),
        Direction::ToClient => (theirs, ours),
    };
    let phase = match run.phase {
        Phase::Solo => "one link alone",
        Phase::Pair => "a pair of links",
        Phase::Both => match way {
            Direction::ToDaemon => "both ways at once, this way",
            Direction::ToClient => "both ways at once, the way back",
        },
        _ => "all links",
    };
    let mut resent = (run.intervals.iter()).flat_map(|interval| &interval.retransmitted_bytes);
    let again = match resent.any(|bytes| *bytes > 0) {
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
    let theories = links.iter().map(|id| reading.link(*id)?.theory_bps);
    let sum = theories.sum::<Option<u64>>();
    sum.filter(|sum| *sum > 0).map(|sum| sum as f64)
}

fn rate(interval: &Interval, bytes: u64) -> f64 {
    bytes as f64 * 8e6 / interval.dt_us as f64
}

fn axes(svg: &mut Svg, chart: &Chart<'_>, most: f64, seconds: f64, below: f64) {
    svg.rows(chart.y, &ticks(most, 5), [LEFT, WIDTH - 4.0]);
    for tick in ticks(seconds, 8) {
        svg.text(
            "soft middle",
            [chart.x.coordinate(tick), below + 16.0],
            tick_text(tick),
        );
    }
    svg.text("soft end", [WIDTH, below + 31.0], "seconds");
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
        svg.line("dot", [end, TOP - 4.0], [end, BOTTOM]);
        let (class, x) = match end - LEFT > text_width("warm-up") {
            true => ("soft end", end - 4.0),
            false => ("soft", LEFT + 2.0),
        };
        svg.text(class, [x, TOP - 6.0], "warm-up");
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
            svg.points(
                "polygon",
                &format!("fill {}", colour(self.links[position])),
                &upper,
            );
            if height > 16.0 {
                svg.text(
                    "halo middle",
                    [(LEFT + WIDTH) / 2.0, middle + 5.0],
                    reading.name_of(self.links[position]),
                );
            }
        }
        self.silences(svg);
    }

    /// Marks intervals in which a link carried nothing after it had started.
    fn silences(&self, svg: &mut Svg) {
        for position in 0..self.links.len() {
            let bytes = |interval: &Interval| interval.bytes.get(position).copied();
            let has_begun = |interval: &&&Interval| bytes(interval).is_some_and(|bytes| bytes > 0);
            let silent = (self
                .intervals
                .iter()
                .skip_while(|interval| !has_begun(interval)))
            .filter(|interval| bytes(interval) == Some(0));
            for interval in silent {
                let at = [self.middle(interval), BOTTOM - 4.0];
                svg.text("badtext middle", at, "×");
            }
        }
    }

    /// Returns the indexes of the links that retransmitted in the run.
    fn strips(&self) -> Vec<usize> {
        let again = |position: &usize| self.resent(*position).any(|(_, bytes)| bytes > 0);
        (0..self.links.len()).filter(again).collect()
    }

    /// Returns each interval with the bytes that a link retransmitted in it.
    fn resent(&self, position: usize) -> impl Iterator<Item = (&Interval, u64)> {
        self.intervals.iter().map(move |interval| {
            let bytes = interval.retransmitted_bytes.get(position);
            (*interval, bytes.copied().unwrap_or(0))
        })
    }

    /// Returns the x coordinate of the middle of an interval.
    fn middle(&self, interval: &Interval) -> f64 {
        let micros = interval.t_us + interval.dt_us / 2;
        self.x.coordinate(micros as f64 / 1e6)
    }

    /// Draws the retransmissions of one link: a bar per interval, whose height is proportional to
    /// the retransmitted bytes.
    fn strip(&self, svg: &mut Svg, position: usize, y: f64) {
        let most = self.resent(position).map(|(_, bytes)| bytes).max();
        let most = most.unwrap_or(0).max(1) as f64;
        svg.text(
            "soft end",
            [LEFT - 5.0, y],
            format!("again {}", self.links[position]),
        );
        svg.line("rule", [LEFT, y], [WIDTH - 4.0, y]);
        for (interval, bytes) in self.resent(position).filter(|(_, bytes)| *bytes > 0) {
            let x = self.middle(interval);
            let height = (bytes as f64 / most * (STRIP - 4.0)).max(2.0);
            svg.rect(
                "badfill",
                [x - 1.5, y - height, 3.0, height],
                &format!("{bytes} bytes retransmitted"),
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
/// Top of the chart, with room above for a word.
const TOP: f64 = 26.0;
const BOTTOM: f64 = 238.0;
const STRIP: f64 = 17.0;
