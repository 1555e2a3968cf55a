//! Bench report as text: a table, the conclusions, and a closing sentence.

use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use nicstripe::{
    bench::{
        BenchLink, BenchReport, Direction, DiskReport, Ends, Limiter, Phase, Spread, SweepKind,
        Verdict,
    },
    printable,
};

use super::{
    reading::{self, Reading, limiter_text, phase_text},
    swept,
    unit::{bytes_a_second, milliseconds, percent, time},
};
use crate::text::{link_text, quantity::Size, shown, table::aligned_rows};

/// Line of the printed report, with its colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Text of the line without colour codes.
    pub(crate) text: String,
    /// Assessment of the line, which determines its colour.
    pub(crate) mood: Mood,
}

/// Assessment of a line, which determines its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Plain,
    /// The cables are the bottleneck, or the rates are higher than the baseline's.
    Good,
    /// The line reports a problem.
    Bad,
}

impl Line {
    fn plain(text: String) -> Self {
        Self {
            text,
            mood: Mood::Plain,
        }
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
    let mut lines = vec![Line::plain(title(reading, wide))];
    lines.extend(table(
        reading,
        wide,
        columns.is_some_and(|columns| columns < ROUND_TRIPS_FROM),
    ));
    lines.extend(in_bytes(reading).map(Line::plain));
    lines.extend(ratios(reading).map(Line::plain));
    lines.extend(processors(reading).map(Line::plain));
    lines.extend(swept::lines(reading, wide).into_iter().map(Line::plain));
    lines.extend(
        report
            .disk
            .as_ref()
            .map(|disk| Line::plain(disk_line(disk, wide))),
    );
    lines.extend(reading.unstable().into_iter().map(|what| Line {
        text: format!("not stable: {what}"),
        mood: Mood::Bad,
    }));
    lines.extend(unverified(reading));
    if !report.complete {
        lines.push(Line {
            text: "incomplete: ended before the whole plan was measured".into(),
            mood: Mood::Bad,
        });
    }
    lines.extend(reading.compared().map(|text| Line {
        text,
        mood: verdict_mood(report),
    }));
    lines.extend(sentence(report));
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
        return vec![Line { text, mood }];
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
    lines.into_iter().map(|text| Line { text, mood }).collect()
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
        "{} {}, {}{part}",
        reading.unit.text(total.median_bps),
        reading.unit.name(),
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
    let mtus = reading::counted(report.links.iter().filter_map(mtu));
    if !mtus.is_empty() {
        let mtus: Vec<String> = mtus.keys().map(u32::to_string).collect();
        parts.push(format!("MTU {}", mtus.join(" and ")));
    }
    parts.extend(
        report
            .hosts
            .client
            .congestion
            .as_ref()
            .map(|name| format!("tcp/{}", shown(name))),
    );
    let most = report.runs.iter().map(|run| run.repeat).max();
    parts.extend(most.map(|repeats| {
        format!(
            "{repeats} × up to {}",
            time(Duration::from_millis(report.plan.load_ms))
        )
    }));
    parts.push(format!(
        "median{} in {}",
        if wide && has_ranges(reading) {
            " [min..max]"
        } else {
            ""
        },
        reading.unit.name()
    ));
    parts.join("   ")
}

fn mtu(link: &BenchLink) -> Option<u32> {
    let Ends { client, daemon } = &link.ends;
    link.theory.map(|theory| theory.mtu).or_else(|| {
        client
            .mtu
            .zip(daemon.mtu)
            .map(|(ours, theirs)| ours.min(theirs))
    })
}

/// Returns the rows of the links, of the total, and of the other phases that load all links.
fn table(reading: Reading<'_>, wide: bool, narrow: bool) -> Vec<Line> {
    let report = reading.report;
    if report.links.is_empty() {
        return Vec::new();
    }
    let phase = reading.main_phase();
    let mut rows = vec![(heads(phase), Mood::Plain)];
    rows.extend(
        report
            .links
            .iter()
            .map(|link| link_row(reading, phase, link, wide)),
    );
    rows.extend(phase.map(|phase| (total_row(reading, phase, "TOTAL", wide), Mood::Plain)));
    let others = reading
        .whole_phases()
        .map(|(other, _)| other)
        .filter(|other| Some(*other) != phase);
    rows.extend(others.map(|other| {
        (
            total_row(reading, other, phase_text(other), wide),
            Mood::Plain,
        )
    }));
    let (mut cells, moods): (Vec<Vec<String>>, Vec<_>) = rows.into_iter().unzip();
    if narrow {
        cells
            .iter_mut()
            .for_each(|row| drop(row.remove(ROUND_TRIPS)));
    }
    if report
        .links
        .iter()
        .all(|link| reading.alone(link).is_none())
    {
        cells.iter_mut().for_each(|row| drop(row.remove(ALONE)));
    }
    aligned_rows(&cells)
        .into_iter()
        .zip(moods)
        .map(|(text, mood)| Line { text, mood })
        .collect()
}

fn heads(phase: Option<Phase>) -> Vec<String> {
    let main = phase.map_or("together", phase_text);
    [
        "link",
        "alone",
        main,
        "of theory",
        "resent",
        "RTT idle/load ms",
        "limited by",
    ]
    .map(str::to_owned)
    .into()
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
    let again = reading
        .sent_again(phase, link)
        .map_or_else(unknown, |(bytes, part)| resent(bytes, part));
    let idle = link
        .rtt_idle
        .map_or_else(unknown, |rtt| milliseconds(rtt.p50_us));
    let loaded = reading
        .rtt_loaded(phase, link)
        .map_or_else(unknown, milliseconds);
    let limiter = summary.and_then(|summary| summary.limiter);
    let mood = if reading::is_bad(efficiency) {
        Mood::Bad
    } else {
        Mood::Plain
    };
    let cells = vec![
        format!("{} {}", link.id, reading.name(link)),
        spread(reading.alone(link)),
        spread(reading.part(phase, link)),
        efficiency.map_or_else(unknown, percent),
        again,
        format!("{idle} / {loaded}"),
        limiter.map_or_else(String::new, |limiter| limiter_text(limiter).to_owned()),
    ];
    (cells, mood)
}

fn total_row(reading: Reading<'_>, phase: Phase, name: &str, wide: bool) -> Vec<String> {
    let report = reading.report;
    let is_main = reading.main_phase() == Some(phase);
    let alone = reading
        .alone_sum()
        .filter(|_| is_main)
        .map_or_else(String::new, |sum| cell_of(reading, sum, "", wide));
    let again: Option<Vec<(u64, f64)>> = report
        .links
        .iter()
        .map(|link| reading.sent_again(phase, link))
        .collect();
    let again = again.map_or_else(unknown, |parts| {
        resent(parts.iter().map(|(bytes, _)| bytes).sum(), 0.0)
    });
    let total = reading.total(phase);
    let limiter = report
        .summary
        .limiter
        .filter(|_| is_main)
        .map_or("", limiter_text);
    vec![
        name.to_owned(),
        alone,
        cell(reading, total, wide),
        reading
            .whole_efficiency(phase)
            .map_or_else(unknown, percent),
        again,
        String::new(),
        limiter.to_owned(),
    ]
}

/// Formats a median, with its range on a wide terminal. All cells are equally wide, so that the
/// decimal points are aligned.
fn cell(reading: Reading<'_>, spread: Option<Spread>, wide: bool) -> String {
    spread.map_or_else(unknown, |spread| {
        cell_of(
            reading,
            spread.median_bps,
            &reading.unit.range(&spread),
            wide,
        )
    })
}

fn cell_of(reading: Reading<'_>, bps: u64, range: &str, wide: bool) -> String {
    let rate = reading.unit.text(bps);
    if wide && has_ranges(reading) {
        format!("{rate} {range:<RANGE$}")
    } else {
        rate
    }
}

/// Returns true if any load of the report was repeated.
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
    let totals: Vec<String> = reading
        .whole_phases()
        .map(|(phase, total)| format!("{} {}", phase_text(phase), bytes_a_second(total.median_bps)))
        .collect();
    (!totals.is_empty()).then(|| totals.join("   "))
}

