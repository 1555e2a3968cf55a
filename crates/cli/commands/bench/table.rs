//! Bench report as text: a table, the conclusions, and a closing sentence.

use std::{collections::BTreeSet, time::Duration};

use clap::builder::styling::{AnsiColor, Style};
use nicstripe::{
    bench::{BenchLink, BenchReport, Direction, DiskReport, Ends, Phase, Spread},
    printable,
};

use super::{
    reading::{Mood, Reading, limiter_text, phase_text},
    swept,
    unit::{bytes_a_second, milliseconds, percent, time},
};
use crate::{
    commands::doctor::quote,
    text::{known, link_text, quantity::Size, shown, table::aligned_rows},
};

/// Line of the printed report, with its colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Text of the line without colour codes.
    pub(crate) text: String,
    /// Assessment of the line, which determines its colour.
    pub(crate) mood: Mood,
}

impl Line {
    fn of(text: impl Into<String>, mood: Mood) -> Self {
        let text = text.into();
        Self { text, mood }
    }

    /// Returns the text with colour codes. The printer strips them if colours are off.
    pub(crate) fn styled(&self) -> String {
        let style = match self.mood {
            Mood::Plain => return self.text.clone(),
            Mood::Good => GOOD,
            Mood::Bad => BAD,
        };
        format!("{style}{}{style:#}", self.text)
    }
}

/// Returns the report as lines: the table, the conclusions, and a closing sentence. Below [`WIDE`]
/// columns, rates have no ranges.
pub(crate) fn lines(report: &BenchReport, columns: Option<usize>) -> Vec<Line> {
    let reading = Reading::of(report);
    let wide = columns.is_none_or(|columns| columns >= WIDE);
    let mut lines = vec![Line::of(title(reading, wide), Mood::Plain)];
    let narrow = columns.is_some_and(|columns| columns < ROUND_TRIPS_FROM);
    lines.extend(table(reading, wide, narrow));
    let disk = report.disk.as_ref().map(|disk| disk_line(disk, wide));
    let plain = in_bytes(reading)
        .into_iter()
        .chain(join(reading.ratios(false)))
        .chain(processors(reading))
        .chain(swept::lines(reading, wide))
        .chain(disk);
    lines.extend(plain.map(|text| Line::of(text, Mood::Plain)));
    let unstable = reading.unstable().into_iter();
    let problems = unstable
        .map(|what| format!("not stable: {what}"))
        .chain(unverified(reading));
    lines.extend(problems.map(|text| Line::of(text, Mood::Bad)));
    if !report.complete {
        let text = "incomplete: ended before the whole plan was measured";
        lines.push(Line::of(text, Mood::Bad));
    }
    let verdict = report.baseline.as_ref().map(|baseline| baseline.verdict);
    let compared = reading.compared().zip(verdict);
    lines.extend(compared.map(|(text, verdict)| Line::of(text, Mood::of_verdict(verdict))));
    let cause = quote::of_report(report);
    lines.extend(cause.map(|cause| Line::of(format!("cause: {cause}"), Mood::Bad)));
    let sentence = printable(report.summary.sentence.as_bytes());
    if !sentence.is_empty() {
        let mood = Mood::of_limiter(report.summary.limiter);
        lines.push(Line::of(sentence, mood));
    }
    match columns {
        Some(columns) => lines
            .into_iter()
            .flat_map(|line| folded(line, columns))
            .collect(),
        None => lines,
    }
}

/// Wraps a line at its separators or words. A row of the table stays whole.
fn folded(line: Line, columns: usize) -> Vec<Line> {
    let Line { text, mood } = line;
    if text.chars().count() <= columns || text.starts_with("  ") {
        return vec![Line::of(text, mood)];
    }
    let gap = if text.contains("   ") { "   " } else { " " };
    let mut lines: Vec<String> = Vec::new();
    for part in text.split(gap) {
        match lines.last_mut() {
            Some(last) if last.chars().count() + gap.len() + part.chars().count() <= columns => {
                *last = format!("{last}{gap}{part}");
            }
            Some(_) => lines.push(format!("  {part}")),
            None => lines.push(part.to_owned()),
        }
    }
    lines.into_iter().map(|text| Line::of(text, mood)).collect()
}

/// Returns the total rate in one line, for `--quiet`.
pub(crate) fn total_line(report: &BenchReport) -> String {
    let reading = Reading::of(report);
    let Some((phase, total)) = reading.whole_phases().next() else {
        return printable(report.summary.sentence.as_bytes());
    };
    let part = reading
        .whole_efficiency(phase)
        .map_or_else(String::new, |part| format!(", {} of theory", percent(part)));
    format!(
        "{}, {}{part}",
        reading.unit.rate(total.median_bps),
        bytes_a_second(total.median_bps)
    )
}

