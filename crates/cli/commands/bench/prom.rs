//! Bench report as metrics for node_exporter's textfile collector.

use std::fmt;

use nicstripe::bench::{BaselineVerdict, BenchLink, BenchReport, Limiter, Phase, Spread};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text},
    metrics::MetricType,
    registry::Registry,
};

use super::reading::{Reading, limiter_text, phase_text};

/// Formats a report in the Prometheus text format. All metrics are gauges; unknown values are
/// absent.
pub(crate) fn metrics(report: &BenchReport) -> String {
    let reading = Reading::of(report);
    let [_, peer] = reading.machines();
    let mut families = Families {
        peer,
        families: Vec::new(),
    };
    totals(&mut families, reading);
    links(&mut families, reading);
    summary(&mut families, reading);
    state(&mut families, reading);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(families));
    let mut written = String::new();
    // A string takes all.
    let _ = text::encode_registry(&mut written, &registry);
    written
}

fn totals(all: &mut Families, reading: Reading<'_>) {
    all.family(
        "goodput_bits_per_second",
        "Goodput of all links: median, minimum and maximum of the repeats",
    );
    for (phase, spread) in reading.whole_phases() {
        for (stat, bps) in stats(spread) {
            all.sample([("load", label_of(phase)), ("stat", stat)], bps as f64);
        }
    }
    all.family("stable", "1 if the repeats agree");
    for (phase, spread) in reading.whole_phases() {
        all.sample([("load", label_of(phase))], as_number(spread.stable));
    }
    let theory = reading.report.summary.theory_bps;
    all.value(
        "theory_bits_per_second",
        "Maximum goodput of all links in one direction",
        theory.map(|bps| bps as f64),
    );
}

fn links(all: &mut Families, reading: Reading<'_>) {
    let links = &reading.report.links;
    all.family(
        "link_goodput_bits_per_second",
        "Goodput of a link, alone and with all: median, minimum and maximum of the repeats",
    );
    for link in links {
        let whole = reading
            .whole_phases()
            .map(|(phase, _)| (label_of(phase), reading.part(phase, link)));
        for (load, spread) in std::iter::once(("alone", reading.alone(link))).chain(whole) {
            for (stat, bps) in spread.into_iter().flat_map(stats) {
                let load = [("load", load.to_owned()), ("stat", stat.to_owned())];
                let labels = of_link(reading, link.id).into_iter().chain(load);
                all.sample(labels, bps as f64);
            }
        }
    }
    let phase = reading.main_phase().unwrap_or(Phase::Together);
    for (name, help, value) in OF_LINK {
        all.family(name, help);
        for link in links {
            if let Some(value) = value(reading, phase, link) {
                all.sample(of_link(reading, link.id), value);
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

fn summary(all: &mut Families, reading: Reading<'_>) {
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
        all.value(name, help, value);
    }
    all.family(
        "cpu_seconds_per_gigabit",
        "Processor time of each end per gigabit",
    );
    let cpu = &summary.cpu_s_per_gbit;
    for (end, seconds) in [("client", cpu.client), ("daemon", cpu.daemon)] {
        if let Some(seconds) = seconds {
            all.sample([("end", end)], seconds);
        }
    }
    all.family("limiter", "1 for the limiting factor of all links");
    if let Some(limiter) = summary.limiter {
        all.sample([("by", label_of_limiter(limiter))], 1.0);
    }
}

fn state(all: &mut Families, reading: Reading<'_>) {
    let report = reading.report;
    if let Some(comparison) = &report.baseline {
        let (verdict, change) = (comparison.verdict, comparison.change_pct / 100.0);
        all.value(
            "regression",
            "1 if significantly slower than the baseline",
            Some(as_number(verdict == BaselineVerdict::Regression)),
        );
        all.value(
            "change_ratio",
            "Change from the baseline, negative if slower",
            (verdict != BaselineVerdict::NotComparable).then_some(change),
        );
    }
    let complete = Some(as_number(report.complete));
    all.value("complete", "1 if the whole plan was measured", complete);
    let duration = Some(report.elapsed_s);
    all.value("duration_seconds", "Duration of the bench", duration);
}

fn stats(spread: Spread) -> [(&'static str, u64); 3] {
    [
        ("median", spread.median_bps),
        ("min", spread.min_bps),
        ("max", spread.max_bps),
    ]
}

fn as_number(is_true: bool) -> f64 {
    f64::from(u8::from(is_true))
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

/// Metric families under construction. Every sample carries the peer's name as a label.
#[derive(Debug)]
struct Families {
    peer: String,
    families: Vec<Family>,
}

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    samples: Vec<(Vec<Label>, f64)>,
}

type Label = (&'static str, String);

impl Families {
    /// Begins a family, to which the samples that follow belong.
    fn family(&mut self, name: &'static str, help: &'static str) {
        let samples = Vec::new();
        self.families.push(Family {
            name,
            help,
            samples,
        });
    }

    fn sample<L: Into<String>>(
        &mut self,
        labels: impl IntoIterator<Item = (&'static str, L)>,
        value: f64,
    ) {
        if let Some(family) = self.families.last_mut() {
            let labels = labels.into_iter().map(|(name, value)| (name, value.into()));
            let peer = ("peer", self.peer.clone());
            let labels = std::iter::once(peer).chain(labels).collect();
            family.samples.push((labels, value));
        }
    }

    /// Adds a family with one value; none if the value is unknown.
    fn value(&mut self, name: &'static str, help: &'static str, value: Option<f64>) {
        self.family(name, help);
        if let Some(value) = value {
            self.sample::<String>([], value);
        }
    }
}

impl Collector for Families {
    /// Families without samples are excluded.
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in self
            .families
            .iter()
            .filter(|family| !family.samples.is_empty())
        {
            let name = format!("nicstripe_bench_{}", family.name);
            let mut metric =
                encoder.encode_descriptor(&name, family.help, None, MetricType::Gauge)?;
            for (labels, value) in &family.samples {
                metric.encode_family(labels)?.encode_gauge(value)?;
            }
        }
        Ok(())
    }
}

fn of_link(reading: Reading<'_>, id: u32) -> [Label; 2] {
    let name = reading.name_of(id);
    [("link", id.to_string()), ("interface", name)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

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
            text.contains("nicstripe_bench_limiter{peer=\"nas\",by=\"shared\"} 1.0\n"),
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
            metrics(&samples::with_disk())
                .contains("nicstripe_bench_regression{peer=\"nas\"} 1.0\n")
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
