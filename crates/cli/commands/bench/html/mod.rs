//! Bench report as a self-contained HTML page: no script, no network access, printable.
//!
//! [`page`] assembles the parts; `svg` has shapes, scales and axes; each other file draws one or
//! two parts. Parts without data are omitted.

mod cpu;
mod curve;
mod disk;
mod facts;
mod grid;
mod links;
mod svg;
mod timeline;

use askama::Template;
use nicstripe::{
    bench::{BenchReport, Direction, Phase, Run, SweepKind},
    printable,
};
use nicstripe_doctor::{Case, Command, Finding, Severity, Side, examine};

use self::svg::{Svg, escape};
use super::{
    reading::{Mood, Reading, kind_text, phase_text},
    unit::{bytes_a_second, milliseconds, percent, size},
};
use crate::{commands::doctor::quote, text::shown};

pub(crate) fn page(report: &BenchReport) -> String {
    let page = Page::of(Reading::of(report)).render();
    page.expect("writing to a string does not fail") + "\n"
}

/// Values of the template `page.html`, which has the markup and escapes the texts.
#[derive(Template)]
#[template(path = "commands/bench/html/page.html")]
struct Page<'a> {
    report: &'a BenchReport,
    ours: String,
    theirs: String,
    began: String,
    sentence: String,
    mood: &'static str,
    total: Option<Total>,
    compared: Option<(&'static str, String)>,
    ratios: String,
    parts: Vec<Part>,
    /// The report, so that the page can serve as a baseline.
    json: String,
}

/// Rate of all links together.
struct Total {
    rate: String,
    unit: &'static str,
    remarks: Vec<String>,
    drawing: String,
}

/// Section of the page.
#[derive(Default)]
struct Part {
    title: String,
    class: &'static str,
    /// Drawing above the figures.
    legend: Option<String>,
    /// Drawings, each with its caption.
    figures: Vec<(String, String)>,
    /// Tables, each with its CSS class, the header first.
    tables: Vec<(&'static str, Vec<Vec<String>>)>,
    findings: Vec<Finding>,
    unstable: String,
    note: String,
}

impl Part {
    fn figure(title: &str, drawing: String, caption: String) -> Self {
        Self {
            title: title.to_owned(),
            figures: vec![(drawing, caption)],
            ..Self::default()
        }
    }
}

impl<'a> Page<'a> {
    fn of(reading: Reading<'a>) -> Self {
        let report = reading.report;
        let [ours, theirs] = reading.machines();
        let measured = [rates, round_trips, over_time].map(|part| part(reading));
        let others = [processors, disks, found, machines].map(|part| part(reading));
        let parts = measured.into_iter().flatten();
        let verdict = report.baseline.as_ref().map(|baseline| baseline.verdict);
        let compared = verdict.zip(reading.compared());
        Self {
            report,
            ours,
            theirs,
            began: shown(&report.started),
            sentence: capital(&printable(report.summary.sentence.as_bytes())),
            mood: mood_class(Mood::of_limiter(report.summary.limiter)),
            total: total(reading),
            compared: compared
                .map(|(verdict, text)| (mood_class(Mood::of_verdict(verdict)), capital(&text))),
            ratios: reading.ratios(true).join(" · "),
            parts: parts
                .chain(sweeps(reading))
                .chain(others.into_iter().flatten())
                .collect(),
            json: serde_json::to_string(report).unwrap_or_default(),
        }
    }
}

fn total(reading: Reading<'_>) -> Option<Total> {
    let (phase, total) = reading.whole_phases().next()?;
    let unit = reading.unit;
    let part = reading.whole_efficiency(phase);
    let range = unit.range(&total);
    let remarks = [
        Some(phase_text(phase).to_owned()),
        Some(bytes_a_second(total.median_bps)),
        part.map(|part| format!("{} of theory", percent(part))),
        (!range.is_empty()).then(|| format!("{range} in {} repeats", total.n)),
    ];
    Some(Total {
        rate: unit.text(total.median_bps),
        unit: unit.name(),
        remarks: remarks.into_iter().flatten().collect(),
        drawing: links::total(reading, phase).unwrap_or_default(),
    })
}

fn mood_class(mood: Mood) -> &'static str {
    match mood {
        Mood::Bad => "bad",
        Mood::Good => "good",
        Mood::Plain => "soft",
    }
}

