//! Computes the results of one load from the samples of both ends. Does no I/O and reads no clock.
//!
//! [`window`] decides which samples count and if the rate is stable. This
//! module puts the samples of both ends on one clock and evaluates them in that window.

use std::time::Duration;

use nicstripe_proto::{
    BitRate,
    message::{BenchSample, PathSample, TcpSample},
};

use crate::{
    report::{CpuUse, Direction, Flow, Interval, Limiter, TcpUse},
    window::{self, Snapshot, Span},
};

/// Samples of one end in one load, with the offset of its clock to the client's clock.
#[derive(Debug, Default, Clone)]
pub(crate) struct Track {
    samples: Vec<BenchSample>,
    /// Microseconds by which the client's clock is ahead of the samples' clock.
    offset: i64,
}

/// Link that carries a load, with its paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadedLink {
    /// Id of the link in the report.
    pub(crate) id: u32,
    /// Indices of the link's paths in the samples.
    pub(crate) paths: Vec<usize>,
}

/// One direction of a load, with the samples of its receiver and its sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loading<'a> {
    pub(crate) way: Direction,
    pub(crate) receiver: &'a Track,
    pub(crate) sender: &'a Track,
}

/// Returns the received bytes of each path at every instant that all receivers' samples cover: for
/// each direction the paths of all links, in order.
///
/// A single receiver yields its own samples. For two receivers with unaligned samples, the values
/// in between are interpolated, so that both directions share one window.
pub(crate) fn snapshots(ways: &[Loading<'_>], links: &[LoadedLink]) -> Vec<Snapshot> {
    let from = ways
        .iter()
        .filter_map(|loading| loading.receiver.times().next())
        .max();
    let to = ways
        .iter()
        .filter_map(|loading| loading.receiver.times().next_back())
        .min();
    let Some((from, to)) = from
        .zip(to)
        .filter(|_| ways.iter().all(|loading| loading.receiver.len() > 0))
    else {
        return Vec::new();
    };
    let mut times: Vec<u64> = ways
        .iter()
        .flat_map(|loading| loading.receiver.times())
        .filter(|at| (from..=to).contains(at))
        .collect();
    times.sort_unstable();
    times.dedup();
    let mut had: Vec<u64> = Vec::new();
    let at = |at| {
        let now = ways
            .iter()
            .flat_map(|loading| paths(links).map(move |path| loading.receiver.received(at, path)));
        // A counter that drops because its path was down for a while has lost nothing.
        had = now
            .zip(had.iter().copied().chain(std::iter::repeat(0)))
            .map(|(now, before)| now.max(before))
            .collect();
        Snapshot {
            at: Duration::from_micros(at),
            bytes: had.clone(),
        }
    };
    times.into_iter().map(at).collect()
}

/// Returns the indices of all links' paths, link by link.
fn paths(links: &[LoadedLink]) -> impl Iterator<Item = usize> {
    links.iter().flat_map(|link| link.paths.iter().copied())
}

impl Track {
    /// Adds a sample that arrived at `heard_us` of the client's clock. The sample with the shortest
    /// delay sets the clock offset.
    pub(crate) fn push(&mut self, sample: BenchSample, heard_us: u64) {
        let offset = i64::try_from(heard_us)
            .unwrap_or(i64::MAX)
            .saturating_sub(i64::try_from(sample.at_us).unwrap_or(i64::MAX));
        self.offset = if self.samples.is_empty() {
            offset
        } else {
            self.offset.min(offset)
        };
        // Drop a sample that goes back in time.
        if self
            .samples
            .last()
            .is_none_or(|last| last.at_us < sample.at_us)
        {
            self.samples.push(sample);
        }
    }

    fn at(&self, index: usize) -> u64 {
        self.samples
            .get(index)
            .map_or(0, |sample| sample.at_us.saturating_add_signed(self.offset))
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn times(&self) -> impl DoubleEndedIterator<Item = u64> {
        (0..self.len()).map(|index| self.at(index))
    }

    /// Returns the value of a counter at time `at` (µs on the client's clock), interpolated between
    /// samples; `None` if the samples lack it.
    fn value(&self, at: u64, counter: impl Fn(&BenchSample) -> Option<u64>) -> Option<u64> {
        let after = self
            .samples
            .partition_point(|sample| sample.at_us.saturating_add_signed(self.offset) < at);
        if after == 0 || after == self.len() {
            return counter(if after == 0 {
                self.samples.first()?
            } else {
                self.samples.last()?
            });
        }
        let (t0, t1) = (self.at(after - 1), self.at(after));
        let (v0, v1) = (
            counter(self.samples.get(after - 1)?)?,
            counter(self.samples.get(after)?)?,
        );
        let part = (at - t0) as f64 / (t1 - t0).max(1) as f64;
        Some(v0 + (v1.saturating_sub(v0) as f64 * part).round() as u64)
    }

    /// Returns the bytes received on a path by time `at`, in µs on the client's clock.
    fn received(&self, at: u64, path: usize) -> u64 {
        self.value(at, |sample| Some(sample.paths.get(path)?.received))
            .unwrap_or(0)
    }

    /// Returns the largest number of transfers at this end in any sample of the load, if reported.
    pub(crate) fn transfers(&self) -> Option<u32> {
        self.samples
            .iter()
            .filter_map(|sample| sample.transfers)
            .max()
    }

    /// Returns the increase of a counter in a window. If the counter fell because of a
    /// reconnection, returns its value at the end.
    fn rise(&self, window: &Span, counter: impl Fn(&BenchSample) -> Option<u64>) -> Option<u64> {
        let (from, to) = (
            self.value(window.begin_us(), &counter)?,
            self.value(window.end_us(), &counter)?,
        );
        Some(to.checked_sub(from).unwrap_or(to))
    }

    fn tcp_rise(
        &self,
        window: &Span,
        path: usize,
        counter: impl Fn(&TcpSample) -> Option<u64>,
    ) -> Option<u64> {
        self.rise(window, |sample| {
            counter(sample.paths.get(path)?.tcp.as_ref()?)
        })
    }

    fn tcp_at(
        &self,
        at: u64,
        path: usize,
        value: impl Fn(&TcpSample) -> Option<u64>,
    ) -> Option<u64> {
        self.value(at, |sample| value(sample.paths.get(path)?.tcp.as_ref()?))
    }

    /// Returns the sampled values of a path's TCP gauge in a window.
    fn gauges(
        &self,
        window: &Span,
        path: usize,
        value: impl Fn(&TcpSample) -> Option<u64>,
    ) -> Vec<u64> {
        let within =
            |index: &usize| (window.begin_us()..=window.end_us()).contains(&self.at(*index));
        let indices = (0..self.len()).filter(within);
        indices
            .filter_map(|index| value(self.samples.get(index)?.paths.get(path)?.tcp.as_ref()?))
            .collect()
    }

    pub(crate) fn cpu(&self, window: &Span) -> Option<CpuUse> {
        let rise = |counter: fn(&nicstripe_proto::message::CpuSample) -> Option<u64>| {
            self.rise(window, |sample| counter(sample.cpu.as_ref()?))
        };
        let cores = self.samples.first()?.cpu.as_ref()?.cores_us.len();
        let busiest = (0..cores)
            .filter_map(|core| {
                self.rise(window, |sample| {
                    sample.cpu.as_ref()?.cores_us.get(core).copied()
                })
            })
            .max();
        Some(CpuUse {
            user_us: rise(|cpu| Some(cpu.user_us))?,
            system_us: rise(|cpu| Some(cpu.system_us))?,
            softirq_us: rise(|cpu| Some(cpu.softirq_us))?,
            process_us: rise(|cpu| Some(cpu.process_us))?,
            worst_core_pct: busiest
                .map(|busy| (busy as f64 / window.micros().max(1) as f64 * 100.0).min(100.0)),
            throttled_us: rise(|cpu| cpu.throttled_us),
        })
    }
}

impl Loading<'_> {
    /// Returns the interval between the receiver's last two samples, with the bytes received by
    /// each link.
    pub(crate) fn last_interval(&self, links: &[LoadedLink]) -> Option<Interval> {
        let before = self.receiver.len().checked_sub(2)?;
        let both = [before, before + 1].map(|index| self.receiver.at(index));
        let at = |at: u64| Snapshot {
            at: Duration::from_micros(at),
            bytes: paths(links)
                .map(|path| self.receiver.received(at, path))
                .collect(),
        };
        Some(self.interval(&Span::between(&at(both[0]), &at(both[1])), links))
    }

    pub(crate) fn intervals(&self, links: &[LoadedLink]) -> Vec<Interval> {
        window::intervals(&snapshots(&[*self], links))
            .iter()
            .map(|span| self.interval(span, links))
            .collect()
    }

    fn interval(&self, window: &Span, links: &[LoadedLink]) -> Interval {
        let sender = self.sender;
        let retransmitted: Option<Vec<u64>> = links
            .iter()
            .map(|link| {
                sum(&link.paths, |path| {
                    sender.tcp_rise(window, path, |tcp| tcp.retransmitted)
                })
            })
            .collect();
        let rtt: Option<Vec<u64>> = links
            .iter()
            .map(|link| {
                link.paths
                    .iter()
                    .filter_map(|path| sender.tcp_at(window.end_us(), *path, |tcp| tcp.rtt_us))
                    .max()
            })
            .collect();
        Interval {
            way: self.way,
            t_us: window.begin_us(),
            dt_us: window.micros(),
            bytes: by_link(&window.bytes, links),
            retransmitted_bytes: retransmitted.unwrap_or_default(),
            rtt_us: rtt.unwrap_or_default(),
        }
    }
}

/// Sums the bytes of the paths of each link.
fn by_link(bytes: &[u64], links: &[LoadedLink]) -> Vec<u64> {
    let mut bytes = bytes.iter();
    links
        .iter()
        .map(|link| bytes.by_ref().take(link.paths.len()).sum())
        .collect()
}

fn sum(paths: &[usize], of: impl Fn(usize) -> Option<u64>) -> Option<u64> {
    paths.iter().map(|path| of(*path)).sum()
}

/// Returns the flow of each link and direction in the common window of a load. The flows' bytes add
/// up to those of the window.
pub(crate) fn flows(ways: &[Loading<'_>], span: &Span, links: &[LoadedLink]) -> Vec<Flow> {
    let bytes = span
        .bytes
        .chunks(paths(links).count().max(1))
        .map(|of_way| by_link(of_way, links));
    let of_way = |(loading, bytes): (&Loading<'_>, Vec<u64>)| {
        let flows = links
            .iter()
            .zip(bytes)
            .map(|(link, bytes)| flow(loading, span, link, bytes));
        flows.collect::<Vec<_>>()
    };
    ways.iter().zip(bytes).flat_map(of_way).collect()
}

fn flow(loading: &Loading<'_>, window: &Span, link: &LoadedLink, bytes: u64) -> Flow {
    let (receiver, sender) = (loading.receiver, loading.sender);
    let first = link.paths.first().copied().unwrap_or_default();
    let counted = |track: &Track, of: fn(&PathSample) -> Option<u64>| {
        track.rise(window, |sample| of(sample.paths.get(first)?))
    };
    let tcp = tcp_use(window, sender, &link.paths).map(|tcp| TcpUse {
        send_buffer_bytes: least_buffer(window, sender, &link.paths, |tcp| tcp.send_buffer),
        receive_buffer_bytes: least_buffer(window, receiver, &link.paths, |tcp| tcp.receive_buffer),
        ..tcp
    });
    Flow {
        link: link.id,
        way: loading.way,
        bytes,
        goodput_bps: BitRate::from_bytes_over(bytes, window.length).0,
        interface_sent_bytes: counted(sender, |path| path.interface_sent),
        interface_received_bytes: counted(receiver, |path| path.interface_received),
        // Set later by `conclude`.
        limiter: Limiter::Unknown,
        tcp,
    }
}

/// Returns the smallest socket buffer of the paths in bytes, by the last sample of the window.
fn least_buffer(
    window: &Span,
    track: &Track,
    paths: &[usize],
    of: impl Fn(&TcpSample) -> Option<u64> + Copy,
) -> Option<u64> {
    paths
        .iter()
        .filter_map(|path| track.gauges(window, *path, of).last().copied())
        .min()
}

fn tcp_use(window: &Span, sender: &Track, paths: &[usize]) -> Option<TcpUse> {
    let rise = |counter: fn(&TcpSample) -> Option<u64>| {
        sum(paths, |path| sender.tcp_rise(window, path, counter))
    };
    let mean = |counter: fn(&TcpSample) -> Option<u64>| {
        rise(counter).map(|sum| sum / paths.len().max(1) as u64)
    };
    let gauges = |value: fn(&TcpSample) -> Option<u64>| {
        paths
            .iter()
            .flat_map(|path| sender.gauges(window, *path, value))
            .collect::<Vec<_>>()
    };
    let average = |values: &[u64]| {
        (!values.is_empty()).then(|| values.iter().sum::<u64>() / values.len() as u64)
    };
    let rtts = gauges(|tcp| tcp.rtt_us);
    // Without RTT values there is no connection with TCP_INFO.
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    /// Builds a track from pairs of a time (µs on a clock that is `ahead` µs behind the client's)
    /// and the received bytes per path.
    fn track(ahead: u64, samples: &[(u64, Vec<u64>)]) -> Track {
        let mut track = Track::default();
        for (at_us, received) in samples {
            let paths = received
                .iter()
                .map(|received| PathSample {
                    received: *received,
                    ..PathSample::default()
                })
                .collect();
            track.push(
                BenchSample {
                    run: 1,
                    at_us: *at_us,
                    paths,
                    ..BenchSample::default()
                },
                at_us + ahead,
            );
        }
        track
    }

    /// Builds a track with a sample every half second. Each path has a number of silent samples,
    /// then constant bytes per sample.
    fn steady(paths: &[(u64, u64)], samples: u64) -> Track {
        let at = |index: u64| {
            paths
                .iter()
                .map(|(bytes, silent)| 7 + bytes * index.saturating_sub(*silent))
                .collect()
        };
        track(
            MS,
            &(0..samples)
                .map(|index| (index * 500 * MS, at(index)))
                .collect::<Vec<_>>(),
        )
    }

    fn links(count: usize) -> Vec<LoadedLink> {
        (0..count)
            .map(|index| LoadedLink {
                id: index as u32 + 1,
                paths: vec![index],
            })
            .collect()
    }

    fn micros(range: std::ops::Range<u64>) -> Span {
        Span {
            began: Duration::from_micros(range.start),
            length: Duration::from_micros(range.end - range.start),
            bytes: Vec::new(),
        }
    }

    fn to_daemon<'a>(receiver: &'a Track, sender: &'a Track) -> Loading<'a> {
        Loading {
            way: Direction::ToDaemon,
            receiver,
            sender,
        }
    }

    #[test]
    fn flows_are_those_of_the_common_window_on_our_clock() {
        // The second path begins to send after 1 s and is warm at 2 s.
        let (receiver, sender, links) =
            (steady(&[(100, 0), (50, 2)], 21), Track::default(), links(2));
        let ways = [to_daemon(&receiver, &sender)];
        let span = window::common(&snapshots(&ways, &links), Duration::from_secs(1)).unwrap();
        assert_eq!((span.begin_us(), span.end_us()), (2_001_000, 10_001_000));
        let flows = flows(&ways, &span, &links);
        assert_eq!(
            flows
                .iter()
                .map(|flow| (flow.link, flow.bytes))
                .collect::<Vec<_>>(),
            [(1, 1600), (2, 800)]
        );
        assert_eq!(flows[0].goodput_bps, 1600);
        let intervals = ways[0].intervals(&links);
        assert_eq!(
            (intervals.len(), intervals.last()),
            (20, ways[0].last_interval(&links).as_ref())
        );
        assert_eq!(
            (
                intervals[0].t_us,
                intervals[0].dt_us,
                intervals[0].bytes.clone()
            ),
            (1_000, 500_000, vec![100, 0])
        );
    }

    #[test]
    fn a_link_has_what_its_paths_have() {
        let receiver = steady(&[(100, 0), (50, 0), (7, 0)], 9);
        let links = [(1, vec![0, 1]), (2, vec![2])].map(|(id, paths)| LoadedLink { id, paths });
        let ways = [to_daemon(&receiver, &receiver)];
        let span = window::common(&snapshots(&ways, &links), Duration::ZERO).unwrap();
        assert_eq!(
            flows(&ways, &span, &links)
                .iter()
                .map(|flow| flow.bytes)
                .collect::<Vec<_>>(),
            [8 * 150, 8 * 7]
        );
        assert_eq!(ways[0].intervals(&links)[0].bytes, [150, 7]);
    }

    #[test]
    fn both_ways_have_one_window_in_which_both_were_sampled() {
        let (daemon, client) = (
            steady(&[(100, 0)], 9),
            track(
                301 * MS,
                &[
                    (0, vec![0]),
                    (2000 * MS, vec![2000]),
                    (2900 * MS, vec![2900]),
                ],
            ),
        );
        let (ways, links) = (
            [
                to_daemon(&daemon, &client),
                Loading {
                    way: Direction::ToClient,
                    receiver: &client,
                    sender: &daemon,
                },
            ],
            links(1),
        );
        let snapshots = snapshots(&ways, &links);
        let times: Vec<u128> = snapshots
            .iter()
            .map(|snapshot| snapshot.at.as_millis())
            .collect();
        assert_eq!(times, [301, 501, 1001, 1501, 2001, 2301, 2501, 3001, 3201]);
        let span = window::common(&snapshots, Duration::from_secs(1)).unwrap();
        assert_eq!((span.begin_us(), span.end_us()), (1501 * MS, 3201 * MS));
        let flows = flows(&ways, &span, &links);
        assert_eq!(
            flows
                .iter()
                .map(|flow| (flow.way, flow.bytes))
                .collect::<Vec<_>>(),
            [(Direction::ToDaemon, 340), (Direction::ToClient, 1700)]
        );
        assert_eq!(span.total_bytes(), 340 + 1700);
    }

    #[test]
    fn where_one_way_was_not_sampled_nothing_is_known_of_both() {
        let (daemon, client) = (steady(&[(100, 0)], 9), Track::default());
        let ways = [
            to_daemon(&daemon, &client),
            Loading {
                way: Direction::ToClient,
                receiver: &client,
                sender: &daemon,
            },
        ];
        assert!(snapshots(&ways, &links(1)).is_empty() && ways[1].intervals(&links(1)).is_empty());
        assert_eq!(ways[1].last_interval(&links(1)), None);
    }

    #[test]
    fn a_path_that_is_gone_for_a_while_counts_once() {
        let receiver = track(
            0,
            &[
                (0, vec![0]),
                (500 * MS, vec![300]),
                (1000 * MS, vec![0]),
                (1500 * MS, vec![500]),
            ],
        );
        let bytes: Vec<u64> = snapshots(&[to_daemon(&receiver, &receiver)], &links(1))
            .iter()
            .map(|snapshot| snapshot.bytes[0])
            .collect();
        assert_eq!(bytes, [0, 300, 300, 500]);
    }

    #[test]
    fn a_counter_between_two_samples_is_taken_in_proportion_and_one_set_back_counts_from_there() {
        let track = steady(&[(100, 0)], 3);
        let received = |sample: &BenchSample| Some(sample.paths[0].received);
        assert_eq!(track.rise(&micros(1_000..251_000), received), Some(50));
        assert_eq!(track.rise(&micros(0..9_000_000), received), Some(200));
        let falling = |sample: &BenchSample| Some(if sample.at_us == 0 { 500 } else { 3 });
        assert_eq!(track.rise(&micros(1_000..1_001_000), falling), Some(3));
    }

    #[test]
    fn transfers_of_a_load_are_all_that_its_samples_told_of() {
        let mut track = steady(&[(1, 0)], 2);
        assert_eq!(
            track.transfers(),
            None,
            "an older daemon does not report it"
        );
        track.push(
            BenchSample {
                run: 1,
                at_us: 1000 * MS,
                transfers: Some(2),
                ..BenchSample::default()
            },
            1000 * MS,
        );
        assert_eq!(track.transfers(), Some(2));
    }

    /// Returns the next pseudo-random number below `most` (Knuth's MMIX generator).
    fn number(state: &mut u64, most: u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) % most
    }

    /// Returns a track of three paths with random bytes, sampled at irregular times.
    fn any_track(seed: &mut u64) -> Track {
        let (mut at, mut had, mut samples) = (0, vec![0; 3], Vec::new());
        for _ in 0..2 + number(seed, 40) {
            samples.push((at, had.clone()));
            at += 1 + number(seed, 700 * MS);
            had.iter_mut().for_each(|had| *had += number(seed, 1 << 40));
        }
        track(number(seed, MS), &samples)
    }

    #[test]
    fn the_flows_of_any_window_sum_up_to_it() {
        let links = [(1, vec![0, 2]), (2, vec![1])].map(|(id, paths)| LoadedLink { id, paths });
        for seed in 0..500 {
            let mut state = seed;
            let (daemon, client) = (any_track(&mut state), any_track(&mut state));
            let warm_up = Duration::from_millis(number(&mut state, 3000));
            let ways = [
                to_daemon(&daemon, &client),
                Loading {
                    way: Direction::ToClient,
                    receiver: &client,
                    sender: &daemon,
                },
            ];
            for ways in [&ways[..], &ways[..1], &ways[1..]] {
                if let Some(span) = window::common(&snapshots(ways, &links), warm_up) {
                    let flows = flows(ways, &span, &links);
                    assert_eq!(flows.len(), 2 * ways.len(), "seed {seed}");
                    assert_eq!(
                        flows.iter().map(|flow| flow.bytes).sum::<u64>(),
                        span.total_bytes(),
                        "seed {seed}"
                    );
                }
            }
        }
    }
}
