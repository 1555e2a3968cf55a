use nicstripe_sim::Rng;

use super::*;
use nicstripe_proto::theory::Theory;

const GIGABIT: f64 = 941.5e6;

/// Runs a planner to its end. Returns the points in the order of measurement. A point fails if
/// `measure` returns `None`.
fn run(
    planner: &mut dyn Planner,
    mut measure: impl FnMut(&Point) -> Option<Measured>,
) -> Vec<Point> {
    let mut order = Vec::new();
    while let Some(point) = planner.next() {
        assert!(order.len() < 2000, "it has no end: {point:?}");
        match measure(&point) {
            Some(measured) => planner.record(&point, measured),
            None => planner.fail(&point),
        }
        order.push(point);
    }
    order
}

fn rate(bits_per_second: f64) -> Measured {
    Measured {
        rate: BitRate(bits_per_second as u64),
        elapsed: Duration::from_millis(100),
        ..Measured::default()
    }
}

/// Simulates a message on a gigabit link: it takes `latency` seconds plus the time of its bytes
/// (Hockney's model), scaled by `noise`.
fn message(point: &Point, latency: f64, noise: f64) -> Measured {
    let size = point.size.unwrap() as f64;
    let seconds = (latency + size * 8.0 / GIGABIT) * (1.0 + noise);
    Measured {
        time: Some(Duration::from_secs_f64(seconds)),
        ..rate(size * 8.0 / seconds)
    }
}

fn messages(streaming: Option<f64>) -> MessageSweep {
    let streaming = streaming.map(|rate| BitRate(rate as u64));
    MessageSweep::new(Some(1448), streaming, Duration::from_secs(60))
}

fn noise(rng: &mut Rng) -> f64 {
    rng.below(1 << 32) as f64 / f64::from(1_u32 << 31) - 1.0
}

#[test]
fn messages_go_upwards_in_doublings_and_beside_the_edges_of_segments() {
    let mut planner = messages(None);
    let order = run(&mut planner, |point| Some(message(point, 50e-6, 0.0)));
    let sizes: Vec<u64> = planner
        .outcome()
        .points
        .iter()
        .filter_map(|point| point.size)
        .collect();
    for size in [
        1,
        2,
        1447,
        1448,
        1449,
        2895,
        2896,
        2897,
        5791,
        5792,
        5793,
        65_535,
        65_536,
        65_537,
        1 << 20,
    ] {
        assert!(sizes.contains(&size), "{size}");
    }
    assert!(sizes.is_sorted());
    assert_eq!(order.len(), 3 * sizes.len());
    for point in &order {
        assert_eq!(point.echoes.is_some(), point.size.unwrap() <= 65_536);
    }
    // 84 ms at twice 50 µs.
    assert!(
        order
            .iter()
            .any(|point| matches!(point.echoes, Some(800..850)))
    );
}

#[test]
fn latency_and_half_size_are_those_of_the_model() {
    let mut planner = messages(Some(GIGABIT));
    run(&mut planner, |point| Some(message(point, 50e-6, 0.0)));
    let found = planner.outcome();
    assert_eq!(planner.stopped(), Stopped::Plateau);
    assert!(
        (50.0..51.0).contains(&found.latency_us.unwrap()),
        "{found:?}"
    );
    // Hockney: n½ = t₀ × r∞ = 5884 bytes.
    assert!(
        (5500..6300).contains(&found.half_size_bytes.unwrap()),
        "{:?}",
        found.half_size_bytes
    );
    // 98 % of it are reached at 49 × n½ = 288 KB; 98 % of the best measured one at less.
    assert!(
        matches!(found.plateau, Some(262_144 | 524_288)),
        "{:?}",
        found.plateau
    );
    assert!(found.points.iter().all(|point| !point.dropout));
    assert!(
        found.advice.contains("a short message takes 50.")
            && found.advice.contains("half the full rate"),
        "{}",
        found.advice
    );
}

#[test]
fn a_flat_curve_far_below_what_the_link_streams_is_no_end() {
    let stuck = |point: &Point| {
        Some(rate(if point.size.unwrap() < 1 << 22 {
            100e6
        } else {
            GIGABIT
        }))
    };
    let mut planner = messages(Some(GIGABIT));
    run(&mut planner, stuck);
    let found = planner.outcome();
    assert_eq!(
        (planner.stopped(), found.points.last().unwrap().size),
        (Stopped::Plateau, Some(1 << 25))
    );
}

