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

use std::fmt::Write as _;

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
    let reading = Reading::of(report);
    let [ours, theirs] = reading.machines();
    let title = escape(&format!(
        "nicstripe bench: {ours} and {theirs}, {}",
        shown(&report.started)
    ));
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><main>\n"
    );
    html.push_str(&head(reading));
    html.push_str("<div class=\"parts\">\n");
    let parts: [fn(Reading<'_>) -> Option<String>; 9] = [
        rates,
        round_trips,
        over_time,
        sweeps,
        processors,
        disks,
        found,
        machines,
        raw,
    ];
    html.extend(parts.iter().filter_map(|part| part(reading)));
    html.push_str("</div></main></body></html>\n");
    html
}

fn head(reading: Reading<'_>) -> String {
    let report = reading.report;
    let [ours, theirs] = reading.machines();
    let mut html = format!(
        "<h1>nicstripe bench: {} → {}</h1>",
        escape(&ours),
        escape(&theirs)
    );
    let mood = mood_class(Mood::of_limiter(report.summary.limiter));
    let sentence = printable(report.summary.sentence.as_bytes());
    let _ = write!(
        html,
        "<p class=\"sentence {mood}\">{}</p>",
        escape(&capital(&sentence))
    );
    if let Some((phase, total)) = reading.whole_phases().next() {
        let unit = reading.unit;
        let _ = write!(
            html,
            "<p class=\"big\">{} <small>{}</small></p>",
            unit.text(total.median_bps),
            unit.name()
        );
        let part = reading
            .whole_efficiency(phase)
            .map_or_else(String::new, |part| {
                format!(" · {} of theory", percent(part))
            });
        let range = unit.range(&total);
        let range = match range.is_empty() {
            true => range,
            false => format!(" · {range} in {} repeats", total.n),
        };
        let _ = write!(
            html,
            "<p class=\"soft\">{} · {}{part}{range}</p>",
            phase_text(phase),
            bytes_a_second(total.median_bps)
        );
        html.push_str(&links::total(reading, phase).unwrap_or_default());
    }
    if !report.complete {
        html.push_str("<p class=\"bad\">Incomplete: ended before the whole plan was measured.</p>");
    }
    if let (Some(text), Some(comparison)) = (reading.compared(), &report.baseline) {
        let _ = write!(
            html,
            "<p class=\"{}\">{}.</p>",
            mood_class(Mood::of_verdict(comparison.verdict)),
            escape(&capital(&text))
        );
    }
    let _ = writeln!(
        html,
        "<p class=\"soft\">{}</p>",
        reading.ratios(true).join(" · ")
    );
    html
}

fn mood_class(mood: Mood) -> &'static str {
    match mood {
        Mood::Bad => "bad",
        Mood::Good => "good",
        Mood::Plain => "soft",
    }
}

fn rates(reading: Reading<'_>) -> Option<String> {
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
    let table = scroll(&table("rates", &links::table(reading, phase)));
    let body = figure(&drawing, &caption) + &table;
    Some(section("Each link alone and together", "", &body))
}