fn ratios(reading: Reading<'_>) -> Option<String> {
    let summary = &reading.report.summary;
    let parts = [
        summary
            .scaling
            .map(|scaling| format!("scaling {scaling:.2}")),
        summary
            .fairness
            .map(|fairness| format!("fairness {fairness:.3}")),
        summary
            .tcp_efficiency_pct
            .map(|percent| format!("TCP efficiency {percent:.2} %")),
        summary
            .transfer_time_ratio
            .map(|ratio| format!("transfer time ratio {ratio:.2}")),
        summary
            .buffer_delay_pct
            .map(|percent| format!("buffer delay {percent:.0} %")),
        summary
            .top_decile_bps
            .map(|bps| format!("top decile {}", reading.unit.text(bps))),
    ];
    join(parts)
}

fn processors(reading: Reading<'_>) -> Option<String> {
    let Ends { client, daemon } = &reading.report.summary.cpu_s_per_gbit;
    let mhz = &reading.report.summary.cpu_mhz_per_mbps;
    let [ours, theirs] = reading.machines();
    let of = |name: &str, seconds: &Option<f64>, mhz: &Option<f64>| {
        let mhz = mhz.map_or_else(String::new, |mhz| format!(", {mhz:.3} MHz per Mbit/s"));
        seconds.map(|seconds| format!("{name} {seconds:.4} s{mhz}"))
    };
    let parts = join([
        of(&ours, client, &mhz.client),
        of(&theirs, daemon, &mhz.daemon),
    ])?;
    Some(format!("processor per Gbit, whole machine: {parts}"))
}