#[test]
fn a_sweep_of_messages_ends_when_one_takes_a_second_or_the_time_is_up() {
    let mut planner = messages(None);
    let order = run(&mut planner, |point| {
        Some(Measured {
            time: Some(Duration::from_secs_f64(point.size.unwrap() as f64 / 1e5)),
            ..rate(8e5)
        })
    });
    // Flat from the first size on, but below the streaming rate; here the best rate equals it.
    assert_eq!((planner.stopped(), order.len()), (Stopped::Plateau, 12));
    let mut planner = messages(Some(GIGABIT));
    run(&mut planner, |point| {
        Some(Measured {
            time: Some(Duration::from_secs_f64(point.size.unwrap() as f64 / 1e5)),
            ..rate(8e5)
        })
    });
    let found = planner.outcome();
    assert_eq!(
        (planner.stopped(), found.points.last().unwrap().size),
        (Stopped::SlowMessage, Some(131_072))
    );
    let mut planner = messages(None);
    let order = run(&mut planner, |point| {
        Some(Measured {
            elapsed: Duration::from_secs(7),
            ..message(point, 1e-3, 0.0)
        })
    });
    assert_eq!((planner.stopped(), order.len()), (Stopped::Budget, 9));
}

#[test]
fn a_dropout_is_measured_again_twice_before_it_is_believed() {
    let mut planner = messages(Some(GIGABIT));
    let slow = |point: &Point| if point.size == Some(1449) { 60e-6 } else { 0.0 };
    let order = run(&mut planner, |point| {
        Some(message(point, 50e-6 + slow(point), 0.0))
    });
    assert_eq!(
        order
            .iter()
            .filter(|point| point.size == Some(1449))
            .count(),
        9
    );
    let found = planner.outcome();
    let dropouts: Vec<_> = found
        .points
        .iter()
        .filter(|point| point.dropout)
        .map(|point| point.size)
        .collect();
    assert_eq!(dropouts, [Some(1449)]);
    assert!(found.advice.contains("1 of"), "{}", found.advice);
}

#[test]
fn a_disturbance_that_does_not_come_again_is_no_dropout() {
    let mut planner = messages(Some(GIGABIT));
    let mut seen = 0;
    run(&mut planner, |point| {
        seen += u32::from(point.size == Some(4096));
        let late = if point.size == Some(4096) && seen <= 4 {
            1e-3
        } else {
            0.0
        };
        Some(message(point, 50e-6 + late, 0.0))
    });
    let found = planner.outcome();
    assert!(found.points.iter().all(|point| !point.dropout));
    assert!(
        found
            .points
            .windows(2)
            .all(|pair| pair[1].rate.median_bps > pair[0].rate.median_bps),
        "the disturbed repeats do not count"
    );
}

#[test]
fn a_curve_that_falls_and_stays_is_no_dropout() {
    let mut planner = messages(Some(GIGABIT));
    run(&mut planner, |point| {
        Some(rate(if point.size.unwrap() > 65_536 {
            700e6
        } else {
            (point.size.unwrap() * 14_000) as f64
        }))
    });
    assert!(planner.outcome().points.iter().all(|point| !point.dropout));
}

#[test]
fn curves_with_noise_are_monotone_but_for_what_is_marked() {
    for seed in 0..100 {
        let (mut planner, mut rng) = (messages(Some(GIGABIT)), Rng::new(seed));
        run(&mut planner, |point| {
            Some(message(point, 50e-6, 0.02 * noise(&mut rng)))
        });
        let found = planner.outcome();
        let good: Vec<f64> = found
            .points
            .iter()
            .filter(|point| !point.dropout)
            .map(|point| point.rate.median_bps as f64)
            .collect();
        assert!(
            good.windows(2).all(|pair| pair[1] > 0.9 * pair[0]),
            "seed {seed}"
        );
        assert!(
            (5000..7000).contains(&found.half_size_bytes.unwrap()),
            "seed {seed}"
        );
    }
}

#[test]
fn larger_messages_that_fail_leave_what_was_measured() {
    let mut planner = messages(None);
    run(&mut planner, |point| {
        (point.size.unwrap() < 100).then(|| message(point, 50e-6, 0.0))
    });
    let found = planner.outcome();
    assert_eq!(
        (planner.stopped(), found.points.len(), found.plateau),
        (Stopped::Failed, 7, None)
    );
    assert_eq!(messages(None).outcome().advice, "nothing was measured");
}

/// Simulates a gigabit link with this RTT in seconds and a window of the requested buffer size;
/// `kernel` is the rate with auto-tuning.
fn buffered(point: &Point, round_trip: f64, kernel: f64) -> Measured {
    let windowed = point
        .size
        .map_or(kernel, |size| (size as f64 * 8.0 / round_trip).min(GIGABIT));
    Measured {
        got_bytes: point.size.map(|size| 2 * size),
        ..rate(windowed)
    }
}

