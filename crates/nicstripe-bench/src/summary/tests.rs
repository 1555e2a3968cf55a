use super::*;
use crate::{
    fixture::{
        THEORY, WINDOW_US, concluded, flow, flow_with, link, link_of_unknown_rate, report, run,
        runs,
    },
    report::{Flow, Interval},
};

fn near(found: Option<f64>, expected: f64) {
    assert!(
        found.is_some_and(|found| (found - expected).abs() < 0.006),
        "{found:?} is not {expected}"
    );
}

fn two() -> Vec<BenchLink> {
    vec![link(1), link(2)]
}

/// Returns a report of two links that carry 940 Mbit/s each alone, and these flows together.
fn beside(together: &[Flow]) -> BenchReport {
    concluded(two(), runs(&[flow(1, 940.0), flow(2, 940.0)], together))
}

fn link_limiters(summary: &Summary) -> Vec<Option<Limiter>> {
    summary.links.iter().map(|link| link.limiter).collect()
}

#[test]
fn two_good_cables_carry_all_they_can() {
    let report = beside(&[flow(1, 940.5), flow(2, 941.0)]);
    let found = &report.summary;
    near(found.scaling, 1.0);
    near(found.efficiency, 0.999);
    near(found.fairness, 1.0);
    near(found.tcp_efficiency_pct, 100.0);
    near(found.transfer_time_ratio, 1.0);
    // 2300 µs of 40.
    near(found.buffer_delay_pct, 5650.0);
    assert_eq!(
        (found.theory_bps, found.limiter),
        (Some(2 * THEORY), Some(Limiter::Cable))
    );
    assert_eq!(
        found.sentence,
        "2 links carry 1.88 Gbit/s from hostA to hostB, 99.9 % of theory, limited by the cables, at their full rate"
    );
    assert_eq!(link_limiters(found), [Some(Limiter::Cable); 2]);
    assert!(
        report
            .runs
            .iter()
            .flat_map(|run| &run.flows)
            .all(|flow| flow.limiter == Limiter::Cable)
    );
    let spread = found.together.unwrap();
    assert_eq!(
        (spread.median_bps, spread.n, spread.stable),
        (1_881_500_000, 6, true)
    );
}

#[test]
fn copies_that_ran_meanwhile_are_told() {
    let mut measured = runs(&[flow(1, 940.0)], &[flow(1, 800.0)]);
    let of_together = |measured: &mut Vec<Run>, count: usize| {
        measured
            .iter_mut()
            .filter(|run| run.phase == Phase::Together)
            .take(count)
            .for_each(|run| run.other_transfers = Some(3));
    };
    let sentence = |measured: &[Run]| concluded(vec![link(1)], measured.to_vec()).summary.sentence;
    assert!(
        !sentence(&measured).contains("cop"),
        "{}",
        sentence(&measured)
    );
    of_together(&mut measured, 2);
    assert!(
        sentence(&measured)
            .ends_with("; concurrent copies on hostB used part of the capacity in 2 of 6 loads"),
        "{}",
        sentence(&measured)
    );
    let mut once = vec![run(Phase::Together, 1, vec![flow(1, 800.0)])];
    of_together(&mut once, 1);
    assert!(
        sentence(&once)
            .ends_with("; measured once; a concurrent copy on hostB used part of the capacity"),
        "{}",
        sentence(&once)
    );
    once[0].other_transfers = None;
    assert!(
        sentence(&once).ends_with("; measured once"),
        "an older daemon does not report it"
    );
}

#[test]
fn a_shared_bus_is_named_with_both_links_and_scales_to_0_61() {
    let report = beside(&[flow(1, 657.0), flow(2, 489.0)]);
    let found = &report.summary;
    near(found.scaling, 0.61);
    near(found.efficiency, 0.609);
    near(found.fairness, 0.979);
    near(found.transfer_time_ratio, 1.64);
    assert_eq!(
        (found.limiter, link_limiters(found)),
        (Some(Limiter::Shared), vec![Some(Limiter::Shared); 2])
    );
    assert_eq!(
        found.sentence,
        "2 links carry 1.15 Gbit/s from hostA to hostB, 60.9 % of theory, limited by a resource shared by eth0 and eth1, such as a bus, card or switch: each alone is faster"
    );
    let alone = report
        .runs
        .iter()
        .filter(|run| run.phase == Phase::Solo)
        .flat_map(|run| &run.flows);
    assert!(alone.into_iter().all(|flow| flow.limiter == Limiter::Cable));
}

