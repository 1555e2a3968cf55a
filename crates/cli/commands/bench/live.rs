//! State of a running bench, updated by its events and formatted as text.

use std::time::{Duration, Instant};

use nicstripe::bench::{
    BenchEvent, BenchLink, Direction, Phase, RoundTrips, Run, SweepKind, SweepPoint,
};

use super::{
    reading::{kind_text, phase_text, ways},
    unit::{RateUnit, milliseconds, percent, swept},
};
use crate::text::{quantity::Clock, shown};

/// State of a running bench as the user sees it, built from its events.
#[derive(Debug, Default)]
pub(crate) struct Live {
    links: Vec<Link>,
    /// Current load and its repeat.
    load: Option<(Phase, u32)>,
    /// Progress before the first load: the wait, then the last round-trip times of an idle link.
    before: Option<String>,
    point: Option<String>,
    /// Estimated end of the bench.
    ends_at: Option<Instant>,
}

/// Link with its rates in the current load.
#[derive(Debug)]
struct Link {
    facts: BenchLink,
    /// Current rate in bits per second, to the daemon and from it.
    rates: [Option<u64>; 2],
    /// Highest rate of one direction so far, in bits per second. Represents a full bar if the
    /// theoretical rate is unknown.
    most: u64,
    is_loaded: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Fill level of the bar from 0 to 1. A full bar is the theoretical rate.
    pub(crate) part: f64,
    /// Text next to the bar: rates and remaining time.
    pub(crate) text: String,
}

impl Live {
    /// Updates the state by an event. Returns a line to print if the event needs one.
    pub(crate) fn apply(&mut self, event: &BenchEvent) -> Option<String> {
        match event {
            BenchEvent::Waiting { ahead, wait } => return self.wait(*ahead, *wait),
            BenchEvent::Connected { links } => self.connect(links),
            BenchEvent::Idle { link, round_trips } => self.set_idle(*link, round_trips),
            BenchEvent::Left(time) => return self.know_left(*time),
            BenchEvent::Began {
                phase,
                repeat,
                links,
            } => self.begin(*phase, *repeat, links),
            BenchEvent::Sample {
                way,
                interval,
                links,
                ..
            } => self.sample(*way, links, interval.dt_us, &interval.bytes),
            BenchEvent::RunDone(run) => self.end(run),
            BenchEvent::Point { kind, point } => self.point = Some(self.point_text(*kind, point)),
            BenchEvent::Note(text) => return Some(nicstripe::printable(text.as_bytes())),
            _ => {}
        }
        None
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        let ways = self.load.map_or(1, |(phase, _)| ways(phase));
        let theory: Option<u64> = self.loaded().map(|link| link.facts.theory_bps).sum();
        let end = theory
            .filter(|theory| *theory > 0)
            .unwrap_or_else(|| self.loaded().map(|link| link.most).sum());
        let total = Row {
            name: self.title(),
            part: part(self.rate(), end * ways),
            text: self.numbers(self.rate(), theory.map(|theory| theory * ways)) + &self.left(),
        };
        let of_link = |link: &Link| {
            let theory = link.facts.theory_bps;
            Row {
                name: format!("{} {}", link.facts.id, link.name()),
                part: part(link.rate(), theory.unwrap_or(link.most) * ways),
                text: self.numbers(link.rate(), theory.map(|theory| theory * ways)),
            }
        };
        std::iter::once(total)
            .chain(self.loaded().map(of_link))
            .collect()
    }

    pub(crate) fn status(&self) -> String {
        self.before.clone().unwrap_or_else(|| {
            let numbers = self.numbers(self.rate(), None);
            format!("{}: {numbers}{}", self.title(), self.left())
        })
    }