#[test]
fn the_plateau_of_buffers_at_10_ms_is_within_one_doubling_of_bandwidth_times_delay() {
    let bdp = 1_176_875;
    let mut planner = BufferSweep::new(Some(bdp));
    let order = run(&mut planner, |point| Some(buffered(point, 0.01, GIGABIT)));
    let found = planner.outcome();
    assert_eq!(
        (planner.stopped(), found.plateau),
        (Stopped::Plateau, Some(2 << 20))
    );
    assert!(found.plateau.unwrap() <= 2 * bdp && found.bdp_bytes == Some(bdp));
    assert_eq!(
        found.points.last().unwrap().size,
        Some(8 << 20),
        "two doublings beyond"
    );
    assert!(
        found.advice.starts_with("leave the buffers to the kernel"),
        "{}",
        found.advice
    );
    let first: Vec<Option<u64>> = order[..5].iter().map(|point| point.size).collect();
    assert_eq!(
        first,
        [
            Some(16 << 10),
            None,
            Some(16 << 10),
            Some(16 << 10),
            Some(32 << 10)
        ]
    );
    assert_eq!(
        order.iter().filter(|point| point.size.is_none()).count(),
        found.points.len() - 1
    );
}

#[test]
fn buffers_with_noise_have_the_same_plateau_within_a_doubling() {
    for seed in 0..100 {
        let (mut planner, mut rng) = ((BufferSweep::new(Some(1_176_875))), Rng::new(seed));
        run(&mut planner, |point| {
            let measured = buffered(point, 0.01, GIGABIT);
            Some(Measured {
                rate: BitRate((measured.rate.0 as f64 * (1.0 + 0.02 * noise(&mut rng))) as u64),
                ..measured
            })
        });
        let found = planner.outcome();
        assert!(
            matches!(found.plateau, Some(size) if (1 << 20..=2 << 20).contains(&size)),
            "seed {seed}: {:?}",
            found.plateau
        );
        assert!(
            found.advice.starts_with("leave"),
            "seed {seed}: {}",
            found.advice
        );
    }
}

#[test]
fn a_fixed_buffer_is_advised_only_when_it_wins_again() {
    let kernel = |point: &Point| buffered(point, 0.01, 600e6);
    let mut planner = BufferSweep::new(Some(1_176_875));
    let order = run(&mut planner, |point| Some(kernel(point)));
    let last: Vec<Option<u64>> = order[order.len() - 4..]
        .iter()
        .map(|point| point.size)
        .collect();
    assert_eq!(last, [Some(2 << 20), None, None, Some(2 << 20)], "ABBA");
    assert_eq!(
        planner.outcome().advice,
        "buffers of 2 MiB are 56.9 % faster than the kernel's own"
    );
    // The kernel does better in the second comparison.
    let mut planner = BufferSweep::new(Some(1_176_875));
    let mut kernels = 0;
    run(&mut planner, |point| {
        kernels += u32::from(point.size.is_none());
        Some(buffered(
            point,
            0.01,
            if kernels <= 10 { 600e6 } else { GIGABIT },
        ))
    });
    assert!(
        planner.outcome().advice.starts_with("leave"),
        "{}",
        planner.outcome().advice
    );
}

#[test]
fn a_kernel_that_gives_no_more_ends_the_sweep() {
    let mut planner = BufferSweep::new(Some(1_176_875));
    run(&mut planner, |point| {
        let clamped = Point {
            size: point.size.map(|size| size.min(212_992)),
            ..point.clone()
        };
        Some(buffered(&clamped, 0.01, GIGABIT))
    });
    let found = planner.outcome();
    assert_eq!(
        (planner.stopped(), found.points.last().unwrap().size),
        (Stopped::Clamped, Some(512 << 10))
    );
    assert_eq!(found.points.last().unwrap().got_bytes, Some(425_984));
}

#[test]
fn buffers_on_a_cable_are_left_to_the_kernel_and_ones_that_still_help_have_no_plateau() {
    let mut planner = BufferSweep::new(Some(12_500));
    run(&mut planner, |point| Some(buffered(point, 1e-4, GIGABIT)));
    assert_eq!(planner.outcome().plateau, Some(16 << 10));
    let mut planner = BufferSweep::new(None);
    run(&mut planner, |point| Some(buffered(point, 1.0, GIGABIT)));
    let found = planner.outcome();
    assert_eq!((planner.stopped(), found.plateau), (Stopped::Done, None));
    assert_eq!(found.advice, "the rate still rises at 64 MiB");
}

