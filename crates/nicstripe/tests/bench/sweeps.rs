//! Tests of the structure of sweep results. The rates are ignored, because they are meaningless
//! over loopback.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use nicstripe::{
    BenchEvent, BenchPlan, Client, Limits,
    bench::{BenchReport, Phase, Sweep, SweepKind, SweepPoint},
};

use crate::{
    bench::quick,
    harness::{Served, within},
};

/// Returns a benchmark plan with a single sweep that measures each point for 40 ms.
fn sweeping(kind: SweepKind) -> BenchPlan {
    BenchPlan {
        sweeps: vec![kind],
        load: Duration::from_millis(40),
        warm_up: Duration::ZERO,
        interval: Duration::from_millis(10),
        budget: Some(Duration::from_secs(40)),
        ..quick(&[])
    }
}

/// Report of a benchmark with one sweep, and the notes and points from the benchmark's events.
struct SweepRun {
    report: BenchReport,
    notes: Vec<String>,
    points: Vec<SweepPoint>,
}

impl SweepRun {
    async fn by(client: &Client, plan: BenchPlan) -> Self {
        let mut bench = client.bench(plan);
        let (mut notes, mut points) = (Vec::new(), Vec::new());
        while let Some(event) = within(bench.next_event()).await {
            match event {
                BenchEvent::Note(text) => notes.push(text),
                BenchEvent::Point { point, .. } => points.push(point),
                _ => {}
            }
        }
        Self {
            report: within(bench.finish()).await.unwrap(),
            notes,
            points,
        }
    }

    async fn of(kind: SweepKind, links: usize) -> Self {
        let served = Served::start().await;
        let client = served.client(links).await;
        let told = Self::by(&client, sweeping(kind)).await;
        assert!(
            client.links().await.is_ok(),
            "the bench's own session is still there"
        );
        assert!(
            told.points.len()
                >= told
                    .sweep()
                    .points
                    .iter()
                    .filter(|point| !point.computed)
                    .count(),
            "{:#?}",
            told.points
        );
        told
    }

    /// Returns the only sweep of the report. Panics if the sweep has no advice or a rate is 0. Also
    /// panics if the report is complete although the time limit stopped the sweep.
    #[track_caller]
    fn sweep(&self) -> &Sweep {
        let [sweep] = &self.report.sweeps[..] else {
            panic!("{:#?}", self.report.sweeps)
        };
        assert!(
            !self.report.complete || sweep.stopped != "the time was up",
            "{sweep:#?}"
        );
        assert!(
            !sweep.advice.is_empty() && sweep.points.iter().all(|point| point.rate.median_bps > 0),
            "{sweep:#?}"
        );
        sweep
    }
}

fn sizes(sweep: &Sweep) -> Vec<Option<u64>> {
    sweep.points.iter().map(|point| point.size).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn buffers_are_swept_beside_what_the_kernel_does_by_itself() {
    let told = SweepRun::of(SweepKind::Buffer, 1).await;
    let sweep = told.sweep();
    let sizes = sizes(sweep);
    assert!(
        sizes.len() >= 3 && sizes[..3] == [None, Some(16 << 10), Some(32 << 10)],
        "{sizes:?}"
    );
    assert!(sweep.points[0].got_bytes.is_none(), "it was not queried");
    let asked = || {
        sweep
            .points
            .iter()
            .filter_map(|point| Some((point.size?, point.got_bytes)))
    };
    // Linux allocates twice the requested size, up to the system's limit.
    assert!(
        asked().all(|(size, got)| got.is_some_and(|got| got >= size.min(64 << 10))),
        "{sweep:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_set_them_other_sizes_of_packets_are_computed_and_the_reason_is_told()
{
    let told = SweepRun::of(SweepKind::Mtu, 1).await;
    let sweep = told.sweep();
    let lo: u64 = fs::read_to_string("/sys/class/net/lo/mtu")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let all: BTreeSet<u64> = [1500, 4000, 9000, lo].into();
    assert_eq!(sizes(sweep), all.into_iter().map(Some).collect::<Vec<_>>());
    assert!(
        sweep
            .points
            .iter()
            .all(|point| point.computed == (point.size != Some(lo))),
        "{sweep:#?}"
    );
    assert!(
        told.notes
            .iter()
            .any(|note| note.contains("computed, not measured")),
        "{:?}",
        told.notes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_is_stopped_is_in_the_report_with_what_it_has() {
    let served = Served::start().await;
    let client = served.client(1).await;
    let mut bench = client.bench(sweeping(SweepKind::Streams));
    while let Some(event) = within(bench.next_event()).await {
        if matches!(event, BenchEvent::Point { .. }) {
            bench.stop();
        }
    }
    let report = within(bench.finish()).await.unwrap();
    assert!(
        !report.complete && report.sweeps[0].stopped == "interrupted",
        "{report:#?}"
    );
    assert!(report.sweeps[0].points[0].rate.n == 3 && report.sweeps[0].points[0].size == Some(1));
    // The sweep's session has left the daemon, so the next benchmark need not wait.
    let begun = Instant::now();
    let told = SweepRun::by(
        &client,
        BenchPlan {
            sweeps: Vec::new(),
            ..quick(&[Phase::Together])
        },
    )
    .await;
    assert!(
        told.report.complete && begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn points_that_cannot_be_measured_are_told_and_messages_are_swept_even_so() {
    // The daemon allows no session besides the benchmark's.
    let served = Served::start_within(Limits {
        sessions_per_peer: 1,
        ..Limits::default()
    })
    .await;
    let client = served.client(1).await;
    let plan = BenchPlan {
        sweeps: vec![SweepKind::Streams, SweepKind::Message],
        ..sweeping(SweepKind::Streams)
    };
    let SweepRun { report, notes, .. } = SweepRun::by(&client, plan).await;
    let kinds: Vec<_> = report
        .sweeps
        .iter()
        .map(|sweep| (sweep.kind, sweep.stopped != "points could not be measured"))
        .collect();
    assert_eq!(
        kinds,
        [(SweepKind::Streams, false), (SweepKind::Message, true)]
    );
    assert!(
        !report.complete
            && notes
                .iter()
                .any(|note| note.starts_with("1 connections per link could not be measured")),
        "{notes:?}"
    );
    expect_sizes_around_the_edges_of_segments(&report.sweeps[1]);
}

/// Checks a sweep of message sizes, from one byte to more than a frame.
fn expect_sizes_around_the_edges_of_segments(sweep: &Sweep) {
    assert!(
        sweep.link == Some(1) && sweep.latency_us.is_some() && sweep.half_size_bytes.is_some(),
        "{sweep:#?}"
    );
    let sizes = sizes(sweep);
    assert!(sizes.is_sorted() && sizes[0] == Some(1));
    assert!(
        [65_535, 65_536, 65_537, 1 << 17]
            .iter()
            .all(|size| sizes.contains(&Some(*size))),
        "also in more than one frame: {sizes:?}"
    );
    assert!(
        sweep
            .points
            .iter()
            .all(|point| point.time_us.is_some_and(|time| time > 0.0) && point.rate.n >= 3),
        "{sweep:#?}"
    );
}