fn title(reading: Reading<'_>, wide: bool) -> String {
    let report = reading.report;
    let [ours, theirs] = reading.machines();
    let mut parts = vec![
        format!("bench {ours} → {theirs}"),
        link_text::counted(report.links.len()),
    ];
    let mtus: BTreeSet<u32> = report.links.iter().filter_map(mtu).collect();
    if !mtus.is_empty() {
        let mtus: Vec<String> = mtus.iter().map(u32::to_string).collect();
        parts.push(format!("MTU {}", mtus.join(" and ")));
    }
    let congestion = report.hosts.client.congestion.as_ref();
    parts.extend(congestion.map(|name| format!("tcp/{}", shown(name))));
    let most = report.runs.iter().map(|run| run.repeat).max();
    let load = time(Duration::from_millis(report.plan.load_ms));
    parts.extend(most.map(|repeats| format!("{repeats} × up to {load}")));
    let range = match wide && has_ranges(reading) {
        true => " [min..max]",
        false => "",
    };
    parts.push(format!("median{range} in {}", reading.unit.name()));
    parts.join("   ")
}

fn mtu(link: &BenchLink) -> Option<u32> {
    let Ends { client, daemon } = &link.ends;
    let theory = link.theory.map(|theory| theory.mtu);
    theory.or_else(|| Some(client.mtu?.min(daemon.mtu?)))
}

/// Returns the rows of the links, of the total, and of the other phases that load all links.
fn table(reading: Reading<'_>, wide: bool, narrow: bool) -> Vec<Line> {
    let report = reading.report;
    if report.links.is_empty() {
        return Vec::new();
    }
    let phase = reading.main_phase();
    let mut rows = vec![(heads(phase), Mood::Plain)];
    let links = report.links.iter();
    rows.extend(links.map(|link| link_row(reading, phase, link, wide)));
    let totals = reading.whole_phases();
    rows.extend(totals.map(|(phase, total)| (total_row(reading, phase, total, wide), Mood::Plain)));
    let (mut cells, moods): (Vec<Vec<String>>, Vec<_>) = rows.into_iter().unzip();
    let mut drop_column = |column| cells.iter_mut().for_each(|row| drop(row.remove(column)));
    if narrow {
        drop_column(ROUND_TRIPS);
    }
    let mut links = report.links.iter();
    if links.all(|link| reading.alone(link).is_none()) {
        drop_column(ALONE);
    }
    aligned_rows(&cells)
        .into_iter()
        .zip(moods)
        .map(|(text, mood)| Line::of(text, mood))
        .collect()
}

fn heads(phase: Option<Phase>) -> Vec<String> {
    let main = phase.map_or("together", phase_text);
    let heads = [
        "link",
        "alone",
        main,
        "of theory",
        "resent",
        ROUND_TRIPS_HEAD,
        "limited by",
    ];
    heads.map(str::to_owned).into()
}

fn link_row(
    reading: Reading<'_>,
    phase: Option<Phase>,
    link: &BenchLink,
    wide: bool,
) -> (Vec<String>, Mood) {
    let phase = phase.unwrap_or(Phase::Together);
    let spread = |spread| cell(reading, spread, wide);
    let summary = reading.summary_of(link);
    let efficiency = reading.efficiency(phase, link);
    let again = reading.sent_again(phase, link);
    let idle = link.rtt_idle.map(|rtt| milliseconds(rtt.p50_us));
    let loaded = reading.rtt_loaded(phase, link).map(milliseconds);
    let limiter = summary.and_then(|summary| summary.limiter);
    let cells = vec![
        format!("{} {}", link.id, reading.name(link)),
        spread(reading.alone(link)),
        spread(reading.part(phase, link)),
        known(efficiency.map(percent)),
        known(again.map(|(bytes, part)| resent(bytes, part))),
        format!("{} / {}", known(idle), known(loaded)),
        limiter.map_or("", limiter_text).to_owned(),
    ];
    (cells, Mood::of_efficiency(efficiency))
}

fn total_row(reading: Reading<'_>, phase: Phase, total: Spread, wide: bool) -> Vec<String> {
    let report = reading.report;
    let is_main = reading.main_phase() == Some(phase);
    let alone = reading.alone_sum().filter(|_| is_main);
    let links = report.links.iter();
    let again: Option<u64> = links
        .map(|link| Some(reading.sent_again(phase, link)?.0))
        .sum();
    let limiter = report.summary.limiter.filter(|_| is_main);
    vec![
        if is_main { "TOTAL" } else { phase_text(phase) }.to_owned(),
        alone.map_or_else(String::new, |sum| cell_of(reading, sum, "", wide)),
        cell(reading, Some(total), wide),
        known(reading.whole_efficiency(phase).map(percent)),
        known(again.map(|bytes| resent(bytes, 0.0))),
        String::new(),
        limiter.map_or("", limiter_text).to_owned(),
    ]
}