#[test]
fn streams_are_added_until_they_bring_nothing_or_are_unfair() {
    let mut planner = StreamSweep::default();
    let order = run(&mut planner, |point| {
        Some(rate(
            (300e6 * f64::from(point.streams.unwrap())).min(GIGABIT),
        ))
    });
    let found = planner.outcome();
    assert_eq!(
        (planner.stopped(), found.plateau, order.len()),
        (Stopped::Plateau, Some(4), 12)
    );
    assert_eq!(
        found.advice,
        "4 connections per link carry 213.8 % more than one"
    );
    let mut planner = StreamSweep::default();
    let order = run(&mut planner, |_| Some(rate(GIGABIT)));
    assert_eq!(
        (planner.stopped(), planner.outcome().plateau, order.len()),
        (Stopped::Plateau, Some(1), 6)
    );
    let mut planner = StreamSweep::default();
    let unfair = |point: &Point| if point.streams.unwrap() > 2 { 0.7 } else { 1.0 };
    run(&mut planner, |point| {
        Some(Measured {
            fairness: Some(unfair(point)),
            ..rate(f64::from(point.streams.unwrap()) * 1e8)
        })
    });
    assert_eq!(
        (planner.stopped(), planner.outcome().plateau),
        (Stopped::Unfair, Some(2))
    );
}

#[test]
fn a_grid_is_measured_three_times_and_gives_its_best_tenth() {
    let mut planner = GridSweep::new(64 << 20);
    let grid = |point: &Point| {
        (point.size.unwrap() as f64 * 8.0 / 0.01 * f64::from(point.streams.unwrap())).min(GIGABIT)
    };
    let order = run(&mut planner, |point| Some(rate(grid(point))));
    let found = planner.outcome();
    assert_eq!(planner.stopped(), Stopped::Done);
    assert_eq!(order.len(), 3 * found.points.len());
    assert!(found.points.iter().all(|point| point.rate.n == 3));
    assert_eq!(found.top_decile_bps, Some(GIGABIT as u64));
    // 4 MiB alone, or 256 KiB with 8 connections: the smaller buffer is preferred.
    assert_eq!(found.plateau, Some(256 << 10));
    // 64 KiB, 256 KiB, 1, 4, 16 and 64 MiB with one connection; with 8 the plateau begins at 256
    // KiB and ends the column at 4 MiB.
    assert_eq!(
        found
            .points
            .iter()
            .filter(|point| point.streams == Some(1))
            .count(),
        6
    );
    assert_eq!(
        found
            .points
            .iter()
            .filter(|point| point.streams == Some(8))
            .count(),
        4
    );
}

#[test]
fn a_grid_goes_on_with_other_connections_after_one_failure_and_ends_with_the_second() {
    let mut planner = GridSweep::new(1 << 20);
    run(&mut planner, |point| {
        (point.size != Some(1 << 20)).then(|| rate(1e8))
    });
    let found = planner.outcome();
    assert_eq!(
        (planner.stopped(), found.points.len()),
        (Stopped::Failed, 4)
    );
}

#[test]
fn packets_are_swept_in_turns_up_to_what_the_ends_have() {
    let theory = Theory::usual(BitRate::from_gbit(1), 9000);
    let carries = |point: &Point| {
        Theory {
            mtu: point.size.unwrap() as u32,
            ..theory
        }
        .goodput()
    };
    let mut planner = MtuSweep::new(theory, true);
    let order = run(&mut planner, |point| {
        Some(Measured {
            rate: carries(point),
            ..Measured::default()
        })
    });
    let sizes: Vec<u64> = order.iter().filter_map(|point| point.size).collect();
    assert_eq!(
        sizes,
        [1500, 4000, 9000, 1500, 4000, 9000, 1500, 4000, 9000]
    );
    let found = planner.outcome();
    assert_eq!(
        found.advice,
        "the MTU of 9000 carries 5.2 % more than one of 1500"
    );
    assert!(found.points.iter().all(|point| !point.computed));
    // Measured and computed points are equal here.
    let theory = Theory {
        mtu: 1500,
        ..theory
    };
    for may_set in [false, true] {
        let mut computed = MtuSweep::new(theory, may_set);
        let order = run(&mut computed, |point| {
            Some(Measured {
                rate: carries(point),
                ..Measured::default()
            })
        });
        assert_eq!(order.len(), 3, "larger sizes are skipped");
        let computed = computed.outcome();
        assert_eq!(
            computed
                .points
                .iter()
                .map(|point| point.computed)
                .collect::<Vec<_>>(),
            [false, true, true]
        );
        for (a, b) in found.points.iter().zip(&computed.points) {
            assert!(
                a.rate.median_bps.abs_diff(b.rate.median_bps) <= 2,
                "{a:?} {b:?}"
            );
        }
        assert!(
            computed.advice.starts_with(
                "an MTU of 9000 would carry 5.2 % more: computed, as it is not set at both ends"
            ),
            "{}",
            computed.advice
        );
    }
}

