//! Tests of trusted clients that misbehave in a benchmark or vanish: others do not wait for them,
//! and memory stays bounded.

use std::time::{Duration, Instant};

use nicstripe_proto::{
    Message,
    load::MOST_STALE,
    message::{BenchAsk, BenchBody, RunNumber},
};

use super::{
    Stage,
    clients::{echo_frame, load_frame, run_of},
    peer::Peer,
    within,
};
use crate::bench::{BenchPlan, Phase};

impl Peer {
    async fn bench(&mut self, body: BenchBody) {
        self.say(&Message::Bench(body)).await.unwrap();
    }

    /// Waits for a benchmark message that satisfies `is_wanted`, and skips others.
    async fn benched(&mut self, is_wanted: impl Fn(&BenchBody) -> bool) {
        self.told(|message| match message {
            Message::Bench(body) if is_wanted(&body) => Some(()),
            _ => None,
        })
        .await;
    }

    async fn admitted(stage: &Stage) -> Self {
        let mut peer = stage.session(&stage.client).await;
        peer.bench(BenchBody::Ask(BenchAsk {
            id: [9; 16],
            seconds: 1,
        }))
        .await;
        peer.benched(|body| matches!(body, BenchBody::Admitted(_)))
            .await;
        peer
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_keeps_nobody_waiting_for_long() {
    let stage = Stage::new().await;
    let mut gone = Peer::admitted(&stage).await;
    gone.bench(BenchBody::Run(run_of(true))).await;
    gone.benched(|body| matches!(body, BenchBody::Ready(_)))
        .await;
    drop(gone);
    let began = Instant::now();
    let client = stage.honest().await;
    let plan = BenchPlan {
        interval: Duration::from_millis(100),
        load: Duration::from_millis(300),
        warm_up: Duration::ZERO,
        repeats: 1..=1,
        phases: vec![Phase::Together],
        ..BenchPlan::default()
    };
    let report = within(client.bench(plan).finish()).await.unwrap();
    let waited = began.elapsed();
    assert!(
        report.complete && waited < Duration::from_secs(30),
        "{waited:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_for_echoes_and_does_not_read_loses_its_connection() {
    let stage = Stage::new().await;
    let mut evil = Peer::admitted(&stage).await;
    let echo = echo_frame(1 << 16);
    // After the daemon has closed, sent data is dropped without an error.
    for _ in 0..512 {
        within(evil.send_bytes(&echo)).await.unwrap();
    }
    within(evil.end()).await;
    stage.still_serves("file").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_on_loading_when_its_run_is_over_loses_its_connection() {
    let stage = Stage::new().await;
    let mut evil = Peer::admitted(&stage).await;
    evil.bench(BenchBody::Run(run_of(false))).await;
    evil.benched(|body| matches!(body, BenchBody::Ready(_)))
        .await;
    evil.bench(BenchBody::Stop(RunNumber { run: 1 })).await;
    evil.benched(|body| matches!(body, BenchBody::Stopped(_)))
        .await;
    let load = load_frame(1, 1 << 18);
    for _ in 0..(MOST_STALE >> 18) + 8 {
        within(evil.send_bytes(&load)).await.unwrap();
    }
    within(evil.end()).await;
    stage.still_serves("file").await;
}
