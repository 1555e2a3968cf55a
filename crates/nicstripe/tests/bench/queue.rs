//! Tests of the daemon's benchmark queue. One benchmark runs at a time, and the others receive
//! their position or the reason for their rejection.

use std::time::Duration;

use nicstripe::{
    BenchEvent, BenchLimits, BenchPlan, Error,
    bench::{Phase, SweepKind},
};

use crate::{
    bench::quick,
    harness::{Served, within},
};

async fn waiting(bench: &mut nicstripe::Bench) -> (u32, Duration) {
    loop {
        if let Some(BenchEvent::Waiting { ahead, wait }) = within(bench.next_event()).await {
            return (ahead, wait);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_bench_waits_for_the_first_and_sees_it() {
    let served = Served::start().await;
    let (one, other) = (
        within(served.connect(1)).await.unwrap(),
        within(served.connect(1)).await.unwrap(),
    );
    let mut first = one.bench(BenchPlan {
        repeats: 12..=12,
        ..quick(&[Phase::Together])
    });
    while !matches!(
        within(first.next_event()).await,
        Some(BenchEvent::Began { .. })
    ) {}
    let mut second = other.bench(quick(&[Phase::Together]));
    let (ahead, wait) = waiting(&mut second).await;
    assert!(ahead == 1 && wait > Duration::ZERO);
    first.stop();
    assert!(!within(first.finish()).await.unwrap().complete);
    assert!(within(second.finish()).await.unwrap().complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_beside_a_bench_neither_waits_nor_fails_and_is_told() {
    let served = Served::start().await;
    let (one, other) = (
        within(served.connect(1)).await.unwrap(),
        within(served.connect(1)).await.unwrap(),
    );
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("source"), b"a few bytes").unwrap();
    let mut bench = one.bench(BenchPlan {
        repeats: 3..=3,
        ..quick(&[Phase::Together])
    });
    let mut notes = Vec::new();
    while let Some(event) = within(bench.next_event()).await {
        match event {
            BenchEvent::Began { repeat: 2, .. } => {
                while !matches!(
                    within(bench.next_event()).await,
                    Some(BenchEvent::Sample { .. })
                ) {}
                let target = Some(crate::harness::name("target"));
                within(
                    other
                        .put(here.path().join("source"), target, Default::default())
                        .finish(),
                )
                .await
                .unwrap();
            }
            BenchEvent::Note(text) => notes.push(text),
            _ => {}
        }
    }
    let report = within(bench.finish()).await.unwrap();
    let transfers: Vec<_> = report.runs.iter().map(|run| run.other_transfers).collect();
    assert!(report.complete && served.path("target").exists());
    // The copy outlives its load on a slow machine.
    assert!(
        transfers[0] == Some(0) && transfers[1..].contains(&Some(1)),
        "{transfers:?}"
    );
    assert!(
        notes
            .iter()
            .any(|note| note.contains("a transfer ran at the daemon")),
        "{notes:?}"
    );
    assert!(
        report.summary.sentence.contains("concurrent cop"),
        "{}",
        report.summary.sentence
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_the_queue_full_is_told_when_there_may_be_room() {
    let served = Served::start_with(BenchLimits {
        queue: 0,
        ..BenchLimits::default()
    })
    .await;
    let (one, other) = (
        within(served.connect(1)).await.unwrap(),
        within(served.connect(1)).await.unwrap(),
    );
    let mut first = one.bench(BenchPlan {
        repeats: 12..=12,
        ..quick(&[Phase::Together])
    });
    while !matches!(
        within(first.next_event()).await,
        Some(BenchEvent::Began { .. })
    ) {}
    let refused = within(other.bench(quick(&[Phase::Together])).finish())
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { why, .. } if why.contains("retry in")),
        "{refused}"
    );
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_does_not_bench_says_so() {
    let served = Served::start_with(BenchLimits {
        enabled: false,
        ..BenchLimits::default()
    })
    .await;
    let client = within(served.connect(1)).await.unwrap();
    let refused = within(client.bench(quick(&[Phase::Together])).finish())
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { why, .. } if why.contains("bench is disabled")),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bench_that_has_used_up_the_daemons_time_ends_with_what_it_has() {
    let served = Served::start_with(BenchLimits {
        time: Duration::from_secs(4),
        ..BenchLimits::default()
    })
    .await;
    let client = within(served.connect(1)).await.unwrap();
    let report = within(
        client
            .bench(BenchPlan {
                repeats: 12..=12,
                ..quick(&[Phase::Together, Phase::Reverse])
            })
            .finish(),
    )
    .await
    .unwrap();
    assert!(!report.complete && !report.runs.is_empty() && report.runs.len() < 24);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_one_bench_do_not_wait_for_each_other() {
    let served = Served::start_with(BenchLimits {
        queue: 0,
        ..BenchLimits::default()
    })
    .await;
    let client = within(served.connect(1)).await.unwrap();
    let plan = BenchPlan {
        sweeps: vec![SweepKind::Streams],
        budget: Some(Duration::from_secs(5)),
        ..quick(&[])
    };
    assert!(
        !within(client.bench(plan).finish()).await.unwrap().sweeps[0]
            .points
            .is_empty()
    );
}
