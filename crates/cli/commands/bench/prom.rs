//! Bench report as metrics for node_exporter's textfile collector.

use std::fmt::{Display, Write as _};

use nicstripe::bench::{BaselineVerdict, BenchLink, BenchReport, Limiter, Phase, Spread};

use super::reading::{Reading, limiter_text, phase_text};

/// Formats a report in the Prometheus text format. All metrics are gauges; unknown values are
/// absent.
pub(crate) fn metrics(report: &BenchReport) -> String {
    let reading = Reading::of(report);
    let mut text = Text::new(reading);
    totals(&mut text, reading);
    links(&mut text, reading);
    summary(&mut text, reading);
    state(&mut text, reading);
    text.text
}

fn totals(text: &mut Text, reading: Reading<'_>) {
    text.family(
        "goodput_bits_per_second",
        "Goodput of all links: median, minimum and maximum of the repeats",
    );
    for (phase, spread) in reading.whole_phases() {
        for (stat, bps) in stats(spread) {
            text.sample(&[("load", label_of(phase)), ("stat", stat)], bps);
        }
    }
    text.family("stable", "1 if the repeats agree");
    for (phase, spread) in reading.whole_phases() {
        text.sample(&[("load", label_of(phase))], u8::from(spread.stable));
    }
    let theory = reading.report.summary.theory_bps;
    text.value(
        "theory_bits_per_second",
        "Maximum goodput of all links in one direction",
        theory,
    );
}

fn links(text: &mut Text, reading: Reading<'_>) {
    let links = &reading.report.links;
    text.family(
        "link_goodput_bits_per_second",
        "Goodput of a link, alone and with all: median, minimum and maximum of the repeats",
    );
    for link in links {
        let whole = reading
            .whole_phases()
            .map(|(phase, _)| (label_of(phase), reading.part(phase, link)));
        for (load, spread) in std::iter::once(("alone", reading.alone(link))).chain(whole) {
            for (stat, bps) in spread.into_iter().flat_map(stats) {
                text.link(link.id, &[("load", load), ("stat", stat)], bps);
            }
        }
    }
    let phase = reading.main_phase().unwrap_or(Phase::Together);
    for (name, help, value) in OF_LINK {
        text.family(name, help);
        for link in links {
            if let Some(value) = value(reading, phase, link) {
                text.link(link.id, &[], value);
            }
        }
    }
}

/// Value of a link, which the phase loaded with all others.
type OfLink = fn(Reading<'_>, Phase, &BenchLink) -> Option<f64>;

/// Name, help text and value of the metrics that each link has.
const OF_LINK: [(&str, &str, OfLink); 4] = [
    (
        "link_theory_bits_per_second",
        "Maximum goodput of a link in one direction",
        |_, _, link| link.theory_bps.map(|bps| bps as f64),
    ),
    (
        "link_retransmitted_ratio",
        "Share of a link's bytes that were retransmitted, with all links loaded",
        |reading, phase, link| Some(reading.sent_again(phase, link)?.1),
    ),
    (
        "link_rtt_idle_seconds",
        "Median round trip of a link without load",
        |_, _, link| Some(link.rtt_idle?.p50_us / 1e6),
    ),
    (
        "link_rtt_loaded_seconds",
        "Mean round trip of a link with all links loaded",
        |reading, phase, link| Some(reading.rtt_loaded(phase, link)? / 1e6),
    ),
];

fn summary(text: &mut Text, reading: Reading<'_>) {
    let summary = &reading.report.summary;
    for (name, help, value) in [
        (
            "efficiency_ratio",
            "Goodput of all links, from client to daemon, as a share of theory",
            summary.efficiency,
        ),
        (
            "scaling_ratio",
            "Goodput of all links as a share of the sum of each alone",
            summary.scaling,
        ),
        (
            "fairness_ratio",
            "Jain's index of the links' shares of their theory",
            summary.fairness,
        ),
    ] {
        text.value(name, help, value);
    }
    text.family(
        "cpu_seconds_per_gigabit",
        "Processor time of each end per gigabit",
    );
    let cpu = &summary.cpu_s_per_gbit;
    for (end, seconds) in [("client", cpu.client), ("daemon", cpu.daemon)] {
        if let Some(seconds) = seconds {
            text.sample(&[("end", end)], seconds);
        }
    }
    text.family("limiter", "1 for the limiting factor of all links");
    if let Some(limiter) = summary.limiter {
        text.sample(&[("by", &label_of_limiter(limiter))], 1);
    }
}

fn state(text: &mut Text, reading: Reading<'_>) {
    let report = reading.report;
    if let Some(comparison) = &report.baseline {
        let (verdict, change) = (comparison.verdict, comparison.change_pct / 100.0);
        text.value(
            "regression",
            "1 if significantly slower than the baseline",
            Some(u8::from(verdict == BaselineVerdict::Regression)),
        );
        text.value(
            "change_ratio",
            "Change from the baseline, negative if slower",
            (verdict != BaselineVerdict::NotComparable).then_some(change),
        );
    }
    let complete = Some(u8::from(report.complete));
    text.value("complete", "1 if the whole plan was measured", complete);
    let duration = Some(report.elapsed_s);
    text.value("duration_seconds", "Duration of the bench", duration);
}

fn stats(spread: Spread) -> [(&'static str, u64); 3] {
    [
        ("median", spread.median_bps),
        ("min", spread.min_bps),
        ("max", spread.max_bps),
    ]
}

fn label_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Both => "both",
        phase => phase_text(phase),
    }
}