#[test]
fn pairs_tell_two_buses_apart() {
    let four: Vec<BenchLink> = (1..=4).map(link).collect();
    let alone: Vec<Flow> = (1..=4).map(|id| flow(id, 940.0)).collect();
    let mut measured = runs(
        &alone,
        &[
            flow(1, 600.0),
            flow(2, 600.0),
            flow(3, 500.0),
            flow(4, 500.0),
        ],
    );
    for (one, other, mbit) in [
        (1, 2, 600.0),
        (1, 3, 940.0),
        (1, 4, 940.0),
        (2, 3, 940.0),
        (2, 4, 940.0),
        (3, 4, 500.0),
    ] {
        measured.push(run(
            Phase::Pair,
            1,
            vec![flow(one, mbit), flow(other, mbit)],
        ));
    }
    let found = concluded(four, measured).summary;
    assert!(
        found
            .sentence
            .contains("a resource shared by eth0 and eth1 and a resource shared by eth2 and eth3"),
        "{}",
        found.sentence
    );
}

#[test]
fn a_slow_line_in_the_set_is_full_and_named() {
    let mut links = two();
    links[1].theory_bps = Some(94_148_244);
    let found = concluded(
        links,
        runs(
            &[flow(1, 940.0), flow(2, 94.1)],
            &[flow(1, 938.3), flow(2, 94.1)],
        ),
    )
    .summary;
    near(found.fairness, 1.0);
    assert_eq!(found.limiter, Some(Limiter::Cable));
    assert!(
        found
            .sentence
            .ends_with("at their full rate; eth1 carries 94.1 Mbit/s at most"),
        "{}",
        found.sentence
    );
}

#[test]
fn one_packet_in_a_thousand_lost_is_named_with_its_link() {
    let lossy = |mbit| {
        flow_with(2, mbit, |tcp| {
            tcp.retransmitted_bytes = tcp.sent_bytes.map(|sent| sent / 1000);
        })
    };
    let report = concluded(
        two(),
        runs(
            &[flow(1, 940.0), lossy(931.0)],
            &[flow(1, 940.0), lossy(931.0)],
        ),
    );
    let found = &report.summary;
    assert_eq!(
        (found.limiter, link_limiters(found)),
        (
            Some(Limiter::Loss),
            vec![Some(Limiter::Cable), Some(Limiter::Loss)]
        )
    );
    assert!(
        found
            .sentence
            .contains("lost packets on eth1 (0.10 % of the bytes were retransmitted)"),
        "{}",
        found.sentence
    );
    near(found.tcp_efficiency_pct, 99.95);
    assert_eq!(
        found.links[1].retransmitted_bytes,
        Some(6 * (report.runs[1].flows[0].bytes / 1000))
    );
}

#[test]
fn a_slow_receiver_and_a_starved_sender_are_named_with_their_machines() {
    let slow = |id| {
        flow_with(id, 390.0, |tcp| {
            tcp.rwnd_limited_us = Some(WINDOW_US * 54 / 100);
        })
    };
    let found = beside(&[slow(1), slow(2)]).summary;
    assert_eq!(found.limiter, Some(Limiter::Receiver));
    assert!(
        found
            .sentence
            .ends_with("the program on hostB: reads slower than eth0 and eth1 can deliver"),
        "{}",
        found.sentence
    );
    let starved = |id| flow_with(id, 20.0, |tcp| tcp.busy_us = Some(WINDOW_US / 50));
    let found = beside(&[starved(1), starved(2)]).summary;
    assert_eq!(found.limiter, Some(Limiter::Sender));
    assert!(
        found.sentence.contains("the program on hostA"),
        "{}",
        found.sentence
    );
}

#[test]
fn a_small_buffer_is_named_whether_the_kernel_limits_it_or_the_plan() {
    let held = |buffer| {
        flow_with(1, 500.0, move |tcp| {
            (tcp.rwnd_limited_us, tcp.receive_buffer_bytes) = (Some(WINDOW_US), buffer);
        })
    };
    let found = concluded(vec![link(1)], runs(&[], &[held(Some(16_384))])).summary;
    assert_eq!(found.limiter, Some(Limiter::ReceiveBuffer));
    let mut report = report(vec![link(1)], runs(&[], &[held(None)]));
    report.plan.socket_buffer_bytes = Some(16_384);
    conclude(&mut report);
    assert_eq!(report.summary.limiter, Some(Limiter::ReceiveBuffer));
    // At 10 ms the round trip is the bottleneck.
    report.links[0]
        .rtt_idle
        .iter_mut()
        .for_each(|trips| trips.min_us = 10_000.0);
    conclude(&mut report);
    assert_eq!(report.summary.limiter, Some(Limiter::Window));
}