/// Returns the name of a sweep, for users.
pub(crate) fn kind_text(kind: SweepKind) -> &'static str {
    match kind {
        SweepKind::Message => "message sizes",
        SweepKind::Buffer => "socket buffers",
        SweepKind::Streams => "connections per link",
        SweepKind::Grid => "buffers × connections",
        SweepKind::Mtu => "packet sizes",
    }
}

/// Formats the disk measurement as one line. File systems and ranges appear only on a wide
/// terminal.
fn disk_line(disk: &DiskReport, wide: bool) -> String {
    let stages = [
        ("read", disk.read),
        ("network", disk.network),
        ("write", disk.write),
        ("all", disk.all),
    ];
    let Ends { client, daemon } = &disk.file_systems;
    let (from, to) = if disk.way == Direction::ToDaemon {
        (client, daemon)
    } else {
        (daemon, client)
    };
    let on = |stage: &str| match stage {
        "read" => from.as_ref(),
        "write" => to.as_ref(),
        _ => None,
    };
    let told = |name: &str, rate: Spread| {
        let of = |bps: u64| bps as f64 / 8e6;
        let on = on(name)
            .filter(|_| wide)
            .map_or_else(String::new, |system| format!(" {}", shown(system)));
        let range = if wide && rate.n > 1 {
            format!(" [{:.1}-{:.1}]", of(rate.min_bps), of(rate.max_bps))
        } else {
            String::new()
        };
        format!("{name}{on} {:.1} MB/s{range}", of(rate.median_bps))
    };
    let stages = stages.map(|(name, rate)| rate.map(|rate| told(name, rate)));
    let narrowest = disk.narrowest.as_ref().map_or_else(String::new, |stage| {
        format!("; bottleneck: {}", shown(stage))
    });
    format!(
        "disk to disk, {}: {}{narrowest}",
        Size(disk.bytes),
        join(stages).unwrap_or_else(unknown)
    )
}

/// Returns warnings about links whose packets took another interface. They come first, because the
/// rates of such a link are those of another one.
fn unverified(reading: Reading<'_>) -> Vec<Line> {
    let astray = reading
        .report
        .links
        .iter()
        .filter(|link| link.verified == Some(false));
    let text = |link: &BenchLink| {
        format!(
            "{}: arrived on another interface of the peer, its numbers are those of another cable",
            reading.name(link)
        )
    };
    astray
        .map(|link| Line {
            text: text(link),
            mood: Mood::Bad,
        })
        .collect()
}

fn sentence(report: &BenchReport) -> Option<Line> {
    let text = printable(report.summary.sentence.as_bytes());
    let mood = match report.summary.limiter {
        Some(Limiter::Cable) => Mood::Good,
        Some(_) => Mood::Bad,
        None => Mood::Plain,
    };
    (!text.is_empty()).then_some(Line { text, mood })
}

fn verdict_mood(report: &BenchReport) -> Mood {
    match report.baseline.as_ref().map(|baseline| baseline.verdict) {
        Some(Verdict::Regression | Verdict::NotComparable) => Mood::Bad,
        Some(Verdict::Better) => Mood::Good,
        _ => Mood::Plain,
    }
}

fn join<const N: usize>(parts: [Option<String>; N]) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("   "))
}

fn unknown() -> String {
    "?".to_owned()
}

/// Index of the table column that is omitted if no link was measured alone.
const ALONE: usize = 1;

/// Index of the table column with round-trip times, which a narrow terminal omits.
const ROUND_TRIPS: usize = 5;

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
