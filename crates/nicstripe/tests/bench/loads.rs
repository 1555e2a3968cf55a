//! Tests of the results of benchmark loads and round trips.

use std::time::Duration;

use nicstripe::{
    BenchEvent, BenchPlan, BitRate,
    bench::{BenchReport, Direction, Phase, Run, SCHEMA},
};

use crate::{
    bench::{long, quick},
    harness::{PLAIN, Served, content, finished, name, ok, source_of, within},
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
    let client = served.client(links).await;
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
    let phases = [
        Phase::Solo,
        Phase::Together,
        Phase::Reverse,
        Phase::Both,
        Phase::Pair,
    ];
    let counts = phases.map(|phase| of(&report, phase).len());
    assert_eq!(counts, [2, 1, 1, 1, 0]);
    for run in &report.runs {
        let bytes: u64 = run.flows.iter().map(|flow| flow.bytes).sum();
        let rate = u128::from(bytes) * 8_000_000 / u128::from(run.window_us);
        assert_eq!(run.total_bps, rate as u64);
        let mut flows = run.flows.iter();
        let are_measured = flows.all(|flow| flow.bytes > 0 && flow.tcp.is_some());
        assert!(are_measured && run.intervals.len() >= 5, "{run:#?}");
        assert!(run.cpu.client.is_some() && run.cpu.daemon.is_some());
        assert_eq!(run.other_transfers, Some(0));
    }
    let mut solo = of(&report, Phase::Solo).into_iter();
    assert!(solo.all(|run| run.flows.len() == 1));
    let ways = |phase| {
        let flows = of(&report, phase)[0].flows.iter();
        flows.map(|flow| (flow.link, flow.way)).collect::<Vec<_>>()
    };
    let [there, back] = [Direction::ToDaemon, Direction::ToClient].map(|way| [(1, way), (2, way)]);
    assert_eq!(ways(Phase::Together), there);
    assert_eq!(ways(Phase::Reverse), back);
    assert_eq!(ways(Phase::Both), [there, back].concat());
    assert!(
        report.summary.together.is_some()
            && report.hosts.daemon.kernel.is_some()
            && !report.versions.daemon.is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_of_each_load_and_its_samples_and_end_with_the_bench() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let mut bench = client.bench(quick(&[Phase::Idle, Phase::Together]));
    let (mut connected, mut idle, mut began, mut samples, mut done) = (0, Vec::new(), 0, 0, 0);
    let mut left = Vec::new();
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
                // A load takes at most 1 s plus its start and end.
                let left: &Duration = left.last().unwrap();
                assert!((100..4000).contains(&left.as_millis()), "{left:?}");
            }
            BenchEvent::Sample {
                interval, links, ..
            } => {
                assert!(links == [1, 2] && interval.bytes.len() == 2 && interval.dt_us > 0);
                samples += 1;
            }
            BenchEvent::Left(time) => left.push(time),
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
async fn what_is_stopped_early_is_a_report_of_what_was_measured() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let mut bench = client.bench(long(&ALL));
    while let Some(event) = within(bench.next_event()).await {
        if matches!(event, BenchEvent::RunDone(_)) {
            bench.stop();
        }
    }
    let report = within(bench.finish()).await.unwrap();
    assert!(!report.complete && !report.runs.is_empty() && report.links.len() == 2);
    // No state remains: the next benchmark starts at once in the same session.
    let report = ok(client.bench(quick(&[Phase::Reverse])).finish()).await;
    assert!(report.complete && report.runs.len() == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_goes_away_in_the_middle_leaves_a_report_that_says_so() {
    let served = Served::start().await;
    let client = served.client(2).await;
    let mut bench = client.bench(long(&ALL));
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
    let client = served.client_at(2, BitRate::from_mbit(80)).await;
    let report = ok(client.bench(quick(&[Phase::Together])).finish()).await;
    let total = report.runs[0].total_bps;
    assert!((60_000_000..90_000_000).contains(&total), "{total}");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_work_in_the_session_that_has_benched() {
    let served = Served::start().await;
    let client = served.client(2).await;
    ok(client.bench(quick(&[Phase::Both])).finish()).await;
    let bytes = content(9 << 20);
    let (_here, source) = source_of(&bytes);
    finished(client.put(&source, Some(name("target")), PLAIN)).await;
    assert!(std::fs::read(served.path("target")).unwrap() == bytes);
}
