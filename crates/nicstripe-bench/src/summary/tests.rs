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

/// Asserts a fact of the sentence of a summary, for example `said!(found.contains("eth0"))`.
macro_rules! said {
    ($found:ident.$how:ident($text:expr)) => {
        assert!($found.sentence.$how($text), "{}", $found.sentence)
    };
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
    let summary = |measured: &[Run]| concluded(vec![link(1)], measured.to_vec()).summary;
    let found = summary(&measured);
    assert!(!found.sentence.contains("cop"), "{}", found.sentence);
    of_together(&mut measured, 2);
    let found = summary(&measured);
    said!(
        found.ends_with("; concurrent copies on hostB used part of the capacity in 2 of 6 loads")
    );
    let mut once = vec![run(Phase::Together, 1, vec![flow(1, 800.0)])];
    of_together(&mut once, 1);
    let found = summary(&once);
    said!(found.ends_with("; measured once; a concurrent copy on hostB used part of the capacity"));
    once[0].other_transfers = None;
    // An older daemon does not report it.
    let found = summary(&once);
    said!(found.ends_with("; measured once"));
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
        let flows = vec![flow(one, mbit), flow(other, mbit)];
        measured.push(run(Phase::Pair, 1, flows));
    }
    let found = concluded(four, measured).summary;
    said!(
        found.contains("a resource shared by eth0 and eth1 and a resource shared by eth2 and eth3")
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
    said!(found.ends_with("at their full rate; eth1 carries 94.1 Mbit/s at most"));
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
    said!(found.contains("lost packets on eth1 (0.10 % of the bytes were retransmitted)"));
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
    said!(found.ends_with("the program on hostB: reads slower than eth0 and eth1 can deliver"));
    let starved = |id| flow_with(id, 20.0, |tcp| tcp.busy_us = Some(WINDOW_US / 50));
    let found = beside(&[starved(1), starved(2)]).summary;
    assert_eq!(found.limiter, Some(Limiter::Sender));
    said!(found.contains("the program on hostA"));
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
    report.links[0].rtt_idle.as_mut().unwrap().min_us = 10_000.0;
    conclude(&mut report);
    assert_eq!(report.summary.limiter, Some(Limiter::Window));
}

#[test]
fn a_processor_without_time_and_a_quota_are_named_with_their_machine() {
    let mut measured = runs(&[], &[flow(1, 600.0)]);
    for run in &mut measured {
        run.cpu.daemon.as_mut().unwrap().worst_core_pct = Some(99.0);
    }
    let found = concluded(vec![link(1)], measured.clone()).summary;
    said!(found.ends_with("limited by the processor of hostB: one core is saturated"));
    for run in &mut measured {
        run.cpu.daemon.as_mut().unwrap().throttled_us = Some(WINDOW_US / 2);
        for tcp in run.flows.iter_mut().filter_map(|flow| flow.tcp.as_mut()) {
            tcp.rwnd_limited_us = Some(WINDOW_US);
        }
    }
    let found = concluded(vec![link(1)], measured).summary;
    assert_eq!(found.limiter, Some(Limiter::Cpu));
    said!(found.ends_with("limited by the CPU quota of a cgroup on hostB"));
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
    )
    .summary;
    said!(
        found.contains("the line rate of eth1 is not known, its single-link rate is used instead")
    );
}

#[test]
fn the_only_link_is_alone_when_all_are_together() {
    let found = concluded(vec![link(1)], runs(&[], &[flow(1, 940.0)])).summary;
    assert_eq!(found.links[0].alone, found.links[0].together);
    near(found.scaling, 1.0);
    said!(found.starts_with(
        "1 link carries 940.0 Mbit/s from hostA to hostB, 99.8 % of theory, limited by the cable,"
    ));
    let found = concluded(vec![link_of_unknown_rate(1)], runs(&[], &[flow(1, 940.0)])).summary;
    let said = "1 link carries 940.0 Mbit/s from hostA to hostB; the line rate of eth0 is not known, limited by";
    said!(found.starts_with(said));
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
    // Two warm-up samples, faster than the wire because buffered data arrives; six in the window;
    // one after it.
    let bytes = [
        90_000_000, 80_000_000, 50_000_000, 50_000_000, 50_000_000, 45_000_000, 55_000_000,
        50_000_000, 10,
    ];
    let sample = |(bytes, index): (u64, u64)| Interval {
        t_us: index * 500_000,
        dt_us: 500_000,
        bytes: vec![bytes],
        ..Interval::default()
    };
    measured.intervals = bytes.into_iter().zip(0..).map(sample).collect();
    let best = |theory_bps, measured: &Run| {
        let link = BenchLink {
            theory_bps,
            ..link(1)
        };
        summarise(&[link], std::slice::from_ref(measured)).top_decile_bps
    };
    assert_eq!(best(Some(THEORY), &measured), Some(880_000_000));
    // If none fit, all are taken.
    measured.window_us += 1;
    assert_eq!(best(None, &measured), Some(1_440_000_000));
    // No cable exceeds its capacity.
    assert_eq!(best(Some(941_000_000), &measured), Some(941_000_000));
}

#[test]
fn repeats_that_do_not_agree_and_a_single_one_are_told() {
    let wild = (0..12).map(|repeat| {
        let mbit = 700.0 + 40.0 * f64::from(repeat % 6);
        run(Phase::Together, repeat + 1, vec![flow(1, mbit)])
    });
    let wild: Vec<Run> = wild.collect();
    let found = summarise(&[link(1)], &wild);
    said!(found.ends_with("; not stable: 12 repeats from 700.0 Mbit/s to 900.0 Mbit/s"));
    let found = summarise(&[link(1)], &wild[..1]);
    said!(found.ends_with("; measured once"));
}

#[test]
fn other_phases_have_a_sentence_where_together_was_not_measured() {
    let six = |phase, flows: &[Flow]| {
        let runs = (1..=6).map(|repeat| run(phase, repeat, flows.to_vec()));
        concluded(vec![link(1)], runs.collect()).summary
    };
    let reverse = six(Phase::Reverse, &[flow(1, 940.0)]);
    said!(reverse.starts_with("1 link carries 940.0 Mbit/s from hostB to hostA, 99.8 % of theory"));
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
    let both = six(Phase::Both, &[flow(1, 940.0), back]);
    said!(both.starts_with(
        "1 link carries 1.84 Gbit/s both ways between hostA and hostB, 97.7 % of theory"
    ));
    let solo = concluded(
        two(),
        vec![
            run(Phase::Solo, 1, vec![flow(1, 940.0)]),
            run(Phase::Solo, 1, vec![flow(2, 930.0)]),
        ],
    )
    .summary;
    said!(solo.starts_with(
        "2 links carry 1.87 Gbit/s from hostA to hostB, one link at a time, 99.3 % of theory"
    ));
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
    said!(found.contains("from the client to the daemon"));
}