fn rates(reading: Reading<'_>) -> Option<Part> {
    let drawing = links::rates(reading)?;
    let mut links = reading.report.links.iter();
    let has_theory = links.any(|link| link.theory_bps.is_some());
    let has_both = reading.total(Phase::Both).is_some();
    let notes = [
        has_theory.then_some("The vertical mark is theory."),
        has_both.then_some("Both ways is the mean of the two directions."),
        Some("The line at the end of a bar spans the minimum and maximum of its repeats."),
    ];
    let caption = notes.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let phase = reading.main_phase().unwrap_or(Phase::Together);
    Some(Part {
        tables: vec![("rates", links::table(reading, phase))],
        ..Part::figure("Each link alone and together", drawing, caption)
    })
}

fn over_time(reading: Reading<'_>) -> Option<Part> {
    let phase = reading.main_phase();
    let typical = phase.and_then(|phase| reading.typical_run(phase));
    let run = typical.or_else(|| reading.report.runs.last())?;
    let both = reading
        .typical_run(Phase::Both)
        .filter(|both| both.repeat != run.repeat || both.phase != run.phase);
    let runs = std::iter::once(run).chain(both);
    let charts = runs.flat_map(|run| {
        [Direction::ToDaemon, Direction::ToClient].map(|way| {
            let drawing = timeline::draw(reading, run, way)?;
            Some((drawing, timeline::caption(reading, run, way)))
        })
    });
    let figures: Vec<_> = charts.flatten().collect();
    (!figures.is_empty()).then(|| Part {
        title: "Over time".to_owned(),
        class: "all",
        legend: Some(legend(reading, run)),
        figures,
        ..Part::default()
    })
}

/// Renders a legend of the link colours, because thin areas of a chart have no space for a name.
fn legend(reading: Reading<'_>, run: &Run) -> String {
    let linked = timeline::linked(reading, run);
    let entries: Vec<(String, String)> = linked
        .iter()
        .map(|link| (format!("fill {}", colour(link.id)), reading.name(link)))
        .collect();
    let mut measured = Svg::new(0.0);
    let last = measured.legend(13.0, &entries);
    let mut svg = Svg::new(last + 8.0);
    svg.legend(13.0, &entries);
    svg.finish("Colours of the links")
}

fn round_trips(reading: Reading<'_>) -> Option<Part> {
    let drawing = links::round_trips(reading)?;
    let mut caption = String::from(
        "Minimum to maximum; the point is the median when idle and the mean under load. Idle, min / avg / max / std:",
    );
    for link in &reading.report.links {
        if let Some(rtt) = &link.rtt_idle {
            let times = [rtt.min_us, rtt.avg_us, rtt.max_us, rtt.std_us]
                .map(milliseconds)
                .join(" / ");
            caption += &format!(" {}: {times} ms.", reading.name(link));
        }
    }
    Some(Part::figure(
        "Round trips, idle and loaded",
        drawing,
        caption,
    ))
}

