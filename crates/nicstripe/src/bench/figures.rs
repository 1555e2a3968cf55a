//! Samples in, figures of one load out. Pure: clocks and bytes are given.

use std::time::Duration;

use nicstripe_proto::message::{BenchSample, PathSample, TcpSample};

use super::report::{CpuUse, Ends, Flow, Interval, Limiter, TcpUse, Way};

/// The samples of one end in one load, on the client's clock.
#[derive(Debug, Default, Clone)]
pub(crate) struct Track {
    samples: Vec<BenchSample>,
    /// Microseconds by which the client's clock is ahead of the samples'.
    offset: i64,
}

/// A link's place among a load's paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadedLink {
    /// Its id in the report.
    pub(crate) id: u32,
    /// Which of the paths are its.
    pub(crate) paths: Vec<usize>,
    /// The most that it can have, if known.
    pub(crate) theory_bps: Option<u64>,
}

/// A span of time on the client's clock, in microseconds since the load began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Window {
    pub(crate) fn micros(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

impl Track {
    /// Takes a sample that was heard at so many microseconds of the client's clock. The one that was fastest on its way sets the clocks.
    pub(crate) fn push(&mut self, sample: BenchSample, heard_us: u64) {
        let offset = i64::try_from(heard_us).unwrap_or(i64::MAX).saturating_sub(i64::try_from(sample.at_us).unwrap_or(i64::MAX));
        self.offset = if self.samples.is_empty() { offset } else { self.offset.min(offset) };
        // A sample that goes back in time is no sample.
        if self.samples.last().is_none_or(|last| last.at_us < sample.at_us) {
            self.samples.push(sample);
        }
    }

    fn at(&self, index: usize) -> u64 {
        self.samples.get(index).map_or(0, |sample| sample.at_us.saturating_add_signed(self.offset))
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    /// A counter at some moment, between two samples in proportion; unknown where no sample has it.
    fn value(&self, at: u64, counter: impl Fn(&BenchSample) -> Option<u64>) -> Option<u64> {
        let after = (0..self.len()).find(|index| self.at(*index) >= at);
        let Some(after) = after.filter(|index| *index > 0) else {
            return counter(if after.is_some() { self.samples.first()? } else { self.samples.last()? });
        };
        let (t0, t1) = (self.at(after - 1), self.at(after));
        let (v0, v1) = (counter(self.samples.get(after - 1)?)?, counter(self.samples.get(after)?)?);
        let part = (at - t0) as f64 / (t1 - t0).max(1) as f64;
        Some(v0 + (v1.saturating_sub(v0) as f64 * part).round() as u64)
    }

    /// How far a counter has risen in a window. One that was set back, as its connection was made anew, counts from there.
    fn rise(&self, window: Window, counter: impl Fn(&BenchSample) -> Option<u64>) -> Option<u64> {
        let (from, to) = (self.value(window.from, &counter)?, self.value(window.to, &counter)?);
        Some(to.checked_sub(from).unwrap_or(to))
    }

    /// The window in which all paths of the links are past warm-up, until the last sample.
    pub(crate) fn window(&self, links: &[LoadedLink], warm_up: Duration) -> Option<Window> {
        let paths: Vec<usize> = links.iter().flat_map(|link| link.paths.clone()).collect();
        let began = |index: &usize| self.samples.first().and_then(|sample| sample.paths.get(*index)).map_or(0, |path| path.received);
        let has_begun = |sample: &BenchSample| {
            let received = |path: &usize| sample.paths.get(*path).is_some_and(|at| at.received > began(path));
            paths.iter().filter(|path| received(path)).count()
        };
        let most = self.samples.last().map(has_begun).filter(|paths| *paths > 0)?;
        let begun = (0..self.len()).find(|index| self.samples.get(*index).is_some_and(|sample| has_begun(sample) >= most))?;
        // The first sample that shows them all comes up to an interval after they began.
        let begun = self.at(begun.saturating_sub(1));
        let to = self.at(self.len() - 1);
        let warm = begun + warm_up.as_micros() as u64;
        let from = (0..self.len()).map(|index| self.at(index)).find(|at| *at >= warm && *at < to);
        // Ended before it was warm: all that there is.
        let from = from.unwrap_or(begun);
        (from < to).then_some(Window { from, to })
    }

    /// The times of all samples.
    fn times(&self) -> Vec<u64> {
        (0..self.len()).map(|index| self.at(index)).collect()
    }

    /// What all links have received since the sample before, and since when.
    pub(crate) fn last_interval(&self, way: Way, links: &[LoadedLink], sender: &Self) -> Option<Interval> {
        let to = self.len().checked_sub(1)?;
        self.interval(to, way, links, sender)
    }

    fn interval(&self, to: usize, way: Way, links: &[LoadedLink], sender: &Self) -> Option<Interval> {
        let window = Window { from: self.at(to.checked_sub(1)?), to: self.at(to) };
        let bytes = links.iter().map(|link| received(self, window, link)).collect();
        let retransmitted: Option<Vec<u64>> =
            links.iter().map(|link| sum(&link.paths, |path| sender.tcp_rise(window, path, |tcp| tcp.retransmitted))).collect();
        let rtt: Option<Vec<u64>> =
            links.iter().map(|link| link.paths.iter().filter_map(|path| sender.tcp_at(window.to, *path, |tcp| tcp.rtt_us)).max()).collect();
        Some(Interval {
            way,
            t_us: window.from,
            dt_us: window.micros(),
            bytes,
            retransmitted_bytes: retransmitted.unwrap_or_default(),
            rtt_us: rtt.unwrap_or_default(),
        })
    }

    pub(crate) fn intervals(&self, way: Way, links: &[LoadedLink], sender: &Self) -> Vec<Interval> {
        (1..self.len()).filter_map(|to| self.interval(to, way, links, sender)).collect()
    }

    fn tcp_rise(&self, window: Window, path: usize, counter: impl Fn(&TcpSample) -> Option<u64>) -> Option<u64> {
        self.rise(window, |sample| counter(sample.paths.get(path)?.tcp.as_ref()?))
    }

    fn tcp_at(&self, at: u64, path: usize, value: impl Fn(&TcpSample) -> Option<u64>) -> Option<u64> {
        self.value(at, |sample| value(sample.paths.get(path)?.tcp.as_ref()?))
    }

    /// The values of a gauge in a window, of one path.
    fn gauges(&self, window: Window, path: usize, value: impl Fn(&TcpSample) -> Option<u64>) -> Vec<u64> {
        let within = |index: &usize| (window.from..=window.to).contains(&self.at(*index));
        let indices = (0..self.len()).filter(within);
        indices.filter_map(|index| value(self.samples.get(index)?.paths.get(path)?.tcp.as_ref()?)).collect()
    }

    /// Processor time in a window.
    pub(crate) fn cpu(&self, window: Window) -> Option<CpuUse> {
        let rise =
            |counter: fn(&nicstripe_proto::message::CpuSample) -> Option<u64>| self.rise(window, |sample| counter(sample.cpu.as_ref()?));
        let cores = self.samples.first()?.cpu.as_ref()?.cores_us.len();
        let busiest = (0..cores).filter_map(|core| self.rise(window, |sample| sample.cpu.as_ref()?.cores_us.get(core).copied())).max();
        Some(CpuUse {
            user_us: rise(|cpu| Some(cpu.user_us))?,
            system_us: rise(|cpu| Some(cpu.system_us))?,
            softirq_us: rise(|cpu| Some(cpu.softirq_us))?,
            process_us: rise(|cpu| Some(cpu.process_us))?,
            worst_core_pct: busiest.map(|busy| (busy as f64 / window.micros().max(1) as f64 * 100.0).min(100.0)),
            throttled_us: rise(|cpu| cpu.throttled_us),
        })
    }

    /// Whether the rate of all links has settled: over the last five intervals past warm-up, no slope and no outlier.
    pub(crate) fn has_settled(&self, links: &[LoadedLink], warm_up: Duration, least: Duration) -> bool {
        let Some(window) = self.window(links, warm_up).filter(|window| window.micros() >= least.as_micros() as u64) else { return false };
        let times: Vec<u64> = self.times().into_iter().filter(|at| *at >= window.from).collect();
        let rates: Vec<f64> = times.windows(2).map(|pair| rate(self, Window { from: pair[0], to: pair[1] }, links)).collect();
        rates.len() >= SETTLED_OVER && is_steady(&rates[rates.len() - SETTLED_OVER..])
    }
}

/// Intervals over which a rate has to be steady.
const SETTLED_OVER: usize = 5;

fn rate(track: &Track, window: Window, links: &[LoadedLink]) -> f64 {
    let bytes: u64 = links.iter().map(|link| received(track, window, link)).sum();
    bytes as f64 * 8e6 / window.micros().max(1) as f64
}

/// Slope over all less than 1 % of the mean, and no value more than 2 % off it (fio's rule).
fn is_steady(rates: &[f64]) -> bool {
    let (n, mean) = (rates.len() as f64, rates.iter().sum::<f64>() / rates.len() as f64);
    let middle = (n - 1.0) / 2.0;
    let (mut above, mut below) = (0.0, 0.0);
    for (index, rate) in rates.iter().enumerate() {
        let x = index as f64 - middle;
        (above, below) = (above + x * (rate - mean), below + x * x);
    }
    let slope = (above / below * (n - 1.0)).abs();
    mean > 0.0 && slope < mean / 100.0 && rates.iter().all(|rate| (rate - mean).abs() < mean / 50.0)
}

fn received(track: &Track, window: Window, link: &LoadedLink) -> u64 {
    let of = |path: &usize| track.rise(window, |sample| Some(sample.paths.get(*path)?.received)).unwrap_or(0);
    link.paths.iter().map(of).sum()
}

fn sum(paths: &[usize], of: impl Fn(usize) -> Option<u64>) -> Option<u64> {
    paths.iter().map(|path| of(*path)).sum()
}

/// What one way of a load came to in a window.
pub(crate) fn flows(way: Way, window: Window, receiver: &Track, sender: &Track, links: &[LoadedLink]) -> Vec<Flow> {
    links.iter().map(|link| flow(way, window, receiver, sender, link)).collect()
}

fn flow(way: Way, window: Window, receiver: &Track, sender: &Track, link: &LoadedLink) -> Flow {
    let bytes = received(receiver, window, link);
    let first = link.paths.first().copied().unwrap_or_default();
    let counted = |track: &Track, of: fn(&PathSample) -> Option<u64>| track.rise(window, |sample| of(sample.paths.get(first)?));
    let tcp = tcp_use(window, sender, &link.paths).map(|tcp| TcpUse {
        send_buffer_bytes: least_buffer(window, sender, &link.paths, |tcp| tcp.send_buffer),
        receive_buffer_bytes: least_buffer(window, receiver, &link.paths, |tcp| tcp.receive_buffer),
        ..tcp
    });
    let goodput_bps = (u128::from(bytes) * 8_000_000 / u128::from(window.micros().max(1))) as u64;
    Flow {
        link: link.id,
        way,
        bytes,
        goodput_bps,
        interface_sent_bytes: counted(sender, |path| path.interface_sent),
        interface_received_bytes: counted(receiver, |path| path.interface_received),
        // Told when all is known: see `conclude`.
        limiter: Limiter::Unknown,
        tcp,
    }
}

/// The least that connections have in the last sample of the window.
fn least_buffer(window: Window, track: &Track, paths: &[usize], of: impl Fn(&TcpSample) -> Option<u64> + Copy) -> Option<u64> {
    paths.iter().filter_map(|path| track.gauges(window, *path, of).last().copied()).min()
}

fn tcp_use(window: Window, sender: &Track, paths: &[usize]) -> Option<TcpUse> {
    let rise = |counter: fn(&TcpSample) -> Option<u64>| sum(paths, |path| sender.tcp_rise(window, path, counter));
    let mean = |counter: fn(&TcpSample) -> Option<u64>| rise(counter).map(|sum| sum / paths.len().max(1) as u64);
    let gauges =
        |value: fn(&TcpSample) -> Option<u64>| paths.iter().flat_map(|path| sender.gauges(window, *path, value)).collect::<Vec<_>>();
    let average = |values: &[u64]| (!values.is_empty()).then(|| values.iter().sum::<u64>() / values.len() as u64);
    let rtts = gauges(|tcp| tcp.rtt_us);
    // No connection, no kernel that speaks of it.
    average(&rtts)?;
    Some(TcpUse {
        sent_bytes: rise(|tcp| tcp.sent),
        retransmitted_bytes: rise(|tcp| tcp.retransmitted),
        busy_us: mean(|tcp| tcp.busy_us),
        rwnd_limited_us: mean(|tcp| tcp.rwnd_limited_us),
        sndbuf_limited_us: mean(|tcp| tcp.sndbuf_limited_us),
        cwnd_bytes: average(&gauges(|tcp| tcp.cwnd_bytes)),
        rtt_avg_us: average(&rtts),
        rtt_max_us: rtts.iter().max().copied(),
        ..TcpUse::default()
    })
}

/// The processors of both ends in a window.
pub(crate) fn cpu(window: Window, client: &Track, daemon: &Track) -> Ends<Option<CpuUse>> {
    Ends { client: client.cpu(window), daemon: daemon.cpu(window) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples each half second of paths that get so many bytes a sample, after `silent` samples.
    fn track(paths: &[(u64, usize)], samples: usize) -> Track {
        let mut track = Track::default();
        for index in 0..samples {
            let at = |(bytes, silent): &(u64, usize)| PathSample {
                received: 7 + bytes * index.saturating_sub(*silent) as u64,
                ..PathSample::default()
            };
            let sample =
                BenchSample { run: 1, at_us: index as u64 * 500_000, paths: paths.iter().map(at).collect(), ..BenchSample::default() };
            track.push(sample, 1_000 + index as u64 * 500_000);
        }
        track
    }

    fn links(count: usize) -> Vec<LoadedLink> {
        (0..count).map(|index| LoadedLink { id: index as u32 + 1, paths: vec![index], theory_bps: None }).collect()
    }

    #[test]
    fn the_window_begins_when_all_paths_are_warm_and_is_one_for_all() {
        let (receiver, links) = (track(&[(100, 0), (50, 4)], 21), links(2));
        let window = receiver.window(&links, Duration::from_secs(1)).unwrap();
        // The second path begins to send at 2 s, and is warm at 3 s.
        assert_eq!(window, Window { from: 3_001_000, to: 10_001_000 });
        let flows = flows(Way::ToDaemon, window, &receiver, &Track::default(), &links);
        assert_eq!(flows.iter().map(|flow| flow.bytes).collect::<Vec<_>>(), [1400, 700]);
        assert_eq!(flows[0].goodput_bps, 1600);
    }

    #[test]
    fn a_load_that_is_interrupted_has_what_there_is() {
        let receiver = track(&[(100, 0)], 2);
        let window = receiver.window(&links(1), Duration::from_secs(1)).unwrap();
        assert_eq!(window.micros(), 500_000);
        assert_eq!(track(&[(100, 0)], 1).window(&links(1), Duration::ZERO), None);
        assert_eq!(track(&[(0, 0)], 9).window(&links(1), Duration::ZERO), None, "nothing came");
    }

    #[test]
    fn a_counter_between_two_samples_is_taken_in_proportion_and_one_set_back_counts_from_there() {
        let track = track(&[(100, 0)], 3);
        let received = |sample: &BenchSample| Some(sample.paths[0].received);
        assert_eq!(track.rise(Window { from: 1_000, to: 251_000 }, received), Some(50));
        assert_eq!(track.rise(Window { from: 0, to: 9_000_000 }, received), Some(200));
        let falling = |sample: &BenchSample| Some(if sample.at_us == 0 { 500 } else { 3 });
        assert_eq!(track.rise(Window { from: 1_000, to: 1_001_000 }, falling), Some(3));
    }

    #[test]
    fn a_steady_rate_settles_and_a_rising_or_shaky_one_does_not() {
        assert!(is_steady(&[100.0, 100.1, 99.9, 100.0, 100.1]));
        assert!(!is_steady(&[100.0, 101.0, 102.0, 103.0, 104.0]));
        assert!(!is_steady(&[100.0, 103.0, 97.0, 100.0, 100.0]));
        assert!(!is_steady(&[0.0; 5]));
        let (receiver, links) = (track(&[(100, 0)], 9), links(1));
        assert!(receiver.has_settled(&links, Duration::from_secs(1), Duration::from_secs(3)));
        assert!(!receiver.has_settled(&links, Duration::from_secs(1), Duration::from_secs(4)));
    }
}