#[test]
fn a_processor_without_time_and_a_quota_are_named_with_their_machine() {
    let mut measured = runs(&[], &[flow(1, 600.0)]);
    for run in &mut measured {
        run.cpu
            .daemon
            .iter_mut()
            .for_each(|cpu| cpu.worst_core_pct = Some(99.0));
    }
    let found = concluded(vec![link(1)], measured.clone()).summary;
    assert!(
        found
            .sentence
            .ends_with("limited by the processor of hostB: one core is saturated"),
        "{}",
        found.sentence
    );
    for run in &mut measured {
        run.cpu
            .daemon
            .iter_mut()
            .for_each(|cpu| cpu.throttled_us = Some(WINDOW_US / 2));
        run.flows
            .iter_mut()
            .filter_map(|flow| flow.tcp.as_mut())
            .for_each(|tcp| tcp.rwnd_limited_us = Some(WINDOW_US));
    }
    let found = concluded(vec![link(1)], measured).summary;
    assert_eq!(found.limiter, Some(Limiter::Cpu));
    assert!(
        found
            .sentence
            .ends_with("limited by the CPU quota of a cgroup on hostB"),
        "{}",
        found.sentence
    );
}

#[test]
fn an_unknown_line_is_measured_by_what_it_does_alone_and_that_is_said() {
    let links = vec![link_of_unknown_rate(1), link_of_unknown_rate(2)];
    let found = concluded(
        links,
        runs(
            &[flow(1, 940.0), flow(2, 940.0)],
            &[flow(1, 939.0), flow(2, 938.0)],
        ),
    )
    .summary;
    assert_eq!(
        (
            found.theory_bps,
            found.efficiency,
            found.transfer_time_ratio
        ),
        (None, None, None)
    );
    near(found.scaling, 0.998);
    near(found.fairness, 1.0);
    assert_eq!(
        found.sentence,
        "2 links carry 1.88 Gbit/s from hostA to hostB, 99.8 % of their single-link rates; the line rate of eth0 and eth1 is not known, limited by the cables, at their full rate"
    );
    let found = concluded(
        vec![link(1), link_of_unknown_rate(2)],
        runs(
            &[flow(1, 940.0), flow(2, 500.0)],
            &[flow(1, 940.0), flow(2, 498.0)],
        ),
    );
    assert!(
        found
            .summary
            .sentence
            .contains("the line rate of eth1 is not known, its single-link rate is used instead"),
        "{}",
        found.summary.sentence
    );
}

#[test]
fn the_only_link_is_alone_when_all_are_together() {
    let found = concluded(vec![link(1)], runs(&[], &[flow(1, 940.0)])).summary;
    assert_eq!(found.links[0].alone, found.links[0].together);
    near(found.scaling, 1.0);
    assert!(found.sentence.starts_with(
        "1 link carries 940.0 Mbit/s from hostA to hostB, 99.8 % of theory, limited by the cable,"
    ));
    let found = concluded(vec![link_of_unknown_rate(1)], runs(&[], &[flow(1, 940.0)])).summary;
    let said = "1 link carries 940.0 Mbit/s from hostA to hostB; the line rate of eth0 is not known, limited by";
    assert!(found.sentence.starts_with(said), "{}", found.sentence);
}

#[test]
fn processor_time_is_told_for_a_gigabit_and_in_megahertz() {
    let found = concluded(vec![link(1)], runs(&[], &[flow(1, 1000.0 / 3.0)])).summary;
    // 0.3 s of processor time in 3 s for 1 Gbit.
    near(found.cpu_s_per_gbit.client, 0.3);
    near(found.cpu_mhz_per_mbps.daemon, 0.9);
}