fn label_of_limiter(limiter: Limiter) -> String {
    match limiter {
        Limiter::Cpu => "cpu".to_owned(),
        limiter => limiter_text(limiter).replace(' ', "_"),
    }
}

/// Prometheus text under construction. Every sample carries the peer's name as a label. Metric
/// families without samples are omitted.
struct Text<'a> {
    reading: Reading<'a>,
    peer: String,
    family: String,
    head: String,
    text: String,
}

impl<'a> Text<'a> {
    fn new(reading: Reading<'a>) -> Self {
        let [_, peer] = reading.machines();
        Self {
            reading,
            peer,
            family: String::new(),
            head: String::new(),
            text: String::new(),
        }
    }

    fn family(&mut self, name: &str, help: &str) {
        self.family = format!("nicstripe_bench_{name}");
        self.head = format!("# HELP {0} {help}\n# TYPE {0} gauge\n", self.family);
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&std::mem::take(&mut self.head));
        let _ = write!(self.text, "{}{{peer=\"{}\"", self.family, label(&self.peer));
        for (name, value) in labels {
            let _ = write!(self.text, ",{name}=\"{}\"", label(value));
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    /// Adds a family with one value; none if the value is unknown.
    fn value(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        self.family(name, help);
        if let Some(value) = value {
            self.sample(&[], value);
        }
    }

    fn link(&mut self, id: u32, labels: &[(&str, &str)], value: impl Display) {
        let (number, name) = (id.to_string(), self.reading.name_of(id));
        let mut all = vec![("link", number.as_str()), ("interface", name.as_str())];
        all.extend(labels);
        self.sample(&all, value);
    }
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    #[test]
    fn every_line_is_a_sample_of_the_family_before_it() {
        for (name, report) in samples::all() {
            let text = metrics(&report);
            assert!(text.ends_with('\n'), "{name}");
            let mut family = String::new();
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("# TYPE ") {
                    family = rest.strip_suffix(" gauge").unwrap().to_owned();
                } else if !line.starts_with("# HELP ") {
                    let (labelled, value) = line.rsplit_once(' ').unwrap();
                    assert!(
                        labelled.starts_with(&format!("{family}{{peer=\""))
                            && labelled.ends_with('}'),
                        "{name}: {line}"
                    );
                    assert!(value.parse::<f64>().unwrap().is_finite(), "{name}: {line}");
                }
            }
        }
    }

    #[test]
    fn no_family_is_told_twice_and_none_is_empty() {
        for (name, report) in samples::all() {
            let text = metrics(&report);
            let mut families: Vec<&str> = text
                .lines()
                .filter(|line| line.starts_with("# TYPE"))
                .collect();
            let count = families.len();
            families.sort_unstable();
            families.dedup();
            assert_eq!(families.len(), count, "{name}");
            assert!(!text.contains("gauge\n# HELP"), "{name}: {text}");
        }
    }

    #[test]
    fn what_matters_to_an_alarm_is_there() {
        let text = metrics(&samples::shared());
        assert!(
            text.contains("nicstripe_bench_limiter{peer=\"nas\",by=\"shared\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("nicstripe_bench_goodput_bits_per_second{peer=\"nas\",load=\"together\",stat=\"median\"} 11"), "{text}");
        assert!(
            text.contains(
                "nicstripe_bench_link_goodput_bits_per_second{peer=\"nas\",link=\"1\",interface=\"eth1 → enp2s0\",load=\"alone\""
            ),
            "{text}"
        );
        assert!(
            metrics(&samples::with_disk()).contains("nicstripe_bench_regression{peer=\"nas\"} 1\n")
        );
    }

    #[test]
    fn a_name_cannot_end_its_label() {
        let mut report = samples::good();
        report.hosts.daemon.name = Some("a\"} 1\nb\\".into());
        let text = metrics(&report);
        assert!(
            text.lines()
                .all(|line| line.starts_with('#') || line.starts_with("nicstripe_bench_")),
            "{text}"
        );
    }
}
