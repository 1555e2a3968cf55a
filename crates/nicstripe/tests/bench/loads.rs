//! Tests of the results of benchmark loads and round trips.

use std::time::Duration;

use nicstripe::{
    BenchEvent, BenchPlan, BitRate,
    bench::{BenchReport, Direction, Phase, Run, SCHEMA},
};

use crate::{
    bench::quick,
    harness::{Served, within},
};

const ALL: [Phase; 5] = [
    Phase::Idle,
    Phase::Solo,
    Phase::Together,
    Phase::Reverse,
    Phase::Both,
];

async fn bench(links: usize, plan: BenchPlan) -> BenchReport {
    let served = Served::start().await;
    let client = within(served.connect(links)).await.unwrap();
    let report = within(client.bench(plan).finish()).await.unwrap();
    within(client.close()).await;
    report
}

fn of(report: &BenchReport, phase: Phase) -> Vec<&Run> {
    report
        .runs
        .iter()
        .filter(|run| run.phase == phase)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_phase_is_measured_and_the_links_sum_up_to_the_total() {
    let report = bench(2, quick(&ALL)).await;
    assert!(
        report.complete && report.schema == SCHEMA && report.links.len() == 2,
        "{report:#?}"
    );
    assert!(report.links.iter().all(|link| {
        link.rtt_idle
            .is_some_and(|rtt| rtt.count == 20 && rtt.min_us > 0.0 && rtt.max_us >= rtt.p99_us)
    }));
    let counts = [
        Phase::Solo,
        Phase::Together,
        Phase::Reverse,
        Phase::Both,
        Phase::Pair,
    ]
    .map(|phase| of(&report, phase).len());
    assert_eq!(counts, [2, 1, 1, 1, 0]);
    for run in &report.runs {
        let bytes: u64 = run.flows.iter().map(|flow| flow.bytes).sum();
        assert_eq!(
            run.total_bps,
            (u128::from(bytes) * 8_000_000 / u128::from(run.window_us)) as u64
        );
        assert!(
            run.flows
                .iter()
                .all(|flow| flow.bytes > 0 && flow.tcp.is_some()),
            "{run:#?}"
        );
        assert!(run.intervals.len() >= 5 && run.cpu.client.is_some() && run.cpu.daemon.is_some());
        assert_eq!(run.other_transfers, Some(0));
    }
    assert!(
        of(&report, Phase::Solo)
            .iter()
            .all(|run| run.flows.len() == 1)
    );
    let ways = |phase| {
        of(&report, phase)[0]
            .flows
            .iter()
            .map(|flow| (flow.link, flow.way))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ways(Phase::Together),
        [(1, Direction::ToDaemon), (2, Direction::ToDaemon)]
    );
    assert_eq!(
        ways(Phase::Reverse),
        [(1, Direction::ToClient), (2, Direction::ToClient)]
    );
    assert_eq!(
        ways(Phase::Both),
        [
            (1, Direction::ToDaemon),
            (2, Direction::ToDaemon),
            (1, Direction::ToClient),
            (2, Direction::ToClient)
        ]
    );
    assert!(
        report.summary.together.is_some()
            && report.hosts.daemon.kernel.is_some()
            && !report.versions.daemon.is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_of_each_load_and_its_samples_and_end_with_the_bench() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let mut bench = client.bench(quick(&[Phase::Idle, Phase::Together]));
    let (mut connected, mut idle, mut began, mut samples, mut done) = (0, Vec::new(), 0, 0, 0);
    while let Some(event) = within(bench.next_event()).await {
        match event {
            BenchEvent::Connected { links } => connected += links.len(),
            BenchEvent::Idle { link, round_trips } => idle.push((link, round_trips.count)),
            BenchEvent::Began {
                phase,
                repeat,
                links,
            } => {
                assert_eq!((phase, repeat, links), (Phase::Together, 1, vec![1, 2]));
                began += 1;
            }
            BenchEvent::Sample {
                interval, links, ..
            } => {
                assert!(links == [1, 2] && interval.bytes.len() == 2 && interval.dt_us > 0);
                samples += 1;
            }
            BenchEvent::RunDone(run) => done += usize::from(run.total_bps > 0),
            _ => {}
        }
    }
    assert_eq!(
        (connected, idle, began, done),
        (2, vec![(1, 20), (2, 20)], 1, 1)
    );
    assert!(samples >= 5);
    assert!(within(bench.finish()).await.unwrap().complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_that_is_left_is_told_before_each_load_and_is_as_long_as_those_that_come() {
    let served = Served::start().await;
    let client = within(served.connect(1)).await.unwrap();
    let mut bench = client.bench(BenchPlan {
        repeats: 4..=4,
        ..quick(&[Phase::Together])
    });
    let (mut told, mut began) = (Vec::new(), 0);
    while let Some(event) = within(bench.next_event()).await {
        match event {
            BenchEvent::Left(left) => told.push(left),
            BenchEvent::Began { .. } => {
                began += 1;
                assert_eq!(told.len(), began, "before each load");
            }
            _ => {}
        }
    }
    assert_eq!(began, 4);
    // A load takes at most 1 s plus its start and end. The limit is twice that, for a busy machine.
    let each = |(index, left): (usize, &Duration)| *left / (4 - u32::try_from(index).unwrap());
    assert!(
        told.iter()
            .enumerate()
            .map(each)
            .all(|each| each > Duration::from_millis(100) && each < Duration::from_secs(4)),
        "{told:?}"
    );
    assert!(told[3] < told[0], "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stopped_early_is_a_report_of_what_was_measured() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let mut bench = client.bench(BenchPlan {
        repeats: 12..=12,
        ..quick(&ALL)
    });
    while let Some(event) = within(bench.next_event()).await {
        if matches!(event, BenchEvent::RunDone(_)) {
            bench.stop();
        }
    }
    let report = within(bench.finish()).await.unwrap();
    assert!(!report.complete && !report.runs.is_empty() && report.links.len() == 2);
    // No state remains: the next benchmark starts at once in the same session.
    let report = within(client.bench(quick(&[Phase::Reverse])).finish())
        .await
        .unwrap();
    assert!(report.complete && report.runs.len() == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_goes_away_in_the_middle_leaves_a_report_that_says_so() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    let mut bench = client.bench(BenchPlan {
        repeats: 12..=12,
        ..quick(&ALL)
    });
    let mut notes = Vec::new();
    while let Some(event) = within(bench.next_event()).await {
        match event {
            BenchEvent::RunDone(_) => served.shutdown.cancel(),
            BenchEvent::Note(text) => notes.push(text),
            _ => {}
        }
    }
    let report = within(bench.finish()).await.unwrap();
    assert!(!report.complete && !report.runs.is_empty());
    assert!(
        notes
            .iter()
            .any(|note| note.contains("ended the session") || note.contains("127.0.0.1")),
        "{notes:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_on_what_is_sent_holds_for_loads() {
    let served = Served::start().await;
    let client = within(served.connect_at(2, Some(BitRate::from_mbit(80))))
        .await
        .unwrap();
    let report = within(client.bench(quick(&[Phase::Together])).finish())
        .await
        .unwrap();
    let total = report.runs[0].total_bps;
    assert!((60_000_000..90_000_000).contains(&total), "{total}");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_work_in_the_session_that_has_benched() {
    let served = Served::start().await;
    let client = within(served.connect(2)).await.unwrap();
    within(client.bench(quick(&[Phase::Both])).finish())
        .await
        .unwrap();
    let here = tempfile::tempdir().unwrap();
    let bytes = crate::harness::content(9 << 20);
    std::fs::write(here.path().join("source"), &bytes).unwrap();
    let target = Some(crate::harness::name("target"));
    within(
        client
            .put(here.path().join("source"), target, Default::default())
            .finish(),
    )
    .await
    .unwrap();
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
}
