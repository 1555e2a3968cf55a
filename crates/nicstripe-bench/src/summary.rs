//! Computes the summary of a benchmark from its loads. Does no I/O.

use nicstripe_proto::BitRate;

use crate::{
    evidence::{Measured, Part, rates, round_trips, sum, totals},
    limiter::{self, LinkFinding, Names},
    metrics, repeat,
    report::{
        BenchLink, BenchReport, CpuUse, Direction, DiskReport, Ends, Flow, HostFacts, Limiter,
        LinkSummary, Phase, Run, Spread, Summary,
    },
    statistics,
};

/// Returns the summary of these loads over these links.
///
/// Phases that were not measured are absent. The sentence covers [`Phase::Together`], falling back
/// to reverse, both and solo. It calls the machines client and daemon, because their names are
/// unknown; [`conclude`] uses the names.
///
/// ```
/// # fn example(report: &nicstripe_bench::BenchReport) {
/// println!("{}", nicstripe_bench::summarise(&report.links, &report.runs).sentence);
/// # }
/// ```
pub fn summarise(links: &[BenchLink], runs: &[Run]) -> Summary {
    Measured {
        links,
        runs,
        hosts: None,
        socket_buffer_bytes: None,
    }
    .summary()
}

/// Completes a report: sets the bottleneck of each flow of each load, and writes the summary. May
/// be called again after further loads.
///
/// ```
/// # fn example(report: &mut nicstripe_bench::BenchReport) {
/// nicstripe_bench::conclude(report);
/// println!("{}", report.summary.sentence);
/// # }
/// ```
pub fn conclude(report: &mut BenchReport) {
    let measured = Measured::of(report);
    let mut summary = measured.summary();
    if let Some(disk) = report.disk.as_ref().and_then(|disk| measured.disks(disk)) {
        summary.sentence = if report.runs.is_empty() {
            disk
        } else {
            format!("{}; {disk}", summary.sentence)
        };
    }
    let limiters: Vec<Vec<Limiter>> = report
        .runs
        .iter()
        .map(|run| measured.limiters(run))
        .collect();
    for (run, limiters) in report.runs.iter_mut().zip(limiters) {
        run.flows
            .iter_mut()
            .zip(limiters)
            .for_each(|(flow, limiter)| flow.limiter = limiter);
    }
    report.summary = summary;
}

impl<'a> Measured<'a> {
    fn summary(&self) -> Summary {
        let theory = self
            .links
            .iter()
            .map(|link| link.theory_bps.map(BitRate))
            .sum::<Option<BitRate>>()
            .filter(|_| !self.links.is_empty());
        let together = self.spread(Phase::Together);
        let total = together.map(|spread| BitRate(spread.median_bps));
        let of_theory = |ratio: fn(BitRate, BitRate) -> Option<f64>| ratio(total?, theory?);
        let cpu = self.cpu();
        let whole = self.whole();
        Summary {
            links: self.links.iter().map(|link| self.link(link)).collect(),
            together,
            reverse: self.spread(Phase::Reverse),
            both: self.spread(Phase::Both),
            top_decile_bps: self.top_decile(theory),
            theory_bps: theory.map(BitRate::bits_per_second),
            efficiency: of_theory(metrics::efficiency),
            scaling: total.and_then(|total| self.scaling(total, self.links)),
            fairness: self.fairness(),
            tcp_efficiency_pct: self.tcp_efficiency(),
            transfer_time_ratio: of_theory(metrics::transfer_time_ratio),
            buffer_delay_pct: self.buffer_delay(),
            cpu_mhz_per_mbps: self.mhz(&cpu),
            cpu_s_per_gbit: cpu,
            limiter: whole.as_ref().map(|(limiter, _)| *limiter),
            sentence: whole.map_or_else(|| "nothing was measured".into(), |(_, sentence)| sentence),
        }
    }

