//! Tests of the daemon's benchmark queue. One benchmark runs at a time, and the others receive
//! their position or the reason for their rejection.

use std::time::Duration;

use nicstripe::{
    BenchEvent, BenchLimits, BenchPlan, Error,
    bench::{Phase, SweepKind},
};

use crate::{
    bench::{long, quick},
    harness::{PLAIN, Served, finished, name, source_of, within},
};

async fn waiting(bench: &mut nicstripe::Bench) -> (u32, Duration) {
    loop {
        if let Some(BenchEvent::Waiting { ahead, wait }) = within(bench.next_event()).await {
            return (ahead, wait);
        }
    }
}

async fn begun(bench: &mut nicstripe::Bench) {
    let is_it = |event| matches!(event, Some(BenchEvent::Began { .. }));
    while !is_it(within(bench.next_event()).await) {}
}

/// Returns why a daemon refuses a bench of another client.
async fn refusal(served: &Served) -> String {
    let client = served.client(1).await;
    match within(client.bench(quick(&[Phase::Together])).finish()).await {
        Err(Error::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_bench_waits_for_the_first_and_sees_it() {
    let served = Served::start().await;
    let (one, other) = (served.client(1).await, served.client(1).await);
    let mut first = one.bench(long(&[Phase::Together]));
    begun(&mut first).await;
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
    let (one, other) = (served.client(1).await, served.client(1).await);
    let (_here, source) = source_of(b"a few bytes");
    let mut bench = one.bench(BenchPlan {
        repeats: 3..=3,
        ..quick(&[Phase::Together])
    });
    let mut notes = Vec::new();
    while let Some(event) = within(bench.next_event()).await {
        match event {
            BenchEvent::Began { repeat: 2, .. } => {
                let is_sample = |event| matches!(event, Some(BenchEvent::Sample { .. }));
                while !is_sample(within(bench.next_event()).await) {}
                finished(other.put(&source, Some(name("target")), PLAIN)).await;
            }
            BenchEvent::Note(text) => notes.push(text),
            _ => {}
        }
    }
    let report = within(bench.finish()).await.unwrap();
    let transfers: Vec<_> = report.runs.iter().map(|run| run.other_transfers).collect();
    assert!(report.complete && served.path("target").exists());
    // The copy outlives its load on a slow machine.
    let is_counted = transfers[0] == Some(0) && transfers[1..].contains(&Some(1));
    assert!(is_counted, "{transfers:?}");
    let told = "a transfer ran at the daemon";
    assert!(notes.iter().any(|note| note.contains(told)), "{notes:?}");
    let sentence = &report.summary.sentence;
    assert!(sentence.contains("concurrent cop"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_the_queue_full_is_told_when_there_may_be_room() {
    let served = Served::start_with(BenchLimits {
        queue: 0,
        ..BenchLimits::default()
    })
    .await;
    let one = served.client(1).await;
    let mut first = one.bench(long(&[Phase::Together]));
    begun(&mut first).await;
    let why = refusal(&served).await;
    assert!(why.contains("retry in"), "{why}");
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_does_not_bench_says_so() {
    let served = Served::start_with(BenchLimits {
        enabled: false,
        ..BenchLimits::default()
    })
    .await;
    let why = refusal(&served).await;
    assert!(why.contains("bench is disabled"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bench_that_has_used_up_the_daemons_time_ends_with_what_it_has() {
    let served = Served::start_with(BenchLimits {
        time: Duration::from_secs(4),
        ..BenchLimits::default()
    })
    .await;
    let bench = served
        .client(1)
        .await
        .bench(long(&[Phase::Together, Phase::Reverse]));
    let report = within(bench.finish()).await.unwrap();
    assert!(!report.complete && !report.runs.is_empty() && report.runs.len() < 24);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_one_bench_do_not_wait_for_each_other() {
    let served = Served::start_with(BenchLimits {
        queue: 0,
        ..BenchLimits::default()
    })
    .await;
    let plan = BenchPlan {
        sweeps: vec![SweepKind::Streams],
        budget: Some(Duration::from_secs(5)),
        ..quick(&[])
    };
    let report = within(served.client(1).await.bench(plan).finish()).await;
    assert!(!report.unwrap().sweeps[0].points.is_empty());
}
