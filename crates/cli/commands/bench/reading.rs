//! Values derived from a bench report, shared by the table, the HTML page and the metrics.

use nicstripe::{
    BitRate,
    bench::{
        BaselineVerdict, BenchLink, BenchReport, Comparison, CpuUse, Ends, Flow, Limiter,
        LinkSummary, Phase, Run, Spread, SweepKind, median,
    },
};

use super::unit::{RateUnit, milliseconds};
use crate::text::shown;

/// Bench report, with accessors for the values that the table, the page and the metrics print.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) report: &'a BenchReport,
    /// Unit in which all rates of the report are printed.
    pub(crate) unit: RateUnit,
}

impl<'a> Reading<'a> {
    pub(crate) fn of(report: &'a BenchReport) -> Self {
        let most = report
            .runs
            .iter()
            .map(|run| run.total_bps)
            .chain(report.summary.theory_bps);
        Self {
            report,
            unit: RateUnit::for_most(most.max().unwrap_or(0)),
        }
    }

    /// Returns the first measured phase that loads all links: forward, reverse or both directions.
    pub(crate) fn main_phase(self) -> Option<Phase> {
        WHOLE.into_iter().find(|phase| self.total(*phase).is_some())
    }

    /// Returns the measured phases that load all links, each with its total rate.
    pub(crate) fn whole_phases(self) -> impl Iterator<Item = (Phase, Spread)> {
        WHOLE
            .into_iter()
            .filter_map(move |phase| Some((phase, self.total(phase)?)))
    }

    pub(crate) fn total(self, phase: Phase) -> Option<Spread> {
        let summary = &self.report.summary;
        match phase {
            Phase::Together => summary.together,
            Phase::Reverse => summary.reverse,
            Phase::Both => summary.both,
            Phase::Idle | Phase::Solo | Phase::Pair => None,
        }
    }