    fn loaded(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| link.is_loaded)
    }

    fn rate(&self) -> u64 {
        self.loaded().map(Link::rate).sum()
    }

    /// Stores the estimated remaining time. Returns the first estimate as a line to print; later
    /// ones are shown next to the rate.
    fn know_left(&mut self, time: Duration) -> Option<String> {
        let earlier = self.ends_at.replace(Instant::now() + time);
        earlier
            .is_none()
            .then(|| format!("takes about {}", Clock(time)))
    }

    /// Returns the remaining time as a suffix of a line; empty if unknown.
    fn left(&self) -> String {
        self.ends_at.map_or_else(String::new, |end| {
            let left = end.saturating_duration_since(Instant::now());
            format!("  {} left", Clock(left))
        })
    }

    fn wait(&mut self, ahead: u32, wait: Duration) -> Option<String> {
        let others = match ahead {
            0 => "running copies".to_owned(),
            1 => "another bench".to_owned(),
            count => format!("{count} benches"),
        };
        let text = format!("waiting for {others}, at most {}", Clock(wait));
        let earlier = self.before.replace(text.clone());
        (earlier.as_ref() != Some(&text)).then_some(text)
    }

    fn connect(&mut self, links: &[BenchLink]) {
        self.before = None;
        self.links = links
            .iter()
            .map(|facts| Link {
                facts: facts.clone(),
                rates: [None; 2],
                most: 0,
                is_loaded: false,
            })
            .collect();
    }

    fn set_idle(&mut self, id: u32, round_trips: &RoundTrips) {
        let Some(link) = self.link(id) else {
            return;
        };
        link.facts.rtt_idle = Some(*round_trips);
        self.before = Some(format!(
            "round trips of {id} {}: {} ms",
            link.name(),
            milliseconds(round_trips.p50_us)
        ));
    }

    fn begin(&mut self, phase: Phase, repeat: u32, links: &[u32]) {
        (self.before, self.point) = (None, None);
        self.load = Some((phase, repeat));
        for link in &mut self.links {
            link.is_loaded = links.contains(&link.facts.id);
            link.rates = [None; 2];
        }
    }

    fn sample(&mut self, way: Direction, links: &[u32], dt_us: u64, bytes: &[u64]) {
        for (id, bytes) in links.iter().zip(bytes) {
            if let Some(link) = self.link(*id) {
                let rate = (*bytes as f64 * 8e6 / dt_us.max(1) as f64) as u64;
                link.rates[way as usize] = Some(rate);
                link.most = link.most.max(rate);
            }
        }
    }

    /// Replaces the rates of the last sample by the results of a finished load.
    fn end(&mut self, run: &Run) {
        for flow in &run.flows {
            if let Some(link) = self.link(flow.link) {
                link.rates[flow.way as usize] = Some(flow.goodput_bps);
            }
        }
    }

    fn link(&mut self, id: u32) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.facts.id == id)
    }

    fn title(&self) -> String {
        match self.load {
            Some((phase, repeat)) => format!("{} {repeat}", phase_text(phase)),
            None => "connecting".to_owned(),
        }
    }

    fn numbers(&self, rate: u64, theory: Option<u64>) -> String {
        if let Some(point) = &self.point {
            return point.clone();
        }
        let unit = self.unit();
        let numbers = format!("{:>8} {}", unit.text(rate), unit.name());
        match theory.filter(|theory| *theory > 0) {
            Some(theory) => {
                let part = percent(rate as f64 / theory as f64);
                format!("{numbers} {part:>7} of {}", unit.text(theory))
            }
            None => numbers,
        }
    }

    fn point_text(&self, kind: SweepKind, point: &SweepPoint) -> String {
        let at = point
            .size
            .map_or_else(|| "own choice".to_owned(), |value| swept(kind, value));
        let streams = point
            .streams
            .map_or_else(String::new, |streams| format!(" × {streams}"));
        let rate = self.unit().rate(point.rate.median_bps);
        format!("{}, {at}{streams}: {rate}", kind_text(kind))
    }

    fn unit(&self) -> RateUnit {
        let most = |link: &Link| link.facts.theory_bps.unwrap_or(link.most);
        RateUnit::for_most(self.links.iter().map(most).sum())
    }
}

impl Link {
    fn rate(&self) -> u64 {
        self.rates.iter().flatten().sum()
    }

    fn name(&self) -> String {
        shown(&self.facts.ends.client.name)
    }
}