fn over_time(reading: Reading<'_>) -> Option<String> {
    let phase = reading.main_phase();
    let typical = phase.and_then(|phase| reading.typical_run(phase));
    let run = typical.or_else(|| reading.report.runs.last())?;
    let mut figures = String::new();
    let both = reading
        .typical_run(Phase::Both)
        .filter(|both| both.repeat != run.repeat || both.phase != run.phase);
    for run in std::iter::once(run).chain(both) {
        for way in [Direction::ToDaemon, Direction::ToClient] {
            if let Some(drawing) = timeline::draw(reading, run, way) {
                let caption = timeline::caption(reading, run, way);
                figures.push_str(&figure(&drawing, &caption));
            }
        }
    }
    let legend = legend(reading, run);
    let body = format!("{legend}<div class=\"parts three\">{figures}</div>");
    (!figures.is_empty()).then(|| section("Over time", "all", &body))
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

fn round_trips(reading: Reading<'_>) -> Option<String> {
    let drawing = links::round_trips(reading)?;
    let mut caption = String::from(
        "Minimum to maximum; the point is the median when idle and the mean under load. Idle, min / avg / max / std:",
    );
    for link in &reading.report.links {
        if let Some(rtt) = &link.rtt_idle {
            let times = [rtt.min_us, rtt.avg_us, rtt.max_us, rtt.std_us]
                .map(milliseconds)
                .join(" / ");
            let _ = write!(caption, " {}: {times} ms.", reading.name(link));
        }
    }
    let figure = figure(&drawing, &caption);
    Some(section("Round trips, idle and loaded", "", &figure))
}

fn sweeps(reading: Reading<'_>) -> Option<String> {
    let mut html = String::new();
    for sweep in &reading.report.sweeps {
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
        let figure = figure(&drawing.unwrap_or_default(), &facts.join(" "));
        html.push_str(&section(&title, "", &figure));
    }
    Some(html)
}

fn processors(reading: Reading<'_>) -> Option<String> {
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
    let figure = figure(&drawing, &notes.join(" "));
    Some(section("Processor time per gigabit", "", &figure))
}

fn disks(reading: Reading<'_>) -> Option<String> {
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
    Some(section("Disk to disk", "", &figure(&drawing, &caption)))
}

/// Returns what `nicstripe doctor` finds in the report, and repeats that disagree.
fn found(reading: Reading<'_>) -> Option<String> {
    let diagnosis = examine(&Case::of_report(reading.report), &[]);
    let told = |finding: &&Finding| finding.severity < Severity::Info;
    let mut items: String = diagnosis.findings.iter().filter(told).map(item).collect();
    let unstable = reading.unstable();
    if !unstable.is_empty() {
        let _ = write!(
            items,
            "<li><b>The repeats disagree:</b> {}. Check for other load, and measure again without it.</li>",
            escape(&unstable.join("; "))
        );
    }
    let list = format!("<ul>{items}</ul>");
    (!items.is_empty()).then(|| section("Findings and remedies", "", &list))
}

fn item(finding: &Finding) -> String {
    let code = |command: &Command| {
        let place = match command.side {
            Side::Here => "",
            Side::There => " (there)",
        };
        format!("<code>{}</code>{place}", escape(command.line.as_str()))
    };
    let remedy = finding.remedy.as_ref();
    let advice = remedy.map_or("", |remedy| &*remedy.advice);
    let commands: String = remedy
        .iter()
        .flat_map(|one| &one.commands)
        .map(code)
        .collect();
    let undo: String = remedy.iter().flat_map(|one| &one.undo).map(code).collect();
    let undo = match undo.is_empty() {
        true => undo,
        false => format!("To undo:{undo}"),
    };
    format!(
        "<li><b>{}</b> ({}). {}{commands}{undo}</li>",
        escape(&finding.sentence),
        quote::command(finding),
        escape(advice)
    )
}

fn machines(reading: Reading<'_>) -> Option<String> {
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
    let interfaces = match report.links.is_empty() {
        true => String::new(),
        false => scroll(&table("facts", &facts::interfaces(reading))),
    };
    let body = format!(
        "{}{interfaces}<p class=\"soft\">{}</p>",
        table("facts", &facts::hosts(reading)),
        escape(&measured)
    );
    Some(section("Both machines", "all", &body))
}

/// Embeds the report as JSON, so that the page can serve as a baseline.
fn raw(reading: Reading<'_>) -> Option<String> {
    let json = escape(&serde_json::to_string(reading.report).ok()?);
    let body = format!("<details><summary>The JSON document</summary><pre>{json}</pre></details>");
    Some(section("Raw", "all raw", &body))
}

fn section(title: &str, class: &str, body: &str) -> String {
    format!(
        "<section class=\"{class}\"><h2>{}</h2>{body}</section>\n",
        escape(title)
    )
}

fn figure(drawing: &str, caption: &str) -> String {
    format!(
        "<figure>{drawing}<figcaption>{}</figcaption></figure>",
        escape(caption)
    )
}

fn scroll(table: &str) -> String {
    format!("<div class=\"scroll\">{table}</div>")
}

fn table(class: &str, rows: &[Vec<String>]) -> String {
    let mut html = format!("<table class=\"{class}\">");
    for (index, row) in rows.iter().enumerate() {
        let tag = if index == 0 { "th" } else { "td" };
        let cells = row
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
        let _ = write!(html, "<tr>{}</tr>", cells.collect::<String>());
    }
    html.push_str("</table>");
    html
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

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests;