    pub(crate) fn summary_of(self, link: &BenchLink) -> Option<&'a LinkSummary> {
        self.report
            .summary
            .links
            .iter()
            .find(|summary| summary.link == link.id)
    }

    pub(crate) fn alone(self, link: &BenchLink) -> Option<Spread> {
        self.summary_of(link)?.alone
    }

    /// Returns the rate of a link in a phase that loads all links. For a bidirectional phase it is
    /// the sum of both directions.
    pub(crate) fn part(self, phase: Phase, link: &BenchLink) -> Option<Spread> {
        if phase == Phase::Together {
            return self.summary_of(link)?.together;
        }
        let rate = |run| BitRate(self.flows(run, link).map(|flow| flow.goodput_bps).sum());
        let rates: Vec<BitRate> = self.runs(phase).map(rate).collect();
        Some(Spread {
            stable: self.total(phase).is_none_or(|total| total.stable),
            ..Spread::of(&rates)?
        })
    }

    /// Returns the sum of the median rates of all links loaded alone, in bits per second; `None`
    /// unless every link was measured alone.
    pub(crate) fn alone_sum(self) -> Option<u64> {
        self.report
            .links
            .iter()
            .map(|link| Some(self.alone(link)?.median_bps))
            .sum()
    }

    pub(crate) fn runs(self, phase: Phase) -> impl Iterator<Item = &'a Run> {
        self.report
            .runs
            .iter()
            .filter(move |run| run.phase == phase)
    }

    /// Returns the run of a phase whose rate is closest to the median of the phase, for charts.
    pub(crate) fn typical_run(self, phase: Phase) -> Option<&'a Run> {
        let median = self.total(phase).map(|total| total.median_bps);
        self.runs(phase)
            .min_by_key(|run| median.map_or(0, |median| run.total_bps.abs_diff(median)))
    }

    pub(crate) fn flows(self, run: &'a Run, link: &BenchLink) -> impl Iterator<Item = &'a Flow> {
        let id = link.id;
        run.flows.iter().filter(move |flow| flow.link == id)
    }

    /// Returns the bytes that a link retransmitted in a phase, and their share of all sent bytes.
    pub(crate) fn sent_again(self, phase: Phase, link: &BenchLink) -> Option<(u64, f64)> {
        let mut counted: Option<(u64, u64)> = None;
        for flow in self.runs(phase).flat_map(|run| self.flows(run, link)) {
            let tcp = flow.tcp.as_ref()?;
            let (again, sent) = counted.unwrap_or((0, 0));
            counted = Some((
                again + tcp.retransmitted_bytes?,
                sent + tcp.sent_bytes.unwrap_or(flow.bytes),
            ));
        }
        let (again, sent) = counted?;
        Some((again, again as f64 / sent.max(1) as f64))
    }

    /// Returns the share of its theoretical rate that a link reached in a phase. In a bidirectional
    /// phase the theoretical rate counts twice.
    pub(crate) fn efficiency(self, phase: Phase, link: &BenchLink) -> Option<f64> {
        Some(share(self.part(phase, link)?, phase, link.theory_bps?))
    }

    pub(crate) fn whole_efficiency(self, phase: Phase) -> Option<f64> {
        let theory = self.report.summary.theory_bps?;
        Some(share(self.total(phase)?, phase, theory))
    }

    /// Returns the CPU seconds per gigabit in a phase at both machines, each in user space, kernel
    /// and interrupts. Values are medians over the runs.
    pub(crate) fn cpu_parts(self, phase: Phase) -> [Option<[f64; 3]>; 2] {
        let of = |pick: fn(&Run) -> Option<CpuUse>| {
            let parts: Vec<[f64; 3]> = self
                .runs(phase)
                .filter_map(|run| cpu_a_gigabit(run, pick(run)?))
                .collect();
            let part =
                |index: usize| median(&parts.iter().map(|parts| parts[index]).collect::<Vec<_>>());
            Some([part(0)?, part(1)?, part(2)?])
        };
        [of(|run| run.cpu.client), of(|run| run.cpu.daemon)]
    }

    /// Returns the mean round-trip time of a link in a phase that loads all links, in microseconds.
    pub(crate) fn rtt_loaded(self, phase: Phase, link: &BenchLink) -> Option<f64> {
        if phase == Phase::Together {
            return self.summary_of(link)?.rtt_loaded_us.map(|us| us as f64);
        }
        let reported = self
            .runs(phase)
            .flat_map(|run| self.flows(run, link))
            .filter_map(|flow| flow.tcp?.rtt_avg_us);
        median(&reported.map(|us| us as f64).collect::<Vec<_>>())
    }

    /// Returns the name of a link by its two interfaces, `eth1 → enp2`, escaped for a terminal.
    pub(crate) fn name(self, link: &BenchLink) -> String {
        match (
            link.ends.client.name.as_str(),
            link.ends.daemon.name.as_str(),
        ) {
            (ours, "") => shown(ours),
            (ours, theirs) if ours == theirs => shown(ours),
            (ours, theirs) => format!("{} → {}", shown(ours), shown(theirs)),
        }
    }

    pub(crate) fn link(self, id: u32) -> Option<&'a BenchLink> {
        self.report.links.iter().find(|link| link.id == id)
    }

    pub(crate) fn name_of(self, id: u32) -> String {
        self.link(id)
            .map_or_else(|| format!("link {id}"), |link| self.name(link))
    }

    /// Returns links whose packets arrived at another interface of the peer.
    pub(crate) fn misrouted(self) -> impl Iterator<Item = &'a BenchLink> {
        let links = self.report.links.iter();
        links.filter(|link| link.verified == Some(false))
    }

    /// Returns the names of both machines, made distinct and escaped for a terminal.
    pub(crate) fn machines(self) -> [String; 2] {
        let Ends { client, daemon } = &self.report.hosts;
        let [ours, theirs] = [(client, "here"), (daemon, "there")]
            .map(|(host, otherwise)| shown(host.name.as_deref().unwrap_or(otherwise)));
        match ours == theirs {
            true => [format!("{ours} (here)"), format!("{theirs} (there)")],
            false => [ours, theirs],
        }
    }

    /// Returns the comparison with the baseline as one line, without a full stop.
    pub(crate) fn compared(self) -> Option<String> {
        let comparison = self.report.baseline.as_ref()?;
        let id = short_id(&comparison.id);
        if comparison.verdict == BaselineVerdict::NotComparable {
            let why = shown(obstacle(comparison));
            return Some(format!("not comparable with {id}: {why}"));
        }
        let before = comparison.baseline.median_bps;
        // The comparison chooses the load: the first that both reports have.
        let after = (before as f64 * (1.0 + comparison.change_pct / 100.0)).max(0.0) as u64;
        Some(format!(
            "compared with {id}: {} to {}, {:+.1} %, noise {:.1} %: {}",
            self.unit.text(before),
            self.unit.rate(after),
            comparison.change_pct,
            comparison.noise_pct,
            verdict_text(comparison.verdict)
        ))
    }

    /// Returns the increase of the round trip under load in microseconds, as the mean over the
    /// links. A percentage says little if the round trip of an idle link is some microseconds.
    fn buffer_delay_us(self) -> Option<f64> {
        let of_link = |link: &BenchLink| {
            let loaded = self.rtt_loaded(Phase::Together, link)?;
            let idle = link.rtt_idle?.min_us;
            (idle > 0.0 && loaded > 0.0).then(|| (loaded - idle).max(0.0))
        };
        let delays: Vec<f64> = self.report.links.iter().filter_map(of_link).collect();
        let count = delays.len() as f64;
        (count > 0.0).then(|| delays.iter().sum::<f64>() / count)
    }

    /// Returns the ratios of the summary as texts, each with an explanation if asked for.
    pub(crate) fn ratios(self, explained: bool) -> Vec<String> {
        let summary = &self.report.summary;
        let (sum, samples) = match explained {
            true => (" (together ÷ the sum of each alone)", " of the samples"),
            false => ("", ""),
        };
        let unit = if explained { self.unit.name() } else { "" };
        let top = |bps| format!("top decile{samples} {} {unit}", self.unit.text(bps));
        let texts = [
            (summary.scaling).map(|scaling| format!("scaling {scaling:.2}{sum}")),
            (summary.fairness).map(|fairness| format!("fairness {fairness:.3}")),
            (summary.tcp_efficiency_pct).map(|percent| format!("TCP efficiency {percent:.2} %")),
            (summary.transfer_time_ratio).map(|ratio| format!("transfer time ratio {ratio:.2}")),
            self.buffer_delay_us()
                .map(|us| format!("buffer delay {} ms", milliseconds(us))),
            (summary.top_decile_bps).map(|bps| top(bps).trim_end().to_owned()),
        ];
        texts.into_iter().flatten().collect()
    }

    /// Returns a text for each load whose repeats differ too much.
    pub(crate) fn unstable(self) -> Vec<String> {
        let alone = self
            .report
            .links
            .iter()
            .filter_map(|link| Some((format!("{} alone", self.name(link)), self.alone(link)?)));
        let whole = self
            .whole_phases()
            .map(|(phase, spread)| (phase_text(phase).to_owned(), spread));
        alone
            .chain(whole)
            .filter(|(_, spread)| !spread.stable && spread.n > 1)
            .map(|(name, spread)| {
                format!(
                    "{name} ({} repeats, {})",
                    spread.n,
                    self.unit.range(&spread)
                )
            })
            .collect()
    }
}