    fn link(&self, link: &BenchLink) -> LinkSummary {
        let parts = self.parts(Phase::Together, link.id, Direction::ToDaemon);
        let together = Spread::of(&rates(&parts));
        LinkSummary {
            link: link.id,
            alone: Spread::of(&rates(&self.alone(link.id, Direction::ToDaemon))),
            together,
            efficiency: together
                .and_then(|spread| metrics::efficiency(spread.median(), BitRate(link.theory_bps?))),
            retransmitted_bytes: sum(&parts, |tcp| tcp.retransmitted_bytes),
            rtt_loaded_us: statistics::mean(&round_trips(&parts)).map(|mean| mean.round() as u64),
            limiter: (!parts.is_empty()).then(|| {
                limiter::of_link(&self.evidence(link, Direction::ToDaemon, &parts)).limiter
            }),
        }
    }

    /// Returns the bottleneck of each flow of a load, judged from that load only.
    fn limiters(&self, run: &'a Run) -> Vec<Limiter> {
        let of_flow = |flow: &'a Flow| {
            let link = self.links.iter().find(|link| link.id == flow.link)?;
            Some(limiter::of_link(&self.evidence(link, flow.way, &[(run, flow)])).limiter)
        };
        run.flows
            .iter()
            .map(|flow| of_flow(flow).unwrap_or(Limiter::Unknown))
            .collect()
    }

    fn spread(&self, phase: Phase) -> Option<Spread> {
        let rates: Vec<BitRate> = self
            .of_phase(phase)
            .map(|run| BitRate(run.total_bps))
            .collect();
        Spread::of(&rates)
    }

    /// Returns the median rate of a link without load on the others.
    fn alone_rate(&self, link: &BenchLink, way: Direction) -> Option<BitRate> {
        Spread::of(&rates(&self.alone(link.id, way))).map(Spread::median)
    }

    fn scaling<'l>(
        &self,
        total: BitRate,
        links: impl IntoIterator<Item = &'l BenchLink>,
    ) -> Option<f64> {
        let alone: Option<Vec<BitRate>> = links
            .into_iter()
            .map(|link| self.alone_rate(link, Direction::ToDaemon))
            .collect();
        metrics::scaling(total, alone?)
    }

    fn fairness(&self) -> Option<f64> {
        let of_link = |link: &BenchLink| {
            let goodput = self.link(link).together?.median();
            Some((goodput, self.expected(link, Direction::ToDaemon)?))
        };
        let links: Option<Vec<(BitRate, BitRate)>> = self.links.iter().map(of_link).collect();
        metrics::fairness(&links?)
    }

    fn tcp_efficiency(&self) -> Option<f64> {
        let parts: Vec<Part<'_>> = self.parts_of(Phase::Together).collect();
        let (sent, again) = totals(&parts, |_, tcp| {
            Some((tcp.sent_bytes?, tcp.retransmitted_bytes?))
        });
        metrics::tcp_efficiency_pct(sent, again)
    }

    /// Returns the buffer delay of RFC 6349 in percent, as the mean over the links.
    fn buffer_delay(&self) -> Option<f64> {
        let of_link = |link: &BenchLink| {
            metrics::buffer_delay_pct(self.link(link).rtt_loaded_us? as f64, link.rtt_idle?.min_us)
        };
        statistics::mean(&self.links.iter().filter_map(of_link).collect::<Vec<f64>>())
    }

    fn cpu(&self) -> Ends<Option<f64>> {
        let end = |of: fn(&Ends<Option<CpuUse>>) -> Option<CpuUse>| {
            let runs = self.of_phase(Phase::Together);
            let used: Vec<(f64, u64)> = runs
                .filter_map(|run| Some((busy_seconds(&of(&run.cpu)?), bytes(run))))
                .collect();
            let seconds = used.iter().map(|(seconds, _)| seconds).sum();
            metrics::cpu_seconds_per_gbit(
                seconds,
                used.iter()
                    .map(|(_, bytes)| *bytes)
                    .fold(0, u64::saturating_add),
            )
        };
        Ends {
            client: end(|cpu| cpu.client),
            daemon: end(|cpu| cpu.daemon),
        }
    }

    fn mhz(&self, cpu: &Ends<Option<f64>>) -> Ends<Option<f64>> {
        let of = |seconds: Option<f64>, mhz: Option<u32>| {
            Some(metrics::cpu_mhz_per_mbps(seconds?, mhz?))
        };
        let Some(hosts) = self.hosts else {
            return Ends::default();
        };
        Ends {
            client: of(cpu.client, hosts.client.cpu_mhz),
            daemon: of(cpu.daemon, hosts.daemon.cpu_mhz),
        }
    }

    /// Returns the mean of the best tenth of the samples in bit/s. Caps each sample at theory: a
    /// sample above it contains data that was buffered on the way.
    fn top_decile(&self, theory: Option<BitRate>) -> Option<u64> {
        let most = theory.map_or(f64::INFINITY, |theory| theory.bits_per_second() as f64);
        let rates: Vec<f64> = self
            .of_phase(Phase::Together)
            .flat_map(rates_in_window)
            .map(|rate| rate.min(most))
            .collect();
        statistics::top_decile(&rates).map(|rate| rate.round() as u64)
    }

    /// Returns the bottleneck of all links in the most significant phase measured, and the sentence
    /// about it.
    fn whole(&self) -> Option<(Limiter, String)> {
        let phase = [Phase::Together, Phase::Reverse, Phase::Both, Phase::Solo]
            .into_iter()
            .find(|phase| self.of_phase(*phase).next().is_some())?;
        let way = self.way(phase);
        let links = self.links.iter();
        let links: Vec<LinkFinding> = links
            .filter_map(|link| self.finding(phase, way, link))
            .collect();
        let whole = limiter::of_all(&links)?;
        let because = limiter::sentence(&whole, &self.sharing(&links), self.machines(way));
        let doubts = self.doubt(phase) + &self.disturbance(phase);
        Some((
            whole.finding.limiter,
            format!("{}, {because}{doubts}", self.claim(phase, way, &links)),
        ))
    }

    /// Returns the rate and bottleneck of a link in a phase; `None` if the link took no part.
    fn finding(&self, phase: Phase, way: Direction, link: &BenchLink) -> Option<LinkFinding> {
        let parts = self.parts(phase, link.id, way);
        let evidence = self.evidence(link, way, &parts);
        (!parts.is_empty()).then(|| LinkFinding {
            name: self.name(link),
            finding: limiter::of_link(&evidence),
            goodput: evidence.goodput,
            expected: self.expected(link, way),
            loss: evidence.loss,
        })
    }

    /// Returns the names in `found` of links that share a bottleneck according to the pair loads, by
    /// group. Empty if no pair showed one.
    fn sharing<'f>(&self, found: &'f [LinkFinding]) -> Vec<Vec<&'f str>> {
        let ids = |run: &Run| -> Vec<u32> { run.flows.iter().map(|flow| flow.link).collect() };
        let holds_back = |run: &&Run| {
            let links = self.links.iter().filter(|link| ids(run).contains(&link.id));
            let scaling = self.scaling(BitRate(run.total_bps), links);
            scaling.is_some_and(|scaling| scaling < repeat::GOOD_SCALING)
        };
        let name = |id: u32| {
            let name = self.name(self.links.iter().find(|link| link.id == id)?);
            let mut names = found.iter().map(|link| &*link.name);
            names.find(|found| *found == name)
        };
        let groups = repeat::joined(self.of_phase(Phase::Pair).filter(holds_back).map(ids));
        groups
            .into_iter()
            .map(|group| group.into_iter().filter_map(name).collect())
            .collect()
    }

    /// Returns the direction that the sentence about a phase describes: the slower one if both were
    /// loaded.
    fn way(&self, phase: Phase) -> Direction {
        let carried = |way: Direction| -> u64 {
            self.of_phase(phase)
                .flat_map(|run| &run.flows)
                .filter(|flow| flow.way == way)
                .map(|flow| flow.bytes)
                .fold(0, u64::saturating_add)
        };
        match (carried(Direction::ToDaemon), carried(Direction::ToClient)) {
            (to_daemon, to_client)
                if to_client > 0 && (to_daemon == 0 || to_client < to_daemon) =>
            {
                Direction::ToClient
            }
            (0, 0) if phase == Phase::Reverse => Direction::ToClient,
            _ => Direction::ToDaemon,
        }
    }

    /// Returns the expected rate of a link: its theoretical goodput, or its rate alone if that is
    /// unknown.
    fn expected(&self, link: &BenchLink, way: Direction) -> Option<BitRate> {
        link.theory_bps
            .map(BitRate)
            .or_else(|| self.alone_rate(link, way))
    }

    /// Returns the sentence about the total rate, such as `2 links carry 1.15 Gbit/s from a to b,
    /// 60.9 % of theory`.
    fn claim(&self, phase: Phase, way: Direction, links: &[LinkFinding]) -> String {
        let Names { sender, receiver } = self.machines(way);
        let carry = if links.len() == 1 {
            "1 link carries".to_owned()
        } else {
            format!("{} links carry", links.len())
        };
        let sum: BitRate = links.iter().map(|link| link.goodput).sum();
        let (total, ways) = match self.spread(phase) {
            Some(spread) if phase != Phase::Solo => (
                BitRate(spread.median_bps),
                if phase == Phase::Both { 2 } else { 1 },
            ),
            _ => (sum, 1),
        };
        let direction = match phase {
            Phase::Both => {
                let Names { sender, receiver } = self.machines(Direction::ToDaemon);
                format!("both ways between {sender} and {receiver}")
            }
            Phase::Solo if links.len() > 1 => {
                format!("from {sender} to {receiver}, one link at a time")
            }
            _ => format!("from {sender} to {receiver}"),
        };
        let expected: Option<BitRate> = links
            .iter()
            .map(|link| link.expected)
            .collect::<Option<Vec<BitRate>>>()
            .map(|rates| rates.into_iter().sum());
        let part = expected
            .and_then(|rate| metrics::efficiency(total, BitRate(rate.0.saturating_mul(ways))))
            .map(|part| part * 100.0);
        let unknown: Vec<String> = self
            .links
            .iter()
            .filter(|link| link.theory_bps.is_none())
            .map(|link| self.name(link))
            .collect();
        let are_unknown = format!(
            "the line rate of {} is not known",
            limiter::listed(&unknown)
        );
        let of = match part {
            Some(part) if unknown.is_empty() => format!(", {part:.1} % of theory"),
            Some(_) if phase == Phase::Solo => format!("; {are_unknown}"),
            // For a single link this would compare the rate with itself.
            Some(_) if self.links.len() == 1 => format!("; {are_unknown}"),
            Some(part) if unknown.len() == self.links.len() => {
                format!(", {part:.1} % of their single-link rates; {are_unknown}")
            }
            Some(part) => format!(
                ", {part:.1} % of theory; {are_unknown}, its single-link rate is used instead"
            ),
            None => format!("; {are_unknown}"),
        };
        format!("{carry} {total} {direction}{of}")
    }

    /// Returns a remark if the rate was measured only once or was not stable, otherwise an empty
    /// text.
    fn doubt(&self, phase: Phase) -> String {
        match self.spread(phase) {
            Some(spread) if phase != Phase::Solo && spread.n == 1 => "; measured once".into(),
            Some(spread) if phase != Phase::Solo && !spread.stable => {
                format!(
                    "; not stable: {} repeats from {} to {}",
                    spread.n,
                    BitRate(spread.min_bps),
                    BitRate(spread.max_bps)
                )
            }
            _ => String::new(),
        }
    }

    /// Returns a remark if other transfers at the daemon used the links, otherwise an empty text.
    fn disturbance(&self, phase: Phase) -> String {
        let disturbed = self
            .of_phase(phase)
            .filter(|run| run.other_transfers.is_some_and(|count| count > 0))
            .count();
        let daemon = self.machines(Direction::ToDaemon).receiver;
        match (disturbed, self.of_phase(phase).count()) {
            (0, _) => String::new(),
            (_, 1) => format!("; a concurrent copy on {daemon} used part of the capacity"),
            (disturbed, all) => format!(
                "; concurrent copies on {daemon} used part of the capacity in {disturbed} of {all} loads"
            ),
        }
    }

    fn machines(&self, way: Direction) -> Names<'a> {
        let name = |host: Option<&'a HostFacts>, role| {
            host.and_then(|host| host.name.as_deref()).unwrap_or(role)
        };
        let client = name(self.hosts.map(|hosts| &hosts.client), "the client");
        let daemon = name(self.hosts.map(|hosts| &hosts.daemon), "the daemon");
        // Two machines with the same name are called by their roles.
        let (client, daemon) = if client == daemon {
            ("the client", "the daemon")
        } else {
            (client, daemon)
        };
        let (sender, receiver) = Ends { client, daemon }.by(way);
        Names { sender, receiver }
    }

    /// Returns a sentence about the slowest stage of a copy from disk to disk.
    fn disks(&self, disk: &DiskReport) -> Option<String> {
        let Names { sender, receiver } = self.machines(disk.way);
        let rate = |spread: &Spread| format!("{:.1} MB/s", spread.median_bps as f64 / 8e6);
        let on = |system: &Option<String>| {
            system
                .as_ref()
                .map_or_else(|| "its disk".to_owned(), |name| format!("its {name}"))
        };
        let (from, to) = disk.file_systems.clone().by(disk.way);
        let (what, narrowest) = match disk.narrowest.as_deref()? {
            "read" => (
                format!("reading on {sender} from {}", on(&from)),
                disk.read?,
            ),
            "write" => (format!("writing on {receiver} to {}", on(&to)), disk.write?),
            _ => ("the links".to_owned(), disk.network?),
        };
        let copy = disk
            .all
            .map_or_else(String::new, |all| format!("; a copy gets {}", rate(&all)));
        Some(format!(
            "disk to disk, the bottleneck is {what}, {}{copy}",
            rate(&narrowest)
        ))
    }

    /// Returns the display name of a link: its local interface, and the remote interface if that is
    /// ambiguous.
    fn name(&self, link: &BenchLink) -> String {
        let ends = &link.ends;
        match self
            .links
            .iter()
            .filter(|other| other.ends.client.name == ends.client.name)
            .count()
        {
            0 | 1 => ends.client.name.clone(),
            _ => format!("{}={}", ends.client.name, ends.daemon.name),
        }
    }
}

