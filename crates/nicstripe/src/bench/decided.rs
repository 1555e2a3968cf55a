//! Conversions of `nicstripe_proto::bench` results to structs of the report.

use nicstripe_bench::{compare, limiter, repeat, statistics, sweep};
use nicstripe_proto::{
    BitRate,
    theory::{IpVersion, Theory},
};

use super::report::{
    Limiter, Phase, RoundTrips, Spread, Sweep, SweepKind, SweepPoint, TheoryInputs, Verdict,
};

impl From<statistics::Spread> for Spread {
    fn from(spread: statistics::Spread) -> Spread {
        Spread {
            median_bps: spread.median.0,
            min_bps: spread.min.0,
            max_bps: spread.max.0,
            n: spread.n,
            stable: spread.stable,
        }
    }
}

/// Returns the median and range of rates in bit/s; `None` if `rates` is empty.
pub(super) fn spread(rates: Vec<u64>) -> Option<Spread> {
    let rates: Vec<BitRate> = rates.into_iter().map(BitRate).collect();
    statistics::Spread::of(&rates).map(Spread::from)
}

impl From<limiter::Limiter> for Limiter {
    fn from(limiter: limiter::Limiter) -> Limiter {
        match limiter {
            limiter::Limiter::Cable => Limiter::Cable,
            limiter::Limiter::Sender => Limiter::Sender,
            limiter::Limiter::Receiver => Limiter::Receiver,
            limiter::Limiter::ReceiveBuffer => Limiter::ReceiveBuffer,
            limiter::Limiter::SendBuffer => Limiter::SendBuffer,
            limiter::Limiter::Cpu => Limiter::Cpu,
            limiter::Limiter::Loss => Limiter::Loss,
            limiter::Limiter::Shared => Limiter::Shared,
            limiter::Limiter::Window => Limiter::Window,
            limiter::Limiter::Unknown => Limiter::Unknown,
        }
    }
}

impl From<repeat::Phase> for Phase {
    fn from(phase: repeat::Phase) -> Phase {
        match phase {
            repeat::Phase::Idle => Phase::Idle,
            repeat::Phase::Solo => Phase::Solo,
            repeat::Phase::Together => Phase::Together,
            repeat::Phase::Reverse => Phase::Reverse,
            repeat::Phase::Both => Phase::Both,
            repeat::Phase::Pair => Phase::Pair,
        }
    }
}

impl From<Phase> for repeat::Phase {
    fn from(phase: Phase) -> repeat::Phase {
        match phase {
            Phase::Idle => repeat::Phase::Idle,
            Phase::Solo => repeat::Phase::Solo,
            Phase::Together => repeat::Phase::Together,
            Phase::Reverse => repeat::Phase::Reverse,
            Phase::Both => repeat::Phase::Both,
            Phase::Pair => repeat::Phase::Pair,
        }
    }
}

impl From<compare::Verdict> for Verdict {
    fn from(verdict: compare::Verdict) -> Verdict {
        match verdict {
            compare::Verdict::Same => Verdict::Same,
            compare::Verdict::Better => Verdict::Better,
            compare::Verdict::Regression => Verdict::Regression,
        }
    }
}

impl From<TheoryInputs> for Theory {
    fn from(inputs: TheoryInputs) -> Theory {
        let TheoryInputs {
            line_bps,
            mtu,
            ip,
            timestamps,
            vlan_tags,
        } = inputs;
        Theory {
            line: BitRate(line_bps),
            mtu,
            ip: if ip == 6 {
                IpVersion::V6
            } else {
                IpVersion::V4
            },
            timestamps,
            vlan_tags,
        }
    }
}

impl RoundTrips {
    /// Returns the statistics of round-trip times in microseconds; `None` if `micros` is empty.
    pub fn of(micros: &[f64]) -> Option<RoundTrips> {
        let found = statistics::Distribution::of(micros)?;
        Some(RoundTrips {
            count: found.count,
            min_us: found.min,
            avg_us: found.mean,
            max_us: found.max,
            std_us: found.std,
            p50_us: found.p50,
            p99_us: found.p99,
        })
    }
}

impl Sweep {
    /// Returns the report section of a sweep over this link, or over all links if `None`.
    pub fn of(kind: SweepKind, link: Option<u32>, outcome: sweep::Outcome) -> Sweep {
        Sweep {
            kind,
            link,
            points: outcome.points.into_iter().map(SweepPoint::from).collect(),
            plateau: outcome.plateau,
            bdp_bytes: outcome.bdp_bytes,
            latency_us: outcome.latency.map(|time| time.as_secs_f64() * 1e6),
            half_size_bytes: outcome.half_size,
            top_decile_bps: outcome.top_decile.map(|rate| rate.0),
            advice: outcome.advice,
            stopped: outcome.stopped.to_string(),
        }
    }
}

impl From<sweep::PointResult> for SweepPoint {
    fn from(point: sweep::PointResult) -> SweepPoint {
        SweepPoint {
            // `size` holds the swept value: the connections of a stream sweep. With a buffer,
            // connections are the second dimension.
            size: point.size.or(point.streams.map(u64::from)),
            streams: point.streams.filter(|_| point.size.is_some()),
            rate: point.rate.into(),
            time_us: point.time.map(|time| time.as_secs_f64() * 1e6),
            cpu_s_per_gbit: point.cpu_seconds_per_gbit,
            got_bytes: point.got_bytes,
            dropout: point.dropout,
            computed: point.computed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nicstripe_bench::sweep::StreamSweep;
    use nicstripe_proto::BitRate;

    use super::*;

    #[test]
    fn a_sweep_of_connections_has_them_as_its_sizes() {
        let mut planner = sweep::Planner::Streams(StreamSweep::new());
        while let Some(point) = planner.next() {
            let rate = BitRate::from_mbit(if point.streams == Some(1) { 400 } else { 940 });
            let elapsed = Duration::from_secs(2);
            planner.record(
                &point,
                sweep::Measured {
                    rate,
                    elapsed,
                    time: Some(elapsed),
                    ..sweep::Measured::default()
                },
            );
        }
        let found = Sweep::of(SweepKind::Streams, Some(1), planner.outcome());
        let points: Vec<_> = found
            .points
            .iter()
            .map(|point| {
                (
                    point.size,
                    point.streams,
                    point.rate.median_bps,
                    point.time_us,
                )
            })
            .collect();
        assert_eq!(
            points[..2],
            [
                (Some(1), None, 400_000_000, Some(2e6)),
                (Some(2), None, 940_000_000, Some(2e6))
            ]
        );
        assert_eq!(
            (found.plateau, found.stopped.as_str()),
            (Some(2), "the rate does not rise any more")
        );
    }

    #[test]
    fn round_trips_are_told_as_ping_tells_them() {
        let found = RoundTrips::of(&[40.0, 60.0, 50.0, 50.0]).unwrap();
        assert_eq!(
            (
                found.count,
                found.min_us,
                found.avg_us,
                found.max_us,
                found.p50_us
            ),
            (4, 40.0, 50.0, 60.0, 50.0)
        );
        assert_eq!(RoundTrips::of(&[]), None);
    }

    #[test]
    fn phases_go_to_proto_and_back() {
        for phase in [
            Phase::Idle,
            Phase::Solo,
            Phase::Together,
            Phase::Reverse,
            Phase::Both,
            Phase::Pair,
        ] {
            assert_eq!(Phase::from(repeat::Phase::from(phase)), phase);
        }
    }
}