/// Returns the number of directions in which a phase loads each link.
pub(crate) fn ways(phase: Phase) -> u64 {
    1 + u64::from(phase == Phase::Both)
}

/// Returns a rate as a share of `theory_bps`, the theoretical rate of one direction.
fn share(rate: Spread, phase: Phase, theory_bps: u64) -> f64 {
    rate.median_bps as f64 / (theory_bps as f64 * ways(phase) as f64)
}

/// Returns the CPU seconds of a run per gigabit of data, in user space, kernel and interrupts.
fn cpu_a_gigabit(run: &Run, cpu: CpuUse) -> Option<[f64; 3]> {
    let gigabits = run.flows.iter().map(|flow| flow.bytes).sum::<u64>() as f64 * 8.0 / 1e9;
    (gigabits > 0.0)
        .then(|| [cpu.user_us, cpu.system_us, cpu.softirq_us].map(|us| us as f64 / 1e6 / gigabits))
}

pub(crate) fn obstacle(comparison: &Comparison) -> &str {
    comparison.why.as_deref().unwrap_or("measured differently")
}

/// Returns the first digits of a report ID, enough to find the report.
pub(crate) fn short_id(id: &str) -> String {
    shown(id.chars().take(SHORT_ID).collect::<String>())
}

pub(crate) fn phase_text(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Solo => "alone",
        Phase::Together => "together",
        Phase::Reverse => "reverse",
        Phase::Both => "both ways",
        Phase::Pair => "in pairs",
    }
}