fn busy_seconds(cpu: &CpuUse) -> f64 {
    [cpu.user_us, cpu.system_us, cpu.softirq_us]
        .into_iter()
        .fold(0, u64::saturating_add) as f64
        / 1e6
}

fn bytes(run: &Run) -> u64 {
    run.flows
        .iter()
        .map(|flow| flow.bytes)
        .fold(0, u64::saturating_add)
}

/// Returns the rates of the samples in the measurement window: the consecutive ones whose time and
/// bytes add up to the load's. Falls back to all samples.
fn rates_in_window(run: &Run) -> Vec<f64> {
    let samples: Vec<(u64, u64)> = run
        .intervals
        .iter()
        .map(|interval| {
            (
                interval.dt_us,
                interval
                    .bytes
                    .iter()
                    .fold(0, |sum, bytes| bytes.saturating_add(sum)),
            )
        })
        .collect();
    let end = |from: usize| {
        let sums = samples[from..]
            .iter()
            .scan((0_u64, 0_u64), |(micros, sum), (dt, bytes)| {
                (*micros, *sum) = (micros.saturating_add(*dt), sum.saturating_add(*bytes));
                Some((*micros, *sum))
            });
        let (index, found) = sums
            .enumerate()
            .find(|(_, (micros, _))| *micros >= run.window_us)?;
        (found == (run.window_us, bytes(run))).then_some(from + index + 1)
    };
    let window = (0..samples.len())
        .find_map(|from| Some(from..end(from)?))
        .unwrap_or(0..samples.len());
    samples[window]
        .iter()
        .filter(|(micros, _)| *micros > 0)
        .map(|(micros, bytes)| *bytes as f64 * 8e6 / *micros as f64)
        .collect()
}

#[cfg(test)]
mod tests;