fn sweeps(reading: Reading<'_>) -> impl Iterator<Item = Part> {
    reading.report.sweeps.iter().map(move |sweep| {
        let drawing = match sweep.kind {
            SweepKind::Grid => grid::draw(reading, sweep),
            _ => curve::draw(reading, sweep),
        };
        let over = sweep.link.map_or_else(String::new, |link| {
            format!(", on {}", reading.name_of(link))
        });
        let rate = |bps| reading.unit.rate(bps);
        let facts = [
            (sweep.latency_us).map(|us| format!("Latency {us:.1} µs.")),
            (sweep.half_size_bytes).map(|bytes| format!("Half the rate at {}.", size(bytes))),
            (sweep.bdp_bytes).map(|bytes| format!("Bandwidth × delay under load {}.", size(bytes))),
            (sweep.top_decile_bps).map(|bps| format!("Top decile (framed) {}.", rate(bps))),
            (sweep.points.iter().any(|point| point.computed))
                .then(|| "Hollow points are computed.".to_owned()),
            sentence(&sweep.advice),
            sentence(&sweep.stopped).map(|why| format!("It ended: {}", lower(&why))),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        let title = format!("By {}{over}", kind_text(sweep.kind));
        Part::figure(&title, drawing.unwrap_or_default(), facts.join(" "))
    })
}

fn processors(reading: Reading<'_>) -> Option<Part> {
    let drawing = cpu::draw(reading)?;
    let [ours, theirs] = reading.machines();
    let mhz = &reading.report.summary.cpu_mhz_per_mbps;
    let worst = |name: &str, pick: fn(&Run) -> Option<f64>| {
        let percents = reading.report.runs.iter().filter_map(pick);
        let most = percents.max_by(f64::total_cmp)?;
        Some(format!("The busiest core of {name} was at {most:.0} %."))
    };
    let notes = [
        worst(&ours, |run| run.cpu.client?.worst_core_pct),
        worst(&theirs, |run| run.cpu.daemon?.worst_core_pct),
        mhz.client
            .map(|mhz| format!("{ours}: {mhz:.3} MHz per Mbit/s.")),
        mhz.daemon
            .map(|mhz| format!("{theirs}: {mhz:.3} MHz per Mbit/s.")),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    let title = "Processor time per gigabit";
    Some(Part::figure(title, drawing, notes.join(" ")))
}

fn disks(reading: Reading<'_>) -> Option<Part> {
    let disk = reading.report.disk.as_ref()?;
    let [ours, theirs] = reading.machines();
    let system = |name: &Option<String>| {
        name.as_ref()
            .map_or_else(String::new, |name| format!(" ({})", shown(name)))
    };
    let systems = &disk.file_systems;
    let mut names = [
        format!("{ours}{}", system(&systems.client)),
        "all links".into(),
        format!("{theirs}{}", system(&systems.daemon)),
    ];
    if disk.way == Direction::ToClient {
        names.reverse();
    }
    let caption = format!(
        "{} per stage; writing includes the sync. No data was kept.",
        size(disk.bytes)
    );
    let drawing = disk::draw(disk, names).unwrap_or_default();
    Some(Part::figure("Disk to disk", drawing, caption))
}

/// Returns what `nicstripe doctor` finds in the report, and repeats that disagree.
fn found(reading: Reading<'_>) -> Option<Part> {
    let mut findings = examine(&Case::of_report(reading.report), &[]).findings;
    findings.retain(|finding| finding.severity < Severity::Info);
    let unstable = reading.unstable().join("; ");
    (!findings.is_empty() || !unstable.is_empty()).then(|| Part {
        title: "Findings and remedies".to_owned(),
        findings,
        unstable,
        ..Part::default()
    })
}

/// Formats a command as HTML.
fn line(command: &Command) -> String {
    let place = match command.side {
        Side::Here => "",
        Side::There => " (there)",
    };
    format!("<code>{}</code>{place}", escape(command.line.as_str()))
}

fn machines(reading: Reading<'_>) -> Option<Part> {
    let report = reading.report;
    let plan = &report.plan;
    let [fewest, most] = plan.repeats;
    let times = match (fewest, most) {
        (1, 1) => "once".to_owned(),
        (fewest, most) if fewest == most => format!("{most} times"),
        (fewest, most) => format!("{fewest} to {most} times"),
    };
    let buffer = plan.socket_buffer_bytes.map_or_else(
        || "the kernel's buffer sizes".to_owned(),
        |bytes| format!("buffers of {}", size(bytes)),
    );
    let measured = format!(
        "Each load {times} for up to {} s after a warm-up of {} s, {} a link, messages of {}, {buffer}. Bytes are those received, by the \
         receiver's clock, in one window for all links. Began {}, took {:.0} s.",
        plan.load_ms as f64 / 1e3,
        plan.warm_up_ms as f64 / 1e3,
        match plan.streams {
            1 => "one connection".to_owned(),
            streams => format!("{streams} connections"),
        },
        size(plan.message_bytes),
        shown(&report.started),
        report.elapsed_s,
    );
    let interfaces = (!report.links.is_empty()).then(|| facts::interfaces(reading));
    let tables = std::iter::once(facts::hosts(reading)).chain(interfaces);
    Some(Part {
        title: "Both machines".to_owned(),
        class: "all",
        tables: tables.map(|rows| ("facts", rows)).collect(),
        note: measured,
        ..Part::default()
    })
}

/// Formats a text as a sentence, with a leading capital and a full stop; `None` if it is empty.
fn sentence(text: &str) -> Option<String> {
    let text = printable(text.as_bytes());
    let text = text.trim_end_matches('.');
    (!text.is_empty()).then(|| format!("{}.", capital(text)))
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}

fn lower(text: &str) -> String {
    let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    first.to_lowercase() + rest
}

/// Returns the CSS class for the colour of the link with this ID in the report. There are six
/// colours, which repeat.
pub(super) fn colour(link: u32) -> String {
    format!("c{}", link.saturating_sub(1) % 6 + 1)
}

#[cfg(test)]
mod tests;