pub(crate) fn kind_text(kind: SweepKind) -> &'static str {
    match kind {
        SweepKind::Message => "message sizes",
        SweepKind::Buffer => "socket buffers",
        SweepKind::Streams => "connections per link",
        SweepKind::Grid => "buffers × connections",
        SweepKind::Mtu => "packet sizes",
    }
}

pub(crate) fn limiter_text(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::Cable => "cable",
        Limiter::Sender => "sender",
        Limiter::Receiver => "receiver",
        Limiter::ReceiveBuffer => "receive buffer",
        Limiter::SendBuffer => "send buffer",
        Limiter::Cpu => "processor",
        Limiter::Loss => "loss",
        Limiter::Shared => "shared",
        Limiter::Window => "window",
        Limiter::Unknown => "unknown",
    }
}

pub(crate) fn verdict_text(verdict: BaselineVerdict) -> &'static str {
    match verdict {
        BaselineVerdict::Same => "no significant change",
        BaselineVerdict::Better => "faster",
        BaselineVerdict::Regression => "SLOWER (significant)",
        BaselineVerdict::NotComparable => "not comparable",
    }
}

/// Assessment of a printed value, which determines its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Plain,
    /// The cables are the bottleneck, or the rates are higher than the baseline's.
    Good,
    /// The value shows a problem.
    Bad,
}

impl Mood {
    pub(crate) fn of_limiter(limiter: Option<Limiter>) -> Self {
        match limiter {
            Some(Limiter::Cable) => Self::Good,
            Some(_) => Self::Bad,
            None => Self::Plain,
        }
    }

    pub(crate) fn of_verdict(verdict: BaselineVerdict) -> Self {
        match verdict {
            BaselineVerdict::Regression | BaselineVerdict::NotComparable => Self::Bad,
            BaselineVerdict::Better => Self::Good,
            BaselineVerdict::Same => Self::Plain,
        }
    }

    pub(crate) fn of_efficiency(efficiency: Option<f64>) -> Self {
        match efficiency.is_some_and(|part| part < GOOD_EFFICIENCY) {
            true => Self::Bad,
            false => Self::Plain,
        }
    }
}

/// Phases that load all links. The first is the load of a copy to the daemon.
const WHOLE: [Phase; 3] = [Phase::Together, Phase::Reverse, Phase::Both];

/// Share of the theoretical rate below which a link is marked: it has a fault, or is limited by
/// something else.
const GOOD_EFFICIENCY: f64 = 0.9;

/// Hexadecimal digits of a printed report ID. 8 digits distinguish some hundreds of random IDs.
const SHORT_ID: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::tests::samples;

    #[test]
    fn machines_of_the_same_name_can_be_told_apart() {
        let mut report = samples::good();
        assert_eq!(Reading::of(&report).machines(), ["laptop", "nas"]);
        report.hosts.daemon.name = Some("laptop".into());
        assert_eq!(
            Reading::of(&report).machines(),
            ["laptop (here)", "laptop (there)"]
        );
        assert_eq!(Reading::of(&samples::empty()).machines(), ["here", "there"]);
    }

    #[test]
    fn a_link_is_named_by_both_ends_and_once_where_they_are_the_same() {
        let mut report = samples::good();
        assert_eq!(Reading::of(&report).name(&report.links[0]), "eth1 → enp2s0");
        report.links[0].ends.daemon.name = "eth1".into();
        assert_eq!(Reading::of(&report).name(&report.links[0]), "eth1");
    }

    #[test]
    fn both_ways_are_measured_against_twice_the_theory() {
        let report = samples::good();
        let reading = Reading::of(&report);
        let both = reading.whole_efficiency(Phase::Both).unwrap();
        assert!((0.97..1.0).contains(&both), "{both}");
        assert!((reading.efficiency(Phase::Both, &report.links[0]).unwrap() - both).abs() < 0.01);
    }

    #[test]
    fn the_run_that_is_drawn_is_the_one_nearest_to_the_median() {
        let report = samples::mixed();
        let reading = Reading::of(&report);
        let drawn = reading.typical_run(Phase::Together).unwrap();
        let median = reading.total(Phase::Together).unwrap().median_bps;
        assert!(
            reading
                .runs(Phase::Together)
                .all(|run| run.total_bps.abs_diff(median) >= drawn.total_bps.abs_diff(median))
        );
    }
}