fn part(rate: u64, end: u64) -> f64 {
    match end {
        0 => 0.0,
        end => (rate as f64 / end as f64).clamp(0.0, 1.0),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use nicstripe::bench::BenchReport;

    use super::*;
    use crate::commands::bench::tests::samples;

    /// Returns the events that a bench with this report would send.
    pub(crate) fn events(report: &BenchReport) -> Vec<BenchEvent> {
        let known = |link: &BenchLink| BenchLink {
            rtt_idle: None,
            ..link.clone()
        };
        let mut events = vec![
            BenchEvent::Waiting {
                ahead: 1,
                wait: Duration::from_secs(150),
            },
            BenchEvent::Connected {
                links: report.links.iter().map(known).collect(),
            },
        ];
        let idle = |link: &BenchLink| {
            Some(BenchEvent::Idle {
                link: link.id,
                round_trips: link.rtt_idle?,
            })
        };
        events.extend(report.links.iter().filter_map(idle));
        for run in &report.runs {
            events.push(BenchEvent::Left(Duration::from_secs(754)));
            let (phase, repeat) = (run.phase, run.repeat);
            let mut links: Vec<u32> = run.flows.iter().map(|flow| flow.link).collect();
            links.dedup();
            events.push(BenchEvent::Began {
                phase,
                repeat,
                links,
            });
            events.extend(run.intervals.iter().map(|interval| {
                let links = run
                    .flows
                    .iter()
                    .filter(|flow| flow.way == interval.way)
                    .map(|flow| flow.link)
                    .collect();
                BenchEvent::Sample {
                    phase,
                    repeat,
                    way: interval.way,
                    interval: interval.clone(),
                    links,
                }
            }));
            events.push(BenchEvent::RunDone(run.clone()));
        }
        let points = report
            .sweeps
            .iter()
            .flat_map(|sweep| sweep.points.iter().map(|point| (sweep.kind, point.clone())));
        events.extend(points.map(|(kind, point)| BenchEvent::Point { kind, point }));
        events.push(BenchEvent::Note("together: the rate did not settle".into()));
        events
    }

    fn live(report: &BenchReport, until: usize) -> Live {
        let mut live = Live::default();
        events(report)
            .iter()
            .take(until)
            .for_each(|event| drop(live.apply(event)));
        live
    }

    #[test]
    fn each_loaded_link_has_a_bar_whose_end_is_theory() {
        let report = samples::shared();
        let together = events(&report).iter().position(
            |event| matches!(event, BenchEvent::RunDone(run) if run.phase == Phase::Together),
        );
        let rows = live(&report, together.unwrap() + 1).rows();
        assert_eq!(
            rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(),
            ["together 1", "1 eth1", "2 eth2"]
        );
        assert!((rows[1].part - 0.698).abs() < 0.01, "{rows:?}");
        assert!(
            rows[1].text.contains("of 941.5") && rows[0].text.contains("of 1883.0"),
            "{rows:?}"
        );
    }

    #[test]
    fn alone_shows_one_link_and_both_ways_count_twice() {
        let report = samples::good();
        let rows = live(&report, 5 + report.links.len()).rows();
        assert_eq!(rows.len(), 2, "{rows:?}");
        let both = events(&report).iter().position(
            |event| matches!(event, BenchEvent::RunDone(run) if run.phase == Phase::Both),
        );
        let rows = live(&report, both.unwrap() + 1).rows();
        assert!(
            rows[0].text.contains("of 3765.9") && rows[0].part > 0.97,
            "{rows:?}"
        );
    }

    #[test]
    fn round_trips_are_told_until_the_first_load() {
        let report = samples::good();
        assert_eq!(live(&report, 3).status(), "round trips of 1 eth1: 0.040 ms");
        assert!(
            live(&report, 4 + report.links.len())
                .status()
                .starts_with("alone 1")
        );
    }

    #[test]
    fn a_link_without_theory_is_as_long_as_the_most_it_did() {
        let report = samples::partial();
        let rows = live(&report, 12).rows();
        assert!(
            rows[1].part > 0.9 && !rows[1].text.contains("of"),
            "{rows:?}"
        );
    }

    #[test]
    fn waiting_is_said_once_and_ends_with_the_connection() {
        let mut live = Live::default();
        let waiting = |ahead, seconds| BenchEvent::Waiting {
            ahead,
            wait: Duration::from_secs(seconds),
        };
        assert_eq!(
            live.apply(&waiting(2, 90)).as_deref(),
            Some("waiting for 2 benches, at most 1:30")
        );
        assert_eq!(live.apply(&waiting(2, 90)), None);
        assert!(live.apply(&waiting(1, 30)).is_some());
        assert!(live.status().starts_with("waiting for another bench"));
        live.apply(&BenchEvent::Connected {
            links: samples::good().links,
        });
        assert!(live.status().starts_with("connecting"));
    }

    #[test]
    fn the_time_that_is_left_is_said_once_and_shown_while_it_runs() {
        let report = samples::good();
        let mut live = Live::default();
        let said: Vec<String> = events(&report)
            .iter()
            .filter_map(|event| live.apply(event))
            .filter(|text| text.contains("12:3"))
            .collect();
        assert_eq!(said, ["takes about 12:34"]);
        assert!(
            live.rows()[0].text.ends_with(" left") && !live.rows()[1].text.contains("left"),
            "{:?}",
            live.rows()
        );
        assert!(live.status().contains(" left"), "{}", live.status());
        live.apply(&BenchEvent::Left(Duration::ZERO));
        assert!(
            live.rows()[0].text.ends_with("  0:00 left"),
            "over the estimate: {:?}",
            live.rows()
        );
    }

    #[test]
    fn events_in_any_order_do_no_harm() {
        let report = samples::swept();
        let mut events = events(&report);
        events.reverse();
        let mut live = Live::default();
        for event in &events {
            live.apply(event);
            assert!(
                live.rows()
                    .iter()
                    .all(|row| (0.0..=1.0).contains(&row.part))
            );
            live.status();
        }
    }
}