/// Formats a median, with its range on a wide terminal. All cells are equally wide, so that the
/// decimal points are aligned.
fn cell(reading: Reading<'_>, spread: Option<Spread>, wide: bool) -> String {
    let text = |spread: Spread| {
        let range = reading.unit.range(&spread);
        cell_of(reading, spread.median_bps, &range, wide)
    };
    known(spread.map(text))
}

fn cell_of(reading: Reading<'_>, bps: u64, range: &str, wide: bool) -> String {
    let rate = reading.unit.text(bps);
    if wide && has_ranges(reading) {
        format!("{rate} {range:<RANGE$}")
    } else {
        rate
    }
}

fn has_ranges(reading: Reading<'_>) -> bool {
    reading.report.runs.iter().any(|run| run.repeat > 1)
}

fn resent(bytes: u64, part: f64) -> String {
    match bytes {
        0 => "0".to_owned(),
        bytes if part >= 0.000_05 => format!("{} ({:.2} %)", Size(bytes), part * 100.0),
        bytes => Size(bytes).to_string(),
    }
}

/// Returns the total rate of each phase that loads all links, in bytes per second; `None` if none
/// was measured.
fn in_bytes(reading: Reading<'_>) -> Option<String> {
    let text = |(phase, total): (Phase, Spread)| {
        format!("{} {}", phase_text(phase), bytes_a_second(total.median_bps))
    };
    join(reading.whole_phases().map(text))
}

fn processors(reading: Reading<'_>) -> Option<String> {
    let Ends { client, daemon } = &reading.report.summary.cpu_s_per_gbit;
    let mhz = &reading.report.summary.cpu_mhz_per_mbps;
    let [ours, theirs] = reading.machines();
    let ends = [(ours, client, mhz.client), (theirs, daemon, mhz.daemon)];
    let parts = join(ends.into_iter().filter_map(|(name, seconds, mhz)| {
        let mhz = mhz.map_or_else(String::new, |mhz| format!(", {mhz:.3} MHz per Mbit/s"));
        seconds.map(|seconds| format!("{name} {seconds:.4} s{mhz}"))
    }))?;
    Some(format!("processor per Gbit, whole machine: {parts}"))
}

/// Formats the disk measurement as one line. File systems and ranges appear only on a wide
/// terminal.
fn disk_line(disk: &DiskReport, wide: bool) -> String {
    let Ends { client, daemon } = &disk.file_systems;
    let (from, to) = match disk.way {
        Direction::ToDaemon => (client, daemon),
        Direction::ToClient => (daemon, client),
    };
    let stages = [
        ("read", disk.read, from),
        ("network", disk.network, &None),
        ("write", disk.write, to),
        ("all", disk.all, &None),
    ];
    let stage = |(name, rate, system): (&str, Option<Spread>, &Option<String>)| {
        let rate = rate?;
        let [least, median, most] =
            [rate.min_bps, rate.median_bps, rate.max_bps].map(|bps| bps as f64 / 8e6);
        let on = system.as_ref().filter(|_| wide);
        let on = on.map_or_else(String::new, |system| format!(" {}", shown(system)));
        let range = (wide && rate.n > 1).then(|| format!(" [{least:.1}-{most:.1}]"));
        let range = range.unwrap_or_default();
        Some(format!("{name}{on} {median:.1} MB/s{range}"))
    };
    let narrowest = disk.narrowest.as_ref().map_or_else(String::new, |stage| {
        format!("; bottleneck: {}", shown(stage))
    });
    format!(
        "disk to disk, {}: {}{narrowest}",
        Size(disk.bytes),
        known(join(stages.into_iter().filter_map(stage)))
    )
}

/// Returns warnings about links whose packets took another interface. They come first, because the
/// rates of such a link are those of another one.
fn unverified(reading: Reading<'_>) -> impl Iterator<Item = String> {
    reading.misrouted().map(move |link| {
        format!(
            "{}: arrived on another interface of the peer, its numbers are those of another cable",
            reading.name(link)
        )
    })
}

fn join(parts: impl IntoIterator<Item = String>) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().collect();
    (!parts.is_empty()).then(|| parts.join("   "))
}

/// Index of the table column that is omitted if no link was measured alone.
const ALONE: usize = 1;