#[test]
fn smaller_packets_are_measured_with_the_right_and_computed_without() {
    let theory = Theory::usual(BitRate::from_gbit(1), 4000);
    for (may_set, expected) in [(true, [false, false, true]), (false, [true, false, true])] {
        let mut planner = MtuSweep::new(theory, may_set);
        run(&mut planner, |_| Some(rate(941e6)));
        let found = planner.outcome();
        assert_eq!(
            found
                .points
                .iter()
                .map(|point| point.computed)
                .collect::<Vec<_>>(),
            expected
        );
        assert_eq!(
            found
                .points
                .iter()
                .map(|point| point.size)
                .collect::<Vec<_>>(),
            [Some(1500), Some(4000), Some(9000)]
        );
    }
}

#[test]
fn packets_that_vanish_are_left_out_and_told() {
    let theory = Theory::usual(BitRate::from_gbit(1), 9000);
    let mut planner = MtuSweep::new(theory, true);
    run(&mut planner, |point| {
        (point.size != Some(4000)).then(|| rate(941e6))
    });
    let found = planner.outcome();
    assert_eq!((found.points.len(), planner.stopped()), (2, Stopped::Done));
    assert_eq!(
        found.advice,
        "no other MTU is faster than 9000; packets of 4000 bytes are dropped"
    );
}

fn one_of_each() -> [Box<dyn Planner>; 5] {
    let theory = Theory::usual(BitRate::from_gbit(1), 9000);
    [
        Box::new(messages(None)),
        Box::new(BufferSweep::new(None)),
        Box::new(StreamSweep::default()),
        Box::new(GridSweep::new(1 << 20)),
        Box::new(MtuSweep::new(theory, true)),
    ]
}

#[test]
fn whatever_is_measured_or_fails_a_sweep_has_an_end() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        for mut planner in one_of_each() {
            let order = run(planner.as_mut(), |_| {
                let any = |rng: &mut Rng| rng.below(1 << 40);
                let measured = Measured {
                    rate: BitRate(any(&mut rng) * rng.below(2)),
                    elapsed: Duration::from_millis(rng.below(1000)),
                    time: (rng.below(2) == 0).then(|| Duration::from_nanos(any(&mut rng) / 2048)),
                    cpu_seconds_per_gbit: (rng.below(2) == 0).then(|| rng.below(10) as f64),
                    got_bytes: (rng.below(2) == 0).then(|| any(&mut rng)),
                    fairness: (rng.below(2) == 0).then(|| rng.below(2) as f64),
                };
                (rng.below(40) > 0).then_some(measured)
            });
            let found = planner.outcome();
            assert!(
                order.len() < 250
                    && planner.stopped() != Stopped::Early
                    && !found.advice.is_empty(),
                "seed {seed}: {found:?}"
            );
            assert!(
                found
                    .points
                    .iter()
                    .map(|point| (point.size, point.streams))
                    .is_sorted(),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn a_sweep_that_is_interrupted_has_an_outcome() {
    for mut planner in one_of_each() {
        for measured in 0..4 {
            let found = planner.outcome();
            assert_eq!(
                (planner.stopped(), found.points.is_empty()),
                (Stopped::Early, measured == 0)
            );
            let point = planner.next().unwrap();
            assert_eq!(
                planner.next().as_ref(),
                Some(&point),
                "asking changes nothing"
            );
            planner.record(&point, rate(1e8 * f64::from(measured + 1)));
        }
    }
}

#[test]
fn a_sweep_of_connections_has_them_as_its_sizes() {
    let mut planner = StreamSweep::default();
    while let Some(point) = planner.next() {
        let rate = BitRate::from_mbit(if point.streams == Some(1) { 400 } else { 940 });
        let elapsed = Duration::from_secs(2);
        planner.record(
            &point,
            Measured {
                rate,
                elapsed,
                time: Some(elapsed),
                ..Measured::default()
            },
        );
    }
    let found = planner.outcome();
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