#[test]
fn the_best_tenth_is_that_of_the_samples_in_the_window() {
    let mut measured = run(Phase::Together, 1, vec![flow(1, 800.0)]);
    let sample = |index: u64, bytes| Interval {
        way: Direction::ToDaemon,
        t_us: index * 500_000,
        dt_us: 500_000,
        bytes: vec![bytes],
        retransmitted_bytes: Vec::new(),
        rtt_us: Vec::new(),
    };
    // Two warm-up samples, faster than the wire because buffered data arrives; six in the window;
    // one after it.
    let bytes = [
        90_000_000, 80_000_000, 50_000_000, 50_000_000, 50_000_000, 45_000_000, 55_000_000,
        50_000_000, 10,
    ];
    measured.intervals = bytes
        .into_iter()
        .zip(0..)
        .map(|(bytes, index)| sample(index, bytes))
        .collect();
    assert_eq!(
        summarise(&[link(1)], std::slice::from_ref(&measured)).top_decile_bps,
        Some(880_000_000)
    );
    measured.window_us += 1;
    let found = summarise(
        &[BenchLink {
            theory_bps: None,
            ..link(1)
        }],
        std::slice::from_ref(&measured),
    );
    assert_eq!(
        found.top_decile_bps,
        Some(1_440_000_000),
        "if none fit, all are taken"
    );
    let found = summarise(
        &[BenchLink {
            theory_bps: Some(941_000_000),
            ..link(1)
        }],
        &[measured],
    );
    assert_eq!(
        found.top_decile_bps, found.theory_bps,
        "no cable exceeds its capacity"
    );
}

#[test]
fn repeats_that_do_not_agree_and_a_single_one_are_told() {
    let wild: Vec<Run> = (0..12)
        .map(|repeat| {
            run(
                Phase::Together,
                repeat + 1,
                vec![flow(1, 700.0 + 40.0 * f64::from(repeat % 6))],
            )
        })
        .collect();
    let found = summarise(&[link(1)], &wild);
    assert!(
        found
            .sentence
            .ends_with("; not stable: 12 repeats from 700.0 Mbit/s to 900.0 Mbit/s"),
        "{}",
        found.sentence
    );
    assert!(
        summarise(&[link(1)], &wild[..1])
            .sentence
            .ends_with("; measured once")
    );
}

#[test]
fn other_phases_have_a_sentence_where_together_was_not_measured() {
    let reverse = concluded(
        vec![link(1)],
        (1..=6)
            .map(|repeat| run(Phase::Reverse, repeat, vec![flow(1, 940.0)]))
            .collect(),
    )
    .summary;
    assert!(
        reverse
            .sentence
            .starts_with("1 link carries 940.0 Mbit/s from hostB to hostA, 99.8 % of theory"),
        "{}",
        reverse.sentence
    );
    assert_eq!(
        (
            reverse.together,
            reverse.reverse.unwrap().n,
            reverse.limiter
        ),
        (None, 6, Some(Limiter::Cable))
    );
    let back = Flow {
        way: Direction::ToClient,
        ..flow(1, 900.0)
    };
    let both = concluded(
        vec![link(1)],
        (1..=6)
            .map(|repeat| run(Phase::Both, repeat, vec![flow(1, 940.0), back.clone()]))
            .collect(),
    )
    .summary;
    assert!(
        both.sentence.starts_with(
            "1 link carries 1.84 Gbit/s both ways between hostA and hostB, 97.7 % of theory"
        ),
        "{}",
        both.sentence
    );
    let solo = concluded(
        two(),
        vec![
            run(Phase::Solo, 1, vec![flow(1, 940.0)]),
            run(Phase::Solo, 1, vec![flow(2, 930.0)]),
        ],
    )
    .summary;
    assert!(
        solo.sentence.starts_with(
            "2 links carry 1.87 Gbit/s from hostA to hostB, one link at a time, 99.3 % of theory"
        ),
        "{}",
        solo.sentence
    );
}

#[test]
fn nothing_measured_is_nothing_known() {
    for found in [
        summarise(&[], &[]),
        summarise(&two(), &[]),
        summarise(&two(), &[run(Phase::Idle, 1, Vec::new())]),
    ] {
        assert_eq!(
            (found.together, found.scaling, found.fairness, found.limiter),
            (None, None, None, None)
        );
        assert_eq!(found.sentence, "nothing was measured");
    }
    let found = concluded(two(), vec![run(Phase::Together, 1, vec![flow(9, 1.0)])]);
    assert_eq!(
        (found.summary.limiter, found.runs[0].flows[0].limiter),
        (None, Limiter::Unknown),
        "a link that is not in the report"
    );
}

#[test]
fn what_the_kernel_does_not_tell_proves_nothing() {
    let bare = |id, mbit| Flow {
        tcp: None,
        ..flow(id, mbit)
    };
    let found = summarise(
        &two(),
        &runs(
            &[bare(1, 940.0), bare(2, 940.0)],
            &[bare(1, 657.0), bare(2, 489.0)],
        ),
    );
    assert_eq!(
        (
            found.limiter,
            found.tcp_efficiency_pct,
            found.links[0].retransmitted_bytes
        ),
        (Some(Limiter::Shared), None, None)
    );
    assert!(
        found.sentence.contains("from the client to the daemon"),
        "{}",
        found.sentence
    );
}