/// Index of the table column with round-trip times, which a narrow terminal omits.
const ROUND_TRIPS: usize = 5;
const ROUND_TRIPS_HEAD: &str = "RTT idle/load ms";

/// Minimum width of a terminal, in columns, for a table with round-trip times.
const ROUND_TRIPS_FROM: usize = 90;

/// Minimum width of a terminal, in columns, for a table with ranges.
const WIDE: usize = 120;

/// Width of a range such as `[1144.1..1150.0]`, in columns.
const RANGE: usize = 16;

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Yellow.on_default();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    fn text(report: &BenchReport, columns: Option<usize>) -> String {
        let lines: Vec<String> = lines(report, columns)
            .into_iter()
            .map(|line| line.text)
            .collect();
        lines.join("\n")
    }

    #[test]
    fn the_last_line_is_the_sentence_and_needs_no_colour() {
        for (name, report) in samples::all() {
            let lines = lines(&report, None);
            assert_eq!(
                lines.last().map(|line| line.text.as_str()),
                Some(report.summary.sentence.as_str()),
                "{name}"
            );
            assert!(
                lines.iter().all(|line| !line.text.contains('\u{1b}')),
                "{name}"
            );
        }
    }

    #[test]
    fn a_bad_link_is_not_hidden_behind_the_total() {
        let text = text(&samples::mixed(), None);
        let row = text.lines().find(|line| line.contains("2 eth2")).unwrap();
        assert!(row.contains("loss") && row.contains("(0.42 %)"), "{row}");
    }

    #[test]
    fn the_total_is_in_bytes_too_and_si_comes_first() {
        let text = text(&samples::shared(), None);
        let total = text.lines().find(|line| line.contains("TOTAL")).unwrap();
        assert!(total.ends_with("shared"), "{total}");
        assert!(
            text.contains("together 143.3 MB/s (136.7 MiB/s)   reverse 143.3 MB/s"),
            "{text}"
        );
        assert!(text.contains("scaling 0.61"), "{text}");
        assert!(
            text.contains("processor per Gbit, whole machine: "),
            "{text}"
        );
    }

    #[test]
    fn a_terminal_of_ninety_columns_has_no_ranges_and_no_broken_lines() {
        for (name, report) in samples::all() {
            let narrow = text(&report, Some(90));
            let rows = narrow.lines().filter(|line| line.starts_with("  "));
            rows.for_each(|row| assert!(row.chars().count() <= 95, "{name}: {row}"));
            assert!(!narrow.contains(".0]"), "{name}: {narrow}");
        }
        assert!(
            text(&samples::good(), Some(160))
                .lines()
                .all(|line| line.chars().count() <= 160)
        );
    }

    #[test]
    fn nothing_is_wider_than_a_terminal_of_eighty_columns() {
        for (name, report) in samples::all() {
            for line in text(&report, Some(80)).lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }

    #[test]
    fn what_is_unknown_is_a_question_mark_and_never_zero() {
        let text = text(&samples::partial(), None);
        let row = text.lines().find(|line| line.contains("1 wlan0")).unwrap();
        assert!(row.contains(" ? ") && row.contains("? / ?"), "{row}");
        assert!(text.contains("incomplete"), "{text}");
    }

    #[test]
    fn repeats_that_disagree_are_said_to() {
        let mut report = samples::good();
        report.summary.together.as_mut().unwrap().stable = false;
        assert!(
            text(&report, None).contains("not stable: together (6 repeats, ["),
            "{}",
            text(&report, None)
        );
    }

    #[test]
    fn sweeps_disks_and_a_baseline_have_their_lines() {
        assert!(text(&samples::swept(), None).contains("latency 21.4 µs"));
        let disk = text(&samples::with_disk(), None);
        assert!(
            disk.contains("bottleneck: write")
                && disk.contains("compared with 0badcafe")
                && disk.contains("SLOWER"),
            "{disk}"
        );
    }

    #[test]
    fn names_of_the_peer_do_not_reach_the_terminal_as_they_are() {
        let mut report = samples::good();
        report.links[0].ends.daemon.name = "\u{1b}[2J".into();
        report.hosts.daemon.name = Some("\u{1b}]0;x\u{7}".into());
        report.summary.sentence = "\u{1b}[31mred".into();
        assert!(!text(&report, None).contains('\u{1b}'));
        assert!(!total_line(&report).contains('\u{1b}'));
    }

    #[test]
    fn the_quiet_line_is_the_total_alone() {
        let line = total_line(&samples::good());
        assert!(
            line.starts_with("188")
                && line.contains(" Mbit/s, 235.")
                && line.ends_with("% of theory"),
            "{line}"
        );
    }
}
